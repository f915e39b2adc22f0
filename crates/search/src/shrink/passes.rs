//! The passes, in three groups: those that leave something out ([`to_less`]), those that rename and
//! round ([`to_moments`]), and those that widen times ([`to_steady`]).

use super::{Trial, roughness};
use crate::defend;
use crate::lengths::{self, Use, of_millis};
use redquorum_checker::prepare;
use redquorum_scenario::client_protocol::{Op, Request};
use redquorum_scenario::history::{Event, History, Ns};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    AccessKind, Class, Client, Clients, EventKind, Fault, FaultKind, FaultTime, FieldMut, Length,
    Lock, Messages, Moment, NetworkFault, NodeFault, Nodes, Persistence, Property, Role, Rounds,
    Scenario, Side, Step, Touches, makes_sense,
};

/// Leaves out faults, clients, steps, masters, options, choices.
pub(super) fn to_less(trial: &mut Trial<'_>) {
    faults(trial);
    clients(trial);
    lists(trial);
    masters(trial);
    loops(trial);
    steps(trial);
    resources(trial);
    options(trial);
    each_fault(trial);
    faults(trial);
}

/// Delta debugging: leaves out halves, then quarters, and finally each fault alone.
fn faults(trial: &mut Trial<'_>) {
    let mut size = trial.scenario().faults.len();
    while size > 0 {
        let mut from = 0;
        while from < trial.scenario().faults.len() {
            let to = (from + size).min(trial.scenario().faults.len());
            if !trial.attempt(|fewer| drop(fewer.faults.drain(from..to))) {
                from += size;
            }
        }
        size /= 2;
    }
}

/// Leaves out clients, each with everything that concerns only this client. One must remain.
fn clients(trial: &mut Trial<'_>) {
    let count = |scenario: &Scenario| match scenario.clients.len() {
        0 | 1 => 0,
        count => count,
    };
    trial.leave_out(count, |fewer, index| {
        let gone = fewer.clients.remove(index).id;
        fewer.faults.retain_mut(|fault| forget(fault, &gone));
    });
}

/// Whether a fault still has an effect when a client is gone.
fn forget(fault: &mut Fault, gone: &Name) -> bool {
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

fn masters(trial: &mut Trial<'_>) {
    for nodes in trial.masters..trial.scenario().cluster.nodes {
        let with = |trial: &mut Trial<'_>, moved| {
            trial.attempt(|fewer| limit_masters(fewer, nodes, moved))
        };
        if with(trial, false) || with(trial, true) {
            return;
        }
    }
}

/// The scenario with fewer masters. A fault on a removed master hits no master, or the last one
/// that is left. A client that knew a removed master does not know it any more, or knows the last
/// one.
fn limit_masters(fewer: &mut Scenario, nodes: usize, moved: bool) {
    fewer.cluster.nodes = nodes;
    for list in fewer.clients.iter_mut().filter_map(|client| client.nodes.as_mut()) {
        list.retain(|number| moved || *number <= nodes);
        list.iter_mut().for_each(|number| *number = (*number).min(nodes));
    }
    fewer.faults.retain_mut(|fault| match &mut fault.nodes {
        Some(Nodes::Some(numbers)) => {
            numbers.retain_mut(|number| {
                let stays = *number <= nodes;
                *number = (*number).min(nodes);
                stays || moved
            });
            numbers.dedup();
            !numbers.is_empty()
        }
        Some(Nodes::Role(role)) => {
            role.first = role.first.map(|first| first.min(nodes));
            true
        }
        _ => true,
    });
}

/// A client with its own list of masters knows all masters, or fewer. Clients of one process know
/// the same masters.
fn lists(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        if trial.scenario().clients[index].nodes.is_none()
            || trial.attempt(|less| set_list(less, index, None))
        {
            continue;
        }
        let list = move |scenario: &Scenario| scenario.clients[index].nodes.clone();
        trial.leave_out(
            |scenario| list(scenario).map_or(0, |list| list.len()),
            |less, place| {
                let mut fewer = list(less).unwrap_or_default();
                fewer.remove(place);
                set_list(less, index, Some(fewer));
            },
        );
    }
}

fn set_list(less: &mut Scenario, index: usize, list: Option<Vec<usize>>) {
    let process = less.clients[index].process().clone();
    let own = less.clients.iter_mut().filter(|client| *client.process() == process);
    own.for_each(|client| client.nodes.clone_from(&list));
}

fn loops(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        for rounds in [None, Some(2), Some(3), Some(5), Some(10), Some(20)] {
            let fewer = trial.attempt(|less| {
                let client = &mut less.clients[index];
                client.rounds = rounds.map(Rounds::Times);
                if rounds.is_none() {
                    client.think = Length::default();
                }
            });
            if fewer {
                break;
            }
        }
    }
}

