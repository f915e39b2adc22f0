//! A replica has the data of its master, or of the time when it was cut off, and takes over.

use redquorum_rig::{Masters, RespValue, RigError, trials::Case};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_replica_in_step_takes_over_with_everything,
        with_masters: a_replica_that_lags_takes_over_without_what_it_did_not_get,
        with_masters: a_replica_that_caught_up_has_everything_again,
        with_masters: a_master_fails_over_once,
        with_masters: a_paused_master_has_nobody_to_tell_what_its_replica_lacks,
        with_masters: without_replicas_nothing_takes_over,
        with_masters: replicas_know_the_password,
    ]
}

fn pairs(count: usize) -> Masters {
    Masters::builder().count(count).replicas().start().unwrap()
}

fn set(masters: &Masters, key: &str) {
    assert_eq!(masters.ask(1, &format!("SET {key} value")).unwrap().text().unwrap(), "OK");
}

fn has(masters: &Masters, key: &str) -> bool {
    masters.ask(1, &format!("GET {key}")).unwrap() != RespValue::Nil
}

fn a_replica_in_step_takes_over_with_everything() {
    let masters = pairs(2);
    assert_eq!((masters.len(), masters.urls().len()), (2, 2), "a replica is no master");
    let (port, pid) = (masters.port(1), masters.pid(1));
    for number in 0..200 {
        set(&masters, &format!("key{number}"));
    }
    masters.fail_over(1).unwrap();
    assert_ne!((masters.port(1), masters.pid(1)), (port, pid));
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(200));
    set(&masters, "another");
    // The replica is now an ordinary master, even after a restart.
    masters.restart(1).unwrap();
    set(&masters, "key");
}

fn a_replica_that_lags_takes_over_without_what_it_did_not_get() {
    let masters = pairs(1);
    set(&masters, "early");
    masters.lag(1).unwrap();
    set(&masters, "late");
    masters.lag(1).unwrap();
    masters.fail_over(1).unwrap();
    assert!(has(&masters, "early") && !has(&masters, "late"));
}

fn a_replica_that_caught_up_has_everything_again() {
    let masters = pairs(1);
    masters.lag(1).unwrap();
    set(&masters, "late");
    masters.catch_up(1).unwrap();
    masters.fail_over(1).unwrap();
    assert!(has(&masters, "late"));
    masters.catch_up(1).unwrap();
    set(&masters, "later");
}

fn a_master_fails_over_once() {
    let masters = pairs(1);
    masters.fail_over(1).unwrap();
    for again in [masters.fail_over(1), masters.lag(1)] {
        let error = again.unwrap_err();
        assert!(matches!(error, RigError::Replica { node: 1, .. }), "{error}");
    }
}

fn a_paused_master_has_nobody_to_tell_what_its_replica_lacks() {
    let masters = pairs(1);
    masters.pause(1).unwrap();
    assert!(matches!(masters.fail_over(1), Err(RigError::NoAnswer { node: 1, .. })));
    masters.resume(1).unwrap();
    masters.lag(1).unwrap();
    masters.pause(1).unwrap();
    masters.fail_over(1).unwrap();
    set(&masters, "key");
}

fn without_replicas_nothing_takes_over() {
    let masters = Masters::start(1).unwrap();
    for error in [masters.fail_over(1), masters.lag(1), masters.catch_up(1)] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("`replicas`"), "{error}");
    }
    set(&masters, "key");
}

fn replicas_know_the_password() {
    let masters = Masters::builder().count(1).password("secret word").replicas().start().unwrap();
    set(&masters, "key");
    masters.fail_over(1).unwrap();
    assert!(has(&masters, "key"));
}
