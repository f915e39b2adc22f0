//! Checks faults: each can strike, hits a master or a client, and has an effect.

use super::super::{Place, guess};
use super::Run;
use crate::name::Name;
use crate::{
    AccessKind, Client, ClientFault, Clients, ClockFault, EventKind, Fault, FaultKind, FaultTime,
    Heals, LeaseEffect, Moment, NetworkFault, NodeFault, Nodes, OnMaster, ResourceFault, SetsClock,
    Side, Step, Touches,
};

/// The names in a step that a moment is about.
type Fits = fn(&Step) -> Vec<&str>;

impl Run<'_> {
    pub(super) fn faults(&mut self) {
        for (place, fault) in self.faults.clone() {
            self.when(&place, fault);
            let (kind, verb) = fault.kind.name().split_once('.').unwrap_or_default();
            let effect = place.key(kind).key(verb);
            if let Some(nodes) = &fault.nodes {
                self.masters(&effect.key("nodes"), nodes);
            }
            if let Some(Clients::Some(names)) = &fault.clients {
                for (index, name) in names.iter().enumerate() {
                    let clients = effect.key("clients");
                    let place = if names.len() == 1 { clients } else { clients.index(index) };
                    self.known(&place, name);
                }
            }
            self.effect(&effect, fault);
            self.replicas(&effect, &fault.kind);
        }
        self.failovers();
    }

    /// Checks faults that make no sense with replicas, or without.
    fn replicas(&mut self, place: &Place, kind: &FaultKind) {
        let name = kind.name();
        match (self.cluster.1.replicas, kind) {
            (false, kind) if kind.needs_replicas() => {
                let fix = "write `replicas = true` under `[cluster]`";
                self.wrong(place, format!("`{name}` needs masters that have replicas"), fix);
            }
            (true, kind) if kind.starts_again() => {
                let fix = "write `node.failover`, or leave `replicas` out";
                let message = format!("`{name}`: a master that has a replica is not started again");
                self.wrong(place, message, fix);
            }
            (true, FaultKind::Node(NodeFault::Demote)) => {
                let message = format!("`{name}`: a master that has a replica is not demoted");
                self.wrong(place, message, "leave `replicas` out, or write `node.failover`");
            }
            (true, kind) if kind.row().clock == SetsClock::OfMaster => {
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
            if fault.kind.row().master != OnMaster::FailsOver {
                continue;
            }
            let hit: Vec<usize> = match &fault.nodes {
                Some(Nodes::All) => (1..=all).collect(),
                Some(Nodes::Some(numbers)) => numbers.clone(),
                // These masters are known only when the fault strikes. A second failover of a
                // master fails then.
                Some(Nodes::Role(_)) | None => continue,
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
                    let fix = "only `asks`, `releases`, `presents`, `reads`, `writes`, `request` and \
                                `reply` can: take one of them, or write `after`";
                    let message = format!("no client can hold back `{moment}`");
                    self.wrong(&place, message, fix);
                }
                if !moment.plus.is_zero() {
                    let fix = "leave the time out, or write `after`";
                    self.wrong(&place, "`before` cannot be later than its moment", fix);
                }
            }
        }
        let Some(lasts) = fault.lasts else { return };
        let place = place.key("for");
        let needless = match (&fault.kind, fault.kind.row().heals) {
            // With a duration, the selected messages that pass within it are reset.
            (FaultKind::Net(NetworkFault::Reset(messages)), _) => {
                messages.are_all().then_some("leave `for` out, or write `net.cut`, which lasts")
            }
            (_, Heals::AtOnce(fix) | Heals::Never(fix)) => Some(fix),
            (_, Heals::StartsAgain | Heals::Undone) => None,
        };
        if let Some(fix) = needless {
            let message = format!("`{}` happens at once and is not healed", fault.kind.name());
            self.wrong(&place.itself(), message, fix);
        } else if lasts.is_zero() {
            let fix =
                "write a time such as \"100ms\", or leave `for` out: until the end of the run";
            self.wrong(&place, "the fault is over as it begins", fix);
        }
    }

    fn moment(&mut self, place: &Place, moment: &Moment) {
        let Some(client) = self.known(&place.word(&moment.client), &moment.client) else { return };
        let id = &moment.client;
        let (name, fits, what): (&str, Fits, &str) = match &moment.what {
            EventKind::Asks(name)
            | EventKind::Granted(name)
            | EventKind::Refused(name)
            | EventKind::Lost(name) => (name, acquired, "acquires"),
            EventKind::Extended(name) => (name, extended, "extends"),
            EventKind::Releases(name) | EventKind::Released(name) => (name, released, "releases"),
            EventKind::Reads(name) => (name, |step| touched(step, AccessKind::Read), "reads"),
            EventKind::Writes(name) => (name, |step| touched(step, AccessKind::Write), "writes"),
            _ => return,
        };
        let there: Vec<&str> = self.script(client).iter().flat_map(fits).collect();
        if !there.contains(&name) {
            let guess = guess(name, there.iter().copied());
            let fix = match there.first() {
                Some(first) if guess.is_empty() => {
                    format!("it {what} `{first}`: name that, or add the step")
                }
                _ => format!("{guess}name what its script does, or add the step"),
            };
            self.wrong(&place.word(name), format!("`{id}` never {what} `{name}`"), fix);
        }
    }

    fn masters(&mut self, place: &Place, nodes: &Nodes) {
        match nodes {
            Nodes::All => {}
            Nodes::Some(numbers) => {
                for (index, number) in numbers.iter().enumerate() {
                    self.master(&place.index(index), *number);
                }
            }
            Nodes::Role(role) => {
                let all = self.cluster.1.nodes;
                let client = self.known(&place.word(&role.client), &role.client);
                let own = client.map(|client| self.clients[client].1.list(all));
                let all = own.map_or(all, |own| own.masters().len());
                if let Some(first) = role.first.filter(|first| *first > all) {
                    let message = format!("`{role}` wants {first} masters");
                    let fix = format!("`{}` knows {all}: write 1 to {all}", role.client);
                    self.wrong(place, message, fix);
                }
            }
        }
    }

    /// Checks that there is a move whose steps a marker can name.
    fn admits(&mut self, place: &Place) {
        if !self.clients.iter().any(|(_, client)| client.moving_to.is_some()) {
            let fix = "give a client `moving-to`, or leave the fault out";
            self.wrong(place, "no client moves to other masters", fix);
        }
        if self.lock.1.guard.is_none() {
            let fix = "add `restart-guard = \"2s\"` under `[lock]`, or leave the fault out";
            self.wrong(place, "without a guard, masters have no markers", fix);
        }
    }

    /// Checks what the fault does: a fault with these fields has an effect.
    fn effect(&mut self, place: &Place, fault: &Fault) {
        if fault.kind.clone().lengths_mut().first().is_some_and(|by| by.is_zero()) {
            let is_counter = matches!(fault.kind, FaultKind::Node(NodeFault::Counter { .. }));
            let at = place.key(if is_counter { "ahead" } else { "by" });
            self.wrong(&at, "the fault does nothing", "write a time such as \"100ms\"");
        }
        match &fault.kind {
            FaultKind::Node(node) => match node {
                NodeFault::Counter { resource, .. } => {
                    self.wanted(&place.key("resource"), resource);
                }
                NodeFault::Admit { .. } => self.admits(place),
                NodeFault::Kill
                | NodeFault::Stop
                | NodeFault::Restart
                | NodeFault::Pause
                | NodeFault::Slow { .. }
                | NodeFault::Flush
                | NodeFault::Evict
                | NodeFault::PowerLoss
                | NodeFault::Lag
                | NodeFault::Failover
                | NodeFault::Full
                | NodeFault::Demote => {}
            },
            FaultKind::Clock(clock) => match clock {
                ClockFault::Strobe { every, .. } => {
                    if every.0 < std::time::Duration::from_millis(1) {
                        let message = format!("a clock cannot jump every {every}");
                        self.wrong(&place.key("every"), message, "write at least \"1ms\"");
                    }
                }
                ClockFault::Rate { factor } => self.rate(place, *factor),
                ClockFault::Step { .. } => {}
            },
            FaultKind::Net(net) => self.network(place, net),
            FaultKind::Client(client) => match client {
                ClientFault::Rate { factor } => self.rate(place, *factor),
                ClientFault::Pause
                | ClientFault::Suspend
                | ClientFault::Kill
                | ClientFault::Clock { .. } => {}
            },
            FaultKind::Resource(ResourceFault::Delay { what, .. }) => {
                self.touches(place, fault.clients.as_ref(), *what);
            }
        }
    }

    fn rate(&mut self, place: &Place, factor: f64) {
        if !(0.01..=100.0).contains(&factor) {
            let message = format!("a clock cannot run at {factor} seconds per second");
            let fix = "write 0.01 to 100: 2.0 is twice as fast, 0.5 half as fast";
            self.wrong(&place.key("factor"), message, fix);
        }
    }

    fn network(&mut self, place: &Place, net: &NetworkFault) {
        let messages = match net {
            NetworkFault::Cut(messages) => {
                if !messages.are_all() {
                    let fix = "leave out all but clients and masters, or write `net.drop`";
                    self.wrong(place, "a cut loses all messages and selects none", fix);
                }
                messages
            }
            NetworkFault::Duplicate(messages) => {
                if messages.what == Side::Reply {
                    let fix = "write `what = \"request\"`, or leave `what` out";
                    self.wrong(&place.key("what"), "replies cannot arrive twice", fix);
                }
                messages
            }
            NetworkFault::Drop(messages)
            | NetworkFault::Hold(messages)
            | NetworkFault::Reset(messages) => messages,
            NetworkFault::Trickle { bytes, .. } => {
                if *bytes == 0 {
                    let fix = "write 1 or more, or `net.hold`, which lets nothing pass";
                    self.wrong(&place.key("bytes"), "no bytes at all pass", fix);
                }
                return;
            }
            NetworkFault::Delay { .. } | NetworkFault::HalfOpen { .. } => return,
        };
        for (key, number, message) in [
            ("index", messages.index, "there is no message 0"),
            ("count", messages.count, "no message at all is struck"),
        ] {
            if number == Some(0) {
                self.wrong(&place.key(key), message, "count from 1");
            }
        }
    }

    /// Whether any client makes an access that the fault delays.
    fn touches(&mut self, place: &Place, clients: Option<&Clients>, what: Touches) {
        let touches = |step: &Step| step.touches().is_some_and(|(_, way)| what.has(way));
        let has = |name: &Name| clients.is_some_and(|clients| clients.has(name));
        let hit = |client: &Client| client.names().iter().any(has);
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
        let fix = format!("add a step such as `{step}` to its script, or name another client");
        self.wrong(place, format!("no client that it hits {does} a register"), fix);
    }

    /// Whether any client locks a resource.
    fn wanted(&mut self, place: &Place, resource: &str) {
        let scripts = self.clients.iter().flat_map(|(_, client)| &client.script);
        let known: Vec<&str> = scripts.flat_map(acquired).collect();
        if !known.contains(&resource) {
            let message = format!("no client acquires `{resource}`");
            self.unknown(place, resource, known, message, "name a resource that a client acquires");
        }
    }
}

fn acquired(step: &Step) -> Vec<&str> {
    step.acquires().map(Name::as_str).collect()
}

fn extended(step: &Step) -> Vec<&str> {
    let extends = matches!(step.effect(), LeaseEffect::Extends | LeaseEffect::Keeps);
    step.resources().filter(|_| extends).map(Name::as_str).collect()
}

fn released(step: &Step) -> Vec<&str> {
    step.releases().map(Name::as_str).collect()
}

fn touched(step: &Step, what: AccessKind) -> Vec<&str> {
    let touches = step.touches().filter(|(_, way)| *way == what);
    touches.into_iter().map(|(register, _)| register.as_str()).collect()
}
