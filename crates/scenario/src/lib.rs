//! What a run is: the scenario that it follows, the protocol between the harness and the clients,
//! and the record of what happened. This crate holds values and reads files; it runs nothing.
//!
//! | module | what it is |
//! |---|---|
//! | the root | a [`Scenario`]: masters, clients, faults, and the expected result |
//! | `read` | reads a file, and says what is wrong with it and where |
//! | `words` | the small languages inside strings (`"acquire L wait 5s"`, `"c1 granted L"`) |
//! | `fault`, `expect` | faults and the masters and clients that they hit; expectations |
//! | [`client_protocol`] | the protocol between the harness and a client process |
//! | [`client_leases`] | what a client process knows about its leases, and says about them |
//! | [`history`] | the record of a run |
//! | [`wall`] | how far a clock is ahead, after the faults on it |
//! | [`Mutant`] | the list of mutants: clients with one deliberate bug |
//!
//! The same [`Scenario`] serves the TOML files, every backend, the header of the history and the
//! JSON Schema. The enums are exhaustive on purpose: the compiler tells whoever adds a value where
//! it must be handled.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use crate::name::Name;
use redquorum_protocol::{
    Admitted, Drift, Fingerprint, Guard, MastersId, NodeId, Quorum, RunId, with_admitted,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub mod client_leases;
pub mod client_protocol;
mod expect;
mod fault;
pub mod history;
mod length;
mod mutant;
mod read;
pub mod wall;
mod words;

pub use expect::{Acquires, Cause, Count, Expect, Known, Overtaken, Property, Wanted};
pub use fault::{
    Assumed, ClientFault, Clients, ClockFault, Fault, FaultKind, FaultRow, FaultTime, FieldMut,
    Heals, Loses, Messages, MoveStep, NetworkFault, NodeFault, Nodes, OnClient, OnLinks, OnMaster,
    ResourceFault, Role, SetsClock, Touches,
};
pub use length::{Ahead, Length, Shift};
pub use mutant::Mutant;
pub use read::{Problem, Problems, line_of, makes_sense, near, read};
pub use redquorum_redis_model::Persistence;
pub use redquorum_redis_model::network::{End, MessageFault, Side};
pub use words::{AccessKind, Class, EventKind, LeaseEffect, Moment, Step};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Masters by their numbers, in a sentence: `masters 1, 2, 3`.
pub fn numbered(masters: &[usize]) -> String {
    let numbers: Vec<String> = masters.iter().map(usize::to_string).collect();
    format!("master{} {}", if masters.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// Whether the name of a scenario or of a variant may contain this character.
pub const fn is_name_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// One scenario: a cluster, its clients, the faults, and the expected result.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// The scenario's name: the name of the file without `.toml`.
    pub name: String,
    /// What the scenario shows, in one sentence.
    pub about: String,
    /// The source of the scenario: a paper, a page, an issue.
    pub source: Option<String>,
    /// The masters.
    #[serde(default)]
    pub cluster: Cluster,
    /// The options of every client's lock.
    #[serde(default)]
    pub lock: Lock,
    /// The clients that use the lock.
    #[serde(rename = "client")]
    pub clients: Vec<Client>,
    /// The faults, in any order.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The result that the run must have.
    #[serde(default)]
    pub expect: Expect,
    /// The same scenario with some changes and an expectation of its own. Each variant runs as a
    /// scenario named `name/variant`.
    #[serde(default, rename = "variant", skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// The masters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Cluster {
    /// The number of masters, 1 to 9. Default 5.
    pub nodes: usize,
    /// What a master keeps over a restart. Default none.
    pub persistence: Persistence,
    /// Whether each master has a replica, for `node.lag` and `node.failover`. Default no.
    #[serde(skip_serializing_if = "is_default")]
    pub replicas: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { nodes: 5, persistence: Persistence::None, replicas: false }
    }
}

impl Cluster {
    /// The number of masters that must agree.
    pub fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }
}

