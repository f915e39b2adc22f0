//! Parts of replies that several commands share.

use alloc::string::String;
use alloc::sync::Arc;

use super::Frame;
use crate::effect::MAX_NUMBER;
use crate::guard::MAX_MARKER;
use crate::token::Token;
use crate::vote::{Holder, Reply};

/// Reads the number of a grant; 0 and −1 are refusals. Without a fence the number of a grant is 1.
pub(super) fn granted(number: i64, fenced: bool) -> Option<Reply> {
    match number {
        0 => Some(Reply::Taken(Holder::NotAsked)),
        -1 => Some(Reply::Taken(Holder::Waiter)),
        _ if fenced => counted(number).map(|number| Reply::Granted { number }),
        1 => Some(Reply::Created),
        _ => None,
    }
}

/// Whether ACLs allow the command, but not on its key.
pub(super) fn is_forbidden_key(error: &[u8]) -> bool {
    let contains = |part: &[u8]| error.windows(part.len()).any(|found| found == part);
    // The texts of Redis before 7.2, and since.
    error.starts_with(b"NOPERM")
        && (contains(b"access one of the keys") || contains(b"access a key"))
}

/// Reads a boot marker or the value of a probation key in a form that can be shown and compared. A
/// value that can be neither becomes `?`.
pub fn marker(bytes: &[u8]) -> Option<Arc<str>> {
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

/// Reads a reply about a position in a queue.
pub(super) fn place(parts: &[Frame<'_>]) -> Option<Reply> {
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
