//! A scenario: masters, clients, faults, and what is expected of the lock. One type for the TOML
//! files, for every backend, for the history's header and for the JSON Schema.
//!
//! What lives here are values: nothing is run. A file is read by `read.rs`, which also says what
//! is wrong with it and where; the small languages inside strings (`"acquire L wait 5s"`,
//! `"c1 granted L"`) are in `words.rs`, times in `length.rs`, faults and whom they hit in
//! `fault.rs`, expectations in `expect.rs`.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Drift, Fingerprint, Guard, RunId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Name;

mod embedded;
mod expect;
mod fault;
mod length;
mod list;
mod near;
mod problem;
mod read;
mod schema;
mod words;

pub use embedded::{embedded, embedded_runs};

pub use expect::{Acquires, Cause, Expect, Layer, Often, Overtaken, Wanted};
pub use fault::{
    Ahead, Class, ClientHarm, Clients, ClockHarm, End, Fault, Harm, NetHarm, NodeHarm, Nodes,
    ResourceHarm, Role, Side, Touches, When, Which,
};
pub use length::{Length, Shift};
pub use list::NodeList;
pub use near::near;
pub use problem::{Problem, Problems};
pub(crate) use read::makes_sense;
pub use read::{line_of, read};
pub use schema::schema;
pub use words::{Moment, Step, Way, What};

/// One lesson: a cluster, its clients, what happens to them, and what must come of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Its name: the file's name without `.toml`.
    pub name: String,
    /// The lesson, in one sentence.
    pub about: String,
    /// Where it comes from: a paper, a page, an issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The masters.
    #[serde(default)]
    pub cluster: Cluster,
    /// The options of every client's lock.
    #[serde(default)]
    pub lock: Lock,
    /// Who locks.
    #[serde(rename = "client")]
    pub clients: Vec<Client>,
    /// What goes wrong, in any order.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// What must come of it.
    #[serde(default)]
    pub expect: Expect,
    /// The same lesson with something changed, and an expectation of its own. Each is run as a
    /// scenario named `name/variant`.
    #[serde(default, rename = "variant", skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// The masters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Cluster {
    /// How many, 1 to 9. Default 5.
    pub nodes: usize,
    /// What a master keeps over a restart. Default none.
    pub persistence: Persistence,
    /// Whether each has a replica, for `node.lag` and `node.failover`. Default no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replicas: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { nodes: 5, persistence: Persistence::None, replicas: false }
    }
}

impl Cluster {
    /// How many masters must agree.
    pub fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }
}

/// What a master keeps over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// An append-only file that is synced every second: a killed process loses nothing, a power
    /// loss the last second.
    AofEverysec,
    /// An append-only file that is synced before every answer.
    AofAlways,
}

/// The options of every client's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Lock {
    /// How long a master keeps a key. Default 2 s.
    pub ttl: Length,
    /// How much longer a master keeps a key than the lease lives, unless it is released. Default 0.
    #[serde(skip_serializing_if = "Length::is_zero")]
    pub grace: Length,
    /// How long a round waits for a master. Default 50 ms.
    pub node_timeout: Length,
    /// The allowance for clocks of different rates, in millionths of the TTL. Default 10 000.
    pub drift_ppm: u32,
    /// Its fixed part. Default 2 ms.
    pub drift: Length,
    /// Whether leases carry a fencing token. Default no.
    pub fencing: bool,
    /// Whether masters tell clients that wait when a resource becomes free. Else these try again and again.
    /// Default yes.
    #[serde(skip_serializing_if = "is_true")]
    pub wake_ups: bool,
    /// Whether clients of different processes that wait come in the order in which they asked. Default no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// Whether clients distrust masters that may have forgotten leases, none of which has a longer TTL
    /// than this. Default: they trust them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Length>,
    /// With a guard: whether clients also distrust masters whose clocks may have gained more than this.
    /// Default: they trust clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_guard: Option<Length>,
    /// With a guard: whether the masters are old acquaintances as the run begins, or new and distrusted.
    /// Default yes.
    #[serde(skip_serializing_if = "is_true")]
    pub blessed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_true(is: &bool) -> bool {
    *is
}

impl Lock {
    /// For how long a master is distrusted.
    pub fn quarantine(&self) -> Duration {
        self.protocol_guard().map_or(Duration::ZERO, Guard::quarantine)
    }

    fn protocol_guard(&self) -> Option<Guard> {
        let drift = Drift { ppm: self.drift_ppm, fixed: self.drift.0 };
        let guard = Guard::new(self.guard?.0, drift, 0).ok()?;
        self.clock_guard.map_or(Some(guard), |bound| guard.with_clock_bound(bound.0).ok())
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            ttl: Length(Duration::from_secs(2)),
            grace: Length(Duration::ZERO),
            node_timeout: Length(Duration::from_millis(50)),
            drift_ppm: 10_000,
            drift: Length(Duration::from_millis(2)),
            fencing: false,
            wake_ups: true,
            fair: false,
            guard: None,
            clock_guard: None,
            blessed: true,
        }
    }
}

impl Lock {
    /// What is deducted from a TTL: drift, rounded up, and what a clock may gain unnoticed. Written once
    /// more than in the protocol, on purpose: who judges by it must not share a mistake with the lock.
    pub fn deducted_from(&self, ttl: Duration) -> Duration {
        let share = (ttl.as_nanos() * u128::from(self.drift_ppm)).div_ceil(1_000_000);
        let drift = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
        let unnoticed = self.clock_guard.map_or(Duration::ZERO, |bound| bound.0);
        drift.saturating_add(self.drift.0).saturating_add(unnoticed)
    }
}

