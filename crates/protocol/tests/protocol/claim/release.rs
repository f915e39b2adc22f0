//! Release: every product of outcomes in every order.

use redquorum_protocol::{Claim, Extension, Input, Loss, Outcome};

use super::play::*;

/// The outcome of a release, if all possible replies of `awaited` masters agree on it.
fn released(deleted: usize, gone: usize, awaited: usize, masters: usize) -> Option<Outcome> {
    let outcome = |deleted: usize, gone: usize| {
        // A majority deleted the key: a majority held it. So many lack the key that a majority is
        // impossible: no majority held it.
        match (2 * deleted > masters, 2 * gone >= masters) {
            (true, _) => Outcome::Released,
            (_, true) => Outcome::AlreadyGone,
            _ => Outcome::Unknown,
        }
    };
    let ways = (0..=awaited).flat_map(|more| (0..=awaited - more).map(move |gone| (more, gone)));
    let mut ways = ways.map(|(more, also)| outcome(deleted + more, gone + also));
    let first = ways.next()?;
    ways.all(|way| way == first).then_some(first)
}

#[test]
fn a_release_reports_what_masters_reply_in_every_order_and_asks_each_once() {
    for masters in 1..=5 {
        for outcomes in product(masters) {
            for order in orders(&outcomes) {
                let mut play = Play::hold(&vec![Grants; masters]);
                play.handle(Input::Release);
                let mut expected = None;
                for received in 0..=order.len() {
                    if let Some(at) = received.checked_sub(1).map(|last| order[last]) {
                        play.reply(Release, at, compared(outcomes[at], at, Deleted));
                    }
                    let of = |what| count(&outcomes, &order[..received], &[what]);
                    expected = expected
                        .or_else(|| released(of(Grants), of(Refuses), masters - received, masters));
                    assert_eq!(play.outcome(), expected, "{outcomes:?} {order:?} after {received}");
                }
                play.wake_at(START.plus(50 * MS));
                late(&outcomes)
                    .for_each(|at| play.reply(Release, at, compared(outcomes[at], at, Deleted)));
                let expected = expected.unwrap_or(Outcome::Unknown);
                assert_eq!(play.outcome(), Some(expected), "{outcomes:?} {order:?}");
                play.handle(Input::Abandon);
                assert_eq!(play.cleaned_up(masters, 1), vec![1; masters]);
            }
        }
    }
}

/// A lease that is known to have ended, before it is given back.
fn ended(masters: usize) -> [(&'static str, Play); 3] {
    let mut expired = Play::hold(&vec![Grants; masters]);
    expired.wake_at(expired.deadline());
    assert_eq!(expired.lost(), Some(Loss::Expired));
    let mut unnoticed = Play::hold(&vec![Grants; masters]);
    unnoticed.now = unnoticed.deadline();
    let mut gap = Play::hold(&vec![Grants; masters]);
    gap.handle(Input::extend(config(masters)));
    gap.reply_all(Extend(1), 0..masters, Absent);
    assert_eq!((gap.extension(), gap.lost()), (Extension::QuorumGone, None));
    [("expired", expired), ("expired, before its timer", unnoticed), ("a gap", gap)]
}

#[test]
fn a_lease_that_is_known_to_be_lost_is_already_gone_whoever_replies() {
    for masters in 1..=5 {
        for (name, lost) in ended(masters) {
            for outcomes in product(masters) {
                let mut play = lost.fork();
                play.handle(Input::Release);
                for (at, outcome) in outcomes.iter().enumerate() {
                    let reply =
                        if *outcome == Late { None } else { compared(*outcome, at, Deleted) };
                    play.reply(Release, at, reply);
                    let known = play.outcome();
                    assert!(
                        matches!(known, None | Some(Outcome::AlreadyGone)),
                        "{name} {outcomes:?}"
                    );
                }
                play.wake_at(play.now.plus(50 * MS));
                assert_eq!(play.outcome(), Some(Outcome::AlreadyGone), "{name} {outcomes:?}");
            }
        }
    }
}

#[test]
fn a_gap_is_no_lease_to_the_end_though_a_dropped_handle_keeps_its_keys() {
    let lock_delay = config(3).with_lock_delay(2_000 * MS).unwrap();
    let mut play = Play::hold_on(lock_delay, &[Grants; 3]);
    play.handle(Input::Reenter);
    play.handle(Input::Abandon);
    play.handle(Input::extend(lock_delay));
    play.reply_all(Extend(1), 0..2, Absent);
    play.handle(Input::Release);
    assert_eq!((play.outcome(), play.left().len()), (Some(Outcome::AlreadyGone), 3));
}

#[test]
fn a_release_whose_caller_is_gone_is_over_for_the_client() {
    let mut play = Play::hold(&[Grants; 3]);
    play.handle(Input::Release);
    play.effects.clear();
    play.handle(Input::Abandon);
    assert_eq!((play.claim, play.effects), (Claim::Ended, vec![]));
}
