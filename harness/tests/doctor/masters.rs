//! The properties and behaviour of masters: replicas, files, memory, clocks, ends.

use std::time::Duration;

use redquorum_rig::trials::{Case, eventually};
use redquorum_rig::{ClockChange, Masters, Persistence, cases, clocks_supported};

use crate::diagnosis::{durable, examine, name};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_replica_a_duplicate_and_masters_that_forget_are_reported,
        with_masters: a_dead_and_a_hung_master_are_distinguished_and_the_quorum_is_gone,
        with_masters: a_wrong_clock_and_a_fast_clock_are_reported,
    ]
}

/// One master with each problem. The unit tests of the checks have the other values.
fn a_replica_a_duplicate_and_masters_that_forget_are_reported() {
    let masters = durable(4);
    let follow = format!("REPLICAOF 127.0.0.1 {}", masters.port(1));
    masters.ask(2, &follow).unwrap();
    eventually("the second master follows the first", || {
        masters.info(1, "replication").unwrap().contains("state=online")
    });
    masters.ask(3, "CONFIG SET appendfsync everysec").unwrap();
    masters.ask(3, "CONFIG SET maxmemory-policy volatile-lru").unwrap();
    masters.ask(3, "CONFIG SET maxmemory 100mb").unwrap();
    let again = format!("redis://localhost:{}", masters.port(4));
    let urls = [masters.urls(), vec![again.clone()]].concat();
    let (code, diagnosis) = examine(&urls, &[]);
    assert_eq!(code, 1);
    diagnosis.has("warn", "replicas", Some(&name(&urls[0])), "1 replica follows it", "detach");
    diagnosis.has("error", "role", Some(&name(&urls[1])), "it is a replica", "REPLICAOF NO ONE");
    let forgets = Some(name(&urls[2]));
    let forgets = forgets.as_deref();
    diagnosis.has("warn", "persistence", forgets, "`everysec`", "appendfsync always");
    diagnosis.has("error", "eviction", forgets, "volatile-lru", "noeviction");
    let both = format!("{} and {} are one", name(&urls[3]), name(&again));
    diagnosis.has("error", "duplicates", None, &both, "one server has one vote");
    // The other masters are enough for a quorum, and there is no other problem.
    assert_eq!(diagnosis.bad().len(), 5, "{diagnosis:#?}");

    let (code, diagnosis) = examine(&urls[..1], &["--node-timeout", "1ns"]);
    assert_eq!(code, 1);
    let timeout = "the node timeout is 1ns";
    diagnosis.has("error", "latency", Some(&name(&urls[0])), timeout, "longer node timeout");
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
    diagnosis.has("error", "quorum", None, "1 of 3 masters can vote", "fix the masters");
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
