//! The runs, their order, and the exit code.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redquorum_harness::cli::run_all;
use redquorum_harness::report::{Code, Format, ResultFile};
use redquorum_scenario::Expect;

use crate::support::{self, Fake, chosen, folder, plan, play, reports};

fn result(folder: &Path) -> ResultFile {
    serde_json::from_slice(&fs::read(folder.join("out/result.json")).unwrap()).unwrap()
}

#[test]
fn each_outcome_has_its_exit_code_and_every_scenario_runs() {
    let table: [(&[&str], Code); 8] = [
        (&["good", "fine"], Code::AsExpected),
        (&["good", "skip"], Code::AsExpected),
        (&["skip"], Code::Environment),
        (&["blind", "good"], Code::NotSeen),
        (&["unsure", "good"], Code::NotSeen),
        (&["blind", "differs", "good"], Code::Differs),
        (&["differs", "nothing", "good"], Code::Environment),
        (&["panic", "differs", "injudicable", "nothing", "good"], Code::Internal),
    ];
    for (number, (names, code)) in table.into_iter().enumerate() {
        let folder = folder(&format!("codes-{number}"));
        let (tally, played) = play(&folder, names, &plan());
        assert_eq!(tally.code(), code, "{names:?}");
        assert!(played.iter().any(|(name, _)| name == "good") || !names.contains(&"good"));
        assert_eq!(result(&folder).scenarios.len(), names.len());
        assert!(result(&folder).finished);
    }
}

#[test]
fn another_lock_may_miss_what_a_scenario_is_about_if_some_run_shows_it() {
    let table: [(&[&str], Code); 5] = [
        (&["blind", "good"], Code::AsExpected),
        (&["blind"], Code::NotSeen),
        (&["unsure", "good"], Code::NotSeen),
        (&["blind", "differs", "good"], Code::Differs),
        (&["blind", "skip"], Code::NotSeen),
    ];
    for (number, (names, code)) in table.into_iter().enumerate() {
        let folder = folder(&format!("lenient-{number}"));
        let mut plan = plan();
        plan.lenient = true;
        let (tally, _) = play(&folder, names, &plan);
        assert_eq!(tally.code(), code, "{names:?}");
        let junit = fs::read_to_string(folder.join("out/junit.xml")).unwrap();
        assert!(!names.contains(&"blind") || junit.contains("not seen: "), "{junit}");
    }
}

#[test]
fn a_panic_is_reported_with_the_name_of_the_scenario() {
    let folder = folder("panics");
    play(&folder, &["panic", "injudicable"], &plan());
    let result = result(&folder);
    let of = |name: &str| result.scenarios.iter().find(|line| line.name == name).unwrap();
    assert_eq!(of("panic").outcome, "internal");
    assert_eq!(of("panic").differences, ["it panicked: as its name says"]);
    assert_eq!(of("injudicable").differences, ["the checker panicked: no verdict on this"]);
    // The history that the checker failed on is kept.
    assert!(folder.join("out/injudicable/history.jsonl").is_file());
}

#[test]
fn fail_fast_stops_after_the_first_unexpected_run() {
    let folder = folder("fail-fast");
    let mut plan = plan();
    plan.fail_fast = true;
    let (tally, played) = play(&folder, &["good", "skip", "blind", "differs"], &plan);
    let names: Vec<&str> = played.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, tally.code()), (vec!["good", "blind"], Code::NotSeen));
}

#[test]
fn a_repetition_has_the_next_seed_and_a_history_of_its_own() {
    let folder = folder("repeat");
    let mut plan = plan();
    plan.repeat = 3;
    plan.seed = u64::MAX;
    let (_, played) = play(&folder, &["good", "fine"], &plan);
    let seeds: Vec<u64> = played.iter().map(|(_, seed)| *seed).collect();
    assert_eq!(seeds, [u64::MAX, u64::MAX, 0, 0, 1, 1]);
    for name in ["good", "good@2", "good@3", "fine@3"] {
        assert!(folder.join("out").join(name).join("history.jsonl").is_file(), "{name}");
    }
    let again = &result(&folder).scenarios[2].again;
    assert!(again.contains(" --seed 0 --backend fake") && again.contains("good.toml"), "{again}");
}

#[test]
fn several_jobs_run_and_report_every_scenario() {
    let folder = folder("jobs");
    let names: Vec<String> = (0..40).map(|number| format!("good-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut plan = plan();
    plan.jobs = 8;
    let (tally, played) = play(&folder, &names, &plan);
    assert_eq!((tally.as_expected, played.len()), (40, 40));
    assert_eq!(result(&folder).scenarios.len(), 40);
}

#[test]
fn results_are_complete_files_during_the_run() {
    let folder = folder("whole");
    let chosen = chosen(&folder, &["good", "fine", "differs"]);
    let (mut reports, _) = reports(&folder, chosen.len(), Format::Human);
    // The program may still be writing the result of the previous run.
    let looks = move |played| {
        let result = result(&folder);
        assert!(!result.finished && result.scenarios.len() <= played);
    };
    let stage = Fake { before: Some(Box::new(looks)), ..Fake::default() };
    let tally = run_all(&[&stage], &chosen, &plan(), &mut reports);
    assert_eq!((tally.as_expected, tally.differs, tally.internal), (2, 1, 0));
}

#[test]
fn a_run_on_a_slow_machine_is_repeated_unless_it_violates_safety() {
    let folder = folder("slow");
    let stage = Fake { late: Duration::from_millis(215), ..Fake::default() };
    let mut chosen = chosen(&folder, &["good", "blind", "differs"]);
    // For the checker of these tests, "differs" is a violation of mutual exclusion.
    chosen[2].run.expect = Expect::default();
    let (mut reports, _) = reports(&folder, chosen.len(), Format::Human);
    let tally = run_all(&[&stage], &chosen, &plan(), &mut reports);
    assert_eq!((tally.as_expected, tally.not_seen, tally.differs), (1, 1, 1));
    let times = |name: &str| {
        stage.played.lock().unwrap().iter().filter(|(played, _)| played == name).count()
    };
    assert_eq!((times("good"), times("blind"), times("differs")), (1, 3, 1));
    let repeated = |at: usize| result(&folder).scenarios[at].repeated.clone();
    assert!(repeated(0).is_empty() && repeated(2).is_empty());
    assert_eq!(repeated(1).len(), 2);
    assert!(repeated(1)[0].starts_with("repeated, as this machine stood still for 215 ms"));
}

#[test]
fn an_interrupt_keeps_the_results_so_far() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let folder = folder("interrupted");
    let mut plan = plan();
    // The program checks before and after each run, so the interrupt arrives during the third.
    plan.interrupted = || ASKED.fetch_add(1, Ordering::SeqCst) > 4;
    let (tally, played) = play(&folder, &["good", "fine", "well", "more"], &plan);
    assert_eq!((tally.code(), tally.as_expected, played.len()), (Code::Interrupted, 2, 3));
    assert_eq!((result(&folder).finished, result(&folder).scenarios.len()), (false, 2));
}

#[test]
fn results_that_cannot_be_written_are_no_success() {
    let folder = folder("unkept");
    let chosen = chosen(&folder, &["good"]);
    let (mut reports, _) = reports(&folder, 1, Format::Human);
    fs::remove_dir_all(folder.join("out")).unwrap();
    fs::write(folder.join("out"), "in the way").unwrap();
    let tally = run_all(&[&Fake::default()], &chosen, &support::plan(), &mut reports);
    assert_eq!(tally.code(), Code::Environment);
}
