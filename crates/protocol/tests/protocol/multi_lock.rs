//! The machine alone: its effects and their order.

use redquorum_protocol::{Failure, MemberAction, MemberEvent, MultiLock, Progress, Time};

use crate::support::{Count, MS, Random};

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
    MemberAction::Try { member, wait: std::time::Duration::ZERO, explain }
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
}

#[test]
fn the_deadline_is_the_earliest_and_the_clock_is_compared_with_it_last() {
    let mut test = MultiLockTest::new(3, 0);
    assert_eq!(test.won(2, 900), []);
    assert_eq!(test.won(0, 700), []);
    assert_eq!(test.won(1, 800), collect(3));
    assert_eq!(test.machine.deadline(), Some(Time::ZERO.plus(MS * 700)));
    let mut late = MultiLockTest {
        machine: test.machine.clone(),
        random: Random(1),
        now: test.now,
        out: Vec::new(),
    };
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
    let mut other = MultiLockTest {
        machine: test.machine.clone(),
        random: Random(2),
        now: test.now,
        out: Vec::new(),
    };
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
fn an_abandoned_request_leaves_nothing_under_way() {
    for stage in 0..5 {
        let mut test = MultiLockTest::new(2, 500);
        let mut open = vec![0, 1];
        if stage >= 1 {
            test.won(0, 900);
        }
        if stage >= 2 {
            test.taken(1);
            open.clear();
        }
        if stage >= 3 {
            test.after_the_pause();
            open = vec![1];
        }
        if stage >= 4 {
            test.won(1, 900);
            open = vec![0, 1];
        }
        let undone = test.handle(MemberEvent::Abandon);
        let wanted: Vec<MemberAction> =
            open.into_iter().map(|member| MemberAction::Undo { member }).collect();
        assert_eq!(undone, wanted, "stage {stage}");
        assert_eq!(test.machine.next_wake(), Time::NEVER);
        assert_eq!(test.handle(MemberEvent::Wake), []);
    }
}

#[test]
fn a_single_member_waits_like_any_other_claim() {
    let test = MultiLockTest::new(1, 500);
    assert_eq!(test.out, [MemberAction::Try { member: 0, wait: MS * 500, explain: true }]);
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
