//! What the runs of a contest say about one strategy.

use super::summary::{RunSummary, Verdict};
use crate::results::{Fault, Needs, Outcome, Run, StrategyInfo, Workload};

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
    #[must_use]
    pub fn new(info: &StrategyInfo, runs: &[Run]) -> Self {
        let own: Vec<_> = runs.iter().filter(|run| run.strategy == info.name).collect();
        let summarize = |keep: &dyn Fn(&Run) -> bool| {
            RunSummary::of(own.iter().copied().filter(|run| keep(run)))
        };
        Self {
            info: info.clone(),
            workloads: Workload::ALL
                .map(|it| (it, summarize(&|run| run.fault.is_none() && run.workload == it)))
                .into(),
            faults: Fault::ALL.map(|it| (it, summarize(&|run| run.fault == Some(it)))).into(),
            throughput: throughput(&own, runs),
        }
    }

    /// What the runs of a workload show while nothing fails.
    #[must_use]
    pub fn workload(&self, workload: Workload) -> Verdict {
        find(&self.workloads, workload).map_or(Verdict::NotRun, RunSummary::verdict)
    }

    /// What the runs under a fault show.
    #[must_use]
    pub fn fault(&self, fault: Fault) -> Verdict {
        find(&self.faults, fault).map_or(Verdict::NotRun, RunSummary::verdict)
    }

    /// The ratio of the throughput to [`BASELINE`] without added latency.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.throughput.iter().find(|(network_ms, _)| *network_ms == 0).map(|(_, ratio)| *ratio)
    }

    /// The runs with figures.
    #[must_use]
    pub fn measured(&self) -> usize {
        let workloads = self.workloads.iter().map(|(_, summary)| summary.measured);
        workloads.chain(self.faults.iter().map(|(_, summary)| summary.measured)).sum()
    }
}

/// The faults that can happen to a strategy with these needs.
#[must_use]
pub fn expected_faults(needs: Needs) -> &'static [Fault] {
    use Fault::*;
    match needs {
        Needs::Nothing | Needs::Worker => &[PausePastTtl, CommitReplyLost],
        Needs::OneRedis => &[PausePastTtl, RedisRestart, ReplicaPromoted, CommitReplyLost],
        Needs::SeveralMasters => &[PausePastTtl, MasterKilled, MasterHung, CommitReplyLost],
    }
}

/// The median of some numbers; the mean of the two in the middle if their count is even.
#[must_use]
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
    match &run.outcome {
        Outcome::Measured(figures)
            if run.workload == Workload::Throughput && run.fault.is_none() =>
        {
            Some(figures.per_second)
        }
        _ => None,
    }
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
