//! Extend: voters, repairs, rounds, shorter TTLs, loss, the watchdog.

use std::time::Duration;

use redquorum_protocol::{
    Claim, Effect, Extension, Input, Loss, Reply, RoundId, Time, VoteRequest,
};

use crate::play::*;
use Reply::{Absent, Created, Kept};

/// The expected state of a round of extending, from the replies that arrived.
fn extended(said: &[Said], heard: &[usize], members: &[usize]) -> Option<Extension> {
    let in_time: Vec<usize> = heard.iter().copied().filter(|at| members.contains(at)).collect();
    let yes = count(said, &in_time, &[Granted]);
    // A rival may have had a majority: of the masters that never granted the key, and of those that
    // had lost it when the extend arrived.
    let free = said.len() - members.len() + count(said, &in_time, &[Refused]);
    if 2 * free > said.len() {
        return Some(Extension::QuorumGone);
    }
    match stands(yes, members.len() - in_time.len(), said.len())? {
        true => Some(Extension::Extended),
        false => Some(Extension::NoQuorum),
    }
}

fn check_extend(grants: &[Said]) {
    let masters = grants.len();
    let members: Vec<usize> = (0..masters).filter(|at| grants[*at] == Granted).collect();
    for said in product(masters) {
        for order in orders(&said) {
            let mut play = Play::hold(grants);
            let old = play.deadline();
            play.now = play.now.plus(100 * MS);
            let begun = play.now;
            play.tell(Input::Extend(terms(masters)));
            let mut expected = None;
            for heard in 0..=order.len() {
                if let Some(at) = heard.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.hear(RoundId::Extend(1), at, kept(said[at], at, members.contains(&at)));
                }
                expected = expected.or_else(|| extended(&said, &order[..heard], &members));
                let state = expected.unwrap_or(Extension::Pending);
                assert_eq!(play.extension(), state, "{said:?} {order:?} after {heard}");
                let deadline = match state {
                    Extension::Extended => begun.plus(terms(masters).validity()),
                    _ => old,
                };
                assert_eq!(play.deadline(), deadline, "{said:?} {order:?} after {heard}");
            }
            play.wake_at(begun.plus(50 * MS));
            let (state, deadline) = (play.extension(), play.deadline());
            assert_eq!(state == Extension::Extended, expected == Some(Extension::Extended));
            late(&said).for_each(|at| {
                play.hear(RoundId::Extend(1), at, kept(said[at], at, members.contains(&at)));
            });
            assert_eq!((play.extension(), play.deadline()), (state, deadline), "{said:?}");
            assert_eq!(play.settled(masters, 1), vec![0; masters], "a failed extend takes nothing");
            play.tell(Input::Abandon);
            assert_eq!(play.settled(masters, 1), vec![1; masters]);
        }
    }
}

#[test]
fn an_extend_counts_five_members() {
    check_extend(&[Granted; 5]);
}

#[test]
fn an_extend_counts_only_members() {
    check_extend(&[Granted, Granted, Granted, Never, Never]);
    check_extend(&[Granted, Never, Granted, Granted, Granted]);
}

#[test]
fn an_extend_counts_right_for_one_to_four_masters() {
    (1..=4).for_each(|masters| check_extend(&vec![Granted; masters]));
    check_extend(&[Granted, Never, Granted, Granted]);
}

#[test]
fn a_drop_at_every_step_of_an_extend_settles_every_master_once() {
    for said in product(5) {
        for cut in 0..=6 {
            let mut play = Play::hold(&[Granted; 5]);
            play.tell(Input::Extend(terms(5)));
            (0..cut.min(5)).for_each(|at| {
                play.hear(RoundId::Extend(1), at, kept(said[at], at, true));
            });
            if cut == 6 {
                play.wake_at(START.plus(50 * MS));
            }
            play.tell(Input::Abandon);
            assert_eq!(play.settled(5, 1), [1; 5], "{said:?} {cut}");
        }
    }
}

#[test]
fn a_repair_is_asked_only_of_masters_that_do_not_vote_and_votes_only_from_the_next_round_on() {
    let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
    play.tell(Input::Extend(terms(5)));
    let repairs = |play: &Play| -> Vec<bool> {
        let asked = play.asked();
        asked[asked.len() - 5..]
            .iter()
            .map(|(_, ask)| matches!(ask, VoteRequest::Keep { repair: true, .. }))
            .collect()
    };
    assert_eq!(repairs(&play), [false, false, false, true, true]);
    // Master 3 is silent: four positive replies, and yet no quorum.
    (0..2).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    (3..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Created)));
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.extension(), Extension::NoQuorum);
    play.tell(Input::Extend(terms(5)));
    assert_eq!(repairs(&play), [false; 5]);
    [0, 3, 4].into_iter().for_each(|at| play.hear(RoundId::Extend(2), at, Some(Reply::Kept)));
    assert_eq!(play.extension(), Extension::Extended);
}

