//! The machine alone: its effects and their order.

use redquorum_protocol::{Failure, MemberAction, MemberEvent, MultiLock, Progress, Rng, Time};

use crate::chance::Random;
use crate::world::MS;

struct Bed {
    machine: MultiLock,
    random: Random,
    now: Time,
    out: Vec<MemberAction>,
}

impl Bed {
    fn new(members: usize, wait_ms: u32) -> Self {
        let mut out = Vec::new();
        let machine = MultiLock::start(Time::ZERO, members, MS * wait_ms, &mut out);
        Self { machine, random: Random(1), now: Time::ZERO, out }
    }

    fn tell(&mut self, told: MemberEvent) -> Vec<MemberAction> {
        self.out.clear();
        self.machine.handle(self.now, told, &mut self.random, &mut self.out);
        self.out.clone()
    }

    fn won(&mut self, member: usize, ms: u32) -> Vec<MemberAction> {
        self.tell(MemberEvent::Won { member, deadline: Time::ZERO.plus(MS * ms) })
    }

    fn taken(&mut self, member: usize) -> Vec<MemberAction> {
        self.tell(MemberEvent::Failed { member, why: Failure::Taken })
    }

    /// All leases are collected.
    fn collected(&mut self, members: usize) -> Vec<MemberAction> {
        (0..members).flat_map(|member| self.tell(MemberEvent::Collected { member })).collect()
    }