fn steps(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        let steps = move |scenario: &Scenario| scenario.clients[index].script.len();
        for size in (1..=steps(trial.scenario())).rev() {
            trial.leave_out(
                |scenario| (steps(scenario) + 1).saturating_sub(size),
                |less, from| drop(less.clients[index].script.drain(from..from + size)),
            );
        }
    }
}

/// A client that wants several resources wants fewer.
fn resources(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        let script = &trial.scenario().clients[index].script;
        let several = script.iter().filter(|step| step.is_of_several());
        let mut wanted: Vec<Name> = several.flat_map(Step::acquires).cloned().collect();
        wanted.dedup();
        for resource in wanted {
            trial.attempt(|less| {
                let script = &mut less.clients[index].script;
                let steps = std::mem::take(script).into_iter();
                script.extend(steps.filter_map(|step| without(step, &resource)));
            });
        }
    }
}

/// The rest of a step for a client that does not want a resource, if anything is left.
fn without(mut step: Step, gone: &Name) -> Option<Step> {
    match &mut step {
        Step::Acquire { resource, also, .. } | Step::Release { resource, also } => {
            also.retain(|other| other != gone);
            if resource == gone {
                *resource = (!also.is_empty()).then(|| also.remove(0))?;
            }
            Some(step)
        }
        _ => {
            let is_about_it = step.resources().any(|resource| resource == gone);
            (!is_about_it).then_some(step)
        }
    }
}

fn options(trial: &mut Trial<'_>) {
    let mut usual = Lock::default();
    if trial.defended {
        let ttl = usual.ttl.0;
        defend(&mut usual, ttl);
    }
    let power = |fault: &Fault| matches!(fault.kind, FaultKind::Node(NodeFault::PowerLoss));
    let changes: [&dyn Fn(&mut Scenario); 10] = [
        &|less| less.lock = usual.clone(),
        &|less| {
            less.lock = usual.clone();
            for client in &mut less.clients {
                (client.guard, client.fencing, client.fair) = (None, None, None);
            }
        },
        &|less| less.lock.initialized = true,
        &|less| less.lock.fair = false,
        &|less| less.lock.ttl = usual.ttl,
        &|less| less.lock.node_timeout = usual.node_timeout,
        &|less| less.lock.drift = usual.drift,
        &|less| less.lock.drift_ppm = usual.drift_ppm,
        // A disk that lost the end of its data is another find than a disk without data.
        &|less| {
            if !less.faults.iter().any(power) {
                less.cluster.persistence = Persistence::None;
            }
        },
        &|less| less.cluster.replicas = false,
    ];
    for change in changes {
        trial.attempt(change);
    }
    for index in 0..trial.scenario().clients.len() {
        let changes: [fn(&mut Client); 6] = [
            |client| client.guard = None,
            |client| client.fencing = None,
            |client| client.fair = None,
            |client| client.process = None,
            |client| client.start = Length::default(),
            |client| client.think = Length::default(),
        ];
        for change in changes {
            trial.attempt(|less| change(&mut less.clients[index]));
        }
        for step in 0..trial.scenario().clients[index].script.len() {
            for option in 0..4 {
                trial.attempt(|less| plain(&mut less.clients[index].script[step], option));
            }
        }
    }
}

/// A step without one of its options. The check of the lease before a write is not such an option:
/// a client that does not check is another find.
fn plain(step: &mut Step, option: usize) {
    match (step, option) {
        (Step::Acquire { wait, .. }, 0) => *wait = Length::default(),
        (Step::Acquire { ttl, .. } | Step::Extend { ttl, .. }, 1) => *ttl = None,
        (Step::Acquire { cancel, .. }, 2) => *cancel = None,
        (Step::Acquire { again, .. }, 3) => *again = false,
        _ => {}
    }
}

fn each_fault(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().faults.len() {
        let changes: [fn(&mut Fault); 7] = [
            |fault| with(fault, |messages| *messages = Messages::default()),
            |fault| with(fault, |messages| messages.command = Class::Any),
            |fault| with(fault, |messages| messages.index = None),
            |fault| with(fault, |messages| messages.count = None),
            |fault| {
                for field in fault.kind.fields_mut() {
                    match field {
                        FieldMut::Side(side) => *side = Side::Both,
                        FieldMut::Touches(touches) => *touches = Touches::Both,
                        FieldMut::Messages(messages) => messages.what = Side::Both,
                        _ => {}
                    }
                }
            },
            |fault| fault.lasts = None,
            |fault| match &mut fault.clients {
                Some(clients) if !matches!(fault.kind, FaultKind::Client(_)) => {
                    *clients = Clients::All;
                }
                _ => {}
            },
        ];
        for change in changes {
            trial.attempt(|less| change(&mut less.faults[index]));
        }
        fewer_masters(trial, index);
    }
}

