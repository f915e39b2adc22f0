//! From a failed attempt to the next one: how long a waiter sleeps, what wakes it, and to which
//! masters it sends.

use std::time::Duration;

use redquorum_protocol::{
    Cause, Claim, Drift, Effect, Failure, Holder, Input, LockConfig, NodeId, Position, QueueEvent,
    Reply, RoundId, TOKEN_LEN, Time, Token, Turn, WaitPolicy, WaiterId, WakeUp,
};

use crate::play::{MS, ONCE, Play, START};

const TAKEN: Reply = Reply::Taken(Holder::NotAsked);
const FREE: Reply = Reply::Place { number: 2, ahead: 1, holder: None };
const ALL: [usize; 5] = [0, 1, 2, 3, 4];

fn policy(turn: Turn) -> WaitPolicy {
    WaitPolicy { wait: 20_000 * MS, explain: true, wake_ups: true, fair: false, turn }
}

fn held(by: u8, left_ms: u64) -> Reply {
    held_by(Holder::Lease { token: Token::new([by; TOKEN_LEN]), left_ms })
}

fn held_by(holder: Holder) -> Reply {
    Reply::Place { number: 2, ahead: 1, holder: Some(holder) }
}

fn waiter_id() -> WaiterId {
    WaiterId::new(0)
}

impl Play {
    fn refused(&mut self) {
        let attempt = self.attempt();
        (0..5).for_each(|at| self.hear(RoundId::Attempt(attempt), at, Some(TAKEN)));
    }

    fn attempt(&self) -> u32 {
        let Claim::Acquiring(acquire) = &self.claim else { panic!("{:?}", self.claim) };
        acquire.attempt()
    }

    /// All masters reply to the check that follows a refused attempt.
    fn looks(&mut self, answer: &Reply) {
        (0..5).for_each(|at| self.look(at, answer.clone()));
    }

    fn look(&mut self, at: usize, answer: Reply) {
        // Each earlier attempt was refused, so there were as many rounds of checks.
        self.hear(RoundId::Enqueue(self.attempt()), at, Some(answer));
    }

    fn cleaned(&mut self, at: usize, answer: Reply) {
        self.hear(RoundId::Cleanup(self.attempt()), at, Some(answer));
    }

    fn word(&mut self, at: usize, word: QueueEvent) {
        self.tell(Input::QueueEvent { node: NodeId::new(at), word });
    }

    fn woken(&mut self, at: usize) {
        self.word(at, QueueEvent::Free(waiter_id()));
    }

    /// A refused waiter that all masters can wake.
    fn subscribed(policy: WaitPolicy) -> Self {
        let mut play = Self::acquire(5, policy);
        play.refused();
        (0..5).for_each(|at| play.word(at, QueueEvent::Subscribed));
        play.said.clear();
        play
    }

    /// A waiter to which all masters reply that another client holds the resource for `left_ms`.
    fn waiting(left_ms: u64) -> Self {
        let mut play = Self::subscribed(policy(Turn::First));
        play.looks(&held(9, left_ms));
        play.said.clear();
        play
    }

    /// The masters that received a request for the key since the last look.
    fn asks(&mut self) -> Vec<usize> {
        let asked = self.asked().into_iter().map(|(at, _)| at).collect();
        self.said.clear();
        asked
    }

    /// The masters that received a request for a position. None of them wakes another waiter for
    /// that.
    fn enqueues(&self) -> Vec<usize> {
        let stand = |effect: &Effect| match effect {
            Effect::Enqueue { node, position, waiter_id: of, .. } => {
                assert_eq!((*position, *of), (Position::Any, waiter_id()));
                Some(node.index())
            }
            _ => None,
        };
        self.said.iter().filter_map(stand).collect()
    }

    /// The masters that clean up, and the waiter that each of them wakes.
    fn cleans_up(&self) -> Vec<(usize, WakeUp)> {
        let clean_up = |effect: &Effect| match effect {
            Effect::CleanUp { node, call, .. } => Some((node.index(), *call)),
            _ => None,
        };
        self.said.iter().filter_map(clean_up).collect()
    }

