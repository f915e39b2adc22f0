//! Passwords and ACLs: which permissions are needed, and which error names a missing one.

use std::future::IntoFuture;
use std::time::Duration;

use redquorum::{AcquireError, Builder, Outcome, Redlock};
use redquorum_rig::{Masters, RespValue};
use tokio::time::sleep;

use crate::support::*;
use crate::waking::channels;

tests! {
    real:
        a_password_that_is_given_opens_the_masters,
        a_missing_or_wrong_password_is_named_by_every_master,
        the_minimal_acl_is_enough_for_everything,
        a_command_that_is_forbidden_is_named_by_its_master,
        the_optional_permissions_are_optional,
        a_missing_permission_is_denied_once_on_a_connection,
        a_waiter_is_woken_and_without_a_permission_for_it_tries_again_and_again,
        where_queues_are_forbidden_fair_leases_are_granted_and_released,
}

/// The least permissions of a lock, with the keys of its prefix.
const MINIMAL_ACL: &str =
    "resetkeys ~lock:* -@all +set +get +del +pttl +pexpire +evalsha +script|load";

/// Also needed: for all results of `health()`, to detect two addresses of one server, to kill its
/// old connections, for their name in `CLIENT LIST`, and for a database other than 0.
const FULL_ACL: &str = "~redquorum:probe +info +client|id +client|kill +client|setname +select";

/// The permissions that wake-ups need in addition.
const WAKE_UPS: &str = "+hello +subscribe +publish &redquorum:wake:*";

/// The permissions that queues need in addition.
const QUEUES: &str = "+zadd +zrem +zrange +zrevrange +zrangebyscore +zrank +zscore +zcard +zcount \
                      +exists +time ~redquorum:queue:lock:* ~redquorum:readers:lock:* \
                      ~redquorum:lapse:lock:*";

const PASSWORD: &str = "hunter2 & more";

const ENCODED: &str = "hunter2%20%26%20more";

fn with_password() -> Real {
    Real::of(Masters::builder().count(3).password(PASSWORD))
}

