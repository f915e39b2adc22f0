use super::*;

const FENCED: Property = Property::FencedResource;

/// A grant with a fencing token, whose acquire was called 2 ms before.
fn grant(run: &mut Run, client: &str, token: &str, at: f64, fence: u64) {
    run.fenced(client, token, at, at + 500.0, &[1, 2, 3], fence);
    run.release(client, token, at + 50.0, &[1, 2, 3]);
}

#[test]
fn tokens_that_grow_are_safe_and_so_are_gaps() {
    let mut run = Run::two();
    for (client, token, at, fence) in
        [("c1", "t1", 10.0, 7), ("c2", "t2", 100.0, 8), ("c1", "t3", 200.0, 1_000)]
    {
        grant(&mut run, client, token, at, fence);
    }
    assert_eq!(run.judge().seen(FENCED), Observed::Safe);
}

#[test]
fn a_token_that_comes_twice_is_seen() {
    let mut run = Run::two();
    grant(&mut run, "c1", "t1", 10.0, 7);
    grant(&mut run, "c2", "t2", 100.0, 7);
    let verdict = run.judge();
    assert_eq!(verdict.seen(FENCED), Observed::Violated);
    verdict.because(&[Cause::Bug]).tells(FENCED, "c2 was granted it with the same at 100 ms");
}

#[test]
fn a_token_that_is_smaller_than_one_that_was_returned_before_is_seen() {
    let mut run = Run::two();
    grant(&mut run, "c1", "t1", 10.0, 9);
    grant(&mut run, "c1", "t2", 100.0, 12);
    grant(&mut run, "c2", "t3", 200.0, 10);
    let verdict = run.judge();
    assert_eq!(verdict.seen(FENCED), Observed::Violated);
    verdict.because(&[Cause::Bug]).tells(FENCED, "with fencing token 12 at 100 ms");
}

#[test]
fn acquires_at_the_same_time_have_no_order() {
    let mut run = Run::two();
    let first = run.ask(10.0, "c1", "acquire", Some("L"), 0);
    let second = run.ask(11.0, "c2", "acquire", Some("L"), 0);
    let answer = |fence| Answer { fence: Some(fence), at: Some(20.0), ..Answer::default() };
    run.answer(20.0, "c1", first, answer(9)).answer(21.0, "c2", second, answer(8));
    assert_eq!(run.judge().seen(FENCED), Observed::Safe);
}

#[test]
fn a_master_that_lost_its_counter_in_between_is_the_cause_and_a_wrong_wall_clock_with_it() {
    let lost = |clock: bool| {
        let mut run = Run::two();
        run.fenced("c1", "t1", 10.0, 500.0, &[1, 2, 3], 9);
        run.struck(50.0, 1, "node.restart = { node = 3 }", &[3], &[]);
        if clock {
            run.struck(60.0, 2, "client.clock = { client = \"c2\", by = \"-1h\" }", &[], &["c2"]);
        }
        run.fenced("c2", "t2", 100.0, 600.0, &[3, 4, 5], 2);
        run.judge()
    };
    let verdict = lost(false);
    assert_eq!(verdict.seen(FENCED), Observed::Violated);
    verdict.tells(FENCED, "master 3 lost its counter at 50 ms (fault 1, node.restart)");
    assert!(!verdict.because.contains(&Cause::Bug), "{:?}", verdict.because);
    let verdict = lost(true);
    verdict.tells(FENCED, "the wall clock of c2");
    assert!(verdict.because.contains(&Cause::ClientClock));
}

#[test]
fn what_a_register_refuses_and_what_is_not_under_a_token_is_not_judged_here() {
    let lost = |fences: [Option<u64>; 2], refused: bool| {
        let mut run = Run::two();
        for (at, client, version, fence) in [
            (20.0, "c1", None, fences[0]),
            (30.0, "c2", None, fences[1]),
            (40.0, "c2", Some((0, 1)), fences[1]),
            (50.0, "c1", Some((0, 2)), fences[0]),
        ] {
            let refused = refused && at == 50.0;
            match version {
                None => run.shown(at, client, AccessKind::Read, (0, 0), fence, refused),
                Some(version) => run.shown(at, client, AccessKind::Write, version, fence, refused),
            };
        }
        let verdict = run.judge();
        (verdict.seen(Property::UnfencedResource), verdict.seen(FENCED))
    };
    assert_eq!(lost([None, None], false), (Observed::Violated, Observed::Safe));
    assert_eq!(lost([Some(1), Some(2)], true), (Observed::Safe, Observed::Safe));
    assert_eq!(lost([Some(1), Some(2)], false), (Observed::Safe, Observed::Violated));
}
