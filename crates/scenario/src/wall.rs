//! How far a clock is ahead of the time of the run, after the faults on it: the wall clock of a
//! master, or the lease clock of a client. Both the code that sets real clocks and the simulation
//! compute with this type, and the history records it. The checker computes for itself.

use crate::ClockFault;
use crate::history::{Event, Ns, Window};
use crate::units::nanos;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WallClock {
    since: Ns,
    ahead: Ns,
    rate: f64,
    strobe_by: Ns,
    strobe_every: Ns,
}

impl WallClock {
    /// A clock that shows the real time.
    pub const REAL: Self = Self { since: 0, ahead: 0, rate: 1.0, strobe_by: 0, strobe_every: 0 };

    /// The clock after a fault at `now`. `None` heals it: it is right again.
    #[must_use]
    pub fn changed(self, now: Ns, fault: Option<&ClockFault>) -> Self {
        let clock = Self { since: now, ahead: self.steady(now), ..self };
        match fault {
            None => Self { since: now, ..Self::REAL },
            Some(ClockFault::Step { by }) => {
                Self { ahead: clock.ahead.saturating_add(by.nanos()), ..clock }
            }
            Some(ClockFault::Rate { factor }) => self.paced(now, *factor),
            Some(ClockFault::Strobe { by, every }) => {
                Self { strobe_by: nanos(by.0), strobe_every: nanos(every.0), ..clock }
            }
        }
    }

    /// The clock with this rate from `now` on. What it shows at `now` does not change.
    #[must_use]
    pub fn paced(self, now: Ns, rate: f64) -> Self {
        Self { since: now, ahead: self.steady(now), rate, ..self }
    }

    /// When the clock shows this much, if no fault changes it and it has no strobe.
    #[expect(clippy::float_cmp, reason = "exactly 1 is the common case, and then it is exact")]
    #[expect(clippy::cast_possible_truncation, reason = "a run is short")]
    #[expect(clippy::cast_precision_loss, reason = "f64 has 104 days of nanoseconds")]
    pub fn reaches(&self, shown: Ns) -> Ns {
        let at = shown.saturating_sub(self.ahead);
        if self.rate == 1.0 || at <= self.since {
            return at;
        }
        let passed = (at.saturating_sub(self.since) as f64 / self.rate).ceil() as Ns;
        // Rounded to the first instant at which it does.
        let mut at = self.since.saturating_add(passed).saturating_sub(1);
        while at < Ns::MAX && at.saturating_add(self.steady(at)) < shown {
            at += 1;
        }
        at
    }

    /// How far the clock is ahead.
    pub fn ahead(&self, now: Ns) -> Ns {
        let steady = self.steady(now);
        let passed = now.saturating_sub(self.since).max(0);
        let jumped = self.strobe_every > 0 && (passed / self.strobe_every) % 2 == 1;
        if jumped { steady.saturating_add(self.strobe_by) } else { steady }
    }

    /// The event for the history: a fault changed the clock within a window.
    pub const fn event(&self, node: usize, since: Window) -> Event {
        let Self { ahead, rate, strobe_by, strobe_every, .. } = *self;
        Event::Clock { node, since, ahead, rate, strobe_by, strobe_every }
    }

    /// How far the clock is ahead, without the strobe.
    #[expect(clippy::float_cmp, reason = "exactly 1 is the common case, and then it is exact")]
    #[expect(clippy::cast_possible_truncation, reason = "a drift within a run is small")]
    #[expect(clippy::cast_precision_loss, reason = "f64 has 104 days of nanoseconds")]
    fn steady(&self, now: Ns) -> Ns {
        if self.rate == 1.0 {
            return self.ahead;
        }
        let drifted = now.saturating_sub(self.since).max(0) as f64 * (self.rate - 1.0);
        self.ahead.saturating_add(drifted as Ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_comes_at_its_predicted_instant_and_not_before() {
        for rate in [0.01, 0.5, 0.9167, 0.99, 1.0, 1.01, 3.0] {
            let clock = WallClock::REAL.paced(1_000, 1.3).paced(5_000_000, rate);
            let shows = |at: Ns| at + clock.ahead(at);
            for shown in (6_600_000..2_000_000_000).step_by(7_777_777) {
                let at = clock.reaches(shown);
                assert!(shows(at) >= shown, "{rate}: {shown}");
                assert!(shows(at - 1) <= shown, "{rate}: {shown}");
            }
        }
    }
}
