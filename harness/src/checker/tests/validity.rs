use super::*;

const VALIDITY: Property = Property::Validity;

#[test]
fn a_lease_handed_out_at_its_deadline_is_late() {
    for (deadline, seen) in
        [(100.0, Observed::Violated), (99.0, Observed::Violated), (100.1, Observed::Safe)]
    {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, deadline, &[1, 2, 3]);
        assert_eq!(run.judge().seen(VALIDITY), seen, "{deadline}");
    }
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.extend("c1", "t1", 500.0, 499.0, &[1, 2, 3]);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "nothing was left of it");
}

#[test]
fn a_client_that_was_stopped_after_its_last_look_is_not_late() {
    // The third grant was delivered at 99.7.
    for (from, seen) in [(99.8, Observed::Safe), (50.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 99.9, &[1, 2, 3]);
        run.struck(from, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]);
        run.cured(from + 0.1, 1);
        assert_eq!(run.judge().seen(VALIDITY), seen, "{from}");
    }
}

#[test]
fn a_deadline_beyond_the_end_of_the_keys_is_a_bug() {
    // The keys live until 2099.4 + 1.2 at the most.
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2150.0, &[1, 2, 3, 4]);
    let verdict = run.judge();
    assert_eq!(verdict.seen(VALIDITY), Observed::Violated);
    verdict.because(&[Cause::Bug]).tells(VALIDITY, "for longer than the master keeps the key");
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2101.0, &[1, 2, 3, 4]);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe, "within what cannot be told apart");
}

#[test]
fn an_extend_that_counts_a_minority_is_a_bug() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2]);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "master 3");
    // A quorum is enough, and on the other masters the key may expire.
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3, 4, 5]);
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}

#[test]
fn a_lease_that_is_not_true_from_the_instant_of_a_step_is_so_by_design() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.struck(500.0, 1, "clock.step = { node = 1, by = \"3s\" }", &[1], &[]);
    // The simulation records the setting exactly, to the nanosecond.
    let (ahead, rate, since) = (ns(3000.0), 1.0, window(500.0, 500.0));
    let (strobe_by, strobe_every) = (0, 0);
    run.record(500.0, Event::Clock { node: 1, since, ahead, rate, strobe_by, strobe_every });
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}

#[test]
fn an_extend_without_a_spare_master_and_a_clock_that_steps_is_by_design() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3, 4]);
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
    run.struck(1100.0, 1, "clock.step = { node = 1, by = \"3s\" }", &[1], &[]);
    run.clock(1100.0, 1, 3000.0, 1.0);
    let verdict = run.judge();
    assert_eq!(verdict.seen(VALIDITY), Observed::Safe, "{verdict:#?}");
    assert!(verdict.measures.hollow_ns > ns(870.0), "{verdict:#?}");
}

#[test]
fn a_lease_that_its_owner_deleted_and_goes_on_believing_is_a_bug() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.delete("c1", 2, Some("t1"), 200.0, Some(200.3), Said::Done);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "c1 deleted the key of c1 there at 200 ms");
    // A key that the client deletes shortly before its loss notice does not count.
    run.lost("c1", 210.0);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}

#[test]
fn a_lease_that_too_few_granted_is_a_bug() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2]);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "2 of 5 masters granted, and it takes 3");
}

#[test]
fn a_master_that_forgot_is_no_bug() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.struck(200.0, 1, "node.restart = { node = 1 }", &[1], &[]);
    let verdict = run.judge();
    assert_eq!(verdict.seen(VALIDITY), Observed::Safe);
    assert_eq!(verdict.measures.hollow_ns, ns(2078.0 - 200.5));
    // With persistence to a file, the master forgets nothing.
    let mut run = Run::with("[cluster]\npersistence = \"aof-everysec\"");
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.struck(200.0, 1, "node.restart = { node = 1 }", &[1], &[]);
    assert_eq!(run.judge().measures.hollow_ns, 0);
}

