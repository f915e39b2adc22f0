//! Every outcome of every master: {granted, refused, error, never, late} over N masters, in
//! every order of arrival, for acquire, extend and release, with a drop at every step.
//!
//! The oracle is written from the rules' words and not from the code: a verdict stands once
//! every way in which the silent masters could still answer gives the same one (R3).

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{
    Answer, Ask, Cause, Claim, Dice, Drift, Effect, Extension, Failure, Holder, Input, Loss,
    NodeId, Outcome, Patience, Step, TOKEN_LEN, Terms, Time, Token,
};

const MS: Duration = Duration::from_millis(1);
const START: Time = Time::from_millis(1_000);
const ONCE: Patience = Patience { wait: Duration::ZERO, explain: false };

/// What one master does with one command.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Said {
    Granted,
    Refused,
    Error,
    Never,
    Late,
}
use Said::{Error, Granted, Late, Never, Refused};

/// All combinations for so many masters: 5^N.
fn product(masters: usize) -> impl Iterator<Item = Vec<Said>> {
    let all = [Granted, Refused, Error, Never, Late];
    let count = 5_usize.pow(u32::try_from(masters).unwrap());
    (0..count).map(move |number| {
        (0..masters).map(|at| all[number / 5_usize.pow(u32::try_from(at).unwrap()) % 5]).collect()
    })
}

/// All orders in which the masters that answer in time can be heard.
fn orders(said: &[Said]) -> Vec<Vec<usize>> {
    fn grow(rest: &[usize], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if rest.is_empty() {
            all.push(so_far.clone());
        }
        for (at, master) in rest.iter().enumerate() {
            so_far.push(*master);
            grow(&[&rest[..at], &rest[at + 1..]].concat(), so_far, all);
            so_far.pop();
        }
    }
    let in_time: Vec<usize> =
        (0..said.len()).filter(|at| !matches!(said[*at], Never | Late)).collect();
    let mut all = Vec::new();
    grow(&in_time, &mut Vec::new(), &mut all);
    all
}

fn late(said: &[Said]) -> impl Iterator<Item = usize> {
    (0..said.len()).filter(|at| said[*at] == Late)
}

/// Tokens are counted, pauses are 5 ms.
#[derive(Default)]
struct Counted(u8);

impl Dice for Counted {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new([self.0; TOKEN_LEN])
    }

    fn pause(&mut self, _attempt: u32) -> Duration {
        5 * MS
    }
}

/// One claim and everything it ever said.
struct Play {
    claim: Claim,
    dice: Counted,
    said: Vec<Effect>,
    now: Time,
}

impl Play {
    fn acquire(masters: usize, patience: Patience) -> Self {
        let (mut dice, mut said) = (Counted::default(), Vec::new());
        let claim = Claim::acquire(START, terms(masters), patience, &mut dice, &mut said);
        Self { claim, dice, said, now: START }
    }

    /// A lease whose masters granted, refused or were silent like this, collected.
    fn hold(said: &[Said]) -> Self {
        let mut play = Self::acquire(said.len(), ONCE);
        (0..said.len()).for_each(|at| play.hear(Step::Attempt(1), at, vote(said[at], at)));
        play.tell(Input::Collect);
        assert!(matches!(play.claim, Claim::Holding(_)));
        play.said.clear();
        play
    }

    fn tell(&mut self, input: Input) {
        self.claim.handle(self.now, input, &mut self.dice, &mut self.said);
    }

    fn hear(&mut self, step: Step, at: usize, answer: Option<Answer>) {
        if let Some(answer) = answer {
            self.tell(Input::Answered { node: NodeId::new(at), step, answer });
        }
    }

    fn wake_at(&mut self, time: Time) {
        self.now = time;
        self.tell(Input::Wake);
    }

    /// How often each master was told that `token` shall go.
    fn settled(&self, masters: usize, token: u8) -> Vec<usize> {
        let token = Token::new([token; TOKEN_LEN]);
        let of = |at| {
            let told = |effect: &&Effect| {
                matches!(effect, Effect::Settle { node, token: of, .. }
                if *node == NodeId::new(at) && *of == token)
            };
            self.said.iter().filter(told).count()
        };
        (0..masters).map(of).collect()
    }

    fn asked(&self) -> Vec<(usize, Ask)> {
        let ask = |effect: &Effect| match effect {
            Effect::Send { node, ask, .. } => Some((node.index(), *ask)),
            _ => None,
        };
        self.said.iter().filter_map(ask).collect()
    }

