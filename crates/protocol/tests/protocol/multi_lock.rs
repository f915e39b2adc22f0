//! The machine of a multi-lock: its effects and their order, and when it ends.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{
    AcquireRequest, ClaimId, Drift, Failure, Input, Key, LockConfig, MemberAction, MemberEvent,
    MultiLock, Progress, RequestState, Time, Votes,
};

use crate::support::{Count, MS, Random};
use crate::world::{Config, World};

#[derive(Clone)]
struct MultiLockTest {
    machine: MultiLock,
    random: Random,
    now: Time,
    out: Vec<MemberAction>,
}

impl MultiLockTest {
    fn new(members: usize, wait_ms: u32) -> Self {
        let mut out = Vec::new();
        let machine = MultiLock::start(Time::ZERO, members, MS * wait_ms, &mut out);
        Self { machine, random: Random(1), now: Time::ZERO, out }
    }

    fn handle(&mut self, event: MemberEvent) -> Vec<MemberAction> {
        self.out.clear();
        self.machine.handle(self.now, event, &mut self.random, &mut self.out);
        self.out.clone()
    }

    fn won(&mut self, member: usize, ms: u32) -> Vec<MemberAction> {
        self.handle(MemberEvent::Won { member, deadline: Time::ZERO.plus(MS * ms) })
    }

    fn taken(&mut self, member: usize) -> Vec<MemberAction> {
        self.handle(MemberEvent::Failed { member, why: Failure::Taken })
    }

    /// All leases are collected.
    fn collected(&mut self, members: usize) -> Vec<MemberAction> {
        (0..members).flat_map(|member| self.handle(MemberEvent::Collected { member })).collect()
    }

    /// Lets the pause pass, and returns the effects after it.
    fn after_the_pause(&mut self) -> Vec<MemberAction> {
        assert_ne!(self.machine.next_wake(), Time::NEVER);
        self.now = self.machine.next_wake();
        self.handle(MemberEvent::Wake)
    }
}

fn once(member: usize, explain: bool) -> MemberAction {
    MemberAction::Try { member, wait: Duration::ZERO, explain }
}

fn collect(members: usize) -> Vec<MemberAction> {
    (0..members).map(|member| MemberAction::Collect { member }).collect()
}

/// All members in this order, and the decision.
fn undo(members: &[usize]) -> Vec<MemberAction> {
    let undo = members.iter().map(|member| MemberAction::Undo { member: *member });
    undo.chain([MemberAction::Decided]).collect()
}

#[test]
fn all_are_tried_at_once_with_one_attempt_each() {
    let test = MultiLockTest::new(3, 500);
    assert_eq!(test.out, [once(0, false), once(1, false), once(2, false)]);
    // A caller that makes only one round asks which clients hold the resource.
    assert_eq!(MultiLockTest::new(2, 0).out, [once(0, true), once(1, true)]);
    // A single member waits like any other claim.
    let alone = MemberAction::Try { member: 0, wait: MS * 500, explain: true };
    assert_eq!(MultiLockTest::new(1, 500).out, [alone]);
}

#[test]
fn the_deadline_is_the_earliest_and_the_clock_is_compared_with_it_last() {
    let mut test = MultiLockTest::new(3, 0);
    assert_eq!(test.won(2, 900), []);
    assert_eq!(test.won(0, 700), []);
    assert_eq!(test.won(1, 800), collect(3));
    assert_eq!(test.machine.deadline(), Some(Time::ZERO.plus(MS * 700)));
    let mut late = test.clone();
    test.now = Time::ZERO.plus(MS * 700 - MS / 1000);
    assert_eq!(test.handle(MemberEvent::Collected { member: 2 }), []);
    assert!(!test.machine.is_held(), "not all are collected");
    assert_eq!(test.handle(MemberEvent::Collected { member: 2 }), [], "it is reported twice");
    assert_eq!(test.collected(2), [MemberAction::Decided]);
    assert!(test.machine.is_held());
    late.now = Time::ZERO.plus(MS * 700);
    assert_eq!(late.collected(3), undo(&[0, 1, 2]));
    assert_eq!(late.machine.failure(), Some((0, Failure::TooLate)));
    assert!(!late.machine.is_held());
}

