//! Wire: encodes commands and decodes replies, in one place.
//!
//! Clients encode [`Command`]s and decode replies with this module; model masters and proxies
//! decode commands with the same [`Frame`]. `docs/wire.md` describes the format.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::effect::{Key, WakeUp};
use crate::fence::{Fence, MAX_NUMBER};
use crate::guard::MAX_MARKER;
use crate::link::RunId;
use crate::token::Token;
use crate::vote::{Cause, Holder, Reply};
use crate::waiter::{Position, Waiter, WaiterId};

mod errors;
mod frame;
mod hello;
mod markers;
mod queue;
mod scripts;
mod skip;

pub use errors::{ErrorKind, KNOWN_ERRORS, KNOWN_VERSIONS, KnownError};
pub use frame::{Frame, MAX_REPLY, Malformed, parse, write_command};
pub use hello::{Greeting, Handshake, Hello, Unfit};
pub use markers::Markers;
pub use queue::{LAPSE_MS, TURN_MS, WaitQueue, queue_of};
pub use scripts::{
    CERTIFY, DELETE, GRANT, GUARD_SCRIPTS, GUARDED, KEEP, QUEUE, SCRIPTS, Script, WATCH,
};
pub use skip::Skip;

/// A command as a link writes it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// `SET key token NX PX ttl`: the plain acquire. With a fence it is a script, which also raises
    /// the counter.
    Set {
        /// The key of the resource.
        key: Key,
        /// The value of the key.
        token: Token,
        /// How long the master keeps the key, in milliseconds.
        ttl_ms: u64,
        /// What the counter becomes, if there is one.
        fence: Option<Fence>,
    },
    /// The acquire with a guard: a script that sets nothing unless the master shows this boot
    /// marker.
    Guarded {
        /// The key of the resource.
        key: Key,
        /// The value of the key.
        token: Token,
        /// How long the master keeps the key, in milliseconds.
        ttl_ms: u64,
        /// What the counter becomes, if there is one.
        fence: Option<Fence>,
        /// The boot marker.
        marker: Arc<str>,
    },
    /// Read the boot marker and the probation key. Unless the marker belongs to the process
    /// `run_id`, also go on with the probation.
    Watch {
        /// The server process.
        run_id: RunId,
        /// The boot marker to write at the end of the probation.
        marker: Arc<str>,
        /// The probation key to set if there is none; `None` only reads.
        begin: Option<Arc<str>>,
        /// How long the master keeps the probation key, in milliseconds.
        vigil_ms: u64,
        /// The probation key that has lasted for a quarantine. If it is still there, the marker
        /// takes its place.
        ended: Option<Arc<str>>,
    },
    /// `SET redquorum:boot marker NX`: initialize a master that has no boot marker.
    Initialize {
        /// The boot marker.
        marker: Arc<str>,
    },
    /// Compare-and-expire, with or without repair.
    Keep {
        /// The key of the resource.
        key: Key,
        /// The value to compare with.
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
        /// The key of the resource.
        key: Key,
        /// The value to compare with.
        token: Token,
        /// The number that the counter reaches.
        fence: Fence,
    },
    /// Compare-and-delete.
    Delete {
        /// The key of the resource.
        key: Key,
        /// The value to compare with.
        token: Token,
        /// Which waiter is woken.
        call: WakeUp,
        /// The waiter that leaves the queue with this.
        leave: Option<Waiter>,
    },
    /// Ask for a position in the queue, or keep it, by a script.
    Enqueue {
        /// The key of the resource.
        key: Key,
        /// The waiter.
        waiter: Waiter,
        /// The position.
        position: Position,
    },
    /// Leave the queue, by the script of [`Command::Enqueue`].
    Dequeue {
        /// The key of the resource.
        key: Key,
        /// The waiter.
        waiter: Waiter,
        /// Whether the script wakes the first waiter in the queue, if the resource is free.
        call: bool,
    },
    /// `HELLO 3`: from here on the connection takes push messages.
    Hello,
    /// `SUBSCRIBE`: wake the waiters of this inbox. Send it only behind a [`Command::Hello`] that
    /// was answered: otherwise the connection would take no other command.
    Subscribe {
        /// The inbox.
        inbox: u64,
    },
    /// `CLIENT KILL ID`: drops an old connection of this client and whatever it had sent.
    Kill {
        /// The client id of the old connection.
        client_id: u64,
    },
    /// `SCRIPT LOAD`.
    Load(Script),
    /// `SET redquorum:probe "" XX PX 1`: asks whether the master takes writes. It writes nothing,
    /// since nothing creates the key. A master that refuses writes refuses this one before it looks
    /// for the key.
    Probe,
}

