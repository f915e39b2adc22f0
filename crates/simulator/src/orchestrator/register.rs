//! Register: the object that a lock protects, as the harness models it.

use redquorum_scenario::AccessKind;

/// A register, and the largest fencing token that a client has presented to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    version: u64,
    largest: u64,
}

impl Register {
    /// A client accesses the register, with a fencing token or without. Returns the current
    /// version, or `None` if the register refuses.
    ///
    /// A read or a write with a token is refused unless this token is the largest one presented so
    /// far. A check that only refuses smaller tokens would let two holders lose an update between
    /// them. The register refuses no request without a token.
    pub(super) const fn touch(&mut self, way: AccessKind, token: Option<u64>) -> Option<u64> {
        match (token, way) {
            (Some(0), _) => return None,
            (Some(token), AccessKind::Present) if token >= self.largest => self.largest = token,
            (Some(token), AccessKind::Read | AccessKind::Write) if token == self.largest => {}
            (Some(_), _) => return None,
            (None, _) => {}
        }
        if matches!(way, AccessKind::Write) {
            self.version += 1;
        }
        Some(self.version)
    }

    /// The current version.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_obeys_the_largest_token_that_was_presented_to_it() {
        let mut register = Register::default();
        assert_eq!(register.touch(AccessKind::Read, Some(7)), None, "it was not presented");
        assert_eq!(register.touch(AccessKind::Present, Some(0)), None, "no token");
        assert_eq!(register.touch(AccessKind::Present, Some(7)), Some(0));
        assert_eq!(register.touch(AccessKind::Read, Some(7)), Some(0));
        assert_eq!(register.touch(AccessKind::Write, Some(7)), Some(1));
        assert_eq!(register.touch(AccessKind::Present, Some(7)), Some(1), "again");
        assert_eq!(register.touch(AccessKind::Present, Some(8)), Some(1));
        for way in [AccessKind::Present, AccessKind::Read, AccessKind::Write] {
            assert_eq!(register.touch(way, Some(7)), None);
        }
        assert_eq!(register.touch(AccessKind::Write, Some(9)), None, "larger, and not presented");
        assert_eq!(register.version(), 1);
        assert_eq!(
            register.touch(AccessKind::Write, None),
            Some(2),
            "a request without a token is not refused"
        );
    }
}
