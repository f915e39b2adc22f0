//! What the wall clock of a master shows.

use super::server::Wall;
use super::world::Instant;
use crate::history::Ns;

/// The wall clock at the beginning of the world: far enough from zero to be set back.
const EPOCH: u64 = 1_000_000_000 * 1_000_000_000;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WallClock {
    pub(super) since: Instant,
    pub(super) ahead: Ns,
    pub(super) rate: f64,
    pub(super) strobe_by: Ns,
    pub(super) strobe_every: Ns,
}

impl WallClock {
    pub(super) const REAL: Self =
        Self { since: 0, ahead: 0, rate: 1.0, strobe_by: 0, strobe_every: 0 };

    /// What it shows.
    pub(super) fn shown(&self, now: Instant) -> Wall {
        let mut ahead = self.steady(now);
        if let (passed, Ok(every @ 1..)) =
            (now.saturating_sub(self.since), u64::try_from(self.strobe_every))
            && (passed / every) % 2 == 1
        {
            ahead = ahead.saturating_add(self.strobe_by);
        }
        EPOCH.saturating_add(now).saturating_add_signed(ahead)
    }

    /// The same, counted from now on.
    pub(super) fn from(self, now: Instant) -> Self {
        Self { since: now, ahead: self.steady(now), ..self }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a drift within a run is small")]
    #[expect(clippy::cast_precision_loss, reason = "f64 has 104 days of nanoseconds")]
    fn steady(&self, now: Instant) -> Ns {
        if self.rate == 1.0 {
            return self.ahead;
        }
        let drifted = now.saturating_sub(self.since) as f64 * (self.rate - 1.0);
        self.ahead.saturating_add(drifted as Ns)
    }
}
