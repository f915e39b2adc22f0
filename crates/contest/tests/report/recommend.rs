//! The decision table follows the figures.

use crate::support::{change, fixture, is, oversell, under};
use redquorum_contest::recommend::{Answer, Situation, Situation::*, recommend};
use redquorum_contest::results::{Contest, Fault, Outcome, Workload};

/// A situation, what is changed in the fixture, the change, and the answer that must follow.
type Case = (Situation, &'static str, fn(&mut Contest), &'static str);

const CASES: &[Case] = &[
    (OneStatement, "the fastest correct strategy without further needs", |_| {}, "atomic-update"),
    (OneStatement, "another strategy is faster", |it| speed_up(it, "pessimistic"), "pessimistic"),
    (
        OneStatement,
        "the fastest strategy oversold in one run",
        |it| oversell_once(it, "atomic-update"),
        "pessimistic",
    ),
    (
        OneStatement,
        "the fastest strategy loses an update under a fault",
        |it| {
            let keep = |run: &_| under(run, "atomic-update", Fault::CommitReplyLost);
            change(it, keep, |figures| figures.counter -= 1);
        },
        "pessimistic",
    ),
    (
        OneStatement,
        "a run of a correct strategy is missing",
        |it| it.runs.retain(|run| !is(run, "optimistic", Workload::Rush)),
        "missing: rush of optimistic",
    ),
    (
        OneStatement,
        "the throughput is missing",
        |it| it.runs.retain(|run| run.workload != Workload::Throughput),
        "missing: throughput of pessimistic, optimistic, atomic-update, named-lock",
    ),
    (SeveralStatements, "the fastest lock of the database", |_| {}, "pessimistic"),
    (SeveralStatements, "a faster named lock", |it| speed_up(it, "named-lock"), "named-lock"),
    (
        SeveralStatements,
        "SQLite offers no lock of rows and no named lock",
        |it| {
            not_offered(it, "pessimistic", "SQLite has no row locks");
            not_offered(it, "named-lock", "SQLite has no named locks");
        },
        "optimistic",
    ),
    (OneWorker, "the worker", |_| {}, "queue"),
    (OneWorker, "the worker oversold", |it| oversell_once(it, "queue"), "no strategy"),
    (
        RareDoubleRun,
        "the fastest lock on one Redis, although a pause breaks it",
        |_| {},
        "redis-wake-ups",
    ),
    (
        RareDoubleRun,
        "the fastest lock on one Redis oversold while nothing failed",
        |it| oversell_once(it, "redis-wake-ups"),
        "redis-polling",
    ),
    (RedisFails, "the fastest lock that was correct then", |_| {}, "redquorum"),
    (
        RedisFails,
        "a lock on one Redis was correct then, and is faster",
        |it| {
            for fault in [Fault::RedisRestart, Fault::ReplicaPromoted] {
                change(
                    it,
                    |run| under(run, "redis-wake-ups", fault),
                    |figures| {
                        figures.rows = 50;
                        figures.counter = 50;
                        figures.oversold = 0;
                        figures.lost_updates = 0;
                    },
                );
            }
        },
        "redis-wake-ups",
    ),
    (
        RedisFails,
        "the fault was not run",
        |it| it.runs.retain(|run| run.fault != Some(Fault::MasterHung)),
        "missing: master-hung of redquorum",
    ),
    (ComparesTokens, "the strategy that is correct under the pause", |_| {}, "redquorum-fenced"),
    (
        ComparesTokens,
        "the strategy with tokens oversold under the pause",
        |it| {
            change(it, |run| under(run, "redquorum-fenced", Fault::PausePastTtl), oversell);
        },
        "no strategy",
    ),
    (
        ComparesTokens,
        "the pause is not offered",
        |it| {
            for run in it.runs.iter_mut().filter(|it| it.fault == Some(Fault::PausePastTtl)) {
                run.outcome = Outcome::NotOffered { reason: "no processes to stop".to_owned() };
            }
        },
        "missing: pause-past-ttl of redquorum-fenced (no processes to stop)",
    ),
    (CannotCompareTokens, "no lock is enough", |_| {}, "no strategy"),
    (
        CannotCompareTokens,
        "the pause was not run",
        |it| it.runs.retain(|run| run.fault.is_none()),
        "missing: pause-past-ttl of redis-polling, redis-wake-ups, redquorum",
    ),
];

fn speed_up(contest: &mut Contest, strategy: &str) {
    let keep = |run: &_| is(run, strategy, Workload::Throughput);
    change(contest, keep, |figures| figures.per_second *= 10.0);
}

