use super::*;

const REGISTER: Property = Property::UnfencedResource;

/// c1 has a lease from 10 to 1988, reads at 20 and writes at `late`. c2 has a lease from 2100 to
/// 2300 and writes in between.
fn stale(late: f64, pause: Option<(f64, f64)>) -> Verdict {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0);
    if let Some((from, to)) = pause {
        run.struck(from, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]).cured(to, 1);
    }
    run.grant("c2", "t2", 2100.0, 4078.0, &[1, 2, 3]);
    run.read(2110.0, "c2", 0).write(2200.0, "c2", 0, 1);
    run.release("c2", "t2", 2300.0, &[1, 2, 3]);
    run.write(late, "c1", 0, 2);
    run.judge()
}

#[test]
fn sections_one_after_the_other_lose_nothing() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0).write(30.0, "c1", 0, 1).read(40.0, "c1", 1).write(50.0, "c1", 1, 2);
    run.release("c1", "t1", 60.0, &[1, 2, 3]);
    run.grant("c2", "t2", 100.0, 2078.0, &[1, 2, 3]);
    run.read(110.0, "c2", 2).write(120.0, "c2", 2, 3);
    run.release("c2", "t2", 130.0, &[1, 2, 3]);
    run.ended(3000.0).only(&[]);
}

#[test]
fn a_section_that_is_given_up_loses_nothing() {
    let mut run = Run::two();
    run.read(20.0, "c1", 0).read(30.0, "c2", 0).write(40.0, "c2", 0, 1);
    assert_eq!(run.judge().seen(REGISTER), Observed::Safe);
}

#[test]
fn a_write_after_the_end_by_a_client_that_was_stopped() {
    let verdict = stale(2500.0, Some((100.0, 2400.0)));
    assert_eq!(verdict.seen(REGISTER), Observed::Violated);
    assert_eq!(verdict.seen(Property::MutualExclusion), Observed::Safe);
    verdict
        .because(&[Cause::ClientPause])
        .tells(REGISTER, "c2 wrote R at 2200 ms")
        .tells(REGISTER, "c1 wrote R at 2500 ms on top of version 0")
        .tells(REGISTER, "it was paused from 100 ms to 2400.5 ms (fault 1, client.pause)");
}

#[test]
fn a_write_after_the_end_by_a_client_that_was_awake() {
    stale(2500.0, None).because(&[Cause::LateWrite]).tells(REGISTER, "512 ms after the end");
    // A pause that ended in good time is no excuse.
    stale(2500.0, Some((100.0, 200.0))).because(&[Cause::LateWrite]);
}

#[test]
fn a_late_write_costs_another_its_update_even_where_the_other_writes_last() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0);
    run.struck(100.0, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]).cured(2150.0, 1);
    run.grant("c2", "t2", 2100.0, 4078.0, &[1, 2, 3]);
    run.read(2110.0, "c2", 0).write(2160.0, "c1", 0, 1).write(2200.0, "c2", 0, 2);
    run.judge().because(&[Cause::ClientPause]).tells(REGISTER, "c1 wrote R at 2160 ms");
}

#[test]
fn a_look_before_the_write_counts() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0);
    // The client was stopped between its check and the answer: the check was in time.
    let id = run.ask(1900.0, "c1", "step", Some("L"), 0);
    run.struck(1901.0, 1, "client.pause = { client = \"c1\" }", &[], &["c1"]).cured(2400.0, 1);
    run.answer(2401.0, "c1", id, Answer { at: Some(1900.5), ..Answer::default() });
    run.grant("c2", "t2", 2100.0, 4078.0, &[1, 2, 3]);
    run.read(2110.0, "c2", 0).write(2200.0, "c2", 0, 1);
    run.write(2401.0, "c1", 0, 2);
    run.judge().because(&[Cause::ClientPause]).tells(REGISTER, "had last looked at 1900.5 ms");
}

