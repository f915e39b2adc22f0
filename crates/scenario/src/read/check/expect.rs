//! Checks expectations: their clients exist, their causes are possible, and they do not contradict
//! each other.

use super::Run;
use crate::read::tree::Place;
use crate::{Acquires, Cause, NodeList, Step, Wanted};

impl Run<'_> {
    pub(super) fn expectation(&mut self) {
        let (place, expect) = self.expect.clone();
        if !expect.because.is_empty() && !expect.any_violation() {
            let fix = "add what is violated, such as `mutual-exclusion = \"violated\"`, or leave \
                        `because` out";
            let because = place.key("because").itself();
            self.wrong(&because, "a cause, and no violation is expected", fix);
        }
        for (index, cause) in expect.because.iter().enumerate() {
            let at = place.key("because").index(index);
            if expect.because[..index].contains(cause) {
                self.wrong(&at, format!("`{cause}` is there twice"), "name it once");
            }
            self.cause(&at, *cause);
        }
        for (index, known) in expect.known.iter().enumerate() {
            let at = place.key("known").index(index);
            if expect.of(known.property) == Wanted::Violated {
                let message = format!("a violation of `{}` is expected and known", known.property);
                self.wrong(&at, message, "leave one of the two out");
            }
            if known.reason.trim().is_empty() {
                self.wrong(&at, "a known violation has no reason", "say why it is accepted");
            }
        }
        let granted = |name: &str| {
            let wanted = expect.acquires.get(name);
            wanted.is_none_or(|it| matches!(it, Acquires::Granted | Acquires::AllGranted))
        };
        let at = |table: &str, name: &str| place.key(table).key(name).itself();

        for (name, acquires) in &expect.acquires {
            let at = at("acquires", name);
            let client = self.acquires(&at, name);
            let lock = self.lock.1;
            let own = client.map(|client| self.clients[client].1.options(lock));
            let is_guarded = own.map_or(lock.guard.is_some(), |own| own.guard.is_some());
            if *acquires == Acquires::Distrusted && !is_guarded {
                let message =
                    format!("`{name}` is to distrust a master, and its lock has no guard");
                let fix = if lock.guard.is_none() {
                    "add `restart-guard = \"2s\"` under `[lock]`, or expect `refused`"
                } else {
                    "leave out its `restart-guard = false`, or expect `refused`"
                };
                self.wrong(&at, message, fix);
            }
        }
        for (name, margin) in &expect.margin {
            let at = at("margin", name);
            if !granted(name) {
                let message = format!("`{name}` is to be refused and to have a margin");
                self.wrong(&at, message, "leave one of the two out");
            }
            let all = self.cluster.1.nodes;
            let client = self.known(&at, name);
            let list = client.map_or_else(
                || NodeList::all(all),
                |client| {
                    self.has_acquire(&at, client, name);
                    self.clients[client].1.list(all)
                },
            );
            let quorum = list.quorum();
            if *margin > quorum {
                let masters = list.masters().len();
                let fix = format!(
                    "with {masters} masters that all grant it is {quorum}: write that or less"
                );
                let at = place.key("margin").key(name.as_str());
                self.wrong(&at, format!("no grant has a margin of {margin}"), fix);
            }
        }
        for (name, within) in &expect.within {
            let at = at("within", name);
            self.acquires(&at, name);
            if !granted(name) {
                let message = format!("`{name}` is to be refused and to be granted soon");
                self.wrong(&at, message, "leave one of the two out");
            } else if within.is_zero() {
                let message = format!("`{name}` is to be granted in no time");
                self.wrong(&at, message, "write a time such as 1s, longer than its round trips");
            }
        }
        for (name, most) in &expect.commands {
            let at = at("commands", name);
            self.acquires(&at, name);
            if *most == 0 {
                let message = format!("`{name}` is to acquire without a command");
                self.wrong(&at, message, "write how many its process may send at most");
            }
        }
        for name in expect.overtaken.keys() {
            self.overtaken(&at("overtaken", name), name);
        }
    }

    fn cause(&mut self, at: &Place, cause: Cause) {
        let faults = causing(cause);
        let mut all = self.faults.iter().map(|(_, fault)| fault.kind.name());
        if !faults.is_empty() && !all.any(|name| faults.contains(&name)) {
            let message = format!("no fault here can be the cause `{cause}`");
            let fix = format!("add a fault such as `{}`, or name another cause", faults[0]);
            self.wrong(at, message, fix);
        }
        if cause == Cause::NodeLists && !self.lists_are_wrong() {
            let message = "any two quorums of what the clients know have a master in common";
            let fix = "give two clients `nodes` that differ enough, or name another cause";
            self.wrong(at, message, fix);
        }
        if cause == Cause::MaxTtl && !self.guards_differ() {
            let message = "all clients that have a guard have the same";
            let fix = "give one a `restart-guard` of its own, or name another cause";
            self.wrong(at, message, fix);
        }
    }

    /// A client, or the first of a kind, which must acquire something.
    fn acquires(&mut self, at: &Place, name: &str) -> Option<usize> {
        let client = self.of_kind(at, name)?;
        self.has_acquire(at, client, name);
        Some(client)
    }

    /// A client, or all clients of a kind.
    fn of_kind(&mut self, at: &Place, name: &str) -> Option<usize> {
        let kind = self.clients.iter().position(|(_, client)| client.id == name);
        kind.or_else(|| self.known(at, name))
    }

    fn has_acquire(&mut self, at: &Place, client: usize, name: &str) {
        if !self.script(client).iter().any(|step| matches!(step, Step::Acquire { .. })) {
            let fix = "add an `acquire` to its script, or leave it out here";
            self.wrong(at, format!("`{name}` acquires nothing"), fix);
        }
    }

    fn overtaken(&mut self, at: &Place, name: &str) {
        let Some(client) = self.of_kind(at, name) else { return };
        let waits = |step: &Step| matches!(step, Step::Acquire { wait, .. } if !wait.is_zero());
        let process = self.clients[client].1.process();
        if !self.script(client).iter().any(waits) {
            let message = format!("`{name}` waits for nothing, and no client can overtake it");
            let fix = "add an `acquire L wait 5s` to its script, or leave it out here";
            self.wrong(at, message, fix);
        } else if self.clients.iter().all(|(_, it)| it.process() == process && it.count == 1) {
            let message = format!("there is no process beside that of `{name}`");
            let fix = "add a client that can overtake it, or leave it out here";
            self.wrong(at, message, fix);
        }
    }

    /// Whether the quorums of any two clients can have no master in common, or a client cannot
    /// reach a quorum.
    fn lists_are_wrong(&self) -> bool {
        let all = self.cluster.1.nodes;
        let lists: Vec<NodeList> =
            self.clients.iter().map(|(_, client)| client.list(all)).collect();
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
}

/// The faults that can be a cause. Empty if no fault is the cause.
fn causing(cause: Cause) -> Vec<&'static str> {
    match cause {
        Cause::ClockStep => vec!["clock.step", "clock.strobe"],
        Cause::NodeRestart => vec!["node.restart", "node.kill", "node.stop"],
        Cause::ClientPause => vec!["client.pause", "client.suspend"],
        Cause::NodeLists | Cause::MaxTtl | Cause::LateWrite | Cause::Bug | Cause::Unknown => vec![],
        fault => vec![fault.name()],
    }
}