#[test]
fn keys_that_nobody_understands_prove_nothing() {
    let mut run = Run::two();
    let id = run.ask(99.0, "c1", "acquire", Some("L"), 0);
    for node in 1..=5 {
        let act = Act::Other { key: Some("L".into()), command: "EVALSHA".into() };
        run.command("c1", node, act, 99.2, Some(99.4), Said::Done);
    }
    run.granted(100.0, "c1", id, "t1", 2078.0);
    let verdict = run.judge();
    assert_eq!(verdict.seen(VALIDITY), Observed::Safe);
    assert_eq!(verdict.measures.margins, [0; 0]);
}

#[test]
fn a_token_that_was_not_said_is_found_among_the_commands() {
    let mut run = Run::two();
    let id = run.ask(99.0, "c1", "acquire", Some("L"), 0);
    for node in 1..=3 {
        run.set("c1", node, "t1", 99.2, Some(99.4));
    }
    let answer = Answer { at: Some(100.0), valid: Some(1978), ..Answer::default() };
    let verdict = run.answer(100.1, "c1", id, answer).judge();
    assert_eq!(verdict.seen(VALIDITY), Observed::Safe);
    assert_eq!(verdict.measures.margins, [1]);
}

fn told(lost: Option<f64>, pause: Option<(f64, f64)>) -> Verdict {
    let mut run = Run::two();
    run.ready("c1", &[Capability::Lost]).ready("c2", &[]);
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    // This client cannot report losses.
    run.grant("c2", "t2", 2100.0, 2200.0, &[1, 2, 3]);
    if let Some(at) = lost {
        run.lost("c1", at);
    }
    if let Some((from, to)) = pause {
        run.struck(from, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]).cured(to, 1);
    }
    run.ended(6000.0)
}

#[test]
fn a_loss_is_told_in_time() {
    assert_eq!(told(Some(1988.0), None).seen(VALIDITY), Observed::Safe);
    assert_eq!(told(Some(500.0), None).seen(VALIDITY), Observed::Safe, "the quorum is gone");
    assert_eq!(told(Some(2238.0), None).seen(VALIDITY), Observed::Safe);
    told(Some(2239.0), None).because(&[Cause::Bug]).tells(VALIDITY, "251 ms after the deadline");
    told(None, None).because(&[Cause::Bug]).tells(VALIDITY, "it was never told of its loss");
    assert_eq!(told(Some(3600.0), Some((1000.0, 3400.0))).seen(VALIDITY), Observed::Safe);
    assert_eq!(told(Some(3700.0), Some((1000.0, 3400.0))).seen(VALIDITY), Observed::Violated);
    assert_eq!(told(Some(2400.0), Some((1000.0, 1900.0))).seen(VALIDITY), Observed::Violated);
}

#[test]
fn who_releases_or_dies_or_whose_run_ends_needs_no_telling() {
    for end in ["release", "kill", "end"] {
        let mut run = Run::two();
        run.ready("c1", &[Capability::Lost]);
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        match end {
            "release" => run.release("c1", "t1", 2000.0, &[]),
            "kill" => run.struck(2100.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]),
            _ => run.phase(2100.0, Phase::Settle),
        };
        run.phase(5000.0, Phase::End);
        assert_eq!(run.judge().seen(VALIDITY), Observed::Safe, "{end}");
    }
}

#[test]
fn a_token_that_comes_again_is_a_bug() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.release("c1", "t1", 200.0, &[1, 2, 3]);
    run.grant("c1", "t1", 300.0, 2278.0, &[1, 2, 3]);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "and in another attempt");
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.release("c1", "t1", 200.0, &[1, 2, 3]);
    run.grant("c1", "t2", 300.0, 2278.0, &[1, 2, 3]);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}

