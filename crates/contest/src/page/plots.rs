//! The bars of the throughput plot and the marks of the latency plot: one panel for each network
//! latency, one row for each strategy.
//!
//! Panels are as wide as a phone, so that their text is readable without zooming. All panels of a
//! plot have one scale, so that they can be compared.

use minijinja::context;
use minijinja::value::Value;

use super::time;
use crate::recommend::{Assessment, BASELINE, Verdict, median};
use crate::results::{Contest, Figures, Workload};

const WIDTH: f64 = 380.0;
/// Where the scale begins: to the right of the names of the strategies.
const LEFT: f64 = 128.0;
/// Where the scale of the bars ends. Values are printed to the right of their bar.
const RIGHT: f64 = 318.0;
const ROW: f64 = 26.0;
/// The space above the first row, for the labels of the axis.
const TOP: f64 = 26.0;

/// A row of a panel: its figures as they are drawn, and their text or why there are none.
fn row(index: usize, assessment: &Assessment, drawn: Option<Value>, text: Option<String>) -> Value {
    let reason = || match assessment.workload(Workload::Throughput) {
        Verdict::NotOffered(_) => "not offered",
        Verdict::Failed(_) => "not completed",
        Verdict::Correct | Verdict::Wrong(_) | Verdict::NotRun => "not run",
    };
    let mut verdicts = assessment.workloads.iter().map(|(_, it)| it.verdict());
    context! {
        strategy => assessment.info.name.clone(),
        y => TOP + ROW * (index as f64 + 0.5),
        is_wrong => verdicts.any(|it| matches!(it, Verdict::Wrong(_))),
        drawn,
        label => text.unwrap_or_else(|| reason().to_owned()),
    }
}

fn panel(network_ms: u32, baseline: Option<f64>, ticks: Vec<Value>, rows: Vec<Value>) -> Value {
    let height = TOP + ROW * rows.len() as f64 + 6.0;
    let baseline = baseline.map(|it| format!("{it:.0}"));
    context! { network_ms, baseline, width => WIDTH, height, ticks, rows }
}

/// A line across the rows. The label is empty between labels.
fn tick(x: f64, label: String, is_baseline: bool) -> Value {
    context! { x => round(x), label, is_baseline }
}

fn round(coordinate: f64) -> f64 {
    (coordinate * 10.0).round() / 10.0
}

/// The throughput runs with figures: strategy, network latency, figures.
fn measured(contest: &Contest) -> impl Iterator<Item = (&str, u32, &Figures)> {
    contest.runs.iter().filter_map(|run| {
        let figures = run.outcome.figures().filter(|_| run.is_of(Workload::Throughput))?;
        Some((run.strategy.as_str(), run.network_ms, figures))
    })
}

/// A figure of the runs of a strategy under a network latency.
fn figures(contest: &Contest, of: (&str, u32), figure: fn(&Figures) -> f64) -> Vec<f64> {
    let runs = measured(contest).filter(|(name, ms, _)| (*name, *ms) == of);
    runs.map(|(_, _, figures)| figure(figures)).collect()
}

fn latencies(contest: &Contest) -> Vec<u32> {
    let mut latencies: Vec<_> = measured(contest).map(|(_, ms, _)| ms).collect();
    latencies.sort_unstable();
    latencies.dedup();
    latencies
}

pub(super) fn throughput(contest: &Contest, assessments: &[Assessment]) -> Vec<Value> {
    let ratios = assessments.iter().flat_map(|it| it.throughput.iter().map(|(_, ratio)| *ratio));
    let largest = ratios.fold(1.0, f64::max);
    // The scale begins at 0, since the length of a bar is its value.
    let x = |ratio: f64| LEFT + (RIGHT - LEFT) * ratio / largest;
    let step = if largest > 8.0 {
        5.0
    } else if largest > 2.5 {
        1.0
    } else {
        0.5
    };
    let steps = (0..=1000_u32).map(|index| f64::from(index) * step);
    let mut ticks: Vec<_> = steps.take_while(|it| *it <= largest).collect();
    if !ticks.contains(&1.0) {
        ticks.push(1.0);
    }
    let bar = |network_ms: u32, (index, it): (usize, &Assessment)| {
        let ratio = it.throughput.iter().find(|(latency, _)| *latency == network_ms);
        let ratio = ratio.map(|(_, ratio)| *ratio);
        let text = ratio.map(|ratio| format!("{ratio:.2}")).or_else(|| {
            let runs = figures(contest, (&it.info.name, network_ms), |it| it.per_second);
            (!runs.is_empty()).then(|| format!("no {BASELINE} to compare with"))
        });
        let bar = ratio.map(|it| context! { x => LEFT, width => round(x(it) - LEFT) });
        row(index, it, bar, text)
    };
    let drawn = |network_ms: u32| {
        let rows = assessments.iter().enumerate().map(|row| bar(network_ms, row)).collect();
        let per_second = figures(contest, (BASELINE, network_ms), |it| it.per_second);
        let ticks = ticks.iter().map(|it| tick(x(*it), it.to_string(), *it == 1.0)).collect();
        panel(network_ms, median(per_second), ticks, rows)
    };
    latencies(contest).into_iter().map(drawn).collect()
}

