//! How replies to commands are read.

use alloc::string::String;
use alloc::sync::Arc;

use super::{ErrorKind, Frame, Script, errors, is_said, queue};
use crate::fence::MAX_NUMBER;
use crate::guard::MAX_MARKER;
use crate::token::Token;
use crate::vote::{Cause, Holder, Reply};

/// How a reply is read: as the one to the [`Command`](super::Command) of the same name. It goes
/// with the command through the queue of a link.
#[expect(missing_docs, reason = "each variant has the name of its command")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expect {
    /// The reply to a plain `Set`.
    Set,
    /// The reply to a `Set` that is a script.
    Grant {
        /// Whether the command has a fence.
        fenced: bool,
    },
    Guarded {
        /// Whether the command has a fence.
        fenced: bool,
    },
    Watch,
    Initialize,
    Certify,
    Keep,
    Delete,
    Enqueue,
    Dequeue,
    Hello,
    Subscribe,
    Kill,
    Load(Script),
    Probe,
}

impl Expect {
    /// Whether the command may create a lock's key, or keep it.
    pub(crate) const fn creates(self) -> bool {
        matches!(self, Self::Set | Self::Grant { .. } | Self::Guarded { .. } | Self::Keep)
    }

    /// Whether the command calls a script.
    pub(crate) const fn is_of_script(self) -> bool {
        !matches!(
            self,
            Self::Set
                | Self::Initialize
                | Self::Hello
                | Self::Subscribe
                | Self::Kill
                | Self::Load(_)
                | Self::Probe
        )
    }

    /// Reads a reply. One that Redis never gives to this command is [`Cause::Garbage`]: after it
    /// nothing on the connection can be trusted.
    pub fn read(self, frame: &Frame<'_>) -> Reply {
        match (self, frame) {
            // An error means that there is no such client any more, or that the kill is forbidden:
            // go on. The exception is a busy master: it could not look, and will still execute what
            // the old connection holds.
            (Self::Kill, Frame::Error(text)) if ErrorKind::of(text) != ErrorKind::Busy => {
                Reply::Alive
            }
            (Self::Kill, Frame::Integer(_) | Frame::Simple(_)) => Reply::Alive,
            // The user may have rights on other keys, so this says nothing about writes to those.
            (Self::Probe, Frame::Error(text)) if is_forbidden_key(text) => Reply::Alive,
            (_, Frame::Error(text)) => match (self, ErrorKind::of(text)) {
                // The master keeps no queue for this client, and never will.
                (Self::Enqueue, ErrorKind::Forbidden | ErrorKind::WrongType) => Reply::NoQueue,
                (_, ErrorKind::NoScript) => Reply::Unknown(Cause::NoScript),
                (Self::Keep | Self::Delete | Self::Certify, ErrorKind::WrongType) => {
                    Reply::Taken(Holder::WrongType)
                }
                _ => Reply::Unknown(Cause::Error(readable(errors::unwrapped(text)))),
            },
            (Self::Set, Frame::Simple(b"OK")) => Reply::Created,
            (Self::Set, Frame::Null) => Reply::Taken(Holder::NotAsked),
            (Self::Grant { fenced }, Frame::Integer(number)) => {
                granted(*number, fenced).unwrap_or(Reply::Unknown(Cause::Garbage))
            }
            (Self::Guarded { .. } | Self::Watch, Frame::Array(parts)) => self.read_stamped(parts),
            (Self::Initialize, Frame::Simple(b"OK")) => Reply::Initialized,
            (Self::Initialize, Frame::Null) => Reply::Marked { boot: None, probation: None },
            (Self::Keep | Self::Delete | Self::Certify, Frame::Integer(0)) => Reply::Absent,
            (Self::Certify, Frame::Integer(number)) => match counted(*number) {
                Some(number) => Reply::Certified { number },
                None => Reply::Unknown(Cause::Garbage),
            },
            (Self::Keep, Frame::Integer(1)) => Reply::Kept,
            (Self::Keep, Frame::Integer(2)) => Reply::Created,
            (Self::Delete, Frame::Integer(1)) => Reply::Deleted,
            (Self::Delete, Frame::Integer(count @ 2..)) => match u32::try_from(count - 1) {
                Ok(listeners) => Reply::Freed { listeners },
                Err(_) => Reply::Unknown(Cause::Garbage),
            },
            (Self::Enqueue, Frame::Array(parts)) => queue::place(parts),
            (Self::Dequeue, Frame::Integer(0)) => Reply::Alive,
            (Self::Hello, Frame::Map(_)) => Reply::Alive,
            (Self::Subscribe, Frame::Push(said)) if is_said(said, b"subscribe") => Reply::Alive,
            (Self::Keep | Self::Delete | Self::Certify, Frame::Array(parts)) => match parts
                .as_slice()
            {
                [Frame::Integer(left), Frame::Bulk(value)] => Reply::Taken(holder(*left, value)),
                _ => Reply::Unknown(Cause::Garbage),
            },
            (Self::Load(script), Frame::Bulk(sha)) if *sha == script.sha1.as_bytes() => {
                Reply::Alive
            }
            // `OK` means that another program created this key. It expires by this command.
            (Self::Probe, Frame::Null | Frame::Simple(b"OK")) => Reply::Alive,
            _ => Reply::Unknown(Cause::Garbage),
        }
    }

