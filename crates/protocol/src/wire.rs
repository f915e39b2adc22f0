//! Wire: the commands and answers as bytes, in one place.
//!
//! Clients encode [`Command`]s and decode answers with what is here; model masters and proxies
//! decode commands with the same [`Frame`]. `docs/wire.md` describes the form.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::effect::Key;
use crate::token::Token;
use crate::vote::{Answer, Cause, Holder};

mod frame;
mod hello;
mod scripts;

pub use frame::{Frame, MAX_REPLY, Malformed, parse, write_command};
pub use hello::{Greeting, Hello, Unfit};
pub use scripts::{DELETE, KEEP, Script};

/// A command as a link writes it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// `SET key token NX PX ttl`: the plain acquire.
    Set {
        /// The key of the resource.
        key: Key,
        /// Its value.
        token: Token,
        /// How long the master keeps it, in milliseconds.
        ttl_ms: u64,
    },
    /// Compare-and-expire, with or without repair.
    Keep {
        /// The key of the resource.
        key: Key,
        /// The value to compare with.
        token: Token,
        /// How long the key shall live at least, in milliseconds.
        ttl_ms: u64,
        /// Create it if it is missing.
        repair: bool,
    },
    /// Compare-and-delete.
    Delete {
        /// The key of the resource.
        key: Key,
        /// The value to compare with.
        token: Token,
    },
    /// `CLIENT KILL ID`: drops an old connection of ours and whatever it had sent.
    Kill {
        /// The old connection's client id.
        client_id: u64,
    },
    /// `SCRIPT LOAD`.
    Load(Script),
    /// `PING`.
    Ping,
}

/// What an answer is read as. It goes with the command through the queue of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expect {
    /// The answer to [`Command::Set`].
    Set,
    /// The answer to [`Command::Keep`].
    Keep,
    /// The answer to [`Command::Delete`].
    Delete,
    /// The answer to [`Command::Kill`].
    Kill,
    /// The answer to [`Command::Load`].
    Load(Script),
    /// The answer to [`Command::Ping`].
    Ping,
}

impl Command {
    /// Loads every script that commands call.
    pub const fn load_scripts() -> [Self; 2] {
        [Self::Load(DELETE), Self::Load(KEEP)]
    }

    /// What its answer is read as.
    pub const fn expect(&self) -> Expect {
        match self {
            Self::Set { .. } => Expect::Set,
            Self::Keep { .. } => Expect::Keep,
            Self::Delete { .. } => Expect::Delete,
            Self::Kill { .. } => Expect::Kill,
            Self::Load(script) => Expect::Load(*script),
            Self::Ping => Expect::Ping,
        }
    }

    /// About how many bytes it has on the wire.
    pub fn size_hint(&self) -> usize {
        match self {
            Self::Set { key, .. } | Self::Keep { key, .. } | Self::Delete { key, .. } => {
                key.len() + 128
            }
            Self::Load(script) => script.source.len() + 64,
            Self::Kill { .. } | Self::Ping => 64,
        }
    }

    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut digits = [[0; 20]; 2];
        match self {
            Self::Set { key, token, ttl_ms } => {
                let ttl = decimal(*ttl_ms, &mut digits[0]);
                write_command(out, &[b"SET", key, token.as_bytes(), b"NX", b"PX", ttl]);
            }
            Self::Keep { key, token, ttl_ms, repair } => {
                let ttl = decimal(*ttl_ms, &mut digits[0]);
                let repair: &[u8] = if *repair { b"1" } else { b"0" };
                let sha = KEEP.sha1.as_bytes();
                write_command(out, &[b"EVALSHA", sha, b"1", key, token.as_bytes(), ttl, repair]);
            }
            Self::Delete { key, token } => {
                let sha = DELETE.sha1.as_bytes();
                write_command(out, &[b"EVALSHA", sha, b"1", key, token.as_bytes()]);
            }
            Self::Kill { client_id } => {
                let id = decimal(*client_id, &mut digits[0]);
                write_command(out, &[b"CLIENT", b"KILL", b"ID", id]);
            }
            Self::Load(script) => {
                write_command(out, &[b"SCRIPT", b"LOAD", script.source.as_bytes()]);
            }
            Self::Ping => write_command(out, &[b"PING"]),
        }
    }
}