/// Leaves out each of the masters that a fault hits.
fn fewer_masters(trial: &mut Trial<'_>, fault: usize) {
    let mut place = 0;
    loop {
        let mut less = trial.scenario().clone();
        let all = less.cluster.nodes;
        let nodes = less.faults[fault].nodes.as_mut().map(|nodes| {
            if nodes.is_all() {
                *nodes = Nodes::Some((1..=all).collect());
            }
            nodes
        });
        match nodes {
            Some(Nodes::Some(numbers)) if numbers.len() > 1 && place < numbers.len() => {
                numbers.remove(place);
            }
            Some(Nodes::Role(role)) if place == 0 && role.first != Some(1) => {
                role.first = Some(role.first.unwrap_or(all) - 1);
            }
            _ => return,
        }
        if !trial.offer(less) {
            place += 1;
        }
    }
}

/// Changes the messages that a fault selects, if it selects messages.
fn with(fault: &mut Fault, change: fn(&mut Messages)) {
    for field in fault.kind.fields_mut() {
        if let FieldMut::Messages(messages) = field {
            change(messages);
        }
    }
}

const MS: Ns = 1_000_000;
/// The values to which times are rounded, the roundest first.
const ROUND: [u64; 13] = [10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1];

/// Names moments of the protocol instead of times, and roles instead of numbers of masters; rounds
/// times.
pub(super) fn to_moments(trial: &mut Trial<'_>) {
    triggers(trial);
    parts(trial);
    times(trial);
    numbers(trial);
}

/// Gives a fault at a fixed time the moment of the protocol before it; tries the latest moment
/// first.
fn triggers(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().faults.len() {
        let at = match &trial.scenario().faults[index].when {
            FaultTime::At(at) if !at.is_zero() => nanos(at.0),
            FaultTime::After(moment) if !moment.plus.is_zero() => {
                let plain = Moment { plus: of_millis(0), ..moment.clone() };
                offer_when(trial, index, FaultTime::After(plain));
                continue;
            }
            _ => continue,
        };
        // First tries the start of the run.
        if offer_when(trial, index, FaultTime::At(of_millis(0))) {
            continue;
        }
        let (scenario, seed, mutant) =
            (trial.scenario().clone(), trial.best.seed, trial.best.mutant);
        let Some(history) = trial.run(&scenario, seed, mutant) else { return };
        let mut moments = moments(&history);
        moments.retain(|(ns, ..)| *ns <= at);
        let latest = moments.into_iter().rev().take(6);
        for (ns, client, what) in latest {
            let after = u64::try_from((at - ns) / MS).unwrap_or(0);
            let when = |ms| {
                let (client, what) = (client.clone(), what.clone());
                FaultTime::After(Moment { client, what, plus: of_millis(ms) })
            };
            if offer_when(trial, index, when(0)) || offer_when(trial, index, when(after)) {
                break;
            }
        }
    }
}

fn offer_when(trial: &mut Trial<'_>, fault: usize, when: FaultTime) -> bool {
    trial.attempt(|other| other.faults[fault].when = when)
}

/// The moments for which a fault could wait, each at its first occurrence, in the order of time.
fn moments(history: &History) -> Vec<(Ns, Name, EventKind)> {
    let mut moments: Vec<(Ns, Name, EventKind)> = Vec::new();
    let mut asked: Vec<&Request> = Vec::new();
    let mut add = |ns: Ns, client: &Name, what: EventKind| {
        if !moments.iter().any(|(_, who, known)| who == client && *known == what) {
            moments.push((ns, client.clone(), what));
        }
    };
    for record in &history.records {
        match &record.event {
            Event::Requested(request) => {
                asked.push(request);
                if request.op.is_release() {
                    for resource in request.op.resources() {
                        add(record.ns, &request.client, EventKind::Releases(resource.clone()));
                    }
                }
            }
            Event::Replied { client, reply } => {
                let Some(request) = asked.iter().find(|request| request.id == reply.id) else {
                    continue;
                };
                let what = match (&request.op, reply.ok) {
                    (Op::Acquire { .. } | Op::AcquireAll { .. }, true) => EventKind::Granted,
                    (Op::Acquire { .. } | Op::AcquireAll { .. }, false) => EventKind::Refused,
                    (Op::Extend { .. }, true) => EventKind::Extended,
                    (Op::Release { .. } | Op::ReleaseAll { .. }, _) => EventKind::Released,
                    _ => continue,
                };
                for resource in request.op.resources() {
                    add(record.ns, client, what(resource.clone()));
                }
            }
            Event::Extended { client, resource, .. } => {
                add(record.ns, client, EventKind::Extended(resource.clone()));
            }
            Event::Lost { client, resource, .. } => {
                add(record.ns, client, EventKind::Lost(resource.clone()));
            }
            Event::Touched { client, register, way, .. } => {
                let what = match way {
                    AccessKind::Present => EventKind::Presents,
                    AccessKind::Read => EventKind::Reads,
                    AccessKind::Write => EventKind::Writes,
                };
                add(record.ns, client, what(register.clone()));
            }
            _ => {}
        }
    }
    moments
}

