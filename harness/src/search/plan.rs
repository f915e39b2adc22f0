//! Scenarios by chance: a number in, a scenario out.
//!
//! Who locks what is drawn in `people.rs`, who waits in crowds in `waits.rs`, who wants several resources at
//! once in `several.rs`, who acquires again what it has in `again.rs`, under fencing tokens or not in
//! `fences.rs`, with which defences in `guards.rs`, what goes wrong in `trouble.rs` and `forgets.rs`, when and
//! where in `aims.rs`, whose lease clock runs at another rate in `paces.rs`, what is outside and no fault of masters and links in `beyond.rs`. Each family of faults
//! is left out of every other scenario: where all happen at once nothing gets far enough to go wrong in an
//! interesting way. Faults are cured in whatever order their times come, and many not before the end.
//!
//! [`Space::inside`] is the promise (`docs/safety.md`, A1 to A6): only faults that the lock must
//! survive. Outside of it anything goes. The scenarios are short, for there shall be many.

use std::time::Duration;

use crate::scenario::{Cluster, Expect, Length, Lock, Persistence, Scenario, Step};
use crate::search::lengths::of_millis;
use dice::Dice;
use trouble::Families;

mod again;
mod aims;
mod beyond;
mod dice;
mod fences;
mod forgets;
mod guards;
mod paces;
mod people;
mod several;
#[cfg(test)]
mod tests;
mod trouble;
mod waits;

/// The most faults in a scenario.
const FAULTS: u64 = 5;

/// Where scenarios are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Only faults inside the lock's assumptions.
    pub inside: bool,
    /// How many masters; none: 1 to 5.
    pub nodes: Option<usize>,
}

impl Space {
    /// All that the lock promises to survive.
    pub const INSIDE: Self = Self { inside: true, nodes: None };
    /// Everything.
    pub const OUTSIDE: Self = Self { inside: false, nodes: None };

    /// The scenario of a number. The same number is good for the chance of its run, too.
    pub fn draw(&self, number: u64) -> Scenario {
        let mut dice = Dice::new(number);
        let cluster = self.cluster(&mut dice);
        let lock = lock(&mut dice);
        let clients = people::draw(&mut dice, &lock);
        let mut scenario = Scenario {
            name: "chance".to_owned(),
            about: "By chance.".to_owned(),
            source: None,
            cluster,
            lock,
            clients,
            faults: Vec::new(),
            expect: Expect::default(),
            variants: Vec::new(),
        };
        // From chance of its own, as below. Before the faults, some of which strike at a step.
        let mut crowd = Dice::new(number ^ waits::CHANCE);
        waits::add(&mut crowd, &mut scenario);
        several::add(&mut Dice::new(number ^ several::CHANCE), &mut scenario);
        again::add(&mut Dice::new(number ^ again::CHANCE), &mut scenario);
        fences::add(&mut Dice::new(number ^ fences::CHANCE), &mut scenario);
        guards::add(&mut Dice::new(number ^ guards::CHANCE), &mut scenario, self.inside);
        let families = Families::draw(&mut dice, self.inside);
        for _ in 0..dice.below(FAULTS) {
            let fault = families.fault(&mut dice, &scenario);
            scenario.faults.extend(fault);
        }
        waits::trouble(&mut crowd, &mut scenario);
        if !self.inside || guards::all_see_amnesia(&scenario) {
            // From chance of its own, so that all else is as it would be without. Before the clients'
            // lists of masters, to which parts are cut down.
            forgets::add(&mut Dice::new(number ^ forgets::CHANCE), &mut scenario, self.inside);
        }
        paces::add(&mut Dice::new(number ^ paces::CHANCE), &mut scenario, self.inside);
        if !self.inside {
            beyond::draw(&mut dice, &mut scenario);
        }
        scenario
    }

    fn cluster(&self, dice: &mut Dice) -> Cluster {
        let nodes = self.nodes.unwrap_or_else(|| dice.pick(&[1, 3, 3, 4, 5, 5]));
        let keeps = [Persistence::None, Persistence::AofAlways, Persistence::AofEverysec];
        let persistence = dice.pick(if self.inside { &keeps[..2] } else { &keeps });
        Cluster { nodes, persistence, replicas: false }
    }
}

fn lock(dice: &mut Dice) -> Lock {
    let ttl = match dice.below(8) {
        0 => dice.within(1_000, 2_000),
        // What is left behind is seen only after links had time to recover, and before it expires.
        1 | 2 => dice.within(3_000, 6_000),
        _ => dice.within(200, 1_000),
    };
    // The library wants TTL > node timeout + drift: at most a third of the TTL is left for waiting.
    let timeout = 5 + dice.below(100) * ttl.min(1_000) / 300;
    Lock {
        ttl: of_millis(ttl),
        grace: of_millis(0),
        node_timeout: of_millis(timeout),
        drift_ppm: dice.pick(&[500, 10_000, 50_000, 50_000]),
        drift: of_millis(dice.within(2, 5)),
        wake_ups: true,
        fair: false,
        fencing: false,
        guard: None,
        clock_guard: None,
        blessed: true,
    }
}

/// The shortest TTL that any client asks for.
fn shortest_ttl(scenario: &Scenario) -> Duration {
    let asked = scenario.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
    asked.chain([scenario.lock.ttl.0]).min().unwrap_or_default()
}

/// A TTL that goes with the longest node timeout and drift.
fn ttl(dice: &mut Dice, lock: &Lock) -> Length {
    let least = 2 * super::lengths::millis(lock.node_timeout) + 20;
    of_millis(dice.within(200, 1_200).max(least))
}
