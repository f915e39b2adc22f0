//! Shrinks a find: removes everything that is not needed for the same property to be violated for
//! the same causes, and makes the rest easy to read.
//!
//! First the shrinker leaves out whole faults (delta debugging), then clients, steps, masters and
//! options. Then it replaces the times of faults by moments of the protocol, and numbers of masters
//! by roles, and rounds times. Each of these passes proposes changes. A change is kept if the
//! scenario [weighs](weight) less with it, is valid, and shows the same [`Kind`]. So the shrinker
//! ends, and ends the same way every time. Finally, it widens times until the find no longer
//! depends on its seed.
//!
//! `passes.rs` has the passes. Each try runs the simulation and the checkers.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use super::{Found, Kind};
use crate::lengths::{self, millis};
use redquorum_checker::Verdict;
use redquorum_scenario::history::{Event, History, Phase};
use redquorum_scenario::{
    Class, Client, Clients, Fault, FaultKind, FaultTime, FieldMut, Lock, Messages, Mutant, Nodes,
    Persistence, Rounds, Scenario, Side, Step, Touches, makes_sense,
};

mod passes;
#[cfg(test)]
mod tests;

/// The usual limit of a shrink's work: less than ten seconds of an optimised build.
pub const EFFORT: u64 = 3_000_000;
/// The cost of a run in addition to its records: masters and clients that start, handshakes.
const RUN: u64 = 300;

/// The progress of a shrink.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The number of scenarios tried so far.
    pub tries: u64,
    /// The smallest scenario so far.
    pub best: &'a Scenario,
}

/// Shrinks a find, by one of its kinds. `effort` limits the work, in events of the simulation, so
/// that the result does not depend on the machine; see [`EFFORT`]. The progress callback may end
/// the shrink early; then the result is the smallest scenario so far.
pub fn shrink_to(
    found: &Found,
    kind: &Kind,
    effort: u64,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Found {
    let mut trial = Trial {
        // A violation of a lock with defences is another find than one of a lock without.
        defended: found.scenario.lock.guard.is_some(),
        best: found.clone(),
        masters: found.scenario.cluster.nodes.min(3),
        kind: kind.clone(),
        early: false,
        known: BTreeSet::new(),
        tries: 0,
        left: effort,
        progress,
    };
    trial.best.scenario.variants.clear();
    let start = redquorum_simulator::run(trial.scenario(), found.seed, found.mutant);
    trial.early = is_early(&start, &found.verdict, kind);
    // Looks for the simplest seed that shows the find.
    for seed in 0..8 {
        if trial.has_seed(seed) {
            break;
        }
    }
    loop {
        let before = weight(&trial.best.scenario);
        passes::to_less(&mut trial);
        passes::to_moments(&mut trial);
        if weight(&trial.best.scenario) == before || trial.is_over() {
            break;
        }
    }
    passes::to_steady(&mut trial);
    trial.best
}

/// A shrink in progress.
struct Trial<'a> {
    best: Found,
    /// The least number of masters that must remain: with fewer than three there is nothing to
    /// agree on.
    masters: usize,
    kind: Kind,
    /// Whether the lock's defences stay.
    defended: bool,
    /// Whether it went wrong while the clients worked. Then the final acquires, which come after
    /// all faults are healed, must not be what shows it.
    early: bool,
    /// The hashes of the scenarios that were tried.
    known: BTreeSet<u64>,
    tries: u64,
    left: u64,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
}

