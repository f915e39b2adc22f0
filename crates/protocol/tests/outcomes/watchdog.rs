//! The watchdog among others: from when a renewal may join a batch, and which times batching must
//! not move.

use std::time::Duration;

use redquorum_protocol::{Claim, Extension, Input, Loss, Renewal, Reply, RoundId, Time};

use crate::play::*;

const NANO: Duration = Duration::from_nanos(1);

fn renewal(play: &Play) -> Option<Renewal> {
    let Claim::Holding(hold) = &play.claim else { panic!("{:?}", play.claim) };
    hold.renewal()
}

fn next_end(play: &Play) -> Time {
    let Claim::Holding(hold) = &play.claim else { panic!("{:?}", play.claim) };
    hold.next_end()
}

fn before(time: Time) -> Time {
    Time::ZERO.plus(time.since(Time::ZERO).saturating_sub(NANO))
}

fn watched() -> Play {
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(60_000 * MS));
    play
}

fn renewed_at(play: &mut Play, time: Time) -> bool {
    play.now = time;
    play.tell(Input::Renew);
    play.extension() == Extension::Pending
}

#[test]
fn a_lease_is_renewed_together_with_others_in_the_second_half_of_its_time_and_not_before() {
    let mut play = watched();
    let Renewal { from, due, .. } = renewal(&play).unwrap();
    assert_eq!(due, START.plus(terms(5).ttl() / 3));
    assert_eq!(from, START.plus(terms(5).ttl() / 6));
    assert_eq!(play.claim.next_wake(), due, "it asks to be woken as late as it may be");
    assert!(!renewed_at(&mut play, before(from)));
    assert_eq!(renewal(&play), Some(Renewal::between(from, due)));
    // A wake is no renewal before it is due.
    play.wake_at(from);
    assert_eq!(play.extension(), Extension::Extended);
    assert!(renewed_at(&mut play, from));
    assert_eq!(renewal(&play), None, "it waits for answers");
    (0..3).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    // The deadline counts from the start of the round, even if the renewal was early.
    assert_eq!(play.deadline(), from.plus(terms(5).validity()));
    assert_eq!(renewal(&play).unwrap().due, from.plus(terms(5).ttl() / 3));
    play.wake_at(before(renewal(&play).unwrap().due));
    assert_eq!(play.extension(), Extension::Extended);
    play.wake_at(renewal(&play).unwrap().due);
    assert_eq!(play.extension(), Extension::Pending, "due is due, with others or alone");
}

#[test]
fn a_renewal_that_failed_is_made_again_no_sooner_for_others() {
    let mut play = watched();
    let due = renewal(&play).unwrap().due;
    assert!(renewed_at(&mut play, due));
    assert_eq!(next_end(&play), due.plus(50 * MS), "the end of the round");
    play.wake_at(next_end(&play));
    assert_eq!(play.extension(), Extension::NoQuorum);
    let Renewal { from, due, .. } = renewal(&play).unwrap();
    assert_eq!(from, due);
    assert!(due < play.deadline() && due > play.now);
    let asked = play.asked().len();
    assert!(!renewed_at(&mut play, before(due)));
    assert_eq!(play.asked().len(), asked);
    assert!(renewed_at(&mut play, due));
}

#[test]
fn what_ends_late_if_it_is_put_off_is_told_apart_from_what_may_be() {
    let mut play = watched();
    assert_eq!(next_end(&play), play.deadline());
    assert!(play.claim.next_wake() < next_end(&play));
    // Without a renewal, the lease is lost at its deadline, and no renewal reverts that.
    let deadline = play.deadline();
    assert!(!renewed_at(&mut play, deadline));
    assert_eq!((play.lost(), next_end(&play)), (Some(Loss::Expired), Time::NEVER));
    assert_eq!((renewal(&play), play.asked()), (None, Vec::new()));
    assert!(!renewed_at(&mut play, deadline.plus(MS)));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn nobody_is_renewed_without_a_watchdog_or_beyond_its_bound() {
    let mut play = Play::hold(&[Granted; 5]);
    assert_eq!(renewal(&play), None);
    assert!(!renewed_at(&mut play, START.plus(800 * MS)));
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(2_000 * MS));
    let mut rounds = 0;
    while let Some(renewal) = renewal(&play) {
        if renewed_at(&mut play, renewal.from) {
            rounds += 1;
            (0..5).for_each(|at| play.hear(RoundId::Extend(rounds), at, Some(Reply::Kept)));
        }
        assert!(play.deadline() <= START.plus(2_000 * MS));
        assert!(rounds < 40, "it spins");
    }
    assert!(rounds > 4 && play.deadline() > START.plus(1_900 * MS), "{:?}", play.deadline());
    play.wake_at(play.claim.next_wake());
    assert_eq!((play.now, play.lost()), (play.deadline(), Some(Loss::MaxHold)));
}

#[test]
fn a_lease_of_which_little_is_left_after_the_clock_bound_is_renewed_before_its_deadline() {
    // A third of the TTL would be 333 ms.
    let terms = terms(5).with_clock_bound(750 * MS).unwrap();
    let mut play = Play::acquire_on(terms, crate::play::ONCE);
    (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    play.tell(Input::Collect);
    play.tell(Input::KeepAlive(60_000 * MS));
    for round in 1..10 {
        play.wake_at(play.claim.next_wake());
        assert_eq!((play.lost(), play.extension()), (None, Extension::Pending));
        (0..5).for_each(|at| play.hear(RoundId::Extend(round), at, Some(Reply::Kept)));
    }
    assert!(play.now > START.plus(1_000 * MS));
}
