//! Random scenarios: a number in, a scenario out. Every choice comes from a tape (`tape.rs`).
//!
//! `clients.rs` draws the clients, and what happens in the life of a deployment; `faults.rs` draws
//! the faults.
//!
//! Each family of faults is left out of every other scenario: where all happen at once, no client
//! gets far enough to go wrong in an interesting way. Faults heal in the order of their random
//! times, and many not before the end.
//!
//! [`Space::inside`] is the guarantee (`docs/safety.md`, A1 to A6): it draws only faults that the
//! lock must survive. Outside of it any fault is possible. The scenarios are short, so that many
//! can run.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lengths::{millis, of_millis};
use crate::tape::Tape;
use crate::{defend, sees_amnesia};
use faults::Families;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Client, Clients, Cluster, Expect, Fault, FaultKind, FaultTime, Length, Lock, Moment, NodeFault,
    Nodes, OwnGuard, Persistence, Scenario, Step,
};

mod clients;
mod faults;
#[cfg(test)]
mod tests;

/// The most faults in a scenario.
const FAULTS: u64 = 5;

/// The first letters of the names of clients: usual ones, those that want several resources, a
/// crowd, waiters that vanish, waiters behind these, and those that want permits.
const CLIENTS: &str = "csqvpk";

/// Where scenarios are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Only faults inside the lock's assumptions.
    pub inside: bool,
    /// The number of masters. None: 1 to 5.
    pub nodes: Option<usize>,
}

impl Space {
    /// All that the lock promises to survive.
    pub const INSIDE: Self = Self { inside: true, nodes: None };
    /// Everything.
    pub const OUTSIDE: Self = Self { inside: false, nodes: None };

    /// The scenario of a number. The same number is also good as the seed of its run.
    pub fn draw(&self, number: u64) -> Scenario {
        self.read(&mut Tape::of_seed(number))
    }

    /// The scenario of a tape.
    pub(crate) fn read(&self, tape: &mut Tape) -> Scenario {
        let cluster = self.cluster(tape);
        let lock = tape.kept(lock).unwrap_or_default();
        let clients = clients::draw(tape, &lock);
        let mut scenario = Scenario {
            name: "chance".to_owned(),
            about: "By chance.".to_owned(),
            source: None,
            cluster,
            lock,
            clients,
            faults: Vec::new(),
            expect: Expect::default(),
            variants: Vec::new(),
        };
        let all = &mut scenario;
        // They come before the faults, some of which strike at a step.
        tape.purpose("crowd", |tape| clients::add_crowd(tape, all));
        tape.purpose("several", |tape| clients::add_several(tape, all));
        tape.purpose("again", |tape| clients::add_reentry(tape, all));
        tape.purpose("deploy", |tape| clients::add_queues(tape, all));
        tape.purpose("fence", |tape| clients::add_fencing(tape, all));
        tape.purpose("share", |tape| clients::add_sharing(tape, all));
        tape.purpose("permits", |tape| clients::add_permits(tape, all));
        tape.purpose("guard", |tape| add_guards(tape, all, self.inside));
        let families = tape.span(|tape| Families::draw(tape, self.inside));
        for _ in 0..tape.below(FAULTS) {
            let fault = tape.span(|tape| families.fault(tape, all));
            all.faults.extend(fault);
        }
        tape.purpose("crowd", |tape| clients::wake_up_faults(tape, all));
        if !self.inside || all_see_amnesia(all) {
            // It comes before the clients' lists of masters, which limit the parts.
            tape.purpose("forget", |tape| faults::add_amnesia(tape, all, self.inside));
        }
        tape.purpose("deploy", |tape| clients::deployment_faults(tape, all));
        tape.purpose("paces", |tape| faults::add_pace(tape, all, self.inside));
        if !self.inside {
            tape.span(|tape| faults::add_late(tape, all));
            tape.span(|tape| clients::know_other_masters(tape, all));
        }
        tape.purpose("moves", |tape| clients::add_moves(tape, all, self.inside));
        // A name is a part of what masters compare.
        all.lock.names = tape.chance(1, 4);
        tape.span(|tape| leave_out(tape, all));
        scenario
    }

