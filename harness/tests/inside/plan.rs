//! Scenarios by chance. A plan is numbers, each good for itself so that it can be shrunk by itself;
//! what they mean beside each other (the third master of five, the second client of three) is found
//! when the scenario is built.

use std::fmt;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use redquorum_harness::name::Name;
use redquorum_harness::scenario::{
    Class, Client, ClientHarm, Clients, ClockHarm, Cluster, End, Fault, Harm, Length, Lock, Moment,
    NetHarm, NodeHarm, Nodes, Persistence, Role, Rounds, Scenario, Shift, Side, Step, Way, What,
    When, Which,
};

/// A scenario and the seed of its chance.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
}

impl Run {
    /// As a file.
    pub(super) fn toml(&self) -> String {
        format!("# --seed {}\n{}", self.seed, toml::to_string(&self.scenario).unwrap())
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", self.toml())
    }
}

pub(super) fn runs() -> impl Strategy<Value = Run> {
    let plan = (
        (select(vec![1_usize, 3, 4, 5]), any::<bool>()),
        (200..=2_000_u64, 0..100_u64, select(vec![500_u32, 10_000, 50_000]), 2..=5_u64),
        vec(client(), 1..=4),
        vec(fault(), 0..=4),
        0..1_000_000_u64,
    );
    plan.prop_map(|((nodes, keeps), lock, clients, faults, seed)| {
        let persistence = if keeps { Persistence::AofAlways } else { Persistence::None };
        let cluster = Cluster { nodes, persistence };
        Run { scenario: scenario(cluster, lock, &clients, &faults), seed }
    })
}

/// What a client does, between an acquire and its release.
#[derive(Clone, Copy, Debug)]
enum Inner {
    Touch(Way),
    Work(u64),
    Extend(Option<u64>),
    Keep(u64),
}

#[derive(Clone, Debug)]
struct Section {
    second: bool,
    wait: u64,
    ttl: Option<u64>,
    cancel: Option<u64>,
    inner: Vec<Inner>,
}

#[derive(Clone, Debug)]
struct Person {
    shared: bool,
    start: u64,
    sections: Vec<Section>,
    rounds: Option<Rounds>,
    think: u64,
}

fn client() -> impl Strategy<Value = Person> {
    let inner = prop_oneof![
        4 => select(vec![Way::Read, Way::Write]).prop_map(Inner::Touch),
        3 => (1..=1_200_u64).prop_map(Inner::Work),
        1 => option::of(200..=2_000_u64).prop_map(Inner::Extend),
        1 => (1..=3_000_u64).prop_map(Inner::Keep),
    ];
    let section = (
        proptest::bool::weighted(0.2),
        prop_oneof![Just(0), 1..=4_000_u64],
        option::weighted(0.2, 200..=2_000_u64),
        option::weighted(0.15, 1..=300_u64),
        vec(inner, 0..=5),
    );
    let section = section.prop_map(|(second, wait, ttl, cancel, inner)| Section {
        second,
        wait,
        ttl,
        cancel,
        inner,
    });
    let rounds = prop_oneof![
        Just(None),
        (2..=6_u32).prop_map(|times| Some(Rounds::Times(times))),
        (100..=4_000_u64).prop_map(|ms| Some(Rounds::For(length(ms)))),
    ];
    // A pause between two rounds, or a refused client asks thousands of times.
    let all = (
        proptest::bool::weighted(0.3),
        prop_oneof![Just(0), 0..=500_u64],
        vec(section, 1..=2),
        rounds,
        1..=300_u64,
    );
    all.prop_map(|(shared, start, sections, rounds, think)| Person {
        shared,
        start,
        sections,
        rounds,
        think,
    })
}

/// Masters, by numbers that mean one or another.
#[derive(Clone, Debug)]
enum Whom {
    All,
    Some(Vec<usize>),
    Role { client: usize, granted: bool, first: Option<usize> },
}

