use super::*;

const PROGRESS: Property = Property::Progress;

fn refused_at(run: &mut Run, at: f64) -> Observed {
    run.refused("c2", at, at + 5.0, 0, FailureReason::Taken);
    run.phase(50_000.0, Phase::Heal).judge().seen(PROGRESS)
}

#[test]
fn a_refusal_with_nothing_in_the_way_is_a_violation() {
    let mut run = Run::two();
    run.refused("c1", 10.0, 20.0, 0, FailureReason::NoQuorum);
    let verdict = run.judge();
    assert_eq!(verdict.seen(PROGRESS), Observed::Violated);
    verdict
        .because(&[Cause::Bug])
        .tells(PROGRESS, "c1 asked for L at 10 ms, and was refused at 20 ms (no-quorum)");
}

#[test]
fn refusals_that_were_wanted_are_none() {
    for why in [FailureReason::Cancelled, FailureReason::Unsupported] {
        let mut run = Run::two();
        run.refused("c1", 10.0, 20.0, 0, why);
        assert_eq!(run.judge().seen(PROGRESS), Observed::Safe);
    }
    // Final acquires do not count.
    let mut run = Run::two();
    run.phase(5.0, Phase::Witness).refused("c1", 10.0, 20.0, 0, FailureReason::Taken);
    assert_eq!(run.judge().seen(PROGRESS), Observed::Safe);
}

#[test]
fn another_lease_and_another_request_are_in_the_way() {
    let held = |at| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.release("c1", "t1", 500.0, &[1, 2, 3]);
        refused_at(&mut run, at)
    };
    assert_eq!(held(300.0), Observed::Safe);
    assert_eq!(held(640.0), Observed::Safe, "the deletions may be on their way");
    assert_eq!(held(651.0), Observed::Violated);
    let mut run = Run::two();
    run.refused("c1", 10.0, 20.0, 0, FailureReason::Taken).refused(
        "c2",
        15.0,
        25.0,
        0,
        FailureReason::Taken,
    );
    assert_eq!(run.judge().seen(PROGRESS), Observed::Safe, "they split the votes");
}

#[test]
fn keys_of_a_lost_lease_are_in_the_way_until_it_is_released() {
    let lost = |released: Option<f64>, at| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]).lost("c1", 500.0);
        if let Some(released) = released {
            // This release deletes nothing.
            run.release("c1", "t1", released, &[]);
        }
        refused_at(&mut run, at)
    };
    assert_eq!(lost(None, 1000.0), Observed::Safe, "the holder may not have stopped yet");
    assert_eq!(lost(Some(1500.0), 1000.0), Observed::Safe, "it stops later");
    assert_eq!(lost(Some(600.0), 1000.0), Observed::Violated, "a leak");
    assert_eq!(lost(None, 2200.0), Observed::Violated, "the keys have expired");
}

#[test]
fn a_grant_that_takes_too_long_is_a_violation() {
    for (at, wait, seen) in [
        (250.0, 0, Observed::Safe),
        (251.1, 0, Observed::Violated),
        (700.0, 5000, Observed::Safe),
        (701.1, 5000, Observed::Violated),
    ] {
        let mut run = Run::two();
        let id = run.ask(0.0, "c1", "acquire", Some("L"), wait);
        for node in [1, 2, 3] {
            run.set("c1", node, "t1", at - 1.0, Some(at - 0.5));
        }
        run.granted(at, "c1", id, "t1", at + 1000.0);
        assert_eq!(run.judge().seen(PROGRESS), seen, "{at} {wait}");
    }
}

#[test]
fn who_waits_is_granted_soon_after_the_way_is_free() {
    // c1 releases at 1000, and has until 1150.4 to clean up; then c2 has 700.
    for (at, granted, seen) in [
        (1850.0, true, Observed::Safe),
        (1852.0, true, Observed::Violated),
        (1850.0, false, Observed::Safe),
        (1852.0, false, Observed::Violated),
    ] {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.release("c1", "t1", 1000.0, &[1, 2, 3]);
        if granted {
            let id = run.ask(100.0, "c2", "acquire", Some("L"), 5000);
            for node in [1, 2, 3] {
                run.set("c2", node, "t2", at - 1.0, Some(at - 0.5));
            }
            run.granted(at, "c2", id, "t2", at + 100.0);
        } else {
            run.refused("c2", 100.0, at, 1700, FailureReason::Taken);
        }
        let verdict = run.judge();
        assert_eq!(verdict.seen(PROGRESS), seen, "{at} {granted}");
        if granted {
            assert_eq!(verdict.measures.hand_over_ns, Some(ns(at - 1000.0)));
        }
    }
}

