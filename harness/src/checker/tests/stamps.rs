use super::*;

#[test]
fn stamps_of_another_clock_are_told_and_prove_nothing() {
    // Two leases at the same time, but with stamps a day apart.
    let mut run = Run::two();
    let day = 86_400_000.0;
    for (client, token, at, nodes) in
        [("c1", "t1", 100.0, [1, 2, 3]), ("c2", "t2", 200.0, [3, 4, 5])]
    {
        let id = run.ask(at - 1.0, client, "acquire", Some("L"), 0);
        for node in nodes {
            run.set(client, node, token, at - 0.6, Some(at - 0.4));
        }
        let offset = if client == "c1" { day } else { 0.0 };
        let (stamp, deadline) = (Some(at + offset), Some(at + offset + 1978.0));
        let answer = Answer { token: Some(token), at: stamp, deadline, ..Answer::default() };
        run.answer(at, client, id, answer);
    }
    let verdict = run.ended(3000.0);
    assert_eq!(verdict.outcome, Outcome::Differs);
    let told: Vec<&String> =
        verdict.differences.iter().filter(|line| line.contains("CLOCK_MONOTONIC")).collect();
    assert!(matches!(told[..], [line] if line.contains("process c1: its answer to acquire")));
}

#[test]
fn what_is_called_is_called_after_it_was_asked_and_told_before_it_is_heard() {
    for (from, at, right) in
        [(100.0, 110.0, true), (98.0, 110.0, false), (100.0, 113.0, false), (108.0, 101.0, false)]
    {
        let mut run = Run::two();
        let id = run.ask(100.0, "c1", "release", Some("L"), 0);
        let answer = Answer { from: Some(from), at: Some(at), ..Answer::default() };
        run.answer(111.0, "c1", id, answer);
        let told = run.ended(3000.0).differences.iter().any(|line| line.contains("is stamped"));
        assert_eq!(told, !right, "{from} {at}");
    }
}

#[test]
fn a_loss_is_not_told_before_it_is_stamped() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    let (client, resource) = ("c1".into(), "L".into());
    run.record(500.0, Event::Lost { client, resource, at: ns(5000.0) });
    let told = run.ended(3000.0).differences;
    assert!(told.iter().any(|line| line.contains("its loss, heard of at 500 ms")), "{told:?}");
}
