//! Acquire: every product of outcomes in every order, drops, deadlines, tokens, waiting.

use std::time::Duration;

use redquorum_protocol::{
    Cause, Claim, Distrust, Effect, Failure, Fingerprint, Holder, Input, Reply, RoundId, TOKEN_LEN,
    Time, Token, VoteRequest, WaitPolicy,
};

use crate::play::*;

fn check_acquire(masters: usize) {
    for said in product(masters) {
        let mut verdicts = Vec::new();
        for order in orders(&said) {
            let mut play = Play::acquire(masters, ONCE);
            let mut expected = None;
            for heard in 0..=order.len() {
                if let Some(at) = heard.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.hear(RoundId::Attempt(1), at, vote(said[at], at));
                }
                let yes = count(&said, &order[..heard], &[Granted]);
                // An early verdict is final: later replies change nothing.
                expected = expected.or(stands(yes, masters - heard, masters));
                assert_eq!(play.verdict(), expected, "{said:?} {order:?} after {heard}");
                let wake = match expected {
                    None => START.plus(50 * MS),
                    // The caller must collect the lease before its deadline.
                    Some(true) => START.plus(988 * MS),
                    Some(false) => Time::NEVER,
                };
                assert_eq!(play.claim.next_wake(), wake, "{said:?} {order:?}");
            }
            play.wake_at(START.plus(50 * MS));
            let won = expected.unwrap_or(false);
            late(&said).for_each(|at| play.hear(RoundId::Attempt(1), at, vote(said[at], at)));
            assert_eq!(play.verdict(), Some(won), "{said:?} {order:?} at the end");
            let settled = vec![usize::from(!won); masters];
            assert_eq!(play.settled(masters, 1), settled, "{said:?} {order:?}");
            let decided = play.said.iter().filter(|effect| **effect == Effect::Decided).count();
            assert_eq!(decided, 1, "{said:?} {order:?}");
            check_failure(&play, &said);
            verdicts.push(won);
        }
        assert!(verdicts.iter().all(|won| *won == verdicts[0]), "{said:?} depends on the order");
    }
}

/// "Taken" needs a master that refused, "no quorum" a master that did not reply (R10).
fn check_failure(play: &Play, said: &[Said]) {
    let Claim::Acquiring(acquire) = &play.claim else { unreachable!() };
    match acquire.failure() {
        Some(Failure::Taken) => assert!(said.contains(&Refused), "{said:?}"),
        Some(Failure::NoQuorum) => {
            assert!(said.iter().any(|said| matches!(said, Error | Never | Late)), "{said:?}");
        }
        Some(other) => panic!("{other:?} {said:?}"),
        None => {}
    }
}

#[test]
fn five_masters_give_the_verdict_that_counting_gives_in_every_order() {
    check_acquire(5);
}

#[test]
fn one_to_four_masters_do_too() {
    (1..=4).for_each(check_acquire);
}

#[test]
fn a_drop_at_every_step_of_an_acquire_settles_every_master_once() {
    for masters in 1..=5 {
        for (number, said) in product(masters).enumerate() {
            let orders = orders(&said);
            let order = &orders[number % orders.len()];
            // The last two steps are the end of the round and the collection.
            for cut in 0..=order.len() + 2 {
                let mut play = Play::acquire(masters, ONCE);
                for at in &order[..cut.min(order.len())] {
                    play.hear(RoundId::Attempt(1), *at, vote(said[*at], *at));
                }
                if cut > order.len() {
                    play.wake_at(START.plus(50 * MS));
                }
                if cut > order.len() + 1 {
                    play.tell(Input::Collect);
                }
                play.tell(Input::Abandon);
                assert_eq!(play.claim, Claim::Ended);
                assert_eq!(play.settled(masters, 1), vec![1; masters], "{said:?} {order:?} {cut}");
                let so_far = play.said.len();
                for at in order[cut.min(order.len())..].iter().copied().chain(late(&said)) {
                    play.hear(RoundId::Attempt(1), at, vote(said[at], at));
                }
                play.tell(Input::Abandon);
                assert_eq!(play.said.len(), so_far, "a claim that has ended says nothing more");
                assert_eq!(play.claim.next_wake(), Time::NEVER);
            }
        }
    }
}

