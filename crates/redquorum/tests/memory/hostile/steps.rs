//! Peers that cannot take an optional step: a proxy that hangs up at a command that it does not
//! know, or garbles or swallows its reply, and a master that is busy. Waiters poll then. The step
//! costs no lease, and no other request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use redquorum::{Outcome, Redlock};
use tokio::time::sleep;

use super::scripted::{Args, Reaction, Scripted};
use crate::support::{MS, S};

/// Two locks over three masters that ask `script` about each command.
async fn built(
    script: impl Fn(&Args<'_>) -> Reaction + Clone + Send + Sync + 'static,
) -> [Redlock; 2] {
    let masters = [1, 2, 3].map(|number| {
        let script = script.clone();
        Scripted::new(&format!("proxy-{number}"), move |args| args.map_or(Reaction::Well, &script))
    });
    let build = async |masters| {
        let builder = Redlock::builder().tokio_clock_for_tests();
        builder.masters(masters).build().await.unwrap()
    };
    [build(masters.clone()).await, build(masters).await]
}

/// The map that Redis replies to `HELLO 3`.
fn agrees() -> Reaction {
    Reaction::Bytes(b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec())
}

/// A task waits for a resource that another process holds, and its lock serves others all the same.
async fn serves([lock, other]: [Redlock; 2], what: &str) {
    let kept = lock.acquire("kept").await.unwrap();
    kept.keep_alive(60 * S);
    let held = other.acquire("held").await.unwrap();
    held.keep_alive(60 * S);
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire("held").wait(20 * S).await }
    });
    let mut granted = 0;
    for number in 0..200 {
        sleep(20 * MS).await;
        if let Ok(lease) = lock.acquire(format!("other-{number}")).wait(S).await {
            granted += usize::from(lease.release().await.outcome == Outcome::Released);
        }
    }
    assert!(granted >= 198, "{what}: {granted} of 200");
    sleep(10 * S).await;
    assert!(!kept.is_lost(), "{what}: the lease of another task");
    let _ = held.release().await;
    let lease = waiter.await.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
    let _ = lease.release().await;
    let connected = lock.stats().masters.into_iter().map(|master| master.connected);
    assert_eq!(connected.collect::<Vec<_>>(), [4; 3], "{what}: three connections broke");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_cannot_take_a_step_costs_no_lease_and_no_request() {
    for (what, reaction) in [
        ("it hangs up", Reaction::Last(Vec::new())),
        ("it sends garbage", Reaction::line("?what")),
        ("it is silent", Reaction::Swallow),
    ] {
        let reacts = reaction.clone();
        let lock = built(move |args| match args {
            [b"HELLO", ..] => reacts.clone(),
            _ => Reaction::Well,
        });
        serves(lock.await, &format!("HELLO: {what}")).await;
        let lock = built(move |args| match args {
            [b"HELLO", ..] => agrees(),
            [b"SUBSCRIBE", ..] => reaction.clone(),
            _ => Reaction::Well,
        });
        serves(lock.await, &format!("SUBSCRIBE: {what}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_was_busy_wakes_waiters_later() {
    let (busy, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_busy, counts) = (busy.clone(), asked.clone());
    let [lock, other] = built(move |args| match args {
        [b"HELLO", ..] => agrees(),
        [b"SUBSCRIBE", ..] if is_busy.load(Relaxed) => Reaction::line("-BUSY a script runs"),
        [b"SUBSCRIBE", channel] => {
            counts.fetch_add(1, Relaxed);
            let channel = String::from_utf8_lossy(channel);
            let (kind, len) = (">3\r\n$9\r\nsubscribe", channel.len());
            Reaction::line(&format!("{kind}\r\n${len}\r\n{channel}\r\n:1"))
        }
        _ => Reaction::Well,
    })
    .await;
    let held = other.acquire("r").await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire("r").wait(60 * S).await }
    });
    sleep(500 * MS).await;
    busy.store(false, Relaxed);
    sleep(3 * S).await;
    assert_eq!(asked.load(Relaxed), 3, "subscribed on the connections that are open");
    assert!(lock.stats().masters.iter().all(|it| it.connected == 1));
    let _ = held.release().await;
    let _ = waiter.await.unwrap().unwrap().release().await;
}

/// A `BUSY` between two segments of a handshake is no reason to go without what the command gives.
#[tokio::test(start_paused = true)]
async fn a_master_that_is_busy_in_the_handshake_is_dialled_again() {
    for command in ["CLIENT", "INFO", "SCRIPT"] {
        let once = Arc::new(AtomicUsize::new(0));
        let [lock, _] = built(move |args| {
            let is_first = args[0] == command.as_bytes() && once.fetch_add(1, Relaxed) < 3;
            if is_first { Reaction::line("-BUSY a script runs") } else { Reaction::Well }
        })
        .await;
        sleep(3 * S).await;
        assert_eq!(lock.health().await.usable, 3, "{command}");
        let lease = lock.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    // One server under three names is found out by its run id.
    let (busy, info) = (Arc::new(AtomicBool::new(true)), "run_id:same\r\n");
    let is_busy = busy.clone();
    let [lock, _] = built(move |args| match args {
        [b"INFO", ..] if is_busy.load(Relaxed) => Reaction::line("-BUSY a script runs"),
        [b"INFO", ..] => Reaction::line(&format!("${}\r\n{info}", info.len())),
        _ => Reaction::Well,
    })
    .await;
    assert_eq!(lock.health().await.usable, 0);
    busy.store(false, Relaxed);
    sleep(3 * S).await;
    assert_eq!(lock.health().await.usable, 1, "one server votes once");
}
