//! Without a rule, every message passes, in order, and the observer receives it.

use std::time::Duration;

use crate::support::{Half, PING, PONG, Wire, ping, pong, request};

#[test]
fn a_round_trip_is_reported_in_order() {
    let (wire, mut client, mut master) = Wire::open();
    ping(&mut client, &mut master);
    pong(&mut client, &mut master);
    drop(client);
    master.is_finished();
    drop(master);
    wire.seen.wait_for("closed", 1);
    assert_eq!(
        wire.seen.lines(),
        ["opened", "forwarded 1 PING", "replied 1 PING", "delivered 1 PING", "closed"]
    );
    let all = wire.seen.all();
    assert!(all.is_sorted_by_key(|traffic| traffic.at));
    for traffic in &all {
        assert_eq!((&*traffic.client, traffic.node, traffic.connection), ("c1", 1, 1));
    }
}

#[test]
fn pipelined_messages_pass_wherever_they_are_cut() {
    let wire = Wire::new();
    let requests = [request("SET k v"), b"PING\r\n".to_vec(), request("GET k")].concat();
    let replies = b"+OK\r\n+PONG\r\n*2\r\n$1\r\nv\r\n*1\r\n:-7\r\n";
    // With this pause, the network reads the parts separately most of the time.
    let in_two = |half: &mut Half, bytes: &[u8], cut: usize| {
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        for part in [first, second] {
            half.send(part);
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    for cut in 0..requests.len().max(replies.len()) {
        let (mut client, mut master) = wire.pair();
        in_two(&mut client, &requests, cut);
        master.gets(&requests);
        in_two(&mut master, replies, cut);
        client.gets(replies);
        wire.seen.wait_for("forwarded 3 GET k", cut + 1);
        wire.seen.wait_for("replied 2 PING", cut + 1);
        wire.seen.wait_for("delivered 3 GET k", cut + 1);
    }
}

#[test]
fn bytes_that_are_not_resp_pass_unchanged() {
    let (wire, mut client, mut master) = Wire::open();
    ping(&mut client, &mut master);
    client.send(b"*nonsense\r\nmore");
    master.gets(b"*nonsense\r\nmore");
    master.send(b"HTTP/1.1 400 no");
    master.send(b"\r\n");
    client.gets(b"HTTP/1.1 400 no\r\n");
    client.send(b" and more");
    master.gets(b" and more");
    assert_eq!(wire.seen.lines(), ["opened", "forwarded 1 PING"]);
}

#[test]
fn replies_without_a_request_have_no_command() {
    let (wire, mut client, mut master) = Wire::open();
    master.send(b"-ERR max number of clients reached\r\n");
    client.gets(b"-ERR max number of clients reached\r\n");
    client.send(&request("SUBSCRIBE a b"));
    master.gets(&request("SUBSCRIBE a b"));
    let confirmation = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    master.send(confirmation);
    client.gets(confirmation);
    ping(&mut client, &mut master);
    master.send(confirmation);
    client.gets(confirmation);
    wire.seen.wait_for("delivered 0", 2);
    assert_eq!(wire.seen.replied(), ["replied 0", "replied 1 SUBSCRIBE a b", "replied 0"]);
}

#[test]
fn replies_are_matched_again_behind_resp3_pushes() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(&[request("HELLO 3"), request("SUBSCRIBE a b"), request("GET k")].concat());
    // The last push comes when no request waits for a reply.
    let replies = b"%1\r\n+proto\r\n:3\r\n>3\r\n+message\r\n+a\r\n+w\r\n\
        >3\r\n+subscribe\r\n+a\r\n:1\r\n>3\r\n+message\r\n+a\r\n+x\r\n\
        >3\r\n+subscribe\r\n+b\r\n:2\r\n$1\r\nv\r\n>3\r\n+message\r\n+a\r\n+y\r\n";
    master.send(replies);
    client.gets(replies);
    wire.seen.wait_for("delivered 0 message a y", 1);
    assert_eq!(
        wire.seen.replied(),
        [
            "replied 1 HELLO 3",
            "replied 0 message a w",
            "replied 2 SUBSCRIBE a b",
            "replied 0 message a x",
            "replied 0 subscribe b",
            "replied 3 GET k",
            "replied 0 message a y"
        ]
    );
}

#[test]
fn four_hundred_connections_pass_at_once() {
    let wire = Wire::new();
    let mut pairs: Vec<_> = (0..400).map(|_| wire.pair()).collect();
    for (client, _) in &mut pairs {
        client.send(PING);
    }
    for (_, master) in &mut pairs {
        master.gets(PING);
        master.send(PONG);
    }
    for (client, _) in &mut pairs {
        client.gets(PONG);
    }
    wire.seen.wait_for("delivered 1 PING", 400);
    drop(pairs);
    wire.seen.wait_for("closed", 1);
}
