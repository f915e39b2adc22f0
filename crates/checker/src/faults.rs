//! The faults that struck: which masters and processes they hit, from when to when.

use redquorum_scenario::history::{Act, Event, Ns, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Ahead, ClientFault, Clients, EventKind, FaultKind, FaultTime, NetworkFault,
    NodeFault, Nodes, Persistence, Scenario, Side,
};

use super::Case;
use super::time::{self, MS};
use super::world::World;

mod distrust;
mod losses;

use distrust::Guards;
pub(crate) use losses::Loss;

/// How long a link may still be down after a fault is healed. The back-off of reconnects is at most
/// a second.
const RECONNECT: Ns = 1_200 * MS;
/// How long a link may still be down after the end of a fault that broke no connection.
const GO_ON: Ns = 100 * MS;

/// How long messages may need in addition to their delays.
const JITTER: Ns = 10 * MS;

/// A fault that struck.
pub struct Strike<'a> {
    /// The number of the fault in the scenario.
    pub fault: usize,
    pub fault_kind: &'a FaultKind,
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
    fn of(fault_kind: &FaultKind) -> Option<Self> {
        use {FaultKind as F, NetworkFault as Net, NodeFault as Node};
        let requests = |what: Side| what != Side::Reply;
        let (requests, delay, reconnect) = match fault_kind {
            F::Node(Node::Flush { .. } | Node::Lag { .. } | Node::Counter { .. })
            | F::Clock(_)
            | F::Client(_)
            | F::Resource(_) => return None,
            F::Node(Node::Slow { by, .. }) => (false, Some(time::of(by.0)), GO_ON),
            F::Node(Node::Full { .. } | Node::Evict { .. }) => (false, None, GO_ON),
            F::Node(Node::Pause { .. }) | F::Net(Net::Duplicate(_)) => (true, None, GO_ON),
            F::Net(Net::Hold(which)) => (requests(which.what), None, GO_ON),
            F::Net(Net::Delay { by, what, .. }) => (requests(*what), Some(time::of(by.0)), GO_ON),
            F::Net(Net::Drop(which)) => (requests(which.what), None, RECONNECT),
            F::Net(Net::Trickle { what, .. }) => (requests(*what), None, RECONNECT),
            F::Node(_) | F::Net(_) => (true, None, RECONNECT),
        };
        // A message that was delayed when the fault ended still arrives late.
        let reconnect = reconnect.saturating_add(delay.unwrap_or_default());
        Some(Self { requests, delay, reconnect })
    }
}

impl Strike<'_> {
    /// From when to when the fault may have been in force.
    pub fn span(&self) -> Window {
        let is_over_at_once = match self.fault_kind {
            FaultKind::Node(_) => !self.fault_kind.can_heal(),
            FaultKind::Net(NetworkFault::Reset(which)) => which.index.is_none(),
            _ => false,
        };
        let unhealed = if is_over_at_once { self.at.to } else { Ns::MAX };
        Window::new(self.at.from, self.healed.map_or(unhealed, |healed| healed.to))
    }

    pub fn hits_node(&self, node: usize) -> bool {
        match self.fault_kind.nodes() {
            _ if !self.nodes.is_empty() => self.nodes.contains(&node),
            Some(Nodes::All) => true,
            Some(Nodes::Some(nodes)) => nodes.contains(&node),
            Some(Nodes::Role(_)) | None => false,
        }
    }

    pub fn hits_process(&self, process: &str) -> bool {
        self.fault_kind.clients().is_some_and(|all| self.processes.is_empty() && all.is_all())
            || self.processes.contains(&process)
    }

    /// The effect of the fault on the messages between a process and a master.
    fn on_link(&self, process: &str, node: usize) -> Option<&LinkEffect> {
        let of_node = matches!(self.fault_kind, FaultKind::Node(_));
        let hits = || self.hits_node(node) && (of_node || self.hits_process(process));
        self.link.as_ref().filter(|_| hits())
    }

    /// The rate of a client's lease clock that the fault sets.
    const fn rate(&self) -> Option<f64> {
        match self.fault_kind {
            FaultKind::Client(ClientFault::Rate { factor, .. }) => Some(*factor),
            _ => None,
        }
    }

    const fn duplicates(&self) -> bool {
        matches!(self.fault_kind, FaultKind::Net(NetworkFault::Duplicate(_)))
    }

    /// The masters that the fault hit.
    pub fn masters(&self, case: &Case<'_>) -> Vec<usize> {
        (1..=case.world.n).filter(|node| self.hits_node(*node)).collect()
    }

    /// The processes that the fault hit; empty for a fault of masters.
    pub fn clients<'c>(&self, case: &Case<'c>) -> Vec<&'c str> {
        let of_clients = self.fault_kind.clients().is_some();
        let processes = case.world.scenario.processes().into_iter().map(Name::as_str);
        processes.filter(|process| of_clients && self.hits_process(process)).collect()
    }

    /// `fault 2, clock.step`.
    pub fn name(&self) -> String {
        format!("fault {}, {}", self.fault, self.fault_kind.name())
    }
}