/// Selects masters by the part that they play.
fn parts(trial: &mut Trial<'_>) {
    let clients: Vec<Name> =
        trial.scenario().clients.iter().map(|client| client.id.clone()).collect();
    for index in 0..trial.scenario().faults.len() {
        let fault = &trial.scenario().faults[index];
        let Some(Nodes::Some(numbers)) = &fault.nodes else { continue };
        // Before the first request no master plays a part.
        if matches!(fault.when, FaultTime::At(at) if at.is_zero()) {
            continue;
        }
        let count = numbers.len();
        let own = match &fault.when {
            FaultTime::After(moment) | FaultTime::Before(moment) => Some(moment.client.clone()),
            FaultTime::At(_) => None,
        };
        let mut clients = clients.clone();
        // The client that the sentence already names comes first.
        clients.sort_by_key(|client| Some(client) != own.as_ref());
        'parts: for client in clients {
            for (granted, first) in
                [(true, Some(count)), (false, Some(count)), (true, None), (false, None)]
            {
                let role = Role { client: client.clone(), granted, first };
                let nodes = Some(Nodes::Role(role));
                if trial.attempt(|other| other.faults[index].nodes = nodes) {
                    break 'parts;
                }
            }
        }
    }
}

/// Rounds times, each separately.
fn times(trial: &mut Trial<'_>) {
    for index in 0..lengths::count(&mut trial.scenario().clone()) {
        let round = |trial: &mut Trial<'_>, to: &dyn Fn(u64) -> u64| {
            let rounder =
                |_, ms| Some(to(ms)).filter(|to| *to > 0 && roughness(*to) < roughness(ms));
            lengths::changed(trial.scenario(), index, rounder).is_some_and(|it| trial.offer(it))
        };
        ROUND.into_iter().any(|unit| {
            round(trial, &|ms| ms.next_multiple_of(unit)) || round(trial, &|ms| ms / unit * unit)
        });
    }
}

/// Rounds rates and amounts.
fn numbers(trial: &mut Trial<'_>) {
    const DIGITS: [f64; 8] = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0, 1_000.0, 10_000.0];
    for index in 0..trial.scenario().faults.len() {
        let rate = |digits: f64| {
            move |other: &mut Scenario| {
                for field in other.faults[index].kind.fields_mut() {
                    if let FieldMut::Rate(rate) = field {
                        *rate = (*rate * digits).round() / digits;
                    }
                }
            }
        };
        let amount = |unit: u32| {
            move |other: &mut Scenario| {
                for field in other.faults[index].kind.fields_mut() {
                    if let FieldMut::Bytes(bytes) = field {
                        *bytes = *bytes / unit * unit;
                    }
                }
            }
        };
        let _ = DIGITS.into_iter().any(|digits| trial.attempt(rate(digits)))
            || [1_000, 100, 10].into_iter().any(|unit| trial.attempt(amount(unit)));
    }
}

/// By how much replies are slower than usual in the simulation.
const SLOWER: [u64; 6] = [0, 0, 0, 0, 3, 8];
/// How long two clients must have believed at the same time that they hold, to be detected whatever
/// a scheduler does.
const LONG: i64 = 50_000_000;
/// The score of a run that shows it for long enough.
const WELL: u32 = 2;
/// The score if all runs do.
const BEST: u32 = WELL * 6;

/// Widens times until the find no longer depends on small differences. It must show from several
/// seeds, on masters that are slower than those of the simulation, and for longer than a
/// scheduler's delay. Only then it shows on real masters too.
pub(super) fn to_steady(trial: &mut Trial<'_>) {
    let mut score = score_of(trial, &trial.scenario().clone());
    if score < BEST {
        score = ordered(trial, score);
    }
    if score < BEST {
        score = scaled(trial, score);
    }
    while score < BEST && !trial.is_over() {
        let better = widened(trial, score);
        if better == score {
            return;
        }
        score = better;
    }
}