    /// The masters whose queues the waiter leaves, and whether they wake the next waiter.
    fn leaves(&self) -> Vec<(usize, bool)> {
        let step_out = |effect: &Effect| match effect {
            Effect::Dequeue { node, call, .. } => Some((node.index(), *call)),
            _ => None,
        };
        self.said.iter().filter_map(step_out).collect()
    }
}

fn after(ms: u64) -> Time {
    START.plus(Duration::from_millis(ms))
}

#[test]
fn links_subscribe_once_before_the_clean_up_and_the_waiter_enqueues_behind_it() {
    let mut play = Play::acquire(5, policy(Turn::First));
    play.said.clear();
    play.refused();
    assert_eq!(play.said[0], Effect::Subscribe { waiter_id: waiter_id() });
    assert!(matches!(play.said[1..6], [Effect::CleanUp { .. }, .., Effect::CleanUp { .. }]));
    assert!(matches!(play.said[6..11], [Effect::Enqueue { .. }, .., Effect::Enqueue { .. }]));
    play.said.clear();
    play.wake_at(play.claim.next_wake());
    play.refused();
    assert_eq!(play.enqueues(), ALL);
    assert!(!play.said.iter().any(|effect| matches!(effect, Effect::Subscribe { .. })));
}

#[test]
fn without_wake_ups_no_queue_is_used() {
    let mut play = Play::acquire(5, WaitPolicy { wake_ups: false, ..policy(Turn::First) });
    play.said.clear();
    play.refused();
    assert_eq!(play.cleans_up(), ALL.map(|at| (at, WakeUp::None)));
    assert_eq!(play.said.len(), 6, "the clean-up, and what wakes the driver");
}

#[test]
fn a_waiter_sleeps_until_the_keys_of_a_quorum_have_expired() {
    let mut play = Play::subscribed(policy(Turn::First));
    for (at, left) in [300, 100, 450, 200, 400].into_iter().enumerate() {
        play.look(at, held(9, left));
    }
    assert_eq!(play.claim.next_wake(), after(300));
    play.wake_at(after(299));
    assert_eq!(play.asks(), []);
    play.wake_at(after(300));
    assert_eq!(play.asks(), [0], "one master first");
}

#[test]
fn a_waiter_that_a_quorum_wakes_asks_all_masters_at_once() {
    let mut play = Play::waiting(10_000);
    play.now = after(40);
    [3, 1].into_iter().for_each(|at| play.woken(at));
    assert_eq!(play.asks(), []);
    play.woken(2);
    assert_eq!(play.asks(), ALL);
}

#[test]
fn a_waiter_that_fewer_masters_wake_asks_the_first_master_a_moment_later() {
    let mut play = Play::waiting(10_000);
    play.now = after(40);
    play.woken(4);
    let moment = after(46).plus(MS / 4);
    assert_eq!(play.claim.next_wake(), moment);
    play.wake_at(moment);
    assert_eq!(play.asks(), [0], "the other messages may be lost");
    // A quorum is free, but part of it may have woken other waiters.
    let mut play = Play::waiting(10_000);
    [0, 1].into_iter().for_each(|at| play.look(at, FREE));
    play.woken(4);
    assert_eq!(play.asks(), [0]);
}

#[test]
fn a_wake_up_of_another_waiter_is_ignored() {
    let mut play = Play::waiting(10_000);
    let before = play.claim.clone();
    (0..5).for_each(|at| play.word(at, QueueEvent::Free(WaiterId::new(8))));
    assert_eq!(play.claim, before);
    assert_eq!(play.asks(), []);
}

#[test]
fn a_wake_up_before_the_answer_to_the_look_is_about_an_earlier_lease() {
    let mut play = Play::waiting(10);
    for _ in 0..2 {
        play.wake_at(play.claim.next_wake());
        play.refused();
        play.said.clear();
        (0..5).for_each(|at| play.woken(at));
        assert_eq!(play.asks(), []);
        play.looks(&held(9, 10_000));
        play.wake_at(play.now.plus(5 * MS));
        assert_eq!(play.asks(), [], "it sleeps");
        (0..5).for_each(|at| play.woken(at));
        assert_eq!(play.asks(), ALL);
        play.refused();
        play.looks(&held(9, 10));
    }
}

