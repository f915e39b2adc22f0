//! The commands of a link, and their bytes.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{
    BOOT, CERTIFY, DELETE, Expect, GRANT, GUARDED, KEEP, PROBATION, PROBE, QUEUE, Script, WATCH,
    channel_of, counter_of, decimal, frame::write_parts, scripts, write_command,
};
use crate::effect::{Key, WakeUp};
use crate::fence::Fence;
use crate::link::RunId;
use crate::token::Token;
use crate::waiter::{Position, Waiter};

/// A command as a link writes it.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// `SET key token NX PX ttl`: the plain acquire. If it is fair or has a fence, it is a script.
    Set {
        key: Key,
        token: Token,
        /// How long the master keeps the key, in milliseconds.
        ttl_ms: u64,
        /// Whether the script sets nothing while a waiter is in the queue.
        fair: bool,
        /// What the counter becomes, if there is one.
        fence: Option<Fence>,
    },
    /// The acquire with a guard: a script that sets nothing unless the master shows this boot
    /// marker.
    Guarded {
        key: Key,
        token: Token,
        /// How long the master keeps the key, in milliseconds.
        ttl_ms: u64,
        /// Whether it sets nothing while a waiter is in the queue.
        fair: bool,
        /// What the counter becomes, if there is one.
        fence: Option<Fence>,
        marker: Arc<str>,
    },
    /// Read the boot marker and the probation key. Unless the marker belongs to the process
    /// `run_id`, also go on with the probation.
    Watch {
        run_id: RunId,
        /// The boot marker to write at the end of the probation.
        marker: Arc<str>,
        /// The probation key to set if there is none; `None` only reads.
        begin: Option<Arc<str>>,
        /// How long the master keeps the probation key, in milliseconds.
        probation_ms: u64,
        /// The probation key that has lasted for a quarantine. If it is still there, the marker
        /// takes its place.
        ended: Option<Arc<str>>,
    },
    /// `SET redquorum:boot marker NX`: initialize a master that has no boot marker.
    Initialize { marker: Arc<str> },
    /// Compare-and-expire, with or without repair.
    Keep {
        key: Key,
        token: Token,
        /// How long the key must live at least, in milliseconds.
        ttl_ms: u64,
        /// Whether to create the key if it is missing.
        repair: bool,
        /// What the counter becomes, if there is one.
        fence: Option<Fence>,
    },
    /// Compare, and raise the counter.
    Certify {
        key: Key,
        token: Token,
        /// The number that the counter reaches.
        fence: Fence,
    },
    /// Compare-and-delete.
    Delete {
        key: Key,
        token: Token,
        /// Which waiter is woken.
        wake_up: WakeUp,
        /// The waiter that leaves the queue with this.
        leave: Option<Waiter>,
    },
    /// Ask for a position in the queue, or keep it, by a script.
    Enqueue { key: Key, waiter: Waiter, position: Position },
    /// Leave the queue, by the script of [`Command::Enqueue`].
    Dequeue {
        key: Key,
        waiter: Waiter,
        /// Whether the script wakes the first waiter in the queue, if the resource is free.
        wake: bool,
    },
    /// `HELLO 3`: from here on the connection takes push messages.
    Hello,
    /// `SUBSCRIBE`: wake the waiters of this inbox. Send it only behind a [`Command::Hello`] that
    /// was answered: otherwise the connection would take no other command.
    Subscribe { inbox: u64 },
    /// `CLIENT KILL ID`: drops an old connection of this client and whatever it had sent.
    Kill { client_id: u64 },
    /// `SCRIPT LOAD`.
    Load(Script),
    /// `SET redquorum:probe "" XX PX 1`: asks whether the master takes writes. It writes nothing,
    /// since nothing creates the key. A master that refuses writes refuses this one before it looks
    /// for the key.
    Probe,
}

impl Command {
    /// Returns the commands that load every script of a lock.
    pub fn load_scripts(guarded: bool) -> impl Iterator<Item = Self> {
        scripts(guarded).map(Self::Load)
    }