#[test]
fn an_answer_to_an_older_round_never_counts_for_a_newer_one() {
    let mut play = Play::hold(&[Granted; 5]);
    let old = play.deadline();
    play.tell(Input::Extend(terms(5)));
    play.now = play.now.plus(10 * MS);
    play.tell(Input::Extend(terms(5)));
    let Claim::Holding(hold) = &play.claim else { panic!("{:?}", play.claim) };
    assert_eq!(hold.ended(1).unwrap().0, Extension::NoQuorum, "nobody waits for it for ever");
    assert!(play.said.contains(&Effect::Decided));
    (0..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, old));
    (0..3).for_each(|at| play.hear(RoundId::Extend(2), at, Some(Reply::Kept)));
    assert_eq!(play.deadline(), START.plus(10 * MS).plus(terms(5).validity()));
}

#[test]
fn a_shorter_ttl_binds_the_holder_before_anything_is_sent_and_whatever_comes_of_it() {
    let mut play = Play::hold(&[Granted; 5]);
    let short = terms(5).with_ttl(100 * MS).unwrap();
    play.tell(Input::Extend(short));
    let deadline = START.plus(short.validity());
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, deadline));
    (0..3).for_each(|at| play.hear(RoundId::Extend(1), at, Some(unknown(at))));
    assert_eq!((play.extension(), play.deadline()), (Extension::NoQuorum, deadline));
    // A longer TTL moves the deadline only when the masters have replied.
    play.tell(Input::Extend(terms(5)));
    assert_eq!(play.deadline(), deadline);
}

#[test]
fn lost_is_final_whatever_comes_behind_it() {
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(Duration::MAX));
    play.now = START.plus(920 * MS);
    play.tell(Input::Extend(terms(5)));
    let deadline = play.deadline();
    play.hear(RoundId::Extend(1), 0, Some(Reply::Kept));
    play.wake_at(deadline);
    assert_eq!(play.lost(), Some(Loss::Expired));
    assert_eq!(play.extension(), Extension::Lost(Loss::Expired));
    assert_eq!((play.claim.next_wake(), play.settled(5, 1)), (Time::NEVER, vec![1; 5]));
    let asked = play.asked().len();
    (1..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    play.tell(Input::KeepAlive(Duration::MAX));
    play.tell(Input::Extend(terms(5)));
    play.wake_at(deadline.plus(1_000 * MS));
    assert_eq!((play.lost(), play.deadline()), (Some(Loss::Expired), deadline));
    assert_eq!(play.asked().len(), asked, "nothing more is asked for a lost lease");
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn a_quorum_of_answers_at_the_deadline_is_a_loss_even_if_nobody_woke_the_machine() {
    let mut play = Play::hold(&[Granted; 5]);
    play.now = START.plus(960 * MS);
    play.tell(Input::Extend(terms(5)));
    play.now = play.deadline();
    (0..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    assert_eq!(play.lost(), Some(Loss::Expired));
    assert_eq!(play.extension(), Extension::Lost(Loss::Expired));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn a_watchdog_renews_until_its_bound_and_its_lease_ends_there() {
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(5_000 * MS));
    let mut rounds = 0;
    while play.lost().is_none() {
        play.wake_at(play.claim.next_wake());
        if play.extension() == Extension::Pending {
            rounds += 1;
            (0..5).for_each(|at| play.hear(RoundId::Extend(rounds), at, Some(Reply::Kept)));
        }
        assert!(play.deadline() <= START.plus(5_000 * MS));
        assert!(rounds < 40, "it spins");
    }
    assert_eq!(play.lost(), Some(Loss::MaxHold));
    assert!(play.now > START.plus(4_900 * MS) && rounds > 11, "{:?} {rounds}", play.now);
}

#[test]
fn a_watchdog_whose_masters_are_silent_tries_until_the_deadline_and_does_not_spin() {
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(5_000 * MS));
    let mut wakes = 0;
    while play.lost().is_none() {
        play.wake_at(play.claim.next_wake());
        wakes += 1;
    }
    assert_eq!((play.lost(), play.now), (Some(Loss::Expired), START.plus(terms(5).validity())));
    assert!((10..40).contains(&wakes), "{wakes}");
}

#[test]
fn a_watchdog_that_hears_that_the_quorum_is_gone_does_not_wait_for_the_deadline() {
    let mut play = Play::hold(&[Granted; 5]);
    play.tell(Input::KeepAlive(5_000 * MS));
    play.wake_at(play.claim.next_wake());
    (0..3).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Absent)));
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn a_gap_in_the_quorum_is_not_hidden_by_what_is_repaired_behind_it() {
    let mut play = Play::hold(&[Granted; 5]);
    let deadline = play.deadline();
    play.tell(Input::Extend(terms(5)));
    (0..3).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Absent)));
    assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
    play.said.clear();
    play.tell(Input::Extend(terms(5)));
    assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
    assert_eq!(play.asked(), [], "nothing is repaired for a lease that had a gap");
    assert_eq!(play.lost(), None, "a failed extension changes nothing");
    // A watchdog that starts now has nothing to keep alive.
    play.tell(Input::KeepAlive(5_000 * MS));
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
}

