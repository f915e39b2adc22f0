//! From an attempt that failed to the next one: how long a waiter sleeps, what wakes it, whom it asks.

use std::time::Duration;

use redquorum_protocol::{
    Answer, Call, Cause, Claim, Effect, Holder, Input, NodeId, Patience, Step, TOKEN_LEN, Time,
    Token, Turn, Word,
};

use crate::play::{MS, Play, START};

const TAKEN: Answer = Answer::Taken(Holder::NotAsked);

fn patience(turn: Turn) -> Patience {
    Patience { wait: 20_000 * MS, explain: true, wake_ups: true, fair: false, turn }
}

fn held(by: u8, left_ms: u64) -> Answer {
    Answer::Taken(Holder::Lease { token: Token::new([by; TOKEN_LEN]), left_ms })
}

impl Play {
    /// Refused by a quorum in its latest attempt.
    fn refused(&mut self) {
        let attempt = self.attempt();
        (0..5).for_each(|at| self.hear(Step::Attempt(attempt), at, Some(TAKEN)));
    }

    fn attempt(&self) -> u32 {
        let Claim::Acquiring(acquire) = &self.claim else { panic!("{:?}", self.claim) };
        acquire.attempt()
    }

    fn looks(&mut self, answer: &Answer) {
        (0..5).for_each(|at| self.look(at, answer.clone()));
    }

    fn look(&mut self, at: usize, answer: Answer) {
        self.hear(Step::Cleanup(self.attempt()), at, Some(answer));
    }

    fn word(&mut self, at: usize, word: Word) {
        self.tell(Input::Heard { node: NodeId::new(at), word });
    }

    /// It waits, all masters listen for it, and all say that another holds it for so long.
    fn waiting(left_ms: u64) -> Self {
        let mut play = Self::acquire(5, patience(Turn::First));
        play.refused();
        (0..5).for_each(|at| play.word(at, Word::Listening));
        play.looks(&held(9, left_ms));
        play.said.clear();
        play
    }

    /// The masters that were asked for the key since the last look.
    fn asks(&mut self) -> Vec<usize> {
        let asked = self.asked().into_iter().map(|(at, _)| at).collect();
        self.said.clear();
        asked
    }

    fn calls(&self) -> Vec<Call> {
        let call = |effect: &Effect| match effect {
            Effect::Settle { call, .. } => Some(*call),
            _ => None,
        };
        self.said.iter().filter_map(call).collect()
    }
}

fn after(ms: u64) -> Time {
    START.plus(Duration::from_millis(ms))
}

#[test]
fn links_listen_before_the_clean_up_looks_and_only_once() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    let listen = play.said.iter().position(|effect| *effect == Effect::Listen).unwrap();
    let look = play.said.iter().position(|it| matches!(it, Effect::Settle { .. })).unwrap();
    assert!(listen < look);
    play.said.clear();
    play.wake_at(play.claim.next_wake());
    play.refused();
    assert!(!play.said.contains(&Effect::Listen));
    let mut deaf = Play::acquire(5, Patience { wake_ups: false, ..patience(Turn::First) });
    deaf.refused();
    assert!(!deaf.said.contains(&Effect::Listen), "and not without wake-ups");
}

#[test]
fn a_waiter_sleeps_until_the_keys_of_a_quorum_have_expired() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    (0..5).for_each(|at| play.word(at, Word::Listening));
    for (at, left) in [300, 100, 500, 200, 400].into_iter().enumerate() {
        play.look(at, held(9, left));
    }
    assert_eq!(play.claim.next_wake(), after(300));
    play.said.clear();
    play.wake_at(after(299));
    assert_eq!(play.asks(), []);
    play.wake_at(after(300));
    assert_eq!(play.asks(), [0], "one master first");
}

#[test]
fn it_wakes_when_a_quorum_is_told_free_and_a_moment_after_the_first_word() {
    let mut play = Play::waiting(10_000);
    play.now = after(40);
    [3, 1].into_iter().for_each(|at| play.word(at, Word::Free));
    assert_eq!((play.asks(), play.claim.next_wake()), (vec![], after(46).plus(MS / 4)));
    play.word(2, Word::Free);
    assert_eq!(play.asks(), [0]);
    let mut play = Play::waiting(10_000);
    play.now = after(40);
    play.word(4, Word::Free);
    play.wake_at(after(46).plus(MS / 4));
    assert_eq!(play.asks(), [0], "the other words may be lost");
}

