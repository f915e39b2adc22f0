//! A replica has the data of its master, or of the time when it was cut off, and takes over.

use redquorum_rig::{Builder, RespValue, RigError};

use super::{has, set};

tests![
    a_replica_in_step_takes_over_with_everything,
    a_lagging_replica_takes_over_without_later_writes,
    a_paused_master_cannot_fail_over_unless_its_replica_lags,
    without_replicas_nothing_takes_over,
];

fn a_replica_in_step_takes_over_with_everything(builder: Builder) {
    let masters = builder.count(2).password("secret word").replicas().start().unwrap();
    assert_eq!((masters.len(), masters.urls().len()), (2, 2), "a replica is no master");
    let address = masters.address(1);
    for number in 0..200 {
        set(&masters, 1, &format!("key{number}"));
    }
    masters.fail_over(1).unwrap();
    assert_ne!(masters.address(1), address);
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(200));
    set(&masters, 1, "another");
    // The replica is now an ordinary master, even after a restart. There is no second replica.
    masters.restart(1).unwrap();
    set(&masters, 1, "key");
    for again in [masters.fail_over(1), masters.lag(1)] {
        let error = again.unwrap_err();
        assert!(matches!(error, RigError::Replica { node: 1, .. }), "{error}");
    }
}

fn a_lagging_replica_takes_over_without_later_writes(builder: Builder) {
    let masters = builder.count(2).replicas().start().unwrap();
    for node in [1, 2] {
        set(&masters, node, "early");
        masters.lag(node).unwrap();
        set(&masters, node, "late");
        masters.lag(node).unwrap();
    }
    masters.catch_up(2).unwrap();
    for (node, late) in [(1, false), (2, true)] {
        masters.fail_over(node).unwrap();
        assert!(has(&masters, node, "early"));
        assert_eq!(has(&masters, node, "late"), late);
        masters.catch_up(node).unwrap();
        set(&masters, node, "later");
    }
}

fn a_paused_master_cannot_fail_over_unless_its_replica_lags(builder: Builder) {
    let masters = builder.count(1).replicas().start().unwrap();
    masters.pause(1).unwrap();
    assert!(matches!(masters.fail_over(1), Err(RigError::NoReply { node: 1, .. })));
    masters.resume(1).unwrap();
    masters.lag(1).unwrap();
    masters.pause(1).unwrap();
    masters.fail_over(1).unwrap();
    set(&masters, 1, "key");
}

fn without_replicas_nothing_takes_over(builder: Builder) {
    let masters = builder.count(1).start().unwrap();
    for error in [masters.fail_over(1), masters.lag(1), masters.catch_up(1)] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("`replicas`"), "{error}");
    }
    set(&masters, 1, "key");
}
