//! Kill, stop, restart, pause and resume act on the master that is named.

use std::{
    fs,
    time::{Duration, Instant},
};

use redquorum_rig::{Masters, RespValue, RigError, trials::Case};

use crate::support::{eventually, exists};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_killed_master_is_dead_and_comes_back_empty_on_its_port,
        with_masters: a_master_can_be_killed_and_restarted_many_times,
        with_masters: a_paused_master_is_silent_and_later_does_what_it_was_told,
        with_masters: a_paused_master_can_be_killed_and_restarted,
        with_masters: a_stopped_master_is_gone_and_comes_back_on_its_port,
        with_masters: a_paused_master_can_be_stopped,
        with_masters: a_master_that_does_not_end_is_given_up_in_time,
        with_masters: a_dead_master_can_neither_be_paused_nor_stopped,
        with_masters: a_master_that_ended_by_itself_is_noticed_and_can_be_restarted,
    ]
}

fn set(masters: &Masters, node: usize) {
    assert_eq!(masters.ask(node, "SET key value").unwrap().text().unwrap(), "OK");
}

fn a_killed_master_is_dead_and_comes_back_empty_on_its_port() {
    let masters = Masters::start(3).unwrap();
    let (port, pid) = (masters.port(2), masters.pid(2).unwrap());
    set(&masters, 2);

    masters.kill(2).unwrap();
    assert!(!exists(pid), "it is gone when kill returns");
    assert_eq!(masters.pid(2), None);
    assert!(matches!(masters.ask(2, "PING"), Err(RigError::NoAnswer { node: 2, .. })));
    assert!(masters.ask(1, "PING").is_ok() && masters.ask(3, "PING").is_ok());
    masters.kill(2).unwrap();

    masters.restart(2).unwrap();
    assert_eq!(masters.port(2), port);
    assert_ne!(masters.pid(2).unwrap(), pid);
    assert_eq!(masters.ask(2, "GET key").unwrap(), RespValue::Nil);
}

fn a_master_can_be_killed_and_restarted_many_times() {
    let masters = Masters::start(1).unwrap();
    for round in 0..10 {
        if round % 2 == 0 {
            masters.kill(1).unwrap();
        }
        masters.restart(1).unwrap();
        assert!(masters.ask(1, "PING").is_ok());
    }
}

fn a_paused_master_is_silent_and_later_does_what_it_was_told() {
    let masters = Masters::start(2).unwrap();
    masters.pause(1).unwrap();
    let error = masters.ask(1, "SET key value").unwrap_err();
    assert_eq!(error.to_string(), "no answer from master 1: silent for 1s");
    assert!(masters.ask(2, "PING").is_ok());

    masters.resume(1).unwrap();
    eventually("the command of the client that gave up is executed", || {
        masters.ask(1, "GET key").unwrap() != RespValue::Nil
    });
    // Resuming a running master is allowed, so that a test may always end with it.
    masters.resume(1).unwrap();
}

fn a_paused_master_can_be_killed_and_restarted() {
    let masters = Masters::start(2).unwrap();
    let pids = [1, 2].map(|node| masters.pid(node).unwrap());
    masters.pause(1).unwrap();
    masters.kill(1).unwrap();
    masters.restart(1).unwrap();
    masters.pause(2).unwrap();
    masters.restart(2).unwrap();
    assert!(masters.ask(1, "PING").is_ok() && masters.ask(2, "PING").is_ok());
    assert!(!pids.into_iter().any(exists));
}

fn a_stopped_master_is_gone_and_comes_back_on_its_port() {
    let masters = Masters::start(2).unwrap();
    let (port, pid) = (masters.port(2), masters.pid(2).unwrap());
    set(&masters, 2);
    masters.stop(2).unwrap();
    assert!(!exists(pid), "it is gone when stop returns");
    assert_eq!(masters.pid(2), None);
    let log = fs::read_to_string(masters.dir(2).join("log")).unwrap();
    assert!(log.contains("ready to exit, bye bye"), "it ended by itself: {log}");
    masters.restart(2).unwrap();
    assert_eq!((masters.port(2), masters.ask(2, "GET key").unwrap()), (port, RespValue::Nil));
}

fn a_paused_master_can_be_stopped() {
    let masters = Masters::start(1).unwrap();
    let pid = masters.pid(1).unwrap();
    masters.pause(1).unwrap();
    masters.stop(1).unwrap();
    assert!(!exists(pid));
}

fn a_master_that_does_not_end_is_given_up_in_time() {
    let within = Duration::from_secs(2);
    let masters = Masters::builder().count(1).within(within).start().unwrap();
    // Nothing interrupts a script, not even SIGTERM.
    masters.command(1, &[b"EVAL", b"while true do end", b"0"]).unwrap_err();
    let began = Instant::now();
    let error = masters.stop(1).unwrap_err();
    assert!(matches!(error, RigError::NotStopped { node: 1, .. }), "{error}");
    assert!(began.elapsed() < 2 * within, "{:?}", began.elapsed());
    masters.restart(1).unwrap();
    assert!(masters.ask(1, "PING").is_ok());
}

fn a_dead_master_can_neither_be_paused_nor_stopped() {
    let masters = Masters::start(1).unwrap();
    masters.kill(1).unwrap();
    for refused in [masters.pause(1), masters.resume(1), masters.stop(1)] {
        let error = refused.unwrap_err();
        assert_eq!(error.to_string(), "master 1 is not running: restart it first");
    }
}

fn a_master_that_ended_by_itself_is_noticed_and_can_be_restarted() {
    let masters = Masters::start(1).unwrap();
    assert!(masters.ask(1, "SHUTDOWN NOSAVE").is_err(), "it ends without a reply");
    eventually("its end is noticed", || {
        matches!(masters.pause(1), Err(RigError::NotRunning { .. }))
    });
    masters.restart(1).unwrap();
    assert!(masters.ask(1, "PING").is_ok());
}