#[test]
fn a_master_that_wakes_it_only_from_now_on_is_looked_at_again() {
    let mut play = Play::acquire(5, policy(Turn::First));
    play.refused();
    play.looks(&held(9, 10_000));
    play.said.clear();
    play.word(2, QueueEvent::Subscribed);
    assert_eq!(play.enqueues(), [2]);
    (0..5).for_each(|at| play.word(at, QueueEvent::Subscribed));
    // The holder released in between.
    (0..3).for_each(|at| play.look(at, FREE));
    assert_eq!(play.asks(), [0]);
}

#[test]
fn a_master_that_subscribes_late_is_asked_again_unless_it_is_over() {
    // The master may have dropped a waiter that it could not wake.
    let mut unanswered = Play::acquire(5, policy(Turn::First));
    unanswered.refused();
    unanswered.word(2, QueueEvent::NotSubscribed);
    unanswered.said.clear();
    unanswered.word(2, QueueEvent::Subscribed);
    assert_eq!(unanswered.enqueues(), [2]);
    let mut voting = Play::waiting(10);
    voting.wake_at(voting.claim.next_wake());
    voting.said.clear();
    voting.word(2, QueueEvent::Subscribed);
    assert_eq!(voting.enqueues(), [2]);
    voting.wake_at(voting.claim.next_wake());
    (0..3).for_each(|at| voting.hear(RoundId::Attempt(2), at, Some(Reply::Created)));
    voting.said.clear();
    voting.word(2, QueueEvent::Subscribed);
    assert_eq!((voting.verdict(), voting.enqueues()), (Some(true), vec![]));
    let mut first = Play::acquire(5, policy(Turn::First));
    first.said.clear();
    first.word(2, QueueEvent::Subscribed);
    assert_eq!(first.enqueues(), [], "it has no position yet");
}

#[test]
fn a_wake_up_before_the_first_look_counts_where_that_finds_the_resource_free() {
    let refused = || {
        let mut play = Play::waiting(10);
        play.wake_at(play.claim.next_wake());
        play.refused();
        (0..3).for_each(|at| play.woken(at));
        play.said.clear();
        play
    };
    let mut free = refused();
    free.look(1, FREE);
    assert_eq!(free.asks(), ALL, "a quorum has woken it");
    let mut held_again = refused();
    held_again.look(1, held(9, 10_000));
    held_again.look(0, FREE);
    assert_eq!(held_again.asks(), [], "one of the quorum is taken");
    held_again.look(2, FREE);
    held_again.wake_at(held_again.claim.next_wake());
    assert_eq!(held_again.asks(), [0]);
    // The first check follows the clean-up, which may itself have freed the resource.
    let mut not_woken = refused();
    not_woken.look(4, FREE);
    assert_eq!(not_woken.asks(), []);
}

#[test]
fn one_master_after_the_other_is_looked_at_about_every_second() {
    let mut play = Play::waiting(60_000);
    let mut looked = Vec::new();
    while play.now < after(6_000) {
        play.wake_at(play.claim.next_wake());
        looked.extend(play.enqueues());
        assert_eq!(play.said.len(), 1, "{:?}", play.said);
        play.said.clear();
        play.look(*looked.last().unwrap(), held(9, 60_000));
    }
    assert_eq!(looked[..6], [1, 2, 3, 4, 0, 1]);
    assert!((6..=12).contains(&looked.len()), "{looked:?}");
    // The wake-up was lost.
    play.wake_at(play.claim.next_wake());
    let at = play.enqueues()[0];
    play.said.clear();
    play.look(at, FREE);
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.asks(), [0]);
}

