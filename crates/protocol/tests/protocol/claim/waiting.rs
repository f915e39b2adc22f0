//! From a failed attempt to the next one: how long a waiter sleeps, what wakes it, and to which
//! masters it sends.

use std::time::Duration;

use redquorum_protocol::{
    Cause, Drift, Effect, Failure, Holder, Input, LockConfig, Position, QueueEvent, Reply, Time,
    Turn, WaitPolicy, WaiterId, WakeUp,
};

use super::play::*;
use crate::support::Count;

const FREE: Reply = Place { number: 2, ahead: 1, holder: None };

fn policy(turn: Turn) -> WaitPolicy {
    WaitPolicy { wait: 20_000 * MS, explain: true, wake_ups: true, fair: false, turn }
}

fn held(by: u64, left_ms: u64) -> Reply {
    held_by(Holder::Lease { token: token(by), left_ms })
}

fn held_by(holder: Holder) -> Reply {
    Place { number: 2, ahead: 1, holder: Some(holder) }
}

impl Play {
    /// A request whose turn came first.
    fn first() -> Self {
        Self::acquire(5, policy(Turn::First))
    }

    fn refused(&mut self) {
        self.reply_all(Attempt(self.attempt()), ALL, TAKEN);
    }

    fn attempt(&self) -> u32 {
        self.acquiring().attempt()
    }

    /// These masters reply to the check that follows a refused attempt.
    fn look(&mut self, masters: impl IntoIterator<Item = usize>, reply: Reply) {
        // Each earlier attempt was refused, so there were as many rounds of checks.
        self.reply_all(Enqueue(self.attempt()), masters, reply);
    }

    /// A refused waiter that all masters can wake.
    fn subscribed(policy: WaitPolicy) -> Self {
        let mut play = Self::acquire(5, policy);
        play.refused();
        play.event(ALL, QueueEvent::Subscribed);
        play.effects.clear();
        play
    }

    /// A waiter to which all masters reply that another client holds the resource for `left_ms`.
    fn waiting(left_ms: u64) -> Self {
        let mut play = Self::subscribed(policy(Turn::First));
        play.look(ALL, held(9, left_ms));
        play.effects.clear();
        play
    }

    /// A waiter that asks the first master, since the lease that it waited for has expired.
    fn asking_first() -> Self {
        let mut play = Self::waiting(10);
        play.wake_at(after(10));
        assert_eq!(play.asks(), [0]);
        play
    }

    /// The masters that received a request for a position. None of them wakes another waiter for
    /// that.
    fn enqueues(&self) -> Vec<usize> {
        found!(
            self,
            Effect::Enqueue { node, position: Position::Any, waiter_id: WAITER, .. } => node.index()
        )
    }
}

fn after(ms: u64) -> Time {
    START.plus(Duration::from_millis(ms))
}

/// All masters clean up, and wake this waiter.
fn all_clean_up(wake_up: WakeUp) -> [(usize, WakeUp); 5] {
    ALL.map(|at| (at, wake_up))
}

#[test]
fn links_subscribe_once_before_the_clean_up_and_the_waiter_enqueues_behind_it() {
    let mut play = Play::first();
    play.effects.clear();
    play.refused();
    assert_eq!(play.effects[0], Effect::Subscribe { waiter_id: WAITER });
    assert!(matches!(play.effects[1..6], [Effect::CleanUp { .. }, .., Effect::CleanUp { .. }]));
    assert!(matches!(play.effects[6..11], [Effect::Enqueue { .. }, .., Effect::Enqueue { .. }]));
    play.effects.clear();
    play.wake();
    play.refused();
    assert_eq!(play.enqueues(), ALL);
    assert!(!play.effects.iter().any(|effect| matches!(effect, Effect::Subscribe { .. })));
}

#[test]
fn without_wake_ups_no_queue_is_used() {
    let mut play = Play::acquire(5, WaitPolicy { wake_ups: false, ..policy(Turn::First) });
    play.effects.clear();
    play.refused();
    assert_eq!(play.cleans_up(), all_clean_up(WakeUp::None));
    assert_eq!(play.effects.len(), 6, "the clean-up, and what wakes the driver");
}

