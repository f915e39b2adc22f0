//! The bars of the throughput plot.

use serde::Serialize;

use super::plot;
use crate::recommend::{Assessment, BASELINE};
use crate::results::{Contest, Outcome};

/// One network latency.
#[derive(Debug, Serialize)]
pub(super) struct Panel {
    network_ms: u32,
    /// The applications per second of the baseline.
    baseline: Option<String>,
    width: f64,
    height: f64,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
    /// The bars in words.
    description: String,
}

#[derive(Debug, Serialize)]
struct Tick {
    x: f64,
    label: String,
    /// Whether this is the line of the baseline.
    is_baseline: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    y: f64,
    is_wrong: bool,
    bar: Option<Bar>,
    /// The ratio, or why there is none.
    label: String,
}

#[derive(Debug, Serialize)]
struct Bar {
    x: f64,
    width: f64,
}

/// The panels, on one scale, so that their bars can be compared.
pub(super) fn panels(contest: &Contest, assessments: &[Assessment]) -> Vec<Panel> {
    let ratios = assessments.iter().flat_map(|it| it.throughput.iter().map(|(_, ratio)| *ratio));
    let scale = Scale { largest: ratios.fold(1.0, f64::max) };
    plot::latencies(contest)
        .into_iter()
        .map(|network_ms| panel(contest, assessments, network_ms, &scale))
        .collect()
}

fn panel(contest: &Contest, assessments: &[Assessment], network_ms: u32, scale: &Scale) -> Panel {
    let rows: Vec<_> = assessments
        .iter()
        .enumerate()
        .map(|(index, it)| {
            let found = it.throughput.iter().find(|(latency, _)| *latency == network_ms);
            let ratio = found.map(|(_, ratio)| *ratio);
            Row {
                strategy: it.info.name.clone(),
                y: plot::middle(index),
                is_wrong: plot::is_wrong(it),
                bar: ratio.map(|ratio| Bar {
                    x: plot::LEFT,
                    width: plot::round(scale.x(ratio) - plot::LEFT),
                }),
                label: ratio
                    .map_or_else(|| absence(contest, it, network_ms), |it| format!("{it:.2}")),
            }
        })
        .collect();
    let description = rows
        .iter()
        .map(|row| {
            let note = if row.is_wrong { " (wrong results)" } else { "" };
            format!("{}{note}: {}", row.strategy, row.label)
        })
        .collect::<Vec<_>>()
        .join("; ");
    Panel {
        network_ms,
        baseline: baseline(contest, network_ms),
        width: plot::WIDTH,
        height: plot::height(rows.len()),
        ticks: scale.ticks(),
        rows,
        description,
    }
}

/// The scale begins at 0, since the length of a bar is its value.
struct Scale {
    largest: f64,
}

impl Scale {
    fn x(&self, ratio: f64) -> f64 {
        plot::LEFT + (plot::RIGHT - plot::LEFT) * ratio / self.largest
    }

    fn ticks(&self) -> Vec<Tick> {
        let step = if self.largest > 8.0 {
            5.0
        } else if self.largest > 2.5 {
            1.0
        } else {
            0.5
        };
        let steps = (0..=1000_u32).map(|index| f64::from(index) * step);
        let mut values: Vec<_> = steps.take_while(|it| *it <= self.largest).collect();
        if !values.contains(&1.0) {
            values.push(1.0);
        }
        let tick = |value: f64| Tick {
            x: plot::round(self.x(value)),
            label: value.to_string(),
            is_baseline: value == 1.0,
        };
        values.into_iter().map(tick).collect()
    }
}

fn absence(contest: &Contest, assessment: &Assessment, network_ms: u32) -> String {
    if plot::runs(contest, &assessment.info.name, network_ms).next().is_some() {
        format!("no {BASELINE} to compare with")
    } else {
        plot::absence(assessment).to_owned()
    }
}

fn baseline(contest: &Contest, network_ms: u32) -> Option<String> {
    let per_second = plot::runs(contest, BASELINE, network_ms).filter_map(|run| {
        if let Outcome::Measured(figures) = &run.outcome { Some(figures.per_second) } else { None }
    });
    crate::recommend::median(per_second.collect()).map(|it| format!("{it:.0}"))
}
