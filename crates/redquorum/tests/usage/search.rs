//! Draws plans from seeds, runs them, and makes those that fail smaller.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redquorum_rig::trials::{Case, plain, with_masters};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::backend::{Backend, Memory, Real};
use crate::plan::{Action, End, Mix, Plan, Process, Step};
use crate::run::{Property, Violation, run};

/// A test: this many plans of one mix.
struct Search {
    name: &'static str,
    mix: Mix,
    runs: u64,
    /// How many smaller plans to try for a plan that fails.
    tries: u64,
    play: fn(&Plan) -> Vec<Violation>,
}

pub(crate) fn cases() -> Vec<Case> {
    let memory = |name, runs, mix| {
        let search = Search { name, mix, runs, tries: 40, play: in_memory };
        plain(name, move || search.run())
    };
    let real = |name, runs, mix| {
        let search = Search { name, mix, runs, tries: 4, play: on_real_masters };
        with_masters(name, move || search.run())
    };
    vec![
        plain("violations_are_seen", violations_are_seen),
        memory("memory_ordinary_usage", 100, MEMORY),
        memory("memory_long_names", 40, Mix { names: LONG, message: 100_000, ..MEMORY }),
        memory("memory_unpolled_futures", 100, Mix { neglect: true, wait: 60_000, ..MEMORY }),
        memory("memory_large_crowds", 20, Mix { names: &[12, 300], crowd: 600, ..MEMORY }),
        memory("memory_missing_permissions", 60, Mix { forbidden: FORBIDDEN, ..MEMORY }),
        memory("memory_all_together", 10, ALL),
        real("real_ordinary_usage", 3, REAL),
        real("real_all_together", 5, Mix { wait: 8_000, ttl: 3_000, databases: 3, ..ALL }),
    ]
}

/// Plans like everyday programs.
const MEMORY: Mix = Mix {
    names: &[1, 12, 12, 12, 300, 40_000],
    forbidden: &[&["SUBSCRIBE"], &["HELLO"], &["HSET"]],
    processes: 4,
    crowd: 12,
    neglect: false,
    message: 1_000,
    fair: true,
    databases: 1,
    ttl: 5_000,
    wait: 15_000,
};

const REAL: Mix = Mix {
    forbidden: &[&["SUBSCRIBE"], &["PUBLISH"], &["HGETALL"], &["HELLO"]],
    databases: 3,
    ttl: 3_000,
    wait: 4_000,
    ..MEMORY
};

/// Includes lengths with which a push message is longer than the longest reply.
const LONG: &[usize] = &[12, 12, 65_000, 65_600, 70_000, 1 << 20];

const FORBIDDEN: &[&[&str]] = &[&["EVALSHA"], &["GET"], &["SUBSCRIBE"]];

/// The commands for a crowd and its names stay below the bytes that a link sends without a reply
/// (32 MiB).
const ALL: Mix = Mix {
    names: &[12, 12, 300, 65_600, 70_000],
    forbidden: FORBIDDEN,
    crowd: 40,
    neglect: true,
    message: 100_000,
    wait: 30_000,
    ..MEMORY
};

pub(crate) fn in_memory(plan: &Plan) -> Vec<Violation> {
    let runtime = paused();
    finish(runtime, async { Box::pin(run(plan, Memory::new(plan.masters))).await })
}

fn on_real_masters(plan: &Plan) -> Vec<Violation> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    finish(runtime, async { Box::pin(run(plan, Real::start(plan.masters))).await })
}

pub(crate) fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

pub(crate) fn finish<T>(runtime: Runtime, future: impl Future<Output = T>) -> T {
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

impl Search {
    fn run(&self) {
        let first = variable("REDQUORUM_USAGE_SEED").unwrap_or(1);
        let runs = variable("REDQUORUM_USAGE_RUNS").unwrap_or(self.runs);
        for seed in first..first + runs {
            let plan = Plan::draw(seed, self.mix);
            let violations = (self.play)(&plan);
            if let Some((property, text)) = violations.first().cloned() {
                eprintln!("{}: seed {seed} violates {property:?} {text}", self.name);
                let (plan, violations) = self.shrink(plan, violations, property);
                panic!(
                    "{violations:#?}\nin {plan:#?}\nagain: REDQUORUM_USAGE_SEED={seed} \
                     REDQUORUM_USAGE_RUNS=1 cargo test -p redquorum --test usage {}",
                    self.name
                );
            }
        }
    }

    /// The smallest plan found that violates the same property.
    fn shrink(
        &self,
        mut plan: Plan,
        mut violations: Vec<Violation>,
        property: Property,
    ) -> (Plan, Vec<Violation>) {
        let mut tries = self.tries;
        'smaller: loop {
            for smaller in plan.smaller() {
                if tries == 0 {
                    break 'smaller;
                }
                tries -= 1;
                let found = (self.play)(&smaller);
                if found.iter().any(|(of, _)| *of == property) {
                    (plan, violations) = (smaller, found);
                    continue 'smaller;
                }
            }
            break;
        }
        (plan, violations)
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

type Harm = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Control: each check sees a violation made on purpose.
fn violations_are_seen() {
    let step = |process, at, end| {
        let action = Action::Acquire { tasks: 1, wait: 10_000, hold: 1_000, end };
        Step { at, process, name: 0, action }
    };
    let plan = Plan {
        masters: 3,
        latency: 1,
        ttl: 2_000,
        processes: vec![Process::default(); 2],
        names: vec![12],
        steps: vec![step(0, 0, End::KeptAlive), step(1, 3_000, End::Release)],
    };
    let violated = |harm: fn(Memory) -> Harm| {
        let found = finish(paused(), async {
            let memory = Memory::new(3);
            tokio::spawn(harm(memory.clone()));
            Box::pin(run(&plan, memory)).await
        });
        found.into_iter().map(|(property, _)| property).collect::<Vec<_>>()
    };
    assert_eq!(violated(|_| Box::pin(async {})), []);
    let taken = violated(|memory| {
        Box::pin(async move {
            sleep(Duration::from_secs(2)).await;
            memory.occupy(b"a...........", Duration::from_secs(60));
        })
    });
    assert_eq!(taken, [Property::Progress, Property::CleanedUp]);
    let killed = violated(|memory| {
        Box::pin(async move {
            sleep(Duration::from_millis(500)).await;
            (2..=3).for_each(|number| memory.masters.kill(number));
        })
    });
    for property in [Property::Undisturbed, Property::KeptAlive, Property::Truthful] {
        assert!(killed.contains(&property), "{property:?} is not in {killed:?}");
    }
    let busy = violated(|memory| {
        Box::pin(async move {
            let lock = memory.process(&Process::default(), 5, 0).build().await.unwrap();
            loop {
                drop(lock.try_acquire("busy").await);
            }
        })
    });
    assert!(busy.contains(&Property::Frugal), "{busy:?}");
}
