//! Faults that make messages wait: hold, delay, trickle.

use std::time::{Duration, Instant};

use redquorum_rig::{
    network::{MessageFault, Rule, Side, Traffic},
    trials::Case,
};

use crate::support::{PING, PONG, Wire, about, on, request};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: held_requests_wait_and_are_let_go_in_order,
        plain: held_replies_wait_and_are_let_go_in_order,
        plain: held_requests_of_a_client_that_went_away_arrive,
        plain: held_requests_of_a_client_that_reset_arrive,
        plain: a_held_close_of_the_master_waits_behind_its_replies,
        plain: a_hold_keeps_new_connections_from_the_master,
        plain: a_hold_of_a_dead_master_resets_when_healed,
        plain: what_two_hold_waits_for_both,
        plain: delayed_messages_come_late_and_in_order,
        plain: a_delay_is_let_go_when_healed,
        plain: delays_add_up,
        plain: what_is_held_is_not_delayed_besides,
        plain: a_delayed_close_comes_late,
        plain: a_trickle_is_slow_and_cuts_messages,
        plain: a_trickle_is_over_when_healed,
        plain: a_fast_trickle_keeps_its_rate,
        plain: requests_that_were_cut_when_the_master_died_were_not_forwarded,
    ]
}

fn held_requests_wait_and_are_let_go_in_order() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let rule = wire.network.strike(about("GET", Side::Requests, MessageFault::Hold));
    client.send(&[PING, &request("GET k"), PING].concat());
    master.gets(PING);
    master.gets_nothing();
    master.send(PONG);
    client.gets(PONG);
    wire.network.heal(rule);
    master.gets(&request("GET k"));
    master.gets(PING);
    client.send(&request("GET k"));
    master.gets(&request("GET k"));
}

fn held_replies_wait_and_are_let_go_in_order() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let rule = Rule { from: 2, count: Some(1), ..on(Side::Replies, MessageFault::Hold) };
    let rule = wire.network.strike(rule);
    client.send(&PING.repeat(3));
    master.gets(&PING.repeat(3));
    master.send(b"+1\r\n+2\r\n+3\r\n");
    client.gets(b"+1\r\n");
    client.gets_nothing();
    wire.seen.wait_for("replied 3 PING", 1);
    wire.network.heal(rule);
    client.gets(b"+2\r\n+3\r\n");
    wire.seen.wait_for("struck reply 2 PING", 1);
}

fn held_requests_of_a_client_that_went_away_arrive() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let rule = wire.network.strike(about("SET", Side::Requests, MessageFault::Hold));
    client.send(&request("SET k v"));
    drop(client);
    master.gets_nothing();
    wire.network.heal(rule);
    master.gets(&request("SET k v"));
    master.is_finished();
    drop(master);
    wire.seen.wait_for("closed Client", 1);
}

fn held_requests_of_a_client_that_reset_arrive() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let rule = wire.network.strike(about("SET", Side::Requests, MessageFault::Hold));
    client.send(&request("SET k v"));
    wire.seen.wait_for("struck request 1 SET k v", 1);
    client.reset();
    master.gets_nothing();
    // The replies are lost, as the client is gone.
    master.send(PONG);
    wire.seen.wait_for("lost reply 1 SET k v by end", 1);
    wire.network.heal(rule);
    master.gets(&request("SET k v"));
    master.is_reset();
    wire.seen.wait_for("closed Client", 1);
}

fn a_held_close_of_the_master_waits_behind_its_replies() {
    for reset in [false, true] {
        let wire = Wire::new();
        let (mut client, mut master) = wire.pair();
        let rule = wire.network.strike(on(Side::Replies, MessageFault::Hold));
        client.send(PING);
        master.gets(PING);
        master.send(PONG);
        wire.seen.wait_for("struck reply 1 PING", 1);
        if reset {
            master.reset();
        } else {
            drop(master);
        }
        client.gets_nothing();
        wire.network.heal(rule);
        client.gets(PONG);
        if reset { client.is_reset() } else { client.is_finished() }
    }
}

fn a_hold_keeps_new_connections_from_the_master() {
    let wire = Wire::new();
    let rule = wire.network.strike(Rule::all(MessageFault::Hold));
    let mut client = wire.client();
    client.send(PING);
    assert!(wire.nobody_knocks());
    wire.network.heal(rule);
    wire.accept().gets(PING);
}

