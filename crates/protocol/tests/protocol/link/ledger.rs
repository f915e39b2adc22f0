//! The ledger and the bounds: pending clean-ups, and requests that are refused without one.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Bounds, Cause, Holder, LinkEffect, LinkInput, LinkState, Reply, Time};

use super::bench::*;

#[test]
fn every_reply_of_the_script_completes_the_clean_up_and_no_error_does() {
    let holder = Holder::NoExpiry;
    for (reply, pending) in [
        (Reply::Deleted, 0),
        (Reply::Absent, 0),
        (Reply::Taken(holder), 0),
        (Reply::Unknown(Cause::Error(Arc::from("BUSY"))), 1),
        (Reply::Unknown(Cause::NoScript), 1),
        (Reply::Unknown(Cause::Garbage), 1),
    ] {
        let mut bench = Bench::connected();
        bench.set(1, 0);
        bench.clean_up(1, 0);
        bench.reply(1, Reply::Created);
        bench.reply(1, reply.clone());
        assert_eq!(bench.link.pending_cleanups(), pending, "{reply:?}");
    }
}

#[test]
fn a_link_that_is_down_or_shut_down_refuses_and_has_nothing_pending() {
    let mut bench = Bench::dialling();
    bench.set(1, 7);
    bench.clean_up(1, 8);
    let down = Cause::Down(Arc::from("connecting"));
    let effects = [LinkEffect::Dial(1), unknown(7, down.clone()), unknown(8, down)];
    assert_eq!(bench.look(), effects);
    let ends = [
        (&[LinkInput::ShutDown][..], Cause::ShutDown),
        (&[LinkInput::Abandon], Cause::RuntimeEnded),
        (&[LinkInput::ShutDown, LinkInput::Abandon], Cause::RuntimeEnded),
    ];
    for (inputs, cause) in ends {
        let mut bench = Bench::connected();
        inputs.iter().for_each(|input| bench.handle(input.clone()));
        bench.set(1, 7);
        bench.clean_up(1, 8);
        assert_eq!(bench.look(), [unknown(7, cause.clone()), unknown(8, cause)]);
        assert_eq!(bench.ledger(), (0, 0));
    }
}

#[test]
fn a_stalled_link_refuses_new_keys_and_queues_clean_ups() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(99 * MS);
    assert_eq!(bench.link.state(), LinkState::Up);
    bench.pass(MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.look();
    bench.set(2, 2);
    bench.clean_up(2, 3);
    assert_eq!(bench.look(), [unknown(2, Cause::Stalled), unknown(3, Cause::Stalled)]);
    assert_eq!(bench.ledger(), (1, 0));
    bench.clean_up(1, 4);
    assert_eq!(bench.look(), [write_delete(1)]);
}

/// By the commands, and by the keys: their number, and their bytes.
#[test]
fn beyond_each_bound_no_new_key_is_taken_until_others_are_done() {
    let bounds = || Bounds::for_node_timeout(50 * MS);
    for (bounds, of_keys) in [
        (Bounds { unanswered: 2, ..bounds() }, false),
        (Bounds { unanswered_bytes: 200, ..bounds() }, false),
        (Bounds { ledger: 2, ..bounds() }, true),
        (Bounds { ledger_bytes: 2, ..bounds() }, true),
    ] {
        let mut bench = Bench::with(bounds);
        bench.connect(1);
        for first in [1, 11, 21] {
            bench.look();
            let [second, beyond] = [first + 1, first + 2];
            [first, second, beyond].into_iter().for_each(|number| bench.set(number, number));
            let refused = unknown(beyond, Cause::Overloaded);
            assert_eq!(bench.look(), [write_set(first), write_set(second), refused], "{bounds:?}");
            if !of_keys {
                // Nor do probes of a master that does not reply pile up.
                bench.handle(LinkInput::Probe(0));
                assert_eq!(bench.look(), [unknown(0, Cause::Overloaded)], "{bounds:?}");
            }
            (0..2).for_each(|_| bench.reply(1, Reply::Created));
            if of_keys {
                bench.look();
                bench.set(beyond, beyond);
                bench.clean_up(beyond, 0);
                let refused = [beyond, 0].map(|tag| unknown(tag, Cause::Overloaded));
                assert_eq!(bench.look(), refused, "nor does it ask about one that it never took");
                // Leases fill the ledger: that must not stop their renewals, or a probe.
                bench.keep(second, second);
                assert!(matches!(bench.look()[..], [LinkEffect::Write(Command::Keep { .. })]));
                bench.handle(LinkInput::Probe(0));
                assert_eq!(bench.look(), [LinkEffect::Write(Command::Probe)]);
                [first, second].into_iter().for_each(|number| bench.clean_up(number, 0));
                let replies = [Reply::Kept, Reply::Alive, Reply::Deleted, Reply::Deleted];
                replies.into_iter().for_each(|reply| bench.reply(1, reply));
            }
        }
    }
}

