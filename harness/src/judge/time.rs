//! Time, as the checkers count it. Nothing here overflows, whatever a history says.

use std::fmt;
use std::time::Duration;

use crate::history::{Ns, Window};

/// A millisecond.
pub(super) const MS: Ns = 1_000_000;

/// From an instant until before another. Empty if it ends where it begins, or before.
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

    /// What both have, if it is longer than nothing: spans that only touch do not meet.
    pub(super) fn meet(self, other: Self) -> Option<Self> {
        let both = Self::new(self.from.max(other.from), self.to.min(other.to));
        (!both.is_empty()).then_some(both)
    }

    /// Whether they have an instant in common, taking the ends as included: for what may be in
    /// the way, where a doubt counts.
    pub(super) const fn touches(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    /// From the beginning of the first to the end of the last.
    pub(super) fn and_what_is_between(self, other: Self) -> Self {
        Self::new(self.from.min(other.from), self.to.max(other.to))
    }

    pub(super) fn length(self) -> Ns {
        if self.is_empty() { 0 } else { self.to.saturating_sub(self.from) }
    }
}

/// A window as it ought to be.
pub(super) fn tidy(window: Window) -> Window {
    Window { from: window.from.min(window.to), to: window.from.max(window.to) }
}

pub(super) fn of(length: Duration) -> Ns {
    crate::units::nanos(length)
}

pub(super) fn of_ms(ms: u64) -> Ns {
    Ns::try_from(ms).unwrap_or(Ns::MAX).saturating_mul(MS)
}

/// A number of nanoseconds, to the nearest one that there is.
#[expect(clippy::cast_possible_truncation, reason = "from f64, `as` saturates; NaN becomes 0")]
pub(super) fn of_float(nanos: f64) -> Ns {
    nanos as Ns
}

/// The middle one; of an even number the lower of the two.
pub(super) fn median(mut values: Vec<Ns>) -> Option<Ns> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// An instant or a length for people: `12.3 ms`.
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

/// The first characters of a token: enough to tell it from others in a story.
pub(super) fn short(token: &str) -> String {
    let token = token.strip_prefix("hex:").unwrap_or(token);
    let mut first: String = token.chars().take(8).collect();
    if first.len() < token.len() {
        first.push('…');
    }
    first
}
