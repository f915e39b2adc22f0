//! Lock delay: keys outlive the lease, no deadline moves, and only a release frees them at once.

use redquorum_protocol::{
    Claim, Drift, Effect, Extension, Input, LockConfig, Loss, Outcome, Reply, RoundId, Time,
    VoteRequest,
};

use crate::play::*;

const MASTERS: usize = 3;

fn with_grace() -> LockConfig {
    terms(MASTERS).with_lock_delay(2_000 * MS).unwrap()
}

fn held() -> Play {
    let mut play = Play::acquire_on(with_grace(), ONCE);
    (0..MASTERS).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    play.tell(Input::Collect);
    assert!(matches!(play.claim, Claim::Holding(_)));
    play.said.clear();
    play
}

/// The time until which each master leaves the key alone: one effect for each master.
fn left(play: &Play) -> Vec<Time> {
    let until = |effect: &Effect| match effect {
        Effect::Leave { until, .. } => Some(*until),
        _ => None,
    };
    play.said.iter().filter_map(until).collect()
}

/// The lock delay plus the drift of the key's time: 1 % of 3 s and 2 ms.
fn over(now: Time) -> Vec<Time> {
    vec![now.plus(2_032 * MS); MASTERS]
}

#[test]
fn keys_are_asked_for_longer_and_the_deadline_is_the_same() {
    let mut play = held();
    let bare = Play::hold(&[Granted; MASTERS]);
    assert_eq!(play.deadline(), bare.deadline());
    play.tell(Input::Extend(with_grace()));
    let ttls = play.asked().into_iter().map(|(_, ask)| ask.ttl_ms());
    assert_eq!(ttls.collect::<Vec<_>>(), [3_000; MASTERS]);
    (0..MASTERS).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    assert_eq!(play.extension(), Extension::Extended);
    assert_eq!(play.deadline(), START.plus(with_grace().validity()));
    assert_eq!(with_grace().validity(), terms(MASTERS).validity());
    let first = Play::acquire_on(with_grace(), ONCE);
    assert!(
        first.asked().iter().all(|(_, ask)| matches!(ask, VoteRequest::Set { ttl_ms: 3_000, .. }))
    );
}

#[test]
fn a_lease_that_is_lost_leaves_its_keys_and_no_later_release_or_drop_deletes_them() {
    for later in [Input::Release, Input::Abandon] {
        let mut play = held();
        let end = play.deadline();
        play.wake_at(end);
        assert_eq!(play.lost(), Some(Loss::Expired));
        assert_eq!(left(&play), over(end));
        play.tell(later.clone());
        assert_eq!((left(&play), play.settled(MASTERS, 1)), (over(end), vec![0; MASTERS]));
        if later == Input::Release {
            let Claim::Releasing(release) = &play.claim else { panic!("{:?}", play.claim) };
            assert_eq!(release.outcome(), Some(Outcome::AlreadyGone), "nobody is waited for");
            assert_eq!(play.claim.next_wake(), Time::NEVER);
            play.tell(Input::Abandon);
            assert_eq!(left(&play).len(), MASTERS);
        }
    }
}

#[test]
fn a_watchdog_that_finds_the_key_gone_leaves_what_is_there() {
    let mut play = held();
    play.tell(Input::KeepAlive(60_000 * MS));
    play.wake_at(play.claim.next_wake());
    (0..2).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Absent)));
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (over(play.now), vec![0; MASTERS]));
}

#[test]
fn a_dropped_lease_leaves_its_keys() {
    let mut play = held();
    play.tell(Input::Abandon);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (over(START), vec![0; MASTERS]));
}

#[test]
fn a_release_after_the_deadline_that_nobody_has_noticed_yet_leaves_the_keys() {
    let mut play = held();
    play.now = play.deadline();
    play.tell(Input::Release);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (over(play.now), vec![0; MASTERS]));
}

#[test]
fn a_release_in_time_deletes_at_once() {
    let mut play = held();
    play.tell(Input::Release);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![1; MASTERS]));
    play.tell(Input::Abandon);
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![1; MASTERS]));
}

#[test]
fn an_attempt_that_hands_out_no_lease_is_cleaned_up_at_once() {
    // Refused; given up during the attempt; won and not collected; collected too late.
    let mut refused = Play::acquire_on(with_grace(), ONCE);
    (0..2).for_each(|at| refused.hear(RoundId::Attempt(1), at, vote(Refused, at)));
    let mut dropped = Play::acquire_on(with_grace(), ONCE);
    dropped.tell(Input::Abandon);
    let won = || {
        let mut play = Play::acquire_on(with_grace(), ONCE);
        (0..MASTERS).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
        play
    };
    let (mut uncollected, mut late) = (won(), won());
    uncollected.tell(Input::Abandon);
    late.now = START.plus(1_000 * MS);
    late.tell(Input::Collect);
    for play in [refused, dropped, uncollected, late] {
        assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![1; MASTERS]));
    }
}

/// Without a lock delay, the clean-ups that the tests above exclude do occur.
#[test]
fn without_a_grace_a_lost_lease_is_settled() {
    let mut play = Play::hold(&[Granted; MASTERS]);
    play.wake_at(play.deadline());
    assert_eq!((left(&play), play.settled(MASTERS, 1)), (vec![], vec![1; MASTERS]));
    assert_eq!(Drift::default().of(3_000 * MS), 32 * MS);
}
