//! The lessons on which schedules of faults are tried: two clients, one resource, one register. Each
//! is a scenario; what makes some links slow stands in it as a delay from the start, costs nothing,
//! and is no fault of a schedule.

use std::time::Duration;

use crate::name::Name;
use crate::scenario::{
    Client, Clients, Cluster, Expect, Fault, Harm, Length, Lock, NetHarm, Nodes, Persistence,
    Scenario, Side, Step, Way, When,
};

/// How long a master keeps a key.
pub(super) const TTL: u64 = 1_000;
/// How long a request is under way on a slow link, of the first client and of the second.
const SLOW: [u64; 2] = [10, 30];

/// A lesson.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// Its scenario; the faults in it are its slow links.
    pub scenario: Scenario,
    /// Whether clients look at their lease before they write.
    pub looks: bool,
    /// Whether only a bare quorum grants the first lease, since a rival asks at the same time.
    pub bare: bool,
}

impl Lesson {
    /// Whether the first client extends its lease.
    pub(super) fn extends(&self) -> bool {
        let extends = |step: &Step| matches!(step, Step::Extend { .. } | Step::Keep { .. });
        self.scenario.clients.iter().any(|client| client.script.iter().any(extends))
    }

    /// Its scenario with these faults.
    pub(super) fn with(&self, faults: &[Fault]) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.faults.extend_from_slice(faults);
        scenario
    }
}

/// What the first client does between its grant and its release.
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

/// All lessons for so many masters.
pub fn lessons(nodes: usize) -> Vec<Lesson> {
    let forgets = Persistence::None;
    let mut all = vec![
        lesson("full", nodes, Stay::Long, false, true, forgets),
        lesson("keeps", nodes, Stay::Keeps, false, true, forgets),
    ];
    // Where a quorum is all masters there is none to spare.
    let race = nodes / 2 + 1 < nodes;
    all.extend([
        lesson("bare", nodes, Stay::Short, race, true, forgets),
        lesson("edge", nodes, Stay::Long, race, true, forgets),
        lesson("extends", nodes, Stay::Extends, race, false, forgets),
        lesson("durable", nodes, Stay::Short, race, true, Persistence::AofAlways),
    ]);
    all
}

fn lesson(
    name: &str,
    nodes: usize,
    stay: Stay,
    race: bool,
    looks: bool,
    persistence: Persistence,
) -> Lesson {
    let (about, script) = stay.script(looks);
    let granted = if race { "a bare quorum, since c2 asks at the same time" } else { "all" };
    let rival = vec![acquire(3_000), touch(Way::Read, false), work(50), touch(Way::Write, looks)];
    let rival = rival.into_iter().chain([release()]).collect();
    let clients = vec![client("c1", 0, script), client("c2", if race { 0 } else { 100 }, rival)];
    let scenario = Scenario {
        name: name.to_owned(),
        about: format!("c1 is granted by {granted}; {about}."),
        source: None,
        cluster: Cluster { nodes, persistence },
        lock: Lock { ttl: length(TTL), ..Lock::default() },
        clients,
        faults: if race { near_to_some(nodes) } else { Vec::new() },
        expect: Expect::default(),
        variants: Vec::new(),
    };
    Lesson { scenario, looks, bare: race }
}

/// c1 is near to the first q masters, c2 to the others, so that each is first with some.
fn near_to_some(nodes: usize) -> Vec<Fault> {
    let quorum = nodes / 2 + 1;
    let slow = |client: &str, nodes: Vec<usize>, by| Fault {
        when: When::At(length(0)),
        lasts: None,
        harm: Harm::Net(NetHarm::Delay {
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
        let before = [acquire(0), touch(Way::Read, false)];
        let after = [touch(Way::Write, looks), release()];
        (about, before.into_iter().chain(stay).chain(after).collect())
    }
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
    Step::Acquire { resource: resource(), wait: length(wait), ttl: None, cancel: None }
}

fn touch(way: Way, looks: bool) -> Step {
    Step::Touch { register: register(), way, held: looks.then(resource) }
}

const fn work(ms: u64) -> Step {
    Step::Work(length(ms))
}

fn release() -> Step {
    Step::Release { resource: resource() }
}

fn client(id: &str, start: u64, script: Vec<Step>) -> Client {
    Client {
        id: id.into(),
        process: None,
        start: length(start),
        script,
        count: 1,
        rounds: None,
        think: length(0),
    }
}
