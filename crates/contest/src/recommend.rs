//! Recommendations that are computed from the figures of a contest.
//!
//! [`recommend`] first assesses each strategy by its runs, then answers each [`Situation`]. A
//! situation whose figures are missing is answered by the missing runs, not by a guess.

mod assessment;
mod situation;

pub(crate) use assessment::median;
pub use assessment::{Assessment, BASELINE, RunSummary, Verdict, Violations};
#[cfg(feature = "databases")]
pub(crate) use situation::group;
pub use situation::{Answer, Decision, MissingRun, Situation};

use crate::results::Contest;

/// What the figures of a contest say: about each strategy, and in each situation.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The strategies, in the order of the contest.
    pub assessments: Vec<Assessment>,
    /// One decision for each situation, from the simplest tool to the most costly one.
    pub decisions: Vec<Decision>,
}

/// Computes the recommendation from the runs of a contest.
pub fn recommend(contest: &Contest) -> Recommendation {
    let assessments: Vec<_> =
        contest.strategies.iter().map(|info| Assessment::new(info, &contest.runs)).collect();
    let decisions = Situation::ALL.into_iter().map(|it| it.decide(&assessments)).collect();
    Recommendation { assessments, decisions }
}