#[test]
fn what_a_master_says_before_it_has_answered_the_look_is_about_an_earlier_lease() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    (0..5).for_each(|at| play.word(at, Word::Listening));
    play.said.clear();
    (0..5).for_each(|at| play.word(at, Word::Free));
    assert_eq!(play.asks(), []);
    play.looks(&held(9, 10_000));
    play.wake_at(after(5));
    assert_eq!(play.asks(), [], "it sleeps");
}

#[test]
fn a_link_that_listens_only_now_looks_again() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    play.looks(&held(9, 10_000));
    play.said.clear();
    play.word(2, Word::Listening);
    assert_eq!(play.calls(), [Call::Nobody], "one look, at one master");
    // It was given back in between: that master knows.
    (0..5).for_each(|at| play.word(at, Word::Listening));
    (0..3).for_each(|at| play.look(at, Answer::Absent));
    assert_eq!(play.asks(), [0]);
}

#[test]
fn one_master_after_the_other_is_looked_at_about_every_second() {
    let mut play = Play::waiting(60_000);
    let mut looked = Vec::new();
    while play.now < after(6_000) {
        play.wake_at(play.claim.next_wake());
        for effect in play.said.drain(..) {
            let Effect::Settle { node, call: Call::Nobody, .. } = effect else {
                panic!("{effect:?}")
            };
            looked.push((node.index(), play.now));
        }
        let (at, _) = *looked.last().unwrap();
        play.look(at, held(9, 60_000));
    }
    let nodes: Vec<usize> = looked.iter().map(|(at, _)| *at).collect();
    assert_eq!(nodes[..6], [1, 2, 3, 4, 0, 1]);
    assert!((6..=12).contains(&looked.len()), "{looked:?}");
    // One that shows it free: the word was lost.
    play.wake_at(play.claim.next_wake());
    play.said.clear();
    let at = (looked.last().unwrap().0 + 1) % 5;
    play.look(at, Answer::Absent);
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.asks(), [0]);
}

#[test]
fn who_hears_too_few_masters_tries_again_and_again() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    (0..2).for_each(|at| play.word(at, Word::Listening));
    (2..5).for_each(|at| play.word(at, Word::Deaf));
    play.looks(&held(9, 60_000));
    assert_eq!(play.claim.next_wake(), after(5), "the policy's pause");
    let mut play = Play::waiting(60_000);
    (0..3).for_each(|at| play.word(at, Word::Deaf));
    assert_eq!(play.claim.next_wake(), after(5), "and from when connections break");
}

#[test]
fn the_others_are_asked_only_when_the_first_grants_or_is_silent_or_unknown() {
    for (answer, asked) in [
        (Some(Answer::Created), vec![1, 2, 3, 4]),
        (Some(Answer::Unknown(Cause::Disconnected)), vec![1, 2, 3, 4]),
        (Some(TAKEN), vec![]),
        (None, vec![1, 2, 3, 4]),
    ] {
        let mut play = Play::waiting(10);
        play.wake_at(after(10));
        assert_eq!(play.asks(), [0]);
        play.hear(Step::Attempt(2), 0, answer.clone());
        if answer.is_none() {
            play.wake_at(after(22));
            assert_eq!(play.asks(), []);
            play.wake_at(after(22).plus(MS / 2));
        }
        assert_eq!(play.asks(), asked, "{answer:?}");
    }
}

#[test]
fn an_attempt_that_was_begun_with_one_master_is_judged_by_its_own_start() {
    let mut play = Play::waiting(10);
    play.wake_at(after(10));
    play.now = after(20);
    (0..3).for_each(|at| play.hear(Step::Attempt(2), at, Some(Answer::Created)));
    assert_eq!(play.verdict(), Some(true));
    play.tell(Input::Collect);
    assert_eq!(play.deadline(), after(10).plus(988 * MS), "t0 is when the first was asked (R1)");
}

#[test]
fn a_first_master_that_no_other_agrees_with_is_not_believed() {
    let mut play = Play::waiting(10);
    play.wake_at(after(10));
    play.hear(Step::Attempt(2), 0, Some(TAKEN));
    // A key that was left behind on the first master; the others are free.
    play.look(0, held(7, 60_000));
    (1..5).for_each(|at| play.look(at, Answer::Absent));
    play.said.clear();
    play.wake_at(after(15));
    assert_eq!(play.asks(), [0, 1, 2, 3, 4], "all at once");
    play.refused();
    play.looks(&held(9, 10));
    play.said.clear();
    play.wake_at(after(25));
    assert_eq!(play.asks(), [1], "and another one is the first from now on");
}