    /// How the reply to this command is read.
    pub const fn expect(&self) -> Expect {
        match self {
            Self::Set { fair: false, fence: None, .. } => Expect::Set,
            Self::Set { fence, .. } => Expect::Grant { fenced: fence.is_some() },
            Self::Guarded { fence, .. } => Expect::Guarded { fenced: fence.is_some() },
            Self::Watch { .. } => Expect::Watch,
            Self::Initialize { .. } => Expect::Initialize,
            Self::Certify { .. } => Expect::Certify,
            Self::Keep { .. } => Expect::Keep,
            Self::Delete { .. } => Expect::Delete,
            Self::Enqueue { .. } => Expect::Enqueue,
            Self::Dequeue { .. } => Expect::Dequeue,
            Self::Hello => Expect::Hello,
            Self::Subscribe { .. } => Expect::Subscribe,
            Self::Kill { .. } => Expect::Kill,
            Self::Load(script) => Expect::Load(*script),
            Self::Probe => Expect::Probe,
        }
    }

    /// About how many bytes the command has on the wire.
    pub fn size_hint(&self) -> usize {
        match self {
            Self::Set { key, fair: false, fence: None, .. }
            | Self::Keep { key, fence: None, .. }
            | Self::Delete { key, leave: None, .. } => key.len() + 128,
            Self::Delete { key, .. } | Self::Enqueue { key, .. } | Self::Dequeue { key, .. } => {
                key.len() + 192
            }
            Self::Set { key, .. } | Self::Keep { key, .. } | Self::Certify { key, .. } => {
                2 * key.len() + 256
            }
            Self::Guarded { key, .. } => 2 * key.len() + 320,
            Self::Watch { .. } | Self::Initialize { .. } => 320,
            Self::Load(script) => script.source.len() + 64,
            Self::Subscribe { .. } => 96,
            Self::Kill { .. } | Self::Hello | Self::Probe => 64,
        }
    }

