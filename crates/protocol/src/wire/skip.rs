//! Skip: passes over a push that is too long, and keeps nothing of it.
//!
//! Other programs publish on the channels of the same server, and a push answers no command. So a
//! long push must not cost the connection. A long reply does cost it: no command asks for one.

use super::frame::{Malformed, long_push};

/// The longest line that can announce a length or a number of elements: `$`, 20 digits and `\r`.
const MAX_HEADER: usize = 22;

/// A push of any length that is being passed over. It takes constant memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skip {
    /// How many values have not begun.
    values: u64,
    /// How many bytes are left of a bulk and the end of its line.
    bulk: u64,
    /// The beginning of the current line, and how much of the line has come.
    line: [u8; MAX_HEADER],
    length: usize,
}

impl Skip {
    /// Begins, if `bytes` begin with a push that cannot become a value of at most `limit` bytes.
    /// Confirmations of `SUBSCRIBE` and `UNSUBSCRIBE` are replies, and are not passed over.
    pub fn begin(bytes: &[u8], limit: usize) -> Option<Self> {
        let start = Self { values: 1, bulk: 0, line: [0; MAX_HEADER], length: 0 };
        long_push(bytes, limit).then_some(start)
    }

    /// Passes over the next bytes, from where it stopped. Returns how many belong to the push, and
    /// whether the push ends with them.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not the Redis protocol.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut at = 0;
        while self.values > 0 || self.bulk > 0 {
            let rest = &bytes[at..];
            if rest.is_empty() {
                return Ok((at, false));
            }
            if self.bulk > 0 {
                let count = rest.len().min(usize::try_from(self.bulk).unwrap_or(usize::MAX));
                self.bulk -= count as u64;
                at += count;
                continue;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let part = &rest[..end.map_or(rest.len(), |end| end + 1)];
            at += part.len();
            if let Some(room) = self.line.get_mut(self.length..) {
                let kept = room.len().min(part.len());
                room[..kept].copy_from_slice(&part[..kept]);
            }
            self.length = self.length.saturating_add(part.len());
            if end.is_some() {
                self.header()?;
            }
        }
        Ok((at, true))
    }

    /// Ends a line: the values and bytes that it announces belong to the push, too.
    fn header(&mut self) -> Result<(), Malformed> {
        let length = core::mem::take(&mut self.length);
        let number = || {
            let text = self.line.get(1..length)?.strip_suffix(b"\r\n")?;
            let number: i64 = core::str::from_utf8(text).ok()?.parse().ok()?;
            // Null is -1.
            if number == -1 { Some(0) } else { u64::try_from(number).ok() }
        };
        let number = || number().ok_or(Malformed);
        let more = match self.line[0] {
            b'$' | b'=' | b'!' => {
                let null = self.line[1] == b'-';
                self.bulk = if null { number()? } else { number()?.saturating_add(2) };
                0
            }
            b'*' | b'>' | b'~' => number()?,
            b'%' => number()?.checked_mul(2).ok_or(Malformed)?,
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
            _ => return Err(Malformed),
        };
        self.values = (self.values - 1).checked_add(more).ok_or(Malformed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::MAX_REPLY;

    fn long(kind: &[u8]) -> Vec<u8> {
        let body = [b'x'; MAX_REPLY + 1];
        let header = [b">3\r\n$", kind.len().to_string().as_bytes(), b"\r\n", kind].concat();
        [&header, &b"\r\n$1\r\nc\r\n$65537\r\n"[..], &body, b"\r\n"].concat()
    }

    use alloc::string::ToString;

    #[test]
    fn only_a_long_push_that_is_no_confirmation_is_passed_over() {
        assert!(Skip::begin(&long(b"message"), MAX_REPLY).is_some());
        assert!(Skip::begin(&long(b"message")[..60], MAX_REPLY).is_some(), "its length says so");
        assert_eq!(Skip::begin(&long(b"subscribe"), MAX_REPLY), None);
        assert_eq!(Skip::begin(&long(b"unsubscribe"), MAX_REPLY), None);
        assert!(Skip::begin(b">5000\r\n", MAX_REPLY).is_some(), "too many elements");
        let endless = [b">1\r\n+".to_vec(), alloc::vec![b'x'; 99]].concat();
        assert_eq!(Skip::begin(&endless, 200), None, "it may end");
        assert!(Skip::begin(&endless, 100).is_some());
        for other in [
            &b"$65537\r\n"[..],
            b">1\r\n:7\r\n",
            b">x\r\n",
            b">1\r\n:x\r\n",
            b">1\r\n",
            b">-1\r\n",
            b"",
            b">",
        ] {
            assert_eq!(Skip::begin(other, MAX_REPLY), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_protocol_is_refused_on_the_way() {
        let begin = || Skip::begin(b">5000\r\n", MAX_REPLY).unwrap();
        for bad in [
            &b"x\r\n"[..],
            b"$x\r\n",
            b"$-2\r\n",
            b"*99999999999999999999999999\r\n",
            b"%9223372036854775807\r\n%9223372036854775807\r\n",
        ] {
            let mut skip = begin();
            skip.pass(b">5000\r\n").unwrap();
            assert_eq!(skip.pass(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_push_of_any_values_is_passed_over_to_its_end_in_one_part_or_many() {
        let values: [&[u8]; 10] = [
            b"+OK\r\n",
            b"$3\r\na\nb\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"=7\r\ntxt:abc\r\n",
            b"!3\r\nERR\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"$1\r\nz\r\n",
        ];
        let push = [&b">10\r\n"[..], &values.concat()].concat();
        let bytes = [&push[..], b":1\r\n"].concat();
        let begin = || Skip { values: 1, bulk: 0, line: [0; MAX_HEADER], length: 0 };
        assert_eq!(begin().pass(&bytes), Ok((push.len(), true)));
        for split in 1..push.len() {
            let mut skip = begin();
            assert_eq!(skip.pass(&bytes[..split]), Ok((split, false)));
            assert_eq!(skip.pass(&bytes[split..]), Ok((push.len() - split, true)), "{split}");
        }
    }
}
