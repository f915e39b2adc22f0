//! The unexpected violations of all runs: property by cause, with the scenarios that show them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::words::label;
use super::{Ended, Entry};
use redquorum_checker::Observed;
use redquorum_scenario::{Cause, Property, Wanted};

/// A line for each property and cause of violations that the scenarios did not expect. Empty if
/// there is none.
pub(super) fn lines(entries: &[Entry]) -> String {
    let mut cells: BTreeMap<(Property, Option<Cause>), BTreeMap<&str, usize>> = BTreeMap::new();
    for entry in entries {
        for cell in unexpected(entry) {
            *cells.entry(cell).or_default().entry(&entry.name).or_default() += 1;
        }
    }
    let mut text = String::new();
    for ((property, cause), scenarios) in cells {
        let cause = cause.map_or("no known cause", label);
        let count = scenarios.len();
        let scenarios: Vec<String> = scenarios
            .into_iter()
            .map(
                |(name, times)| {
                    if times == 1 { name.to_owned() } else { format!("{name} x{times}") }
                },
            )
            .collect();
        _ = write!(text, "\n  {property}, {cause}, {count}: {}", scenarios.join(", "));
    }
    if text.is_empty() {
        text
    } else {
        format!("\nunexpected violations, by property and cause:{text}")
    }
}

/// The properties that a run violated against the expectation, each with its causes, each once.
fn unexpected(entry: &Entry) -> Vec<(Property, Option<Cause>)> {
    let Ended::Checked(verdict) = &entry.ended else { return Vec::new() };
    let mut cells = Vec::new();
    for finding in &verdict.findings {
        if finding.seen != Observed::Violated || entry.expect.of(finding.property) != Wanted::Safe {
            continue;
        }
        match &finding.causes[..] {
            [] => cells.push((finding.property, None)),
            causes => cells.extend(causes.iter().map(|cause| (finding.property, Some(*cause)))),
        }
    }
    cells.sort_unstable();
    cells.dedup();
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use redquorum_checker::{Outcome, Verdict, Violation};
    use redquorum_scenario::Expect;

    fn entry(name: &str, expect: Expect, findings: Vec<Violation>) -> Entry {
        let verdict = Verdict {
            outcome: Outcome::Differs,
            observed: BTreeMap::new(),
            differences: Vec::new(),
            findings,
            because: Vec::new(),
            measures: redquorum_checker::Measures::default(),
        };
        Entry { expect, ..Entry::of(name, Ended::Checked(Box::new(verdict))) }
    }

    fn finding(property: Property, cause: Cause) -> Violation {
        let (seen, causes) = (Observed::Violated, vec![cause]);
        Violation { property, seen, explanation: Vec::new(), causes, from: 0, to: 0 }
    }

    #[test]
    fn unexpected_violations_are_folded_by_property_and_cause() {
        let bug = || finding(Property::Validity, Cause::Bug);
        let step = || finding(Property::MutualExclusion, Cause::ClockStep);
        let safe = Expect::default;
        let entries = [
            entry("a", safe(), vec![bug(), bug(), step()]),
            entry("a", safe(), vec![bug()]),
            entry("b", safe(), vec![bug()]),
        ];
        let text = lines(&entries);
        assert!(text.contains("\n  mutual-exclusion, clock.step, 1: a"), "{text}");
        assert!(text.contains("\n  validity, a bug of the lock, 2: a x2, b"), "{text}");

        let expect = Expect { mutual_exclusion: Some(Wanted::Violated), ..Expect::default() };
        assert_eq!(lines(&[entry("a", expect, vec![step()])]), "", "it is expected");
        assert_eq!(lines(&[]), "");
    }
}
