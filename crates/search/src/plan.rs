//! Random scenarios: a number in, a scenario out.
//!
//! Each module draws one part. `targets.rs` draws when a fault strikes, and its target.
//!
//! Each family of faults is left out of every other scenario: where all happen at once, no client
//! gets far enough to go wrong in an interesting way. Faults heal in the order of their random
//! times, and many not before the end.
//!
//! [`Space::inside`] is the guarantee (`docs/safety.md`, A1 to A6): it draws only faults that the
//! lock must survive. Outside of it any fault is possible. The scenarios are short, so that many
//! can run.

use std::time::Duration;

use crate::lengths::of_millis;
use faults::Families;
use redquorum_scenario::{Cluster, Expect, Length, Lock, Persistence, Scenario, Step};
use rng::Rng;

mod again;
mod clients;
mod deployment;
mod faults;
mod fences;
mod guards;
mod rng;
mod several;
mod targets;
#[cfg(test)]
mod tests;
mod waits;

/// The most faults in a scenario.
const FAULTS: u64 = 5;

/// Where scenarios are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Only faults inside the lock's assumptions.
    pub inside: bool,
    /// The number of masters. None: 1 to 5.
    pub nodes: Option<usize>,
}

impl Space {
    /// All that the lock promises to survive.
    pub const INSIDE: Self = Self { inside: true, nodes: None };
    /// Everything.
    pub const OUTSIDE: Self = Self { inside: false, nodes: None };

    /// The scenario of a number. The same number is also good as the seed of its run.
    pub fn draw(&self, number: u64) -> Scenario {
        let mut rng = Rng::new(number);
        let cluster = self.cluster(&mut rng);
        let lock = lock(&mut rng);
        let clients = clients::draw(&mut rng, &lock);
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
        // Each of these has a random source of its own. They come before the faults, some of which
        // strike at a step.
        let mut crowd = Rng::of(number, "crowd");
        waits::add(&mut crowd, &mut scenario);
        several::add(&mut Rng::of(number, "several"), &mut scenario);
        again::add(&mut Rng::of(number, "again"), &mut scenario);
        let mut deployment = Rng::of(number, "deploy");
        deployment::queues(&mut deployment, &mut scenario);
        fences::add(&mut Rng::of(number, "fence"), &mut scenario);
        guards::add(&mut Rng::of(number, "guard"), &mut scenario, self.inside);
        let families = Families::draw(&mut rng, self.inside);
        for _ in 0..rng.below(FAULTS) {
            let fault = families.fault(&mut rng, &scenario);
            scenario.faults.extend(fault);
        }
        waits::faults(&mut crowd, &mut scenario);
        if !self.inside || guards::all_see_amnesia(&scenario) {
            // It comes before the clients' lists of masters, which limit the parts.
            faults::add_amnesia(&mut Rng::of(number, "forget"), &mut scenario, self.inside);
        }
        deployment::faults(&mut deployment, &mut scenario);
        faults::add_pace(&mut Rng::of(number, "paces"), &mut scenario, self.inside);
        if !self.inside {
            faults::add_late(&mut rng, &mut scenario);
            clients::know_other_masters(&mut rng, &mut scenario);
        }
        scenario
    }

    fn cluster(&self, rng: &mut Rng) -> Cluster {
        let nodes = self.nodes.unwrap_or_else(|| rng.pick(&[1, 3, 3, 4, 5, 5]));
        let keeps = [Persistence::None, Persistence::AofAlways, Persistence::AofEverysec];
        let persistence = rng.pick(if self.inside { &keeps[..2] } else { &keeps });
        Cluster { nodes, persistence, replicas: false }
    }
}

fn lock(rng: &mut Rng) -> Lock {
    let ttl = match rng.below(8) {
        0 => rng.within(1_000, 2_000),
        // Keys that are left behind show only after links had time to recover, and before the keys
        // expire.
        1 | 2 => rng.within(3_000, 6_000),
        _ => rng.within(200, 1_000),
    };
    // The library requires TTL > node timeout + drift. At most a third of the TTL is left for
    // waiting.
    let timeout = 5 + rng.below(100) * ttl.min(1_000) / 300;
    Lock {
        ttl: of_millis(ttl),
        lock_delay: of_millis(0),
        node_timeout: of_millis(timeout),
        drift_ppm: rng.pick(&[500, 10_000, 50_000, 50_000]),
        drift: of_millis(rng.within(2, 5)),
        wake_ups: true,
        fair: false,
        fencing: false,
        guard: None,
        clock_guard: None,
        initialized: true,
    }
}

/// The shortest TTL that any client asks for.
fn shortest_ttl(scenario: &Scenario) -> Duration {
    let asked = scenario.clients.iter().flat_map(|client| &client.script).filter_map(Step::ttl);
    asked.chain([scenario.lock.ttl.0]).min().unwrap_or_default()
}

/// A TTL that fits the longest node timeout and drift.
fn ttl(rng: &mut Rng, lock: &Lock) -> Length {
    let least = 2 * super::lengths::millis(lock.node_timeout) + 20;
    of_millis(rng.within(200, 1_200).max(least))
}
