//! The bars of the throughput plot and the marks of the latency plot: one panel for each network
//! latency, one row for each strategy.
//!
//! Panels are as wide as a phone, so that their text is readable without zooming. All panels of a
//! plot have one scale, so that they can be compared.

use serde::Serialize;

use super::format::time;
use crate::recommend::{Assessment, BASELINE, Verdict, median};
use crate::results::{Contest, Figures, Latency, Workload};

const WIDTH: f64 = 380.0;
/// Where the scale begins: to the right of the names of the strategies.
const LEFT: f64 = 128.0;
/// Where the scale of the bars ends. Values are printed to the right of their bar.
const RIGHT: f64 = 318.0;
const ROW: f64 = 26.0;
/// The space above the first row, for the labels of the axis.
const TOP: f64 = 26.0;

#[derive(Debug, Serialize)]
pub(super) struct Panel {
    network_ms: u32,
    baseline: Option<String>,
    width: f64,
    height: f64,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
    description: String,
}

#[derive(Debug, Serialize)]
struct Tick {
    x: f64,
    /// Empty between labels.
    label: String,
    is_baseline: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    y: f64,
    is_wrong: bool,
    bar: Option<Bar>,
    marks: Option<Marks>,
    /// The value, or why there is none.
    label: String,
}

#[derive(Debug, Serialize)]
struct Bar {
    x: f64,
    width: f64,
}

#[derive(Debug, Serialize)]
struct Marks {
    x50: f64,
    x95: f64,
    x99: f64,
    p50: String,
    p95: String,
    p99: String,
}

impl Row {
    fn new(index: usize, assessment: &Assessment) -> Self {
        let is_wrong =
            |(_, it): &(_, crate::recommend::RunSummary)| matches!(it.verdict(), Verdict::Wrong(_));
        Self {
            strategy: assessment.info.name.clone(),
            y: TOP + ROW * (index as f64 + 0.5),
            is_wrong: assessment.workloads.iter().any(is_wrong),
            bar: None,
            marks: None,
            // Why a strategy has no figures in a panel.
            label: match assessment.workload(Workload::Throughput) {
                Verdict::NotOffered(_) => "not offered",
                Verdict::Failed(_) => "not completed",
                Verdict::Correct | Verdict::Wrong(_) | Verdict::NotRun => "not run",
            }
            .to_owned(),
        }
    }
}

impl Panel {
    fn new(
        network_ms: u32,
        ticks: Vec<Tick>,
        rows: Vec<Row>,
        describe: impl Fn(&Row) -> String,
    ) -> Self {
        Self {
            network_ms,
            baseline: None,
            width: WIDTH,
            height: TOP + ROW * rows.len() as f64 + 6.0,
            ticks,
            description: rows.iter().map(describe).collect::<Vec<_>>().join("; "),
            rows,
        }
    }
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

fn of_strategy<'a>(
    contest: &'a Contest,
    strategy: &'a str,
    network_ms: u32,
) -> impl Iterator<Item = &'a Figures> {
    measured(contest)
        .filter(move |(name, ms, _)| (*name, *ms) == (strategy, network_ms))
        .map(|(_, _, figures)| figures)
}

fn latencies(contest: &Contest) -> Vec<u32> {
    let mut latencies: Vec<_> = measured(contest).map(|(_, ms, _)| ms).collect();
    latencies.sort_unstable();
    latencies.dedup();
    latencies
}

