//! Users without the permissions for queues and wake-ups: a waiter retries, and nothing else is
//! affected.

use std::future::IntoFuture;
use std::time::Duration;

use redquorum::Redlock;
use redquorum_rig::{Masters, trials::Case};
use tokio::time::sleep;

use super::access::{MINIMAL_ACL, with_user, works};
use crate::support::*;
use crate::waking::channels;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_all_permissions_a_release_wakes_the_waiter,
        without_any_of_them_it_is_tried_again_and_again,
    ]
}

/// The permissions that wake-ups need in addition.
const WAKE_UPS: &str = "+hello +subscribe +publish &redquorum:wake:*";

/// The permissions that queues need in addition.
const QUEUES: &str = "+zadd +zrem +zrange +zrevrange +zrangebyscore +zrank +zscore +zcard +exists +time \
                      ~redquorum:queue:lock:* ~redquorum:lapse:lock:*";

/// `resetchannels`: before Redis 7.0 a new user may subscribe to all channels.
fn acl(without: &str) -> String {
    format!("{MINIMAL_ACL} +info +client|id resetchannels {WAKE_UPS} {QUEUES}").replace(without, "")
}

/// The time from the release of one client until a waiting client has its lease.
async fn hand_over(masters: &Masters, lock: &Redlock) -> Duration {
    let url = |node| format!("redis://locker:pw@127.0.0.1:{}", masters.port(node));
    let other = Redlock::builder().urls(all(masters).map(url)).prefix("lock:").node_timeout(CALM);
    let other = built(other.ttl(30 * CALM)).await;
    let lease = lock.acquire("r").ttl(30 * CALM).await.unwrap();
    let request = other.acquire("r").wait(10 * CALM).into_future();
    let waiter = tokio::spawn(async move { request.await.unwrap() });
    sleep(300 * MS).await;
    let (took, lease) = timed(async {
        lease.release().await;
        waiter.await.unwrap()
    })
    .await;
    lease.release().await;
    let left = || other.stats().waiting + other.stats().masters[0].listens;
    eventually("nothing is left of the waiter", || left() == 0).await;
    assert_eq!(other.stats().masters[0].connected, 1, "no connection is given up for it");
    took
}

async fn with_all_permissions_a_release_wakes_the_waiter() {
    let (masters, lock) = with_user(&acl("nothing"), 0).await;
    works(&lock).await.unwrap();
    let took = hand_over(&masters, &lock).await;
    assert!(took < AT_ONCE, "{took:?}");
    assert!(all(&masters).all(|node| calls(&masters, node, "publish") > 0));
    eventually("no connection is subscribed", || channels(&masters) == 0).await;
}

async fn without_any_of_them_it_is_tried_again_and_again() {
    let all = format!("{WAKE_UPS} {QUEUES}");
    for word in all.split(' ').filter(|word| *word != "+hello").chain([WAKE_UPS, QUEUES, &all]) {
        let (masters, lock) = with_user(&acl(&format!(" {word}")), 0).await;
        works(&lock).await.unwrap_or_else(|error| panic!("{word}: {error}"));
        let took = hand_over(&masters, &lock).await;
        // A pause of the policy, or a look.
        assert!(took < 2 * CALM, "{word}: {took:?}");
        works(&lock).await.unwrap_or_else(|error| panic!("{word}: {error}"));
        cleaned(&masters, "lock:*").await;
    }
}
