//! Masters that kept a part of their state: which part is on record, and the conclusions from it.

use super::*;

const ME: Property = Property::MutualExclusion;

/// Masters 1, 2, 3 grant the lease of c1 at 10 ms. At 100 ms this fault strikes master 3, which
/// keeps its state until `until`. Masters 3, 4, 5 grant the lease of c2 at 300 ms.
fn rival(fault_kind: &str, until: Option<Window>) -> Verdict {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    suffers(&mut run, 100.0, fault_kind, until);
    run.grant("c2", "t2", 300.0, 2200.0, &[3, 4, 5]);
    let verdict = run.judge();
    assert_eq!(verdict.seen(ME), Observed::Violated, "{verdict:#?}");
    verdict
}

fn suffers(run: &mut Run, at: f64, fault_kind: &str, until: Option<Window>) {
    if let Some(until) = until {
        run.record(at, Event::Kept { fault: 1, node: 3, until });
    }
    run.struck(at, 1, &format!("node.{fault_kind} = {{ nodes = [3] }}"), &[3], &[]);
    if fault_kind == "power-loss" {
        run.cured(at + 50.0, 1);
    }
}

const BOTH: [(&str, Cause); 2] =
    [("power-loss", Cause::NodePowerLoss), ("failover", Cause::NodeFailover)];

#[test]
fn a_key_that_was_set_after_the_last_sync_is_lost() {
    for (fault_kind, cause) in BOTH {
        rival(fault_kind, Some(window(4.0, 5.0)))
            .because(&[cause])
            .tells(ME, &format!("it lost its keys at 100 ms (fault 1, node.{fault_kind})"));
    }
}

#[test]
fn a_key_that_was_there_before_the_last_sync_is_not_and_nothing_is_excused() {
    for (fault_kind, _) in BOTH {
        rival(fault_kind, Some(window(50.0, 51.0))).because(&[Cause::Unknown]);
    }
}

#[test]
fn where_it_is_not_known_what_was_kept_it_may_be_the_reason() {
    for (fault_kind, cause) in BOTH {
        rival(fault_kind, None).because(&[cause]);
        rival(fault_kind, Some(window(9.0, 60.0))).because(&[cause]);
    }
}

#[test]
fn a_fault_that_failed_may_have_been_done_to_some() {
    let failed = |fault_kind: &str, until: Option<Window>| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        if let Some(until) = until {
            run.record(100.0, Event::Kept { fault: 1, node: 3, until });
        }
        let fault_kind = format!("node.{fault_kind} = {{ nodes = [2, 3] }}");
        run.struck_or_failed(100.0, 1, &fault_kind, &[2, 3], &[], Some("not of all"));
        run.grant("c2", "t2", 300.0, 2200.0, &[3, 4, 5]);
        run.judge()
    };
    failed("failover", Some(window(4.0, 5.0))).because(&[Cause::NodeFailover]);
    failed("failover", None).because(&[Cause::Unknown]);
    failed("flush", None).because(&[Cause::NodeFlush]);
}

#[test]
fn an_extension_that_was_lost_leaves_the_key_its_old_time() {
    for (fault_kind, cause) in BOTH {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.extend("c1", "t1", 1900.0, 3878.0, &[1, 2, 3]);
        suffers(&mut run, 1950.0, fault_kind, Some(window(1000.0, 1001.0)));
        run.grant("c2", "t2", 2300.0, 4200.0, &[3, 4, 5]);
        run.judge().because(&[cause]);
    }
}

#[test]
fn a_release_that_was_lost_brings_keys_back_and_they_are_in_the_way() {
    let refused = |until| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.release("c1", "t1", 500.0, &[1, 2, 3]);
        for node in [1, 2, 3] {
            run.record(600.0, Event::Kept { fault: 1, node, until });
        }
        let fault_kind = "node.power-loss = { nodes = [1, 2, 3] }";
        run.struck(600.0, 1, fault_kind, &[1, 2, 3], &[]).cured(650.0, 1);
        // This is after all links are up again, and before the keys have expired.
        run.refused("c2", 2003.0, 2005.0, 0, FailureReason::Taken);
        run.phase(50_000.0, Phase::Heal).judge().seen(Property::Progress)
    };
    assert_eq!(refused(window(100.0, 101.0)), Observed::Safe);
    assert_eq!(
        refused(window(590.0, 591.0)),
        Observed::Violated,
        "its master remembers the release"
    );
}
