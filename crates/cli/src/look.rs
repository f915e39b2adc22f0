//! Look: one reading of a master's clock beside the clocks of this machine.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::line::{AskError, Line};

/// See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// When, on the monotonic clock of this machine, from any origin: halfway between request and
    /// reply.
    pub(crate) at: Duration,
    /// The possible error of both `at` and `ahead`: half the time between request and reply.
    pub(crate) slack: Duration,
    /// The master's clock, in microseconds since 1970.
    pub(crate) micros: i64,
    /// How far that clock is ahead of the wall clock of this machine, in microseconds.
    pub(crate) ahead: i64,
}

impl Look {
    /// Asks a master for its time, and notes when that was, counted from `start`.
    ///
    /// # Errors
    /// Those of [`Line::ask`], or a reply that is no time.
    pub(crate) async fn at(line: &mut Line, start: Instant) -> Result<Self, AskError> {
        let (sent, wall) = (start.elapsed(), wall_micros());
        let reply = line.ask(&[b"TIME"]).await?.words();
        let slack = (start.elapsed().saturating_sub(sent)) / 2;
        let number = |index: usize| reply.get(index).and_then(|text| text.parse::<i64>().ok());
        let (Some(seconds), Some(micros)) = (number(0), number(1)) else {
            return Err(AskError::Refused(format!("no time: {reply:?}")));
        };
        let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
        let here = wall.saturating_add(micros_of(slack));
        let ahead = micros.saturating_sub(here);
        Ok(Self { at: sent + slack, slack, micros, ahead })
    }
}

/// The wall clock of this machine, in microseconds.
fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, micros_of)
}

fn micros_of(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
