//! A waiter in a fair queue: when it attempts, what it sends, and how it leaves.

use std::time::Duration;

use redquorum_protocol::{
    Cause, Claim, Effect, Failure, Holder, Input, NodeId, Position, QueueEvent, Reply, Rng,
    RoundId, TOKEN_LEN, Time, Token, Turn, WaitPolicy, WaiterId, WakeUp,
};

use crate::play::{MS, Play, START};

fn policy() -> WaitPolicy {
    let (wait, explain, wake_ups) = (20_000 * MS, true, true);
    WaitPolicy { wait, explain, wake_ups, fair: true, turn: Turn::First }
}

fn free(number: u64, ahead: u64) -> Reply {
    Reply::Place { number, ahead, holder: None }
}

fn held(number: u64, ahead: u64) -> Reply {
    let holder = Holder::Lease { token: Token::new([9; TOKEN_LEN]), left_ms: 10_000 };
    Reply::Place { number, ahead, holder: Some(holder) }
}

impl Play {
    /// The round and the position of the enqueue requests since the last look.
    fn stands(&mut self) -> Option<(u32, Position)> {
        let stand = |effect: &Effect| match effect {
            Effect::Enqueue { step: RoundId::Enqueue(round), position, .. } => {
                Some((*round, *position))
            }
            _ => None,
        };
        let asked = self.said.iter().filter_map(stand).collect::<Vec<_>>();
        self.said.clear();
        assert!(asked.is_empty() || asked.len() == 5 && asked.iter().all(|it| *it == asked[0]));
        asked.first().copied()
    }

    /// Delivers the same reply from all masters to a round.
    fn placed(&mut self, round: u32, answer: &Reply) {
        (0..5).for_each(|at| self.place(round, at, answer.clone()));
    }

    fn place(&mut self, round: u32, at: usize, answer: Reply) {
        self.hear(RoundId::Enqueue(round), at, Some(answer));
    }

    fn heard(&mut self, at: usize, word: QueueEvent) {
        self.tell(Input::QueueEvent { node: NodeId::new(at), word });
    }

    /// The number of masters that received a request for the key since the last look.
    fn attempts(&mut self) -> usize {
        let asked = self.asked().len();
        self.said.clear();
        asked
    }

    fn waiter_id(&self) -> WaiterId {
        let waiter_id = |effect: &Effect| match effect {
            Effect::Enqueue { waiter_id, .. } => Some(*waiter_id),
            _ => None,
        };
        self.said.iter().find_map(waiter_id).unwrap()
    }

    /// Whether the waiter left the queues of all masters, and whether they wake the next waiter.
    fn stepped_out(&self) -> Option<bool> {
        let call = |effect: &Effect| match effect {
            Effect::Dequeue { call, .. } => Some(*call),
            _ => None,
        };
        let calls: Vec<bool> = self.said.iter().filter_map(call).collect();
        assert!(calls.is_empty() || calls.len() == 5);
        calls.first().copied()
    }

    /// A waiter behind another waiter, while a third client holds the resource.
    fn behind() -> (Self, WaiterId) {
        let mut play = Self::acquire(5, policy());
        let waiter_id = play.waiter_id();
        (0..5).for_each(|at| play.heard(at, QueueEvent::Subscribed));
        play.placed(1, &held(2, 1));
        play.said.clear();
        (play, waiter_id)
    }

    /// A waiter that one master has woken. A moment later it sends round 2 to all masters.
    fn looking() -> (Self, WaiterId) {
        let (mut play, waiter_id) = Self::behind();
        play.heard(4, QueueEvent::Free(waiter_id));
        let moment = play.claim.next_wake();
        assert!(moment <= START.plus(10 * MS), "{moment:?}");
        play.wake_at(moment);
        assert_eq!(play.stands(), Some((2, Position::At(2))));
        (play, waiter_id)
    }

    /// The single master that is checked next. The check asks it to keep the position.
    fn looked_at(&mut self) -> usize {
        self.wake_at(self.claim.next_wake());
        let [Effect::Enqueue { node, position: Position::At(2), .. }] = self.said[..] else {
            panic!("{:?}", self.said)
        };
        self.said.clear();
        node.index()
    }
}

fn other() -> WaiterId {
    WaiterId::new(77)
}

