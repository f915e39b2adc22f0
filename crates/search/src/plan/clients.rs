//! The clients, their resources, and the actions of each: usual clients, clients that want several
//! resources at once, crowds that wait for one resource, owners that acquire again, and clients
//! with fencing tokens. And what happens to a deployment in its life: fair queues whose waiters
//! vanish, proxies that recycle connections, and masters that are demoted and promoted again. All
//! of it is inside the assumptions.

use super::{Rng, faults, ttl};
use crate::lengths::{millis, of_millis};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Class, Client, ClientFault, Clients, Fault, FaultKind, FaultTime, Length, Lock,
    Messages, NetworkFault, NodeFault, Nodes, Rounds, Scenario, Side, Step,
};

/// The longest usual work of a client, in milliseconds.
const WORKS: u64 = 600;

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

/// The resources, each with the register that it protects.
const RESOURCES: [(&str, &str); 3] = [("L", "R"), ("M", "S"), ("N", "T")];

/// Adds clients that want several resources at once to every fourth scenario, beside those that
/// want one of them. Their sets overlap, and each client names its set in an order of its own.
///
/// It comes before the faults, some of which strike at their actions.
pub(super) fn add_several(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    let shared = rng.chance(1, 3);
    for number in 1..=rng.within(1, 3) {
        let script = section_of_several(rng, &scenario.lock);
        scenario.clients.push(client(rng, format!("s{number}").into(), script, shared));
    }
}

/// The steps from an acquire to its release, or to the release of each resource.
fn section_of_several(rng: &mut Rng, lock: &Lock) -> Vec<Step> {
    let mut rest = RESOURCES.to_vec();
    let count = rng.pick(&[2, 2, 3]);
    let some: Vec<(Name, Name)> = (0..count)
        .map(|_| rest.remove(rng.index(rest.len())))
        .map(|(resource, register)| (resource.into(), register.into()))
        .collect();
    let names: Vec<Name> = some.iter().map(|(resource, _)| resource.clone()).collect();
    let mut script = vec![acquire(rng, lock, &names)];
    // An update builds on a read under the same lease.
    let touched: Vec<_> = some.iter().filter(|_| rng.chance(1, 2)).collect();
    let touch = |way| touched.iter().map(move |(of, register)| touch(register, way, of));
    script.extend(touch(AccessKind::Read));
    let resource = rng.pick(&names);
    match rng.below(8) {
        0 => script.push(Step::Extend { resource, ttl: None }),
        1 => {
            let most = of_millis(rng.within(1, 2_000));
            script.push(Step::Keep { resource, most });
        }
        // Waits until the leases are over by themselves, and a little longer.
        2 => script.push(Step::Work(of_millis(millis(lock.ttl) + rng.within(1, 100)))),
        _ => {}
    }
    script.push(Step::Work(of_millis(rng.within(1, WORKS / 2))));
    script.extend(touch(AccessKind::Write));
    if rng.chance(3, 4) {
        script.extend(release(names));
    } else {
        for resource in names {
            script.extend(release(vec![resource]));
            script.push(Step::Work(of_millis(rng.within(1, 100))));
        }
        // A refusal of a register skips all steps up to one of these.
        stay(lock, &mut script);
    }
    script
}

fn release(mut names: Vec<Name>) -> Option<Step> {
    let also = names.split_off(1.min(names.len()));
    names.pop().map(|resource| Step::Release { resource, also })
}

/// The largest crowd: twice the number of leases that a process may have in a row, and one more.
const LARGEST_CROWD: u64 = 9;

/// Adds a crowd to every third scenario: several clients that wait for one resource, from one
/// process or a few. Some give up while they wait or are queued.
///
/// It comes before the faults, some of which strike at the crowd's actions.
pub(super) fn add_crowd(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 3) {
        return;
    }
    // How many of six have a process of their own.
    let alone = rng.pick(&[0, 0, 1, 1, 3, 6]);
    // All at the same time, or one after the other.
    let (start, apart) = (rng.below(500), rng.pick(&[0, 1, 20, 200]));
    let crowd: Vec<Client> = (1..=rng.within(2, LARGEST_CROWD))
        .map(|number| {
            let process = rng.maybe(6 - alone, 6, |_| "crowd".into());
            let start = start + rng.below(apart + 1);
            member(rng, &scenario.lock, (number, process, start))
        })
        .collect();
    scenario.clients.extend(crowd);
}

