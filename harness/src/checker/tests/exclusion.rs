use proptest::prelude::*;

use super::super::exclusion::overlaps;
use super::super::leases::Hold;
use super::super::time::Span;
use super::*;

const ME: Property = Property::MutualExclusion;

#[test]
fn one_after_the_other_is_safe() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3, 4, 5]);
    run.release("c1", "t1", 500.0, &[1, 2, 3, 4, 5]);
    run.grant("c2", "t2", 700.0, 2678.0, &[1, 2, 3, 4, 5]);
    run.release("c2", "t2", 900.0, &[1, 2, 3, 4, 5]);
    let verdict = run.ended(3000.0);
    verdict.only(&[]).because(&[]);
    assert_eq!(verdict.outcome, Outcome::AsExpected, "{verdict:#?}");
    assert_eq!(verdict.measures.grants, 2);
    assert_eq!(verdict.measures.margins, [3, 3]);
    assert_eq!(verdict.measures.hollow_ns, 0);
    assert_eq!(verdict.measures.acquire_ns, Some(ns(1.0)));
}

#[test]
fn leases_that_only_touch_do_not_overlap() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1000.0, &[1, 2, 3]);
    run.grant("c2", "t2", 1000.0, 1900.0, &[3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Safe);
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1000.0, &[1, 2, 3]);
    run.grant("c2", "t2", 999.999, 1900.0, &[3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Violated);
}

#[test]
fn a_lease_of_no_length_overlaps_nothing() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1000.0, &[1, 2, 3]);
    run.grant("c2", "t2", 500.0, 500.0, &[3, 4, 5]);
    run.grant("c2", "t3", 600.0, 550.0, &[3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Safe);
}

#[test]
fn other_resources_are_other_locks() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1000.0, &[1, 2, 3]);
    let id = run.ask(20.0, "c2", "acquire", Some("M"), 0);
    run.granted(21.0, "c2", id, "t2", 1000.0);
    assert_eq!(run.judge().seen(ME), Observed::Safe);
}

#[test]
fn a_release_ends_a_lease_where_it_was_called_and_a_loss_where_it_was_told() {
    for end in ["release", "lost", "kill"] {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        match end {
            "release" => run.release("c1", "t1", 500.0, &[1, 2, 3]),
            "lost" => run.lost("c1", 500.0),
            _ => run.struck(499.5, 1, "client.kill = { client = \"c1\" }", &[], &["c1"]),
        };
        run.grant("c2", "t2", 501.0, 2000.0, &[1, 2, 3]);
        assert_eq!(run.judge().seen(ME), Observed::Safe, "{end}");
    }
}

#[test]
fn an_extension_moves_the_end() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
    run.grant("c2", "t2", 2500.0, 4000.0, &[1, 2, 3]);
    assert_eq!(run.judge().seen(ME), Observed::Violated);
    // An extension after the end leaves a gap.
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 500.0, &[1, 2, 3]);
    run.grant("c2", "t2", 600.0, 800.0, &[3, 4, 5]);
    run.extend("c1", "t1", 900.0, 1500.0, &[1, 2, 3]);
    assert_eq!(run.judge().seen(ME), Observed::Safe);
    // An extension by the watchdog counts, too.
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    let (client, resource) = ("c1".into(), "L".into());
    run.record(600.0, Event::Extended { client, resource, deadline: ns(2578.0) });
    run.grant("c2", "t2", 2300.0, 4000.0, &[3, 4, 5]);
    assert_eq!(run.judge().seen(ME), Observed::Violated);
}

#[test]
fn without_stamps_only_what_is_certain_counts() {
    // c2 reports no times. It counted on the lease from 620 to 900 for certain, and perhaps from
    // 610, when its third master had replied.
    let without = |deadline| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, deadline, &[1, 2, 3]);
        let id = run.ask(600.0, "c2", "acquire", Some("L"), 0);
        for node in [3, 4, 5] {
            run.set("c2", node, "t2", 609.0, Some(609.9));
        }
        let answer = Answer { token: Some("t2"), valid: Some(280), ..Answer::default() };
        run.answer(620.0, "c2", id, answer).judge()
    };
    assert_eq!(without(605.0).seen(ME), Observed::Safe);
    assert_eq!(without(615.0).seen(ME), Observed::Inconclusive);
    assert_eq!(without(625.0).seen(ME), Observed::Violated);
}

#[test]
fn a_release_without_a_stamp_is_called_between_its_request_and_its_first_deletion() {
    let with = |grant| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        let id = run.ask(500.0, "c1", "release", Some("L"), 0);
        for node in [1, 2, 3] {
            run.delete("c1", node, Some("t1"), 510.0, Some(511.0), Said::Done);
        }
        run.answer(520.0, "c1", id, Answer::default());
        run.grant("c2", "t2", grant, 2000.0, &[1, 2, 3]).judge()
    };
    assert_eq!(with(499.0).seen(ME), Observed::Violated);
    assert_eq!(with(505.0).seen(ME), Observed::Inconclusive);
    assert_eq!(with(511.0).seen(ME), Observed::Safe);
}

#[test]
fn the_story_says_who_believed_what_and_who_let_whom_in() {
    let mut run = Run::two();
    run.grant("c1", "3f2a55aa77", 12.3, 1978.3, &[1, 2, 3]);
    run.struck(14.2, 2, "clock.step = { node = 1, by = \"3s\" }", &[1], &[]);
    run.clock(14.2, 1, 3000.0, 1.0);
    run.grant("c2", "t2", 310.1, 912.0, &[1, 4, 5]);
    let verdict = run.judge();
    verdict.because(&[Cause::ClockStep]);
    for part in [
        "c1 believed that it holds L from 12.3 ms to 1978.3 ms (deadline), token 3f2a55aa…",
        "c2 believed that it holds L from 310.1 ms to 912 ms (deadline), token t2",
        "c1 was granted by masters 1, 2, 3 (margin 1)",
        "master 1 let c2 in at 309.5 ms: its clock was set 3000 ms forward at 14.2 ms (fault 2, \
         clock.step), and c1's key was gone 1702.2 ms before its time",
    ] {
        verdict.tells(ME, part);
    }
    assert!(verdict.measures.hollow_ns > ns(1900.0), "{verdict:#?}");
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64), 0..12)
    ) {
        let hold = |(lease, (from, length)): (usize, &(i64, i64))| {
            let span = Span::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
        }
        // The checker reports every hold that overlaps an earlier one, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| before.inner.meet(hold.inner).is_some())
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}
