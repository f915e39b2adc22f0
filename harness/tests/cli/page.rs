//! `report.html`: the file that a person opens first.

use std::fs;
use std::io::Write as _;

use redquorum_harness::cli::{Plan, Selection, run_all};
use redquorum_harness::real::{Backend, BackendKind, Setup};
use redquorum_harness::report::{Code, Format, Out, Reports, Session};

use crate::program::ask;
use crate::support::{Fake, chosen, folder, plan, play, reports};

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
