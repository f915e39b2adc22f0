//! The runs, their order, and the exit code; the files of results, which other programs read; and
//! `report.html`, the file that a person opens first.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::program::ask;
use crate::{Fake, chosen, folder, plan, play, printed, reports};
use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use redquorum_harness::cli::{Plan, Selection, run_all};
use redquorum_harness::real::{Backend, BackendKind, Setup};
use redquorum_harness::report::{Code, Format, Out, Reports, ResultFile, Session, result_schema};
use redquorum_scenario::Expect;
use serde_json::Value;

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
    let tally = run_all(&[&Fake::default()], &chosen, &crate::plan(), &mut reports);
    assert_eq!(tally.code(), Code::Environment);
}

const NAMES: [&str; 7] = ["good", "differs", "blind", "unsure", "skip", "nothing", "injudicable"];

#[test]
fn result_json_fits_its_schema() {
    let folder = folder("result");
    play(&folder, &NAMES, &plan());
    let text = fs::read_to_string(folder.join("out/result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["seed"]), (&1.into(), &7.into()));
    assert_eq!(result["backend"], "fake");
    assert_eq!((&result["lock"], &result["client"]), (&"a lock 1.2".into(), &"a command".into()));
    let lines = result["scenarios"].as_array().unwrap();
    let outcomes: Vec<&str> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    let expected = "as-expected differs not-seen inconclusive skipped environment internal";
    assert_eq!(outcomes, expected.split(' ').collect::<Vec<_>>());
    let good = &lines[0];
    assert_eq!((good["name"].as_str(), good["grants"].as_u64()), (Some("good"), Some(2)));
    assert_eq!(good["expected"]["mutual-exclusion"], "violated");
    assert_eq!(good["expected"]["hygiene"], "safe");
    assert_eq!(good["observed"]["mutual-exclusion"], "violated");
    assert_eq!(good["because"], serde_json::json!(["clock.step"]));
    assert_eq!(good["history"], "good/history.jsonl");
    assert!(good["duration_ms"].is_u64() && good["backend"] == "fake" && good["seed"] == 7);
    assert_eq!(lines[4]["observed"], serde_json::json!({}));
    let schema = result_schema();
    fits(&result, &schema, &schema);
}

/// Whether a value fits a schema: the part of JSON Schema that the schema of results uses.
fn fits(value: &Value, schema: &Value, root: &Value) {
    let has = |kind: &str| match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => true,
    };
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(value, root.pointer(&reference[1..]).unwrap(), root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let wanted = any.iter().find(|one| (one["type"] == "null") == value.is_null());
        return fits(value, wanted.unwrap(), root);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(has(kind), "{value} is {kind}: {schema}");
    match value {
        Value::Array(list) => list.iter().for_each(|value| fits(value, &schema["items"], root)),
        Value::Object(table) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(table.contains_key(name.as_str().unwrap()), "{name} is missing");
            }
            for (key, value) in table {
                if let Some(known) = schema["properties"].get(key) {
                    fits(value, known, root);
                } else {
                    assert!(schema.get("properties").is_none(), "{key} is not in the schema");
                }
            }
        }
        _ => {}
    }
}

