//! Outcomes are different results, and quick ones: taken, no quorum, already gone. Health and
//! statistics show the same.

use redquorum::{
    AcquireError, ExtendError, Outcome, Redlock,
    report::{Holder, MasterOutcome},
    stats::LinkState,
};
use redquorum_rig::RespValue;

use crate::support::*;

tests! {
    both:
        a_refusal_that_stands_does_not_wait_for_hung_masters,
        an_even_split_of_votes_is_decided_at_once,
        a_refused_request_reports_the_holder_of_the_resource,
        health_reports_the_masters_that_are_alive_in_time,
        stats_count_what_happened;
    real:
        a_look_at_the_holder_changes_nothing_on_a_master,
        a_lease_that_keeps_others_out_stays_after_its_release_and_no_longer,
}

async fn a_refusal_that_stands_does_not_wait_for_hung_masters<C: Cluster>() {
    let masters = C::start(5);
    let (lock, other) = (masters.lock().await, masters.lock().await);
    let held = masters.held(&other, "held").await;
    let lease = masters.held(&lock, "lost").await;
    masters.delete(1..=3, "lost");
    masters.each(Stop, [4, 5]);
    assert!(C::at_once(lock.try_acquire("held")).await.unwrap().is_none());
    let error = C::at_once(lease.extend()).await.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone { .. }), "{error}");
    let released = C::at_once(lease.release()).await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    masters.each(Resume, [4, 5]);
    masters.freed("lost").await;
    assert_eq!(held.release().await.outcome, Outcome::Released);
}

async fn an_even_split_of_votes_is_decided_at_once<C: Cluster>() {
    for count in [2, 4] {
        let masters = C::start(count);
        let lock = masters.lock().await;
        masters.put(1..=count / 2, "r");
        assert!(C::at_once(lock.try_acquire("r")).await.unwrap().is_none());
        let error = lock.acquire("r").wait(50 * MS).await.unwrap_err();
        assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
        let planted = || masters.holders("r").into_iter().eq(1..=count / 2);
        eventually("only what was planted is left", planted).await;
    }
}

async fn holders(lock: &Redlock) -> Vec<MasterOutcome> {
    let error = lock.acquire("r").wait(50 * MS).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 2.., .. }), "{error}");
    assert!(error.to_string().starts_with("r: taken by another ("), "{error}");
    assert!(lock.try_acquire("r").await.unwrap().is_none(), "for one attempt it is no error");
    let replies = replies(error.report().unwrap()).into_iter().flatten();
    // A master whose refusal comes after the result was not asked for the holder.
    let late = MasterOutcome::Taken(Holder::NotAsked);
    let replies: Vec<_> = replies.filter(|reply| *reply != late).collect();
    assert!(replies.len() >= 3, "{error}");
    replies
}

async fn a_refused_request_reports_the_holder_of_the_resource<C: Cluster>() {
    let masters = C::start(5);
    let (lock, other) = (masters.lock().await, masters.lock().await);
    let lease = masters.held(&other, "r").await;
    let value = masters.value(1, "r").unwrap();
    for reply in holders(&lock).await {
        let MasterOutcome::Taken(Holder::Lease { token, left_ms: 1..=10_000 }) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!(token.as_bytes(), value);
    }
    let _ = lease.release().await;
    masters.freed("r").await;
    masters.put(1..=5, "r");
    for reply in holders(&lock).await {
        let is_foreign =
            matches!(reply, MasterOutcome::Taken(Holder::Foreign { left_ms: 1..=60_000 }));
        assert!(is_foreign, "{reply:?}");
    }
    masters.all().for_each(|node| masters.set(node, "r", "stranger", None));
    let replies = holders(&lock).await;
    assert!(
        replies.iter().all(|reply| *reply == MasterOutcome::Taken(Holder::NoExpiry)),
        "{replies:?}"
    );
    assert!(Holder::NoExpiry.to_string().contains("a key without TTL, which never expires"));
    assert!(masters.all().all(|node| masters.value(node, "r").unwrap() == b"stranger"));
}