#[test]
fn a_win_settles_nothing_until_release_or_loss_or_drop_and_then_every_master_once() {
    for said in product(5) {
        let mut play = Play::acquire(5, ONCE);
        (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, vote(said[at], at)));
        play.tell(Input::Collect);
        if !matches!(play.claim, Claim::Holding(_)) {
            continue;
        }
        for way in 0..3 {
            let mut play =
                Play { claim: play.claim.clone(), rng: Count(1), said: vec![], now: play.now };
            assert_eq!(play.settled(5, 1), [0; 5]);
            match way {
                0 => play.tell(Input::Release),
                1 => play.wake_at(play.deadline()),
                _ => {}
            }
            play.tell(Input::Abandon);
            assert_eq!(play.settled(5, 1), [1; 5], "{said:?} by way {way}");
        }
    }
}

#[test]
fn a_master_that_answers_twice_counts_once_and_its_first_answer_stands() {
    let mut play = Play::acquire(5, ONCE);
    (0..5).for_each(|_| play.hear(RoundId::Attempt(1), 0, Some(Reply::Created)));
    assert_eq!(play.verdict(), None);
    play.hear(RoundId::Attempt(1), 0, Some(Reply::Taken(Holder::NotAsked)));
    (1..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    (1..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), None, "one grant, two refusals");
    (3..5).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn an_early_wake_does_nothing() {
    let mut acquiring =
        Play::acquire(5, WaitPolicy { wait: 100 * MS, explain: true, ..WaitPolicy::default() });
    let mut pausing =
        Play::acquire(5, WaitPolicy { wait: 100 * MS, explain: true, ..WaitPolicy::default() });
    let mut explaining = Play::acquire(
        5,
        WaitPolicy { wait: Duration::ZERO, explain: true, ..WaitPolicy::default() },
    );
    for play in [&mut pausing, &mut explaining] {
        let taken = || Some(Reply::Taken(Holder::NotAsked));
        (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, taken()));
    }
    let mut holding = Play::hold(&[Granted; 5]);
    holding.tell(Input::KeepAlive(5_000 * MS));
    let mut extending = Play::hold(&[Granted; 5]);
    extending.tell(Input::Extend(terms(5)));
    let mut releasing = Play::hold(&[Granted; 5]);
    releasing.tell(Input::Release);
    let all = [
        &mut acquiring,
        &mut pausing,
        &mut explaining,
        &mut holding,
        &mut extending,
        &mut releasing,
    ];
    for play in all {
        let (before, said) = (play.claim.clone(), play.said.len());
        let early = play.claim.next_wake().as_nanos() - 1;
        play.wake_at(Time::from_nanos(early));
        assert_eq!((&play.claim, play.said.len()), (&before, said));
        play.wake_at(Time::from_nanos(early + 1));
        assert_ne!(play.claim, before, "and the wake in time does something");
    }
}

#[test]
fn a_lease_that_is_collected_too_late_is_none_and_is_settled() {
    let mut play = Play::acquire(5, ONCE);
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
    play.now = START.plus(terms(5).validity());
    play.tell(Input::Collect);
    let Claim::Acquiring(acquire) = &play.claim else { panic!("a dead lease was handed out") };
    assert_eq!(acquire.failure(), Some(Failure::TooLate));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn the_deadline_counts_from_the_start_of_the_attempt_and_not_from_its_answers() {
    let mut play = Play::acquire(5, ONCE);
    play.now = START.plus(49 * MS);
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    play.tell(Input::Collect);
    assert_eq!(play.deadline(), START.plus(terms(5).validity()));
}

#[test]
fn every_attempt_has_a_token_of_its_own_and_late_answers_to_an_older_one_never_count() {
    let mut play =
        Play::acquire(5, WaitPolicy { wait: 12 * MS, explain: false, ..WaitPolicy::default() });
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    assert_eq!(play.settled(5, 1), [1; 5]);
    play.wake_at(START.plus(5 * MS));
    let tokens: Vec<Token> = play.asked()[5..]
        .iter()
        .map(|(_, ask)| {
            let VoteRequest::Set { token, .. } = ask else { panic!("{ask:?}") };
            *token
        })
        .collect();
    assert_eq!(tokens, [Token::new([2; TOKEN_LEN]); 5]);
    // Five late grants of the first attempt do not count for the second.
    (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), None);
    play.tell(Input::Abandon);
    assert_eq!(play.settled(5, 2), [1; 5]);
    assert_eq!(play.settled(5, 1), [1; 5], "and no attempt is settled twice");
}

