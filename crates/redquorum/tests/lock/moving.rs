//! Locks that move from one set of masters to another while their clients run.

use std::time::Duration;

use redquorum::{
    AcquireError, BadOption, BuildError, Builder, Outcome, Redlock,
    report::{Admitted, Fingerprint, MastersId},
};

use crate::support::*;

tests! {
    both:
        a_lease_of_a_move_has_a_quorum_of_both_sets,
        a_move_keeps_out_clients_of_the_old_masters_and_of_the_new_ones,
        a_move_needs_a_quorum_of_each_set_and_says_which_has_none,
        fencing_tokens_grow_across_a_move,
        a_lease_of_a_move_is_lost_where_a_rival_may_have_one_of_the_sets,
        each_step_of_a_move_admits_its_clients_and_refuses_the_others,
        a_lease_of_the_old_masters_ends_at_the_step_that_does_not_admit_it,
        waiters_of_all_steps_get_the_resource,
        a_move_to_the_same_masters_or_half_named_is_refused;
}

const TTL: Duration = Duration::from_secs(2);
const MARKER: &str = "redquorum:boot";

/// Five masters. The lock moves from the first three to the last three.
const FROM: [usize; 3] = [1, 2, 3];
const TO: [usize; 3] = [3, 4, 5];

async fn old(masters: &impl Cluster) -> Redlock {
    built(masters.over(&FROM)).await
}

async fn moving(masters: &impl Cluster) -> Redlock {
    built(masters.moving(masters.over(&FROM), &TO)).await
}

async fn new(masters: &impl Cluster) -> Redlock {
    built(masters.over(&TO)).await
}

async fn taken(lock: &Redlock) {
    match lock.acquire("r").wait(Duration::ZERO).await {
        Err(AcquireError::Taken { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is granted twice"),
    }
}

async fn a_lease_of_a_move_has_a_quorum_of_both_sets<C: Cluster>() {
    let masters = C::start(5);
    let lock = moving(&masters).await;
    assert_eq!((lock.masters(), lock.quorum()), (5, 3));
    assert!(lock.health().await.has_quorum());
    let lease = masters.held(&lock, "r").await;
    assert!(lease.extend().await.is_ok());
    let held = lock.holder("r").await.unwrap();
    assert!(held.holder().is_some() && !held.is_free(), "{held}");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    masters.freed("r").await;
    assert!(lock.holder("r").await.unwrap().is_free());
}

async fn a_move_keeps_out_clients_of_the_old_masters_and_of_the_new_ones<C: Cluster>() {
    let masters = C::start(5);
    let locks = [old(&masters).await, moving(&masters).await, new(&masters).await];
    // Each beside each other, but the old beside the new, which share too few masters.
    for (first, second) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let lease = locks[first].acquire("r").await.unwrap();
        taken(&locks[second]).await;
        let held = locks[1].holder("r").await.unwrap();
        assert!(held.holder().is_some(), "{held}");
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        masters.freed("r").await;
    }
    // And those two do not exclude each other: this is why no step admits both.
    masters.put([3], "r");
    let one = locks[0].acquire("r").wait(Duration::ZERO).await.unwrap();
    let other = locks[2].acquire("r").wait(Duration::ZERO).await.unwrap();
    drop((one, other));
}

async fn a_move_needs_a_quorum_of_each_set_and_says_which_has_none<C: Cluster>() {
    let masters = C::start(5);
    let lock = moving(&masters).await;
    for (dead, set) in [
        ([1, 2], "of the masters that the lock moves from"),
        ([4, 5], "of the masters that the lock moves to"),
        ([2, 3], ""),
    ] {
        masters.each(Kill, dead);
        let text = match lock.acquire("r").wait(Duration::ZERO).await {
            Err(error @ AcquireError::NoQuorum { .. }) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("granted without {dead:?}"),
        };
        assert!(text.contains("too few masters answered") && text.contains(set), "{text}");
        assert!(!lock.health().await.has_quorum());
        masters.each(Restart, dead);
        eventually("they are connected", || (1..=5).all(|node| why_down(&lock, node).is_none()))
            .await;
        let lease = lock.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    // One master of each set may fail.
    masters.each(Kill, [1, 5]);
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.margin(), 1);
}

async fn fencing_tokens_grow_across_a_move<C: Cluster>() {
    let masters = C::start(5);
    let locks = [old(&masters).await, moving(&masters).await, new(&masters).await];
    let mut last = 0;
    // There and back, and each several times.
    for step in [0, 0, 1, 0, 1, 1, 2, 1, 2, 2, 1, 0] {
        // A counter that is far ahead.
        if step == 1 && last > 0 {
            masters.set(4, "redquorum:fence:r", &(last + 1_000_000).to_string(), None);
        }
        let lease = locks[step].acquire("r").fenced().await.unwrap();
        let token = lease.fencing_token().unwrap();
        assert!(token > last, "{token} of step {step} behind {last}");
        last = token;
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        masters.freed("r").await;
    }
}

async fn a_lease_of_a_move_is_lost_where_a_rival_may_have_one_of_the_sets<C: Cluster>() {
    let masters = C::start(5);
    let lock = moving(&masters).await;
    let lease = masters.held(&lock, "r").await;
    // A quorum of the new masters forgets the key, and not even a quorum of all.
    masters.delete([4, 5], "r");
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, redquorum::ExtendError::QuorumGone { .. }), "{error}");
}

