//! Timers of held leases: when each ends, and when its watchdog renews it.
//!
//! The client wakes a lease when something ends that must not end late: its deadline, whether or
//! not a master replied (R7), or a round of extending. The client renews leases with a watchdog in
//! batches, so that their commands leave in one write per master. Many may be due at once, as after
//! a suspend. Even then, the client sends no more than masters can answer soon, so that other
//! commands do not queue up behind the renewals.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::ClaimId;
use crate::time::Time;

/// How many leases one wake handles, so that a driver can serve other tasks in between.
pub(super) const BATCH: usize = 256;

/// The number of unanswered commands of a master above which no renewal is sent: an eighth of the
/// limit of a link.
const UNANSWERED: usize = 512;

/// The number of renewals that are sent in any case, so that leases do not wait behind acquires.
const LEAST: usize = 16;

/// The pause before the next renewals while masters have too many commands to answer.
const PAUSE: Duration = Duration::from_millis(1);

/// The timers of one claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timer {
    /// The latest time to wake the claim.
    pub(super) end: Option<Time>,
    /// The time of the next renewal.
    pub(super) renewal: Option<Time>,
}

/// The timers of all claims, by time.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timers {
    ends: BTreeSet<(Time, ClaimId)>,
    renewals: BTreeSet<(Time, ClaimId)>,
    /// Until when no renewal is sent, because masters had too many commands to answer.
    paused: Option<Time>,
}

impl Timers {
    /// Replaces the timers of a claim.
    pub(super) fn replace(&mut self, id: ClaimId, set: Timer, wanted: Timer) {
        let Self { ends, renewals, .. } = self;
        let sets = [(ends, set.end, wanted.end), (renewals, set.renewal, wanted.renewal)];
        for (timers, set, wanted) in sets {
            if set != wanted {
                set.map(|time| timers.remove(&(time, id)));
                timers.extend(wanted.map(|time| (time, id)));
            }
        }
    }

    /// Removes and returns the first claim that is due for its end.
    pub(super) fn next_end(&mut self, now: Time) -> Option<ClaimId> {
        pop(&mut self.ends, now)
    }

    /// Removes and returns the first claim that is due for renewal.
    pub(super) fn next_renewal(&mut self, now: Time) -> Option<ClaimId> {
        pop(&mut self.renewals, now)
    }

    /// Pauses the renewals if any is due.
    pub(super) fn pause(&mut self, now: Time) {
        let due = self.renewals.first().is_some_and(|(time, _)| *time <= now);
        self.paused = due.then(|| now.plus(PAUSE));
    }

    /// When the first timer is due.
    pub(super) fn next_wake(&self) -> Time {
        let first = |timers: &BTreeSet<(Time, ClaimId)>| timers.first().map(|(time, _)| *time);
        let renewal = first(&self.renewals).map(|time| self.paused.map_or(time, |it| it.max(time)));
        first(&self.ends).into_iter().chain(renewal).min().unwrap_or(Time::NEVER)
    }
}

fn pop(timers: &mut BTreeSet<(Time, ClaimId)>, now: Time) -> Option<ClaimId> {
    let (time, id) = *timers.first()?;
    (time <= now && timers.remove(&(time, id))).then_some(id)
}

/// How many renewals may be sent, given the unanswered commands of each master that replies. A
/// quorum counts: renewals do not wait for the slowest masters.
pub(super) fn room(mut unanswered: Vec<usize>, quorum: usize) -> usize {
    unanswered.sort_unstable();
    let slowest = unanswered.get(quorum - 1).copied().unwrap_or(0);
    UNANSWERED.saturating_sub(slowest).max(LEAST)
}
