//! Assessments of the strategies, and recommendations, computed from the figures of a contest.
//!
//! [`recommend`] first assesses each strategy by its runs, then answers each [`Situation`]. A
//! situation whose figures are missing is answered by the missing runs, not by a guess.

mod situation;

#[cfg(feature = "databases")]
pub(crate) use situation::group;
pub use situation::{Answer, Decision, MissingRun, Situation};

use crate::results::{Contest, Fault, Figures, Needs, Outcome, Run, StrategyInfo, Workload};

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

/// The strategy whose throughput is 1 in all comparisons.
pub const BASELINE: &str = "atomic-update";

/// What the runs of a contest say about one strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    /// The strategy.
    pub info: StrategyInfo,
    /// The runs without a fault, by workload.
    pub workloads: Vec<(Workload, RunSummary)>,
    /// The runs under each fault, all workloads together.
    pub faults: Vec<(Fault, RunSummary)>,
    /// The throughput as a ratio to [`BASELINE`], by network latency in milliseconds: the median
    /// over the repetitions. A latency without figures is absent.
    pub throughput: Vec<(u32, f64)>,
}

impl Assessment {
    /// Assesses a strategy by its runs, and its throughput by those of [`BASELINE`].
    pub fn new(info: &StrategyInfo, runs: &[Run]) -> Self {
        let own: Vec<_> = runs.iter().filter(|run| run.strategy == info.name).collect();
        let summarize = |keep: &dyn Fn(&Run) -> bool| {
            RunSummary::of(own.iter().copied().filter(|run| keep(run)))
        };
        Self {
            info: info.clone(),
            workloads: Workload::ALL.map(|it| (it, summarize(&|run| run.is_of(it)))).into(),
            faults: Fault::ALL.map(|it| (it, summarize(&|run| run.fault == Some(it)))).into(),
            throughput: throughput(&own, runs),
        }
    }

    /// What the runs of a workload show while nothing fails.
    pub fn workload(&self, workload: Workload) -> Verdict {
        find(&self.workloads, workload).map_or(Verdict::NotRun, RunSummary::verdict)
    }

    /// What the runs under a fault show.
    pub fn fault(&self, fault: Fault) -> Verdict {
        find(&self.faults, fault).map_or(Verdict::NotRun, RunSummary::verdict)
    }

    /// The ratio of the throughput to [`BASELINE`] without added latency.
    pub fn ratio(&self) -> Option<f64> {
        self.throughput.iter().find(|(network_ms, _)| *network_ms == 0).map(|(_, ratio)| *ratio)
    }

    fn summaries(&self) -> impl Iterator<Item = &RunSummary> {
        let workloads = self.workloads.iter().map(|(_, summary)| summary);
        workloads.chain(self.faults.iter().map(|(_, summary)| summary))
    }

    /// How many runs have figures, and how many of them are wrong.
    fn measured(&self) -> (usize, usize) {
        let counts = self.summaries().map(|it| (it.measured, it.wrong));
        counts.fold((0, 0), |(all, wrong), it| (all + it.0, wrong + it.1))
    }
}

/// The faults that can happen to a strategy with these needs.
fn expected_faults(needs: Needs) -> &'static [Fault] {
    use Fault::*;
    match needs {
        Needs::Nothing | Needs::Worker => &[PausePastTtl, CommitReplyLost],
        Needs::OneRedis => &[PausePastTtl, RedisRestart, ReplicaPromoted, CommitReplyLost],
        Needs::SeveralMasters => &[PausePastTtl, MasterKilled, MasterHung, CommitReplyLost],
    }
}

/// The median of some numbers; the mean of the two in the middle if their count is even.
pub(crate) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.retain(|number| number.is_finite());
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    Some(if numbers.len() % 2 == 1 { upper } else { f64::midpoint(numbers[middle - 1], upper) })
}

fn find<K: PartialEq, V>(pairs: &[(K, V)], key: K) -> Option<&V> {
    pairs.iter().find(|(it, _)| *it == key).map(|(_, value)| value)
}

/// Applications per second of a throughput run without a fault.
fn per_second(run: &Run) -> Option<f64> {
    Some(run.outcome.figures().filter(|_| run.is_of(Workload::Throughput))?.per_second)
}

/// Each repetition is compared with the baseline of the same repetition: what else the machine
/// does changes over the contest, and slows both down.
fn throughput(own: &[&Run], all: &[Run]) -> Vec<(u32, f64)> {
    let mut latencies: Vec<_> = own.iter().map(|run| run.network_ms).collect();
    latencies.sort_unstable();
    latencies.dedup();
    let median_ratio = |network_ms: u32| {
        let ratios = own.iter().filter(|run| run.network_ms == network_ms).filter_map(|run| {
            let baseline = all
                .iter()
                .filter(|it| it.strategy == BASELINE && it.network_ms == network_ms)
                .filter(|it| it.repetition == run.repetition)
                .find_map(per_second)?;
            Some(per_second(run)? / baseline)
        });
        Some((network_ms, median(ratios.collect())?))
    };
    latencies.into_iter().filter_map(median_ratio).collect()
}

