//! Futures that are polled once and then not again, as in a `select!` with a long await in another
//! branch. The lock itself ends what others wait for. Futures that are dropped are in `cancel.rs`.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Owner, Redlock};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, NODE_TIMEOUT, S, bed, holding, keys, poll_once, settle, take};

/// How late a caller may poll its future.
const LEEWAY: Duration = Duration::from_millis(500);

/// No key expires by itself in a test.
const LONG: Duration = Duration::from_secs(3_600);

/// What keeps a request from its result when its future is polled for the first time.
#[derive(Clone, Copy, Debug)]
struct Case {
    fair: bool,
    fenced: bool,
    /// The fencing counters differ, so that a number must be certified.
    apart: bool,
    /// Masters on which another client has the key, for 200 ms.
    taken: usize,
    hung: usize,
    wait: Duration,
}

const CASE: Case = Case {
    fair: false,
    fenced: false,
    apart: false,
    taken: 0,
    hung: 0,
    wait: Duration::from_secs(5),
};

const CASES: [Case; 12] = [
    CASE,
    Case { taken: 2, hung: 1, ..CASE },
    Case { taken: 2, hung: 1, wait: Duration::ZERO, ..CASE },
    Case { taken: 1, hung: 2, ..CASE },
    Case { taken: 1, hung: 2, fair: true, ..CASE },
    Case { taken: 2, hung: 1, fair: true, ..CASE },
    Case { taken: 5, ..CASE },
    Case { taken: 5, fair: true, wait: Duration::ZERO, ..CASE },
    Case { hung: 3, ..CASE },
    Case { hung: 3, fair: true, ..CASE },
    Case { fenced: true, apart: true, hung: 1, ..CASE },
    Case { fenced: true, apart: true, hung: 2, ..CASE },
];