fn member(
    rng: &mut Rng,
    lock: &Lock,
    (number, process, start): (u64, Option<Name>, u64),
) -> Client {
    let (resource, register) = (Name::from("L"), Name::from("R"));
    let touch = |way| touch(&register, way, &resource);
    let mut script = vec![Step::Acquire {
        resource: resource.clone(),
        wait: of_millis(rng.within(50, 4_000)),
        ttl: rng.maybe(1, 8, |rng| ttl(rng, lock)),
        cancel: rng.maybe(1, 4, |rng| of_millis(rng.within(1, 600))),
        again: false,
        also: Vec::new(),
    }];
    if rng.chance(1, 2) {
        script.push(touch(AccessKind::Read));
        script.push(Step::Work(of_millis(rng.within(1, 30))));
        script.push(touch(AccessKind::Write));
    } else if rng.chance(1, 2) {
        script.push(Step::Work(of_millis(rng.within(1, 120))));
    }
    script.push(Step::Release { resource, also: Vec::new() });
    let start = of_millis(start);
    Client { process, start, ..Client::new(format!("q{number}"), script) }
}

/// Adds faults of the masters' push messages, to every fourth scenario.
pub(super) fn wake_up_faults(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    let nodes = if rng.chance(1, 2) { Nodes::All } else { faults::nodes(rng, scenario) };
    let clients = faults::clients(rng, scenario);
    let messages = Messages {
        what: Side::Reply,
        command: Class::WakeUp,
        index: rng.maybe(1, 3, |rng| rng.within(1, 10)),
        count: rng.maybe(1, 3, |rng| rng.within(1, 5)),
    };
    let fault = match rng.below(4) {
        0 => NetworkFault::Hold(messages),
        1 => NetworkFault::Reset(messages),
        _ => NetworkFault::Drop(messages),
    };
    let when = if rng.chance(1, 2) {
        FaultTime::At(of_millis(0))
    } else {
        faults::any_time(rng, scenario)
    };
    let lasts = rng.maybe(4, 5, |rng| of_millis(rng.within(1, 1_200)));
    scenario.faults.push(Fault::of_links(when, lasts, (clients, nodes), fault));
}

/// The longest TTL of a lock. No guard covers a shorter one.
const LONGEST: u64 = 6_000;

/// Lets most clients of every fourth scenario acquire again the resources that they hold: at once
/// or after a while, for longer or not. They release the handles before the end of the first one,
/// after it, or never.
///
/// It comes before the faults, some of which strike at a step.
pub(super) fn add_reentry(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    for client in &mut scenario.clients {
        if rng.chance(2, 3) {
            let script = std::mem::take(&mut client.script);
            let sections = sections(script).into_iter();
            let lock = &scenario.lock;
            client.script = sections.flat_map(|section| reentered(rng, lock, section)).collect();
        }
    }
}

/// The script in parts, each from an acquire to its release.
fn sections(script: Vec<Step>) -> Vec<Vec<Step>> {
    let mut sections: Vec<Vec<Step>> = Vec::new();
    for step in script {
        match sections.last_mut() {
            Some(section) if !matches!(step, Step::Acquire { .. }) => section.push(step),
            _ => sections.push(vec![step]),
        }
    }
    sections
}

fn reentered(rng: &mut Rng, lock: &Lock, mut section: Vec<Step>) -> Vec<Step> {
    // In a request for several resources each has an owner of its own, which no other client
    // shares.
    let resource = match section.first() {
        Some(Step::Acquire { resource, also, .. }) if also.is_empty() => resource.clone(),
        _ => return section,
    };
    for _ in 0..rng.within(1, 2) {
        enter(rng, lock, &resource, &mut section);
    }
    let handles = section.iter().flat_map(Step::acquires).count();
    if section.iter().flat_map(Step::releases).count() < handles {
        // Here, and not at the end: the steps between are skipped if the next section is refused.
        stay(lock, &mut section);
    }
    section
}