async fn a_password_that_is_given_opens_the_masters() {
    let masters = with_password();
    let with_user = masters.urls().into_iter().map(|url| url.replace("://:", "://default:"));
    let clients = masters.urls().into_iter().map(|url| redis::Client::open(url).unwrap());
    let add = |builder: Builder, client| builder.master(&client);
    let clients = clients.fold(Redlock::builder().node_timeout(CALM), add);
    for builder in [masters.builder(), over(with_user), clients] {
        let lock = built(builder.require_quorum(true)).await;
        let lease = lock.acquire("r").await.unwrap();
        lease.extend().await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    masters.cleaned().await;
}

async fn a_missing_or_wrong_password_is_named_by_every_master() {
    let masters = with_password();
    let urls = masters.all().map(|node| format!("redis://127.0.0.1:{}", masters.port(node)));
    let lock = built(over(urls)).await;
    let error = Real::at_once(lock.try_acquire("r")).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert_eq!(error.to_string().matches("a password is needed: NOAUTH").count(), 3, "{error}");
    assert!(why_down(&lock, 1).unwrap().contains("NOAUTH"));
    // A wrong password, and the right one for another user.
    for (part, wrong) in [(ENCODED, "hunter3"), ("://:", "://stranger:")] {
        let urls = masters.urls().into_iter().map(|url| url.replace(part, wrong));
        let error = over(urls).require_quorum(true).build().await.unwrap_err().to_string();
        assert_eq!(error.matches("wrong user or password: WRONGPASS").count(), 3, "{error}");
        assert!(error.starts_with("no quorum of masters is reachable: "), "{error}");
        assert!(!error.contains("hunter"), "{error}");
    }
}

async fn with_user(acl: &str, database: u32) -> (Real, Redlock) {
    let masters = Real::start(3);
    let lock = built(masters.user(acl, database).prefix("lock:").ttl(5 * S)).await;
    (masters, lock)
}

/// Uses every kind of command on keys, and returns whether all of them worked.
async fn works(lock: &Redlock) -> Result<(), String> {
    let lease = lock.acquire("r").wait(Duration::ZERO).await.map_err(|error| error.to_string())?;
    let rival = lock.try_acquire("r").await.map_err(|error| error.to_string())?;
    assert!(rival.is_none());
    lease.extend_to(10 * S).await.map_err(|error| error.to_string())?;
    let released = lease.release().await;
    if released.outcome == Outcome::Released { Ok(()) } else { Err(released.report.to_string()) }
}

async fn the_minimal_acl_is_enough_for_everything() {
    let (masters, lock) = with_user(MINIMAL_ACL, 0).await;
    works(&lock).await.unwrap();
    masters.cleaned().await;
    let outside = built(masters.user(MINIMAL_ACL, 0)).await;
    let error = outside.try_acquire("r").await.unwrap_err().to_string();
    assert!(error.contains("NOPERM"), "keys outside of the prefix are out of reach: {error}");
    assert!(error.contains("`Builder::prefix`"), "{error}");
    let (_masters, lock) = with_user(&format!("{MINIMAL_ACL} {FULL_ACL}"), 3).await;
    works(&lock).await.unwrap();
    assert_eq!(lock.health().await.alive, 3);
}

async fn a_command_that_is_forbidden_is_named_by_its_master() {
    // Each permission is needed, so the minimal list is minimal.
    let needed = MINIMAL_ACL.split(' ').filter(|word| word.starts_with('+'));
    for word in needed {
        let (_masters, lock) = with_user(&MINIMAL_ACL.replace(&format!(" {word}"), ""), 0).await;
        let error = works(&lock).await.expect_err(word);
        // The texts of the servers: `known_errors` of the protocol.
        let wordings = ["no permissions to run", "can't run this command"];
        assert!(wordings.iter().any(|wording| error.contains(wording)), "{word}: {error}");
    }
}

async fn the_optional_permissions_are_optional() {
    let (_masters, lock) = with_user(MINIMAL_ACL, 0).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable), (3, 3), "without the key of the probe: {health}");
    let (_masters, lock) = with_user(MINIMAL_ACL, 2).await;
    let why = why_down(&lock, 1).unwrap();
    assert!(why.starts_with("the database was not selected: NOPERM"), "{why}");
}

/// How often masters have denied a command or a key: the sum of the counts in their logs.
fn denials(masters: &Real) -> i64 {
    let count = |entry: &RespValue| match entry {
        RespValue::Array(fields) => match fields[..] {
            [_, RespValue::Integer(count), ..] => count,
            _ => panic!("no count in {fields:?}"),
        },
        other => panic!("no entry: {other:?}"),
    };
    let of = |node| match masters.ask(node, "ACL LOG 100") {
        Ok(RespValue::Array(entries)) => entries.iter().map(count).sum::<i64>(),
        other => panic!("the log of master {node}: {other:?}"),
    };
    masters.all().map(of).sum()
}

async fn a_missing_permission_is_denied_once_on_a_connection() {
    for (acl, fair) in [
        (MINIMAL_ACL.to_owned(), false),
        (MINIMAL_ACL.to_owned(), true),
        // Nobody but the releases publishes.
        (
            format!("{MINIMAL_ACL} resetchannels +hello +subscribe &redquorum:wake:* {QUEUES}"),
            false,
        ),
    ] {
        let masters = Real::start(3);
        let build = || built(masters.user(&acl, 0).prefix("lock:").ttl(30 * S).fair(fair));
        let [lock, other] = [build().await, build().await];
        let publishes = acl.contains("subscribe");
        let pair = async |number: u32| {
            let lease = lock.acquire("r").await.unwrap();
            let waiter =
                publishes.then(|| tokio::spawn(other.acquire("r").wait(10 * S).into_future()));
            if publishes {
                sleep(200 * MS).await;
            }
            assert_eq!(lease.release().await.outcome, Outcome::Released, "{number}");
            if let Some(waiter) = waiter {
                let _ = waiter.await.unwrap().unwrap().release().await;
            }
        };
        let before = denials(&masters);
        pair(0).await;
        masters.cleaned().await;
        let learned = denials(&masters);
        assert!(learned > before, "it was not denied: {acl}");
        for number in 1..=if publishes { 3 } else { 50 } {
            pair(number).await;
        }
        masters.cleaned().await;
        // The other client learns it, too.
        assert!(denials(&masters) <= learned + 3, "{} after {learned}: {acl}", denials(&masters));
    }
}

