//! The commands of a link: their bytes, what they do to a lock's key, and how their replies are
//! read. `docs/architecture.md` lists the other places of a new command.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::reply::{counted, granted, holder, is_forbidden_key, marker, place, readable};
use super::{
    BOOT, CERTIFY, ErrorKind, Frame, GRANT, KEEP, PROBATION, PROBE, QUEUE, Script, WATCH,
    channel_of, counter_of, decimal, errors, frame::write_parts, is_confirmation, scripts,
    write_command,
};
use crate::effect::{Fence, Key, WakeUp};
use crate::guard::RunId;
use crate::token::Token;
use crate::vote::{Cause, Holder, Reply};
use crate::waiter::{Position, Waiter};

/// A command as a link writes it.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// `SET key token NX PX ttl`: the plain acquire. If it is fair, shared or has a fence, it is a
    /// script.
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
        /// Under a guard: for a repair, the boot marker that the master must show to create the
        /// key; otherwise the masters that it must admit, if its marker names any, behind a `-`.
        marker: Option<Arc<str>>,
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

    /// Whether it is a `SET`, and no script.
    const fn is_plain(&self) -> bool {
        matches!(self, Self::Set { token, fair: false, fence: None, .. } if !token.is_shared())
    }

    /// How the reply to this command is read.
    pub const fn expect(&self) -> Expect {
        match self {
            Self::Set { .. } if self.is_plain() => Expect::Set,
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

    /// The script that this command calls.
    pub const fn script(&self) -> Option<Script> {
        Some(match self {
            Self::Set { .. } if self.is_plain() => return None,
            Self::Set { .. } | Self::Guarded { .. } => GRANT,
            Self::Watch { .. } => WATCH,
            Self::Keep { .. } => KEEP,
            Self::Certify { .. } => CERTIFY,
            Self::Delete { .. } | Self::Enqueue { .. } | Self::Dequeue { .. } => QUEUE,
            _ => return None,
        })
    }

    /// What this command does to the key of a lock.
    pub const fn key_effect(&self) -> KeyEffect<'_> {
        match self {
            Self::Set { key, token, ttl_ms, .. } | Self::Guarded { key, token, ttl_ms, .. } => {
                KeyEffect::Set { key, token: *token, ttl_ms: *ttl_ms }
            }
            Self::Keep { key, token, ttl_ms, .. } => {
                KeyEffect::Keep { key, token: *token, ttl_ms: *ttl_ms }
            }
            Self::Certify { key, token, .. } => KeyEffect::Certify { key, token: *token },
            Self::Delete { key, token, .. } => KeyEffect::Delete { key, token: *token },
            Self::Enqueue { .. } | Self::Dequeue { .. } => KeyEffect::Queue,
            Self::Watch { .. }
            | Self::Initialize { .. }
            | Self::Hello
            | Self::Subscribe { .. }
            | Self::Kill { .. }
            | Self::Load(_)
            | Self::Probe => KeyEffect::None,
        }
    }

    /// About how many bytes the command has on the wire.
    pub fn size_hint(&self) -> usize {
        match self {
            Self::Set { key, fair: false, fence: None, .. }
            | Self::Keep { key, marker: None, fence: None, .. }
            | Self::Delete { key, leave: None, .. } => key.len() + 128,
            Self::Delete { key, .. } | Self::Enqueue { key, .. } | Self::Dequeue { key, .. } => {
                key.len() + 192
            }
            Self::Guarded { key, .. } | Self::Keep { key, marker: Some(_), .. } => {
                2 * key.len() + 320
            }
            Self::Set { key, .. } | Self::Keep { key, .. } | Self::Certify { key, .. } => {
                2 * key.len() + 256
            }
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
            Self::Set { key, token, ttl_ms, .. } if self.is_plain() => {
                let ttl = decimal(*ttl_ms, &mut digits[0]);
                write_command(out, &[b"SET", key, token.as_bytes(), b"NX", b"PX", ttl]);
            }
            Self::Set { key, token, ttl_ms, fair, fence } => {
                let [ttl, least, memory] = &mut digits;
                let (ttl, fair, token) = (decimal(*ttl_ms, ttl), flag(*fair), token.as_bytes());
                let Some(fence) = fence else { return self.call(out, &[key], &[token, ttl, fair]) };
                let [least, memory] = fence.digits(least, memory);
                let keys = [key, &counter_of(key)[..]];
                self.call(out, &keys, &[token, ttl, fair, least, memory]);
            }
            Self::Guarded { key, token, ttl_ms, fair, fence, marker } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let grant = [token.as_bytes(), ttl, flag(*fair), marker.as_bytes()];
                let Some(fence) = fence else { return self.call(out, &[key, BOOT], &grant) };
                let [least, memory] = fence.digits(least, memory);
                let keys = [key, &counter_of(key)[..], BOOT];
                let [token, ttl, fair, marker] = grant;
                self.call(out, &keys, &[token, ttl, fair, marker, least, memory]);
            }
            Self::Watch { run_id, marker, begin, probation_ms, ended } => {
                let text = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
                let (begin, ended) = (text(begin), text(ended));
                let probation_ms = decimal(*probation_ms, &mut digits[0]);
                let [run_id, marker] = [&run_id.0, marker].map(|text| text.as_bytes());
                let arguments = [run_id, marker, begin.as_bytes(), probation_ms, ended.as_bytes()];
                self.call(out, &[BOOT, PROBATION], &arguments);
            }
            Self::Initialize { marker } => {
                write_command(out, &[b"SET", BOOT, marker.as_bytes(), b"NX"]);
            }
            Self::Keep { key, token, ttl_ms, repair, marker, fence } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let repair = marker.as_deref().map_or(flag(*repair), str::as_bytes);
                let boot: &[&[u8]] = if marker.is_some() { &[BOOT] } else { &[] };
                let kept = [token.as_bytes(), ttl, repair];
                let Some(fence) = fence else {
                    return self.call(out, &[&[&key[..]], boot].concat(), &kept);
                };
                let counter = counter_of(key);
                let keys = [&[&key[..], &counter[..]], boot].concat();
                self.call(out, &keys, &[&kept[..], &fence.digits(least, memory)].concat());
            }
            Self::Certify { key, token, fence } => {
                let [least, memory, _] = &mut digits;
                let [least, memory] = fence.digits(least, memory);
                let keys = [key, &counter_of(key)[..]];
                self.call(out, &keys, &[token.as_bytes(), least, memory]);
            }
            Self::Delete { key, token, wake_up, leave } => {
                let token = token.as_bytes();
                match (leave.map(|waiter| waiter.to_string()), wake_up) {
                    // Most releases: nothing but the token.
                    (None, WakeUp::First) => self.call(out, &[key], &[token]),
                    (None, WakeUp::Count) => self.call(out, &[key], &[token, b"count"]),
                    (None, WakeUp::Quiet) => self.call(out, &[key], &[token, b"quiet"]),
                    (None, WakeUp::None) => self.call(out, &[key], &[token, b"none"]),
                    (Some(leave), wake_up) => {
                        let wakes: &[u8] = match wake_up {
                            WakeUp::None | WakeUp::Count => b"count",
                            WakeUp::Quiet => b"quiet",
                            WakeUp::First => b"first",
                        };
                        self.call(out, &[key], &[token, wakes, leave.as_bytes()]);
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
                self.call(out, &[key], if exactly { &arguments } else { &arguments[..2] });
            }
            Self::Dequeue { key, waiter, wake } => {
                let waiter = waiter.to_string();
                let arguments = [waiter.as_bytes(), b"-", b"1"];
                self.call(out, &[key], if *wake { &arguments } else { &arguments[..2] });
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

    /// Appends the call of the command's script with these keys and arguments.
    fn call(&self, out: &mut Vec<u8>, keys: &[&[u8]], arguments: &[&[u8]]) {
        let script = self.script().expect("it calls a script");
        let mut digits = [0; 20];
        let name = [b"EVALSHA", script.sha1.as_bytes(), decimal(keys.len() as u64, &mut digits)];
        write_parts(out, &[&name, keys, arguments]);
    }

    /// Reads a command from its words. `None`: the words are no command of a lock, or they have
    /// another form, as of another version.
    pub fn parse(words: &[&[u8]]) -> Option<Self> {
        let command = match words {
            [b"SET", PROBE, b"", b"XX", ..] => Self::Probe,
            [b"SET", BOOT, marker, b"NX"] => Self::Initialize { marker: text(marker)? },
            [b"SET", key, token, b"NX", b"PX", ttl] => Self::Set {
                key: Key::from(*key),
                token: Token::from_slice(token)?,
                ttl_ms: number(ttl)?,
                fair: false,
                fence: None,
            },
            [b"EVALSHA", sha1, _, arguments @ ..] => Self::parse_call(sha1, arguments)?,
            [b"HELLO", _] => Self::Hello,
            [b"SUBSCRIBE", channel] => {
                let inbox = channel.get(channel.len().checked_sub(16)?..)?;
                let inbox = str::from_utf8(inbox).ok()?;
                Self::Subscribe { inbox: u64::from_str_radix(inbox, 16).ok()? }
            }
            [b"CLIENT", b"KILL", b"ID", id] => Self::Kill { client_id: number(id)? },
            [b"SCRIPT", b"LOAD", source] => {
                Self::Load(scripts(true).find(|script| script.source.as_bytes() == *source)?)
            }
            _ => return None,
        };
        // Words such as further arguments make it another command.
        let (mut same, mut bytes) = (Vec::new(), Vec::new());
        write_command(&mut same, words);
        command.encode(&mut bytes);
        (same == bytes).then_some(command)
    }

    /// Reads the call of a script from its keys and arguments.
    fn parse_call(sha1: &[u8], arguments: &[&[u8]]) -> Option<Self> {
        let is = |script: Script| script.sha1.as_bytes() == sha1;
        let key = Key::from(*arguments.first()?);
        let token = Token::from_slice;
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
        Some(match arguments {
            [_, ours, ttl, fair] | [_, _, ours, ttl, fair, _, _] if is(GRANT) => Self::Set {
                key,
                token: token(ours)?,
                ttl_ms: number(ttl)?,
                fair: *fair == b"1",
                fence: Fence::parse(arguments.get(5..).unwrap_or_default())?,
            },
            [_, _, ours, ttl, fair, marker] | [_, _, _, ours, ttl, fair, marker, _, _]
                if is(GRANT) =>
            {
                Self::Guarded {
                    key,
                    token: token(ours)?,
                    ttl_ms: number(ttl)?,
                    fair: *fair == b"1",
                    fence: Fence::parse(arguments.get(7..).unwrap_or_default())?,
                    marker: text(marker)?,
                }
            }
            [_, _, run_id, marker, begin, probation_ms, ended] if is(WATCH) => Self::Watch {
                run_id: RunId(text(run_id)?),
                marker: text(marker)?,
                begin: some(begin).unwrap_or_default(),
                probation_ms: number(probation_ms)?,
                ended: some(ended).unwrap_or_default(),
            },
            [_, ours, ttl, repair] | [_, _, ours, ttl, repair, _, _] if is(KEEP) => Self::Keep {
                key,
                token: token(ours)?,
                ttl_ms: number(ttl)?,
                repair: *repair == b"1",
                marker: None,
                fence: Fence::parse(arguments.get(5..).unwrap_or_default())?,
            },
            [_, _, ours, ttl, marker] | [_, _, _, ours, ttl, marker, _, _] if is(KEEP) => {
                Self::Keep {
                    key,
                    token: token(ours)?,
                    ttl_ms: number(ttl)?,
                    repair: !marker.starts_with(b"-"),
                    marker: Some(text(marker)?),
                    fence: Fence::parse(arguments.get(6..).unwrap_or_default())?,
                }
            }
            [_, _, ours, rest @ ..] if is(CERTIFY) => {
                Self::Certify { key, token: token(ours)?, fence: Fence::parse(rest)?? }
            }
            [_, ours, queue @ ..] if is(QUEUE) && token(ours).is_some() => {
                let (wake_up, leave) = match queue {
                    [] => (WakeUp::First, None),
                    [b"count"] => (WakeUp::Count, None),
                    [b"none"] => (WakeUp::None, None),
                    [b"quiet"] => (WakeUp::Quiet, None),
                    [b"first", waiter] => (WakeUp::First, Some(Waiter::parse(waiter)?)),
                    [b"count", waiter] => (WakeUp::Count, Some(Waiter::parse(waiter)?)),
                    [b"quiet", waiter] => (WakeUp::Quiet, Some(Waiter::parse(waiter)?)),
                    _ => return None,
                };
                Self::Delete { key, token: token(ours)?, wake_up, leave }
            }
            [_, waiter, b"-", wake @ ..] if is(QUEUE) => {
                Self::Dequeue { key, waiter: Waiter::parse(waiter)?, wake: !wake.is_empty() }
            }
            [_, waiter, position, exactly @ ..] if is(QUEUE) => {
                let position = match (*position, exactly) {
                    (b"=", _) => Position::Any,
                    (b"0", []) => Position::Last,
                    (digits, []) => Position::NotBefore(number(digits)?),
                    (digits, _) => Position::At(number(digits)?),
                };
                Self::Enqueue { key, waiter: Waiter::parse(waiter)?, position }
            }
            _ => return None,
        })
    }
}

/// What a command does to the key of a lock.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyEffect<'a> {
    /// Nothing.
    None,
    /// Nothing: it changes the queue of waiters for the key's resource.
    Queue,
    /// Sets the key if it does not exist.
    Set { key: &'a Key, token: Token, ttl_ms: u64 },
    /// Lengthens the key's life if it has this value. May create the key.
    Keep { key: &'a Key, token: Token, ttl_ms: u64 },
    /// Deletes the key if it has this value.
    Delete { key: &'a Key, token: Token },
    /// Raises the fencing counter if the key has this value, and leaves the key as it is.
    Certify { key: &'a Key, token: Token },
}

/// An argument of a script that is a condition.
const fn flag(set: bool) -> &'static [u8] {
    if set { b"1" } else { b"0" }
}

impl Fence {
    fn digits<'a>(&self, number: &'a mut [u8; 20], memory: &'a mut [u8; 20]) -> [&'a [u8]; 2] {
        [decimal(self.number, number), decimal(self.memory_ms, memory)]
    }

    /// The fence in the last arguments of a script, which may have none.
    fn parse(arguments: &[&[u8]]) -> Option<Option<Self>> {
        Some(match arguments {
            [] => None,
            [least, memory] => Some(Self { number: number(least)?, memory_ms: number(memory)? }),
            _ => return None,
        })
    }
}

fn text(bytes: &[u8]) -> Option<Arc<str>> {
    str::from_utf8(bytes).ok().map(Arc::from)
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// How a reply is read: as the one to the [`Command`] of the same name. It goes
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
    /// Reads a reply. One that Redis never gives to this command is [`Cause::Garbage`]: after it
    /// nothing on the connection can be trusted.
    pub fn read(self, frame: &Frame<'_>) -> Reply {
        match frame {
            Frame::Error(text) => self.read_error(text),
            frame => self.read_value(frame).unwrap_or(Reply::Unknown(Cause::Garbage)),
        }
    }

    fn read_error(self, text: &[u8]) -> Reply {
        match (self, ErrorKind::of(text)) {
            // There is no such client any more, or the kill is forbidden: go on. A busy master
            // could not look, and will still execute what the old connection holds.
            (Self::Kill, kind) if kind != ErrorKind::Busy => Reply::Alive,
            // The user may have rights on other keys, so this says nothing about writes to those.
            (Self::Probe, _) if is_forbidden_key(text) => Reply::Alive,
            // The master keeps no queue for this client, and never will.
            (Self::Enqueue | Self::Dequeue, ErrorKind::Forbidden | ErrorKind::WrongType) => {
                Reply::NoQueue
            }
            (_, ErrorKind::NoScript) => Reply::Unknown(Cause::NoScript),
            (Self::Keep | Self::Delete | Self::Certify, ErrorKind::WrongType) => {
                Reply::Taken(Holder::WrongType)
            }
            _ => Reply::Unknown(Cause::Error(readable(errors::unwrapped(text)))),
        }
    }

    fn read_value(self, frame: &Frame<'_>) -> Option<Reply> {
        let parts = if let Frame::Array(parts) = frame { parts.as_slice() } else { &[] };
        // Scripts of a guard end their reply with the master's `TIME` in microseconds.
        let stamped = |reply: Reply, micros: i64| Some(reply.stamped(u64::try_from(micros).ok()?));
        Some(match (self, frame, parts) {
            (Self::Set, Frame::Simple(b"OK"), _) => Reply::Created,
            (Self::Set, Frame::Null, _) => Reply::Taken(Holder::NotAsked),
            (Self::Grant { fenced }, Frame::Integer(number), _) => granted(*number, fenced)?,
            (Self::Guarded { fenced }, _, [Frame::Integer(number), Frame::Integer(micros)]) => {
                stamped(granted(*number, fenced)?, *micros)?
            }
            (Self::Guarded { .. }, _, [Frame::Bulk(boot), Frame::Integer(micros)]) => {
                stamped(Reply::Marked { boot: marker(boot), probation: None }, *micros)?
            }
            (Self::Watch, _, [Frame::Bulk(boot), Frame::Bulk(name), Frame::Integer(micros)]) => {
                stamped(Reply::Marked { boot: marker(boot), probation: marker(name) }, *micros)?
            }
            (Self::Initialize, Frame::Simple(b"OK"), _) => Reply::Initialized,
            (Self::Initialize, Frame::Null, _) => Reply::Marked { boot: None, probation: None },
            (Self::Keep | Self::Delete | Self::Certify, Frame::Integer(0), _) => Reply::Absent,
            (
                Self::Keep | Self::Delete | Self::Certify,
                _,
                [Frame::Integer(left), Frame::Bulk(value)],
            ) => Reply::Taken(holder(*left, value)),
            (Self::Certify, Frame::Integer(number), _) => {
                Reply::Certified { number: counted(*number)? }
            }
            (Self::Keep, Frame::Integer(1), _) => Reply::Kept,
            (Self::Keep, Frame::Integer(2), _) => Reply::Created,
            (Self::Keep, _, [Frame::Integer(kept @ 1..=2), Frame::Integer(micros)]) => {
                let reply = if *kept == 1 { Reply::Kept } else { Reply::Created };
                stamped(reply, *micros)?
            }
            (Self::Keep, _, [Frame::Bulk(boot), Frame::Integer(micros)]) => {
                stamped(Reply::Marked { boot: marker(boot), probation: None }, *micros)?
            }
            (Self::Delete, Frame::Integer(1), _) => Reply::Deleted,
            (Self::Delete, Frame::Integer(count @ 2..), _) => {
                Reply::Freed { waiters: u32::try_from(count - 1).ok()?, denied: false }
            }
            (Self::Delete, Frame::Integer(count @ ..=-1), _) => {
                let waiters = u32::try_from(count.unsigned_abs() - 1).ok()?;
                Reply::Freed { waiters, denied: true }
            }
            (Self::Enqueue, _, parts) => place(parts)?,
            (Self::Dequeue, Frame::Integer(0), _)
            | (Self::Hello, Frame::Map(_), _)
            | (Self::Kill, Frame::Integer(_) | Frame::Simple(_), _) => Reply::Alive,
            (Self::Subscribe, push, _) if is_confirmation(push) => Reply::Alive,
            (Self::Load(script), Frame::Bulk(sha1), _) if *sha1 == script.sha1.as_bytes() => {
                Reply::Alive
            }
            // `OK` means that another program created this key. It expires by this command.
            (Self::Probe, Frame::Null | Frame::Simple(b"OK"), _) => Reply::Alive,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
