//! Draws plans from seeds, and runs them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redquorum_rig::trials::{Case, plain, with_masters};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::backend::Masters;
use crate::plan::{Action, End, Mix, Plan, Process, Step, Trouble};
use crate::run::{Property, Violation, commands, run};

/// A test: this many plans of one mix.
struct Search {
    name: &'static str,
    mix: Mix,
    runs: u64,
    play: fn(&Plan) -> Vec<Violation>,
}

pub(crate) fn cases() -> Vec<Case> {
    let memory = |name, runs, mix| {
        let search = Search { name, mix, runs, play: in_memory };
        plain(name, move || search.run())
    };
    let real = |name, runs, mix| {
        let search = Search { name, mix, runs, play: on_real_masters };
        with_masters(name, move || search.run())
    };
    let mut cases = redquorum_rig::cases![
        plain: violations_are_seen,
        plain: plans_that_failed_hold,
        plain: commands_of_a_lease_do_not_grow_with_the_waiting_processes,
    ];
    cases.extend([
        memory("memory_ordinary_usage", 100, MEMORY),
        memory("memory_long_names", 40, Mix { names: LONG, message: 100_000, ..MEMORY }),
        memory("memory_unpolled_futures", 100, Mix { neglect: true, wait: 60_000, ..MEMORY }),
        memory("memory_large_crowds", 20, Mix { names: &[12, 300], crowd: 600, ..MEMORY }),
        memory("memory_missing_permissions", 60, Mix { forbidden: FORBIDDEN, ..MEMORY }),
        memory("memory_troubled_ways", 60, Mix { troubles: TROUBLES, ..MEMORY }),
        memory("memory_all_together", 10, ALL),
        real("real_ordinary_usage", 3, REAL),
        real("real_all_together", 5, Mix { wait: 8_000, ttl: 3_000, databases: 3, ..ALL }),
    ]);
    cases
}

/// Plans like everyday programs.
const MEMORY: Mix = Mix {
    names: &[1, 12, 12, 12, 300, 40_000],
    forbidden: &[&["SUBSCRIBE"], &["HELLO"], &["ZADD"]],
    troubles: &[],
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
    forbidden: &[&["SUBSCRIBE"], &["ZADD"], &["HELLO"]],
    databases: 3,
    ttl: 3_000,
    wait: 4_000,
    ..MEMORY
};

/// Includes lengths with which a push message is longer than the longest reply.
const LONG: &[usize] = &[12, 12, 65_000, 65_600, 70_000, 1 << 20];

const TROUBLES: &[Trouble] = &[
    Trouble::None,
    Trouble::HangsUp("HELLO"),
    Trouble::HangsUp("SUBSCRIBE"),
    Trouble::Busy("SUBSCRIBE", 2_000),
    Trouble::Busy("CLIENT", 2_000),
    Trouble::Busy("INFO", 2_000),
    Trouble::Recycles(3_000),
    Trouble::Recycles(9_000),
    Trouble::Misleads(4_000),
];

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

fn in_memory(plan: &Plan) -> Vec<Violation> {
    let runtime = paused();
    finish(runtime, async { Box::pin(run(plan, Masters::in_memory(plan.masters))).await })
}

