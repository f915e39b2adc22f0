//! Acquires with a fencing token: every product of the masters' grants, and of the state of their
//! keys before the number is certified.

use redquorum_protocol::{
    Claim, Drift, Effect, Failure, Input, LockConfig, Reply, RoundId, Token, VoteRequest,
};

use crate::play::{Error, Granted, Late, Never, Refused, *};

/// The reply of a master to the grant.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Grant {
    Number(u64),
    Refused,
    Never,
}

/// The reply of a master to a round of certifying.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Then {
    StillOurs,
    KeyGone,
    Never,
}

fn all<T: Copy>(kinds: &[T], masters: usize) -> impl Iterator<Item = Vec<T>> {
    let count = kinds.len().pow(u32::try_from(masters).unwrap());
    (0..count).map(move |number| {
        let digit = |at: usize| number / kinds.len().pow(u32::try_from(at).unwrap());
        (0..masters).map(|at| kinds[digit(at) % kinds.len()]).collect()
    })
}

const GRANTS: [Grant; 5] =
    [Grant::Number(5), Grant::Number(6), Grant::Number(9), Grant::Refused, Grant::Never];
const THENS: [Then; 3] = [Then::StillOurs, Then::KeyGone, Then::Never];

/// The number that a quorum shows at once, and the q-th smallest number.
fn oracle(numbers: &[u64], quorum: usize) -> (Option<u64>, Option<u64>) {
    let times = |number: &u64| numbers.iter().filter(|other| *other == number).count();
    let agreed = numbers.iter().copied().find(|number| times(number) >= quorum);
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    (agreed, sorted.get(quorum - 1).copied())
}

struct Run {
    play: Play,
    /// The counter of each master that holds the key.
    counters: Vec<Option<u64>>,
}

impl Run {
    fn start(grants: &[Grant]) -> Self {
        let mut play = Play::acquire_fenced(grants.len());
        let mut counters = vec![None; grants.len()];
        for (at, grant) in grants.iter().enumerate() {
            match grant {
                Grant::Number(number) => {
                    counters[at] = Some(*number);
                    play.hear(RoundId::Attempt(1), at, Some(Reply::Granted { number: *number }));
                }
                Grant::Refused => play.hear(RoundId::Attempt(1), at, Some(unknown(1))),
                Grant::Never => {}
            }
        }
        let mut run = Self { play, counters };
        if run.asked().is_none() && run.play.verdict().is_none() {
            run.play.wake_at(START.plus(50 * MS));
        }
        run
    }

    /// The number that the latest round certifies, and the number of that round. None once the
    /// claim is decided.
    fn asked(&self) -> Option<(u64, u32)> {
        let mut numbers = self.play.said.iter().filter_map(|effect| match effect {
            redquorum_protocol::Effect::Send {
                step: RoundId::Certify { round, .. },
                ask: VoteRequest::Certify { fence, .. },
                ..
            } => Some((fence.number, *round)),
            _ => None,
        });
        numbers.next_back().filter(|_| self.play.verdict().is_none())
    }

    fn certify(&mut self, thens: &[Then]) {
        let (number, round) = self.asked().expect("a round is under way");
        let step = RoundId::Certify { attempt: 1, round };
        for (at, then) in thens.iter().enumerate() {
            match (then, self.counters[at]) {
                (Then::StillOurs, Some(counter)) => {
                    let number = counter.max(number);
                    self.counters[at] = Some(number);
                    self.play.hear(step, at, Some(Reply::Certified { number }));
                }
                (Then::KeyGone | Then::StillOurs, _) => {
                    self.counters[at] = None;
                    self.play.hear(step, at, Some(refusal(at)));
                }
                (Then::Never, _) => {}
            }
        }
        let ends = self.play.claim.next_wake();
        if self.play.verdict().is_none() && self.asked() == Some((number, round)) {
            self.play.wake_at(ends);
        }
    }

