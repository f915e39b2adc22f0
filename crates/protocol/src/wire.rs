//! Wire: encodes commands and decodes replies, in one place.
//!
//! Clients encode [`Command`]s and decode replies with this module. The model of Redis and proxies
//! decode commands with the same [`Frame`]. `docs/wire.md` describes the format.

use alloc::format;
use alloc::vec::Vec;

use crate::waiter::WaiterId;

mod command;
mod errors;
mod frame;
mod hello;
mod reply;
mod scripts;
mod skip;

pub use command::{Command, Expect, KeyEffect};
pub use errors::{ErrorKind, KNOWN_VERSIONS, KnownError, known_errors};
pub use frame::{Frame, MAX_REPLY, Malformed, parse, write_command};
pub use hello::{
    CLIENT_NAME, Greeting, Handshake, Hello, Unfit, is_client_name, is_sentinel, run_id,
    was_no_replica,
};
pub use reply::{marker, readable};
pub use scripts::{CERTIFY, GRANT, GUARD_SCRIPTS, KEEP, QUEUE, SCRIPTS, Script, WATCH};
pub use skip::Skip;

/// The prefix of every key that is not a lock. No lock's key may start with it.
pub const RESERVED: &[u8] = b"redquorum:";

/// The key of a master's boot marker.
pub const BOOT: &[u8] = b"redquorum:boot";

/// The key that [`Command::Probe`] names.
pub const PROBE: &[u8] = b"redquorum:probe";

/// The name of the probation key.
pub const PROBATION: &[u8] = b"redquorum:probation";

/// The scripts that the commands of a lock call.
pub fn scripts(guarded: bool) -> impl Iterator<Item = Script> {
    SCRIPTS.into_iter().chain(GUARD_SCRIPTS.into_iter().filter(move |_| guarded))
}

/// The key of a lock's counter.
pub fn counter_of(key: &[u8]) -> Vec<u8> {
    [RESERVED, b"fence:", key].concat()
}

/// The prefixes of the keys that [`queue_of`] returns.
const QUEUE_PREFIXES: [&[u8]; 3] =
    [b"redquorum:queue:", b"redquorum:readers:", b"redquorum:lapse:"];

/// Whether this key belongs to the queue of a resource.
pub fn is_queue(key: &[u8]) -> bool {
    QUEUE_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The three keys of a resource's queue: sorted sets of the waiters for an exclusive lease and for
/// a shared one, by position, and of all of them by the time at which each lapses, in milliseconds
/// of the master's clock.
pub fn queue_of(key: &[u8]) -> [Vec<u8>; 3] {
    QUEUE_PREFIXES.map(|prefix| [prefix, key].concat())
}

/// How long masters keep the position of a waiter that does not ask again, in milliseconds.
pub const LAPSE_MS: u64 = 15_000;

/// How long a waiter that was woken keeps its position unless it asks again, in milliseconds.
pub const TURN_MS: u64 = 3_000;

/// The channel on which masters wake the waiters of an inbox.
pub fn channel_of(inbox: u64) -> Vec<u8> {
    [CHANNEL, format!("{inbox:016x}").as_bytes()].concat()
}

/// The prefix of the channels.
const CHANNEL: &[u8] = b"redquorum:wake:";

/// The waiter id of the waiter that this push message wakes; `None` for any other message.
pub fn woken(frame: &Frame<'_>) -> Option<WaiterId> {
    let Frame::Push(parts) = frame else { return None };
    match parts.as_slice() {
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
pub fn is_out_of_band(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Push(_)) && !is_confirmation(frame)
}

/// Whether the frame is the push message that confirms a subscription.
fn is_confirmation(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Push(parts) if matches!(parts.first(), Some(Frame::Bulk(b"subscribe"))))
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

    #[test]
    fn decimals_are_right_at_both_ends() {
        for number in [0, 9, 10, u64::MAX] {
            let text = alloc::format!("{number}");
            assert_eq!(decimal(number, &mut [0; 20]), text.as_bytes());
        }
    }

    #[test]
    fn keys_of_queues_and_messages_that_wake_are_told_from_others() {
        for queue in queue_of(b"r") {
            assert!(is_queue(&queue) && !is_channel(&queue));
        }
        for other in [&b"r"[..], &counter_of(b"r"), BOOT] {
            assert!(!is_queue(other));
        }
        let (channel, id) = (channel_of(7), alloc::format!("{}", WaiterId::new(9)));
        let push = |kind, channel, id| {
            Frame::Push(Vec::from([Frame::Bulk(kind), Frame::Bulk(channel), Frame::Bulk(id)]))
        };
        let wake = push(b"message", &channel, id.as_bytes());
        assert_eq!(woken(&wake).map(WaiterId::number), Some(9));
        for (frame, out_of_band) in [
            (push(b"message", b"other", id.as_bytes()), true),
            (push(b"message", &channel, b"9"), true),
            (push(b"pmessage", &channel, id.as_bytes()), true),
            (push(b"subscribe", &channel, id.as_bytes()), false),
            (Frame::Integer(1), false),
        ] {
            assert_eq!((woken(&frame), is_out_of_band(&frame)), (None, out_of_band), "{frame:?}");
        }
        assert!(is_out_of_band(&wake));
    }
}
