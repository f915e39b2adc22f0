//! Timers of held leases: when each ends, and when its watchdog renews it.
//!
//! The client wakes a lease when something ends that must not end late: its deadline, whether or not a
//! master replied (R7), or a round of extending. It renews leases with a watchdog many at a time, so
//! that their commands leave in one write per master. However many are due, as after a suspend, no more
//! are sent than masters can answer soon: the commands of others do not queue up behind them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::ClaimId;
use crate::time::Time;

/// How many leases one wake handles, so that a driver can serve other tasks in between.
pub(super) const BATCH: usize = 256;

/// The unanswered commands of a master above which no renewal is sent: an eighth of what a link takes.
const UNANSWERED: usize = 512;

/// The renewals that are sent in any case: leases do not wait behind acquires.
const LEAST: usize = 16;

/// The pause before the next renewals while masters have too many commands to answer.
const PAUSE: Duration = Duration::from_millis(1);

/// The timers of one claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timer {
    /// When it is woken at the latest.
    pub(super) end: Option<Time>,
    /// When it is renewed.
    pub(super) renewal: Option<Time>,
}

/// The timers of all claims, by time.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Timers {
    ends: BTreeSet<(Time, ClaimId)>,
    renewals: BTreeSet<(Time, ClaimId)>,
    /// Masters had too many commands to answer: until when no renewal is sent.
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

    /// Takes the first claim out that is due for its end.
    pub(super) fn next_end(&mut self, now: Time) -> Option<ClaimId> {
        pop(&mut self.ends, now)
    }

    /// Takes the first claim out that is due for renewal.
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

/// How many renewals may be sent, given the unanswered commands of each master that replies. A quorum
/// counts: the slowest masters are not waited for.
pub(super) fn room(mut unanswered: Vec<usize>, quorum: usize) -> usize {
    unanswered.sort_unstable();
    let slowest = unanswered.get(quorum - 1).copied().unwrap_or(0);
    UNANSWERED.saturating_sub(slowest).max(LEAST)
}
