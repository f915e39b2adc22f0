//! Random faults: their families, and the draw of one fault from a family. [`family_of`] has the
//! family of each kind; a test checks that each kind is drawn. Then when a fault strikes, and its
//! target. `clients.rs` draws more faults, of messages that wake waiters.

use std::time::Duration;

use super::shortest_ttl;
use crate::lengths::{millis, of_millis};
use crate::plan;
use crate::tape::Tape;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Ahead, Class, ClientFault, Clients, ClockFault, End, EventKind, Fault, FaultKind,
    FaultTime, Length, Messages, Moment, NetworkFault, NodeFault, Nodes, Persistence,
    ResourceFault, Role, Scenario, SetsClock, Shift, Side, Step, Touches,
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
    /// Masters forget, or their counters are set: [`add_amnesia`].
    Amnesia,
    /// The lease clocks of clients: [`add_pace`].
    Paces,
    /// Requests to registers are late: [`add_late`].
    Late,
    /// What a deployment does to its masters: `clients.rs`.
    Deployment,
}

/// The families of which a scenario has any number of faults. The others have draws of their own,
/// so that a number stands for the same scenario as it would without them.
const MANY: [Family; 9] = [
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

/// The family that draws a kind of faults.
const fn family_of(kind: &FaultKind) -> Family {
    match kind {
        FaultKind::Node(node) => match node {
            NodeFault::Kill | NodeFault::Stop | NodeFault::Restart => Family::Deaths,
            NodeFault::Pause | NodeFault::Slow { .. } | NodeFault::Full => Family::Stalls,
            NodeFault::Flush
            | NodeFault::Evict
            | NodeFault::PowerLoss
            | NodeFault::Lag
            | NodeFault::Failover
            | NodeFault::Counter { .. } => Family::Amnesia,
            NodeFault::Admit { .. } => Family::Deployment,
            NodeFault::Demote => Family::Deployment,
        },
        FaultKind::Clock(clock) => match clock {
            ClockFault::Step { .. } | ClockFault::Rate { .. } | ClockFault::Strobe { .. } => {
                Family::Clocks
            }
        },
        FaultKind::Net(net) => match net {
            NetworkFault::Cut(_)
            | NetworkFault::Drop(_)
            | NetworkFault::HalfOpen { .. }
            | NetworkFault::Reset(_) => Family::Losses,
            NetworkFault::Hold(_) | NetworkFault::Delay { .. } | NetworkFault::Trickle { .. } => {
                Family::Delays
            }
            NetworkFault::Duplicate(_) => Family::Copies,
        },
        FaultKind::Client(client) => match client {
            ClientFault::Pause | ClientFault::Suspend => Family::Pauses,
            ClientFault::Kill => Family::Ends,
            ClientFault::Clock { .. } => Family::Walls,
            ClientFault::Rate { .. } => Family::Paces,
        },
        FaultKind::Resource(ResourceFault::Delay { .. }) => Family::Late,
    }
}

/// The families of one scenario.
pub(super) struct Families {
    all: Vec<Family>,
    inside: bool,
}

/// What a fault hits and does, and how long.
struct Drawn {
    nodes: Option<Nodes>,
    clients: Option<Clients>,
    kind: FaultKind,
    lasts: Option<Length>,
}

impl Drawn {
    const fn of_nodes(nodes: Nodes, kind: FaultKind, lasts: Option<Length>) -> Self {
        Self { nodes: Some(nodes), clients: None, kind, lasts }
    }

    const fn of_clients(clients: Clients, kind: ClientFault, lasts: Option<Length>) -> Self {
        Self { nodes: None, clients: Some(clients), kind: FaultKind::Client(kind), lasts }
    }

    fn of_links(
        (clients, nodes): (Clients, Nodes),
        kind: NetworkFault,
        lasts: Option<Length>,
    ) -> Self {
        Self { nodes: Some(nodes), clients: Some(clients), kind: FaultKind::Net(kind), lasts }
    }
}

impl Families {
    /// Each family is present in every other scenario.
    pub(super) fn draw(tape: &mut Tape, inside: bool) -> Self {
        Self { all: MANY.into_iter().filter(|_| tape.chance(1, 2)).collect(), inside }
    }

    /// A random fault. None where it would be outside the assumptions, or have no effect, in this
    /// scenario.
    pub(super) fn fault(&self, tape: &mut Tape, scenario: &Scenario) -> Option<Fault> {
        if self.all.is_empty() {
            return None;
        }
        let lasts = tape.maybe(4, 5, |tape| tape.time(1, 1_200));
        let family = tape.pick(&self.all);
        let drawn = match family {
            Family::Deaths => self.death(tape, scenario, lasts)?,
            Family::Stalls => stall(tape, scenario, lasts),
            Family::Clocks if self.inside => drift(tape, scenario)?,
            Family::Clocks => clock(tape, scenario, lasts),
            Family::Losses => loss(tape, scenario, lasts),
            Family::Delays => delay(tape, scenario, lasts),
            Family::Copies => {
                let (links, messages) = which(tape, scenario);
                let what = match messages.what {
                    Side::Reply => Side::Both,
                    what => what,
                };
                let messages = Messages { what, ..messages };
                Drawn::of_links(links, NetworkFault::Duplicate(messages), lasts)
            }
            Family::Pauses => return Some(pause(tape, scenario, lasts)),
            Family::Ends => end(tape, scenario)?,
            Family::Walls => {
                let by = of_millis(tape.millis(1, 3_000) * 1_000);
                let by = Shift { by, back: tape.chance(1, 2) };
                Drawn::of_clients(one(tape, scenario), ClientFault::Clock { by }, lasts)
            }
            Family::Amnesia | Family::Paces | Family::Late | Family::Deployment => {
                unreachable!("it has a draw of its own")
            }
        };
        debug_assert_eq!(family_of(&drawn.kind), family, "{}", drawn.kind.name());
        let Drawn { nodes, clients, kind, lasts } = drawn;
        Some(Fault { when: any_time(tape, scenario), lasts, nodes, clients, kind })
    }

    fn death(&self, tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Option<Drawn> {
        let forgets = scenario.cluster.persistence == Persistence::None;
        let nodes = nodes(tape, scenario);
        let careful = self.inside && forgets && !plan::all_see_amnesia(scenario);
        // At most one: the heal of one would end the time for which the other must stay down.
        let deadly = |fault: &Fault| {
            matches!(fault.kind, FaultKind::Node(NodeFault::Kill | NodeFault::Stop))
        };
        if careful && scenario.faults.iter().any(deadly) {
            return None;
        }
        // A master that forgets comes back when all the keys that it had have expired.
        let stays = |tape: &mut Tape| {
            let longest = scenario.longest_ttl() + Duration::from_millis(10);
            Length(longest + Duration::from_millis(tape.millis(1, 800)))
        };
        Some(match tape.below(3) {
            0 if careful => return None,
            0 => Drawn::of_nodes(nodes, FaultKind::Node(NodeFault::Restart), None),
            kind => {
                let lasts = if careful { Some(stays(tape)) } else { lasts };
                let kind = if kind == 1 { NodeFault::Kill } else { NodeFault::Stop };
                Drawn::of_nodes(nodes, FaultKind::Node(kind), lasts)
            }
        })
    }
}

fn stall(tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    let nodes = nodes(tape, scenario);
    let (nodes, kind) = match tape.below(4) {
        0 => (nodes, NodeFault::Pause),
        1 => (nodes, NodeFault::Full),
        // All of them, by less than a round waits: everything works, but comes late.
        2 => (Nodes::All, NodeFault::Slow { by: shortly(tape, scenario) }),
        _ => (nodes, NodeFault::Slow { by: tape.time(1, 800) }),
    };
    Drawn::of_nodes(nodes, FaultKind::Node(kind), lasts)
}

/// A time that is less than a round waits for a master.
fn shortly(tape: &mut Tape, scenario: &Scenario) -> Length {
    tape.time(1, (millis(scenario.lock.node_timeout) * 9 / 10).max(1))
}

/// A clock whose error is as large as the assumptions allow.
fn drift(tape: &mut Tape, scenario: &Scenario) -> Option<Drawn> {
    // At most one: consecutive rates of the same clock add up.
    if scenario.faults.iter().any(sets_a_master_clock) {
        return None;
    }
    let nodes = if tape.chance(1, 2) { Nodes::All } else { nodes(tape, scenario) };
    let (share, longest) = (allowed(tape, scenario), scenario.longest_ttl());
    let (factor, lasts) = if tape.chance(2, 3) {
        (1.0 + share, Length(2 * longest))
    } else {
        // The heal of a slow clock sets it forward by the time that it lost. That must be no more
        // than the clock may lose within a TTL.
        (1.0 - share, Length(shortest_ttl(scenario)))
    };
    Some(Drawn::of_nodes(nodes, FaultKind::Clock(ClockFault::Rate { factor }), Some(lasts)))
}

fn sets_a_master_clock(fault: &Fault) -> bool {
    fault.kind.row().clock == SetsClock::OfMaster
}

/// The share of its rate by which a clock may be wrong.
fn allowed(tape: &mut Tape, scenario: &Scenario) -> f64 {
    // Over the longest TTL the fixed part of the allowance is the smallest share.
    let longest = scenario.longest_ttl();
    let most = scenario.lock.deducted_from(longest).as_secs_f64() / longest.as_secs_f64();
    let share = most * tape.pick(&[0.99, 0.99, 0.5, 0.1]);
    // Rounded to a number of digits that is easy to read.
    (share * 1e5).floor() / 1e5
}

/// A clock that is wrong.
fn clock(tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    let nodes = nodes(tape, scenario);
    let kind = match tape.below(3) {
        0 => {
            let by = tape.time(1, 3_000);
            ClockFault::Step { by: Shift { by, back: tape.chance(1, 3) } }
        }
        1 => ClockFault::Rate { factor: tape.pick(&[0.5, 0.9, 1.1, 1.5, 2.0, 10.0]) },
        _ => {
            let by = tape.time(1, 2_000);
            ClockFault::Strobe { by, every: tape.time(2, 200) }
        }
    };
    Drawn::of_nodes(nodes, FaultKind::Clock(kind), lasts)
}

fn loss(tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    match tape.below(4) {
        0 => {
            let links = links(tape, scenario);
            Drawn::of_links(links, NetworkFault::Cut(Messages::default()), lasts)
        }
        1 => {
            let (links, messages) = which(tape, scenario);
            Drawn::of_links(links, NetworkFault::Drop(messages), lasts)
        }
        2 => {
            let links = links(tape, scenario);
            let end = tape.pick(&[End::Client, End::Master]);
            Drawn::of_links(links, NetworkFault::HalfOpen { end }, lasts)
        }
        _ => {
            let (links, messages) = which(tape, scenario);
            // If the fault selects no messages, it has no duration.
            let lasts = lasts.filter(|_| !messages.are_all());
            Drawn::of_links(links, NetworkFault::Reset(messages), lasts)
        }
    }
}

fn delay(tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Drawn {
    let (clients, what) = (clients(tape, scenario), side(tape));
    match tape.below(4) {
        0 => {
            let (links, messages) = which(tape, scenario);
            Drawn::of_links(links, NetworkFault::Hold(messages), lasts)
        }
        1 => {
            // The simulation continues to pass slowly what was under way at the heal. So the
            // backlog at that time must not take longer than a final acquire waits.
            let bytes = u32::try_from(tape.millis(2_000, 15_000)).unwrap_or(2_000);
            let links = (clients, nodes(tape, scenario));
            Drawn::of_links(links, NetworkFault::Trickle { what, bytes }, lasts)
        }
        2 => {
            let by = shortly(tape, scenario);
            Drawn::of_links((clients, Nodes::All), NetworkFault::Delay { what, by }, lasts)
        }
        _ => {
            let by = tape.time(1, 800);
            let links = (clients, nodes(tape, scenario));
            Drawn::of_links(links, NetworkFault::Delay { what, by }, lasts)
        }
    }
}

/// A pause of a client: for any time, or past the end of its lease; at any time, or while the
/// replies to it are under way.
fn pause(tape: &mut Tape, scenario: &Scenario, lasts: Option<Length>) -> Fault {
    let client = client_name(tape, scenario);
    let clients = Clients::Some(vec![client.clone()]);
    let kind = match tape.chance(1, 3) {
        true => ClientFault::Suspend,
        false => ClientFault::Pause,
    };
    let lasts = match tape.chance(1, 2) {
        true => Some(of_millis(millis(scenario.lock.ttl) + tape.millis(1, 200))),
        false => lasts,
    };
    let when = match tape.chance(1, 3) {
        true => in_flight(tape, scenario, client),
        false => any_time(tape, scenario),
    };
    Fault::of_clients(when, lasts, clients, FaultKind::Client(kind))
}

/// The death of a client. At least one client must remain for the final acquire.
fn end(tape: &mut Tape, scenario: &Scenario) -> Option<Drawn> {
    let before = scenario.faults.iter().any(|fault| fault.kind.kills_clients());
    if before || scenario.processes().len() < 2 {
        return None;
    }
    Some(Drawn::of_clients(one(tape, scenario), ClientFault::Kill, None))
}

/// Adds faults by which masters forget in other ways than a restart, and counters that another
/// client sets, to every other scenario. All of it is outside the assumptions, except for locks
/// with a guard that detects it: `inside` there are only those that it detects.
pub(super) fn add_amnesia(tape: &mut Tape, scenario: &mut Scenario, inside: bool) {
    let kind = tape.below(8);
    let unseen = [1, 4].contains(&kind);
    if kind > 4 || inside && unseen {
        return;
    }
    let nodes = nodes(tape, scenario);
    let when = any_time(tape, scenario);
    let lasts = tape.maybe(4, 5, |tape| tape.time(1, 1_200));
    let (lasts, kind) = match kind {
        0 => (None, NodeFault::Flush),
        1 => (None, NodeFault::Evict),
        2 => (lasts, NodeFault::PowerLoss),
        4 => {
            let far = [1, 60, 3_600, 86_400].map(|seconds| Ahead::By(of_millis(seconds * 1_000)));
            let ahead = tape
                .maybe(2, 3, |tape| tape.pick(&far))
                .unwrap_or_else(|| tape.pick(&[Ahead::Last, Ahead::End]));
            let acquires = scenario.clients.iter().flat_map(|client| &client.script);
            let resource = acquires.flat_map(Step::resources).next().cloned();
            let resource = resource.unwrap_or_else(|| "L".into());
            (None, NodeFault::Counter { resource, ahead })
        }
        _ => {
            // A master with a replica is not restarted, and has no clock to set.
            let other = |fault: &Fault| fault.kind.starts_again() || sets_a_master_clock(fault);
            // A replica that is configured to sync every write looks like its master after a
            // restart.
            let unseen = scenario.cluster.persistence == Persistence::AofAlways;
            if scenario.faults.iter().any(other) || inside && unseen {
                return;
            }
            scenario.cluster.replicas = true;
            if tape.chance(3, 4) {
                let from_the_start = FaultTime::At(of_millis(0));
                let since =
                    if tape.chance(1, 2) { from_the_start } else { any_time(tape, scenario) };
                let lag = FaultKind::Node(NodeFault::Lag);
                scenario.faults.push(Fault::of_nodes(since, lasts, Nodes::All, lag));
            }
            (None, NodeFault::Failover)
        }
    };
    scenario.faults.push(Fault::of_nodes(when, lasts, nodes, FaultKind::Node(kind)));
}

/// Lets the lease clock of a client run at another rate, in every sixth scenario. Inside the
/// assumptions the difference is at most the drift allowance, and then no master's clock differs.
pub(super) fn add_pace(tape: &mut Tape, scenario: &mut Scenario, inside: bool) {
    if !tape.chance(1, 6) || inside && scenario.faults.iter().any(sets_a_master_clock) {
        return;
    }
    let factor = if inside {
        let share = allowed(tape, scenario);
        if tape.chance(3, 4) { 1.0 - share } else { 1.0 + share }
    } else {
        tape.pick(&[0.1, 0.5, 0.9, 1.1, 2.0, 10.0])
    };
    let (when, clients) = (any_time(tape, scenario), one(tape, scenario));
    let lasts = tape.maybe(2, 3, |tape| tape.time(1, 2_400));
    let kind = FaultKind::Client(ClientFault::Rate { factor });
    scenario.faults.push(Fault::of_clients(when, lasts, clients, kind));
}

/// Lets the reads or writes of a client come late, in every sixth scenario. It comes after all
/// else, so that a number stands for the same clients and faults as it would without it.
pub(super) fn add_late(tape: &mut Tape, scenario: &mut Scenario) {
    if !tape.chance(1, 6) {
        return;
    }
    let touch = |step: &Step| match step {
        Step::Touch { register, way, .. } => Some((register.clone(), *way)),
        _ => None,
    };
    let touches = scenario.clients.iter().flat_map(|client| {
        client.script.iter().filter_map(touch).map(|(register, way)| (&client.id, register, way))
    });
    let all: Vec<_> = touches.collect();
    if all.is_empty() {
        return;
    }
    let (client, register, way) = tape.pick(&all);
    let client = client.clone();
    let (what, moment) = match way {
        AccessKind::Present => (Touches::Both, EventKind::Presents(register)),
        AccessKind::Read => (Touches::Read, EventKind::Reads(register)),
        AccessKind::Write => (Touches::Write, EventKind::Writes(register)),
    };
    let what = if tape.chance(1, 4) { Touches::Both } else { what };
    let when = match tape.chance(1, 2) {
        true => {
            FaultTime::Before(Moment { client: client.clone(), what: moment, plus: of_millis(0) })
        }
        false => any_time(tape, scenario),
    };
    let lasts = tape.maybe(1, 2, |tape| tape.time(1, 1_200));
    let (clients, by) = (Clients::Some(vec![client]), tape.time(1, 2_500));
    let kind = FaultKind::Resource(ResourceFault::Delay { what, by });
    scenario.faults.push(Fault::of_clients(when, lasts, clients, kind));
}

/// One of the clients.
fn client_name(tape: &mut Tape, scenario: &Scenario) -> Name {
    let index = tape.index(scenario.clients.len());
    scenario.clients[index].id.clone()
}

pub(super) fn one(tape: &mut Tape, scenario: &Scenario) -> Clients {
    Clients::Some(vec![client_name(tape, scenario)])
}

pub(super) fn clients(tape: &mut Tape, scenario: &Scenario) -> Clients {
    if tape.usually(1, 2) { Clients::All } else { one(tape, scenario) }
}

pub(super) fn nodes(tape: &mut Tape, scenario: &Scenario) -> Nodes {
    let all = scenario.cluster.nodes;
    // The fewer a fault hits, the simpler it is.
    tape.span(|tape| match tape.one_of(&[2, 0, 0, 0, 0, 1, 1, 1]) {
        0 => {
            let some = (0..tape.within(1, 3)).filter_map(|_| {
                let stays = tape.keeps();
                let number = tape.master(all);
                stays.then_some(number)
            });
            let mut some: Vec<usize> = some.collect();
            some.sort_unstable();
            some.dedup();
            Nodes::Some(some)
        }
        1 => Nodes::Role(Role {
            client: client_name(tape, scenario),
            granted: tape.usually(2, 3),
            first: tape.usually(1, 2).then(|| tape.index(all) + 1),
        }),
        _ => Nodes::All,
    })
}

pub(super) fn class(tape: &mut Tape) -> Class {
    tape.pick(&[Class::Any, Class::Acquire, Class::Extend, Class::Release])
}

pub(super) fn side(tape: &mut Tape) -> Side {
    tape.pick(&[Side::Both, Side::Request, Side::Reply])
}

/// Some clients and some masters, and messages between them.
pub(super) fn which(tape: &mut Tape, scenario: &Scenario) -> ((Clients, Nodes), Messages) {
    let links = links(tape, scenario);
    let messages = Messages {
        what: side(tape),
        command: class(tape),
        index: tape.maybe(1, 2, |tape| tape.within(1, 20)),
        count: tape.maybe(1, 2, |tape| tape.within(1, 10)),
    };
    (links, messages)
}

/// The links between some clients and some masters.
pub(super) fn links(tape: &mut Tape, scenario: &Scenario) -> (Clients, Nodes) {
    (clients(tape, scenario), nodes(tape, scenario))
}

pub(super) fn any_time(tape: &mut Tape, scenario: &Scenario) -> FaultTime {
    tape.span(|tape| match tape.below(4) {
        0 => FaultTime::At(of_millis(0)),
        1 => FaultTime::At(tape.time(0, 1_499)),
        _ => moment(tape, scenario),
    })
}

/// Before or after an action of a client. The draw omits actions that the client never does.
fn moment(tape: &mut Tape, scenario: &Scenario) -> FaultTime {
    let index = tape.index(scenario.clients.len());
    let client = scenario.clients[index].id.clone();
    let script = &scenario.clients[index].script;
    let granted =
        || script.iter().flat_map(Step::resources).next().cloned().unwrap_or_else(|| "L".into());
    let what = match tape.below(14) {
        0 => EventKind::Asks(granted()),
        1 => EventKind::Refused(granted()),
        2 => extended(script).unwrap_or_else(|| EventKind::Granted(granted())),
        3 => EventKind::Lost(granted()),
        4 => EventKind::Releases(granted()),
        5 => EventKind::Released(granted()),
        6 => touched(script, AccessKind::Read).unwrap_or_else(|| EventKind::Granted(granted())),
        7 => touched(script, AccessKind::Write).unwrap_or_else(|| EventKind::Granted(granted())),
        8 => EventKind::Request(message(tape), class(tape)),
        9 => EventKind::Reply(message(tape), class(tape)),
        _ => EventKind::Granted(granted()),
    };
    if what.can_wait() && tape.chance(1, 2) {
        return FaultTime::Before(Moment { client, what, plus: of_millis(0) });
    }
    let plus = of_millis(if tape.usually(1, 3) { 0 } else { tape.millis(0, 199) });
    FaultTime::After(Moment { client, what, plus })
}

/// While the replies to a round are under way to a client.
fn in_flight(tape: &mut Tape, scenario: &Scenario, client: Name) -> FaultTime {
    let masters = u64::try_from(scenario.cluster.nodes).unwrap_or(1);
    let number = u32::try_from(tape.within(1, masters)).unwrap_or(1);
    let class = tape.pick(&[Class::Acquire, Class::Acquire, Class::Extend]);
    FaultTime::Before(Moment { client, what: EventKind::Reply(number, class), plus: of_millis(0) })
}

fn message(tape: &mut Tape) -> u32 {
    u32::try_from(tape.within(1, 12)).unwrap_or(1)
}

fn extended(script: &[Step]) -> Option<EventKind> {
    script.iter().find_map(|step| match step {
        Step::Extend { resource, .. } | Step::Keep { resource, .. } => {
            Some(EventKind::Extended(resource.clone()))
        }
        _ => None,
    })
}

fn touched(script: &[Step], wanted: AccessKind) -> Option<EventKind> {
    let what = if wanted == AccessKind::Read { EventKind::Reads } else { EventKind::Writes };
    script.iter().find_map(|step| match step {
        Step::Touch { register, way, .. } if *way == wanted => Some(what(register.clone())),
        _ => None,
    })
}
