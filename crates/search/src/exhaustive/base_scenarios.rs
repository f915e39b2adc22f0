//! The base scenarios on which schedules of faults are tried. Each has two or three clients, one
//! resource, and two registers: one checks fencing tokens, the other accepts every write. The slow
//! links of a base scenario are delays from its start. They cost nothing, and do not count as
//! faults of a schedule.
//!
//! The vocabulary of a base scenario is every fault that a schedule on it may have, in the words of
//! scenario files. A fault is a kind, its target and its place. This file lists them all, so that
//! the search space can be read. In kinds of faults, `@` stands for the masters. A TTL is 1 s. A
//! fault of 1200 ms is longer: leases and keys from before it are over when it ends.

use crate::defend;
use crate::lengths::of_millis;
use redquorum_protocol::quorum;
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

/// How sets of masters are chosen among masters that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// The first n masters stand for any n masters.
    Folded,
    /// Every set of masters.
    Unfolded,
}

/// Faults that can make a master forget.
const WEIGHTY: [&str; 5] = [
    "node.restart = { nodes = @ }",
    "node.kill = { nodes = @ }; for = '200ms'",
    "clock.step = { nodes = @, by = '1500ms' }",
    "clock.rate = { nodes = @, factor = 2.0 }",
    "clock.strobe = { nodes = @, by = '1500ms', every = '5ms' }",
];

/// Faults of clients.
const CLIENTS: [&str; 5] = [
    "client.pause = { client = 'c1' }; for = '100ms'",
    "client.pause = { client = 'c1' }; for = '1200ms'",
    "client.pause = { client = 'c2' }; for = '1200ms'",
    "client.suspend = { client = 'c1' }; for = '1200ms'",
    "client.kill = { client = 'c1' }",
];

/// Faults that hinder masters and links, for a while or until the end.
const OTHERS: [&str; 17] = [
    "node.kill = { nodes = @ }; for = '1200ms'",
    "node.stop = { nodes = @ }",
    "node.pause = { nodes = @ }; for = '80ms'",
    "node.pause = { nodes = @ }; for = '1200ms'",
    "node.slow = { nodes = @, by = '20ms' }",
    "node.full = { nodes = @ }; for = '300ms'",
    "clock.step = { nodes = @, by = '-1500ms' }",
    "clock.rate = { nodes = @, factor = 1.005 }",
    "net.cut = { client = 'c1', nodes = @ }; for = '300ms'",
    "net.cut = { client = 'c1', nodes = @ }",
    "net.cut = { client = 'c2', nodes = @ }; for = '300ms'",
    "net.hold = { client = 'c1', nodes = @ }; for = '300ms'",
    "net.hold = { client = 'c1', nodes = @ }; for = '1200ms'",
    "net.delay = { client = 'c1', nodes = @, by = '30ms' }",
    "net.reset = { client = 'c1', nodes = @ }",
    "net.half-open = { client = 'c1', nodes = @, end = 'client' }",
    "net.half-open = { client = 'c1', nodes = @, end = 'master' }",
];

/// The wall clock of a client, by far more than a TTL.
const WALLS: [&str; 2] = [
    "client.clock = { client = 'c1', by = '10s' }",
    "client.clock = { client = 'c1', by = '-10s' }",
];

/// Faults of messages from the start. `%` stands for their kind.
const MESSAGES: [&str; 4] = [
    "net.drop = { client = 'c1', nodes = @, what = 'request', command = '%' }; for = '700ms'",
    "net.drop = { client = 'c1', nodes = @, what = 'reply', command = '%' }; for = '700ms'",
    "net.hold = { client = 'c1', nodes = @, what = 'request', command = '%' }; for = '700ms'",
    "net.duplicate = { client = 'c1', nodes = @, what = 'request', command = '%' }",
];

/// Faults that keep masters from pushing that a resource is free, or the message from reaching a
/// waiter.
const DEAFENS: [&str; 7] = [
    "node.restart = { nodes = @ }",
    "node.kill = { nodes = @ }; for = '1200ms'",
    "node.pause = { nodes = @ }; for = '1200ms'",
    "net.cut = { client = 'c2', nodes = @ }; for = '300ms'",
    "net.cut = { client = 'c2', nodes = @ }",
    "net.hold = { client = 'c2', nodes = @ }; for = '1200ms'",
    "net.reset = { client = 'c2', nodes = @ }",
];

/// Clients that are paused, or die, where one waits.
const STILLS: [&str; 4] = [
    "client.pause = { client = 'c1' }; for = '1200ms'",
    "client.pause = { client = 'c2' }; for = '100ms'",
    "client.pause = { client = 'c2' }; for = '1200ms'",
    "client.kill = { client = 'c1' }",
];

