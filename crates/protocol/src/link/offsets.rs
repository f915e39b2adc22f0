//! Offsets: what a link has seen of its master's clock, over the window in which a lease can live.
//!
//! A lease that a master's clock has ended too early began within the last `max_ttl`. So what counts
//! is how much the clock may have gained since any moment in that window; for that somebody must have
//! looked at it before the window began. Until then the master is *not watched*, and what its clock is
//! worth is told only beside others ([`acquire`](crate::Acquire)).
//!
//! Another process may run on another machine, with another clock and the keys of the one before: so a
//! master is not watched any longer when its `run_id` has changed. Its readings are still compared with
//! those from before. Keys are kept with the instant at which they expire, so what the clock is ahead
//! of the one before ends leases too early, as a step does.

use alloc::vec::Vec;
use core::time::Duration;

use crate::guard::{Distrust, Guard};
use crate::reading::Reading;
use crate::time::Time;

/// Into how many parts the window is divided, for each of which one reading is kept.
const PARTS: u32 = 8;

/// The readings of one master's clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Offsets {
    window: Duration,
    bound: Duration,
    /// In their order. The first began before the window, where there is such a one.
    slots: Vec<Slot>,
    /// When the first reading was kept that this process gave, and behind which none is missing.
    watched: Option<Time>,
    stepped: Option<Stepped>,
}

/// The readings from one moment to another: the lowest that the offset may have been, and that it
/// has been.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slot {
    since: Time,
    until: Time,
    lowest: Reading,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Stepped {
    until: Time,
    by: Duration,
}

impl Offsets {
    /// `None` where the guard does not look at clocks.
    pub(super) fn new(guard: Guard) -> Option<Self> {
        let (window, bound) = (guard.window(), guard.clock_bound()?);
        Some(Self { window, bound, slots: Vec::new(), watched: None, stepped: None })
    }

    /// Another process answers from now on.
    pub(super) const fn restarted(&mut self) {
        self.watched = None;
    }

    /// Takes down a reading. Says whether the clock can have ended no lease too early, as far as it was
    /// watched: for how long it is to be watched yet, the reading says.
    pub(super) fn take(
        &mut self,
        now: Time,
        reading: Reading,
    ) -> (Reading, Result<(), (Distrust, Duration)>) {
        self.forget(now);
        let gains = |gain: fn(Reading, Reading) -> Duration| {
            self.slots.iter().map(|slot| gain(reading, slot.lowest)).max().unwrap_or_default()
        };
        let (least, most) = (gains(Reading::lead_at_least), gains(Reading::lead_at_most));
        if least > self.bound {
            // What it was before says nothing about what it will be: the watch begins anew.
            self.clear();
            self.stepped = Some(Stepped { until: now.plus(self.window), by: least });
        }
        self.keep(now, reading);
        let fit = match self.stepped(now) {
            Some(stepped) => Err(stepped),
            None if most > self.bound => {
                Err((Distrust::ClockUnclear { gained: most }, Duration::ZERO))
            }
            None => Ok(()),
        };
        (reading.unwatched_for(self.unwatched(now)), fit)
    }

    /// Why the master is distrusted whatever it says, and for how long yet: its clock was seen to step.
    pub(super) fn stepped(&self, now: Time) -> Option<(Distrust, Duration)> {
        let stepped = self.stepped.as_ref().filter(|stepped| now < stepped.until)?;
        Some((Distrust::ClockStepped { by: stepped.by }, stepped.until.since(now)))
    }

    /// Whether a reading was kept just now.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.slots.last().is_some_and(|last| last.until == now)
    }

    fn unwatched(&self, now: Time) -> Duration {
        let watched = self.watched.map_or(Duration::ZERO, |since| now.since(since));
        self.window.saturating_sub(watched)
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.watched = None;
    }

    /// Forgets what the window has left behind, but for the last that began before it.
    fn forget(&mut self, now: Time) {
        self.stepped.take_if(|stepped| now >= stepped.until);
        let is_stale = |last: &Slot| now.since(last.until) > self.window.saturating_mul(2);
        if self.slots.last().is_some_and(is_stale) {
            // A rate that is within the drift allowance adds up to more than the bound in time.
            self.clear();
        }
        let before = self.slots.iter().rposition(|slot| now.since(slot.since) >= self.window);
        self.slots.drain(..before.unwrap_or(0));
    }

    /// Not where the answer was slow: one wide reading would make all that follow unclear.
    fn keep(&mut self, now: Time, reading: Reading) {
        if reading.width() > self.bound / 4 {
            return;
        }
        self.watched.get_or_insert(now);
        match self.slots.last_mut() {
            Some(last) if now.since(last.since) < self.window / PARTS => {
                last.until = now;
                last.lowest = last.lowest.lowest(reading);
            }
            _ => self.slots.push(Slot { since: now, until: now, lowest: reading }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Drift;

    #[test]
    fn few_readings_are_kept_however_many_come_and_none_is_lost_that_is_the_lowest() {
        let guard = Guard::new(Duration::from_secs(8), Drift::default(), 1).unwrap();
        let guard = guard.with_clock_bound(Duration::from_secs(1)).unwrap();
        let mut offsets = Offsets::new(guard).unwrap();
        let reading = |now: Time, ahead: u64| {
            Reading::new(now, now, 1_000_000 + now.as_nanos() / 1000 + ahead)
        };
        for ms in 1..100_000 {
            let now = Time::from_millis(ms);
            // It falls back for a moment every second, by less than the bound.
            let ahead = if ms % 1000 == 500 { 0 } else { 400_000 };
            let (_, fit) = offsets.take(now, reading(now, ahead));
            assert_eq!(fit, Ok(()), "{ms}");
            assert!(offsets.slots.len() <= 2 + PARTS as usize, "{}", offsets.slots.len());
        }
        let now = Time::from_millis(100_001);
        assert_eq!(offsets.take(now, reading(now, 999_000)).1, Ok(()));
        let (_, fit) = offsets.take(now, reading(now, 1_001_500));
        assert!(matches!(fit, Err((Distrust::ClockStepped { .. }, _))), "{fit:?}");
    }
}
