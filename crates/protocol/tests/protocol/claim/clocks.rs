//! Clocks that are not yet watched: every product of offset and step, in every order of arrival,
//! and which grants win.

use std::time::Duration;

use redquorum_protocol::{Claim, Input, LockConfig, NodeId, NodeSet, Reading, Reply, Time};

use super::play::*;

const BOUND_MS: u64 = 200;
/// The offsets of clocks before they step.
const APART: [u64; 2] = [0, BOUND_MS / 2 - 1];
const STEPS: [u64; 4] = [0, BOUND_MS / 2, BOUND_MS, BOUND_MS + 1];

/// A clock that must be watched for another second.
fn reading(ahead_ms: u64) -> Reading {
    watched(ahead_ms).unwatched_for(1_000 * MS)
}

fn watched(ahead_ms: u64) -> Reading {
    Reading::new(Time::ZERO, Time::ZERO, 1_000_000_000 + ahead_ms * 1000)
}

fn guarded(masters: usize) -> LockConfig {
    config(masters).with_clock_bound(200 * MS).unwrap()
}

fn timed(reading: Reading, reply: Reply) -> Reply {
    Timed { reading, reply: Box::new(reply) }
}

/// The masters of a lease, if the claim wins it.
fn won(play: &mut Play) -> Option<NodeSet> {
    play.handle(Input::Collect);
    match &play.claim {
        Claim::Holding(hold) => Some(hold.members()),
        _ => None,
    }
}

/// Every combination of offset and step for three masters.
fn clocks() -> impl Iterator<Item = Vec<(u64, u64)>> {
    let kinds: Vec<_> = APART.iter().flat_map(|apart| STEPS.map(|step| (*apart, step))).collect();
    combinations(&kinds, 3).collect::<Vec<_>>().into_iter()
}

/// Plays a round. Returns the masters that counted, and those that had replied by then.
fn play(all: &[(u64, u64)], order: &[usize], compares: bool) -> Option<(NodeSet, Vec<usize>)> {
    let config = if compares { guarded(all.len()) } else { config(all.len()) };
    let mut play = Play::acquire_on(config, ONCE);
    for (received, at) in order.iter().enumerate() {
        let (apart, step) = all[*at];
        play.reply_all(Attempt(1), [*at], timed(reading(apart + step), Created));
        if play.verdict().is_some() {
            return won(&mut play).map(|members| (members, order[..=received].to_vec()));
        }
    }
    None
}

/// The number of rounds in which a master counted that had stepped by more than the bound, beside a
/// master that had not stepped.
fn let_in(compares: bool) -> usize {
    let mut seen = 0;
    for all in clocks() {
        for order in orders(&[Grants; 3]) {
            let Some((members, received)) = play(&all, &order, compares) else { continue };
            let steady = received.iter().any(|at| all[*at].1 == 0);
            let stepped =
                |at: &&usize| all[**at].1 > BOUND_MS && members.contains(NodeId::new(**at));
            seen += usize::from(steady && received.iter().any(|at| stepped(&at)));
        }
    }
    seen
}

#[test]
fn beside_a_steady_clock_none_is_counted_that_stepped_by_more_than_the_bound() {
    assert_eq!(let_in(true), 0);
    assert!(let_in(false) > 300, "the check is blind");
}

#[test]
fn clocks_that_are_nearly_in_step_are_all_counted() {
    for all in clocks().filter(|all| all.iter().all(|(_, step)| *step == 0)) {
        for order in orders(&[Grants; 3]) {
            let (members, _) = play(&all, &order, true).expect("granted");
            assert_eq!(members.len(), 2, "{all:?} {order:?}");
        }
    }
}

#[test]
fn a_refusal_is_something_to_compare_with_and_a_majority_ahead_is_refused() {
    let mut play = Play::acquire_on(guarded(3), ONCE);
    play.reply_all(Attempt(1), [0], timed(reading(0), TAKEN));
    play.reply_all(Attempt(1), [1], timed(reading(150), Created));
    assert_eq!(play.verdict(), Some(false));
    assert_eq!(play.cleaned_up(3, 1), [1, 1, 1], "its key is cleaned up");
}

#[test]
fn a_clock_that_is_ahead_by_half_of_the_bound_is_counted_and_by_more_is_not() {
    // A reading is known to the microsecond.
    let half = Duration::from_micros(BOUND_MS * 1000 / 2 - 1);
    for (ahead, counts) in [(half, 3), (half + Duration::from_micros(1), 2)] {
        let mut play = Play::acquire_on(guarded(3), ONCE);
        let micros = u64::try_from(ahead.as_micros()).unwrap();
        let late = Reading::new(Time::ZERO, Time::ZERO, 1_000_000_000 + micros);
        play.reply_all(Attempt(1), [0], timed(late.unwatched_for(MS), Created));
        play.reply_all(Attempt(1), [1], timed(reading(0), TAKEN));
        let granted = play.acquiring().votes().which(|reply| *reply == Created);
        assert_eq!(granted.len() + 2, counts, "{ahead:?}");
    }
}

/// A master whose clock may have dropped another client's key creates the holder's there. It joins
/// the members only when its clock has been watched for a window.
#[test]
fn a_repair_counts_only_where_the_clock_was_watched() {
    for (reading, joins) in [(reading(0), false), (watched(0), true)] {
        let mut play = Play::acquire_on(guarded(3), ONCE);
        play.reply_all(Attempt(1), [0, 1], timed(watched(0), Created));
        play.reply_all(Attempt(1), [2], timed(watched(0), TAKEN));
        assert!(won(&mut play).is_some());
        for (round, reply) in [(1, Created), (2, Kept)] {
            play.handle(Input::extend(guarded(3)));
            play.reply_all(Extend(round), [0, 1], Kept);
            play.reply_all(Extend(round), [2], timed(reading, reply));
            let Claim::Holding(hold) = &play.claim else { panic!("it holds") };
            let members = hold.members().len();
            assert_eq!(members, 2 + usize::from(joins), "{reading:?} in round {round}");
        }
    }
}