/// The options of every client's lock.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Lock {
    /// The TTL of a key on a master. Default 2 s.
    pub ttl: Length,
    /// The time for which a master keeps a key after the lease has ended, unless the client
    /// releases it. Default 0.
    #[serde(skip_serializing_if = "is_default")]
    pub lock_delay: Length,
    /// How long a round waits for a master. Default 50 ms.
    pub node_timeout: Length,
    /// The allowance for clocks of different rates, in millionths of the TTL. Default 10 000.
    pub drift_ppm: u32,
    /// The fixed part of that allowance. Default 2 ms.
    pub drift: Length,
    /// Whether leases carry a fencing token. Default no.
    pub fencing: bool,
    /// Whether masters notify waiting clients when a resource becomes free. If not, these clients
    /// poll. Default yes.
    #[serde(skip_serializing_if = "is_true")]
    pub wake_ups: bool,
    /// Whether waiting clients of different processes get the resource in the order of their
    /// requests. Default no.
    #[serde(skip_serializing_if = "is_default")]
    pub fair: bool,
    /// Whether leases show the names of their processes as those of their holders. Default no.
    #[serde(skip_serializing_if = "is_default")]
    pub names: bool,
    /// The restart guard: clients distrust masters that may have forgotten leases. The value is the
    /// longest TTL of any of these leases. Default: no guard; clients trust these masters.
    #[serde(rename = "restart-guard")]
    pub guard: Option<Length>,
    /// With a guard: clients also distrust masters whose clocks may have gained more than this.
    /// Default: clients trust the clocks.
    pub clock_guard: Option<Length>,
    /// With a guard: whether the masters are initialized when the run begins. If not, they are new,
    /// and clients distrust them. Default yes.
    #[serde(skip_serializing_if = "is_true")]
    pub initialized: bool,
}

/// For fields that are left out if they have their usual value.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// For fields that are left out if they are `true`.
pub const fn is_true(is: &bool) -> bool {
    *is
}

impl Lock {
    /// How long clients distrust a master.
    pub fn quarantine(&self) -> Duration {
        self.protocol_guard().map_or(Duration::ZERO, Guard::quarantine)
    }

    /// The guard, if the lock has one.
    pub fn protocol_guard(&self) -> Option<Guard> {
        let drift = Drift { ppm: self.drift_ppm, fixed: self.drift.0 };
        let guard = Guard::new(self.guard?.0, drift, 0).ok()?;
        self.clock_guard.map_or(Some(guard), |bound| guard.with_clock_bound(bound.0).ok())
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            ttl: Length(Duration::from_secs(2)),
            lock_delay: Length(Duration::ZERO),
            node_timeout: Length(Duration::from_millis(50)),
            drift_ppm: 10_000,
            drift: Length(Duration::from_millis(2)),
            fencing: false,
            wake_ups: true,
            fair: false,
            names: false,
            guard: None,
            clock_guard: None,
            initialized: true,
        }
    }
}

impl Lock {
    /// The part of a TTL that the lock deducts: the drift, rounded up, and the time that a clock
    /// may gain unnoticed. The protocol has this computation, too. The second copy is intended: the
    /// checker must not share a mistake with the lock.
    pub fn deducted_from(&self, ttl: Duration) -> Duration {
        let share = (ttl.as_nanos() * u128::from(self.drift_ppm)).div_ceil(1_000_000);
        let drift = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
        let unnoticed = self.clock_guard.map_or(Duration::ZERO, |bound| bound.0);
        drift.saturating_add(self.drift.0).saturating_add(unnoticed)
    }
}

/// One client, or several of one kind.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// The client's name: `c1`. With a `count`, `w` stands for `w1`, `w2`, ….
    #[schemars(with = "String")]
    pub id: Name,
    /// The process that the client runs in. Clients that name the same process share it. Default: a
    /// process of its own.
    #[schemars(with = "Option<String>")]
    pub process: Option<Name>,
    /// The masters that the client knows, in its own order. A master that is listed twice has two
    /// addresses for this client. Default: all masters, in their order. Clients of one process have
    /// the same list.
    pub nodes: Option<Vec<usize>>,
    /// The masters that the client moves to, while it runs: its leases need a quorum of `nodes` and
    /// one of these. Clients of one process move alike.
    #[serde(rename = "moving-to")]
    pub moving_to: Option<Vec<usize>>,
    /// The client's own guard: `false` for none, or a longest TTL that differs from the lock's.
    /// Default: the lock's guard. Clients of one process have the same guard.
    #[serde(rename = "restart-guard")]
    pub guard: Option<OwnGuard>,
    /// Whether the client's leases carry a fencing token. Default: as the lock says. Clients of one
    /// process have the same setting.
    pub fencing: Option<bool>,
    /// Whether the client uses the fair queue. Default: as the lock says. Clients of one process
    /// have the same setting.
    pub fair: Option<bool>,
    /// When the client begins, counted from the start of the run. Default at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Length,
    /// The steps of the client, one after the other. When an `acquire L` fails, the client skips
    /// all steps up to and including the next `release L`.
    pub script: Vec<Step>,
    /// The number of clients of this kind. Default 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: usize,
    /// How often the script is repeated: a number of rounds or a time. Default one round.
    #[serde(rename = "loop")]
    pub rounds: Option<Rounds>,
    /// The pause between two rounds. Default none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub think: Length,
}

