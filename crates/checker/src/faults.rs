//! The faults that struck: which masters and processes they hit, from when to when; and which
//! processes a guard may rightly refuse.

use super::Case;
use super::case::World;
use super::time::{self, MS};
use redquorum_scenario::history::{Act, Event, Ns, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Ahead, Cause, ClientFault, Clients, Fault, FaultKind, FaultRow, Loses,
    MessageFault, NodeFault, Nodes, OnClient, OnLinks, OnMaster, Persistence, Scenario, SetsClock,
    Side,
};

/// How long a link may still be down after a fault is healed. The back-off of reconnects is at most
/// a second.
pub(super) const RECONNECT: Ns = 1_200 * MS;
/// How long a link may still be down after the end of a fault that broke no connection.
const GO_ON: Ns = 100 * MS;

/// A fault that struck.
pub struct Strike<'a> {
    /// The number of the fault in the scenario.
    pub number: usize,
    pub fault: &'a Fault,
    pub at: Window,
    pub healed: Option<Window>,
    /// Whether the fault failed to strike, or did not strike everywhere.
    pub failed: bool,
    /// Whether the fault could not be healed.
    pub stays: bool,
    nodes: &'a [usize],
    processes: Vec<&'a str>,
    link: Option<LinkEffect>,
}

/// The effect of a fault on messages between clients and masters.
struct LinkEffect {
    /// Whether it affects requests, and not only replies.
    requests: bool,
    /// The delay of a fault that only delays messages; none: it does worse.
    delay: Option<Ns>,
    /// How long the link may still be down after the fault is healed.
    reconnect: Ns,
}

impl LinkEffect {
    /// The effect of a fault; none: clients notice nothing.
    fn of(kind: &FaultKind) -> Option<Self> {
        let (what, delay) = match kind.strikes_messages() {
            Some((messages, MessageFault::Delay(by))) => (messages.what, Some(time::of(by))),
            Some((messages, _)) => (messages.what, None),
            None => (Side::Both, None),
        };
        let (requests, reconnect) = match kind.row().links {
            OnLinks::Untouched => return None,
            OnLinks::Errors | OnLinks::SlowReplies => (false, GO_ON),
            OnLinks::Late | OnLinks::Held => (what != Side::Reply, GO_ON),
            OnLinks::Copied => (true, GO_ON),
            OnLinks::Lost => (what != Side::Reply, RECONNECT),
            OnLinks::Broken => (true, RECONNECT),
        };
        // A message that was delayed when the fault ended still arrives late.
        let reconnect = reconnect.saturating_add(delay.unwrap_or_default());
        Some(Self { requests, delay, reconnect })
    }
}

impl Strike<'_> {
    /// From when to when the fault may have been in force.
    pub fn span(&self) -> Window {
        let unhealed = if self.fault.kind.is_at_once() { self.at.to } else { Ns::MAX };
        Window::new(self.at.from, self.healed.map_or(unhealed, |healed| healed.to))
    }

    pub fn hits_node(&self, node: usize) -> bool {
        match &self.fault.nodes {
            _ if !self.nodes.is_empty() => self.nodes.contains(&node),
            Some(Nodes::All) => true,
            Some(Nodes::Some(nodes)) => nodes.contains(&node),
            Some(Nodes::Role(_)) | None => false,
        }
    }

    pub fn hits_process(&self, process: &str) -> bool {
        self.fault.clients.as_ref().is_some_and(|all| self.processes.is_empty() && all.is_all())
            || self.processes.contains(&process)
    }

    /// The effect of the fault on the messages between a process and a master.
    fn on_link(&self, process: &str, node: usize) -> Option<&LinkEffect> {
        let of_node = self.fault.clients.is_none();
        let hits = || self.hits_node(node) && (of_node || self.hits_process(process));
        self.link.as_ref().filter(|_| hits())
    }

    /// The rate of a client's lease clock that the fault sets.
    const fn rate(&self) -> Option<f64> {
        match &self.fault.kind {
            FaultKind::Client(ClientFault::Rate { factor }) => Some(*factor),
            _ => None,
        }
    }

    const fn row(&self) -> FaultRow {
        self.fault.kind.row()
    }

    fn duplicates(&self) -> bool {
        self.row().links == OnLinks::Copied
    }

    /// The masters that the fault hit.
    pub fn masters(&self, case: &Case<'_>) -> Vec<usize> {
        (1..=case.world.n).filter(|node| self.hits_node(*node)).collect()
    }

    /// The processes that the fault hit; empty for a fault of masters.
    pub fn clients<'c>(&self, case: &Case<'c>) -> Vec<&'c str> {
        let of_clients = self.fault.clients.is_some();
        let processes = case.world.scenario.processes().into_iter().map(Name::as_str);
        processes.filter(|process| of_clients && self.hits_process(process)).collect()
    }

    /// `fault 2, clock.step`.
    pub fn name(&self) -> String {
        format!("fault {}, {}", self.number, self.fault.kind.name())
    }
}

