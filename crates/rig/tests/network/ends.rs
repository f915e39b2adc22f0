//! How connections begin and end: closes, resets, masters that are not there.

use crate::support::{Half, PING, PONG, Wire};

#[test]
fn replies_to_a_client_that_closed_reset_the_master() {
    let (wire, client, mut master) = Wire::open();
    drop(client);
    master.is_finished();
    master.send(PONG);
    wire.seen.wait_for("closed Client", 1);
    // Reading shows nothing: the stream has been at its end since the client closed.
    let error = std::io::Write::write_all(&mut master.0, PONG).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_close_passes_behind_earlier_data() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(&PING.repeat(1000));
    drop(client);
    master.gets(&PING.repeat(1000));
    master.is_finished();

    let (mut client, mut master) = wire.pair();
    master.send(&PONG.repeat(1000));
    drop(master);
    client.gets(&PONG.repeat(1000));
    client.is_finished();
    drop(client);
    wire.seen.wait_for("closed Master", 1);
}

#[test]
fn a_reset_passes_behind_earlier_data() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(PING);
    master.gets(PING);
    client.reset();
    master.is_reset();
    wire.seen.wait_for("closed Client", 1);

    let (mut client, mut master) = wire.pair();
    master.send(PONG);
    client.gets(PONG);
    master.reset();
    client.is_reset();
    wire.seen.wait_for("closed Master", 1);
}

#[test]
fn a_client_may_end_its_side_and_still_be_answered() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(PING);
    client.finish();
    master.gets(PING);
    master.is_finished();
    master.send(PONG);
    client.gets(PONG);
    drop(master);
    client.is_finished();
    wire.seen.wait_for("closed Client", 1);
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
    wire.seen.wait_for("closed Client", 1);
    assert_eq!(wire.seen.lines(), ["opened", "closed Client"], "it was never forwarded");
}

#[test]
fn a_master_that_is_nowhere_resets_at_once() {
    let wire = Wire::new();
    wire.network.upstream(1, None);
    wire.client().is_reset();
    wire.seen.wait_for("closed Refused", 1);
    let never = wire.network.listen("c1", 2).unwrap();
    Half::new(std::net::TcpStream::connect(never).unwrap()).is_reset();
    wire.seen.wait_for("closed Refused", 2);
}

#[test]
fn a_master_that_moved_is_found() {
    let mut wire = Wire::new();
    let (mut old, mut old_master) = wire.pair();
    wire.master = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    wire.network.upstream(1, Some(wire.master.local_addr().unwrap()));
    let (mut client, mut master) = wire.pair();
    for (client, master) in [(&mut client, &mut master), (&mut old, &mut old_master)] {
        client.send(PING);
        master.gets(PING);
    }
}

#[test]
fn a_master_that_is_not_listening_resets() {
    let Wire { network, master, address, seen } = Wire::new();
    drop(master);
    Half::new(std::net::TcpStream::connect(address).unwrap()).is_reset();
    seen.wait_for("closed Refused", 1);
    drop(network);
}

#[test]
fn a_drop_closes_everything() {
    let (wire, mut client, mut master) = Wire::open();
    client.send(PING);
    master.gets(PING);
    let Wire { network, address, seen, .. } = wire;
    drop(network);
    client.is_reset();
    master.is_reset();
    assert!(std::net::TcpStream::connect(address).is_err(), "no listener is left");
    assert_eq!(seen.lines().last().unwrap(), "closed Network");
}
