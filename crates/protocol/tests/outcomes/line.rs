//! Who waits in line: when it attempts, what it asks, and how it leaves.

use std::time::Duration;

use redquorum_protocol::{
    Answer, Call, Cause, Claim, Dice, Effect, Failure, Holder, Input, NodeId, Patience, Spot, Step,
    TOKEN_LEN, Ticket, Time, Token, Turn, Word,
};

use crate::play::{MS, Play, START};

fn patience() -> Patience {
    let (wait, explain, wake_ups) = (20_000 * MS, true, true);
    Patience { wait, explain, wake_ups, fair: true, turn: Turn::First }
}

fn free(number: u64, ahead: u64) -> Answer {
    Answer::Place { number, ahead, holder: None }
}

fn held(number: u64, ahead: u64) -> Answer {
    let holder = Holder::Lease { token: Token::new([9; TOKEN_LEN]), left_ms: 10_000 };
    Answer::Place { number, ahead, holder: Some(holder) }
}

impl Play {
    /// The round in which masters were asked for a place since the last look, and for which number.
    fn stands(&mut self) -> Option<(u32, Spot)> {
        let stand = |effect: &Effect| match effect {
            Effect::Stand { step: Step::Stand(round), number, .. } => Some((*round, *number)),
            _ => None,
        };
        let asked = self.said.iter().filter_map(stand).collect::<Vec<_>>();
        self.said.clear();
        assert!(asked.is_empty() || asked.len() == 5 && asked.iter().all(|it| *it == asked[0]));
        asked.first().copied()
    }

    /// All masters answer a round.
    fn placed(&mut self, round: u32, answer: &Answer) {
        (0..5).for_each(|at| self.place(round, at, answer.clone()));
    }

    fn place(&mut self, round: u32, at: usize, answer: Answer) {
        self.hear(Step::Stand(round), at, Some(answer));
    }

    fn told(&mut self, at: usize, word: Word) {
        self.tell(Input::Heard { node: NodeId::new(at), word });
    }

    /// The masters that were asked for the key since the last look.
    fn attempts(&mut self) -> usize {
        let asked = self.asked().len();
        self.said.clear();
        asked
    }

    fn ticket(&self) -> Ticket {
        let ticket = |effect: &Effect| match effect {
            Effect::Stand { ticket, .. } => Some(*ticket),
            _ => None,
        };
        self.said.iter().find_map(ticket).unwrap()
    }

    /// Whoever left the line told those behind it, or nobody.
    fn stepped_out(&self) -> Option<bool> {
        let call = |effect: &Effect| match effect {
            Effect::StepOut { call, .. } => Some(*call),
            _ => None,
        };
        let calls: Vec<bool> = self.said.iter().filter_map(call).collect();
        assert!(calls.is_empty() || calls.len() == 5);
        calls.first().copied()
    }

    /// It waits behind another, while a third one holds the resource.
    fn behind() -> (Self, Ticket) {
        let mut play = Self::acquire(5, patience());
        let ticket = play.ticket();
        play.placed(1, &held(2, 1));
        (0..5).for_each(|at| play.told(at, Word::Listening));
        play.placed(2, &held(2, 1));
        play.said.clear();
        (play, ticket)
    }
}

fn other() -> Ticket {
    Ticket::new(77)
}

#[test]
fn who_comes_first_on_a_quorum_and_finds_it_free_attempts() {
    let mut play = Play::acquire(5, patience());
    assert_eq!((play.asked().len(), play.stands()), (0, Some((1, Spot::Last))));
    [3, 1].into_iter().for_each(|at| play.place(1, at, free(1, 0)));
    assert_eq!(play.attempts(), 0);
    play.place(1, 0, free(1, 0));
    assert_eq!(play.attempts(), 5, "all masters at once");
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Created)));
    assert_eq!(play.stepped_out(), Some(false), "out of the line, and the resource is not free");
    play.said.clear();
    play.tell(Input::Collect);
    play.tell(Input::Release);
    let calls = |effect: &Effect| matches!(effect, Effect::Settle { call: Call::Next, .. });
    assert_eq!(play.said.iter().filter(|effect| calls(effect)).count(), 5);
}