fn on_real_masters(plan: &Plan) -> Vec<Violation> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    finish(runtime, async { Box::pin(run(plan, Masters::real(plan.masters))).await })
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn finish<T>(runtime: Runtime, future: impl Future<Output = T>) -> T {
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
            assert!(
                violations.is_empty(),
                "{violations:#?}\nin {plan:#?}\nagain: REDQUORUM_USAGE_SEED={seed} \
                 REDQUORUM_USAGE_RUNS=1 cargo test -p redquorum --test usage {}",
                self.name
            );
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

type Fault = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Control: each check sees a violation made on purpose.
fn violations_are_seen() {
    let step = |process, at, hold, end| {
        let action = Action::Acquire { tasks: 1, wait: 10_000, hold, end };
        Step { at, process, name: 0, action }
    };
    let steps = vec![step(0, 0, 1_000, End::KeptAlive), step(1, 3_000, 1_000, End::Release)];
    let processes = vec![Process::default(); 2];
    let plan = Plan { masters: 3, latency: 1, ttl: 2_000, processes, names: vec![12], steps };
    let violated = |plan: &Plan, fault: fn(Masters) -> Fault| {
        let found = finish(paused(), async {
            let masters = Masters::in_memory(3);
            tokio::spawn(fault(masters.clone()));
            Box::pin(run(plan, masters)).await
        });
        found.into_iter().map(|(property, _)| property).collect::<Vec<_>>()
    };
    assert_eq!(violated(&plan, |_| Box::pin(async {})), []);
    let taken = violated(&plan, |masters| {
        Box::pin(async move {
            sleep(Duration::from_secs(2)).await;
            masters.occupy(b"a...........", Duration::from_secs(60));
        })
    });
    assert_eq!(taken, [Property::Progress, Property::CleanedUp]);
    let killed = violated(&plan, |masters| {
        Box::pin(async move {
            sleep(Duration::from_millis(500)).await;
            let Masters::Memory(masters, _) = masters else { unreachable!("it is in memory") };
            (2..=3).for_each(|number| masters.kill(number));
        })
    });
    for property in [Property::Undisturbed, Property::KeptAlive, Property::Truthful] {
        assert!(killed.contains(&property), "{property:?} is not in {killed:?}");
    }
    let mut plan = plan;
    plan.processes[1].spins = true;
    plan.steps = vec![step(0, 0, 5_000, End::KeptAlive), step(1, 100, 1, End::Release)];
    assert_eq!(violated(&plan, |_| Box::pin(async {})), [Property::Frugal]);
}

/// Faults that the search found, each as the smallest plan that shows it.
fn plans_that_failed_hold() {
    let step = |at, process, action| Step { at, process, name: 0, action };
    let acquire = |at, process, tasks, wait, hold, end| {
        step(at, process, Action::Acquire { tasks, wait, hold, end })
    };
    let held = acquire(0, 0, 1, 0, 8_000, End::KeptAlive);
    let waits = |tasks, wait| acquire(100, 1, tasks, wait, 1, End::Release);
    // Processes with all permissions, one name of 12 bytes.
    let plan = |processes, steps| {
        let processes = vec![Process::default(); processes];
        Plan { masters: 3, latency: 1, ttl: 5_000, processes, names: vec![12], steps }
    };
    let publish = |at| step(at, 0, Action::Publish { bytes: 70_000 });
    let messages = vec![held, waits(1, 20_000), publish(1_000), publish(2_000), publish(3_000)];
    let neglect = Action::Neglect { wait: 60_000, polled: 50, idle: 60_000, drops: true };
    let unpolled = vec![
        acquire(0, 0, 1, 0, 1_000, End::Release),
        step(100, 1, neglect),
        acquire(200, 2, 1, 60_000, 1, End::Release),
    ];
    let mut fair = plan(2, vec![held, waits(500, 3_000)]);
    fair.processes.iter_mut().for_each(|process| process.fair = true);
    let forbidden = |fair, forbidden| {
        let mut plan = plan(2, vec![acquire(0, 1, 20, 10_000, 1, End::Release)]);
        (plan.processes[1].fair, plan.processes[1].forbidden) = (fair, forbidden);
        plan
    };
    for (what, times, plan) in [
        ("a long name", 1, Plan { names: vec![70_000], ..plan(2, vec![held, waits(1, 20_000)]) }),
        ("long messages", 1, plan(2, messages)),
        // Chance decides which of the two waiters wins.
        ("an unpolled waiter that is woken", 12, plan(3, unpolled)),
        ("fair tasks that time out together", 1, fair),
        ("tasks that time out together", 1, plan(2, vec![held, waits(10_000, 3_000)])),
        ("clean-ups without scripts", 1, forbidden(false, &["EVALSHA"])),
        ("clean-ups without scripts, fair", 1, forbidden(true, &["EVALSHA"])),
        ("clean-ups without GET", 1, forbidden(false, &["GET"])),
    ] {
        for _ in 0..times {
            let violations = in_memory(&plan);
            assert!(violations.is_empty(), "{what}: {violations:#?}");
        }
    }
}

/// The commands of five masters for each lease, while these processes compete for one name.
async fn commands_per_lease(processes: u64, leases: u64) -> u64 {
    let (masters, granted) = (Masters::in_memory(5), Arc::new(AtomicU64::new(0)));
    let mut locks = Vec::new();
    for number in 0..processes {
        let builder = masters.process(&Process::default(), 1, number);
        let (lock, granted) = (builder.build().await.expect("a lock"), granted.clone());
        locks.push((lock.clone(), ()));
        tokio::spawn(async move {
            loop {
                let lease = lock.acquire("herd").wait(Duration::MAX).await.expect("a lease");
                granted.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(2)).await;
                let _ = lease.release().await;
            }
        });
    }
    // Connections and subscriptions are not counted.
    let reached = async |count| {
        while granted.load(Ordering::Relaxed) < count {
            sleep(Duration::from_millis(1)).await;
        }
        commands(&locks)
    };
    let before = reached(leases / 4).await;
    (reached(leases / 4 + leases).await - before) / leases
}

fn commands_of_a_lease_do_not_grow_with_the_waiting_processes() {
    let counts = [4, 16, 64, 200];
    let found = counts.map(|count| {
        let commands = finish(paused(), async {
            Box::pin(commands_per_lease(count, 200.max(5 * count))).await
        });
        eprintln!("{count} processes: {commands} commands for each lease");
        commands
    });
    assert!(found.iter().all(|commands| *commands <= 30), "{found:?} with {counts:?} processes");
}
