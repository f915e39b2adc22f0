//! Connections that die with commands in them: a master that executes these commands late must not
//! create a key without an owner.

use redquorum::{AcquireError, Builder, Outcome, Redlock, stats::LinkState};
use redquorum_rig::{Masters, trials::Case};
use tokio::time::{Instant, sleep};

use crate::proxy::{Ill, Proxy};
use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_client_that_does_not_care_leaves_zombies,
        a_set_in_the_socket_of_a_stopped_master_makes_no_zombie,
        a_set_that_arrives_after_the_reconnect_makes_no_zombie,
        where_killing_is_forbidden_a_zombie_lives_for_one_ttl_at_most,
        a_reset_between_the_set_and_its_answer_leaves_no_key,
        a_reset_on_all_masters_is_no_quorum_and_leaves_no_key,
        a_connection_that_swallows_answers_is_replaced_and_paid,
        a_black_holed_connection_is_replaced_and_paid,
    ]
}

/// Three masters, of which the first is behind a proxy.
fn behind(masters: &Masters, proxy: &Proxy) -> Builder {
    let urls = [proxy.url(), masters.url(2), masters.url(3)];
    Redlock::builder().masters(urls).node_timeout(100 * MS)
}

async fn paid(lock: &Redlock) {
    eventually("all is paid", || {
        lock.stats().masters.iter().all(|master| master.owed == 0 && master.state == LinkState::Up)
    })
    .await;
}

