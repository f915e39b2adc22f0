//! The comparison with the expectation.

use super::*;

/// A run with this expectation in which c1 holds and the clock of master 3 steps. With `steps`, c2
/// gets in; otherwise it is refused.
fn run(expect: &str, steps: bool) -> Run {
    let fault = "[[fault]]\nat = \"100ms\"\nclock.step = { node = 3, by = \"3s\" }";
    let mut run = Run::with(&format!("[expect]\n{expect}\n{fault}"));
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.struck(100.0, 1, "clock.step = { node = 3, by = \"3s\" }", &[3], &[]);
    run.clock(100.0, 3, 3000.0, 1.0);
    if steps {
        run.grant("c2", "t2", 300.0, 2200.0, &[3, 4, 5]);
    } else {
        run.refused("c2", 299.0, 300.0, 0, FailureReason::Taken);
    }
    run.witnessed(3000.0, &["c1", "c2"]);
    run
}

#[track_caller]
pub(super) fn expect(run: &Run, outcome: Outcome, differences: &[&str]) {
    let verdict = run.judge();
    assert_eq!(verdict.differences, differences, "{verdict:#?}");
    assert_eq!(verdict.outcome, outcome);
}

const VIOLATED: &str = "mutual-exclusion = \"violated\"";

#[test]
fn as_expected() {
    expect(&run("", false), Outcome::AsExpected, &[]);
    expect(&run(VIOLATED, true), Outcome::AsExpected, &[]);
    let because = format!("{VIOLATED}\nbecause = [\"clock.step\"]");
    expect(&run(&because, true), Outcome::AsExpected, &[]);
}

#[test]
fn a_violation_that_was_not_expected_differs() {
    let line = "mutual-exclusion: expected safe, observed violated";
    expect(&run("", true), Outcome::Differs, &[line]);
}

#[test]
fn a_violation_that_did_not_show_is_not_seen() {
    let line = "mutual-exclusion: expected violated, observed safe";
    expect(&run(VIOLATED, false), Outcome::NotSeen, &[line]);
    // The causes of the violation are missing, too.
    let because = format!("{VIOLATED}\nbecause = [\"clock.step\"]");
    expect(&run(&because, false), Outcome::NotSeen, &[line]);
    // A broken process does not change the outcome; a violation does.
    let broken = Event::Broken { process: "c1".into(), why: "it left".into() };
    let mut blind = run(VIOLATED, false);
    blind.record(4000.0, broken);
    expect(&blind, Outcome::NotSeen, &[line, "process c1: it left"]);
    let mut dirty = run(VIOLATED, false);
    dirty.keys(3515.0, 1, Some(&[("L", "t1")]));
    let second = "hygiene: expected safe, observed violated";
    let third = "because: observed bug, which was not expected";
    expect(&dirty, Outcome::Differs, &[line, second, third]);
}

#[test]
fn another_cause_differs() {
    let restart = format!("{VIOLATED}\nbecause = [\"node.restart\"]");
    let line = "because: expected node.restart, which is no cause of what was observed";
    expect(&run(&restart, true), Outcome::Differs, &[line]);
    // A bug is expected only if the scenario names it.
    let because = format!("{VIOLATED}\nvalidity = \"violated\"");
    let mut buggy = run(&because, true);
    buggy.grant("c1", "t9", 2200.0, 2199.0, &[1, 2, 4]);
    expect(&buggy, Outcome::Differs, &["because: observed bug, which was not expected"]);
    let because = format!("{because}\nbecause = [\"bug\", \"clock.step\"]");
    let mut buggy = run(&because, true);
    buggy.grant("c1", "t9", 2200.0, 2199.0, &[1, 2, 4]);
    expect(&buggy, Outcome::AsExpected, &[]);
}

