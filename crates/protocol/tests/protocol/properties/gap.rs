//! A lease over many rounds of extending, on masters that forget or cannot be reached. The lease is
//! lost as soon as the replies show that a rival may have had a quorum, and not earlier.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{Drift, Extension, Input, LockConfig, Reply, VoteRequest, quorum};

use crate::claim::play::*;

const MASTERS: usize = 7;

/// The outcome of one command.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Replied,
    ReplyLost,
    Cut,
}

/// One round: the masters that forget before it, and the outcomes of its commands.
type Round = ([bool; MASTERS], [Way; MASTERS]);

fn any_ways() -> impl Strategy<Value = [Way; MASTERS]> {
    let way = prop_oneof![6 => Just(Way::Replied), 1 => Just(Way::ReplyLost), 2 => Just(Way::Cut)];
    proptest::array::uniform7(way)
}

fn any_round() -> impl Strategy<Value = Round> {
    let forgets = prop_oneof![9 => Just(false), 1 => Just(true)];
    (proptest::array::uniform7(forgets), any_ways())
}

/// The replies of one master: their rounds, and whether it has the key since.
type Replies = Vec<(usize, bool)>;

/// Whether the master lacked the key just before `round`, according to its replies.
fn lacked(replies: &Replies, round: usize) -> bool {
    let held = replies.iter().rfind(|(at, _)| *at < round).is_some_and(|(_, held)| *held);
    let next = replies.iter().find(|(at, _)| *at >= round);
    !held || next.is_some_and(|(_, held)| !held)
}

/// Whether a quorum of masters lacked the key just before one of the rounds so far.
fn shows_gap(replies: &[Replies], rounds: usize) -> bool {
    let lacked = |round: usize| replies.iter().filter(|replies| lacked(replies, round)).count();
    (1..=rounds).any(|round| lacked(round) >= quorum(replies.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_lease_is_gone_once_a_rival_may_have_had_a_quorum_and_not_before(
        masters in 1..=MASTERS, granted in any_ways(), rounds in vec(any_round(), 1..12),
    ) {
        let reached = granted[..masters].iter().filter(|way| **way == Way::Replied).count();
        prop_assume!(reached >= quorum(masters));
        let day = Duration::from_secs(24 * 60 * 60);
        let config = LockConfig::new(masters, day, Drift::default(), Duration::from_millis(50)).unwrap();
        let mut play = Play::acquire_on(config, ONCE);
        let mut keys: Vec<bool> = granted[..masters].iter().map(|way| *way != Way::Cut).collect();
        let mut replies = vec![Replies::new(); masters];
        for at in (0..masters).filter(|at| granted[*at] == Way::Replied) {
            play.reply(Attempt(1), at, Some(Reply::Created));
            replies[at].push((0, true));
            play.handle(Input::Collect);
        }
        let (mut forgot, mut truly, mut unreached) = (false, false, false);
        for (number, (forgets, ways)) in rounds.iter().enumerate() {
            let number = number + 1;
            for at in 0..masters {
                forgot |= keys[at] && forgets[at];
                keys[at] &= !forgets[at];
            }
            truly |= keys.iter().filter(|key| !**key).count() >= quorum(masters);
            play.effects.clear();
            play.handle(Input::extend(config));
            for (at, request) in play.asked() {
                let VoteRequest::Keep { repair, .. } = request else { continue };
                let way = ways[at];
                unreached |= !repair && way != Way::Replied;
                if way == Way::Cut {
                    continue;
                }
                let had = keys[at];
                keys[at] = had || repair;
                let reply = match (had, repair) {
                    (true, _) => Reply::Kept,
                    (false, true) => Reply::Created,
                    (false, false) => Reply::Absent,
                };
                if way == Way::Replied {
                    let pending = play.extension() == Extension::Pending;
                    replies[at].push((number, had || repair));
                    let round = u32::try_from(number).expect("there are few");
                    play.reply(Extend(round), at, Some(reply));
                    if pending && play.extension() == Extension::Extended {
                        prop_assert!(!shows_gap(&replies, number), "{:?}", replies);
                    }
                }
            }
            play.wake_at(play.now.plus(Duration::from_millis(50)));
            let gone = shows_gap(&replies, number);
            // Replies may show a gap after the verdict; then the next round reports it.
            let mut next = play.fork();
            next.handle(Input::extend(config));
            prop_assert_eq!(next.extension() == Extension::QuorumGone, gone, "{:?}", replies);
            let again = play.extension() == Extension::NoQuorum;
            prop_assert!(!(again && gone), "told to try again: {:?}", replies);
            prop_assert!(forgot || !gone, "masters that keep their keys show no gap");
            if truly && !unreached {
                prop_assert!(gone, "a gap of which every member could report");
            }
            if gone {
                break;
            }
        }
    }
}
