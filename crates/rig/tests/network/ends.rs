//! How connections begin and end: closes, resets, masters that are not there.

use std::net::{TcpListener, TcpStream};

use crate::support::{Half, PING, PONG, Wire, both_are_reset, ping, pong};

#[test]
fn replies_to_a_client_that_closed_reset_the_master() {
    let (wire, client, mut master) = Wire::open();
    drop(client);
    master.is_finished();
    master.send(PONG);
    wire.seen.wait_for("closed", 1);
    // Reading shows nothing: the stream has been at its end since the client closed.
    let error = std::io::Write::write_all(&mut master.0, PONG).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn an_end_passes_behind_earlier_data() {
    let (pings, pongs) = (PING.repeat(1000), PONG.repeat(1000));
    for reset in [false, true] {
        let (wire, mut client, mut master) = Wire::open();
        client.send(&pings);
        // A reset would take what the system has not delivered yet.
        if reset {
            master.gets(&pings);
        }
        client.end(reset);
        if !reset {
            master.gets(&pings);
        }
        master.has_ended(reset);
        drop(master);
        wire.seen.wait_for("closed", 1);

        let (mut client, mut master) = wire.pair();
        master.send(&pongs);
        if reset {
            client.gets(&pongs);
        }
        master.end(reset);
        if !reset {
            client.gets(&pongs);
        }
        client.has_ended(reset);
        drop(client);
        wire.seen.wait_for("closed", 2);
    }
}

#[test]
fn a_client_may_end_its_side_and_still_be_answered() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(PING);
    client.finish();
    master.gets(PING);
    master.is_finished();
    pong(&mut client, &mut master);
    drop(master);
    client.is_finished();
    wire.seen.wait_for("closed", 1);
}

#[test]
fn half_a_message_passes_when_its_sender_closes() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(&PING[..7]);
    master.gets_nothing();
    drop(client);
    master.gets(&PING[..7]);
    master.is_finished();
    drop(master);
    wire.seen.wait_for("closed", 1);
    assert_eq!(wire.seen.lines(), ["opened", "closed"], "it was never forwarded");
}

#[test]
fn a_master_that_is_not_there_resets_at_once() {
    let wire = Wire::new();
    wire.network.upstream(1, None);
    let never = wire.network.listen("c1", 2).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    wire.network.upstream(3, Some(silent));
    let not_listening = wire.network.listen("c1", 3).unwrap();
    for (address, times) in [(wire.address, 1), (never, 2), (not_listening, 3)] {
        Half::new(TcpStream::connect(address).unwrap()).is_reset();
        wire.seen.wait_for("closed", times);
    }
}

#[test]
fn a_master_that_moved_is_found() {
    let mut wire = Wire::new();
    let (mut old, mut old_master) = wire.pair();
    wire.master = TcpListener::bind("127.0.0.1:0").unwrap();
    wire.network.upstream(1, Some(wire.master.local_addr().unwrap()));
    let (mut client, mut master) = wire.pair();
    ping(&mut client, &mut master);
    ping(&mut old, &mut old_master);
}

#[test]
fn a_drop_closes_everything() {
    let (wire, mut client, mut master) = Wire::open();
    ping(&mut client, &mut master);
    let Wire { network, address, seen, .. } = wire;
    drop(network);
    both_are_reset(&mut client, &mut master);
    assert!(TcpStream::connect(address).is_err(), "no listener is left");
    assert_eq!(seen.lines().last().unwrap(), "closed");
}
