//! A waiter in a fair queue: when it attempts, what it sends, and how it leaves.

use std::time::Duration;

use redquorum_protocol::{
    Cause, Effect, Failure, Holder, Input, NodeId, Position, QueueEvent, Reply, Turn, VoteRequest,
    WaitPolicy, WaiterId, WakeUp,
};

use super::play::*;

/// An acquire that enqueues first.
fn policy() -> WaitPolicy {
    let (wait, explain, wake_ups) = (20_000 * MS, true, true);
    WaitPolicy { wait, explain, wake_ups, fair: true, turn: Turn::Yielded }
}

/// An acquire that attempts first, and wakes the next waiter if it ends without a lease.
fn attempting() -> WaitPolicy {
    WaitPolicy { turn: Turn::HandedOff, ..policy() }
}

fn free(number: u64, ahead: u64) -> Reply {
    Place { number, ahead, holder: None }
}

fn held(number: u64, ahead: u64) -> Reply {
    let holder = Holder::Lease { token: token(9), left_ms: 10_000 };
    Place { number, ahead, holder: Some(holder) }
}

impl Play {
    /// A waiter that has just asked for a position.
    fn queued(policy: WaitPolicy) -> Self {
        let mut play = Self::acquire(5, policy);
        play.effects.clear();
        play
    }

    /// The masters' replies to the first round.
    fn placed(&mut self, replies: impl IntoIterator<Item = Reply>) {
        let replies = replies.into_iter().enumerate();
        replies.for_each(|(at, reply)| self.reply(Enqueue(1), at, Some(reply)));
    }

    /// The round and the position of the enqueue requests since the last look.
    fn stands(&mut self) -> Option<(u32, Position)> {
        let asked = found!(
            self,
            Effect::Enqueue { step: Enqueue(round), position, .. } => (*round, *position)
        );
        self.effects.clear();
        assert!(asked.is_empty() || asked.len() == 5 && asked.iter().all(|it| *it == asked[0]));
        asked.first().copied()
    }

    /// A waiter behind another waiter, while a third client holds the resource.
    fn behind() -> Self {
        let mut play = Self::acquire(5, policy());
        play.event(ALL, QueueEvent::Subscribed);
        play.reply_all(Enqueue(1), ALL, held(2, 1));
        play.effects.clear();
        play
    }

    /// A waiter that one master has woken. A moment later it sends round 2 to all masters.
    fn looking() -> Self {
        let mut play = Self::behind();
        play.woken([4]);
        play.wake();
        assert!(play.now <= START.plus(10 * MS), "{:?}", play.now);
        assert_eq!(play.stands(), Some((2, Position::At(2))));
        play
    }

    /// The single master that is checked next. The check asks it to keep the position.
    fn looked_at(&mut self) -> usize {
        self.wake();
        let [Effect::Enqueue { node, position: Position::At(2), .. }] = self.effects[..] else {
            panic!("{:?}", self.effects)
        };
        self.effects.clear();
        node.index()
    }
}

/// The waiter leaves the queues of all masters, which wake the next one.
fn out() -> [(usize, bool); 5] {
    ALL.map(|at| (at, true))
}

#[test]
fn the_first_attempt_is_refused_where_others_wait_and_costs_one_round_where_none_does() {
    let mut play = Play::acquire(5, attempting());
    let fair = |request: &VoteRequest| matches!(request, VoteRequest::Set { fair: true, .. });
    assert!(play.asked().iter().all(|(_, request)| fair(request)));
    assert_eq!((play.asks(), play.stands()), (ALL.to_vec(), None));
    play.reply_all(Attempt(1), 0..3, Created);
    assert_eq!(play.verdict(), Some(true));
    play.effects.clear();
    play.handle(Input::Collect);
    play.handle(Input::Release);
    assert_eq!(play.left_with(), [None; 5], "it is in no queue");
}