pub(super) fn throughput(contest: &Contest, assessments: &[Assessment]) -> Vec<Panel> {
    let ratios = assessments.iter().flat_map(|it| it.throughput.iter().map(|(_, ratio)| *ratio));
    let largest = ratios.fold(1.0, f64::max);
    // The scale begins at 0, since the length of a bar is its value.
    let x = |ratio: f64| LEFT + (RIGHT - LEFT) * ratio / largest;
    let bar = |(index, it): (usize, &Assessment), network_ms: u32| {
        let mut row = Row::new(index, it);
        let found = it.throughput.iter().find(|(latency, _)| *latency == network_ms);
        if let Some((_, ratio)) = found {
            row.bar = Some(Bar { x: LEFT, width: round(x(*ratio) - LEFT) });
            row.label = format!("{ratio:.2}");
        } else if of_strategy(contest, &it.info.name, network_ms).next().is_some() {
            row.label = format!("no {BASELINE} to compare with");
        }
        row
    };
    let describe = |row: &Row| {
        let note = if row.is_wrong { " (wrong results)" } else { "" };
        format!("{}{note}: {}", row.strategy, row.label)
    };
    let panel = |network_ms: u32| {
        let rows = assessments.iter().enumerate().map(|row| bar(row, network_ms)).collect();
        let per_second = of_strategy(contest, BASELINE, network_ms).map(|it| it.per_second);
        Panel {
            baseline: median(per_second.collect()).map(|it| format!("{it:.0}")),
            ..Panel::new(network_ms, ratio_ticks(largest, x), rows, describe)
        }
    };
    latencies(contest).into_iter().map(panel).collect()
}

fn ratio_ticks(largest: f64, x: impl Fn(f64) -> f64) -> Vec<Tick> {
    let step = if largest > 8.0 {
        5.0
    } else if largest > 2.5 {
        1.0
    } else {
        0.5
    };
    let steps = (0..=1000_u32).map(|index| f64::from(index) * step);
    let mut values: Vec<_> = steps.take_while(|it| *it <= largest).collect();
    if !values.contains(&1.0) {
        values.push(1.0);
    }
    let tick = |value: f64| Tick {
        x: round(x(value)),
        label: value.to_string(),
        is_baseline: value == 1.0,
    };
    values.into_iter().map(tick).collect()
}

pub(super) fn latency(contest: &Contest, assessments: &[Assessment]) -> Vec<Panel> {
    let quantiles = |network_ms: u32| {
        let of_one = |it: &Assessment| medians(contest, &it.info.name, network_ms);
        (network_ms, assessments.iter().map(of_one).collect::<Vec<_>>())
    };
    let panels: Vec<_> = latencies(contest).into_iter().map(quantiles).collect();
    let all = panels.iter().flat_map(|(_, quantiles)| quantiles.iter().flatten().flatten());
    let Some(scale) = Scale::of(&all.copied().collect::<Vec<_>>()) else { return Vec::new() };
    let marks = |[p50, p95, p99]: Quantiles| Marks {
        x50: scale.x(p50),
        x95: scale.x(p95),
        x99: scale.x(p99),
        p50: time(p50),
        p95: time(p95),
        p99: time(p99),
    };
    let describe = |row: &Row| match &row.marks {
        Some(Marks { p50, p95, p99, .. }) => format!("{}: {p50}, {p95}, {p99}", row.strategy),
        None => format!("{}: {}", row.strategy, row.label),
    };
    let panel = |(network_ms, quantiles): (u32, Vec<Option<Quantiles>>)| {
        let rows = assessments.iter().zip(quantiles).enumerate();
        let row = |(index, (it, quantiles)): (usize, (&Assessment, Option<Quantiles>))| Row {
            marks: quantiles.map(marks),
            ..Row::new(index, it)
        };
        Panel::new(network_ms, scale.ticks(), rows.map(row).collect(), describe)
    };
    panels.into_iter().map(panel).collect()
}

type Quantiles = [f64; 3];

fn medians(contest: &Contest, strategy: &str, network_ms: u32) -> Option<Quantiles> {
    // A logarithmic scale has no place for zero.
    let of = |quantile: fn(&Latency) -> f64| {
        let figures = of_strategy(contest, strategy, network_ms);
        median(figures.map(|it| quantile(&it.latency)).collect()).filter(|it| *it > 0.0)
    };
    Some([of(|it| it.p50)?, of(|it| it.p95)?, of(|it| it.p99)?])
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

    fn ticks(&self) -> Vec<Tick> {
        let tick = |ms: &f64| Tick { x: self.x(*ms), label: self.label(*ms), is_baseline: false };
        self.ticks.iter().map(tick).collect()
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
