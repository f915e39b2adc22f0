//! The network of faults with real masters: behaviour that only a server can show.

use std::net::TcpStream;

use redquorum_rig::{
    Masters, RespValue,
    network::{MessageFault, Network, Rule, Side, TrafficEvent},
    trials::Case,
};

use crate::wire::{Half, PING, PONG, Seen, about, request};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_duplicate_is_executed_twice,
        with_masters: a_duplicate_is_sent_in_the_session_of_its_client,
        with_masters: a_killed_master_ends_its_connections_and_comes_back,
        with_masters: replies_of_a_real_master_are_parsed,
    ]
}

struct Setup {
    masters: Masters,
    network: Network,
    address: std::net::SocketAddr,
    seen: Seen,
}

impl Setup {
    fn new(masters: Masters) -> Self {
        let seen = Seen::default();
        let network = Network::start(seen.observer()).unwrap();
        network.upstream(1, Some(([127, 0, 0, 1], masters.port(1)).into()));
        let address = network.listen("c1", 1).unwrap();
        Self { masters, network, address, seen }
    }

    fn client(&self) -> Half {
        Half::new(TcpStream::connect(self.address).unwrap())
    }
}

fn a_duplicate_is_executed_twice() {
    let setup = Setup::new(Masters::start(1).unwrap());
    let mut client = setup.client();
    let rule = Rule { count: Some(1), ..about("INCR", Side::Both, MessageFault::Duplicate) };
    setup.network.strike(rule);
    client.send(&[PING, &request("INCR k")].concat());
    client.gets(PONG);
    client.gets(b":1\r\n");
    setup.seen.wait_for("replied 2 INCR k again", 1);
    let replies: Vec<_> = setup
        .seen
        .all()
        .into_iter()
        .filter_map(|traffic| match traffic.event {
            TrafficEvent::Replied { number: 2, reply, duplicate, .. } => Some((duplicate, reply)),
            _ => None,
        })
        .collect();
    assert!(replies.contains(&(false, RespValue::Integer(1))), "{replies:?}");
    assert!(replies.contains(&(true, RespValue::Integer(2))), "{replies:?}");
    setup.seen.wait_for("forwarded 2 INCR k again", 1);
    client.send(&request("INCR k"));
    client.gets(b":3\r\n");
}

fn a_duplicate_is_sent_in_the_session_of_its_client() {
    let masters = Masters::builder().count(1).password("secret").start().unwrap();
    let setup = Setup::new(masters);
    let mut client = setup.client();
    setup.network.strike(about("INCR", Side::Request, MessageFault::Duplicate));
    client.send(&[request("AUTH secret"), request("SELECT 3"), request("INCR k")].concat());
    client.gets(b"+OK\r\n+OK\r\n:1\r\n");
    setup.seen.wait_for("replied 3 INCR k again", 1);
    client.send(&request("GET k"));
    client.gets(b"$1\r\n2\r\n");
}

fn a_killed_master_ends_its_connections_and_comes_back() {
    let setup = Setup::new(Masters::start(1).unwrap());
    for round in 1..4 {
        let mut client = setup.client();
        client.send(PING);
        client.gets(PONG);
        setup.masters.kill(1).unwrap();
        client.is_finished();
        drop(client);
        setup.seen.wait_for("closed", round);
        setup.client().is_reset();
        setup.masters.restart(1).unwrap();
    }
}

fn replies_of_a_real_master_are_parsed() {
    let setup = Setup::new(Masters::start(1).unwrap());
    let mut client = setup.client();
    let script = "EVAL return{1,{2,{'x',{err='E_e'}}},false} 0";
    let commands =
        ["HELLO 2", "COMMAND", "INFO", script, "HELLO 3", "COMMAND", "CONFIG GET *", "NOPE"];
    for (index, command) in commands.iter().enumerate() {
        client.send(&request(command));
        setup.seen.wait_for(&format!("delivered {} {command}", index + 1), 1);
    }
    assert_eq!(setup.seen.replied().len(), commands.len(), "none was cut in two");
}