#[test]
fn junit_xml_distinguishes_failures_errors_and_skipped_runs() {
    let folder = folder("junit");
    play(&folder, &NAMES, &plan());
    let text = fs::read_to_string(folder.join("out/junit.xml")).unwrap();
    let report = Report::deserialize_from_str(&text).unwrap();
    let suite = &report.test_suites[0];
    assert_eq!((suite.tests, suite.failures, suite.errors), (7, 3, 2));
    let of = |name: &str| {
        let case = suite.test_cases.iter().find(|case| case.name.as_str() == name).unwrap();
        &case.status
    };
    assert!(matches!(of("good"), TestCaseStatus::Success { .. }));
    assert!(matches!(of("skip"), TestCaseStatus::Skipped { .. }));
    match of("differs") {
        TestCaseStatus::NonSuccess { kind, message, ty, description, .. } => {
            assert_eq!(*kind, NonSuccessKind::Failure);
            assert_eq!(message.as_ref().unwrap().as_str(), "differs is <not> & as expected");
            assert_eq!(ty.as_ref().unwrap().as_str(), "differs");
            let text = description.as_ref().unwrap().as_str();
            assert!(text.contains("c1 believed L") && text.contains("--seed 7"), "{text}");
            assert!(text.contains("KeyError: 'L'"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    for name in ["nothing", "injudicable"] {
        let error = |status: &TestCaseStatus| {
            matches!(status, TestCaseStatus::NonSuccess { kind: NonSuccessKind::Error, .. })
        };
        assert!(error(of(name)), "{name}");
    }
}

#[test]
fn text_begins_with_the_seed_and_has_a_line_for_each_run() {
    let folder = folder("human");
    let text = printed(&folder, &NAMES, Format::Human);
    let head = "seed     7\nclient   a command\nbackend  fake — a fake, for tests\nresults  ";
    assert!(text.starts_with(head), "{text}");
    for part in [
        ", 7 runs\n",
        "\nlock     a lock 1.2\n",
        "    standard error of c1 ends with\n      one\n       [1mKeyError: 'L'\n    history  ",
        "✓ as-expected   good  ",
        "mutual-exclusion violated (clock.step), as expected\n",
        "✗ differs       differs  ",
        "    differs is <not> & as expected\n      mutual-exclusion violated, because of clock.step\n",
        "        c1 believed L from 1.0 to 9.0\n        so did c2\n    standard error ",
        "out/differs/history.jsonl\n    again    ",
        "differs.toml --seed 7 --backend fake\n",
        "? not-seen      blind  ",
        "safe, expected: mutual-exclusion violated\n",
        "? inconclusive  unsure  ",
        "mutual-exclusion not certain, expected: mutual-exclusion violated\n",
        "- skipped       skip  ",
        "! environment   nothing  ",
        "there is nothing here\n    install something\n",
        "! internal      injudicable  ",
        "the checker panicked: no verdict on this\n    history  ",
        "\n0 scenarios must hold: 0 do. 4 must break: 1 did, for the named cause. 3 not checked.\n",
        "\nreport   ",
        "out/report.html\n",
        "\n1 as expected, 1 differs, 1 not seen, 1 inconclusive, 1 failed by the environment, \
         1 failed by this program, 1 skipped; ",
        "\n  skipped: it cannot be (skip)\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn json_has_a_line_for_each_run_and_ends_with_the_results() {
    let text = printed(&folder("lines"), &NAMES, Format::Json);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[8], kinds.len()), ("session", "summary", 9));
    assert!(kinds[1..8].iter().all(|kind| *kind == "result"));
    assert_eq!((&lines[8]["exit"], &lines[8]["result"]["finished"]), (&70.into(), &true.into()));
    assert_eq!(lines[8]["result"]["scenarios"][1]["name"], lines[2]["name"]);
}

#[test]
fn annotations_point_at_the_expectation() {
    let folder = folder("github");
    let text = printed(&folder, &["good", "differs"], Format::Github);
    let marks: Vec<&str> = text.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(marks.len(), 1);
    let file = folder.join("differs.toml");
    let start = format!("::error file={},line=12,title=differs%3A differs::", file.display());
    assert!(marks[0].starts_with(&start), "{}", marks[0]);
    assert!(marks[0].contains("<not> & as expected%0Aagain: "), "{}", marks[0]);
}

const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";

#[test]
fn every_scenario_has_a_section_and_no_text_of_it_is_markup() {
    let folder = folder("page-catalogue");
    let mut chosen = Selection::default().runs().unwrap();
    for one in &mut chosen {
        one.run.about = format!("{MARKUP} {}", "x".repeat(10_000));
        one.run.source = Some(MARKUP.to_owned());
    }
    let setup = Setup { backend: BackendKind::Sim, ..Setup::default() };
    let backend = Backend::prepare(&setup).unwrap();
    let mut plan = Plan::default();
    plan.seed = 1;
    plan.again = format!(" --client \'{MARKUP}\'");
    plan.interrupted = || false;
    let session =
        Session { seed: 1, masters: MARKUP.to_owned(), runs: chosen.len(), ..Session::default() };
    let out = Out::create(&folder).unwrap();
    let mut reports = Reports::to(Box::new(std::io::sink()), Format::Human, session, out);
    let tally = run_all(&[&backend], &chosen, &plan, &mut reports);
    assert_eq!(tally.code(), Code::AsExpected);

    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(!page.contains("<img") && !page.contains("<script>alert"));
    assert_eq!(page.matches("<script>").count(), 1, "only that of the program");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains(&"x".repeat(1_000)), "long text is cut");
    for number in 1..=chosen.len() {
        assert_eq!(page.matches(&format!("id=\"run-{number}\"")).count(), 1, "{number}");
    }
    assert!(page.len() < 9 << 20, "{} bytes", page.len());
    let drawn = page.matches("<figure class=\"chart\"").count();
    let left_out = page.matches("The timeline is left out to bound").count();
    assert_eq!(drawn + left_out, chosen.len());
    assert!(left_out == 0 || page.contains("redquorum-chaos check "));
    for address in ["src=\"", "url(http", "@import", "href=\"http"] {
        assert!(!page.contains(address), "{address}: the page needs the network");
    }
}

#[test]
fn the_sentence_that_explains_a_violation_is_in_the_page() {
    let folder = folder("page-violation");
    play(&folder, &["differs", "good", "skip", "injudicable"], &plan());
    let page = fs::read_to_string(folder.join("out/report.html")).unwrap();
    for part in [
        "<li>c1 believed L from 1.0 to 9.0</li><li>so did c2</li>",
        "<code>clock.step</code>: the clock of a master was set forward",
        "<li>differs is &lt;not&gt; &amp; as expected</li>",
        "differs.toml --seed 7 --backend fake",
        "it cannot be",
        "no verdict on this",
        "<summary>The end of the standard error of c1</summary>\n<pre>one\n [1mKeyError: &#x27;L&#x27;",
        "<dt>Lock</dt><dd>a lock 1.2</dd>",
        "0 scenarios must hold: 0 do. 2 must break: 1 did, for the named cause. 2 not checked.",
    ] {
        assert!(page.replace("&#x2f;", "/").contains(part), "{part}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_and_leaves_the_other_results() {
    let folder = folder("page-unwritable");
    fs::create_dir_all(folder.join("out/report.html")).unwrap();
    fs::File::create(folder.join("out/report.html/in-the-way")).unwrap().write_all(b"x").unwrap();
    let chosen = chosen(&folder, &["good"]);
    let (mut reports, printed) = reports(&folder, 1, Format::Human);
    let tally = run_all(&[&Fake::default()], &chosen, &plan(), &mut reports);
    assert_eq!((tally.code(), tally.as_expected), (Code::Environment, 1));
    assert!(!printed.text().contains("report   "), "{}", printed.text());
    let result = fs::read_to_string(folder.join("out/result.json")).unwrap();
    assert!(result.contains("\"finished\": true"));
    assert!(
        folder.join("out/junit.xml").is_file() && folder.join("out/good/history.jsonl").is_file()
    );
}

#[test]
fn check_draws_one_run_and_prints_its_verdict() {
    let folder = folder("page-check");
    let (code, _, stderr) =
        ask(&folder, &["clock-step-one-holder", "--backend", "sim", "--seed", "1", "--out", "out"]);
    assert_eq!(code, 0, "{stderr}");
    let history = "out/clock-step-one-holder/history.jsonl";
    let (code, stdout, _) =
        ask(&folder, &["check", history, "--report", "one.html", "--trace", "trace.json"]);
    assert_eq!(code, 0, "{stdout}");
    let trace = fs::read(folder.join("trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for name in ["believes to hold L", "no quorum has its token of L", "fault 2: clock.step"] {
        let bar = events.iter().find(|event| event["name"] == name).unwrap();
        assert!(bar["ph"] == "X" && bar["dur"].as_f64().unwrap() > 0.0, "{bar}");
    }
    let page = fs::read_to_string(folder.join("one.html")).unwrap();
    for part in [
        "c1 believes that it holds L",
        "no quorum: the belief is wrong",
        "class=\"overlap\"",
        "clock +3000 ms",
        "its clock was set 3000 ms forward at 2.7 ms (fault 2, clock.step)",
        "write on version 0, overwrites 1",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let (code, stdout, stderr) = ask(&folder, &["check", history, "--report", "no/one.html"]);
    assert!(code == 3 && stderr.contains("name another file with --report"), "{stderr}");
    assert!(stdout.contains("mutual-exclusion violated"), "{stdout}");
}
