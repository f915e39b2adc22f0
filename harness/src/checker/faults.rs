//! The faults that struck: which masters and processes they hit, from when to when.

use crate::history::{Act, Event, Ns, Window};
use crate::name::Name;
use crate::scenario::{
    AccessKind, Ahead, ClientFault, Clients, ClockFault, EventKind, FaultKind, FaultTime,
    LinkSelector, NetworkFault, NodeFault, Nodes, Persistence, Side,
};

use super::time::{self, MS, Span};
use super::world::World;

mod distrust;
mod losses;

use distrust::Guards;
pub(super) use losses::Loss;

/// How long a link may still be down after a fault is healed. The back-off of reconnects is at most
/// a second.
const RECONNECT: Ns = 1_200 * MS;
/// How long a link may still be down after the end of a fault that broke no connection.
const GO_ON: Ns = 100 * MS;

/// How long messages may need in addition to their delays.
const JITTER: Ns = 10 * MS;

/// A fault that struck.
pub(super) struct Strike<'a> {
    /// The number of the fault in the scenario.
    pub(super) fault: usize,
    pub(super) fault_kind: &'a FaultKind,
    pub(super) at: Window,
    pub(super) cured: Option<Window>,
    /// Whether the fault failed to strike, or did not strike everywhere.
    pub(super) failed: bool,
    /// Whether the fault could not be healed.
    pub(super) stays: bool,
    nodes: &'a [usize],
    processes: Vec<&'a str>,
}

impl Strike<'_> {
    /// From when to when the fault may have been in force.
    pub(super) fn span(&self) -> Span {
        let to = match (self.cured, self.fault_kind) {
            (Some(cured), _) => cured.to,
            // These faults are over as soon as they have struck.
            (None, fault_kind)
                if matches!(fault_kind, FaultKind::Node(_)) && !fault_kind.has_cure() =>
            {
                self.at.to
            }
            (None, FaultKind::Net(NetworkFault::Reset(LinkSelector { index: None, .. }))) => {
                self.at.to
            }
            (None, _) => Ns::MAX,
        };
        Span::new(self.at.from, to)
    }

    pub(super) fn hits_node(&self, node: usize) -> bool {
        if !self.nodes.is_empty() {
            return self.nodes.contains(&node);
        }
        match self.fault_kind.nodes() {
            Some(Nodes::All) => true,
            Some(Nodes::Some(nodes)) => nodes.contains(&node),
            Some(Nodes::Role(_)) | None => false,
        }
    }

    pub(super) fn hits_process(&self, process: &str) -> bool {
        self.fault_kind.clients().is_some_and(|all| self.processes.is_empty() && all.is_all())
            || self.processes.contains(&process)
    }

    /// Whether the fault affects the messages between a process and a master.
    fn hits_link(&self, process: &str, node: usize) -> bool {
        match self.fault_kind {
            // The master's clients notice nothing.
            FaultKind::Node(
                NodeFault::Flush { .. } | NodeFault::Lag { .. } | NodeFault::Counter { .. },
            ) => false,
            FaultKind::Node(_) => self.hits_node(node),
            FaultKind::Net(_) => self.hits_node(node) && self.hits_process(process),
            FaultKind::Clock(_) | FaultKind::Client(_) | FaultKind::Resource(_) => false,
        }
    }

    /// Whether the fault affects requests, and not only replies.
    const fn hits_requests(&self) -> bool {
        match self.fault_kind {
            FaultKind::Net(NetworkFault::Drop(which) | NetworkFault::Hold(which)) => {
                !matches!(which.what, Side::Reply)
            }
            FaultKind::Net(
                NetworkFault::Delay { what, .. } | NetworkFault::Trickle { what, .. },
            ) => !matches!(what, Side::Reply),
            FaultKind::Node(
                NodeFault::Slow { .. } | NodeFault::Full { .. } | NodeFault::Evict { .. },
            ) => false,
            _ => true,
        }
    }

    /// The delay of a fault that only delays messages; none: it does worse.
    fn delay(&self) -> Option<Ns> {
        match self.fault_kind {
            FaultKind::Node(NodeFault::Slow { by, .. })
            | FaultKind::Net(NetworkFault::Delay { by, .. }) => Some(time::of(by.0)),
            _ => None,
        }
    }

    /// How long the link may still be down after the fault is healed.
    fn grace(&self) -> Ns {
        // A message that was delayed when the fault ended still arrives late.
        let late = self.delay().unwrap_or_default();
        let grace = match self.fault_kind {
            FaultKind::Node(
                NodeFault::Pause { .. }
                | NodeFault::Slow { .. }
                | NodeFault::Full { .. }
                | NodeFault::Evict { .. },
            )
            | FaultKind::Net(
                NetworkFault::Hold(_) | NetworkFault::Delay { .. } | NetworkFault::Duplicate(_),
            ) => GO_ON,
            _ => RECONNECT,
        };
        grace.saturating_add(late)
    }

    /// `fault 2, clock.step`.
    pub(super) fn name(&self) -> String {
        format!("fault {}, {}", self.fault, self.fault_kind.name())
    }
}