/// A loss of the commands that a master executed after some instant.
#[derive(Clone, Copy)]
pub struct Loss {
    pub fault: usize,
    pub cause: Cause,
    pub at: Window,
    /// Commands that were executed before this are kept. Commands that were executed after it are
    /// lost.
    until: Window,
    /// Whether the process ended with the loss, and with it all connections.
    deadly: bool,
    /// Whether the loss certainly hit this master.
    sure: bool,
}

impl Loss {
    /// The loss that a fault caused; none: nothing was lost. A master `forgets` at a restart if it
    /// has nothing on disk. The state that is `kept` over a loss of power, or by a replica, is on
    /// record.
    fn of(strike: &Strike<'_>, forgets: bool, kept: Option<Window>) -> Option<Self> {
        let row = strike.row();
        let until = match row.loses {
            Loses::Nothing => return None,
            Loses::Memory if !forgets => return None,
            // Everything that the master ever executed.
            Loses::Memory | Loses::Keys | Loses::All => Window::at(Ns::MIN),
            // Without a record, the state that was kept is unknown.
            Loses::Latest => kept.unwrap_or(Window::new(Ns::MIN, Ns::MAX)),
        };
        let deadly = matches!(row.master, OnMaster::Restarts | OnMaster::FailsOver);
        // A fault that failed hit some masters and not others. If it ends processes, it hit the
        // masters with a record of the state that they kept. Any other fault may have hit every
        // master that got a command.
        let perhaps = if deadly { kept.is_some() } else { true };
        (!strike.failed || perhaps).then_some(Self {
            fault: strike.number,
            cause: row.cause.unwrap_or(Cause::Unknown),
            at: strike.at,
            until,
            deadly,
            sure: !strike.failed,
        })
    }

    /// Whether the effect of a command that was executed within a window, before the loss, is
    /// certainly there after it.
    pub fn keeps(&self, done: Window) -> bool {
        done.to <= self.until.from
    }

    /// Whether the effect of a command that was executed within a window is certainly gone.
    pub fn takes(&self, done: Window) -> bool {
        if !self.sure || done.from <= self.until.to {
            return false;
        }
        // No connection outlives its master: a command that was sent before was executed before, if
        // at all. A command that was sent while the master went down and came up may be from before
        // or after.
        if self.deadly { self.at.from >= done.from } else { self.at.from >= done.to }
    }
}

/// All faults that struck, in their order.
pub struct Faults<'a> {
    strikes: Vec<Strike<'a>>,
    guards: Guards<'a>,
    /// The state that masters kept: over which fault, which master, until when.
    kept: Vec<(usize, usize, Window)>,
    /// Which masters were asked to raise the counter of a key to that of others, and when.
    certified: Vec<(usize, &'a str, Ns)>,
    scenario: &'a Scenario,
}

