//! Lock delay: keys outlive the lease, no deadline moves, and only a release frees them at once.

use redquorum_protocol::{Claim, Input, LockConfig, Loss, Outcome, Time};

use super::play::*;

const MASTERS: usize = 3;

fn with_lock_delay() -> LockConfig {
    config(MASTERS).with_lock_delay(2_000 * MS).unwrap()
}

fn held() -> Play {
    Play::hold_on(with_lock_delay(), &[Grants; MASTERS])
}

/// Asserts that all keys are left alone for the lock delay plus the drift of the key's time: 1 % of
/// 3 s and 2 ms.
fn assert_left(play: &Play, since: Time) {
    let until = since.plus(2_032 * MS);
    assert_eq!(
        (play.left(), play.cleaned_up(MASTERS, 1)),
        (vec![until; MASTERS], vec![0; MASTERS])
    );
}

fn assert_deleted(play: &Play) {
    assert_eq!((play.left(), play.cleaned_up(MASTERS, 1)), (vec![], vec![1; MASTERS]));
}

#[test]
fn a_lease_that_is_lost_leaves_its_keys_and_no_later_release_or_drop_deletes_them() {
    for later in [Input::Release, Input::Abandon] {
        let mut play = held();
        let end = play.deadline();
        play.wake_at(end);
        assert_eq!(play.lost(), Some(Loss::Expired));
        assert_left(&play, end);
        play.handle(later.clone());
        assert_left(&play, end);
        if later == Input::Release {
            assert_eq!(play.outcome(), Some(Outcome::AlreadyGone), "no reply is awaited");
            assert_eq!(play.claim.next_wake(), Time::NEVER);
            play.handle(Input::Abandon);
            assert_left(&play, end);
        }
    }
}

#[test]
fn a_watchdog_that_finds_the_key_gone_leaves_what_is_there() {
    let mut play = held();
    play.handle(Input::KeepAlive(60_000 * MS));
    play.wake();
    play.reply_all(Extend(1), 0..2, Absent);
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
    assert_left(&play, play.now);
}

#[test]
fn only_a_release_in_time_deletes_at_once() {
    let mut dropped = held();
    dropped.handle(Input::Abandon);
    assert_left(&dropped, START);
    // Nothing has noticed the deadline before this release.
    let mut late = held();
    late.now = late.deadline();
    late.handle(Input::Release);
    assert_left(&late, late.now);
    let mut in_time = held();
    in_time.handle(Input::Release);
    assert_deleted(&in_time);
    in_time.handle(Input::Abandon);
    assert_deleted(&in_time);
    // Without a lock delay, a lost lease is deleted at once.
    let mut plain = Play::hold(&[Grants; MASTERS]);
    plain.wake_at(plain.deadline());
    assert_deleted(&plain);
}

#[test]
fn an_attempt_that_hands_out_no_lease_is_cleaned_up_at_once() {
    let acquire = |masters, reply| {
        let mut play = Play::acquire_on(with_lock_delay(), ONCE);
        play.reply_all(Attempt(1), 0..masters, reply);
        play
    };
    let refused = acquire(2, TAKEN);
    let [mut dropped, mut uncollected, mut late] = [0, 3, 3].map(|at| acquire(at, Created));
    dropped.handle(Input::Abandon);
    uncollected.handle(Input::Abandon);
    late.now = START.plus(1_000 * MS);
    late.handle(Input::Collect);
    [refused, dropped, uncollected, late].iter().for_each(assert_deleted);
}

#[test]
fn a_dropped_handle_has_its_lock_delay_though_the_last_is_released() {
    let mut play = held();
    play.handle(Input::Reenter);
    let dropped = play.now;
    play.handle(Input::Abandon);
    assert_eq!((play.left(), play.cleaned_up(MASTERS, 1)), (vec![], vec![0; MASTERS]));
    let mut much_later = play.fork();
    play.now = START.plus(500 * MS);
    play.handle(Input::Release);
    assert_left(&play, dropped);
    assert_eq!((play.outcome(), play.claim.next_wake()), (Some(Outcome::Left), Time::NEVER));
    // A lock delay that is over keeps no key.
    for round in 1..=5 {
        much_later.now = much_later.now.plus(500 * MS);
        much_later.handle(Input::extend(with_lock_delay()));
        much_later.reply_all(Extend(round), 0..MASTERS, Kept);
    }
    assert!(matches!(much_later.claim, Claim::Holding(_)));
    much_later.handle(Input::Release);
    assert_deleted(&much_later);
}
