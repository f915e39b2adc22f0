//! Tests of the checker on histories written by hand: the files `tests/*.txt`, in the notation of
//! `notation.rs`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::exclusion::overlaps;
use super::leases::Hold;
use super::notation::{Run, is_event, parts, read};
use super::{Observed, Outcome, Verdict, check};
use crate::{check as verdict_on, commands_per_acquisition, prepare, reason_to_hold};
use proptest::prelude::*;
use redquorum_scenario::Property;
use redquorum_scenario::history::{Event, Ns, Record, Window};
use serde_json::{Value, json};

#[test]
fn histories_have_their_verdicts() {
    for (file, text) in [
        ("causes", include_str!("tests/causes.txt")),
        ("exclusion", include_str!("tests/exclusion.txt")),
        ("fencing", include_str!("tests/fencing.txt")),
        ("holds", include_str!("tests/holds.txt")),
        ("keys", include_str!("tests/keys.txt")),
        ("measures", include_str!("tests/measures.txt")),
        ("outcome", include_str!("tests/outcome.txt")),
        ("progress", include_str!("tests/progress.txt")),
        ("shared", include_str!("tests/shared.txt")),
        ("validity", include_str!("tests/validity.txt")),
    ] {
        check_file(file, text);
    }
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64, any::<bool>()), 0..12)
    ) {
        let hold = |(lease, (from, length, _)): (usize, &(i64, i64, bool))| {
            let span = Window::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let shared = |hold: &Hold| spans[hold.lease].2;
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner, shared);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
            prop_assert!(!(shared(first) && shared(second)));
        }
        // The checker reports every hold that overlaps an earlier one, and must not, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| {
                let must_not = !(shared(before) && shared(hold));
                must_not && before.inner.meet(hold.inner).is_some()
            })
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}

/// Checks every row of a file.
fn check_file(file: &str, text: &str) {
    for block in text.split("\n== ").skip(1) {
        let (title, block) = block.split_once('\n').unwrap();
        let lines = block.lines().map(|line| line.split("# ").next().unwrap_or_default().trim());
        let (table, lines): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('|'));
        let cells = |line: &str| line.trim_matches('|').split('|').map(cell).collect::<Vec<_>>();
        let mut table = table.into_iter().map(cells);
        let columns = table.next().unwrap_or_default();
        let only = columns.is_empty().then(Vec::new);
        for cells in table.chain(only) {
            let mut text = format!("\n{}", lines.join("\n"));
            for (column, value) in columns.iter().zip(cells) {
                text = text.replace(&format!("{{{column}}}"), &value);
            }
            let (common, rows) = text.split_once("\n- ").unwrap_or((&text, ""));
            for row in rows.split("\n- ") {
                check_row(&format!("{common}\n{row}"), &format!("{file}, {title}: {row}"));
            }
        }
    }
}

fn cell(text: &str) -> String {
    text.trim().to_owned()
}

/// Compares the verdict on the events of a text with its results.
fn check_row(text: &str, name: &str) {
    let (events, results): (Vec<&str>, Vec<&str>) = parts(text).partition(is_event);
    let history = Run::of(&events.join("\n")).history();
    let verdict = verdict_on(&history);
    assert!(!results.is_empty(), "no result of {name}");
    let explanations = verdict.findings.iter().flat_map(|finding| &finding.explanation);
    let explanation = explanations.map(String::as_str).collect::<Vec<_>>().join("\n");
    let differences = results.iter().filter_map(|result| result.strip_prefix("! "));
    let differences: Vec<&str> = differences.collect();
    for result in results {
        let (sign, result) = result.split_once(' ').unwrap_or_default();
        if sign.ends_with('~') {
            let found = explanation.contains(result);
            assert_eq!(found, sign == "~", "`{result}` in the report of {name}:\n{explanation}");
        }
        if sign != "=>" {
            continue;
        }
        let (result, causes) = result.split_once(" because ").unwrap_or((result, ""));
        if !causes.is_empty() {
            let found: Vec<&str> = verdict.because.iter().map(|cause| cause.name()).collect();
            assert_eq!(found.join(", "), causes, "{name}\n{verdict:#?}");
        }
        let (what, value) = result.split_once(' ').unwrap_or((result, ""));
        let measures = &verdict.measures;
        let plain = |numbers: &[i64]| format!("{numbers:?}").replace(['[', ']', ','], "");
        let found = match what {
            "grants" => measures.grants.to_string(),
            "margins" => plain(&measures.margins),
            "hollow" => ms(measures.hollow_ns),
            "acquire" => measures.acquire_ns.map_or_else(String::new, ms),
            "hand-over" => measures.hand_over_ns.map_or_else(String::new, ms),
            "commands" => plain(&prepare(&history, commands_per_acquisition)),
            "reason" => prepare(&history, reason_to_hold).unwrap_or("none".to_owned()),
            "overtaken" => {
                let overtaken = |line: &String| line.starts_with("overtaken");
                let any = verdict.differences.iter().any(overtaken);
                if any { "yes" } else { "no" }.to_owned()
            }
            "all" => {
                let all = Property::ALL.map(|property| verdict.observed[&property].name());
                let mut bad = all.into_iter().filter(|seen| !["safe", "not-used"].contains(seen));
                bad.next().unwrap_or("safe").to_owned()
            }
            _ if value.is_empty() => {
                assert_eq!(verdict.differences, differences, "{name}\n{verdict:#?}");
                assert_eq!(verdict.outcome.name(), what, "{name}\n{verdict:#?}");
                continue;
            }
            property => verdict.observed[&read(property)].to_string(),
        };
        assert_eq!(found, value, "{what} of {name}\n{verdict:#?}");
    }
}

