//! The vocabulary: every fault that a schedule on a base scenario may have. A fault is a kind, its
//! target and its place. This file lists them all, so that the search space can be read.

use super::lessons::{self, BaseScenario, TTL, length, register, resource};
use crate::scenario::{
    Class, ClientFault, Clients, ClockFault, End, EventKind, Fault, FaultKind, FaultTime, Length,
    LinkSelector, Moment, NetworkFault, NodeFault, Nodes, ResourceFault, Role, Shift, Side,
    Touches,
};

/// Longer than a TTL: leases and keys from before the fault are over when it ends.
const LONG: u64 = TTL + TTL / 5;
/// How far a clock is set.
const STEP: u64 = TTL + TTL / 2;

/// Well within a hold, after the race for it is over.
const LATER: u64 = TTL / 10;

/// How sets of masters are chosen among masters that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// The first n masters stand for any n masters.
    Folded,
    /// Every set of masters.
    Unfolded,
}

/// Every fault that can be in a schedule on this base scenario, in the order in which faults of the
/// same place are added.
pub fn vocabulary(lesson: &BaseScenario, symmetry: Symmetry) -> Vec<Fault> {
    if lesson.parted {
        return Vec::new();
    }
    let words = Words { lesson, symmetry };
    let mut all = Vec::new();
    if lesson.words == lessons::Words::Waiting {
        return words.waiting();
    }
    if lesson.words != lessons::Words::Usual {
        for (place, early) in words.places() {
            for nodes in words.sets(early, true) {
                all.extend(
                    words.own(&nodes).into_iter().map(|fault_kind| fault(&place, fault_kind)),
                );
            }
        }
        return all;
    }
    for (place, early) in words.places() {
        let weighty = words.sets(early, true);
        for fault_kind in weighty.iter().flat_map(|nodes| words.weighty(nodes)) {
            all.push(fault(&place, fault_kind));
        }
        for fault_kind in words.clients() {
            all.push(fault(&place, fault_kind));
        }
    }
    for (place, early) in words.few_places() {
        for nodes in words.sets(early, false) {
            for fault_kind in words.others(&nodes) {
                all.push(fault(&place, fault_kind));
            }
        }
    }
    for back in [false, true] {
        let clients = Clients::Some(vec!["c1".into()]);
        let fault_kind =
            FaultKind::Client(ClientFault::Clock { clients, by: shift(10 * TTL, back) });
        all.extend(
            words.few_places().iter().map(|(place, _)| fault(place, (fault_kind.clone(), None))),
        );
    }
    for (what, places) in [(Touches::Write, 3), (Touches::Read, 1)] {
        let clients = Clients::Some(vec!["c1".into()]);
        let fault_kind =
            FaultKind::Resource(ResourceFault::Delay { clients, what, by: length(LONG) });
        let places = words.few_places().into_iter().take(places);
        all.extend(places.map(|(place, _)| fault(&place, (fault_kind.clone(), None))));
    }
    for nodes in words.sets(true, false) {
        for fault_kind in words.messages(&nodes) {
            all.push(fault(&FaultTime::At(length(0)), fault_kind));
        }
    }
    all
}

/// A fault kind and its duration.
type Lasting = (FaultKind, Option<u64>);

fn fault(when: &FaultTime, (fault_kind, lasts): Lasting) -> Fault {
    Fault { when: when.clone(), lasts: lasts.map(length), fault_kind }
}

struct Words<'a> {
    lesson: &'a BaseScenario,
    symmetry: Symmetry,
}

