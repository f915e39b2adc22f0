//! Positions in a master's queue, which the link lists and takes back as it does keys.

use redquorum_protocol::wire::Command;
use redquorum_protocol::{
    Cause, Holder, LinkEffect, LinkInput, Position, Reply, Waiter, WaiterId, WakeUp,
};

use super::bench::*;

fn waiter_id() -> WaiterId {
    WaiterId::new(5)
}

fn leaves(inbox: u64) -> TestEffect {
    let waiter = Waiter { inbox, waiter_id: waiter_id() };
    LinkEffect::Write(Command::Dequeue { key: key(), waiter, wake: true })
}

fn refused() -> Reply {
    Reply::Unknown(Cause::Error("BUSY".into()))
}

const PLACE: Reply = Reply::Place { number: 1, ahead: 0, holder: None };

impl Bench {
    /// A link that is subscribed. A waiter has asked for a position, and there is no reply yet.
    fn asking() -> Self {
        let mut bench = Self::connected();
        bench.subscribe();
        bench.ask();
        bench
    }

    fn subscribe(&mut self) {
        self.handle(LinkInput::Subscribe { key: key(), waiter_id: waiter_id() });
        (0..2).for_each(|_| self.reply(self.link.epoch().unwrap(), Reply::Alive));
    }

    fn ask(&mut self) {
        let (waiter_id, position) = (waiter_id(), Position::Last);
        self.handle(LinkInput::Enqueue { key: key(), waiter_id, position, tag: 1 });
        self.look();
    }

    fn leave(&mut self) {
        self.handle(LinkInput::Unsubscribe(waiter_id()));
        self.handle(LinkInput::Dequeue { key: key(), waiter_id: waiter_id(), wake: true });
    }

    fn release(&mut self) {
        let (token, wake_up, leave) = (token(9), WakeUp::First, Some(waiter_id()));
        self.handle(LinkInput::Unsubscribe(waiter_id()));
        self.handle(LinkInput::CleanUp { key: key(), token, wake_up, leave, tag: 2 });
        self.look();
    }

    fn wakes(&mut self, epoch: u64) -> Vec<TestEffect> {
        self.handle(LinkInput::Woken { epoch, waiter_id: waiter_id() });
        self.look()
    }
}

#[test]
fn a_position_is_taken_back_behind_a_reconnect() {
    // How far the waiter was when the connection broke, and whether it has left before.
    for (replied, leaves_before) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = Bench::asking();
        if replied {
            bench.reply(1, PLACE);
            bench.look();
        }
        if leaves_before {
            bench.leave();
            assert_eq!(bench.look(), [leaves(INBOX)]);
        }
        bench.close(1);
        if !leaves_before {
            bench.leave();
        }
        assert_eq!(bench.link.pending_leaves(), 1);
        let written = bench.reconnect(2);
        assert!(written.contains(&leaves(INBOX)), "{written:?}");
        // A stopped master may yet execute what the old connection holds.
        let kill = LinkEffect::Write(Command::Kill { client_id: 101 });
        assert_eq!(written.contains(&kill), !replied, "{written:?}");
        if !replied {
            assert_eq!(written[0], kill, "before all others");
            bench.reply(2, Reply::Alive);
        }
        bench.reply(2, Reply::Alive);
        assert_eq!(bench.link.pending_leaves(), 0);
        bench.close(2);
        assert!(!bench.reconnect(3).contains(&leaves(INBOX)), "it is gone");
    }
}

#[test]
fn a_waiter_with_two_names_leaves_by_both_behind_a_reconnect() {
    let mut bench = Bench::connected();
    bench.ask();
    bench.reply(1, PLACE);
    bench.look();
    // From now on the master knows it by the name of its inbox.
    bench.subscribe();
    bench.handle(LinkInput::Enqueue {
        key: key(),
        waiter_id: waiter_id(),
        position: Position::Last,
        tag: 1,
    });
    assert!(bench.look().contains(&leaves(0)), "by the old name");
    bench.close(1);
    bench.leave();
    assert_eq!(bench.link.pending_leaves(), 2);
    let written = bench.reconnect(2);
    for inbox in [0, INBOX] {
        assert!(written.contains(&leaves(inbox)), "{inbox}: {written:?}");
    }
    (0..3).for_each(|_| bench.reply(2, Reply::Alive));
    assert_eq!(bench.link.pending_leaves(), 0);
}

