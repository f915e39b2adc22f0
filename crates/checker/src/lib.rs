//! The checker: reads a history and decides which properties of the lock held.
//!
//! Its only input is the [`History`], so a recorded run can be checked again later and elsewhere.
//! The checker does not depend on how a run was produced.

#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "fields of leases, requests and spans are what they are called")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use redquorum_scenario::history::{History, Ns};
use redquorum_scenario::{Cause, Property};

mod case;
mod clocks;
mod exclusion;
mod faults;
mod fencing;
mod hygiene;
mod keys;
mod leases;
#[cfg(any(test, feature = "notation"))]
pub mod notation;
mod outcome;
mod progress;
#[cfg(test)]
mod tests;
mod validity;
mod waits;

pub use case::{Case, Request};
use clocks::Paces;
use exclusion::Reason;
pub use exclusion::{Overlaps, believed};
pub use faults::Strike;
pub use keys::Presence;
pub use leases::Lease;
pub use outcome::{DISTRUSTED, commands_per_acquisition, reason_to_hold, times};
pub use progress::set_aside;
pub use waits::{FreeWaits, longest_wait};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

redquorum_scenario::named! {
    /// The result of the check of a property.
    pub enum Observed {
        /// No violation.
        Safe = "safe",
        /// Nothing to check: of [`Property::FencedResource`], in a run without fencing tokens. The
        /// property neither holds nor fails.
        NotUsed = "not-used",
        /// A certain violation.
        Violated = "violated",
        /// A possible violation: the record is not exact enough to decide.
        Inconclusive = "inconclusive",
    }
}

redquorum_scenario::named! {
    /// How a run compares with the expectation of its scenario.
    pub enum Outcome {
        /// The run matches the expectation.
        AsExpected = "as-expected",
        /// The scenario was not run, and the result says why.
        Skipped = "skipped",
        /// The record is not exact enough to decide.
        Inconclusive = "inconclusive",
        /// An expected violation did not occur, or an event that gives the run its meaning did not:
        /// a fault never struck, or a client was never granted.
        NotSeen = "not-seen",
        /// An unexpected violation occurred, or a violation with another cause.
        Differs = "differs",
    }
}

/// A violation or a possible violation, with its report text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    /// The property.
    pub property: Property,
    /// [`Observed::Violated`] or [`Observed::Inconclusive`].
    pub seen: Observed,
    /// The report text, a few short lines: which client believed that it held the resource from
    /// when to when, which masters granted it, and how the rival got in. Times are in milliseconds
    /// since the run began.
    pub explanation: Vec<String>,
    /// Why the violation was possible.
    pub causes: Vec<Cause>,
    /// When the violation began.
    pub from: Ns,
    /// When the violation ended, if it has a length.
    pub to: Ns,
}

impl Violation {
    fn is_violation_of(&self, property: Property) -> bool {
        self.property == property && self.seen == Observed::Violated
    }

    /// A certain violation, for these causes.
    fn certain(
        property: Property,
        causes: Vec<Cause>,
        explanation: Vec<String>,
        from: Ns,
        to: Ns,
    ) -> Self {
        let causes = maps::sorted(causes);
        Self { property, seen: Observed::Violated, explanation, causes, from, to }
    }

    /// A certain violation, for these reasons.
    fn explained(
        property: Property,
        mut explanation: Vec<String>,
        reasons: Vec<Reason>,
        from: Ns,
        to: Ns,
    ) -> Self {
        let (causes, lines): (Vec<_>, Vec<_>) = reasons.into_iter().unzip();
        explanation.extend(lines);
        Self::certain(property, causes, explanation, from, to)
    }

    /// A violation that no fault explains.
    fn bug(property: Property, explanation: Vec<String>, from: Ns, to: Ns) -> Self {
        Self::certain(property, vec![Cause::Bug], explanation, from, to)
    }

    fn possible(property: Property, explanation: Vec<String>, from: Ns, to: Ns) -> Self {
        Self { property, seen: Observed::Inconclusive, explanation, causes: Vec::new(), from, to }
    }
}

