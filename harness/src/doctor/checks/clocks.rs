//! Clocks: how far a master's wall clock is from this machine's, and how fast it runs (A3, A4).

use std::time::Duration;

use redquorum_protocol::Drift;

use crate::doctor::finding::{Finding, Level};
use crate::doctor::server_info::{Look, QueryResult};

/// Keys expire by the rate of a clock, so an offset harms no lease. But the hints for fencing
/// tokens come from clocks, and a clock that is off will one day be corrected by a step.
const FAR: Duration = Duration::from_millis(100);
const TOO_FAR: Duration = Duration::from_secs(1);

const NTP: &str = "let NTP steer the clocks of all machines, this one included; while leases are alive, \
                   let it slew by no more than the drift that locks allow, and not step: with \
                   chrony `maxslewrate 500`, since its default of 8.3 % is more than drift covers";

/// Offset and rate of one master's clock.
pub(super) fn check(clock: &QueryResult<[Look; 2]>) -> Vec<Finding> {
    match clock {
        Ok([first, second]) => {
            // The reading at the end is the current one.
            vec![offset(second), rate(first, second)]
        }
        Err(text) => vec![Finding::warn(
            "clock",
            format!("TIME is refused ({text}): its clock is unknown"),
            "allow +time, which fenced leases need, too",
        )],
    }
}

/// The level of an offset between two clocks.
pub(super) fn level_of(apart: Duration) -> Level {
    if apart > TOO_FAR {
        Level::Error
    } else if apart > FAR {
        Level::Warn
    } else {
        Level::Ok
    }
}

/// The finding about an offset, of one master or between two.
pub(super) fn finding_of(check: &'static str, apart: Duration, text: String) -> Finding {
    match level_of(apart) {
        Level::Ok => Finding::ok(check, text),
        level => Finding::bad(level, check, text, NTP),
    }
}

fn offset(look: &Look) -> Finding {
    let apart = Duration::from_micros(look.ahead.unsigned_abs());
    let side = if look.ahead < 0 { "behind" } else { "ahead of" };
    // The part of the offset that latency may explain does not count against the clock.
    let sure = apart.saturating_sub(look.slack);
    finding_of("clock", sure, format!("its clock is {} {side} this machine's", seconds(apart)))
}

fn rate(first: &Look, second: &Look) -> Finding {
    let passed = second.at.saturating_sub(first.at);
    let advanced = second.micros.saturating_sub(first.micros);
    let real = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
    let wrong = Duration::from_micros(advanced.saturating_sub(real).unsigned_abs());
    let sure = wrong.saturating_sub(first.slack).saturating_sub(second.slack);
    let allowed = passed.saturating_mul(Drift::default().ppm) / 1_000_000;
    if sure <= allowed {
        return Finding::ok("clock-rate", "its clock runs as fast as this machine's, within 1 %");
    }
    let sign = if advanced < 0 { "−" } else { "" };
    let advanced = seconds(Duration::from_micros(advanced.unsigned_abs()));
    Finding::error(
        "clock-rate",
        format!(
            "its clock went {sign}{advanced} in {}: it was stepped, or runs wrong beyond the drift \
             that locks allow (1 %)",
            seconds(passed)
        ),
        NTP,
    )
}

pub(super) fn seconds(length: Duration) -> String {
    format!("{:.3} s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ms: u64, slack_ms: u64, ahead_ms: i64) -> Look {
        Look {
            at: Duration::from_millis(at_ms),
            slack: Duration::from_millis(slack_ms),
            micros: (at_ms.cast_signed() + ahead_ms) * 1000,
            ahead: ahead_ms * 1000,
        }
    }

    #[test]
    fn an_offset_counts_in_both_directions_and_not_for_what_the_way_may_explain() {
        let table = [
            (0, 0, Level::Ok),
            (100, 0, Level::Ok),
            (101, 0, Level::Warn),
            (-101, 0, Level::Warn),
            (120, 30, Level::Ok),
            (1000, 0, Level::Warn),
            (1001, 0, Level::Error),
            (-5000, 1, Level::Error),
        ];
        for (ahead, slack, level) in table {
            assert_eq!(offset(&look(0, slack, ahead)).level, level, "{ahead} {slack}");
        }
        assert!(offset(&look(0, 0, -5000)).text.contains("5.000 s behind"));
    }

    #[test]
    fn a_rate_beyond_the_drift_allowance_is_an_error_and_so_is_a_step() {
        let level = |slack, ahead| rate(&look(0, slack, 0), &look(1000, slack, ahead)).level;
        assert_eq!(level(0, 10), Level::Ok);
        assert_eq!(level(0, 11), Level::Error);
        assert_eq!(level(0, -11), Level::Error);
        assert_eq!(level(1, 12), Level::Ok);
        assert_eq!(level(1, -5000), Level::Error);
    }

    #[test]
    fn a_clock_that_may_not_be_read_is_no_ok() {
        assert_eq!(check(&Err("NOPERM".into()))[0].level, Level::Warn);
    }
}
