//! The watchdog of a held lease: when it renews, and until when.
//!
//! A driver that holds thousands of leases renews them together, so that many commands reach a
//! master in one write. So a renewal has a time from which it may happen, and a time by which it
//! must. The driver chooses the moment between them. Deadlines and the ends of rounds have no such
//! freedom: they must not be late.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Asker, Extension, Hold};
use crate::effect::Effect;
use crate::time::Time;

/// When the watchdog renews its lease next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// From here on, [`Input::Renew`](crate::Input::Renew) renews the lease: after half of the time
    /// between two renewals. After a failed round, this is `due`.
    pub from: Time,
    /// From here on, any wake renews the lease. A driver that is later wastes time before the
    /// deadline, and breaks nothing.
    pub due: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Watchdog {
    /// No renewal moves the deadline beyond this.
    end: Time,
    /// The latest time of the next renewal; never, once the deadline has reached the end.
    pub(super) next: Time,
}

impl Hold {
    /// Has the watchdog renew the lease, but never beyond `max_hold` from now.
    pub(crate) fn keep_alive(&mut self, now: Time, max_hold: Duration, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        // A round under way schedules the next renewal itself.
        let next = if self.round.state == Extension::Extended { self.renews() } else { now };
        self.watchdog = Some(Watchdog { end: now.plus(max_hold), next: next.max(now) });
        self.report_gap(now, out);
    }

    /// Renews the lease now if the watchdog may: the driver renews other leases, too.
    pub(crate) fn renew_early(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        if self.renewal().is_some_and(|renewal| now >= renewal.from) {
            self.renew(now, out);
        }
    }

    /// When the watchdog renews the lease next. `None` without a watchdog, with nothing left to
    /// renew, or while a round waits for replies.
    pub fn renewal(&self) -> Option<Renewal> {
        let next = self.watchdog?.next;
        let due = if next == Time::NEVER { next } else { next.min(self.refills()) };
        let waits = self.lost.is_none() && !self.is_extending() && due != Time::NEVER;
        let from = if self.round.state == Extension::Extended {
            self.round.votes.opened().plus(self.pause() / 2).min(due)
        } else {
            due
        };
        waits.then_some(Renewal { from, due })
    }

    /// A third of the TTL, so that two more rounds may fail. It is less if drift and the clock
    /// bound leave the holder little of the TTL.
    fn pause(&self) -> Duration {
        (self.round.config.ttl() / 3).min(self.round.config.validity() / 2)
    }

    /// The latest time of a renewal after a successful round.
    fn renews(&self) -> Time {
        self.round.votes.opened().plus(self.pause())
    }

    /// When masters that have not granted get the key: once those that grant late have had their
    /// time, and before any round after the grant.
    fn refills(&self) -> Time {
        let missed = self.round.number == 0 && self.members.len() < self.config.nodes();
        let late = self.round.votes.opened().plus(2 * self.config.node_timeout());
        if missed { late } else { Time::NEVER }
    }

    pub(super) fn renew(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(watchdog) = &mut self.watchdog else { return };
        // The last renewal is cut so that the deadline is at the bound, not a TTL after it.
        let room = watchdog.end.since(now);
        let (config, least_gain) = if room >= self.config.validity() {
            (Some(self.config), Duration::ZERO)
        } else {
            // A gain below one node timeout is not worth a round.
            (self.config.with_ttl(room).ok(), self.config.node_timeout())
        };
        match config {
            Some(config) if now.plus(config.validity()) > self.deadline.plus(least_gain) => {
                self.start_round(now, config, Asker::Watchdog, out);
            }
            // There is nothing to gain: the lease ends at its deadline.
            _ => watchdog.next = Time::NEVER,
        }
    }

    /// Schedules the next renewal. After a failed round it is soon, and sooner the nearer the
    /// deadline is, but not faster than masters can answer.
    pub(super) fn schedule(&mut self, now: Time) {
        let pause = (self.deadline.since(now) / 8).max(self.round.config.node_timeout() / 2);
        let extended = self.round.state == Extension::Extended;
        let next = if extended { self.renews() } else { now.plus(pause) };
        self.watchdog.iter_mut().for_each(|watchdog| watchdog.next = next);
    }
}
