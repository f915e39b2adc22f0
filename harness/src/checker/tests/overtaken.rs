//! Requests that came later and were granted first.

use super::outcome::expect;
use super::*;
use crate::scenario::Overtaken;

/// c2 waits from 10 ms on, is in the fair queue 100 ms later, and is granted at `at`. c1 asks at
/// the times in `asks`, and has the resource for 50 ms each time.
fn waiting(expected: &str, asks: &[f64], at: f64) -> Run {
    let mut run = Run::with(&format!("[expect]\novertaken = {{ {expected} }}"));
    let id = run.ask(10.0, "c2", "acquire", Some("L"), 5000);
    for (number, at) in asks.iter().enumerate() {
        let token = format!("t{number}");
        run.grant("c1", &token, at + 1.0, 1900.0, &[1, 2, 3]);
        run.release("c1", &token, at + 50.0, &[1, 2, 3]);
    }
    for node in [1, 2, 3] {
        run.set("c2", node, "mine", at - 1.0, Some(at - 0.5));
    }
    run.granted(at, "c2", id, "mine", 2000.0).release("c2", "mine", at + 10.0, &[1, 2, 3]);
    run.witnessed(3000.0, &["c1", "c2"]);
    run
}

#[test]
fn who_comes_later_must_not_come_first() {
    // c1 asked before c2 was in the queue.
    expect(&waiting("c2 = 0", &[0.0, 109.0], 200.0), Outcome::AsExpected, &[]);
    let asks = [0.0, 109.0, 200.0, 300.0, 1100.0];
    expect(&waiting("c2 = 2", &asks, 400.0), Outcome::AsExpected, &[]);
    let line = "overtaken: c2 asked at 10 ms, and stood in line from 110 ms on: c1 got it 2 times before, \
                though it came later each time, expected at most 1";
    expect(&waiting("c2 = 1", &asks, 400.0), Outcome::Differs, &[line]);
    expect(&waiting("c = 1", &asks, 400.0), Outcome::Differs, &[line]);
}

#[test]
fn who_is_to_be_overtaken_and_is_not_shows_nothing() {
    expect(&waiting("c2 = \"some\"", &[0.0, 200.0], 300.0), Outcome::AsExpected, &[]);
    let line = "overtaken: c2 never was, expected some who came later first";
    expect(&waiting("c2 = \"some\"", &[0.0], 200.0), Outcome::NotSeen, &[line]);
    // A request that does not wait is never in the queue.
    let line = "overtaken: c1 never stood in line";
    expect(&waiting("c1 = 0", &[0.0], 200.0), Outcome::NotSeen, &[line]);
}

#[test]
fn a_client_competes_from_when_those_of_its_process_before_it_are_over() {
    let of_one = |at: f64| {
        let mut run = Run::of(
            &TWO.replace("id = \"c1\"", "id = \"c1\"\nprocess = \"p\"")
                .replace("id = \"c2\"", "id = \"c2\"\nprocess = \"p\""),
        );
        run.scenario.expect.overtaken.insert("c2".to_owned(), Overtaken::AtMost(0));
        let mut rival = run.scenario.clients[0].clone();
        (rival.id, rival.process) = ("c3".into(), None);
        run.scenario.clients.push(rival);
        let held = run.ask(0.0, "c1", "acquire", Some("L"), 5000);
        let waits = run.ask(10.0, "c2", "acquire", Some("L"), 5000);
        run.granted(1.0, "c1", held, "t1", 1900.0).release("c1", "t1", 300.0, &[]);
        run.grant("c3", "t3", at + 1.0, 1990.0, &[1, 2, 3]);
        run.release("c3", "t3", 500.0, &[1, 2, 3]);
        run.granted(600.0, "c2", waits, "t2", 2500.0).release("c2", "t2", 700.0, &[]);
        run.witnessed(3000.0, &["c1", "c3"]);
        run.judge().differences.iter().any(|line| line.starts_with("overtaken: c2 asked"))
    };
    // The request is in the queue 100 ms after the end of the previous lease, which was released at
    // 300 ms.
    assert!(!of_one(390.0));
    assert!(of_one(410.0));
}

#[test]
fn those_of_a_process_who_are_asked_at_once_may_come_in_any_order() {
    let mut run = Run::of(&TWO.replace("id = \"c1\"", "id = \"c1\"\nprocess = \"p\""));
    let mut twin = run.scenario.clients[0].clone();
    twin.id = "c3".into();
    run.scenario.clients.push(twin);
    run.scenario.expect.overtaken.insert("c2".to_owned(), Overtaken::AtMost(0));
    let last = run.ask(0.0, "c1", "acquire", Some("L"), 5000);
    let first = run.ask(0.1, "c3", "acquire", Some("L"), 5000);
    let rival = run.ask(5.0, "c2", "acquire", Some("L"), 5000);
    run.granted(200.0, "c3", first, "t3", 1900.0).release("c3", "t3", 250.0, &[]);
    run.granted(300.0, "c2", rival, "t2", 1990.0).release("c2", "t2", 350.0, &[]);
    run.granted(400.0, "c1", last, "t1", 2000.0).release("c1", "t1", 450.0, &[]);
    run.witnessed(3000.0, &["c1", "c2"]);
    let verdict = run.judge();
    let overtaken = |line: &String| line.starts_with("overtaken");
    assert!(!verdict.differences.iter().any(overtaken), "{:?}", verdict.differences);
}
