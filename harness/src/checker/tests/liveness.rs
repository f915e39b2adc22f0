//! Liveness and hygiene: the checks at the end of a run.

use super::*;

const LIVENESS: Property = Property::Liveness;
const HYGIENE: Property = Property::Hygiene;

#[test]
fn each_process_that_lives_must_be_granted_after_the_healing() {
    let mut run = Run::two();
    assert_eq!(run.ended(100.0).seen(LIVENESS), Observed::Safe);
    // A process was never asked.
    let verdict = Run::two().witnessed(100.0, &["c1"]).judge();
    verdict.tells(LIVENESS, "c2 was never asked");
    assert_eq!(verdict.seen(LIVENESS), Observed::Violated);
    // A process died.
    let mut run = Run::two();
    run.struck(50.0, 1, "client.kill = { client = \"c2\" }", &[], &["c2"]);
    assert_eq!(run.witnessed(100.0, &["c1"]).judge().seen(LIVENESS), Observed::Safe);
    // A process was refused. Then it was refused first, and granted later.
    let mut run = Run::two();
    run.witnessed(100.0, &["c1"]).refused("c2", 150.0, 160.0, 0, FailureReason::Taken);
    run.judge().tells(LIVENESS, "c2 asked for L after the healing, and was refused at 160 ms");
    run.grant("c2", "t2", 200.0, 2000.0, &[1, 2, 3]);
    assert_eq!(run.judge().seen(LIVENESS), Observed::Safe);
    // A process did not answer.
    let mut run = Run::two();
    run.witnessed(100.0, &["c1"]).ask(150.0, "c2", "acquire", Some("L"), 0);
    run.judge().tells(LIVENESS, "had no answer");
}

#[test]
fn a_run_without_any_witness_is_not_alive() {
    let verdict = Run::two().witnessed(100.0, &[]).judge();
    assert_eq!(verdict.seen(LIVENESS), Observed::Violated);
    verdict.tells(LIVENESS, "no client answered");
    let mut run = Run::two();
    for (fault, client) in [(1, "c1"), (2, "c2")] {
        let fault_kind = format!("client.kill = {{ client = \"{client}\" }}");
        run.struck(50.0, fault, &fault_kind, &[], &[client]);
    }
    run.witnessed(100.0, &[]).judge().tells(LIVENESS, "no client process lives");
}

#[test]
fn a_run_that_broke_off_is_inconclusive() {
    let verdict = Run::two().judge();
    verdict.only(&[(LIVENESS, Observed::Inconclusive), (HYGIENE, Observed::Inconclusive)]);
    assert_eq!(verdict.outcome, Outcome::Inconclusive);
}

#[test]
fn a_key_that_is_left_is_a_leak_unless_it_is_one_of_the_books() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 300.0, &[1, 2, 3]).release("c1", "t1", 50.0, &[1, 2]);
    run.witnessed(100.0, &["c1", "c2"]);
    let with = |run: &Run, keys: Option<&[(&str, &str)]>| {
        let mut run = Run { records: run.records.clone(), scenario: run.scenario.clone(), next: 0 };
        run.keys(615.0, 3, keys).judge()
    };
    assert_eq!(with(&run, Some(&[])).seen(HYGIENE), Observed::Safe);
    assert_eq!(with(&run, Some(&[("redquorum:fence:L", "7")])).seen(HYGIENE), Observed::Safe);
    assert_eq!(with(&run, None).seen(HYGIENE), Observed::Inconclusive);
    let line = with(&run, Some(&[("redquorum:line:L", "")]));
    assert_eq!(line.seen(HYGIENE), Observed::Violated);
    line.tells(
        HYGIENE,
        "master 3 still has redquorum:line:L at 615 ms: places of those who are long gone",
    );
    let verdict = with(&run, Some(&[("L", "t1")]));
    assert_eq!(verdict.seen(HYGIENE), Observed::Violated);
    verdict.because(&[Cause::Bug]).tells(
        HYGIENE,
        "master 3 still has L at 615 ms, for 100 ms more: it was set by c1, token t1",
    );
    // The last reply counts: an earlier one still had a key.
    run.keys(605.0, 3, Some(&[("L", "t1")]));
    assert_eq!(with(&run, Some(&[])).seen(HYGIENE), Observed::Safe);
}

/// c1's key is on master 1 from 10 to some 2010 (for certain, or perhaps). Then c2 hits the key.
fn hit(silent: bool, own: bool, act: &str, at: f64) -> Verdict {
    let mut run = Run::two();
    run.set("c1", 1, "t1", 10.0, if silent { None } else { Some(10.2) });
    if own {
        run.set("c2", 1, "t2", at - 2.0, None);
    }
    let (key, token) = ("L".into(), None);
    let act = if act == "delete" {
        Act::Delete { key, token }
    } else {
        Act::Keep { key, token, ttl_ms: Some(2000) }
    };
    run.command("c2", 1, act, at, Some(at + 0.2), Said::Done);
    run.witnessed(3000.0, &["c1", "c2"]).judge()
}

#[test]
fn nobody_deletes_or_prolongs_anothers_key() {
    for act in ["delete", "keep"] {
        assert_eq!(hit(false, false, act, 500.0).seen(HYGIENE), Observed::Violated, "{act}");
        assert_eq!(hit(true, false, act, 500.0).seen(HYGIENE), Observed::Inconclusive, "{act}");
        assert_eq!(hit(true, true, act, 500.0).seen(HYGIENE), Observed::Safe, "may be its own");
        assert_eq!(hit(false, false, act, 2500.0).seen(HYGIENE), Observed::Safe, "it is gone");
    }
    // The key may have expired or not: it was created between 10 and 10.2.
    assert_eq!(hit(false, false, "delete", 2010.0).seen(HYGIENE), Observed::Inconclusive);
}

#[test]
fn a_plain_deletion_of_ones_own_key_harms_nobody() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    let id = run.ask(500.0, "c1", "release", Some("L"), 0);
    for node in [1, 2, 3] {
        run.delete("c1", node, None, 500.2, Some(500.4), Said::Done);
    }
    run.answer(501.0, "c1", id, Answer { from: Some(500.1), ..Answer::default() });
    run.ended(3000.0).only(&[]);
}

#[test]
fn nobody_is_blamed_for_what_could_not_be_cured() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.release("c1", "t1", 100.0, &[1, 2, 3]);
    run.struck(150.0, 1, "node.kill = { nodes = [1, 2, 3] }", &[1, 2, 3], &[]);
    let failed = Some("the port is taken".to_owned());
    run.record(3000.0, Event::Cured { fault: 1, at: window(2999.0, 3000.0), failed });
    run.phase(3000.0, Phase::Heal).phase(3010.0, Phase::Witness);
    for client in ["c1", "c2"] {
        run.refused(client, 3020.0, 8000.0, 5000, FailureReason::NoQuorum);
    }
    run.phase(8010.0, Phase::Settle).phase(8500.0, Phase::End);
    let verdict = run.judge();
    assert_eq!(verdict.seen(Property::Liveness), Observed::Inconclusive);
    let line = "fault 1, node.kill could not be cured".to_owned();
    assert!(verdict.differences.contains(&line), "{:?}", verdict.differences);
}