/// How a reply is read. It goes with the command through the queue of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expect {
    /// The reply to a plain [`Command::Set`].
    Set,
    /// The reply to a [`Command::Set`] with a fence.
    Grant,
    /// The reply to [`Command::Guarded`].
    Guarded {
        /// Whether the command has a fence.
        fenced: bool,
    },
    /// The reply to [`Command::Watch`].
    Watch,
    /// The reply to [`Command::Initialize`].
    Initialize,
    /// The reply to [`Command::Certify`].
    Certify,
    /// The reply to [`Command::Keep`].
    Keep,
    /// The reply to [`Command::Delete`].
    Delete,
    /// The reply to [`Command::Enqueue`].
    Enqueue,
    /// The reply to [`Command::Dequeue`].
    Dequeue,
    /// The reply to [`Command::Hello`].
    Hello,
    /// The reply to [`Command::Subscribe`].
    Subscribe,
    /// The reply to [`Command::Kill`].
    Kill,
    /// The reply to [`Command::Load`].
    Load(Script),
    /// The reply to [`Command::Probe`].
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
            Self::Set { fence: None, .. } => Expect::Set,
            Self::Set { .. } => Expect::Grant,
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
            Self::Set { key, fence: None, .. }
            | Self::Keep { key, fence: None, .. }
            | Self::Delete { key, call: WakeUp::None, .. } => key.len() + 128,
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
            Self::Set { key, token, ttl_ms, fence: None } => {
                let ttl = decimal(*ttl_ms, &mut digits[0]);
                write_command(out, &[b"SET", key, token.as_bytes(), b"NX", b"PX", ttl]);
            }
            Self::Set { key, token, ttl_ms, fence: Some(fence) } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let (least, memory) = fence.digits(least, memory);
                let (sha, token) = (GRANT.sha1.as_bytes(), token.as_bytes());
                let counter = counter_of(key);
                let words: [&[u8]; 9] =
                    [b"EVALSHA", sha, b"2", key, &counter, token, ttl, least, memory];
                write_command(out, &words);
            }
            Self::Guarded { key, token, ttl_ms, fence, marker } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let (sha, token) = (GUARDED.sha1.as_bytes(), token.as_bytes());
                let marker = marker.as_bytes();
                let Some(fence) = fence else {
                    let words: [&[u8]; 8] = [b"EVALSHA", sha, b"2", key, BOOT, token, ttl, marker];
                    return write_command(out, &words);
                };
                let (least, memory) = fence.digits(least, memory);
                let counter = counter_of(key);
                let words: [&[u8]; 11] =
                    [b"EVALSHA", sha, b"3", key, &counter, BOOT, token, ttl, marker, least, memory];
                write_command(out, &words);
            }
            Self::Watch { run_id, marker, begin, vigil_ms, ended } => {
                let text = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
                let (begin, ended) = (text(begin), text(ended));
                let words: [&[u8]; 10] = [
                    b"EVALSHA",
                    WATCH.sha1.as_bytes(),
                    b"2",
                    BOOT,
                    VIGIL,
                    run_id.0.as_bytes(),
                    marker.as_bytes(),
                    begin.as_bytes(),
                    decimal(*vigil_ms, &mut digits[0]),
                    ended.as_bytes(),
                ];
                write_command(out, &words);
            }
            Self::Initialize { marker } => {
                write_command(out, &[b"SET", BOOT, marker.as_bytes(), b"NX"]);
            }
            Self::Keep { key, token, ttl_ms, repair, fence } => {
                let [ttl, least, memory] = &mut digits;
                let ttl = decimal(*ttl_ms, ttl);
                let repair: &[u8] = if *repair { b"1" } else { b"0" };
                let (sha, token) = (KEEP.sha1.as_bytes(), token.as_bytes());
                let Some(fence) = fence else {
                    return write_command(out, &[b"EVALSHA", sha, b"1", key, token, ttl, repair]);
                };
                let (least, memory) = fence.digits(least, memory);
                let counter = counter_of(key);
                let words: [&[u8]; 10] =
                    [b"EVALSHA", sha, b"2", key, &counter, token, ttl, repair, least, memory];
                write_command(out, &words);
            }
            Self::Certify { key, token, fence } => {
                let [least, memory, _] = &mut digits;
                let (least, memory) = fence.digits(least, memory);
                let (sha, token) = (CERTIFY.sha1.as_bytes(), token.as_bytes());
                let counter = counter_of(key);
                write_command(out, &[b"EVALSHA", sha, b"2", key, &counter, token, least, memory]);
            }
            Self::Delete { key, token, call, leave } => {
                let (sha, token) = (DELETE.sha1.as_bytes(), token.as_bytes());
                let wakes: &[u8] = if *call == WakeUp::First { b"1" } else { b"0" };
                let leave = leave.map(|waiter| waiter.to_string()).unwrap_or_default();
                let words: [&[u8]; 7] =
                    [b"EVALSHA", sha, b"1", key, token, wakes, leave.as_bytes()];
                let silent = *call == WakeUp::None && leave.is_empty();
                write_command(out, if silent { &words[..5] } else { &words });
            }
            Self::Enqueue { key, waiter, position } => {
                let (sha, waiter) = (QUEUE.sha1.as_bytes(), waiter.to_string());
                let number = match position {
                    Position::Any => b"=",
                    position => decimal(position.number(), &mut digits[0]),
                };
                let words: [&[u8]; 7] =
                    [b"EVALSHA", sha, b"1", key, waiter.as_bytes(), number, b"1"];
                let exactly = matches!(position, Position::At(_));
                write_command(out, if exactly { &words } else { &words[..6] });
            }
            Self::Dequeue { key, waiter, call } => {
                let (sha, waiter) = (QUEUE.sha1.as_bytes(), waiter.to_string());
                let words: [&[u8]; 7] = [b"EVALSHA", sha, b"1", key, waiter.as_bytes(), b"-", b"1"];
                write_command(out, if *call { &words } else { &words[..6] });
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

impl Expect {
    /// Whether the command may create a lock's key, or keep it.
    pub(crate) const fn creates(self) -> bool {
        matches!(self, Self::Set | Self::Grant | Self::Guarded { .. } | Self::Keep)
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
            (Self::Grant, Frame::Integer(0)) => Reply::Taken(Holder::NotAsked),
            (Self::Grant, Frame::Integer(number)) => match counted(*number) {
                Some(number) => Reply::Granted { number },
                None => Reply::Unknown(Cause::Garbage),
            },
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
}

impl Expect {
    /// Reads the reply of a script that ends with the master's `TIME` in microseconds.
    fn read_stamped(self, parts: &[Frame<'_>]) -> Reply {
        let garbage = Reply::Unknown(Cause::Garbage);
        let [said @ .., Frame::Integer(micros)] = parts else { return garbage };
        let answer = match (self, said) {
            (Self::Guarded { .. }, [Frame::Integer(0)]) => Reply::Taken(Holder::NotAsked),
            (Self::Guarded { fenced: false }, [Frame::Integer(1)]) => Reply::Created,
            (Self::Guarded { fenced: true }, [Frame::Integer(number)]) => match counted(*number) {
                Some(number) => Reply::Granted { number },
                None => return garbage,
            },
            (Self::Guarded { .. }, [Frame::Bulk(boot)]) => {
                Reply::Marked { boot: marker(boot), probation: None }
            }
            (Self::Watch, [Frame::Bulk(boot), Frame::Bulk(probation)]) => {
                Reply::Marked { boot: marker(boot), probation: marker(probation) }
            }
            _ => return garbage,
        };
        u64::try_from(*micros).map_or(garbage, |micros| answer.stamped(micros))
    }
}

/// The prefix of every key that is not a lock. No lock's key may start with it.
pub const RESERVED: &[u8] = b"redquorum:";

/// The key of a master's boot marker.
pub const BOOT: &[u8] = b"redquorum:boot";

/// The key that [`Command::Probe`] names.
pub const PROBE: &[u8] = b"redquorum:probe";

/// The name of the probation key.
pub const VIGIL: &[u8] = b"redquorum:vigil";

/// The scripts that the commands of a lock call.
pub fn scripts(guarded: bool) -> impl Iterator<Item = Script> {
    SCRIPTS.into_iter().chain(GUARD_SCRIPTS.into_iter().filter(move |_| guarded))
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

/// The key of a lock's counter.
pub fn counter_of(key: &[u8]) -> Vec<u8> {
    [RESERVED, b"fence:", key].concat()
}

impl Fence {
    fn digits<'a>(
        &self,
        number: &'a mut [u8; 20],
        memory: &'a mut [u8; 20],
    ) -> (&'a [u8], &'a [u8]) {
        (decimal(self.number, number), decimal(self.memory_ms, memory))
    }
}

/// The channel on which masters wake the waiters of an inbox.
pub fn channel_of(inbox: u64) -> Vec<u8> {
    [CHANNEL, format!("{inbox:016x}").as_bytes()].concat()
}

/// The prefix of the channels.
const CHANNEL: &[u8] = b"redquorum:wake:";

/// The waiter id of the waiter that this push message wakes; `None` for any other message.
pub fn woken(frame: &Frame<'_>) -> Option<WaiterId> {
    let Frame::Push(said) = frame else { return None };
    match said.as_slice() {
        [Frame::Bulk(b"message"), Frame::Bulk(channel), Frame::Bulk(waiter_id)] => {
            WaiterId::parse(waiter_id).filter(|_| is_channel(channel))
        }
        _ => None,
    }
}

/// Whether masters wake waiters on this channel.
pub fn is_channel(channel: &[u8]) -> bool {
    channel.starts_with(CHANNEL)
}

/// Whether the frame is a push message that answers no command.
pub fn is_unasked(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Push(said) if !is_said(said, b"subscribe"))
}

fn is_said(said: &[Frame<'_>], what: &[u8]) -> bool {
    matches!(said.first(), Some(Frame::Bulk(kind)) if *kind == what)
}

/// Returns the number if a counter can show it.
fn counted(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..=MAX_NUMBER).contains(number))
}

fn holder(left: i64, value: &[u8]) -> Holder {
    match (u64::try_from(left), Token::from_slice(value)) {
        (Err(_), _) => Holder::NoExpiry,
        (Ok(left_ms), Some(token)) => Holder::Lease { token, left_ms },
        (Ok(left_ms), None) => Holder::Foreign { left_ms },
    }
}

/// The longest error text that is kept.
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
        let set = Command::Set { key: Arc::from(&b"r"[..]), token, ttl_ms: 10_000, fence: None };
        let text: &[u8] = b"*6\r\n$3\r\nSET\r\n$1\r\nr\r\n$20\r\n01234567890123456789\r\n\
            $2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
        assert_eq!(bytes(&set), text);
    }

    #[test]
    fn keys_and_tokens_may_be_any_bytes() {
        let key: Key = Arc::from(&b"\0\r\n$5\r\n\xff"[..]);
        let token = Token::new([0; TOKEN_LEN]);
        let out =
            bytes(&Command::Delete { key: key.clone(), token, call: WakeUp::None, leave: None });
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
    fn a_probe_tells_a_master_that_refuses_writes_from_a_user_that_may_not_use_its_key() {
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
