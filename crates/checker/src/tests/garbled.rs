//! For any history, the checker reaches a verdict, and does so soon.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::notation::Run;
use crate::{Observed, Outcome, Verdict, check};
use redquorum_scenario::Property;
use redquorum_scenario::history::{Event, Ns, Record};

/// How often each event occurs, its name, and its fields. A field `name:kind` has a value of
/// another kind than its name says. A field that ends with `?` may be missing.
const EVENTS: [(usize, &str, &str); 27] = [
    (2, "requested", "client id op:acquire resource ttl_ms wait_ms:any again"),
    (1, "requested", "client id op:acquire_all resources ttl_ms wait_ms:any"),
    (1, "requested", "client id op:extend resource ttl_ms"),
    (1, "requested", "client id op:keep_alive resource max_ms:any"),
    (1, "requested", "client id op:release resource"),
    (1, "requested", "client id op:release_all resources"),
    (1, "requested", "client id op:step name:text check:resource?"),
    (1, "requested", "client id op:cancel request:id"),
    (2, "replied", "client id ok:yes token? from_ns? at_ns? deadline_ns? valid_ms:any? handles?"),
    (2, "replied", "client id ok:yes from_ns? at_ns? deadline_ns? fence? each?"),
    (2, "replied", "client id ok:no token? from_ns? at_ns? deadline_ns? fence? why"),
    (3, "command", "act:set key token ttl_ms?"),
    (2, "command", "act:keep key token? ttl_ms?"),
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
