//! The machine alone: its effects and their order.

use redquorum_protocol::{
    Failure, MemberAction, MemberEvent, MultiLock, Rng, Time, Turn, WaitPolicy,
};

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

    /// Lets the pause pass, and returns the effects after it.
    fn after_the_pause(&mut self) -> Vec<MemberAction> {
        assert_ne!(self.machine.next_wake(), Time::NEVER);
        self.now = self.machine.next_wake();
        self.tell(MemberEvent::Wake)
    }
}

fn policy(wait: std::time::Duration, explain: bool) -> WaitPolicy {
    WaitPolicy { wait, explain, wake_ups: true, fair: false, turn: Turn::First }
}

fn once(member: usize, explain: bool) -> MemberAction {
    MemberAction::Try { member, policy: policy(std::time::Duration::ZERO, explain) }
}

#[test]
fn all_are_tried_at_once_with_one_attempt_each() {
    let bed = Bed::new(3, 500);
    assert_eq!(bed.out, [once(0, false), once(1, false), once(2, false)]);
    // A request with a single round asks for the holder.
    assert_eq!(Bed::new(2, 0).out, [once(0, true), once(1, true)]);
}

#[test]
fn the_deadline_is_the_earliest_and_the_clock_is_compared_with_it_last() {
    let mut bed = Bed::new(3, 0);
    assert_eq!(bed.won(2, 900), []);
    assert_eq!(bed.won(0, 700), []);
    assert!(!bed.machine.is_won());
    assert_eq!(bed.won(1, 800), [MemberAction::Decided]);
    assert_eq!(bed.machine.deadline(), Some(Time::ZERO.plus(MS * 700)));
    let mut late =
        Bed { machine: bed.machine.clone(), random: Random(1), now: bed.now, out: Vec::new() };
    bed.now = Time::ZERO.plus(MS * 700 - MS / 1000);
    assert_eq!(bed.tell(MemberEvent::Collect), []);
    assert!(bed.machine.is_held());
    late.now = Time::ZERO.plus(MS * 700);
    let undone = late.tell(MemberEvent::Collect);
    assert_eq!(&undone[..3], [0, 1, 2].map(|member| MemberAction::Undo { member }));
    assert_eq!(late.machine.failure(), Some((0, Failure::TooLate)));
    assert!(!late.machine.is_held());
}

#[test]
fn one_refusal_undoes_all_others_at_once_and_holds_nothing_while_it_waits() {
    let mut bed = Bed::new(3, 500);
    bed.won(0, 900);
    let undone = bed.taken(1);
    assert_eq!(
        undone,
        [MemberAction::Undo { member: 0 }, MemberAction::Undo { member: 2 }, MemberAction::Decided]
    );
    // Late results of members that were undone change nothing.
    assert_eq!(bed.won(2, 900), []);
    assert_eq!(bed.taken(2), []);
    let waits = bed.after_the_pause();
    let rest = Time::ZERO.plus(MS * 500).since(bed.now);
    assert_eq!(waits, [MemberAction::Try { member: 1, policy: policy(rest, true) }]);
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
    assert_eq!(bed.won(2, 902), [MemberAction::Decided]);
    assert!(bed.machine.is_won());
    // The last member is refused: the machine undoes the others, and waits for this one.
    assert_eq!(
        other.taken(2),
        [MemberAction::Undo { member: 0 }, MemberAction::Undo { member: 1 }, MemberAction::Decided]
    );
    assert!(matches!(other.after_the_pause()[..], [MemberAction::Try { member: 2, .. }]));
}

#[test]
fn at_the_end_of_the_wait_it_says_who_was_in_the_way() {
    let mut bed = Bed::new(2, 500);
    bed.taken(0);
    bed.after_the_pause();
    bed.now = Time::ZERO.plus(MS * 500);
    assert_eq!(bed.taken(0), [MemberAction::Decided]);
    assert_eq!(bed.machine.failure(), Some((0, Failure::Taken)));
    assert_eq!(bed.machine.next_wake(), Time::NEVER);
    // A request without a wait fails after the first round.
    let mut bed = Bed::new(2, 0);
    bed.won(0, 900);
    assert_eq!(bed.taken(1), [MemberAction::Undo { member: 0 }, MemberAction::Decided]);
    assert_eq!(bed.machine.failure(), Some((1, Failure::Taken)));
}

#[test]
fn a_pause_is_cut_at_the_end_of_the_wait() {
    let mut bed = Bed::new(2, 2);
    bed.now = Time::ZERO.plus(MS);
    // Without the cut, this random source would give a longer pause.
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
    let undone = bed.tell(MemberEvent::Failed { member: 1, why: Failure::TooLate });
    assert_eq!(
        undone,
        [MemberAction::Undo { member: 0 }, MemberAction::Undo { member: 1 }, MemberAction::Decided]
    );
    assert!(!bed.machine.is_won());
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
    let policy = policy(MS * 500, true);
    assert_eq!(bed.out, [MemberAction::Try { member: 0, policy }]);
}