#[test]
fn nobody_attempts_where_others_come_first_or_hold_it_on_too_many_masters() {
    for (said, goes) in [
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(2, 1)], false),
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(1, 0)], true),
        ([free(1, 0), free(1, 0), held(1, 0), held(1, 0), held(1, 0)], false),
        // First here, and free there.
        ([free(2, 1), free(1, 0), free(1, 0), held(1, 0), held(1, 0)], false),
    ] {
        let mut play = Play::acquire(5, patience());
        for (at, answer) in said.into_iter().enumerate() {
            play.place(1, at, answer);
        }
        assert_eq!(play.attempts() > 0, goes);
    }
}

#[test]
fn who_does_not_come_first_listens_before_it_looks_again() {
    let mut play = Play::acquire(5, patience());
    play.said.clear();
    play.placed(1, &held(2, 1));
    assert_eq!(play.said[0], Effect::Listen);
    assert_eq!(play.stands(), Some((2, Spot::At(2))), "with the number that it was given");
    play.placed(2, &held(2, 1));
    assert_eq!((play.stands(), play.verdict()), (None, None));
    // What masters answered before they were listened to may be out of date.
    play.told(4, Word::Listening);
    assert!(matches!(play.said[..], [Effect::Stand { number: Spot::At(2), .. }]));
}

#[test]
fn the_largest_number_is_told_to_all_masters() {
    let mut play = Play::acquire(5, Patience { wake_ups: false, ..patience() });
    play.said.clear();
    for (at, number) in [3, 1, 7, 2, 2].into_iter().enumerate() {
        play.place(1, at, free(number, 1));
    }
    assert_eq!(play.stands(), Some((2, Spot::NotBefore(7))));
    play.placed(2, &free(7, 1));
    assert_eq!(play.stands(), None, "it stands in line");
    assert_eq!(play.claim.next_wake(), START.plus(5 * MS), "free, and others come first");
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.stands(), Some((3, Spot::At(7))));
}

#[test]
fn who_is_named_by_a_quorum_attempts_at_once_and_nobody_else() {
    let (mut play, ticket) = Play::behind();
    (0..5).for_each(|at| play.told(at, Word::Next(other())));
    assert_eq!((play.attempts(), play.stands()), (0, None));
    let (mut play, _) = Play::behind();
    [4, 2].into_iter().for_each(|at| play.told(at, Word::Next(ticket)));
    assert_eq!(play.attempts(), 0);
    play.told(0, Word::Next(ticket));
    assert_eq!(play.attempts(), 5);
}

#[test]
fn where_words_are_lost_it_looks_a_moment_after_the_first() {
    for word in [Word::Next(Play::behind().1), Word::Free] {
        let (mut play, _) = Play::behind();
        play.told(4, word);
        let moment = play.claim.next_wake();
        assert!(moment <= START.plus(10 * MS), "{moment:?}");
        play.wake_at(moment);
        assert_eq!(play.stands(), Some((3, Spot::At(2))));
        play.placed(3, &free(2, 0));
        assert_eq!(play.attempts(), 5);
    }
}

#[test]
fn a_word_between_the_answers_of_a_round_counts() {
    let (mut play, ticket) = Play::behind();
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.stands(), Some((3, Spot::At(2))));
    [0, 1].into_iter().for_each(|at| play.place(3, at, held(2, 1)));
    [0, 1].into_iter().for_each(|at| play.told(at, Word::Next(ticket)));
    assert_eq!(play.attempts(), 0);
    play.place(3, 2, free(2, 0));
    assert_eq!(play.attempts(), 5);
}

#[test]
fn a_place_is_asked_for_again_about_every_second() {
    let (mut play, _) = Play::behind();
    let (mut last, mut rounds) = (START, 0);
    while play.now < START.plus(8_000 * MS) {
        if let Some((round, _)) = play.stands() {
            let after = play.now.since(last);
            assert!(after >= 500 * MS && after <= 1_000 * MS, "{after:?}");
            (last, rounds) = (play.now, rounds + 1);
            play.placed(round, &held(2, 1));
        } else {
            play.wake_at(play.claim.next_wake());
        }
    }
    assert!(rounds >= 8);
}

/// What is asked of the policy for pauses.
#[derive(Default)]
struct Asked(Vec<u32>);

impl Dice for Asked {
    fn token(&mut self) -> Token {
        Token::new([1; TOKEN_LEN])
    }

