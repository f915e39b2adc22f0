//! The queue of the waiters for a resource, as a master keeps it.

use alloc::vec::Vec;

use super::{Frame, RESERVED, counted, holder};
use crate::vote::{Cause, Holder, Reply};

/// The two keys of a resource's queue: a sorted set of waiters by position, and one by the time at
/// which each waiter lapses, in milliseconds of the master's clock.
pub fn queue_of(key: &[u8]) -> [Vec<u8>; 2] {
    [[RESERVED, b"queue:", key].concat(), [RESERVED, b"lapse:", key].concat()]
}

/// How long masters keep the position of a waiter that does not ask again, in milliseconds.
pub const LAPSE_MS: u64 = 15_000;

/// How long a waiter that was woken keeps its position unless it asks again, in milliseconds.
pub const TURN_MS: u64 = 3_000;

pub(super) fn place(parts: &[Frame<'_>]) -> Reply {
    read(parts).unwrap_or(Reply::Unknown(Cause::Garbage))
}

fn read(parts: &[Frame<'_>]) -> Option<Reply> {
    let [Frame::Integer(number), Frame::Integer(ahead), held @ ..] = parts else { return None };
    let holder = match held {
        [] => None,
        [Frame::Integer(_)] => Some(Holder::WrongType),
        [Frame::Integer(left), Frame::Bulk(value)] => Some(holder(*left, value)),
        _ => return None,
    };
    let ahead = u64::try_from(*ahead).ok()?;
    Some(match counted(*number) {
        Some(number) => Reply::Place { number, ahead, holder },
        // Another program wrote into the queue.
        None => Reply::NoQueue,
    })
}
