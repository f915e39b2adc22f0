//! The watchdog of a held lease: when it renews, and until when.
//!
//! Whoever holds thousands of leases renews them together, so that many commands go to a master in
//! one piece. So a renewal has a time by which it is made, and one from which it may be: which moment
//! between them is the driver's choice. What must not be late has no such freedom: deadlines, and the
//! ends of rounds.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Extension, Hold};
use crate::effect::Effect;
use crate::time::Time;

/// When the watchdog renews its lease next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// From here on [`Input::Renew`](crate::Input::Renew) renews it: half of the time that passes between two
    /// renewals. After a failure it is `due`.
    pub from: Time,
    /// From here on any wake does. A driver that is later than this wastes what is left until the deadline,
    /// and breaks nothing.
    pub due: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Watchdog {
    /// No renewal moves the deadline beyond this.
    end: Time,
    /// When it renews at the latest; never, once the deadline has reached the end.
    next: Time,
}

impl Renewal {
    /// One that may be made from here on, and is made then at the latest.
    pub const fn between(from: Time, due: Time) -> Self {
        Self { from, due }
    }
}

impl Hold {
    /// Renews the lease by itself, so that its deadline moves on, but never beyond `max_hold` from now.
    pub(crate) fn keep_alive(&mut self, now: Time, max_hold: Duration, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        // A round under way says itself when the next one is due.
        let next = if self.round.state == Extension::Extended { self.renews() } else { now };
        self.watchdog = Some(Watchdog { end: now.plus(max_hold), next: next.max(now) });
        self.tell_gap(now, out);
    }

    /// Renews it now if the watchdog may: others of the same driver are renewed, too.
    pub(crate) fn renew_early(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        if self.renewal().is_some_and(|renewal| now >= renewal.from) {
            self.renew(now, out);
        }
    }

    /// Renews it if it is time to.
    pub(super) fn wake_watchdog(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.renewal().is_some_and(|renewal| now >= renewal.due) {
            self.renew(now, out);
        }
    }

    /// When the watchdog renews it next, if there is one that still has something to do and does not
    /// wait for an answer.
    pub fn renewal(&self) -> Option<Renewal> {
        let due = self.watchdog?.next;
        let waits = self.lost.is_none() && !self.is_extending() && due != Time::NEVER;
        let from = if self.round.state == Extension::Extended {
            self.round.ballot.opened().plus(self.pause() / 2).min(due)
        } else {
            due
        };
        waits.then_some(Renewal { from, due })
    }

    /// A third of the TTL, so that two more rounds may fail; less where little of the TTL is left for the
    /// holder.
    fn pause(&self) -> Duration {
        (self.round.terms.ttl() / 3).min(self.round.terms.validity() / 2)
    }

    /// When it is renewed at the latest after a round that succeeded.
    fn renews(&self) -> Time {
        self.round.ballot.opened().plus(self.pause())
    }

    fn renew(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(watchdog) = &mut self.watchdog else { return };
        // The last renewal is cut so that the deadline ends at the bound, not a TTL behind it.
        let room = watchdog.end.since(now);
        let (terms, least_gain) = if room >= self.terms.validity() {
            (Some(self.terms), Duration::ZERO)
        } else {
            // Not again and again for what is less than a round may take.
            (self.terms.with_ttl(room).ok(), self.terms.node_timeout())
        };
        match terms {
            Some(terms) if now.plus(terms.validity()) > self.deadline.plus(least_gain) => {
                self.start_round(now, terms, false, out);
            }
            // Nothing to gain: the lease ends at its deadline.
            _ => watchdog.next = Time::NEVER,
        }
    }

    /// The round has succeeded.
    pub(super) fn schedule(&mut self) {
        let next = self.renews();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.next = next;
        }
    }

    /// The round has failed: try again soon, and sooner the nearer the deadline comes, but not faster
    /// than masters can answer.
    pub(super) fn schedule_again(&mut self, now: Time) {
        let pause = (self.deadline.since(now) / 8).max(self.round.terms.node_timeout() / 2);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.next = now.plus(pause);
        }
    }

    /// Whether the watchdog has come to the end of what it was allowed.
    pub(super) fn is_kept_to_the_end(&self) -> bool {
        self.watchdog.is_some_and(|watchdog| watchdog.next == Time::NEVER)
    }
}