#[test]
fn a_refused_first_attempt_is_cleaned_up_and_enqueues() {
    let mut play = Play::acquire(5, attempting());
    play.effects.clear();
    play.reply_all(Attempt(1), [0, 1], Created);
    play.reply_all(Attempt(1), [2, 3, 4], TAKEN);
    assert_eq!(play.cleans_up(), ALL.map(|at| (at, WakeUp::None)));
    let subscribed = play.effects.iter().position(|it| matches!(it, Effect::Subscribe { .. }));
    let enqueued = play.effects.iter().position(|it| matches!(it, Effect::Enqueue { .. }));
    assert!(subscribed.is_some() && subscribed < enqueued, "{:?}", play.effects);
    assert_eq!(play.stands(), Some((1, Position::Last)));
    // Positions decide from now on, and masters need not check them again.
    play.placed([free(1, 0), free(1, 0), held(1, 0), held(1, 0), free(1, 0)]);
    assert!(
        play.asked()
            .iter()
            .all(|(_, request)| matches!(request, VoteRequest::Set { fair: false, .. }))
    );
    assert_eq!(play.asks().len(), 5);
}

#[test]
fn a_late_reply_to_the_first_attempt_is_no_reply_about_a_position() {
    let mut play = Play::acquire(5, attempting());
    play.reply_all(Attempt(1), 0..3, TAKEN);
    play.effects.clear();
    play.reply_all(Enqueue(1), 0..3, held(2, 1));
    play.reply_all(Attempt(1), 3..5, TAKEN);
    play.reply_all(Enqueue(1), [3], free(1, 0));
    // A reply of the last master is awaited: the round is not over.
    assert_eq!(play.stands(), None);
    play.reply_all(Enqueue(1), [4], free(1, 0));
    assert_eq!(play.stands(), Some((2, Position::At(2))));
}

#[test]
fn without_a_wait_a_refused_first_attempt_enqueues_once() {
    let once = WaitPolicy { wait: Duration::ZERO, ..attempting() };
    for (reply, asked, verdict) in [(free(2, 1), 0, Some(false)), (free(1, 0), 5, None)] {
        let mut play = Play::acquire(5, once);
        play.reply_all(Attempt(1), ALL, TAKEN);
        play.effects.clear();
        play.reply_all(Enqueue(1), ALL, reply);
        assert_eq!((play.asked().len(), play.verdict()), (asked, verdict));
        // It woke no waiter when it took over.
        assert_eq!(play.leaves(), if asked == 0 { out().to_vec() } else { vec![] });
    }
    // Masters that forbid the script may allow the plain attempt.
    let mut play = Play::acquire(5, once);
    play.reply_all(Attempt(1), ALL, Unknown(Cause::Error("NOPERM".into())));
    assert_eq!(play.stands(), Some((1, Position::Last)));
    play.reply_all(Enqueue(1), ALL, NoQueue);
    let plain = |request: &VoteRequest| matches!(request, VoteRequest::Set { fair: false, .. });
    assert!(play.asked().len() == 5 && play.asked().iter().all(|(_, request)| plain(request)));
    play.effects.clear();
    play.reply_all(Attempt(2), ALL, Unknown(Cause::Error("NOPERM".into())));
    assert_eq!(play.verdict(), Some(false), "the end");
}

#[test]
fn no_waiter_attempts_where_others_are_first_or_hold_the_resource_on_too_many_masters() {
    for (outcomes, goes) in [
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(2, 1)], false),
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(1, 0)], true),
        ([free(1, 0), free(1, 0), held(1, 0), held(1, 0), held(1, 0)], false),
        // First on some masters, and free on others.
        ([free(2, 1), free(1, 0), free(1, 0), held(1, 0), held(1, 0)], false),
    ] {
        let mut play = Play::acquire(5, policy());
        play.placed(outcomes);
        assert_eq!(!play.asks().is_empty(), goes);
    }
}

