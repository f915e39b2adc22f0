//! Re-entry: handles are counted, only the last one releases the lease, and no caller enters a
//! lease that is over.

use redquorum_protocol::{Claim, Effect, Extension, Input, Loss, Outcome, Reply, RoundId, Time};

use crate::play::*;

const MASTERS: usize = 3;

fn held() -> Play {
    Play::hold(&[Granted; MASTERS])
}

/// A lease with a lock delay of 2 s.
fn held_with_grace() -> Play {
    let mut play = Play::acquire_on(terms(MASTERS).with_lock_delay(2_000 * MS).unwrap(), ONCE);
    (0..MASTERS).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    play.tell(Input::Collect);
    play.said.clear();
    play
}

fn outcome(play: &Play) -> Option<Outcome> {
    let Claim::Releasing(release) = &play.claim else { panic!("{:?}", play.claim) };
    release.outcome()
}

fn left(play: &Play) -> Vec<Time> {
    let until = |effect: &Effect| match effect {
        Effect::Leave { until, .. } => Some(*until),
        _ => None,
    };
    play.said.iter().filter_map(until).collect()
}

#[test]
fn no_master_is_asked_and_the_deadline_stands() {
    let mut play = held();
    let deadline = play.deadline();
    play.now = START.plus(300 * MS);
    play.tell(Input::Reenter);
    assert_eq!((play.handles(), play.deadline()), (2, deadline));
    assert_eq!(play.said, [], "nothing to do for anybody");
}

#[test]
fn only_the_last_handle_gives_the_lease_back_whichever_way_they_go() {
    for ways in 0..8_u32 {
        let mut play = held();
        play.tell(Input::Reenter);
        play.tell(Input::Reenter);
        for handle in 0..3 {
            assert_eq!((play.handles(), play.settled(MASTERS, 1)), (3 - handle, vec![0; MASTERS]));
            let dropped = ways & (1 << handle) == 0;
            play.tell(if dropped { Input::Abandon } else { Input::Release });
        }
        assert_eq!(play.settled(MASTERS, 1), [1; MASTERS], "{ways}");
        // No caller enters after the last handle.
        play.tell(Input::Reenter);
        assert!(!matches!(play.claim, Claim::Holding(_)), "{:?}", play.claim);
    }
}

#[test]
fn a_release_at_once_would_be_seen() {
    let mut play = held();
    play.tell(Input::Release);
    assert_eq!(play.settled(MASTERS, 1), [1; MASTERS]);
}

#[test]
fn nobody_comes_into_a_lease_at_its_deadline_even_before_the_timer_has_fired() {
    let mut play = held();
    play.tell(Input::Reenter);
    play.now = play.deadline();
    play.tell(Input::Reenter);
    assert_eq!((play.handles(), play.lost()), (2, Some(Loss::Expired)));
    // The loss is final, for all handles.
    play.tell(Input::Release);
    play.tell(Input::Reenter);
    assert_eq!((play.handles(), play.lost()), (1, Some(Loss::Expired)));
    assert_eq!(play.settled(MASTERS, 1), [1; MASTERS], "with the loss, not with the handle");
    play.tell(Input::Release);
    (0..MASTERS).for_each(|at| play.hear(RoundId::Release, at, Some(Reply::Deleted)));
    assert_eq!(outcome(&play), Some(Outcome::AlreadyGone));
}

#[test]
fn a_moment_before_the_deadline_the_owner_still_comes_in() {
    let mut play = held();
    play.now = Time::from_nanos(play.deadline().as_nanos() - 1);
    play.tell(Input::Reenter);
    assert_eq!((play.handles(), play.lost()), (2, None));
}

#[test]
fn a_gap_that_a_round_has_shown_is_a_loss_once_the_owner_comes_again() {
    let mut play = held();
    play.tell(Input::Extend(terms(MASTERS)));
    (0..2).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Absent)));
    // The caller that extends gets the error, and its lease keeps its deadline (R6).
    assert_eq!((play.extension(), play.lost()), (Extension::QuorumGone, None));
    play.tell(Input::Reenter);
    assert_eq!((play.handles(), play.lost()), (1, Some(Loss::QuorumGone)));
}