#[test]
fn one_refusal_undoes_all_others_at_once_and_holds_nothing_while_it_waits() {
    let mut test = MultiLockTest::new(3, 500);
    test.won(0, 900);
    let undone = test.taken(1);
    assert_eq!(undone, undo(&[0, 1, 2]), "also the claim that failed");
    // Late results of members that were undone change nothing.
    assert!(!test.machine.awaits(2));
    assert_eq!(test.won(2, 900), []);
    assert_eq!(test.taken(2), []);
    let waits = test.after_the_pause();
    let rest = Time::ZERO.plus(MS * 500).since(test.now);
    assert_eq!(waits, [MemberAction::Try { member: 1, wait: rest, explain: true }]);
    assert_eq!(test.machine.rounds(), 1);
}

#[test]
fn the_member_that_was_waited_for_is_kept_while_the_others_are_tried_once() {
    let mut test = MultiLockTest::new(3, 500);
    test.taken(1);
    test.after_the_pause();
    assert_eq!(test.won(1, 900), [once(0, false), once(2, false)]);
    assert_eq!(test.machine.rounds(), 2);
    let mut other = test.clone();
    test.won(0, 901);
    assert_eq!(test.won(2, 902), collect(3));
    // The last member is refused: the machine undoes the others, and waits for this one.
    assert_eq!(other.taken(2), undo(&[0, 1, 2]));
    assert!(matches!(other.after_the_pause()[..], [MemberAction::Try { member: 2, .. }]));
}

#[test]
fn at_the_end_of_the_wait_it_names_the_member_that_was_in_the_way() {
    let mut test = MultiLockTest::new(2, 500);
    test.taken(0);
    test.after_the_pause();
    test.now = Time::ZERO.plus(MS * 500);
    assert_eq!(test.taken(0), undo(&[0]));
    assert_eq!(test.machine.failure(), Some((0, Failure::Taken)));
    assert_eq!(test.machine.next_wake(), Time::NEVER);
    // Without a wait after the first round.
    let mut test = MultiLockTest::new(2, 0);
    test.won(0, 900);
    assert_eq!(test.taken(1), undo(&[0, 1]));
    assert_eq!(test.machine.failure(), Some((1, Failure::Taken)));
}

#[test]
fn a_pause_is_cut_at_the_end_of_the_wait() {
    let mut test = MultiLockTest::new(2, 2);
    test.now = Time::ZERO.plus(MS);
    let failed = MemberEvent::Failed { member: 0, why: Failure::NoQuorum };
    test.machine.handle(test.now, failed, &mut Count::new(MS * 10_000), &mut test.out);
    assert_eq!(test.machine.next_wake(), Time::ZERO.plus(MS * 2));
    assert_eq!(test.after_the_pause(), [once(0, true)]);
}

#[test]
fn a_claim_that_tries_again_instead_of_being_collected_has_failed() {
    let mut test = MultiLockTest::new(2, 500);
    test.won(0, 900);
    test.won(1, 900);
    test.handle(MemberEvent::of_collect(0, Progress::Held));
    assert_eq!(test.handle(MemberEvent::of_collect(1, Progress::Pending)), undo(&[0, 1]));
    assert_eq!(test.collected(2), [], "too late");
    assert!(!test.machine.is_held());
    let deadline = Time::ZERO.plus(MS);
    assert_eq!(MemberEvent::result(1, Progress::Pending), None);
    assert_eq!(
        MemberEvent::result(1, Progress::Won(deadline)),
        Some(MemberEvent::Won { member: 1, deadline })
    );
}

const NODES: usize = 3;
const NODE_TIMEOUT: Duration = Duration::from_millis(20);

fn key(member: usize) -> Key {
    Key::from(member.to_be_bytes())
}

/// A client with one multi-lock.
struct Caller {
    world: World,
    machine: MultiLock,
    claims: Vec<Option<ClaimId>>,
}

