//! From the samples of masters to figures, and from these to the options of a lock. Pure.

use std::fmt;
use std::time::Duration;

use redquorum_protocol::Drift;
use serde::{Serialize, Serializer};

use crate::look::Look;

/// What was seen of one master.
#[derive(Debug)]
pub(super) struct Samples {
    /// How long the measurement was meant to be: the rate of the clock is that between its first
    /// quarter and its last.
    length: Duration,
    /// Of `PING` and of `TIME`.
    pub(super) round_trips: Vec<Duration>,
    /// The clock, in the order of the readings.
    pub(super) looks: Vec<Look>,
    errors: usize,
    /// The latest error.
    error: Option<String>,
}

/// The figures of one master.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) name: String,
    /// Nothing if the master never answered.
    pub(super) round_trips: Option<RoundTrips>,
    /// Nothing if `TIME` was never answered.
    clock: Option<Clock>,
    errors: usize,
    /// The latest error.
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct RoundTrips {
    count: usize,
    #[serde(rename = "p50_ms", serialize_with = "milliseconds")]
    p50: Duration,
    #[serde(rename = "p99_ms", serialize_with = "milliseconds")]
    p99: Duration,
    #[serde(rename = "max_ms", serialize_with = "milliseconds")]
    max: Duration,
}

fn milliseconds<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(length.as_secs_f64() * 1000.0)
}

/// A clock beside those of this machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Clock {
    /// How far it is ahead of the wall clock. Behind if negative.
    ahead_ms: f64,
    /// The possible error of that: half a round trip.
    ahead_error_ms: f64,
    /// How much faster than the monotonic clock it runs, in millionths. Nothing if there is no
    /// reading in the first or in the last quarter.
    rate: Option<Rate>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Rate {
    ppm: f64,
    /// The possible error of that, since the readings have one.
    error_ppm: f64,
}

impl Rate {
    /// Between two readings.
    fn between(first: &Look, last: &Look) -> Option<Self> {
        let passed = last.at.checked_sub(first.at).filter(|passed| !passed.is_zero())?;
        let passed = passed.as_secs_f64();
        let advanced = Duration::from_micros(last.micros.abs_diff(first.micros)).as_secs_f64();
        let advanced = if last.micros < first.micros { -advanced } else { advanced };
        let slack = (first.slack + last.slack).as_secs_f64();
        let [ppm, error_ppm] = [advanced - passed, slack].map(|part| part / passed * 1e6);
        Some(Self { ppm, error_ppm })
    }

    /// The part of it that the errors of the readings cannot explain.
    fn sure_ppm(self) -> f64 {
        (self.ppm.abs() - self.error_ppm).max(0.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the sum, a rate that rounds to zero from below has a sign.
        write!(f, "{:+.0} ± {:.0} ppm", self.ppm.round() + 0.0, self.error_ppm)
    }
}

/// The reading with the fastest reply.
fn best<'a>(looks: impl Iterator<Item = &'a Look>) -> Option<&'a Look> {
    looks.min_by_key(|look| look.slack)
}

impl Samples {
    pub(super) const fn new(length: Duration) -> Self {
        Self { length, round_trips: Vec::new(), looks: Vec::new(), errors: 0, error: None }
    }

    /// Notes a command without a reply of use, or a connection that broke.
    pub(super) fn failed(&mut self, why: &str) {
        self.errors += 1;
        self.error = Some(why.to_owned());
    }

    pub(super) fn summary(&self, name: String) -> Summary {
        Summary {
            name,
            round_trips: RoundTrips::of(&self.round_trips),
            clock: self.clock(),
            errors: self.errors,
            error: self.error.clone(),
        }
    }

    fn clock(&self) -> Option<Clock> {
        let quarter = self.length / 4;
        let first = best(self.looks.iter().filter(|look| look.at <= quarter));
        let last = best(self.looks.iter().filter(|look| look.at >= self.length - quarter));
        // The offset at the end is the present one.
        let latest = last.or_else(|| best(self.looks.iter()))?;
        Some(Clock {
            ahead_ms: Duration::from_micros(latest.ahead.unsigned_abs()).as_secs_f64()
                * if latest.ahead < 0 { -1000.0 } else { 1000.0 },
            ahead_error_ms: latest.slack.as_secs_f64() * 1000.0,
            rate: first.zip(last).and_then(|(first, last)| Rate::between(first, last)),
        })
    }
}

