//! Connections on which nothing was written for some time.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Bounds, Cause, LinkEffect, LinkInput, LinkState, Reply, Time};

use super::bench::*;

const IDLE: Duration = Duration::from_secs(15);

fn connected() -> Bench {
    let mut bench = Bench::exactly(Bounds::for_node_timeout(50 * MS));
    bench.connect(1);
    bench.look();
    bench
}

fn probe() -> TestEffect {
    LinkEffect::Write(Command::Probe)
}

#[test]
fn an_idle_connection_is_probed_and_a_busy_one_is_not() {
    let mut bench = connected();
    for _ in 0..3 {
        assert_eq!(bench.link.next_wake(), bench.now.plus(IDLE));
        bench.pass(IDLE - MS);
        assert_eq!(bench.look(), []);
        bench.pass(MS);
        assert_eq!(bench.look(), [probe()]);
        bench.reply(1, Reply::Alive);
        assert_eq!(bench.look(), []);
    }
    for number in 1..9 {
        bench.pass(IDLE - MS);
        assert_eq!(bench.look(), [], "a reply arrived in between");
        bench.set(number, number);
        bench.reply(1, Reply::Created);
        bench.look();
    }
    bench.handle(LinkInput::ShutDown);
    assert_eq!(bench.link.next_wake(), Time::NEVER);
    bench.pass(IDLE * 2);
    assert_eq!(bench.look(), [], "no vote will need it");
}

#[test]
fn a_connection_that_was_dropped_silently_is_replaced_before_a_request_needs_it() {
    let mut bench = connected();
    bench.pass(IDLE);
    assert_eq!(bench.look(), [probe()]);
    bench.pass(100 * MS);
    assert_eq!((bench.look(), bench.link.state()), (vec![LinkEffect::Dial(2)], LinkState::Stalled));
    bench.connect(2);
    assert_eq!(bench.look(), [LinkEffect::Close(1)], "a probe creates nothing: no kill");
    assert_eq!(bench.link.state(), LinkState::Up);
}

#[test]
fn an_idle_connection_to_a_demoted_master_is_left_without_a_request() {
    let mut bench = connected();
    let readonly = Reply::Unknown(Cause::Error(Arc::from("READONLY x")));
    for effects in [vec![], vec![LinkEffect::Dial(2)]] {
        bench.pass(IDLE);
        assert_eq!(bench.look(), [probe()]);
        bench.reply(1, readonly.clone());
        assert_eq!(bench.look(), effects);
    }
    // Errors of other kinds show that the connection works.
    let mut bench = connected();
    for _ in 0..3 {
        bench.pass(IDLE);
        bench.reply(1, Reply::Unknown(Cause::Error(Arc::from("OOM x"))));
        assert_eq!((bench.look(), bench.link.state()), (vec![probe()], LinkState::Up));
    }
}
