//! What only processes have: ports that stay the same, process ids, and Unix sockets.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    time::Duration,
};

use redquorum_rig::{Masters, trials::Case};

use crate::support::Owner;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_unix_socket_answers,
        with_masters: a_taken_port_is_passed_over,
        with_masters: the_port_of_a_killed_master_is_not_given_away,
        with_masters: a_server_of_another_rig_is_not_used,
    ]
}

fn a_unix_socket_answers() {
    let masters = Masters::builder().count(2).unix_socket().password("a b").start().unwrap();
    let path = masters.socket(2).unwrap();
    assert_eq!(masters.socket_url(2).unwrap(), format!("unix://{}?pass=a%20b", path.display()));
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"AUTH \"a b\"\r\nPING\r\n").unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n+PONG\r\n");
    assert_eq!(Masters::start(1).unwrap().socket_url(1), None);
}

fn a_taken_port_is_passed_over() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port();
    // The rig starts the server on that port without a check, as if the port was lost in between.
    let masters = Masters::builder().count(2).ports([taken]).start().unwrap();
    assert!((1..=2).all(|node| masters.port(node) != taken));
    assert!((1..=2).all(|node| masters.ask(node, "PING").is_ok()));
}

fn the_port_of_a_killed_master_is_not_given_away() {
    let masters = Masters::start(1).unwrap();
    masters.kill(1).unwrap();
    let others = Masters::builder().count(1).ports([masters.port(1)]).start().unwrap();
    assert_ne!(others.port(1), masters.port(1));
    masters.restart(1).unwrap();
    assert!(masters.ask(1, "PING").is_ok() && others.ask(1, "PING").is_ok());
}

fn a_server_of_another_rig_is_not_used() {
    // This owner uses another temporary directory, so it does not claim the port there.
    let mut owner = Owner::binary("1", "another_rig");
    let url = owner.read_until("redis://").pop().unwrap();
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let masters = Masters::builder().count(1).ports([port]).start().unwrap();
    assert_ne!(masters.port(1), port, "it answers PING, but is not ours");
}