#[test]
fn a_waiter_subscribes_before_it_enqueues_and_one_round_is_enough() {
    let mut play = Play::acquire(5, policy());
    assert_eq!(play.effects[0], Effect::Subscribe { waiter_id: WAITER });
    play.effects.clear();
    play.reply_all(Enqueue(1), ALL, held(2, 1));
    assert_eq!((play.stands(), play.verdict()), (None, None));
    // The master may have dropped a waiter that it could not wake.
    play.event([4], QueueEvent::Subscribed);
    assert!(matches!(play.effects[..], [Effect::Enqueue { node, position: Position::At(2), .. }]
        if node == NodeId::new(4)));
    // A master would drop a waiter that it cannot wake, and the next one would go first.
    let hurried = Play::acquire(5, WaitPolicy { wait: Duration::ZERO, ..policy() });
    assert_eq!(hurried.effects[0], Effect::Subscribe { waiter_id: WAITER });
}

#[test]
fn a_waiter_that_a_quorum_wakes_attempts_at_once_and_no_other() {
    let mut play = Play::behind();
    play.event(ALL, QueueEvent::Free(WaiterId::new(77)));
    assert_eq!((play.asks().len(), play.stands()), (0, None));
    play.woken([4, 2]);
    assert_eq!(play.asks().len(), 0);
    play.woken([0]);
    assert_eq!(play.asks().len(), 5);
}

#[test]
fn where_wake_ups_are_lost_all_masters_are_asked_a_moment_after_the_first() {
    let mut play = Play::looking();
    play.reply_all(Enqueue(2), ALL, free(2, 0));
    assert_eq!(play.asks().len(), 5);
}

#[test]
fn a_look_that_finds_it_first_and_the_resource_free_asks_all_masters() {
    let mut play = Play::behind();
    let at = play.looked_at();
    play.reply_all(Enqueue(1), [at], free(2, 0));
    play.wake();
    assert!(play.now < START.plus(510 * MS), "{:?}", play.now);
    assert_eq!(play.stands(), Some((2, Position::At(2))));
}