#[test]
fn where_both_counted_on_their_leases_the_causes_are_those_of_the_overlap() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0);
    run.struck(30.0, 1, "clock.step = { node = 3, by = \"3s\" }", &[3], &[]);
    run.clock(30.0, 3, 3000.0, 1.0);
    run.grant("c2", "t2", 100.0, 2078.0, &[3, 4, 5]);
    run.read(110.0, "c2", 0).write(200.0, "c2", 0, 1).write(300.0, "c1", 0, 2);
    run.judge().because(&[Cause::ClockStep]).only(&[
        (REGISTER, Observed::Violated),
        (Property::MutualExclusion, Observed::Violated),
        (Property::Liveness, Observed::Inconclusive),
        (Property::Hygiene, Observed::Inconclusive),
    ]);
}

#[test]
fn who_had_no_lease_at_all_is_not_explained() {
    let mut run = Run::two();
    run.read(20.0, "c1", 0).read(30.0, "c2", 0).write(40.0, "c2", 0, 1).write(50.0, "c1", 0, 2);
    run.judge().because(&[Cause::Unknown]);
}

/// c1 has a lease from 10 to 1988. It sends its write at `sent`, and the write arrives at 3000. c2
/// has a lease in between.
fn under_way(sent: f64, struck: Option<f64>) -> Verdict {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    run.read(20.0, "c1", 0);
    if let Some(at) = struck {
        let fault_kind = "resource.delay = { client = \"c1\", what = \"write\", by = \"2s\" }";
        run.struck(at, 1, fault_kind, &[], &["c1"]);
    }
    run.grant("c2", "t2", 2100.0, 4078.0, &[1, 2, 3]);
    run.read(2110.0, "c2", 0).write(2200.0, "c2", 0, 1);
    run.release("c2", "t2", 2300.0, &[1, 2, 3]);
    let (client, register) = ("c1".into(), "R".into());
    let (way, seen, version, sent) = (AccessKind::Write, 0, 2, Some(ns(sent)));
    run.record(
        3000.0,
        Event::Touched { client, register, way, seen, version, sent, fence: None, refused: false },
    );
    run.judge()
}

#[test]
fn a_write_that_was_sent_in_time_and_comes_after_the_end() {
    let verdict = under_way(1000.0, Some(900.0));
    assert_eq!(verdict.seen(REGISTER), Observed::Violated);
    assert_eq!(verdict.seen(Property::MutualExclusion), Observed::Safe);
    verdict
        .because(&[Cause::ResourceDelay])
        .tells(REGISTER, "c1 sent that write at 1000 ms, in time, and it came at 3000 ms")
        .tells(REGISTER, "1012 ms after the end of its lease (fault 1, resource.delay)");
}

#[test]
fn a_delay_is_no_excuse_for_what_was_sent_too_late_nor_is_one_that_struck_later() {
    under_way(2500.0, Some(900.0)).because(&[Cause::LateWrite]);
    under_way(1000.0, Some(1100.0)).because(&[Cause::Unknown]);
    under_way(1000.0, None).because(&[Cause::Unknown]);
}

#[test]
fn where_three_count_on_it_the_causes_of_these_two_are_told() {
    let text = r#"
name = "three"
about = "Three who know different masters."
[[client]]
id = "c1"
nodes = [5]
script = ["acquire L", "release L"]
[[client]]
id = "c2"
nodes = [1]
script = ["acquire L", "read R", "write R", "release L"]
[[client]]
id = "c3"
script = ["acquire L", "read R", "write R", "release L"]
"#;
    let mut run = Run::of(text);
    // The first hold lasts longest when the others begin, so the check pairs each of them with it.
    run.grant("c1", "t1", 10.0, 1988.0, &[5]).grant("c2", "t2", 500.0, 1900.0, &[1]);
    run.read(510.0, "c2", 0).grant("c3", "t3", 1000.0, 2900.0, &[2, 3, 4]);
    run.read(1010.0, "c3", 0).write(1020.0, "c3", 0, 1).write(1500.0, "c2", 0, 2);
    let verdict = run.judge();
    assert_eq!(verdict.seen(REGISTER), Observed::Violated);
    verdict.because(&[Cause::NodeLists]);
}