impl Caller {
    fn carry_out(&mut self, actions: Vec<MemberAction>) {
        for action in actions {
            match action {
                MemberAction::Try { member, wait, explain } => {
                    let config =
                        LockConfig::new(NODES, MS * 60_000, Drift::default(), NODE_TIMEOUT);
                    let config = config.expect("they fit");
                    let request = AcquireRequest::for_member(config, wait, explain, ());
                    self.claims[member] = Some(self.world.acquire(0, &key(member), request));
                }
                MemberAction::Collect { member } => {
                    let id = self.claims[member].expect("it is won");
                    self.world.drive(0, id, Input::Collect);
                    self.handle(MemberEvent::of_collect(member, self.progress(id)));
                }
                MemberAction::Undo { member } => {
                    let claim = self.claims[member].take();
                    claim.into_iter().for_each(|id| self.world.cancel(0, id, true));
                }
                _ => {}
            }
        }
    }

    fn handle(&mut self, event: MemberEvent) {
        let mut actions = Vec::new();
        self.machine.handle(self.world.now, event, &mut self.world.random, &mut actions);
        self.carry_out(actions);
    }

    fn progress(&self, id: ClaimId) -> Progress<'_> {
        let state = self.world.clients[0].standing(id);
        state.as_ref().map_or(Progress::Other, RequestState::progress)
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let due = self.machine.next_wake();
            let stepped = self.world.step(due.min(end));
            self.world.events.clear();
            if due <= self.world.now {
                self.handle(MemberEvent::Wake);
            }
            for member in 0..self.claims.len() {
                let claim = self.claims[member].filter(|_| self.machine.awaits(member));
                let event = claim.and_then(|id| MemberEvent::result(member, self.progress(id)));
                event.into_iter().for_each(|event| self.handle(event));
            }
            if !stepped && due > end {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn it_ends_three_node_timeouts_after_the_wait_at_the_latest(
        seed: u64, wait in 0..300_u32, stop in vec((0..NODES, 1..200_u32), 0..3),
    ) {
        let (masters, clients, node_timeout) = (NODES, 1, NODE_TIMEOUT);
        let config = Config { masters, clients, node_timeout, ..Config::default() };
        let mut world = World::new(seed, config);
        world.run_until(Time::from_millis(100));
        for (node, ms) in stop {
            world.stop_for(node, MS * ms);
        }
        world.occupy(&key(1), MS * wait / 2);
        let mut actions = Vec::new();
        let machine = MultiLock::start(world.now, 3, MS * wait, &mut actions);
        let mut caller = Caller { world, machine, claims: vec![None; 3] };
        let end = caller.world.now.plus(MS * wait + NODE_TIMEOUT * 3);
        caller.carry_out(actions);
        caller.run_until(end);
        prop_assert!(caller.machine.is_held() || caller.machine.failure().is_some());
    }
}

#[test]
fn a_caller_that_is_gone_leaves_no_claim_and_a_holder_keeps_its_leases() {
    let mut trying = MultiLockTest::new(2, 500);
    trying.won(0, 900);
    let undone = [0, 1].map(|member| MemberAction::Undo { member });
    assert_eq!(trying.handle(MemberEvent::Abandon), undone);
    assert_eq!(trying.won(1, 900), [], "its report came too late");
    let mut held = MultiLockTest::new(2, 500);
    (0..2).for_each(|member| _ = held.won(member, 900));
    held.collected(2);
    assert_eq!(held.handle(MemberEvent::Abandon), [], "the leases are given back one by one");
    assert!(held.machine.is_held());
}

#[test]
fn a_member_that_is_won_fails_only_when_its_lease_is_collected() {
    let mut test = MultiLockTest::new(2, 500);
    test.won(0, 900);
    assert_eq!(test.taken(0), [], "the others may still be won");
    test.won(1, 900);
    assert_eq!(test.taken(0), undo(&[0, 1]));
}

#[test]
fn a_lease_that_was_not_collected_says_why_or_came_too_late() {
    let votes = Votes::open(3, Time::ZERO);
    let failed = |why| MemberEvent::Failed { member: 1, why };
    for (progress, event) in [
        (Progress::Held, MemberEvent::Collected { member: 1 }),
        (Progress::Failed(Failure::NoQuorum, &votes, 1), failed(Failure::NoQuorum)),
        (Progress::Pending, failed(Failure::TooLate)),
    ] {
        assert_eq!(MemberEvent::of_collect(1, progress), event);
    }
}
