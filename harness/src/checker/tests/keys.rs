//! The true holds, seen through hollow time: c1 has a lease on the masters 1, 2 and 3, and believes
//! in it from 10 ms to 1988 ms. In that time, events affect the key on master 3.

use super::*;

/// The time from which on the lease is certainly not true.
fn hollow_from(mut run: Run, more: impl Fn(&mut Run)) -> Option<f64> {
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    more(&mut run);
    let hollow = run.judge().measures.hollow_ns;
    (hollow > 0).then(|| (ns(1988.0) - hollow) as f64 / 1e6)
}

fn after(more: impl Fn(&mut Run)) -> Option<f64> {
    hollow_from(Run::two(), more)
}

#[test]
fn what_is_left_alone_stays() {
    assert_eq!(after(|_| {}), None);
    // A command that failed or was refused changed nothing.
    for result in [Said::Refused, Said::Error] {
        assert_eq!(
            after(|run| {
                run.delete("c2", 3, Some("t2"), 500.0, Some(501.0), result);
            }),
            None
        );
    }
}

#[test]
fn a_deletion_that_was_never_answered_may_not_have_happened() {
    let silent = |run: &mut Run| {
        run.delete("c1", 3, Some("t1"), 500.0, None, Said::Silent);
    };
    assert_eq!(after(silent), None);
    // It did take effect if the next command finds nothing, or if another client could set the key.
    let missing = |run: &mut Run| {
        silent(run);
        run.delete("c1", 3, Some("t1"), 600.0, Some(601.0), Said::Refused);
    };
    assert_eq!(after(missing), Some(601.0));
    let replaced = |run: &mut Run| {
        silent(run);
        run.set("c2", 3, "t2", 700.0, Some(702.0));
    };
    assert_eq!(after(replaced), Some(702.0));
}

#[test]
fn a_deletion_without_a_token_takes_whatever_is_there() {
    let any = |run: &mut Run| {
        run.delete("c2", 3, None, 500.0, Some(501.0), Said::Done);
    };
    assert_eq!(after(any), Some(501.0));
    let nothing = |run: &mut Run| {
        run.delete("c2", 3, None, 500.0, Some(501.0), Said::Refused);
    };
    assert_eq!(after(nothing), Some(501.0), "there was nothing");
}

#[test]
fn a_set_that_was_never_answered_may_have_happened_soon_and_not_for_ever() {
    // The third master never replied: with it, the lease may be true.
    let third = |more: &dyn Fn(&mut Run)| {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 4000.0, &[1, 2, 3]);
        run.extend("c1", "t1", 100.0, 6000.0, &[1, 2]);
        run.extend("c1", "t1", 1900.0, 6000.0, &[1, 2]);
        run.extend("c1", "t1", 3800.0, 6000.0, &[1, 2]);
        run.delete("c1", 3, Some("t1"), 50.0, Some(50.0), Said::Done);
        run.set("c1", 4, "t1", 10.0, None);
        more(&mut run);
        (ns(6000.0) - run.judge().measures.hollow_ns) as f64 / 1e6
    };
    // The extension takes effect within a second, and then the key lives for two.
    assert_eq!(third(&|_| {}), 3011.0);
    // A later answer on the same connection bounds that time.
    let answered = |run: &mut Run| {
        run.delete("c2", 4, Some("t2"), 400.0, Some(401.0), Said::Refused);
    };
    assert_eq!(third(&answered), 2402.0);
    // A paused master may execute the command when it resumes.
    let paused = |run: &mut Run| {
        run.struck(5.0, 1, "node.pause = { node = 4 }", &[4], &[]).cured(900.0, 1);
    };
    assert_eq!(third(&paused), 3901.5);
    // A master that dies does not execute it.
    let killed = |run: &mut Run| {
        run.struck(300.0, 1, "node.kill = { node = 4 }", &[4], &[]).cured(400.0, 1);
    };
    assert_eq!(third(&killed), 300.5);
}

