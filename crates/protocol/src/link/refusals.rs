//! Refusals: whether the server behind the open connection refuses every vote because of what it
//! is: a replica, or a server that asks for a login.
//!
//! Such a connection works and is useless. It does not break by itself: after a planned failover,
//! the name leads to another server, and the old one goes on to answer. So the link dials again
//! beside it.

use alloc::sync::Arc;

use crate::vote::{Cause, Reply};
use crate::wire::Expect;

/// How the errors of such a server begin.
const CODES: [&str; 3] = ["READONLY", "MASTERDOWN", LOGIN];

/// The error of a server that asks for a login. A new connection to the same server logs in.
const LOGIN: &str = "NOAUTH";

/// The number of refusals in a row that make a connection useless. One may be of a failover that
/// is just over.
const ENOUGH: u8 = 2;

/// The refusals of one connection since it last took a write.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Refusals {
    count: u8,
    latest: Option<Arc<str>>,
}

impl Refusals {
    /// Those of a connection that replaces one of no use: one more refusal is enough.
    pub(super) fn one_before_useless() -> Self {
        Self { count: ENOUGH - 1, latest: None }
    }

    /// Takes the reply to a command that asks for a vote or deletes a key.
    pub(super) fn heard(&mut self, expect: Expect, reply: &Reply) {
        if let Reply::Unknown(Cause::Error(text)) = reply {
            if CODES.iter().any(|code| has_code(text, code)) {
                self.count = self.count.saturating_add(1).min(ENOUGH);
                self.latest = Some(text.clone());
            }
        } else if self.count > 0 && takes_writes(expect, reply) {
            *self = Self::default();
        }
    }

    /// Why the connection is useless; `None` if it is not.
    pub(super) fn useless(&self) -> Option<&Arc<str>> {
        self.latest.as_ref().filter(|_| self.count >= ENOUGH)
    }

    /// Whether another connection to the same server may be of use.
    pub(super) fn need_login(&self) -> bool {
        self.useless().is_some_and(|text| has_code(text, LOGIN))
    }
}

fn has_code(text: &str, code: &str) -> bool {
    text.split(' ').next() == Some(code)
}

/// Whether this reply shows that the server takes writes. Many do not: scripts that find another
/// holder's key, or none, read only, which a replica permits.
const fn takes_writes(expect: Expect, reply: &Reply) -> bool {
    match reply {
        Reply::Created
        | Reply::Granted { .. }
        | Reply::Kept
        | Reply::Deleted
        | Reply::Freed { .. }
        | Reply::Alive
        | Reply::Initialized => true,
        Reply::Taken(_) => matches!(expect, Expect::Set),
        _ => false,
    }
}