#[test]
fn a_waiter_sleeps_until_the_keys_of_a_quorum_have_expired() {
    let mut play = Play::subscribed(policy(Turn::First));
    for (at, left) in [300, 100, 450, 200, 400].into_iter().enumerate() {
        play.look([at], held(9, left));
    }
    assert_eq!(play.claim.next_wake(), after(300));
    play.wake_at(after(299));
    assert_eq!(play.asks(), [0; 0]);
    play.wake_at(after(300));
    assert_eq!(play.asks(), [0], "one master first");
}

#[test]
fn keys_of_several_holders_of_which_none_has_a_quorum_are_not_waited_for() {
    let mut play = Play::subscribed(policy(Turn::First));
    for (at, holder) in [6, 7, 6, 7, 8].into_iter().enumerate() {
        play.look([at], held(holder, 400));
    }
    assert_eq!(play.claim.next_wake(), after(5), "it only pauses");
    play.look([4], held(6, 400));
    assert_eq!(play.claim.next_wake(), after(400));
}

#[test]
fn a_waiter_that_a_quorum_wakes_asks_all_masters_at_once_and_no_other_does() {
    let mut play = Play::waiting(10_000);
    let before = play.claim.clone();
    play.event(ALL, QueueEvent::Free(WaiterId::new(8)));
    assert_eq!(play.claim, before);
    play.now = after(40);
    play.woken([3, 1]);
    assert_eq!(play.asks(), [0; 0]);
    play.woken([2]);
    assert_eq!(play.asks(), ALL);
}

#[test]
fn a_waiter_that_fewer_masters_wake_asks_the_first_master_a_moment_later() {
    let mut play = Play::waiting(10_000);
    play.now = after(40);
    play.woken([4]);
    let moment = after(46).plus(MS / 4);
    assert_eq!(play.claim.next_wake(), moment);
    play.wake_at(moment);
    assert_eq!(play.asks(), [0], "the other messages may be lost");
    // A quorum is free, but part of it may have woken other waiters.
    let mut play = Play::waiting(10_000);
    play.look([0, 1], FREE);
    play.woken([4]);
    assert_eq!(play.asks(), [0]);
}

#[test]
fn a_master_that_subscribes_late_is_asked_again_unless_it_is_over() {
    // The master may have dropped a waiter that it could not wake.
    let mut unanswered = Play::first();
    unanswered.refused();
    unanswered.event([2], QueueEvent::NotSubscribed);
    unanswered.effects.clear();
    unanswered.event([2], QueueEvent::Subscribed);
    assert_eq!(unanswered.enqueues(), [2]);
    let mut voting = Play::waiting(10);
    voting.wake();
    voting.effects.clear();
    voting.event([2], QueueEvent::Subscribed);
    assert_eq!(voting.enqueues(), [2]);
    voting.wake();
    voting.reply_all(Attempt(2), 0..3, Created);
    voting.effects.clear();
    voting.event([2], QueueEvent::Subscribed);
    assert_eq!((voting.verdict(), voting.enqueues()), (Some(true), vec![]));
    let mut first = Play::first();
    first.effects.clear();
    first.event([2], QueueEvent::Subscribed);
    assert_eq!(first.enqueues(), [0; 0], "it has no position yet");
}

#[test]
fn each_master_is_looked_at_before_a_position_lapses_there() {
    let nodes = 64;
    let config = LockConfig::new(nodes, 60_000 * MS, Drift::default(), 50 * MS).unwrap();
    let mut play = Play::acquire_on(config, policy(Turn::First));
    play.reply_all(Attempt(1), 0..nodes, TAKEN);
    play.event(0..nodes, QueueEvent::Subscribed);
    play.look(0..nodes, held(9, 60_000));
    play.effects.clear();
    while play.now < after(5_000) {
        play.wake();
    }
    let mut looked = play.enqueues();
    looked.sort_unstable();
    looked.dedup();
    assert_eq!(looked.len(), nodes);
}

#[test]
fn a_waiter_enqueues_on_no_master_that_refuses_to_wake_it() {
    let mut play = Play::waiting(10);
    play.event([1], QueueEvent::Refused);
    play.wake_at(after(10));
    play.refused();
    assert_eq!(play.enqueues(), [0, 2, 3, 4]);
    play.event([1], QueueEvent::Subscribed);
    play.wake();
    play.effects.clear();
    play.refused();
    assert_eq!(play.enqueues(), ALL, "it does on the next connection");
}

