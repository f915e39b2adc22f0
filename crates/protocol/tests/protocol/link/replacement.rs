//! Stalled connections, their replacements, and the kill of old connections.

use std::sync::Arc;

use redquorum_protocol::{Cause, LinkEffect, LinkState, Reply, Time};

use super::bench::*;

#[test]
fn a_stalled_link_dials_a_second_connection_and_the_old_one_that_answers_cancels_it() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.pass(100 * MS);
    assert_eq!(bench.look(), [write_set(1), LinkEffect::Dial(2)]);
    bench.reply(1, Reply::Created);
    assert_eq!(bench.look(), [LinkEffect::Close(2), LinkEffect::Reply(1, Reply::Created)]);
    assert_eq!(bench.link.state(), LinkState::Up);
    assert_eq!(bench.link.next_wake(), Time::NEVER);
    // The greeting of the second connection was already on its way.
    bench.connect(2);
    assert_eq!(bench.look(), [LinkEffect::Close(2)]);
    assert_eq!(bench.link.epoch(), Some(1));
}

#[test]
fn a_new_connection_that_is_greeted_first_kills_the_old_one_before_it_sends_clean_ups() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.clean_up(1, 2);
    bench.set(2, 3);
    bench.pass(100 * MS);
    bench.look();
    bench.connect(2);
    let gone = [1, 2, 3].map(|tag| unknown(tag, Cause::Disconnected));
    let sent = [write_kill(101), write_delete(1)];
    let expected = [&[LinkEffect::Close(1)][..], &gone, &sent].concat();
    assert_eq!(bench.look(), expected, "and no SET is sent again");
    // A late reply of the old connection is ignored.
    bench.reply(1, Reply::Created);
    assert_eq!((bench.look(), bench.link.pending_cleanups()), (vec![], 1));
    bench.reply(2, Reply::Alive);
    bench.reply(2, Reply::Absent);
    assert_eq!(bench.ledger(), (1, 0));
    bench.clean_up(2, 4);
    assert_eq!(bench.look(), [write_delete(2)]);
}

#[test]
fn no_clean_up_completes_before_the_master_has_killed_the_old_connection() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.close(1);
    bench.clean_up(1, 2);
    bench.look();
    bench.connect(2);
    assert_eq!(bench.look(), [write_kill(101), write_delete(1)]);
    let busy = Reply::Unknown(Cause::Error(Arc::from("BUSY")));
    bench.reply(2, busy);
    assert_eq!(bench.look(), [LinkEffect::Close(2)]);
    assert_eq!(bench.reconnect(3), [write_kill(101), write_kill(102), write_delete(1)]);
}

#[test]
fn of_several_old_connections_only_those_that_were_killed_are_forgotten() {
    let mut bench = Bench::connected();
    bench.set(1, 1);
    bench.close(1);
    assert_eq!(bench.reconnect(2), [write_kill(101)]);
    bench.set(2, 2);
    bench.close(2);
    assert_eq!(bench.reconnect(3), [write_kill(101), write_kill(102)]);
    bench.reply(3, Reply::Alive);
    bench.close(3);
    assert_eq!(bench.reconnect(4), [write_kill(102)]);
    bench.reply(4, Reply::Alive);
    bench.close(4);
    assert_eq!(bench.reconnect(5), []);
}
