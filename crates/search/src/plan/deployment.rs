//! What happens to a deployment in its life: fair queues whose waiters vanish, proxies that recycle
//! connections, and masters that are demoted and promoted again. All of it is inside the
//! assumptions.

use super::{Rng, faults};
use crate::lengths::{millis, of_millis};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Client, ClientFault, Clients, Fault, FaultKind, FaultTime, Messages, NetworkFault, NodeFault,
    Nodes, Scenario, Step,
};

/// Makes the lock of every fourth scenario fair. In a half of these, waiters are added that
/// [vanish](faults), and waiters behind them. It comes before the faults, some of which strike at
/// the actions of these clients.
pub(super) fn queues(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    scenario.lock.fair = true;
    if rng.chance(1, 6) {
        let all: Vec<Name> = scenario.processes().into_iter().cloned().collect();
        let unfair = rng.pick(&all);
        let own = scenario.clients.iter_mut().filter(|client| *client.process() == unfair);
        own.for_each(|client| client.fair = Some(false));
    }
    if rng.chance(1, 2) {
        return;
    }
    let start = rng.below(500);
    for number in 1..=rng.within(1, 3) {
        let start = start + rng.below(200);
        scenario.clients.push(waiter(format!("v{number}"), start, 10_000, 0));
    }
    for number in 1..=rng.within(1, 2) {
        let start = start + rng.below(3_000);
        // Longer than the holder before them and the silent waiters take together.
        let work = rng.below(50);
        scenario.clients.push(waiter(format!("p{number}"), start, 14_000, work));
    }
}

/// A client that waits for the resource `L`, from and for so many milliseconds.
fn waiter(id: String, start: u64, wait: u64, work: u64) -> Client {
    let resource = Name::from("L");
    let acquire = Step::Acquire {
        resource: resource.clone(),
        wait: of_millis(wait),
        ttl: None,
        cancel: None,
        again: false,
        also: Vec::new(),
    };
    let work = (work > 0).then(|| Step::Work(of_millis(work)));
    let release = Step::Release { resource, also: Vec::new() };
    let script = std::iter::once(acquire).chain(work).chain([release]).collect();
    Client { start: of_millis(start), ..Client::new(id, script) }
}

/// Adds the faults.
pub(super) fn faults(rng: &mut Rng, scenario: &mut Scenario) {
    vanish(rng, scenario);
    if rng.chance(1, 6) {
        recycle(rng, scenario);
    }
    // A master that has a replica is not demoted.
    if rng.chance(1, 6) && !scenario.cluster.replicas {
        let nodes = faults::nodes(rng, scenario);
        let (when, lasts) =
            (faults::any_time(rng, scenario), Some(of_millis(rng.within(1, 3_000))));
        let demote = FaultKind::Node(NodeFault::Demote);
        scenario.faults.push(Fault::of_nodes(when, lasts, nodes, demote));
    }
}

/// The machine of some waiters vanishes, or its network does, without a word to the masters. So
/// their connections stay open, and they stay in the queues. It comes back, as otherwise the run
/// would last as long as a run may.
fn vanish(rng: &mut Rng, scenario: &mut Scenario) {
    let gone = scenario.clients.iter().filter(|client| client.id.starts_with('v'));
    let starts = gone.clone().map(|client| millis(client.start)).max();
    let Some(started) = starts else { return };
    let clients = Clients::Some(gone.map(|client| client.id.clone()).collect());
    let pauses = rng.chance(1, 2);
    let when = FaultTime::At(of_millis(started + rng.within(20, 1_500)));
    let lasts = Some(of_millis(rng.within(7_000, 14_000)));
    scenario.faults.push(if pauses {
        Fault::of_clients(when, lasts, clients, FaultKind::Client(ClientFault::Pause))
    } else {
        let cut = NetworkFault::Cut(Messages::default());
        Fault::of_links(when, lasts, (clients, Nodes::All), cut)
    });
}

/// A proxy before each master closes all connections at a greatest age. The masters take turns, so
/// that a quorum stays connected if the age is not very short.
fn recycle(rng: &mut Rng, scenario: &mut Scenario) {
    let age = if rng.chance(1, 4) { rng.within(300, 1_500) } else { rng.within(3_000, 6_000) };
    let masters = scenario.cluster.nodes;
    for round in 1..=3 {
        for (node, turn) in (1..=masters).zip(0..) {
            let at = age * round - age * turn / (u64::try_from(masters).unwrap_or(1) + 1);
            let nodes = Nodes::Some(vec![node]);
            let reset = NetworkFault::Reset(Messages::default());
            let when = FaultTime::At(of_millis(at));
            scenario.faults.push(Fault::of_links(when, None, (Clients::All, nodes), reset));
        }
    }
}
