//! The amount of text in a scenario, which a shrink reduces.

use crate::lengths::{self, millis};
use redquorum_scenario::{
    Class, Client, ClientFault, Clients, ClockFault, Fault, FaultKind, FaultTime, LinkSelector,
    Lock, NetworkFault, Nodes, Persistence, ResourceFault, Rounds, Scenario, Side, Step, Touches,
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
        digits + faults.iter().map(|fault| rough_number(&fault.fault_kind)).sum::<u64>(),
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
    let of_which = |which: &LinkSelector| {
        u64::from(which.what != Side::Both)
            + u64::from(which.command != Class::Any)
            + u64::from(which.index.is_some())
            + u64::from(which.count.is_some())
    };
    let of_fault = match &fault.fault_kind {
        FaultKind::Net(NetworkFault::Delay { what, .. } | NetworkFault::Trickle { what, .. }) => {
            u64::from(*what != Side::Both)
        }
        FaultKind::Net(fault_kind) => fault_kind.which().map_or(0, of_which),
        FaultKind::Resource(ResourceFault::Delay { what, .. }) => u64::from(*what != Touches::Both),
        _ => 0,
    };
    let clients = match fault.fault_kind.clients() {
        Some(Clients::Some(names)) if !matches!(fault.fault_kind, FaultKind::Client(_)) => {
            number(names.len())
        }
        Some(Clients::Some(names)) => number(names.len()) - 1,
        _ => 0,
    };
    let nodes = match fault.fault_kind.nodes() {
        // Each master that a fault hits makes it heavier.
        Some(Nodes::Some(numbers)) => number(numbers.len()),
        Some(Nodes::Role(role)) => number(role.first.unwrap_or(masters)),
        Some(Nodes::All) => number(masters),
        None => 0,
    };
    of_fault + clients + nodes + u64::from(fault.lasts.is_some())
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
    when + u64::from(matches!(fault.fault_kind.nodes(), Some(Nodes::Some(_))))
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

fn rough_number(fault_kind: &FaultKind) -> u64 {
    match fault_kind {
        FaultKind::Clock(ClockFault::Rate { factor, .. })
        | FaultKind::Client(ClientFault::Rate { factor, .. }) => number(factor.to_string().len()),
        FaultKind::Net(NetworkFault::Trickle { bytes, .. }) => roughness(u64::from(*bytes)),
        _ => 0,
    }
}