/// Adds one more handle, and its end.
fn enter(rng: &mut Rng, lock: &Lock, resource: &Name, section: &mut Vec<Step>) {
    let release = || Step::Release { resource: resource.clone(), also: Vec::new() };
    let mut at = 1 + rng.index(section.len() - 1);
    // A re-entry and the read behind it stay together.
    if matches!(section[at - 1], Step::Acquire { again: true, .. }) && is_read(&section[at]) {
        at += 1;
    }
    let mut steps = match rng.below(8) {
        // Waits until the lease is over by itself, and a little longer.
        0 => vec![Step::Work(of_millis(millis(lock.ttl) + rng.within(1, 100)))],
        1..4 => vec![work(rng)],
        _ => Vec::new(),
    };
    steps.push(acquire_again(rng, lock, resource));
    // It may be another lease. An update must not build on a read under the lease before.
    let read = section[..at].iter().find(|step| is_read(step)).cloned();
    steps.extend(read.clone());
    let behind = at + steps.len();
    section.splice(at..at, steps);
    // If the re-entry fails, its client skips all steps up to the release. The first read of the
    // section is not among them: later updates build on it.
    let first = match &read {
        None => section[behind..].iter().position(is_read),
        Some(_) => None,
    };
    match rng.below(6) {
        // The handle is never released.
        0 => {}
        // It outlives the first handle.
        1 | 2 if first.is_none() => {
            section.push(work(rng));
            section.extend(
                read.and_then(written)
                    .map(|register| touch(&register, AccessKind::Write, resource)),
            );
            section.push(release());
        }
        _ => {
            let most = first.map_or(section.len() - behind, |first| first + 1);
            let place = behind + rng.index(most);
            section.insert(place, release());
        }
    }
}

fn work(rng: &mut Rng) -> Step {
    Step::Work(of_millis(rng.within(1, WORKS)))
}

fn is_read(step: &Step) -> bool {
    matches!(step, Step::Touch { way: AccessKind::Read, .. })
}

fn written(step: Step) -> Option<Name> {
    match step {
        Step::Touch { register, .. } => Some(register),
        _ => None,
    }
}

fn acquire_again(rng: &mut Rng, lock: &Lock, resource: &Name) -> Step {
    let longer = |rng: &mut Rng| (millis(lock.ttl) + rng.within(1, 1_000)).min(LONGEST);
    Step::Acquire {
        resource: resource.clone(),
        also: Vec::new(),
        // If the lease is over, it asks like any other client.
        wait: of_millis(if rng.chance(1, 2) { 0 } else { rng.within(1, 1_500) }),
        ttl: match rng.below(6) {
            0 => Some(ttl(rng, lock)),
            1 | 2 => Some(of_millis(longer(rng))),
            _ => None,
        },
        cancel: rng.maybe(1, 8, |rng| of_millis(rng.within(1, 60))),
        again: true,
    }
}

/// Leases with fencing tokens, and registers that check them: in every other scenario, beside the
/// registers that accept every write.
pub(super) fn add_fencing(rng: &mut Rng, scenario: &mut Scenario) {
    if rng.chance(1, 2) {
        return;
    }
    scenario.lock.fencing = true;
    for client in &mut scenario.clients {
        let script = std::mem::take(&mut client.script);
        client.script = fenced(rng, script);
    }
}

/// The script, with a section under the token of each lease: the client presents it, reads, and
/// writes at the end or somewhere before it. Some clients take the token and touch no register.
fn fenced(rng: &mut Rng, script: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::with_capacity(script.len() + 3);
    let (mut leases, mut writes): (Vec<Name>, bool) = (Vec::new(), false);
    for step in script {
        match &step {
            Step::Acquire { .. } => {
                leases = step.acquires().cloned().collect();
                if !rng.chance(5, 6) {
                    leases.clear();
                }
                writes = !leases.is_empty();
                all.push(step);
                let both = |lease| {
                    [AccessKind::Present, AccessKind::Read].map(|way| touch_fenced(lease, way))
                };
                all.extend(leases.iter().flat_map(both));
                continue;
            }
            Step::Release { .. } => {
                let leases = std::mem::take(&mut leases);
                let written = leases.iter().filter(|_| writes);
                all.extend(written.map(|lease| touch_fenced(lease, AccessKind::Write)));
            }
            // Early, and then perhaps no second time.
            Step::Work(_) | Step::Extend { .. } if rng.chance(1, 3) => {
                if !leases.is_empty() {
                    all.extend(leases.iter().map(|lease| touch_fenced(lease, AccessKind::Write)));
                    writes = rng.chance(1, 2);
                }
            }
            _ => {}
        }
        all.push(step);
    }
    all
}

/// The register of a resource that checks its tokens.
fn touch_fenced(resource: &Name, way: AccessKind) -> Step {
    let register = match resource.as_str() {
        "L" => "F",
        "M" => "G",
        _ => "H",
    };
    Step::Touch { register: register.into(), way, under: Some(resource.clone()), held: None }
}

/// Makes the lock of every fourth scenario fair. In a half of these, waiters are added that
/// [vanish](deployment_faults), and waiters behind them. It comes before the faults, some of which
/// strike at the actions of these clients.
pub(super) fn add_queues(rng: &mut Rng, scenario: &mut Scenario) {
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
pub(super) fn deployment_faults(rng: &mut Rng, scenario: &mut Scenario) {
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