impl Client {
    /// A client with a process of its own that plays a script once, from the start of the run.
    pub fn new(id: impl Into<Name>, script: Vec<Step>) -> Self {
        Self {
            id: id.into(),
            process: None,
            nodes: None,
            moving_to: None,
            guard: None,
            fencing: None,
            fair: None,
            start: Length::default(),
            script,
            count: 1,
            rounds: None,
            think: Length::default(),
        }
    }
}

/// A client's guard in place of the lock's, for scenarios that mix old and new configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`false` for no guard, or another longest TTL such as \"3s\"")]
pub enum OwnGuard {
    /// `false`: no guard. `true`: the lock's guard.
    Whether(bool),
    /// A guard for leases of up to this TTL.
    UpTo(Length),
}

const fn one() -> usize {
    1
}

const fn is_one(count: &usize) -> bool {
    *count == 1
}

/// How often a script is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of rounds such as 20, or a time such as \"3s\"")]
pub enum Rounds {
    /// This number of rounds.
    Times(u32),
    /// No round begins after this time, counted from the client's start.
    For(Length),
}

/// The changes of a variant. Everything that it does not name stays as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// The variant's name. The run is named by the scenario's name, a slash and this name.
    pub name: String,
    /// What is different, in one sentence.
    pub about: String,
    /// A cluster that replaces the scenario's.
    pub cluster: Option<Cluster>,
    /// Lock options that replace the scenario's.
    pub lock: Option<Lock>,
    /// Clients that replace those of the same name, or are added.
    #[serde(default, rename = "client", skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
    /// Faults that replace all of the scenario's.
    #[serde(rename = "fault")]
    pub faults: Option<Vec<Fault>>,
    /// An expectation that replaces all of the scenario's.
    pub expect: Expect,
}

impl Scenario {
    /// The runs of the scenario: the scenario itself, and each variant as a scenario of its own.
    /// Clients with a `count` are expanded.
    pub fn runs(&self) -> Vec<Self> {
        let mut base = self.clone();
        base.variants.clear();
        let varied = self.variants.iter().map(|variant| base.varied(variant));
        std::iter::once(base.clone()).chain(varied).map(Self::spelled_out).collect()
    }

    fn varied(&self, variant: &Variant) -> Self {
        let mut run = self.clone();
        run.name = format!("{}/{}", self.name, variant.name);
        run.about.clone_from(&variant.about);
        if let Some(cluster) = &variant.cluster {
            run.cluster = cluster.clone();
        }
        if let Some(lock) = &variant.lock {
            run.lock = lock.clone();
        }
        for client in &variant.clients {
            match run.clients.iter_mut().find(|known| known.id == client.id) {
                Some(known) => known.clone_from(client),
                None => run.clients.push(client.clone()),
            }
        }
        if let Some(faults) = &variant.faults {
            run.faults.clone_from(faults);
        }
        run.expect = variant.expect.clone();
        run
    }

    fn spelled_out(mut self) -> Self {
        self.clients = self.clients.iter().flat_map(Client::spelled_out).collect();
        self
    }

    /// The processes of all clients, each once, in order of appearance.
    pub fn processes(&self) -> Vec<&Name> {
        let mut all = Vec::new();
        for client in &self.clients {
            if !all.contains(&client.process()) {
                all.push(client.process());
            }
        }
        all
    }

    /// A fault, by its number, from 1.
    pub fn fault(&self, number: usize) -> Option<&Fault> {
        self.faults.get(number.checked_sub(1)?)
    }

    /// The masters that the clients of a process know.
    pub fn list_of(&self, process: &str) -> NodeList {
        let own = self.clients.iter().find(|client| client.process() == process);
        own.map_or_else(|| NodeList::all(self.cluster.nodes), |client| self.list(client))
    }

    /// The marker of a master after an administrator has taken it to a step of the move that a
    /// client makes.
    pub fn admitting(&self, marker: &str, step: MoveStep) -> Option<String> {
        let moves = self.clients.iter().find_map(|client| match self.list(client).masters_id() {
            MastersId::Moving { from, to } => Some((from, to)),
            MastersId::Of(_) => None,
        });
        let (from, to) = moves?;
        Some(with_admitted(marker, Admitted::at_step(step.0.into(), from, to)))
    }

