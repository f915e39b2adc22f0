//! Acquires with a fencing token: every product of the masters' grants, and of the state of their
//! keys before the number is certified.

use redquorum_protocol::{
    Claim, Drift, Effect, Failure, Input, LockConfig, NodeId, Reply, RoundId, VoteRequest,
};

use super::play::*;

/// The reply of a master to the grant: a number, a refusal or none.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Grant {
    Number(u64),
    Error,
    Never,
}

/// The reply of a master to a round of certifying.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Certifying {
    Ours,
    Gone,
    Never,
}

use Certifying::{Gone, Ours};
use Grant::Number;

const GRANTS: [Grant; 5] = [Number(5), Number(6), Number(9), Grant::Error, Grant::Never];
const CERTIFYING: [Certifying; 3] = [Ours, Gone, Certifying::Never];

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
                Number(number) => {
                    counters[at] = Some(*number);
                    play.reply_all(Attempt(1), [at], Granted { number: *number });
                }
                Grant::Error => play.reply_all(Attempt(1), [at], unknown(1)),
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
        let numbers = found!(
            self.play,
            Effect::Send {
                step: Certify { round, .. },
                request: VoteRequest::Certify { fence, .. },
                ..
            } => (fence.number, *round)
        );
        numbers.last().copied().filter(|_| self.play.verdict().is_none())
    }

    fn certify(&mut self, replies: &[Certifying]) {
        let (number, round) = self.asked().expect("a round is under way");
        let step = Certify { attempt: 1, round };
        for (at, reply) in replies.iter().enumerate() {
            match (reply, self.counters[at]) {
                (Ours, Some(counter)) => {
                    let number = counter.max(number);
                    self.counters[at] = Some(number);
                    self.play.reply_all(step, [at], Certified { number });
                }
                (Gone | Ours, _) => {
                    self.counters[at] = None;
                    self.play.reply_all(step, [at], refusal(at));
                }
                (Certifying::Never, _) => {}
            }
        }
        if self.play.verdict().is_none() && self.asked() == Some((number, round)) {
            self.play.wake();
        }
    }

    fn token(&mut self) -> Option<u64> {
        self.play.handle(Input::Collect);
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
        for grants in combinations(&GRANTS, masters) {
            let number =
                |grant: &Grant| if let Number(number) = grant { Some(*number) } else { None };
            let numbers: Vec<u64> = grants.iter().filter_map(number).collect();
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
            for replies in combinations(&CERTIFYING, masters) {
                let mut run = Run::start(&grants);
                run.certify(&replies);
                // In a second round, if there is one, all masters reply.
                if run.asked().is_some() {
                    run.certify(&vec![Ours; masters]);
                }
                let kept = replies.iter().zip(&grants);
                let kept = kept.filter(|(reply, grant)| **reply == Ours && number(grant).is_some());
                match run.token() {
                    Some(token) => {
                        let stands = run.counters.iter().filter(|it| **it == Some(token)).count();
                        assert!(stands >= quorum, "{token}: {grants:?} {replies:?}");
                        assert!(Some(token) >= candidate);
                        certified += 1;
                    }
                    None => {
                        assert!(kept.count() < quorum, "not won: {grants:?} {replies:?}");
                        lost += 1;
                        assert!(run.play.cleaned_up(masters, 1).iter().all(|count| *count == 1));
                        assert_eq!(run.play.acquiring().token(), token(1));
                    }
                }
            }
        }
    }
    assert!(at_once > 50 && certified > 500 && lost > 500, "{at_once} {certified} {lost}");
}

#[test]
fn only_answers_of_its_own_round_in_time_certify_a_number() {
    let mut run = Run::start(&[Number(5), Number(6), Number(9)]);
    assert_eq!(run.asked(), Some((6, 1)));
    for (attempt, round) in [(1, 0), (1, 2), (2, 1)] {
        run.play.reply_all(Certify { attempt, round }, 0..3, Certified { number: 6 });
    }
    assert_eq!(run.play.verdict(), None);
    run.play.now = START.plus(1_000 * MS);
    run.play.reply_all(Certify { attempt: 1, round: 1 }, 0..3, Certified { number: 6 });
    assert_eq!(run.play.acquiring().failure(), Some(Failure::TooLate));
}

