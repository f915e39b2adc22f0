//! Requests, to bytes and from bytes.

use std::str;
use std::sync::Arc;

use redquorum_protocol::wire::{
    BOOT, CERTIFY, Command, DELETE, Frame, GRANT, GUARDED, Hello, KEEP, PROBE, QUEUE, WATCH, parse,
    scripts, write_command,
};
use redquorum_protocol::{Fence, Key, Position, RunId, Token, Waiter, WakeUp};

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
        let Some((frame, length)) = parse(bytes, usize::MAX).map_err(|_| Malformed)? else {
            return Ok(None);
        };
        let Frame::Array(parts) = frame else { return Err(Malformed) };
        let words = parts.iter().map(|part| match part {
            Frame::Bulk(bytes) => Ok(*bytes),
            _ => Err(Malformed),
        });
        let words = words.collect::<Result<Vec<&[u8]>, _>>()?;
        // A request with other words than the lock's, such as more arguments, is none of the lock.
        let is_same = |request: &Self| {
            let mut again = Vec::new();
            request.encode(&mut again);
            again == bytes[..length]
        };
        let request = lock(&words).filter(is_same).unwrap_or_else(|| Self::words(&words));
        Ok(Some((request, length)))
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

    /// About how many bytes the request has on the wire.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Lock(command) | Self::Mutant(command, _) => command.size_hint(),
            Self::Hello => 1024,
            Self::Words(words) => words.iter().map(|word| word.len() + 16).sum::<usize>() + 16,
        }
    }
}

/// Bytes that are no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no command of Redis's protocol")
    }
}

impl std::error::Error for Malformed {}

/// The request of a lock with these words.
fn lock(words: &[&[u8]]) -> Option<Request> {
    Some(Request::Lock(match words {
        [b"SET", PROBE, b"", b"XX", ..] => Command::Probe,
        [b"SET", BOOT, marker, b"NX"] => Command::Initialize { marker: text(marker)? },
        [b"SET", key, token, b"NX", b"PX", ttl] => Command::Set {
            key: Key::from(*key),
            token: Token::from_slice(token)?,
            ttl_ms: number(ttl)?,
            fair: false,
            fence: None,
        },
        [b"EVALSHA", sha, _, arguments @ ..] => {
            let script = scripts(true).find(|script| script.sha1.as_bytes() == *sha)?;
            call(script.sha1, arguments)?
        }
        [b"EVAL", source, _, arguments @ ..] => {
            let is_it = |it: &ScriptMutant| it.script().1.as_bytes() == *source;
            let script_mutant = ScriptMutant::ALL.into_iter().find(is_it)?;
            let command = call(script_mutant.script().0.sha1, arguments)?;
            return Some(Request::Mutant(command, script_mutant));
        }
        [b"HELLO", _] => Command::Hello,
        [b"SUBSCRIBE", channel] => {
            let inbox = str::from_utf8(channel.get(channel.len().checked_sub(16)?..)?).ok()?;
            Command::Subscribe { inbox: u64::from_str_radix(inbox, 16).ok()? }
        }
        [b"CLIENT", b"KILL", b"ID", id] => Command::Kill { client_id: number(id)? },
        [b"SCRIPT", b"LOAD", source] => {
            Command::Load(scripts(true).find(|script| script.source.as_bytes() == *source)?)
        }
        _ => return None,
    }))
}

/// A call of a script, by its keys and arguments.
fn call(sha1: &str, arguments: &[&[u8]]) -> Option<Command> {
    let key = Key::from(*arguments.first()?);
    let token = |bytes: &[u8]| Token::from_slice(bytes);
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
    Some(match arguments {
        [_, ours, ttl, fair] | [_, _, ours, ttl, fair, _, _] if sha1 == GRANT.sha1 => {
            Command::Set {
                key,
                token: token(ours)?,
                ttl_ms: number(ttl)?,
                fair: *fair == b"1",
                fence: fence(arguments.get(5..).unwrap_or_default())?,
            }
        }
        [_, _, ours, ttl, fair, marker] | [_, _, _, ours, ttl, fair, marker, _, _]
            if sha1 == GUARDED.sha1 =>
        {
            Command::Guarded {
                key,
                token: token(ours)?,
                ttl_ms: number(ttl)?,
                fair: *fair == b"1",
                fence: fence(arguments.get(7..).unwrap_or_default())?,
                marker: text(marker)?,
            }
        }
        [_, _, run_id, marker, begin, probation_ms, ended] if sha1 == WATCH.sha1 => {
            Command::Watch {
                run_id: RunId(text(run_id)?),
                marker: text(marker)?,
                begin: some(begin).unwrap_or_default(),
                probation_ms: number(probation_ms)?,
                ended: some(ended).unwrap_or_default(),
            }
        }
        [_, ours, ttl, repair] | [_, _, ours, ttl, repair, _, _] if sha1 == KEEP.sha1 => {
            Command::Keep {
                key,
                token: token(ours)?,
                ttl_ms: number(ttl)?,
                repair: *repair == b"1",
                fence: fence(arguments.get(5..).unwrap_or_default())?,
            }
        }
        [_, _, ours, rest @ ..] if sha1 == CERTIFY.sha1 => {
            Command::Certify { key, token: token(ours)?, fence: fence(rest)?? }
        }
        [_, ours, queue @ ..] if sha1 == DELETE.sha1 => {
            let (wake_up, leave) = match queue {
                [] => (WakeUp::First, None),
                [b"count"] => (WakeUp::Count, None),
                [b"none"] => (WakeUp::None, None),
                [b"first", waiter] => (WakeUp::First, Some(Waiter::parse(waiter)?)),
                [b"count", waiter] => (WakeUp::Count, Some(Waiter::parse(waiter)?)),
                _ => return None,
            };
            Command::Delete { key, token: token(ours)?, wake_up, leave }
        }
        [_, waiter, b"-", wake @ ..] if sha1 == QUEUE.sha1 => {
            Command::Dequeue { key, waiter: Waiter::parse(waiter)?, wake: !wake.is_empty() }
        }
        [_, waiter, position, exactly @ ..] if sha1 == QUEUE.sha1 => {
            let position = match (*position, exactly) {
                (b"=", _) => Position::Any,
                (b"0", []) => Position::Last,
                (digits, []) => Position::NotBefore(number(digits)?),
                (digits, _) => Position::At(number(digits)?),
            };
            Command::Enqueue { key, waiter: Waiter::parse(waiter)?, position }
        }
        _ => return None,
    })
}

/// The fence in the last arguments of a script, which may have none.
fn fence(arguments: &[&[u8]]) -> Option<Option<Fence>> {
    Some(match arguments {
        [] => None,
        [least, memory] => Some(Fence { number: number(least)?, memory_ms: number(memory)? }),
        _ => return None,
    })
}

fn text(bytes: &[u8]) -> Option<Arc<str>> {
    str::from_utf8(bytes).ok().map(Arc::from)
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