#[test]
fn what_is_not_known_is_inconclusive_either_way() {
    for expected in ["safe", "violated"] {
        let mut vague = run(&format!("mutual-exclusion = \"{expected}\""), false);
        // c2 reports no stamps: it may have had a lease from 1987 on, or from 1990 on.
        let id = vague.ask(1986.0, "c2", "acquire", Some("L"), 0);
        for node in [3, 4, 5] {
            vague.set("c2", node, "t2", 1986.2, Some(1986.4));
        }
        let answer = Answer { token: Some("t2"), valid: Some(500), ..Answer::default() };
        vague.answer(1990.0, "c2", id, answer);
        let line = format!("mutual-exclusion: expected {expected}, observed inconclusive");
        if expected == "violated" {
            vague.scenario.expect.because.push(Cause::ClockStep);
        }
        expect(&vague, Outcome::Inconclusive, &[&line]);
    }
}

#[test]
fn a_run_must_have_gone_as_it_should_to_mean_anything() {
    for (wanted, what) in [
        ("c1 = \"granted\"", None),
        ("c1 = \"all-granted\"", None),
        ("c2 = \"refused\"", None),
        ("c2 = \"taken\"", None),
        ("c1 = \"refused\"", Some("c1 was not refused (1 of 1 granted)")),
        ("c2 = \"granted\"", Some("c2 was never granted (0 of 1 granted)")),
        ("c2 = \"all-granted\"", Some("c2 was not granted every time (0 of 1 granted)")),
        ("c2 = \"late\"", Some("c2 was not refused as late (0 of 1 granted)")),
        ("c2 = \"no-quorum\"", Some("c2 was not refused for want of a quorum (0 of 1 granted)")),
        ("c3 = \"refused\"", Some("c3 was not refused (0 of 0 granted)")),
        ("c = \"granted\"", None),
        ("c = \"all-granted\"", Some("c was not granted every time (1 of 2 granted)")),
    ] {
        let run = run(&format!("acquires = {{ {wanted} }}"), false);
        match what {
            None => expect(&run, Outcome::AsExpected, &[]),
            Some(what) => expect(&run, Outcome::NotSeen, &[&format!("acquires: {what}")]),
        }
    }
}

#[test]
fn the_first_grant_must_have_the_margin() {
    expect(&run("margin = { c1 = 1 }", false), Outcome::AsExpected, &[]);
    let line = "margin: the first grant of c1 has 1, expected 2";
    expect(&run("margin = { c1 = 2 }", false), Outcome::NotSeen, &[line]);
    expect(&run("margin = { c2 = 1 }", false), Outcome::NotSeen, &["margin: c2 was never granted"]);
}

#[test]
fn who_is_granted_must_be_granted_soon_enough() {
    let slow = |within: &str, granted: f64| {
        let mut run = Run::with(&format!("[expect]\nwithin = {{ {within} }}"));
        let id = run.ask(0.0, "c1", "acquire", Some("L"), 5000);
        for node in [1, 2, 3] {
            run.set("c1", node, "t1", granted - 1.0, Some(granted - 0.5));
        }
        run.granted(granted, "c1", id, "t1", granted + 1000.0);
        run.witnessed(3000.0, &["c1", "c2"]);
        run
    };
    expect(&slow("c1 = \"600ms\"", 600.0), Outcome::AsExpected, &[]);
    let line = "within: c1 asked at 0 ms and was granted after 600.1 ms, expected at most 600ms";
    expect(&slow("c1 = \"600ms\"", 600.1), Outcome::Differs, &[line]);
    expect(&slow("c = \"600ms\"", 600.1), Outcome::Differs, &[line]);
    let line = "within: c2 was never granted";
    expect(&slow("c2 = \"1s\"", 600.0), Outcome::NotSeen, &[line]);
}

