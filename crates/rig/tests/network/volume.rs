//! High volume: large messages, many messages, and rules that come and go meanwhile.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use redquorum_rig::network::{
    MessageFault::{self, *},
    RuleId,
    Side::*,
};

use crate::support::{PING, Wire, on, request};

#[test]
fn a_large_message_passes_unparsed() {
    const SIZE: usize = 40 * 1024 * 1024;
    let (wire, mut client, mut master) = Wire::open();
    let sender = std::thread::spawn(move || {
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${SIZE}\r\n").as_bytes());
        client.send(&vec![b'x'; SIZE]);
        client.send(b"\r\n");
        client
    });
    master.gets(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${SIZE}\r\n").as_bytes());
    master.gets(&vec![b'x'; SIZE]);
    master.gets(b"\r\n");
    let mut client = sender.join().unwrap();
    client.send(PING);
    master.gets(PING);
    master.send(b"+OK\r\n+PONG\r\n");
    client.gets(b"+OK\r\n+PONG\r\n");
    wire.seen.wait_for("delivered 0", 2);
    assert!(!wire.seen.lines().iter().any(|line| line.starts_with("forwarded")));
}

#[test]
fn held_messages_are_bounded_by_back_pressure() {
    const SIZE: usize = 100 * 1024 * 1024;
    let wire = Wire::observed_by(|_| {});
    for strange in [false, true] {
        let (mut client, mut master) = wire.pair();
        let rule = wire.network.strike(on(Request, Hold));
        let start = if strange { b"*strange\r\n".to_vec() } else { PING.to_vec() };
        let unit = if strange { vec![b'?'; 4096] } else { request(&"x".repeat(4096)) };
        let all = [start, unit.repeat(SIZE / unit.len())].concat();
        client.0.set_nonblocking(true).unwrap();
        let (mut sent, mut idle) = (0, Instant::now());
        while idle.elapsed() < Duration::from_millis(200) {
            match client.0.write(&all[sent..]) {
                Ok(count) => (sent, idle) = (sent + count, Instant::now()),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        // The limit covers the buffers of the network, and those of the sockets on both sides.
        assert!(sent < 48 * 1024 * 1024, "{sent} bytes went in");
        wire.network.heal(rule);
        client.0.set_nonblocking(false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| client.send(&all[sent..]));
            for part in all.chunks(1024 * 1024) {
                let mut got = vec![0; part.len()];
                master.0.read_exact(&mut got).unwrap();
                assert!(got == part);
            }
        });
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    Strike(MessageFault),
    Heal(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        3 => (1..3000_usize).prop_map(|size| request(&format!("SET key {}", "x".repeat(size)))),
        1 => prop::collection::vec(any::<u8>(), 0..3000),
        1 => Just(b"*2\r\n$1\r\n".to_vec()),
    ];
    let fault = prop_oneof![
        Just(Hold),
        (0..4u64).prop_map(|millis| Delay(Duration::from_millis(millis))),
        (20_000..2_000_000u32).prop_map(Trickle),
    ];
    let step = prop_oneof![
        3 => bytes.prop_map(Step::Send),
        1 => fault.prop_map(Step::Strike),
        1 => any::<usize>().prop_map(Step::Heal),
    ];
    prop::collection::vec(step, 1..20)
}

#[test]
fn all_bytes_arrive_unchanged_behind_faults_that_make_them_wait() {
    let wire = Wire::observed_by(|_| {});
    // It stores no failures, because it has no path of the source file.
    let config = Config { failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&(steps(), any::<bool>()), |(steps, replies)| {
        let (client, master) = wire.pair();
        let (side, mut sender, mut receiver) =
            if replies { (Reply, master, client) } else { (Request, client, master) };
        let mut sent = Vec::new();
        let mut rules: Vec<RuleId> = Vec::new();
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    sender.send(&bytes);
                    sent.extend(bytes);
                }
                Step::Strike(fault) => rules.push(wire.network.strike(on(side, fault))),
                Step::Heal(which) if !rules.is_empty() => {
                    wire.network.heal(rules.swap_remove(which % rules.len()));
                }
                Step::Heal(_) => {}
            }
        }
        sender.finish();
        rules.into_iter().for_each(|rule| wire.network.heal(rule));
        let mut got = Vec::new();
        receiver.0.read_to_end(&mut got).unwrap();
        prop_assert!(got == sent);
        Ok(())
    });
    run.unwrap();
}
