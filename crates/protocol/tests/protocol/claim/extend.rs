//! Extend: voters, repairs, gaps, and the owner that acquires what it holds.
//! `properties/claim.rs` has losses and handles under any inputs.

use redquorum_protocol::{Cause, Extension, Input, Loss, Outcome, Reply, Time, WaitPolicy};

use super::play::*;

/// The expected state of a round of extending, from the replies that arrived.
fn extended(
    outcomes: &[CommandOutcome],
    received: &[usize],
    members: &[usize],
) -> Option<Extension> {
    let in_time: Vec<usize> = received.iter().copied().filter(|at| members.contains(at)).collect();
    let yes = count(outcomes, &in_time, &[Grants]);
    // A rival may have had a majority: of the masters that never granted the key, and of those that
    // had lost it when the extend arrived.
    let free = outcomes.len() - members.len() + count(outcomes, &in_time, &[Refuses]);
    let awaited = members.len() - in_time.len();
    if 2 * free > outcomes.len() {
        return Some(Extension::QuorumGone);
    }
    match stands(yes, awaited, outcomes.len())? {
        true => Some(Extension::Extended),
        // "Try again" is no answer while a reply may still show that a rival had a majority.
        false if 2 * (free + awaited) > outcomes.len() => None,
        false => Some(Extension::NoQuorum),
    }
}

fn check_extend(grants: &[CommandOutcome]) {
    let masters = grants.len();
    let members: Vec<usize> = (0..masters).filter(|at| grants[*at] == Grants).collect();
    let once = |play: &Play| {
        let mut dropped = play.fork();
        dropped.handle(Input::Abandon);
        assert_eq!(dropped.cleaned_up(masters, 1), vec![1; masters]);
    };
    for outcomes in product(masters) {
        for (number, order) in orders(&outcomes).iter().enumerate() {
            let mut play = Play::hold(grants);
            let old = play.deadline();
            play.now = play.now.plus(100 * MS);
            let begun = play.now;
            play.handle(Input::extend(config(masters)));
            let mut expected = None;
            for received in 0..=order.len() {
                if let Some(at) = received.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.reply(Extend(1), at, kept(outcomes[at], at, members.contains(&at)));
                }
                expected = expected.or_else(|| extended(&outcomes, &order[..received], &members));
                let state = expected.unwrap_or(Extension::Pending);
                assert_eq!(play.extension(), state, "{outcomes:?} {order:?} after {received}");
                let deadline = match state {
                    Extension::Extended => begun.plus(config(masters).validity()),
                    _ => old,
                };
                assert_eq!(play.deadline(), deadline, "{outcomes:?} {order:?} after {received}");
                // Drops are checked in one of the orders.
                if number == 0 {
                    once(&play);
                }
            }
            play.wake_at(begun.plus(50 * MS));
            let (state, deadline) = (play.extension(), play.deadline());
            assert_eq!(state == Extension::Extended, expected == Some(Extension::Extended));
            late(&outcomes).for_each(|at| {
                play.reply(Extend(1), at, kept(outcomes[at], at, members.contains(&at)));
            });
            assert_eq!((play.extension(), play.deadline()), (state, deadline), "{outcomes:?}");
            assert_eq!(
                play.cleaned_up(masters, 1),
                vec![0; masters],
                "a failed extend takes nothing"
            );
            once(&play);
        }
    }
}

#[test]
fn an_extend_counts_only_members() {
    (1..=5).for_each(|masters| check_extend(&vec![Grants; masters]));
    check_extend(&[Grants, Never, Grants, Grants]);
    check_extend(&[Grants, Grants, Grants, Never, Never]);
    check_extend(&[Grants, Never, Grants, Grants, Grants]);
}