/// From this time on, in milliseconds, a time without any accepted application is called a stall.
///
/// Shorter times occur without a fault too, when processors are busy.
const STALL_MS: f64 = 500.0;

/// How far a result is from the correct one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Violations {
    /// The rows beyond the places.
    pub oversold: u64,
    /// The difference between the rows and the counter.
    pub lost_updates: u64,
    /// The places that are free although an applicant was not accepted.
    pub unsold: u64,
}

impl Violations {
    /// Compares the rows and the counter in the database with the correct ones.
    ///
    /// The strategy's own bookkeeping is not consulted: a wrong strategy does not notice its
    /// violations.
    pub fn of(workload: Workload, figures: &Figures) -> Self {
        // In a rush the next applicant takes the place of an application that fails. In a timed
        // run no other applicant applies for it, so that a failed application is no free place.
        let serious = match workload {
            Workload::Rush | Workload::LastPlace => figures.applications,
            Workload::Throughput | Workload::Spread => {
                figures.applications.saturating_sub(figures.errors)
            }
        };
        Self {
            oversold: figures.oversold.max(figures.rows.saturating_sub(figures.places)),
            lost_updates: figures.lost_updates.max(figures.rows.abs_diff(figures.counter)),
            unsold: serious.min(figures.places).saturating_sub(figures.rows),
        }
    }

    /// Whether the result is the correct one.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether data is wrong. A free place is not: its applicant can apply again.
    pub fn corrupts(self) -> bool {
        self.oversold > 0 || self.lost_updates > 0
    }

    /// The larger of each violation.
    pub fn worst(self, other: Self) -> Self {
        Self {
            oversold: self.oversold.max(other.oversold),
            lost_updates: self.lost_updates.max(other.lost_updates),
            unsold: self.unsold.max(other.unsold),
        }
    }

    /// The violations in words, the worst first, for example `oversold by 3`, `41 lost updates`.
    pub fn parts(self) -> Vec<String> {
        let Self { oversold, lost_updates, unsold } = self;
        let plural = |number| if number == 1 { "" } else { "s" };
        let parts = [
            (oversold, format!("oversold by {oversold}")),
            (lost_updates, format!("{lost_updates} lost update{}", plural(lost_updates))),
            (unsold, format!("{unsold} place{} left free", plural(unsold))),
        ];
        parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect()
    }

    /// The violations in words, for example `oversold by 3 and 41 lost updates`.
    pub fn describe(self) -> String {
        self.parts().join(" and ")
    }
}

/// What a set of runs shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All runs ended with the correct rows and counter.
    Correct,
    /// At least one run did not. These are the largest violations.
    Wrong(Violations),
    /// The database or the strategy cannot show it, for this reason.
    NotOffered(String),
    /// No run was wrong, but at least one ended early with this error.
    Failed(String),
    /// There is no such run.
    NotRun,
}

/// The worst of a set of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    /// The runs with figures.
    pub measured: usize,
    /// The runs with figures whose result is not correct.
    pub wrong: usize,
    /// The largest violations.
    pub violations: Violations,
    /// The longest time without an accepted application, in milliseconds.
    pub longest_stall_ms: f64,
    /// The error of the first run that failed.
    pub failed: Option<String>,
    /// The reason of the first run that is not offered.
    pub not_offered: Option<String>,
}

impl RunSummary {
    /// Summarizes runs of one strategy.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut summary = Self::default();
        for run in runs {
            match &run.outcome {
                Outcome::Measured(figures) => {
                    let violations = Violations::of(run.workload, figures);
                    summary.measured += 1;
                    summary.wrong += usize::from(!violations.is_none());
                    summary.violations = summary.violations.worst(violations);
                    summary.longest_stall_ms = summary.longest_stall_ms.max(figures.stall_ms);
                }
                Outcome::NotOffered { reason } => {
                    summary.not_offered.get_or_insert_with(|| reason.clone());
                }
                Outcome::Failed { error } => {
                    summary.failed.get_or_insert_with(|| error.clone());
                }
            }
        }
        summary
    }

    /// What the runs show. One wrong run outweighs all others.
    pub fn verdict(&self) -> Verdict {
        if self.wrong > 0 {
            return Verdict::Wrong(self.violations);
        }
        match (&self.failed, &self.not_offered) {
            (Some(error), _) => Verdict::Failed(error.clone()),
            (None, _) if self.measured > 0 => Verdict::Correct,
            (None, Some(reason)) => Verdict::NotOffered(reason.clone()),
            (None, None) => Verdict::NotRun,
        }
    }

    /// The longest stall in milliseconds, if it is long enough to be called one.
    pub fn stall_ms(&self) -> Option<f64> {
        (self.longest_stall_ms >= STALL_MS).then_some(self.longest_stall_ms)
    }
}