impl<'a> Faults<'a> {
    pub fn of(world: &World<'a>) -> Self {
        let mut strikes: Vec<Strike<'a>> = Vec::new();
        let (mut kept, mut certified) = (Vec::new(), Vec::new());
        for record in world.records {
            match &record.event {
                Event::Struck { fault: number, nodes, processes, at, failed } => {
                    let Some(fault) = world.scenario.fault(*number) else { continue };
                    let mut hit: Vec<&str> = processes.iter().map(Name::as_str).collect();
                    if let (true, Some(Clients::Some(names))) = (hit.is_empty(), &fault.clients) {
                        hit.extend(names.iter().map(|name| world.process(name)));
                    }
                    strikes.push(Strike {
                        number: *number,
                        fault,
                        at: at.tidy(),
                        healed: None,
                        failed: failed.is_some(),
                        stays: false,
                        nodes,
                        processes: hit,
                        link: LinkEffect::of(&fault.kind),
                    });
                }
                Event::Command { node, act: Act::Certify { key, .. }, sent, .. } => {
                    certified.push((*node, &**key, *sent));
                }
                Event::Kept { fault, node, until } => kept.push((*fault, *node, until.tidy())),
                Event::Healed { fault, at, failed } => {
                    let mut latest = strikes.iter_mut().rev();
                    if let Some(strike) = latest.find(|strike| strike.number == *fault) {
                        match failed {
                            None => strike.healed = Some(at.tidy()),
                            // The fault stays in force for ever.
                            Some(_) => strike.stays = true,
                        }
                    }
                }
                _ => {}
            }
        }
        Self {
            strikes,
            kept,
            certified,
            guards: Guards::of(world.scenario),
            scenario: world.scenario,
        }
    }

    /// Whether a fault may have kept a client from leaving a queue on this master: it struck
    /// messages there, or stopped a client. Such a position lapses.
    pub fn keep_positions(&self, node: usize) -> bool {
        self.strikes.iter().any(|strike| {
            let stops = strike.row().client != OnClient::Runs;
            stops || strike.link.is_some() && strike.hits_node(node)
        })
    }

    /// All faults, in the order in which they struck.
    pub fn strikes(&self) -> &[Strike<'a>] {
        &self.strikes
    }

