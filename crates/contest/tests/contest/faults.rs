//! The effects of faults on the strategies.

use redquorum_contest::results::Outcome;

use crate::support::{Out, mariadb_is_installed, measured, one_at_a_time, run_as_expected};

const REDIS: &str = "--strategy redis-polling redis-wake-ups redquorum redquorum-fenced";

/// The strategies that oversold places, and those that did not.
fn oversold(out: &Out, args: &str) -> (Vec<String>, Vec<String>) {
    let contest = run_as_expected(out, args);
    let name = |oversold: bool| {
        let of_kind =
            measured(&contest).filter(move |(_, figures)| (figures.oversold > 0) == oversold);
        of_kind.map(|(run, _)| run.strategy.clone()).collect()
    };
    (name(true), name(false))
}

#[test]
fn a_pause_past_the_ttl_oversells_without_fencing_and_not_with_it_on_sqlite() {
    let _turn = one_at_a_time();
    let out = Out::new("pause-sqlite");
    let args = format!("--database sqlite --fault pause-past-ttl {REDIS}");
    let (yes, no) = oversold(&out, &args);
    assert_eq!(yes, ["redis-polling", "redis-wake-ups", "redquorum"]);
    assert_eq!(no, ["redquorum-fenced"]);
}

#[test]
fn a_pause_past_the_ttl_oversells_without_fencing_and_not_with_it_on_mariadb() {
    let _turn = one_at_a_time();
    if !mariadb_is_installed() {
        return;
    }
    let out = Out::new("pause-mariadb");
    let args = format!("--database mariadb --fault pause-past-ttl {REDIS}");
    let (yes, no) = oversold(&out, &args);
    assert_eq!(yes, ["redis-polling", "redis-wake-ups", "redquorum"]);
    assert_eq!(no, ["redquorum-fenced"]);
}

#[test]
fn a_single_redis_that_restarts_oversells_and_one_master_of_five_does_not() {
    let _turn = one_at_a_time();
    let out = Out::new("restart");
    let args = format!("--database sqlite --fault redis-restart {REDIS}");
    let (yes, no) = oversold(&out, &args);
    assert_eq!(yes, ["redis-polling", "redis-wake-ups"]);
    assert_eq!(no, ["redquorum", "redquorum-fenced"]);
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
fn what_sqlite_cannot_show_is_not_offered_with_a_reason() {
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