#[test]
fn a_waiter_that_masters_do_not_wake_asks_as_the_policy_has_it_and_keeps_its_position() {
    let mut play = Play::acquire(5, WaitPolicy { wake_ups: false, ..policy() });
    play.rng.pause = 300 * MS;
    for _ in 0..6 {
        let (round, _) = play.stands().expect("it asks again");
        play.reply_all(Enqueue(round), ALL, held(2, 1));
        play.wake_at(play.now.plus(300 * MS));
    }
    assert_eq!(play.rng.paused, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn with_one_queue_forbidden_and_one_master_down_the_only_queue_decides() {
    let attempts = |outcomes: [Reply; 3]| {
        let mut play = Play::acquire(3, policy());
        play.effects.clear();
        play.placed(outcomes);
        play.asks().len()
    };
    let down = || Unknown(Cause::Disconnected);
    assert_eq!(attempts([NoQueue, down(), free(1, 0)]), 3);
    assert_eq!(attempts([NoQueue, down(), free(2, 1)]), 0, "others are before it");
    assert_eq!(attempts([NoQueue, down(), held(1, 0)]), 0, "another holds it");
    assert_eq!(attempts([NoQueue, held(1, 0), held(1, 0)]), 0, "another holds it");
    assert_eq!(attempts([down(), down(), free(1, 0)]), 0, "attempts would find no quorum either");
    assert_eq!(attempts([NoQueue, down(), down()]), 0, "nor here");
}

#[test]
fn where_no_quorum_answers_a_waiter_lets_others_pass_and_asks_again() {
    let mut play = Play::queued(policy());
    play.reply_all(Enqueue(1), 0..2, free(1, 0));
    assert_eq!(play.claim.next_wake(), START.plus(50 * MS));
    play.wake_at(START.plus(50 * MS));
    // Other waiters may be first there meanwhile.
    assert_eq!((play.leaves(), play.asked().len()), (out().to_vec(), 0));
    play.effects.clear();
    play.reply_all(Enqueue(1), [4], free(1, 0));
    assert_eq!(play.asks().len(), 0, "it keeps no position");
    play.wake();
    assert_eq!(play.stands(), Some((3, Position::NotBefore(1))), "the position that it had");
    // A waiter that is first on no master does not delay other waiters.
    let mut play = Play::queued(policy());
    play.reply_all(Enqueue(1), 0..2, held(2, 1));
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.leaves(), []);
    play.reply_all(Enqueue(1), 0..3, free(2, 0));
    assert_eq!(play.asks().len(), 5, "late answers count");
    let mut down = Play::queued(WaitPolicy { wait: Duration::ZERO, ..policy() });
    down.reply_all(Enqueue(1), ALL, Unknown(Cause::Disconnected));
    assert_eq!(down.acquiring().failure(), Some(Failure::NoQuorum));
    assert_eq!(down.asked(), []);
}

#[test]
fn a_first_waiter_that_finds_no_quorum_goes_to_the_end() {
    let mut play = Play::acquire(5, policy());
    play.reply_all(Enqueue(1), ALL, free(4, 0));
    play.effects.clear();
    play.reply_all(Attempt(1), 0..3, Unknown(Cause::Disconnected));
    assert_eq!(play.leaves(), out());
    play.effects.clear();
    // The earlier positions of the waiter are void.
    play.reply_all(Cleanup(1), ALL, Absent);
    assert_eq!(play.asked().len(), 0);
    play.wake();
    assert_eq!(play.stands(), Some((3, Position::Last)));
    play.reply_all(Enqueue(1), ALL, free(4, 0));
    assert_eq!(play.asked().len(), 0);
}

#[test]
fn a_round_lasts_for_a_node_timeout_also_after_an_attempt_that_asked_for_a_number() {
    let mut play = Play::acquire_on(config(5).with_fencing(60_000 * MS).unwrap(), policy());
    play.reply_all(Enqueue(1), ALL, free(1, 0));
    for at in ALL {
        play.reply_all(Attempt(1), [at], Granted { number: at as u64 + 1 });
    }
    play.reply_all(Certify { attempt: 1, round: 1 }, ALL, Absent);
    play.effects.clear();
    play.wake();
    assert!(play.stands().is_some());
    assert_eq!(play.claim.next_wake(), play.now.plus(50 * MS));
}

#[test]
fn a_first_waiter_that_finds_the_resource_taken_keeps_its_position() {
    let mut play = Play::acquire(5, policy());
    play.reply_all(Enqueue(1), ALL, free(1, 0));
    play.effects.clear();
    play.reply_all(Attempt(1), ALL, TAKEN);
    assert_eq!(play.leaves(), []);
    // A clean-up that finds no key causes no attempt in the same instant.
    play.reply_all(Cleanup(1), 0..3, Absent);
    assert_eq!(play.asked().len(), 0);
    play.effects.clear();
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.stands(), Some((2, Position::At(1))));
}

#[test]
fn a_waiter_that_yields_or_does_not_collect_goes_to_the_end() {
    let mut waiting = Play::behind();
    waiting.handle(Input::Yield);
    let mut standing = Play::looking();
    standing.handle(Input::Yield);
    let mut won = Play::acquire(5, policy());
    won.reply_all(Enqueue(1), ALL, free(1, 0));
    won.reply_all(Attempt(1), ALL, Created);
    won.effects.clear();
    won.wake();
    // The first attempt, before it has a position, and one at the head of the queues.
    let mut first = Play::queued(attempting());
    first.handle(Input::Yield);
    let mut voting = Play::acquire(5, policy());
    voting.reply_all(Enqueue(1), ALL, free(1, 0));
    voting.effects.clear();
    voting.handle(Input::Yield);
    let by_itself = (vec![], out().to_vec());
    let in_no_queue = (vec![None; 5], vec![]);
    let with_clean_up = (vec![Some(WAITER); 5], vec![]);
    for (mut play, left) in [
        (waiting, by_itself.clone()),
        (standing, by_itself),
        (won, with_clean_up.clone()),
        (first, in_no_queue),
        (voting, with_clean_up),
    ] {
        assert_eq!((play.left_with(), play.leaves()), left);
        play.effects.clear();
        play.wake_at(play.claim.next_wake().max(play.now));
        assert!(matches!(play.stands(), Some((_, Position::Last))));
    }
}

