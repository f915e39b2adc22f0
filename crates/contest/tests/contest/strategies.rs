//! Each strategy in runs without faults.

use crate::support::{Out, mariadb_is_installed, measured, one_at_a_time, run_as_expected};

const WRONG: [&str; 2] = ["none", "named-lock-early"];

#[test]
fn no_lock_loses_updates_on_sqlite_too() {
    let _turn = one_at_a_time();
    let out = Out::new("sqlite-none");
    let contest = run_as_expected(&out, "--database sqlite --workload rush --strategy none");
    let (_, figures) = measured(&contest).next().unwrap();
    assert!(figures.lost_updates > 0 && figures.oversold > 0, "{figures:?}");
    assert_eq!(figures.rows, figures.accepted);
}

#[test]
fn correct_strategies_end_with_exactly_the_places() {
    let _turn = one_at_a_time();
    // SQLite has neither row locks nor named locks.
    for (database, strategies) in [("sqlite", 7), ("mariadb", 9)] {
        if database == "mariadb" && !mariadb_is_installed() {
            continue;
        }
        let out = Out::new("correct");
        let args = format!("--database {database} --workload rush last-place --repeat 2");
        let contest = run_as_expected(&out, &args);
        let mut runs = 0;
        for (run, figures) in measured(&contest) {
            if !WRONG.contains(&run.strategy.as_str()) {
                let rows = (figures.rows, figures.counter, figures.oversold, figures.lost_updates);
                assert_eq!(rows, (figures.places, figures.places, 0, 0), "{}", run.strategy);
                assert_eq!(figures.accepted, figures.places, "{}", run.strategy);
                runs += 1;
            }
        }
        assert_eq!(runs, strategies * 2 * 2, "{database}");
    }
}

#[test]
fn every_wrong_strategy_is_caught_on_mariadb() {
    let _turn = one_at_a_time();
    if !mariadb_is_installed() {
        return;
    }
    let out = Out::new("mariadb-wrong");
    let args = "--database mariadb --workload rush --strategy none named-lock-early --repeat 3";
    let contest = run_as_expected(&out, args);
    for (run, figures) in measured(&contest) {
        assert!(figures.lost_updates > 0, "{}: {figures:?}", run.strategy);
        if run.strategy == "none" {
            assert!(figures.deadlocks > 0, "{figures:?}");
        } else {
            assert!(figures.oversold > 0, "{figures:?}");
        }
    }
}

#[test]
fn throughput_and_spread_lose_nothing_with_a_correct_strategy() {
    let _turn = one_at_a_time();
    let out = Out::new("throughput");
    let args = "--database sqlite --workload throughput spread --seconds 1 --network-ms 1 \
                --strategy optimistic redis-wake-ups redquorum";
    let contest = run_as_expected(&out, args);
    let mut runs = 0;
    for (run, figures) in measured(&contest) {
        let rows = (figures.rows, figures.counter, figures.lost_updates, figures.errors);
        assert_eq!(rows, (figures.accepted, figures.accepted, 0, 0), "{}", run.strategy);
        assert!(figures.accepted > 20, "{}: {figures:?}", run.strategy);
        runs += 1;
    }
    assert_eq!(runs, 3 * 2);
}
