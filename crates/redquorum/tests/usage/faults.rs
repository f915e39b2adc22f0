//! Faults that the search found, each as the smallest plan that shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redquorum_rig::trials::Case;
use tokio::time::sleep;

use crate::backend::{Backend, Memory};
use crate::plan::{Action, End, Plan, Process, Step};
use crate::search::{finish, in_memory, paused};

pub(crate) fn cases() -> Vec<Case> {
    redquorum_rig::cases![
        plain: waiting_for_a_name_above_64_kib_disturbs_nothing,
        plain: a_published_message_of_70_kb_disturbs_nothing,
        plain: an_unpolled_head_of_the_queue_holds_up_no_other_task,
        plain: an_unpolled_waiter_that_is_woken_holds_up_no_other_process,
        plain: fair_tasks_that_time_out_together_disturb_no_other_process,
        plain: tasks_that_time_out_together_are_told_that_it_is_taken,
        plain: clean_ups_that_may_not_run_scripts_end,
        plain: clean_ups_that_may_not_read_keys_end,
        plain: commands_of_a_lease_do_not_grow_with_the_waiting_processes,
    ]
}

/// Processes with all permissions, one name of 12 bytes.
fn plan(processes: usize, steps: Vec<Step>) -> Plan {
    let processes = vec![Process::default(); processes];
    Plan { masters: 3, latency: 1, ttl: 5_000, processes, names: vec![12], steps }
}

fn step(at: u64, process: usize, action: Action) -> Step {
    Step { at, process, name: 0, action }
}

fn acquire(tasks: u64, wait: u64, hold: u64, end: End) -> Action {
    Action::Acquire { tasks, wait, hold, end }
}

fn holds(plan: &Plan) {
    let violations = in_memory(plan);
    assert!(violations.is_empty(), "{violations:#?}");
}

fn waiting_for_a_name_above_64_kib_disturbs_nothing() {
    let held = step(0, 0, acquire(1, 0, 8_000, End::KeptAlive));
    let plan = plan(2, vec![held, step(100, 1, acquire(1, 20_000, 1, End::Release))]);
    holds(&Plan { names: vec![70_000], ..plan });
}

fn a_published_message_of_70_kb_disturbs_nothing() {
    let held = step(0, 0, acquire(1, 0, 8_000, End::KeptAlive));
    let waits = step(100, 1, acquire(1, 20_000, 1, End::Release));
    let publish = |at| step(at, 0, Action::Publish { bytes: 70_000 });
    holds(&plan(2, vec![held, waits, publish(1_000), publish(2_000), publish(3_000)]));
}

fn an_unpolled_head_of_the_queue_holds_up_no_other_task() {
    let neglect = Action::Neglect { wait: 600_000, polled: 50, idle: 600_000, drops: true };
    let waits = step(200, 0, acquire(1, 600_000, 1, End::Release));
    holds(&plan(1, vec![step(0, 0, Action::Die), step(100, 0, neglect), waits]));
}

fn an_unpolled_waiter_that_is_woken_holds_up_no_other_process() {
    let neglect = Action::Neglect { wait: 60_000, polled: 50, idle: 60_000, drops: true };
    let held = step(0, 0, acquire(1, 0, 1_000, End::Release));
    let waits = step(200, 2, acquire(1, 60_000, 1, End::Release));
    let plan = plan(3, vec![held, step(100, 1, neglect), waits]);
    // Chance decides which of the two waiters wins.
    (0..12).for_each(|_| holds(&plan));
}

fn fair_tasks_that_time_out_together_disturb_no_other_process() {
    let held = step(0, 0, acquire(1, 0, 8_000, End::KeptAlive));
    let mut plan = plan(2, vec![held, step(100, 1, acquire(500, 3_000, 1, End::Release))]);
    plan.processes.iter_mut().for_each(|process| process.fair = true);
    holds(&plan);
}

fn tasks_that_time_out_together_are_told_that_it_is_taken() {
    let held = step(0, 0, acquire(1, 0, 8_000, End::KeptAlive));
    holds(&plan(2, vec![held, step(100, 1, acquire(10_000, 3_000, 1, End::Release))]));
}

fn without(command: &'static [&'static str]) {
    let mut plan = plan(2, vec![step(0, 1, acquire(20, 10_000, 1, End::Release))]);
    plan.processes[1].forbidden = command;
    holds(&plan);
}

fn clean_ups_that_may_not_run_scripts_end() {
    without(&["EVALSHA"]);
}

fn clean_ups_that_may_not_read_keys_end() {
    without(&["GET"]);
}

/// The commands of five masters for each lease, while these processes compete for one name.
async fn commands_per_lease(processes: u64, leases: u64) -> u64 {
    let (backend, granted) = (Memory::new(5), Arc::new(AtomicU64::new(0)));
    for number in 0..processes {
        let builder = backend.process(&Process::default(), 1, number);
        let (lock, granted) = (builder.build().await.expect("a lock"), granted.clone());
        tokio::spawn(async move {
            loop {
                let lease = lock.acquire("herd").wait(Duration::MAX).await.expect("a lease");
                granted.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(2)).await;
                lease.release().await;
            }
        });
    }
    // Connections and subscriptions are not counted.
    let reached = async |count| {
        while granted.load(Ordering::Relaxed) < count {
            sleep(Duration::from_millis(1)).await;
        }
        backend.commands()
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
