//! Connections that work and are of no use: the server refuses all votes, or is another master's.

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Cause, LinkEffect, LinkInput, LinkState, Reply, Time};

use super::bench::*;

const READONLY: &str = "READONLY You can't write against a read only replica.";

fn error(text: &str) -> Reply {
    Reply::Unknown(Cause::Error(Arc::from(text)))
}

fn probe() -> TestEffect {
    LinkEffect::Write(Command::Probe)
}

/// A vote that is asked for on the connection `epoch` and gets this reply. Returns the effects
/// besides the vote and its reply.
fn vote(bench: &mut Bench, epoch: u64, number: u64, reply: Reply) -> Vec<TestEffect> {
    bench.set(number, number);
    bench.reply(epoch, reply.clone());
    let expected = [write_set(number), LinkEffect::Reply(number, reply)];
    let effects = bench.look();
    assert!(expected.iter().all(|effect| effects.contains(effect)), "{effects:?}");
    effects.into_iter().filter(|effect| !expected.contains(effect)).collect()
}

/// A connection on which the server has refused two votes, and the attempt beside it, number 2.
fn refused() -> Bench {
    let mut bench = Bench::connected();
    assert_eq!(vote(&mut bench, 1, 1, error(READONLY)), []);
    assert_eq!(bench.link.state(), LinkState::Up, "one error may be of a moment");
    assert_eq!(vote(&mut bench, 1, 2, error(READONLY)), [LinkEffect::Dial(2)]);
    assert_eq!(bench.link.state(), LinkState::Refusing(Arc::from(READONLY)));
    bench
}

#[test]
fn a_server_that_refuses_all_votes_is_left_for_the_one_to_which_its_name_leads_now() {
    let mut bench = refused();
    // The open connection is used meanwhile.
    bench.clean_up(1, 9);
    bench.set(3, 3);
    bench.look();
    bench.connect_to(2, "b");
    let gone = [9, 3].map(|tag| unknown(tag, Cause::Disconnected));
    let sent = [write_delete(1), probe()];
    assert_eq!(bench.look(), [&[LinkEffect::Close(1)][..], &gone, &sent].concat());
    assert_eq!((bench.link.state(), bench.link.epoch()), (LinkState::Up, Some(2)));
    assert_eq!(bench.ledger(), (2, 1), "the keys may be there, too");
    bench.reply(2, Reply::Absent);
    bench.reply(2, Reply::Alive);
    assert_eq!(vote(&mut bench, 2, 4, error(READONLY)), []);
    assert_eq!(bench.link.state(), LinkState::Up, "one refusal");
}

#[test]
fn a_server_that_refuses_is_tried_again_and_again_and_kept_while_the_name_leads_to_it() {
    let mut bench = refused();
    let mut pauses = Vec::new();
    for epoch in 2..14 {
        bench.connect_to(epoch, "a");
        assert_eq!(bench.look(), [LinkEffect::Close(epoch), probe()], "the same server");
        bench.reply(1, error(READONLY));
        assert_eq!(bench.look(), []);
        let wake = bench.link.next_wake();
        pauses.push(wake.since(bench.now));
        bench.now = wake;
        bench.handle(LinkInput::Wake);
        assert_eq!(bench.look(), [LinkEffect::Dial(epoch + 1)]);
    }
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!((pauses[0], pauses[11]), (5 * MS, 500 * MS));
    assert_eq!(bench.link.epoch(), Some(1));
}

#[test]
fn a_server_that_takes_writes_again_is_kept_and_the_attempt_beside_it_ends() {
    for (proof, takes) in [
        (Reply::Created, true),
        (Reply::Taken(redquorum_protocol::Holder::NotAsked), true),
        (error("OOM command not allowed"), false),
        (error("MASTERDOWN Link with MASTER is down"), false),
    ] {
        let mut bench = refused();
        let effects = vote(&mut bench, 1, 3, proof.clone());
        assert_eq!(bench.link.state() == LinkState::Up, takes, "{proof:?}");
        assert_eq!(effects == [LinkEffect::Close(2)], takes, "{proof:?}");
        bench.connect_to(2, "b");
        let epoch = if takes { 1 } else { 2 };
        assert_eq!(bench.link.epoch(), Some(epoch), "{proof:?}");
    }
    // The probe that follows an attempt shows it, too.
    let mut bench = refused();
    bench.connect_to(2, "a");
    bench.reply(1, Reply::Alive);
    assert_eq!(bench.look(), [LinkEffect::Close(2), probe()]);
    assert_eq!(bench.link.state(), LinkState::Up);
}

