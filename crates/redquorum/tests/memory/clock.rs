//! Masters whose clocks step ahead, under a lock with a clock guard.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    AcquireError, BadOption, BuildError, Builder, Redlock,
    report::{Cause, Distrust},
};
use tokio::time::sleep;

use crate::support::{MS, S, TTL, VALIDITY, settle, take};

const BOUND: Duration = Duration::from_millis(500);
/// `max_ttl` + drift.
const WINDOW: Duration = Duration::from_millis(10_000 + 102);

fn watching(masters: &Masters) -> Builder {
    masters.builder().restart_guard(TTL).clock_guard(BOUND)
}

async fn built(builder: Builder) -> Redlock {
    let lock = builder.build().await.unwrap();
    // Waits for the replies to the first looks.
    settle().await;
    lock
}

/// Masters with boot markers, and two locks that have watched them for long enough.
async fn bed() -> (Masters, Redlock, Redlock) {
    let masters = Masters::new(3);
    let holder = built(watching(&masters)).await;
    holder.initialize_masters().await;
    let rival = built(watching(&masters)).await;
    sleep(3 * WINDOW).await;
    (masters, holder, rival)
}

fn distrust(lock: &Redlock, number: usize) -> Option<Distrust> {
    match lock.stats().masters[number - 1].distrusted.clone() {
        Some(Cause::Distrusted { why, .. }) => Some(why),
        Some(other) => panic!("{other}"),
        None => None,
    }
}

/// A lease that masters 1 and 2 have granted, and master 3 has not. Master 3 is up again.
async fn bare(masters: &Masters, lock: &Redlock) -> redquorum::Lease {
    masters.kill(3);
    let lease = take(lock, "r").await;
    masters.revive(3);
    sleep(2 * S).await;
    lease
}

