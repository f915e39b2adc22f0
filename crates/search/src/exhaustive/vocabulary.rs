//! The vocabulary: every fault that a schedule on a base scenario may have, in the words of
//! scenario files. A fault is a kind, its target and its place. This file lists them all, so that
//! the search space can be read.
//!
//! In kinds of faults, `@` stands for the masters. A TTL is 1 s. A fault of 1200 ms is longer:
//! leases and keys from before it are over when it ends.

use super::base_scenarios::{BaseScenario, Vocabulary, fault};
use redquorum_scenario::{Fault, Step};

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