#[test]
fn a_late_answer_to_an_older_attempt_is_no_news_of_the_lease() {
    let mut play =
        Play::acquire(5, WaitPolicy { wait: 100 * MS, explain: false, ..WaitPolicy::default() });
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    play.wake_at(START.plus(5 * MS));
    (0..3).for_each(|at| play.hear(RoundId::Attempt(2), at, Some(Reply::Created)));
    play.tell(Input::Collect);
    let before = play.claim.clone();
    play.hear(RoundId::Attempt(1), 3, Some(Reply::Created));
    play.hear(RoundId::Attempt(1), 4, Some(Reply::Taken(Holder::NotAsked)));
    assert_eq!(play.claim, before);
    play.hear(RoundId::Attempt(2), 3, Some(Reply::Created));
    assert_ne!(play.claim, before, "a straggler of its own attempt is");
}

#[test]
fn the_last_attempt_is_made_at_the_end_of_the_wait_and_none_behind_it() {
    let mut play =
        Play::acquire(1, WaitPolicy { wait: 12 * MS, explain: false, ..WaitPolicy::default() });
    let mut started = vec![];
    for attempt in 1..10 {
        started.push(play.now);
        play.hear(RoundId::Attempt(attempt), 0, Some(Reply::Taken(Holder::NotAsked)));
        if play.verdict().is_some() {
            break;
        }
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(started, [0, 5, 10, 12].map(|at| START.plus(at * MS)));
}

#[test]
fn who_holds_it_is_waited_for_no_longer_than_for_the_last_clean_up() {
    for (said, waits) in [
        (Reply::Taken(Holder::NoExpiry), false),
        // The other client has released meanwhile, or the master cannot reply: no holder to name.
        (Reply::Absent, false),
        (unknown(0), false),
    ] {
        let mut play = Play::acquire(
            5,
            WaitPolicy { wait: Duration::ZERO, explain: true, ..WaitPolicy::default() },
        );
        (0..3).for_each(|at| {
            play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked)))
        });
        assert_eq!(play.verdict(), None);
        (0..2).for_each(|at| play.hear(RoundId::Cleanup(1), at, Some(said.clone())));
        assert_eq!(play.verdict(), None, "the third refusal is not explained yet");
        play.hear(RoundId::Cleanup(1), 2, Some(said.clone()));
        assert_eq!(play.verdict().is_none(), waits, "{said:?}");
    }
    // The claim waits for a silent master no longer than a node timeout.
    let mut play = Play::acquire(
        5,
        WaitPolicy { wait: Duration::ZERO, explain: true, ..WaitPolicy::default() },
    );
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.verdict(), Some(false));
}

fn of_another_fleet() -> Reply {
    let [marked, ours] = ["theirs", "ours"].map(Fingerprint::of_name);
    let why = Distrust::OtherFleet { marked: Some(marked), ours };
    Reply::Unknown(Cause::Distrusted { why, left: None })
}

/// Three masters, one of which another set of masters lists, too. The other two are a quorum, but
/// they may be in no quorum of the other set.
#[test]
fn one_master_of_another_fleet_refuses_the_attempt_whatever_the_others_say() {
    for other in 0..3 {
        let mut play = Play::acquire(3, ONCE);
        (0..3).filter(|at| *at != other).take(1).for_each(|at| {
            play.hear(RoundId::Attempt(1), at, Some(Reply::Created));
        });
        assert_eq!(play.verdict(), None);
        play.hear(RoundId::Attempt(1), other, Some(of_another_fleet()));
        assert_eq!(play.verdict(), Some(false), "{other}");
        let Claim::Acquiring(acquire) = &play.claim else { unreachable!() };
        assert_eq!(acquire.failure(), Some(Failure::NoQuorum));
        assert_eq!(play.settled(3, 1), [1, 1, 1]);
    }
    // Any other distrust only costs a vote, so the test above can fail.
    let mut play = Play::acquire(3, ONCE);
    let unmarked = Reply::Unknown(Cause::Distrusted { why: Distrust::Unmarked, left: None });
    play.hear(RoundId::Attempt(1), 0, Some(unmarked));
    (1..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn a_master_of_another_fleet_that_says_so_before_the_lease_is_collected_refuses_it_too() {
    let mut play = Play::acquire(3, ONCE);
    (0..2).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
    play.hear(RoundId::Attempt(1), 2, Some(of_another_fleet()));
    play.tell(Input::Collect);
    assert_eq!(play.verdict(), Some(false));
    assert_eq!(play.settled(3, 1), [1, 1, 1]);
}
