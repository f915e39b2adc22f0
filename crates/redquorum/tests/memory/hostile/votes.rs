//! Every kind of bad master, as one of five and as three of five.

use std::sync::Arc;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Outcome, Redlock};
use tokio::time::{Instant, sleep, timeout};

use super::kinds::{Kind, kinds};
use super::scripted::{MOST, Reaction, Scripted, Seen};
use crate::support::{MS, NODE_TIMEOUT, S};

/// Five masters, of which the last `bad` are of this kind.
struct Bed {
    good: Masters,
    bad: Vec<Arc<Seen>>,
    lock: Redlock,
}

impl Bed {
    async fn with(bad: usize, kind: &Kind) -> Self {
        let good = Masters::new(5 - bad);
        let bad: Vec<_> = (6 - bad..=5).map(|number| kind.master(number)).collect();
        let builder = bad.iter().cloned().fold(good.builder(), |builder, bad| builder.master(bad));
        let start = Instant::now();
        let lock = within(2 * S, kind, builder.build()).await.unwrap();
        assert!(start.elapsed() <= S + MS, "{}: built in {:?}", kind.name, start.elapsed());
        Self { good, bad: bad.iter().map(Scripted::seen).collect(), lock }
    }

    /// Checks what must hold some seconds after any test: no key, little traffic, a quick shutdown.
    async fn check_peace(self, kind: &Kind) {
        let before: Vec<_> =
            self.bad.iter().map(|seen| (seen.connects(), seen.commands())).collect();
        sleep(5 * S).await;
        for number in 1..=self.good_count() {
            assert_eq!(self.good.keys(number), Vec::<Vec<u8>>::new(), "{}", kind.name);
        }
        for (seen, (connects, commands)) in self.bad.iter().zip(before) {
            let (connects, commands) = (seen.connects() - connects, seen.commands() - commands);
            assert!(connects <= 30, "{}: {connects} connects in 5 s", kind.name);
            assert!(commands <= 5_000, "{}: {commands} commands in 5 s", kind.name);
        }
        let start = Instant::now();
        let shut = within(2 * S, kind, self.lock.shutdown(S)).await;
        assert!(start.elapsed() <= S + MS, "{}: {shut:?} in {:?}", kind.name, start.elapsed());
    }

    fn good_count(&self) -> usize {
        5 - self.bad.len()
    }
}

async fn within<F: IntoFuture>(limit: Duration, kind: &Kind, future: F) -> F::Output {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{}: not within {limit:?}", kind.name))
}

#[tokio::test(start_paused = true)]
async fn one_bad_master_of_five_is_not_noticed() {
    for kind in kinds() {
        let bed = Bed::with(1, &kind).await;
        let start = Instant::now();
        for round in 0..20 {
            let lease = bed.lock.acquire("r").await;
            let lease = lease.unwrap_or_else(|error| panic!("{}, {round}: {error}", kind.name));
            assert!(lease.validity() > 9 * S, "{}", kind.name);
            let held = (1..=4).filter(|number| bed.good.value(*number, "r").is_some());
            assert!(held.count() >= 3, "{}", kind.name);
            assert!(bed.lock.try_acquire("r").await.unwrap().is_none(), "{}", kind.name);
            lease.extend().await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            let released = lease.release().await;
            assert_eq!(released.outcome, Outcome::Released, "{}: {}", kind.name, released.report);
        }
        assert!(start.elapsed() <= MS, "{}: {:?}", kind.name, start.elapsed());
        bed.check_peace(&kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn three_bad_masters_of_five_are_named_in_an_error_in_time() {
    for kind in kinds() {
        let Some(cause) = kind.cause else { continue };
        let bed = Bed::with(3, &kind).await;
        let start = Instant::now();
        let error = within(S, &kind, bed.lock.acquire("r").wait(Duration::ZERO)).await.unwrap_err();
        let AcquireError::NoQuorum { report, attempts: 1, .. } = &error else {
            panic!("{}: {error:?}", kind.name)
        };
        for bad in &report.masters()[2..] {
            let text = bad.to_string();
            assert!(text.starts_with(&format!("master {0} (bad-{0}): ", bad.number)), "{text}");
            assert!(text.contains(cause), "{}: {text}", kind.name);
            assert!(error.to_string().contains(&text), "{error}");
        }
        assert!(start.elapsed() <= NODE_TIMEOUT + MS, "{}: {:?}", kind.name, start.elapsed());

        let start = Instant::now();
        let again = within(2 * S, &kind, bed.lock.acquire("r").wait(S)).await.unwrap_err();
        assert!(matches!(again, AcquireError::NoQuorum { attempts: 2.., .. }), "{again:?}");
        let took = start.elapsed();
        assert!(took >= S && took <= S + 2 * NODE_TIMEOUT + 2 * MS, "{}: {took:?}", kind.name);
        let tried = within(S, &kind, bed.lock.try_acquire("r")).await;
        assert!(matches!(tried, Err(AcquireError::NoQuorum { .. })), "{}: {tried:?}", kind.name);
        let health = within(NODE_TIMEOUT + MS, &kind, bed.lock.health()).await;
        assert!(health.alive >= 2 && health.quorum == 3, "{}: {health}", kind.name);
        bed.check_peace(&kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn three_masters_that_grant_and_are_bad_otherwise_end_nothing_late() {
    for kind in kinds().iter().filter(|kind| kind.cause.is_none()) {
        let bed = Bed::with(3, kind).await;
        let start = Instant::now();
        let lease = within(S, kind, bed.lock.acquire("r")).await;
        let lease = lease.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let deadline = lease.deadline();
        assert!(deadline.remaining() <= 10 * S - Duration::from_millis(102), "{}", kind.name);
        // Each of these may fail, but in time, and a failure does not move the deadline back.
        let extended = within(NODE_TIMEOUT + MS, kind, lease.extend()).await;
        assert!(lease.deadline() >= deadline, "{}: {extended:?}", kind.name);
        let _ = within(NODE_TIMEOUT + MS, kind, lease.release()).await;
        assert!(start.elapsed() <= S, "{}: {:?}", kind.name, start.elapsed());
        bed.check_peace(kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_spins_would_be_seen() {
    let bad = Scripted::new("bad", |_| Reaction::Well);
    let seen = bad.seen();
    let mut connection = redquorum::connect::Node::connect(&bad).await.unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            connection.write_all(b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n").await.unwrap();
            connection.read_exact(&mut [0; 4]).await.unwrap();
        }
    });
    sleep(MS).await;
    assert!(seen.commands() >= MOST);
}
