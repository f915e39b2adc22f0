use super::*;

const VALIDITY: Property = Property::Validity;

#[test]
fn who_was_silent_has_not_said_yes() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2]);
    run.set("c1", 3, "t1", 99.4, None);
    run.judge().because(&[Cause::Bug]).tells(VALIDITY, "when 2 of 5 masters had said yes");
}

#[test]
fn a_yes_that_comes_later_does_not_count() {
    for (last, seen) in [(99.9, Observed::Safe), (103.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 2078.0, &[1, 2]);
        for node in 3..=5 {
            run.set("c1", node, "t1", 99.4, Some(last));
        }
        assert_eq!(run.judge().seen(VALIDITY), seen, "{last}");
    }
}

#[test]
fn an_extension_takes_a_quorum_that_still_has_the_key() {
    for (nodes, seen) in [(&[1, 2, 3][..], Observed::Safe), (&[1, 2], Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3, 4, 5]);
        run.extend("c1", "t1", 1000.0, 2078.0, nodes);
        assert_eq!(run.judge().seen(VALIDITY), seen, "{nodes:?}");
    }
    // A key that had to be created anew is not a vote for an extension.
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.extend("c1", "t1", 1000.0, 2078.0, &[1, 2]);
    let (key, token) = ("L".into(), Some("t1".into()));
    let act = Act::Keep { key, token, ttl_ms: Some(2000) };
    run.command("c1", 4, act, 999.4, Some(999.6), Said::Created);
    run.judge().tells(VALIDITY, "when 2 of 5 masters had said that they still have the key");
}

#[test]
fn an_extension_by_commands_without_a_token_proves_nothing() {
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    let id = run.ask(999.0, "c1", "extend", Some("L"), 0);
    for node in 1..=3 {
        let act = Act::Keep { key: "L".into(), token: None, ttl_ms: Some(2000) };
        run.command("c1", node, act, 999.4, Some(999.6), Said::Done);
    }
    let answer = Answer { at: Some(1000.0), deadline: Some(2978.0), ..Answer::default() };
    run.answer(1000.0, "c1", id, answer);
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}

#[test]
fn what_is_over_cannot_be_extended() {
    for (deadline, seen) in [(1005.0, Observed::Safe), (900.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 100.0, deadline, &[1, 2, 3]);
        run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
        assert_eq!(run.judge().seen(VALIDITY), seen, "{deadline}");
    }
    let mut run = Run::two();
    run.grant("c1", "t1", 100.0, 2078.0, &[1, 2, 3]);
    run.lost("c1", 500.0);
    run.extend("c1", "t1", 1000.0, 2978.0, &[1, 2, 3]);
    run.judge().tells(VALIDITY, "when it was over since 500 ms");
}

#[test]
fn clients_of_one_process_are_told_apart_by_who_has_a_quorum() {
    let mut run = Run::of(&TWO.replace("script", "process = \"p\"\nscript"));
    let first = run.ask(99.0, "c1", "acquire", Some("L"), 0);
    let second = run.ask(99.1, "c2", "acquire", Some("L"), 0);
    for node in 1..=3 {
        run.set("p", node, "t1", 99.4, Some(99.6));
    }
    for node in 4..=5 {
        run.set("p", node, "t2", 99.5, Some(99.7));
    }
    let stamps = (Some(100.0), Some(2078.0));
    let answer = Answer { at: stamps.0, deadline: stamps.1, ..Answer::default() };
    run.answer(100.0, "c1", first, answer);
    let why = Some(FailureReason::Taken);
    run.answer(100.0, "c2", second, Answer { ok: false, why, ..Answer::default() });
    assert_eq!(run.judge().seen(VALIDITY), Observed::Safe);
}
