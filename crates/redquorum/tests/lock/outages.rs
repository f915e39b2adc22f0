//! Masters that die, come back or never existed, Unix sockets, and the end of connections.

use std::time::Duration;

use redquorum::{AcquireError, BuildError, Outcome};
use redquorum_rig::Masters;

use crate::support::*;

tests! {
    both:
        a_lock_is_built_while_all_masters_are_down_and_works_when_they_come,
        a_quorum_can_be_required;
    real:
        unix_sockets_work,
        a_lock_leaves_no_connection_open,
}

async fn a_lock_is_built_while_all_masters_are_down_and_works_when_they_come<C: Cluster>() {
    let masters = C::start(3);
    masters.each(Kill, 1..=3);
    let lock = C::at_once(masters.builder().build()).await.unwrap();
    let error = C::at_once(lock.try_acquire("r")).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("not connected: "), "{error}");
    assert_eq!(lock.health().await.alive, 0);
    // A waiter gets its lease as soon as there is a quorum.
    let clone = lock.clone();
    let waiting = tokio::spawn(async move { clone.acquire("r").wait(15 * S).await.map(drop) });
    masters.each(Restart, [1, 3]);
    waiting.await.unwrap().unwrap();
    masters.each(Restart, [2]);
    up(&lock, 3).await;
    assert!(lock.health().await.has_quorum());
    masters.freed("r").await;
}

async fn a_quorum_can_be_required<C: Cluster>() {
    for (dead, silent, fits) in
        [(0, 0, true), (2, 0, true), (3, 0, false), (1, 1, true), (1, 2, false)]
    {
        let masters = C::start(5);
        masters.each(Kill, 1..=dead);
        masters.each(Stop, dead + 1..=dead + silent);
        let builder = masters.brisk().connect_timeout(200 * MS).require_quorum(true);
        let (took, built) = timed(builder.build()).await;
        let bound = if silent > 0 { 300 * MS } else { Duration::ZERO };
        assert!(took <= bound + C::LATE, "{dead} {silent}: {took:?}");
        match built {
            Ok(lock) => assert!(fits && lock.health().await.has_quorum()),
            Err(error @ BuildError::NoQuorum(_)) => {
                let start = format!(
                    "no quorum of masters is reachable: master 1 ({}): not connected",
                    masters.name(1)
                );
                assert!(!fits && error.to_string().starts_with(&start), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn unix_sockets_work() {
    let builder = Masters::builder().count(3).unix_socket().password("pass word");
    let masters = Real::of(builder);
    let url = |node| masters.socket_url(node).unwrap();
    let lock = built(over(masters.all().map(url)).require_quorum(true)).await;
    let lease = masters.held(&lock, "r").await;
    masters.each(Kill, [2]);
    lease.extend().await.unwrap();
    masters.each(Restart, [2]);
    up(&lock, 3).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    masters.cleaned().await;
    // The same server by another address is still the same server, and its error names that.
    let lock = built(over([url(1), masters.url(1), masters.url(3)])).await;
    up(&lock, 2).await;
    masters.each(Kill, [3]);
    up(&lock, 1).await;
    let error = lock.try_acquire("r").await.unwrap_err().to_string();
    assert!(error.contains("one server must not vote twice"), "{error}");
}

async fn a_lock_leaves_no_connection_open() {
    let masters = Real::start(1);
    let clients = || masters.text(1, "CLIENT LIST").lines().count();
    // The connection of the check itself.
    assert_eq!(clients(), 1);
    for _ in 0..5 {
        let lock = masters.lock().await;
        let lease = lock.acquire("r").await.unwrap();
        // On a busy machine a first connection may be given up.
        eventually("the check sees a connection", || clients() == 2).await;
        drop((lock, lease));
        eventually("it is closed", || clients() == 1).await;
    }
    masters.cleaned().await;
}
