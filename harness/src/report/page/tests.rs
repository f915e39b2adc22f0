//! Tests of the page for a run, from a history written by hand.

use std::path::Path;
use std::time::Duration;

use super::chart::{Chart, Lane};
use super::render;
use super::run::Section;
use super::*;
use crate::checker;
use crate::checker::timeline::timeline;
use crate::history::Window;

const MS: i64 = 1_000_000;

/// Three masters: c1 gets grants from two of them, and one of these two is down from 100 ms to 400
/// ms.
fn history(client: &str, token: &str) -> History {
    let scenario = serde_json::json!({
        "name": "by-hand", "about": "A holder loses a master.", "cluster": { "nodes": 3 },
        "lock": { "ttl": "1s" }, "client": [{ "id": client, "script": ["acquire L", "release L"] }],
        "fault": [{ "at": "100ms", "for": "300ms", "node": { "kill": { "nodes": 1 } } }],
    });
    let header = serde_json::json!({ "schema": 2, "scenario": scenario, "seed": 1, "backend": "sim",
        "masters": "none", "harness": "0" });
    let set = |node: usize, number: u64| {
        serde_json::json!({ "ns": 2 * MS, "event": "command", "process": client, "node": node,
            "connection": node, "number": number, "act": "set", "key": "L", "token": token,
            "ttl_ms": 1000, "sent": MS, "replied": MS, "delivered": 2 * MS, "result": "done" })
    };
    let at = |ms: i64| serde_json::json!({ "from": ms * MS, "to": ms * MS });
    let records = [
        serde_json::json!({ "ns": 0, "event": "phase", "phase": "run" }),
        serde_json::json!({ "ns": 0, "event": "asked", "client": client, "id": 1, "op": "acquire",
            "resource": "L", "ttl_ms": 1000, "wait_ms": 0 }),
        set(1, 1),
        set(2, 1),
        serde_json::json!({ "ns": 3 * MS, "event": "answered", "client": client, "id": 1, "ok": true,
            "token": token, "from": 0, "at": 2 * MS, "deadline": 900 * MS }),
        serde_json::json!({ "ns": 100 * MS, "event": "struck", "fault": 1,
            "fault_kind": { "node": { "kill": { "nodes": 1 } } }, "nodes": [1], "at": at(100) }),
        serde_json::json!({ "ns": 400 * MS, "event": "cured", "fault": 1, "at": at(400) }),
        serde_json::json!({ "ns": 500 * MS, "event": "asked", "client": client, "id": 2,
            "op": "release", "resource": "L" }),
        serde_json::json!({ "ns": 501 * MS, "event": "answered", "client": client, "id": 2, "ok": true,
            "from": 500 * MS, "at": 501 * MS }),
        serde_json::json!({ "ns": 600 * MS, "event": "phase", "phase": "end" }),
    ];
    let lines: Vec<String> =
        std::iter::once(&header).chain(&records).map(serde_json::Value::to_string).collect();
    History::read(lines.join("\n").as_bytes()).unwrap()
}

fn entry(history: &History) -> Entry {
    Entry {
        name: history.header.scenario.name.clone(),
        backend: "sim".to_owned(),
        seed: 1,
        time: 0,
        expect: history.header.scenario.expect.clone(),
        ended: Ended::Judged(Box::new(checker::judge(history))),
        took: Duration::ZERO,
        history: None,
        file: None,
        line: 1,
        again: "redquorum-chaos run by-hand".to_owned(),
        repeated: Vec::new(),
    }
}

fn page(history: &History) -> String {
    render(&Session::default(), &[entry(history)], Path::new(""), Some(history)).unwrap()
}

fn drawn(history: &History) -> Chart {
    let entry = entry(history);
    Section::new(&Run { entry: &entry, history }).into_chart().unwrap()
}

fn lane<'c>(chart: &'c Chart, label: &str) -> &'c Lane {
    chart.lanes.iter().find(|lane| lane.label == label).unwrap()
}

