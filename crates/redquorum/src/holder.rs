//! Who holds a resource, by a look that changes nothing.

use std::fmt;
use std::time::Duration;

use redquorum_protocol::{Client, Key, NodeId, NodeSet, Quorum, is_free};

use crate::error::AcquireError;
use crate::health::ask;
use crate::redlock::Redlock;
use crate::report::{Holder, MasterOutcome, Report};
use crate::shared::LockState;

/// Who held a resource when the masters replied. Made by [`Redlock::holder`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// The outcome at each master: [`Absent`](MasterOutcome::Absent),
    /// [`Taken`](MasterOutcome::Taken) by a holder, or [`Unknown`](MasterOutcome::Unknown) with the
    /// reason.
    pub report: Report,
    /// The number of masters that a lease needs at least.
    pub quorum: usize,
    sets: Quorum,
}

impl HeldBy {
    /// Asks the masters. This process has built the lock.
    pub(crate) async fn look(lock_state: &LockState, key: &Key) -> Self {
        // No key has this token, so no command with it changes any.
        let token = lock_state.shared.with_rng(|rng| rng.token());
        let votes = ask(lock_state, |client: &mut Client, node, request, cx| {
            client.ask_holder(node, request, (key.clone(), token), cx);
        });
        let report = lock_state.report(&votes.await);
        let sets = lock_state.config.quorum();
        Self { report, quorum: sets.size(), sets }
    }

    /// The holder that a quorum of masters named, with the time for which a quorum of them keeps
    /// its key: a lease is over by then, unless it is extended. Of those that share a resource, it
    /// is one that a master named.
    ///
    /// `None` if the resource is free, or if too few masters replied to tell. A key on fewer
    /// masters than a quorum is no lease: an attempt that failed, or one under way, has left it.
    pub fn holder(&self) -> Option<(Holder, Duration)> {
        NodeId::all(self.sets.nodes()).filter_map(|node| self.holder_at(node)).find_map(|holder| {
            let same = |node| self.holder_at(node).filter(|other| is_same(&holder, other));
            // A client of one set of a lock that moves has a quorum of that one only.
            let left = self.sets.each().into_iter().filter_map(|set| {
                set.least(|node| same(node).as_ref().map(time_left).map(std::cmp::Reverse))
            });
            Some((holder, left.map(|left| left.0).max()?))
        })
    }

    /// Whether no client held the resource: so many masters replied that they have no key that no
    /// quorum can have one.
    pub fn is_free(&self) -> bool {
        let absent = |node: &NodeId| self.outcome(*node) == Some(&MasterOutcome::Absent);
        let absent: NodeSet = NodeId::all(self.sets.nodes()).filter(absent).collect();
        is_free(absent, self.sets)
    }

    fn holder_at(&self, node: NodeId) -> Option<Holder> {
        match self.outcome(node) {
            Some(MasterOutcome::Taken(holder)) => Some(*holder),
            _ => None,
        }
    }

    fn outcome(&self, node: NodeId) -> Option<&MasterOutcome> {
        self.report.masters().get(node.index())?.outcome.as_ref()
    }
}

/// Whether two masters named one and the same holder. Any of those that share a resource may be
/// named.
fn is_same(one: &Holder, other: &Holder) -> bool {
    match (one, other) {
        (Holder::Lease { token, .. }, Holder::Lease { token: of, .. }) => {
            token == of || one.is_shared() && other.is_shared()
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// A key without TTL, or of another type, stays.
const fn time_left(holder: &Holder) -> Duration {
    match holder {
        Holder::Lease { left_ms, .. } | Holder::Foreign { left_ms } => {
            Duration::from_millis(*left_ms)
        }
        _ => Duration::MAX,
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder() {
            Some((holder, _)) => write!(f, "{holder}")?,
            None if self.is_free() => f.write_str("free")?,
            None => f.write_str("no quorum of masters names the same holder")?,
        }
        write!(f, " ({})", self.report)
    }
}

impl Redlock {
    /// Asks every master who holds a resource, in one round trip. Nothing is changed, and nobody is
    /// kept out. It returns after at most one node timeout.
    ///
    /// **The result is out of date when it returns.** It is for people, dashboards and tests. To do
    /// something only if the resource is free, acquire it.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), redquorum::AcquireError> {
    /// println!("{}", lock.holder("invoice:42").await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Options`](AcquireError::Options): this is no name of a resource. And
    /// [`Forked`](AcquireError::Forked). A master that does not reply is no error: the report says
    /// so.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn holder(&self, resource: impl AsRef<[u8]>) -> Result<HeldBy, AcquireError> {
        let lock_state = &self.lock_state;
        let key = lock_state.key(resource.as_ref())?;
        if lock_state.shared.is_forked() {
            return Err(AcquireError::Forked);
        }
        Ok(HeldBy::look(lock_state, &key).await)
    }
}