    /// Lets the pause pass, and returns the effects after it.
    fn after_the_pause(&mut self) -> Vec<MemberAction> {
        assert_ne!(self.machine.next_wake(), Time::NEVER);
        self.now = self.machine.next_wake();
        self.tell(MemberEvent::Wake)
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
    let bed = Bed::new(3, 500);
    assert_eq!(bed.out, [once(0, false), once(1, false), once(2, false)]);
    // A caller that makes only one round asks which clients hold the resource.
    assert_eq!(Bed::new(2, 0).out, [once(0, true), once(1, true)]);
}

#[test]
fn the_deadline_is_the_earliest_and_the_clock_is_compared_with_it_last() {
    let mut bed = Bed::new(3, 0);
    assert_eq!(bed.won(2, 900), []);
    assert_eq!(bed.won(0, 700), []);
    assert_eq!(bed.won(1, 800), collect(3));
    assert_eq!(bed.machine.deadline(), Some(Time::ZERO.plus(MS * 700)));
    let mut late =
        Bed { machine: bed.machine.clone(), random: Random(1), now: bed.now, out: Vec::new() };
    bed.now = Time::ZERO.plus(MS * 700 - MS / 1000);
    assert_eq!(bed.tell(MemberEvent::Collected { member: 2 }), []);
    assert!(!bed.machine.is_held(), "not all are collected");
    assert_eq!(bed.tell(MemberEvent::Collected { member: 2 }), [], "it is reported twice");
    assert_eq!(bed.collected(2), [MemberAction::Decided]);
    assert!(bed.machine.is_held());
    late.now = Time::ZERO.plus(MS * 700);
    assert_eq!(late.collected(3), undo(&[0, 1, 2]));
    assert_eq!(late.machine.failure(), Some((0, Failure::TooLate)));
    assert!(!late.machine.is_held());
}

#[test]
fn one_refusal_undoes_all_others_at_once_and_holds_nothing_while_it_waits() {
    let mut bed = Bed::new(3, 500);
    bed.won(0, 900);
    let undone = bed.taken(1);
    assert_eq!(undone, undo(&[0, 1, 2]), "also the claim that failed");
    // Late results of members that were undone change nothing.
    assert_eq!(bed.won(2, 900), []);
    assert_eq!(bed.taken(2), []);
    let waits = bed.after_the_pause();
    let rest = Time::ZERO.plus(MS * 500).since(bed.now);
    assert_eq!(waits, [MemberAction::Try { member: 1, wait: rest, explain: true }]);
    assert_eq!(bed.machine.rounds(), 1);
}

#[test]
fn who_was_waited_for_is_kept_while_the_others_are_tried_once() {
    let mut bed = Bed::new(3, 500);
    bed.taken(1);
    bed.after_the_pause();
    assert_eq!(bed.won(1, 900), [once(0, false), once(2, false)]);
    assert_eq!(bed.machine.rounds(), 2);
    let mut other =
        Bed { machine: bed.machine.clone(), random: Random(2), now: bed.now, out: Vec::new() };
    bed.won(0, 901);
    assert_eq!(bed.won(2, 902), collect(3));
    // The last member is refused: the machine undoes the others, and waits for this one.
    assert_eq!(other.taken(2), undo(&[0, 1, 2]));
    assert!(matches!(other.after_the_pause()[..], [MemberAction::Try { member: 2, .. }]));
}

#[test]
fn at_the_end_of_the_wait_it_says_who_was_in_the_way() {
    let mut bed = Bed::new(2, 500);
    bed.taken(0);
    bed.after_the_pause();
    bed.now = Time::ZERO.plus(MS * 500);
    assert_eq!(bed.taken(0), undo(&[0]));
    assert_eq!(bed.machine.failure(), Some((0, Failure::Taken)));
    assert_eq!(bed.machine.next_wake(), Time::NEVER);
    // Without a wait after the first round.
    let mut bed = Bed::new(2, 0);
    bed.won(0, 900);
    assert_eq!(bed.taken(1), undo(&[0, 1]));
    assert_eq!(bed.machine.failure(), Some((1, Failure::Taken)));
}

#[test]
fn a_pause_is_cut_at_the_end_of_the_wait() {
    let mut bed = Bed::new(2, 2);
    bed.now = Time::ZERO.plus(MS);
    // Another random source would pause for longer.
    struct Long;
    impl Rng for Long {
        fn token(&mut self) -> redquorum_protocol::Token {
            unreachable!("the machine needs no tokens")
        }
        fn hint(&mut self) -> u64 {
            0
        }
        fn random(&mut self) -> u64 {
            0
        }
        fn pause(&mut self, _attempt: u32) -> std::time::Duration {
            MS * 10_000
        }
    }
    let told = MemberEvent::Failed { member: 0, why: Failure::NoQuorum };
    bed.machine.handle(bed.now, told, &mut Long, &mut bed.out);
    assert_eq!(bed.machine.next_wake(), Time::ZERO.plus(MS * 2));
    assert_eq!(bed.after_the_pause(), [once(0, true)]);
}

#[test]
fn one_that_is_won_and_cannot_be_collected_undoes_all() {
    let mut bed = Bed::new(2, 500);
    bed.won(0, 900);
    bed.won(1, 900);
    bed.tell(MemberEvent::Collected { member: 0 });
    let undone = bed.tell(MemberEvent::Failed { member: 1, why: Failure::TooLate });
    assert_eq!(undone, undo(&[0, 1]));
    assert_eq!(bed.collected(2), [], "too late");
    assert!(!bed.machine.is_held());
}

#[test]
fn who_is_gone_leaves_nothing_under_way() {
    for stage in 0..5 {
        let mut bed = Bed::new(2, 500);
        let mut open = vec![0, 1];
        if stage >= 1 {
            bed.won(0, 900);
        }
        if stage >= 2 {
            bed.taken(1);
            open.clear();
        }
        if stage >= 3 {
            bed.after_the_pause();
            open = vec![1];
        }
        if stage >= 4 {
            bed.won(1, 900);
            open = vec![0, 1];
        }
        let undone = bed.tell(MemberEvent::Abandon);
        let wanted: Vec<MemberAction> =
            open.into_iter().map(|member| MemberAction::Undo { member }).collect();
        assert_eq!(undone, wanted, "stage {stage}");
        assert_eq!(bed.machine.next_wake(), Time::NEVER);
        assert_eq!(bed.tell(MemberEvent::Wake), []);
    }
}

#[test]
fn one_alone_is_waited_for_like_any_other() {
    let bed = Bed::new(1, 500);
    assert_eq!(bed.out, [MemberAction::Try { member: 0, wait: MS * 500, explain: true }]);
}

#[test]
fn a_claim_that_tries_again_instead_of_being_collected_has_failed() {
    let mut bed = Bed::new(2, 500);
    bed.won(0, 900);
    bed.won(1, 900);
    bed.tell(MemberEvent::of_collect(0, Progress::Held));
    assert_eq!(bed.tell(MemberEvent::of_collect(1, Progress::Pending)), undo(&[0, 1]));
    assert!(!bed.machine.is_held());
    let deadline = Time::ZERO.plus(MS);
    assert_eq!(MemberEvent::result(1, Progress::Pending), None);
    assert_eq!(
        MemberEvent::result(1, Progress::Won(deadline)),
        Some(MemberEvent::Won { member: 1, deadline })
    );
}