#[test]
fn the_first_extend_that_fails_reports_the_gap_whatever_the_number_of_masters() {
    for masters in 2..=6 {
        let quorum = masters / 2 + 1;
        let mut play = Play::hold(&vec![Grants; masters]);
        play.handle(Input::extend(config(masters)));
        play.reply_all(Extend(1), 0..quorum - 1, Absent);
        // Of an even number, no quorum can confirm any more. The last reply tells the rest.
        assert_eq!(play.extension(), Extension::Pending, "{masters}");
        play.reply_all(Extend(1), [quorum - 1], Absent);
        assert_eq!(play.extension(), Extension::QuorumGone, "{masters}");
        // A master that stays silent holds its key: at the end of the round there is no gap.
        let mut silent = Play::hold(&vec![Grants; masters]);
        silent.handle(Input::extend(config(masters)));
        silent.reply_all(Extend(1), 0..quorum - 1, Absent);
        silent.wake_at(silent.now.plus(50 * MS));
        assert_eq!(silent.extension(), Extension::NoQuorum, "{masters}");
    }
}

#[test]
fn a_gap_in_the_quorum_is_not_hidden_by_keys_that_are_repaired_behind_it() {
    let mut play = Play::hold(&[Grants; 5]);
    let deadline = play.deadline();
    play.handle(Input::extend(config(5)));
    play.reply_all(Extend(1), 0..3, Absent);
    assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
    play.effects.clear();
    play.handle(Input::extend(config(5)));
    assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
    assert_eq!(play.asked(), [], "no key is repaired for a lease that had a gap");
    assert_eq!(play.lost(), None, "a failed extension changes nothing");
    // A watchdog that starts now has nothing to keep alive.
    play.handle(Input::KeepAlive(5_000 * MS));
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
}

/// One round, in which masters send these replies in this order.
fn round(play: &mut Play, number: u32, replies: impl IntoIterator<Item = (usize, Reply)>) {
    play.handle(Input::extend(config(5)));
    for (at, reply) in replies {
        play.reply(Extend(number), at, Some(reply));
    }
    play.wake_at(play.now.plus(50 * MS));
}

#[test]
fn a_key_that_expired_by_itself_is_no_gap_before_that() {
    let mut play = Play::hold(&[Grants, Grants, Grants, Never, Never]);
    // The third master is silent. The others are repaired and kept until its key has expired.
    round(&mut play, 1, [(0, Kept), (1, Kept), (3, Created), (4, Created)]);
    for number in 2..5 {
        play.now = play.now.plus(400 * MS);
        round(&mut play, number, [0, 1, 3, 4].map(|at| (at, Kept)));
        assert_eq!(play.extension(), Extension::Extended, "{number}");
    }
    round(&mut play, 5, ALL.map(|at| (at, if at == 2 { Absent } else { Kept })));
    assert_eq!(play.extension(), Extension::Extended);
}

#[test]
fn a_key_that_must_have_expired_is_not_taken_for_one_that_is_held() {
    let mut play = Play::hold(&[Grants; 5]);
    for number in 1..4 {
        play.now = play.now.plus(400 * MS);
        round(&mut play, number, [(0, Kept), (1, Kept), (2, Kept)]);
    }
    // 4 and 5 have been silent for longer than their keys live, so one more master that forgets is
    // enough.
    round(&mut play, 4, [(0, Absent), (1, Kept), (2, Kept)]);
    assert_eq!(play.extension(), Extension::QuorumGone);
}

#[test]
fn a_gap_that_a_round_has_shown_is_a_loss_once_the_owner_comes_again() {
    let mut play = Play::hold(&[Grants; 3]);
    play.handle(Input::extend(config(3)));
    play.reply_all(Extend(1), 0..2, Absent);
    // The caller that extends gets the error, and its lease keeps its deadline (R6).
    assert_eq!((play.extension(), play.lost()), (Extension::QuorumGone, None));
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.lost()), (1, Some(Loss::QuorumGone)));
}