#[derive(Clone, Copy, Debug)]
enum Time {
    At(u64),
    /// Before or after one of the things that a client does.
    Moment {
        before: bool,
        client: usize,
        kind: usize,
        number: u32,
        class: Class,
        plus: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Kill,
    Stop,
    Restart,
    PauseNode,
    Slow,
    Full,
    PauseClient,
    KillClient,
    ClientClock,
    Rate { fast: bool, whole: bool },
    Cut,
    Drop,
    Hold,
    Delay,
    Duplicate,
    Trickle,
    HalfOpen(End),
    Reset,
}

#[derive(Clone, Debug)]
struct Trouble {
    time: Time,
    lasts: Option<u64>,
    kind: Kind,
    nodes: Whom,
    clients: Option<usize>,
    side: Side,
    class: Class,
    index: Option<u64>,
    count: Option<u64>,
    by: u64,
}

fn classes() -> impl Strategy<Value = Class> {
    select(vec![Class::Any, Class::Acquire, Class::Extend, Class::Release])
}

fn fault() -> impl Strategy<Value = Trouble> {
    let time = prop_oneof![
        Just(Time::At(0)),
        (0..=4_000_u64).prop_map(Time::At),
        (any::<bool>(), 0..4_usize, 0..11_usize, 1..=12_u32, classes(), 0..=300_u64).prop_map(
            |(before, client, kind, number, class, plus)| {
                Time::Moment { before, client, kind, number, class, plus }
            }
        ),
        (0..4_usize, 0..=100_u64).prop_map(|(client, plus)| {
            Time::Moment { before: false, client, kind: 1, number: 1, class: Class::Any, plus }
        }),
    ];
    let kind = prop_oneof![
        Just(Kind::Kill),
        Just(Kind::Stop),
        Just(Kind::Restart),
        Just(Kind::PauseNode),
        Just(Kind::Slow),
        Just(Kind::Full),
        Just(Kind::PauseClient),
        Just(Kind::KillClient),
        Just(Kind::ClientClock),
        (any::<bool>(), any::<bool>()).prop_map(|(fast, whole)| Kind::Rate { fast, whole }),
        Just(Kind::Cut),
        Just(Kind::Drop),
        Just(Kind::Hold),
        Just(Kind::Delay),
        Just(Kind::Duplicate),
        Just(Kind::Trickle),
        select(vec![End::Client, End::Master]).prop_map(Kind::HalfOpen),
        Just(Kind::Reset),
    ];
    let whom = prop_oneof![
        1 => Just(Whom::All),
        4 => vec(0..5_usize, 1..=4).prop_map(Whom::Some),
        2 => (0..4_usize, any::<bool>(), option::of(0..5_usize))
            .prop_map(|(client, granted, first)| Whom::Role { client, granted, first }),
    ];
    let which = (
        option::of(0..4_usize),
        select(vec![Side::Both, Side::Request, Side::Reply]),
        classes(),
        option::of(1..=20_u64),
        option::of(1..=10_u64),
    );
    (time, option::weighted(0.8, 1..=3_000_u64), kind, whom, which, 1..=1_500_u64).prop_map(
        |(time, lasts, kind, nodes, (clients, side, class, index, count), by)| Trouble {
            time,
            lasts,
            kind,
            nodes,
            clients,
            side,
            class,
            index,
            count,
            by,
        },
    )
}

const fn length(ms: u64) -> Length {
    Length(Duration::from_millis(ms))
}

fn scenario(
    cluster: Cluster,
    (ttl, timeout, drift_ppm, drift): (u64, u64, u32, u64),
    people: &[Person],
    troubles: &[Trouble],
) -> Scenario {
    // The library wants TTL > node timeout + drift: at most a third of the TTL is left for waiting.
    let timeout = 5 + timeout * ttl / 300;
    let lock = Lock {
        ttl: length(ttl),
        node_timeout: length(timeout),
        drift_ppm,
        drift: length(drift),
        fencing: false,
    };
    let clients = people.iter().enumerate().map(|(index, person)| person.client(index, timeout));
    let mut scenario = Scenario {
        name: "inside".to_owned(),
        about: "By chance, and inside the assumptions.".to_owned(),
        source: None,
        cluster,
        lock,
        clients: clients.collect(),
        faults: Vec::new(),
        expect: redquorum_harness::scenario::Expect::default(),
        variants: Vec::new(),
    };
    for trouble in troubles {
        let fault = trouble.fault(&scenario);
        scenario.faults.extend(fault);
    }
    scenario
}

impl Person {
    fn client(&self, index: usize, timeout: u64) -> Client {
        let script = self.sections.iter().flat_map(|section| section.steps(timeout)).collect();
        Client {
            id: format!("c{}", index + 1).into(),
            process: self.shared.then(|| "shared".into()),
            start: length(self.start),
            script,
            count: 1,
            rounds: self.rounds,
            think: length(if self.rounds.is_some() { self.think } else { 0 }),
        }
    }
}

impl Section {
    fn steps(&self, timeout: u64) -> Vec<Step> {
        let (resource, register) = if self.second { ("M", "S") } else { ("L", "R") };
        let (resource, register) = (Name::from(resource), Name::from(register));
        let ttl = |ttl: Option<u64>| ttl.map(|ttl| length(ttl.max(2 * timeout + 10)));
        let mut steps = vec![Step::Acquire {
            resource: resource.clone(),
            wait: length(self.wait),
            ttl: ttl(self.ttl),
            cancel: self.cancel.map(length),
        }];
        let (mut has_read, mut keeps) = (false, false);
        let touch = |way| {
            let held = (way == Way::Write).then(|| resource.clone());
            Step::Touch { register: register.clone(), way, held }
        };
        for inner in &self.inner {
            match *inner {
                Inner::Touch(way) => {
                    // An update is built on what was read under this very lease.
                    if way == Way::Write && !has_read {
                        steps.push(touch(Way::Read));
                    }
                    has_read = true;
                    steps.push(touch(way));
                }
                Inner::Work(ms) => steps.push(Step::Work(length(ms))),
                // Not beside a watchdog yet: an extension then failed though a quorum had said yes,
                // and whether the judge or the lock is wrong there is not understood.
                Inner::Extend(_) if keeps => {}
                Inner::Extend(longer) => {
                    steps.push(Step::Extend { resource: resource.clone(), ttl: ttl(longer) });
                }
                Inner::Keep(ms) => {
                    keeps = true;
                    steps.push(Step::Keep { resource: resource.clone(), most: length(ms) });
                }
            }
        }
        steps.push(Step::Release { resource });
        steps
    }
}

impl Trouble {
    /// None where it would be outside the assumptions, or senseless, in this scenario.
    fn fault(&self, scenario: &Scenario) -> Option<Fault> {
        let nodes = self.nodes(scenario);
        let by = length(self.by);
        let which = || Which {
            clients: self.clients(scenario),
            nodes: nodes.clone(),
            what: self.side,
            command: self.class,
            index: self.index,
            count: self.count,
        };
        let one = Clients::Some(vec![name(scenario, self.clients.unwrap_or_default())]);
        let ties =
            Which { clients: self.clients(scenario), nodes: nodes.clone(), ..Which::default() };
        let mut lasts = self.lasts.map(length);
        let harm = match self.kind {
            Kind::Kill | Kind::Stop => {
                // What forgets comes back when all it knew has expired.
                if scenario.cluster.persistence == Persistence::None {
                    let longest = scenario.longest_ttl() + Duration::from_millis(10);
                    lasts =
                        Some(Length(longest + Duration::from_millis(self.lasts.unwrap_or(500))));
                }
                Harm::Node(match self.kind {
                    Kind::Kill => NodeHarm::Kill { nodes },
                    _ => NodeHarm::Stop { nodes },
                })
            }
            Kind::Restart => {
                if scenario.cluster.persistence == Persistence::None {
                    return None;
                }
                lasts = None;
                Harm::Node(NodeHarm::Restart { nodes })
            }
            Kind::PauseNode => Harm::Node(NodeHarm::Pause { nodes }),
            Kind::Slow => Harm::Node(NodeHarm::Slow { nodes, by }),
            Kind::Full => Harm::Node(NodeHarm::Full { nodes }),
            Kind::PauseClient => Harm::Client(ClientHarm::Pause { clients: one }),
            Kind::KillClient => {
                // Somebody must live to bear witness.
                let before = scenario.faults.iter().any(|fault| fault.harm.kills_clients());
                if before || scenario.processes().len() < 2 {
                    return None;
                }
                lasts = None;
                Harm::Client(ClientHarm::Kill { clients: one })
            }
            Kind::ClientClock => {
                let by = Shift { by: length(self.by * 1_000), back: self.count.is_some() };
                Harm::Client(ClientHarm::Clock { clients: one, by })
            }
            Kind::Rate { fast, whole } => {
                // One only: rates of the same clock that follow each other add up.
                let rates = |fault: &Fault| matches!(fault.harm, Harm::Clock(_));
                if scenario.faults.iter().any(rates) {
                    return None;
                }
                // The cure of a slow clock sets it forward by what it lost, which must be no more
                // than it may lose within a TTL.
                let shortest = shortest_ttl(scenario);
                lasts = Some(Length(lasts.map_or(shortest, |lasts| lasts.0.min(shortest))));
                let share = f64::from(scenario.lock.drift_ppm) / 1e6;
                let share = if whole { share } else { share / 2.0 };
                let factor = if fast { 1.0 + share } else { 1.0 - share };
                Harm::Clock(ClockHarm::Rate { nodes, factor })
            }
            Kind::Cut => Harm::Net(NetHarm::Cut(ties)),
            Kind::Drop => Harm::Net(NetHarm::Drop(which())),
            Kind::Hold => Harm::Net(NetHarm::Hold(which())),
            Kind::Delay => {
                let clients = self.clients(scenario);
                Harm::Net(NetHarm::Delay { clients, nodes, what: self.side, by })
            }
            Kind::Duplicate => {
                let what = if self.side == Side::Reply { Side::Both } else { self.side };
                Harm::Net(NetHarm::Duplicate(Which { what, ..which() }))
            }
            Kind::Trickle => {
                // The simulation goes on to let through slowly what was under way when it was cured,
                // so what has piled up by then must not take longer than a witness waits.
                let bytes = (2_000 + self.by * 10).try_into().ok()?;
                let clients = self.clients(scenario);
                Harm::Net(NetHarm::Trickle { clients, nodes, what: self.side, bytes })
            }
            Kind::HalfOpen(end) => {
                Harm::Net(NetHarm::HalfOpen { clients: self.clients(scenario), nodes, end })
            }
            Kind::Reset => {
                let which = which();
                // Without a choice of messages it happens at once.
                if which == ties {
                    lasts = None;
                }
                Harm::Net(NetHarm::Reset(which))
            }
        };
        Some(Fault { when: self.when(scenario)?, lasts, harm })
    }

