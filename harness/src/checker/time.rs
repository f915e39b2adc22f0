//! The arithmetic of time for the checkers. Nothing here overflows, for any history.

use std::fmt;
use std::time::Duration;

use crate::history::{Ns, Window};

/// A millisecond.
pub(super) const MS: Ns = 1_000_000;

/// A half-open span of time: it includes `from` and excludes `to`. Empty if it ends where it
/// begins, or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Ns,
    pub(super) to: Ns,
}

impl Span {
    pub(super) const fn new(from: Ns, to: Ns) -> Self {
        Self { from, to }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// The common part of both spans, if it is not empty: spans that only touch do not meet.
    pub(super) fn meet(self, other: Self) -> Option<Self> {
        let both = Self::new(self.from.max(other.from), self.to.min(other.to));
        (!both.is_empty()).then_some(both)
    }

    /// Whether the spans have an instant in common, with the ends included. This is for obstacles,
    /// where a doubt counts.
    pub(super) const fn touches(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    /// From the beginning of the earlier span to the end of the later one.
    pub(super) fn and_what_is_between(self, other: Self) -> Self {
        Self::new(self.from.min(other.from), self.to.max(other.to))
    }

    pub(super) fn length(self) -> Ns {
        if self.is_empty() { 0 } else { self.to.saturating_sub(self.from) }
    }
}

/// The window with its ends in the right order.
pub(super) fn tidy(window: Window) -> Window {
    Window { from: window.from.min(window.to), to: window.from.max(window.to) }
}

pub(super) fn of(length: Duration) -> Ns {
    crate::units::nanos(length)
}

pub(super) fn of_ms(ms: u64) -> Ns {
    Ns::try_from(ms).unwrap_or(Ns::MAX).saturating_mul(MS)
}

/// Converts a number of nanoseconds, saturating. The fraction is cut off.
#[expect(clippy::cast_possible_truncation, reason = "from f64, `as` saturates; NaN becomes 0")]
pub(super) fn of_float(nanos: f64) -> Ns {
    nanos as Ns
}

/// The median. Of an even number of values, it is the lower of the middle two.
pub(super) fn median(mut values: Vec<Ns>) -> Option<Ns> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// An instant or a length of time for people: `12.3 ms`.
pub(super) struct Ms(pub(super) Ns);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let tenths = (self.0.unsigned_abs() + 50_000) / 100_000;
        if tenths.is_multiple_of(10) {
            write!(f, "{sign}{} ms", tenths / 10)
        } else {
            write!(f, "{sign}{}.{} ms", tenths / 10, tenths % 10)
        }
    }
}

/// The first characters of a token: enough to distinguish it from others in a report.
pub(super) fn short(token: &str) -> String {
    let token = token.strip_prefix("hex:").unwrap_or(token);
    let mut first: String = token.chars().take(8).collect();
    if first.len() < token.len() {
        first.push('…');
    }
    first
}