impl RoundTrips {
    fn of(all: &[Duration]) -> Option<Self> {
        let mut sorted = all.to_vec();
        sorted.sort_unstable();
        // The least of which this share is not above.
        let share = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let max = *sorted.last()?;
        Some(Self { count: sorted.len(), p50: share(50), p99: share(99), max })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.round_trips {
            Some(RoundTrips { count, p50, p99, max }) => {
                let ms = |length: &Duration| length.as_secs_f64() * 1000.0;
                let (p50, p99, max) = (ms(p50), ms(p99), ms(max));
                write!(f, "{p50:.2} ms p50, {p99:.2} ms p99, {max:.2} ms max of {count}")?;
            }
            None => f.write_str("no answer")?,
        }
        if let Some(Clock { ahead_ms, ahead_error_ms, rate }) = self.clock {
            let side = if ahead_ms < 0.0 { "behind" } else { "ahead" };
            write!(f, "; clock {:.2} ± {ahead_error_ms:.2} ms {side}", ahead_ms.abs())?;
            if let Some(rate) = rate {
                write!(f, ", rate {rate}")?;
            }
        }
        match &self.error {
            Some(error) => write!(f, "; errors: {}, the last: {error}", self.errors),
            None => f.write_str("; no errors"),
        }
    }
}

/// What the options say now, which are the defaults where they say nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    pub(super) ttl: Duration,
    pub(super) drift: Drift,
}

/// What an option should be, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Advice {
    pub(super) option: &'static str,
    pub(super) value: String,
    pub(super) reason: String,
    /// No value of the option is right: something else must change.
    pub(super) is_error: bool,
}

/// A shorter node timeout takes every pause of a scheduler, of a disk or of a collector of garbage
/// for a master that is down.
const LEAST_TIMEOUT: Duration = Duration::from_millis(20);

/// The default of the connect timeout, which must not be shorter than the node timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The options that follow from the figures.
pub(super) fn advise(masters: &[Summary], lock: Lock) -> Vec<Advice> {
    let measured = masters.iter().filter_map(|master| Some((&master.name, master.round_trips?)));
    let Some((name, slowest)) = measured.max_by_key(|(_, round_trips)| round_trips.p99) else {
        return Vec::new();
    };
    let p99 = slowest.p99.as_secs_f64() * 1000.0;
    let node_timeout = tidy((4 * slowest.p99).max(LEAST_TIMEOUT));
    let reason = if 4 * slowest.p99 > LEAST_TIMEOUT {
        format!("four times the longest p99, which is {p99:.2} ms, of {name}")
    } else {
        format!(
            "the longest p99 is {p99:.2} ms, of {name}; below 20 ms a short pause is taken for a \
             master that is down"
        )
    };
    let mut all = vec![advice("node-timeout", node_timeout, reason)];
    if node_timeout > CONNECT_TIMEOUT {
        let reason = "it must not be shorter than the node timeout".to_owned();
        all.push(advice("connect-timeout", node_timeout, reason));
    }
    all.push(ttl(node_timeout, lock));
    all.push(drift(masters, lock.drift));
    all
}

fn advice(option: &'static str, value: Duration, reason: String) -> Advice {
    let value = humantime::format_duration(value).to_string();
    Advice { option, value, reason, is_error: false }
}

/// Ten node timeouts and the drift. The watchdog renews a lease up to a third of its TTL after the
/// last renewal. Then several rounds fit before the deadline, and each may take a node timeout.
fn ttl(node_timeout: Duration, lock: Lock) -> Advice {
    let rounds = 10 * node_timeout;
    // The drift is a share of the whole.
    let share = f64::from(lock.drift.ppm.min(900_000)) / 1e6;
    let least = tidy((rounds + lock.drift.fixed).div_f64(1.0 - share));
    if least > lock.ttl {
        let reason =
            "ten node timeouts and the drift: a renewal that fails can be repeated in time";
        return advice("ttl", least, reason.to_owned());
    }
    let least = humantime::format_duration(least);
    let reason = format!(
        "ten node timeouts and the drift are {least}; the TTL must also be longer than any healthy \
         pause of a process, and it is how long the others wait after a crash"
    );
    advice("ttl", lock.ttl, reason)
}

/// The drift stays, unless a clock runs wrong beyond it.
fn drift(masters: &[Summary], drift: Drift) -> Advice {
    let rates = masters.iter().filter_map(|master| Some((&master.name, master.clock?.rate?)));
    let worst = rates.max_by(|(_, a), (_, b)| a.sure_ppm().total_cmp(&b.sure_ppm()));
    let allowed = f64::from(drift.ppm);
    let (is_error, reason) = match worst {
        None => (false, "no clock could be measured, so nothing speaks for another one".to_owned()),
        Some((name, rate)) if rate.sure_ppm() > allowed => (
            true,
            format!(
                "the clock of {name} was stepped, or ran wrong by {rate}, beyond the drift: correct \
                 it (docs/set-up.md, \"Clocks\")"
            ),
        ),
        Some((name, rate)) => (
            false,
            format!(
                "the worst clock, of {name}, ran wrong by {rate}; the rest is for clocks that are \
                 slewed later"
            ),
        ),
    };
    Advice { option: "drift-ppm", value: drift.ppm.to_string(), reason, is_error }
}