    fn hint(&mut self) -> u64 {
        1
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        self.0.push(attempt);
        300 * MS
    }

    fn random(&mut self) -> u64 {
        0
    }
}

#[test]
fn who_does_not_hear_asks_as_the_policy_has_it_and_keeps_its_place() {
    let (mut dice, mut out) = (Asked::default(), Vec::new());
    let terms = crate::play::terms(5);
    let patience = Patience { wake_ups: false, ..patience() };
    let mut claim = Claim::acquire(START, terms, patience, &mut dice, &mut out);
    let mut now = START;
    for _ in 0..6 {
        let rounds = std::mem::take(&mut out).into_iter().filter_map(|effect| match effect {
            Effect::Stand { node, step, .. } => Some((node, step)),
            _ => None,
        });
        for (node, step) in rounds.collect::<Vec<_>>() {
            let answer = held(2, 1);
            claim.handle(now, Input::Answered { node, step, answer }, &mut dice, &mut out);
        }
        now = now.plus(300 * MS);
        claim.handle(now, Input::Wake, &mut dice, &mut out);
    }
    assert_eq!(dice.0, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn who_gives_up_leaves_the_line_and_tells_those_behind_it() {
    let (mut dropped, _) = Play::behind();
    dropped.tell(Input::Abandon);
    assert_eq!(dropped.stepped_out(), Some(true));
    let (mut over, _) = Play::behind();
    over.wake_at(START.plus(20_000 * MS));
    let (round, _) = over.stands().unwrap();
    (0..5).for_each(|at| over.place(round, at, held(2, 1)));
    assert_eq!(over.stepped_out(), Some(true));
    let Claim::Acquiring(acquire) = &over.claim else { panic!() };
    assert_eq!((acquire.failure(), acquire.attempt()), (Some(Failure::Taken), 0));
    assert!(over.asked().is_empty() && over.claim.next_wake() == Time::NEVER);
    // What is heard after that is nobody's.
    over.said.clear();
    (0..5).for_each(|at| over.place(round, at, free(2, 0)));
    assert_eq!(over.said, []);
}

#[test]
fn one_attempt_without_a_wait_is_made_only_by_who_comes_first() {
    let once = Patience { wait: Duration::ZERO, ..patience() };
    let mut play = Play::acquire(5, once);
    play.said.clear();
    play.placed(1, &free(2, 1));
    assert_eq!((play.asked().len(), play.verdict()), (0, Some(false)));
    let mut play = Play::acquire(5, once);
    play.said.clear();
    play.placed(1, &free(1, 0));
    assert_eq!((play.attempts(), play.verdict()), (5, None));
}

#[test]
fn where_no_quorum_keeps_lines_attempts_are_made_without() {
    let mut play = Play::acquire(5, patience());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, free(9, 8)));
    (2..4).for_each(|at| play.place(1, at, Answer::NoLine));
    assert_eq!(play.attempts(), 0, "one more may answer");
    play.place(1, 4, Answer::NoLine);
    assert_eq!((play.stepped_out(), play.asked().len()), (Some(true), 5));
    play.said.clear();
    // From then on it waits as if there were none.
    (0..5).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    assert_eq!((play.stepped_out(), play.said.contains(&Effect::Listen)), (None, true));
    // One that cannot tell just now may keep one all the same.
    let loading = Answer::Unknown(Cause::Error("LOADING".into()));
    let mut play = Play::acquire(5, patience());
    play.said.clear();
    (0..5).for_each(|at| play.place(1, at, loading.clone()));
    assert_eq!(play.attempts(), 0);
}

#[test]
fn where_no_quorum_answers_nobody_attempts_and_it_is_asked_again() {
    let mut play = Play::acquire(5, patience());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, free(1, 0)));
    assert_eq!(play.claim.next_wake(), START.plus(50 * MS));
    play.wake_at(START.plus(50 * MS));
    // Others may come first there meanwhile.
    assert_eq!((play.stepped_out(), play.asked().len()), (Some(true), 0));
    play.said.clear();
    play.place(1, 4, free(1, 0));
    assert_eq!(play.attempts(), 0, "it keeps no place");
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.stands(), Some((3, Spot::NotBefore(1))), "it is the one that it had");
    // Who comes first nowhere keeps nobody from it.
    let mut play = Play::acquire(5, patience());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, held(2, 1)));
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.stepped_out(), None);
    (0..3).for_each(|at| play.place(1, at, free(2, 0)));
    assert_eq!(play.attempts(), 5, "what comes late is heard");
    let mut down = Play::acquire(5, Patience { wait: Duration::ZERO, ..patience() });
    down.said.clear();
    down.placed(1, &Answer::Unknown(Cause::Disconnected));
    let Claim::Acquiring(acquire) = &down.claim else { panic!() };
    assert_eq!((acquire.failure(), down.asked().len()), (Some(Failure::NoQuorum), 0));
}

