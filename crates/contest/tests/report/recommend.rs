//! The decision table follows the figures.

use crate::support::{change, fixture, is, oversell, under};
use redquorum_contest::recommend::{Answer, Situation, recommend};
use redquorum_contest::results::{Contest, Fault, Outcome, Workload};

/// A change of the fixture, and the answer that must follow in one situation.
struct Case {
    name: &'static str,
    edit: fn(&mut Contest),
    situation: Situation,
    answer: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "one statement: the fastest correct strategy without further needs",
        edit: |_| {},
        situation: Situation::OneStatement,
        answer: "atomic-update",
    },
    Case {
        name: "one statement: another strategy is faster",
        edit: |it| speed_up(it, "pessimistic"),
        situation: Situation::OneStatement,
        answer: "pessimistic",
    },
    Case {
        name: "one statement: the fastest strategy oversold in one run",
        edit: |it| oversell_once(it, "atomic-update"),
        situation: Situation::OneStatement,
        answer: "pessimistic",
    },
    Case {
        name: "one statement: the fastest strategy loses an update under a fault",
        edit: |it| {
            let keep = |run: &_| under(run, "atomic-update", Fault::CommitReplyLost);
            change(it, keep, |figures| figures.counter -= 1);
        },
        situation: Situation::OneStatement,
        answer: "pessimistic",
    },
    Case {
        name: "one statement: a run of a correct strategy is missing",
        edit: |it| it.runs.retain(|run| !is(run, "optimistic", Workload::Rush)),
        situation: Situation::OneStatement,
        answer: "missing: rush of optimistic",
    },
    Case {
        name: "one statement: the throughput is missing",
        edit: |it| it.runs.retain(|run| run.workload != Workload::Throughput),
        situation: Situation::OneStatement,
        answer: "missing: throughput of pessimistic, optimistic, atomic-update, named-lock",
    },
    Case {
        name: "several statements: the fastest lock of the database",
        edit: |_| {},
        situation: Situation::SeveralStatements,
        answer: "pessimistic",
    },
    Case {
        name: "several statements: a faster named lock",
        edit: |it| speed_up(it, "named-lock"),
        situation: Situation::SeveralStatements,
        answer: "named-lock",
    },
    Case {
        name: "several statements: SQLite offers no lock of rows and no named lock",
        edit: |it| {
            not_offered(it, "pessimistic", "SQLite has no row locks");
            not_offered(it, "named-lock", "SQLite has no named locks");
        },
        situation: Situation::SeveralStatements,
        answer: "optimistic",
    },
    Case { name: "one worker", edit: |_| {}, situation: Situation::OneWorker, answer: "queue" },
    Case {
        name: "one worker: the worker oversold",
        edit: |it| oversell_once(it, "queue"),
        situation: Situation::OneWorker,
        answer: "no strategy",
    },
    Case {
        name: "rare double run: the fastest lock on one Redis, although a pause breaks it",
        edit: |_| {},
        situation: Situation::RareDoubleRun,
        answer: "redis-wake-ups",
    },
    Case {
        name: "rare double run: the fastest lock on one Redis oversold while nothing failed",
        edit: |it| oversell_once(it, "redis-wake-ups"),
        situation: Situation::RareDoubleRun,
        answer: "redis-polling",
    },
    Case {
        name: "a Redis server fails: the fastest lock that was correct then",
        edit: |_| {},
        situation: Situation::RedisFails,
        answer: "redquorum",
    },
    Case {
        name: "a Redis server fails: a lock on one Redis was correct then, and is faster",
        edit: |it| {
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
        situation: Situation::RedisFails,
        answer: "redis-wake-ups",
    },
    Case {
        name: "a Redis server fails: the fault was not run",
        edit: |it| it.runs.retain(|run| run.fault != Some(Fault::MasterHung)),
        situation: Situation::RedisFails,
        answer: "missing: master-hung of redquorum",
    },
    Case {
        name: "tokens: the strategy that is correct under the pause",
        edit: |_| {},
        situation: Situation::ComparesTokens,
        answer: "redquorum-fenced",
    },
    Case {
        name: "tokens: the strategy with tokens oversold under the pause",
        edit: |it| {
            change(it, |run| under(run, "redquorum-fenced", Fault::PausePastTtl), oversell);
        },
        situation: Situation::ComparesTokens,
        answer: "no strategy",
    },
    Case {
        name: "tokens: the pause is not offered",
        edit: |it| {
            for run in it.runs.iter_mut().filter(|it| it.fault == Some(Fault::PausePastTtl)) {
                run.outcome = Outcome::NotOffered { reason: "no processes to stop".to_owned() };
            }
        },
        situation: Situation::ComparesTokens,
        answer: "missing: pause-past-ttl of redquorum-fenced (no processes to stop)",
    },
    Case {
        name: "no tokens: no lock is enough",
        edit: |_| {},
        situation: Situation::CannotCompareTokens,
        answer: "no strategy",
    },
    Case {
        name: "no tokens: the pause was not run",
        edit: |it| it.runs.retain(|run| run.fault.is_none()),
        situation: Situation::CannotCompareTokens,
        answer: "missing: pause-past-ttl of redis-polling, redis-wake-ups, redquorum",
    },
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
    for case in CASES {
        let mut contest = fixture();
        (case.edit)(&mut contest);
        assert_eq!(answer(&contest, case.situation).to_string(), case.answer, "{}", case.name);
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
