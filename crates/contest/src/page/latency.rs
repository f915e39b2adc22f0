//! The marks of the latency plot.

use serde::Serialize;

use super::format::time;
use super::plot;
use crate::recommend::{Assessment, median};
use crate::results::{Contest, Latency, Outcome};

/// One network latency.
#[derive(Debug, Serialize)]
pub(super) struct Panel {
    network_ms: u32,
    width: f64,
    height: f64,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
    /// The marks in words.
    description: String,
}

#[derive(Debug, Serialize)]
struct Tick {
    x: f64,
    /// Empty between labels.
    label: String,
}

#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    y: f64,
    is_wrong: bool,
    marks: Option<Marks>,
    /// Why there are no marks.
    absence: &'static str,
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

/// The panels, on one scale, so that their marks can be compared.
pub(super) fn panels(contest: &Contest, assessments: &[Assessment]) -> Vec<Panel> {
    let latencies = plot::latencies(contest);
    let quantiles: Vec<Vec<_>> = latencies
        .iter()
        .map(|ms| assessments.iter().map(|it| medians(contest, &it.info.name, *ms)).collect())
        .collect();
    let Some(scale) = Scale::of(quantiles.iter().flatten().flatten()) else { return Vec::new() };
    latencies
        .into_iter()
        .zip(quantiles)
        .map(|(network_ms, quantiles)| panel(assessments, network_ms, &quantiles, &scale))
        .collect()
}

fn panel(
    assessments: &[Assessment],
    network_ms: u32,
    quantiles: &[Option<Quantiles>],
    scale: &Scale,
) -> Panel {
    let rows = assessments.iter().zip(quantiles).enumerate().map(|(index, (it, quantiles))| Row {
        strategy: it.info.name.clone(),
        y: plot::middle(index),
        is_wrong: plot::is_wrong(it),
        marks: quantiles.map(|[p50, p95, p99]| Marks {
            x50: scale.x(p50),
            x95: scale.x(p95),
            x99: scale.x(p99),
            p50: time(p50),
            p95: time(p95),
            p99: time(p99),
        }),
        absence: plot::absence(it),
    });
    let rows: Vec<_> = rows.collect();
    let describe = |row: &Row| match &row.marks {
        Some(Marks { p50, p95, p99, .. }) => {
            format!("{}: {p50}, {p95}, {p99}", row.strategy)
        }
        None => format!("{}: {}", row.strategy, row.absence),
    };
    Panel {
        network_ms,
        width: plot::WIDTH,
        height: plot::height(rows.len()),
        ticks: scale.ticks(),
        description: rows.iter().map(describe).collect::<Vec<_>>().join("; "),
        rows,
    }
}

/// p50, p95 and p99 in milliseconds.
type Quantiles = [f64; 3];

/// The median of each quantile over the repetitions.
fn medians(contest: &Contest, strategy: &str, network_ms: u32) -> Option<Quantiles> {
    let latencies: Vec<Latency> = plot::runs(contest, strategy, network_ms)
        .filter_map(|run| match &run.outcome {
            Outcome::Measured(figures) => Some(figures.latency),
            _ => None,
        })
        .collect();
    // A logarithmic scale has no place for zero.
    let of = |quantile: fn(&Latency) -> f64| {
        median(latencies.iter().map(quantile).collect()).filter(|it| *it > 0.0)
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
    fn of<'a>(quantiles: impl IntoIterator<Item = &'a Quantiles>) -> Option<Self> {
        let values: Vec<_> = quantiles.into_iter().flatten().copied().collect();
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
        plot::round(plot::LEFT + 12.0 + (plot::WIDTH - 36.0 - plot::LEFT) * share)
    }

    fn ticks(&self) -> Vec<Tick> {
        let tick = |ms: &f64| Tick { x: self.x(*ms), label: self.label(*ms) };
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
