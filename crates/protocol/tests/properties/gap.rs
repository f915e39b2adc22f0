//! A lease over many rounds of extending, on masters that forget or cannot be reached. The lease is
//! lost as soon as the replies show that a rival may have had a quorum, and not earlier.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{
    Claim, Drift, Effect, Extension, Input, LockConfig, NodeId, Reply, RoundId, Time, VoteRequest,
    WaitPolicy, quorum,
};

use crate::claim::Count;

const MASTERS: usize = 7;

/// The outcome of one command.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Answered,
    ReplyLost,
    Cut,
}

/// One round: the masters that forget before it, and the outcomes of its commands.
type Round = ([bool; MASTERS], [Way; MASTERS]);

fn any_ways() -> impl Strategy<Value = [Way; MASTERS]> {
    let way = prop_oneof![6 => Just(Way::Answered), 1 => Just(Way::ReplyLost), 2 => Just(Way::Cut)];
    proptest::array::uniform7(way)
}

fn any_round() -> impl Strategy<Value = Round> {
    let forgets = prop_oneof![9 => Just(false), 1 => Just(true)];
    (proptest::array::uniform7(forgets), any_ways())
}

/// The replies of one master: their rounds, and whether it has the key since.
type QueueEvent = Vec<(usize, bool)>;

/// Whether the master lacked the key just before `round`, according to its replies.
fn lacked(heard: &QueueEvent, round: usize) -> bool {
    let held = heard.iter().rfind(|(at, _)| *at < round).is_some_and(|(_, held)| *held);
    let next = heard.iter().find(|(at, _)| *at >= round);
    !held || next.is_some_and(|(_, held)| !held)
}

/// Whether a quorum of masters lacked the key just before one of the rounds so far.
fn shows_gap(heard: &[QueueEvent], rounds: usize) -> bool {
    let lacked = |round: usize| heard.iter().filter(|heard| lacked(heard, round)).count();
    (1..=rounds).any(|round| lacked(round) >= quorum(heard.len()))
}

fn extension(claim: &Claim) -> Extension {
    let Claim::Holding(hold) = claim else { panic!("{claim:?}") };
    hold.extension().1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_lease_is_gone_once_a_rival_may_have_had_a_quorum_and_not_before(
        masters in 1..=MASTERS, granted in any_ways(), rounds in vec(any_round(), 1..12),
    ) {
        let reached = granted[..masters].iter().filter(|way| **way == Way::Answered).count();
        prop_assume!(reached >= quorum(masters));
        let day = Duration::from_secs(24 * 60 * 60);
        let terms = LockConfig::new(masters, day, Drift::default(), Duration::from_millis(50)).unwrap();
        let (mut rng, mut said) = (Count(0), Vec::new());
        let mut now = Time::from_millis(1_000);
        let mut claim = Claim::acquire(now, terms, WaitPolicy::default(), &mut rng, &mut said);
        let mut keys: Vec<bool> = granted[..masters].iter().map(|way| *way != Way::Cut).collect();
        let mut heard = vec![QueueEvent::new(); masters];
        for at in (0..masters).filter(|at| granted[*at] == Way::Answered) {
            let (node, step) = (NodeId::new(at), RoundId::Attempt(1));
            let input = Input::Answered { node, step, answer: Reply::Created };
            claim.handle(now, input, &mut rng, &mut said);
            heard[at].push((0, true));
            if let Claim::Acquiring(_) = &claim {
                claim.handle(now, Input::Collect, &mut rng, &mut said);
            }
        }
        let (mut forgot, mut truly, mut deaf) = (false, false, false);
        for (number, (forgets, ways)) in rounds.iter().enumerate() {
            let number = number + 1;
            for at in 0..masters {
                forgot |= keys[at] && forgets[at];
                keys[at] &= !forgets[at];
            }
            truly |= keys.iter().filter(|key| !**key).count() >= quorum(masters);
            said.clear();
            claim.handle(now, Input::Extend(terms), &mut rng, &mut said);
            for effect in said.clone() {
                let Effect::Send { node, step, ask: VoteRequest::Keep { repair, .. } } = effect else {
                    continue;
                };
                let way = ways[node.index()];
                deaf |= !repair && way != Way::Answered;
                if way == Way::Cut {
                    continue;
                }
                let had = keys[node.index()];
                keys[node.index()] = had || repair;
                let answer = match (had, repair) {
                    (true, _) => Reply::Kept,
                    (false, true) => Reply::Created,
                    (false, false) => Reply::Absent,
                };
                if way == Way::Answered {
                    let pending = extension(&claim) == Extension::Pending;
                    heard[node.index()].push((number, had || repair));
                    claim.handle(now, Input::Answered { node, step, answer }, &mut rng, &mut said);
                    if pending && extension(&claim) == Extension::Extended {
                        prop_assert!(!shows_gap(&heard, number), "{:?}", heard);
                    }
                }
            }
            now = now.plus(Duration::from_millis(50));
            claim.handle(now, Input::Wake, &mut rng, &mut said);
            let gone = shows_gap(&heard, number);
            // Replies may show a gap after the verdict; then the next round reports it.
            let mut next = claim.clone();
            next.handle(now, Input::Extend(terms), &mut rng, &mut said);
            prop_assert_eq!(extension(&next) == Extension::QuorumGone, gone, "{:?}", heard);
            prop_assert!(forgot || !gone, "masters that keep their keys show no gap");
            if truly && !deaf {
                prop_assert!(gone, "a gap that no member was too far away to tell of");
            }
            if gone {
                break;
            }
        }
    }
}
