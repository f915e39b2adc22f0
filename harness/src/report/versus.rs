//! Compares the verdicts of several backends. `report.rs` calls it at the end of a run on all of
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::human::observed;
use super::{Ended, Entry};
use redquorum_checker::Observed;
use redquorum_scenario::{Cause, Property};

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