/// All faults that struck, in their order.
pub struct Faults<'a> {
    strikes: Vec<Strike<'a>>,
    /// The processes whose messages were held at a gate while its fault struck.
    gates: Vec<(&'a str, Window)>,
    guards: Guards<'a>,
    /// The state that masters kept: over which fault, which master, until when.
    kept: Vec<(usize, usize, Window)>,
    /// Which masters were asked to raise the counter of a key to that of others, and when.
    certified: Vec<(usize, &'a str, Ns)>,
    scenario: &'a Scenario,
    node_timeout: Ns,
}

impl<'a> Faults<'a> {
    pub fn of(world: &World<'a>) -> Self {
        let mut strikes: Vec<Strike<'a>> = Vec::new();
        let (mut kept, mut certified) = (Vec::new(), Vec::new());
        for record in world.records {
            match &record.event {
                Event::Struck { fault, fault_kind, nodes, processes, at, failed } => {
                    let mut hit: Vec<&str> = processes.iter().map(Name::as_str).collect();
                    if let (true, Some(Clients::Some(names))) =
                        (hit.is_empty(), fault_kind.clients())
                    {
                        hit.extend(names.iter().map(|name| world.process(name)));
                    }
                    strikes.push(Strike {
                        fault: *fault,
                        fault_kind,
                        at: at.tidy(),
                        healed: None,
                        failed: failed.is_some(),
                        stays: false,
                        nodes,
                        processes: hit,
                        link: LinkEffect::of(fault_kind),
                    });
                }
                Event::Command { node, act: Act::Certify { key, .. }, sent, .. } => {
                    certified.push((*node, &**key, *sent));
                }
                Event::Kept { fault, node, until } => kept.push((*fault, *node, until.tidy())),
                Event::Healed { fault, at, failed } => {
                    let mut latest = strikes.iter_mut().rev();
                    if let Some(strike) = latest.find(|strike| strike.fault == *fault) {
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
        let gates = strikes.iter().filter_map(|strike| {
            let fault = world.scenario.faults.get(strike.fault.checked_sub(1)?)?;
            let FaultTime::Before(moment) = &fault.when else { return None };
            let of_messages = matches!(moment.what, EventKind::Request(..) | EventKind::Reply(..));
            of_messages.then(|| (world.process(&moment.client), strike.at))
        });
        Self {
            gates: gates.collect(),
            strikes,
            kept,
            certified,
            guards: Guards::of(world.scenario),
            scenario: world.scenario,
            node_timeout: world.node_timeout,
        }
    }

    /// Whether a fault may have kept a client from leaving a queue on this master: it struck
    /// messages there, or stopped a client. Such a position lapses.
    pub fn keep_positions(&self, node: usize) -> bool {
        self.strikes.iter().any(|strike| {
            let fault_kind = strike.fault_kind;
            let stops = fault_kind.kills_clients() || fault_kind.pauses_clients();
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
            let failover = matches!(strike.fault_kind, FaultKind::Node(NodeFault::Failover { .. }));
            (strike.fault_kind.starts_again() || failover) && !strike.failed
        })
    }

    /// When a master lost keys, in the order in which the faults struck.
    pub fn losses(&self, node: usize) -> impl Iterator<Item = Loss> {
        let forgets = self.scenario.cluster.persistence == Persistence::None;
        self.of_node(node).filter_map(move |strike| {
            let mut kept = self.kept.iter();
            let kept = kept.find(|(fault, of, _)| (*fault, *of) == (strike.fault, node));
            losses::of(strike, forgets, kept.map(|kept| kept.2))
        })
    }

    /// The name of a fault, by its number in the scenario.
    pub fn name(&self, fault: usize) -> String {
        let strike = self.strikes.iter().find(|strike| strike.fault == fault);
        strike.map_or_else(|| format!("fault {fault}"), Strike::name)
    }

    /// The pauses of a master.
    pub fn node_pauses(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        let is_pause = |kind: &_| matches!(kind, FaultKind::Node(NodeFault::Pause { .. }));
        self.of_node(node).filter(move |strike| is_pause(strike.fault_kind))
    }

    /// The faults of a master's clock.
    pub fn clock(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.of_node(node).filter(|strike| matches!(strike.fault_kind, FaultKind::Clock(_)))
    }

    /// The pauses of a client process.
    pub fn pauses(&self, process: &str) -> impl Iterator<Item = &Strike<'a>> {
        self.of_process(process).filter(|strike| strike.fault_kind.pauses_clients())
    }

    /// The faults that delay a client's accesses of this kind to a register.
    pub fn on_the_way(&self, client: &str, way: AccessKind) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| match strike.fault_kind {
            FaultKind::Resource(fault) => fault.delay(client, way).is_some(),
            _ => false,
        })
    }

    /// The fault that set the wall clock of a client process, up to an instant.
    pub fn wall_clock(&self, process: &str, by: Ns) -> Option<&Strike<'a>> {
        let is_clock = |kind: &_| matches!(kind, FaultKind::Client(ClientFault::Clock { .. }));
        self.of_process(process).find(|strike| is_clock(strike.fault_kind) && strike.at.from <= by)
    }

    /// The fault that made the lease clock of a client process run at another rate, up to an
    /// instant: the last one, with its rate.
    pub fn lease_clock(&self, process: &str, by: Ns) -> Option<(&Strike<'a>, f64)> {
        let rate = |strike| Strike::rate(strike).map(|rate| (strike, rate));
        self.of_process(process).rev().filter(|strike| strike.at.from <= by).find_map(rate)
    }

    /// The faults that keep a client process from doing its part in time: the process stands still,
    /// or its timers run at a rate that drift does not allow.
    pub fn hinders(&self, process: &str) -> impl Iterator<Item = &Strike<'a>> {
        let drift = f64::from(self.scenario.lock.drift_ppm);
        let too_much = move |rate: f64| (rate - 1.0).abs() * 1e6 > drift;
        self.of_process(process).filter(move |strike| {
            strike.rate().map_or(strike.fault_kind.pauses_clients(), too_much)
        })
    }

    /// Whether a fault keeps a client process from doing its part at some time within a span, or up
    /// to `slack` before it.
    pub fn is_hindered(&self, process: &str, within: Window, slack: Ns) -> bool {
        self.hinders(process).any(|strike| {
            let span = strike.span();
            Window::new(span.from, span.to.saturating_add(slack)).touches(within)
        })
    }

    /// Whether the fencing counter of a resource on a master may have been at its end by an
    /// instant. Either a fault set it there; or a lease took the last number that another master
    /// gave, and had it certified here.
    pub fn is_spent(&self, node: usize, resource: &str, by: Ns) -> bool {
        self.strikes.iter().filter(|strike| strike.at.from <= by).any(|strike| {
            let FaultKind::Node(NodeFault::Counter { resource: of, ahead, .. }) = strike.fault_kind
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
        let kills = |strike: &&Strike<'_>| strike.fault_kind.kills_clients() && !strike.failed;
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

    /// When faults began to keep a process from sending requests to a master, and when they no
    /// longer did.
    pub fn cut_off(&self, process: &str, node: usize) -> impl Iterator<Item = Ns> {
        self.on_requests(process, node).flat_map(|(strike, over)| [strike.at.to, over])
    }

    /// Whether the network may have duplicated requests of a process to a master by an instant.
    /// Then a duplicate may execute after its own clean-up, and much later if the master stood
    /// still.
    pub fn repeats(&self, process: &str, node: usize, by: Ns) -> bool {
        self.on_link(process, node).any(|(strike, _)| strike.duplicates() && strike.at.from <= by)
    }

    /// Whether a process could reach a master throughout a span.
    pub fn reachable(&self, process: &str, node: usize, through: Window) -> bool {
        let mut gates = self.gates.iter();
        // The record does not show for which master the message was.
        if gates.any(|(of, span)| *of == process && span.touches(through)) {
            return false;
        }
        let mut down = self.on_link(process, node).filter(|(strike, link)| {
            self.link_down(strike, link.reconnect, process, node).touches(through)
        });
        // Delays add up, there and back.
        let mut late: Ns = 0;
        down.all(|(strike, link)| {
            late = late.saturating_add(link.delay.unwrap_or_default());
            let harmless = strike.duplicates() || link.delay.is_some();
            harmless && (late == 0 || late.saturating_mul(2) + JITTER <= self.node_timeout)
        })
    }

    /// How long a fault may keep a link down, with `reconnect`, the time until the next attempt to
    /// connect.
    fn link_down(&self, strike: &Strike<'a>, reconnect: Ns, process: &str, node: usize) -> Window {
        let span = strike.span();
        // A master that resumes is reachable at once, and so is a link whose messages were held.
        // The exception: the old connection was broken, and the client has given up the new one
        // meanwhile.
        let resumes = matches!(
            strike.fault_kind,
            FaultKind::Node(NodeFault::Pause { .. })
                | FaultKind::Net(NetworkFault::Hold(_) | NetworkFault::Delay { .. })
        );
        let broken = |(other, link): (&Strike<'_>, &LinkEffect)| {
            let after = Window::new(other.at.from, other.span().to.saturating_add(RECONNECT));
            link.reconnect >= RECONNECT && after.touches(span)
        };
        let is_broken = resumes && self.on_link(process, node).any(broken);
        let reconnect = if is_broken { reconnect.max(RECONNECT) } else { reconnect };
        Window::new(span.from, span.to.saturating_add(reconnect))
    }

    /// The sum of all delays that faults add to the links of a process within a span.
    pub fn delays(&self, process: &str, within: Window) -> Ns {
        let hit = self.strikes.iter().filter(|strike| {
            let ours =
                matches!(strike.fault_kind, FaultKind::Node(_)) || strike.hits_process(process);
            ours && strike.span().touches(within)
        });
        hit.filter_map(|strike| strike.link.as_ref()?.delay).fold(0, Ns::saturating_add)
    }

    /// The faults that could not be healed. The harness is to blame for the effects after them.
    pub fn not_healed(&self) -> impl Iterator<Item = &Strike<'a>> {
        // A client that could not be healed is gone, which is reported elsewhere.
        self.strikes
            .iter()
            .filter(|strike| strike.stays && !matches!(strike.fault_kind, FaultKind::Client(_)))
    }
}
