//! Requests, to bytes and from bytes.

use std::str;

use redquorum_protocol::wire::{Command, Frame, Hello, Malformed, parse, write_command};

use crate::ScriptMutant;

/// A request of a client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// A command of the lock.
    Lock(Command),
    /// A command of a client whose script leaves something out.
    Mutant(Command, ScriptMutant),
    /// The handshake of a link with a guard, as one request: identifies the server and the
    /// connection, and loads the scripts.
    Hello,
    /// Any other command.
    Words(Vec<Vec<u8>>),
}

impl Request {
    /// A command with these words that is no command of the lock.
    pub fn words(words: &[&[u8]]) -> Self {
        Self::Words(words.iter().map(|word| word.to_vec()).collect())
    }

    /// Reads a request from the start of `bytes`, and returns it with its length in bytes.
    /// `Ok(None)`: it is not complete.
    ///
    /// # Errors
    ///
    /// Bytes that are no request.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((frame, length)) = parse(bytes, usize::MAX)? else {
            return Ok(None);
        };
        let Frame::Array(parts) = frame else { return Err(Malformed) };
        let words = parts.iter().map(|part| match part {
            Frame::Bulk(bytes) => Ok(*bytes),
            _ => Err(Malformed),
        });
        let words = words.collect::<Result<Vec<&[u8]>, _>>()?;
        let request = Self::of_lock(&words).unwrap_or_else(|| Self::words(&words));
        Ok(Some((request, length)))
    }

    /// The request of a lock, or of a lock whose script leaves something out, with these words.
    pub fn of_lock(words: &[&[u8]]) -> Option<Self> {
        let [b"EVAL", source, rest @ ..] = words else {
            return Command::parse(words).map(Self::Lock);
        };
        let is_it = |it: &ScriptMutant| it.script().1.as_bytes() == *source;
        let script_mutant = ScriptMutant::ALL.into_iter().find(is_it)?;
        let shipped = script_mutant.script().0.sha1.as_bytes();
        let name: [&[u8]; 2] = [b"EVALSHA", shipped];
        let command = Command::parse(&[&name[..], rest].concat())?;
        Some(Self::Mutant(command, script_mutant))
    }

    /// Appends the bytes of the request to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Lock(command) => command.encode(out),
            Self::Mutant(command, script_mutant) => script_mutant.encode(command, out),
            Self::Hello => Hello::default().handshake(true).encode(out),
            Self::Words(words) => {
                write_command(out, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
        }
    }

    /// How many bytes the request has on the wire.
    pub(crate) fn size(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
