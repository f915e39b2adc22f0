//! The possible changes of a wall clock, and the setting after each. `clock.rs` calls it, and code
//! that computes the shown time without a clock.

use std::{fmt, time::Duration};

use super::setting::{ClockSetting, RATE_ONE, since_epoch};

/// No real clock is faster, and up to this rate all arithmetic is far from its limits.
const MAX_RATE: f64 = 1e6;

/// A change of a wall clock. No change affects a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ClockChange {
    /// The clock jumps once, relative to the time that it shows: forward, or back if negative. See
    /// [`forward`](Self::forward) and [`back`](Self::back).
    Step {
        /// By how many nanoseconds.
        nanos: i64,
    },
    /// The clock continues from the time that it shows at this many seconds a second: 1 is right, 0
    /// stands still. Replaces an earlier rate.
    Rate(f64),
    /// The clock jumps back and forth: forward by `by` after `every`, back by as much after another
    /// `every`, and so on. Replaces an earlier strobe; `by` of zero ends it.
    Strobe {
        /// How far.
        by: Duration,
        /// The time between two jumps.
        every: Duration,
    },
    /// The clock shows the real time at the real rate. For a clock that was stepped this is a step
    /// too.
    Heal,
}

impl ClockChange {
    /// A step forward, of at most 292 years.
    pub fn forward(by: Duration) -> Self {
        Self::Step { nanos: i64::try_from(by.as_nanos()).unwrap_or(i64::MAX) }
    }

    /// A step back, of at most 292 years.
    pub fn back(by: Duration) -> Self {
        Self::Step { nanos: i64::try_from(by.as_nanos()).map_or(-i64::MAX, |nanos| -nanos) }
    }
}

/// The format of reports: `step +3s`, `rate 2`, `strobe 500ms every 1s`, `heal`.
impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { nanos } => {
                let sign = if *nanos < 0 { '-' } else { '+' };
                write!(f, "step {sign}{:?}", Duration::from_nanos(nanos.unsigned_abs()))
            }
            Self::Rate(rate) => write!(f, "rate {rate}"),
            Self::Strobe { by, every } => write!(f, "strobe {by:?} every {every:?}"),
            Self::Heal => write!(f, "heal"),
        }
    }
}

impl ClockSetting {
    /// The setting after a change at a real time, in nanoseconds since the Unix epoch. The shown
    /// time jumps at that time after a step, after a heal, and at the end of a strobe if the strobe
    /// was forward; it does not jump after a new rate.
    ///
    /// # Errors
    ///
    /// The change is impossible; the text gives the reason.
    pub fn changed(self, real: u64, change: ClockChange) -> Result<Self, String> {
        let too_far = || "no clock can be that far from the real time".to_owned();
        match change {
            ClockChange::Step { nanos } => {
                let offset = self.offset.checked_add(nanos).ok_or_else(too_far)?;
                Ok(Self { offset, ..self })
            }
            ClockChange::Rate(rate) => {
                let offset = i64::try_from(self.steady(real) - i128::from(real));
                let offset = offset.map_err(|_| too_far())?;
                Ok(Self { anchor: real, offset, rate: fixed_point(rate)?, ..self })
            }
            ClockChange::Strobe { by, every } => {
                let [by, every] = [by, every].map(|time| u64::try_from(time.as_nanos()));
                let (strobe_by, every) = by.ok().zip(every.ok()).ok_or_else(too_far)?;
                if every == 0 && strobe_by != 0 {
                    return Err("a strobe needs some time between its jumps".to_owned());
                }
                let strobe_every = if strobe_by == 0 { 0 } else { every };
                Ok(Self { strobe_by, strobe_every, strobe_from: real, ..self })
            }
            ClockChange::Heal => Ok(Self::REAL),
        }
    }

    /// Whether a reader can have seen this time, in whole microseconds, at some real time from
    /// `from` to `to`, both included.
    pub(crate) fn could_show(&self, from: u64, to: u64, micros: u64) -> bool {
        let first = u128::from(micros) * 1000;
        let (low, high) = (self.steady(from), self.steady(to));
        let reached = |strobe: u64| {
            let [low, high] = [low, high].map(|t| u128::from(since_epoch(t + i128::from(strobe))));
            low <= first + 999 && first <= high
        };
        let periods = self.strobe_period(from)..=self.strobe_period(to);
        // Of more than two consecutive periods, each is like one of the first two.
        periods.take(2).any(|period| reached(if period & 1 == 1 { self.strobe_by } else { 0 }))
    }
}

/// The rate times 2³², rounded to the nearest, so that a drift of a billionth remains one.
fn fixed_point(rate: f64) -> Result<u64, String> {
    if !(0.0..=MAX_RATE).contains(&rate) {
        return Err(format!("a clock cannot run at a rate of {rate}: use 0 to {MAX_RATE}"));
    }
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let scaled = rate * RATE_ONE as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded, not negative, and below 2^52"
    )]
    Ok(scaled.round() as u64)
}
