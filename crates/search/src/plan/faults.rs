//! Random faults: their families, and the draw of one fault from a family.

use std::time::Duration;

use super::rng::Rng;
use super::{guards, shortest_ttl, targets};
use crate::lengths::{millis, of_millis};
use redquorum_scenario::{
    ClientFault, Clients, ClockFault, End, Fault, FaultKind, Length, LinkSelector, NetworkFault,
    NodeFault, Nodes, Persistence, Scenario, Shift, Side,
};

/// Related faults, which a scenario leaves out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Masters die and come back.
    Deaths,
    /// Masters stall: stopped, slow, out of memory.
    Stalls,
    /// The wall clocks of masters.
    Clocks,
    /// Messages and connections are lost.
    Losses,
    /// Messages are late.
    Delays,
    /// Requests arrive twice.
    Copies,
    /// Clients are paused.
    Pauses,
    /// A client dies.
    Ends,
    /// The wall clocks of clients.
    Walls,
}

const ALL: [Family; 9] = [
    Family::Deaths,
    Family::Stalls,
    Family::Clocks,
    Family::Losses,
    Family::Delays,
    Family::Copies,
    Family::Pauses,
    Family::Ends,
    Family::Walls,
];

/// The families of one scenario.
pub(super) struct Families {
    all: Vec<Family>,
    inside: bool,
}

/// A fault kind and its duration.
type Drawn = (FaultKind, Option<Length>);

impl Families {
    /// Each family is present in every other scenario.
    pub(super) fn draw(rng: &mut Rng, inside: bool) -> Self {
        Self { all: ALL.into_iter().filter(|_| rng.chance(1, 2)).collect(), inside }
    }

    /// A random fault. None where it would be outside the assumptions, or have no effect, in this
    /// scenario.
    pub(super) fn fault(&self, rng: &mut Rng, scenario: &Scenario) -> Option<Fault> {
        if self.all.is_empty() {
            return None;
        }
        let lasts = rng.maybe(4, 5, |rng| of_millis(rng.within(1, 1_200)));
        let (fault_kind, lasts) = match rng.pick(&self.all) {
            Family::Deaths => self.death(rng, scenario, lasts)?,
            Family::Stalls => (FaultKind::Node(stall(rng, scenario)), lasts),
            Family::Clocks if self.inside => drift(rng, scenario)?,
            Family::Clocks => (FaultKind::Clock(clock(rng, scenario)), lasts),
            Family::Losses => loss(rng, scenario, lasts),
            Family::Delays => (FaultKind::Net(delay(rng, scenario)), lasts),
            Family::Copies => {
                let which = targets::which(rng, scenario);
                let what = if which.what == Side::Reply { Side::Both } else { which.what };
                (FaultKind::Net(NetworkFault::Duplicate(LinkSelector { what, ..which })), lasts)
            }
            Family::Pauses => return Some(pause(rng, scenario, lasts)),
            Family::Ends => (end(rng, scenario)?, None),
            Family::Walls => {
                let by = of_millis(rng.within(1, 3_000) * 1_000);
                let by = Shift { by, back: rng.chance(1, 2) };
                let clients = targets::one(rng, scenario);
                (FaultKind::Client(ClientFault::Clock { clients, by }), lasts)
            }
        };
        Some(Fault { when: targets::when(rng, scenario), lasts, fault_kind })
    }

    fn death(&self, rng: &mut Rng, scenario: &Scenario, lasts: Option<Length>) -> Option<Drawn> {
        let forgets = scenario.cluster.persistence == Persistence::None;
        let nodes = targets::nodes(rng, scenario);
        let careful = self.inside && forgets && !guards::all_see_amnesia(scenario);
        // At most one: the heal of one would end the time for which the other must stay down.
        let deadly = |fault: &Fault| {
            matches!(
                fault.fault_kind,
                FaultKind::Node(NodeFault::Kill { .. } | NodeFault::Stop { .. })
            )
        };
        if careful && scenario.faults.iter().any(deadly) {
            return None;
        }
        // A master that forgets comes back when all the keys that it had have expired.
        let stays = |rng: &mut Rng| {
            let longest = scenario.longest_ttl() + Duration::from_millis(10);
            Length(longest + Duration::from_millis(rng.within(1, 800)))
        };
        Some(match rng.below(3) {
            0 if careful => return None,
            0 => (FaultKind::Node(NodeFault::Restart { nodes }), None),
            kind => {
                let lasts = if careful { Some(stays(rng)) } else { lasts };
                let fault_kind = match kind {
                    1 => NodeFault::Kill { nodes },
                    _ => NodeFault::Stop { nodes },
                };
                (FaultKind::Node(fault_kind), lasts)
            }
        })
    }
}

fn stall(rng: &mut Rng, scenario: &Scenario) -> NodeFault {
    let nodes = targets::nodes(rng, scenario);
    match rng.below(4) {
        0 => NodeFault::Pause { nodes },
        1 => NodeFault::Full { nodes },
        // All of them, by less than a round waits: everything works, but comes late.
        2 => NodeFault::Slow { nodes: Nodes::All, by: shortly(rng, scenario) },
        _ => NodeFault::Slow { nodes, by: of_millis(rng.within(1, 800)) },
    }
}

/// A time that is less than a round waits for a master.
fn shortly(rng: &mut Rng, scenario: &Scenario) -> Length {
    of_millis(rng.within(1, (millis(scenario.lock.node_timeout) * 9 / 10).max(1)))
}