#[test]
fn nothing_that_could_create_a_key_is_written_for_a_token_that_was_given_up() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.clean_up(1, 2);
    bench.look();
    bench.keep(1, 3);
    assert_eq!(bench.look(), [unknown(3, Cause::GivenUp)]);
}

#[test]
fn keys_that_have_expired_on_a_master_that_is_down_are_pending_but_not_waited_for() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.close(1);
    bench.clean_up(1, 2);
    assert_eq!((bench.link.pending_cleanups(), bench.link.pending_still(bench.now)), (1, 1));
    bench.pass(1_000 * MS);
    assert_eq!((bench.link.pending_cleanups(), bench.link.pending_still(bench.now)), (1, 0));
    bench.connect(2);
    assert_eq!(bench.link.pending_still(bench.now), 1, "a master that is up says so itself");
}

#[test]
fn keys_that_have_expired_on_a_master_that_hangs_are_pending_but_not_waited_for() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.clean_up(1, 2);
    bench.pass(999 * MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    assert_eq!(bench.link.pending_still(bench.now), 1, "the key may still be there");
    bench.pass(MS);
    assert_eq!((bench.link.pending_cleanups(), bench.link.pending_still(bench.now)), (1, 0));
    bench.reply(1, Reply::Created);
    assert_eq!(bench.link.pending_still(bench.now), 1, "it had only slept, and answers now");
    bench.reply(1, Reply::Deleted);
    assert_eq!(bench.link.pending_still(bench.now), 0);
}

fn leave(bench: &mut Bench, number: u64, until: Time) {
    bench.handle(LinkInput::Leave { token: token(number), until });
}

#[test]
fn a_key_that_is_left_alone_is_deleted_at_its_time() {
    let mut bench = Bench::connected();
    bench.set(1, 7);
    bench.reply(1, Reply::Created);
    bench.look();
    let until = bench.now.plus(3_000 * MS);
    leave(&mut bench, 1, until);
    assert_eq!(bench.ledger(), (0, 0), "no shutdown waits for it");
    assert_eq!(bench.link.next_wake(), until);
    // No command may create the key any more.
    bench.keep(1, 8);
    assert_eq!(bench.look(), [unknown(8, Cause::GivenUp)]);
    bench.pass(2_999 * MS);
    assert_eq!(bench.look(), []);
    bench.pass(MS);
    assert_eq!((bench.look(), bench.link.pending_cleanups()), (vec![write_call(1)], 1));
    bench.reply(1, Reply::Absent);
    assert_eq!((bench.link.pending_cleanups(), bench.link.next_wake()), (0, Time::NEVER));
}

#[test]
fn a_new_connection_sends_the_pending_clean_ups_and_no_earlier_ones() {
    let mut bench = Bench::connected();
    for number in 1..=3 {
        bench.set(number, 0);
        bench.reply(1, Reply::Created);
    }
    let (soon, later) = (bench.now.plus(100 * MS), bench.now.plus(3_000 * MS));
    leave(&mut bench, 1, soon);
    leave(&mut bench, 2, later);
    bench.close(1);
    bench.clean_up(3, 0);
    bench.pass(200 * MS);
    bench.look();
    assert_eq!(
        bench.link.pending_cleanups(),
        2,
        "the third, and the first, whose time came meanwhile"
    );
    bench.connect(2);
    let mut effects = bench.look();
    effects.retain(|effect| matches!(effect, LinkEffect::Write(_)));
    assert_eq!(effects, [write_call(1), write_delete(3)]);
    assert_eq!(bench.link.next_wake().min(later), bench.link.next_wake());
    bench.reply(2, Reply::Deleted);
    bench.reply(2, Reply::Deleted);
    bench.pass(2_800 * MS);
    assert_eq!(bench.look(), [write_call(2)]);
}

#[test]
fn a_leave_changes_nothing_for_a_token_that_was_never_sent_or_is_already_pending() {
    let mut bench = Bench::connected();
    let until = bench.now.plus(1_000 * MS);
    leave(&mut bench, 1, until);
    assert_eq!(bench.link.next_wake(), Time::NEVER);
    bench.set(2, 0);
    bench.clean_up(2, 0);
    leave(&mut bench, 2, until);
    assert_eq!(bench.link.pending_cleanups(), 1);
}

