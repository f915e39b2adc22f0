//! Different outcomes are different results, and quick ones: taken, no quorum, already gone,
//! duplicate server.

use redquorum::{
    AcquireError, BuildError, Outcome, Redlock,
    report::{Cause, Holder, MasterOutcome},
    stats::LinkState,
};
use redquorum_rig::trials::Case;
use tokio::time::sleep;

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        taken_names_who_holds_it_on_each_master,
        no_quorum_names_what_is_wrong_with_each_master,
        releasing_an_expired_lease_is_a_quick_answer_and_no_error,
        releasing_without_a_quorum_is_an_answer_after_one_node_timeout,
        one_server_under_two_names_counts_once,
        one_server_under_one_name_is_refused,
    ]
}

async fn taken_names_who_holds_it_on_each_master() {
    let masters = shared();
    let (lock, other) = (built(calm(masters)).await, built(calm(masters)).await);
    let r = unique("taken");
    let lease = other.acquire(&r).await.unwrap();
    eventually("all have it", || holders(masters, &r).len() == 5).await;
    let (took, error) = timed(lock.acquire(&r).wait(100 * MS)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 2.., .. }), "{error}");
    assert!(took >= 100 * MS && took < 100 * MS + AT_ONCE, "{took:?}");
    let said = answers(error.report().unwrap());
    let named = said
        .iter()
        .filter(|answer| {
            matches!(answer, Some(MasterOutcome::Taken(Holder::Lease { left_ms: 1..=10_000, .. })))
        })
        .count();
    assert!(named >= 3, "{error}");
    assert!(error.to_string().starts_with("taken by another ("), "{error}");
    assert!(lock.try_acquire(&r).await.unwrap().is_none(), "and for one attempt it is no error");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn no_quorum_names_what_is_wrong_with_each_master() {
    let masters = own(5);
    let lock = built(brisk(&masters)).await;
    masters.kill(1).unwrap();
    masters.pause(2).unwrap();
    done(&masters, 3, "CONFIG SET maxmemory 1");
    let down = |state: &LinkState| matches!(state, LinkState::Down(_));
    eventually("it is noticed", || down(&lock.stats().masters[0].state)).await;
    let error = lock.acquire("r").wait(1 * MS).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let said = answers(error.report().unwrap());
    assert!(matches!(&said[0], Some(MasterOutcome::Unknown(Cause::Down(_)))), "{error}");
    assert!(
        matches!(&said[1], Some(MasterOutcome::Unknown(Cause::Silent | Cause::Stalled))),
        "{error}"
    );
    let Some(MasterOutcome::Unknown(Cause::Error(text))) = &said[2] else { panic!("{error}") };
    assert!(text.starts_with("OOM"), "{text}");
    let text = error.to_string();
    for (number, part) in [(1, "not connected: "), (2, "no answer"), (3, "OOM"), (4, "granted")] {
        let name = format!("master {number} (127.0.0.1:{}): ", masters.port(number));
        let said = text.split("; ").find(|said| said.contains(&name)).unwrap_or_default();
        assert!(said.contains(part), "{number} {part}: {text}");
    }
    masters.resume(2).unwrap();
}

async fn releasing_an_expired_lease_is_a_quick_answer_and_no_error() {
    let masters = shared();
    let lock = built(calm(masters).ttl(3 * CALM / 2)).await;
    let lease = lock.acquire(unique("expired")).await.unwrap();
    // The keys have expired on the masters too.
    lease.lost().await;
    sleep(100 * MS).await;
    let (took, released) = timed(lease.release()).await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    assert!(took < AT_ONCE, "{took:?}");
}

async fn releasing_without_a_quorum_is_an_answer_after_one_node_timeout() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    let (took, released) = timed(lease.release()).await;
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    assert!(took >= 100 * MS && took < 100 * MS + AT_ONCE, "{took:?}");
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    cleaned(&masters, "r").await;
}

async fn one_server_under_two_names_counts_once() {
    let masters = own(2);
    let twin = format!("redis://localhost:{}", masters.port(1));
    let urls = [masters.url(1), twin, masters.url(2)];
    let lock = Redlock::builder().masters(urls).node_timeout(CALM).build().await.unwrap();
    let refused = |lock: &Redlock| {
        let states: Vec<_> = lock.stats().masters.into_iter().map(|master| master.state).collect();
        states.into_iter().filter(|state| matches!(state, LinkState::Down(_))).count()
    };
    assert_eq!(refused(&lock), 1, "{:?}", lock.stats().masters);
    assert!(lock.try_acquire("r").await.unwrap().is_some(), "two masters are a quorum of three");
    masters.kill(2).unwrap();
    eventually("it is noticed", || refused(&lock) == 2).await;
    let error = lock.try_acquire("r").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "one server has voted twice: {error}");
    assert!(error.to_string().contains("one server must not vote twice"), "{error}");
}

async fn one_server_under_one_name_is_refused() {
    let masters = shared();
    let port = masters.port(1);
    let again = [
        masters.url(1),
        format!("redis://127.0.0.1:{port}/7"),
        format!("redis://user:password@127.0.0.1:{port}"),
        format!("valkey://127.0.0.1:{port}"),
    ];
    for url in again {
        let urls = [masters.url(1), masters.url(2), url];
        let error = Redlock::builder().masters(urls).build().await.unwrap_err();
        let BuildError::Duplicate { first: 1, second: 3, name } = &error else { panic!("{error}") };
        assert_eq!(*name, format!("127.0.0.1:{port}"));
        assert!(error.to_string().contains("give each master once"), "{error}");
    }
}