#[tokio::test(start_paused = true)]
async fn a_rival_that_watches_does_not_count_the_grant_of_a_master_that_stepped() {
    let (masters, holder, rival) = bed().await;
    let lease = bare(&masters, &holder).await;
    masters.step_clock(1, TTL);
    assert!(masters.value(1, "r").is_none(), "it dropped the key");
    assert!(rival.try_acquire("r").await.unwrap().is_none());
    let why = distrust(&rival, 1);
    assert!(
        matches!(why, Some(Distrust::ClockStepped { by }) if by > TTL - MS && by <= TTL),
        "{why:?}"
    );
    assert!(lease.is_lost().is_none());
    // The key of the attempt is gone, and a distrusted master gets no new one.
    settle().await;
    assert!(masters.value(1, "r").is_none());
    assert!(rival.try_acquire("r").await.unwrap().is_none());
    masters.kill(2);
    let error = rival.try_acquire("s").await.unwrap_err();
    let text = error.to_string();
    for part in ["distrusted for another 10.1s", "its clock stepped ahead by 10.0s"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    masters.revive(2);
    drop(lease);
    sleep(WINDOW).await;
    assert_eq!(distrust(&rival, 1), None);
    take(&rival, "r").await.release().await;
    let of = |number: usize| rival.stats().masters[number - 1].clone();
    assert!(of(1).granted >= 1 && of(1).unknown >= 2, "{:?}", of(1));
    assert!(of(2).refused >= 2 && of(2).granted >= 1, "{:?}", of(2));
}

/// Control: without the clock guard, the resource is granted twice.
#[tokio::test(start_paused = true)]
async fn without_a_clock_guard_the_rival_is_let_in() {
    let masters = Masters::new(3);
    let holder = built(masters.builder().restart_guard(TTL)).await;
    holder.initialize_masters().await;
    let rival = built(masters.builder().restart_guard(TTL)).await;
    let lease = bare(&masters, &holder).await;
    masters.step_clock(1, TTL);
    let other = take(&rival, "r").await;
    assert!(lease.is_lost().is_none() && other.is_lost().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rival_that_comes_after_the_step_sees_that_the_master_is_ahead_of_another() {
    let (masters, holder, _) = bed().await;
    let lease = bare(&masters, &holder).await;
    masters.step_clock(1, TTL);
    let rival = built(watching(&masters)).await;
    assert!(rival.try_acquire("r").await.unwrap().is_none());
    assert_eq!(distrust(&rival, 1), None, "it may be ahead for good");
    assert!(lease.is_lost().is_none());
    // Two other masters are enough for a free resource. Without them the error has the reason.
    take(&rival, "s").await.release().await;
    masters.kill(2);
    let error = rival.try_acquire("s").await.unwrap_err();
    let AcquireError::NoQuorum { report, .. } = &error else { panic!("{error}") };
    let text = report.masters()[0].to_string();
    assert!(text.contains("its clock may be ahead of another master's by 10."), "{text}");
    masters.revive(2);
    sleep(2 * S).await;
    masters.kill(2);
    // After a full window of watching, the master counts again.
    sleep(WINDOW).await;
    take(&rival, "s").await.release().await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_shorter_by_the_bound_and_outlives_no_unnoticed_step() {
    let (masters, holder, rival) = bed().await;
    let lease = bare(&masters, &holder).await;
    assert_eq!(lease.deadline().remaining(), VALIDITY - BOUND - 2 * S);
    masters.step_clock(1, BOUND - MS);
    sleep(VALIDITY - BOUND - 2 * S - MS).await;
    assert!(lease.is_lost().is_none());
    assert!(rival.try_acquire("r").await.unwrap().is_none(), "the key is still there");
    assert_eq!(distrust(&rival, 1), None);
}

#[tokio::test(start_paused = true)]
async fn small_steps_and_steps_back_disturb_nobody() {
    let (masters, holder, rival) = bed().await;
    for round in 0..50_usize {
        masters.step_clock(1 + round % 3, 30 * MS);
        for lock in [&holder, &rival] {
            take(lock, "r").await.release().await;
        }
        sleep(S).await;
    }
    assert!((1..=3).all(|number| distrust(&rival, number).is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_extended_and_released_on_a_master_that_stepped() {
    let (masters, holder, _) = bed().await;
    let lease = take(&holder, "r").await;
    masters.step_clock(1, 3 * S);
    sleep(6 * S).await;
    assert!(distrust(&holder, 1).is_some());
    masters.kill(3);
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, redquorum::Outcome::Released);
    settle().await;
    assert!(masters.value(1, "r").is_none());
}

#[tokio::test(start_paused = true)]
async fn locks_with_different_clock_guards_are_told_whose_is_which() {
    let (masters, ..) = bed().await;
    let none = built(masters.builder().restart_guard(TTL)).await;
    let error = none.try_acquire("r").await.unwrap_err().to_string();
    let text = "a clock guard of 500ms, and this lock has no clock guard: give all";
    assert!(error.contains(text), "{error}");
    let other = built(masters.builder().restart_guard(TTL).clock_guard(2 * BOUND)).await;
    let error = other.try_acquire("r").await.unwrap_err().to_string();
    assert!(
        error.contains("a clock guard of 500ms, and this lock has a clock guard of 1s"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_together_is_refused_with_the_mend() {
    let masters = Masters::new(3);
    let says = async |builder: Builder| match builder.build().await {
        Err(BuildError::Options(bad)) => (bad, bad.to_string()),
        other => panic!("{other:?}"),
    };
    let (bad, text) = says(masters.builder().clock_guard(BOUND)).await;
    assert_eq!(bad, BadOption::ClockBoundWithoutGuard);
    assert!(text.ends_with("set the guard, too"), "{text}");
    for bound in [Duration::ZERO, TTL, Duration::MAX] {
        let (_, text) = says(masters.builder().restart_guard(TTL).clock_guard(bound)).await;
        assert!(text.contains("out of bounds: set at least 1ms"), "{text}");
    }
    let (bad, text) = says(masters.builder().restart_guard(TTL).clock_guard(TTL - 202 * MS)).await;
    assert!(matches!(bad, BadOption::TtlBelowClockBound { .. }));
    assert!(text.contains("lower the clock guard on all clients"), "{text}");
    watching(&masters).build().await.unwrap();
    let lock = watching(&masters).build().await.unwrap();
    let short = lock.acquire("r").ttl(BOUND + 100 * MS).await;
    assert!(matches!(short, Err(AcquireError::Options(BadOption::TtlBelowClockBound { .. }))));
}
