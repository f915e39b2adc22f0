//! The first table: every run, with every property as expected and as observed.

use serde::Serialize;

use super::text::cut;
use crate::checker::Observed;
use crate::report::human::observed;
use crate::report::{Ended, Entry};
use crate::scenario::{Property, Wanted};

/// A row: a run on a backend.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) good: bool,
    pub(super) class: &'static str,
    pub(super) symbol: &'static str,
    pub(super) word: String,
    pub(super) must: String,
    pub(super) observed: String,
    pub(super) cells: Vec<Cell>,
    pub(super) again: String,
    pub(super) seed: u64,
    pub(super) differences: Vec<String>,
}

/// A property of a run.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    class: &'static str,
    symbol: &'static str,
    word: &'static str,
    /// Set where the observed value differs.
    expected: &'static str,
}

/// The name of a property in the report.
pub(super) const fn title(layer: Property) -> &'static str {
    match layer {
        Property::MutualExclusion => "mutual exclusion",
        Property::UnfencedResource => "unfenced resource",
        Property::FencedResource => "fenced resource",
        Property::Validity => "validity",
        Property::Progress => "progress",
        Property::Liveness => "liveness",
        Property::Hygiene => "hygiene",
    }
}

/// The meaning of a violation of a property.
pub(super) const fn meaning(layer: Property) -> &'static str {
    match layer {
        Property::MutualExclusion => "Two clients never believe at the same moment that they hold.",
        Property::UnfencedResource => "No update of a register is lost without fencing tokens.",
        Property::FencedResource => "No update is lost under fencing tokens, and they grow.",
        Property::Validity => "A lease is true while it lasts, and its end is reported.",
        Property::Progress => "An acquire succeeds in time where nothing is in its way.",
        Property::Liveness => "After all faults are healed, every client can acquire.",
        Property::Hygiene => "No key is left behind, and no client deletes the key of another.",
    }
}

pub(super) fn row(id: usize, entry: &Entry) -> Row {
    let causes: Vec<&str> = entry.expect.because.iter().map(|cause| cause.name()).collect();
    let must = match (entry.expect.any_violation(), causes.is_empty()) {
        (false, _) => "must hold".to_owned(),
        (true, true) => "must break".to_owned(),
        (true, false) => format!("must break: {}", causes.join(", ")),
    };
    let time = if entry.time > 0 { format!(" ({})", entry.time + 1) } else { String::new() };
    let (class, symbol) = match (&entry.ended, entry.is_good()) {
        (Ended::Skipped(_), _) => ("none", "–"),
        (_, true) => ("holds", "✓"),
        (Ended::Judged(_), false) => ("wrong", "≠"),
        (_, false) => ("wrong", "!"),
    };
    Row {
        id,
        name: format!("{}{time}", cut(&entry.name)),
        backend: cut(&entry.backend),
        good: entry.is_good(),
        class,
        symbol,
        word: entry.word().replace('-', " "),
        must,
        observed: cut(&observed(entry)),
        cells: Property::ALL.into_iter().map(|layer| cell(entry, layer)).collect(),
        again: entry.again.clone(),
        seed: entry.seed,
        differences: match entry.is_good() {
            true => Vec::new(),
            false => entry.differences().iter().take(20).map(|text| cut(text)).collect(),
        },
    }
}

fn cell(entry: &Entry, layer: Property) -> Cell {
    let seen = match &entry.ended {
        Ended::Judged(verdict) => verdict.observed.get(&layer).copied(),
        _ => None,
    };
    match (entry.expect.of(layer), seen) {
        (Wanted::Safe, Some(Observed::Safe)) => {
            Cell { class: "holds", symbol: "✓", word: "holds", expected: "" }
        }
        (Wanted::Violated, Some(Observed::Violated)) => {
            Cell { class: "breaks", symbol: "✗", word: "breaks", expected: "" }
        }
        (Wanted::Safe, Some(Observed::Violated)) => {
            Cell { class: "wrong", symbol: "‼", word: "breaks", expected: "must hold" }
        }
        (Wanted::Violated, Some(Observed::Safe)) => {
            Cell { class: "wrong", symbol: "‼", word: "holds", expected: "must break" }
        }
        (Wanted::Safe, Some(Observed::Inconclusive)) => {
            Cell { class: "open", symbol: "?", word: "unclear", expected: "must hold" }
        }
        (Wanted::Violated, Some(Observed::Inconclusive)) => {
            Cell { class: "open", symbol: "?", word: "unclear", expected: "must break" }
        }
        (Wanted::Safe, None) => {
            Cell { class: "none", symbol: "–", word: "not judged", expected: "must hold" }
        }
        (Wanted::Violated, None) => {
            Cell { class: "none", symbol: "–", word: "not judged", expected: "must break" }
        }
    }
}