impl Trial<'_> {
    const fn is_over(&self) -> bool {
        self.left == 0
    }

    const fn scenario(&self) -> &Scenario {
        &self.best.scenario
    }

    /// Proposes another scenario, and returns whether it is the best now.
    fn offer(&mut self, scenario: Scenario) -> bool {
        if weight(&scenario) >= weight(self.scenario()) || !self.is_new(&scenario) {
            return false;
        }
        match self.shows(&scenario, self.best.seed) {
            Some(found) => {
                self.best = found;
                true
            }
            None => false,
        }
    }

    /// Proposes the best scenario with a change, and returns whether that is the best now.
    fn attempt(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        let mut other = self.scenario().clone();
        change(&mut other);
        self.offer(other)
    }

    /// Proposes to leave out each element of a list.
    fn leave_out(
        &mut self,
        count: impl Fn(&Scenario) -> usize,
        remove: impl Fn(&mut Scenario, usize),
    ) {
        let mut index = 0;
        while index < count(self.scenario()) {
            if !self.attempt(|less| remove(less, index)) {
                index += 1;
            }
        }
    }

    /// Proposes another seed.
    fn has_seed(&mut self, seed: u64) -> bool {
        if seed == self.best.seed {
            return true;
        }
        let scenario = self.scenario().clone();
        let found = self.shows(&scenario, seed);
        found.map(|found| self.best = found).is_some()
    }

    fn is_new(&mut self, scenario: &Scenario) -> bool {
        let mut hash = DefaultHasher::new();
        // A scenario contains floating-point numbers, which have no hash. Its text has one.
        format!("{scenario:?}").hash(&mut hash);
        self.known.insert(hash.finish()) && makes_sense(scenario) && keeps_to_leases(scenario)
    }

    /// The same kind of violation in another scenario, if it is there.
    fn shows(&mut self, scenario: &Scenario, seed: u64) -> Option<Found> {
        let mutant = self.best.mutant;
        let history = self.run(scenario, seed, mutant)?;
        let found = Found::in_history(&history, mutant)?;
        if !found.kinds().contains(&self.kind)
            || self.early && !is_early(&history, &found.verdict, &self.kind)
        {
            return None;
        }
        // A mutant is detected only by a scenario that passes without the mutation.
        if mutant != Mutant::None {
            let honest = self.run(scenario, seed, Mutant::None)?;
            if Found::in_history(&honest, Mutant::None).is_some() {
                return None;
            }
        }
        Some(found)
    }

    /// Runs a scenario, if there is effort left.
    fn run(&mut self, scenario: &Scenario, seed: u64, mutant: Mutant) -> Option<History> {
        if self.is_over() {
            return None;
        }
        let history = redquorum_simulator::run(scenario, seed, mutant);
        let cost = RUN + u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(cost);
        self.tries += 1;
        let progress = Progress { tries: self.tries, best: &self.best.scenario };
        if (self.progress)(progress).is_break() {
            self.left = 0;
        }
        Some(history)
    }

    /// How long the violation lasts in a run, in nanoseconds; none if it does not occur.
    fn lasts(&mut self, scenario: &Scenario, seed: u64) -> Option<i64> {
        let found = self.shows(scenario, seed)?;
        let lasts = found.verdict.findings.iter().map(|finding| finding.to - finding.from);
        Some(lasts.max().unwrap_or(0))
    }
}

/// Whether something of a kind went wrong before all faults were healed.
fn is_early(history: &History, verdict: &Verdict, kind: &Kind) -> bool {
    let healed = history.records.iter().find_map(|record| match record.event {
        Event::Phase { phase: Phase::Heal } => Some(record.ns),
        _ => None,
    });
    let healed = healed.unwrap_or(i64::MAX);
    let mut of_kind = verdict.findings.iter().filter(|finding| Kind::of(finding) == *kind);
    of_kind.any(|finding| finding.from < healed)
}

/// Whether each client asks for the lock before it touches the protected register. Otherwise
/// updates would be lost without any fault of the lock.
fn keeps_to_leases(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| {
        // The number of acquires that were requested and not released, handle by handle.
        let mut asked: usize = 0;
        client.script.iter().all(|step| {
            asked = (asked + step.acquires().count()).saturating_sub(step.releases().count());
            asked > 0 || !matches!(step, Step::Touch { .. })
        })
    })
}

/// The weight, most significant first: faults, clients, steps, masters, options, how faults are
/// aimed, digits.
pub type Weight = [u64; 7];