    /// The boot marker that a master has when the run begins, if it has one. It names the set of
    /// masters of the first process that knows this master.
    pub fn marker(&self, node: usize, run_id: &str) -> Option<Arc<str>> {
        let guard = self.lock.protocol_guard().filter(|_| self.lock.initialized)?;
        let masters = self.first_list(node).masters_id();
        let durable = self.cluster.persistence == Persistence::AofAlways;
        Some(guard.over(masters).marker(&RunId(Arc::from(run_id)), durable))
    }

    fn first_list(&self, node: usize) -> NodeList {
        let lists = self.processes().into_iter().map(|process| self.list_of(process));
        let mut knowing = lists.filter(|list| list.masters().contains(&node));
        knowing.next().unwrap_or_else(|| NodeList::all(self.cluster.nodes))
    }

    /// The masters that a client knows.
    pub fn list(&self, client: &Client) -> NodeList {
        client.list(self.cluster.nodes)
    }

    /// The lock options of a process: the scenario's, except for those that its clients set
    /// themselves.
    pub fn options_of(&self, process: &str) -> Lock {
        let own = self.clients.iter().find(|client| client.process() == process);
        own.map_or_else(|| self.lock.clone(), |client| client.options(&self.lock))
    }

    /// The longest TTL of any client's request.
    pub fn longest_ttl(&self) -> Duration {
        let asked = self.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
        asked.chain([self.lock.ttl.0]).max().unwrap_or_default()
    }

    /// Whether the position of a waiter keeps other clients out: in the queue of a fair lock, and
    /// out of shared leases.
    pub fn has_queues(&self) -> bool {
        let is_fair = |client: &Client| client.options(&self.lock).fair;
        let shares = |client: &Client| client.script.iter().any(Step::is_shared);
        self.clients.iter().any(|client| is_fair(client) || shares(client))
    }
}

impl Client {
    /// The masters that the client knows, of this many.
    fn list(&self, nodes: usize) -> NodeList {
        let list = self.nodes.as_ref();
        let list = list.map_or_else(|| NodeList::all(nodes), |own| NodeList::named(own));
        list.moving_to(self.moving_to.as_deref().unwrap_or_default())
    }

    /// The name that the client's script has for the lease of a resource: for a slot, that of its
    /// semaphore.
    pub fn name_of<'a>(&'a self, resource: &'a Name) -> &'a Name {
        let is_slot = |step: &&Step| step.is_permit() && step.slots().contains(resource);
        let permit = self.script.iter().find(is_slot);
        permit.and_then(|step| step.acquires().next()).unwrap_or(resource)
    }

    /// The process that the client runs in.
    pub fn process(&self) -> &Name {
        self.process.as_ref().unwrap_or(&self.id)
    }

    /// The client's lock options. The client's own settings override those of `lock`.
    pub fn options(&self, lock: &Lock) -> Lock {
        let guard = match self.guard {
            None | Some(OwnGuard::Whether(true)) => lock.guard,
            Some(OwnGuard::Whether(false)) => None,
            Some(OwnGuard::UpTo(max_ttl)) => Some(max_ttl),
        };
        let clock_guard = lock.clock_guard.filter(|_| guard.is_some());
        let fencing = self.fencing.unwrap_or(lock.fencing);
        let fair = self.fair.unwrap_or(lock.fair);
        Lock { guard, clock_guard, fencing, fair, ..lock.clone() }
    }

    /// The names of all clients that this one stands for.
    pub fn names(&self) -> Vec<Name> {
        match self.count {
            1 => vec![self.id.clone()],
            count => (1..=count).map(|number| format!("{}{number}", self.id).into()).collect(),
        }
    }

    fn spelled_out(&self) -> Vec<Self> {
        self.names().into_iter().map(|id| Self { id, count: 1, ..self.clone() }).collect()
    }
}

/// The addresses of masters that a client knows, in its order; other clients may have other lists.
/// A master may be in the list twice. The lock counts the entries of the list. The resource is held
/// on the masters behind the entries, each counted once.
///
/// A client that moves has two lists, and needs a quorum of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeList {
    from: Vec<usize>,
    /// Empty if the client does not move.
    to: Vec<usize>,
}

