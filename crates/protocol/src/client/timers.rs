//! Timers of held leases: when each ends, and when its watchdog renews it.
//!
//! The client wakes a lease when something ends that must not end late: its deadline, whether or
//! not a master replied (R7), or a round of extending. The same timers
//! [set aside](super::unpolled) requests whose callers do not look at them.
//!
//! The client renews leases with a watchdog in batches, so that their commands leave in one write
//! per master. Many may be due at once, as after a suspend. Even then, the client sends no more
//! than masters can answer soon, so that other commands do not queue up behind the renewals.

use alloc::collections::BTreeSet;
use core::time::Duration;

use super::pacing::renewal_moment;
use super::unpolled::Leeway;
use super::{ClaimId, ClaimMachine, Client, Context, Entry, State};
use crate::claim::{Claim, Input};
use crate::hold::Hold;
use crate::quorum::{NodeId, Quorum};
use crate::time::Time;

/// How many leases one wake handles, so that a driver can serve other tasks in between.
const BATCH: usize = 256;

/// The number of unanswered commands of a master above which no renewal is sent: an eighth of the
/// limit of a link.
const UNANSWERED: usize = 512;

/// The number of renewals that are sent in any case, so that leases do not wait behind acquires.
const LEAST: usize = 16;

/// The pause before the next renewals while masters have too many commands to answer.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timer {
    /// The latest time to wake the claim.
    pub(super) end: Option<Time>,
    pub(super) renewal: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timers {
    ends: BTreeSet<(Time, ClaimId)>,
    renewals: BTreeSet<(Time, ClaimId)>,
    /// How many leases have had a watchdog.
    watched: u64,
    /// Until when no renewal is sent, because masters had too many commands to answer.
    paused: Option<Time>,
}

impl Timers {
    pub(super) fn replace(&mut self, id: ClaimId, set: Timer, wanted: Timer) {
        if set == wanted {
            return;
        }
        let Self { ends, renewals, .. } = self;
        let sets = [(ends, set.end, wanted.end), (renewals, set.renewal, wanted.renewal)];
        for (timers, set, wanted) in sets {
            if set != wanted {
                set.map(|time| timers.remove(&(time, id)));
                timers.extend(wanted.map(|time| (time, id)));
            }
        }
    }

    /// Sets the timers of a request: for a held lease, for a lease that is not collected, and for a
    /// request whose caller may be unresponsive.
    pub(super) fn set<C: ClaimMachine>(
        &mut self,
        id: ClaimId,
        entry: &mut Entry<C, C::Seed>,
        leeway: Leeway,
        cx: &Context<'_, C>,
    ) {
        let mut wanted = Timer { end: entry.ends_at(leeway, cx.clocks), renewal: None };
        if let State::Claim(claim) = &entry.state {
            // A timer that fires early only looks again, so it does not move.
            let mut keep = match claim.claim() {
                Claim::Holding(_) => core::mem::replace(&mut entry.holds, true),
                Claim::Acquiring(acquire) => !acquire.is_waiting(),
                _ => false,
            };
            keep &= entry.timer.end < wanted.end;
            wanted.end = if keep { entry.timer.end.or(wanted.end) } else { wanted.end };
            let hold = claim.claim().hold().filter(|hold| hold.lost().is_none());
            wanted.renewal = hold.and_then(Hold::renewal).map(|renewal| {
                let number = *entry.number.get_or_insert_with(|| {
                    self.watched += 1;
                    self.watched - 1
                });
                claim.by_now(cx.clocks, renewal_moment(renewal, number))
            });
        }
        let set = core::mem::replace(&mut entry.timer, wanted);
        self.replace(id, set, wanted);
    }

    fn pause(&mut self, now: Time) {
        let due = self.renewals.first().is_some_and(|(time, _)| *time <= now);
        self.paused = due.then(|| now.plus(PAUSE));
    }
}

fn pop(timers: &mut BTreeSet<(Time, ClaimId)>, now: Time) -> Option<ClaimId> {
    let (time, id) = *timers.first()?;
    (time <= now && timers.remove(&(time, id))).then_some(id)
}

/// How many renewals may be sent, given the unanswered commands of each master that replies. A
/// quorum counts: renewals do not wait for the slowest masters.
fn room(unanswered: impl Fn(NodeId) -> Option<usize>, quorum: Quorum) -> usize {
    let slowest = quorum.least(unanswered).unwrap_or(0);
    UNANSWERED.saturating_sub(slowest).max(LEAST)
}

impl<C: ClaimMachine> Client<C> {
    /// Wakes the leases that are due, at most one batch, and sets requests aside whose callers do
    /// not look at them. Requests that wait go on when their callers [look](Client::look) at them.
    pub fn wake_leases(&mut self, cx: &mut Context<'_, C>) {
        let now = cx.now();
        let mut handled = 0;
        while handled < BATCH
            && let Some(id) = pop(&mut self.timers.ends, now)
        {
            handled += 1;
            self.end_is_due(id, cx);
            self.deliver(cx);
        }
        let link = |node: NodeId| &self.links[node.index()];
        let unanswered = |node| link(node).is_answering().then(|| link(node).unanswered());
        let mut room = room(unanswered, self.config.quorum);
        while handled < BATCH
            && room > 0
            && let Some(id) = pop(&mut self.timers.renewals, now)
        {
            (handled, room) = (handled + 1, room - 1);
            if let Some(entry) = self.claims.get_mut(&id) {
                entry.timer.renewal = None;
            }
            self.drive(id, Input::Renew, cx);
            self.deliver(cx);
        }
        if room == 0 {
            self.timers.pause(now);
        }
    }

    /// When to call [`wake_leases`](Client::wake_leases) next.
    pub fn leases_wake_at(&self) -> Time {
        let Timers { ends, renewals, paused, .. } = &self.timers;
        let first = |timers: &BTreeSet<(Time, ClaimId)>| timers.first().map(|(time, _)| *time);
        let renewal = first(renewals).map(|time| paused.map_or(time, |it| it.max(time)));
        first(ends).into_iter().chain(renewal).min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_wait_for_the_slowest_master_of_the_fastest_quorum() {
        for (unanswered, masters, sent) in [
            (&[0, 0, 600][..], 3, UNANSWERED),
            (&[600, 100, 0], 3, UNANSWERED - 100),
            (&[0, 600, 600], 3, LEAST),
            (&[500], 1, LEAST),
            // No quorum answers: nothing is in the way.
            (&[600], 3, UNANSWERED),
        ] {
            let of = |node: NodeId| unanswered.get(node.index()).copied();
            assert_eq!(room(of, Quorum::of(masters)), sent, "{unanswered:?}");
        }
    }
}
