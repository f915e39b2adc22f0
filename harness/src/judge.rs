//! The judge: reads a history, and says what of the lock's promise held.
//!
//! It takes nothing but the [`History`], so that a recorded run can be judged again, elsewhere,
//! later. Nothing here knows how a run came about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::history::{History, Ns, Window};
use crate::scenario::{Cause, Layer};

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

/// What was seen of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// Nothing bad.
    Safe,
    /// Something bad, for certain.
    Violated,
    /// Something that may have been bad: the record is not exact enough to tell.
    Inconclusive,
}

/// How a run compares with what was expected.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It does.
    AsExpected,
    /// It was not run, and says why.
    Skipped,
    /// It cannot be told.
    Inconclusive,
    /// A violation that was expected did not show, or what had to happen for the run to mean
    /// anything did not: a fault that never struck, a client that was never granted.
    NotSeen,
    /// A violation that was not expected, or one with another cause.
    Differs,
}

/// Something bad, told in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Of which layer.
    pub layer: Layer,
    /// [`Seen::Violated`] or [`Seen::Inconclusive`].
    pub seen: Seen,
    /// What happened, a few short lines: who believed what from when to when, who held it, what
    /// let the rival in. Times in milliseconds since the run began.
    pub story: Vec<String>,
    /// Why it was possible.
    pub causes: Vec<Cause>,
    /// When it began.
    pub from: Ns,
    /// When it ended, if it has a length.
    pub to: Ns,
}

/// What was measured besides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// How many acquires returned a lease (the witnesses' at the end not counted).
    pub grants: usize,
    /// For how long leases were believed and certainly not true, all together.
    pub hollow_ns: Ns,
    /// The margin of every grant whose keys are understood, in their order: m + q − N.
    pub margins: Vec<i64>,
    /// The median time of a granted acquire.
    pub acquire_ns: Option<Ns>,
    /// The median time from a release (or loss) to the next grant of the same resource to another
    /// client that was already waiting.
    pub hand_over_ns: Option<Ns>,
}

/// What the judge says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// All in all.
    pub outcome: Outcome,
    /// Every layer.
    pub observed: BTreeMap<Layer, Seen>,
    /// Why not as expected, a line each; empty if it is.
    pub differences: Vec<String>,
    /// What was bad, expected or not, in the order of time.
    pub findings: Vec<Finding>,
    /// The causes of all violations, each once, sorted.
    pub because: Vec<Cause>,
    /// What was measured.
    pub measures: Measures,
}

/// Judges a run.
pub fn judge(history: &History) -> Verdict {
    let history = Paces::of(history).in_run_time(history);
    let case = Case::of(&history);
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

    let mut observed: BTreeMap<Layer, Seen> =
        Layer::ALL.iter().map(|layer| (*layer, Seen::Safe)).collect();
    let mut because = Vec::new();
    for finding in &findings {
        let worst = match (observed.get(&finding.layer), finding.seen) {
            (Some(Seen::Violated), _) => Seen::Violated,
            (_, seen) => seen,
        };
        observed.insert(finding.layer, worst);
        if finding.seen == Seen::Violated {
            because.extend(&finding.causes);
        }
    }
    because.sort_unstable();
    because.dedup();
    let (outcome, differences) = outcome::of(&case, &observed, &because);
    let measures = measures::of(&case);
    Verdict { outcome, observed, differences, findings, because, measures }
}
