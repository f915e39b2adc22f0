//! Each strategy in runs without faults.

use redquorum_contest::results::Workload;

use crate::support::{Out, mariadb_is_installed, measured, one_at_a_time, run_as_expected};

const WRONG: [&str; 2] = ["none", "named-lock-early"];

#[test]
fn correct_strategies_end_with_exactly_the_places_and_wrong_ones_are_caught() {
    let _turn = one_at_a_time();
    // SQLite has neither row locks nor named locks.
    for (database, strategies) in [("sqlite", 7), ("mariadb", 9)] {
        let is_mariadb = database == "mariadb";
        if is_mariadb && !mariadb_is_installed() {
            continue;
        }
        let out = Out::new("correct");
        let args = format!("--database {database} --workload rush last-place --repeat 3");
        let contest = run_as_expected(&out, &args);
        let (mut correct, mut wrong) = (0, 0);
        for (run, figures) in measured(&contest) {
            let case = format!("{} on {database}: {figures:?}", run.strategy);
            if !WRONG.contains(&run.strategy.as_str()) {
                let rows = (figures.rows, figures.counter, figures.oversold, figures.lost_updates);
                assert_eq!(rows, (figures.places, figures.places, 0, 0), "{case}");
                assert_eq!(figures.accepted, figures.places, "{case}");
                correct += 1;
            } else if run.workload == Workload::Rush {
                let is_deadlocked = is_mariadb && run.strategy == "none";
                assert!(figures.lost_updates > 0, "{case}");
                assert!(
                    if is_deadlocked { figures.deadlocks } else { figures.oversold } > 0,
                    "{case}"
                );
                assert!(is_mariadb || figures.rows == figures.accepted, "{case}");
                wrong += 1;
            }
        }
        assert_eq!(correct, strategies * 2 * 3, "{database}");
        assert_eq!(wrong, if is_mariadb { 2 * 3 } else { 3 }, "{database}");
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