    fn cluster(&self, tape: &mut Tape) -> Cluster {
        let nodes = tape.masters(self.nodes);
        let keeps = [Persistence::None, Persistence::AofAlways, Persistence::AofEverysec];
        let persistence = tape.pick(if self.inside { &keeps[..2] } else { &keeps });
        Cluster { nodes, persistence, replicas: false }
    }
}

/// Leaves out faults, steps and clients, which no random run does. All else was drawn as if they
/// were there, so nothing else changes when one of them goes.
pub(crate) fn leave_out(tape: &mut Tape, scenario: &mut Scenario) {
    /// Each group has a span of its own, so that the others stay in step if it has fewer elements.
    fn some_stay<T, K: PartialEq>(
        tape: &mut Tape,
        all: &mut Vec<T>,
        groups: impl IntoIterator<Item = K>,
        group_of: impl Fn(&T) -> K,
    ) {
        for group in groups {
            tape.span(|tape| all.retain(|one| group_of(one) != group || tape.keeps()));
        }
    }
    some_stay(tape, &mut scenario.faults, FaultKind::names(), |fault| fault.kind.name());
    let group_of = |client: &Client| client.id.chars().next().unwrap_or_default();
    for group in CLIENTS.chars() {
        tape.span(|tape| {
            let own = scenario.clients.iter_mut().filter(|client| group_of(client) == group);
            for client in own {
                let has_token = |step: &Step| matches!(step, Step::Touch { under: Some(_), .. });
                some_stay(tape, &mut client.script, [false, true], has_token);
                want_fewer(tape, &mut client.script);
            }
        });
    }
    let mut gone: Vec<Name> = scenario.clients.iter().map(|client| client.id.clone()).collect();
    some_stay(tape, &mut scenario.clients, CLIENTS.chars(), group_of);
    gone.retain(|id| scenario.clients.iter().all(|client| client.id != *id));
    scenario.faults.retain_mut(|fault| gone.iter().all(|gone| has_effect_without(fault, gone)));
    // Without a client that moves, markers have no steps.
    if scenario.clients.iter().all(|client| client.moving_to.is_none()) {
        let is_step = |kind: &FaultKind| matches!(kind, FaultKind::Node(NodeFault::Admit { .. }));
        scenario.faults.retain(|fault| !is_step(&fault.kind));
    }
}

/// A client that wants several resources at once may want fewer.
fn want_fewer(tape: &mut Tape, script: &mut Vec<Step>) {
    let several = script.iter().filter(|step| step.is_of_several());
    let wanted: BTreeSet<Name> = several.flat_map(Step::acquires).cloned().collect();
    tape.span(|tape| {
        for gone in wanted.iter().filter(|_| !tape.keeps()) {
            script.retain_mut(|step| stays_without(step, gone));
        }
    });
}

/// Takes a resource out of a step, and returns whether anything is left.
fn stays_without(step: &mut Step, gone: &Name) -> bool {
    match step {
        Step::Acquire { resource, also, .. } | Step::Release { resource, also } => {
            also.retain(|other| other != gone);
            if resource == gone && !also.is_empty() {
                *resource = also.remove(0);
            }
            resource != gone
        }
        _ => step.resources().all(|resource| resource != gone),
    }
}

/// Whether a fault still has an effect when a client is gone.
fn has_effect_without(fault: &mut Fault, gone: &Name) -> bool {
    if let FaultTime::After(Moment { client, .. }) | FaultTime::Before(Moment { client, .. }) =
        &fault.when
        && client == gone
    {
        return false;
    }
    if let Some(Nodes::Role(role)) = &fault.nodes
        && role.client == *gone
    {
        return false;
    }
    match &mut fault.clients {
        Some(Clients::Some(names)) => {
            names.retain(|name| name != gone);
            !names.is_empty()
        }
        _ => true,
    }
}

