//! Kill, stop, restart, pause and resume act on the master that is named.

use std::{fs, path::Path, time::Duration};

use redquorum_rig::{Builder, Masters, RigError};

use super::{eventually, has, is_up, set};

type Verb = fn(&Masters, usize) -> Result<(), RigError>;

tests![
    a_killed_master_is_dead_and_comes_back_empty,
    a_paused_master_executes_its_commands_when_resumed,
    a_running_or_paused_master_is_gone_when_it_was_ended,
    a_master_that_does_not_end_is_given_up_in_time,
    a_dead_master_can_neither_be_paused_nor_stopped,
    a_master_that_ended_by_itself_is_noticed_and_can_be_restarted,
];

fn a_killed_master_is_dead_and_comes_back_empty(builder: Builder) {
    let masters = builder.count(3).start().unwrap();
    for round in 0..4 {
        set(&masters, 2, "key");
        let (address, pid) = (masters.address(2), masters.pid(2));
        if round > 0 {
            masters.kill(2).unwrap();
            let Err(RigError::NoReply { node: 2, source }) = masters.ask(2, "PING") else {
                panic!("its port is not closed")
            };
            assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
            assert_eq!(masters.pid(2), None);
            assert!(is_up(&masters, 1) && is_up(&masters, 3));
            masters.kill(2).unwrap();
        }
        // A master that runs is killed first.
        masters.restart(2).unwrap();
        assert!(pid.is_none() || (masters.address(2) == address && masters.pid(2) != pid));
        assert!(!has(&masters, 2, "key"), "the server is a new one");
    }
}

fn a_paused_master_executes_its_commands_when_resumed(builder: Builder) {
    let masters = builder.count(2).start().unwrap();
    masters.pause(1).unwrap();
    masters.pause(1).unwrap();
    let error = masters.ask(1, "SET key value").unwrap_err();
    assert_eq!(error.to_string(), "no reply from master 1: silent for 5s");
    assert!(is_up(&masters, 2));

    masters.resume(1).unwrap();
    eventually("the command of the client that gave up is executed", || has(&masters, 1, "key"));
    // Resuming a running master is allowed, so that a test may always end with it.
    masters.resume(1).unwrap();
}

fn a_running_or_paused_master_is_gone_when_it_was_ended(builder: Builder) {
    let masters = builder.count(1).start().unwrap();
    for paused in [false, true] {
        for (end, is_over) in
            [(Masters::kill as Verb, true), (Masters::stop, true), (Masters::restart, false)]
        {
            let pid = masters.pid(1);
            if paused {
                masters.pause(1).unwrap();
            }
            end(&masters, 1).unwrap();
            assert!(!pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists()));
            assert_ne!(is_up(&masters, 1), is_over);
            masters.restart(1).unwrap();
        }
    }
    if let Ok(log) = fs::read_to_string(masters.dir(1).join("log")) {
        let byes = log.matches("ready to exit, bye bye").count();
        assert_eq!(byes, 2, "by itself after a stop: {log}");
    }
}

fn a_master_that_does_not_end_is_given_up_in_time(builder: Builder) {
    let masters = builder.count(1).within(Duration::from_secs(5)).start().unwrap();
    // Nothing interrupts a script, not even SIGTERM.
    masters.command(1, &[b"EVAL", b"while true do end", b"0"]).unwrap_err();
    let error = masters.stop(1).unwrap_err();
    assert!(matches!(error, RigError::NotStopped { node: 1, .. }), "{error}");
    masters.restart(1).unwrap();
    assert!(is_up(&masters, 1));
}

fn a_dead_master_can_neither_be_paused_nor_stopped(builder: Builder) {
    let masters = builder.count(1).start().unwrap();
    masters.kill(1).unwrap();
    for refused in [masters.pause(1), masters.resume(1), masters.stop(1)] {
        let error = refused.unwrap_err();
        assert_eq!(error.to_string(), "master 1 is not running: restart it first");
    }
}

fn a_master_that_ended_by_itself_is_noticed_and_can_be_restarted(builder: Builder) {
    let masters = builder.count(1).start().unwrap();
    assert!(masters.ask(1, "SHUTDOWN NOSAVE").is_err(), "it ends without a reply");
    eventually("its end is noticed", || {
        matches!(masters.pause(1), Err(RigError::NotRunning { .. }))
    });
    masters.restart(1).unwrap();
    assert!(is_up(&masters, 1));
}