#[test]
fn who_waits_may_have_to_look_where_keys_are_lost_and_no_master_says_so() {
    // All keys are lost at 600; then c2 has a second to look, and 700 as usual.
    for (at, seen) in [(2250.0, Observed::Safe), (2450.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 4000.0, &[1, 2, 3]);
        run.struck(300.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]);
        run.struck(600.0, 2, "node.flush = { nodes = \"all\" }", &[1, 2, 3, 4, 5], &[]);
        let id = run.ask(100.0, "c2", "acquire", Some("L"), 5000);
        for node in [1, 2, 3] {
            run.set("c2", node, "t2", at - 1.0, Some(at - 0.5));
        }
        run.granted(at, "c2", id, "t2", at + 100.0);
        assert_eq!(run.judge().seen(PROGRESS), seen, "{at}");
    }
}

#[test]
fn who_waits_may_have_to_look_where_a_key_expires_that_was_set_meanwhile() {
    // c1 dies. Its keys are set at 150 and expire at 2150. A client that asked before may have seen
    // another client's keys, and may sleep until those expire.
    for (asked, at, seen) in [
        (100.0, 3800.0, Observed::Safe),
        (100.0, 4000.0, Observed::Violated),
        (250.0, 3800.0, Observed::Violated),
    ] {
        let mut run = Run::two();
        run.grant("c1", "t1", 150.0, 2000.0, &[1, 2, 3]);
        run.struck(300.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]);
        let id = run.ask(asked, "c2", "acquire", Some("L"), 5000);
        for node in [1, 2, 3] {
            run.set("c2", node, "t2", at - 1.0, Some(at - 0.5));
        }
        run.granted(at, "c2", id, "t2", at + 100.0);
        assert_eq!(run.judge().seen(PROGRESS), seen, "{asked} {at}");
    }
}

#[test]
fn without_a_majority_nothing_is_asked() {
    let with = |fault_kind: &str, nodes: &[usize], processes: &[&str], cured: Option<f64>, at| {
        let mut run = Run::two();
        run.struck(100.0, 1, fault_kind, nodes, processes);
        if let Some(cured) = cured {
            run.cured(cured, 1);
        }
        refused_at(&mut run, at)
    };
    let three = [1, 2, 3];
    assert_eq!(with("node.kill = { nodes = [1, 2, 3] }", &three, &[], None, 200.0), Observed::Safe);
    assert_eq!(
        with("node.kill = { nodes = [1, 2] }", &[1, 2], &[], None, 200.0),
        Observed::Violated,
        "three masters are enough"
    );
    // After a fault is healed, the links need a while; broken links need longer.
    let kill = "node.kill = { nodes = [1, 2, 3] }";
    assert_eq!(with(kill, &three, &[], Some(900.0), 2000.0), Observed::Safe);
    assert_eq!(with(kill, &three, &[], Some(900.0), 2200.0), Observed::Violated);
    let pause = "node.pause = { nodes = [1, 2, 3] }";
    assert_eq!(with(pause, &three, &[], Some(900.0), 1000.0), Observed::Safe);
    assert_eq!(with(pause, &three, &[], Some(900.0), 1010.0), Observed::Violated);
    let restart = "node.restart = { nodes = [1, 2, 3] }";
    assert_eq!(with(restart, &three, &[], None, 1200.0), Observed::Safe);
    assert_eq!(with(restart, &three, &[], None, 1400.0), Observed::Violated);
    // Network faults hit only the named clients.
    let cut = "net.cut = { client = \"c2\", nodes = [1, 2, 3] }";
    assert_eq!(with(cut, &three, &["c2"], None, 200.0), Observed::Safe);
    let cut = "net.cut = { client = \"c1\", nodes = [1, 2, 3] }";
    assert_eq!(with(cut, &three, &["c1"], None, 200.0), Observed::Violated);
    let cut = "net.duplicate = { client = \"c2\", nodes = [1, 2, 3] }";
    assert_eq!(with(cut, &three, &["c2"], None, 200.0), Observed::Violated);
    // A delay matters if it is long enough for timeouts.
    let slow = "node.slow = { nodes = [1, 2, 3], by = \"30ms\" }";
    assert_eq!(with(slow, &three, &[], None, 200.0), Observed::Safe);
    let slow = "node.slow = { nodes = [1, 2, 3], by = \"20ms\" }";
    assert_eq!(with(slow, &three, &[], None, 200.0), Observed::Violated);
    let step = "clock.step = { nodes = [1, 2, 3], by = \"3s\" }";
    assert_eq!(with(step, &three, &[], None, 200.0), Observed::Violated, "clocks cut no links");
    let pause = "client.pause = { client = \"c2\" }";
    assert_eq!(
        with(pause, &[], &["c2"], Some(900.0), 950.0),
        Observed::Safe,
        "it was stopped itself"
    );
}