fn a_hold_of_a_dead_master_resets_when_healed() {
    let wire = Wire::new();
    wire.network.upstream(1, None);
    let rule = wire.network.strike(Rule::all(MessageFault::Hold));
    let mut client = wire.client();
    client.send(PING);
    client.gets_nothing();
    wire.network.heal(rule);
    client.is_reset();
    wire.seen.wait_for("lost request 1 PING by end", 1);
    wire.seen.wait_for("closed Refused", 1);
}

fn what_two_hold_waits_for_both() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let first = wire.network.strike(on(Side::Requests, MessageFault::Hold));
    let second = wire.network.strike(on(Side::Requests, MessageFault::Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 2);
    wire.network.heal(first);
    master.gets_nothing();
    wire.network.heal(second);
    wire.network.heal(second);
    master.gets(PING);
}

fn delayed_messages_come_late_and_in_order() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let delay = Duration::from_millis(60);
    wire.network.strike(about("GET", Side::Both, MessageFault::Delay(delay)));
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
    let at =
        |wanted: fn(&Traffic) -> bool| wire.seen.all().iter().find(|t| wanted(t)).unwrap().at();
    let late = at(|t| matches!(t, Traffic::Delivered { number: 2, .. }))
        - at(|t| matches!(t, Traffic::Replied { number: 2, .. }));
    assert!(late >= delay, "{late:?}");
}

fn a_delay_is_let_go_when_healed() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    let rule = wire.network.strike(on(Side::Requests, MessageFault::Delay(Duration::MAX)));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 1);
    master.gets_nothing();
    wire.network.heal(rule);
    master.gets(PING);
}

fn delays_add_up() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    for delay in [40, 60] {
        wire.network.strike(on(Side::Requests, MessageFault::Delay(Duration::from_millis(delay))));
    }
    let sent = Instant::now();
    client.send(PING);
    master.gets(PING);
    assert!(sent.elapsed() >= Duration::from_millis(100));
}

fn what_is_held_is_not_delayed_besides() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    wire.network.strike(on(Side::Requests, MessageFault::Delay(Duration::MAX)));
    let hold = wire.network.strike(on(Side::Requests, MessageFault::Hold));
    client.send(PING);
    wire.seen.wait_for("struck request 1 PING", 2);
    wire.network.heal(hold);
    master.gets(PING);
}

fn a_delayed_close_comes_late() {
    let wire = Wire::new();
    let (client, mut master) = wire.pair();
    let delay = Duration::from_millis(60);
    wire.network.strike(Rule::all(MessageFault::Delay(delay)));
    let closed = Instant::now();
    drop(client);
    master.is_finished();
    assert!(closed.elapsed() >= delay);
}

fn a_trickle_is_slow_and_cuts_messages() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    wire.network.strike(on(Side::Requests, MessageFault::Trickle(200)));
    let sent = Instant::now();
    client.send(&PING.repeat(2));
    master.gets(&PING[..3]);
    wire.seen.wait_for("struck request 2 PING", 1);
    assert!(!wire.seen.lines().contains(&"forwarded 1 PING".to_owned()), "it is not there in full");
    master.gets(&PING[3..]);
    master.gets(PING);
    // The first byte is sent at once, and the others 5 ms apart.
    assert!(sent.elapsed() >= Duration::from_millis(5 * (2 * PING.len() as u64 - 1) - 10));
    master.send(PONG);
    client.gets(PONG);
}

fn a_trickle_is_over_when_healed() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    for rate in [0, 1] {
        let rule = wire.network.strike(on(Side::Requests, MessageFault::Trickle(rate)));
        client.send(&PING.repeat(100));
        if rate > 0 {
            master.gets(&PING[..1]);
        }
        master.gets_nothing();
        wire.network.heal(rule);
        master.gets(&PING.repeat(100)[rate as usize..]);
    }
}

fn a_fast_trickle_keeps_its_rate() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    wire.network.strike(on(Side::Requests, MessageFault::Trickle(1_000_000)));
    let bytes = PING.repeat(100_000 / PING.len());
    let sent = Instant::now();
    client.send(&bytes);
    master.gets(&bytes);
    let took = sent.elapsed();
    assert!(took >= Duration::from_millis(85), "{took:?}");
}

fn requests_that_were_cut_when_the_master_died_were_not_forwarded() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    wire.network.strike(on(Side::Requests, MessageFault::Trickle(200)));
    client.send(PING);
    master.gets(&PING[..3]);
    master.reset();
    client.is_reset();
    wire.seen.wait_for("closed Master", 1);
    wire.seen.wait_for("lost request 1 PING by end", 1);
    assert!(!wire.seen.lines().contains(&"forwarded 1 PING".to_owned()));
}