#[test]
fn a_process_must_not_send_more_commands_than_expected() {
    let busy = |most: usize| {
        let mut run = Run::with(&format!("[expect]\ncommands = {{ c1 = {most} }}"));
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.release("c1", "t1", 100.0, &[1, 2, 3]);
        run.grant("c2", "t2", 500.0, 1988.0, &[1, 2, 3]);
        run.release("c2", "t2", 600.0, &[1, 2, 3]);
        // The commands of final acquires do not count.
        run.witnessed(3000.0, &["c1", "c2"]);
        run
    };
    expect(&busy(6), Outcome::AsExpected, &[]);
    expect(&busy(5), Outcome::Differs, &["commands: c1 sent 6, expected at most 5"]);
}

#[test]
fn the_example_goes_as_it_says() {
    let mut run = Run::of(include_str!("../../../../scenarios/clock-step-one-holder.toml"));
    run.ready("c1", &[Capability::Deadline, Capability::Lost])
        .ready("c2", &[Capability::Deadline, Capability::Lost]);
    let drop = "net.drop = { client = \"c1\", nodes = [4, 5], what = \"request\" }";
    run.struck(0.0, 1, drop, &[4, 5], &["c1"]);
    run.grant("c1", "t1", 3.0, 1980.0, &[1, 2, 3]);
    run.struck(3.2, 2, "clock.step = { node = \"holder(c1)\", by = \"3s\" }", &[1], &[]);
    run.clock(3.2, 1, 3000.0, 1.0).read(3.9, "c1", 0).cured(150.0, 1);
    run.grant("c2", "t2", 301.0, 2278.0, &[1, 4, 5]);
    run.read(302.0, "c2", 0).write(402.0, "c2", 0, 1);
    run.release("c2", "t2", 403.0, &[1, 4, 5]);
    run.write(604.0, "c1", 0, 2).release("c1", "t1", 605.0, &[2, 3]);
    run.witnessed(700.0, &["c1", "c2"]);
    expect(&run, Outcome::AsExpected, &[]);
    let verdict = run.judge();
    verdict.because(&[Cause::ClockStep]);
    assert_eq!(verdict.measures.margins, [1, 1]);
    // The run has the intended fault, but no step: the harness is blind.
    run.records.retain(|record| !matches!(record.event, Event::Clock { .. }));
    let line = "because: expected clock.step, which is no cause of what was observed";
    let second = "because: observed unknown, which was not expected";
    expect(&run, Outcome::Differs, &[line, second]);
}

#[test]
fn every_fault_must_strike() {
    let of = |strike: &str| {
        let fault = "[[fault]]\nat = \"100ms\"\nclock.step = { node = 3, by = \"3s\" }";
        let mut run = Run::with(fault);
        run.witnessed(1000.0, &["c1", "c2"]);
        let fault_kind = "clock.step = { node = 3, by = \"3s\" }";
        match strike {
            "not" => {}
            "badly" => {
                run.struck_or_failed(100.0, 1, fault_kind, &[], &[], Some("no shim"));
            }
            _ => {
                run.struck(100.0, 1, fault_kind, &[3], &[]);
            }
        }
        run
    };
    expect(&of("well"), Outcome::AsExpected, &[]);
    expect(&of("not"), Outcome::NotSeen, &["fault 1 (clock.step) never struck"]);
    expect(&of("badly"), Outcome::NotSeen, &["fault 1 (clock.step) failed to strike"]);
}

#[test]
fn a_process_that_breaks_differs() {
    let mut broken = run("", false);
    let why = "it ended with status 101".to_owned();
    broken.record(5000.0, Event::Broken { process: "c1".into(), why });
    expect(&broken, Outcome::Differs, &["process c1: it ended with status 101"]);
}

#[test]
fn a_run_that_broke_off_is_inconclusive_whatever_it_showed() {
    let mut cut = run("", false);
    cut.records.retain(|record| !matches!(record.event, Event::Phase { phase: Phase::End }));
    let lines =
        ["liveness: expected safe, observed inconclusive", "the run broke off before its end"];
    expect(&cut, Outcome::Inconclusive, &lines);
}
