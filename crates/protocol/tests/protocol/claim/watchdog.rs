//! The watchdog: from when a renewal may join a batch, which times batching must not move, and
//! until when it renews.

use redquorum_protocol::{Extension, Input, Loss, Renewal, Time};

use super::play::*;

fn renewal(play: &Play) -> Option<Renewal> {
    play.held().renewal()
}

fn before(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() - 1)
}

fn watched(max_hold_ms: u32) -> Play {
    let mut play = Play::hold(&[Grants; 5]);
    play.handle(Input::KeepAlive(max_hold_ms * MS));
    play
}

fn renewed_at(play: &mut Play, time: Time) -> bool {
    play.now = time;
    play.handle(Input::Renew);
    play.extension() == Extension::Pending
}

#[test]
fn a_lease_is_renewed_together_with_others_in_the_second_half_of_its_time_and_not_before() {
    let mut play = watched(60_000);
    let Renewal { from, due, .. } = renewal(&play).unwrap();
    assert_eq!(due, START.plus(config(5).ttl() / 3));
    assert_eq!(from, START.plus(config(5).ttl() / 6));
    assert_eq!(play.claim.next_wake(), due, "it asks to be woken as late as it may be");
    assert!(!renewed_at(&mut play, before(from)));
    assert_eq!(renewal(&play).map(|renewal| (renewal.from, renewal.due)), Some((from, due)));
    // A wake is no renewal before it is due.
    play.wake_at(from);
    assert_eq!(play.extension(), Extension::Extended);
    assert!(renewed_at(&mut play, from));
    assert_eq!(renewal(&play), None, "it waits for answers");
    play.reply_all(Extend(1), 0..3, Kept);
    // The deadline counts from the start of the round, even if the renewal was early.
    assert_eq!(play.deadline(), from.plus(config(5).validity()));
    assert_eq!(renewal(&play).unwrap().due, from.plus(config(5).ttl() / 3));
    play.wake_at(before(renewal(&play).unwrap().due));
    assert_eq!(play.extension(), Extension::Extended);
    play.wake_at(renewal(&play).unwrap().due);
    assert_eq!(play.extension(), Extension::Pending, "due is due, with others or alone");
}

#[test]
fn masters_that_missed_the_grant_get_the_key_soon_after_it() {
    let (refill, usual) = (START.plus(100 * MS), config(5).ttl() / 3);
    let due = |play: &Play| renewal(play).unwrap().due;
    let mut play = Play::hold(&[Grants, Grants, Grants, Refuses, Never]);
    assert_eq!(play.claim.next_wake(), play.deadline(), "only the watchdog renews");
    play.handle(Input::KeepAlive(60_000 * MS));
    assert_eq!(due(&play), refill);
    assert!(!renewed_at(&mut play, before(refill)));
    play.effects.clear();
    play.wake_at(refill);
    assert_eq!(play.asked().len(), 5);
    play.reply_all(Extend(1), 0..3, Kept);
    play.reply_all(Extend(1), 3..4, Created);
    // Once: a master that is down misses every round.
    assert_eq!(due(&play), refill.plus(usual));
    // A master that grants late has granted.
    let mut late = Play::hold(&[Grants, Grants, Grants, Grants, Never]);
    late.handle(Input::KeepAlive(60_000 * MS));
    assert_eq!(due(&late), refill);
    late.reply(Attempt(1), 4, Some(Created));
    assert_eq!(due(&late), START.plus(usual));
}

#[test]
fn a_renewal_that_failed_is_made_again_no_sooner_for_others() {
    let mut play = watched(60_000);
    let due = renewal(&play).unwrap().due;
    assert!(renewed_at(&mut play, due));
    assert_eq!(play.held().next_end(), due.plus(50 * MS), "the end of the round");
    play.wake_at(play.held().next_end());
    assert_eq!(play.extension(), Extension::NoQuorum);
    let Renewal { from, due, .. } = renewal(&play).unwrap();
    assert_eq!(from, due);
    assert!(due < play.deadline() && due > play.now);
    play.effects.clear();
    assert!(!renewed_at(&mut play, before(due)));
    assert_eq!(play.asked(), []);
    assert!(renewed_at(&mut play, due));
}

#[test]
fn a_lease_of_which_little_is_left_after_the_clock_bound_is_renewed_before_its_deadline() {
    // A third of the TTL would be 333 ms.
    let config = config(5).with_clock_bound(750 * MS).unwrap();
    let mut play = Play::hold_on(config, &[Grants; 5]);
    play.handle(Input::KeepAlive(60_000 * MS));
    for round in 1..10 {
        play.wake();
        assert_eq!((play.lost(), play.extension()), (None, Extension::Pending));
        play.reply_all(Extend(round), ALL, Kept);
    }
    assert!(play.now > START.plus(1_000 * MS));
}

#[test]
fn a_watchdog_whose_masters_are_silent_tries_until_the_deadline_and_does_not_spin() {
    let mut play = watched(5_000);
    let mut wakes = 0;
    while play.lost().is_none() {
        play.wake();
        wakes += 1;
    }
    assert_eq!((play.lost(), play.now), (Some(Loss::Expired), START.plus(config(5).validity())));
    assert!((10..40).contains(&wakes), "{wakes}");
}

#[test]
fn a_renewal_that_failed_is_repeated_sooner_the_nearer_the_deadline_is() {
    // An eighth of what is left, but at least half of a node timeout.
    for (failed_ms, pause) in [(388, 75 * MS), (788, 25 * MS), (988 - 50, 25 * MS)] {
        let mut play = watched(60_000);
        assert!(renewed_at(&mut play, START.plus((failed_ms - 50) * MS)));
        play.wake_at(START.plus(failed_ms * MS));
        assert_eq!(play.extension(), Extension::NoQuorum);
        assert_eq!(renewal(&play).unwrap().due, play.now.plus(pause), "{failed_ms}");
    }
}

#[test]
fn a_watchdog_that_may_not_hold_a_lease_for_longer_than_it_lives_changes_nothing() {
    let mut play = watched(800);
    let deadline = play.deadline();
    play.wake_at(renewal(&play).unwrap().due);
    assert_eq!((play.asked(), play.deadline(), renewal(&play)), (vec![], deadline, None));
    play.wake();
    assert_eq!((play.now, play.lost()), (deadline, Some(Loss::MaxHold)));
}