/// The next longer time that is easy to read: 20 ms, 25 ms, 30 ms, 40 ms, and so on.
fn tidy(length: Duration) -> Duration {
    let mut unit = Duration::from_millis(1);
    loop {
        for tenths in [10, 15, 20, 25, 30, 40, 50, 60, 80] {
            let candidate = unit * tenths / 10;
            if candidate >= length && candidate.subsec_micros().is_multiple_of(1000) {
                return candidate;
            }
        }
        unit *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LENGTH: Duration = Duration::from_secs(10);

    fn lock() -> Lock {
        Lock { ttl: Duration::from_secs(10), drift: Drift::default() }
    }

    /// A master whose round trips take this long, and whose clock gains this many millionths.
    fn master(name: &str, round_trip: Duration, ppm: i64) -> Summary {
        let mut samples = Samples::new(LENGTH);
        samples.round_trips = vec![round_trip; 100];
        samples.looks = (0..=10_u32)
            .map(|second| {
                let micros = i64::from(second) * (1_000_000 + ppm);
                let at = Duration::from_secs(second.into());
                Look { at, slack: round_trip / 2, micros, ahead: i64::from(second) * ppm }
            })
            .collect();
        samples.summary(name.to_owned())
    }

    fn of(option: &str, masters: &[Summary], lock: Lock) -> Advice {
        let mut all = advise(masters, lock).into_iter();
        all.find(|advice| advice.option == option).unwrap()
    }

    #[test]
    fn a_share_is_the_least_time_that_so_many_are_not_above() {
        let times = |count: u32| (1..=count).map(|number| number * MS).rev().collect::<Vec<_>>();
        for (count, p50, p99) in [(1, 1, 1), (2, 1, 2), (100, 50, 99), (200, 100, 198)] {
            let all = RoundTrips::of(&times(count)).unwrap();
            assert_eq!((all.p50, all.p99, all.max), (p50 * MS, p99 * MS, count * MS), "{count}");
        }
        assert_eq!(RoundTrips::of(&[]), None);
    }

    #[test]
    fn a_tidy_time_is_never_shorter() {
        for (length, tidied) in [(1, 1), (7, 8), (20, 20), (21, 25), (81, 100), (260, 300)] {
            assert_eq!(tidy(length * MS), tidied * MS);
        }
        assert_eq!(tidy(Duration::from_micros(1200)), 2 * MS);
        assert_eq!(tidy(Duration::from_secs(9)), Duration::from_secs(10));
    }

    #[test]
    fn the_node_timeout_is_four_times_the_slowest_p99_and_no_less_than_20_ms() {
        for (slowest, value) in [(MS / 10, "20ms"), (5 * MS, "20ms"), (6 * MS, "25ms")] {
            let masters = [master("a", MS / 20, 0), master("b", slowest, 0)];
            let advice = of("node-timeout", &masters, lock());
            assert_eq!(advice.value, value);
            assert!(advice.reason.contains(" ms, of b"), "{}", advice.reason);
        }
    }

    #[test]
    fn a_node_timeout_that_is_long_needs_a_longer_connect_timeout_and_ttl() {
        let masters = [master("a", 300 * MS, 0)];
        let all = advise(&masters, lock());
        let all: Vec<(&str, &str)> =
            all.iter().map(|advice| (advice.option, &*advice.value)).collect();
        assert_eq!(
            all,
            [
                ("node-timeout", "1s 500ms"),
                ("connect-timeout", "1s 500ms"),
                ("ttl", "20s"),
                ("drift-ppm", "10000")
            ]
        );
    }

    #[test]
    fn the_ttl_is_that_of_the_options_if_ten_node_timeouts_and_the_drift_fit() {
        let masters = [master("a", MS, 0)];
        assert_eq!(of("ttl", &masters, lock()).value, "10s");
        for (asked, value) in [(100, "250ms"), (250, "250ms"), (400, "400ms")] {
            let lock = Lock { ttl: asked * MS, ..lock() };
            assert_eq!(of("ttl", &masters, lock).value, value);
        }
    }

    #[test]
    fn the_drift_stays_unless_a_clock_is_surely_beyond_it() {
        for (ppm, is_error) in [(0, false), (-9_000, false), (10_100, false), (12_000, true)] {
            // The errors of two readings, 10 s apart, are 200 ppm.
            let masters = [master("a", MS, 0), master("b", 2 * MS, ppm)];
            let advice = of("drift-ppm", &masters, lock());
            assert_eq!((&*advice.value, advice.is_error), ("10000", is_error), "{ppm}");
        }
        let back = of("drift-ppm", &[master("a", MS, -3_000_000)], lock());
        assert!(back.is_error && back.reason.contains("-3000000 ± "), "{}", back.reason);
    }

    #[test]
    fn a_master_that_never_answered_has_no_figures_and_gives_no_advice() {
        let mut samples = Samples::new(LENGTH);
        samples.failed("refused");
        let dead = samples.summary("a".to_owned());
        assert_eq!(dead.to_string(), "no answer; errors: 1, the last: refused");
        assert_eq!(advise(std::slice::from_ref(&dead), lock()), []);
        // The others still count.
        assert_eq!(of("node-timeout", &[dead, master("b", MS, 0)], lock()).value, "20ms");
    }
}
