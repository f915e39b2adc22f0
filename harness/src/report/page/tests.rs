//! Tests of the page for a run, from a history written by hand.

use std::path::Path;

use super::chart::{Chart, Lane, ROW};
use super::render;
use super::run::Section;
use super::*;
use redquorum_checker::{self, notation};
use redquorum_scenario::history::Window;

const MS: i64 = 1_000_000;

/// Three masters: a client gets grants from two of them, and one of these two is down from 100 ms
/// to 400 ms.
fn history(client: &str, token: &str) -> History {
    let run = notation::Run::of(&format!(
        "cluster.nodes = 3; lock.ttl = '1s'; {client}: script = ['acquire L', 'release L']
        fault = [{{ at = '100ms', for = '300ms', node = {{ kill = {{ nodes = 1 }} }} }}]
        2 {client} gets {token} on 12 until 900; 100 fault node.kill 1 exactly
        400 healed 1 exactly; 500 {client} releases {token}; 600 phase end"
    ));
    run.history()
}

fn entry(history: &History) -> Entry {
    let scenario = &history.header.scenario;
    let ended = Ended::Checked(Box::new(redquorum_checker::check(history)));
    Entry { expect: scenario.expect.clone(), ..Entry::of(&scenario.name, ended) }
}

fn page(history: &History) -> String {
    render(&Session::default(), &[entry(history)], Path::new(""), Some(history)).unwrap()
}

fn drawn(history: &History) -> Chart {
    let entry = entry(history);
    Section::new(&Run { entry: &entry, history }).chart.unwrap()
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
fn tokens_that_share_a_key_are_drawn_side_by_side() {
    let run = notation::Run::of(
        "cluster.nodes = 3; lock.ttl = '1s'; c1: script = ['acquire L shared', 'release L']
        2 c1 shares t1 on 12 until 900; 100 c2 shares t2 on 12 until 900
        200 c1 releases t1 on 12; 300 c1 shares t3 on 12 until 900; 350 c3 refused; 400 phase end",
    );
    let chart = drawn(&run.history());
    let master = lane(&chart, "master 1");
    let keys = master.bars.iter().filter(|bar| bar.class.starts_with("key"));
    let rows: Vec<u32> = keys.map(|bar| bar.y).collect();
    assert_eq!(rows, [rows[0], rows[0] + ROW, rows[0]]);
    let client = lane(&chart, "c1");
    let has = |text: &str| client.bars.iter().any(|bar| bar.title.contains(text));
    assert!(
        has("c1: acquire L shared: done") && has("c1 believed that it shares L"),
        "{client:#?}"
    );
}

#[test]
fn belief_truth_gap_and_downtime_are_drawn_in_their_lanes() {
    let history = history("c1", "t1");
    redquorum_checker::prepare(&history, |case| {
        let of = |from: i64, to: i64| Window { from: from * MS, to: to * MS };
        let lease = &case.leases[0];
        assert_eq!(lease.believed().collect::<Vec<_>>(), [of(2, 500)]);
        assert_eq!(case.hollow(lease), [of(100, 500)]);
        assert_eq!((lease.masters(&case.keys), lease.ending.name()), (vec![1, 2], "release"));
        let lost = case.keys.all.iter().find(|key| key.node == 1).unwrap();
        assert_eq!(lost.end(case), "lost by fault 1, node.kill");
    });
    let chart = drawn(&history);
    let client = lane(&chart, "c1");
    assert_eq!(spans(client, "believed"), [(2, 500)]);
    assert_eq!(spans(client, "supported"), [(2, 100)]);
    assert_eq!(spans(client, "gap"), [(100, 500)]);
    assert_eq!(spans(lane(&chart, "master 1"), "key"), [(2, 100)]);
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
fn a_long_run_is_summarised_with_a_note() {
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
fn a_property_that_differs_shows_the_expectation() {
    let mut history = history("c1", "t1");
    history.header.scenario.expect.mutual_exclusion = Some(redquorum_scenario::Wanted::Violated);
    let page = page(&history);
    assert!(page.contains("<b>‼</b> holds<small>must break</small>"));
    assert!(page.contains("mutual-exclusion: expected violated, observed safe"));
}
