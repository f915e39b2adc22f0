//! The counts and finds of a search. The sum of its parts does not depend on the order in which
//! they end.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::assumptions::{inside, wrong_inside, wrong_outside};
use super::base_scenarios::BaseScenario;
use super::classes::Class;
use super::defended::{self, Row};
use super::walk::SearchSpace;
use crate::fenced;
use redquorum_checker::{Observed, Verdict, Violation, check};
use redquorum_scenario::history::History;
use redquorum_scenario::{Cause, Fault, Property, Scenario};

/// The number of schedules that are kept: of those with errors, and of each class.
const KEPT: usize = 50;

/// A schedule on a base scenario.
#[derive(Clone, Debug)]
pub struct Found {
    /// The base scenario and the faults, as a scenario.
    pub scenario: Scenario,
    /// How many of its faults belong to the schedule: the last ones.
    pub faults: usize,
    /// How many masters were hit by the faults that cause the failure.
    pub masters: usize,
}

/// A schedule with errors.
#[derive(Clone, Debug)]
pub struct FailedSchedule {
    /// The base scenario and the faults, as a scenario.
    pub scenario: Scenario,
    /// Whether all its faults are inside the assumptions.
    pub inside: bool,
    /// One line for each error.
    pub lines: Vec<String>,
}

/// The counts and finds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of schedules, by their number of faults.
    pub schedules: Vec<u64>,
    /// The number of schedules inside the assumptions.
    pub inside: u64,
    /// The number of schedules that showed a violation.
    pub violated: u64,
    /// How often each property was violated for each cause.
    pub kinds: BTreeMap<(Property, Cause), u64>,
    /// For each class, with a bare quorum or not: the smallest schedules, by faults and then by
    /// masters. The list keeps the first of them.
    pub smallest: BTreeMap<(Class, bool), Vec<Found>>,
    /// The number of first faults on all base scenarios. Each schedule with a fault begins with one
    /// of them.
    pub parts: usize,
    /// How many of them were not tried for lack of time, with all schedules that begin with them.
    pub cut: usize,
    /// The number of schedules inside the assumptions that have an error.
    pub broken: u64,
    /// The number of schedules outside the assumptions that show a violation which no fault
    /// explains.
    pub unexplained: u64,
    /// The first schedules of both kinds.
    pub wrong: Vec<FailedSchedule>,
    /// How many schedules of each family of faults violated each property.
    pub families: BTreeMap<Family, Broken>,
    /// These counts by the faults that are outside the assumptions of a lock without defences.
    /// Counts only schedules in which every fault struck.
    pub rows: BTreeMap<Row, Broken>,
}

/// The family of a schedule: a property that its faults share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// No fault, and all clients know the same masters.
    None,
    /// No fault, and clients know different masters.
    NodeLists,
    /// One fault, of this name.
    One(&'static str),
    /// Several faults.
    Many {
        /// Whether one of them makes a master lose its counters.
        forgets: bool,
    },
}

/// How many schedules violated each property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// The number of schedules.
    pub schedules: u64,
    /// Two clients believed at once that they hold the resource.
    pub exclusion: u64,
    /// An update was lost in a register without fencing tokens.
    pub unfenced: u64,
    /// An update was lost in a register with fencing tokens, or the tokens did not grow.
    pub fenced: u64,
}

impl Broken {
    fn add(&mut self, verdict: &Verdict) {
        let seen = |property: Property| {
            let bad = |finding: &Violation| {
                finding.property == property && finding.seen == Observed::Violated
            };
            u64::from(verdict.findings.iter().any(bad))
        };
        self.schedules += 1;
        self.exclusion += seen(Property::MutualExclusion);
        self.unfenced += seen(Property::UnfencedResource);
        self.fenced += seen(Property::FencedResource);
    }

    /// Adds the counts of another search.
    pub(super) const fn append(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.exclusion += other.exclusion;
        self.unfenced += other.unfenced;
        self.fenced += other.fenced;
    }
}