/// A clock whose error is as large as the assumptions allow.
fn drift(rng: &mut Rng, scenario: &Scenario) -> Option<Drawn> {
    // At most one: consecutive rates of the same clock add up.
    if scenario.faults.iter().any(|fault| matches!(fault.fault_kind, FaultKind::Clock(_))) {
        return None;
    }
    let nodes = if rng.chance(1, 2) { Nodes::All } else { targets::nodes(rng, scenario) };
    let (share, longest) = (allowed(rng, scenario), scenario.longest_ttl());
    let (factor, lasts) = if rng.chance(2, 3) {
        (1.0 + share, Length(2 * longest))
    } else {
        // The heal of a slow clock sets it forward by the time that it lost. That must be no more
        // than the clock may lose within a TTL.
        (1.0 - share, Length(shortest_ttl(scenario)))
    };
    Some((FaultKind::Clock(ClockFault::Rate { nodes, factor }), Some(lasts)))
}

/// The share of its rate by which a clock may be wrong.
pub(super) fn allowed(rng: &mut Rng, scenario: &Scenario) -> f64 {
    // Over the longest TTL the fixed part of the allowance is the smallest share.
    let longest = scenario.longest_ttl();
    let most = scenario.lock.deducted_from(longest).as_secs_f64() / longest.as_secs_f64();
    let share = most * rng.pick(&[0.99, 0.99, 0.5, 0.1]);
    // Rounded to a number of digits that is easy to read.
    (share * 1e5).floor() / 1e5
}

/// A clock that is wrong.
fn clock(rng: &mut Rng, scenario: &Scenario) -> ClockFault {
    let nodes = targets::nodes(rng, scenario);
    match rng.below(3) {
        0 => {
            let by = of_millis(rng.within(1, 3_000));
            ClockFault::Step { nodes, by: Shift { by, back: rng.chance(1, 3) } }
        }
        1 => ClockFault::Rate { nodes, factor: rng.pick(&[0.5, 0.9, 1.1, 1.5, 2.0, 10.0]) },
        _ => {
            let by = of_millis(rng.within(1, 2_000));
            ClockFault::Strobe { nodes, by, every: of_millis(rng.within(2, 200)) }
        }
    }
}

fn loss(rng: &mut Rng, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    let fault_kind = match rng.below(4) {
        0 => NetworkFault::Cut(targets::ties(rng, scenario)),
        1 => NetworkFault::Drop(targets::which(rng, scenario)),
        2 => NetworkFault::HalfOpen {
            clients: targets::clients(rng, scenario),
            nodes: targets::nodes(rng, scenario),
            end: rng.pick(&[End::Client, End::Master]),
        },
        _ => {
            let which = targets::which(rng, scenario);
            let ties = LinkSelector {
                clients: which.clients.clone(),
                nodes: which.nodes.clone(),
                ..LinkSelector::default()
            };
            // If the fault selects no messages, it has no duration.
            let lasts = lasts.filter(|_| which != ties);
            return (FaultKind::Net(NetworkFault::Reset(which)), lasts);
        }
    };
    (FaultKind::Net(fault_kind), lasts)
}

fn delay(rng: &mut Rng, scenario: &Scenario) -> NetworkFault {
    let (clients, what) = (targets::clients(rng, scenario), targets::side(rng));
    match rng.below(4) {
        0 => NetworkFault::Hold(targets::which(rng, scenario)),
        1 => {
            // The simulation continues to pass slowly what was under way at the heal. So the
            // backlog at that time must not take longer than a final acquire waits.
            let bytes = u32::try_from(rng.within(2_000, 15_000)).unwrap_or(2_000);
            NetworkFault::Trickle { clients, nodes: targets::nodes(rng, scenario), what, bytes }
        }
        2 => NetworkFault::Delay { clients, nodes: Nodes::All, what, by: shortly(rng, scenario) },
        _ => {
            let by = of_millis(rng.within(1, 800));
            NetworkFault::Delay { clients, nodes: targets::nodes(rng, scenario), what, by }
        }
    }
}

/// A pause of a client: for any time, or past the end of its lease; at any time, or while the
/// replies to it are under way.
fn pause(rng: &mut Rng, scenario: &Scenario, lasts: Option<Length>) -> Fault {
    let client = targets::name(rng, scenario);
    let clients = Clients::Some(vec![client.clone()]);
    let fault_kind = match rng.chance(1, 3) {
        true => ClientFault::Suspend { clients },
        false => ClientFault::Pause { clients },
    };
    let lasts = match rng.chance(1, 2) {
        true => Some(of_millis(millis(scenario.lock.ttl) + rng.within(1, 200))),
        false => lasts,
    };
    let when = match rng.chance(1, 3) {
        true => targets::in_flight(rng, scenario, client),
        false => targets::when(rng, scenario),
    };
    Fault { when, lasts, fault_kind: FaultKind::Client(fault_kind) }
}

/// The death of a client. At least one client must remain for the final acquire.
fn end(rng: &mut Rng, scenario: &Scenario) -> Option<FaultKind> {
    let before = scenario.faults.iter().any(|fault| fault.fault_kind.kills_clients());
    if before || scenario.processes().len() < 2 {
        return None;
    }
    Some(FaultKind::Client(ClientFault::Kill { clients: targets::one(rng, scenario) }))
}
