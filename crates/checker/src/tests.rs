//! Tests of the checker on histories written by hand: the files `tests/*.txt`, in the notation of
//! `notation.rs`.

use proptest::prelude::*;

use super::exclusion::overlaps;
use super::leases::Hold;
use super::notation::{Run, is_event, parts, read};
use crate::{check as verdict_on, commands_per_acquisition, prepare, reason_to_hold};
use redquorum_scenario::Property;
use redquorum_scenario::history::Ns;
use redquorum_scenario::history::Window;

mod garbled;

#[test]
fn histories_have_their_verdicts() {
    for (file, text) in [
        ("causes", include_str!("tests/causes.txt")),
        ("exclusion", include_str!("tests/exclusion.txt")),
        ("fencing", include_str!("tests/fencing.txt")),
        ("holds", include_str!("tests/holds.txt")),
        ("keys", include_str!("tests/keys.txt")),
        ("measures", include_str!("tests/measures.txt")),
        ("outcome", include_str!("tests/outcome.txt")),
        ("progress", include_str!("tests/progress.txt")),
        ("validity", include_str!("tests/validity.txt")),
    ] {
        check_file(file, text);
    }
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64), 0..12)
    ) {
        let hold = |(lease, (from, length)): (usize, &(i64, i64))| {
            let span = Window::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
        }
        // The checker reports every hold that overlaps an earlier one, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| before.inner.meet(hold.inner).is_some())
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}

/// Checks every row of a file.
fn check_file(file: &str, text: &str) {
    for block in text.split("\n== ").skip(1) {
        let (title, block) = block.split_once('\n').unwrap();
        let lines = block.lines().map(|line| line.split("# ").next().unwrap_or_default().trim());
        let (table, lines): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('|'));
        let cells = |line: &str| line.trim_matches('|').split('|').map(cell).collect::<Vec<_>>();
        let mut table = table.into_iter().map(cells);
        let columns = table.next().unwrap_or_default();
        let only = columns.is_empty().then(Vec::new);
        for cells in table.chain(only) {
            let mut text = format!("\n{}", lines.join("\n"));
            for (column, value) in columns.iter().zip(cells) {
                text = text.replace(&format!("{{{column}}}"), &value);
            }
            let (common, rows) = text.split_once("\n- ").unwrap_or((&text, ""));
            for row in rows.split("\n- ") {
                check_row(&format!("{common}\n{row}"), &format!("{file}, {title}: {row}"));
            }
        }
    }
}

fn cell(text: &str) -> String {
    text.trim().to_owned()
}

/// Compares the verdict on the events of a text with its results.
fn check_row(text: &str, name: &str) {
    let (events, results): (Vec<&str>, Vec<&str>) = parts(text).partition(is_event);
    let history = Run::of(&events.join("\n")).history();
    let verdict = verdict_on(&history);
    assert!(!results.is_empty(), "no result of {name}");
    let explanations = verdict.findings.iter().flat_map(|finding| &finding.explanation);
    let explanation = explanations.map(String::as_str).collect::<Vec<_>>().join("\n");
    let differences = results.iter().filter_map(|result| result.strip_prefix("! "));
    let differences: Vec<&str> = differences.collect();
    for result in results {
        let (sign, result) = result.split_once(' ').unwrap_or_default();
        if sign.ends_with('~') {
            let found = explanation.contains(result);
            assert_eq!(found, sign == "~", "`{result}` in the report of {name}:\n{explanation}");
        }
        if sign != "=>" {
            continue;
        }
        let (result, causes) = result.split_once(" because ").unwrap_or((result, ""));
        if !causes.is_empty() {
            let found: Vec<&str> = verdict.because.iter().map(|cause| cause.name()).collect();
            assert_eq!(found.join(", "), causes, "{name}\n{verdict:#?}");
        }
        let (what, value) = result.split_once(' ').unwrap_or((result, ""));
        let measures = &verdict.measures;
        let plain = |numbers: &[i64]| format!("{numbers:?}").replace(['[', ']', ','], "");
        let found = match what {
            "grants" => measures.grants.to_string(),
            "margins" => plain(&measures.margins),
            "hollow" => ms(measures.hollow_ns),
            "acquire" => measures.acquire_ns.map_or_else(String::new, ms),
            "hand-over" => measures.hand_over_ns.map_or_else(String::new, ms),
            "commands" => plain(&prepare(&history, commands_per_acquisition)),
            "reason" => prepare(&history, reason_to_hold).unwrap_or("none".to_owned()),
            "overtaken" => {
                let overtaken = |line: &String| line.starts_with("overtaken");
                let any = verdict.differences.iter().any(overtaken);
                if any { "yes" } else { "no" }.to_owned()
            }
            "all" => {
                let all = Property::ALL.map(|property| verdict.observed[&property].name());
                let mut bad = all.into_iter().filter(|seen| !["safe", "not-used"].contains(seen));
                bad.next().unwrap_or("safe").to_owned()
            }
            _ if value.is_empty() => {
                assert_eq!(verdict.differences, differences, "{name}\n{verdict:#?}");
                assert_eq!(verdict.outcome.name(), what, "{name}\n{verdict:#?}");
                continue;
            }
            property => verdict.observed[&read(property)].to_string(),
        };
        assert_eq!(found, value, "{what} of {name}\n{verdict:#?}");
    }
}

/// Milliseconds, the unit of the notation.
fn ms(ns: Ns) -> String {
    ((ns as f64 / 1e3).round() / 1e3).to_string()
}
