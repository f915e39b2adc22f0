//! Kill, stop, restart, pause and resume act on the master that is named.

use std::time::Duration;

use redquorum_rig::{
    ClockChange, Cluster, Containers, Persistence, RespValue, RigError, clocks_supported,
    trials::Case,
};

use crate::support::eventually;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_containers: a_killed_master_is_dead_and_comes_back_empty_in_its_container,
        with_containers: a_stopped_master_ends_cleanly,
        with_containers: after_a_restart_the_address_is_the_new_one,
        with_containers: a_persistent_master_keeps_its_keys_over_a_kill,
        with_containers: a_power_loss_takes_what_was_not_synced,
        with_containers: a_replica_that_lags_takes_over_without_what_it_did_not_get,
        with_containers: a_paused_master_is_silent_and_later_does_what_it_was_told,
        with_containers: a_paused_master_can_be_killed_stopped_and_restarted,
        with_containers: a_dead_master_cannot_be_paused,
    ]
}

fn set(containers: &Containers, node: usize) {
    assert_eq!(containers.ask(node, "SET key value").unwrap().text().unwrap(), "OK");
}

fn is_dead(containers: &Containers, node: usize) -> bool {
    match containers.ask(node, "PING") {
        Err(RigError::NoAnswer { source, .. }) => {
            source.kind() == std::io::ErrorKind::ConnectionRefused
        }
        _ => false,
    }
}

fn a_killed_master_is_dead_and_comes_back_empty_in_its_container() {
    let containers = Containers::start(3).unwrap();
    let id = containers.id(2).to_owned();
    set(&containers, 2);

    containers.kill(2).unwrap();
    assert!(is_dead(&containers, 2), "its port is closed when kill returns");
    assert!(containers.ask(1, "PING").is_ok() && containers.ask(3, "PING").is_ok());
    containers.kill(2).unwrap();

    containers.restart(2).unwrap();
    assert_eq!(containers.id(2), id);
    assert_eq!(containers.ask(2, "GET key").unwrap(), RespValue::Nil);
}

fn a_power_loss_takes_what_was_not_synced() {
    if let Err(why) = clocks_supported() {
        return println!("skipped: {why}");
    }
    let builder = Containers::builder().count(1).persistence(Persistence::AofEverysec);
    let containers = builder.syncs().start().unwrap();
    // From now on the server syncs nothing for an hour.
    containers.set_clock(1, ClockChange::back(Duration::from_secs(3600))).unwrap();
    set(&containers, 1);
    containers.power_loss(1).unwrap();
    containers.restart(1).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap(), RespValue::Nil);
}

fn a_replica_that_lags_takes_over_without_what_it_did_not_get() {
    let containers = Containers::builder().count(2).replicas().start().unwrap();
    assert_eq!(containers.len(), 2, "a replica is no master");
    containers.ask(1, "SET early value").unwrap();
    containers.lag(1).unwrap();
    set(&containers, 1);
    containers.fail_over(1).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap(), RespValue::Nil);
    assert_eq!(containers.ask(1, "GET early").unwrap().text().unwrap(), "value");
    let again = containers.fail_over(1).unwrap_err();
    assert!(matches!(again, RigError::Replica { node: 1, .. }), "{again}");
    containers.catch_up(1).unwrap();
    // A replica that does not lag has all keys.
    set(&containers, 2);
    containers.fail_over(2).unwrap();
    assert_eq!(containers.ask(2, "GET key").unwrap().text().unwrap(), "value");
}

fn a_stopped_master_ends_cleanly() {
    let builder = Containers::builder().count(1).persistence(Persistence::AofEverysec);
    let containers = builder.start().unwrap();
    set(&containers, 1);
    containers.stop(1).unwrap();
    assert!(is_dead(&containers, 1));
    let error = containers.stop(1).unwrap_err();
    assert!(matches!(error, RigError::NotRunning { node: 1 }), "{error}");

    containers.restart(1).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap().text().unwrap(), "value");
}

fn after_a_restart_the_address_is_the_new_one() {
    let containers = Containers::start(2).unwrap();
    for _ in 0..3 {
        let id = |node| containers.ask(node, "CLIENT ID").unwrap();
        set(&containers, 1);
        // The master runs, so `restart` kills it first.
        containers.restart(1).unwrap();
        assert_ne!(containers.address(1), containers.address(2));
        assert_eq!(
            containers.ask(1, "GET key").unwrap(),
            RespValue::Nil,
            "the server is a new one"
        );
        assert!(matches!(id(1), RespValue::Integer(_)) && matches!(id(2), RespValue::Integer(_)));
    }
}

fn a_persistent_master_keeps_its_keys_over_a_kill() {
    let builder = Containers::builder().count(1).persistence(Persistence::AofAlways);
    let containers = builder.start().unwrap();
    set(&containers, 1);
    containers.kill(1).unwrap();
    containers.restart(1).unwrap();
    assert_eq!(containers.ask(1, "GET key").unwrap().text().unwrap(), "value");
}

fn a_paused_master_is_silent_and_later_does_what_it_was_told() {
    let containers = Containers::start(2).unwrap();
    containers.pause(1).unwrap();
    containers.pause(1).unwrap();
    let error = containers.ask(1, "SET key value").unwrap_err();
    assert_eq!(error.to_string(), "no answer from master 1: silent for 1s");
    assert!(containers.ask(2, "PING").is_ok());

    containers.resume(1).unwrap();
    eventually("the command of the client that gave up is executed", || {
        containers.ask(1, "GET key").unwrap() != RespValue::Nil
    });
    // Resuming a running master is allowed, so that a test may always end with it.
    containers.resume(1).unwrap();
}

fn a_paused_master_can_be_killed_stopped_and_restarted() {
    let containers = Containers::start(1).unwrap();
    containers.pause(1).unwrap();
    containers.kill(1).unwrap();
    assert!(is_dead(&containers, 1));
    containers.restart(1).unwrap();
    containers.pause(1).unwrap();
    containers.stop(1).unwrap();
    assert!(is_dead(&containers, 1));
    containers.restart(1).unwrap();
    containers.pause(1).unwrap();
    containers.restart(1).unwrap();
    assert!(containers.ask(1, "PING").is_ok());
}

fn a_dead_master_cannot_be_paused() {
    let containers = Containers::start(1).unwrap();
    containers.kill(1).unwrap();
    for refused in [containers.pause(1), containers.resume(1)] {
        let error = refused.unwrap_err();
        assert_eq!(error.to_string(), "master 1 is not running: restart it first");
    }
}