#[test]
fn replies_that_a_replica_gives_too_do_not_make_it_a_master() {
    let mut bench = refused();
    bench.keep(3, 3);
    bench.reply(1, Reply::Absent);
    bench.clean_up(3, 4);
    bench.reply(1, Reply::Absent);
    assert_eq!(bench.link.state(), LinkState::Refusing(Arc::from(READONLY)));
    // Nor do they come between two refusals.
    let mut bench = Bench::connected();
    vote(&mut bench, 1, 1, error(READONLY));
    bench.clean_up(1, 9);
    bench.reply(1, Reply::Absent);
    bench.look();
    assert_eq!(vote(&mut bench, 1, 2, error(READONLY)), [LinkEffect::Dial(2)]);
}

#[test]
fn errors_that_say_nothing_about_the_server_do_not_count() {
    let mut bench = Bench::connected();
    for number in 1..9 {
        let text = if number % 2 == 0 { "OOM command not allowed" } else { "READONLYISH x" };
        assert_eq!(vote(&mut bench, 1, number, error(text)), []);
    }
    for number in 11..19 {
        let reply = if number % 2 == 0 { error(READONLY) } else { Reply::Created };
        assert_eq!(vote(&mut bench, 1, number, reply), [], "a vote in between");
    }
    assert_eq!(bench.link.state(), LinkState::Up);
}

#[test]
fn a_login_that_is_missing_is_made_on_a_new_connection_to_the_same_server() {
    let mut bench = Bench::connected();
    for number in 1..=2 {
        vote(&mut bench, 1, number, error("NOAUTH Authentication required."));
    }
    bench.connect_to(2, "a");
    assert_eq!((bench.link.state(), bench.link.epoch()), (LinkState::Up, Some(2)));
    // If that is not enough, no request is needed to find out.
    bench.look();
    bench.reply(2, error("NOAUTH Authentication required."));
    assert!(matches!(bench.link.state(), LinkState::Refusing(_)));
    assert_eq!(bench.link.next_wake(), bench.now.plus(5 * MS));
}

#[test]
fn a_name_that_moves_between_two_replicas_is_not_followed_without_a_pause() {
    let mut bench = refused();
    let start = bench.now;
    for epoch in 2..20_u64 {
        let run = if epoch % 2 == 0 { "b" } else { "a" };
        bench.connect_to(epoch, run);
        assert_eq!(bench.look(), [LinkEffect::Close(epoch - 1), probe()]);
        bench.reply(epoch, error(READONLY));
        bench.now = bench.link.next_wake();
        bench.handle(LinkInput::Wake);
        assert!(bench.look().contains(&LinkEffect::Dial(epoch + 1)));
    }
    assert!(bench.now.since(start) > 3_000 * MS, "{:?}", bench.now.since(start));
}

#[test]
fn a_refusing_server_that_stalls_is_replaced_as_any_other() {
    let mut bench = refused();
    bench.set(3, 3);
    bench.pass(100 * MS);
    assert_eq!(bench.link.state(), LinkState::Stalled);
    bench.connect_to(2, "a");
    assert_eq!((bench.link.state(), bench.link.epoch()), (LinkState::Up, Some(2)));
    // If it answers first, it goes on to be of no use.
    let mut bench = refused();
    bench.set(3, 3);
    bench.pass(100 * MS);
    bench.look();
    bench.reply(1, error(READONLY));
    assert_eq!(bench.look(), [LinkEffect::Reply(3, error(READONLY))]);
    assert_eq!(bench.link.state(), LinkState::Refusing(Arc::from(READONLY)));
}

#[test]
fn a_connection_that_breaks_while_it_is_of_no_use_leaves_the_attempt_under_way() {
    let mut bench = refused();
    bench.close(1);
    assert_eq!(bench.look(), []);
    bench.connect_to(2, "a");
    assert_eq!((bench.link.state(), bench.link.epoch()), (LinkState::Up, Some(2)));
}

#[test]
fn a_connection_that_is_in_doubt_is_compared_with_a_new_one() {
    let mut bench = Bench::connected();
    bench.handle(LinkInput::Doubt);
    bench.handle(LinkInput::Doubt);
    assert_eq!(bench.look(), [LinkEffect::Dial(2)]);
    bench.connect_to(2, "a");
    assert_eq!(bench.look(), [LinkEffect::Close(2)], "the name leads where it led");
    assert_eq!((bench.link.state(), bench.link.next_wake()), (LinkState::Up, Time::NEVER));
    bench.handle(LinkInput::Doubt);
    bench.look();
    bench.close(3);
    assert_eq!(bench.link.state(), LinkState::Up, "the attempt failed, not the connection");
    bench.now = bench.link.next_wake();
    bench.handle(LinkInput::Wake);
    assert_eq!(bench.look(), [LinkEffect::Dial(4)]);
    bench.connect_to(4, "b");
    assert_eq!(bench.look(), [LinkEffect::Close(1)]);
    assert_eq!(bench.link.epoch(), Some(4));
    // Without an open connection an attempt is under way anyway.
    let mut bench = Bench::dialling();
    bench.look();
    bench.handle(LinkInput::Doubt);
    assert_eq!(bench.look(), []);
}
