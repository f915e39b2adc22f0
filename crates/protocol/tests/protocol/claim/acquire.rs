//! Acquire: every product of outcomes in every order, drops, deadlines, tokens, waiting.

use redquorum_protocol::{
    Admitted, Cause, Claim, Distrust, Effect, Failure, Fingerprint, Holder, Input, MastersId,
    Reply, Time, WaitPolicy,
};

use super::play::*;

fn waiting(wait_ms: u32, explain: bool) -> WaitPolicy {
    WaitPolicy { wait: wait_ms * MS, explain, ..WaitPolicy::default() }
}

fn check_acquire(masters: usize) {
    for (number, outcomes) in product(masters).enumerate() {
        let mut verdicts = Vec::new();
        let orders = orders(&outcomes);
        for (order_number, order) in orders.iter().enumerate() {
            // Drops are checked in one of the orders.
            let drops = order_number == number % orders.len();
            let mut play = Play::acquire(masters, ONCE);
            let mut expected = None;
            for received in 0..=order.len() {
                if let Some(at) = received.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.reply(Attempt(1), at, vote(outcomes[at], at));
                }
                let yes = count(&outcomes, &order[..received], &[Grants]);
                // An early verdict is final: later replies change nothing.
                expected = expected.or(stands(yes, masters - received, masters));
                assert_eq!(play.verdict(), expected, "{outcomes:?} {order:?} after {received}");
                let wake = match expected {
                    None => START.plus(50 * MS),
                    // The caller must collect the lease before its deadline.
                    Some(true) => START.plus(988 * MS),
                    Some(false) => Time::NEVER,
                };
                assert_eq!(play.claim.next_wake(), wake, "{outcomes:?} {order:?}");
                if drops {
                    check_drop(&play, &outcomes);
                }
            }
            play.wake_at(START.plus(50 * MS));
            let won = expected.unwrap_or(false);
            late(&outcomes).for_each(|at| play.reply(Attempt(1), at, vote(outcomes[at], at)));
            assert_eq!(play.verdict(), Some(won), "{outcomes:?} {order:?} at the end");
            let cleaned_up = vec![usize::from(!won); masters];
            assert_eq!(play.cleaned_up(masters, 1), cleaned_up, "{outcomes:?} {order:?}");
            let decided = play.effects.iter().filter(|effect| **effect == Effect::Decided).count();
            assert_eq!(decided, 1, "{outcomes:?} {order:?}");
            check_failure(&play, &outcomes);
            if drops {
                check_drop(&play, &outcomes);
                check_lease(play, masters);
            }
            verdicts.push(won);
        }
        assert!(
            verdicts.iter().all(|won| *won == verdicts[0]),
            "{outcomes:?} depends on the order"
        );
    }
}

/// "Taken" needs a master that refused, "no quorum" a master that did not reply (R10).
fn check_failure(play: &Play, outcomes: &[CommandOutcome]) {
    match play.acquiring().failure() {
        Some(Failure::Taken) => assert!(outcomes.contains(&Refuses), "{outcomes:?}"),
        Some(Failure::NoQuorum) => {
            assert!(
                outcomes.iter().any(|outcomes| matches!(outcomes, Error | Never | Late)),
                "{outcomes:?}"
            );
        }
        Some(other) => panic!("{other:?} {outcomes:?}"),
        None => {}
    }
}

/// A drop enqueues the clean-up of every master once. Later replies change nothing.
fn check_drop(play: &Play, outcomes: &[CommandOutcome]) {
    let mut dropped = play.clone();
    dropped.handle(Input::Abandon);
    assert_eq!(dropped.claim, Claim::Ended);
    assert_eq!(dropped.cleaned_up(outcomes.len(), 1), vec![1; outcomes.len()], "{outcomes:?}");
    dropped.effects.clear();
    (0..outcomes.len()).for_each(|at| dropped.reply(Attempt(1), at, vote(outcomes[at], at)));
    dropped.handle(Input::Abandon);
    assert_eq!((dropped.effects, dropped.claim.next_wake()), (vec![], Time::NEVER));
}

