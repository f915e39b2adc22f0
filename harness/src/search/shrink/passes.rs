//! The passes that leave something out: faults, clients, steps, masters, options, choices.

use super::Trial;
use crate::name::Name;
use crate::scenario::{
    Class, ClientHarm, Clients, ClockHarm, Fault, Harm, Length, Lock, Moment, NetHarm, NodeHarm,
    Nodes, Persistence, Rounds, Scenario, Side, Step, When, Which,
};

pub(super) fn all(trial: &mut Trial<'_>) {
    faults(trial);
    clients(trial);
    masters(trial);
    loops(trial);
    steps(trial);
    options(trial);
    each_fault(trial);
    faults(trial);
}

/// Delta debugging: leaves out halves, then quarters, at last each fault by itself.
fn faults(trial: &mut Trial<'_>) {
    let mut size = trial.scenario().faults.len();
    while size > 0 {
        let mut from = 0;
        while from < trial.scenario().faults.len() {
            let mut fewer = trial.scenario().clone();
            let to = (from + size).min(fewer.faults.len());
            fewer.faults.drain(from..to);
            if !trial.offer(fewer) {
                from += size;
            }
        }
        size /= 2;
    }
}

fn clients(trial: &mut Trial<'_>) {
    let mut index = 0;
    while index < trial.scenario().clients.len() {
        if !without_client(trial.scenario(), index).is_some_and(|fewer| trial.offer(fewer)) {
            index += 1;
        }
    }
}

/// A scenario without a client, and without what is about it only.
fn without_client(scenario: &Scenario, index: usize) -> Option<Scenario> {
    if scenario.clients.len() < 2 {
        return None;
    }
    let mut fewer = scenario.clone();
    let gone = fewer.clients.remove(index).id;
    fewer.faults.retain_mut(|fault| forget(fault, &gone));
    Some(fewer)
}

/// Whether a fault has still something to do when a client is gone.
fn forget(fault: &mut Fault, gone: &Name) -> bool {
    if let When::After(Moment { client, .. }) | When::Before(Moment { client, .. }) = &fault.when
        && client == gone
    {
        return false;
    }
    if let Some(Nodes::Role(role)) = fault.harm.nodes()
        && role.client == *gone
    {
        return false;
    }
    match clients_of(&mut fault.harm) {
        Some(Clients::Some(names)) => {
            names.retain(|name| name != gone);
            !names.is_empty()
        }
        _ => true,
    }
}

fn masters(trial: &mut Trial<'_>) {
    for nodes in trial.masters..trial.scenario().cluster.nodes {
        for moved in [false, true] {
            if trial.offer(with_masters(trial.scenario(), nodes, moved)) {
                return;
            }
        }
    }
}