    /// `Some(won)` once the acquire is decided.
    fn verdict(&self) -> Option<bool> {
        let Claim::Acquiring(acquire) = &self.claim else { panic!("{:?}", self.claim) };
        if acquire.is_won() { Some(true) } else { acquire.failure().map(|_| false) }
    }

    fn extension(&self) -> Extension {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.extension().1
    }

    fn deadline(&self) -> Time {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.deadline()
    }

    fn lost(&self) -> Option<Loss> {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.lost()
    }
}

fn terms(masters: usize) -> Terms {
    Terms::new(masters, 1_000 * MS, Drift::default(), 50 * MS).unwrap()
}

fn unknown(at: usize) -> Answer {
    let causes = [Cause::Error(Arc::from("ERR")), Cause::Disconnected, Cause::Stalled];
    Answer::Unknown(causes[at % 3].clone())
}

fn refusal(at: usize) -> Answer {
    if at.is_multiple_of(2) { Answer::Absent } else { Answer::Taken(Holder::NoExpiry) }
}

/// An answer to a `SET`.
fn vote(said: Said, at: usize) -> Option<Answer> {
    match said {
        Granted | Late => Some(Answer::Created),
        Refused => Some(Answer::Taken(Holder::NotAsked)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

/// An answer to a `Keep`: a master with the key keeps it, another one may have repaired it.
fn kept(said: Said, at: usize, member: bool) -> Option<Answer> {
    match said {
        Granted | Late if member || at.is_multiple_of(2) => Some(Answer::Kept),
        Granted | Late => Some(Answer::Created),
        Refused => Some(refusal(at)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

/// An answer to a `Delete`.
fn deleted(said: Said, at: usize) -> Option<Answer> {
    match said {
        Granted | Late => Some(Answer::Deleted),
        Refused => Some(refusal(at)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

fn count(said: &[Said], heard: &[usize], what: &[Said]) -> usize {
    heard.iter().filter(|at| what.contains(&said[**at])).count()
}

/// The verdict, if all ways in which `awaited` masters could answer agree on it.
fn stands(yes: usize, awaited: usize, masters: usize) -> Option<bool> {
    let majority = |yes: usize| 2 * yes > masters;
    let ways: Vec<bool> = (0..=awaited).map(|more| majority(yes + more)).collect();
    ways.iter().all(|way| *way == ways[0]).then_some(ways[0])
}

fn check_acquire(masters: usize) {
    for said in product(masters) {
        let mut verdicts = Vec::new();
        for order in orders(&said) {
            let mut play = Play::acquire(masters, ONCE);
            let mut expected = None;
            for heard in 0..=order.len() {
                if let Some(at) = heard.checked_sub(1).map(|last| order[last]) {
                    play.now = play.now.plus(MS);
                    play.hear(Step::Attempt(1), at, vote(said[at], at));
                }
                let yes = count(&said, &order[..heard], &[Granted]);
                // An early verdict is final: what comes behind it changes nothing.
                expected = expected.or(stands(yes, masters - heard, masters));
                assert_eq!(play.verdict(), expected, "{said:?} {order:?} after {heard}");
                let wake = if expected.is_some() { Time::NEVER } else { START.plus(50 * MS) };
                assert_eq!(play.claim.next_wake(), wake, "{said:?} {order:?}");
            }
            play.wake_at(START.plus(50 * MS));
            let won = expected.unwrap_or(false);
            late(&said).for_each(|at| play.hear(Step::Attempt(1), at, vote(said[at], at)));
            assert_eq!(play.verdict(), Some(won), "{said:?} {order:?} at the end");
            let settled = vec![usize::from(!won); masters];
            assert_eq!(play.settled(masters, 1), settled, "{said:?} {order:?}");
            let decided = play.said.iter().filter(|effect| **effect == Effect::Decided).count();
            assert_eq!(decided, 1, "{said:?} {order:?}");
            check_failure(&play, &said);
            verdicts.push(won);
        }
        assert!(verdicts.iter().all(|won| *won == verdicts[0]), "{said:?} depends on the order");
    }
}

/// "Taken" needs somebody who holds it, "no quorum" somebody who did not answer (R10).
fn check_failure(play: &Play, said: &[Said]) {
    let Claim::Acquiring(acquire) = &play.claim else { unreachable!() };
    match acquire.failure() {
        Some(Failure::Taken) => assert!(said.contains(&Refused), "{said:?}"),
        Some(Failure::NoQuorum) => {
            assert!(said.iter().any(|said| matches!(said, Error | Never | Late)), "{said:?}");
        }
        Some(other) => panic!("{other:?} {said:?}"),
        None => {}
    }
}

#[test]
fn five_masters_give_the_verdict_that_counting_gives_in_every_order() {
    check_acquire(5);
}

#[test]
fn one_to_four_masters_do_too() {
    (1..=4).for_each(check_acquire);
}

#[test]
fn a_drop_at_every_step_of_an_acquire_settles_every_master_once() {
    for masters in 1..=5 {
        for (number, said) in product(masters).enumerate() {
            let orders = orders(&said);
            let order = &orders[number % orders.len()];
            // The last two steps are the end of the round and the collection.
            for cut in 0..=order.len() + 2 {
                let mut play = Play::acquire(masters, ONCE);
                for at in &order[..cut.min(order.len())] {
                    play.hear(Step::Attempt(1), *at, vote(said[*at], *at));
                }
                if cut > order.len() {
                    play.wake_at(START.plus(50 * MS));
                }
                if cut > order.len() + 1 {
                    play.tell(Input::Collect);
                }
                play.tell(Input::Abandon);
                assert_eq!(play.claim, Claim::Ended);
                assert_eq!(play.settled(masters, 1), vec![1; masters], "{said:?} {order:?} {cut}");
                let so_far = play.said.len();
                for at in order[cut.min(order.len())..].iter().copied().chain(late(&said)) {
                    play.hear(Step::Attempt(1), at, vote(said[at], at));
                }
                play.tell(Input::Abandon);
                assert_eq!(play.said.len(), so_far, "a claim that has ended says nothing more");
                assert_eq!(play.claim.next_wake(), Time::NEVER);
            }
        }
    }
}

#[test]
fn a_win_settles_nothing_until_release_or_loss_or_drop_and_then_every_master_once() {
    for said in product(5) {
        let mut play = Play::acquire(5, ONCE);
        (0..5).for_each(|at| play.hear(Step::Attempt(1), at, vote(said[at], at)));
        play.tell(Input::Collect);
        if !matches!(play.claim, Claim::Holding(_)) {
            continue;
        }
        for way in 0..3 {
            let mut play =
                Play { claim: play.claim.clone(), dice: Counted(1), said: vec![], now: play.now };
            assert_eq!(play.settled(5, 1), [0; 5]);
            match way {
                0 => play.tell(Input::Release),
                1 => play.wake_at(play.deadline()),
                _ => {}
            }
            play.tell(Input::Abandon);
            assert_eq!(play.settled(5, 1), [1; 5], "{said:?} by way {way}");
        }
    }
}

#[test]
fn a_master_that_answers_twice_counts_once_and_its_first_answer_stands() {
    let mut play = Play::acquire(5, ONCE);
    (0..5).for_each(|_| play.hear(Step::Attempt(1), 0, Some(Answer::Created)));
    assert_eq!(play.verdict(), None);
    play.hear(Step::Attempt(1), 0, Some(Answer::Taken(Holder::NotAsked)));
    (1..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    (1..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    assert_eq!(play.verdict(), None, "one grant, two refusals");
    (3..5).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn an_early_wake_does_nothing() {
    let mut acquiring = Play::acquire(5, Patience { wait: 100 * MS, explain: true });
    let mut pausing = Play::acquire(5, Patience { wait: 100 * MS, explain: true });
    let mut explaining = Play::acquire(5, Patience { wait: Duration::ZERO, explain: true });
    for play in [&mut pausing, &mut explaining] {
        let taken = || Some(Answer::Taken(Holder::NotAsked));
        (0..3).for_each(|at| play.hear(Step::Attempt(1), at, taken()));
    }
    let mut holding = Play::hold(&[Granted; 5]);
    holding.tell(Input::KeepAlive(5_000 * MS));
    let mut extending = Play::hold(&[Granted; 5]);
    extending.tell(Input::Extend(terms(5)));
    let mut releasing = Play::hold(&[Granted; 5]);
    releasing.tell(Input::Release);
    let all = [
        &mut acquiring,
        &mut pausing,
        &mut explaining,
        &mut holding,
        &mut extending,
        &mut releasing,
    ];
    for play in all {
        let (before, said) = (play.claim.clone(), play.said.len());
        let early = play.claim.next_wake().as_nanos() - 1;
        play.wake_at(Time::from_nanos(early));
        assert_eq!((&play.claim, play.said.len()), (&before, said));
        play.wake_at(Time::from_nanos(early + 1));
        assert_ne!(play.claim, before, "and the wake in time does something");
    }
}

#[test]
fn a_lease_that_is_collected_too_late_is_none_and_is_settled() {
    let mut play = Play::acquire(5, ONCE);
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    assert_eq!(play.verdict(), Some(true));
    play.now = START.plus(terms(5).validity());
    play.tell(Input::Collect);
    let Claim::Acquiring(acquire) = &play.claim else { panic!("a dead lease was handed out") };
    assert_eq!(acquire.failure(), Some(Failure::TooLate));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

#[test]
fn the_deadline_counts_from_the_start_of_the_attempt_and_not_from_its_answers() {
    let mut play = Play::acquire(5, ONCE);
    play.now = START.plus(49 * MS);
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    play.tell(Input::Collect);
    assert_eq!(play.deadline(), START.plus(terms(5).validity()));
}

#[test]
fn every_attempt_has_a_token_of_its_own_and_late_answers_to_an_older_one_never_count() {
    let mut play = Play::acquire(5, Patience { wait: 12 * MS, explain: false });
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    assert_eq!(play.settled(5, 1), [1; 5]);
    play.wake_at(START.plus(5 * MS));
    let tokens: Vec<Token> = play.asked()[5..]
        .iter()
        .map(|(_, ask)| {
            let Ask::Set { token, .. } = ask else { panic!("{ask:?}") };
            *token
        })
        .collect();
    assert_eq!(tokens, [Token::new([2; TOKEN_LEN]); 5]);
    // Five grants of the first attempt, all late: they are no grants of the second.
    (0..5).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    assert_eq!(play.verdict(), None);
    play.tell(Input::Abandon);
    assert_eq!(play.settled(5, 2), [1; 5]);
    assert_eq!(play.settled(5, 1), [1; 5], "and no attempt is settled twice");
}

#[test]
fn a_late_answer_to_an_older_attempt_is_no_news_of_the_lease() {
    let mut play = Play::acquire(5, Patience { wait: 100 * MS, explain: false });
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    play.wake_at(START.plus(5 * MS));
    (0..3).for_each(|at| play.hear(Step::Attempt(2), at, Some(Answer::Created)));
    play.tell(Input::Collect);
    let before = play.claim.clone();
    play.hear(Step::Attempt(1), 3, Some(Answer::Created));
    play.hear(Step::Attempt(1), 4, Some(Answer::Taken(Holder::NotAsked)));
    assert_eq!(play.claim, before);
    play.hear(Step::Attempt(2), 3, Some(Answer::Created));
    assert_ne!(play.claim, before, "a straggler of its own attempt is");
}

#[test]
fn the_last_attempt_is_made_at_the_end_of_the_wait_and_none_behind_it() {
    let mut play = Play::acquire(1, Patience { wait: 12 * MS, explain: false });
    let mut started = vec![];
    for attempt in 1..10 {
        started.push(play.now);
        play.hear(Step::Attempt(attempt), 0, Some(Answer::Taken(Holder::NotAsked)));
        if play.verdict().is_some() {
            break;
        }
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(started, [0, 5, 10, 12].map(|at| START.plus(at * MS)));
}

#[test]
fn who_holds_it_is_waited_for_no_longer_than_for_the_last_clean_up() {
    for (said, waits) in [
        (Answer::Taken(Holder::NoExpiry), false),
        // The other one has let go meanwhile, or nothing can be said: there is nobody to name.
        (Answer::Absent, false),
        (unknown(0), false),
    ] {
        let mut play = Play::acquire(5, Patience { wait: Duration::ZERO, explain: true });
        (0..3)
            .for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
        assert_eq!(play.verdict(), None);
        (0..2).for_each(|at| play.hear(Step::Cleanup(1), at, Some(said.clone())));
        assert_eq!(play.verdict(), None, "the third refusal is not explained yet");
        play.hear(Step::Cleanup(1), 2, Some(said.clone()));
        assert_eq!(play.verdict().is_none(), waits, "{said:?}");
    }
    // and a silent one is not waited for longer than a node timeout
    let mut play = Play::acquire(5, Patience { wait: Duration::ZERO, explain: true });
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.verdict(), Some(false));
}

/// How a round of extending must stand, from those that were heard.
fn extended(said: &[Said], heard: &[usize], members: &[usize]) -> Option<Extension> {
    let in_time: Vec<usize> = heard.iter().copied().filter(|at| members.contains(at)).collect();
    let yes = count(said, &in_time, &[Granted]);
    match stands(yes, members.len() - in_time.len(), said.len())? {
        true => Some(Extension::Extended),
        // A majority is out of reach once half of the masters have no key of ours.
        false if 2 * count(said, heard, &[Refused]) >= said.len() => Some(Extension::QuorumGone),
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
                    play.hear(Step::Extend(1), at, kept(said[at], at, members.contains(&at)));
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
                play.hear(Step::Extend(1), at, kept(said[at], at, members.contains(&at)));
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
                play.hear(Step::Extend(1), at, kept(said[at], at, true));
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
            .map(|(_, ask)| matches!(ask, Ask::Keep { repair: true, .. }))
            .collect()
    };
    assert_eq!(repairs(&play), [false, false, false, true, true]);
    // Master 3 lost the key: four answers of "ours", and yet no quorum.
    for (at, answer) in
        [Answer::Kept, Answer::Kept, Answer::Absent, Answer::Created, Answer::Created]
            .into_iter()
            .enumerate()
    {
        play.hear(Step::Extend(1), at, Some(answer));
    }
    assert_eq!(play.extension(), Extension::NoQuorum);
    play.tell(Input::Extend(terms(5)));
    assert_eq!(repairs(&play), [false, false, true, false, false]);
    [0, 3, 4].into_iter().for_each(|at| play.hear(Step::Extend(2), at, Some(Answer::Kept)));
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
    (0..5).for_each(|at| play.hear(Step::Extend(1), at, Some(Answer::Kept)));
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, old));
    (0..3).for_each(|at| play.hear(Step::Extend(2), at, Some(Answer::Kept)));
    assert_eq!(play.deadline(), START.plus(10 * MS).plus(terms(5).validity()));
}

#[test]
fn a_shorter_ttl_binds_the_holder_before_anything_is_sent_and_whatever_comes_of_it() {
    let mut play = Play::hold(&[Granted; 5]);
    let short = terms(5).with_ttl(100 * MS).unwrap();
    play.tell(Input::Extend(short));
    let deadline = START.plus(short.validity());
    assert_eq!((play.extension(), play.deadline()), (Extension::Pending, deadline));
    (0..3).for_each(|at| play.hear(Step::Extend(1), at, Some(unknown(at))));
    assert_eq!((play.extension(), play.deadline()), (Extension::NoQuorum, deadline));
    // A longer one promises nothing before the masters do.
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
    play.hear(Step::Extend(1), 0, Some(Answer::Kept));
    play.wake_at(deadline);
    assert_eq!(play.lost(), Some(Loss::Expired));
    assert_eq!(play.extension(), Extension::Lost(Loss::Expired));
    assert_eq!((play.claim.next_wake(), play.settled(5, 1)), (Time::NEVER, vec![1; 5]));
    let asked = play.asked().len();
    (1..5).for_each(|at| play.hear(Step::Extend(1), at, Some(Answer::Kept)));
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
    (0..5).for_each(|at| play.hear(Step::Extend(1), at, Some(Answer::Kept)));
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
            (0..5).for_each(|at| play.hear(Step::Extend(rounds), at, Some(Answer::Kept)));
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
    (0..3).for_each(|at| play.hear(Step::Extend(1), at, Some(Answer::Absent)));
    assert_eq!(play.lost(), Some(Loss::QuorumGone));
    assert_eq!(play.settled(5, 1), [1; 5]);
}

/// What a release comes to, if all ways in which `awaited` masters could answer agree on it.
fn released(deleted: usize, gone: usize, awaited: usize, masters: usize) -> Option<Outcome> {
    let outcome = |deleted: usize, gone: usize| {
        // Deleted by a majority: it was held by one. Gone from so many that a majority is
        // impossible: it was held by none.
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
fn a_release_says_what_the_masters_say_in_every_order_and_asks_every_master_once() {
    for masters in 1..=5 {
        for said in product(masters) {
            for order in orders(&said) {
                let mut play = Play::hold(&vec![Granted; masters]);
                play.tell(Input::Release);
                let mut expected = None;
                for heard in 0..=order.len() {
                    if let Some(at) = heard.checked_sub(1).map(|last| order[last]) {
                        play.hear(Step::Release, at, deleted(said[at], at));
                    }
                    let of = |what| count(&said, &order[..heard], &[what]);
                    expected = expected
                        .or_else(|| released(of(Granted), of(Refused), masters - heard, masters));
                    let Claim::Releasing(release) = &play.claim else { panic!("{:?}", play.claim) };
                    assert_eq!(release.outcome(), expected, "{said:?} {order:?} after {heard}");
                }
                play.wake_at(START.plus(50 * MS));
                late(&said).for_each(|at| play.hear(Step::Release, at, deleted(said[at], at)));
                let Claim::Releasing(release) = &play.claim else { panic!("{:?}", play.claim) };
                let expected = expected.unwrap_or(Outcome::Unknown);
                assert_eq!(release.outcome(), Some(expected), "{said:?} {order:?}");
                play.tell(Input::Abandon);
                assert_eq!(play.settled(masters, 1), vec![1; masters]);
            }
        }
    }
}
