//! The amount of text in a scenario, which a shrink reduces.

use crate::lengths::{self, millis};
use redquorum_scenario::{
    Class, Client, Clients, Fault, FaultKind, FaultTime, FieldMut, Lock, Messages, Nodes,
    Persistence, Rounds, Scenario, Side, Step, Touches,
};

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
pub(super) fn roughness(number: u64) -> u64 {
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
