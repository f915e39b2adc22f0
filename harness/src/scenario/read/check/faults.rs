//! Checks faults: each can strike, hits a master or a client, and has an effect.

use super::Run;
use crate::name::Name;
use crate::scenario::near::guess;
use crate::scenario::read::tree::Place;
use crate::scenario::{
    AccessKind, Ahead, Client, ClientFault, Clients, ClockFault, EventKind, Fault, FaultKind,
    FaultTime, Length, LinkSelector, Moment, NetworkFault, NodeFault, NodeList, Nodes,
    ResourceFault, Step, Touches,
};

/// The names in a step that a moment is about.
type Fits = fn(&Step) -> Vec<&str>;

impl Run<'_> {
    pub(super) fn faults(&mut self) {
        for (place, fault) in self.faults.clone() {
            self.when(&place, fault);
            let (kind, verb) = fault.fault_kind.name().split_once('.').unwrap_or_default();
            let fault_kind = place.key(kind).key(verb);
            if let Some(nodes) = fault.fault_kind.nodes() {
                self.masters(&fault_kind.key("nodes"), nodes);
            }
            if let Some(Clients::Some(names)) = fault.fault_kind.clients() {
                for (index, name) in names.iter().enumerate() {
                    let clients = fault_kind.key("clients");
                    let place = if names.len() == 1 { clients } else { clients.index(index) };
                    self.known(&place, name);
                }
            }
            self.fault_kind(&fault_kind, &fault.fault_kind);
            self.replicas(&fault_kind, &fault.fault_kind);
        }
        self.failovers();
    }

    /// Checks faults that make no sense with replicas, or without.
    fn replicas(&mut self, place: &Place, fault_kind: &FaultKind) {
        let name = fault_kind.name();
        match (self.cluster.1.replicas, fault_kind) {
            (false, fault_kind) if fault_kind.needs_replicas() => {
                let mend = "write `replicas = true` under `[cluster]`";
                self.wrong(place, format!("`{name}` needs masters that have replicas"), mend);
            }
            (true, fault_kind) if fault_kind.starts_again() => {
                let mend = "write `node.failover`, or leave `replicas` out";
                let message = format!("`{name}`: a master that has a replica is not started again");
                self.wrong(place, message, mend);
            }
            (true, FaultKind::Clock(_)) => {
                let message = format!("`{name}`: masters that have replicas have no clocks to set");
                self.wrong(place, message, "leave `replicas` out, or the fault");
            }
            _ => {}
        }
    }

    /// Checks failovers: each master has only one replica.
    fn failovers(&mut self) {
        let all = self.cluster.1.nodes;
        let mut over: Vec<usize> = Vec::new();
        for (place, fault) in self.faults.clone() {
            let FaultKind::Node(NodeFault::Failover { nodes }) = &fault.fault_kind else {
                continue;
            };
            let hit: Vec<usize> = match nodes {
                Nodes::All => (1..=all).collect(),
                Nodes::Some(numbers) => numbers.clone(),
                // These masters are known only when the fault strikes. A second failover of a
                // master fails then.
                Nodes::Role(_) => continue,
            };
            for node in hit {
                if over.contains(&node) {
                    let place = place.key("node").key("failover").key("nodes");
                    let message = format!("master {node} fails over twice, and has one replica");
                    self.wrong(&place, message, "let other masters fail over, or leave one out");
                    break;
                }
                over.push(node);
            }
        }
    }

    fn when(&mut self, place: &Place, fault: &Fault) {
        match &fault.when {
            FaultTime::At(_) => {}
            FaultTime::After(moment) => self.moment(&place.key("after"), moment),
            FaultTime::Before(moment) => {
                let place = place.key("before");
                self.moment(&place, moment);
                if !moment.what.can_wait() {
                    let mend = "only `asks`, `releases`, `reads`, `writes`, `request` and `reply` \
                                can: take one of them, or write `after`";
                    let message = format!("nobody can hold back `{moment}`");
                    self.wrong(&place, message, mend);
                }
                if !moment.plus.is_zero() {
                    let mend = "leave the time out, or write `after`";
                    self.wrong(&place, "`before` cannot be later than its moment", mend);
                }
            }
        }
        let Some(lasts) = fault.lasts else { return };
        let place = place.key("for");
        let at_once = match &fault.fault_kind {
            fault_kind if !fault_kind.has_cure() => true,
            // With a duration, the selected messages that pass within it are reset.
            FaultKind::Net(NetworkFault::Reset(which)) => !picks(which),
            _ => false,
        };
        if at_once {
            let name = fault.fault_kind.name();
            let message = format!("`{name}` happens at once and is not cured");
            let mend = match &fault.fault_kind {
                FaultKind::Node(NodeFault::Evict { .. }) => {
                    "leave `for` out, or write `node.full`, which lasts"
                }
                FaultKind::Node(NodeFault::Flush { .. } | NodeFault::Failover { .. }) => {
                    "leave `for` out: nothing brings it back"
                }
                FaultKind::Node(NodeFault::Counter { .. }) => {
                    "leave `for` out: a counter never goes back"
                }
                FaultKind::Node(_) => {
                    "leave `for` out, or write `node.kill`, which stays down so long"
                }
                FaultKind::Client(_) => "leave `for` out, or write `client.pause`, which ends",
                _ => "leave `for` out, or write `net.cut`, which lasts",
            };
            self.wrong(&place.itself(), message, mend);
        } else if lasts.is_zero() {
            let mend =
                "write a time such as \"100ms\", or leave `for` out: until the end of the run";
            self.wrong(&place, "the fault is over as it begins", mend);
        }
    }

    fn moment(&mut self, place: &Place, moment: &Moment) {
        let Some(client) = self.known(&place.word(&moment.client), &moment.client) else { return };
        let script = self.script(client);
        let id = &moment.client;
        let (name, fits, what): (&str, Fits, &str) = match &moment.what {
            EventKind::Asks(name)
            | EventKind::Granted(name)
            | EventKind::Refused(name)
            | EventKind::Lost(name) => (name, acquired, "acquires"),
            EventKind::Extended(name) => (name, extended, "extends"),
            EventKind::Releases(name) | EventKind::Released(name) => (name, released, "releases"),
            EventKind::Reads(name) => (name, read, "reads"),
            EventKind::Writes(name) => (name, written, "writes"),
            _ => return,
        };
        let there: Vec<&str> = script.iter().flat_map(fits).collect();
        if !there.contains(&name) {
            let guess = guess(name, there.iter().copied());
            let mend = match there.first() {
                Some(first) if guess.is_empty() => {
                    format!("it {what} `{first}`: name that, or add the step")
                }
                _ => format!("{guess}name what its script does, or add the step"),
            };
            self.wrong(&place.word(name), format!("`{id}` never {what} `{name}`"), mend);
        }
    }

    fn masters(&mut self, place: &Place, nodes: &Nodes) {
        let all = self.cluster.1.nodes;
        match nodes {
            Nodes::All => {}
            Nodes::Some(numbers) => {
                for (index, number) in numbers.iter().enumerate().filter(|(_, one)| **one > all) {
                    let message = format!("there is no master {number}");
                    let mend = format!("there are {all}, counted from 1: write 1 to {all}");
                    self.wrong(&place.index(index), message, mend);
                }
            }
            Nodes::Role(role) => {
                let client = self.known(&place.word(&role.client), &role.client);
                let own = client.map(|client| NodeList::of(self.clients[client].1, all));
                let all = own.map_or(all, |own| own.masters().len());
                if let Some(first) = role.first.filter(|first| *first > all) {
                    let message = format!("`{role}` wants {first} masters");
                    let mend = format!("`{}` knows {all}: write 1 to {all}", role.client);
                    self.wrong(place, message, mend);
                }
            }
        }
    }

    fn fault_kind(&mut self, place: &Place, fault_kind: &FaultKind) {
        match fault_kind {
            FaultKind::Node(NodeFault::Slow { by, .. })
            | FaultKind::Net(NetworkFault::Delay { by, .. }) => {
                self.moves(&place.key("by"), *by);
            }
            FaultKind::Clock(ClockFault::Step { by, .. })
            | FaultKind::Client(ClientFault::Clock { by, .. }) => {
                self.moves(&place.key("by"), by.by);
            }
            FaultKind::Clock(ClockFault::Strobe { by, every, .. }) => {
                self.moves(&place.key("by"), *by);
                if every.0 < std::time::Duration::from_millis(1) {
                    let message = format!("a clock cannot jump every {every}");
                    self.wrong(&place.key("every"), message, "write at least \"1ms\"");
                }
            }
            FaultKind::Clock(ClockFault::Rate { factor, .. })
            | FaultKind::Client(ClientFault::Rate { factor, .. }) => {
                if !(0.01..=100.0).contains(factor) {
                    let message = format!("a clock cannot run at {factor} seconds per second");
                    let mend = "write 0.01 to 100: 2.0 is twice as fast, 0.5 half as fast";
                    self.wrong(&place.key("factor"), message, mend);
                }
            }
            FaultKind::Node(NodeFault::Counter { resource, ahead, .. }) => {
                if let Ahead::By(by) = ahead {
                    self.moves(&place.key("ahead"), *by);
                }
                self.wanted(&place.key("resource"), resource);
            }
            FaultKind::Resource(ResourceFault::Delay { clients, what, by }) => {
                self.moves(&place.key("by"), *by);
                self.touches(place, clients, *what);
            }
            FaultKind::Net(NetworkFault::Trickle { bytes: 0, .. }) => {
                let mend = "write 1 or more, or `net.hold`, which lets nothing pass";
                self.wrong(&place.key("bytes"), "no bytes at all pass", mend);
            }
            FaultKind::Net(NetworkFault::Duplicate(which)) => {
                if which.what == crate::scenario::Side::Reply {
                    let mend = "write `what = \"request\"`, or leave `what` out";
                    self.wrong(&place.key("what"), "replies cannot arrive twice", mend);
                }
                self.which(place, which);
            }
            FaultKind::Net(
                NetworkFault::Cut(which)
                | NetworkFault::Drop(which)
                | NetworkFault::Hold(which)
                | NetworkFault::Reset(which),
            ) => self.which(place, which),
            _ => {}
        }
    }

    fn which(&mut self, place: &Place, which: &LinkSelector) {
        for (key, number) in [("index", which.index), ("count", which.count)] {
            if number == Some(0) {
                let message = match key {
                    "index" => "there is no message 0",
                    _ => "no message at all is struck",
                };
                self.wrong(&place.key(key), message, "count from 1");
            }
        }
    }

    /// Whether any client makes an access that the fault delays.
    fn touches(&mut self, place: &Place, clients: &Clients, what: Touches) {
        let touches = |step: &Step| matches!(step, Step::Touch { way, .. } if what.has(*way));
        let hit = |client: &Client| client.names().iter().any(|name| clients.has(name));
        let mut all = self.clients.iter().filter(|(_, client)| hit(client)).peekable();
        // Another check reports that there is no such client.
        if all.peek().is_none() || all.any(|(_, client)| client.script.iter().any(touches)) {
            return;
        }
        let (does, step) = match what {
            Touches::Read => ("reads", "read R"),
            Touches::Write => ("writes", "write R"),
            Touches::Both => ("reads or writes", "read R"),
        };
        let mend = format!("add a step such as `{step}` to its script, or name another client");
        self.wrong(place, format!("nobody whom it hits {does} a register"), mend);
    }

    /// Whether any client locks a resource.
    fn wanted(&mut self, place: &Place, resource: &str) {
        let scripts = self.clients.iter().flat_map(|(_, client)| &client.script);
        let known: Vec<&str> = scripts.flat_map(acquired).collect();
        if !known.contains(&resource) {
            let guess = guess(resource, known.iter().copied());
            let or = if guess.is_empty() { "" } else { "or " };
            let mend = format!("{guess}{or}name a resource that a client acquires");
            self.wrong(place, format!("nobody acquires `{resource}`"), mend);
        }
    }

    fn moves(&mut self, place: &Place, by: Length) {
        if by.is_zero() {
            self.wrong(place, "the fault does nothing", "write a time such as \"100ms\"");
        }
    }
}

/// Whether a fault strikes certain messages only.
fn picks(which: &LinkSelector) -> bool {
    let all = LinkSelector {
        clients: which.clients.clone(),
        nodes: which.nodes.clone(),
        ..LinkSelector::default()
    };
    *which != all
}

fn acquired(step: &Step) -> Vec<&str> {
    step.acquires().map(Name::as_str).collect()
}

fn extended(step: &Step) -> Vec<&str> {
    match step {
        Step::Extend { resource, .. } | Step::Keep { resource, .. } => vec![resource],
        _ => Vec::new(),
    }
}

fn released(step: &Step) -> Vec<&str> {
    step.releases().map(Name::as_str).collect()
}

fn read(step: &Step) -> Vec<&str> {
    touched(step, AccessKind::Read)
}

fn written(step: &Step) -> Vec<&str> {
    touched(step, AccessKind::Write)
}

fn touched(step: &Step, what: AccessKind) -> Vec<&str> {
    match step {
        Step::Touch { register, way, .. } if *way == what => vec![register],
        _ => Vec::new(),
    }
}