#[test]
fn the_others_are_asked_only_when_the_first_grants_or_is_silent_or_unknown() {
    for (reply, asked) in [
        (Some(Created), vec![1, 2, 3, 4]),
        (Some(Unknown(Cause::Disconnected)), vec![1, 2, 3, 4]),
        (Some(TAKEN), vec![]),
        (None, vec![1, 2, 3, 4]),
    ] {
        let mut play = Play::asking_first();
        play.reply(Attempt(2), 0, reply.clone());
        if reply.is_none() {
            play.wake_at(after(22));
            assert_eq!(play.asks(), [0; 0]);
            play.wake_at(after(22).plus(MS / 2));
        }
        assert_eq!(play.asks(), asked, "{reply:?}");
    }
}

#[test]
fn one_master_alone_does_not_end_the_wait() {
    let mut play = Play::waiting(19_995);
    play.wake_at(after(19_995));
    assert_eq!(play.asks(), [0]);
    // The wait ends when the first master refuses.
    play.now = after(20_000);
    play.reply_all(Attempt(2), [0], TAKEN);
    assert_eq!((play.asks(), play.verdict()), (vec![1, 2, 3, 4], None));
    play.reply_all(Attempt(2), 1..4, Created);
    assert_eq!(play.verdict(), Some(true));
}

#[test]
fn an_attempt_that_was_begun_with_one_master_is_judged_by_its_own_start() {
    let mut play = Play::asking_first();
    play.now = after(20);
    play.reply_all(Attempt(2), 0..3, Created);
    assert_eq!(play.verdict(), Some(true));
    play.handle(Input::Collect);
    assert_eq!(play.deadline(), after(10).plus(988 * MS), "t0 is when the first was asked (R1)");
}

#[test]
fn a_first_master_that_no_other_agrees_with_is_not_believed() {
    let mut play = Play::asking_first();
    play.reply_all(Attempt(2), [0], TAKEN);
    // The first master has a key that was left behind. The other masters are free, and the waiter
    // is first there.
    play.look([0], held(7, 60_000));
    play.look(1..5, Place { number: 1, ahead: 0, holder: None });
    play.effects.clear();
    play.wake_at(after(15));
    assert_eq!(play.asks(), ALL, "all at once");
    play.refused();
    play.look(ALL, held(9, 10));
    play.effects.clear();
    play.wake_at(after(25));
    assert_eq!(play.asks(), [1], "and another one is the first from now on");
}

#[test]
fn after_some_rounds_with_one_master_first_all_are_asked_at_once() {
    let mut play = Play::first();
    let mut sizes = Vec::new();
    for _ in 0..9 {
        sizes.push(play.asks().len());
        // Other clients share the masters: no client wins or holds a quorum.
        play.refused();
        play.look(ALL, FREE);
        play.effects.clear();
        play.wake();
    }
    assert_eq!(sizes, [5, 1, 1, 1, 5, 1, 1, 1, 5]);
}

#[test]
fn an_attempt_that_failed_wakes_no_waiter_and_what_kept_others_out_wakes_the_next() {
    let mut play = Play::first();
    play.refused();
    assert_eq!(play.cleans_up(), all_clean_up(WakeUp::None));
    let mut dropped = Play::first();
    dropped.handle(Input::Abandon);
    assert_eq!(dropped.cleans_up(), all_clean_up(WakeUp::First), "it may have had a quorum");
    for (hands_on, wake_up) in [(false, WakeUp::First), (true, WakeUp::Count)] {
        let mut held = Play::hold(&[Grants; 5]);
        if hands_on {
            held.handle(Input::HandOn);
        }
        held.handle(Input::Release);
        assert_eq!(held.cleans_up(), all_clean_up(wake_up));
    }
}

#[test]
fn a_waiter_that_wins_keeps_its_positions_until_it_gives_the_lease_back() {
    let won = || {
        let mut play = Play::waiting(10_000);
        play.woken(0..3);
        play.reply_all(Attempt(2), ALL, Created);
        assert_eq!((play.verdict(), play.leaves()), (Some(true), vec![]));
        play
    };
    for way in 0..3 {
        let mut play = won();
        if way > 0 {
            play.handle(Input::Collect);
        }
        play.effects.clear();
        match way {
            0 => play.handle(Input::Abandon),
            1 => play.handle(Input::Release),
            _ => play.wake_at(play.deadline()),
        }
        assert_eq!(play.cleans_up(), all_clean_up(WakeUp::First));
        assert_eq!((play.left_with(), play.leaves()), (vec![Some(WAITER); 5], vec![]));
    }
    let mut uncontended = Play::hold(&[Grants; 5]);
    uncontended.handle(Input::Release);
    assert_eq!(uncontended.left_with(), [None; 5]);
}