#[test]
fn where_no_quorum_keeps_queues_attempts_are_made_without() {
    let mut play = Play::queued(policy());
    play.reply_all(Enqueue(1), 0..2, free(9, 8));
    play.reply_all(Enqueue(1), 2..4, NoQueue);
    assert_eq!(play.asks().len(), 0, "one more may answer");
    play.reply_all(Enqueue(1), [4], NoQueue);
    assert_eq!((play.leaves(), play.asked().len()), (out().to_vec(), 5));
    play.effects.clear();
    // From then on the claim waits without queues.
    play.reply_all(Attempt(1), ALL, TAKEN);
    assert_eq!((play.leaves(), play.stands()), (vec![], None));
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.asks().len(), 5);
    // A master that returns another error may still keep a queue.
    let mut play = Play::queued(policy());
    play.reply_all(Enqueue(1), ALL, Unknown(Cause::Error("LOADING".into())));
    assert_eq!(play.asks().len(), 0);
}

#[test]
fn rounds_that_find_other_positions_follow_at_once_and_after_three_of_them_there_is_a_pause() {
    let mut play = Play::queued(policy());
    let mut round = 1;
    for _ in 0..2 {
        for follows in [true, true, false] {
            for at in ALL {
                // No two masters agree, and each has a later waiter before it.
                let number = u64::from(round) * 10 + at as u64;
                play.reply_all(Enqueue(round), [at], held(number, 1));
            }
            assert_eq!(play.stands().is_some(), follows, "{round}");
            round += 1;
        }
        play.wake();
        assert!(matches!(play.stands(), Some((again, _)) if again == round));
    }
}

#[test]
fn a_waiter_that_is_first_on_a_quorum_asks_again_when_the_keys_there_can_expire() {
    for (first_on, wakes_ms) in [(2, 500), (3, 100), (5, 100)] {
        let mut play = Play::acquire(5, policy());
        play.event(ALL, QueueEvent::Subscribed);
        let holder = Some(Holder::Lease { token: token(9), left_ms: 100 });
        play.placed(ALL.map(|at| Place { number: 2, ahead: u64::from(at >= first_on), holder }));
        // Behind others it only looks at a master from time to time.
        assert_eq!(play.claim.next_wake(), START.plus(wakes_ms * MS), "{first_on}");
    }
}

#[test]
fn a_first_waiter_that_finds_the_resource_held_has_failed_no_attempt() {
    let mut play = Play::acquire(5, policy());
    play.event(ALL, QueueEvent::Subscribed);
    let holder = Some(Holder::Lease { token: token(9), left_ms: 10 });
    for round in 1..4 {
        play.reply_all(Enqueue(round), ALL, Place { number: 2, ahead: 0, holder });
        play.effects.clear();
        play.wake();
        assert_eq!(play.stands(), Some((round + 1, Position::At(2))));
    }
    assert_eq!(play.rng.paused, [1, 1, 1]);
}

#[test]
fn waiters_before_it_that_leave_a_free_resource_alone_are_not_overtaken_but_soon_looked_at() {
    let mut play = Play::behind();
    let at = play.looked_at();
    play.reply_all(Enqueue(1), [at], free(2, 1));
    let soon = play.claim.next_wake().since(play.now);
    assert!((125 * MS..=250 * MS).contains(&soon), "{soon:?}");
    for _ in 0..3 {
        play.wake();
        assert_eq!(play.stands(), Some((1, Position::At(2))), "all masters are looked at");
        play.reply_all(Enqueue(1), ALL, free(2, 1));
        assert_eq!(play.asked(), []);
    }
    // Once the resource is held again, one master at a time is enough.
    play.reply_all(Enqueue(1), ALL, held(2, 1));
    play.effects.clear();
    play.looked_at();
}

#[test]
fn a_look_that_finds_it_first_and_the_resource_held_asks_no_other_master() {
    let mut play = Play::behind();
    let at = play.looked_at();
    play.reply_all(Enqueue(1), [at], held(2, 0));
    assert_eq!(play.claim.next_wake(), play.now.plus(500 * MS));
    assert_ne!(play.looked_at(), at);
}

