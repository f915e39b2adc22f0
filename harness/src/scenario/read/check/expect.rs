//! Checks expectations: their clients exist, their causes are possible, and they do not contradict
//! each other.

use super::Run;
use crate::scenario::read::tree::Place;
use crate::scenario::{Acquires, Cause, Client, NodeList, Step};

impl Run<'_> {
    pub(super) fn expectation(&mut self) {
        let (place, expect) = self.expect.clone();
        if !expect.because.is_empty() && !expect.any_violation() {
            let mend = "add what is violated, such as `mutual-exclusion = \"violated\"`, or leave \
                        `because` out";
            let because = place.key("because").itself();
            self.wrong(&because, "a cause, and no violation is expected", mend);
        }
        for (index, cause) in expect.because.iter().enumerate() {
            let at = place.key("because").index(index);
            if expect.because[..index].contains(cause) {
                self.wrong(&at, format!("`{cause}` is there twice"), "name it once");
            }
            let faults = causing(*cause);
            let any =
                |name: &str| self.faults.iter().any(|(_, fault)| fault.fault_kind.name() == name);
            if !faults.is_empty() && !faults.iter().any(|name| any(name)) {
                let message = format!("no fault here can be the cause `{cause}`");
                let mend = format!("add a fault such as `{}`, or name another cause", faults[0]);
                self.wrong(&at, message, mend);
            }
            if *cause == Cause::NodeLists && !self.lists_are_wrong() {
                let message = "any two quorums of what the clients know have a master in common";
                let mend = "give two clients `nodes` that differ enough, or name another cause";
                self.wrong(&at, message, mend);
            }
            if *cause == Cause::MaxTtl && !self.guards_differ() {
                let message = "all clients that have a guard have the same";
                let mend = "give one a `restart-guard` of its own, or name another cause";
                self.wrong(&at, message, mend);
            }
        }
        for (name, acquires) in &expect.acquires {
            let at = place.key("acquires").key(name.as_str()).itself();
            if let Some(client) = self.expected(&at, name) {
                self.acquires(&at, client, name);
            }
            let is = |client: &Client| {
                client.id == name.as_str()
                    || client.names().iter().any(|known| known == name.as_str())
            };
            let own = self.clients.iter().find(|(_, client)| is(client));
            let lock = own.map_or_else(|| self.lock.1.clone(), |own| own.1.options(self.lock.1));
            if *acquires == Acquires::Distrusted && lock.guard.is_none() {
                let message =
                    format!("`{name}` is to distrust a master, and its lock has no guard");
                let mend = if self.lock.1.guard.is_none() {
                    "add `restart-guard = \"2s\"` under `[lock]`, or expect `refused`"
                } else {
                    "leave out its `restart-guard = false`, or expect `refused`"
                };
                self.wrong(&at, message, mend);
            }
            if *acquires != Acquires::Granted
                && *acquires != Acquires::AllGranted
                && expect.margin.contains_key(name)
            {
                let message = format!("`{name}` is to be refused and to have a margin");
                let mend = "leave one of the two out";
                self.wrong(&place.key("margin").key(name.as_str()).itself(), message, mend);
            }
        }
        for (name, margin) in &expect.margin {
            let at = place.key("margin").key(name.as_str());
            let mut list = NodeList::all(self.cluster.1.nodes);
            if let Some(client) = self.known(&at.itself(), name) {
                self.acquires(&at.itself(), client, name);
                list = NodeList::of(self.clients[client].1, self.cluster.1.nodes);
            }
            let quorum = list.quorum();
            if *margin > quorum {
                let message = format!("no grant has a margin of {margin}");
                let mend = format!(
                    "with {} masters that all grant it is {quorum}: write that or less",
                    list.masters().len()
                );
                self.wrong(&at, message, mend);
            }
        }
        self.within();
        self.commands();
        self.overtaken();
    }

    /// A client, or all clients of a kind.
    fn expected(&mut self, at: &Place, name: &str) -> Option<usize> {
        let kind = self.clients.iter().position(|(_, client)| client.id == name);
        kind.or_else(|| self.known(at, name))
    }

    fn within(&mut self) {
        let (place, expect) = self.expect.clone();
        for (name, within) in &expect.within {
            let at = place.key("within").key(name.as_str()).itself();
            if let Some(client) = self.expected(&at, name) {
                self.acquires(&at, client, name);
            }
            let none =
                |acquires: &Acquires| !matches!(acquires, Acquires::Granted | Acquires::AllGranted);
            if expect.acquires.get(name).is_some_and(none) {
                let message = format!("`{name}` is to be refused and to be granted soon");
                self.wrong(&at, message, "leave one of the two out");
            } else if within.is_zero() {
                let message = format!("`{name}` is to be granted in no time");
                self.wrong(&at, message, "write a time such as 1s, longer than its round trips");
            }
        }
    }

    fn commands(&mut self) {
        let (place, expect) = self.expect.clone();
        for (name, most) in &expect.commands {
            let at = place.key("commands").key(name.as_str()).itself();
            if let Some(client) = self.expected(&at, name) {
                self.acquires(&at, client, name);
            }
            if *most == 0 {
                let message = format!("`{name}` is to acquire without a command");
                self.wrong(&at, message, "write how many its process may send at most");
            }
        }
    }

    fn overtaken(&mut self) {
        let (place, expect) = self.expect.clone();
        for name in expect.overtaken.keys() {
            let at = place.key("overtaken").key(name.as_str()).itself();
            let Some(client) = self.expected(&at, name) else { continue };
            let waits = |step: &Step| matches!(step, Step::Acquire { wait, .. } if !wait.is_zero());
            if !self.script(client).iter().any(waits) {
                let message = format!("`{name}` waits for nothing, and nobody can overtake it");
                self.wrong(
                    &at,
                    message,
                    "add an `acquire L wait 5s` to its script, or leave it out here",
                );
            } else if self.clients.iter().all(|(_, other)| {
                other.process() == self.clients[client].1.process() && other.count == 1
            }) {
                let message = format!("there is no process beside that of `{name}`");
                self.wrong(&at, message, "add a client that can overtake it, or leave it out here");
            }
        }
    }

    /// Whether the quorums of any two clients can have no master in common, or a client cannot
    /// reach a quorum.
    fn lists_are_wrong(&self) -> bool {
        let all = self.cluster.1.nodes;
        let lists: Vec<NodeList> =
            self.clients.iter().map(|(_, client)| NodeList::of(client, all)).collect();
        let parts = |one: &NodeList| lists.iter().any(|other| one.can_part_from(other));
        lists.iter().any(|one| parts(one) || one.masters().len() < one.quorum())
    }

    /// Whether two clients have guards with different TTLs, or a client's guard differs from the
    /// one that initialized the masters at the start.
    fn guards_differ(&self) -> bool {
        let lock = self.lock.1;
        let guards = self.clients.iter().filter_map(|own| own.1.options(lock).guard);
        let guards: Vec<_> = guards.chain(lock.guard.filter(|_| lock.initialized)).collect();
        guards.windows(2).any(|two| two[0] != two[1])
    }

    fn acquires(&mut self, at: &Place, client: usize, name: &str) {
        if !self.script(client).iter().any(|step| matches!(step, Step::Acquire { .. })) {
            let mend = "add an `acquire` to its script, or leave it out here";
            self.wrong(at, format!("`{name}` acquires nothing"), mend);
        }
    }
}

/// The faults that can be a cause. Empty if no fault is the cause.
fn causing(cause: Cause) -> &'static [&'static str] {
    match cause {
        Cause::ClockStep => &["clock.step", "clock.strobe"],
        Cause::ClockRate => &["clock.rate"],
        Cause::ClockStrobe => &["clock.strobe"],
        Cause::NodeRestart => &["node.restart", "node.kill", "node.stop"],
        Cause::NodeFlush => &["node.flush"],
        Cause::NodeEvict => &["node.evict"],
        Cause::NodePowerLoss => &["node.power-loss"],
        Cause::NodeFailover => &["node.failover"],
        Cause::NodeCounter => &["node.counter"],
        Cause::ClientClock => &["client.clock"],
        Cause::ClientRate => &["client.rate"],
        Cause::ClientPause => &["client.pause", "client.suspend"],
        Cause::ResourceDelay => &["resource.delay"],
        Cause::NodeLists | Cause::MaxTtl | Cause::LateWrite | Cause::Bug | Cause::Unknown => &[],
    }
}