/// All faults that struck, in their order.
pub(super) struct Faults<'a> {
    strikes: Vec<Strike<'a>>,
    /// The processes whose messages were held at a gate while its fault struck.
    gates: Vec<(&'a str, Span)>,
    forgets: bool,
    guards: Guards<'a>,
    /// The state that masters kept: over which fault, which master, until when.
    kept: Vec<(usize, usize, Window)>,
    /// Which masters were asked to raise the counter of a key to that of others, and when.
    certified: Vec<(usize, &'a str, Ns)>,
    node_timeout: Ns,
    drift_ppm: u32,
}

impl<'a> Faults<'a> {
    pub(super) fn of(world: &World<'a>) -> Self {
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
                        at: time::tidy(*at),
                        cured: None,
                        failed: failed.is_some(),
                        stays: false,
                        nodes,
                        processes: hit,
                    });
                }
                Event::Command { node, act: Act::Certify { key, .. }, sent, .. } => {
                    certified.push((*node, &**key, *sent));
                }
                Event::Kept { fault, node, until } => {
                    kept.push((*fault, *node, time::tidy(*until)));
                }
                Event::Cured { fault, at, failed } => {
                    let mut latest = strikes.iter_mut().rev();
                    if let Some(strike) = latest.find(|strike| strike.fault == *fault) {
                        match failed {
                            None => strike.cured = Some(time::tidy(*at)),
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
            of_messages
                .then(|| (world.process(&moment.client), Span::new(strike.at.from, strike.at.to)))
        });
        Self {
            gates: gates.collect(),
            strikes,
            kept,
            certified,
            forgets: world.scenario.cluster.persistence == Persistence::None,
            guards: Guards::of(world.scenario),
            node_timeout: world.node_timeout,
            drift_ppm: world.scenario.lock.drift_ppm,
        }
    }

    /// All faults, in the order in which they struck.
    pub(super) fn strikes(&self) -> &[Strike<'a>] {
        &self.strikes
    }

    /// The deaths of a master. Commands that it had received and not executed are lost.
    pub(super) fn deaths(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            let deadly = matches!(
                strike.fault_kind,
                FaultKind::Node(
                    NodeFault::Kill { .. }
                        | NodeFault::Stop { .. }
                        | NodeFault::Restart { .. }
                        | NodeFault::PowerLoss { .. }
                        | NodeFault::Failover { .. }
                )
            );
            deadly && !strike.failed && strike.hits_node(node)
        })
    }

    /// When a master lost keys, in the order in which the faults struck.
    pub(super) fn losses(&self, node: usize) -> impl Iterator<Item = Loss> {
        let hit = self.strikes.iter().filter(move |strike| strike.hits_node(node));
        hit.filter_map(move |strike| losses::of(strike, self.forgets, self.kept(strike, node)))
    }

    /// The state that a master kept over a fault, if it is on record.
    fn kept(&self, strike: &Strike<'_>, node: usize) -> Option<Window> {
        let mut said = self.kept.iter().filter(|kept| (kept.0, kept.1) == (strike.fault, node));
        said.next().map(|kept| kept.2)
    }

    /// The name of a fault, by its number in the scenario.
    pub(super) fn name(&self, fault: usize) -> String {
        let strike = self.strikes.iter().find(|strike| strike.fault == fault);
        strike.map_or_else(|| format!("fault {fault}"), Strike::name)
    }

    /// The pauses of a master.
    pub(super) fn node_pauses(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            matches!(strike.fault_kind, FaultKind::Node(NodeFault::Pause { .. }))
                && strike.hits_node(node)
        })
    }

    /// The faults of a master's clock.
    pub(super) fn clock(&self, node: usize) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            matches!(
                strike.fault_kind,
                FaultKind::Clock(
                    ClockFault::Step { .. } | ClockFault::Rate { .. } | ClockFault::Strobe { .. }
                )
            ) && strike.hits_node(node)
        })
    }

    /// The pauses of a client process.
    pub(super) fn pauses(&self, process: &str) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            strike.fault_kind.pauses_clients() && strike.hits_process(process)
        })
    }

    /// The faults that delay a client's accesses of this kind to a register.
    pub(super) fn on_the_way(
        &self,
        client: &str,
        way: AccessKind,
    ) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            matches!(strike.fault_kind, FaultKind::Resource(fault_kind) if fault_kind.delay(client, way).is_some())
        })
    }

    /// The fault that set the wall clock of a client process, up to an instant.
    pub(super) fn wall_clock(&self, process: &str, by: Ns) -> Option<&Strike<'a>> {
        self.strikes.iter().find(|strike| {
            matches!(strike.fault_kind, FaultKind::Client(ClientFault::Clock { .. }))
                && strike.hits_process(process)
                && strike.at.from <= by
        })
    }

    /// The fault that made the lease clock of a client process run at another rate, up to an
    /// instant: the last one, with its rate.
    pub(super) fn lease_clock(&self, process: &str, by: Ns) -> Option<(&Strike<'a>, f64)> {
        self.strikes.iter().rev().find_map(|strike| match strike.fault_kind {
            FaultKind::Client(ClientFault::Rate { factor, .. })
                if strike.hits_process(process) && strike.at.from <= by =>
            {
                Some((strike, *factor))
            }
            _ => None,
        })
    }

    /// The faults that keep a client process from doing its part in time: the process stands still,
    /// or its timers run at a rate that drift does not allow.
    pub(super) fn hinders(&self, process: &str) -> impl Iterator<Item = &Strike<'a>> {
        self.strikes.iter().filter(move |strike| {
            let hinders = match strike.fault_kind {
                FaultKind::Client(ClientFault::Rate { factor, .. }) => {
                    (factor - 1.0).abs() * 1e6 > f64::from(self.drift_ppm)
                }
                fault_kind => fault_kind.pauses_clients(),
            };
            hinders && strike.hits_process(process)
        })
    }

    /// Whether the fencing counter of a resource on a master may have been at its end by an
    /// instant. Either a fault set it there; or a lease took the last number that another master
    /// gave, and had it certified here.
    pub(super) fn is_spent(&self, node: usize, resource: &str, by: Ns) -> bool {
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
    pub(super) fn death(&self, process: &str) -> Option<Window> {
        let mut kills = self.strikes.iter().filter(|strike| {
            matches!(strike.fault_kind, FaultKind::Client(ClientFault::Kill { .. }))
                && !strike.failed
                && strike.hits_process(process)
        });
        kills.next().map(|kill| kill.at)
    }

    /// Whether a fault kept a process from sending requests to a master within a span, or up to
    /// `slack` before it. A fault that only affects replies does not do that.
    pub(super) fn keeps_from(&self, process: &str, node: usize, within: Span, slack: Ns) -> bool {
        self.strikes.iter().any(|strike| {
            let span = strike.span();
            let over = span.to.saturating_add(strike.grace()).saturating_add(slack);
            strike.hits_link(process, node)
                && strike.hits_requests()
                && Span::new(span.from, over).touches(within)
        })
    }

    /// When faults began to keep a process from sending requests to a master, and when they no
    /// longer did.
    pub(super) fn unheard(&self, process: &str, node: usize) -> impl Iterator<Item = Ns> {
        let hit =
            self.strikes.iter().filter(move |it| it.hits_link(process, node) && it.hits_requests());
        hit.flat_map(|strike| {
            let over = strike.span().to;
            [strike.at.to, over.saturating_add(strike.grace())]
        })
    }

    /// Whether the network may have duplicated requests of a process to a master by an instant.
    /// Then a duplicate may execute after its own clean-up, and much later if the master stood
    /// still.
    pub(super) fn repeats(&self, process: &str, node: usize, by: Ns) -> bool {
        self.strikes.iter().any(|strike| {
            matches!(strike.fault_kind, FaultKind::Net(NetworkFault::Duplicate(_)))
                && strike.hits_link(process, node)
                && strike.span().from <= by
        })
    }

    /// Whether a process could reach a master throughout a span.
    pub(super) fn reachable(&self, process: &str, node: usize, through: Span) -> bool {
        let mut gates = self.gates.iter();
        // The record does not show for which master the message was.
        if gates.any(|(of, span)| *of == process && span.touches(through)) {
            return false;
        }
        let mut on_link = self.strikes.iter().filter(|strike| {
            strike.hits_link(process, node)
                && self.link_down(strike, process, node).touches(through)
        });
        // Delays add up, there and back.
        let mut late: Ns = 0;
        on_link.all(|strike| {
            late = late.saturating_add(strike.delay().unwrap_or_default());
            let harmless = matches!(strike.fault_kind, FaultKind::Net(NetworkFault::Duplicate(_)))
                || strike.delay().is_some();
            harmless && (late == 0 || late.saturating_mul(2) + JITTER <= self.node_timeout)
        })
    }

    /// How long a fault may keep a link down, including the time until the next attempt to connect.
    fn link_down(&self, strike: &Strike<'a>, process: &str, node: usize) -> Span {
        let span = strike.span();
        // A master that resumes is reachable at once, and so is a link whose messages were held.
        // The exception: the old connection was broken, and the client has given up the new one
        // meanwhile.
        let mut grace = strike.grace();
        if matches!(
            strike.fault_kind,
            FaultKind::Node(NodeFault::Pause { .. })
                | FaultKind::Net(NetworkFault::Hold(_) | NetworkFault::Delay { .. })
        ) {
            let broken = self.strikes.iter().any(|other| {
                let after = Span::new(other.at.from, other.span().to.saturating_add(RECONNECT));
                other.grace() >= RECONNECT && other.hits_link(process, node) && after.touches(span)
            });
            grace = if broken { grace.max(RECONNECT) } else { grace };
        }
        Span::new(span.from, span.to.saturating_add(grace))
    }

    /// The sum of all delays that faults add to the links of a process within a span.
    pub(super) fn delays(&self, process: &str, within: Span) -> Ns {
        let hit = self.strikes.iter().filter(|strike| {
            let ours =
                matches!(strike.fault_kind, FaultKind::Node(_)) || strike.hits_process(process);
            ours && strike.span().touches(within)
        });
        hit.filter_map(Strike::delay).fold(0, Ns::saturating_add)
    }

    /// The faults that could not be healed. The harness is to blame for the effects after them.
    pub(super) fn not_cured(&self) -> impl Iterator<Item = &Strike<'a>> {
        // A client that could not be healed is gone, which is reported elsewhere.
        self.strikes
            .iter()
            .filter(|strike| strike.stays && !matches!(strike.fault_kind, FaultKind::Client(_)))
    }

    /// Whether a fault struck, and did so everywhere. The error is `true` if it failed to strike,
    /// and `false` if it never did.
    pub(super) fn struck(&self, fault: usize) -> Result<(), bool> {
        match self.strikes.iter().find(|strike| strike.fault == fault) {
            Some(strike) if strike.failed => Err(true),
            Some(_) => Ok(()),
            None => Err(false),
        }
    }
}
