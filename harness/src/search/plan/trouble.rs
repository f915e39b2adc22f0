//! Random faults: their families, and the draw of one fault from a family.

use std::time::Duration;

use super::dice::Dice;
use super::{aims, guards, shortest_ttl};
use crate::scenario::{
    ClientHarm, Clients, ClockHarm, End, Fault, Harm, Length, NetHarm, NodeHarm, Nodes,
    Persistence, Scenario, Shift, Side, Which,
};
use crate::search::lengths::{millis, of_millis};

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

/// A harm and its duration.
type Drawn = (Harm, Option<Length>);

impl Families {
    /// Each family is present in every other scenario.
    pub(super) fn draw(dice: &mut Dice, inside: bool) -> Self {
        Self { all: ALL.into_iter().filter(|_| dice.chance(1, 2)).collect(), inside }
    }

    /// A random fault. None where it would be outside the assumptions, or have no effect, in this
    /// scenario.
    pub(super) fn fault(&self, dice: &mut Dice, scenario: &Scenario) -> Option<Fault> {
        if self.all.is_empty() {
            return None;
        }
        let lasts = dice.maybe(4, 5, |dice| of_millis(dice.within(1, 1_200)));
        let (harm, lasts) = match dice.pick(&self.all) {
            Family::Deaths => self.death(dice, scenario, lasts)?,
            Family::Stalls => (Harm::Node(stall(dice, scenario)), lasts),
            Family::Clocks if self.inside => drift(dice, scenario)?,
            Family::Clocks => (Harm::Clock(clock(dice, scenario)), lasts),
            Family::Losses => loss(dice, scenario, lasts),
            Family::Delays => (Harm::Net(delay(dice, scenario)), lasts),
            Family::Copies => {
                let which = aims::which(dice, scenario);
                let what = if which.what == Side::Reply { Side::Both } else { which.what };
                (Harm::Net(NetHarm::Duplicate(Which { what, ..which })), lasts)
            }
            Family::Pauses => return Some(pause(dice, scenario, lasts)),
            Family::Ends => (end(dice, scenario)?, None),
            Family::Walls => {
                let by = of_millis(dice.within(1, 3_000) * 1_000);
                let by = Shift { by, back: dice.chance(1, 2) };
                let clients = aims::one(dice, scenario);
                (Harm::Client(ClientHarm::Clock { clients, by }), lasts)
            }
        };
        Some(Fault { when: aims::when(dice, scenario), lasts, harm })
    }

    fn death(&self, dice: &mut Dice, scenario: &Scenario, lasts: Option<Length>) -> Option<Drawn> {
        let forgets = scenario.cluster.persistence == Persistence::None;
        let nodes = aims::nodes(dice, scenario);
        let careful = self.inside && forgets && !guards::all_see_amnesia(scenario);
        // At most one: the heal of one would end the time for which the other must stay down.
        let deadly = |fault: &Fault| {
            matches!(fault.harm, Harm::Node(NodeHarm::Kill { .. } | NodeHarm::Stop { .. }))
        };
        if careful && scenario.faults.iter().any(deadly) {
            return None;
        }
        // A master that forgets comes back when all the keys that it had have expired.
        let stays = |dice: &mut Dice| {
            let longest = scenario.longest_ttl() + Duration::from_millis(10);
            Length(longest + Duration::from_millis(dice.within(1, 800)))
        };
        Some(match dice.below(3) {
            0 if careful => return None,
            0 => (Harm::Node(NodeHarm::Restart { nodes }), None),
            kind => {
                let lasts = if careful { Some(stays(dice)) } else { lasts };
                let harm = match kind {
                    1 => NodeHarm::Kill { nodes },
                    _ => NodeHarm::Stop { nodes },
                };
                (Harm::Node(harm), lasts)
            }
        })
    }
}

fn stall(dice: &mut Dice, scenario: &Scenario) -> NodeHarm {
    let nodes = aims::nodes(dice, scenario);
    match dice.below(4) {
        0 => NodeHarm::Pause { nodes },
        1 => NodeHarm::Full { nodes },
        // All of them, by less than a round waits: everything works, but comes late.
        2 => NodeHarm::Slow { nodes: Nodes::All, by: shortly(dice, scenario) },
        _ => NodeHarm::Slow { nodes, by: of_millis(dice.within(1, 800)) },
    }
}

/// A time that is less than a round waits for a master.
fn shortly(dice: &mut Dice, scenario: &Scenario) -> Length {
    of_millis(dice.within(1, (millis(scenario.lock.node_timeout) * 9 / 10).max(1)))
}