#[test]
fn after_some_rounds_with_one_master_first_all_are_asked_at_once() {
    let mut play = Play::acquire(5, patience(Turn::First));
    let mut firsts = Vec::new();
    for _ in 0..8 {
        let asks = play.asks();
        firsts.push(asks.len());
        (0..5).for_each(|at| play.hear(Step::Attempt(play.attempt()), at, Some(Answer::Created)));
        if play.verdict() == Some(true) {
            break;
        }
    }
    assert_eq!(firsts, [5], "uncontended");
    let mut play = Play::acquire(5, patience(Turn::First));
    let mut sizes = Vec::new();
    for _ in 0..9 {
        sizes.push(play.asks().len());
        // Others share the masters: nobody wins, and nobody holds it.
        play.refused();
        play.looks(&Answer::Absent);
        play.said.clear();
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(sizes, [5, 1, 1, 1, 5, 1, 1, 1, 5]);
}

#[test]
fn attempts_that_failed_call_nobody_and_what_kept_others_out_calls_all() {
    let mut play = Play::acquire(5, patience(Turn::First));
    play.refused();
    assert_eq!(play.calls(), [Call::Nobody; 5]);
    let mut won = Play::acquire(5, patience(Turn::First));
    (0..3).for_each(|at| won.hear(Step::Attempt(1), at, Some(Answer::Created)));
    won.tell(Input::Abandon);
    assert_eq!(won.calls(), [Call::Everybody; 5], "won, and nobody came for it");
    let mut dropped = Play::acquire(5, patience(Turn::First));
    dropped.tell(Input::Abandon);
    assert_eq!(dropped.calls(), [Call::Everybody; 5], "it may have had a quorum");
    for (hands_on, call) in [(false, Call::Everybody), (true, Call::Counted)] {
        let mut held = Play::hold(&[crate::play::Granted; 5]);
        if hands_on {
            held.tell(Input::HandOn);
        }
        held.tell(Input::Release);
        assert_eq!(held.calls(), [call; 5]);
    }
}

#[test]
fn an_heir_of_which_nothing_comes_calls_in_the_place_of_who_handed_on() {
    for (turn, call) in [(Turn::First, Call::Nobody), (Turn::Heir, Call::Everybody)] {
        let mut play = Play::acquire(5, Patience { wait: 12 * MS, ..patience(turn) });
        play.refused();
        play.said.clear();
        play.wake_at(after(12));
        play.hear(Step::Attempt(2), 4, Some(Answer::Created));
        (0..3).for_each(|at| play.hear(Step::Attempt(2), at, Some(TAKEN)));
        assert_eq!(play.calls(), [call; 5], "{turn:?}: its wait is over");
    }
}

#[test]
fn a_guest_lets_others_go_first_and_an_heir_does_not_wait() {
    let heir = Play::acquire(5, patience(Turn::Heir));
    assert_eq!(heir.asked().len(), 5);
    let mut guest = Play::acquire(5, patience(Turn::Guest));
    assert!(guest.asked().is_empty() && guest.said.contains(&Effect::Listen));
    let wake = guest.claim.next_wake();
    assert!(wake > START && wake <= after(13), "{wake:?}");
    guest.said.clear();
    guest.wake_at(wake);
    assert_eq!(guest.asks(), [0]);
    let hurried = Patience { wait: Duration::ZERO, ..patience(Turn::Guest) };
    assert_eq!(Play::acquire(5, hurried).asked().len(), 5, "no time to wait");
}

#[test]
fn nobody_sleeps_beyond_the_end_of_the_wait_and_the_last_attempt_asks_all() {
    let mut play = Play::acquire(5, Patience { wait: 700 * MS, ..patience(Turn::First) });
    play.refused();
    (0..5).for_each(|at| play.word(at, Word::Listening));
    play.looks(&Answer::Taken(Holder::NoExpiry));
    play.said.clear();
    while play.now < after(700) {
        assert!(play.claim.next_wake() <= after(700));
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(play.asks().len(), 5);
    play.refused();
    play.looks(&Answer::Taken(Holder::NoExpiry));
    assert_eq!(play.verdict(), Some(false));
}