/// The masters behind so many addresses, as a lock counts them. Of a lock that moves, see
/// [`NodeList::moves`].
fn quorum_of(addresses: usize, moves: Option<(usize, Vec<usize>)>) -> Quorum {
    let Some((from, to)) = moves else { return Quorum::of(addresses) };
    let to = to.iter().filter_map(|place| place.checked_sub(1));
    Quorum::joint((0..from).map(NodeId::new).collect(), to.map(NodeId::new).collect())
}

impl NodeList {
    /// The first `nodes` masters.
    pub fn all(nodes: usize) -> Self {
        Self { from: (1..=nodes).collect(), to: Vec::new() }
    }

    /// These masters, in this order.
    pub fn named(addresses: &[usize]) -> Self {
        Self { from: addresses.to_vec(), to: Vec::new() }
    }

    /// This list, for a client that moves to these masters.
    #[must_use]
    pub fn moving_to(self, to: &[usize]) -> Self {
        Self { to: to.to_vec(), ..self }
    }

    /// The lists: one, or the two of a move.
    fn lists(&self) -> impl Iterator<Item = &[usize]> {
        [&self.from[..], &self.to[..]].into_iter().filter(|list| !list.is_empty())
    }

    /// The master behind each address, counted from 1, in the order of the list. Those that a
    /// client moves to, and has not, come last.
    pub fn addresses(&self) -> Vec<usize> {
        let new = self.to.iter().filter(|node| !self.from.contains(node));
        self.from.iter().chain(new).copied().collect()
    }

    /// For a client that moves: how many of its addresses are of the masters that it leaves, and
    /// the places, from 1, of those that it moves to.
    pub fn moves(&self) -> Option<(usize, Vec<usize>)> {
        let all = self.addresses();
        let place = |node: &usize| all.iter().position(|it| it == node).map(|at| at + 1);
        let to = self.to.iter().filter_map(place).collect();
        (!self.to.is_empty()).then_some((self.from.len(), to))
    }

    /// The name of each set, independent of the order: `1,2,3`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.lists().map(|list| {
            let mut sorted = list.to_vec();
            sorted.sort_unstable();
            let all: Vec<String> = sorted.iter().map(ToString::to_string).collect();
            all.join(",")
        })
    }

    /// The masters of the list, as markers name them.
    pub fn masters_id(&self) -> MastersId {
        let mut sets = self.names().map(|name| Fingerprint::of_name(&name));
        match (sets.next(), sets.next()) {
            (Some(from), Some(to)) => MastersId::Moving { from, to },
            (set, _) => MastersId::Of(set.unwrap_or_else(|| Fingerprint::of_name(""))),
        }
    }

    /// The masters in the list, each once, in the order of their numbers.
    pub fn masters(&self) -> Vec<usize> {
        let mut masters = self.addresses();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// The number of addresses that must agree, at least. Duplicates count, since the lock cannot
    /// know that two addresses are one master.
    pub fn quorum(&self) -> usize {
        match self.to.is_empty() {
            true => self.from.len() / 2 + 1,
            false => quorum_of(self.addresses().len(), self.moves()).size(),
        }
    }

    /// Whether a quorum is among the masters for which `has` is true.
    pub fn has_quorum(&self, has: impl Fn(usize) -> bool) -> bool {
        self.lists().all(|list| Self::has_majority(list, &has))
    }

    /// Whether a client that shares masters with this one may have a quorum among these masters:
    /// that of one list is enough.
    pub fn may_have_rival(&self, has: impl Fn(usize) -> bool) -> bool {
        self.lists().any(|list| Self::has_majority(list, &has))
    }

    fn has_majority(list: &[usize], has: impl Fn(usize) -> bool) -> bool {
        let once = |(at, node): &(usize, &usize)| !list[..*at].contains(node);
        let of = list.iter().enumerate().filter(|(_, node)| has(**node)).filter(once);
        of.count() > list.len() / 2
    }

    /// The margin m + q − N, of the list for which it is less, if these masters have the key.
    pub fn margin(&self, has: impl Fn(usize) -> bool) -> i64 {
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let each = self.lists().map(|list| {
            let list = Self::named(list);
            let masters = list.masters();
            let granted = masters.iter().filter(|node| has(**node)).count();
            of(granted) + of(list.quorum()) - of(masters.len())
        });
        each.min().unwrap_or(0)
    }

    /// Whether a quorum of this list and one of the other can have no master in common. Then both
    /// clients can be granted the same resource although no master forgets anything.
    pub fn can_part_from(&self, other: &Self) -> bool {
        let own = self.masters();
        // Each choice of masters for this client, and the rest for the other one.
        (0..1_u32 << own.len().min(16)).any(|choice| {
            let ours = |node| {
                own.iter().position(|it| *it == node).is_some_and(|at| choice & (1 << at) != 0)
            };
            self.has_quorum(ours) && other.has_quorum(|node| !ours(node))
        })
    }
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The built-in scenarios: the name and the text of each, sorted by name.
pub fn embedded() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED.iter().copied()
}

