//! The properties and behaviour of masters: replicas, files, memory, clocks, ends.

use std::time::Duration;

use redquorum_rig::trials::Case;
use redquorum_rig::{ClockChange, Masters, Persistence, cases, clocks_supported};

use crate::diagnosis::{examine, name, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: five_good_masters_have_no_finding_and_keep_no_key,
        with_masters: a_replica_and_its_master_are_reported,
        with_masters: writes_that_a_power_loss_takes_are_reported,
        with_masters: a_policy_that_evicts_keys_of_locks_is_an_error_with_maxmemory,
        with_masters: one_server_under_two_urls_is_named_by_both,
        with_masters: a_dead_and_a_hung_master_are_distinguished_and_the_quorum_is_gone,
        with_masters: a_wrong_clock_and_a_fast_clock_are_reported,
        with_masters: a_reply_after_the_node_timeout_is_an_error,
    ]
}

fn durable(count: usize) -> Masters {
    Masters::builder().count(count).persistence(Persistence::AofAlways).start().unwrap()
}

fn five_good_masters_have_no_finding_and_keep_no_key() {
    let masters = durable(5);
    let (code, diagnosis) = examine(&masters.urls(), &["--prefix", "lock:"]);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert_eq!((diagnosis.schema, diagnosis.masters.len()), (1, 5));
    assert!(diagnosis.masters.iter().all(|master| master.reached));
    for node in 1..=5 {
        let left = masters.ask(node, "DBSIZE").unwrap();
        assert_eq!(left, redquorum_rig::RespValue::Integer(0));
    }
    let (code, printed, _) = run(&masters.urls());
    assert_eq!(code, 0, "{printed}");
    let last = printed.lines().last().unwrap();
    assert!(last.starts_with("5 masters: 0 errors, "), "{printed}");
    let places: Vec<usize> =
        masters.urls().iter().map(|url| printed.find(&name(url)).unwrap()).collect();
    assert!(places.is_sorted(), "{printed}");
}

fn a_replica_and_its_master_are_reported() {
    let masters = durable(3);
    let follow = format!("REPLICAOF 127.0.0.1 {}", masters.port(1));
    masters.ask(2, &follow).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let attached = || {
        let info = masters.ask(1, "INFO replication").unwrap();
        info.text().unwrap().contains("state=online")
    };
    while !attached() {
        assert!(std::time::Instant::now() < deadline, "it never follows");
        std::thread::sleep(Duration::from_millis(20));
    }
    let urls = masters.urls();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("warn", "replicas", Some(&name(&urls[0])), "1 replica follows it", "detach");
    diagnosis.has("error", "role", Some(&name(&urls[1])), "it is a replica", "REPLICAOF NO ONE");
    // Two masters of three are enough, and there is no other problem.
    assert_eq!(diagnosis.bad().len(), 2, "{diagnosis:#?}");
}

fn writes_that_a_power_loss_takes_are_reported() {
    let masters =
        Masters::builder().count(1).persistence(Persistence::AofEverysec).start().unwrap();
    let urls = masters.urls();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 0);
    diagnosis.has("warn", "persistence", Some(&name(&urls[0])), "`everysec`", "appendfsync always");
    diagnosis.has("warn", "number", None, "one master", "three or five");
    let masters = Masters::start(1).unwrap();
    let (_, diagnosis) = examine(&masters.urls(), &[]);
    let master = name(&masters.url(1));
    diagnosis.has("warn", "persistence", Some(&master), "a restart forgets", "appendonly yes");
}

fn a_policy_that_evicts_keys_of_locks_is_an_error_with_maxmemory() {
    let masters = durable(3);
    let urls = masters.urls();
    masters.ask(2, "CONFIG SET maxmemory-policy volatile-lru").unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 0);
    diagnosis.has("warn", "eviction", Some(&name(&urls[1])), "volatile-lru", "noeviction");
    masters.ask(2, "CONFIG SET maxmemory 100mb").unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "eviction", Some(&name(&urls[1])), "volatile-lru", "noeviction");
}

fn one_server_under_two_urls_is_named_by_both() {
    let masters = durable(2);
    let again = format!("redis://localhost:{}", masters.port(1));
    let urls = [masters.urls(), vec![again.clone()]].concat();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    let both = format!("{} and {} are one", name(&urls[0]), name(&again));
    diagnosis.has("error", "duplicates", None, &both, "one server has one vote");
}

fn a_dead_and_a_hung_master_are_distinguished_and_the_quorum_is_gone() {
    let masters = durable(3);
    let urls = masters.urls();
    masters.kill(1).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "reachable", Some(&name(&urls[0])), "refused", "start it");
    assert_eq!(diagnosis.bad().len(), 1, "a quorum is left: {diagnosis:#?}");
    masters.pause(2).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "quorum", None, "1 of 3 masters can be used", "fix the masters");
    let hung = diagnosis.findings.iter().find(|found| {
        found.check == "reachable" && found.master.as_deref() == Some(&name(&urls[1]))
    });
    assert!(hung.unwrap().text.contains("does not answer within"), "{diagnosis:#?}");
    masters.resume(2).unwrap();
}

fn a_wrong_clock_and_a_fast_clock_are_reported() {
    if clocks_supported().is_err() {
        return;
    }
    let builder = Masters::builder().count(3).persistence(Persistence::AofAlways);
    let masters = builder.clocks().start().unwrap();
    let urls = masters.urls();
    masters.set_clock(2, ClockChange::forward(Duration::from_secs(5))).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "clock", Some(&name(&urls[1])), "s ahead of this machine's", "NTP");
    let spread = format!("the clock of {} is ", name(&urls[1]));
    diagnosis.has("error", "clock-spread", None, &spread, "NTP");
    masters.set_clock(3, ClockChange::Rate(1.5)).unwrap();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("error", "clock-rate", Some(&name(&urls[2])), "beyond the drift", "NTP");
}

fn a_reply_after_the_node_timeout_is_an_error() {
    let masters = durable(1);
    let (code, diagnosis) = examine(&masters.urls(), &["--node-timeout", "1ns"]);
    assert_eq!(code, 1);
    let master = name(&masters.url(1));
    diagnosis.has(
        "error",
        "latency",
        Some(&master),
        "the node timeout is 1ns",
        "longer node timeout",
    );
}
