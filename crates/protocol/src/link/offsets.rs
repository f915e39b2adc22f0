//! Offsets: what a link has seen of its master's clock, over the window in which a lease can live.
//!
//! A lease that a master's clock has ended too early began within the last `max_ttl`. So the guard
//! bounds how much the clock may have gained since any moment in that window. For this it needs a
//! reading from before the window began. Until it has one, the master is *not watched*, and its
//! clock is judged only beside other clocks ([`acquire`](crate::Acquire)).
//!
//! Another process may run on another machine, with another clock and the keys of the one before.
//! So a master whose `run_id` has changed is no longer watched. Its readings are still compared
//! with those from before. Masters keep keys with the instant at which they expire. So a clock that
//! is ahead of the one before ends leases too early, as a step does.

use alloc::vec::Vec;
use core::time::Duration;

use crate::guard::{Distrust, Guard};
use crate::reading::Reading;
use crate::time::Time;

/// How many parts the window has. One reading is kept for each.
const PARTS: u32 = 8;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Offsets {
    window: Duration,
    bound: Duration,
    /// The slots in the order of time. The first began before the window, if there is such a slot.
    slots: Vec<Slot>,
    /// When this server process gave the first reading that was kept. No reading is missing after
    /// it.
    watched: Option<Time>,
    stepped: Option<Stepped>,
}

/// The readings of one span of time, combined into an interval for the lowest offset.
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
    pub(super) fn new(guard: Guard) -> Option<Self> {
        let (window, bound) = (guard.window(), guard.clock_bound()?);
        Some(Self { window, bound, slots: Vec::new(), watched: None, stepped: None })
    }

    /// Notes that another server process replies from now on.
    pub(super) const fn restarted(&mut self) {
        self.watched = None;
    }

    /// Records a reading. `Ok` means that the clock cannot have ended a lease too early, as far as
    /// it was watched. The returned reading says for how long the master must still be watched.
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
            // Readings from before the step say nothing about the clock after it: the watch begins
            // anew.
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

    /// Why the master is distrusted whatever it replies, and for how much longer: its clock has
    /// stepped.
    pub(super) fn stepped(&self, now: Time) -> Option<(Distrust, Duration)> {
        let stepped = self.stepped.as_ref().filter(|stepped| now < stepped.until)?;
        Some((Distrust::ClockStepped { by: stepped.by }, stepped.until.since(now)))
    }

    /// Whether a reading was kept at this instant.
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

    /// Forgets the slots that the window has left behind, except the last one that began before it.
    fn forget(&mut self, now: Time) {
        self.stepped.take_if(|stepped| now >= stepped.until);
        let is_stale = |last: &Slot| now.since(last.until) > self.window.saturating_mul(2);
        if self.slots.last().is_some_and(is_stale) {
            // Over a long gap even a rate within the drift allowance adds up to more than the
            // bound.
            self.clear();
        }
        let before = self.slots.iter().rposition(|slot| now.since(slot.since) >= self.window);
        self.slots.drain(..before.unwrap_or(0));
    }

    /// Keeps a reading, unless the reply was slow: one wide reading would make all later ones
    /// unclear.
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
    use crate::lock_config::Drift;

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
            // The clock falls back for a moment every second, by less than the bound.
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

    fn offsets(max_ttl: Duration, bound: Duration) -> Offsets {
        let guard = Guard::new(max_ttl, Drift::default(), 1).unwrap();
        Offsets::new(guard.with_clock_bound(bound).unwrap()).unwrap()
    }

    fn exact(now: Time, ahead_us: u64) -> Reading {
        Reading::new(now, now, 1_000_000 + now.as_nanos() / 1000 + ahead_us)
    }

    #[test]
    fn a_gain_is_compared_with_the_bound_to_the_microsecond_by_which_readings_are_known() {
        let second = Duration::from_secs(1);
        for (gained_us, unclear, stepped) in [
            (999_999, false, false),
            (1_000_000, true, false),
            (1_000_001, true, false),
            (1_000_002, false, true),
        ] {
            let mut offsets = offsets(8 * second, second);
            let now = Time::from_millis(1_000);
            assert_eq!(offsets.take(now, exact(now, 0)).1, Ok(()));
            let now = now.plus(second);
            let why = offsets.take(now, exact(now, gained_us)).1.err().map(|(why, _)| why);
            assert_eq!(matches!(why, Some(Distrust::ClockUnclear { .. })), unclear, "{why:?}");
            assert_eq!(matches!(why, Some(Distrust::ClockStepped { .. })), stepped, "{why:?}");
            let ends = now.plus(offsets.window);
            let before = Time::from_nanos(ends.as_nanos() - 1);
            assert_eq!([before, ends].map(|at| offsets.stepped(at).is_some()), [stepped, false]);
        }
    }

    #[test]
    fn a_clock_that_gains_less_than_the_bound_in_each_window_never_steps() {
        let second = Duration::from_secs(1);
        let mut offsets = offsets(8 * second, second);
        for tenth in 1..2_000 {
            let now = Time::from_millis(tenth * 100);
            // 0.4 s in 8 s.
            assert_eq!(offsets.take(now, exact(now, tenth * 5_000)).1, Ok(()), "{now:?}");
        }
    }
}