#[test]
fn a_client_without_stamps_is_late_if_its_quorum_was() {
    for (replied, seen) in [(99.6, Observed::Safe), (2100.0, Observed::Violated)] {
        let mut run = Run::two();
        let id = run.ask(99.0, "c1", "acquire", Some("L"), 0);
        for node in 1..=3 {
            run.set("c1", node, "t1", 99.4, Some(if node == 3 { replied } else { 99.6 }));
        }
        let answer = Answer { token: Some("t1"), deadline: Some(2078.0), ..Answer::default() };
        run.answer(2101.0, "c1", id, answer);
        assert_eq!(run.judge().seen(VALIDITY), seen, "{replied}");
    }
}

/// An extension creates the key anew on these masters.
fn anew(run: &mut Run, nodes: &[usize], at: f64) {
    for node in nodes {
        let act = Act::Keep { key: "L".into(), token: Some("t1".into()), ttl_ms: Some(2000) };
        run.command("c1", *node, act, at - 0.6, Some(at - 0.4), Said::Created);
    }
}

#[test]
fn an_extension_over_a_gap_that_the_client_was_told_of_is_a_bug() {
    // In turn: the fourth key is created anew after the first is gone; before that; not at all;
    // before that, with the fifth.
    for (made, others, seen) in [
        (1000.0, &[4][..], Observed::Violated),
        (150.0, &[4], Observed::Safe),
        (1000.0, &[], Observed::Violated),
        (150.0, &[4, 5], Observed::Safe),
    ] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
        if made < 200.0 {
            anew(&mut run, others, made);
        }
        run.struck(200.0, 1, "node.flush = { node = 1 }", &[1], &[]);
        if made > 200.0 {
            anew(&mut run, others, made);
        }
        anew(&mut run, &[1], 1200.0);
        run.extend("c1", "t1", 1300.0, 3278.0, &[1, 2, 3]);
        let verdict = run.judge();
        assert_eq!(verdict.seen(VALIDITY), seen, "{made} {others:?} {verdict:#?}");
        if seen == Observed::Violated {
            verdict.because(&[Cause::Bug]).tells(VALIDITY, "a quorum of masters lacked its key");
        }
    }
}

#[test]
fn an_extension_over_a_gap_that_the_client_was_not_told_of_is_no_bug() {
    // In turn: the key is created anew when the old one would have expired anyway; the reply comes
    // too late.
    for (made, extended) in [(2200.0, 2300.0), (1200.0, 1210.0)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
        run.struck(200.0, 1, "node.flush = { node = 1 }", &[1], &[]);
        anew(&mut run, &[4], 1000.0);
        run.extend("c1", "t1", 1000.0, 2978.0, &[2, 3]);
        anew(&mut run, &[1], made);
        run.extend("c1", "t1", extended, 2978.0, &[1, 2, 3, 4]);
        let verdict = run.judge();
        let tells = format!("{verdict:?}").contains("a quorum of masters lacked its key");
        assert!(!tells, "{made} {verdict:#?}");
    }
}

#[test]
fn the_token_of_a_lease_is_the_last_one_that_reached_a_quorum() {
    let mut run = Run::two();
    let id = run.ask(99.0, "c1", "acquire", Some("L"), 0);
    // The process gives up an attempt that has a quorum. The fourth master is slow, and sets that
    // key after the quorum of the next attempt.
    for node in [1, 2, 3] {
        run.set("c1", node, "t1", 99.1, Some(99.2));
        run.delete("c1", node, Some("t1"), 99.2, Some(99.3), Said::Done);
        run.set("c1", node, "t2", 99.3, Some(99.4));
    }
    run.set("c1", 4, "t1", 99.5, Some(99.6));
    // The client does not report its token.
    let (at, deadline) = (Some(100.0), Some(2078.0));
    run.answer(100.0, "c1", id, Answer { ok: true, at, deadline, ..Answer::default() });
    run.delete("c1", 4, Some("t1"), 100.1, Some(100.2), Said::Done);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}
