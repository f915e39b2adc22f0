//! Faults that make messages wait: hold, delay, trickle.

use std::time::{Duration, Instant};

use redquorum_rig::network::{MessageFault::*, Rule, Side::*, TrafficEvent};

use crate::support::{PING, Wire, about, on, ping, pong, request};

#[test]
fn a_hold_keeps_new_connections_from_the_master() {
    let wire = Wire::new();
    let rule = wire.network.strike(Rule::all(Hold));
    let mut client = wire.client();
    client.send(PING);
    assert!(wire.no_connection_arrives());
    wire.network.heal(rule);
    wire.accept().gets(PING);
}

#[test]
fn a_hold_of_a_dead_master_resets_when_healed() {
    let wire = Wire::new();
    wire.network.upstream(1, None);
    let rule = wire.network.strike(Rule::all(Hold));
    let mut client = wire.client();
    client.send(PING);
    client.gets_nothing();
    wire.network.heal(rule);
    client.is_reset();
    wire.seen.wait_for("lost request 1 PING", 1);
    wire.seen.wait_for("closed", 1);
}

#[test]
fn a_message_that_two_rules_hold_waits_for_both() {
    let (wire, mut client, mut master, first) = Wire::struck(on(Request, Hold));
    let second = wire.network.strike(on(Request, Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 2);
    wire.network.heal(first);
    master.gets_nothing();
    wire.network.heal(second);
    wire.network.heal(second);
    master.gets(PING);
}

#[test]
fn delayed_messages_come_late_and_in_order() {
    let (wire, mut client, mut master) = Wire::open();
    let delay = Duration::from_millis(60);
    wire.network.strike(about("GET", Both, Delay(delay)));
    let sent = Instant::now();
    client.send(&[PING, &request("GET k"), PING].concat());
    master.gets(PING);
    master.gets(&request("GET k"));
    assert!(sent.elapsed() >= delay);
    master.gets(PING);
    let sent = Instant::now();
    master.send(b"+1\r\n+2\r\n+3\r\n");
    client.gets(b"+1\r\n");
    client.gets(b"+2\r\n+3\r\n");
    assert!(sent.elapsed() >= delay);
    wire.seen.wait_for("delivered 2 GET k", 1);
    let at = |wanted: fn(&TrafficEvent) -> bool| {
        wire.seen.all().iter().find(|t| wanted(&t.event)).unwrap().at
    };
    let late = at(|t| matches!(t, TrafficEvent::Delivered { number: 2, .. }))
        - at(|t| matches!(t, TrafficEvent::Replied { number: 2, .. }));
    assert!(late >= delay, "{late:?}");
}

#[test]
fn delays_add_up() {
    let (wire, mut client, mut master) = Wire::open();
    for delay in [40, 60] {
        wire.network.strike(on(Request, Delay(Duration::from_millis(delay))));
    }
    let sent = Instant::now();
    ping(&mut client, &mut master);
    assert!(sent.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_held_message_is_not_delayed_too() {
    let (wire, mut client, mut master, _) = Wire::struck(on(Request, Delay(Duration::MAX)));
    let hold = wire.network.strike(on(Request, Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 2);
    wire.network.heal(hold);
    master.gets(PING);
}

#[test]
fn a_delayed_close_comes_late() {
    let delay = Duration::from_millis(60);
    let (_wire, client, mut master, _) = Wire::struck(Rule::all(Delay(delay)));
    let closed = Instant::now();
    drop(client);
    master.is_finished();
    assert!(closed.elapsed() >= delay);
}

#[test]
fn a_trickle_is_slow_and_cuts_messages() {
    let (wire, mut client, mut master, _) = Wire::struck(on(Request, Trickle(200)));
    let sent = Instant::now();
    client.send(&PING.repeat(2));
    master.gets(&PING[..3]);
    wire.seen.wait_for("struck request 2 PING", 1);
    assert!(!wire.seen.lines().contains(&"forwarded 1 PING".to_owned()), "it is not there in full");
    master.gets(&PING[3..]);
    master.gets(PING);
    // The first byte is sent at once, and the others 5 ms apart.
    assert!(sent.elapsed() >= Duration::from_millis(5 * (2 * PING.len() as u64 - 1) - 10));
    pong(&mut client, &mut master);
}

#[test]
fn a_trickle_is_over_when_healed() {
    let (wire, mut client, mut master, rule) = Wire::struck(on(Request, Trickle(1)));
    client.send(&PING.repeat(100));
    master.gets(&PING[..1]);
    master.gets_nothing();
    wire.network.heal(rule);
    master.gets(&PING.repeat(100)[1..]);
}

#[test]
fn a_fast_trickle_keeps_its_rate() {
    let (_wire, mut client, mut master, _) = Wire::struck(on(Request, Trickle(1_000_000)));
    let bytes = PING.repeat(100_000 / PING.len());
    let sent = Instant::now();
    client.send(&bytes);
    master.gets(&bytes);
    let took = sent.elapsed();
    assert!(took >= Duration::from_millis(85), "{took:?}");
}

#[test]
fn requests_that_were_cut_when_the_master_died_were_not_forwarded() {
    let (wire, mut client, mut master, _) = Wire::struck(on(Request, Trickle(200)));
    client.send(PING);
    master.gets(&PING[..3]);
    master.reset();
    client.is_reset();
    wire.seen.wait_for("closed", 1);
    wire.seen.wait_for("lost request 1 PING", 1);
    assert!(!wire.seen.lines().contains(&"forwarded 1 PING".to_owned()));
}