/// How well a scenario shows the find.
fn score_of(trial: &mut Trial<'_>, scenario: &Scenario) -> u32 {
    let mut score = 0;
    for (index, slower) in (0..).zip(SLOWER) {
        let mut scenario = scenario.clone();
        if slower > 0 {
            // Appended after the other faults, whose numbers stay as they are.
            let slow = FaultKind::Node(NodeFault::Slow { by: of_millis(slower) });
            let when = FaultTime::At(of_millis(0));
            scenario.faults.push(Fault::of_nodes(when, None, Nodes::All, slow));
        }
        let seed = trial.best.seed + index;
        let Some(lasts) = trial.lasts(&scenario, seed) else { continue };
        let short = trial.kind.property == Some(Property::MutualExclusion) && lasts < LONG;
        score += if short { 1 } else { WELL };
    }
    score
}

/// Takes a scenario if it shows the find better. It may weigh more.
fn take(trial: &mut Trial<'_>, scenario: Scenario, score: u32) -> Option<u32> {
    if !makes_sense(&scenario) {
        return None;
    }
    let better = score_of(trial, &scenario);
    if better <= score {
        return None;
    }
    let found = trial.shows(&scenario, trial.best.seed)?;
    trial.best = found;
    Some(better)
}

/// Fixes what the seed had decided: which client comes first, and which masters it gets.
fn ordered(trial: &mut Trial<'_>, score: u32) -> u32 {
    let (start, seed, mutant) = (trial.scenario().clone(), trial.best.seed, trial.best.mutant);
    let Some(history) = trial.run(&start, seed, mutant) else { return score };
    let Some((first, masters)) = first_grant(&history) else { return score };
    let mut score = score;
    for (later, bare) in [(300, false), (0, true), (300, true)] {
        let mut other = start.clone();
        for client in other.clients.iter_mut().filter(|client| client.id != first) {
            client.start = of_millis(lengths::millis(client.start) + later);
        }
        if bare {
            let nodes = (1..=other.cluster.nodes).filter(|node| !masters.contains(node));
            let nodes: Vec<usize> = nodes.collect();
            if nodes.is_empty() {
                continue;
            }
            let links = (Clients::Some(vec![first.clone()]), Nodes::Some(nodes));
            let drop = NetworkFault::Drop(Messages::default());
            let when = FaultTime::At(of_millis(0));
            other.faults.insert(0, Fault::of_links(when, None, links, drop));
        }
        if let Some(better) = take(trial, other, score) {
            score = better;
        }
    }
    score
}

/// The client that is granted a lease first, and by which masters.
fn first_grant(history: &History) -> Option<(Name, Vec<usize>)> {
    prepare(history, |case| {
        let lease = case.leases.first()?;
        Some((lease.client.into(), lease.masters(&case.keys)))
    })
}

/// Scales all planned times up, so that unplanned delays matter less.
fn scaled(trial: &mut Trial<'_>, score: u32) -> u32 {
    let start = trial.scenario().clone();
    let mut score = score;
    for factor in [2, 4, 8] {
        let mut slower = start.clone();
        lengths::each(&mut slower, &mut |what, length| {
            if what == Use::Plan {
                *length = of_millis(lengths::millis(*length).saturating_mul(factor));
            }
        });
        if let Some(better) = take(trial, slower, score) {
            score = better;
        }
    }
    score
}

/// Makes one time longer or shorter.
fn widened(trial: &mut Trial<'_>, score: u32) -> u32 {
    let changes: [fn(u64) -> u64; 6] = [
        |ms| ms * 2,
        |ms| ms + ms / 2,
        |ms| ms / 2,
        |ms| ms + 100,
        |ms| ms + 20,
        |ms| ms.saturating_sub(20),
    ];
    for index in 0..lengths::count(&mut trial.scenario().clone()) {
        for change in changes {
            let wider = |_, ms: u64| Some(round(change(ms))).filter(|new| ms > 0 && *new > 0);
            let Some(other) = lengths::changed(trial.scenario(), index, wider) else { continue };
            if let Some(better) = take(trial, other, score) {
                return better;
            }
        }
    }
    score
}

/// The nearest number of two digits.
fn round(ms: u64) -> u64 {
    let unit = 10_u64.pow(ms.checked_ilog10().unwrap_or(0).saturating_sub(1));
    let nearest = (ms + unit / 2) / unit * unit;
    if roughness(nearest) < roughness(ms) { nearest } else { ms }
}