#[test]
fn keys_of_the_dead_are_in_the_way_and_those_of_the_careless_are_not() {
    // c1's keys stay until 2009.6 at the most.
    let left = |fault_kind: Option<(&str, f64)>, at| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 300.0, &[1, 2, 3]);
        if let Some((fault_kind, when)) = fault_kind {
            run.struck(when, 1, fault_kind, &[], &["c1"]);
        }
        refused_at(&mut run, at)
    };
    assert_eq!(left(None, 400.0), Observed::Safe, "it may be cleaning up");
    assert_eq!(left(None, 500.0), Observed::Violated);
    let kill = "client.kill = { client = \"c1\" }";
    assert_eq!(left(Some((kill, 100.0)), 500.0), Observed::Safe);
    assert_eq!(left(Some((kill, 100.0)), 2015.0), Observed::Violated);
    let pause = "client.pause = { client = \"c1\" }";
    assert_eq!(left(Some((pause, 100.0)), 1800.0), Observed::Safe);
    let cut = "net.cut = { client = \"c1\" }";
    assert_eq!(left(Some((cut, 100.0)), 1800.0), Observed::Safe);
    // There are too few keys to be in the way: three masters are free.
    let mut run = Run::two();
    run.set("c1", 1, "t1", 9.0, None).set("c1", 2, "t1", 9.0, None);
    run.struck(1.0, 1, kill, &[], &["c1"]);
    assert_eq!(refused_at(&mut run, 500.0), Observed::Violated);
}

#[test]
fn unreachable_and_blocked_masters_count_together() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 300.0, &[1, 2, 3]);
    run.struck(100.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]);
    run.struck(100.0, 2, "node.kill = { nodes = [4] }", &[4], &[]);
    // Only master 1 forgot the key.
    run.delete("c2", 1, None, 110.0, Some(110.2), Said::Done);
    assert_eq!(refused_at(&mut run, 500.0), Observed::Safe);
}

#[test]
fn a_request_that_is_never_answered_fails_where_there_was_time() {
    let mut run = Run::two();
    run.ask(100.0, "c1", "acquire", Some("L"), 0);
    assert_eq!(run.phase(200.0, Phase::Heal).judge().seen(PROGRESS), Observed::Safe);
    let mut run = Run::two();
    run.ask(100.0, "c1", "acquire", Some("L"), 0);
    run.phase(1000.0, Phase::Heal).judge().tells(PROGRESS, "had no answer by 1000 ms");
}

#[test]
fn who_asks_again_is_not_in_its_own_way_but_its_keys_may_be() {
    // A client that asks repeatedly also detects another client's leak.
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 300.0, &[1, 2, 3]);
    for round in 0..10 {
        let at = 400.0 + 20.0 * f64::from(round);
        run.refused("c2", at, at + 1.0, 0, FailureReason::Taken);
    }
    let verdict = run.judge();
    let found = verdict.findings.iter().filter(|finding| finding.layer == PROGRESS).count();
    assert_eq!(found, 7, "those that asked after 450 ms: {verdict:#?}");
    // Keys that the client set and could not clean up yet excuse the next refusal, for a moment.
    let again = |at| {
        let mut run = Run::two();
        let id = run.ask(100.0, "c2", "acquire", Some("L"), 0);
        for node in [1, 2, 3] {
            run.set("c2", node, "t2", 100.2, Some(100.4));
        }
        let cancelled =
            Answer { ok: false, why: Some(FailureReason::Cancelled), ..Answer::default() };
        run.answer(100.3, "c2", id, cancelled);
        refused_at(&mut run, at)
    };
    assert_eq!(again(150.0), Observed::Safe);
    assert_eq!(again(400.0), Observed::Violated, "it never cleaned up");
}

