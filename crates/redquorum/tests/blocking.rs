//! The blocking lock, on masters in memory: threads, tasks, and the end of the lock's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redquorum::blocking::Redlock;
use redquorum::memory::Masters;
use redquorum::report::Loss;
use redquorum::{ExtendError, Outcome, RunError};
use redquorum_rig::trials::eventually;

const TTL: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

fn bed() -> (Masters, Redlock) {
    let masters = Masters::new(3);
    let lock = masters.builder().ttl(TTL).wait(MINUTE).build_blocking().unwrap();
    (masters, lock)
}

#[test]
fn threads_take_turns() {
    let (_masters, lock) = bed();
    // Read and written in two steps: two holders at once would lose an update.
    let sum = Arc::new(AtomicU32::new(0));
    let work = |lock: Redlock, sum: Arc<AtomicU32>| {
        move || {
            for _ in 0..10 {
                let lease = lock.acquire("r").send().unwrap();
                let read = sum.load(Ordering::SeqCst);
                thread::yield_now();
                sum.store(read + 1, Ordering::SeqCst);
                assert_eq!(lease.release().outcome, Outcome::Released);
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(work(lock.clone(), sum.clone()))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(sum.load(Ordering::SeqCst), 40);
}

#[test]
fn a_thread_is_warned_while_there_is_time_left_and_told_of_the_loss() {
    let (masters, lock) = bed();
    let lease = lock.acquire("r").ttl(TTL).send().unwrap();
    let both = lock.acquire_all(["a", "b"]).ttl(TTL / 10).send().unwrap();
    (2..=3).for_each(|number| masters.stop(number));
    assert!(!lease.is_endangered() && !both.is_endangered());
    thread::scope(|scope| {
        let warned = scope.spawn(|| lease.endangered());
        assert!(matches!(lease.extend(), Err(ExtendError::NoQuorum { .. })));
        assert_eq!(warned.join().unwrap(), Some(lease.deadline()));
    });
    assert!(lease.is_endangered() && lease.loss_signal().is_endangered() && !lease.is_lost());
    // Nobody extends these: they are lost without a warning.
    assert_eq!(both.endangered(), None);
    assert_eq!((both.lost().cause, both.is_endangered()), (Loss::Expired, false));
}

#[test]
fn options_and_readers_are_those_of_the_async_lock() {
    let (masters, lock) = bed();
    let lease = lock.acquire("r").ttl(MINUTE).fenced().send().unwrap();
    assert!(
        lease.validity() > TTL
            && lease.fencing_token().is_some()
            && lease.report().in_favour() >= 2
    );
    assert!(lock.try_acquire("r").send().unwrap().is_none());
    let taken = lock.acquire("r").wait(Duration::ZERO).send().unwrap_err();
    assert!(taken.is_taken() && taken.resource() == Some(b"r"), "{taken}");
    let before = lease.deadline();
    assert!(lease.extend().unwrap() > before);
    (1..=3).for_each(|number| masters.set(number, "r", "another", None));
    assert!(matches!(lease.extend(), Err(ExtendError::QuorumGone { .. })));
    drop(lease);
    let both = lock.acquire_all(["a", "b"]).fenced().send().unwrap();
    assert!(both.fencing_token("a").is_some() && both.fencing_token("c").is_none());
    assert_eq!(both.release().outcome(), Outcome::Released);
    assert!(lock.health().has_quorum() && lock.stats().acquired == 3);
}

#[test]
fn run_gives_the_resource_back_and_reports_a_loss() {
    let (masters, lock) = bed();
    assert_eq!(lock.acquire("r").run(MINUTE, |lease| lease.resource().len()), Ok(1));
    eventually("it is free", || masters.keys(1).is_empty());
    let lost = lock.acquire("r").ttl(Duration::from_millis(300)).run(Duration::ZERO, |lease| {
        // No watchdog beyond the first TTL: the thread waits for the end.
        assert_eq!(lease.lost().cause, lease.loss().unwrap().cause);
    });
    let Err(RunError::Lost(lost)) = lost else { panic!("{lost:?}") };
    assert!(matches!(lost.cause, Loss::Expired | Loss::MaxHold), "{lost}");
}

#[test]
fn shards_are_driven_by_one_thread() {
    let masters = Masters::new(2);
    let shards = || {
        let builder = redquorum::Redlock::builder();
        let shards = builder.shards([("a", [masters.node(1)]), ("b", [masters.node(2)])]);
        shards.build_shards_blocking().unwrap()
    };
    let are_both_used = || !masters.keys(1).is_empty() && !masters.keys(2).is_empty();
    let first = shards();
    let names: Vec<String> = (0..16).map(|number| format!("invoice:{number}")).collect();
    let leases = first.acquire_all(&names).send().unwrap();
    assert!(are_both_used());
    let taken = first.acquire(&names[0]).wait(Duration::ZERO).send();
    assert!(taken.is_err_and(|error| error.is_taken()));
    assert!(first.try_acquire(&names[1]).send().unwrap().is_none());
    assert!(!first.home(&names[2]).holder(&names[2]).unwrap().is_free());
    assert_eq!(first.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    // The leases keep the locks of all shards alive.
    drop(first);
    leases.extend().unwrap();
    assert_eq!(leases.release().outcome(), Outcome::Released);
    let shards = shards();
    let permits = shards.semaphore("gpu", 6);
    let held: Vec<_> = (0..6).map(|_| permits.acquire().send().unwrap()).collect();
    assert!(permits.acquire().wait(Duration::ZERO).send().is_err());
    assert!(are_both_used());
    drop(held);
    let any = shards.acquire_any(["x", "y"]).send().unwrap();
    assert!(any.resource() == b"x" || any.resource() == b"y");
    drop(any);
    shards.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn it_refuses_to_stop_the_tasks_of_a_runtime() {
    let (_masters, lock) = bed();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async move {
        let refused = catch_unwind(AssertUnwindSafe(|| lock.acquire("r").send())).unwrap_err();
        let text = refused.downcast_ref::<&str>().unwrap();
        assert!(text.contains("use the async redquorum::Redlock"), "{text}");
        let lock = lock.clone();
        let release = move || lock.acquire("r").send().unwrap().release().outcome;
        assert_eq!(tokio::task::spawn_blocking(release).await.unwrap(), Outcome::Released);
    });
}

#[cfg(target_os = "linux")]
fn drivers() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    names.filter_map(|task| name(task.ok()?).ok()).filter(|name| name == "redquorum\n").count()
}

// The only test here that counts threads, so it is run in a process of its own.
#[test]
#[cfg(target_os = "linux")]
fn the_thread_ends_with_the_last_handle_and_its_clean_ups() {
    if std::env::var_os("REDQUORUM_COUNT_THREADS").is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "the_thread_ends_with_the_last_handle_and_its_clean_ups"]);
        assert!(again.env("REDQUORUM_COUNT_THREADS", "1").status().unwrap().success());
        return;
    }
    let (masters, lock) = bed();
    let lease = lock.acquire("r").send().unwrap();
    drop(lock);
    assert_eq!(drivers(), 1, "the lease keeps it");
    masters.stop(1);
    drop(lease);
    eventually("what can be deleted is deleted", || masters.keys(2).is_empty());
    assert_eq!(drivers(), 1, "a master did not answer yet");
    masters.resume(1);
    eventually("it ends", || drivers() == 0);
    assert!(masters.keys(1).is_empty());
    // A master that hangs for ever does not keep it for longer than its keys live.
    let ttl = Duration::from_millis(500);
    let lock = masters.builder().ttl(ttl).build_blocking().unwrap();
    let lease = lock.acquire("r").send().unwrap();
    masters.stop(1);
    drop((lease, lock));
    eventually("it ends", || drivers() == 0);
    masters.resume(1);
    // A build that fails leaves none behind.
    redquorum::Redlock::builder().build_blocking().unwrap_err();
    eventually("it ends", || drivers() == 0);
}