pub(super) fn latency(contest: &Contest, assessments: &[Assessment]) -> Vec<Value> {
    let quantiles = |network_ms: u32| {
        let of_one = |it: &Assessment| {
            // A logarithmic scale has no place for zero.
            let of = |quantile: fn(&Figures) -> f64| {
                let all = figures(contest, (&it.info.name, network_ms), quantile);
                median(all).filter(|it| *it > 0.0)
            };
            Some([of(|it| it.latency.p50)?, of(|it| it.latency.p95)?, of(|it| it.latency.p99)?])
        };
        (network_ms, assessments.iter().map(of_one).collect::<Vec<_>>())
    };
    let panels: Vec<_> = latencies(contest).into_iter().map(quantiles).collect();
    let all = panels.iter().flat_map(|(_, quantiles)| quantiles.iter().flatten().flatten());
    let Some(scale) = Scale::of(&all.copied().collect::<Vec<_>>()) else { return Vec::new() };
    let drawn = |(network_ms, quantiles): (u32, Vec<Option<[f64; 3]>>)| {
        let rows = assessments.iter().zip(quantiles).enumerate();
        let rows = rows.map(|(index, (it, quantiles))| {
            let marks = quantiles.map(|all| {
                let [x50, x95, x99] = all.map(|it| scale.x(it));
                let [p50, p95, p99] = all.map(time);
                context! { x50, x95, x99, p50, p95, p99 }
            });
            let text = quantiles.map(|all| all.map(time).join(", "));
            row(index, it, marks, text)
        });
        panel(network_ms, None, scale.ticks(), rows.collect())
    };
    panels.into_iter().map(drawn).collect()
}

/// A logarithmic scale that begins and ends at 1, 2 or 5 times a power of ten.
struct Scale {
    ticks: Vec<f64>,
}

/// More labels than this overlap.
const LABELS: usize = 6;

impl Scale {
    fn of(values: &[f64]) -> Option<Self> {
        let smallest = values.iter().copied().reduce(f64::min)?;
        let largest = values.iter().copied().reduce(f64::max)?;
        let steps: Vec<_> = (-6..=9_i32)
            .flat_map(|exponent| [1.0, 2.0, 5.0].map(|it| it * 10_f64.powi(exponent)))
            .collect();
        let first = steps.iter().rposition(|it| *it <= smallest).unwrap_or(0);
        let last = steps.iter().position(|it| *it >= largest).unwrap_or(steps.len() - 1);
        Some(Self { ticks: steps[first..=last.max(first + 1)].to_vec() })
    }

    fn x(&self, ms: f64) -> f64 {
        let first = self.ticks[0].ln();
        let last = self.ticks[self.ticks.len() - 1].ln();
        let share = ((ms.ln() - first) / (last - first)).clamp(0.0, 1.0);
        // There are no values to the right of the marks: the scale takes their place.
        round(LEFT + 12.0 + (WIDTH - 36.0 - LEFT) * share)
    }

    fn ticks(&self) -> Vec<Value> {
        self.ticks.iter().map(|ms| tick(self.x(*ms), self.label(*ms), false)).collect()
    }

    /// Empty between powers of ten where all labels together would overlap.
    fn label(&self, ms: f64) -> String {
        if self.ticks.len() > LABELS && ms.log10().fract().abs() > 1e-9 {
            String::new()
        } else if ms >= 1000.0 {
            format!("{} s", ms / 1000.0)
        } else {
            format!("{ms} ms")
        }
    }
}
