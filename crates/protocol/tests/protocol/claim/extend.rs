//! Extend: voters, repairs, rounds, shorter TTLs, loss.

use std::time::Duration;

use redquorum_protocol::{Effect, Extension, Input, Loss, Reply, Time, VoteRequest};

use super::play::*;

/// The expected state of a round of extending, from the replies that arrived.
fn extended(said: &[CommandOutcome], heard: &[usize], members: &[usize]) -> Option<Extension> {
    let in_time: Vec<usize> = heard.iter().copied().filter(|at| members.contains(at)).collect();
    let yes = count(said, &in_time, &[Grants]);
    // A rival may have had a majority: of the masters that never granted the key, and of those that
    // had lost it when the extend arrived.
    let free = said.len() - members.len() + count(said, &in_time, &[Refuses]);
    if 2 * free > said.len() {
        return Some(Extension::QuorumGone);
    }
    match stands(yes, members.len() - in_time.len(), said.len())? {
        true => Some(Extension::Extended),
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
    for said in product(masters) {
        for (number, order) in orders(&said).iter().enumerate() {
            let mut play = Play::hold(grants);
            let old = play.deadline();
            play.now = play.now.plus(100 * MS);
            let begun = play.now;
            play.handle(Input::extend(config(masters)));
            let mut expected = None;
            for heard in 0..=order.len() {
                if let Some(at) = heard.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.reply(Extend(1), at, kept(said[at], at, members.contains(&at)));
                }
                expected = expected.or_else(|| extended(&said, &order[..heard], &members));
                let state = expected.unwrap_or(Extension::Pending);
                assert_eq!(play.extension(), state, "{said:?} {order:?} after {heard}");
                let deadline = match state {
                    Extension::Extended => begun.plus(config(masters).validity()),
                    _ => old,
                };
                assert_eq!(play.deadline(), deadline, "{said:?} {order:?} after {heard}");
                // Drops are checked in one of the orders.
                if number == 0 {
                    once(&play);
                }
            }
            play.wake_at(begun.plus(50 * MS));
            let (state, deadline) = (play.extension(), play.deadline());
            assert_eq!(state == Extension::Extended, expected == Some(Extension::Extended));
            late(&said).for_each(|at| {
                play.reply(Extend(1), at, kept(said[at], at, members.contains(&at)));
            });
            assert_eq!((play.extension(), play.deadline()), (state, deadline), "{said:?}");
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
fn a_repair_is_asked_only_of_masters_that_do_not_vote_and_votes_only_from_the_next_round_on() {
    let mut play = Play::hold(&[Grants, Grants, Grants, Never, Never]);
    let repairs = |play: &mut Play| -> Vec<usize> {
        play.effects.clear();
        play.handle(Input::extend(config(5)));
        let asked = play.asked().into_iter();
        let repairs =
            asked.filter(|(_, request)| matches!(request, VoteRequest::Keep { repair: true, .. }));
        repairs.map(|(at, _)| at).collect()
    };
    assert_eq!(repairs(&mut play), [3, 4]);
    // Master 3 is silent: four positive replies, and yet no quorum.
    play.reply_all(Extend(1), 0..2, Kept);
    play.reply_all(Extend(1), 3..5, Created);
    play.wake();
    assert_eq!(play.extension(), Extension::NoQuorum);
    assert_eq!(repairs(&mut play), []);
    play.reply_all(Extend(2), [0, 3, 4], Kept);
    assert_eq!(play.extension(), Extension::Extended);
}

#[test]
fn an_answer_to_an_older_round_never_counts_for_a_newer_one() {
    let mut play = Play::hold(&[Grants; 5]);
    let old = play.deadline();
    play.handle(Input::extend(config(5)));
    play.now = play.now.plus(10 * MS);
    play.handle(Input::extend(config(5)));
    assert_eq!(play.held().ended(1).unwrap().0, Extension::NoQuorum, "its caller learns it");
    assert!(play.effects.contains(&Effect::Decided));
    play.reply_all(Extend(1), ALL, Kept);
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, old));
    play.reply_all(Extend(2), 0..3, Kept);
    assert_eq!(play.deadline(), START.plus(10 * MS).plus(config(5).validity()));
}

#[test]
fn a_shorter_ttl_binds_the_holder_before_anything_is_sent_and_whatever_comes_of_it() {
    let mut play = Play::hold(&[Grants; 5]);
    let short = config(5).with_ttl(100 * MS).unwrap();
    play.handle(Input::extend(short));
    let deadline = START.plus(short.validity());
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, deadline));
    (0..3).for_each(|at| play.reply(Extend(1), at, Some(unknown(at))));
    assert_eq!((play.extension(), play.deadline()), (Extension::NoQuorum, deadline));
    // A longer TTL moves the deadline only when the masters have replied.
    play.handle(Input::extend(config(5)));
    assert_eq!(play.deadline(), deadline);
}

#[test]
fn lost_is_final_whatever_comes_behind_it() {
    let mut play = Play::hold(&[Grants; 5]);
    play.handle(Input::KeepAlive(Duration::MAX));
    play.now = START.plus(920 * MS);
    play.handle(Input::extend(config(5)));
    let deadline = play.deadline();
    play.reply_all(Extend(1), [0], Kept);
    // A quorum of replies at the deadline is a loss, even if nothing woke the machine.
    let mut not_woken = play.fork();
    not_woken.now = deadline;
    not_woken.reply_all(Extend(1), 1..5, Kept);
    play.wake_at(deadline);
    for play in [&play, &not_woken] {
        assert_eq!(play.lost(), Some(Loss::Expired));
        assert_eq!(play.extension(), Extension::Lost(Loss::Expired));
        assert_eq!((play.claim.next_wake(), play.cleaned_up(5, 1)), (Time::NEVER, vec![1; 5]));
    }
    play.effects.clear();
    play.reply_all(Extend(1), 1..5, Kept);
    play.handle(Input::KeepAlive(Duration::MAX));
    play.handle(Input::extend(config(5)));
    play.wake_at(deadline.plus(1_000 * MS));
    assert_eq!((play.lost(), play.deadline()), (Some(Loss::Expired), deadline));
    assert_eq!((play.asked(), play.cleaned_up(5, 1)), (vec![], vec![0; 5]), "nothing more is sent");
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

/// `properties/gap.rs` has every other course of rounds.
#[test]
fn a_gap_is_seen_over_rounds() {
    // Masters 1 to 3 granted, 4 and 5 are cut off. Master 1 is flushed, a rival takes 1, 4 and 5,
    // and releases. In no single round do three masters lack the key.
    let mut play = Play::hold(&[Grants, Grants, Grants, Never, Never]);
    let deadline = play.deadline();
    play.now = play.now.plus(100 * MS);
    round(&mut play, 1, [(0, Absent), (1, Kept), (2, Kept), (3, Created)]);
    round(&mut play, 2, [(0, Created), (1, Kept), (2, Kept), (3, Kept)]);
    assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
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