#[test]
fn a_position_that_a_release_gives_up_is_taken_back_behind_a_reconnect() {
    for written in [false, true] {
        let mut bench = Bench::asking();
        bench.reply(1, PLACE);
        bench.set(9, 7);
        bench.reply(1, Reply::Created);
        if !written {
            bench.close(1);
        }
        bench.release();
        if written {
            bench.close(1);
        }
        let written = bench.reconnect(2);
        assert_eq!(written[..2], [leaves(INBOX), write_call(9)], "first the waiter, then the key");
        bench.reply(2, Reply::Alive);
        bench.reply(2, Reply::Deleted);
        assert_eq!((bench.link.pending_leaves(), bench.ledger()), (0, (0, 0)));
    }
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    bench.set(9, 7);
    bench.reply(1, Reply::Created);
    bench.release();
    bench.reply(1, Reply::Deleted);
    assert_eq!(bench.link.pending_leaves(), 0, "the release took it out of the queue");
}

#[test]
fn a_stalled_master_is_asked_behind_the_request_for_the_position() {
    let mut bench = Bench::asking();
    bench.pass(200 * MS);
    bench.look();
    bench.leave();
    assert_eq!(bench.look(), [leaves(INBOX)]);
    bench.reply(1, PLACE);
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.link.pending_leaves(), 0);
}

#[test]
fn a_waiter_that_comes_back_keeps_its_position() {
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    bench.leave();
    bench.ask();
    bench.reply(1, Reply::Alive);
    bench.close(1);
    assert!(!bench.reconnect(2).contains(&leaves(INBOX)));
    bench.leave();
    assert_eq!(bench.look(), [leaves(INBOX)]);
}

#[test]
fn a_wake_up_for_a_waiter_that_has_left_is_passed_on() {
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    bench.leave();
    bench.look();
    assert_eq!(bench.wakes(1), [], "it leaves already");
    bench.reply(1, refused());
    assert_eq!(bench.wakes(1), [leaves(INBOX)]);
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.wakes(1), [], "no position is left");
    // A waiter that waits is not passed over.
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    assert!(!bench.wakes(1).contains(&leaves(INBOX)));
}

#[test]
fn a_waiter_with_another_name_leaves_under_the_old_one() {
    let mut bench = Bench::connected();
    bench.handle(LinkInput::Subscribe { key: key(), waiter_id: waiter_id() });
    bench.reply(1, Reply::Unknown(Cause::Error("NOPERM".into())));
    bench.ask();
    bench.reply(1, PLACE);
    bench.close(1);
    bench.reconnect(2);
    (0..2).for_each(|_| bench.reply(2, Reply::Alive));
    let (waiter_id, position) = (waiter_id(), Position::Last);
    bench.look();
    bench.handle(LinkInput::Enqueue { key: key(), waiter_id, position, tag: 1 });
    assert_eq!(bench.look()[0], leaves(0), "the master did not wake it before");
    bench.leave();
    assert_eq!(bench.look(), [leaves(INBOX)]);
}

#[test]
fn what_the_master_refuses_is_tried_again_until_the_position_has_lapsed() {
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    bench.leave();
    bench.look();
    bench.reply(1, refused());
    for _ in 0..15 {
        assert_eq!(bench.link.pending_leaves(), 1);
        bench.pass(1_000 * MS);
        assert_eq!(bench.look(), [leaves(INBOX)]);
        bench.reply(1, refused());
    }
    bench.pass(1_000 * MS);
    bench.look();
    bench.reply(1, refused());
    assert_eq!(bench.link.pending_leaves(), 0);
    bench.pass(1_000 * MS);
    assert_eq!(bench.look(), []);
}

#[test]
fn a_stalled_master_is_asked_nothing_about_a_waiter_that_it_cannot_know() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(200 * MS);
    bench.look();
    bench.leave();
    assert_eq!((bench.look(), bench.link.pending_leaves()), (vec![], 0));
}

#[test]
fn what_the_master_refuses_is_not_tried_again_before_the_pause_is_over() {
    let mut bench = Bench::asking();
    bench.reply(1, PLACE);
    bench.leave();
    bench.look();
    bench.reply(1, refused());
    bench.pass(999 * MS);
    assert_eq!(bench.look(), []);
    bench.pass(MS);
    assert_eq!(bench.look(), [leaves(INBOX)]);
}

#[test]
fn a_waiter_leaves_with_a_release_unless_the_script_ended_before() {
    for (reply, pending) in [
        (Reply::Deleted, 0),
        (Reply::Absent, 0),
        (Reply::Taken(Holder::NoExpiry), 0),
        (Reply::Taken(Holder::WrongType), 1),
        (refused(), 1),
    ] {
        let mut bench = Bench::asking();
        bench.reply(1, PLACE);
        bench.release();
        bench.reply(1, reply.clone());
        assert_eq!(bench.link.pending_leaves(), pending, "{reply:?}");
    }
}