/// A win enqueues no clean-up until a release, a loss or a drop, and then one for every master.
fn check_lease(mut won: Play, masters: usize) {
    won.handle(Input::Collect);
    if !matches!(won.claim, Claim::Holding(_)) {
        return;
    }
    assert_eq!(won.cleaned_up(masters, 1), vec![0; masters]);
    assert_eq!(won.deadline(), START.plus(config(masters).validity()), "from the start (R1)");
    for way in 0..3 {
        let mut play = won.fork();
        match way {
            0 => play.handle(Input::Release),
            1 => play.wake_at(play.deadline()),
            _ => {}
        }
        play.handle(Input::Abandon);
        assert_eq!(play.cleaned_up(masters, 1), vec![1; masters], "by way {way}");
    }
}

#[test]
fn every_product_of_outcomes_gives_the_verdict_that_counting_gives_in_every_order() {
    (1..=5).for_each(check_acquire);
}

#[test]
fn a_master_that_answers_twice_counts_once_and_its_first_answer_stands() {
    let mut play = Play::acquire(5, ONCE);
    play.reply_all(Attempt(1), [0; 5], Created);
    assert_eq!(play.verdict(), None);
    play.reply_all(Attempt(1), 0..3, TAKEN);
    play.reply_all(Attempt(1), 1..3, Created);
    assert_eq!(play.verdict(), None, "one grant, two refusals");
    play.reply_all(Attempt(1), 3..5, Created);
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn an_early_wake_does_nothing() {
    let [mut pausing, mut explaining] = [100, 0].map(|wait| Play::acquire(5, waiting(wait, true)));
    pausing.reply_all(Attempt(1), 0..3, TAKEN);
    explaining.reply_all(Attempt(1), 0..3, TAKEN);
    let held = |input| {
        let mut play = Play::hold(&[Grants; 5]);
        play.handle(input);
        play
    };
    for mut play in [
        Play::acquire(5, waiting(100, true)),
        pausing,
        explaining,
        held(Input::KeepAlive(5_000 * MS)),
        held(Input::extend(config(5))),
        held(Input::Release),
    ] {
        let (before, outcomes) = (play.claim.clone(), play.effects.len());
        let early = play.claim.next_wake().as_nanos() - 1;
        play.wake_at(Time::from_nanos(early));
        assert_eq!((&play.claim, play.effects.len()), (&before, outcomes));
        play.wake_at(Time::from_nanos(early + 1));
        assert_ne!(play.claim, before, "and the wake in time does something");
    }
}

#[test]
fn beside_readers_a_refusal_is_explained_by_the_waiter_that_comes_first() {
    let holder = |token| Holder::Lease { token, left_ms: 9 };
    let (alone, shared) = (holder(token(9)), holder(token(9).shared()));
    for (found, explained) in [(alone, alone), (shared, Holder::Waiter)] {
        let mut play = Play::acquire(5, waiting(0, true));
        play.reply_all(Attempt(1), 0..3, Taken(Holder::Waiter));
        assert_eq!(play.verdict(), None, "it may be held as well");
        play.reply_all(Cleanup(1), 0..3, Taken(found));
        assert_eq!(play.verdict(), Some(false));
        let Claim::Acquiring(acquire) = &play.claim else { panic!("{:?}", play.claim) };
        assert_eq!(acquire.votes().votes()[2].reply, Some(Taken(explained)));
    }
}

#[test]
fn the_holder_is_waited_for_no_longer_than_for_the_last_clean_up() {
    let refused = || {
        let mut play = Play::acquire(5, waiting(0, true));
        play.reply_all(Attempt(1), 0..3, TAKEN);
        assert_eq!(play.verdict(), None);
        play
    };
    // Without a holder to name, the other client has released meanwhile, or a master cannot reply.
    for outcomes in [Taken(Holder::NoExpiry), Absent, unknown(0)] {
        let mut play = refused();
        play.reply_all(Cleanup(1), 0..2, outcomes.clone());
        assert_eq!(play.verdict(), None, "the third refusal is not explained yet");
        play.reply_all(Cleanup(1), [2], outcomes);
        assert_eq!(play.verdict(), Some(false));
    }
    // The claim waits for a silent master no longer than a node timeout.
    let mut play = refused();
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.verdict(), Some(false));
}