#[test]
fn a_win_that_is_not_collected_is_given_up_and_wakes_the_next() {
    for (ttl_ms, timeout_ms, given_up_ms) in [(10_000, 50, 1_000), (10_000, 200, 1_600)] {
        let [ttl, timeout] = [ttl_ms, timeout_ms].map(Duration::from_millis);
        let config = LockConfig::new(5, ttl, Drift::default(), timeout).unwrap();
        let mut play = Play::acquire_on(config, ONCE);
        play.reply_all(Attempt(1), 0..3, Created);
        assert_eq!(play.claim.next_wake(), after(given_up_ms));
        play.wake_at(after(given_up_ms - 1));
        assert_eq!(play.verdict(), Some(true));
        play.effects.clear();
        play.wake_at(after(given_up_ms));
        assert_eq!(play.verdict(), Some(false));
        assert_eq!(play.cleans_up(), all_clean_up(WakeUp::First));
        assert_eq!(play.acquiring().failure(), Some(Failure::TooLate));
    }
    let mut play = Play::first();
    play.reply_all(Attempt(1), 0..3, Created);
    assert_eq!(play.claim.next_wake(), after(988), "no longer than until its deadline");
    play.wake_at(after(988));
    play.effects.clear();
    play.wake();
    assert_eq!(play.asks(), [0], "it goes on while there is time");
}

#[test]
fn a_waiter_that_yields_leaves_wakes_the_next_and_goes_on_with_the_next_wake() {
    let mut play = Play::waiting(10_000);
    play.woken([4]);
    play.handle(Input::Yield);
    assert_eq!(play.leaves(), ALL.map(|at| (at, true)));
    play.effects.clear();
    // These messages were already on their way.
    play.look(0..3, FREE);
    play.woken(0..3);
    assert_eq!(play.effects, []);
    assert!(play.claim.next_wake() <= play.now);
    play.handle(Input::Wake);
    assert_eq!(play.asks(), [0]);
    play.refused();
    assert_eq!(play.enqueues(), ALL);
    let mut won = Play::first();
    won.reply_all(Attempt(1), 0..3, Created);
    let before = won.claim.clone();
    won.handle(Input::Yield);
    assert_eq!(won.claim, before, "a lease that was won has an end of its own");
}

#[test]
fn an_attempt_that_yields_is_undone_like_a_cancelled_one_and_tried_again_with_the_next_wake() {
    // An even split, in which one master is silent, and an attempt that asked one master alone.
    let mut split = Play::first();
    split.reply_all(Attempt(1), 0..2, Created);
    split.reply_all(Attempt(1), 2..4, TAKEN);
    let mut once = Play::acquire(5, ONCE);
    once.reply_all(Attempt(1), 0..2, Created);
    let mut alone = Play::asking_first();
    for (play, asked, number) in [(&mut split, 5, 1), (&mut once, 5, 1), (&mut alone, 1, 2)] {
        play.effects.clear();
        let mut dropped = play.fork();
        dropped.handle(Input::Abandon);
        play.handle(Input::Yield);
        let undone = |play: &Play| (play.cleans_up(), play.left_with(), play.leaves());
        assert_eq!(undone(play), undone(&dropped));
        assert_eq!(play.cleans_up().len(), asked);
        assert_eq!(play.acquiring().waiter(), None, "it is in no queue");
        play.effects.clear();
        // Late grants of the attempt that was undone win nothing, now or later.
        play.reply_all(Attempt(number), 0..5, Created);
        play.reply_all(Cleanup(number), 0..5, Deleted);
        assert_eq!((play.asks(), play.verdict()), (vec![], None));
        assert!(play.claim.next_wake() <= play.now);
        play.handle(Input::Wake);
        assert_eq!(play.attempt(), number + 1);
        assert!(!play.asks().is_empty());
        play.reply_all(Attempt(number), 0..5, Created);
        assert_eq!(play.verdict(), None);
    }
    // A refused request that only waits to learn which client holds the resource is over.
    let mut explaining = Play::acquire(5, WaitPolicy { explain: true, ..ONCE });
    explaining.refused();
    assert_eq!(explaining.verdict(), None);
    explaining.handle(Input::Yield);
    assert_eq!(explaining.acquiring().failure(), Some(Failure::Taken));
}