#[test]
fn a_master_that_lost_the_key_before_the_number_was_certified_has_a_gap() {
    let mut run = Run::start(&[5, 6, 9, 7, 8].map(Number));
    run.certify(&[Gone, Ours, Ours, Ours, Ours]);
    assert_eq!(run.asked(), Some((8, 2)), "at 7, 9, 7 and 8 no quorum stands");
    run.certify(&[Certifying::Never, Ours, Ours, Ours, Ours]);
    assert_eq!(run.token(), Some(8));
    let members = run.play.held().members();
    // Master 0 was silent in the certifying round. Its earlier number still counts.
    assert!(members.len() <= 4 && !members.contains(NodeId::new(0)));
}

/// Asserts that a driver that sleeps until the last `next_wake` need not look at the claim again,
/// unless it is notified.
fn reply_and_check(play: &mut Play, step: RoundId, at: usize, reply: Option<Reply>) {
    let (decided, wake) = (play.verdict().is_some(), play.claim.next_wake());
    play.effects.clear();
    play.reply(step, at, reply.clone());
    let must = play.verdict().is_some() && !decided || play.claim.next_wake() < wake;
    assert!(
        play.effects.contains(&Effect::Decided) || !must,
        "{reply:?} of {at}: {:?}",
        play.claim
    );
}

#[test]
fn every_answer_that_ends_the_wait_or_brings_its_end_nearer_wakes_the_caller() {
    // A lease is valid for 97 ms, of which 60 remain for the last certifying round.
    let fenced = LockConfig::new(5, 100 * MS, Drift::default(), 60 * MS).unwrap();
    let fenced = fenced.with_fencing(60_000 * MS).unwrap();
    let grant = |outcomes: CommandOutcome, at: usize| match outcomes {
        Grants => Some(Granted { number: 7 }),
        Late => Some(Granted { number: 8 + at as u64 }),
        other => vote(other, at),
    };
    for outcomes in product(5) {
        let mut play = Play::acquire_on(fenced, ONCE);
        (0..5).for_each(|at| reply_and_check(&mut play, Attempt(1), at, grant(outcomes[at], at)));
        for late in [10 * MS, 96 * MS, 97 * MS] {
            let mut play = Play::acquire_on(fenced, ONCE);
            (0..5).for_each(|at| play.reply(Attempt(1), at, grant(Late, at)));
            play.now = START.plus(late);
            for (at, outcomes) in outcomes.iter().enumerate() {
                let number = if *outcomes == Grants { 10 } else { 11 };
                let reply = compared(*outcomes, at, Certified { number });
                reply_and_check(&mut play, Certify { attempt: 1, round: 1 }, at, reply);
            }
        }
    }
}

#[test]
fn an_extension_of_a_fenced_lease_sends_its_token_and_repairs_where_no_grant_is_known() {
    let mut run = Run::start(&[Number(7), Number(7), Grant::Error]);
    assert_eq!(run.token(), Some(7));
    run.play.effects.clear();
    run.play.handle(Input::extend(config(3)));
    let fences = run.play.asked().into_iter().map(|(_, request)| match request {
        VoteRequest::Keep { fence, repair, .. } => (fence.map(|fence| fence.number), repair),
        other => panic!("{other:?}"),
    });
    let expected = [(Some(7), false), (Some(7), false), (Some(7), true)];
    assert_eq!(fences.collect::<Vec<_>>(), expected);
}

/// A lease that the first three of five masters granted. They agreed on number 3 in one round.
fn certified() -> Play {
    let mut play = Play::acquire_fenced(5);
    for at in 0..3 {
        play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
    }
    play.reply_all(Attempt(1), 3..5, unknown(1));
    play.reply_all(Certify { attempt: 1, round: 1 }, 0..3, Certified { number: 3 });
    play.handle(Input::Collect);
    play
}