/// All permissions but one. `resetchannels`: before Redis 7.0 a new user may subscribe to all
/// channels.
async fn waiting(without: &str) -> (Real, Redlock) {
    let acl = format!("{MINIMAL_ACL} +info +client|id resetchannels {WAKE_UPS} {QUEUES}");
    with_user(&acl.replace(without, ""), 0).await
}

/// The time from the release of one client until a waiting client has its lease.
async fn hand_over(masters: &Real, lock: &Redlock, without: &str) -> Duration {
    works(lock).await.unwrap_or_else(|error| panic!("{without}: {error}"));
    let urls =
        masters.all().map(|node| format!("redis://locker:pw@127.0.0.1:{}", masters.port(node)));
    let other = built(over(urls).prefix("lock:").ttl(30 * S)).await;
    let lease = lock.acquire("r").ttl(30 * S).await.unwrap();
    let waiter = tokio::spawn(other.acquire("r").wait(10 * S).into_future());
    sleep(300 * MS).await;
    let (took, lease) = timed(async {
        let _ = lease.release().await;
        waiter.await.unwrap().unwrap()
    })
    .await;
    let _ = lease.release().await;
    let left = || other.stats().waiting + other.stats().masters[0].subscriptions;
    eventually("nothing is left of the waiter", || left() == 0).await;
    assert_eq!(other.stats().masters[0].connected, 1, "no connection is given up for it");
    works(lock).await.unwrap_or_else(|error| panic!("{without}: {error}"));
    took
}

async fn a_waiter_is_woken_and_without_a_permission_for_it_tries_again_and_again() {
    let all = format!("{WAKE_UPS} {QUEUES}");
    let words = all.split(' ').filter(|word| *word != "+hello").chain([WAKE_UPS, QUEUES, &all]);
    for word in words.chain(["nothing"]) {
        let (masters, lock) = waiting(&format!(" {word}")).await;
        let took = hand_over(&masters, &lock, word).await;
        // Without the permission, a pause of the policy, or a look.
        let bound = if word == "nothing" { AT_ONCE } else { 2 * S };
        assert!(took < bound, "{word}: {took:?}");
        eventually("no key is left", || masters.matching(1, "lock:*").is_empty()).await;
        eventually("no connection is subscribed", || channels(&masters) == 0).await;
    }
}

async fn where_queues_are_forbidden_fair_leases_are_granted_and_released() {
    // Without the keys of the queue; then with its keys, but without the commands of its script.
    let keys = "~redquorum:queue:* ~redquorum:lapse:*";
    for acl in [MINIMAL_ACL, &format!("{MINIMAL_ACL} {keys}")] {
        let masters = Real::start(3);
        let fair = || masters.user(acl, 0).prefix("lock:").fair(true);
        let [one, two] = [built(fair()).await, built(fair()).await];
        let lease = one.acquire("r").await.unwrap();
        let waiter = tokio::spawn(two.acquire("r").wait(S).into_future());
        sleep(50 * MS).await;
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        assert_eq!(waiter.await.unwrap().unwrap().release().await.outcome, Outcome::Released);
        masters.cleaned().await;
    }
}
