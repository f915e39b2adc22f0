//! The effects of faults on the strategies.

use redquorum_contest::results::{Figures, Outcome, Run};

use crate::support::{Out, mariadb_is_installed, measured, one_at_a_time, run_as_expected};

/// A pause breaks the first three of them, a restart of one server the first two.
const REDIS: [&str; 4] = ["redis-polling", "redis-wake-ups", "redquorum", "redquorum-fenced"];

#[test]
fn faults_oversell_the_strategies_that_do_not_survive_them() {
    let _turn = one_at_a_time();
    for (database, fault, expected) in [
        ("sqlite", "pause-past-ttl", 3),
        ("mariadb", "pause-past-ttl", 3),
        ("sqlite", "redis-restart", 2),
    ] {
        if database == "mariadb" && !mariadb_is_installed() {
            continue;
        }
        let out = Out::new("faults");
        let contest = run_as_expected(
            &out,
            &format!("--database {database} --fault {fault} --strategy {}", REDIS.join(" ")),
        );
        let (oversold, kept): (Vec<_>, Vec<_>) =
            measured(&contest).partition(|(_, figures)| figures.oversold > 0);
        let names = |runs: &[(&Run, &Figures)]| -> Vec<String> {
            runs.iter().map(|(run, _)| run.strategy.clone()).collect()
        };
        let (broken, correct) = REDIS.split_at(expected);
        assert_eq!(names(&oversold), broken, "{fault} on {database}");
        assert_eq!(names(&kept), correct, "{fault} on {database}");
    }
}

#[test]
fn a_reply_of_a_commit_that_is_lost_signs_no_applicant_up_twice() {
    let _turn = one_at_a_time();
    if !mariadb_is_installed() {
        return;
    }
    let out = Out::new("commit");
    let args = "--database mariadb --fault commit-reply-lost \
                --strategy pessimistic optimistic atomic-update named-lock redquorum-fenced queue";
    let contest = run_as_expected(&out, args);
    for (run, figures) in measured(&contest) {
        assert_eq!((figures.accepted, figures.rows), (50, 50), "{}", run.strategy);
        assert!(figures.retries > 0, "{}: the fault did not happen", run.strategy);
    }
}

#[test]
fn sqlite_does_not_offer_some_runs_and_names_the_reason() {
    let _turn = one_at_a_time();
    let out = Out::new("not-offered");
    let args = "--database sqlite --fault commit-reply-lost --workload last-place \
                --strategy pessimistic named-lock";
    let contest = run_as_expected(&out, args);
    assert_eq!(contest.runs.len(), 4);
    for run in &contest.runs {
        assert!(
            matches!(&run.outcome, Outcome::NotOffered { reason } if reason.contains("SQLite"))
        );
    }
}