    /// Reads the reply of a script that ends with the master's `TIME` in microseconds.
    fn read_stamped(self, parts: &[Frame<'_>]) -> Reply {
        let garbage = Reply::Unknown(Cause::Garbage);
        let [said @ .., Frame::Integer(micros)] = parts else { return garbage };
        let reply = match (self, said) {
            (Self::Guarded { fenced }, [Frame::Integer(number)]) => {
                match granted(*number, fenced) {
                    Some(reply) => reply,
                    None => return garbage,
                }
            }
            (Self::Guarded { .. }, [Frame::Bulk(boot)]) => {
                Reply::Marked { boot: marker(boot), probation: None }
            }
            (Self::Watch, [Frame::Bulk(boot), Frame::Bulk(probation)]) => {
                Reply::Marked { boot: marker(boot), probation: marker(probation) }
            }
            _ => return garbage,
        };
        u64::try_from(*micros).map_or(garbage, |micros| reply.stamped(micros))
    }
}

/// Reads the number of a grant; 0 is a refusal. Without a fence the number of a grant is 1.
fn granted(number: i64, fenced: bool) -> Option<Reply> {
    match number {
        0 => Some(Reply::Taken(Holder::NotAsked)),
        _ if fenced => counted(number).map(|number| Reply::Granted { number }),
        1 => Some(Reply::Created),
        _ => None,
    }
}

/// Whether ACLs allow the command, but not on its key.
fn is_forbidden_key(error: &[u8]) -> bool {
    let contains = |part: &[u8]| error.windows(part.len()).any(|found| found == part);
    // The texts of Redis before 7.2, and since.
    error.starts_with(b"NOPERM")
        && (contains(b"access one of the keys") || contains(b"access a key"))
}

/// Reads a boot marker or the value of a probation key in a form that can be shown and compared. A
/// value that can be neither becomes `?`.
pub(crate) fn marker(bytes: &[u8]) -> Option<Arc<str>> {
    let fits = bytes.len() <= MAX_MARKER && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let text = core::str::from_utf8(bytes).ok().filter(|_| fits).unwrap_or("?");
    (!bytes.is_empty()).then(|| Arc::from(text))
}

/// Returns the number if a counter can show it.
pub(super) fn counted(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..=MAX_NUMBER).contains(number))
}

pub(super) fn holder(left: i64, value: &[u8]) -> Holder {
    match (u64::try_from(left), Token::from_slice(value)) {
        (Err(_), _) => Holder::NoExpiry,
        (Ok(left_ms), Some(token)) => Holder::Lease { token, left_ms },
        (Ok(left_ms), None) => Holder::Foreign { left_ms },
    }
}

/// The longest error text that is kept.
const MAX_TEXT: usize = 200;

/// A server's error text for a log line: bounded, and without control characters.
pub fn readable(text: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Arc::from(clean)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::KEEP;

    #[test]
    fn an_answer_that_does_not_fit_its_command_is_garbage() {
        let garbage = Reply::Unknown(Cause::Garbage);
        let frames = [
            Frame::Simple(b"QUEUED"),
            Frame::Integer(7),
            Frame::Bulk(b"x"),
            Frame::Array(Vec::from([Frame::Integer(1)])),
        ];
        for expect in [
            Expect::Set,
            Expect::Keep,
            Expect::Hello,
            Expect::Subscribe,
            Expect::Load(KEEP),
            Expect::Probe,
        ] {
            for frame in &frames {
                assert_eq!(expect.read(frame), garbage, "{expect:?} {frame:?}");
            }
        }
        assert_eq!(Expect::Set.read(&Frame::Integer(1)), garbage);
        assert_eq!(Expect::Delete.read(&Frame::Integer(-1)), garbage);
        assert_eq!(Expect::Delete.read(&Frame::Null), garbage);
    }

    #[test]
    fn a_probe_distinguishes_refused_writes_from_a_forbidden_key() {
        let read = |text: &'static str| Expect::Probe.read(&Frame::Error(text.as_bytes()));
        for key in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            assert_eq!(read(key), Reply::Alive, "{key}");
        }
        for refusal in [
            "NOPERM this user has no permissions to run the 'set' command",
            "READONLY You can't write against a read only replica.",
            "MOVED 1 127.0.0.1:1",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            let why = Reply::Unknown(Cause::Error(Arc::from(refusal)));
            assert_eq!(read(refusal), why, "{refusal}");
        }
        assert_eq!(Expect::Probe.read(&Frame::Null), Reply::Alive);
    }

    #[test]
    fn errors_are_bounded_and_printable() {
        let long = [b"ERR \x1b[31m\r\n\xff".to_vec(), alloc::vec![b'x'; 100_000]].concat();
        let Reply::Unknown(Cause::Error(text)) = Expect::Set.read(&Frame::Error(&long)) else {
            panic!()
        };
        assert!(text.len() < 2 * MAX_TEXT);
        assert!(!text.chars().any(char::is_control));
    }
}