impl Words<'_> {
    fn nodes(&self) -> usize {
        self.lesson.scenario.cluster.nodes
    }

    fn quorum(&self) -> usize {
        self.lesson.scenario.cluster.quorum()
    }

    /// The places for faults that can end a hold, and whether each place is before the first grant.
    fn places(&self) -> Vec<(FaultTime, bool)> {
        let after =
            |client: &str, what, plus| (FaultTime::After(moment(client, what, plus)), false);
        let before = |client: &str, what| (FaultTime::Before(moment(client, what, 0)), false);
        let early = |(when, _)| (when, true);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (all, quorum) = (count(self.nodes()), count(self.quorum()));
        let granted = || EventKind::Granted(resource());
        let mut places = vec![
            (FaultTime::At(length(0)), true),
            early(after("c1", EventKind::Request(all, Class::Acquire), 0)),
            early(before("c1", EventKind::Reply(quorum, Class::Acquire))),
            after("c1", granted(), 0),
            after("c1", granted(), LATER),
            before("c1", EventKind::Writes(register())),
            before("c1", EventKind::Releases(resource())),
            after("c1", EventKind::Released(resource()), 0),
            after("c1", granted(), TTL - 70),
            after("c1", granted(), TTL + 20),
            after("c2", granted(), 0),
        ];
        if self.lesson.extends() {
            let extended = || EventKind::Extended(resource());
            places.extend([
                before("c1", EventKind::Reply(quorum, Class::Extend)),
                after("c1", extended(), 0),
                after("c1", extended(), TTL - 70),
                after("c1", extended(), TTL + 20),
            ]);
        }
        places
    }

    /// The places for faults that only hinder.
    fn few_places(&self) -> Vec<(FaultTime, bool)> {
        let granted = FaultTime::After(moment("c1", EventKind::Granted(resource()), 0));
        let writes = FaultTime::Before(moment("c1", EventKind::Writes(register()), 0));
        vec![(FaultTime::At(length(0)), true), (granted, false), (writes, false)]
    }

    /// Sets of masters: before the first grant by number, afterwards by their part. Returns all
    /// sizes that matter, or one master, a minority, and all.
    fn sets(&self, early: bool, sizes: bool) -> Vec<Nodes> {
        if self.symmetry == Symmetry::Unfolded {
            return self.every_set();
        }
        let (all, quorum) = (self.nodes(), self.quorum());
        let mut counts: Vec<usize> =
            if sizes { (1..=quorum).collect() } else { vec![1, all - quorum] };
        counts.retain(|count| (1..all).contains(count));
        counts.dedup();
        let mut sets = Vec::new();
        for count in counts.iter().copied() {
            sets.push(if early { by_number(1..=count) } else { by_part(true, count) });
        }
        // If all masters are near, those that are far from c1 are the same as those that are near.
        if self.lesson.bare {
            for count in counts.into_iter().filter(|count| *count <= all - quorum) {
                let far = all - count + 1..=all;
                sets.push(if early { by_number(far) } else { by_part(false, count) });
            }
        }
        sets.push(Nodes::All);
        sets
    }

    fn every_set(&self) -> Vec<Nodes> {
        let all = self.nodes();
        let has = |set: u32| move |node: &usize| set >> (node - 1) & 1 == 1;
        let sets = 1..1_u32 << all;
        sets.map(|set| Nodes::Some((1..=all).filter(has(set)).collect())).collect()
    }

    /// The faults that can make a master forget.
    fn weighty(&self, nodes: &Nodes) -> Vec<Lasting> {
        let nodes = || nodes.clone();
        vec![
            (FaultKind::Node(NodeFault::Restart { nodes: nodes() }), None),
            (FaultKind::Node(NodeFault::Kill { nodes: nodes() }), Some(200)),
            (FaultKind::Clock(ClockFault::Step { nodes: nodes(), by: shift(STEP, false) }), None),
            (FaultKind::Clock(ClockFault::Rate { nodes: nodes(), factor: 2.0 }), None),
            (
                FaultKind::Clock(ClockFault::Strobe {
                    nodes: nodes(),
                    by: length(STEP),
                    every: length(5),
                }),
                None,
            ),
        ]
    }

    /// All faults for base scenarios in which masters wake waiters.
    fn waiting(&self) -> Vec<Fault> {
        let before = |client: &str, what| FaultTime::Before(moment(client, what, 0));
        let after = |client: &str, what| FaultTime::After(moment(client, what, 0));
        let count = u32::try_from(self.nodes()).unwrap_or(u32::MAX);
        let places = [
            after("c1", EventKind::Granted(resource())),
            // The reply tells the waiter which client holds the resource.
            before("c2", EventKind::Reply(1, Class::Release)),
            before("c1", EventKind::Releases(resource())),
            after("c1", EventKind::Released(resource())),
            before("c2", EventKind::Reply(1, Class::WakeUp)),
            // The first master replies to the client that was woken.
            before("c2", EventKind::Reply(count + 1, Class::Acquire)),
            after("c2", EventKind::Granted(resource())),
        ];
        let sets = self.sets_beside_the_first();
        let mut all = Vec::new();
        for place in &places {
            for nodes in &sets {
                all.extend(
                    self.deafens(nodes).into_iter().map(|fault_kind| fault(place, fault_kind)),
                );
            }
            all.extend(self.stills().into_iter().map(|fault_kind| fault(place, fault_kind)));
        }
        for fault_kind in sets.iter().flat_map(|nodes| self.words(nodes)) {
            all.push(fault(&FaultTime::At(length(0)), fault_kind));
        }
        all
    }

    /// Sets of masters for clients that ask the first master before the others: the first alone,
    /// the next one, a minority with the first and one without, a majority with the first, all.
    fn sets_beside_the_first(&self) -> Vec<Nodes> {
        if self.symmetry == Symmetry::Unfolded {
            return self.every_set();
        }
        let (all, quorum) = (self.nodes(), self.quorum());
        let spare = all - quorum;
        let mut sets: Vec<Nodes> = Vec::new();
        for (from, to) in [(1, 1), (2, 2), (1, spare), (2, spare + 1), (1, quorum)] {
            let set = by_number(from..=to);
            if (from..all).contains(&to) && !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets.push(Nodes::All);
        sets
    }

    /// Faults that keep masters from pushing that a resource is free, or the message from reaching
    /// a waiter.
    fn deafens(&self, nodes: &Nodes) -> Vec<Lasting> {
        let to = || nodes.clone();
        let which = || LinkSelector {
            clients: Clients::Some(vec!["c2".into()]),
            nodes: nodes.clone(),
            ..LinkSelector::default()
        };
        vec![
            (FaultKind::Node(NodeFault::Restart { nodes: to() }), None),
            (FaultKind::Node(NodeFault::Kill { nodes: to() }), Some(LONG)),
            (FaultKind::Node(NodeFault::Pause { nodes: to() }), Some(LONG)),
            (FaultKind::Net(NetworkFault::Cut(which())), Some(300)),
            (FaultKind::Net(NetworkFault::Cut(which())), None),
            (FaultKind::Net(NetworkFault::Hold(which())), Some(LONG)),
            (FaultKind::Net(NetworkFault::Reset(which())), None),
        ]
    }

    /// Clients that are paused, or die.
    fn stills(&self) -> Vec<Lasting> {
        let one = |name: &str| Clients::Some(vec![name.into()]);
        let pause = |name: &str| FaultKind::Client(ClientFault::Pause { clients: one(name) });
        vec![
            (pause("c1"), Some(LONG)),
            (pause("c2"), Some(100)),
            (pause("c2"), Some(LONG)),
            (FaultKind::Client(ClientFault::Kill { clients: one("c1") }), None),
        ]
    }

    /// Faults of the push messages and replies of masters on their way to a waiter.
    fn words(&self, nodes: &Nodes) -> Vec<Lasting> {
        let which = |command| LinkSelector {
            clients: Clients::Some(vec!["c2".into()]),
            nodes: nodes.clone(),
            what: Side::Reply,
            command,
            ..LinkSelector::default()
        };
        let mut all = vec![
            (FaultKind::Net(NetworkFault::Drop(which(Class::WakeUp))), None),
            (FaultKind::Net(NetworkFault::Hold(which(Class::WakeUp))), None),
            (FaultKind::Net(NetworkFault::Reset(which(Class::WakeUp))), None),
        ];
        for command in [Class::WakeUp, Class::Release, Class::Acquire] {
            all.extend([
                (FaultKind::Net(NetworkFault::Drop(which(command))), Some(700)),
                (FaultKind::Net(NetworkFault::Hold(which(command))), Some(700)),
            ]);
        }
        all
    }

    /// Faults that can make a master forget, and that are tried separately.
    fn own(&self, nodes: &Nodes) -> Vec<Lasting> {
        let nodes = || nodes.clone();
        let power = || FaultKind::Node(NodeFault::PowerLoss { nodes: nodes() });
        match self.lesson.words {
            lessons::Words::Usual | lessons::Words::Waiting => Vec::new(),
            lessons::Words::Cleared => vec![
                (FaultKind::Node(NodeFault::Flush { nodes: nodes() }), None),
                (FaultKind::Node(NodeFault::Evict { nodes: nodes() }), None),
            ],
            lessons::Words::Power => vec![(power(), Some(200)), (power(), Some(LONG))],
            lessons::Words::Replicas => {
                vec![(FaultKind::Node(NodeFault::Failover { nodes: nodes() }), None)]
            }
        }
    }

    /// Faults of clients.
    fn clients(&self) -> Vec<Lasting> {
        let one = |name: &str| Clients::Some(vec![name.into()]);
        let pause = |name: &str| FaultKind::Client(ClientFault::Pause { clients: one(name) });
        vec![
            (pause("c1"), Some(100)),
            (pause("c1"), Some(LONG)),
            (pause("c2"), Some(LONG)),
            (FaultKind::Client(ClientFault::Suspend { clients: one("c1") }), Some(LONG)),
            (FaultKind::Client(ClientFault::Kill { clients: one("c1") }), None),
        ]
    }

    /// Faults that hinder masters and links, for a while or until the end.
    fn others(&self, nodes: &Nodes) -> Vec<Lasting> {
        let to = || nodes.clone();
        let which = |client: &str| LinkSelector {
            clients: Clients::Some(vec![client.into()]),
            nodes: nodes.clone(),
            ..LinkSelector::default()
        };
        let half_open = |end| {
            FaultKind::Net(NetworkFault::HalfOpen {
                clients: which("c1").clients,
                nodes: to(),
                end,
            })
        };
        let delay = NetworkFault::Delay {
            clients: which("c1").clients,
            nodes: to(),
            what: Side::Both,
            by: length(30),
        };
        vec![
            (FaultKind::Node(NodeFault::Kill { nodes: to() }), Some(LONG)),
            (FaultKind::Node(NodeFault::Stop { nodes: to() }), None),
            (FaultKind::Node(NodeFault::Pause { nodes: to() }), Some(80)),
            (FaultKind::Node(NodeFault::Pause { nodes: to() }), Some(LONG)),
            (FaultKind::Node(NodeFault::Slow { nodes: to(), by: length(20) }), None),
            (FaultKind::Node(NodeFault::Full { nodes: to() }), Some(300)),
            (FaultKind::Clock(ClockFault::Step { nodes: to(), by: shift(STEP, true) }), None),
            (FaultKind::Clock(ClockFault::Rate { nodes: to(), factor: 1.005 }), None),
            (FaultKind::Net(NetworkFault::Cut(which("c1"))), Some(300)),
            (FaultKind::Net(NetworkFault::Cut(which("c1"))), None),
            (FaultKind::Net(NetworkFault::Cut(which("c2"))), Some(300)),
            (FaultKind::Net(NetworkFault::Hold(which("c1"))), Some(300)),
            (FaultKind::Net(NetworkFault::Hold(which("c1"))), Some(LONG)),
            (FaultKind::Net(delay), None),
            (FaultKind::Net(NetworkFault::Reset(which("c1"))), None),
            (half_open(End::Client), None),
            (half_open(End::Master), None),
        ]
    }

    /// Faults of messages of one kind.
    fn messages(&self, nodes: &Nodes) -> Vec<Lasting> {
        let which = |what, command| LinkSelector {
            clients: Clients::Some(vec!["c1".into()]),
            nodes: nodes.clone(),
            what,
            command,
            ..LinkSelector::default()
        };
        let mut all = Vec::new();
        for command in [Class::Acquire, Class::Extend, Class::Release] {
            if command == Class::Extend && !self.lesson.extends() {
                continue;
            }
            let request = || which(Side::Request, command);
            all.extend([
                (FaultKind::Net(NetworkFault::Drop(request())), Some(700)),
                (FaultKind::Net(NetworkFault::Drop(which(Side::Reply, command))), Some(700)),
                (FaultKind::Net(NetworkFault::Hold(request())), Some(700)),
                (FaultKind::Net(NetworkFault::Duplicate(request())), None),
            ]);
        }
        all
    }
}

fn moment(client: &str, what: EventKind, plus: u64) -> Moment {
    Moment { client: client.into(), what, plus: length(plus) }
}

fn by_number(numbers: impl Iterator<Item = usize>) -> Nodes {
    Nodes::Some(numbers.collect())
}

/// Masters, selected by whether they granted c1's lease.
fn by_part(granted: bool, count: usize) -> Nodes {
    Nodes::Role(Role { client: "c1".into(), granted, first: Some(count) })
}

const fn shift(ms: u64, back: bool) -> Shift {
    let by: Length = length(ms);
    Shift { by, back }
}