/// Where bars of a class begin and end, in whole milliseconds of a run of 600 ms.
#[expect(clippy::cast_possible_truncation, reason = "some hundreds")]
fn spans(lane: &Lane, class: &str) -> Vec<(i64, i64)> {
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().unwrap();
    let bars = lane.bars.iter().filter(|bar| bar.class.split(' ').any(|one| one == class));
    bars.map(|bar| {
        // The axis extends ten milliseconds beyond both ends.
        let place = |part: f64| (part / 100.0 * 620.0 - 10.0).round() as i64;
        (place(number(&bar.x)), place(number(&bar.x) + number(&bar.w)))
    })
    .collect()
}

#[test]
fn belief_truth_and_the_gap_between_them_come_from_the_checkers() {
    let timeline = timeline(&history("c1", "t1"));
    let lease = &timeline.leases[0];
    let of = |from: i64, to: i64| vec![Window { from: from * MS, to: to * MS }];
    assert_eq!(lease.believed, of(2, 500));
    assert_eq!(lease.certain, of(1, 100));
    assert_eq!(lease.gaps, of(100, 500));
    assert_eq!((lease.masters.as_slice(), lease.ending), ([1, 2].as_slice(), "release"));
    let lost = timeline.keys.iter().find(|key| key.node == 1).unwrap();
    assert_eq!(lost.end, "lost by fault 1, node.kill");
    assert_eq!(timeline.faults[0].span, of(100, 400)[0]);
    assert_eq!(timeline.faults[0].nodes, [1]);
}

#[test]
fn belief_truth_gap_and_downtime_are_drawn_in_their_lanes() {
    let chart = drawn(&history("c1", "t1"));
    let client = lane(&chart, "c1");
    assert_eq!(spans(client, "believed"), [(2, 500)]);
    assert_eq!(spans(client, "supported"), [(1, 100)]);
    assert_eq!(spans(client, "gap"), [(100, 500)]);
    assert_eq!(spans(lane(&chart, "master 1"), "key"), [(1, 100)]);
    assert_eq!(spans(lane(&chart, "master 1"), "down"), [(100, 400)]);
    assert_eq!(spans(lane(&chart, "master 2"), "down"), []);
    assert_eq!(lane(&chart, "faults").marks[0].text, "1 node.kill on master 1");
    let granted = &client.bars.iter().find(|bar| bar.class.starts_with("believed")).unwrap().title;
    assert!(
        granted.contains("granted by masters 1, 2") && granted.ends_with("line 6"),
        "{granted}"
    );
}

#[test]
fn text_of_a_history_is_escaped_and_cut() {
    let page = page(&history("<script>alert(1)</script>", &"<b>".repeat(4_000)));
    assert_eq!(page.matches("<script>").count(), 1, "only that of the program");
    assert!(!page.contains("<b><b>") && page.len() < 100_000, "{}", page.len());
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn a_history_without_events_and_a_report_without_runs_are_pages_too() {
    let mut empty = history("c1", "t1");
    empty.records.clear();
    assert!(page(&empty).contains("The history has no events."));
    let none = render(&Session::default(), &[], Path::new(""), None).unwrap();
    assert!(none.contains("Nothing was run."));
}

#[test]
fn a_long_run_is_summarised_and_says_so() {
    let mut long = history("c1", "t1");
    assert!(page(&long).contains("c1 set L: done"));
    let last = long.records.len() - 1;
    let touch = long.records[last].clone();
    long.records.resize(run::MOST_EVENTS + 1, touch);
    let page = page(&long);
    assert!(page.contains("Summarised: 20001 events."));
    assert!(!page.contains("c1 set L: done"));
}

#[test]
fn what_differs_says_what_was_expected() {
    let mut history = history("c1", "t1");
    history.header.scenario.expect.mutual_exclusion = Some(crate::scenario::Wanted::Violated);
    let page = page(&history);
    assert!(page.contains("<b>‼</b> holds<small>must break</small>"));
    assert!(page.contains("mutual-exclusion: expected violated, observed safe"));
}