    fn token(&mut self) -> Option<u64> {
        self.play.tell(Input::Collect);
        match &self.play.claim {
            Claim::Holding(hold) => Some(hold.fencing_token().expect("it was asked for")),
            _ => None,
        }
    }
}

#[test]
fn whatever_masters_grant_a_quorum_that_still_holds_the_key_stands_at_the_token() {
    let (mut at_once, mut certified, mut lost) = (0, 0, 0);
    for masters in 1..=4 {
        let quorum = masters / 2 + 1;
        for grants in all(&GRANTS, masters) {
            let numbers: Vec<u64> = grants
                .iter()
                .filter_map(
                    |grant| if let Grant::Number(number) = grant { Some(*number) } else { None },
                )
                .collect();
            let (agreed, candidate) = oracle(&numbers, quorum);
            let mut run = Run::start(&grants);
            if numbers.len() < quorum {
                assert_eq!(run.play.verdict(), Some(false), "{grants:?}");
                continue;
            }
            if let Some(agreed) = agreed {
                assert_eq!(run.asked(), None, "a round too many: {grants:?}");
                assert_eq!(run.token(), Some(agreed), "{grants:?}");
                at_once += 1;
                continue;
            }
            assert_eq!(run.asked().map(|asked| asked.0), candidate, "{grants:?}");
            for thens in all(&THENS, masters) {
                let mut run = Run::start(&grants);
                run.certify(&thens);
                // In a second round, if there is one, all masters reply.
                if run.asked().is_some() {
                    run.certify(&vec![Then::StillOurs; masters]);
                }
                let stand = |token: u64| {
                    run.counters.iter().filter(|counter| **counter == Some(token)).count()
                };
                let kept = thens.iter().zip(&grants);
                let kept = kept.filter(|(then, grant)| {
                    **then == Then::StillOurs && matches!(grant, Grant::Number(_))
                });
                let kept = kept.count();
                let stands: Vec<usize> = (0..=9).map(stand).collect();
                match run.token() {
                    Some(token) => {
                        let stand = stands[usize::try_from(token).unwrap()];
                        assert!(stand >= quorum, "{token}: {grants:?} {thens:?}");
                        assert!(Some(token) >= candidate);
                        certified += 1;
                    }
                    None => {
                        assert!(kept < quorum, "not won: {grants:?} {thens:?}");
                        lost += 1;
                        let token = Token::new([1; redquorum_protocol::TOKEN_LEN]);
                        assert!(run.play.settled(masters, 1).iter().all(|count| *count == 1));
                        let Claim::Acquiring(acquire) = &run.play.claim else { panic!() };
                        assert_eq!(acquire.token(), token);
                    }
                }
            }
        }
    }
    assert!(at_once > 50 && certified > 500 && lost > 500, "{at_once} {certified} {lost}");
}

#[test]
fn answers_of_an_earlier_round_and_of_an_earlier_attempt_certify_nothing() {
    let mut run = Run::start(&[Grant::Number(5), Grant::Number(6), Grant::Number(9)]);
    assert_eq!(run.asked(), Some((6, 1)));
    for step in [
        RoundId::Certify { attempt: 1, round: 0 },
        RoundId::Certify { attempt: 1, round: 2 },
        RoundId::Certify { attempt: 2, round: 1 },
    ] {
        (0..3).for_each(|at| run.play.hear(step, at, Some(Reply::Certified { number: 6 })));
    }
    assert_eq!(run.play.verdict(), None);
}

#[test]
fn a_number_that_is_certified_too_late_is_no_token() {
    let mut run = Run::start(&[Grant::Number(5), Grant::Number(6), Grant::Number(9)]);
    run.play.now = START.plus(1_000 * MS);
    let step = RoundId::Certify { attempt: 1, round: 1 };
    (0..3).for_each(|at| run.play.hear(step, at, Some(Reply::Certified { number: 6 })));
    let Claim::Acquiring(acquire) = &run.play.claim else { panic!() };
    assert_eq!(acquire.failure(), Some(Failure::TooLate));
}