#[test]
fn a_waiter_that_masters_do_not_wake_still_looks_at_them() {
    let mut play = Play::queued(WaitPolicy { wake_ups: false, ..policy() });
    play.rng.pause = 3_000 * MS;
    play.reply_all(Enqueue(1), ALL, held(2, 1));
    play.effects.clear();
    play.looked_at();
    assert_eq!(play.now, START.plus(500 * MS));
}

#[test]
fn a_waiter_that_has_made_no_attempt_says_why() {
    for (replies, why) in [(3, Failure::Taken), (2, Failure::NoQuorum)] {
        let mut play = Play::acquire(5, policy());
        play.reply_all(Enqueue(1), 0..replies, held(2, 1));
        play.reply_all(Enqueue(1), replies..5, Unknown(Cause::Disconnected));
        assert_eq!(play.acquiring().latest_failure(), Some(why), "{replies}");
    }
}

#[test]
fn a_waiter_that_a_bare_quorum_keeps_stays_in_the_queues_and_finds_the_resource_taken() {
    let down = || Unknown(Cause::Disconnected);
    let replies = || [held(1, 0), held(1, 0), held(1, 0), down(), down()];
    let mut play = Play::queued(policy());
    play.placed(replies());
    assert_eq!(play.leaves(), []);
    let mut once = Play::queued(WaitPolicy { wait: Duration::ZERO, ..policy() });
    once.placed(replies());
    assert_eq!(once.acquiring().failure(), Some(Failure::Taken));
}

#[test]
fn a_position_that_no_quorum_keeps_is_asked_for_again_soon() {
    let mut play = Play::acquire(5, policy());
    play.event(ALL, QueueEvent::Subscribed);
    play.reply_all(Enqueue(1), 0..2, held(2, 1));
    play.reply_all(Enqueue(1), 2..5, Unknown(Cause::Disconnected));
    assert_eq!(play.claim.next_wake(), START.plus(5 * MS));
}

#[test]
fn a_reply_that_comes_after_its_round_says_where_a_master_keeps_it_unless_it_has_left_since() {
    for leaves in [false, true] {
        let mut play = Play::queued(policy());
        play.event(ALL, QueueEvent::Subscribed);
        let ahead = if leaves { 0 } else { 1 };
        play.reply_all(Enqueue(1), 0..2, held(2, ahead));
        play.wake();
        assert_eq!(!play.leaves().is_empty(), leaves);
        play.effects.clear();
        play.wake();
        let round = if leaves { 3 } else { 2 };
        assert_eq!(play.stands(), Some((round, Position::NotBefore(2))));
        // It is the third of five masters. The others have later waiters by now.
        play.reply(Enqueue(1), 2, Some(held(2, 1)));
        play.reply_all(Enqueue(round), [0, 1], held(7, 1));
        play.reply_all(Enqueue(round), [3, 4], held(8, 1));
        play.wake_at(play.now.plus(100 * MS));
        let position = if leaves { Position::NotBefore(8) } else { Position::At(2) };
        assert_eq!(play.stands(), Some((round + 1, position)));
    }
}

#[test]
fn two_masters_of_five_that_keep_no_queue_do_not_end_the_wait_in_the_others() {
    let mut play = Play::queued(policy());
    play.placed([NoQueue, NoQueue, held(2, 1), held(2, 1), held(2, 1)]);
    assert_eq!((play.leaves(), play.asked()), (vec![], vec![]));
    play.effects.clear();
    play.wake();
    assert!(matches!(play.stands(), Some((_, Position::At(2)))));
}

#[test]
fn an_attempt_after_wake_ups_that_is_refused_is_followed_by_a_whole_pause() {
    let mut play = Play::behind();
    play.rng.pause = 300 * MS;
    play.woken(0..3);
    // This one is late, and of no use to the attempt under way.
    play.woken([4]);
    play.reply_all(Attempt(1), ALL, TAKEN);
    assert_eq!(play.claim.next_wake(), play.now.plus(300 * MS));
}