impl Expect {
    /// Reads an answer. What Redis would never say to this command is [`Cause::Garbage`], after
    /// which nothing more on its connection can be trusted.
    pub fn read(self, frame: &Frame<'_>) -> Answer {
        match (self, frame) {
            // Also where there is no such client any more, or where it is forbidden: but not from
            // a master that could not look, and will execute what the old connection holds.
            (Self::Kill, Frame::Error(text))
                if [&b"BUSY"[..], b"LOADING"].iter().all(|code| !text.starts_with(code)) =>
            {
                Answer::Alive
            }
            (Self::Kill, Frame::Integer(_) | Frame::Simple(_)) => Answer::Alive,
            (_, Frame::Error(text)) if text.starts_with(b"NOSCRIPT") => {
                Answer::Unknown(Cause::NoScript)
            }
            (Self::Keep | Self::Delete, Frame::Error(text)) if text.starts_with(b"WRONGTYPE") => {
                Answer::Taken(Holder::WrongType)
            }
            (_, Frame::Error(text)) => Answer::Unknown(Cause::Error(readable(text))),
            (Self::Set, Frame::Simple(b"OK")) => Answer::Created,
            (Self::Set, Frame::Null) => Answer::Taken(Holder::NotAsked),
            (Self::Keep | Self::Delete, Frame::Integer(0)) => Answer::Absent,
            (Self::Keep, Frame::Integer(1)) => Answer::Kept,
            (Self::Keep, Frame::Integer(2)) => Answer::Created,
            (Self::Delete, Frame::Integer(1)) => Answer::Deleted,
            (Self::Keep | Self::Delete, Frame::Array(parts)) => match parts.as_slice() {
                [Frame::Integer(left), Frame::Bulk(value)] => Answer::Taken(holder(*left, value)),
                _ => Answer::Unknown(Cause::Garbage),
            },
            (Self::Load(script), Frame::Bulk(sha)) if *sha == script.sha1.as_bytes() => {
                Answer::Alive
            }
            (Self::Ping, Frame::Simple(b"PONG")) => Answer::Alive,
            _ => Answer::Unknown(Cause::Garbage),
        }
    }
}

fn holder(left: i64, value: &[u8]) -> Holder {
    match (u64::try_from(left), Token::from_slice(value)) {
        (Err(_), _) => Holder::NoExpiry,
        (Ok(left_ms), Some(token)) => Holder::Lease { token, left_ms },
        (Ok(left_ms), None) => Holder::Foreign { left_ms },
    }
}

/// Longest error text that is kept.
const MAX_TEXT: usize = 200;

/// A server's error text for a log line: bounded, and without control characters.
fn readable(text: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Arc::from(clean)
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        let digit = (number % 10) as u8;
        digits[start] = b'0' + digit;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::TOKEN_LEN;

    fn bytes(command: &Command) -> Vec<u8> {
        let mut out = Vec::new();
        command.encode(&mut out);
        out
    }

    #[test]
    fn a_plain_acquire_is_one_set_nx_px() {
        let token = Token::new(*b"01234567890123456789");
        let set = Command::Set { key: Arc::from(&b"r"[..]), token, ttl_ms: 10_000 };
        let text: &[u8] = b"*6\r\n$3\r\nSET\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n\
            $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
        assert_eq!(bytes(&set), text);
    }

    #[test]
    fn keys_and_tokens_may_be_any_bytes() {
        let key: Key = Arc::from(&b"\0\r\n$5\r\n\xff"[..]);
        let token = Token::new([0; TOKEN_LEN]);
        let out = bytes(&Command::Delete { key: key.clone(), token });
        let (frame, used) = parse(&out, usize::MAX).unwrap().unwrap();
        assert_eq!(used, out.len());
        let Frame::Array(parts) = frame else { panic!("{frame:?}") };
        assert_eq!(parts[3], Frame::Bulk(&key));
        assert_eq!(parts[4], Frame::Bulk(&[0; TOKEN_LEN]));
    }

    #[test]
    fn decimals_are_right_at_both_ends() {
        for number in [0, 9, 10, u64::MAX] {
            let text = alloc::format!("{number}");
            assert_eq!(decimal(number, &mut [0; 20]), text.as_bytes());
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_its_command_is_garbage() {
        let garbage = Answer::Unknown(Cause::Garbage);
        let frames = [
            Frame::Simple(b"QUEUED"),
            Frame::Integer(7),
            Frame::Bulk(b"x"),
            Frame::Array(Vec::from([Frame::Integer(1)])),
        ];
        for expect in [Expect::Set, Expect::Keep, Expect::Delete, Expect::Load(KEEP), Expect::Ping]
        {
            for frame in &frames {
                assert_eq!(expect.read(frame), garbage, "{expect:?} {frame:?}");
            }
        }
        assert_eq!(Expect::Set.read(&Frame::Integer(1)), garbage);
        assert_eq!(Expect::Delete.read(&Frame::Integer(2)), garbage);
        assert_eq!(Expect::Delete.read(&Frame::Null), garbage);
    }

    #[test]
    fn errors_are_bounded_and_printable() {
        let long = [b"ERR \x1b[31m\r\n\xff".to_vec(), alloc::vec![b'x'; 100_000]].concat();
        let Answer::Unknown(Cause::Error(text)) = Expect::Set.read(&Frame::Error(&long)) else {
            panic!()
        };
        assert!(text.len() < 2 * MAX_TEXT);
        assert!(!text.chars().any(char::is_control));
    }
}
