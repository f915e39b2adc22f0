//! The checker: reads a history and decides which properties of the lock held.
//!
//! Its only input is the [`History`], so a recorded run can be checked again later and elsewhere.
//! The checker does not depend on how a run was produced.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::history::{History, Ns, Window};
use crate::scenario::{Cause, Property};

mod case;
mod causes;
mod clocks;
mod commands;
mod exclusion;
mod faults;
mod fencing;
mod hygiene;
mod keys;
mod leases;
mod liveness;
mod maps;
mod measures;
mod outcome;
mod overtaken;
mod pace;
mod progress;
mod register;
mod requests;
mod stamps;
#[cfg(test)]
mod tests;
mod time;
pub mod timeline;
mod tokens;
mod validity;
mod votes;
mod world;

use case::Case;
pub(crate) use outcome::DISTRUSTED;
use pace::Paces;

/// The result of the check of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Observed {
    /// No violation.
    Safe,
    /// A certain violation.
    Violated,
    /// A possible violation: the record is not exact enough to decide.
    Inconclusive,
}

/// How a run compares with the expectation of its scenario.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The run matches the expectation.
    AsExpected,
    /// The scenario was not run, and the result says why.
    Skipped,
    /// The record is not exact enough to decide.
    Inconclusive,
    /// An expected violation did not occur, or an event that gives the run its meaning did not: a
    /// fault never struck, or a client was never granted.
    NotSeen,
    /// An unexpected violation occurred, or a violation with another cause.
    Differs,
}

/// A violation or a possible violation, with its report text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    /// The property.
    pub layer: Property,
    /// [`Observed::Violated`] or [`Observed::Inconclusive`].
    pub seen: Observed,
    /// The report text, a few short lines: which client believed that it held the resource from
    /// when to when, which masters granted it, and how the rival got in. Times are in milliseconds
    /// since the run began.
    pub story: Vec<String>,
    /// Why the violation was possible.
    pub causes: Vec<Cause>,
    /// When the violation began.
    pub from: Ns,
    /// When the violation ended, if it has a length.
    pub to: Ns,
}

/// Measurements, apart from the judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// How many acquires returned a lease. The final acquires of phase `witness` do not count.
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

/// Checks a run.
pub fn judge(history: &History) -> Verdict {
    let paces = Paces::of(history);
    let history = paces.in_run_time(history);
    let case = Case::of(&history, paces);
    let clashes = exclusion::check(&case);
    let mut findings = register::check(&case, &clashes);
    findings.extend(clashes.into_iter().map(|clash| clash.finding));
    findings.extend(fencing::check(&case));
    findings.extend(validity::check(&case));
    findings.extend(votes::check(&case));
    findings.extend(tokens::check(&case));
    findings.extend(progress::check(&case));
    findings.extend(liveness::check(&case));
    findings.extend(hygiene::check(&case));
    findings.sort_by_key(|finding| (finding.from, finding.layer));

    let mut observed: BTreeMap<Property, Observed> =
        Property::ALL.iter().map(|layer| (*layer, Observed::Safe)).collect();
    let mut because = Vec::new();
    for finding in &findings {
        let worst = match (observed.get(&finding.layer), finding.seen) {
            (Some(Observed::Violated), _) => Observed::Violated,
            (_, seen) => seen,
        };
        observed.insert(finding.layer, worst);
        if finding.seen == Observed::Violated {
            because.extend(&finding.causes);
        }
    }
    because.sort_unstable();
    because.dedup();
    let (outcome, differences) = outcome::of(&case, &observed, &because);
    let measures = measures::of(&case);
    Verdict { outcome, observed, differences, findings, because, measures }
}