/// A clock whose error is as large as the assumptions allow.
fn drift(dice: &mut Dice, scenario: &Scenario) -> Option<Drawn> {
    // At most one: consecutive rates of the same clock add up.
    if scenario.faults.iter().any(|fault| matches!(fault.harm, Harm::Clock(_))) {
        return None;
    }
    let nodes = if dice.chance(1, 2) { Nodes::All } else { aims::nodes(dice, scenario) };
    let (share, longest) = (allowed(dice, scenario), scenario.longest_ttl());
    let (factor, lasts) = if dice.chance(2, 3) {
        (1.0 + share, Length(2 * longest))
    } else {
        // The heal of a slow clock sets it forward by the time that it lost. That must be no more
        // than the clock may lose within a TTL.
        (1.0 - share, Length(shortest_ttl(scenario)))
    };
    Some((Harm::Clock(ClockHarm::Rate { nodes, factor }), Some(lasts)))
}

/// The share of its rate by which a clock may be wrong.
pub(super) fn allowed(dice: &mut Dice, scenario: &Scenario) -> f64 {
    // Over the longest TTL the fixed part of the allowance is the smallest share.
    let longest = scenario.longest_ttl();
    let most = scenario.lock.deducted_from(longest).as_secs_f64() / longest.as_secs_f64();
    let share = most * dice.pick(&[0.99, 0.99, 0.5, 0.1]);
    // Rounded to a number of digits that is easy to read.
    (share * 1e5).floor() / 1e5
}

/// A clock that is wrong.
fn clock(dice: &mut Dice, scenario: &Scenario) -> ClockHarm {
    let nodes = aims::nodes(dice, scenario);
    match dice.below(3) {
        0 => {
            let by = of_millis(dice.within(1, 3_000));
            ClockHarm::Step { nodes, by: Shift { by, back: dice.chance(1, 3) } }
        }
        1 => ClockHarm::Rate { nodes, factor: dice.pick(&[0.5, 0.9, 1.1, 1.5, 2.0, 10.0]) },
        _ => {
            let by = of_millis(dice.within(1, 2_000));
            ClockHarm::Strobe { nodes, by, every: of_millis(dice.within(2, 200)) }
        }
    }
}

fn loss(dice: &mut Dice, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    let harm = match dice.below(4) {
        0 => NetHarm::Cut(aims::ties(dice, scenario)),
        1 => NetHarm::Drop(aims::which(dice, scenario)),
        2 => NetHarm::HalfOpen {
            clients: aims::clients(dice, scenario),
            nodes: aims::nodes(dice, scenario),
            end: dice.pick(&[End::Client, End::Master]),
        },
        _ => {
            let which = aims::which(dice, scenario);
            let ties = Which {
                clients: which.clients.clone(),
                nodes: which.nodes.clone(),
                ..Which::default()
            };
            // If the fault selects no messages, it has no duration.
            let lasts = lasts.filter(|_| which != ties);
            return (Harm::Net(NetHarm::Reset(which)), lasts);
        }
    };
    (Harm::Net(harm), lasts)
}

fn delay(dice: &mut Dice, scenario: &Scenario) -> NetHarm {
    let (clients, what) = (aims::clients(dice, scenario), aims::side(dice));
    match dice.below(4) {
        0 => NetHarm::Hold(aims::which(dice, scenario)),
        1 => {
            // The simulation continues to pass slowly what was under way at the heal. So the
            // backlog at that time must not take longer than a final acquire waits.
            let bytes = u32::try_from(dice.within(2_000, 15_000)).unwrap_or(2_000);
            NetHarm::Trickle { clients, nodes: aims::nodes(dice, scenario), what, bytes }
        }
        2 => NetHarm::Delay { clients, nodes: Nodes::All, what, by: shortly(dice, scenario) },
        _ => {
            let by = of_millis(dice.within(1, 800));
            NetHarm::Delay { clients, nodes: aims::nodes(dice, scenario), what, by }
        }
    }
}

/// A pause of a client: for any time, or past the end of its lease; at any time, or while the
/// replies to it are under way.
fn pause(dice: &mut Dice, scenario: &Scenario, lasts: Option<Length>) -> Fault {
    let client = aims::name(dice, scenario);
    let clients = Clients::Some(vec![client.clone()]);
    let harm = match dice.chance(1, 3) {
        true => ClientHarm::Suspend { clients },
        false => ClientHarm::Pause { clients },
    };
    let lasts = match dice.chance(1, 2) {
        true => Some(of_millis(millis(scenario.lock.ttl) + dice.within(1, 200))),
        false => lasts,
    };
    let when = match dice.chance(1, 3) {
        true => aims::in_flight(dice, scenario, client),
        false => aims::when(dice, scenario),
    };
    Fault { when, lasts, harm: Harm::Client(harm) }
}

/// The death of a client. At least one client must remain for the final acquire.
fn end(dice: &mut Dice, scenario: &Scenario) -> Option<Harm> {
    let before = scenario.faults.iter().any(|fault| fault.harm.kills_clients());
    if before || scenario.processes().len() < 2 {
        return None;
    }
    Some(Harm::Client(ClientHarm::Kill { clients: aims::one(dice, scenario) }))
}