fn guarded(builder: Builder) -> Builder {
    builder.ttl(TTL).restart_guard(TTL).masters_id("a")
}

/// Takes all masters to a step of the move from "a" to "b".
fn step<C: Cluster>(masters: &C, step: usize) {
    let [from, to] = ["a", "b"].map(Fingerprint::of_name);
    for node in masters.all() {
        let marker = String::from_utf8(masters.value(node, MARKER).unwrap()).unwrap();
        let at = marker.find("masters=").unwrap();
        let admitted = Admitted::at_step(step, from, to);
        masters.set(node, MARKER, &format!("{}masters={admitted}", &marker[..at]), None);
    }
}

/// Locks of all steps, with a guard, over masters whose markers are those of clients that move.
async fn marked<C: Cluster>(masters: &C) -> [Redlock; 3] {
    let moving = masters.moving(guarded(masters.over(&FROM)), &TO).moving_to_id("b");
    let locks = [
        built(guarded(masters.over(&FROM))).await,
        built(moving).await,
        built(guarded(masters.over(&TO)).masters_id("b")).await,
    ];
    locks[1].initialize_masters().await;
    locks
}

async fn each_step_of_a_move_admits_its_clients_and_refuses_the_others<C: Cluster>() {
    let masters = C::start(5);
    let locks = marked(&masters).await;
    let admitted = [0..=1, 1..=3, 3..=4];
    for at in [0, 1, 2, 3, 4, 3, 2, 1, 0] {
        step(&masters, at);
        for (lock, admitted) in locks.iter().zip(&admitted) {
            // A client that a step admits does not even lose a vote by it. A client that was
            // refused looks at the masters each second.
            let tries = if admitted.contains(&at) { 2 } else { 1 };
            let mut result = lock.acquire("r").wait(Duration::ZERO).await;
            for _ in 1..tries {
                if result.is_err() {
                    tokio::time::sleep(Duration::from_millis(1_100)).await;
                    result = lock.acquire("r").wait(Duration::ZERO).await;
                }
            }
            match result {
                Ok(lease) => {
                    assert!(admitted.contains(&at), "step {at}");
                    assert_eq!(lease.release().await.outcome, Outcome::Released);
                    masters.freed("r").await;
                }
                Err(error) => {
                    assert!(!admitted.contains(&at), "step {at}: {error}");
                    assert!(error.to_string().contains("no quorum: "), "{error}");
                }
            }
        }
    }
    step(&masters, 0);
    let error = locks[1].acquire("r").wait(Duration::ZERO).await.unwrap_err().to_string();
    assert!(
        error.contains("the move has not begun there: run `redquorum masters begin`"),
        "{error}"
    );
}

async fn a_lease_of_the_old_masters_ends_at_the_step_that_does_not_admit_it<C: Cluster>() {
    let masters = C::start(5);
    let locks = marked(&masters).await;
    step(&masters, 1);
    let lease = locks[0].acquire("r").await.unwrap();
    assert!(lease.extend().await.is_ok());
    step(&masters, 2);
    let error = lease.extend().await.unwrap_err().to_string();
    let words = [&*MastersId::Of(Fingerprint::of_name("a")).to_string(), "`moving_to`"];
    words.iter().for_each(|word| assert!(error.contains(word), "{word}: {error}"));
    lease.lost().await;
    // Then a client that moves gets it, and may keep it for as long as it likes.
    let lease = locks[1].acquire("r").await.unwrap();
    for at in [3, 2, 3] {
        step(&masters, at);
        assert!(lease.extend().await.is_ok());
    }
}

async fn waiters_of_all_steps_get_the_resource<C: Cluster>() {
    let masters = C::start(5);
    let [moving, new] = [moving(&masters).await, new(&masters).await];
    for (first, second) in [(&moving, &new), (&new, &moving)] {
        let lease = first.acquire("r").await.unwrap();
        let waits = second.acquire("r").wait(Duration::from_secs(20));
        let holds = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            lease.release().await
        };
        let (got, released) = tokio::join!(waits, holds);
        assert_eq!(released.outcome, Outcome::Released);
        assert_eq!(got.unwrap().release().await.outcome, Outcome::Released);
        masters.freed("r").await;
    }
}

async fn a_move_to_the_same_masters_or_half_named_is_refused<C: Cluster>() {
    let masters = C::start(3);
    let to = |to: &[usize]| masters.moving(masters.over(&[1, 2]), to);
    for (builder, wanted) in [
        (to(&[2, 1]), BadOption::MovesToItself),
        (to(&[2, 3]).masters_id("a"), BadOption::MoveHalfNamed),
        (to(&[2, 3]).moving_to_id("b"), BadOption::MoveHalfNamed),
    ] {
        match builder.build().await {
            Err(BuildError::Options(error)) => assert_eq!(error, wanted),
            other => panic!("{other:?}"),
        }
    }
    match to(&[3, 2, 3]).build().await {
        Err(BuildError::Duplicate { first, second, .. }) => assert_eq!((first, second), (3, 5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(built(to(&[])).await.masters(), 2);
}
