//! What a run means: which schedules are inside the assumptions of the lock (A1 to A6 of
//! `docs/safety.md`), which violations must not occur in those or in any, and which classes of
//! failures there are. Also the counts and finds of a search. The sum of its parts does not depend
//! on the order in which they end.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::SearchSpace;
use super::base_scenarios::{BaseScenario, TTL};
use super::table::{Row, all_struck};
use crate::{Kind, contradictions, sees_amnesia};
use redquorum_checker::{Observed, Verdict, Violation, check};
use redquorum_scenario::history::{Event, History};
use redquorum_scenario::{
    Assumed, Cause, ClientFault, ClockFault, Fault, FaultKind, Loses, Persistence, Property,
    Scenario, SetsClock, named,
};

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
        _ => Family::Many { forgets: crate::tokens_may_fail(scenario) },
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
        lines.extend(crate::failed_tokens(scenario, verdict));
        let of = self.families.entry(family(scenario, base, faults)).or_default();
        of.add(verdict);
        if all_struck(base, history) {
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

/// Whether a schedule does nothing that is outside the assumptions. Returns `false` in case of
/// doubt.
pub(super) fn inside(base: &BaseScenario, faults: &[Fault]) -> bool {
    let is_rate = |fault: &&Fault| {
        matches!(fault.kind.row().clock, SetsClock::OfMaster | SetsClock::OfLeases)
    };
    let rates = faults.iter().filter(is_rate).count();
    // The rates of one clock add up, and so do those of a master and of a client.
    // A guard detects that masters may have forgotten (A2).
    let sees = sees_amnesia(&base.scenario.lock);
    let is_assumed =
        |fault: &Fault| is_assumed(base, fault) || sees && fault.kind.removes_markers(false);
    !base.parted && rates <= 1 && faults.iter().all(is_assumed)
}

/// Whether a fault is inside the assumptions of a lock without defences.
pub(super) fn is_assumed(base: &BaseScenario, fault: &Fault) -> bool {
    let share = f64::from(base.scenario.lock.drift_ppm) / 1e6;
    match fault.kind.row().assumed {
        Assumed::Always => true,
        Assumed::Never => false,
        Assumed::IfLong => {
            let ttl = crate::lengths::of_millis(TTL);
            // A master that comes back after all its keys would have expired has forgotten nothing
            // (A2).
            base.scenario.cluster.persistence == Persistence::AofAlways
                || fault.lasts.is_some_and(|lasts| lasts > ttl)
        }
        Assumed::IfSlight => match &fault.kind {
            FaultKind::Clock(ClockFault::Rate { factor }) => (1.0..=1.0 + share).contains(factor),
            // A clock that runs fast ends leases early, but it counts as outside: it shortens
            // quarantines too.
            FaultKind::Client(ClientFault::Rate { factor }) => (1.0 - share..=1.0).contains(factor),
            // In case of doubt, a fault is outside.
            _ => false,
        },
    }
}

/// The errors of a run whose faults are all inside, one line each.
fn wrong_inside(base: &BaseScenario, scenario: &Scenario, verdict: &Verdict) -> Vec<String> {
    // A guard keeps leases apart, but it does not restore a counter.
    let counters = crate::tokens_may_fail(scenario);
    let lost = |finding: &Violation| counters && Kind::of(finding).is_by_design();
    let excused = |finding: &Violation| {
        is_by_design(base, finding) || finding.property == Property::FencedResource && lost(finding)
    };
    let bad = verdict.findings.iter().filter(|finding| !excused(finding));
    bad.map(line).chain(contradictions(verdict).cloned()).collect()
}

/// The errors of any run: violations that no fault explains, one line each.
fn wrong_outside(verdict: &Verdict) -> Vec<String> {
    let unexplained = |finding: &&Violation| {
        let kind = Kind::of(finding);
        kind.is_doubt() || kind.is_unexplained()
    };
    verdict
        .findings
        .iter()
        .filter(unexplained)
        .map(line)
        .chain(contradictions(verdict).cloned())
        .collect()
}

/// Some late writes no lock can prevent: the client is paused after its last check, or does not
/// check, or its write is delayed on its way.
fn is_by_design(base: &BaseScenario, finding: &Violation) -> bool {
    let late = |cause: &Cause| match cause {
        Cause::ClientPause | Cause::ResourceDelay => true,
        Cause::LateWrite => !base.looks,
        _ => false,
    };
    finding.property == Property::UnfencedResource
        && !finding.causes.is_empty()
        && finding.causes.iter().all(late)
}

fn line(finding: &Violation) -> String {
    let Violation { property, seen, explanation, causes, .. } = finding;
    format!("{property} {seen:?} because {causes:?}: {}", explanation.join("; "))
}

named! {
    /// A class of failures.
    pub enum Class {
        ClockStep = "clock-step", "clock set forward";
        ClockRate = "clock-rate", "clock too fast";
        ClockStrobe = "clock-strobe", "clock strobes";
        Restart = "restart", "restart that forgets";
        /// A master loses its data in a crash, and returns before its keys have expired.
        EarlyReturn = "early-return", "back before the TTL is over";
        Flush = "flush", "`FLUSHALL`";
        Evict = "evict", "eviction";
        /// A master loses power before it has synced, and returns before its keys have expired.
        PowerLoss = "power-loss", "power lost before a sync";
        Failover = "failover", "failover to a replica that lags";
        /// Clients know different masters, and nothing fails.
        NodeLists = "node-lists", "clients with different masters";
        /// A client is paused between its last check of the lease and its write.
        Pause = "pause", "client paused after its look";
        /// A client's machine is suspended between its last check of the lease and its write.
        Suspend = "suspend", "machine suspended";
        /// A client that cannot extend, and does not check its lease, writes late.
        CutOff = "cut-off", "cannot extend, does not look";
        /// A write that was sent in time arrives late.
        WriteDelayed = "write-delayed", "write late on its way";
    }
}

impl Class {
    /// The violated property, its cause, and the faults that bring it about: one of these faults
    /// must have struck, if the list is not empty.
    const fn signs(self) -> (Property, Cause, &'static [&'static str]) {
        let (exclusion, resource) = (Property::MutualExclusion, Property::UnfencedResource);
        match self {
            Self::ClockStep => (exclusion, Cause::ClockStep, &["clock.step"]),
            Self::ClockRate => (exclusion, Cause::ClockRate, &["clock.rate"]),
            Self::ClockStrobe => (exclusion, Cause::ClockStrobe, &["clock.strobe"]),
            Self::Restart => (exclusion, Cause::NodeRestart, &["node.restart"]),
            Self::EarlyReturn => (exclusion, Cause::NodeRestart, &["node.kill", "node.stop"]),
            Self::Flush => (exclusion, Cause::NodeFlush, &["node.flush"]),
            Self::Evict => (exclusion, Cause::NodeEvict, &["node.evict"]),
            Self::PowerLoss => (exclusion, Cause::NodePowerLoss, &["node.power-loss"]),
            Self::Failover => (exclusion, Cause::NodeFailover, &["node.failover"]),
            Self::NodeLists => (exclusion, Cause::NodeLists, &[]),
            Self::Pause => (resource, Cause::ClientPause, &["client.pause"]),
            Self::Suspend => (resource, Cause::ClientPause, &["client.suspend"]),
            Self::CutOff => {
                (resource, Cause::LateWrite, &["net.cut", "net.drop", "net.hold", "node.pause"])
            }
            Self::WriteDelayed => (resource, Cause::ResourceDelay, &["resource.delay"]),
        }
    }

    /// Whether a kind of violation belongs to this class.
    pub fn is_kind(self, kind: &Kind) -> bool {
        let (property, cause, _) = self.signs();
        kind.property == Some(property) && kind.causes == [cause]
    }

    /// The names of the faults that bring it about.
    pub(super) const fn faults(self) -> &'static [&'static str] {
        self.signs().2
    }

    /// Whether the class needs masters that forget, so that the margin says how many.
    pub const fn forgets(self) -> bool {
        !matches!(
            self,
            Self::NodeLists | Self::Pause | Self::Suspend | Self::CutOff | Self::WriteDelayed
        )
    }

    /// If a run shows this class: the number of masters that were hit by faults that can make a
    /// master forget.
    pub fn shown(self, history: &History, verdict: &Verdict) -> Option<usize> {
        let (property, cause, names) = self.signs();
        let is = |finding: &&redquorum_checker::Violation| {
            finding.property == property
                && finding.seen == Observed::Violated
                && finding.causes.contains(&cause)
        };
        verdict.findings.iter().find(is)?;
        let mut masters: BTreeSet<usize> = BTreeSet::new();
        let mut struck = names.is_empty();
        for record in &history.records {
            if let Event::Struck { fault, nodes, failed: None, .. } = &record.event
                && let Some(Fault { kind, .. }) = history.header.scenario.fault(*fault)
            {
                struck |= names.contains(&kind.name());
                if makes_forget(kind) {
                    masters.extend(nodes);
                }
            }
        }
        struck.then_some(masters.len())
    }
}

fn makes_forget(kind: &FaultKind) -> bool {
    let row = kind.row();
    row.clock == SetsClock::OfMaster || row.loses == Loses::Keys || kind.removes_markers(false)
}
