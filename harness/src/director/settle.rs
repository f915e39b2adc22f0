//! The last phase: what is left on the masters must go within one TTL.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Left, Ns};
use crate::units::nanos;

/// How long one round of looking at the masters' keys is apart from the next.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What is added to one TTL before a key that is left counts as left for good.
const SLACK: Duration = Duration::from_millis(100);

/// The keys of each master; none: it did not answer.
pub(super) type Seen = BTreeMap<usize, Option<Vec<Left>>>;

/// How it is going.
#[derive(Clone, Debug, Default)]
pub(super) struct Settle {
    until: Ns,
    /// When the masters are looked at next; none: they are being looked at.
    look_at: Option<Ns>,
    seen: Seen,
}

impl Settle {
    /// It begins; the longest TTL of the run is this.
    pub(super) fn new(now: Ns, ttl: Duration) -> Self {
        Self {
            until: now.saturating_add(nanos(ttl.saturating_add(SLACK))),
            look_at: Some(now.saturating_add(nanos(LOOK_AGAIN))),
            seen: Seen::new(),
        }
    }

    pub(super) const fn next_wake(&self) -> Option<Ns> {
        self.look_at
    }

    /// Whether the masters are to be looked at now; said once.
    pub(super) fn is_due(&mut self, now: Ns) -> bool {
        let due = self.look_at.is_some_and(|at| now >= at);
        if due {
            self.look_at = None;
        }
        due
    }

    /// One of so many masters was looked at. Returns what is left at the end: nothing, or what
    /// had its time.
    pub(super) fn looked(
        &mut self,
        now: Ns,
        node: usize,
        keys: Option<Vec<Left>>,
        masters: usize,
    ) -> Option<Seen> {
        self.seen.insert(node, keys);
        if self.seen.len() < masters {
            return None;
        }
        let seen = std::mem::take(&mut self.seen);
        let clean = seen.values().all(|keys| keys.as_ref().is_some_and(Vec::is_empty));
        if clean || now >= self.until {
            return Some(seen);
        }
        self.look_at = Some(now.saturating_add(nanos(LOOK_AGAIN)));
        None
    }
}