#[test]
fn its_own_lease_is_in_its_way() {
    let mut run = Run::two();
    run.grant("c2", "t1", 10.0, 1988.0, &[1, 2, 3]);
    assert_eq!(refused_at(&mut run, 300.0), Observed::Safe);
}

#[test]
fn a_dead_waiter_is_in_nobodys_way() {
    let mut run = Run::two();
    run.ask(10.0, "c1", "acquire", Some("L"), 60_000);
    run.struck(100.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]);
    assert_eq!(refused_at(&mut run, 200.0), Observed::Safe);
    assert_eq!(refused_at(&mut run, 300.0), Observed::Violated);
}

#[test]
fn masters_that_answer_late_on_a_busy_machine_are_nobody_s_fault() {
    for (replied, seen) in [(12.0, Observed::Violated), (62.0, Observed::Safe)] {
        let mut run = Run::two();
        run.struck(0.0, 1, "net.cut = { nodes = [4, 5] }", &[4, 5], &["c1", "c2"]);
        for node in 1..=3 {
            run.set("c1", node, "t1", 11.0, Some(if node == 3 { replied } else { 12.0 }));
        }
        run.refused("c1", 10.0, 61.5, 0, FailureReason::NoQuorum);
        for node in 1..=3 {
            run.delete("c1", node, Some("t1"), 61.2, Some(63.0), Said::Done);
        }
        run.cured(1000.0, 1);
        assert_eq!(run.ended(3000.0).seen(PROGRESS), seen, "{replied}");
    }
}

#[test]
fn counters_at_their_end_are_the_cause_where_too_few_others_are_left() {
    let refused = |more: &str, nodes: &[usize], resource: &str, ahead: &str| {
        let mut run = Run::with(more);
        let fault_kind = format!(
            "node.counter = {{ nodes = {nodes:?}, resource = \"{resource}\", ahead = \"{ahead}\" }}"
        );
        run.struck(5.0, 1, &fault_kind, nodes, &[]).refused(
            "c1",
            10.0,
            20.0,
            0,
            FailureReason::NoQuorum,
        );
        run.judge()
    };
    let fenced = "[lock]\nfencing = true";
    for ahead in ["last", "end"] {
        let verdict = refused(fenced, &[1, 2, 3], "L", ahead);
        assert_eq!(verdict.seen(PROGRESS), Observed::Violated);
        verdict.because(&[Cause::NodeCounter]).tells(PROGRESS, "to their end on masters 1, 2, 3");
    }
    // In turn: enough masters are left; it is another resource; the counter is only far ahead;
    // leases have no tokens.
    for verdict in [
        refused(fenced, &[1, 2], "L", "end"),
        refused(fenced, &[1, 2, 3], "M", "end"),
        refused(fenced, &[1, 2, 3], "L", "1d"),
        refused("", &[1, 2, 3], "L", "end"),
    ] {
        assert_eq!(verdict.seen(PROGRESS), Observed::Violated);
        verdict.because(&[Cause::Bug]);
    }
}