/// Milliseconds, the unit of the notation.
fn ms(ns: Ns) -> String {
    ((ns as f64 / 1e3).round() / 1e3).to_string()
}

/// How often each event occurs, its name, and its fields. A field `name:kind` has a value of
/// another kind than its name says. A field that ends with `?` may be missing.
const EVENTS: [(usize, &str, &str); 27] = [
    (2, "requested", "client id op:acquire resource ttl_ms wait_ms:any again shared:again"),
    (1, "requested", "client id op:acquire_all resources ttl_ms wait_ms:any shared:again"),
    (1, "requested", "client id op:extend resource ttl_ms"),
    (1, "requested", "client id op:keep_alive resource max_ms:any"),
    (1, "requested", "client id op:release resource"),
    (1, "requested", "client id op:release_all resources"),
    (1, "requested", "client id op:step name:text check:resource?"),
    (1, "requested", "client id op:cancel request:id"),
    (2, "replied", "client id ok:yes token? from_ns? at_ns? deadline_ns? valid_ms:any? handles?"),
    (2, "replied", "client id ok:yes from_ns? at_ns? deadline_ns? fence? each?"),
    (2, "replied", "client id ok:no token? from_ns? at_ns? deadline_ns? fence? why"),
    (3, "command", "act:set key token ttl_ms? shared:again"),
    (2, "command", "act:keep key token? ttl_ms? shared:again"),
    (2, "command", "act:delete key token?"),
    (1, "command", "act:certify key token?"),
    (1, "command", "act:other key? command"),
    (2, "touched", "client register way seen:few version:few sent:zero? fence? refused:again"),
    (1, "phase", "phase"),
    (1, "ready", "process can"),
    (1, "lost", "client resource at:time"),
    (1, "extended", "client resource deadline"),
    (2, "struck", "fault at failed:why?"),
    (1, "healed", "fault at"),
    (1, "clock", "node since:at ahead rate strobe_by strobe_every:few"),
    (1, "kept", "fault node until:at"),
    (1, "broken", "process why:text"),
    (2, "keys", "node keys"),
];
/// The fields of every command, in addition to those of its effect.
const COMMAND: &str = "process node connection:few number:few result sent replied? delivered?";

const FAULTS: [&str; 9] = [
    "node.kill = { nodes = [1, 2] }",
    "node.restart = { nodes = [1, 2, 3, 4, 5] }",
    "node.pause = { node = 1 }",
    "node.slow = { node = 1, by = '1s' }",
    "clock.step = { node = 2, by = '-3s' }",
    "net.cut = {}",
    "net.delay = { by = '1ms' }",
    "client.pause = { client = 'c1' }",
    "client.kill = { client = 'c2' }",
];

/// The choices that make an event: numbers by chance.
struct Choices(std::vec::IntoIter<u64>);