#[test]
fn each_master_is_looked_at_before_a_position_lapses_there() {
    let nodes = 64;
    let terms = LockConfig::new(nodes, 60_000 * MS, Drift::default(), 50 * MS).unwrap();
    let mut play = Play::acquire_on(terms, policy(Turn::First));
    (0..nodes).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(TAKEN)));
    (0..nodes).for_each(|at| play.word(at, QueueEvent::Subscribed));
    (0..nodes).for_each(|at| play.look(at, held(9, 60_000)));
    play.said.clear();
    while play.now < after(5_000) {
        play.wake_at(play.claim.next_wake());
    }
    let mut looked = play.enqueues();
    looked.sort_unstable();
    looked.dedup();
    assert_eq!(looked.len(), nodes);
}

#[test]
fn a_waiter_that_too_few_masters_wake_tries_again_as_the_policy_has_it() {
    let mut play = Play::acquire(5, policy(Turn::First));
    play.refused();
    (0..2).for_each(|at| play.word(at, QueueEvent::Subscribed));
    (2..5).for_each(|at| play.word(at, QueueEvent::NotSubscribed));
    play.looks(&held(9, 60_000));
    assert_eq!(play.claim.next_wake(), after(5), "the policy's pause");
    let mut play = Play::waiting(60_000);
    (0..3).for_each(|at| play.word(at, QueueEvent::NotSubscribed));
    assert_eq!(play.claim.next_wake(), after(5), "and from when connections break");
}

#[test]
fn a_waiter_enqueues_on_no_master_that_refuses_to_wake_it() {
    let mut play = Play::waiting(10);
    play.word(1, QueueEvent::Refused);
    play.wake_at(after(10));
    play.refused();
    assert_eq!(play.enqueues(), [0, 2, 3, 4]);
    play.word(1, QueueEvent::Subscribed);
    play.wake_at(play.claim.next_wake());
    play.said.clear();
    play.refused();
    assert_eq!(play.enqueues(), ALL, "it does on the next connection");
}

#[test]
fn where_no_quorum_keeps_queues_a_waiter_leaves_them() {
    let mut play = Play::subscribed(policy(Turn::First));
    [0, 2].into_iter().for_each(|at| play.look(at, Reply::NoQueue));
    assert_eq!(play.leaves(), []);
    play.look(4, Reply::NoQueue);
    assert_eq!(play.leaves(), ALL.map(|at| (at, true)));
    assert_eq!(play.claim.next_wake(), after(5), "the policy's pause");
    play.said.clear();
    play.wake_at(after(5));
    assert_eq!(play.asks(), ALL);
    play.refused();
    assert_eq!(play.enqueues(), []);
}

#[test]
fn the_others_are_asked_only_when_the_first_grants_or_is_silent_or_unknown() {
    for (answer, asked) in [
        (Some(Reply::Created), vec![1, 2, 3, 4]),
        (Some(Reply::Unknown(Cause::Disconnected)), vec![1, 2, 3, 4]),
        (Some(TAKEN), vec![]),
        (None, vec![1, 2, 3, 4]),
    ] {
        let mut play = Play::waiting(10);
        play.wake_at(after(10));
        assert_eq!(play.asks(), [0]);
        play.hear(RoundId::Attempt(2), 0, answer.clone());
        if answer.is_none() {
            play.wake_at(after(22));
            assert_eq!(play.asks(), []);
            play.wake_at(after(22).plus(MS / 2));
        }
        assert_eq!(play.asks(), asked, "{answer:?}");
    }
}

#[test]
fn only_masters_that_were_asked_are_cleaned_up() {
    let asked_first = || {
        let mut play = Play::waiting(10);
        play.wake_at(after(10));
        play.said.clear();
        play
    };
    let mut refused = asked_first();
    refused.hear(RoundId::Attempt(2), 0, Some(TAKEN));
    assert_eq!(refused.cleans_up(), [(0, WakeUp::None)]);
    let mut dropped = asked_first();
    dropped.tell(Input::Abandon);
    assert_eq!(dropped.cleans_up(), [(0, WakeUp::First)]);
    let mut silent = asked_first();
    silent.wake_at(silent.claim.next_wake());
    silent.refused();
    assert_eq!(silent.cleans_up(), ALL.map(|at| (at, WakeUp::None)));
}

