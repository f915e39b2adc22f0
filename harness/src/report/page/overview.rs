//! The first table: every run, with every property as expected and as observed.

use serde::Serialize;

use super::text::cut;
use crate::report::human::observed;
use crate::report::{Ended, Entry};
use redquorum_checker::Observed;
use redquorum_scenario::{Property, Wanted};

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
pub(super) fn title(property: Property) -> String {
    property.name().replace('-', " ")
}

/// The meaning of a violation of a property.
pub(super) const fn meaning(property: Property) -> &'static str {
    match property {
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
        (Ended::Checked(_), false) => ("wrong", "≠"),
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
        cells: Property::ALL.into_iter().map(|property| cell(entry, property)).collect(),
        again: entry.again.clone(),
        seed: entry.seed,
        differences: match entry.is_good() {
            true => Vec::new(),
            false => entry.differences().iter().take(20).map(|text| cut(text)).collect(),
        },
    }
}

fn cell(entry: &Entry, property: Property) -> Cell {
    let seen = match &entry.ended {
        Ended::Checked(verdict) => verdict.observed.get(&property).copied(),
        _ => None,
    };
    let must = match entry.expect.of(property) {
        Wanted::Safe => "must hold",
        Wanted::Violated => "must break",
    };
    let word = match seen {
        Some(Observed::Safe) => "holds",
        Some(Observed::NotUsed) if must == "must hold" => {
            return Cell { class: "none", symbol: "–", word: "not used", expected: "" };
        }
        Some(Observed::NotUsed) => "not used",
        Some(Observed::Violated) => "breaks",
        Some(Observed::Inconclusive) => {
            return Cell { class: "open", symbol: "?", word: "unclear", expected: must };
        }
        None => return Cell { class: "none", symbol: "–", word: "not checked", expected: must },
    };
    match (must, word) {
        ("must hold", "holds") => Cell { class: word, symbol: "✓", word, expected: "" },
        ("must break", "breaks") => Cell { class: word, symbol: "✗", word, expected: "" },
        _ => Cell { class: "wrong", symbol: "‼", word, expected: must },
    }
}