    /// Appends the command's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut digits = [[0; 20]; 3];
        match self {
            Self::Set { key, token, ttl_ms, fair: false, fence: None } => {
                let ttl = decimal(*ttl_ms, &mut digits[0]);
                write_command(out, &[b"SET", key, token.as_bytes(), b"NX", b"PX", ttl]);
            }
            Self::Set { key, token, ttl_ms, fair, fence } => {
                let [ttl, least, memory] = &mut digits;
                let grant = [token.as_bytes(), decimal(*ttl_ms, ttl), flag(*fair)];
                let Some(fence) = fence else { return call(out, GRANT, &[key], &grant) };
                let keys = [key, &counter_of(key)[..]];
                call(out, GRANT, &keys, &[&grant[..], &fence.digits(least, memory)].concat());
            }
            Self::Guarded { key, token, ttl_ms, fair, fence, marker } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let grant = [token.as_bytes(), ttl, flag(*fair), marker.as_bytes()];
                let Some(fence) = fence else { return call(out, GUARDED, &[key, BOOT], &grant) };
                let keys = [key, &counter_of(key)[..], BOOT];
                call(out, GUARDED, &keys, &[&grant[..], &fence.digits(least, memory)].concat());
            }
            Self::Watch { run_id, marker, begin, probation_ms, ended } => {
                let text = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
                let (begin, ended) = (text(begin), text(ended));
                let probation_ms = decimal(*probation_ms, &mut digits[0]);
                let [run_id, marker] = [&run_id.0, marker].map(|text| text.as_bytes());
                let arguments = [run_id, marker, begin.as_bytes(), probation_ms, ended.as_bytes()];
                call(out, WATCH, &[BOOT, PROBATION], &arguments);
            }
            Self::Initialize { marker } => {
                write_command(out, &[b"SET", BOOT, marker.as_bytes(), b"NX"]);
            }
            Self::Keep { key, token, ttl_ms, repair, fence } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let repair = flag(*repair);
                let Some(fence) = fence else {
                    return call(out, KEEP, &[key], &[token.as_bytes(), ttl, repair]);
                };
                let [least, memory] = fence.digits(least, memory);
                let keys = [key, &counter_of(key)[..]];
                call(out, KEEP, &keys, &[token.as_bytes(), ttl, repair, least, memory]);
            }
            Self::Certify { key, token, fence } => {
                let [least, memory, _] = &mut digits;
                let [least, memory] = fence.digits(least, memory);
                let keys = [key, &counter_of(key)[..]];
                call(out, CERTIFY, &keys, &[token.as_bytes(), least, memory]);
            }
            Self::Delete { key, token, wake_up, leave } => {
                let token = token.as_bytes();
                match (leave.map(|waiter| waiter.to_string()), wake_up) {
                    // Most releases: nothing but the token.
                    (None, WakeUp::First) => call(out, DELETE, &[key], &[token]),
                    (None, WakeUp::Count) => call(out, DELETE, &[key], &[token, b"count"]),
                    (None, WakeUp::None) => call(out, DELETE, &[key], &[token, b"none"]),
                    (Some(leave), wake_up) => {
                        let first = *wake_up == WakeUp::First;
                        let wakes: &[u8] = if first { b"first" } else { b"count" };
                        call(out, DELETE, &[key], &[token, wakes, leave.as_bytes()]);
                    }
                }
            }
            Self::Enqueue { key, waiter, position } => {
                let (waiter, exactly) = (waiter.to_string(), matches!(position, Position::At(_)));
                let number = match position {
                    Position::Any => b"=",
                    position => decimal(position.number(), &mut digits[0]),
                };
                let arguments = [waiter.as_bytes(), number, b"1"];
                call(out, QUEUE, &[key], if exactly { &arguments } else { &arguments[..2] });
            }
            Self::Dequeue { key, waiter, wake } => {
                let waiter = waiter.to_string();
                let arguments = [waiter.as_bytes(), b"-", b"1"];
                call(out, QUEUE, &[key], if *wake { &arguments } else { &arguments[..2] });
            }
            Self::Hello => write_command(out, &[b"HELLO", b"3"]),
            Self::Subscribe { inbox } => write_command(out, &[b"SUBSCRIBE", &channel_of(*inbox)]),
            Self::Kill { client_id } => {
                let id = decimal(*client_id, &mut digits[0]);
                write_command(out, &[b"CLIENT", b"KILL", b"ID", id]);
            }
            Self::Load(script) => {
                write_command(out, &[b"SCRIPT", b"LOAD", script.source.as_bytes()]);
            }
            Self::Probe => write_command(out, &[b"SET", PROBE, b"", b"XX", b"PX", b"1"]),
        }
    }
}

/// Appends the call of a script with these keys and arguments.
fn call(out: &mut Vec<u8>, script: Script, keys: &[&[u8]], arguments: &[&[u8]]) {
    let mut digits = [0; 20];
    let name = [b"EVALSHA", script.sha1.as_bytes(), decimal(keys.len() as u64, &mut digits)];
    write_parts(out, &[&name, keys, arguments]);
}

/// An argument of a script that is a condition.
const fn flag(set: bool) -> &'static [u8] {
    if set { b"1" } else { b"0" }
}

impl Fence {
    fn digits<'a>(&self, number: &'a mut [u8; 20], memory: &'a mut [u8; 20]) -> [&'a [u8]; 2] {
        [decimal(self.number, number), decimal(self.memory_ms, memory)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_acquire_is_one_set_nx_px() {
        let token = Token::new(*b"01234567890123456789");
        let key = Arc::from(&b"r"[..]);
        let set = Command::Set { key, token, ttl_ms: 10_000, fair: false, fence: None };
        let text: &[u8] = b"*6\r\n$3\r\nSET\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n\
            $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
        let mut out = Vec::new();
        set.encode(&mut out);
        assert_eq!(out, text);
    }

    #[test]
    fn a_plain_release_sends_the_token_alone() {
        let (key, token) = (Arc::from(&b"r"[..]), Token::new(*b"01234567890123456789"));
        let release = Command::Delete { key, token, wake_up: WakeUp::First, leave: None };
        let start = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n";
        let end = b"\r\n$1\r\n1\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n";
        let mut out = Vec::new();
        release.encode(&mut out);
        assert_eq!(out, [start, DELETE.sha1.as_bytes(), end].concat());
    }
}