/// With so few masters. What hit one that is gone hits nobody, or the last that is left.
fn with_masters(scenario: &Scenario, nodes: usize, moved: bool) -> Scenario {
    let mut fewer = scenario.clone();
    fewer.cluster.nodes = nodes;
    fewer.faults.retain_mut(|fault| match nodes_of(&mut fault.harm) {
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
    fewer
}

fn loops(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        for rounds in [None, Some(2), Some(3), Some(5), Some(10), Some(20)] {
            let mut less = trial.scenario().clone();
            let client = &mut less.clients[index];
            client.rounds = rounds.map(Rounds::Times);
            if rounds.is_none() {
                client.think = Length::default();
            }
            if trial.offer(less) {
                break;
            }
        }
    }
}

fn steps(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().clients.len() {
        let mut size = trial.scenario().clients[index].script.len();
        while size > 0 {
            let mut from = 0;
            while from + size <= trial.scenario().clients[index].script.len() {
                let mut less = trial.scenario().clone();
                less.clients[index].script.drain(from..from + size);
                if !trial.offer(less) {
                    from += 1;
                }
            }
            size -= 1;
        }
    }
}

fn options(trial: &mut Trial<'_>) {
    let usual = Lock::default();
    let changes: [&dyn Fn(&mut Scenario); 6] = [
        &|less| less.lock = usual.clone(),
        &|less| less.lock.ttl = usual.ttl,
        &|less| less.lock.node_timeout = usual.node_timeout,
        &|less| less.lock.drift = usual.drift,
        &|less| less.lock.drift_ppm = usual.drift_ppm,
        &|less| less.cluster.persistence = Persistence::None,
    ];
    for change in changes {
        let mut less = trial.scenario().clone();
        change(&mut less);
        trial.offer(less);
    }
    for index in 0..trial.scenario().clients.len() {
        let changes: [fn(&mut crate::scenario::Client); 3] = [
            |client| client.process = None,
            |client| client.start = Length::default(),
            |client| client.think = Length::default(),
        ];
        for change in changes {
            let mut less = trial.scenario().clone();
            change(&mut less.clients[index]);
            trial.offer(less);
        }
        for step in 0..trial.scenario().clients[index].script.len() {
            for option in 0..3 {
                let mut less = trial.scenario().clone();
                plain(&mut less.clients[index].script[step], option);
                trial.offer(less);
            }
        }
    }
}

/// A step without one of its options. That a client looks at its lease before it writes is none: who
/// does not look is another lesson.
fn plain(step: &mut Step, option: usize) {
    match (step, option) {
        (Step::Acquire { wait, .. }, 0) => *wait = Length::default(),
        (Step::Acquire { ttl, .. } | Step::Extend { ttl, .. }, 1) => *ttl = None,
        (Step::Acquire { cancel, .. }, 2) => *cancel = None,
        _ => {}
    }
}

fn each_fault(trial: &mut Trial<'_>) {
    for index in 0..trial.scenario().faults.len() {
        let changes: [fn(&mut Fault); 8] = [
            |fault| {
                if let Some(which) = which_of(&mut fault.harm) {
                    *which = Which {
                        clients: which.clients.clone(),
                        nodes: which.nodes.clone(),
                        ..Which::default()
                    };
                }
            },
            |fault| with(fault, |which| which.command = Class::Any),
            |fault| with(fault, |which| which.index = None),
            |fault| with(fault, |which| which.count = None),
            |fault| with(fault, |which| which.what = Side::Both),
            |fault| {
                if let Harm::Net(NetHarm::Delay { what, .. } | NetHarm::Trickle { what, .. }) =
                    &mut fault.harm
                {
                    *what = Side::Both;
                }
            },
            |fault| fault.lasts = None,
            |fault| {
                if let (Harm::Net(_), Some(clients)) =
                    (fault.harm.clone(), clients_of(&mut fault.harm))
                {
                    *clients = Clients::All;
                }
            },
        ];
        for change in changes {
            let mut less = trial.scenario().clone();
            change(&mut less.faults[index]);
            trial.offer(less);
        }
        fewer_masters(trial, index);
    }
}

/// Each of the masters that a fault hits, left out.
fn fewer_masters(trial: &mut Trial<'_>, fault: usize) {
    let mut place = 0;
    loop {
        let mut less = trial.scenario().clone();
        let all = less.cluster.nodes;
        let nodes = nodes_of(&mut less.faults[fault].harm).map(|nodes| {
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

fn with(fault: &mut Fault, change: fn(&mut Which)) {
    if let Some(which) = which_of(&mut fault.harm) {
        change(which);
    }
}

const fn which_of(harm: &mut Harm) -> Option<&mut Which> {
    match harm {
        Harm::Net(
            NetHarm::Cut(which)
            | NetHarm::Drop(which)
            | NetHarm::Hold(which)
            | NetHarm::Duplicate(which)
            | NetHarm::Reset(which),
        ) => Some(which),
        _ => None,
    }
}

/// The masters that a harm hits.
pub(super) const fn nodes_of(harm: &mut Harm) -> Option<&mut Nodes> {
    Some(match harm {
        Harm::Node(
            NodeHarm::Kill { nodes }
            | NodeHarm::Stop { nodes }
            | NodeHarm::Restart { nodes }
            | NodeHarm::Pause { nodes }
            | NodeHarm::Full { nodes }
            | NodeHarm::Slow { nodes, .. },
        )
        | Harm::Clock(
            ClockHarm::Step { nodes, .. }
            | ClockHarm::Rate { nodes, .. }
            | ClockHarm::Strobe { nodes, .. },
        )
        | Harm::Net(
            NetHarm::Delay { nodes, .. }
            | NetHarm::Trickle { nodes, .. }
            | NetHarm::HalfOpen { nodes, .. },
        ) => nodes,
        Harm::Net(
            NetHarm::Cut(which)
            | NetHarm::Drop(which)
            | NetHarm::Hold(which)
            | NetHarm::Duplicate(which)
            | NetHarm::Reset(which),
        ) => &mut which.nodes,
        Harm::Client(_) => return None,
    })
}

/// The clients that a harm hits.
const fn clients_of(harm: &mut Harm) -> Option<&mut Clients> {
    Some(match harm {
        Harm::Client(
            ClientHarm::Pause { clients }
            | ClientHarm::Suspend { clients }
            | ClientHarm::Kill { clients }
            | ClientHarm::Clock { clients, .. },
        )
        | Harm::Net(
            NetHarm::Delay { clients, .. }
            | NetHarm::Trickle { clients, .. }
            | NetHarm::HalfOpen { clients, .. },
        ) => clients,
        Harm::Net(
            NetHarm::Cut(which)
            | NetHarm::Drop(which)
            | NetHarm::Hold(which)
            | NetHarm::Duplicate(which)
            | NetHarm::Reset(which),
        ) => &mut which.clients,
        Harm::Node(_) | Harm::Clock(_) => return None,
    })
}