/// Measurements, apart from the verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// How many acquires returned a lease, without those of phase `final-acquire`.
    pub grants: usize,
    /// The total time for which clients believed in leases that were certainly not true.
    pub hollow_ns: Ns,
    /// The margin (m + q − N) of every grant whose keys the checker can interpret, in the order of
    /// the grants.
    pub margins: Vec<i64>,
    /// The median time of a granted acquire.
    pub acquire_ns: Option<Ns>,
    /// The median time from a release (or loss) to the next grant of the same resource to another
    /// client that was already waiting.
    pub hand_over_ns: Option<Ns>,
}

/// The result of the checker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The overall outcome.
    pub outcome: Outcome,
    /// The result for every property.
    pub observed: BTreeMap<Property, Observed>,
    /// Why the run is not as expected, a line for each reason; empty if it is.
    pub differences: Vec<String>,
    /// The violations and possible violations, expected or not, in the order of time.
    pub findings: Vec<Violation>,
    /// The causes of all violations, each once, sorted.
    pub because: Vec<Cause>,
    /// The measurements.
    pub measures: Measures,
}

/// Prepares a history for the checkers, and for reports that draw what the checkers computed. All
/// times are run times, even where a client stamped with a clock that ran fast or slow.
pub fn prepare<T>(history: &History, then: impl FnOnce(&Case<'_>) -> T) -> T {
    let paces = Paces::of(history);
    let history = paces.in_run_time(history);
    then(&Case::of(&history, paces))
}

/// Checks a run.
pub fn check(history: &History) -> Verdict {
    prepare(history, verdict)
}

/// Runs all checks.
pub fn verdict(case: &Case<'_>) -> Verdict {
    let clashes = exclusion::check(case);
    let mut findings = fencing::check_registers(case, &clashes);
    findings.extend(clashes.into_iter().map(|clash| clash.finding));
    findings.extend(fencing::check(case));
    findings.extend(validity::check(case));
    findings.extend(progress::check(case));
    findings.extend(hygiene::check_liveness(case));
    findings.extend(hygiene::check(case));
    findings.sort_by_key(|finding| (finding.from, finding.property));

    let mut observed: BTreeMap<Property, Observed> =
        Property::ALL.iter().map(|property| (*property, Observed::Safe)).collect();
    let mut because = Vec::new();
    for finding in &findings {
        let worst = match (observed.get(&finding.property), finding.seen) {
            (Some(Observed::Violated), _) => Observed::Violated,
            (_, seen) => seen,
        };
        observed.insert(finding.property, worst);
        if finding.seen == Observed::Violated {
            because.extend(&finding.causes);
        }
    }
    let fenced = observed.get_mut(&Property::FencedResource);
    if let Some(seen) = fenced.filter(|seen| **seen == Observed::Safe && !fencing::is_used(case)) {
        *seen = Observed::NotUsed;
    }
    let because = maps::sorted(because);
    let (outcome, differences) = outcome::of(case, &observed, &findings, &because);
    let measures = outcome::measures(case);
    Verdict { outcome, observed, differences, findings, because, measures }
}

/// The arithmetic of time for the checkers. Nothing here overflows, for any history.
mod time {
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
}

/// Hash maps and sets for histories: of tokens, names and numbers. There are many of these and none
/// is hostile, so a fast hash is better than one that withstands an attack. The hash is the same in
/// every run of the program.
mod maps {
    pub(crate) use rustc_hash::{FxHashMap as Map, FxHashSet as Set};

    /// Numbers for texts, in the order in which each text first occurs.
    #[derive(Default)]
    pub struct Numbers<'a> {
        all: Map<&'a str, usize>,
        latest: Option<(&'a str, usize)>,
    }

    impl<'a> Numbers<'a> {
        /// The number of a text. A new text gets the next number.
        pub fn of(&mut self, text: &'a str) -> usize {
            // The text is usually that of the previous call: the same command goes to every master.
            if let Some((_, number)) = self.latest.filter(|(latest, _)| *latest == text) {
                return number;
            }
            let next = self.all.len();
            let number = *self.all.entry(text).or_insert(next);
            self.latest = Some((text, number));
            number
        }

        pub fn known(&self, text: &str) -> Option<usize> {
            self.all.get(text).copied()
        }

        pub fn count(&self) -> usize {
            self.all.len()
        }

        pub fn texts(&self) -> impl Iterator<Item = &'a str> {
            self.all.keys().copied()
        }
    }

    /// The values in their order, each once.
    pub(crate) fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}
