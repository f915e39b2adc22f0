//! The base scenarios on which schedules of faults are tried. Each has two or three clients, one
//! resource, and two registers: one checks fencing tokens, the other accepts every write. The slow
//! links of a base scenario are delays from its start. They cost nothing, and do not count as
//! faults of a schedule.

use redquorum_protocol::quorum;

use crate::defend;
use crate::lengths::of_millis;
use redquorum_scenario::{
    Client, Cluster, Expect, Fault, Length, Lock, Persistence, Scenario, Step,
};

/// How long a master keeps a key.
pub(super) const TTL: u64 = 1_000;

/// When the clients start in a base scenario in which masters have synced before.
const SYNCED: u64 = 100;

/// A base scenario.
#[derive(Clone, Debug)]
pub struct BaseScenario {
    /// Its scenario. The faults in it are its slow links.
    pub scenario: Scenario,
    /// Whether clients check their lease before they write.
    pub looks: bool,
    /// The faults that can occur in it.
    pub(super) vocabulary: Vocabulary,
    /// Whether only a bare quorum grants the first lease, because a rival asks at the same time.
    pub bare: bool,
    /// Whether its clients know different masters. Then the lock guarantees nothing, and the search
    /// adds no fault.
    pub parted: bool,
    /// Whether only schedules count in which a master restarts. Apart from its name, any other
    /// schedule belongs to another base scenario, whose masters keep nothing.
    pub(super) restarts: bool,
}

impl BaseScenario {
    /// Whether a schedule of these faults belongs to no other base scenario.
    pub(super) fn is_its_own<'a>(&self, mut faults: impl Iterator<Item = &'a Fault>) -> bool {
        !self.restarts || faults.any(|fault| fault.kind.starts_again())
    }

    /// The base scenario with every defence of the lock switched on. Clients wait until masters
    /// that forgot during the request are trusted again, so that the run also shows what these
    /// masters grant then.
    #[must_use]
    pub fn defended(mut self) -> Self {
        let Scenario { clients, lock, .. } = &mut self.scenario;
        defend(lock, of_millis(TTL).0);
        for step in clients.iter_mut().flat_map(|client| &mut client.script) {
            if let Step::Acquire { wait, .. } = step
                && !wait.is_zero()
            {
                wait.0 += lock.quarantine();
            }
        }
        self
    }

    /// Its scenario with these faults.
    pub(super) fn with(&self, faults: &[Fault]) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.faults.extend_from_slice(faults);
        scenario
    }
}

/// The vocabulary of a base scenario. Faults that need masters of a special kind, or that are many,
/// are tried separately: together with all others they would take minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    /// All faults that no other vocabulary has.
    Usual,
    /// Faults that keep masters from waking waiters, or wake-ups from reaching them.
    Waiting,
    /// Masters are flushed, or evict keys.
    Cleared,
    /// Masters that sync every second lose their power.
    Power,
    /// Masters fail over to replicas that lag from the start.
    Replicas,
}

/// The actions of the first client between its grant and its release: in words, and as steps.
type Stay = (&'static str, &'static str);

const SHORT: Stay = ("it works for half a TTL", "work 500ms");
const LONG: Stay = ("it works until just before its deadline", "work 950ms");
const EXTENDS: Stay = (
    "it works, extends and works, for more than a TTL, and writes without a look",
    "work 600ms, extend L, work 600ms",
);
const KEEPS: Stay =
    ("its watchdog extends while it works for more than a TTL", "keep L for 3s, work 1400ms");

/// All base scenarios for this number of masters.
pub fn base_scenarios(nodes: usize) -> Vec<BaseScenario> {
    // If a quorum is all masters, no master can fail.
    let race = quorum(nodes) < nodes;
    let mut all = vec![
        base("full", nodes, LONG, false),
        base("keeps", nodes, KEEPS, false),
        base("bare", nodes, SHORT, race),
        base("edge", nodes, LONG, race),
        base("extends", nodes, EXTENDS, race),
        durable(base("durable", nodes, SHORT, race)),
    ];
    all.extend(waiting(nodes));
    for (vocabulary, names) in [
        (Vocabulary::Cleared, ["cleared-full", "cleared-bare"]),
        (Vocabulary::Power, ["power-full", "power-bare"]),
        (Vocabulary::Replicas, ["replicas-full", "replicas-bare"]),
    ] {
        let full = base(names[0], nodes, LONG, false);
        let bare = base(names[1], nodes, SHORT, race);
        all.extend([full, bare].map(|base| with_vocabulary(base, vocabulary)));
    }
    all.extend(parted(nodes));
    all
}

/// c1 acquires and stays; c2 acquires after it, or asks at the same time, in a race. A client that
/// extends does not check its lease before it writes.
fn base(name: &str, nodes: usize, (about, stay): Stay, race: bool) -> BaseScenario {
    let granted = if race { "a bare quorum, since c2 asks at the same time" } else { "all" };
    let looks = stay != EXTENDS.1;
    let c2 = client("c2", if race { 0 } else { 100 }, &section(" wait 3s", "work 50ms", looks));
    let scenario = Scenario {
        name: name.to_owned(),
        about: format!("c1 is granted by {granted}; {about}."),
        source: None,
        cluster: Cluster { nodes, persistence: Persistence::None, replicas: false },
        // A client that is woken asks one master before the others. Separate base scenarios cover
        // this.
        lock: Lock { ttl: of_millis(TTL), fencing: true, wake_ups: false, ..Lock::default() },
        clients: vec![client("c1", 0, &section("", stay, looks)), c2],
        faults: if race { near_to_some(nodes) } else { Vec::new() },
        expect: Expect::default(),
        variants: Vec::new(),
    };
    let vocabulary = Vocabulary::Usual;
    BaseScenario { scenario, looks, vocabulary, bare: race, parted: false, restarts: false }
}

