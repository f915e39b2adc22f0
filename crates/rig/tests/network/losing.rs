//! Faults that lose messages or connections: drop, reset, half-open.

use redquorum_rig::network::{End, MessageFault::*, Rule, Side::*};

use crate::support::{PING, Wire, both_are_reset, on, ping, pong};

#[test]
fn a_partition_loses_closes_and_new_connections_too() {
    let (wire, client, mut master) = Wire::open();
    let (mut other, other_master) = wire.pair();
    let (mut idle, mut idle_master) = wire.pair();
    let rule = wire.network.strike(Rule::all(Drop));
    drop(client);
    master.gets_nothing();
    drop(other_master);
    other.gets_nothing();
    let mut new = wire.client();
    assert!(wire.no_connection_arrives(), "the handshake is lost");
    new.send(PING);
    wire.seen.wait_for("lost request 1 PING", 1);
    new.gets_nothing();
    wire.network.heal(rule);
    both_are_reset(&mut other, &mut master);
    new.is_reset();
    wire.seen.wait_for("closed", 1);
    ping(&mut idle, &mut idle_master);
}

#[test]
fn a_drop_of_one_message_leaves_new_connections_alone() {
    let wire = Wire::new();
    let rule = wire.network.strike(Rule { count: Some(1), ..on(Request, Drop) });
    let (mut struck, mut struck_master) = wire.pair();
    struck.send(PING);
    wire.seen.wait_for("lost request 1 PING", 1);
    let (mut client, mut master) = wire.pair();
    ping(&mut client, &mut master);
    struck_master.gets_nothing();
    wire.network.heal(rule);
    struck.is_reset();
    pong(&mut client, &mut master);
}

#[test]
fn a_client_that_gives_up_in_a_partition_leaves_nothing_behind() {
    let wire = Wire::new();
    let rule = wire.network.strike(Rule::all(Drop));
    for _ in 0..20 {
        wire.client().send(PING);
    }
    wire.seen.wait_for("closed", 20);
    wire.network.heal(rule);
    assert!(wire.no_connection_arrives());
}

#[test]
fn strange_bytes_are_dropped_by_a_partition() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(b"*strange\r\n");
    master.gets(b"*strange\r\n");
    let rule = wire.network.strike(Rule::all(Drop));
    client.send(b"stranger");
    master.gets_nothing();
    wire.network.heal(rule);
    client.is_reset();
}

#[test]
fn a_reset_strikes_open_connections_at_once_and_only_once() {
    let (wire, mut client, mut master) = Wire::open();
    let other = wire.network.listen("c2", 1).unwrap();
    let mut spared = crate::support::Half::new(std::net::TcpStream::connect(other).unwrap());
    let mut spared_master = wire.accept();
    let rule = Rule { clients: Some(vec!["c1".to_owned()]), ..Rule::all(Reset) };
    let rule = wire.network.strike(rule);
    both_are_reset(&mut client, &mut master);
    ping(&mut spared, &mut spared_master);
    let (mut client, mut master) = wire.pair();
    ping(&mut client, &mut master);
    wire.network.heal(rule);
    pong(&mut client, &mut master);
    wire.seen.wait_for("struck connection", 1);
}

#[test]
fn held_messages_arrive_on_a_half_open_connection() {
    let (wire, mut client, mut master, hold) = Wire::struck(on(Request, Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 1);
    let cut = wire.network.strike(Rule::all(HalfOpen(End::Client)));
    client.is_reset();
    master.gets_nothing();
    wire.network.heal(hold);
    master.gets(PING);
    master.gets_nothing();
    wire.network.heal(cut);
    master.is_reset();
}
