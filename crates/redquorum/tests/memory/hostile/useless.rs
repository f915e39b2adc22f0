//! Connections that work and are of no use. A name leads to another server, and the old one goes on
//! to answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::connect::{Connecting, Node};
use redquorum::memory::Masters;
use redquorum::stats::LinkState;
use redquorum::{AcquireError, Redlock};
use tokio::time::{Instant, sleep};

use super::scripted::{Args, Reaction, Scripted, is_greeting};
use crate::support::{S, settle, take};

/// A name that leads to one of several servers.
#[derive(Clone)]
struct Name {
    name: &'static str,
    leads_to: Arc<AtomicUsize>,
    servers: Arc<[Arc<dyn Node>]>,
}

impl Name {
    fn new(name: &'static str, servers: impl IntoIterator<Item = Arc<dyn Node>>) -> Self {
        Self { name, leads_to: Arc::default(), servers: servers.into_iter().collect() }
    }

    fn lead_to(&self, server: usize) {
        self.leads_to.store(server, Ordering::Relaxed);
    }
}

impl Node for Name {
    fn name(&self) -> String {
        self.name.into()
    }

    fn connect(&self) -> Connecting<'_> {
        self.servers[self.leads_to.load(Ordering::Relaxed)].connect()
    }
}

/// A server that refuses all writes with this error while the flag is set.
fn refusing(error: &'static str, flag: &Arc<AtomicBool>) -> Scripted {
    let flag = flag.clone();
    Scripted::new("old", move |args: Option<&Args<'_>>| match args {
        Some(args) if flag.load(Ordering::Relaxed) && !is_greeting(args) => {
            Reaction::line(&format!("-{error}"))
        }
        _ => Reaction::Well,
    })
}

#[tokio::test(start_paused = true)]
async fn a_demoted_master_is_left_for_the_server_to_which_its_name_leads() {
    for error in
        ["READONLY You can't write against a read only replica.", "MASTERDOWN x", "NOAUTH x"]
    {
        let demoted = Arc::new(AtomicBool::new(false));
        let (old, new) = (refusing(error, &demoted), Masters::new(1));
        let name =
            Name::new("db1", [Arc::new(old.clone()) as Arc<dyn Node>, Arc::new(new.node(1))]);
        let builder = Redlock::builder().tokio_clock_for_tests();
        let lock = builder.master(name.clone()).build().await.unwrap();
        drop(take(&lock, "x").await);
        // It refuses before its name moves.
        demoted.store(true, Ordering::Relaxed);
        let refused = lock.acquire("x").wait(S).await.unwrap_err();
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
        assert!(refused.to_string().contains(error), "{refused}");
        settle().await;
        let stats = &lock.stats().masters[0];
        assert_eq!(stats.state, LinkState::Refusing(error.into()));
        let health = lock.health().await;
        assert_eq!((health.alive, health.usable), (1, 0), "{health}");
        sleep(60 * S).await;
        let tried = old.seen().connects();
        assert!((60..=200).contains(&tried), "{tried} connects in a minute");
        name.lead_to(1);
        // No request is needed to find out.
        sleep(2 * S).await;
        assert_eq!(lock.stats().masters[0].state, LinkState::Up);
        assert!(lock.health().await.has_quorum());
        assert!(lock.try_acquire("x").await.unwrap().is_some(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_was_a_replica_for_a_while_counts_again_on_the_same_connection() {
    let demoted = Arc::new(AtomicBool::new(false));
    let old = refusing("READONLY x", &demoted);
    let builder = Redlock::builder().tokio_clock_for_tests();
    let lock = builder.master(old.clone()).build().await.unwrap();
    demoted.store(true, Ordering::Relaxed);
    lock.acquire("x").wait(S).await.unwrap_err();
    demoted.store(false, Ordering::Relaxed);
    sleep(2 * S).await;
    let stats = &lock.stats().masters[0];
    assert_eq!((&stats.state, stats.connected), (&LinkState::Up, 1));
    let connects = old.seen().connects();
    sleep(10 * S).await;
    assert_eq!(old.seen().connects(), connects, "it looks no further");
}

#[tokio::test(start_paused = true)]
async fn one_server_under_two_names_is_used_once_until_the_wrong_name_is_right() {
    for wrong in [0, 1] {
        let masters = Masters::new(3);
        let node = |number| Arc::new(masters.node(number)) as Arc<dyn Node>;
        let names = ["db1", "db2", "db3"].map(|name| Name::new(name, [1, 2, 3].map(&node)));
        for (at, name) in names.iter().enumerate() {
            name.lead_to(if at == wrong { 1 - wrong } else { at });
        }
        let builder = Redlock::builder().tokio_clock_for_tests();
        let lock = builder.masters(names.clone()).build().await.unwrap();
        sleep(10 * S).await;
        let up = |lock: &Redlock| {
            lock.stats().masters.iter().filter(|it| it.state == LinkState::Up).count()
        };
        assert_eq!(up(&lock), 2, "one of the two is not used");
        assert!(lock.try_acquire("x").await.unwrap().is_some());
        let connected: u64 = lock.stats().masters.iter().map(|it| it.connected).sum();
        assert_eq!(connected, 2, "the good connections stay");
        names[wrong].lead_to(wrong);
        sleep(5 * S).await;
        assert_eq!(up(&lock), 3, "{}", lock.health().await);
        // One of three servers may be down now.
        masters.kill(3);
        let lease = lock.acquire("x").wait(Duration::from_secs(60)).await;
        assert!(lease.is_ok(), "{lease:?}");
    }
}

/// A master behind a firewall that forgets a connection after this time without a packet, and then
/// drops its packets without a word.
fn behind_a_firewall(name: &str, forgets_after: Duration) -> Scripted {
    let latest = Mutex::new(Instant::now());
    Scripted::new(name, move |args| {
        let idle = std::mem::replace(&mut *latest.lock().unwrap(), Instant::now()).elapsed();
        if args.is_some() && idle > forgets_after { Reaction::Swallow } else { Reaction::Well }
    })
}

async fn lock_behind_firewalls(forgets_after: Duration) -> Redlock {
    let masters = ["db1", "db2", "db3"].map(|name| behind_a_firewall(name, forgets_after));
    Redlock::builder().tokio_clock_for_tests().masters(masters).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_asks_once_in_five_minutes_is_granted_each_time() {
    let lock = lock_behind_firewalls(60 * S).await;
    for tick in 0..8 {
        sleep(300 * S).await;
        let lease = lock.try_acquire("job").await;
        assert!(matches!(lease, Ok(Some(_))), "{tick}: {lease:?}");
    }
    let connected = lock.stats().masters.iter().map(|it| it.connected).sum::<u64>();
    assert_eq!(connected, 3, "the probes keep the connections");
}

#[tokio::test(start_paused = true)]
async fn where_connections_are_dropped_sooner_than_they_are_probed_a_short_wait_is_enough() {
    let lock = lock_behind_firewalls(5 * S).await;
    for tick in 0..8 {
        sleep(300 * S).await;
        let lease = lock.acquire("job").wait(S).await;
        assert!(lease.is_ok(), "{tick}: {lease:?}");
    }
}