/// `properties/claim.rs` shows that no other end of the lease deletes its keys at once, either.
#[test]
fn a_lost_lease_with_a_lock_delay_leaves_its_keys_and_only_a_release_in_time_deletes_them() {
    let lock_delay = config(3).with_lock_delay(2_000 * MS).unwrap();
    let mut lost = Play::hold_on(lock_delay, &[Grants; 3]);
    let end = lost.deadline();
    lost.wake_at(end);
    // For the lock delay and the drift of the key's time: 1 % of 3 s and 2 ms.
    assert_eq!((lost.lost(), lost.left()), (Some(Loss::Expired), vec![end.plus(2_032 * MS); 3]));
    lost.handle(Input::Release);
    assert_eq!(lost.outcome(), Some(Outcome::AlreadyGone), "no reply is awaited");
    assert_eq!((lost.left().len(), lost.cleaned_up(3, 1)), (3, vec![0; 3]));
    let mut in_time = Play::hold_on(lock_delay, &[Grants; 3]);
    in_time.handle(Input::Release);
    assert_eq!((in_time.left(), in_time.cleaned_up(3, 1)), (vec![], vec![1; 3]));
}

#[test]
fn a_dropped_handle_has_its_lock_delay_though_the_last_is_released() {
    let lock_delay = config(3).with_lock_delay(2_000 * MS).unwrap();
    let mut play = Play::hold_on(lock_delay, &[Grants; 3]);
    play.handle(Input::Reenter);
    let dropped = play.now;
    play.handle(Input::Abandon);
    assert_eq!((play.left(), play.cleaned_up(3, 1)), (vec![], vec![0; 3]));
    play.now = START.plus(500 * MS);
    play.handle(Input::Release);
    assert_eq!(
        (play.left(), play.outcome()),
        (vec![dropped.plus(2_032 * MS); 3], Some(Outcome::Left))
    );
}

#[test]
fn keys_stay_for_as_long_as_the_holder_asked_however_the_lease_ends() {
    let until = START.plus(700 * MS);
    for input in [Input::Release, Input::Abandon] {
        let mut play = Play::hold(&[Grants; 3]);
        play.handle(Input::KeepUntil(until));
        // A shorter time takes nothing back.
        play.handle(Input::KeepUntil(START.plus(300 * MS)));
        play.now = START.plus(500 * MS);
        play.handle(input.clone());
        assert_eq!((play.left(), play.cleaned_up(3, 1)), (vec![until; 3], vec![0; 3]));
        if input == Input::Release {
            assert_eq!(play.outcome(), Some(Outcome::Left));
        }
    }
    // The time is over.
    let mut play = Play::hold(&[Grants; 3]);
    play.handle(Input::KeepUntil(until));
    play.now = until;
    play.handle(Input::Release);
    assert_eq!((play.left(), play.cleaned_up(3, 1)), (vec![], vec![1; 3]));
    // The lease is lost first, seen or not.
    for wakes in [true, false] {
        let mut play = Play::hold(&[Grants; 3]);
        let (end, until) = (play.deadline(), START.plus(60_000 * MS));
        play.handle(Input::KeepUntil(until));
        play.now = end;
        if wakes {
            play.handle(Input::Wake);
        }
        play.handle(Input::Release);
        assert_eq!((play.left(), play.cleaned_up(3, 1)), (vec![until; 3], vec![0; 3]));
        assert_eq!(play.outcome(), Some(Outcome::AlreadyGone));
    }
}

#[test]
fn a_late_grant_counts_until_the_lease_is_extended_and_only_of_the_attempt_that_won() {
    let members = |play: &Play| play.held().members().len();
    let again = WaitPolicy { wait: 1_000 * MS, ..ONCE };
    let mut play = Play::acquire(5, again);
    play.reply_all(Attempt(1), 0..3, TAKEN);
    play.wake();
    play.reply_all(Attempt(2), 0..3, Created);
    play.handle(Input::Collect);
    play.reply_all(Attempt(1), [3], Created);
    assert_eq!(members(&play), 3, "that key has another token");
    play.reply_all(Attempt(2), [3], Created);
    assert_eq!(members(&play), 4);
    play.handle(Input::extend(config(5)));
    play.reply_all(Attempt(2), [4], Created);
    assert_eq!(members(&play), 4, "the extension has asked this master since");
}