/// Control for all other tests: a raw client does the same without killing its old connections.
async fn a_client_that_does_not_care_leaves_zombies() {
    let masters = own(3);
    let proxy = Proxy::start(&masters, 1).await;
    // A SET that lies in the socket of a stopped master.
    masters.pause(1).unwrap();
    let mut client = Raw::connect(masters.port(1));
    client.send("SET stopped zombie NX PX 5000");
    drop(client);
    masters.resume(1).unwrap();
    eventually("a zombie", || holders(&masters, "stopped") == [1]).await;
    // A SET that the network holds back until after the clean-up.
    let mut client = Raw::connect(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG");
    let struck = proxy.strike(Ill::Held);
    client.send("SET held zombie NX PX 5000");
    sleep(10 * MS).await;
    struck.become_worse(Ill::Cut);
    assert!(client.is_cut_off());
    delete(&masters, [1], "held");
    struck.become_worse(Ill::Late);
    eventually("a zombie", || holders(&masters, "held") == [1]).await;
}

async fn a_set_in_the_socket_of_a_stopped_master_makes_no_zombie() {
    let masters = own(3);
    let proxy = Proxy::start(&masters, 1).await;
    let lock = built(behind(&masters, &proxy)).await;
    masters.pause(1).unwrap();
    let before = proxy.passed();
    let lease = lock.acquire("r").await.unwrap();
    eventually("the SET is in its socket", || proxy.passed() > before).await;
    // The client's side breaks, the master does not notice it, and the client reconnects.
    proxy.strike(Ill::Cut);
    eventually("it reconnects", || proxy.accepted() >= 2).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(lock.stats().masters[0].owed, 1);
    masters.resume(1).unwrap();
    paid(&lock).await;
    assert_eq!(keys(&masters, "r"), []);
    sleep(100 * MS).await;
    assert_eq!(keys(&masters, "r"), [], "a zombie");
    assert_eq!(kills(&masters, 1, &lock), 1);
}

/// Makes the network hold back a `SET` of the library, cuts the connection, and delivers the `SET`
/// after the library has reconnected and completed its clean-up.
async fn deliver_a_set_late(masters: &Masters, proxy: &Proxy, lock: &Redlock) {
    let struck = proxy.strike(Ill::Held);
    let before = proxy.passed();
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(proxy.passed(), before, "it is held back");
    struck.become_worse(Ill::Cut);
    paid(lock).await;
    assert_eq!(keys(masters, "r"), []);
    struck.become_worse(Ill::Late);
}

async fn a_set_that_arrives_after_the_reconnect_makes_no_zombie() {
    let masters = own(3);
    let proxy = Proxy::start(&masters, 1).await;
    let lock = built(behind(&masters, &proxy)).await;
    deliver_a_set_late(&masters, &proxy, &lock).await;
    sleep(100 * MS).await;
    assert_eq!(keys(&masters, "r"), [], "a zombie");
    assert_eq!((kills(&masters, 1, &lock), calls(&masters, 1, "set")), (1, 0));
}

async fn where_killing_is_forbidden_a_zombie_lives_for_one_ttl_at_most() {
    let masters = own(3);
    done(&masters, 1, "ACL SETUSER default -client +client|id");
    let proxy = Proxy::start(&masters, 1).await;
    let lock = built(behind(&masters, &proxy).ttl(CALM)).await;
    let struck = proxy.strike(Ill::Held);
    let lease = lock.acquire("r").await.unwrap();
    sleep(10 * MS).await;
    // The cut comes between the SET and its clean-up, which would otherwise arrive late with the
    // SET.
    struck.become_worse(Ill::Cut);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    paid(&lock).await;
    let late = Instant::now();
    struck.become_worse(Ill::Late);
    // This is the documented price, and the control of these tests: they see a zombie.
    eventually("a zombie", || holders(&masters, "r") == [1]).await;
    assert!((1..=1000).contains(&pttl(&masters, 1, "r")));
    // The zombie blocks no client on the other two masters, and does not count as a vote.
    let lease = lock.try_acquire("r").await.unwrap().expect("two masters are free");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    eventually("it expires", || keys(&masters, "r").is_empty()).await;
    assert!(late.elapsed() < CALM + AT_ONCE);
    assert!(lock.stats().masters.iter().all(|master| master.owed == 0));
}

async fn a_reset_between_the_set_and_its_answer_leaves_no_key() {
    let masters = own(3);
    let proxy = Proxy::start(&masters, 1).await;
    let lock = built(behind(&masters, &proxy)).await;
    for round in 1..=10 {
        proxy.strike(Ill::CutAtAnswer);
        let lease = lock.acquire("r").await.unwrap();
        eventually("the SET was executed", || calls(&masters, 1, "set") == round).await;
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        paid(&lock).await;
        assert_eq!(keys(&masters, "r"), [], "round {round}");
    }
    assert!(lock.stats().masters[0].connected >= 11);
}

async fn a_reset_on_all_masters_is_no_quorum_and_leaves_no_key() {
    let masters = own(3);
    let mut proxies = Vec::new();
    for node in 1..=3 {
        proxies.push(Proxy::start(&masters, node).await);
    }
    let urls = proxies.iter().map(Proxy::url);
    let lock = built(Redlock::builder().masters(urls).node_timeout(CALM)).await;
    proxies.iter().for_each(|proxy| drop(proxy.strike(Ill::CutAtAnswer)));
    let (took, error) = timed(lock.try_acquire("r")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(took < AT_ONCE, "{took:?}");
    paid(&lock).await;
    assert_eq!(keys(&masters, "r"), []);
    assert_eq!(calls(&masters, 1, "set"), 1, "there was a key");
    assert!(lock.try_acquire("r").await.unwrap().is_some());
}

async fn a_connection_that_swallows_answers_is_replaced_and_paid() {
    is_replaced_and_paid(Ill::Mute).await;
}

async fn a_black_holed_connection_is_replaced_and_paid() {
    is_replaced_and_paid(Ill::BlackHole).await;
}

async fn is_replaced_and_paid(ill: Ill) {
    let masters = own(3);
    let proxy = Proxy::start(&masters, 1).await;
    let lock = built(behind(&masters, &proxy)).await;
    let warm = lock.acquire("warm").await.unwrap();
    answered(&lock).await;
    proxy.strike(ill);
    let struck = Instant::now();
    assert_eq!(warm.release().await.outcome, Outcome::Released);
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert!(lock.stats().masters[0].owed >= 1);
    assert_eq!(lock.stats().masters[0].connected, 1);
    // Two node timeouts of silence, plus the time to connect.
    paid(&lock).await;
    let took = struck.elapsed();
    assert!(took >= 190 * MS && took < 200 * MS + AT_ONCE, "{took:?}");
    assert_eq!(lock.stats().masters[0].connected, 2);
    assert_eq!(keys(&masters, "*"), []);
    if ill == Ill::Mute {
        assert_eq!(calls(&masters, 1, "set"), 2, "there was a key");
    }
    assert_eq!(kills(&masters, 1, &lock), 1);
    // The master votes again.
    let lease = lock.acquire("r").await.unwrap();
    eventually("all have it", || holders(&masters, "r").len() == 3).await;
    drop(lease);
}