impl Choices {
    fn any(&mut self) -> u64 {
        self.0.next().unwrap_or_default()
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.any() % of.len() as u64).unwrap()].clone()
    }

    /// Mostly within four seconds.
    fn time(&mut self) -> Ns {
        let any = self.any();
        let usual = Ns::try_from(any % 4000).unwrap() * 1_000_000;
        self.one(&[usual, usual, usual, usual, usual, usual, Ns::MIN, Ns::MAX, any.cast_signed()])
    }

    fn value(&mut self, kind: &str) -> Value {
        match kind {
            "client" | "process" => self.one(&["c1", "c2", "c9"]).into(),
            "resource" | "key" => self.one(&["L", "M", "x:L", ""]).into(),
            "token" => self.one(&["t1", "t2", "t3", "ü…"]).into(),
            "result" => self.one(&["done", "done", "created", "refused", "error", "silent"]).into(),
            "way" => self.one(&["read", "write"]).into(),
            "phase" => self.one(&["run", "heal", "final-acquire", "drain", "end"]).into(),
            "register" => "R".into(),
            "command" => "GETDEL".into(),
            "can" => json!(["lost"]),
            "why" => "taken".into(),
            "resources" => (0..self.one(&[0, 1, 2, 3])).map(|_| self.value("resource")).collect(),
            "each" => {
                let one = json!({ "token": self.value("token"), "deadline_ns": self.time() });
                json!(vec![one; self.one(&[0, 1, 2, 3])])
            }
            "keys" => self.one(&[Value::Null, json!([])]),
            "ttl_ms" => self.one(&[2000, 0, u64::MAX]).into(),
            "again" => self.one(&[true, false]).into(),
            "yes" | "no" => (kind == "yes").into(),
            "zero" => 0.into(),
            "any" => self.any().into(),
            "id" | "node" => (self.any() % 6).into(),
            "fault" => (self.any() % (FAULTS.len() as u64 + 2)).into(),
            "few" | "fence" | "handles" => (self.any() % 4).into(),
            "rate" => self.one(&[1.0, 0.0, NO_NUMBER, -1e300, 2.0, 1e300]).into(),
            "at" => json!({ "from": self.time(), "to": self.time() }),
            "time" | "from_ns" | "at_ns" | "deadline_ns" | "deadline" | "sent" | "replied"
            | "delivered" | "ahead" | "strobe_by" => self.time().into(),
            act => act.into(),
        }
    }

    fn event(&mut self) -> Event {
        let all: Vec<_> = EVENTS.iter().flat_map(|event| vec![event; event.0]).collect();
        let (_, name, fields) = self.one(&all);
        let more = if *name == "command" { COMMAND } else { "" };
        let mut event = json!({ "event": name });
        for field in fields.split_whitespace().chain(more.split_whitespace()) {
            let (field, optional) = field.strip_suffix('?').map_or((field, false), |it| (it, true));
            let (field, kind) = field.split_once(':').unwrap_or((field, field));
            let value = self.value(kind);
            if !optional || self.one(&[true, false]) {
                event[field] = value;
            }
        }
        let mut event = serde_json::from_value(event).unwrap();
        // JSON has no name for this rate.
        if let Event::Clock { rate, .. } = &mut event
            && *rate == NO_NUMBER
        {
            *rate = f64::NAN;
        }
        event
    }
}

/// The rate that stands for an invalid one.
const NO_NUMBER: f64 = 7.0;

proptest! {
    #[test]
    fn any_history_comes_to_a_verdict(
        events in prop::collection::vec(prop::collection::vec(any::<u64>(), 40), 0..60),
        nodes in prop_oneof![Just(5usize), Just(0), Just(usize::MAX)],
    ) {
        let mut history = Run::of("").history();
        history.header.scenario.cluster.nodes = nodes;
        let fault = |effect: &&str| toml::from_str(&format!("at = '0s'\n{effect}")).unwrap();
        history.header.scenario.faults = FAULTS.iter().map(fault).collect();
        history.records = events.into_iter().map(|choices| {
            let mut choices = Choices(choices.into_iter());
            Record { ns: choices.time(), event: choices.event() }
        }).collect();
        history.records.sort_by_key(|record| record.ns);
        let verdict = check(&history);
        prop_assert_eq!(verdict.observed.len(), Property::ALL.len());
        // The verdict is always the same.
        prop_assert_eq!(check(&history), verdict);
    }
}

#[test]
fn a_verdict_reads_back_as_it_was_written() {
    let verdict = check(&Run::of("").history());
    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
}

/// The verdict on a history, and how long the checker took.
fn timed(text: &str) -> (Verdict, Duration) {
    let history = Run::of(text).history();
    let begun = Instant::now();
    (check(&history), begun.elapsed())
}

#[test]
fn ten_thousand_leases_are_checked_soon() {
    // The leases of two clients, one after the other, on five masters.
    let mut text = "50010 ends c1 c2\n".to_owned();
    for round in 0..10_000 {
        let (at, client) = (2 + round * 5, 1 + round % 2);
        let (until, release) = (at + 1978, at + 2);
        _ = writeln!(text, "{at} c{client} gets t{round} on 12345 until {until}");
        _ = writeln!(text, "{release} c{client} releases t{round} on 12345");
    }
    let (verdict, took) = timed(&text);
    assert_eq!(verdict.outcome, Outcome::AsExpected, "{:?}", verdict.differences);
    assert_eq!(verdict.measures.grants, 10_000);
    // This is the bound without optimisation, beside other work. Optimised code is some ten times
    // as fast.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_lock_that_is_none_is_checked_soon_too() {
    // Every request is granted at once or refused at once. All keys stay, and all have one token.
    let mut text = String::new();
    for round in 0..400 {
        let (at, client) = (2 + round * 2, 1 + round % 2);
        let (until, version) = (at + 1978, u64::from(round == 0));
        _ = writeln!(text, "{at} c{client} gets t on 12345 until {until}");
        _ = writeln!(text, "{at}.1 c{client} reads 0; {at}.2 c{client} writes 7 {version}");
        _ = writeln!(text, "{at}.5 c{client} refused; {at}.5 c{client} sets t on 1 silent");
    }
    let (verdict, took) = timed(&text);
    assert_eq!(verdict.observed[&Property::MutualExclusion], Observed::Violated);
    assert!(took < Duration::from_secs(10), "{took:?}");
}
