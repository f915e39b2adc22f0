//! The base scenarios on which schedules of faults are tried. Each has two or three clients,
//! one resource, and two registers: one checks fencing tokens, the other accepts every write. The
//! slow links of a base scenario are delays from its start. They cost nothing, and do not count as
//! faults of a schedule.

use std::time::Duration;

use crate::name::Name;
use crate::scenario::{
    AccessKind, Client, Clients, Cluster, Expect, Fault, FaultKind, FaultTime, Length, Lock,
    NetworkFault, NodeFault, Nodes, Persistence, Scenario, Side, Step,
};
use crate::search::defences::defend;

/// How long a master keeps a key.
pub(super) const TTL: u64 = 1_000;
/// The delay of a request on a slow link, for the first client and for the second.
const SLOW: [u64; 2] = [10, 30];

/// When the clients start that wait for wake-ups of masters, and how long the holder works. This is
/// far less than a TTL, so a client that finds the resource free only when the keys expire comes
/// too late.
const WAITS: [u64; 3] = [20, 30, 60];

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
    pub(super) words: Words,
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
    /// Whether the first client extends its lease.
    pub(super) fn extends(&self) -> bool {
        let extends = |step: &Step| matches!(step, Step::Extend { .. } | Step::Keep { .. });
        self.scenario.clients.iter().any(|client| client.script.iter().any(extends))
    }

    /// Whether a schedule of these faults belongs to no other base scenario.
    pub(super) fn is_its_own<'a>(&self, mut faults: impl Iterator<Item = &'a Fault>) -> bool {
        !self.restarts || faults.any(|fault| fault.fault_kind.starts_again())
    }

    /// The base scenario with every defence of the lock switched on. Clients wait until masters
    /// that forgot during the request are trusted again, so that the run also shows what these
    /// masters grant then.
    #[must_use]
    pub fn defended(mut self) -> Self {
        let Scenario { clients, lock, .. } = &mut self.scenario;
        defend(lock, length(TTL).0);
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
pub(super) enum Words {
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

/// The actions of the first client between its grant and its release.
#[derive(Clone, Copy)]
enum Stay {
    /// Half a TTL.
    Short,
    /// Nearly a TTL.
    Long,
    /// More than a TTL, with one extend.
    Extends,
    /// More than a TTL, with a watchdog.
    Keeps,
}

/// All base scenarios for this number of masters.
pub fn lessons(nodes: usize) -> Vec<BaseScenario> {
    let forgets = Persistence::None;
    let mut all = vec![
        lesson("full", nodes, Stay::Long, false, true, forgets),
        lesson("keeps", nodes, Stay::Keeps, false, true, forgets),
    ];
    // If a quorum is all masters, no master can fail.
    let race = nodes / 2 + 1 < nodes;
    all.extend([
        lesson("bare", nodes, Stay::Short, race, true, forgets),
        lesson("edge", nodes, Stay::Long, race, true, forgets),
        lesson("extends", nodes, Stay::Extends, race, false, forgets),
        lesson("durable", nodes, Stay::Short, race, true, Persistence::AofAlways),
    ]);
    all.extend(waiting(nodes));
    for (words, names) in [
        (Words::Cleared, ["cleared-full", "cleared-bare"]),
        (Words::Power, ["power-full", "power-bare"]),
        (Words::Replicas, ["replicas-full", "replicas-bare"]),
    ] {
        let full = lesson(names[0], nodes, Stay::Long, false, true, forgets);
        let bare = lesson(names[1], nodes, Stay::Short, race, true, forgets);
        all.extend([full, bare].map(|lesson| with_words(lesson, words)));
    }
    all.extend(parted(nodes));
    all
}

/// The base scenario for faults of another vocabulary, on masters on which they can strike.
fn with_words(mut lesson: BaseScenario, words: Words) -> BaseScenario {
    let Scenario { about, cluster, clients, faults, .. } = &mut lesson.scenario;
    match words {
        Words::Usual | Words::Waiting | Words::Cleared => {}
        Words::Power => {
            cluster.persistence = Persistence::AofEverysec;
            // The first write in a second is synced at once.
            about.push_str(
                " c0 writes just before, so that what they write waits for the next sync.",
            );
            for client in &mut *clients {
                client.start = Length(client.start.0 + length(SYNCED).0);
            }
            let script = vec![
                Step::Acquire {
                    resource: "M".into(),
                    also: Vec::new(),
                    wait: length(0),
                    ttl: None,
                    cancel: None,
                    again: false,
                },
                Step::Release { resource: "M".into(), also: Vec::new() },
            ];
            clients.insert(0, client("c0", 0, script));
        }
        Words::Replicas => {
            cluster.replicas = true;
            about.push_str(" Replicas have got nothing since the start.");
            let lag = FaultKind::Node(NodeFault::Lag { nodes: Nodes::All });
            faults.push(Fault { when: FaultTime::At(length(0)), lasts: None, fault_kind: lag });
        }
    }
    BaseScenario { words, ..lesson }
}

fn lesson(
    name: &str,
    nodes: usize,
    stay: Stay,
    race: bool,
    looks: bool,
    persistence: Persistence,
) -> BaseScenario {
    let (about, script) = stay.script(looks);
    let granted = if race { "a bare quorum, since c2 asks at the same time" } else { "all" };
    let rival = section(3_000, vec![work(50)], looks);
    let clients = vec![client("c1", 0, script), client("c2", if race { 0 } else { 100 }, rival)];
    let scenario = Scenario {
        name: name.to_owned(),
        about: format!("c1 is granted by {granted}; {about}."),
        source: None,
        cluster: Cluster { nodes, persistence, replicas: false },
        // A client that is woken asks one master before the others. Separate base scenarios cover
        // this.
        lock: Lock { ttl: length(TTL), fencing: true, wake_ups: false, ..Lock::default() },
        clients,
        faults: if race { near_to_some(nodes) } else { Vec::new() },
        expect: Expect::default(),
        variants: Vec::new(),
    };
    let restarts = persistence == Persistence::AofAlways;
    BaseScenario { scenario, looks, words: Words::Usual, bare: race, parted: false, restarts }
}

/// The holder releases soon, and masters wake the waiters: one client, or the first of two in one
/// process, after which the second takes over. A client that is woken asks the first master before
/// the others.
fn waiting(nodes: usize) -> [BaseScenario; 2] {
    let [first, next, stay] = WAITS;
    let waits = |id: &str, start| client(id, start, section(3_000, vec![work(50)], true));
    let lesson = |name: &str, about: &str, waiters: Vec<Client>| {
        let mut lesson = lesson(name, nodes, Stay::Short, false, true, Persistence::None);
        let Scenario { about: told, lock, clients, .. } = &mut lesson.scenario;
        about.clone_into(told);
        lock.wake_ups = true;
        clients.truncate(1);
        for step in &mut clients[0].script {
            if let Step::Work(length) = step {
                *length = self::length(stay);
            }
        }
        clients.extend(waiters);
        BaseScenario { words: Words::Waiting, ..lesson }
    };
    let of_one = ["c2", "c3"]
        .into_iter()
        .zip([first, next])
        .map(|(id, start)| Client { process: Some("waiters".into()), ..waits(id, start) });
    [
        lesson("wakes", "c1 works for a moment, and c2 is woken.", vec![waits("c2", first)]),
        lesson("takes-over", "c2 is woken, and c3 of its process is next.", of_one.collect()),
    ]
}

/// The first base scenario, with half of the masters for each client.
fn parted(nodes: usize) -> Option<BaseScenario> {
    let half = nodes / 2;
    let mut lesson = lesson("parted", nodes, Stay::Long, false, true, Persistence::None);
    lesson.parted = true;
    lesson.scenario.about =
        format!("c1 knows the first {half} masters, c2 the others; c1 works until its deadline.");
    let [first, second] = &mut lesson.scenario.clients[..] else { return None };
    first.nodes = Some((1..=half).collect());
    second.nodes = Some((half + 1..=nodes).collect());
    (half > 0).then_some(lesson)
}

/// c1 is near to the first q masters, c2 to the others, so that each is first at some masters.
fn near_to_some(nodes: usize) -> Vec<Fault> {
    let quorum = nodes / 2 + 1;
    let slow = |client: &str, nodes: Vec<usize>, by| Fault {
        when: FaultTime::At(length(0)),
        lasts: None,
        fault_kind: FaultKind::Net(NetworkFault::Delay {
            clients: Clients::Some(vec![client.into()]),
            nodes: Nodes::Some(nodes),
            what: Side::Request,
            by: length(by),
        }),
    };
    vec![
        slow("c1", (quorum + 1..=nodes).collect(), SLOW[0]),
        slow("c2", (1..=quorum).collect(), SLOW[1]),
    ]
}

impl Stay {
    fn script(self, looks: bool) -> (&'static str, Vec<Step>) {
        let (about, stay) = match self {
            Self::Short => ("it works for half a TTL", vec![work(500)]),
            Self::Long => ("it works until just before its deadline", vec![work(950)]),
            Self::Extends => (
                "it works, extends and works, for more than a TTL, and writes without a look",
                vec![work(600), Step::Extend { resource: resource(), ttl: None }, work(600)],
            ),
            Self::Keeps => (
                "its watchdog extends while it works for more than a TTL",
                vec![Step::Keep { resource: resource(), most: length(3_000) }, work(1_400)],
            ),
        };
        (about, section(0, stay, looks))
    }
}

/// The steps from an acquire to its release. The client reads both registers before its work and
/// writes them after it. It writes the fenced one whether it checks its lease or not: faults that
/// hit one register can hit the other.
fn section(wait: u64, stay: Vec<Step>, looks: bool) -> Vec<Step> {
    let before = [
        acquire(wait),
        fenced(AccessKind::Present),
        fenced(AccessKind::Read),
        touch(AccessKind::Read, false),
    ];
    let after = [touch(AccessKind::Write, looks), fenced(AccessKind::Write), release()];
    before.into_iter().chain(stay).chain(after).collect()
}

pub(super) const fn length(ms: u64) -> Length {
    Length(Duration::from_millis(ms))
}

pub(super) fn resource() -> Name {
    "L".into()
}

pub(super) fn register() -> Name {
    "R".into()
}

fn acquire(wait: u64) -> Step {
    Step::Acquire {
        resource: resource(),
        also: Vec::new(),
        wait: length(wait),
        ttl: None,
        cancel: None,
        again: false,
    }
}

fn touch(way: AccessKind, looks: bool) -> Step {
    Step::Touch { register: register(), way, under: None, held: looks.then(resource) }
}

/// The register that checks fencing tokens.
fn fenced(way: AccessKind) -> Step {
    Step::Touch { register: "F".into(), way, under: Some(resource()), held: None }
}

const fn work(ms: u64) -> Step {
    Step::Work(length(ms))
}

fn release() -> Step {
    Step::Release { resource: resource(), also: Vec::new() }
}

fn client(id: &str, start: u64, script: Vec<Step>) -> Client {
    Client {
        id: id.into(),
        process: None,
        nodes: None,
        guard: None,
        fencing: None,
        fair: None,
        start: length(start),
        script,
        count: 1,
        rounds: None,
        think: length(0),
    }
}