    fn of_node(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| strike.hits_node(node))
    }

    fn of_process(&self, process: &str) -> impl DoubleEndedIterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| strike.hits_process(process))
    }

    /// The faults that affect the messages between a process and a master.
    fn on_link(
        &self,
        process: &str,
        node: usize,
    ) -> impl Iterator<Item = (&Strike<'a>, &LinkEffect)> {
        self.strikes.iter().filter_map(move |strike| Some((strike, strike.on_link(process, node)?)))
    }

    /// The faults that affect the requests of a process to a master, with the time at which they no
    /// longer do so.
    fn on_requests(&self, process: &str, node: usize) -> impl Iterator<Item = (&Strike<'a>, Ns)> {
        let hit = self.on_link(process, node).filter(|(_, link)| link.requests);
        hit.map(|(strike, link)| (strike, strike.span().to.saturating_add(link.reconnect)))
    }

    /// The deaths of a master. Commands that it had received and not executed are lost.
    pub fn deaths(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.of_node(node).filter(|strike| {
            matches!(strike.row().master, OnMaster::Restarts | OnMaster::FailsOver)
                && !strike.failed
        })
    }

    /// When a master lost keys, in the order in which the faults struck.
    pub fn losses(&self, node: usize) -> impl Iterator<Item = Loss> {
        let forgets = self.scenario.cluster.persistence == Persistence::None;
        self.of_node(node).filter_map(move |strike| {
            let mut kept = self.kept.iter();
            let kept = kept.find(|(fault, of, _)| (*fault, *of) == (strike.number, node));
            Loss::of(strike, forgets, kept.map(|kept| kept.2))
        })
    }

    /// The name of a fault, by its number in the scenario.
    pub fn name(&self, fault: usize) -> String {
        let strike = self.strikes.iter().find(|strike| strike.number == fault);
        strike.map_or_else(|| format!("fault {fault}"), Strike::name)
    }

    /// The pauses of a master.
    pub fn node_pauses(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.of_node(node).filter(|strike| strike.row().master == OnMaster::Paused)
    }

    /// The faults of a master's clock.
    pub fn clock(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.of_node(node).filter(|strike| strike.row().clock == SetsClock::OfMaster)
    }

    /// The pauses of a client process.
    pub fn pauses(&self, process: &str) -> impl Iterator<Item = &Strike<'a>> {
        self.of_process(process).filter(|strike| strike.fault.kind.pauses_clients())
    }

    /// The faults that delay a client's accesses of this kind to a register.
    pub fn on_the_way(&self, client: &str, way: AccessKind) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| strike.fault.delays_access(client, way).is_some())
    }

    /// The fault that set the wall clock of a client process, up to an instant.
    pub fn wall_clock(&self, process: &str, by: Ns) -> Option<&Strike<'a>> {
        let mut faults = self.of_process(process);
        faults.find(|strike| strike.row().clock == SetsClock::OfClient && strike.at.from <= by)
    }

    /// The fault that made the lease clock of a client process run at another rate, up to an
    /// instant: the last one, with its rate.
    pub fn lease_clock(&self, process: &str, by: Ns) -> Option<(&Strike<'a>, f64)> {
        let rate = |strike| Strike::rate(strike).map(|rate| (strike, rate));
        self.of_process(process).rev().filter(|strike| strike.at.from <= by).find_map(rate)
    }

    /// Whether a fault keeps a client process from doing its part in time at some instant of a
    /// span: the process stands still, or its timers run at a rate that drift does not allow.
    pub fn is_hindered(&self, process: &str, within: Window) -> bool {
        let drift = f64::from(self.scenario.lock.drift_ppm);
        let too_much = |rate: f64| (rate - 1.0).abs() * 1e6 > drift;
        self.of_process(process).any(|strike| {
            strike.rate().map_or(strike.fault.kind.pauses_clients(), too_much)
                && strike.span().touches(within)
        })
    }

    /// Whether the fencing counter of a resource on a master may have been at its end by an
    /// instant. Either a fault set it there; or a lease took the last number that another master
    /// gave, and had it certified here.
    pub fn is_spent(&self, node: usize, resource: &str, by: Ns) -> bool {
        self.strikes.iter().filter(|strike| strike.at.from <= by).any(|strike| {
            let FaultKind::Node(NodeFault::Counter { resource: of, ahead }) = &strike.fault.kind
            else {
                return false;
            };
            let since = strike.at.from;
            let carried = |(of, key, sent): &(usize, &str, Ns)| {
                *of == node && key.ends_with(resource) && (since..=by).contains(sent)
            };
            of == resource
                && match ahead {
                    Ahead::End => strike.hits_node(node),
                    Ahead::Last => strike.hits_node(node) || self.certified.iter().any(carried),
                    Ahead::By(_) => false,
                }
        })
    }

    /// When a client process was killed.
    pub fn death(&self, process: &str) -> Option<Window> {
        let kills = |strike: &&Strike<'_>| strike.fault.kind.kills_clients() && !strike.failed;
        self.of_process(process).find(kills).map(|kill| kill.at)
    }

    /// Whether a fault kept a process from sending requests to a master within a span, or up to
    /// `slack` before it. A fault that only affects replies does not do that.
    pub fn keeps_from(&self, process: &str, node: usize, within: Window, slack: Ns) -> bool {
        self.on_requests(process, node).any(|(strike, over)| {
            Window::new(strike.at.from, over.saturating_add(slack)).touches(within)
        })
    }

    /// The faults that may have kept a process from sending requests to a master while they were in
    /// force, at some time within a span.
    pub fn that_keep_from(
        &self,
        process: &str,
        node: usize,
        within: Window,
    ) -> impl Iterator<Item = &Strike<'a>> {
        let hit = self.on_requests(process, node).map(|(strike, _)| strike);
        hit.filter(move |strike| !strike.failed && strike.span().touches(within))
    }

    /// Whether the network may have duplicated requests of a process to a master by an instant.
    /// Then a duplicate may execute after its own clean-up, and much later if the master stood
    /// still.
    pub fn repeats(&self, process: &str, node: usize, by: Ns) -> bool {
        self.on_link(process, node).any(|(strike, _)| strike.duplicates() && strike.at.from <= by)
    }

    /// The sum of all delays that faults add to the links of a process within a span.
    pub fn delays(&self, process: &str, within: Window) -> Ns {
        let hit = self.strikes.iter().filter(|strike| {
            let ours = strike.fault.clients.is_none() || strike.hits_process(process);
            ours && strike.span().touches(within)
        });
        hit.filter_map(|strike| strike.link.as_ref()?.delay).fold(0, Ns::saturating_add)
    }

    /// The faults that could not be healed. The harness is to blame for the effects after them.
    pub fn not_healed(&self) -> impl Iterator<Item = &Strike<'a>> {
        // A client that could not be healed is gone, which is reported elsewhere.
        self.strikes
            .iter()
            .filter(|strike| strike.stays && !matches!(strike.fault.kind, FaultKind::Client(_)))
    }
}