/// A link whose ledger has room for so many keys, and for so many bytes.
fn small(ledger: usize, ledger_bytes: usize) -> Bench {
    let mut bench =
        Bench::with(Bounds { ledger, ledger_bytes, ..Bounds::for_node_timeout(50 * MS) });
    bench.connect(1);
    bench.look();
    bench
}

#[test]
fn keys_that_expire_by_themselves_make_room_for_new_ones() {
    let length = key().len();
    for (keys, bytes) in [(4, 1 << 20), (1_000, 4 * length)] {
        let mut bench = small(keys, bytes);
        for number in 1..=4 {
            bench.set(number, 0);
            bench.reply(1, Reply::Created);
        }
        bench.set(5, 5);
        assert_eq!(bench.look().pop(), Some(unknown(5, Cause::Overloaded)), "all are claimed");
        let until = bench.now.plus(3_000 * MS);
        (1..=4).for_each(|number| {
            leave(&mut bench, number, until.plus(Duration::from_millis(number)));
        });
        bench.look();
        for number in 5..=6 {
            bench.set(number, 5);
            assert!(matches!(bench.look()[..], [.., LinkEffect::Write(_)]), "there is room");
            bench.reply(1, Reply::Created);
        }
        assert_eq!(bench.ledger(), (2, 0));
        bench.look();
        bench.pass(4_000 * MS);
        // The other two expire by themselves.
        assert_eq!(bench.look(), [write_call(1), write_call(2)]);
        // What the ledger still needs makes no room.
        bench.set(7, 7);
        assert_eq!(bench.look(), [unknown(7, Cause::Overloaded)]);
    }
}

#[test]
fn a_key_that_may_still_be_created_makes_no_room() {
    for breaks in [false, true] {
        let mut bench = small(1, 1 << 20);
        bench.set(1, 0);
        if breaks {
            // The command may wait in the socket of the old connection.
            bench.close(1);
            bench.reconnect(2);
        }
        let until = bench.now.plus(3_000 * MS);
        leave(&mut bench, 1, until);
        bench.look();
        bench.set(2, 2);
        assert_eq!(bench.look(), [unknown(2, Cause::Overloaded)]);
    }
}

/// The shortest time that a clean-up takes from its moment to its reply beside so many held keys.
#[expect(clippy::disallowed_types, reason = "it measures the processor, not the protocol")]
fn time_to_ripen(held: u64) -> Duration {
    let mut bench = small(1 << 20, 1 << 30);
    let create = |bench: &mut Bench, number| {
        bench.set(number, 0);
        bench.reply(1, Reply::Created);
    };
    (0..held).for_each(|number| create(&mut bench, number));
    let round = |round: u64| {
        let numbers = held + round * 100..held + (round + 1) * 100;
        for number in numbers.clone() {
            create(&mut bench, number);
            let until = bench.now.plus(Duration::from_millis(1 + number - numbers.start));
            leave(&mut bench, number, until);
        }
        bench.look();
        let start = std::time::Instant::now();
        for number in numbers {
            bench.pass(MS);
            assert_eq!(bench.look(), [write_call(number)]);
            bench.reply(1, Reply::Deleted);
        }
        start.elapsed()
    };
    (0..5).map(round).min().unwrap()
}

#[test]
fn a_key_that_ripens_costs_the_same_however_many_keys_are_held() {
    let (few, many) = (time_to_ripen(0), time_to_ripen(50_000));
    // A walk through the ledger takes some thousand times as long.
    assert!(many < 50 * few, "{few:?} beside none, {many:?} beside 50 000");
}

#[test]
fn each_reply_makes_room_for_as_much_as_its_command_took() {
    let bounds = || Bounds::for_node_timeout(50 * MS);
    for bounds in
        [Bounds { unanswered: 2, ..bounds() }, Bounds { unanswered_bytes: 200, ..bounds() }]
    {
        let mut bench = Bench::with(bounds);
        bench.connect(1);
        (1..=2).for_each(|number| bench.set(number, number));
        bench.reply(1, Reply::Created);
        bench.look();
        (3..=4).for_each(|number| bench.set(number, number));
        assert_eq!(bench.look(), [write_set(3), unknown(4, Cause::Overloaded)]);
    }
}

#[test]
fn a_clean_up_is_under_way_until_the_key_is_gone_or_must_have_expired() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.reply(1, Reply::Created);
    assert!(!bench.link.is_cleaning_up(bench.now), "the key is wanted");
    bench.clean_up(1, 2);
    assert!(bench.link.is_cleaning_up(bench.now.plus(999 * MS)));
    assert!(!bench.link.is_cleaning_up(bench.now.plus(1_000 * MS)));
    bench.reply(1, Reply::Deleted);
    assert!(!bench.link.is_cleaning_up(bench.now));
}
