//! All runs together: their totals in one sentence, the matrix of their unexpected violations, and
//! the comparison of backends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::human::observed;
use super::out::label;
use super::{Ended, Entry};
use redquorum_checker::{Observed, Outcome, Violation};
use redquorum_scenario::{Cause, Property, Wanted};

/// `130 scenarios must hold: 130 do. 58 must break: 58 did, for the named cause.` Runs that were
/// skipped, or that have no verdict, follow at the end.
pub(crate) fn totals(entries: &[Entry]) -> String {
    let (mut hold, mut holds, mut fail, mut failed, mut open) = (0, 0, 0, 0, 0);
    let mut known = 0;
    for entry in entries {
        let Ended::Checked(verdict) = &entry.ended else {
            open += 1;
            continue;
        };
        let good = usize::from(verdict.outcome == Outcome::AsExpected);
        if entry.expect.any_violation() {
            fail += 1;
            failed += good;
        } else {
            hold += 1;
            if verdict.observed.values().any(|seen| *seen == Observed::Violated) {
                // It is as expected only if all that it violates is known.
                known += good;
            } else {
                holds += good;
            }
        }
    }
    // A scenario that runs on several backends, or several times, counts as several runs.
    let first = entries.first();
    let once = entries
        .iter()
        .all(|entry| entry.time == 0 && Some(&entry.backend) == first.map(|e| &e.backend));
    let noun = match (once, hold) {
        (true, 1) => "scenario",
        (true, _) => "scenarios",
        (false, 1) => "run",
        (false, _) => "runs",
    };
    let does = if holds == 1 { "does" } else { "do" };
    let known = if known > 0 { format!(", {known} with known violations") } else { String::new() };
    let mut text = format!(
        "{hold} {noun} must hold: {holds} {does}{known}. {fail} must break: {failed} did, for the \
         named cause."
    );
    if open > 0 {
        _ = write!(text, " {open} not checked.");
    }
    text
}

/// A line for each property and cause of violations that the scenarios did not expect. Empty if
/// there is none.
pub(super) fn matrix(entries: &[Entry]) -> String {
    let mut cells: BTreeMap<(Property, Option<Cause>), BTreeMap<&str, usize>> = BTreeMap::new();
    for entry in entries {
        for (property, cause, _) in unexpected(entry) {
            *cells.entry((property, cause)).or_default().entry(&entry.name).or_default() += 1;
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

/// The properties that a run violated against the expectation, each with its causes, each once, and
/// the first violation of each.
pub(super) fn unexpected(entry: &Entry) -> Vec<(Property, Option<Cause>, &Violation)> {
    let Ended::Checked(verdict) = &entry.ended else { return Vec::new() };
    let mut cells: BTreeMap<(Property, Option<Cause>), &Violation> = BTreeMap::new();
    for finding in &verdict.findings {
        let property = finding.property;
        if finding.seen != Observed::Violated || entry.expect.of(property) != Wanted::Safe {
            continue;
        }
        if finding.causes.is_empty() {
            cells.entry((property, None)).or_insert(finding);
        }
        let new = finding.causes.iter().filter(|it| entry.expect.known(property, **it).is_none());
        new.for_each(|cause| _ = cells.entry((property, Some(*cause))).or_insert(finding));
    }
    cells.into_iter().map(|((property, cause), first)| (property, cause, first)).collect()
}

/// The part of a verdict that is compared.
type Verdict<'a> = (&'a BTreeMap<Property, Observed>, &'a [Cause]);

/// Whether the verdicts agree, and a text that compares them.
pub(super) fn compare(entries: &[Entry]) -> (bool, String) {
    let mut of_name: BTreeMap<(&str, usize), Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        of_name.entry((&entry.name, entry.time)).or_default().push(entry);
    }
    let (mut agree, mut differ, mut alone) = (0_usize, 0_usize, 0_usize);
    let mut text = String::new();
    for ((name, _), all) in of_name {
        let checked: Vec<(&Entry, Verdict<'_>)> =
            all.iter().filter_map(|entry| Some((*entry, verdict(entry)?))).collect();
        let Some(((_, first), others)) = checked.split_first() else { continue };
        if others.is_empty() {
            alone += 1;
        } else if others.iter().all(|(_, other)| other == first) {
            agree += 1;
        } else {
            differ += 1;
            _ = writeln!(text, "  {name}");
            for (entry, _) in &checked {
                _ = writeln!(text, "    {:10} {}", entry.backend, observed(entry));
            }
        }
    }
    let mut summary = format!("the backends agree on {agree}, differ on {differ}");
    if alone > 0 {
        _ = write!(summary, "; {alone} ran on one alone");
    }
    _ = write!(summary, "\n{text}");
    (differ == 0, summary.trim_end().to_owned())
}

fn verdict(entry: &Entry) -> Option<Verdict<'_>> {
    match &entry.ended {
        Ended::Checked(verdict) => Some((&verdict.observed, &verdict.because)),
        _ => None,
    }
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
        let text = matrix(&entries);
        assert!(text.contains("\n  mutual-exclusion, clock.step, 1: a"), "{text}");
        assert!(text.contains("\n  validity, a bug of the lock, 2: a x2, b"), "{text}");

        let expect = Expect { mutual_exclusion: Some(Wanted::Violated), ..Expect::default() };
        assert_eq!(matrix(&[entry("a", expect, vec![step()])]), "", "it is expected");
        assert_eq!(matrix(&[]), "");
    }
}
