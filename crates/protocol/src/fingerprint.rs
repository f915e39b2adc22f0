//! Fingerprint: a short name for the set of masters of a lock. Locks over different sets find each
//! other by it, in the boot markers of masters that they share (see [`guard`](crate::Guard)).

use alloc::vec::Vec;
use core::fmt;

/// A hash of a set of masters, or of the name that stands for it. It is no secret and no proof: it
/// finds mistakes, not attacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of the addresses of all masters, in any order. They must contain no
    /// credentials: a hash of few unknowns can be guessed.
    pub fn of_addresses<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Self {
        let mut addresses: Vec<A> = addresses.into_iter().collect();
        addresses.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        Self::of(b"list", addresses.iter().map(AsRef::as_ref))
    }

    /// The fingerprint of a name for the set.
    pub fn of_name(name: &str) -> Self {
        Self::of(b"name", core::iter::once(name))
    }

    /// A hash of all parts. Each part ends with a byte that no text contains, so that parts do not
    /// run together.
    fn of<'a>(kind: &[u8], parts: impl Iterator<Item = &'a str>) -> Self {
        let end = |hash, part: &[u8]| fnv_1a(fnv_1a(hash, part), &[0xff]);
        Self(parts.fold(end(FNV_1A, kind), |hash, part| end(hash, part.as_bytes())))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| plain).map(Self)
    }
}

/// The FNV-1a hash, 64 bits, of no bytes.
pub(crate) const FNV_1A: u64 = 0xcbf2_9ce4_8422_2325;

/// The FNV-1a hash of more bytes, behind those of this hash.
pub(crate) fn fnv_1a(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, step)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn list(addresses: &[&str]) -> Fingerprint {
        Fingerprint::of_addresses(addresses)
    }

    #[test]
    fn the_order_of_a_list_does_not_count_and_all_else_does() {
        let own = list(&["a:1/0", "b:1/0", "c:1/0"]);
        assert_eq!(own, list(&["c:1/0", "a:1/0", "b:1/0"]));
        for other in [
            list(&["a:1/0", "b:1/0"]),
            list(&["a:1/0", "b:1/0", "c:1/1"]),
            list(&["a:1/0", "b:1/0", "c:1/0", "d:1/0"]),
            list(&["a:1/0b:1/0", "c:1/0"]),
            list(&[]),
        ] {
            assert_ne!(own, other);
        }
        assert_ne!(list(&["a"]), Fingerprint::of_name("a"));
        assert_ne!(Fingerprint::of_name("a"), Fingerprint::of_name("b"));
    }

    /// Clients of different versions must agree on the fingerprint.
    #[test]
    fn it_is_the_same_in_every_version_and_is_read_back() {
        let own = list(&["db1:6379/0", "db2:6379/0", "db3:6379/0"]);
        assert_eq!(own.to_string(), "7ce9ddaef8f9da15");
        assert_eq!(Fingerprint::read(&own.to_string()), Some(own));
        assert_eq!(
            Fingerprint::read("000000000000002a").map(|f| f.to_string()).as_deref(),
            Some("000000000000002a")
        );
        for wrong in ["", "2a", "+00000000000002a", "00000000000000002a", "000000000000002g"] {
            assert_eq!(Fingerprint::read(wrong), None, "{wrong}");
        }
    }
}