#[test]
fn who_was_served_just_now_listens_before_it_asks_for_a_place() {
    let play = Play::acquire(5, Patience { turn: Turn::Guest, ..patience() });
    assert_eq!(play.said[0], Effect::Listen);
    let mut play = Play::acquire(5, Patience { turn: Turn::Guest, ..patience() });
    play.said.clear();
    play.placed(1, &held(3, 2));
    assert_eq!(play.stands(), None, "one round is enough");
}

#[test]
fn who_comes_first_and_finds_no_quorum_goes_to_the_end() {
    let mut play = Play::acquire(5, patience());
    play.placed(1, &free(4, 0));
    play.said.clear();
    let lost = Answer::Unknown(Cause::Disconnected);
    (0..3).for_each(|at| play.hear(Step::Attempt(1), at, Some(lost.clone())));
    assert_eq!(play.stepped_out(), Some(true));
    play.said.clear();
    // What it was told before is over.
    (0..5).for_each(|at| play.hear(Step::Cleanup(1), at, Some(Answer::Absent)));
    assert_eq!(play.asked().len(), 0);
    play.wake_at(play.claim.next_wake());
    let round = play.stands();
    assert_eq!(round, Some((3, Spot::Last)));
    // Nor is what was on its way.
    (0..5).for_each(|at| play.place(1, at, free(4, 0)));
    assert_eq!(play.asked().len(), 0);
}

#[test]
fn a_round_lasts_for_a_node_timeout_also_after_an_attempt_that_asked_for_a_number() {
    let terms = crate::play::terms(5).with_fencing(60_000 * MS).unwrap();
    let mut play = Play::acquire_on(terms, patience());
    play.placed(1, &free(1, 0));
    for number in 1..=5_u8 {
        let granted = Answer::Granted { number: u64::from(number) };
        play.hear(Step::Attempt(1), usize::from(number) - 1, Some(granted));
    }
    let step = Step::Certify { attempt: 1, round: 1 };
    (0..5).for_each(|at| play.hear(step, at, Some(Answer::Absent)));
    play.said.clear();
    play.wake_at(play.claim.next_wake());
    assert!(play.stands().is_some());
    assert_eq!(play.claim.next_wake(), play.now.plus(50 * MS));
}

#[test]
fn who_finds_it_taken_though_it_comes_first_keeps_its_place() {
    let mut play = Play::acquire(5, patience());
    play.placed(1, &free(1, 0));
    play.said.clear();
    (0..5).for_each(|at| play.hear(Step::Attempt(1), at, Some(Answer::Taken(Holder::NotAsked))));
    assert_eq!(play.stepped_out(), None);
    // That the clean-up finds nothing more says no more than that: it is not tried again in the same instant.
    (0..3).for_each(|at| play.hear(Step::Cleanup(1), at, Some(Answer::Absent)));
    assert_eq!(play.asked().len(), 0);
    play.said.clear();
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.stands(), Some((2, Spot::At(1))));
}

#[test]
fn a_number_that_a_quorum_keeps_does_not_change() {
    let mut play = Play::acquire(5, Patience { wake_ups: false, ..patience() });
    play.said.clear();
    (0..4).for_each(|at| play.place(1, at, held(5, 1)));
    // It got there late, behind others who came later.
    play.place(1, 4, held(9, 3));
    assert_eq!(play.stands(), Some((2, Spot::At(5))));
}

#[test]
fn who_is_behind_and_hears_sleeps_until_it_keeps_its_place_though_the_resource_is_free() {
    let (mut play, _) = Play::behind();
    (0..5).for_each(|at| play.told(at, Word::Next(other())));
    assert!(play.claim.next_wake() >= START.plus(500 * MS), "{:?}", play.claim.next_wake());
}
