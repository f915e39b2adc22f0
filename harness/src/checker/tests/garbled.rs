//! For any history, the checker reaches a verdict, and does so soon.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::notation::Run;
use super::*;

/// The choices that make an event: numbers by chance.
struct Choices(std::vec::IntoIter<u64>);

impl Choices {
    fn any(&mut self) -> u64 {
        self.0.next().unwrap_or_default()
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.any() % of.len() as u64).unwrap()].clone()
    }

    fn some<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one(&[true, false]).then(|| value(self))
    }

    fn name(&mut self, of: &[&str]) -> Name {
        self.one(of).into()
    }

    fn resource(&mut self) -> Name {
        self.name(&["L", "M", "x:L", ""])
    }

    fn token(&mut self) -> Name {
        self.name(&["t1", "t2", "t3", "ü…"])
    }

    fn number(&mut self, below: usize) -> usize {
        self.one(&(0..below).collect::<Vec<_>>())
    }

    /// Mostly within four seconds.
    fn time(&mut self) -> Ns {
        let any = self.any();
        let usual = Ns::try_from(any % 4000).unwrap() * 1_000_000;
        self.one(&[usual, usual, usual, usual, usual, usual, Ns::MIN, Ns::MAX, any.cast_signed()])
    }

    fn window(&mut self) -> Window {
        Window { from: self.time(), to: self.time() }
    }

    fn act(&mut self) -> Act {
        let (key, token) = (self.resource(), self.token());
        let optional = self.some(|_| token.clone());
        let ttl_ms = self.one(&[None, Some(2000), Some(0), Some(u64::MAX)]);
        match self.number(10) {
            0..4 => Act::Set { key, token, ttl_ms },
            4..6 => Act::Keep { key, token: optional, ttl_ms },
            6..8 => Act::Delete { key, token: optional },
            8 => Act::Certify { key, token: optional },
            _ => Act::Other { key: optional.map(|_| key), command: "GETDEL".into() },
        }
    }

    fn event(&mut self) -> Event {
        let client = self.name(&["c1", "c2", "c9"]);
        let (process, resource) = (client.clone(), self.resource());
        let (node, fault, at) = (self.number(6), self.number(3), self.window());
        let id = self.any() % 6;
        let number = self.any();
        match self.number(30) {
            0..4 => Event::Requested {
                client,
                id,
                op: self.one(&["acquire", "extend", "release", "step", "?"]).into(),
                with: vec![self.resource(); self.number(3)],
                again: self.one(&[true, false]),
                ttl_ms: self.one(&[None, Some(2000), Some(0), Some(u64::MAX)]),
                wait_ms: self.some(Self::any),
                resource: self.some(|_| resource),
            },
            4..8 => Event::Replied {
                client,
                id,
                ok: node % 2 == 0,
                token: self.some(Self::token),
                from: self.some(Self::time),
                at: self.some(Self::time),
                deadline: self.some(Self::time),
                valid_ms: self.some(Self::any),
                fence: self.some(|_| number % 4),
                handles: self.some(|_| number % 3),
                why: (node % 2 == 1).then_some(FailureReason::Taken),
                text: None,
            },
            8..16 => Event::Command {
                process,
                node,
                connection: self.any() % 4,
                number: number % 9,
                act: self.act(),
                sent: at.from,
                replied: self.some(Self::time),
                delivered: self.some(Self::time),
                result: self.one(&[
                    CommandOutcome::Done,
                    CommandOutcome::Done,
                    CommandOutcome::Created,
                    CommandOutcome::Refused,
                    CommandOutcome::Error,
                    CommandOutcome::Silent,
                ]),
            },
            16..18 => Event::Touched {
                client,
                register: "R".into(),
                way: self.one(&[AccessKind::Read, AccessKind::Write]),
                seen: number % 3,
                version: self.any() % 3,
                sent: self.some(|_| 0),
                fence: self.some(|_| number),
                refused: number.is_multiple_of(5),
            },
            18 => Event::Phase {
                phase: self.one(&[
                    Phase::Run,
                    Phase::Heal,
                    Phase::FinalAcquire,
                    Phase::Drain,
                    Phase::End,
                ]),
            },
            19 => Event::Ready { process, can: vec![Capability::Lost] },
            20 => Event::Lost { client, resource, at: at.from },
            21 => Event::Extended { client, resource, deadline: at.from },
            22..24 => Event::Struck {
                fault,
                fault_kind: Box::new(toml::from_str(self.one(&FAULTS)).unwrap()),
                nodes: Vec::new(),
                processes: Vec::new(),
                at,
                failed: self.some(|_| String::new()),
            },
            24 => Event::Healed { fault, at, failed: None },
            25 => Event::Clock {
                node,
                since: at,
                ahead: self.time(),
                rate: self.one(&[1.0, 0.0, f64::NAN, -1e300, 2.0, 1e300]),
                strobe_by: self.time(),
                strobe_every: 1,
            },
            26 => Event::Kept { fault, node, until: at },
            27 => Event::Broken { process, why: String::new() },
            _ => Event::Keys { node, keys: self.some(|_| Vec::new()) },
        }
    }
}

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

proptest! {
    #[test]
    fn any_history_comes_to_a_verdict(
        events in prop::collection::vec(prop::collection::vec(any::<u64>(), 40), 0..60),
        nodes in prop_oneof![Just(5usize), Just(0), Just(usize::MAX)],
    ) {
        let mut history = Run::of("").history();
        history.header.scenario.cluster.nodes = nodes;
        history.records = events.into_iter().map(|choices| {
            let mut choices = Choices(choices.into_iter());
            Record { ns: choices.time(), event: choices.event() }
        }).collect();
        history.records.sort_by_key(|record| record.ns);
        let verdict = check_history(&history);
        prop_assert_eq!(verdict.observed.len(), Property::ALL.len());
        // The verdict is always the same.
        prop_assert_eq!(check_history(&history), verdict);
    }
}

#[test]
fn a_verdict_reads_back_as_it_was_written() {
    let verdict = Run::of("").verdict();
    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
}

/// The verdict on a history, and how long the checker took.
fn timed(text: &str) -> (Verdict, Duration) {
    let history = Run::of(text).history();
    let begun = Instant::now();
    (check_history(&history), begun.elapsed())
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