#[test]
fn a_waiter_that_is_first_on_a_quorum_and_finds_the_resource_free_attempts() {
    let mut play = Play::acquire(5, policy());
    let waiter_id = play.waiter_id();
    assert_eq!((play.asked().len(), play.stands()), (0, Some((1, Position::Last))));
    [3, 1].into_iter().for_each(|at| play.place(1, at, free(1, 0)));
    assert_eq!(play.attempts(), 0);
    play.place(1, 0, free(1, 0));
    assert_eq!(play.attempts(), 5, "all masters at once");
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    assert_eq!(play.stepped_out(), None, "it keeps its positions");
    play.said.clear();
    play.tell(Input::Collect);
    play.tell(Input::Release);
    let leave = |effect: &Effect| match effect {
        Effect::CleanUp { call: WakeUp::First, leave, .. } => *leave,
        _ => None,
    };
    assert_eq!(play.said.iter().filter_map(leave).collect::<Vec<_>>(), [waiter_id; 5]);
}

#[test]
fn no_waiter_attempts_where_others_are_first_or_hold_the_resource_on_too_many_masters() {
    for (said, goes) in [
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(2, 1)], false),
        ([free(1, 0), free(1, 0), free(2, 1), free(2, 1), free(1, 0)], true),
        ([free(1, 0), free(1, 0), held(1, 0), held(1, 0), held(1, 0)], false),
        // First on some masters, and free on others.
        ([free(2, 1), free(1, 0), free(1, 0), held(1, 0), held(1, 0)], false),
    ] {
        let mut play = Play::acquire(5, policy());
        for (at, answer) in said.into_iter().enumerate() {
            play.place(1, at, answer);
        }
        assert_eq!(play.attempts() > 0, goes);
    }
}

#[test]
fn a_waiter_subscribes_before_it_enqueues_and_one_round_is_enough() {
    let mut play = Play::acquire(5, policy());
    assert_eq!(play.said[0], Effect::Subscribe { waiter_id: play.waiter_id() });
    play.said.clear();
    play.placed(1, &held(2, 1));
    assert_eq!((play.stands(), play.verdict()), (None, None));
    // The master may have dropped a waiter that it could not wake.
    play.heard(4, QueueEvent::Subscribed);
    assert!(matches!(play.said[..], [Effect::Enqueue { node, position: Position::At(2), .. }]
        if node == NodeId::new(4)));
    // A master would drop a waiter that it cannot wake, and the next one would go first.
    let hurried = Play::acquire(5, WaitPolicy { wait: Duration::ZERO, ..policy() });
    assert_eq!(hurried.said[0], Effect::Subscribe { waiter_id: hurried.waiter_id() });
}

#[test]
fn the_largest_number_is_told_to_all_masters() {
    let mut play = Play::acquire(5, WaitPolicy { wake_ups: false, ..policy() });
    play.said.clear();
    for (at, number) in [3, 1, 7, 2, 2].into_iter().enumerate() {
        play.place(1, at, free(number, 1));
    }
    assert_eq!(play.stands(), Some((2, Position::NotBefore(7))));
    play.placed(2, &free(7, 1));
    assert_eq!(play.stands(), None, "a quorum keeps it");
    assert_eq!(play.claim.next_wake(), START.plus(5 * MS), "free, and others are first");
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.stands(), Some((3, Position::At(7))));
}

#[test]
fn a_waiter_that_a_quorum_wakes_attempts_at_once_and_no_other() {
    let (mut play, waiter_id) = Play::behind();
    (0..5).for_each(|at| play.heard(at, QueueEvent::Free(other())));
    assert_eq!((play.attempts(), play.stands()), (0, None));
    [4, 2].into_iter().for_each(|at| play.heard(at, QueueEvent::Free(waiter_id)));
    assert_eq!(play.attempts(), 0);
    play.heard(0, QueueEvent::Free(waiter_id));
    assert_eq!(play.attempts(), 5);
}

#[test]
fn where_wake_ups_are_lost_all_masters_are_asked_a_moment_after_the_first() {
    let (mut play, _) = Play::looking();
    play.placed(2, &free(2, 0));
    assert_eq!(play.attempts(), 5);
}

#[test]
fn a_wake_up_between_the_answers_of_a_round_counts() {
    let (mut play, waiter_id) = Play::looking();
    play.place(2, 4, held(2, 1));
    [0, 1].into_iter().for_each(|at| play.heard(at, QueueEvent::Free(waiter_id)));
    assert_eq!(play.attempts(), 0);
    play.place(2, 2, free(2, 0));
    assert_eq!(play.attempts(), 5);
}

#[test]
fn a_waiter_that_others_are_before_looks_at_one_master_about_every_second() {
    let (mut play, _) = Play::behind();
    let (mut last, mut looked) = (START, Vec::new());
    while play.now < START.plus(6_000 * MS) {
        looked.push(play.looked_at());
        let after = play.now.since(last);
        assert!(after >= 500 * MS && after <= 1_000 * MS, "{after:?}");
        last = play.now;
        // A free resource is for the waiter at the head.
        play.place(1, looked[looked.len() - 1], free(2, 1));
    }
    assert_eq!(looked[..6], [1, 2, 3, 4, 0, 1]);
}