async fn health_reports_the_masters_that_are_alive_in_time<C: Cluster>() {
    let masters = C::start(5);
    let lock = built(masters.brisk()).await;
    let health = C::at_once(lock.health()).await;
    assert_eq!((health.alive, health.quorum, health.has_quorum()), (5, 3, true), "{health}");
    masters.each(Stop, 2..=3);
    let health = C::takes(100 * MS, lock.health()).await;
    assert_eq!((health.alive, health.has_quorum()), (3, true), "{health}");
    masters.each(Kill, [1]);
    eventually("it is noticed", || why_down(&lock, 1).is_some()).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.has_quorum()), (2, false), "{health}");
    let text = health.to_string();
    assert!(text.starts_with("2 of 5 masters usable, 2 alive, 3 needed: "), "{health}");
    // A stalled link is sent no probe.
    let stalled = || lock.stats().masters[1..=2].iter().all(|m| m.state == LinkState::Stalled);
    eventually("the links stall", stalled).await;
    assert_eq!(C::at_once(lock.health()).await.alive, 2);
    masters.each(Restart, [1]);
    masters.each(Resume, 2..=3);
    up(&lock, 5).await;
    assert_eq!(lock.health().await.alive, 5);
}

async fn stats_count_what_happened<C: Cluster>() {
    let masters = C::start(3);
    let lock = masters.lock().await;
    let lease = masters.held(&lock, "r").await;
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    lease.extend().await.unwrap();
    replied(&lock).await;
    let held = lock.stats();
    let _ = lease.release().await;
    masters.each(Kill, [1, 2]);
    lock.try_acquire("r").await.unwrap_err();
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.taken, stats.no_quorum, stats.too_late), (1, 1, 1, 0));
    assert_eq!((stats.extended, stats.not_extended, stats.lost, stats.released), (1, 0, 0, 1));
    for (master, node) in held.masters.iter().zip(1..) {
        assert_eq!(*master.name, masters.name(node));
        assert_eq!(
            (master.granted, master.connected, master.pending_cleanups),
            (1, 1, 0),
            "{master:?}"
        );
        assert!(master.refused >= 1 && master.unknown == 0, "{master:?}");
        let latency = master.latency;
        assert!(latency.count >= 4 && latency.p50 <= latency.p99, "{latency:?}");
        assert!(latency.max < 10 * CALM, "{latency:?}");
    }
    assert!(stats.masters[0].unknown >= 1, "{:?}", stats.masters[0]);
}

async fn a_look_at_the_holder_changes_nothing_on_a_master() {
    let masters = Real::start(3);
    let lock = masters.builder().name("billing-7").build().await.unwrap();
    let reader = lock.acquire("shared").shared().ttl(600 * S).await.unwrap();
    let writer = lock.acquire("alone").ttl(600 * S).await.unwrap();
    replied(&lock).await;
    for node in 1..=3 {
        masters.done(node, "SET foreign theirs PX 600000");
        masters.ask(node, "LPUSH list one two").unwrap();
    }
    let names = ["shared", "alone", "foreign", "list", "free"];
    let reads = ["ZRANGE shared 0 -1 WITHSCORES", "GET alone", "GET foreign", "LRANGE list 0 -1"];
    let state = || {
        let of = |node| {
            let values = reads.map(|read| masters.ask(node, read).unwrap());
            assert!(!values.iter().any(|value| matches!(value, RespValue::Error(_))), "{values:?}");
            (values, names.map(|name| masters.pttl(node, name) > 0))
        };
        (1..=3).map(of).collect::<Vec<_>>()
    };
    let before = state();
    // What an operator sees without this library.
    let RespValue::Bulk(value) = masters.ask(1, "GET alone").unwrap() else { panic!("it is held") };
    assert!(value.ends_with(b"@billing-7"), "{value:?}");
    for (name, holds) in names.iter().zip([true, true, true, true, false]) {
        let held = lock.holder(name).await.unwrap();
        assert_eq!((held.holder().is_some(), held.is_free()), (holds, !holds), "{name}: {held}");
    }
    assert_eq!(state(), before);
    for (name, lease) in [("shared", reader), ("alone", writer)] {
        let held = lock.holder(name).await.unwrap().to_string();
        assert!(held.contains(&lease.token_id()), "{held}, {}", lease.token_id());
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
}

async fn a_lease_that_keeps_others_out_stays_after_its_release_and_no_longer() {
    let masters = Real::start(3);
    let (lock, other) = (masters.lock().await, masters.lock().await);
    let twice = timed(async {
        let lease = lock.acquire("r").at_least(2 * S).ttl(600 * S).await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Left);
        other.acquire("r").wait(60 * S).await.unwrap()
    });
    let (took, next) = twice.await;
    assert!(took >= 2 * S, "{took:?}");
    assert_eq!(next.release().await.outcome, Outcome::Released);
    // The process goes on, so it deletes the keys when the time is over: they would live for ten
    // minutes.
    masters.cleaned().await;
}