fn family(scenario: &Scenario, base: &BaseScenario, faults: &[Fault]) -> Family {
    match faults {
        [] if base.parted => Family::NodeLists,
        [] => Family::None,
        [fault] => Family::One(fault.kind.name()),
        _ => Family::Many { forgets: fenced::may_fail(scenario) },
    }
}

impl Tally {
    /// Counts a schedule that was run.
    pub(super) fn add(&mut self, space: &SearchSpace, faults: &[usize], history: &History) {
        let (base, verdict) = (&space.base, &check(history));
        let faults: Vec<Fault> =
            faults.iter().map(|fault| space.vocabulary[*fault].clone()).collect();
        let faults = &faults[..];
        let size = faults.len();
        if self.schedules.len() <= size {
            self.schedules.resize(size + 1, 0);
        }
        self.schedules[size] += 1;
        let inside = inside(base, faults);
        self.inside += u64::from(inside);
        let mut lines = if inside {
            wrong_inside(base, &history.header.scenario, verdict)
        } else {
            wrong_outside(verdict)
        };
        let scenario = &history.header.scenario;
        lines.extend(fenced::refuted(scenario, verdict));
        let of = self.families.entry(family(scenario, base, faults)).or_default();
        of.add(verdict);
        if defended::all_struck(base, history) {
            self.rows.entry(Row::of(base, faults)).or_default().add(verdict);
        }
        if !lines.is_empty() {
            let count = if inside { &mut self.broken } else { &mut self.unexplained };
            *count += 1;
            if self.wrong.len() < KEPT {
                self.wrong.push(FailedSchedule { scenario: base.with(faults), inside, lines });
            }
        }
        let bad = verdict.findings.iter().filter(|finding| finding.seen == Observed::Violated);
        let mut kinds: Vec<(Property, Cause)> = bad
            .flat_map(|finding| finding.causes.iter().map(|cause| (finding.property, *cause)))
            .collect();
        if kinds.is_empty() {
            return;
        }
        kinds.sort_unstable();
        kinds.dedup();
        self.violated += 1;
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
        for class in Class::ALL.iter().copied() {
            let Some(masters) = class.shown(history, verdict) else { continue };
            let known = self.smallest.entry((class, base.bare)).or_default();
            if room(known, (size, masters)) {
                known.push(Found { scenario: base.with(faults), faults: size, masters });
            }
        }
    }

    /// The smallest schedule of a class.
    pub fn smallest(&self, class: Class, bare: bool) -> Option<&Found> {
        self.smallest.get(&(class, bare))?.first()
    }

    /// Adds another part behind this one.
    pub(super) fn append(&mut self, other: Self) {
        if self.schedules.len() < other.schedules.len() {
            self.schedules.resize(other.schedules.len(), 0);
        }
        for (sum, more) in self.schedules.iter_mut().zip(other.schedules) {
            *sum += more;
        }
        self.inside += other.inside;
        self.violated += other.violated;
        self.broken += other.broken;
        self.unexplained += other.unexplained;
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        append(&mut self.families, other.families);
        append(&mut self.rows, other.rows);
        for (key, all) in other.smallest {
            let known = self.smallest.entry(key).or_default();
            for found in all {
                if room(known, (found.faults, found.masters)) {
                    known.push(found);
                }
            }
        }
        let room = KEPT.saturating_sub(self.wrong.len());
        self.wrong.extend(other.wrong.into_iter().take(room));
    }
}

fn append<K: Ord>(sum: &mut BTreeMap<K, Broken>, more: BTreeMap<K, Broken>) {
    for (key, broken) in more {
        sum.entry(key).or_default().append(broken);
    }
}

/// Whether a schedule of this size belongs to the smallest. If it is smaller than the known ones,
/// these are removed.
fn room(known: &mut Vec<Found>, size: (usize, usize)) -> bool {
    match known.first().map(|first| size.cmp(&(first.faults, first.masters))) {
        Some(Ordering::Less) => known.clear(),
        Some(Ordering::Greater) => return false,
        Some(Ordering::Equal) | None => {}
    }
    known.len() < KEPT
}
