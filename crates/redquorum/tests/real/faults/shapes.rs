//! Every shape of a lock: one to five masters, Unix sockets, other databases, clients of the
//! `redis` crate; and its statistics.

use std::time::Duration;

use redquorum::{AcquireError, BadOption, BuildError, Outcome, Redlock, stats::LinkState};
use redquorum_rig::{Masters, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        one_to_five_masters_bear_a_minority_of_losses_and_no_more,
        no_masters_are_refused,
        unix_sockets_work,
        databases_are_told_apart,
        clients_of_the_redis_crate_work,
        health_tells_who_is_alive,
        stats_count_what_happened,
        a_lock_leaves_no_connection_open,
    ]
}

async fn one_to_five_masters_bear_a_minority_of_losses_and_no_more() {
    for count in 1..=5 {
        let masters = own(count);
        let lock = built(calm(&masters)).await;
        assert_eq!((lock.masters(), lock.quorum()), (count, count / 2 + 1));
        let spare = count - lock.quorum();
        for dead in 0..=spare {
            if dead > 0 {
                masters.kill(dead).unwrap();
            }
            let lease = lock.acquire("r").await.unwrap();
            assert!(lock.try_acquire("r").await.unwrap().is_none(), "{count}, {dead} dead");
            lease.extend().await.unwrap();
            let released = lease.release().await;
            assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
        }
        masters.kill(spare + 1).unwrap();
        let (took, result) = timed(lock.try_acquire("r")).await;
        let error = result.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{count}: {error}");
        assert!(took < AT_ONCE, "{took:?}");
        let live = spare + 2..=count;
        eventually("nothing is left", || keys_on(&masters, live.clone(), "*").is_empty()).await;
    }
}

async fn no_masters_are_refused() {
    let error = Redlock::builder().build().await.unwrap_err();
    assert_eq!(error, BuildError::Options(BadOption::NoMasters));
}

async fn unix_sockets_work() {
    let masters = Masters::builder().count(3).unix_socket().password("pass word").start().unwrap();
    let urls: Vec<_> = all(&masters).map(|node| masters.socket_url(node).unwrap()).collect();
    let lock =
        built(Redlock::builder().masters(urls).node_timeout(CALM).require_quorum(true)).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3]);
    masters.kill(2).unwrap();
    lease.extend().await.unwrap();
    masters.restart(2).unwrap();
    eventually("it is reconnected", || lock.stats().masters[1].connected == 2).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    cleaned(&masters, "r").await;
    // The same server by another address is still the same server.
    let both = [masters.socket_url(1).unwrap(), masters.url(1), masters.url(3)];
    let lock = built(Redlock::builder().masters(both).node_timeout(CALM)).await;
    let down = |state: &LinkState| matches!(state, LinkState::Down(_));
    assert_eq!(lock.stats().masters.iter().filter(|master| down(&master.state)).count(), 1);
}

async fn databases_are_told_apart() {
    let masters = shared();
    let r = unique("database");
    let in_nine = masters.urls().into_iter().map(|url| format!("{url}/9"));
    let nine = built(Redlock::builder().masters(in_nine).node_timeout(CALM)).await;
    let lease = nine.acquire(&r).await.unwrap();
    answered(&nine).await;
    assert_eq!(keys(masters, &r), [], "not in database 0");
    let zero = built(calm(masters)).await;
    assert!(zero.try_acquire(&r).await.unwrap().is_some(), "two databases are two sets of locks");
    assert!(nine.try_acquire(&r).await.unwrap().is_none());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    let wrong = masters.urls().into_iter().map(|url| format!("{url}/999"));
    let wrong = built(Redlock::builder().masters(wrong).node_timeout(CALM)).await;
    let error = wrong.try_acquire(&r).await.unwrap_err().to_string();
    assert!(
        error.contains("the database was not selected: ERR DB index is out of range"),
        "{error}"
    );
}

async fn clients_of_the_redis_crate_work() {
    let masters = shared();
    let r = unique("clients");
    let clients = masters.urls().into_iter().map(|url| redis::Client::open(url).unwrap());
    let builder = Redlock::builder().node_timeout(CALM);
    let lock = built(clients.fold(builder, |builder, client| builder.master(&client))).await;
    let lease = lock.acquire(&r).await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(masters, &r), [1, 2, 3, 4, 5]);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn health_tells_who_is_alive() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    let (took, health) = timed(lock.health()).await;
    assert_eq!((health.alive, health.quorum, health.has_quorum()), (3, 2, true), "{health}");
    assert!(took < AT_ONCE, "{took:?}");
    masters.pause(3).unwrap();
    let (took, health) = timed(lock.health()).await;
    assert_eq!((health.alive, health.has_quorum()), (2, true), "{health}");
    assert!(took >= 100 * MS && took < 100 * MS + AT_ONCE, "{took:?}");
    masters.kill(2).unwrap();
    let down = |state: &LinkState| matches!(state, LinkState::Down(_));
    eventually("it is noticed", || down(&lock.stats().masters[1].state)).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.has_quorum()), (1, false), "{health}");
    assert!(
        health.to_string().starts_with("1 of 3 masters usable, 1 alive, 2 needed: "),
        "{health}"
    );
    masters.resume(3).unwrap();
    masters.restart(2).unwrap();
    eventually("it recovers", || lock.stats().masters.iter().all(|m| m.state == LinkState::Up))
        .await;
    assert_eq!(lock.health().await.alive, 3);
}

async fn stats_count_what_happened() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    lease.extend().await.unwrap();
    answered(&lock).await;
    let held = lock.stats();
    assert_eq!(held.masters.iter().map(|master| master.owed).sum::<usize>(), 0);
    lease.release().await;
    [1, 2].into_iter().for_each(|node| masters.kill(node).unwrap());
    lock.try_acquire("r").await.unwrap_err();
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.taken, stats.no_quorum, stats.too_late), (1, 1, 1, 0));
    assert_eq!((stats.extended, stats.not_extended, stats.lost, stats.released), (1, 0, 0, 1));
    for (master, node) in held.masters.iter().zip(1..) {
        assert_eq!(*master.name, format!("127.0.0.1:{}", masters.port(node)));
        assert_eq!((master.granted, master.connected), (1, 1), "{master:?}");
        assert!(master.refused >= 1 && master.unknown == 0, "{master:?}");
        let latency = master.latency;
        assert!(latency.count >= 4 && latency.p50 <= latency.p99, "{latency:?}");
        assert!(latency.max > Duration::ZERO && latency.max < 10 * CALM, "{latency:?}");
    }
    assert!(stats.masters[0].unknown >= 1, "{:?}", stats.masters[0]);
}

async fn a_lock_leaves_no_connection_open() {
    let masters = own(1);
    let clients = || {
        let list = masters.ask(1, "CLIENT LIST").unwrap();
        list.text().unwrap().lines().count()
    };
    // The connection of the check itself.
    assert_eq!(clients(), 1);
    for _ in 0..5 {
        let lock = built(calm(&masters)).await;
        let lease = lock.acquire("r").await.unwrap();
        assert_eq!(clients(), 2, "the check sees a connection");
        drop((lock, lease));
        eventually("it is closed", || clients() == 1).await;
    }
    assert_eq!(keys(&masters, "*"), []);
}