#[test]
fn a_number_that_is_certified_at_the_deadline_comes_too_late() {
    for (before_ms, verdict) in [(1, Some(true)), (0, Some(false))] {
        let mut play = Play::acquire_fenced(5);
        for at in ALL {
            play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
        }
        let round = Certify { attempt: 1, round: 1 };
        play.reply_all(round, 0..2, Certified { number: 3 });
        play.now = START.plus((988 - before_ms) * MS);
        play.reply_all(round, [2], Certified { number: 3 });
        assert_eq!(play.verdict(), verdict, "{before_ms} ms before the deadline");
    }
}

#[test]
fn only_a_quorum_that_disagrees_is_looked_at_before_the_round_ends() {
    // The last call for another round is 47 ms after the start, the end of the round 50 ms.
    let short = LockConfig::new(5, 100 * MS, Drift::default(), 50 * MS).unwrap();
    for (grants, looks_ms) in [(2, 50), (3, 47)] {
        let mut play = Play::acquire_on(short.with_fencing(60_000 * MS).unwrap(), ONCE);
        for at in 0..grants {
            play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
        }
        assert_eq!(play.claim.next_wake(), START.plus(looks_ms * MS), "{grants}");
    }
}

#[test]
fn late_confirmations_of_the_number_count_until_the_lease_is_extended_and_only_its_own() {
    let members = |play: &Play| play.held().members().len();
    let mut play = certified();
    assert_eq!((members(&play), play.held().certifications()), (3, 1));
    play.reply_all(Certify { attempt: 2, round: 1 }, [3], Certified { number: 3 });
    assert_eq!(members(&play), 3, "it is about another attempt");
    play.reply_all(Certify { attempt: 1, round: 1 }, [3], Certified { number: 3 });
    assert_eq!(members(&play), 4);
    play.handle(Input::extend(play.held().config()));
    play.reply_all(Certify { attempt: 1, round: 1 }, [4], Certified { number: 3 });
    assert_eq!(members(&play), 4, "the extension has asked this master since");
}

#[test]
fn grants_that_agree_need_no_round_of_certifying() {
    let mut play = Play::acquire_fenced(5);
    play.reply_all(Attempt(1), 0..3, Granted { number: 7 });
    play.handle(Input::Collect);
    assert_eq!((play.held().fencing_token(), play.held().certifications()), (Some(7), 0));
}

#[test]
fn another_round_waits_for_all_counters_since_the_last_one_may_be_the_lowest() {
    let mut play = Play::acquire_fenced(5);
    for at in ALL {
        play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
    }
    play.effects.clear();
    for (at, number) in [3, 20, 21, 22].into_iter().enumerate() {
        play.reply_all(Certify { attempt: 1, round: 1 }, [at], Certified { number });
        assert_eq!(play.asks(), [0; 0], "{number}");
    }
    play.reply_all(Certify { attempt: 1, round: 1 }, [4], Certified { number: 4 });
    let asked = play.asked();
    assert_eq!(asked.len(), 5);
    let third = |request: &VoteRequest| matches!(request, VoteRequest::Certify { fence, .. } if fence.number == 20);
    assert!(asked.iter().all(|(_, request)| third(request)), "{asked:?}");
}

#[test]
fn keys_that_another_holder_has_taken_meanwhile_are_why_no_number_is_certified() {
    let mut play = Play::acquire_fenced(3);
    for at in 0..3 {
        play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
    }
    play.reply_all(Certify { attempt: 1, round: 1 }, 0..2, TAKEN);
    play.reply_all(Certify { attempt: 1, round: 1 }, [2], Certified { number: 3 });
    assert_eq!(play.acquiring().failure(), Some(Failure::Taken));
}

#[test]
fn a_master_whose_grant_came_too_late_to_count_is_a_member_once_it_confirms_the_number() {
    let mut play = Play::acquire_fenced(5);
    for at in 0..3 {
        play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
    }
    // The round ends without the other two.
    play.wake();
    play.reply_all(Certify { attempt: 1, round: 1 }, 1..4, Certified { number: 3 });
    play.handle(Input::Collect);
    let members = NodeId::all(4).collect();
    assert_eq!(play.held().members(), members);
}
