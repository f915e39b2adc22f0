//! The clients, their resources, and the actions of each: usual clients, clients that want several
//! resources at once, crowds that wait for one resource, owners that acquire again, and clients
//! with fencing tokens. And what happens to a deployment in its life: fair queues whose waiters
//! vanish, proxies that recycle connections, and masters that are demoted and promoted again. All
//! of it is inside the assumptions.

use super::{faults, ttl};
use crate::lengths::{millis, of_millis};
use crate::tape::Tape;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Class, Client, ClientFault, Clients, Fault, FaultKind, FaultTime, Length, Lock,
    Messages, MoveStep, NetworkFault, NodeFault, Nodes, Rounds, Scenario, Side, Step,
};

/// The longest usual work of a client, in milliseconds.
const WORKS: u64 = 600;

pub(super) fn draw(tape: &mut Tape, lock: &Lock) -> Vec<Client> {
    let count = tape.one_of(&[1, 2, 2, 2, 3, 3, 3, 4]);
    // Few processes have several clients.
    let shared = tape.chance(1, 3);
    let person = |number: u64| {
        tape.span(|tape| {
            let mut script = tape.span(|tape| section(tape, lock));
            script.extend(tape.maybe(1, 3, |tape| section(tape, lock)).into_iter().flatten());
            client(tape, format!("c{number}").into(), script, shared)
        })
    };
    (1..=count).map(person).collect()
}

/// A client with a script: when it begins, how often it repeats, and in which process it runs.
pub(super) fn client(tape: &mut Tape, id: Name, script: Vec<Step>, shared: bool) -> Client {
    let rounds = tape.maybe(1, 3, |tape| match tape.usually(1, 2) {
        true => Rounds::Times(2 + tape.below_or(3, 18)),
        false => Rounds::For(tape.time(100, 1_500)),
    });
    // A pause between two rounds. Without it a refused client would ask thousands of times.
    let think = rounds.is_some().then(|| tape.time(5, 300));
    Client {
        process: tape.maybe(u64::from(shared), 2, |_| "shared".into()),
        start: tape.span(|tape| match tape.below(6) {
            0 | 1 => Length::default(),
            2 => tape.time(0, 3_999),
            _ => tape.time(0, 599),
        }),
        rounds,
        think: think.unwrap_or_default(),
        ..Client::new(id, script)
    }
}