#[test]
fn a_look_that_finds_it_first_and_the_resource_free_asks_all_masters() {
    let (mut play, _) = Play::behind();
    let at = play.looked_at();
    play.place(1, at, free(2, 0));
    play.wake_at(play.claim.next_wake());
    assert!(play.now < START.plus(510 * MS), "{:?}", play.now);
    assert_eq!(play.stands(), Some((2, Position::At(2))));
}

/// The attempts for which the policy chose a pause.
#[derive(Default)]
struct Asked(Vec<u32>);

impl Rng for Asked {
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
fn a_waiter_that_masters_do_not_wake_asks_as_the_policy_has_it_and_keeps_its_position() {
    let (mut rng, mut out) = (Asked::default(), Vec::new());
    let terms = crate::play::terms(5);
    let policy = WaitPolicy { wake_ups: false, ..policy() };
    let mut claim = Claim::acquire(START, terms, policy, &mut rng, &mut out);
    let mut now = START;
    for _ in 0..6 {
        let rounds = std::mem::take(&mut out).into_iter().filter_map(|effect| match effect {
            Effect::Enqueue { node, step, .. } => Some((node, step)),
            _ => None,
        });
        for (node, step) in rounds.collect::<Vec<_>>() {
            let answer = held(2, 1);
            claim.handle(now, Input::Answered { node, step, answer }, &mut rng, &mut out);
        }
        now = now.plus(300 * MS);
        claim.handle(now, Input::Wake, &mut rng, &mut out);
    }
    assert_eq!(rng.0, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_waiter_that_gives_up_leaves_and_wakes_the_next() {
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
    // Later replies change nothing.
    over.said.clear();
    (0..5).for_each(|at| over.place(round, at, free(2, 0)));
    assert_eq!(over.said, []);
}

#[test]
fn one_attempt_without_a_wait_is_made_only_by_the_first_waiter() {
    let once = WaitPolicy { wait: Duration::ZERO, ..policy() };
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
fn where_no_quorum_keeps_queues_attempts_are_made_without() {
    let mut play = Play::acquire(5, policy());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, free(9, 8)));
    (2..4).for_each(|at| play.place(1, at, Reply::NoQueue));
    assert_eq!(play.attempts(), 0, "one more may answer");
    play.place(1, 4, Reply::NoQueue);
    assert_eq!((play.stepped_out(), play.asked().len()), (Some(true), 5));
    play.said.clear();
    // From then on the claim waits without queues.
    (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    assert_eq!((play.stepped_out(), play.stands()), (None, None));
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.attempts(), 5);
    // A master that returns another error may still keep a queue.
    let loading = Reply::Unknown(Cause::Error("LOADING".into()));
    let mut play = Play::acquire(5, policy());
    play.said.clear();
    (0..5).for_each(|at| play.place(1, at, loading.clone()));
    assert_eq!(play.attempts(), 0);
}

#[test]
fn with_one_queue_forbidden_and_one_master_down_the_only_queue_decides() {
    let attempts = |said: [Reply; 3]| {
        let mut play = Play::acquire(3, policy());
        play.said.clear();
        said.into_iter().enumerate().for_each(|(at, answer)| play.place(1, at, answer));
        play.attempts()
    };
    let down = || Reply::Unknown(Cause::Disconnected);
    assert_eq!(attempts([Reply::NoQueue, down(), free(1, 0)]), 3);
    assert_eq!(attempts([Reply::NoQueue, down(), free(2, 1)]), 0, "others are before it");
    assert_eq!(attempts([Reply::NoQueue, down(), held(1, 0)]), 0, "another holds it");
    assert_eq!(attempts([down(), down(), free(1, 0)]), 0, "attempts would find no quorum either");
}

#[test]
fn where_no_quorum_answers_a_waiter_lets_others_pass_and_asks_again() {
    let mut play = Play::acquire(5, policy());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, free(1, 0)));
    assert_eq!(play.claim.next_wake(), START.plus(50 * MS));
    play.wake_at(START.plus(50 * MS));
    // Other waiters may be first there meanwhile.
    assert_eq!((play.stepped_out(), play.asked().len()), (Some(true), 0));
    play.said.clear();
    play.place(1, 4, free(1, 0));
    assert_eq!(play.attempts(), 0, "it keeps no position");
    play.wake_at(play.claim.next_wake());
    assert_eq!(play.stands(), Some((3, Position::NotBefore(1))), "the position that it had");
    // A waiter that is first on no master does not delay other waiters.
    let mut play = Play::acquire(5, policy());
    play.said.clear();
    (0..2).for_each(|at| play.place(1, at, held(2, 1)));
    play.wake_at(START.plus(50 * MS));
    assert_eq!(play.stepped_out(), None);
    (0..3).for_each(|at| play.place(1, at, free(2, 0)));
    assert_eq!(play.attempts(), 5, "late answers count");
    let mut down = Play::acquire(5, WaitPolicy { wait: Duration::ZERO, ..policy() });
    down.said.clear();
    down.placed(1, &Reply::Unknown(Cause::Disconnected));
    let Claim::Acquiring(acquire) = &down.claim else { panic!() };
    assert_eq!((acquire.failure(), down.asked().len()), (Some(Failure::NoQuorum), 0));
}