/// Adds one applicant too many in the second of three repetitions.
fn oversell_once(contest: &mut Contest, strategy: &str) {
    change(contest, |run| is(run, strategy, Workload::Rush) && run.repetition == 2, oversell);
}

fn not_offered(contest: &mut Contest, strategy: &str, reason: &str) {
    for run in contest.runs.iter_mut().filter(|run| run.strategy == strategy) {
        run.outcome = Outcome::NotOffered { reason: reason.to_owned() };
    }
}

fn answer(contest: &Contest, situation: Situation) -> Answer {
    let decisions = recommend(contest).decisions;
    let decision = decisions.into_iter().find(|it| it.situation == situation);
    decision.expect("each situation has a decision").answer
}

#[test]
fn the_figures_decide() {
    for (situation, name, edit, expected) in CASES {
        let mut contest = fixture();
        edit(&mut contest);
        let found = answer(&contest, *situation).to_string();
        assert_eq!(found, *expected, "{situation:?}: {name}");
    }
}

#[test]
fn a_strategy_that_oversold_once_while_nothing_failed_is_never_recommended() {
    let names: Vec<_> = fixture().strategies.into_iter().map(|info| info.name).collect();
    for name in &names {
        let mut contest = fixture();
        oversell_once(&mut contest, name);
        for decision in recommend(&contest).decisions {
            assert_ne!(decision.answer.to_string(), *name, "{:?}", decision.situation);
        }
    }
}

#[test]
fn a_wrong_strategy_is_not_recommended_even_if_each_run_was_lucky() {
    let mut contest = fixture();
    let wrong = ["none", "named-lock-early"];
    change(
        &mut contest,
        |run| wrong.contains(&run.strategy.as_str()),
        |figures| {
            figures.rows = figures.places.min(figures.applications);
            figures.counter = figures.rows;
            (figures.oversold, figures.lost_updates) = (0, 0);
            figures.per_second *= 10.0;
        },
    );
    for decision in recommend(&contest).decisions {
        assert!(!wrong.contains(&decision.answer.to_string().as_str()), "{decision:?}");
    }
}

#[test]
fn an_empty_contest_recommends_nothing() {
    let mut contest = fixture();
    contest.runs.clear();
    for decision in recommend(&contest).decisions {
        let is_incomplete = matches!(decision.answer, Answer::Incomplete { .. });
        assert!(is_incomplete, "{decision:?}");
    }
}

#[test]
fn one_command_makes_all_missing_runs() {
    let mut contest = fixture();
    contest.runs.retain(|run| run.fault.is_none());
    let command = answer(&contest, Situation::RedisFails).command();
    let expected = "cargo contest --fault redis-restart --fault replica-promoted \
                    --fault commit-reply-lost --fault master-killed --fault master-hung";
    assert_eq!(command.as_deref(), Some(expected));
    assert_eq!(answer(&fixture(), Situation::RedisFails).command(), None);
}

#[test]
fn a_tolerated_violation_is_named() {
    let decisions = recommend(&fixture()).decisions;
    let decision = decisions.iter().find(|it| it.situation == Situation::RareDoubleRun).unwrap();
    let text = decision.evidence.join("; ");
    assert!(text.contains("oversold by 1 and 1 lost update under pause-past-ttl"), "{text}");
}

#[test]
fn the_locks_that_oversold_are_named_where_no_lock_is_enough() {
    let decisions = recommend(&fixture()).decisions;
    let text = decisions.last().unwrap().evidence.join("; ");
    let expected = "redis-polling, redis-wake-ups, redquorum: oversold by 1";
    assert!(text.starts_with(expected), "{text}");
    assert!(!text.contains("redquorum-fenced"), "{text}");
}

#[test]
fn a_ratio_compares_runs_of_the_same_repetition() {
    let mut contest = fixture();
    // In one repetition the machine was ten times slower, for the baseline, too.
    change(
        &mut contest,
        |run| run.workload == Workload::Throughput && run.repetition == 2,
        |it| {
            it.per_second /= 10.0;
        },
    );
    let ratios = |contest| {
        let assessments = recommend(contest).assessments;
        assessments.iter().map(|it| it.ratio().unwrap()).collect::<Vec<_>>()
    };
    for (slow, usual) in ratios(&contest).into_iter().zip(ratios(&fixture())) {
        assert!((slow - usual).abs() < 1e-9, "{slow} and {usual}");
    }
}
