//! How connections begin and end: closes, resets, masters that are not there.

use redquorum_rig::trials::Case;

use crate::support::{Half, PING, PONG, Wire};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: a_close_comes_behind_what_was_sent_before,
        plain: a_reset_is_passed_on_behind_what_was_sent_before,
        plain: replies_to_a_client_that_closed_reset_the_master,
        plain: a_client_may_end_its_side_and_still_be_answered,
        plain: half_a_message_passes_when_its_sender_closes,
        plain: a_master_that_is_nowhere_resets_at_once,
        plain: a_master_that_moved_is_found,
        plain: a_master_that_is_not_listening_resets,
        plain: a_drop_closes_everything,
    ]
}

fn replies_to_a_client_that_closed_reset_the_master() {
    let wire = Wire::new();
    let (client, mut master) = wire.pair();
    drop(client);
    master.is_finished();
    master.send(PONG);
    wire.seen.wait_for("closed Client", 1);
    // Reading shows nothing: the stream has been at its end since the client closed.
    let error = std::io::Write::write_all(&mut master.0, PONG).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

fn a_close_comes_behind_what_was_sent_before() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
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

fn a_reset_is_passed_on_behind_what_was_sent_before() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
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

fn a_client_may_end_its_side_and_still_be_answered() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
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

fn half_a_message_passes_when_its_sender_closes() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    client.send(&PING[..7]);
    master.gets_nothing();
    drop(client);
    master.gets(&PING[..7]);
    master.is_finished();
    drop(master);
    wire.seen.wait_for("closed Client", 1);
    assert_eq!(wire.seen.lines(), ["opened", "closed Client"], "it was never forwarded");
}

fn a_master_that_is_nowhere_resets_at_once() {
    let wire = Wire::new();
    wire.network.upstream(1, None);
    wire.client().is_reset();
    wire.seen.wait_for("closed Refused", 1);
    let never = wire.network.listen("c1", 2).unwrap();
    Half::new(std::net::TcpStream::connect(never).unwrap()).is_reset();
    wire.seen.wait_for("closed Refused", 2);
}

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

fn a_master_that_is_not_listening_resets() {
    let Wire { network, master, address, seen } = Wire::new();
    drop(master);
    Half::new(std::net::TcpStream::connect(address).unwrap()).is_reset();
    seen.wait_for("closed Refused", 1);
    drop(network);
}

fn a_drop_closes_everything() {
    let wire = Wire::new();
    let (mut client, mut master) = wire.pair();
    client.send(PING);
    master.gets(PING);
    let Wire { network, address, seen, .. } = wire;
    drop(network);
    client.is_reset();
    master.is_reset();
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens");
    assert_eq!(seen.lines().last().unwrap(), "closed Network");
}
