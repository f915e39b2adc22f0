//! The last phase, the drain: the keys that are left on the masters must disappear within one TTL.

use std::collections::BTreeMap;
use std::time::Duration;

use redquorum_scenario::history::{LeftKey, Ns};
use redquorum_scenario::units::nanos;

/// The pause between two looks at the masters' keys.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The allowance on top of one TTL before a key counts as left for good.
const SLACK: Duration = Duration::from_millis(100);

/// The keys of each master. `None`: the master did not reply.
pub(super) type KeysByMaster = BTreeMap<usize, Option<Vec<LeftKey>>>;

/// The state of the drain.
#[derive(Clone, Debug, Default)]
pub(super) struct Drain {
    until: Ns,
    /// When the masters are looked at next. `None`: they are being looked at.
    look_at: Option<Ns>,
    seen: KeysByMaster,
}

impl Drain {
    /// Begins the drain. `ttl` is the longest TTL of the run.
    pub(super) fn new(now: Ns, ttl: Duration) -> Self {
        Self {
            until: now.saturating_add(nanos(ttl.saturating_add(SLACK))),
            look_at: Some(now.saturating_add(nanos(LOOK_AGAIN))),
            seen: KeysByMaster::new(),
        }
    }

    pub(super) const fn next_wake(&self) -> Option<Ns> {
        self.look_at
    }

    /// Whether to look at the masters now. True once per look.
    pub(super) fn is_due(&mut self, now: Ns) -> bool {
        let due = self.look_at.is_some_and(|at| now >= at);
        if due {
            self.look_at = None;
        }
        due
    }

    /// The keys of one of `masters` masters have arrived. Returns the result at the end: no keys,
    /// or keys that should have expired.
    pub(super) fn looked(
        &mut self,
        now: Ns,
        node: usize,
        keys: Option<Vec<LeftKey>>,
        masters: usize,
    ) -> Option<KeysByMaster> {
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