#[test]
fn a_master_that_lost_the_key_before_the_number_was_certified_has_a_gap() {
    let mut run = Run::start(&[
        Grant::Number(5),
        Grant::Number(6),
        Grant::Number(9),
        Grant::Number(7),
        Grant::Number(8),
    ]);
    run.certify(&[
        Then::KeyGone,
        Then::StillOurs,
        Then::StillOurs,
        Then::StillOurs,
        Then::StillOurs,
    ]);
    assert_eq!(run.asked(), Some((8, 2)), "at 7, 9, 7 and 8 no quorum stands");
    run.certify(&[Then::Never, Then::StillOurs, Then::StillOurs, Then::StillOurs, Then::StillOurs]);
    assert_eq!(run.token(), Some(8));
    let Claim::Holding(hold) = &run.play.claim else { panic!() };
    assert!(hold.members().len() <= 4);
    // Master 0 was silent in the certifying round. Its earlier number still counts.
    assert!(!hold.members().contains(redquorum_protocol::NodeId::new(0)));
}

#[test]
fn whoever_extends_a_fenced_lease_tells_the_masters_its_token() {
    let mut run = Run::start(&[Grant::Number(7), Grant::Number(7), Grant::Refused]);
    assert_eq!(run.token(), Some(7));
    run.play.said.clear();
    run.play.tell(Input::Extend(terms(3)));
    let fences: Vec<_> = run
        .play
        .asked()
        .into_iter()
        .map(|(_, ask)| match ask {
            VoteRequest::Keep { fence, repair, .. } => (fence.map(|fence| fence.number), repair),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(fences, [(Some(7), false), (Some(7), false), (Some(7), true)]);
}

/// Whether a driver that sleeps until the last `next_wake` must check the claim again.
fn wakes(before: &Claim, after: &Claim) -> bool {
    let over = |claim: &Claim| matches!(claim, Claim::Acquiring(acquire) if acquire.is_won() || acquire.failure().is_some());
    over(after) && !over(before) || after.next_wake() < before.next_wake()
}

fn hear_and_check(play: &mut Play, step: RoundId, at: usize, answer: Option<Reply>) {
    let before = play.claim.clone();
    play.said.clear();
    play.hear(step, at, answer.clone());
    let told = play.said.contains(&Effect::Decided);
    assert!(told || !wakes(&before, &play.claim), "{answer:?} of {at}: {before:?}");
}

#[test]
fn every_answer_that_ends_the_wait_or_brings_its_end_nearer_wakes_the_caller() {
    // A lease is valid for 97 ms, of which 60 remain for the last certifying round.
    let fenced = LockConfig::new(5, 100 * MS, Drift::default(), 60 * MS).unwrap();
    let fenced = fenced.with_fencing(60_000 * MS).unwrap();
    let grant = |said: Said, at: usize| match said {
        Granted | Late => {
            Some(Reply::Granted { number: if said == Granted { 7 } else { 8 + at as u64 } })
        }
        other => vote(other, at),
    };
    let certify = |said: Said, at: usize| match said {
        Granted | Late => Some(Reply::Certified { number: if said == Granted { 10 } else { 11 } }),
        Refused => Some(refusal(at)),
        Error => Some(unknown(at)),
        Never => None,
    };
    for said in product(5) {
        let mut play = Play::acquire_on(fenced, ONCE);
        (0..5)
            .for_each(|at| hear_and_check(&mut play, RoundId::Attempt(1), at, grant(said[at], at)));
    }
    for said in product(5) {
        for late in [10 * MS, 96 * MS, 97 * MS] {
            let mut play = Play::acquire_on(fenced, ONCE);
            (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, grant(Late, at)));
            play.now = START.plus(late);
            let step = RoundId::Certify { attempt: 1, round: 1 };
            (0..5).for_each(|at| hear_and_check(&mut play, step, at, certify(said[at], at)));
        }
    }
}
