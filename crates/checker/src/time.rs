//! The arithmetic of time for the checkers. Nothing here overflows, for any history.

use std::fmt;

use redquorum_scenario::history::Ns;
pub(crate) use redquorum_scenario::units::nanos as of;

/// A millisecond.
pub(crate) const MS: Ns = 1_000_000;
/// Two readings of the same clock may appear in the wrong order by up to this much.
pub(crate) const SKEW: Ns = MS;

pub(crate) fn of_ms(ms: u64) -> Ns {
    Ns::try_from(ms).unwrap_or(Ns::MAX).saturating_mul(MS)
}

/// Converts a number of nanoseconds, saturating. The fraction is cut off.
#[expect(clippy::cast_possible_truncation, reason = "from f64, `as` saturates; NaN becomes 0")]
pub(crate) fn of_float(nanos: f64) -> Ns {
    nanos as Ns
}

/// The median. Of an even number of values, it is the lower of the middle two.
pub(crate) fn median(mut values: Vec<Ns>) -> Option<Ns> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// An instant or a length of time in a report: `12.3 ms`.
pub(crate) struct Ms(pub Ns);

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
pub(crate) fn short(token: &str) -> String {
    let token = token.strip_prefix("hex:").unwrap_or(token);
    let mut first: String = token.chars().take(8).collect();
    if first.len() < token.len() {
        first.push('…');
    }
    first
}