#[test]
fn a_key_that_is_prolonged_was_set() {
    let mut run = Run::two();
    let id = run.ask(9.0, "c1", "acquire", Some("L"), 0);
    for node in [1, 2] {
        run.set("c1", node, "t1", 9.4, Some(9.6));
    }
    run.set("c1", 3, "t1", 9.4, None);
    run.granted(10.0, "c1", id, "t1", 1988.0);
    assert_eq!(run.judge().measures.margins, [0], "two for certain");
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
    let verdict = run.judge();
    assert_eq!(verdict.measures.margins, [1]);
    assert_eq!(verdict.measures.hollow_ns, 0);
}

#[test]
fn a_repair_counts_as_a_key_and_not_as_a_grant() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    let act = Act::Keep { key: "L".into(), token: Some("t1".into()), ttl_ms: Some(2000) };
    run.command("c1", 4, act, 100.0, Some(100.2), Said::Created);
    run.delete("c1", 3, Some("t1"), 200.0, Some(200.2), Said::Done);
    let verdict = run.judge();
    assert_eq!(verdict.measures.margins, [1]);
    assert_eq!(verdict.measures.hollow_ns, 0);
}

#[test]
fn clocks_end_keys_early_or_late() {
    let clock = |ahead: f64, rate: f64| {
        after(move |run| {
            run.clock(500.0, 3, ahead, rate);
        })
    };
    // The clock was set at some time until 500.2.
    assert_eq!(clock(3000.0, 1.0), Some(500.2));
    // The clock shows 2010.6 at 1510.6.
    assert_eq!(clock(500.0, 1.0), Some(1510.6));
    assert_eq!(clock(-500.0, 1.0), None);
    // The clock runs twice as fast since 500.2: 1510.4 more take half of that.
    assert_eq!(clock(0.0, 2.0), Some(1255.4));
    assert_eq!(clock(0.0, 0.5), None);
    // A master whose clock jumps ahead may not have checked at that time.
    let strobe = |run: &mut Run| {
        run.strobe(500.0, 3, 0.0, 1.0, 3000.0);
    };
    assert_eq!(after(strobe), None);
    // A clock that was ahead already when the key was set does not matter.
    let mut run = Run::two();
    run.clock(1.0, 3, 3000.0, 1.0);
    assert_eq!(hollow_from(run, |_| {}), None);
    // The clock is set right later: this is a step back, and the key lives longer.
    let mut run = Run::two();
    run.clock(1.0, 3, 3000.0, 1.0);
    let cured = |run: &mut Run| {
        run.clock(500.0, 3, 0.0, 1.0);
    };
    assert_eq!(hollow_from(run, cured), None);
}

#[test]
fn prefixes_of_drivers_are_seen_through() {
    for (key, margins) in [("lock:L", vec![1]), ("M", vec![1])] {
        let mut run = Run::two();
        let id = run.ask(9.0, "c1", "acquire", Some("L"), 0);
        for node in [1, 2, 3] {
            let act = Act::Set { key: key.into(), token: "t1".into(), ttl_ms: Some(2000) };
            run.command("c1", node, act, 9.4, Some(9.6), Said::Done);
        }
        run.granted(10.0, "c1", id, "t1", 1988.0);
        assert_eq!(run.judge().measures.margins, margins, "there is but one resource");
    }
    // With two resources, a key must end with the name.
    let with = |key: &str| {
        let mut run = Run::of(&super::TWO.replace("\"acquire L\"", "\"acquire L\", \"acquire M\""));
        let id = run.ask(9.0, "c1", "acquire", Some("L"), 0);
        for node in [1, 2, 3] {
            let act = Act::Set { key: key.into(), token: "t1".into(), ttl_ms: Some(2000) };
            run.command("c1", node, act, 9.4, Some(9.6), Said::Done);
        }
        run.granted(10.0, "c1", id, "t1", 1988.0);
        run.judge().seen(Property::Validity)
    };
    assert_eq!(with("lock:L"), Observed::Safe);
    assert_eq!(with("lock:M"), Observed::Violated);
}
