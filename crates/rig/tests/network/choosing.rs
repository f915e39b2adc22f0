//! The messages that a rule strikes, and the order in which rules apply.

use std::{
    net::TcpStream,
    sync::{Arc, Mutex},
};

use redquorum_rig::{
    RespValue,
    network::{Message, MessageFault::*, Network, Rule, Side::*},
};

use crate::support::{Half, PING, Wire, about, both_are_reset, on, ping, request};

#[test]
fn a_rule_counts_over_all_its_links() {
    let wire = Wire::new();
    let (mut one, mut one_master) = wire.pair();
    let (mut two, mut two_master) = wire.pair();
    let rule = Rule { from: 2, count: Some(2), ..about("PING", Request, Hold) };
    let rule = wire.network.strike(rule);
    ping(&mut one, &mut one_master); // The first passes.
    two.send(&request("GET k")); // It does not match.
    two_master.gets(&request("GET k"));
    two.send(PING); // The second waits.
    two_master.gets_nothing();
    one.send(PING); // The third waits.
    one_master.gets_nothing();
    let (mut three, mut three_master) = wire.pair();
    ping(&mut three, &mut three_master); // The fourth passes.
    wire.seen.wait_for("struck request 2 PING", 2);
    wire.network.heal(rule);
    one_master.gets(PING);
    two_master.gets(PING);
}

#[test]
fn a_rule_strikes_only_its_nodes() {
    let wire = Wire::new();
    let second = wire.network.listen("c1", 2).unwrap();
    wire.network.upstream(2, Some(wire.master.local_addr().unwrap()));
    wire.network.strike(Rule { nodes: Some(vec![2]), ..Rule::all(Hold) });
    let (mut client, mut master) = wire.pair();
    ping(&mut client, &mut master);
    let mut other = Half::new(TcpStream::connect(second).unwrap());
    other.send(PING);
    assert!(wire.no_connection_arrives());
}

#[test]
fn a_rule_sees_the_message_the_command_and_the_reply() {
    let wire = Wire::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let matches = {
        let seen = Arc::clone(&seen);
        move |message: &Message<'_>| {
            seen.lock().unwrap().push((
                (message.client.to_owned(), message.node, message.connection),
                (message.side, message.number, message.command.to_vec()),
                message.reply.cloned(),
            ));
            false
        }
    };
    wire.network.strike(Rule { matches: Some(Arc::new(matches)), ..Rule::all(Drop) });
    let (mut client, mut master) = wire.pair();
    client.send(&request("GET k"));
    master.gets(&request("GET k"));
    master.send(b"$1\r\nv\r\n");
    client.gets(b"$1\r\nv\r\n");
    let command = vec![b"GET".to_vec(), b"k".to_vec()];
    let link = ("c1".to_owned(), 1, 1);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (link.clone(), (Request, 1, command.clone()), None),
            (link, (Reply, 1, command), Some(RespValue::Bulk(b"v".to_vec())))
        ]
    );
}

#[test]
fn a_message_that_was_dropped_does_not_count_for_younger_rules() {
    let wire = Wire::new();
    let old = wire.network.strike(Rule { count: Some(1), ..on(Request, Drop) });
    wire.network.strike(Rule { count: Some(1), ..on(Request, Hold) });
    let (mut one, _one_master) = wire.pair();
    one.send(PING);
    wire.seen.wait_for("lost request 1 PING", 1);
    let (mut two, mut two_master) = wire.pair();
    two.send(PING);
    two_master.gets_nothing();
    assert_eq!(wire.seen.lines().iter().filter(|line| line.starts_with("struck")).count(), 2);
    wire.network.heal(old);
    one.is_reset();
}

#[test]
fn a_rule_does_not_strike_messages_that_were_held_before() {
    let (wire, mut client, mut master, hold) = Wire::struck(on(Request, Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 1);
    wire.network.strike(on(Request, Drop));
    wire.network.heal(hold);
    master.gets(PING);
}

#[test]
fn the_observer_may_not_call_the_network() {
    let slot: Arc<Mutex<Option<Network>>> = Arc::default();
    let (sender, result) = std::sync::mpsc::channel();
    let inner = Arc::clone(&slot);
    let network = Network::start(move |_| {
        // The slot is empty when the network reports the end of the connection.
        let Some(network) = &*inner.lock().unwrap() else { return };
        let call = std::panic::AssertUnwindSafe(|| network.upstream(1, None));
        sender.send(std::panic::catch_unwind(call).is_err()).unwrap();
    })
    .unwrap();
    let address = network.listen("c1", 1).unwrap();
    *slot.lock().unwrap() = Some(network);
    let _client = TcpStream::connect(address).unwrap();
    assert!(result.recv().unwrap());
    let network = slot.lock().unwrap().take();
    drop(network);
}

#[test]
fn a_panic_of_the_observer_is_not_a_hang() {
    let network = Network::start(|_| panic!("the observer of a test")).unwrap();
    let address = network.listen("c1", 1).unwrap();
    let mut client = Half::new(TcpStream::connect(address).unwrap());
    assert!(std::io::Read::read(&mut client.0, &mut [0]).is_ok_and(|count| count == 0));
    let call = || network.upstream(1, None);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    drop(network);
}

#[test]
fn a_rule_counts_replies_of_a_protocol_that_is_not_parsed() {
    let mut wire = Wire::new();
    wire.address = wire.network.listen_opaque("c1", 1).unwrap();
    let commit = |message: &Message<'_>| message.command.iter().any(|it| it.ends_with(b"COMMIT"));
    let matches = Some(Arc::new(commit) as Arc<_>);
    wire.network.strike(Rule { matches, from: 2, count: Some(1), ..on(Reply, Reset) });
    let (mut client, mut master) = wire.pair();
    // RESP would wait for the rest of the line.
    master.send(b"+greeting");
    client.gets(b"+greeting");
    for request in [b"\x03 BEGIN", b"\x03COMMIT", b"\x03 BEGIN"] {
        client.send(request);
        master.gets(request);
        master.send(b"ok");
        client.gets(b"ok");
    }
    client.send(b"\x03COMMIT");
    master.gets(b"\x03COMMIT");
    master.send(b"ok");
    both_are_reset(&mut client, &mut master);
    wire.seen.wait_for("closed", 1);
    let opaque = ["replied 0", "replied 1 \x03 BEGIN", "replied 2 \x03COMMIT"];
    assert_eq!(wire.seen.replied()[..3], opaque);
    wire.seen.wait_for("forwarded 4 \x03COMMIT", 1);
    wire.seen.wait_for("lost reply 4 \x03COMMIT", 1);
    let (mut client, mut master) = wire.pair();
    client.send(b"\x03COMMIT");
    master.gets(b"\x03COMMIT");
    master.send(b"ok");
    client.gets(b"ok");
}