#[test]
fn a_gap_is_seen_also_after_the_verdict_and_not_hidden_by_repairs() {
    // The first three masters granted; the other two were down. Then the third one forgets.
    let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
    play.tell(Input::Extend(terms(5)));
    (0..2).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    (3..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Created)));
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.extension(), Extension::NoQuorum);
    // The last two masters had no key before this round repaired it: three of five were free for a
    // rival.
    play.hear(RoundId::Extend(1), 2, Some(Reply::Absent));
    play.tell(Input::Extend(terms(5)));
    assert_eq!(play.extension(), Extension::QuorumGone);
}

#[test]
fn keys_that_were_made_anew_in_an_earlier_round_are_no_gap_in_a_later_one() {
    let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
    play.tell(Input::Extend(terms(5)));
    (0..3).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Kept)));
    (3..5).for_each(|at| play.hear(RoundId::Extend(1), at, Some(Reply::Created)));
    play.tell(Input::Extend(terms(5)));
    // Two masters that forget now are no gap: the repaired ones have held the key since.
    (0..2).for_each(|at| play.hear(RoundId::Extend(2), at, Some(Reply::Absent)));
    assert_eq!(play.extension(), Extension::Pending);
    (2..5).for_each(|at| play.hear(RoundId::Extend(2), at, Some(Reply::Kept)));
    assert_eq!(play.extension(), Extension::Extended);
}

/// One round, in which masters send these replies in this order.
fn round(play: &mut Play, number: u32, answers: &[(usize, Reply)]) {
    play.tell(Input::Extend(terms(5)));
    for (at, answer) in answers {
        play.hear(RoundId::Extend(number), *at, Some(answer.clone()));
    }
    play.wake_at(play.now.plus(50 * MS));
}

#[test]
fn a_gap_is_seen_over_rounds() {
    // Masters 1 to 3 granted, 4 and 5 are cut off. Master 1 is flushed, a rival takes 1, 4 and 5,
    // and releases. In no single round do three masters lack the key.
    for fifth in [Some(Created), None] {
        let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
        let deadline = play.deadline();
        play.now = play.now.plus(100 * MS);
        round(&mut play, 1, &[(0, Absent), (1, Kept), (2, Kept), (3, Created)]);
        let mut second = vec![(0, Created), (1, Kept), (2, Kept), (3, Kept)];
        second.extend(fifth.map(|answer| (4, answer)));
        round(&mut play, 2, &second);
        assert_eq!((play.extension(), play.deadline()), (Extension::QuorumGone, deadline));
    }
}

#[test]
fn silence_is_no_gap_and_a_late_denial_is() {
    // While 4 and 5 are repaired, the third master is silent. It counts as having its key until it
    // replies otherwise.
    let hold = || {
        let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
        round(&mut play, 1, &[(0, Kept), (1, Kept), (3, Created), (4, Created)]);
        round(&mut play, 2, &[(0, Kept), (1, Kept), (3, Kept), (4, Kept)]);
        assert_eq!(play.extension(), Extension::Extended);
        play
    };
    let mut play = hold();
    round(&mut play, 3, &[(2, Kept), (0, Absent), (1, Absent), (3, Kept), (4, Kept)]);
    assert_eq!(play.extension(), Extension::Extended, "it held the key all the time");
    let mut play = hold();
    round(&mut play, 3, &[(2, Absent), (0, Kept), (1, Kept), (3, Kept), (4, Kept)]);
    assert_eq!(play.extension(), Extension::QuorumGone);
}

#[test]
fn a_key_that_expired_by_itself_is_no_gap_before_that() {
    let all = |answer: &dyn Fn(usize) -> Option<Reply>| -> Vec<(usize, Reply)> {
        (0..5).filter_map(|at| answer(at).map(|answer| (at, answer))).collect()
    };
    let mut play = Play::hold(&[Granted, Granted, Granted, Never, Never]);
    // The third master is silent. The others are repaired and kept until its key has expired.
    round(&mut play, 1, &[(0, Kept), (1, Kept), (3, Created), (4, Created)]);
    for number in 2..5 {
        play.now = play.now.plus(400 * MS);
        round(&mut play, number, &all(&|at| (at != 2).then_some(Kept)));
        assert_eq!(play.extension(), Extension::Extended, "{number}");
    }
    round(&mut play, 5, &all(&|at| Some(if at == 2 { Absent } else { Kept })));
    assert_eq!(play.extension(), Extension::Extended);
}

#[test]
fn a_key_that_must_have_expired_is_not_taken_for_one_that_is_held() {
    let mut play = Play::hold(&[Granted; 5]);
    for number in 1..4 {
        play.now = play.now.plus(400 * MS);
        round(&mut play, number, &[(0, Kept), (1, Kept), (2, Kept)]);
    }
    // 4 and 5 have been silent for longer than their keys live, so one more master that forgets is
    // enough.
    round(&mut play, 4, &[(0, Absent), (1, Kept), (2, Kept)]);
    assert_eq!(play.extension(), Extension::QuorumGone);
}