#[test]
fn attempts_that_masters_leave_unanswered_thin_out() {
    // Each attempt sends to all masters.
    let policy = WaitPolicy { wake_ups: false, ..policy(Turn::First) };
    let mut play = Play::acquire(5, policy);
    let (mut rounds, mut pauses) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        play.reply_all(Attempt(play.attempt()), 0..2, TAKEN);
        rounds.push(play.claim.next_wake().since(play.now).as_millis());
        play.wake();
        pauses.push(play.claim.next_wake().since(play.now).as_millis());
        play.effects.clear();
        play.wake();
        assert_eq!(play.asks(), ALL);
    }
    // Each round has more time than the one before, up to a quarter of the lease.
    assert_eq!(rounds, [50, 100, 200, 247, 247, 247, 247]);
    assert_eq!(pauses, [25, 50, 100, 200, 200, 200, 200]);
    play.reply_all(Attempt(8), 0..3, TAKEN);
    assert_eq!(play.claim.next_wake(), play.now.plus(5 * MS), "a quorum answers");
    let mut down = Play::acquire(5, policy);
    for _ in 0..3 {
        down.reply_all(Attempt(down.attempt()), 0..3, Unknown(Cause::Stalled));
        assert_eq!(down.claim.next_wake(), down.now.plus(5 * MS), "the masters were not asked");
        down.wake();
    }
}

#[test]
fn a_handed_off_turn_that_does_not_win_wakes_the_next_waiter() {
    for (turn, wake_up) in [(Turn::First, WakeUp::None), (Turn::HandedOff, WakeUp::First)] {
        let mut play = Play::acquire(5, WaitPolicy { wait: 12 * MS, ..policy(turn) });
        play.refused();
        play.effects.clear();
        play.wake_at(after(12));
        play.reply_all(Attempt(2), [4], Created);
        play.reply_all(Attempt(2), 0..3, TAKEN);
        assert_eq!(play.cleans_up(), all_clean_up(wake_up), "{turn:?}: its wait is over");
    }
}

#[test]
fn a_yielded_turn_lets_others_go_first_and_a_handed_off_one_does_not_wait() {
    let handed_off = Play::acquire(5, policy(Turn::HandedOff));
    assert_eq!(handed_off.asked().len(), 5);
    let mut other = Play::acquire(5, policy(Turn::Yielded));
    assert_eq!(other.effects[0], Effect::Subscribe { waiter_id: WAITER });
    assert_eq!((other.enqueues(), other.asks()), (ALL.to_vec(), vec![]));
    other.wake();
    assert!(other.now > START && other.now <= after(13), "{:?}", other.now);
    assert_eq!(other.asks(), [0]);
    let hurried = WaitPolicy { wait: Duration::ZERO, ..policy(Turn::Yielded) };
    assert_eq!(Play::acquire(5, hurried).asked().len(), 5, "no time to wait");
}

#[test]
fn one_master_after_the_other_is_looked_at_about_every_second() {
    let mut play = Play::waiting(60_000);
    let mut looked = Vec::new();
    while play.now < after(6_000) {
        play.wake();
        looked.extend(play.enqueues());
        assert_eq!(play.effects.len(), 1, "{:?}", play.effects);
        play.effects.clear();
        play.look([*looked.last().unwrap()], held(9, 60_000));
    }
    assert_eq!(looked[..6], [1, 2, 3, 4, 0, 1]);
    assert!((6..=12).contains(&looked.len()), "{looked:?}");
    assert_eq!(play.rng.paused, [1], "a look is no attempt: the policy does not count it");
    // The wake-up was lost.
    play.wake();
    let at = play.enqueues()[0];
    play.effects.clear();
    play.look([at], FREE);
    play.wake();
    assert_eq!(play.asks(), [0]);
}

