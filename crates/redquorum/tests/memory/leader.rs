//! Leader election: one leads at a time, whatever happens to leaders and masters.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redquorum::{AcquireError, BadOption, Leadership, Redlock};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, S, TTL, VALIDITY, bed, processes, settle};

const TERM: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_leader_resigns_with_a_result_and_another_one_leads() {
    let (_masters, locks) = processes(5, |lock| lock).await;
    let (leaders, terms) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for (number, lock) in locks.into_iter().enumerate() {
        let (leaders, terms) = (leaders.clone(), terms.clone());
        tasks.spawn(async move {
            let work = async |leadership: Leadership| {
                assert_eq!(leaders.fetch_add(1, Relaxed), 0, "two lead at once");
                assert!(terms.swap(leadership.term(), Relaxed) < leadership.term());
                sleep(3 * TTL).await;
                assert!(!leadership.signal().is_lost());
                leaders.fetch_sub(1, Relaxed);
                number
            };
            lock.lead("leader", TERM, work).await.unwrap()
        });
    }
    let start = Instant::now();
    let mut led = tasks.join_all().await;
    led.sort_unstable();
    assert_eq!(led, [0, 1, 2, 3, 4], "each leads once");
    assert!(start.elapsed() <= 5 * (3 * TTL + S), "{:?}", start.elapsed());
}

/// One client that leads for ever: how many terms it has had, and whether it leads.
struct Steady {
    terms: Rc<Cell<u32>>,
    leads: Rc<Cell<bool>>,
}

impl Steady {
    fn start(tasks: &LocalSet, lock: &Redlock, max_term: Duration) -> Self {
        let steady = Self { terms: Rc::default(), leads: Rc::default() };
        let (lock, terms, leads) = (lock.clone(), steady.terms.clone(), steady.leads.clone());
        tasks.spawn_local(async move {
            lock.lead("leader", max_term, async |_| {
                struct Leads(Rc<Cell<bool>>);
                impl Drop for Leads {
                    fn drop(&mut self) {
                        self.0.set(false);
                    }
                }
                terms.set(terms.get() + 1);
                leads.set(true);
                let _leads = Leads(leads.clone());
                std::future::pending::<()>().await;
            })
            .await
        });
        steady
    }

    fn seen(&self) -> (u32, bool) {
        (self.terms.get(), self.leads.get())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_ends_no_term_and_a_lost_one_is_followed_by_another() {
    let (masters, lock) = bed(5).await;
    let tasks = LocalSet::new();
    let leader = Steady::start(&tasks, &lock, 1_000 * TTL);
    tasks
        .run_until(async {
            sleep(TTL).await;
            assert_eq!(leader.seen(), (1, true));
            // Shorter than the lease lives: renewals fail meanwhile.
            (1..=5).for_each(|number| masters.stop(number));
            sleep(VALIDITY / 2).await;
            (1..=5).for_each(|number| masters.resume(number));
            sleep(2 * TTL).await;
            assert_eq!(leader.seen(), (1, true));
            // Longer: the work is dropped when the lease is over, and called anew afterwards.
            (1..=3).for_each(|number| masters.kill(number));
            sleep(TTL).await;
            assert_eq!(leader.seen(), (1, false));
            sleep(100 * TTL).await;
            assert_eq!(leader.seen(), (1, false));
            (1..=3).for_each(|number| masters.restart(number));
            sleep(2 * TTL).await;
            assert_eq!(leader.seen(), (2, true));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_in_time_and_others_get_their_turn() {
    let (_masters, locks) = processes(3, |lock| lock).await;
    let tasks = LocalSet::new();
    let all: Vec<_> = locks.iter().map(|lock| Steady::start(&tasks, lock, 3 * TTL)).collect();
    tasks
        .run_until(async {
            for _ in 0..500 {
                sleep(S).await;
                assert!(all.iter().filter(|it| it.seen().1).count() <= 1);
            }
            let terms: Vec<u32> = all.iter().map(|it| it.seen().0).collect();
            assert!(terms.iter().all(|it| *it > 1), "{terms:?}");
            assert!(terms.iter().sum::<u32>() >= 15, "{terms:?}");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_candidature_that_is_dropped_frees_the_place_at_once() {
    let (_masters, locks) = processes(2, |lock| lock).await;
    let forever = async |_: Leadership| std::future::pending::<()>().await;
    assert!(timeout(S, locks[0].lead("leader", TERM, forever)).await.is_err(), "it leads");
    settle().await;
    let start = Instant::now();
    assert_eq!(locks[1].lead("leader", TERM, async |_| 7).await, Ok(7));
    assert!(start.elapsed() < 100 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_can_fix_ends_it() {
    let (_masters, lock) = bed(3).await;
    let never = async |_: Leadership| unreachable!("there is no lease");
    let error = lock.lead("", TERM, never).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { error: BadOption::ResourceEmpty, .. }));
    let leads = tokio::spawn({
        let lock = lock.clone();
        async move {
            let forever = async |_: Leadership| std::future::pending::<()>().await;
            lock.lead("leader", TERM, forever).await
        }
    });
    sleep(S).await;
    lock.shutdown(2 * TERM).await.unwrap();
    // The term that began before goes on to its deadline.
    let ended = timeout(2 * TTL, leads).await.unwrap().unwrap();
    assert_eq!(ended, Err(AcquireError::ShutDown));
}