#[test]
fn a_waiter_that_gives_up_while_one_master_is_asked_leaves_the_queues_of_the_others() {
    let mut play = Play::waiting(10);
    play.wake_at(after(10));
    play.said.clear();
    play.tell(Input::Abandon);
    assert_eq!(
        (play.cleans_up(), play.left_with()),
        (vec![(0, WakeUp::First)], vec![Some(waiter_id())])
    );
    let left: Vec<usize> = play.leaves().into_iter().map(|(at, _)| at).collect();
    assert!((1..5).all(|at| left.contains(&at)), "{left:?}");
}

#[test]
fn one_master_alone_does_not_end_the_wait() {
    let mut play = Play::waiting(19_995);
    play.wake_at(after(19_995));
    assert_eq!(play.asks(), [0]);
    // The wait ends when the first master refuses.
    play.now = after(20_000);
    play.hear(RoundId::Attempt(2), 0, Some(TAKEN));
    assert_eq!((play.asks(), play.verdict()), (vec![1, 2, 3, 4], None));
    (1..4).for_each(|at| play.hear(RoundId::Attempt(2), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn an_attempt_that_was_begun_with_one_master_is_judged_by_its_own_start() {
    let mut play = Play::waiting(10);
    play.wake_at(after(10));
    play.now = after(20);
    (0..3).for_each(|at| play.hear(RoundId::Attempt(2), at, Some(Reply::Created)));
    assert_eq!(play.verdict(), Some(true));
    play.tell(Input::Collect);
    assert_eq!(play.deadline(), after(10).plus(988 * MS), "t0 is when the first was asked (R1)");
}

#[test]
fn a_first_master_that_no_other_agrees_with_is_not_believed() {
    let mut play = Play::waiting(10);
    play.wake_at(after(10));
    play.hear(RoundId::Attempt(2), 0, Some(TAKEN));
    // The first master has a key that was left behind. The other masters are free, and the waiter
    // is first there.
    play.look(0, held(7, 60_000));
    let first = Reply::Place { number: 1, ahead: 0, holder: None };
    (1..5).for_each(|at| play.look(at, first.clone()));
    play.said.clear();
    play.wake_at(after(15));
    assert_eq!(play.asks(), ALL, "all at once");
    play.refused();
    play.looks(&held(9, 10));
    play.said.clear();
    play.wake_at(after(25));
    assert_eq!(play.asks(), [1], "and another one is the first from now on");
}

#[test]
fn after_some_rounds_with_one_master_first_all_are_asked_at_once() {
    let mut play = Play::acquire(5, policy(Turn::First));
    let mut sizes = Vec::new();
    for _ in 0..9 {
        sizes.push(play.asks().len());
        // Other clients share the masters: no client wins or holds a quorum.
        play.refused();
        play.looks(&FREE);
        play.said.clear();
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(sizes, [5, 1, 1, 1, 5, 1, 1, 1, 5]);
}

#[test]
fn an_attempt_that_failed_wakes_no_waiter_and_what_kept_others_out_wakes_the_next() {
    let mut play = Play::acquire(5, policy(Turn::First));
    play.refused();
    assert_eq!(play.cleans_up(), ALL.map(|at| (at, WakeUp::None)));
    let mut won = Play::acquire(5, policy(Turn::First));
    (0..3).for_each(|at| won.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    won.tell(Input::Abandon);
    assert_eq!(won.cleans_up(), ALL.map(|at| (at, WakeUp::First)), "won, and not collected");
    let mut dropped = Play::acquire(5, policy(Turn::First));
    dropped.tell(Input::Abandon);
    assert_eq!(dropped.cleans_up(), ALL.map(|at| (at, WakeUp::First)), "it may have had a quorum");
    for (hands_on, call) in [(false, WakeUp::First), (true, WakeUp::Count)] {
        let mut held = Play::hold(&[crate::play::Granted; 5]);
        if hands_on {
            held.tell(Input::HandOn);
        }
        held.tell(Input::Release);
        assert_eq!(held.cleans_up(), ALL.map(|at| (at, call)));
    }
}

#[test]
fn a_waiter_that_wins_keeps_its_positions_until_it_gives_the_lease_back() {
    let won = || {
        let mut play = Play::waiting(10_000);
        (0..3).for_each(|at| play.woken(at));
        (0..5).for_each(|at| play.hear(RoundId::Attempt(2), at, Some(Reply::Created)));
        assert_eq!((play.verdict(), play.leaves()), (Some(true), vec![]));
        play
    };
    for lost in [false, true] {
        let mut held = won();
        held.tell(Input::Collect);
        if lost {
            held.wake_at(held.deadline());
        } else {
            held.tell(Input::Release);
        }
        assert_eq!((held.left_with(), held.leaves()), (vec![Some(waiter_id()); 5], vec![]));
    }
    let mut dropped = won();
    dropped.said.clear();
    dropped.tell(Input::Abandon);
    assert_eq!(dropped.cleans_up(), ALL.map(|at| (at, WakeUp::First)));
    assert_eq!((dropped.left_with(), dropped.leaves()), (vec![Some(waiter_id()); 5], vec![]));
    let mut uncontended = Play::hold(&[crate::play::Granted; 5]);
    uncontended.tell(Input::Release);
    assert_eq!(uncontended.left_with(), [None; 5]);
}

#[test]
fn a_win_that_is_not_collected_is_given_up_and_wakes_the_next() {
    for (ttl_ms, timeout_ms, given_up_ms) in [(10_000, 50, 1_000), (10_000, 200, 1_600)] {
        let [ttl, timeout] = [ttl_ms, timeout_ms].map(Duration::from_millis);
        let terms = LockConfig::new(5, ttl, Drift::default(), timeout).unwrap();
        let mut play = Play::acquire_on(terms, ONCE);
        (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
        assert_eq!(play.claim.next_wake(), after(given_up_ms));
        play.wake_at(after(given_up_ms - 1));
        assert_eq!(play.verdict(), Some(true));
        play.said.clear();
        play.wake_at(after(given_up_ms));
        assert_eq!(play.verdict(), Some(false));
        assert_eq!(play.cleans_up(), ALL.map(|at| (at, WakeUp::First)));
        let Claim::Acquiring(acquire) = &play.claim else { panic!("{:?}", play.claim) };
        assert_eq!(acquire.failure(), Some(Failure::TooLate));
    }
    let mut play = Play::acquire(5, policy(Turn::First));
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.claim.next_wake(), after(988), "no longer than until its deadline");
    play.wake_at(after(988));
    play.said.clear();
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.asks(), [0], "it goes on while there is time");
}

#[test]
fn a_waiter_that_yields_leaves_wakes_the_next_and_goes_on_with_the_next_wake() {
    let mut play = Play::waiting(10_000);
    play.woken(4);
    play.tell(Input::Yield);
    assert_eq!(play.leaves(), ALL.map(|at| (at, true)));
    play.said.clear();
    // These messages were already on their way.
    (0..3).for_each(|at| play.look(at, FREE));
    (0..3).for_each(|at| play.woken(at));
    assert_eq!(play.said, []);
    assert!(play.claim.next_wake() <= play.now);
    play.tell(Input::Wake);
    assert_eq!(play.asks(), [0]);
    play.refused();
    assert_eq!(play.enqueues(), ALL);
    let mut voting = Play::acquire(5, policy(Turn::First));
    let before = voting.claim.clone();
    voting.tell(Input::Yield);
    assert_eq!(voting.claim, before, "an attempt is not interrupted");
}

#[test]
fn attempts_that_masters_leave_unanswered_thin_out() {
    // Each attempt sends to all masters.
    let policy = WaitPolicy { wake_ups: false, ..policy(Turn::First) };
    let mut play = Play::acquire(5, policy);
    let (mut rounds, mut pauses) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let step = RoundId::Attempt(play.attempt());
        (0..2).for_each(|at| play.hear(step, at, Some(TAKEN)));
        rounds.push(play.claim.next_wake().since(play.now).as_millis());
        play.wake_at(play.claim.next_wake());
        pauses.push(play.claim.next_wake().since(play.now).as_millis());
        play.said.clear();
        play.wake_at(play.claim.next_wake());
        assert_eq!(play.asks(), ALL);
    }
    // Each round has more time than the one before, up to a quarter of the lease.
    assert_eq!(rounds, [50, 100, 200, 247, 247, 247, 247]);
    assert_eq!(pauses, [25, 50, 100, 200, 200, 200, 200]);
    (0..3).for_each(|at| play.hear(RoundId::Attempt(8), at, Some(TAKEN)));
    assert_eq!(play.claim.next_wake(), play.now.plus(5 * MS), "a quorum answers");
    let mut down = Play::acquire(5, policy);
    for _ in 0..3 {
        let (step, down_now) = (RoundId::Attempt(down.attempt()), Reply::Unknown(Cause::Stalled));
        (0..3).for_each(|at| down.hear(step, at, Some(down_now.clone())));
        assert_eq!(down.claim.next_wake(), down.now.plus(5 * MS), "the masters were not asked");
        down.wake_at(down.claim.next_wake());
    }
}

#[test]
fn an_heir_that_does_not_win_wakes_the_next_in_the_place_of_the_one_before_it() {
    for (turn, call) in [(Turn::First, WakeUp::None), (Turn::HandedOff, WakeUp::First)] {
        let mut play = Play::acquire(5, WaitPolicy { wait: 12 * MS, ..policy(turn) });
        play.refused();
        play.said.clear();
        play.wake_at(after(12));
        play.hear(RoundId::Attempt(2), 4, Some(Reply::Created));
        (0..3).for_each(|at| play.hear(RoundId::Attempt(2), at, Some(TAKEN)));
        assert_eq!(play.cleans_up(), ALL.map(|at| (at, call)), "{turn:?}: its wait is over");
    }
}

#[test]
fn a_guest_lets_others_go_first_and_an_heir_does_not_wait() {
    let handed_off = Play::acquire(5, policy(Turn::HandedOff));
    assert_eq!(handed_off.asked().len(), 5);
    let mut guest = Play::acquire(5, policy(Turn::Yielded));
    assert_eq!(guest.said[0], Effect::Subscribe { waiter_id: waiter_id() });
    assert_eq!((guest.enqueues(), guest.asks()), (ALL.to_vec(), vec![]));
    let wake = guest.claim.next_wake();
    assert!(wake > START && wake <= after(13), "{wake:?}");
    guest.wake_at(wake);
    assert_eq!(guest.asks(), [0]);
    let hurried = WaitPolicy { wait: Duration::ZERO, ..policy(Turn::Yielded) };
    assert_eq!(Play::acquire(5, hurried).asked().len(), 5, "no time to wait");
}

#[test]
fn no_waiter_sleeps_beyond_the_end_of_its_wait_and_the_last_attempt_asks_all() {
    let mut play = Play::subscribed(WaitPolicy { wait: 700 * MS, ..policy(Turn::First) });
    play.looks(&held_by(Holder::NoExpiry));
    while play.now < after(700) {
        assert!(play.claim.next_wake() <= after(700));
        play.wake_at(play.claim.next_wake());
    }
    assert_eq!(play.asks(), ALL);
    play.refused();
    assert_eq!(play.leaves(), ALL.map(|at| (at, true)));
    (0..5).for_each(|at| play.cleaned(at, Reply::Taken(Holder::NoExpiry)));
    assert_eq!(play.verdict(), Some(false));
}

#[test]
fn a_waiter_tells_why_its_latest_attempt_failed() {
    let latest = |play: &Play| match &play.claim {
        Claim::Acquiring(acquire) => acquire.latest_failure(),
        other => panic!("{other:?}"),
    };
    let mut play = Play::acquire(5, policy(Turn::First));
    assert_eq!(latest(&play), None);
    play.refused();
    assert_eq!(latest(&play), Some(Failure::Taken));
    play.wake_at(play.claim.next_wake());
    play.wake_at(play.claim.next_wake());
    play.wake_at(play.now.plus(50 * MS));
    assert_eq!((play.attempt(), latest(&play)), (2, Some(Failure::NoQuorum)));
}