/// The base scenario on masters that sync every write.
fn durable(mut base: BaseScenario) -> BaseScenario {
    base.scenario.cluster.persistence = Persistence::AofAlways;
    BaseScenario { restarts: true, ..base }
}

/// The base scenario for faults of another vocabulary, on masters on which they can strike.
fn with_vocabulary(mut base: BaseScenario, vocabulary: Vocabulary) -> BaseScenario {
    let Scenario { about, cluster, clients, faults, .. } = &mut base.scenario;
    match vocabulary {
        Vocabulary::Usual | Vocabulary::Waiting | Vocabulary::Cleared => {}
        Vocabulary::Power => {
            cluster.persistence = Persistence::AofEverysec;
            // The first write in a second is synced at once.
            about.push_str(
                " c0 writes just before, so that what they write waits for the next sync.",
            );
            for client in &mut *clients {
                client.start = Length(client.start.0 + of_millis(SYNCED).0);
            }
            clients.insert(0, client("c0", 0, "acquire M, release M"));
        }
        Vocabulary::Replicas => {
            cluster.replicas = true;
            about.push_str(" Replicas have got nothing since the start.");
            faults.push(fault("at = '0s'", "node.lag = { nodes = 'all' }"));
        }
    }
    BaseScenario { vocabulary, ..base }
}

/// The holder releases soon, and masters wake the waiters: one client, or the first of two in one
/// process, after which the second takes over. A client that is woken asks the first master before
/// the others. The holder works far less than a TTL, so a client that finds the resource free only
/// when the keys expire comes too late.
fn waiting(nodes: usize) -> [BaseScenario; 2] {
    let waiter = |id, start| client(id, start, &section(" wait 3s", "work 50ms", true));
    let base = |name, about: &str, waiters: Vec<Client>| {
        let mut base = base(name, nodes, ("", "work 60ms"), false);
        about.clone_into(&mut base.scenario.about);
        base.scenario.lock.wake_ups = true;
        base.scenario.clients.splice(1.., waiters);
        BaseScenario { vocabulary: Vocabulary::Waiting, ..base }
    };
    let of_one = [waiter("c2", 20), waiter("c3", 30)]
        .map(|client| Client { process: Some("waiters".into()), ..client });
    [
        base("wakes", "c1 works for a moment, and c2 is woken.", vec![waiter("c2", 20)]),
        base("takes-over", "c2 is woken, and c3 of its process is next.", of_one.into()),
    ]
}

/// The first base scenario, with half of the masters for each client.
fn parted(nodes: usize) -> Option<BaseScenario> {
    let half = nodes / 2;
    let mut base = base("parted", nodes, LONG, false);
    base.parted = true;
    base.scenario.about =
        format!("c1 knows the first {half} masters, c2 the others; c1 works until its deadline.");
    let [first, second] = &mut base.scenario.clients[..] else { return None };
    first.nodes = Some((1..=half).collect());
    second.nodes = Some((half + 1..=nodes).collect());
    (half > 0).then_some(base)
}

/// c1 is near to the first q masters, c2 to the others, so that each is first at some masters.
fn near_to_some(nodes: usize) -> Vec<Fault> {
    let quorum = quorum(nodes);
    let (near, far): (Vec<usize>, Vec<usize>) = (1..=nodes).partition(|node| *node <= quorum);
    let slow = |client, nodes: &[usize], by| {
        let which = format!("client = '{client}', nodes = {nodes:?}, what = 'request'");
        fault("at = '0s'", &format!("net.delay = {{ {which}, by = '{by}' }}"))
    };
    vec![slow("c1", &far, "10ms"), slow("c2", &near, "30ms")]
}

/// A fault from its place, and its kind with its duration.
pub(super) fn fault(place: &str, kind: &str) -> Fault {
    let text = format!("{place}\n{}", kind.replace("; ", "\n"));
    toml::from_str(&text).unwrap_or_else(|why| unreachable!("{text}: {why}"))
}

/// The steps from an acquire to its release. The client reads both registers before its work and
/// writes them after it. It writes the one that checks fencing tokens, `F`, whether it checks its
/// lease or not: faults that hit one register can hit the other.
fn section(wait: &str, stay: &str, looks: bool) -> String {
    let held = if looks { " if L" } else { "" };
    format!(
        "acquire L{wait}, present F under L, read F under L, read R, {stay}, write R{held}, \
         write F under L, release L"
    )
}

fn client(id: &str, start: u64, script: &str) -> Client {
    let script = script.split(", ").map(|step| step.parse().expect("it is a step"));
    Client { start: of_millis(start), ..Client::new(id, script.collect()) }
}