fn distrusted(why: Distrust) -> Reply {
    Unknown(Cause::Distrusted { why, left: None })
}

/// Three masters, one of which another set of masters lists, too. The other two are a quorum, but
/// they may be in no quorum of the other set.
#[test]
fn one_master_of_another_set_refuses_the_attempt_whatever_the_others_say() {
    let [marked, ours] = ["theirs", "ours"].map(|it| MastersId::Of(Fingerprint::of_name(it)));
    let marked = Some(Admitted::only(marked));
    let of_another_set = distrusted(Distrust::OtherMasters { marked, ours });
    for other in 0..3 {
        let mut play = Play::acquire(3, ONCE);
        play.reply_all(Attempt(1), (0..3).filter(|at| *at != other).take(1), Created);
        assert_eq!(play.verdict(), None);
        play.reply_all(Attempt(1), [other], of_another_set.clone());
        assert_eq!(play.verdict(), Some(false), "{other}");
        assert_eq!(play.acquiring().failure(), Some(Failure::NoQuorum));
        assert_eq!(play.cleaned_up(3, 1), [1, 1, 1]);
    }
    // Also after a quorum, if the lease is not collected yet.
    let mut play = Play::acquire(3, ONCE);
    play.reply_all(Attempt(1), 0..2, Created);
    assert_eq!(play.verdict(), Some(true));
    play.reply_all(Attempt(1), [2], of_another_set);
    play.handle(Input::Collect);
    assert_eq!((play.verdict(), play.cleaned_up(3, 1)), (Some(false), vec![1, 1, 1]));
    // Any other distrust only costs a vote, so the test above can fail.
    let mut play = Play::acquire(3, ONCE);
    play.reply_all(Attempt(1), [0], distrusted(Distrust::Unmarked));
    play.reply_all(Attempt(1), 1..3, Created);
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn a_resource_is_taken_only_if_a_quorum_answered() {
    for (taken, failure) in [(3, Failure::Taken), (2, Failure::NoQuorum), (1, Failure::NoQuorum)] {
        let mut play = Play::acquire(5, ONCE);
        play.reply_all(Attempt(1), 0..taken, TAKEN);
        // The round ends, and the others were silent.
        play.wake();
        assert_eq!(play.acquiring().failure(), Some(failure), "{taken}");
    }
}

#[test]
fn the_votes_of_a_refused_acquire_show_the_holders_that_the_clean_up_met() {
    let mut play = Play::acquire(3, WaitPolicy { explain: true, ..ONCE });
    play.reply_all(Attempt(1), ALL.into_iter().take(3), TAKEN);
    assert_eq!(play.verdict(), None, "it waits for the clean-up");
    let holders = [Holder::Foreign { left_ms: 7 }, Holder::NoExpiry];
    for (at, holder) in holders.into_iter().enumerate() {
        play.reply_all(Cleanup(1), [at], Taken(holder));
    }
    play.reply_all(Cleanup(1), [2], Absent);
    assert_eq!(play.verdict(), Some(false));
    let votes = play.acquiring().votes().votes().iter().map(|vote| vote.reply.clone().unwrap());
    assert_eq!(votes.collect::<Vec<_>>(), [Taken(holders[0]), Taken(holders[1]), TAKEN]);
}

#[test]
fn grants_that_come_at_the_deadline_come_too_late() {
    for (before_ms, failure) in [(1, None), (0, Some(Failure::TooLate))] {
        let mut play = Play::acquire(5, ONCE);
        play.reply_all(Attempt(1), 0..2, Created);
        // The process stood still.
        play.now = START.plus((988 - before_ms) * MS);
        play.reply_all(Attempt(1), [2], Created);
        assert_eq!(play.acquiring().failure(), failure, "{before_ms} ms before the deadline");
    }
}
