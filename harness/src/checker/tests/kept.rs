use super::*;

const PROGRESS: Property = Property::Progress;

#[test]
fn an_extension_that_a_quorum_did_must_not_fail() {
    for (nodes, delivered, seen) in [
        (&[1, 2, 3][..], 1000.0, Observed::Violated),
        (&[1, 2], 1000.0, Observed::Safe),
        // The replies are so late that the client may have given up.
        (&[1, 2, 3], 1040.0, Observed::Safe),
    ] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3, 4, 5]);
        let id = run.ask(999.0, "c1", "extend", Some("L"), 0);
        for node in nodes {
            let (key, token) = ("L".into(), Some("t1".into()));
            let act = Act::Keep { key, token, ttl_ms: Some(2000) };
            run.command("c1", *node, act, 999.5, Some(delivered), Said::Done);
        }
        let why = Some(FailureReason::NoQuorum);
        run.answer(1050.0, "c1", id, Answer { ok: false, why, ..Answer::default() });
        assert_eq!(run.judge().seen(PROGRESS), seen, "{nodes:?} {delivered}");
    }
}

/// A lease that is to be kept for 10 s and is lost at its first deadline.
fn let_go() -> Run {
    let mut run = Run::of(&TWO.replace(
        "script = [\"acquire L\", \"release L\"]\n[[client]]",
        "script = [\"acquire L\", \"keep L for 10s\", \"work 4s\", \"release L\"]\n[[client]]",
    ));
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3, 4, 5]);
    let id = run.ask(101.0, "c1", "keep_alive", Some("L"), 0);
    run.answer(102.0, "c1", id, Answer::default());
    run
}

#[test]
fn a_lease_that_is_kept_alive_must_not_end_while_a_majority_can_be_reached() {
    let mut run = let_go();
    run.lost("c1", 2078.0);
    run.ended(5000.0).tells(PROGRESS, "that c1 kept alive ended at 2078 ms");

    let mut run = let_go();
    run.struck(1500.0, 1, "net.cut = { client = \"c1\", nodes = [1, 2, 3] }", &[1, 2, 3], &["c1"]);
    run.lost("c1", 2078.0);
    assert_eq!(run.ended(5000.0).seen(PROGRESS), Observed::Safe);

    let mut run = let_go();
    run.struck(1500.0, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]);
    run.cured(2100.0, 1).lost("c1", 2101.0);
    assert_eq!(run.ended(5000.0).seen(PROGRESS), Observed::Safe);

    let mut run = let_go();
    run.struck(500.0, 1, "node.restart = { nodes = [1, 2, 3] }", &[1, 2, 3], &[]);
    run.lost("c1", 2078.0);
    assert_eq!(run.ended(5000.0).seen(PROGRESS), Observed::Safe);

    // The clocks of three masters step after the last extension by a quorum, and before the next
    // one.
    let mut run = let_go();
    for node in 1..=3 {
        let fault_kind = format!("clock.step = {{ node = {node}, by = \"3s\" }}");
        run.struck(1500.0, node, &fault_kind, &[node], &[]).clock(1500.0, node, 3000.0, 1.0);
    }
    run.lost("c1", 1600.0);
    assert_eq!(run.ended(5000.0).seen(PROGRESS), Observed::Safe);

    let mut run = let_go();
    run.release("c1", "t1", 1500.0, &[1, 2, 3, 4, 5]);
    assert_eq!(run.ended(5000.0).seen(PROGRESS), Observed::Safe);
}

#[test]
fn several_who_wait_for_what_nobody_has_must_not_wait_for_long() {
    for (granted, seen) in [(1200.0, Observed::Safe), (2100.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t0", 50.0, 2028.0, &[1, 2, 3, 4, 5]);
        // The release deletes the key on masters 1 and 2 only.
        run.release("c1", "t0", 60.0, &[1, 2]);
        let first = run.ask(400.0, "c1", "acquire", Some("L"), 5000);
        let second = run.ask(400.0, "c2", "acquire", Some("L"), 5000);
        for node in 1..=5 {
            run.set("c1", node, "t1", granted - 0.6, Some(granted - 0.4));
        }
        run.granted(granted, "c1", first, "t1", granted + 1978.0);
        run.release("c1", "t1", granted + 10.0, &[1, 2, 3, 4, 5]);
        for node in 1..=5 {
            run.set("c2", node, "t2", granted + 19.4, Some(granted + 19.6));
        }
        run.granted(granted + 20.0, "c2", second, "t2", granted + 1998.0);
        run.release("c2", "t2", granted + 30.0, &[1, 2, 3, 4, 5]);
        assert_eq!(run.ended(6000.0).seen(PROGRESS), seen, "{granted}");
    }
}

#[test]
fn what_a_client_left_behind_itself_is_in_its_way_for_a_moment_only() {
    for (granted, seen) in [(700.0, Observed::Safe), (2060.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t0", 50.0, 2028.0, &[1, 2, 3, 4, 5]);
        run.release("c1", "t0", 60.0, &[1, 2]);
        let id = run.ask(61.0, "c1", "acquire", Some("L"), 5000);
        for node in 1..=5 {
            run.set("c1", node, "t1", granted - 0.6, Some(granted - 0.4));
        }
        run.granted(granted, "c1", id, "t1", granted + 1978.0);
        assert_eq!(run.judge().seen(PROGRESS), seen, "{granted}");
    }
}