/// Faults of the push messages and replies of masters on their way to a waiter.
const WAKE_UPS: [&str; 9] = [
    "net.drop = { client = 'c2', nodes = @, what = 'reply', command = 'wake-up' }",
    "net.hold = { client = 'c2', nodes = @, what = 'reply', command = 'wake-up' }",
    "net.reset = { client = 'c2', nodes = @, what = 'reply', command = 'wake-up' }",
    "net.drop = { client = 'c2', nodes = @, what = 'reply', command = 'wake-up' }; for = '700ms'",
    "net.hold = { client = 'c2', nodes = @, what = 'reply', command = 'wake-up' }; for = '700ms'",
    "net.drop = { client = 'c2', nodes = @, what = 'reply', command = 'release' }; for = '700ms'",
    "net.hold = { client = 'c2', nodes = @, what = 'reply', command = 'release' }; for = '700ms'",
    "net.drop = { client = 'c2', nodes = @, what = 'reply', command = 'acquire' }; for = '700ms'",
    "net.hold = { client = 'c2', nodes = @, what = 'reply', command = 'acquire' }; for = '700ms'",
];

const START: &str = "at = '0s'";

/// The places for faults that only hinder, and whether each place is before the first grant.
const FEW_PLACES: [(&str, bool); 3] =
    [(START, true), ("after = 'c1 granted L'", false), ("before = 'c1 writes R'", false)];

/// Every fault that can be in a schedule on this base scenario, in the order in which faults of the
/// same place are added.
pub fn vocabulary(base: &BaseScenario, symmetry: Symmetry) -> Vec<Fault> {
    if base.parted {
        return Vec::new();
    }
    let words = FaultWriter { base, symmetry };
    let places = words.places();
    let places = places.iter().map(|(place, early)| (place.as_str(), *early));
    let mut all = Vec::new();
    let own: &[&str] = match base.vocabulary {
        Vocabulary::Waiting => return words.waiting(),
        Vocabulary::Usual => {
            for (place, early) in places {
                add(&mut all, place, &words.sets(early, true), &WEIGHTY);
                add(&mut all, place, &NO_MASTERS, &CLIENTS);
            }
            for (place, early) in FEW_PLACES {
                add(&mut all, place, &words.sets(early, false), &OTHERS);
            }
            for kind in WALLS {
                FEW_PLACES.iter().for_each(|(place, _)| all.push(fault(place, kind)));
            }
            for (place, _) in FEW_PLACES {
                all.push(fault(
                    place,
                    "resource.delay = { client = 'c1', what = 'write', by = '1200ms' }",
                ));
            }
            all.push(fault(
                START,
                "resource.delay = { client = 'c1', what = 'read', by = '1200ms' }",
            ));
            let commands: &[&str] = match base.extends() {
                true => &["acquire", "extend", "release"],
                false => &["acquire", "release"],
            };
            let of = |command: &&str| MESSAGES.map(|kind| kind.replace('%', command));
            let messages: Vec<String> = commands.iter().flat_map(of).collect();
            let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
            add(&mut all, START, &words.sets(true, false), &messages);
            return all;
        }
        Vocabulary::Cleared => &["node.flush = { nodes = @ }", "node.evict = { nodes = @ }"],
        Vocabulary::Power => &[
            "node.power-loss = { nodes = @ }; for = '200ms'",
            "node.power-loss = { nodes = @ }; for = '1200ms'",
        ],
        Vocabulary::Replicas => &["node.failover = { nodes = @ }"],
    };
    for (place, early) in places {
        add(&mut all, place, &words.sets(early, true), own);
    }
    all
}

/// For faults that hit no masters.
const NO_MASTERS: [String; 1] = [String::new()];

/// Adds these kinds of faults at a place, for each of the sets of masters.
fn add(all: &mut Vec<Fault>, place: &str, sets: &[String], kinds: &[&str]) {
    for nodes in sets {
        all.extend(kinds.iter().map(|kind| fault(place, &kind.replace('@', nodes))));
    }
}

struct FaultWriter<'a> {
    base: &'a BaseScenario,
    symmetry: Symmetry,
}