#[test]
fn random_times_are_spread_over_what_is_allowed() {
    let mut all_looks = Vec::new();
    for random in [0, 1, 499_999_999, u64::MAX / 2, u64::MAX] {
        let by = |turn| {
            let rng = Count { random, ..Count::new(60_000 * MS) };
            Play::acquire_by(rng, config(5), policy(turn))
        };
        // A waiter looks at one of five masters after half a second to a second.
        let mut waiting = by(Turn::First);
        waiting.refused();
        waiting.event(ALL, QueueEvent::Subscribed);
        let looks = waiting.claim.next_wake();
        assert!((after(500)..=after(1_000)).contains(&looks), "{random}: {looks:?}");
        all_looks.push(looks);
        // One that lets others go first does so for one to two moments.
        let goes = by(Turn::Yielded).claim.next_wake();
        assert!((after(6)..=after(13)).contains(&goes), "{random}: {goes:?}");
    }
    all_looks.dedup();
    assert_eq!(all_looks.len(), 5, "{all_looks:?}");
}

#[test]
fn a_waiter_that_knows_of_waiters_before_it_on_a_quorum_lets_them_go_first() {
    for (before_it, goes_ms) in [(0, 5), (2, 5), (3, 50), (5, 50)] {
        let mut play = Play::subscribed(policy(Turn::First));
        play.look(0..before_it, FREE);
        play.look(before_it..5, Place { number: 1, ahead: 0, holder: None });
        play.effects.clear();
        assert_eq!(play.claim.next_wake(), after(goes_ms), "{before_it}");
    }
    // They may be gone: each pause of the policy ends with a look, which has masters drop them.
    let mut play = Play::subscribed(policy(Turn::First));
    play.look(ALL, FREE);
    play.effects.clear();
    for (ms, at) in [(50, 1), (55, 2), (60, 3)] {
        play.wake();
        assert_eq!((play.now, play.enqueues(), play.asked()), (after(ms), vec![at], vec![]));
        play.effects.clear();
    }
    assert_eq!(play.rng.paused, [1, 2, 3, 4]);
}

#[test]
fn a_waiter_that_masters_do_not_wake_looks_at_none() {
    let mut play = Play::first();
    play.rng.pause = 3_000 * MS;
    play.refused();
    play.look(ALL, held(9, 60_000));
    assert_eq!(play.claim.next_wake(), after(3_000));
    play.wake();
    assert_eq!(play.attempt(), 2);
}

#[test]
fn after_an_attempt_that_masters_left_unanswered_all_are_asked_and_a_quorum_can_wake_the_waiter() {
    let mut play = Play::asking_first();
    assert!(!play.acquiring().backs_off());
    // The first master is silent, and so are the others.
    play.wake();
    play.wake();
    assert!(play.acquiring().backs_off());
    assert!(play.claim.next_wake() > play.now.plus(5 * MS), "a longer pause than the policy's");
    let mut woken = play.fork();
    woken.woken([1, 2]);
    assert_eq!(woken.asks(), [0; 0]);
    woken.woken([3]);
    assert_eq!(woken.asks(), ALL);
    play.effects.clear();
    play.wake();
    assert_eq!((play.asks(), play.acquiring().backs_off()), (ALL.to_vec(), false));
    play.refused();
    assert!(!play.acquiring().backs_off(), "they answer again");
    // No quorum is silent.
    let mut some = Play::first();
    some.reply_all(Attempt(1), [0], Created);
    some.reply_all(Attempt(1), [1], TAKEN);
    some.reply_all(Attempt(1), [2], Unknown(Cause::Disconnected));
    some.wake();
    assert!(some.acquiring().is_waiting() && !some.acquiring().backs_off());
}

#[test]
fn a_waiter_that_slept_until_keys_could_expire_asks_one_master_first_however_often() {
    let mut play = Play::subscribed(policy(Turn::First));
    for _ in 0..9 {
        play.look(ALL, held(9, 10));
        play.effects.clear();
        play.wake();
        assert_eq!(play.asks(), [0]);
        play.refused();
        play.effects.clear();
    }
}

#[test]
fn a_wake_up_no_longer_counts_once_the_master_shows_another_holder() {
    let mut play = Play::waiting(10_000);
    play.woken([1, 3]);
    play.look([1], held(8, 10_000));
    play.woken([2]);
    assert_eq!(play.asks(), [0; 0]);
    play.woken([0]);
    assert_eq!(play.asks(), ALL);
}