#[test]
fn a_first_waiter_that_finds_no_quorum_goes_to_the_end() {
    let mut play = Play::acquire(5, policy());
    play.placed(1, &free(4, 0));
    play.said.clear();
    let lost = Reply::Unknown(Cause::Disconnected);
    (0..3).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(lost.clone())));
    assert_eq!(play.stepped_out(), Some(true));
    play.said.clear();
    // The earlier positions of the waiter are void.
    (0..5).for_each(|at| play.hear(RoundId::Cleanup(1), at, Some(Reply::Absent)));
    assert_eq!(play.asked().len(), 0);
    play.wake_at(play.claim.next_wake());
    let round = play.stands();
    assert_eq!(round, Some((3, Position::Last)));
    (0..5).for_each(|at| play.place(1, at, free(4, 0)));
    assert_eq!(play.asked().len(), 0);
}

#[test]
fn a_round_lasts_for_a_node_timeout_also_after_an_attempt_that_asked_for_a_number() {
    let terms = crate::play::terms(5).with_fencing(60_000 * MS).unwrap();
    let mut play = Play::acquire_on(terms, policy());
    play.placed(1, &free(1, 0));
    for number in 1..=5_u8 {
        let granted = Reply::Granted { number: u64::from(number) };
        play.hear(RoundId::Attempt(1), usize::from(number) - 1, Some(granted));
    }
    let step = RoundId::Certify { attempt: 1, round: 1 };
    (0..5).for_each(|at| play.hear(step, at, Some(Reply::Absent)));
    play.said.clear();
    play.wake_at(play.claim.next_wake());
    assert!(play.stands().is_some());
    assert_eq!(play.claim.next_wake(), play.now.plus(50 * MS));
}

#[test]
fn a_first_waiter_that_finds_the_resource_taken_keeps_its_position() {
    let mut play = Play::acquire(5, policy());
    play.placed(1, &free(1, 0));
    play.said.clear();
    (0..5).for_each(|at| play.hear(RoundId::Attempt(1), at, Some(Reply::Taken(Holder::NotAsked))));
    assert_eq!(play.stepped_out(), None);
    // A clean-up that finds no key causes no attempt in the same instant.
    (0..3).for_each(|at| play.hear(RoundId::Cleanup(1), at, Some(Reply::Absent)));
    assert_eq!(play.asked().len(), 0);
    play.said.clear();
    play.wake_at(START.plus(5 * MS));
    assert_eq!(play.stands(), Some((2, Position::At(1))));
}

#[test]
fn a_number_that_a_quorum_keeps_does_not_change() {
    let mut play = Play::acquire(5, WaitPolicy { wake_ups: false, ..policy() });
    play.said.clear();
    (0..4).for_each(|at| play.place(1, at, held(5, 1)));
    // The request reached this master late, behind later waiters.
    play.place(1, 4, held(9, 3));
    assert_eq!(play.stands(), Some((2, Position::At(5))));
}

#[test]
fn a_waiter_that_yields_or_does_not_collect_goes_to_the_end() {
    let (mut waiting, _) = Play::behind();
    waiting.tell(Input::Yield);
    let (mut standing, _) = Play::looking();
    standing.tell(Input::Yield);
    let mut won = Play::acquire(5, policy());
    let waiter_id = won.waiter_id();
    won.placed(1, &free(1, 0));
    (0..5).for_each(|at| won.hear(RoundId::Attempt(1), at, Some(Reply::Created)));
    won.said.clear();
    won.wake_at(won.claim.next_wake());
    let by_itself = (vec![], Some(true));
    let with_clean_up = (vec![Some(waiter_id); 5], None);
    for (mut play, left) in
        [(waiting, by_itself.clone()), (standing, by_itself), (won, with_clean_up)]
    {
        assert_eq!((play.left_with(), play.stepped_out()), left);
        play.said.clear();
        play.wake_at(play.claim.next_wake().max(play.now));
        assert!(matches!(play.stands(), Some((_, Position::Last))));
    }
}