    fn nodes(&self, scenario: &Scenario) -> Nodes {
        let all = scenario.cluster.nodes;
        match &self.nodes {
            Whom::All => Nodes::All,
            Whom::Some(numbers) => {
                let mut some: Vec<usize> = numbers.iter().map(|number| number % all + 1).collect();
                some.sort_unstable();
                some.dedup();
                Nodes::Some(some)
            }
            Whom::Role { client, granted, first } => Nodes::Role(Role {
                client: name(scenario, *client),
                granted: *granted,
                first: first.map(|first| first % all + 1),
            }),
        }
    }

    fn clients(&self, scenario: &Scenario) -> Clients {
        self.clients.map_or(Clients::All, |index| Clients::Some(vec![name(scenario, index)]))
    }

    fn when(&self, scenario: &Scenario) -> Option<When> {
        let (before, index, kind, number, class, plus) = match self.time {
            Time::At(ms) => return Some(When::At(length(ms))),
            Time::Moment { before, client, kind, number, class, plus } => {
                (before, client, kind, number, class, plus)
            }
        };
        let client = name(scenario, index);
        let script = &scenario.clients[index % scenario.clients.len()].script;
        let resource = Name::from(script.iter().find_map(Step::resource)?);
        let extends =
            script.iter().any(|step| matches!(step, Step::Extend { .. } | Step::Keep { .. }));
        let register = |wanted: Way| {
            script.iter().find_map(|step| match step {
                Step::Touch { register, way, .. } if *way == wanted => Some(register.clone()),
                _ => None,
            })
        };
        let what = match kind {
            0 => What::Asks(resource),
            1 => What::Granted(resource),
            2 => What::Refused(resource),
            3 if extends => What::Extended(script.iter().find_map(|step| match step {
                Step::Extend { resource, .. } | Step::Keep { resource, .. } => {
                    Some(resource.clone())
                }
                _ => None,
            })?),
            4 => What::Lost(resource),
            5 => What::Releases(resource),
            6 => What::Released(resource),
            7 => What::Reads(register(Way::Read)?),
            8 => What::Writes(register(Way::Write)?),
            9 => What::Request(number, class),
            _ => What::Reply(number, class),
        };
        let can_wait = matches!(
            what,
            What::Asks(_)
                | What::Releases(_)
                | What::Reads(_)
                | What::Writes(_)
                | What::Request(..)
                | What::Reply(..)
        );
        Some(if before && can_wait {
            When::Before(Moment { client, what, plus: length(0) })
        } else {
            When::After(Moment { client, what, plus: length(plus) })
        })
    }
}

fn name(scenario: &Scenario, index: usize) -> Name {
    scenario.clients[index % scenario.clients.len()].id.clone()
}

fn shortest_ttl(scenario: &Scenario) -> Duration {
    let asked = scenario.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
    asked.chain([scenario.lock.ttl.0]).min().unwrap_or_default()
}