/// The steps from an acquire to its release.
fn section(tape: &mut Tape, lock: &Lock) -> Vec<Step> {
    let (resource, register) = if tape.chance(1, 6) { ("M", "S") } else { ("L", "R") };
    let (resource, register) = (Name::from(resource), Name::from(register));
    let mut script = vec![acquire(tape, lock, std::slice::from_ref(&resource))];
    let (mut has_read, mut keeps) = (false, false);
    let touch = |way| touch(&register, way, &resource);
    for _ in 0..tape.below(6) {
        tape.span(|tape| match tape.below(10) {
            0..3 => {
                // An update builds on a read under the same lease.
                let way = tape.pick(&[AccessKind::Read, AccessKind::Write]);
                if way == AccessKind::Write && !has_read {
                    script.push(touch(AccessKind::Read));
                }
                has_read = true;
                script.push(touch(way));
            }
            3..6 => script.push(work(tape)),
            // Waits until the lease is over by itself, and a little longer.
            6 => {
                script.push(outlast(tape, lock));
                if has_read {
                    script.push(touch(AccessKind::Write));
                }
            }
            7..9 if !keeps => {
                let ttl = tape.maybe(1, 3, |tape| ttl(tape, lock));
                script.push(Step::Extend { resource: resource.clone(), ttl });
            }
            // An extension beside a watchdog may fail although a quorum grants it: a master whose
            // grant is still under way when the first round is sent does not vote in that round.
            7..9 => {}
            _ => {
                keeps = true;
                script.push(Step::Keep { resource: resource.clone(), most: tape.time(1, 2_000) });
            }
        });
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
pub(super) fn acquire(tape: &mut Tape, lock: &Lock, resources: &[Name]) -> Step {
    let wait = tape.span(|tape| if tape.usually(1, 4) { 0 } else { tape.millis(1, 2_500) });
    // The client cancels while the replies are under way, or while it waits.
    let cancel = tape.maybe(1, 7, |tape| match tape.chance(1, 2) {
        true => tape.time(1, millis(lock.node_timeout)),
        false => tape.time(1, 300),
    });
    Step::Acquire {
        resource: resources[0].clone(),
        also: resources[1..].to_vec(),
        wait: of_millis(wait),
        ttl: tape.maybe(1, 6, |tape| ttl(tape, lock)),
        cancel,
        again: false,
        permits: None,
        shared: false,
    }
}

/// In every eighth scenario, each process knows some of the masters, in some order, and perhaps one
/// of them twice. It comes after the faults, whose targets must be known.
pub(super) fn know_other_masters(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 8) {
        return;
    }
    let all = scenario.cluster.nodes;
    let processes: Vec<_> = scenario.processes().into_iter().cloned().collect();
    for process in processes {
        let Some(list) = tape.span(|tape| list_of_masters(tape, all)) else { continue };
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

/// In every eighth scenario whose clients have one guard, the lock moves from some masters to
/// others. Each process has the old ones, both or the new ones, whatever the step: markers refuse
/// those of a wrong one. Inside the assumptions, the steps come in order, and the longest lease
/// apart. It comes after the faults: what happens to masters may keep a step from them.
pub(super) fn add_moves(tape: &mut Tape, scenario: &mut Scenario, inside: bool) {
    let (all, Some(guard)) = (scenario.cluster.nodes, scenario.lock.protocol_guard()) else {
        return;
    };
    let own = |client: &Client| client.guard.is_some() || client.nodes.is_some();
    let hits_masters = |fault: &Fault| {
        let is_role = matches!(&fault.nodes, Some(Nodes::Role(_)));
        let is_of_masters = !matches!(fault.kind, FaultKind::Net(_) | FaultKind::Client(_));
        is_role || inside && is_of_masters
    };
    if !tape.chance(1, 8)
        || all < 2
        || scenario.clients.iter().any(own)
        || scenario.faults.iter().any(hits_masters)
    {
        return;
    }
    let old = 1 + tape.index(all - 1);
    let first_new = 2 + tape.index(old);
    let (from, to): (Vec<usize>, Vec<usize>) = ((1..=old).collect(), (first_new..=all).collect());
    let processes: Vec<_> = scenario.processes().into_iter().cloned().collect();
    for (number, process) in processes.into_iter().enumerate() {
        // One at least moves.
        let kind = if number == 0 { 1 } else { tape.below(3) };
        let of_process = scenario.clients.iter_mut().filter(|client| *client.process() == process);
        of_process.for_each(|client| {
            client.nodes = Some(if kind == 2 { to.clone() } else { from.clone() });
            client.moving_to = (kind == 1).then(|| to.clone());
        });
    }
    let window = u64::try_from(guard.window().as_millis()).unwrap_or(u64::MAX) + 50;
    let mut at = 0;
    for step in 1..=4 {
        at += tape.millis(1, 800) + if inside && step == 3 { window } else { 0 };
        let nodes = if inside { Nodes::All } else { faults::nodes(tape, scenario) };
        let kind = FaultKind::Node(NodeFault::Admit { step: MoveStep(step) });
        let fault = Fault::of_nodes(FaultTime::At(of_millis(at)), None, nodes, kind);
        scenario.faults.push(fault);
    }
}

/// Some of the masters in some order, and perhaps one of them twice. None: all of them.
fn list_of_masters(tape: &mut Tape, all: usize) -> Option<Vec<usize>> {
    if tape.usually(1, 3) {
        return None;
    }
    let mut rest: Vec<usize> = (1..=all).collect();
    let many = 1 + tape.index(all);
    let mut list: Vec<usize> = (0..many)
        .filter_map(|_| {
            let stays = tape.keeps();
            let number = rest.remove(tape.index(rest.len()));
            stays.then_some(number)
        })
        .collect();
    if tape.chance(1, 4) {
        let twice = tape.index(list.len());
        list.extend(list.get(twice).copied());
    }
    (!list.is_empty()).then_some(list)
}

/// The resources, each with the register that it protects.
const RESOURCES: [(&str, &str); 3] = [("L", "R"), ("M", "S"), ("N", "T")];

/// Adds clients that want several resources at once to every fourth scenario, beside those that
/// want one of them. Their sets overlap, and each client names its set in an order of its own.
///
/// It comes before the faults, some of which strike at their actions.
pub(super) fn add_several(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 4) {
        return;
    }
    let shared = tape.chance(1, 3);
    for number in 1..=tape.within(1, 3) {
        scenario.clients.push(tape.span(|tape| {
            let script = section_of_several(tape, &scenario.lock);
            client(tape, format!("s{number}").into(), script, shared)
        }));
    }
}

/// The steps from an acquire to its release, or to the release of each resource.
fn section_of_several(tape: &mut Tape, lock: &Lock) -> Vec<Step> {
    let mut rest = RESOURCES.to_vec();
    let count = tape.pick(&[2, 2, 3]);
    let some: Vec<(Name, Name)> = (0..count)
        .map(|_| rest.remove(tape.index(rest.len())))
        .map(|(resource, register)| (resource.into(), register.into()))
        .collect();
    let names: Vec<Name> = some.iter().map(|(resource, _)| resource.clone()).collect();
    let mut script = vec![acquire(tape, lock, &names)];
    // An update builds on a read under the same lease.
    let touched: Vec<_> = some.iter().filter(|_| tape.chance(1, 2)).collect();
    let touch = |way| touched.iter().map(move |(of, register)| touch(register, way, of));
    script.extend(touch(AccessKind::Read));
    let resource = tape.pick(&names);
    match tape.below(8) {
        0 => script.push(Step::Extend { resource, ttl: None }),
        1 => {
            let most = tape.time(1, 2_000);
            script.push(Step::Keep { resource, most });
        }
        // Waits until the leases are over by themselves, and a little longer.
        2 => script.push(outlast(tape, lock)),
        _ => {}
    }
    script.push(Step::Work(tape.time(1, WORKS / 2)));
    script.extend(touch(AccessKind::Write));
    if tape.usually(3, 4) {
        script.extend(release(names));
    } else {
        for resource in names {
            script.extend(release(vec![resource]));
            script.push(Step::Work(tape.time(1, 100)));
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
pub(super) fn add_crowd(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 3) {
        return;
    }
    // How many of six have a process of their own.
    let alone = tape.pick(&[0, 0, 1, 1, 3, 6]);
    // All at the same time, or one after the other.
    let (start, apart) = (tape.millis(0, 499), tape.pick(&[0, 1, 20, 200]));
    let crowd: Vec<Client> = (1..=tape.within(2, LARGEST_CROWD))
        .map(|number| {
            tape.span(|tape| {
                let process = tape.maybe(6 - alone, 6, |_| "crowd".into());
                let later = tape.kept(|tape| start + tape.millis(0, apart));
                let start = later.unwrap_or_default();
                member(tape, &scenario.lock, (number, process, start))
            })
        })
        .collect();
    scenario.clients.extend(crowd);
}

fn member(
    tape: &mut Tape,
    lock: &Lock,
    (number, process, start): (u64, Option<Name>, u64),
) -> Client {
    let (resource, register) = (Name::from("L"), Name::from("R"));
    let touch = |way| touch(&register, way, &resource);
    let mut script = vec![Step::Acquire {
        resource: resource.clone(),
        wait: tape.kept(|tape| tape.time(50, 4_000)).unwrap_or_default(),
        ttl: tape.maybe(1, 8, |tape| ttl(tape, lock)),
        cancel: tape.maybe(1, 4, |tape| tape.time(1, 600)),
        again: false,
        permits: None,
        shared: false,
        also: Vec::new(),
    }];
    if tape.chance(1, 2) {
        script.push(touch(AccessKind::Read));
        script.push(Step::Work(tape.time(1, 30)));
        script.push(touch(AccessKind::Write));
    } else if tape.chance(1, 2) {
        script.push(Step::Work(tape.time(1, 120)));
    }
    script.push(Step::Release { resource, also: Vec::new() });
    let start = of_millis(start);
    Client { process, start, ..Client::new(format!("q{number}"), script) }
}

/// Adds faults of the masters' push messages, to every fourth scenario.
pub(super) fn wake_up_faults(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 4) {
        return;
    }
    let nodes = if tape.chance(1, 2) { Nodes::All } else { faults::nodes(tape, scenario) };
    let clients = faults::clients(tape, scenario);
    let messages = Messages {
        what: Side::Reply,
        command: Class::WakeUp,
        index: tape.maybe(1, 3, |tape| tape.within(1, 10)),
        count: tape.maybe(1, 3, |tape| tape.within(1, 5)),
    };
    let fault = match tape.below(4) {
        0 => NetworkFault::Hold(messages),
        1 => NetworkFault::Reset(messages),
        _ => NetworkFault::Drop(messages),
    };
    let when = if tape.usually(1, 2) {
        FaultTime::At(of_millis(0))
    } else {
        faults::any_time(tape, scenario)
    };
    let lasts = tape.maybe(4, 5, |tape| tape.time(1, 1_200));
    scenario.faults.push(Fault::of_links(when, lasts, (clients, nodes), fault));
}

/// The longest TTL of a lock. No guard covers a shorter one.
const LONGEST: u64 = 6_000;

/// Lets most clients of every fourth scenario acquire again the resources that they hold: at once
/// or after a while, for longer or not. They release the handles before the end of the first one,
/// after it, or never.
///
/// It comes before the faults, some of which strike at a step.
pub(super) fn add_reentry(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 4) {
        return;
    }
    for client in &mut scenario.clients {
        let lock = &scenario.lock;
        tape.span(|tape| {
            if tape.chance(2, 3) {
                let sections = sections(std::mem::take(&mut client.script)).into_iter();
                let reentered = sections.flat_map(|section| reentered(tape, lock, section));
                client.script = reentered.collect();
            }
        });
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

fn reentered(tape: &mut Tape, lock: &Lock, mut section: Vec<Step>) -> Vec<Step> {
    // In a request for several resources each has an owner of its own, which no other client
    // shares.
    let resource = match section.first() {
        Some(Step::Acquire { resource, also, .. }) if also.is_empty() => resource.clone(),
        _ => return section,
    };
    for _ in 0..tape.within(1, 2) {
        tape.span(|tape| enter(tape, lock, &resource, &mut section));
    }
    let handles = section.iter().flat_map(Step::acquires).count();
    if section.iter().flat_map(Step::releases).count() < handles {
        // Here, and not at the end: the steps between are skipped if the next section is refused.
        stay(lock, &mut section);
    }
    section
}

/// Adds one more handle, and its end.
fn enter(tape: &mut Tape, lock: &Lock, resource: &Name, section: &mut Vec<Step>) {
    let release = || Step::Release { resource: resource.clone(), also: Vec::new() };
    let mut at = 1 + tape.index(section.len() - 1);
    // A re-entry and the read behind it stay together.
    if matches!(section[at - 1], Step::Acquire { again: true, .. }) && is_read(&section[at]) {
        at += 1;
    }
    let mut steps = match tape.below(8) {
        // Waits until the lease is over by itself, and a little longer.
        0 => vec![outlast(tape, lock)],
        1..4 => vec![work(tape)],
        _ => Vec::new(),
    };
    steps.push(acquire_again(tape, lock, resource));
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
    match tape.below(6) {
        // The handle is never released.
        0 => {}
        // It outlives the first handle.
        1 | 2 if first.is_none() => {
            section.push(work(tape));
            section.extend(
                read.and_then(written)
                    .map(|register| touch(&register, AccessKind::Write, resource)),
            );
            section.push(release());
        }
        _ => {
            let most = first.map_or(section.len() - behind, |first| first + 1);
            let place = behind + tape.index(most);
            section.insert(place, release());
        }
    }
}

fn work(tape: &mut Tape) -> Step {
    Step::Work(tape.time(1, WORKS))
}

/// Waits until a lease is over by itself, and a little longer.
fn outlast(tape: &mut Tape, lock: &Lock) -> Step {
    Step::Work(of_millis(millis(lock.ttl) + tape.millis(1, 100)))
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

fn acquire_again(tape: &mut Tape, lock: &Lock, resource: &Name) -> Step {
    let longer = |tape: &mut Tape| (millis(lock.ttl) + tape.millis(1, 1_000)).min(LONGEST);
    Step::Acquire {
        resource: resource.clone(),
        also: Vec::new(),
        // If the lease is over, it asks like any other client.
        wait: of_millis(if tape.usually(1, 2) { 0 } else { tape.millis(1, 1_500) }),
        ttl: match tape.below(6) {
            0 => Some(ttl(tape, lock)),
            1 | 2 => Some(of_millis(longer(tape))),
            _ => None,
        },
        cancel: tape.maybe(1, 8, |tape| tape.time(1, 60)),
        again: tape.keeps(),
        permits: None,
        shared: false,
    }
}

/// Leases with fencing tokens, and registers that check them: in every other scenario, beside the
/// registers that accept every write.
pub(super) fn add_fencing(tape: &mut Tape, scenario: &mut Scenario) {
    if tape.usually(1, 2) {
        return;
    }
    scenario.lock.fencing = true;
    for client in &mut scenario.clients {
        let script = std::mem::take(&mut client.script);
        client.script = tape.span(|tape| fenced(tape, script));
    }
}

/// In every third scenario without fencing tokens, clients that write nothing ask for shared
/// leases. Those that write are the writers beside them.
pub(super) fn add_sharing(tape: &mut Tape, scenario: &mut Scenario) {
    if scenario.lock.fencing || !tape.chance(1, 3) {
        return;
    }
    let writes = |step: &Step| matches!(step, Step::Touch { way, .. } if *way != AccessKind::Read);
    for client in &mut scenario.clients {
        if tape.chance(2, 3) && !client.script.iter().any(writes) {
            for step in &mut client.script {
                if let Step::Acquire { shared, .. } = step {
                    *shared = true;
                }
            }
        }
    }
}

/// In every sixth scenario, clients that want permits of a semaphore: more of them than permits.
pub(super) fn add_permits(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 6) {
        return;
    }
    let permits = 1 + u32::try_from(tape.below(3)).unwrap_or(0);
    let (start, more) = (tape.millis(0, 499), tape.within(1, 3));
    for number in 1..=u64::from(permits) + more {
        let client = tape.span(|tape| {
            let resource = Name::from("S");
            let mut script = vec![acquire(tape, &scenario.lock, std::slice::from_ref(&resource))];
            if let Step::Acquire { permits: of, .. } = &mut script[0] {
                *of = Some(permits);
            }
            if tape.chance(1, 4) {
                let most = tape.time(200, 1_500);
                script.push(Step::Keep { resource: resource.clone(), most });
            }
            script.push(Step::Work(tape.time(1, 600)));
            script.push(Step::Release { resource, also: Vec::new() });
            let start = of_millis(start + tape.millis(0, 50));
            Client { start, ..Client::new(format!("k{number}"), script) }
        });
        scenario.clients.push(client);
    }
}

/// The script, with a section under the token of each lease: the client presents it, reads, and
/// writes at the end or somewhere before it. Some clients take the token and touch no register.
fn fenced(tape: &mut Tape, script: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::with_capacity(script.len() + 3);
    let (mut leases, mut writes): (Vec<Name>, bool) = (Vec::new(), false);
    for step in script {
        match &step {
            Step::Acquire { .. } => {
                leases = step.acquires().cloned().collect();
                if !tape.chance(5, 6) {
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
            Step::Work(_) | Step::Extend { .. } if tape.chance(1, 3) => {
                if !leases.is_empty() {
                    all.extend(leases.iter().map(|lease| touch_fenced(lease, AccessKind::Write)));
                    writes = tape.chance(1, 2);
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
pub(super) fn add_queues(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 4) {
        return;
    }
    scenario.lock.fair = true;
    if tape.chance(1, 6) {
        let all: Vec<Name> = scenario.processes().into_iter().cloned().collect();
        let unfair = tape.pick(&all);
        let own = scenario.clients.iter_mut().filter(|client| *client.process() == unfair);
        own.for_each(|client| client.fair = Some(false));
    }
    if tape.usually(1, 2) {
        return;
    }
    let start = tape.millis(0, 499);
    let at = |tape: &mut Tape, later: u64| {
        tape.kept(|tape| start + tape.millis(0, later - 1)).unwrap_or_default()
    };
    for number in 1..=tape.within(1, 3) {
        let start = at(tape, 200);
        let wait = tape.kept(|_| 10_000).unwrap_or_default();
        scenario.clients.push(waiter(format!("v{number}"), start, wait, 0));
    }
    for number in 1..=tape.within(1, 2) {
        let start = at(tape, 3_000);
        // Longer than the holder before them and the silent waiters take together.
        let wait = tape.kept(|_| 14_000).unwrap_or_default();
        let work = tape.millis(0, 49);
        scenario.clients.push(waiter(format!("p{number}"), start, wait, work));
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
        permits: None,
        shared: false,
        also: Vec::new(),
    };
    let work = (work > 0).then(|| Step::Work(of_millis(work)));
    let release = Step::Release { resource, also: Vec::new() };
    let script = std::iter::once(acquire).chain(work).chain([release]).collect();
    Client { start: of_millis(start), ..Client::new(id, script) }
}

/// Adds the faults.
pub(super) fn deployment_faults(tape: &mut Tape, scenario: &mut Scenario) {
    tape.span(|tape| vanish(tape, scenario));
    tape.maybe(1, 6, |tape| recycle(tape, scenario));
    // A master that has a replica is not demoted.
    if tape.chance(1, 6) && !scenario.cluster.replicas {
        let nodes = faults::nodes(tape, scenario);
        let (when, lasts) = (faults::any_time(tape, scenario), Some(tape.time(1, 3_000)));
        let demote = FaultKind::Node(NodeFault::Demote);
        scenario.faults.push(Fault::of_nodes(when, lasts, nodes, demote));
    }
}

/// The machine of some waiters vanishes, or its network does, without a word to the masters. So
/// their connections stay open, and they stay in the queues. It comes back, as otherwise the run
/// would last as long as a run may.
fn vanish(tape: &mut Tape, scenario: &mut Scenario) {
    let gone = scenario.clients.iter().filter(|client| client.id.starts_with('v'));
    let starts = gone.clone().map(|client| millis(client.start)).max();
    let Some(started) = starts else { return };
    let clients = Clients::Some(gone.map(|client| client.id.clone()).collect());
    let pauses = tape.chance(1, 2);
    let when = FaultTime::At(of_millis(started + tape.millis(20, 1_500)));
    let lasts = Some(tape.time(7_000, 14_000));
    scenario.faults.push(if pauses {
        Fault::of_clients(when, lasts, clients, FaultKind::Client(ClientFault::Pause))
    } else {
        let cut = NetworkFault::Cut(Messages::default());
        Fault::of_links(when, lasts, (clients, Nodes::All), cut)
    });
}

/// A proxy before each master closes all connections at a greatest age. The masters take turns, so
/// that a quorum stays connected if the age is not very short.
fn recycle(tape: &mut Tape, scenario: &mut Scenario) {
    let age = if tape.chance(1, 4) { tape.millis(300, 1_500) } else { tape.millis(3_000, 6_000) };
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