#[test]
fn a_waiter_goes_on_without_queues_once_no_quorum_of_masters_can_keep_its_position() {
    let mut play = Play::subscribed(policy(Turn::First));
    play.look([0, 1], NoQueue);
    assert_eq!(play.leaves(), []);
    play.look([2], NoQueue);
    assert_eq!(play.leaves(), ALL.map(|at| (at, true)));
    play.effects.clear();
    play.wake();
    assert_eq!(play.asks(), ALL);
    play.refused();
    assert_eq!(play.enqueues(), [0; 0]);
}

#[test]
fn an_acquire_ends_at_once_when_a_shutdown_leaves_it_no_quorum() {
    for gone in [Cause::ShutDown, Cause::RuntimeEnded] {
        for (masters, failure) in [(2, None), (3, Some(Failure::NoQuorum))] {
            let mut play = Play::first();
            play.reply_all(Attempt(1), 0..masters, Unknown(gone.clone()));
            play.reply_all(Attempt(1), masters..5, Unknown(Cause::Disconnected));
            assert_eq!(play.acquiring().failure(), failure, "{gone:?} {masters}");
        }
    }
}

#[test]
fn late_replies_to_the_clean_up_of_an_earlier_attempt_say_nothing_about_the_resource() {
    let mut play = Play::waiting(10);
    play.wake();
    play.refused();
    play.look(ALL, held(9, 10_000));
    let before = play.claim.clone();
    play.reply_all(Cleanup(1), ALL, Absent);
    assert_eq!(play.claim, before);
}

#[test]
fn a_master_whose_clean_up_found_no_other_holder_cannot_be_in_the_quorum_of_one() {
    for (cleaned, goes_ms) in [(3..5, 5), (3..3, 400)] {
        let mut play = Play::subscribed(policy(Turn::First));
        play.look([0, 1], held(9, 400));
        play.look([2], held(8, 400));
        play.reply_all(Cleanup(1), cleaned, Deleted);
        assert_eq!(play.claim.next_wake(), after(goes_ms));
    }
}

#[test]
fn a_wake_up_before_the_first_look_is_answered_waits_for_that_look() {
    let mut play = Play::waiting(10);
    play.wake();
    play.refused();
    play.effects.clear();
    // It may be of the keys that the attempt itself had set.
    play.woken(0..3);
    assert_eq!(play.asks(), [0; 0]);
    play.look(0..3, Place { number: 2, ahead: 0, holder: None });
    assert_eq!(play.asks(), ALL);
}

#[test]
fn one_master_is_asked_first_where_there_are_at_least_three() {
    for (masters, asked) in [(1, 1), (2, 2), (3, 1), (4, 1)] {
        let mut play = Play::acquire(masters, policy(Turn::First));
        play.reply_all(Attempt(1), 0..masters, TAKEN);
        play.effects.clear();
        play.wake();
        assert_eq!(play.asks().len(), asked, "{masters}");
    }
}

#[test]
fn an_acquire_that_is_dropped_while_it_asks_one_master_leaves_the_queues_of_all() {
    let mut play = Play::asking_first();
    play.handle(Input::Abandon);
    assert_eq!(play.cleans_up(), [(0, WakeUp::First)]);
    assert_eq!(play.left_with(), [Some(WAITER)]);
    assert_eq!(play.leaves(), [1, 2, 3, 4].map(|at| (at, true)));
}

#[test]
fn an_acquire_that_finds_no_quorum_and_no_holder_enters_no_queue() {
    let mut play = Play::first();
    play.effects.clear();
    play.reply_all(Attempt(1), ALL, Unknown(Cause::Disconnected));
    assert_eq!(play.cleans_up().len(), 5);
    let enters =
        |effect: &Effect| matches!(effect, Effect::Subscribe { .. } | Effect::Enqueue { .. });
    assert!(!play.effects.iter().any(enters), "{:?}", play.effects);
}

#[test]
fn a_first_master_that_cannot_be_asked_is_not_the_first_next_time() {
    let mut play = Play::asking_first();
    play.reply(Attempt(2), 0, Some(Unknown(Cause::Disconnected)));
    play.refused();
    play.look(ALL, held(9, 10));
    play.effects.clear();
    play.wake();
    assert_eq!(play.asks(), [1]);
}

#[test]
fn a_master_that_subscribes_before_it_answers_the_first_request_is_not_asked_twice() {
    let mut play = Play::first();
    play.refused();
    play.effects.clear();
    play.event([2], QueueEvent::Subscribed);
    assert_eq!(play.enqueues(), [0; 0]);
}
