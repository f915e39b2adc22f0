//! The passes that leave something out: faults, clients, steps, masters, options, choices.

use super::Trial;
use crate::defend;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Class, Client, Clients, Fault, FaultKind, FaultTime, FieldMut, Length, Lock, Messages, Moment,
    NodeFault, Nodes, Persistence, Rounds, Scenario, Side, Step, Touches,
};

pub(super) fn all(trial: &mut Trial<'_>) {
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
        _ => (step.resource() != Some(gone.as_str())).then_some(step),
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