struct Guards<'a> {
    /// The processes with a guard, and whether the masters have, or may have, the markers of
    /// processes with another guard than theirs.
    at_odds: Vec<(&'a str, bool)>,
    /// Whether a master loses nothing when its process ends, and reports that.
    durable: bool,
}

impl<'a> Guards<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let locks = scenario.processes().into_iter().map(|name| (name, scenario.options_of(name)));
        let guarded: Vec<_> = locks.filter(|(_, lock)| lock.guard.is_some()).collect();
        // The process that first marks a master shuts the others out for good.
        let differ = guarded.windows(2).any(|two| two[0].1.guard != two[1].1.guard);
        let at_odds = guarded
            .into_iter()
            .map(|(process, lock)| (process.as_str(), differ || lock.guard != scenario.lock.guard));
        Self {
            at_odds: at_odds.collect(),
            durable: scenario.cluster.persistence == Persistence::AofAlways,
        }
    }
}

impl Faults<'_> {
    /// The faults that may keep a lock from making progress: from when to when, and whether a lock
    /// can recover from it. Accesses to registers are no business of the lock.
    pub fn disturbances(&self) -> impl Iterator<Item = (Window, bool)> {
        let of_locks =
            self.strikes.iter().filter(|it| !matches!(it.fault.kind, FaultKind::Resource(_)));
        of_locks.map(|strike| {
            // Keys outlive their TTL on a clock that was set back, until it has caught up. A client
            // notices only at its next request that a master lost its marker without a restart.
            let row = strike.row();
            let lasts = row.clock == SetsClock::OfMaster
                || matches!(strike.fault.kind, FaultKind::Node(NodeFault::Counter { .. }))
                || row.loses == Loses::All && !self.guards.at_odds.is_empty();
            // A process that was killed is gone, and is in no client's way but by its keys.
            let kills = strike.fault.kind.kills_clients();
            (if kills { strike.at } else { strike.span() }, !lasts)
        })
    }

    /// Whether the masters have, or may have, the markers of processes with another guard than this
    /// one.
    pub fn is_at_odds(&self, process: &str) -> bool {
        self.guards.at_odds.iter().any(|(of, at_odds)| *of == process && *at_odds)
    }

    /// Whether a guard may rightly refuse every request of a process, because one of its masters
    /// also belongs to another set of masters, or is at a step of a move that does not admit it.
    pub fn refuses(&self, world: &World<'_>, process: &str) -> bool {
        let is_step = |strike: &Strike<'_>| {
            matches!(strike.fault.kind, FaultKind::Node(NodeFault::Admit { .. }))
        };
        let unmarks = |strike: &Strike<'_>| strike.fault.kind.removes_markers(self.guards.durable);
        let is_guarded = world.scenario.options_of(process).guard.is_some();
        is_guarded && self.strikes.iter().any(is_step)
            || world.is_of_two_sets(process, self.strikes.iter().any(unmarks))
    }
}
