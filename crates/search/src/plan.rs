//! Random scenarios: a number in, a scenario out.
//!
//! `clients.rs` draws the clients, and what happens in the life of a deployment; `faults.rs` draws
//! the faults.
//!
//! Each family of faults is left out of every other scenario: where all happen at once, no client
//! gets far enough to go wrong in an interesting way. Faults heal in the order of their random
//! times, and many not before the end.
//!
//! [`Space::inside`] is the guarantee (`docs/safety.md`, A1 to A6): it draws only faults that the
//! lock must survive. Outside of it any fault is possible. The scenarios are short, so that many
//! can run.

use std::time::Duration;

use crate::lengths::{millis, of_millis};
use crate::{defend, sees_amnesia};
use faults::Families;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Client, Cluster, Expect, Length, Lock, OwnGuard, Persistence, Scenario, Step,
};

mod clients;
mod faults;
#[cfg(test)]
mod tests;

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
        clients::add_crowd(&mut crowd, &mut scenario);
        clients::add_several(&mut Rng::of(number, "several"), &mut scenario);
        clients::add_reentry(&mut Rng::of(number, "again"), &mut scenario);
        let mut deployment = Rng::of(number, "deploy");
        clients::add_queues(&mut deployment, &mut scenario);
        clients::add_fencing(&mut Rng::of(number, "fence"), &mut scenario);
        add_guards(&mut Rng::of(number, "guard"), &mut scenario, self.inside);
        let families = Families::draw(&mut rng, self.inside);
        for _ in 0..rng.below(FAULTS) {
            let fault = families.fault(&mut rng, &scenario);
            scenario.faults.extend(fault);
        }
        clients::wake_up_faults(&mut crowd, &mut scenario);
        if !self.inside || all_see_amnesia(&scenario) {
            // It comes before the clients' lists of masters, which limit the parts.
            faults::add_amnesia(&mut Rng::of(number, "forget"), &mut scenario, self.inside);
        }
        clients::deployment_faults(&mut deployment, &mut scenario);
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
    let least = 2 * millis(lock.node_timeout) + 20;
    of_millis(rng.within(200, 1_200).max(least))
}

/// A random source from a number. The stream of its generator never changes.
struct Rng(ChaCha8Rng);

impl Rng {
    /// The simulation has its own streams from the same number.
    fn new(number: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(number))
    }

    /// A source for one purpose. Its choices do not change those of other purposes: the rest of a
    /// scenario is the same with them and without.
    fn of(number: u64, purpose: &str) -> Self {
        let salt = purpose.bytes().fold(0, |salt, byte| salt << 8 | u64::from(byte));
        Self::new(number ^ salt)
    }

    /// A number less than a bound.
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// A number between two others, both included.
    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Returns true with probability `often` / `of`.
    fn chance(&mut self, often: u64, of: u64) -> bool {
        self.below(of) < often
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }

    fn index(&mut self, of: usize) -> usize {
        let of = u64::try_from(of).unwrap_or(u64::MAX);
        usize::try_from(self.below(of)).unwrap_or_default()
    }

    /// Returns a value with probability `often` / `of`.
    fn maybe<T>(&mut self, often: u64, of: u64, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(often, of).then(|| draw(self))
    }
}

/// Locks with every defence, in every other scenario. In most sets of clients all have them, in
/// others some do not. Some clients take no fencing tokens among others that do.
///
/// It comes before the faults: those that a guard detects are inside the assumptions of clients
/// with a guard.
fn add_guards(rng: &mut Rng, scenario: &mut Scenario, inside: bool) {
    if rng.chance(1, 2) {
        let spare = if rng.chance(1, 2) { 0 } else { rng.within(1, 500) };
        let longest = scenario.longest_ttl() + Duration::from_millis(spare);
        defend(&mut scenario.lock, longest);
        scenario.lock.initialized = !rng.chance(1, 8);
        if rng.chance(1, 4) {
            for process in some_processes(rng, scenario) {
                let own = match !inside && rng.chance(1, 3) {
                    // The masters carry markers for the other guards. This client gets nothing, and
                    // reports why.
                    true => OwnGuard::UpTo(of_millis(rng.within(6_001, 7_000))),
                    false => OwnGuard::Whether(false),
                };
                change_clients(scenario, &process, |client| client.guard = Some(own));
            }
        }
    }
    if scenario.lock.fencing && rng.chance(1, 4) {
        for process in some_processes(rng, scenario) {
            change_clients(scenario, &process, without_tokens);
        }
    }
}

/// Some of the processes, or none.
fn some_processes(rng: &mut Rng, scenario: &Scenario) -> Vec<Name> {
    let all = scenario.processes().into_iter().cloned();
    all.filter(|_| rng.chance(1, 2)).collect()
}

fn change_clients(scenario: &mut Scenario, process: &Name, change: impl FnMut(&mut Client)) {
    let own = scenario.clients.iter_mut().filter(|client| client.process() == process);
    own.for_each(change);
}

fn without_tokens(client: &mut Client) {
    client.fencing = Some(false);
    client.script.retain(|step| !matches!(step, Step::Touch { under: Some(_), .. }));
}

/// Whether every client detects masters that may have forgotten.
fn all_see_amnesia(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| sees_amnesia(&client.options(&scenario.lock)))
}
