//! How far the wall clock of a master is ahead of the time of the run, after what was done to it. The
//! one that sets real clocks and the one that simulates them keep their books by it, and the history
//! is told by it; the judge computes for itself.

use crate::history::{Event, Ns, Window};
use crate::scenario::ClockHarm;
use crate::units::nanos;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WallClock {
    since: Ns,
    ahead: Ns,
    rate: f64,
    strobe_by: Ns,
    strobe_every: Ns,
}

impl WallClock {
    /// It shows the real time.
    pub(crate) const REAL: Self =
        Self { since: 0, ahead: 0, rate: 1.0, strobe_by: 0, strobe_every: 0 };

    /// What becomes of it at some time; without a harm it is right again.
    #[must_use]
    pub(crate) fn changed(self, now: Ns, harm: Option<&ClockHarm>) -> Self {
        let clock = Self { since: now, ahead: self.steady(now), ..self };
        match harm {
            None => Self { since: now, ..Self::REAL },
            Some(ClockHarm::Step { by, .. }) => {
                Self { ahead: clock.ahead.saturating_add(by.nanos()), ..clock }
            }
            Some(ClockHarm::Rate { factor, .. }) => Self { rate: *factor, ..clock },
            Some(ClockHarm::Strobe { by, every, .. }) => {
                Self { strobe_by: nanos(by.0), strobe_every: nanos(every.0), ..clock }
            }
        }
    }

    /// How far it is ahead.
    pub(crate) fn ahead(&self, now: Ns) -> Ns {
        let steady = self.steady(now);
        let passed = now.saturating_sub(self.since).max(0);
        let jumped = self.strobe_every > 0 && (passed / self.strobe_every) % 2 == 1;
        if jumped { steady.saturating_add(self.strobe_by) } else { steady }
    }

    /// What the history is told when it was set so, within a window.
    pub(crate) const fn event(&self, node: usize, since: Window) -> Event {
        let Self { ahead, rate, strobe_by, strobe_every, .. } = *self;
        Event::Clock { node, since, ahead, rate, strobe_by, strobe_every }
    }

    /// Without the strobe.
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