#[test]
fn of_two_spans_that_the_same_masters_may_still_deny_the_one_with_fewer_keys_counts() {
    let mut play = Play::hold(&[Grants, Grants, Grants, Never, Never]);
    play.handle(Input::extend(config(5)));
    play.reply_all(Extend(1), [0], Kept);
    // This master had no key before, and has one from now on.
    play.reply_all(Extend(1), [3], Created);
    play.handle(Input::extend(config(5)));
    play.reply_all(Extend(2), [0, 3], Kept);
    play.handle(Input::extend(config(5)));
    assert!(!play.held().had_gap());
    // In the first span only two other masters had the key.
    play.reply_all(Extend(3), [1], Absent);
    assert!(play.held().had_gap());
}

#[test]
fn an_extension_that_moves_no_deadline_reports_nothing_before_the_masters_reply() {
    let mut play = Play::hold(&[Grants; 5]);
    play.handle(Input::extend(config(5)));
    assert_eq!((play.asked().len(), play.effects.len()), (5, 5), "{:?}", play.effects);
}

#[test]
fn the_lock_delay_of_a_dropped_handle_is_over_in_the_instant_in_which_it_ends() {
    let lock_delay = config(3).with_lock_delay(500 * MS).unwrap();
    let mut play = Play::hold_on(lock_delay, &[Grants; 3]);
    play.handle(Input::Reenter);
    play.handle(Input::Abandon);
    // The lock delay, and the drift of the key's time: 1 % of 1.5 s and 2 ms.
    let ends = START.plus(517 * MS);
    let mut before = play.fork();
    before.now = Time::from_nanos(ends.as_nanos() - 1);
    before.handle(Input::Release);
    assert_eq!((before.left(), before.cleaned_up(3, 1)), (vec![ends; 3], vec![0; 3]));
    play.now = ends;
    play.handle(Input::Release);
    assert_eq!((play.left(), play.cleaned_up(3, 1)), (vec![], vec![1; 3]));
}

#[test]
fn the_result_of_an_extension_is_known_while_the_watchdog_goes_on() {
    let mut play = Play::hold(&[Grants; 3]);
    play.handle(Input::KeepAlive(60_000 * MS));
    play.handle(Input::extend(config(3)));
    assert_eq!(play.held().ended(1), None, "it is under way");
    play.reply_all(Extend(1), 0..2, Kept);
    play.wake_at(play.held().renewal().unwrap().due);
    assert_eq!(play.held().extension(), (2, Extension::Pending));
    let ended = |number| play.held().ended(number).map(|(how, _)| how);
    assert_eq!([1, 2, 3].map(ended), [Some(Extension::Extended), None, None]);
}

#[test]
fn the_config_of_a_lease_is_that_of_its_latest_extension_that_succeeded() {
    let longer = config(3).with_ttl(2_000 * MS).unwrap();
    for (reply, ttl) in [(Kept, 2_000 * MS), (Unknown(Cause::Disconnected), 1_000 * MS)] {
        let mut play = Play::hold(&[Grants; 3]);
        play.handle(Input::extend(longer));
        play.reply_all(Extend(1), 0..3, reply);
        assert_eq!(play.held().config().ttl(), ttl);
    }
    // The watchdog cuts its last renewal short. That is no wish of the holder.
    let mut play = Play::hold(&[Grants; 3]);
    play.handle(Input::KeepAlive(800 * MS));
    play.wake_at(play.held().renewal().unwrap().due);
    play.reply_all(Extend(1), 0..3, Kept);
    assert_eq!(play.held().config(), config(3));
}
