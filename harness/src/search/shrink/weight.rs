//! The amount of text in a scenario, which a shrink reduces.

use crate::scenario::{
    Class, Client, ClientHarm, Clients, ClockHarm, Fault, Harm, Lock, NetHarm, Nodes, Persistence,
    ResourceHarm, Rounds, Scenario, Side, Step, Touches, When, Which,
};
use crate::search::lengths::{self, millis};

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
        digits + faults.iter().map(|fault| rough_number(&fault.harm)).sum::<u64>(),
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
        + u64::from(!lock.blessed)
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
        + client.nodes.as_ref().map_or(0, |nodes| 1 + number(nodes.len()))
        + u64::from(!client.start.is_zero())
        + u64::from(!client.think.is_zero())
}

/// The selections of a fault: clients, masters, messages, an end.
fn choices(fault: &Fault, masters: usize) -> u64 {
    let of_which = |which: &Which| {
        u64::from(which.what != Side::Both)
            + u64::from(which.command != Class::Any)
            + u64::from(which.index.is_some())
            + u64::from(which.count.is_some())
    };
    let of_harm = match &fault.harm {
        Harm::Net(NetHarm::Delay { what, .. } | NetHarm::Trickle { what, .. }) => {
            u64::from(*what != Side::Both)
        }
        Harm::Net(harm) => harm.which().map_or(0, of_which),
        Harm::Resource(ResourceHarm::Delay { what, .. }) => u64::from(*what != Touches::Both),
        _ => 0,
    };
    let clients = match fault.harm.clients() {
        Some(Clients::Some(names)) if !matches!(fault.harm, Harm::Client(_)) => number(names.len()),
        Some(Clients::Some(names)) => number(names.len()) - 1,
        _ => 0,
    };
    let nodes = match fault.harm.nodes() {
        // Each master that a fault hits makes it heavier.
        Some(Nodes::Some(numbers)) => number(numbers.len()),
        Some(Nodes::Role(role)) => number(role.first.unwrap_or(masters)),
        Some(Nodes::All) => number(masters),
        None => 0,
    };
    of_harm + clients + nodes + u64::from(fault.lasts.is_some())
}

/// How far a fault is from a readable description: a moment of the protocol is nearer than a time,
/// and a part that masters play is nearer than a number.
fn aim(fault: &Fault) -> u64 {
    let when = match &fault.when {
        When::At(at) if at.is_zero() => 0,
        When::At(_) => 3,
        When::After(moment) if !moment.plus.is_zero() => 1,
        When::After(_) | When::Before(_) => 0,
    };
    when + u64::from(matches!(fault.harm.nodes(), Some(Nodes::Some(_))))
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

fn rough_number(harm: &Harm) -> u64 {
    match harm {
        Harm::Clock(ClockHarm::Rate { factor, .. })
        | Harm::Client(ClientHarm::Rate { factor, .. }) => number(factor.to_string().len()),
        Harm::Net(NetHarm::Trickle { bytes, .. }) => roughness(u64::from(*bytes)),
        _ => 0,
    }
}