/// The amount of text in a scenario. Of two that show the same find the lighter one is better.
pub fn weight(scenario: &Scenario) -> Weight {
    let mut digits = 0;
    lengths::each(&mut scenario.clone(), &mut |_, length| digits += roughness(millis(*length)));
    let faults = &scenario.faults;
    [
        number(faults.len()),
        number(scenario.clients.len()),
        scenario.clients.iter().map(steps).sum(),
        number(scenario.cluster.nodes),
        of_lock(&scenario.lock)
            + u64::from(scenario.cluster.persistence != Persistence::None)
            + u64::from(scenario.cluster.replicas)
            + scenario.clients.iter().map(options).sum::<u64>()
            + faults.iter().map(|fault| choices(fault, scenario.cluster.nodes)).sum::<u64>(),
        faults.iter().map(aim).sum(),
        digits + faults.iter().map(|fault| rough_numbers(&fault.kind)).sum::<u64>(),
    ]
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The steps of a client. Repeated steps count each time, up to a limit.
fn steps(client: &Client) -> u64 {
    let repeats = match client.rounds {
        None => 0,
        Some(Rounds::Times(times)) => 1 + u64::from(times.min(50)),
        Some(Rounds::For(_)) => 60,
    };
    number(client.script.len()) + repeats
}

fn of_lock(lock: &Lock) -> u64 {
    let usual = Lock::default();
    u64::from(lock.ttl != usual.ttl)
        + u64::from(lock.node_timeout != usual.node_timeout)
        + u64::from(lock.drift != usual.drift)
        + u64::from(lock.drift_ppm != usual.drift_ppm)
        + u64::from(lock.guard.is_some())
        + u64::from(lock.fair)
        + u64::from(!lock.initialized)
}

fn options(client: &Client) -> u64 {
    let of_step = |step: &Step| match step {
        Step::Acquire { also, wait, ttl, cancel, again, .. } => {
            number(also.len())
                + u64::from(!wait.is_zero())
                + u64::from(ttl.is_some())
                + u64::from(cancel.is_some())
                + u64::from(*again)
        }
        Step::Extend { ttl, .. } => u64::from(ttl.is_some()),
        Step::Touch { held, .. } => u64::from(held.is_some()),
        _ => 0,
    };
    client.script.iter().map(of_step).sum::<u64>()
        + u64::from(client.process.is_some())
        + u64::from(client.guard.is_some())
        + u64::from(client.fencing.is_some())
        + u64::from(client.fair.is_some())
        + client.nodes.as_ref().map_or(0, |nodes| 1 + number(nodes.len()))
        + u64::from(!client.start.is_zero())
        + u64::from(!client.think.is_zero())
}

/// The selections of a fault: clients, masters, messages, an end.
fn choices(fault: &Fault, masters: usize) -> u64 {
    let of_messages = |messages: &Messages| {
        u64::from(messages.what != Side::Both)
            + u64::from(messages.command != Class::Any)
            + u64::from(messages.index.is_some())
            + u64::from(messages.count.is_some())
    };
    let of_field = |field| match field {
        FieldMut::Side(side) => u64::from(*side != Side::Both),
        FieldMut::Touches(touches) => u64::from(*touches != Touches::Both),
        FieldMut::Messages(messages) => of_messages(messages),
        FieldMut::Length(_) | FieldMut::Rate(_) | FieldMut::Bytes(_) | FieldMut::Fixed => 0,
    };
    let of_kind: u64 = fault.kind.clone().fields_mut().into_iter().map(of_field).sum();
    let clients = match &fault.clients {
        // A fault of clients hits at least one.
        Some(Clients::Some(names)) if matches!(fault.kind, FaultKind::Client(_)) => {
            number(names.len()) - 1
        }
        Some(Clients::Some(names)) => number(names.len()),
        Some(Clients::All) | None => 0,
    };
    let nodes = match &fault.nodes {
        // Each master that a fault hits makes it heavier.
        Some(Nodes::Some(numbers)) => number(numbers.len()),
        Some(Nodes::Role(role)) => number(role.first.unwrap_or(masters)),
        Some(Nodes::All) => number(masters),
        None => 0,
    };
    of_kind + clients + nodes + u64::from(fault.lasts.is_some())
}

/// How far a fault is from a readable description: a moment of the protocol is nearer than a time,
/// and a part that masters play is nearer than a number.
fn aim(fault: &Fault) -> u64 {
    let when = match &fault.when {
        FaultTime::At(at) if at.is_zero() => 0,
        FaultTime::At(_) => 3,
        FaultTime::After(moment) if !moment.plus.is_zero() => 1,
        FaultTime::After(_) | FaultTime::Before(_) => 0,
    };
    when + u64::from(matches!(fault.nodes, Some(Nodes::Some(_))))
}

/// How far a number is from a simple one: 0 for 0, 1 for 1, 2 and 5 with zeros behind them, else
/// twice the number of the remaining digits.
fn roughness(number: u64) -> u64 {
    if number == 0 {
        return 0;
    }
    let mut number = number;
    while number.is_multiple_of(10) {
        number /= 10;
    }
    if matches!(number, 1 | 2 | 5) { 1 } else { 2 * (u64::from(number.ilog10()) + 1) }
}

/// How far the numbers of a fault that are no times are from simple ones.
fn rough_numbers(kind: &FaultKind) -> u64 {
    let of_field = |field| match field {
        FieldMut::Rate(rate) => number(rate.to_string().len()),
        FieldMut::Bytes(bytes) => roughness(u64::from(*bytes)),
        FieldMut::Length(_)
        | FieldMut::Side(_)
        | FieldMut::Touches(_)
        | FieldMut::Messages(_)
        | FieldMut::Fixed => 0,
    };
    kind.clone().fields_mut().into_iter().map(of_field).sum()
}