impl FaultWriter<'_> {
    fn nodes(&self) -> usize {
        self.base.scenario.cluster.nodes
    }

    fn quorum(&self) -> usize {
        self.base.scenario.cluster.quorum()
    }

    /// The places for faults that can end a hold, and whether each place is before the first grant.
    fn places(&self) -> Vec<(String, bool)> {
        let (all, quorum) = (self.nodes(), self.quorum());
        let early = [
            START.to_owned(),
            format!("after = 'c1 request {all}'"),
            format!("before = 'c1 reply {quorum}'"),
        ];
        let later = [
            "after = 'c1 granted L'",
            "after = 'c1 granted L + 100ms'",
            "before = 'c1 writes R'",
            "before = 'c1 releases L'",
            "after = 'c1 released L'",
            "after = 'c1 granted L + 930ms'",
            "after = 'c1 granted L + 1020ms'",
            "after = 'c2 granted L'",
        ];
        let extend = [
            format!("before = 'c1 reply {quorum} of extend'"),
            "after = 'c1 extended L'".to_owned(),
            "after = 'c1 extended L + 930ms'".to_owned(),
            "after = 'c1 extended L + 1020ms'".to_owned(),
        ];
        let later = later.map(str::to_owned).into_iter();
        let later = later.chain(extend.into_iter().filter(|_| self.base.extends()));
        early
            .map(|place| (place, true))
            .into_iter()
            .chain(later.map(|place| (place, false)))
            .collect()
    }

    /// Sets of masters: before the first grant by number, afterwards by their part. Returns all
    /// sizes that matter, or one master, a minority, and all.
    fn sets(&self, early: bool, sizes: bool) -> Vec<String> {
        if self.symmetry == Symmetry::Unfolded {
            return self.every_set();
        }
        let (all, quorum) = (self.nodes(), self.quorum());
        let mut counts: Vec<usize> =
            if sizes { (1..=quorum).collect() } else { vec![1, all - quorum] };
        counts.retain(|count| (1..all).contains(count));
        counts.dedup();
        let near = counts.iter().map(|count| match early {
            true => numbers(1..=*count),
            false => format!("'holders(c1, {count})'"),
        });
        // If all masters are near, those that are far from c1 are the same as those that are near.
        let far = counts.iter().filter(|count| self.base.bare && **count <= all - quorum);
        let far = far.map(|count| match early {
            true => numbers(all - count + 1..=all),
            false => format!("'others(c1, {count})'"),
        });
        near.chain(far).chain(["'all'".to_owned()]).collect()
    }

    fn every_set(&self) -> Vec<String> {
        let all = self.nodes();
        let has = |set: u32| move |node: &usize| set >> (node - 1) & 1 == 1;
        (1..1_u32 << all).map(|set| numbers((1..=all).filter(has(set)))).collect()
    }

    /// All faults for base scenarios in which masters wake waiters.
    fn waiting(&self) -> Vec<Fault> {
        let places = [
            "after = 'c1 granted L'".to_owned(),
            // The reply tells the waiter which client holds the resource.
            "before = 'c2 reply 1 of release'".to_owned(),
            "before = 'c1 releases L'".to_owned(),
            "after = 'c1 released L'".to_owned(),
            "before = 'c2 reply 1 of wake-up'".to_owned(),
            // The first master replies to the client that was woken.
            format!("before = 'c2 reply {}'", self.nodes() + 1),
            "after = 'c2 granted L'".to_owned(),
        ];
        let sets = self.sets_beside_the_first();
        let mut all = Vec::new();
        for place in &places {
            add(&mut all, place, &sets, &DEAFENS);
            add(&mut all, place, &NO_MASTERS, &STILLS);
        }
        add(&mut all, START, &sets, &WAKE_UPS);
        all
    }

    /// Sets of masters for clients that ask the first master before the others: the first alone,
    /// the next one, a minority with the first and one without, a majority with the first, all.
    fn sets_beside_the_first(&self) -> Vec<String> {
        if self.symmetry == Symmetry::Unfolded {
            return self.every_set();
        }
        let (all, quorum) = (self.nodes(), self.quorum());
        let spare = all - quorum;
        let mut sets = Vec::new();
        for (from, to) in [(1, 1), (2, 2), (1, spare), (2, spare + 1), (1, quorum)] {
            let set = numbers(from..=to);
            if (from..all).contains(&to) && !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets.push("'all'".to_owned());
        sets
    }
}

fn numbers(numbers: impl Iterator<Item = usize>) -> String {
    format!("{:?}", numbers.collect::<Vec<_>>())
}

impl BaseScenario {
    /// Whether the first client extends its lease.
    fn extends(&self) -> bool {
        let extends = |step: &Step| matches!(step, Step::Extend { .. } | Step::Keep { .. });
        self.scenario.clients.iter().any(|client| client.script.iter().any(extends))
    }
}