async fn start(case: Case) -> (Masters, Redlock, Redlock) {
    let masters = Masters::new(5);
    let lock = || masters.builder().ttl(LONG).fair(case.fair).build();
    let (ours, rival) = (lock().await.unwrap(), lock().await.unwrap());
    for number in (1..=5).filter(|_| case.apart) {
        // Above the hint of every client, so that the grants show different numbers.
        let counter = 1_800_000_000_000_000 * number as u64;
        masters.set(number, "redquorum:fence:r", counter.to_string(), None);
    }
    (1..=case.taken).for_each(|number| masters.set(number, "r", "stranger", Some(200 * MS)));
    (0..case.hung).for_each(|number| masters.stop(5 - number));
    (masters, ours, rival)
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_polled_once_keeps_nobody_out_and_gets_its_result_later() {
    for case in CASES {
        let (masters, lock, rival) = start(case).await;
        let request = lock.acquire("r").wait(case.wait);
        let mut unpolled = pin!(if case.fenced { request.fenced() } else { request }.into_future());
        assert!(poll_once(unpolled.as_mut()).await.is_pending(), "{case:?}");
        // The end of its round, or of the time for a lease that it has won.
        sleep(2 * S).await;
        (1..=5).for_each(|number| masters.resume(number));
        settle().await;
        assert_eq!(holding(&masters, 5, "r"), [0; 0], "{case:?}: it keeps others out");
        let other = timeout(S, rival.acquire("r").into_future()).await;
        let _ = other.expect("in time").expect("another process").release().await;
        let same = timeout(S, lock.acquire("r").into_future()).await;
        let _ = same.expect("in time").expect("another task").release().await;
        // It goes on when it is polled again, also when its wait is over.
        sleep(if case.fair { Duration::ZERO } else { 10 * S }).await;
        match timeout(S, unpolled).await.expect("in time") {
            Ok(lease) => assert!(lease.release().await.report.in_favour() >= 3, "{case:?}"),
            Err(AcquireError::TooLate { .. } | AcquireError::Taken { .. }) => {}
            Err(error) => panic!("{case:?}: {error}"),
        }
        lock.shutdown(S).await.unwrap();
        rival.shutdown(S).await.unwrap();
        let locks = (1..=5).flat_map(|number| masters.keys(number));
        assert!(locks.into_iter().all(|key| key.starts_with(b"redquorum:fence:")), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rival_waits_for_an_unpolled_attempt_no_longer_than_its_round_and_the_leeway() {
    // Two masters to two, and one hangs: nobody has a quorum until the attempt is undone.
    let (masters, lock, rival) = start(Case { taken: 2, hung: 1, ..CASE }).await;
    let mut unpolled = pin!(lock.acquire("r").into_future());
    assert!(poll_once(unpolled.as_mut()).await.is_pending());
    settle().await;
    assert_eq!(holding(&masters, 4, "r").len(), 4);
    let start = Instant::now();
    let lease = rival.acquire("r").await.unwrap();
    let waited = start.elapsed();
    // A waiter looks every second.
    assert!(waited > NODE_TIMEOUT && waited < NODE_TIMEOUT + LEEWAY + S, "{waited:?}");
    let _ = lease.release().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_behind_unpolled_ones_get_their_turn() {
    for (fair, hung) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let (_masters, lock, _) = start(Case { fair, hung, ..CASE }).await;
        let waiting = || Box::pin(lock.acquire("r").wait(LONG).into_future());
        let mut unpolled: Vec<_> = (0..5).map(|_| waiting()).collect();
        for future in &mut unpolled {
            assert!(poll_once(future.as_mut()).await.is_pending());
        }
        let start = Instant::now();
        let lease = lock.acquire("r").wait(60 * S).await.unwrap();
        // Each of them may have won a lease, which waits for one second.
        assert!(start.elapsed() < 5 * (S + LEEWAY), "{:?}", start.elapsed());
        let _ = lease.release().await;
        // They are still served when they are polled.
        for future in unpolled {
            let _ = timeout(5 * S, future).await.expect("in time").unwrap().release().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_while_a_future_is_not_polled() {
    for case in CASES {
        let (masters, lock, _) = start(case).await;
        let mut unpolled = pin!(lock.acquire("r").wait(case.wait).into_future());
        assert!(poll_once(unpolled.as_mut()).await.is_pending());
        sleep(50 * MS).await;
        let shutdown = tokio::spawn({
            let lock = lock.clone();
            async move { lock.shutdown(10 * S).await }
        });
        sleep(S).await;
        (1..=5).for_each(|number| masters.resume(number));
        let start = Instant::now();
        shutdown.await.unwrap().unwrap_or_else(|unfinished| panic!("{case:?}: {unfinished}"));
        assert!(start.elapsed() <= S, "{case:?}: {:?}", start.elapsed());
        assert!(matches!(timeout(S, unpolled).await.unwrap(), Err(AcquireError::ShutDown)));
    }
}

#[tokio::test(start_paused = true)]
async fn other_requests_of_an_owner_do_not_wait_for_an_unpolled_one() {
    for (taken, hung) in [(0, 0), (2, 1), (5, 0)] {
        let (masters, lock, _) = start(Case { taken, hung, ..CASE }).await;
        let owner = Owner::new();
        let mut unpolled = pin!(lock.acquire("r").owner(&owner).wait(LONG).into_future());
        assert!(poll_once(unpolled.as_mut()).await.is_pending());
        let start = Instant::now();
        let lease = lock.acquire("r").owner(&owner).wait(60 * S).await.unwrap();
        assert!(start.elapsed() <= 2 * S + LEEWAY, "{taken} {hung}: {:?}", start.elapsed());
        // Polled again, it gets a handle of the owner's lease.
        let again = timeout(S, unpolled).await.expect("in time").unwrap();
        assert_eq!((lease.handles(), again.handles()), (2, 2));
        let _ = (lease.release().await, again.release().await);
        (1..=5).for_each(|number| masters.resume(number));
        settle().await;
        assert_eq!(keys(&masters, 5), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_an_unpolled_request_got_does_not_keep_the_lease() {
    let (masters, lock) = bed(5).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    lease.keep_alive(LONG);
    // It has a handle, and waits until the lease is extended for it.
    let mut unpolled = pin!(lock.acquire("r").owner(&owner).ttl(LONG).into_future());
    assert!(poll_once(unpolled.as_mut()).await.is_pending());
    let _ = lease.release().await;
    sleep(S).await;
    assert_eq!(keys(&masters, 5), 0, "nobody uses the lease");
    let again = timeout(S, unpolled).await.expect("in time").unwrap();
    assert_eq!(again.handles(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_extend_behind_one_that_is_not_polled_gets_its_result() {
    for hung in [0, 2, 3, 5] {
        let (masters, lock) = bed(5).await;
        let owner = Owner::new();
        let one = lock.acquire("r").owner(&owner).await.unwrap();
        let two = lock.acquire("r").owner(&owner).await.unwrap();
        settle().await;
        (1..=hung).for_each(|number| masters.stop(number));
        let mut unpolled = pin!(one.extend());
        assert!(poll_once(unpolled.as_mut()).await.is_pending());
        let start = Instant::now();
        for _ in 0..3 {
            let extended = timeout(S, two.extend()).await.expect("in time");
            assert_eq!(extended.is_ok(), hung < 3, "{hung}: {extended:?}");
        }
        assert!(start.elapsed() <= 4 * NODE_TIMEOUT + MS, "{hung}: {:?}", start.elapsed());
        // The first one gets the result of its own round, however late it is polled.
        sleep(S).await;
        let first = timeout(MS, unpolled).await.expect("it has ended");
        assert_eq!(first.is_ok(), hung < 3, "{hung}: {first:?}");
        assert!(!two.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn several_resources_of_an_unpolled_request_keep_nobody_out() {
    let (masters, lock, rival) = start(Case { taken: 2, hung: 1, ..CASE }).await;
    let mut unpolled = pin!(lock.acquire_all(["q", "r", "s"]).into_future());
    assert!(poll_once(unpolled.as_mut()).await.is_pending());
    sleep(2 * S).await;
    for resource in ["q", "r", "s"] {
        assert_eq!(holding(&masters, 4, resource), [0; 0], "{resource}");
        let _ = take(&rival, resource).await.release().await;
    }
    let leases = timeout(5 * S, unpolled).await.expect("in time").unwrap();
    assert_eq!(leases.iter().count(), 3);
}