#[test]
fn who_looks_at_clocks_may_distrust_those_that_stepped_and_no_others() {
    let guarded = "[lock]\nrestart-guard = \"2s\"\nclock-guard = \"500ms\"";
    for (more, nodes, by, seen) in [
        (guarded, &[1, 2, 3][..], "2s", Observed::Safe),
        (guarded, &[1, 2, 3], "251ms", Observed::Safe),
        // In turn: the client may not notice the step; enough masters are left; the client does not
        // look.
        (guarded, &[1, 2, 3], "250ms", Observed::Violated),
        (guarded, &[1, 2], "2s", Observed::Violated),
        ("[lock]\nrestart-guard = \"2s\"", &[1, 2, 3], "2s", Observed::Violated),
        // All other clocks are ahead of this one.
        (guarded, &[1], "-2s", Observed::Safe),
        (guarded, &[1], "-250ms", Observed::Violated),
    ] {
        let mut run = Run::with(more);
        let fault_kind = format!("clock.step = {{ nodes = {nodes:?}, by = \"{by}\" }}");
        run.struck(5.0, 1, &fault_kind, nodes, &[]).refused(
            "c1",
            10.0,
            20.0,
            0,
            FailureReason::NoQuorum,
        );
        assert_eq!(run.judge().seen(PROGRESS), seen, "{more} {nodes:?} {by}");
    }
}

/// A lease that is lost, dropped, or ends with its client's death keeps others out for its lock
/// delay, and no longer. After a release, there is no lock delay.
#[test]
fn a_grace_is_in_the_way_of_others_unless_the_lease_was_released() {
    let held = |more: &str, release: Option<f64>, at| {
        let mut run = Run::with(more);
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        if let Some(at) = release {
            run.release("c1", "t1", at, &[1, 2, 3]);
        }
        refused_at(&mut run, at)
    };
    let grace = "[lock]\nlock-delay = \"1s\"";
    // These are 1 s, 1 % of 3 s and 2 ms, and the time for a clean-up.
    assert_eq!(held(grace, None, 3150.0), Observed::Safe);
    assert_eq!(held(grace, None, 3172.0), Observed::Violated);
    assert_eq!(held("", None, 2150.0), Observed::Violated);
    assert_eq!(held(grace, Some(500.0), 651.0), Observed::Violated);
}

#[test]
fn a_guard_may_refuse_who_shares_a_master_with_another_list_and_only_that_one() {
    let refused = |more: &str, who: &str, first: &str, second: &str| {
        let mut run = Run::with(more);
        for (client, nodes) in run.scenario.clients.iter_mut().zip([first, second]) {
            client.nodes = Some(nodes.split(',').map(|node| node.parse().unwrap()).collect());
        }
        run.refused(who, 10.0, 20.0, 0, FailureReason::NoQuorum);
        run.phase(50_000.0, Phase::Heal).judge().seen(PROGRESS)
    };
    let guard = "[lock]\nrestart-guard = \"2s\"";
    assert_eq!(refused(guard, "c2", "1,2,3", "3,4,5"), Observed::Safe);
    // The masters that both clients know have the marker of the first one.
    assert_eq!(refused(guard, "c1", "1,2,3", "3,4,5"), Observed::Violated);
    assert_eq!(refused(guard, "c2", "1,2", "3,4,5"), Observed::Violated, "no master in common");
    assert_eq!(refused(guard, "c2", "1,2,3", "3,2,1"), Observed::Violated, "the same");
    assert_eq!(refused("", "c2", "1,2,3", "3,4,5"), Observed::Violated, "no guard");
    // The first client that comes marks new masters.
    let new = "[lock]\nrestart-guard = \"100ms\"\nttl = \"100ms\"\ninitialized = false";
    assert_eq!(refused(new, "c1", "1,2,3", "3,4,5"), Observed::Safe);
}

#[test]
fn a_waiter_that_dies_is_in_the_way_for_one_turn() {
    let behind = |more: &str, at: f64| {
        let mut run = Run::with(more);
        run.ask(10.0, "c1", "acquire", Some("L"), 20_000);
        run.struck(100.0, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]);
        let id = run.ask(50.0, "c2", "acquire", Some("L"), 20_000);
        for node in [1, 2, 3] {
            run.set("c2", node, "t2", at - 1.0, Some(at - 0.5));
        }
        run.granted(at, "c2", id, "t2", at + 1900.0);
        run.phase(50_000.0, Phase::Heal).judge().seen(PROGRESS)
    };
    let fair = "[lock]\nfair = true";
    // These are a turn of three seconds, one second until the next look, and the time for an
    // acquire.
    assert_eq!(behind(fair, 4800.0), Observed::Safe);
    assert_eq!(behind(fair, 4802.0), Observed::Violated);
    assert_eq!(behind("", 4000.0), Observed::Violated);
}