/// One client, or several of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// Its name: `c1`. With a `count`, `w` stands for `w1`, `w2`, ….
    pub id: Name,
    /// The process it lives in; clients that name the same one share it. Default: one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Name>,
    /// The masters that it knows, in its order; one that stands there twice is known to it by two
    /// addresses. Default all, in their order. Clients of one process know the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<usize>>,
    /// Its own guard: `false` for none, or another longest TTL than the others'. Default the lock's.
    /// Clients of one process have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<OwnGuard>,
    /// Whether its leases carry a fencing token. Default as the lock says. Clients of one process have the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing: Option<bool>,
    /// Whether it keeps the order of those who wait. Default as the lock says. Clients of one process do the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair: Option<bool>,
    /// When it begins, counted from the start of the run. Default at once.
    #[serde(default, skip_serializing_if = "Length::is_zero")]
    pub start: Length,
    /// What it does, one step after the other. When an `acquire L` fails, everything up to and
    /// including the next `release L` is passed over.
    pub script: Vec<Step>,
    /// How many clients of this kind there are. Default 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: usize,
    /// How often the script is repeated: a number of rounds or a time. Default one round.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
    /// The pause between two rounds. Default none.
    #[serde(default, skip_serializing_if = "Length::is_zero")]
    pub think: Length,
}

/// A client's guard in place of the lock's: old clients among new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`false` for no guard, or another longest TTL such as \"3s\"")]
pub enum OwnGuard {
    /// `false`: none. `true`: the lock's.
    Whether(bool),
    /// Of leases of up to this TTL.
    UpTo(Length),
}

const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_one(count: &usize) -> bool {
    *count == 1
}

/// How often a script is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of rounds such as 20, or a time such as \"3s\"")]
pub enum Rounds {
    /// So many rounds.
    Times(u32),
    /// No round begins after this time, counted from the client's start.
    For(Length),
}

/// What a variant changes. What it does not name stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// Its name, added to the scenario's behind a slash.
    pub name: String,
    /// What is different, in one sentence.
    pub about: String,
    /// Other masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// Another lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// Clients that replace those of the same name, or are added.
    #[serde(default, rename = "client", skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
    /// Faults that replace all of the scenario's.
    #[serde(default, rename = "fault", skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<Fault>>,
    /// What must come of it: replaces all of the scenario's expectation.
    pub expect: Expect,
}

impl Scenario {
    /// What is to be run: the scenario itself and each variant as a scenario of its own, with
    /// `count` clients spelled out.
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

    /// The processes that its clients live in, each once, in order of appearance.
    pub fn processes(&self) -> Vec<&Name> {
        let mut all = Vec::new();
        for client in &self.clients {
            if !all.contains(&client.process()) {
                all.push(client.process());
            }
        }
        all
    }

    /// The masters that the clients of a process know.
    pub fn list_of(&self, process: &str) -> NodeList {
        let own = self.clients.iter().find(|client| client.process() == process);
        own.map_or_else(|| NodeList::all(self.cluster.nodes), |client| self.list(client))
    }

    /// What the set of masters of a process is called: clients reach masters through proxies of their own,
    /// so that addresses do not tell.
    pub fn fleet_of(&self, process: &str) -> String {
        self.list_of(process).name()
    }

    /// What a master is marked with as the run begins, if it is: as one of the set of the first process
    /// that knows it.
    pub fn marker(&self, node: usize, run_id: &str) -> Option<Arc<str>> {
        let guard = self.lock.protocol_guard().filter(|_| self.lock.blessed)?;
        let fleet = Fingerprint::of_name(&self.first_list(node).name());
        let durable = self.cluster.persistence == Persistence::AofAlways;
        Some(guard.over(fleet).marker(&RunId(Arc::from(run_id)), durable))
    }

    fn first_list(&self, node: usize) -> NodeList {
        let lists = self.processes().into_iter().map(|process| self.list_of(process));
        let mut knowing = lists.filter(|list| list.addresses().contains(&node));
        knowing.next().unwrap_or_else(|| NodeList::all(self.cluster.nodes))
    }

    /// The masters that a client knows.
    pub(crate) fn list(&self, client: &Client) -> NodeList {
        NodeList::of(client, self.cluster.nodes)
    }

    /// The options of the lock of a process: the lock's, but for what its clients have of their own.
    pub(crate) fn options_of(&self, process: &str) -> Lock {
        let own = self.clients.iter().find(|client| client.process() == process);
        own.map_or_else(|| self.lock.clone(), |client| client.options(&self.lock))
    }

    /// The longest TTL that any client asks for.
    pub fn longest_ttl(&self) -> Duration {
        let asked = self.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
        asked.chain([self.lock.ttl.0]).max().unwrap_or_default()
    }
}

impl Client {
    /// The process it lives in.
    pub fn process(&self) -> &Name {
        self.process.as_ref().unwrap_or(&self.id)
    }

    /// The options of its lock, among clients whose lock has these.
    pub(crate) fn options(&self, lock: &Lock) -> Lock {
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

    /// The names that it stands for.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read_and_written_again() {
        let text = include_str!("../../scenarios/clock-step-one-holder.toml");
        let scenario: Scenario = toml::from_str(text).unwrap();
        assert_eq!(scenario.faults[1].harm.name(), "clock.step");
        let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
        assert_eq!(again, scenario);
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
    }
}