fn lock(tape: &mut Tape) -> Lock {
    let usual = Lock::default();
    let ttl = tape.kept(|tape| match tape.below(8) {
        0 => tape.time(1_000, 2_000),
        // Keys that are left behind show only after links had time to recover, and before the keys
        // expire.
        1 | 2 => tape.time(3_000, 6_000),
        _ => tape.time(200, 1_000),
    });
    let ttl = ttl.unwrap_or(usual.ttl);
    // The library requires TTL > node timeout + drift. At most a third of the TTL is left for
    // waiting.
    let most = millis(ttl).min(1_000);
    let timeout = tape.kept(|tape| of_millis(5 + tape.millis(0, 99) * most / 300));
    Lock {
        ttl,
        node_timeout: timeout.unwrap_or(usual.node_timeout),
        drift_ppm: tape
            .kept(|tape| tape.pick(&[500, 10_000, 50_000, 50_000]))
            .unwrap_or(usual.drift_ppm),
        drift: tape.kept(|tape| tape.time(2, 5)).unwrap_or(usual.drift),
        ..usual
    }
}

/// The shortest TTL that any client asks for.
fn shortest_ttl(scenario: &Scenario) -> Duration {
    let asked = scenario.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
    asked.chain([scenario.lock.ttl.0]).min().unwrap_or_default()
}

/// A TTL that fits the longest node timeout and drift.
fn ttl(tape: &mut Tape, lock: &Lock) -> Length {
    let least = 2 * millis(lock.node_timeout) + 20;
    of_millis(tape.millis(200, 1_200).max(least))
}

/// Locks with every defence, in every other scenario. In most sets of clients all have them, in
/// others some do not. Some clients take no fencing tokens among others that do.
///
/// It comes before the faults: those that a guard detects are inside the assumptions of clients
/// with a guard.
fn add_guards(tape: &mut Tape, scenario: &mut Scenario, inside: bool) {
    if tape.chance(1, 2) {
        let spare = if tape.usually(1, 2) { 0 } else { tape.millis(1, 500) };
        let longest = scenario.longest_ttl() + Duration::from_millis(spare);
        defend(&mut scenario.lock, longest);
        scenario.lock.initialized = !tape.chance(1, 8);
        if tape.chance(1, 4) {
            for process in some_processes(tape, scenario) {
                let own = match !inside && tape.chance(1, 3) {
                    // The masters carry markers for the other guards. This client gets nothing, and
                    // reports why.
                    true => OwnGuard::UpTo(tape.time(6_001, 7_000)),
                    false => OwnGuard::Whether(false),
                };
                change_clients(scenario, &process, |client| client.guard = Some(own));
            }
        }
    }
    if scenario.lock.fencing && tape.chance(1, 4) {
        for process in some_processes(tape, scenario) {
            change_clients(scenario, &process, without_tokens);
        }
    }
}

/// Some of the processes, or none.
fn some_processes(tape: &mut Tape, scenario: &Scenario) -> Vec<Name> {
    let all = scenario.processes().into_iter().cloned();
    all.filter(|_| tape.chance(1, 2)).collect()
}

fn change_clients(scenario: &mut Scenario, process: &Name, change: impl FnMut(&mut Client)) {
    let own = scenario.clients.iter_mut().filter(|client| client.process() == process);
    own.for_each(change);
}

fn without_tokens(client: &mut Client) {
    client.fencing = Some(false);
    client.script.retain(|step| !matches!(step, Step::Touch { under: Some(_), .. }));
}

/// Whether every client detects masters that may have forgotten.
fn all_see_amnesia(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| sees_amnesia(&client.options(&scenario.lock)))
}
