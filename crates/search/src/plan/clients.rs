//! The clients, their resources, and the actions of each.

use super::rng::Rng;
use super::ttl;
use crate::lengths::{millis, of_millis};
use redquorum_scenario::name::Name;
use redquorum_scenario::{AccessKind, Client, Length, Lock, Nodes, Rounds, Scenario, Step};

/// The longest usual work of a client, in milliseconds.
pub(super) const WORKS: u64 = 600;

pub(super) fn draw(rng: &mut Rng, lock: &Lock) -> Vec<Client> {
    let count = rng.pick(&[1, 2, 2, 2, 3, 3, 3, 4]);
    // Few processes have several clients.
    let shared = rng.chance(1, 3);
    let person = |number: usize| {
        let mut script = section(rng, lock);
        if rng.chance(1, 3) {
            script.extend(section(rng, lock));
        }
        client(rng, format!("c{number}").into(), script, shared)
    };
    (1..=count).map(person).collect()
}

/// A client with a script: when it begins, how often it repeats, and in which process it runs.
pub(super) fn client(rng: &mut Rng, id: Name, script: Vec<Step>, shared: bool) -> Client {
    let rounds = rng.maybe(1, 3, |rng| match rng.chance(1, 2) {
        true => Rounds::Times(u32::try_from(rng.within(2, 4)).unwrap_or(2)),
        false => Rounds::For(of_millis(rng.within(100, 1_500))),
    });
    // A pause between two rounds. Without it a refused client would ask thousands of times.
    let think = if rounds.is_some() { rng.within(5, 300) } else { 0 };
    Client {
        process: rng.maybe(u64::from(shared), 2, |_| "shared".into()),
        start: of_millis(match rng.below(6) {
            0 | 1 => 0,
            2 => rng.below(4_000),
            _ => rng.below(600),
        }),
        rounds,
        think: of_millis(think),
        ..Client::new(id, script)
    }
}

/// The steps from an acquire to its release.
fn section(rng: &mut Rng, lock: &Lock) -> Vec<Step> {
    let (resource, register) = if rng.chance(1, 6) { ("M", "S") } else { ("L", "R") };
    let (resource, register) = (Name::from(resource), Name::from(register));
    let mut script = vec![acquire(rng, lock, std::slice::from_ref(&resource))];
    let (mut has_read, mut keeps) = (false, false);
    let touch = |way| touch(&register, way, &resource);
    for _ in 0..rng.below(6) {
        match rng.below(10) {
            0..3 => {
                // An update builds on a read under the same lease.
                let way = rng.pick(&[AccessKind::Read, AccessKind::Write]);
                if way == AccessKind::Write && !has_read {
                    script.push(touch(AccessKind::Read));
                }
                has_read = true;
                script.push(touch(way));
            }
            3..6 => script.push(Step::Work(of_millis(rng.within(1, WORKS)))),
            // Waits until the lease is over by itself, and a little longer.
            6 => {
                let longer = rng.within(1, 100);
                script.push(Step::Work(of_millis(millis(lock.ttl) + longer)));
                if has_read {
                    script.push(touch(AccessKind::Write));
                }
            }
            7..9 if !keeps => {
                let ttl = rng.maybe(1, 3, |rng| ttl(rng, lock));
                script.push(Step::Extend { resource: resource.clone(), ttl });
            }
            // An extension beside a watchdog may fail although a quorum grants it: a master whose
            // grant is still under way when the first round is sent does not vote in that round.
            7..9 => {}
            _ => {
                keeps = true;
                let most = of_millis(rng.within(1, 2_000));
                script.push(Step::Keep { resource: resource.clone(), most });
            }
        }
    }
    script.push(Step::Release { resource, also: Vec::new() });
    script
}

/// The register of a resource. Before a write the client checks whether it holds that resource.
pub(super) fn touch(register: &Name, way: AccessKind, resource: &Name) -> Step {
    let held = (way == AccessKind::Write).then(|| resource.clone());
    Step::Touch { register: register.clone(), way, under: None, held }
}

/// A client that may leave a lease behind stays until it is over. Otherwise the run might end
/// earlier, and heal masters that must stay down until then.
pub(super) fn stay(lock: &Lock, script: &mut Vec<Step>) {
    let keeps = script.iter().map(|step| match step {
        Step::Keep { most, .. } => millis(*most),
        _ => 0,
    });
    let ttls = script.iter().filter_map(Step::ttl).map(|ttl| millis(Length(ttl)));
    let longest = ttls.chain([millis(lock.ttl)]).max().unwrap_or_default();
    let kept = keeps.max().unwrap_or_default();
    script.push(Step::Work(of_millis(longest + kept)));
}

/// One resource, or several at once.
pub(super) fn acquire(rng: &mut Rng, lock: &Lock, resources: &[Name]) -> Step {
    let wait = if rng.chance(1, 4) { 0 } else { rng.within(1, 2_500) };
    // The client cancels while the replies are under way, or while it waits.
    let cancel = rng.maybe(1, 7, |rng| match rng.chance(1, 2) {
        true => rng.within(1, millis(lock.node_timeout)),
        false => rng.within(1, 300),
    });
    Step::Acquire {
        resource: resources[0].clone(),
        also: resources[1..].to_vec(),
        wait: of_millis(wait),
        ttl: rng.maybe(1, 6, |rng| ttl(rng, lock)),
        cancel: cancel.map(of_millis),
        again: false,
    }
}

/// In every eighth scenario, each process knows some of the masters, in some order, and perhaps one
/// of them twice. It comes after the faults, whose targets must be known.
pub(super) fn know_other_masters(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 8) {
        return;
    }
    let all = scenario.cluster.nodes;
    let processes: Vec<_> = scenario.processes().into_iter().cloned().collect();
    for process in processes {
        if rng.chance(1, 3) {
            continue;
        }
        let mut rest: Vec<usize> = (1..=all).collect();
        let many = 1 + rng.index(all);
        let mut list: Vec<usize> = (0..many).map(|_| rest.remove(rng.index(rest.len()))).collect();
        if rng.chance(1, 4) {
            list.push(rng.pick(&list));
        }
        let of_process = scenario.clients.iter_mut().filter(|client| *client.process() == process);
        of_process.for_each(|client| client.nodes = Some(list.clone()));
    }
    // A part names masters that its client knows.
    let known: Vec<_> = scenario.clients.iter().map(|client| scenario.list(client)).collect();
    for fault in &mut scenario.faults {
        let Some(Nodes::Role(role)) = &mut fault.nodes else { continue };
        let own = scenario.clients.iter().position(|client| client.id == role.client);
        let most = own.map_or(all, |own| known[own].masters().len());
        role.first = role.first.map(|first| first.min(most));
    }
}