/// The runs of all built-in scenarios: each scenario, and each variant as a scenario of its own.
pub fn embedded_runs() -> impl Iterator<Item = Scenario> {
    embedded().flat_map(|(name, text)| match toml::from_str::<Scenario>(text) {
        Ok(scenario) => scenario.runs(),
        // A test reads all of them.
        Err(why) => unreachable!("{name} comes with the program and cannot be read: {why}"),
    })
}

/// The JSON Schema of scenario files.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Scenario);
    schema.insert(
        "$id".to_owned(),
        "https://github.com/redquorum/redquorum/scenario.schema.json".into(),
    );
    schema.insert("title".to_owned(), "A scenario of redquorum-chaos".into());
    schema.into()
}

/// Defines an enum from a table, with Serde and the JSON Schema. A row has the name of a value, and
/// its documentation: as comments, or as a description that the program can print too.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $type { $($(#[$doc])* #[serde(rename = $name)] $variant,)+ }

        impl $type {
            /// All values, in the order of their definition.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The name, as in files and in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $type:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal, $about:literal;)+
        }
    ) => {
        $crate::named! {
            $(#[$meta])*
            pub enum $type { $(#[doc = $about] #[doc = ""] $(#[$doc])* $variant = $name,)+ }
        }

        impl $type {
            /// What it is, in a few words.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }
    };
}

/// Names of clients, processes, resources, keys and tokens: text that many records share.
pub mod name {
    /// An immutable text. A clone shares the text instead of copying it.
    pub use arcstr::ArcStr as Name;
}

/// Conversions of lengths of time to numbers, for histories and for the client protocol, and of
/// numbers to text. They do not overflow.
pub mod units {
    use std::fmt::Display;
    use std::time::Duration;

    /// Converts to nanoseconds, saturating.
    pub fn nanos(length: Duration) -> i64 {
        i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
    }

    /// A number of things of this name: `1 fault`, `2 faults`, `2 copies`.
    pub fn plural(count: impl Display + PartialEq + From<u8>, name: &str) -> String {
        if count == 1.into() {
            return format!("{count} {name}");
        }
        let stem = name.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
        stem.map_or_else(|| format!("{count} {name}s"), |stem| format!("{count} {stem}ies"))
    }

    /// Converts to whole milliseconds, rounded up, saturating.
    pub fn millis(length: Duration) -> u64 {
        u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_of_addresses_and_masters_are_counted_once() {
        let twice = NodeList::named(&[1, 1, 2]);
        assert_eq!((twice.quorum(), twice.masters()), (2, vec![1, 2]));
        assert_eq!(NodeList::all(4).quorum(), 3);
    }

    #[test]
    fn quorums_of_lists_part_only_where_enough_masters_are_not_common() {
        for (one, other, parts) in [
            (&[1, 2, 3][..], &[1, 2, 3][..], false),
            (&[1, 2, 3], &[3, 2, 1], false),
            (&[1, 2, 3], &[3, 4, 5], true),
            (&[1, 2, 3], &[2, 3, 4], true),
            (&[1, 2, 3], &[1, 2, 3, 4, 5], true),
            (&[1, 2, 3, 4], &[1, 2, 3, 4, 5], false),
            (&[1, 2, 3, 4], &[2, 3, 4], false),
            (&[1, 1, 2], &[1, 1, 2], false),
            (&[1, 1, 2], &[2, 3, 4], true),
            (&[1, 1], &[2], false),
            (&[1], &[2], true),
            (&[1], &[1], false),
        ] {
            let (one, other) = (NodeList::named(one), NodeList::named(other));
            assert_eq!(one.can_part_from(&other), parts, "{one:?} and {other:?}");
            assert_eq!(other.can_part_from(&one), parts, "{other:?} and {one:?}");
        }
    }

    #[test]
    fn one_thing_and_several_have_their_words() {
        for (count, name, text) in
            [(1, "copy", "1 copy"), (2, "copy", "2 copies"), (0, "key", "0 keys")]
        {
            assert_eq!(units::plural(count, name), text);
        }
    }
}