#[test]
fn a_longer_ttl_extends_and_a_shorter_one_changes_nothing() {
    let mut play = held();
    play.tell(Input::Reenter);
    let deadline = play.deadline();
    for ttl in [100, 999, 1_000] {
        play.tell(Input::Prolong(terms(MASTERS).with_ttl(ttl * MS).unwrap()));
        assert_eq!((play.asked().len(), play.deadline()), (0, deadline), "{ttl}");
    }
    let longer = terms(MASTERS).with_ttl(2_000 * MS).unwrap();
    play.tell(Input::Prolong(longer));
    assert_eq!((play.asked().len(), play.deadline()), (MASTERS, deadline), "not before a quorum");
    (0..MASTERS).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    assert_eq!(play.deadline(), START.plus(longer.validity()));
}

#[test]
fn an_extension_that_fails_leaves_the_deadline_and_the_handles() {
    let mut play = held();
    play.tell(Input::Reenter);
    let deadline = play.deadline();
    play.tell(Input::Prolong(terms(MASTERS).with_ttl(2_000 * MS).unwrap()));
    (0..2).for_each(|at| play.hear(RoundId::Extend(1), at, Some(unknown(at))));
    assert_eq!(play.extension(), Extension::NoQuorum);
    assert_eq!((play.deadline(), play.handles(), play.lost()), (deadline, 2, None));
}

#[test]
fn the_watchdog_of_one_handle_renews_for_all_until_the_last_is_gone() {
    let mut play = held();
    play.tell(Input::Reenter);
    play.tell(Input::KeepAlive(60_000 * MS));
    play.tell(Input::Release);
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.asked().len(), MASTERS);
    (0..MASTERS).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    assert_eq!(play.deadline(), play.now.plus(terms(MASTERS).validity()));
    play.tell(Input::Abandon);
    assert_eq!(play.claim.next_wake(), Time::NEVER);
}

#[test]
fn a_fencing_token_stays_the_same() {
    let mut play = Play::acquire_fenced(MASTERS);
    (0..MASTERS).for_each(|at| {
        play.hear(RoundId::Attempt(1), at, Some(Reply::Granted { number: 7 }));
    });
    play.tell(Input::Collect);
    play.tell(Input::Reenter);
    let Claim::Holding(hold) = &play.claim else { panic!("{:?}", play.claim) };
    assert_eq!((hold.handles(), hold.fencing_token()), (2, Some(7)));
}

#[test]
fn what_a_dropped_handle_had_under_way_has_its_grace_though_the_last_is_released() {
    let mut play = held_with_grace();
    play.tell(Input::Reenter);
    let dropped = play.now;
    play.tell(Input::Abandon);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![0; MASTERS]));
    play.now = START.plus(500 * MS);
    play.tell(Input::Release);
    // The lock delay plus the drift of the key's time: 1 % of 3 s and 2 ms.
    assert_eq!(left(&play), [dropped.plus(2_032 * MS); MASTERS]);
    assert_eq!((outcome(&play), play.settled(MASTERS, 1)), (Some(Outcome::Left), vec![0; MASTERS]));
    assert_eq!(play.claim.next_wake(), Time::NEVER);
}

#[test]
fn a_grace_that_is_over_keeps_no_key() {
    let mut play = held_with_grace();
    play.tell(Input::Reenter);
    play.tell(Input::Abandon);
    for round in 1..=5 {
        play.now = play.now.plus(500 * MS);
        play.tell(Input::Extend(play_terms(&play)));
        (0..MASTERS).for_each(|at| play.hear(RoundId::Extend(round), at, Some(Reply::Kept)));
    }
    play.tell(Input::Release);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![1; MASTERS]));
}

fn play_terms(play: &Play) -> redquorum_protocol::LockConfig {
    let Claim::Holding(hold) = &play.claim else { panic!("{:?}", play.claim) };
    hold.terms()
}
