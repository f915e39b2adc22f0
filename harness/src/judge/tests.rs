//! Histories written by hand, and what the judge says of them.

use crate::history::{
    Act, Event, Header, History, Left, Ns, Outcome as Said, Phase, Record, SCHEMA, Window,
};
use crate::scenario::{Cause, Layer, Scenario, Way};
use crate::talk::{Can, Why};

use super::{Outcome, Seen, Verdict, judge};

mod exclusion;
mod progress;

mod register;
mod validity;

/// Five masters, TTL 2 s, two clients.
const TWO: &str = r#"
name = "test"
about = "A test."
[[client]]
id = "c1"
script = ["acquire L", "release L"]
[[client]]
id = "c2"
script = ["acquire L", "release L"]
"#;

/// Milliseconds, as everything in these tests.
fn ns(ms: f64) -> Ns {
    super::time::of_float(ms * 1e6)
}

fn window(from: f64, to: f64) -> Window {
    Window { from: ns(from), to: ns(to) }
}

/// A history in the making. Records are put in order at the end.
struct Run {
    scenario: Scenario,
    records: Vec<Record>,
    next: u64,
}

impl Run {
    fn two() -> Self {
        Self::of(TWO)
    }

    /// Two clients, and some more lines of TOML in front.
    fn with(more: &str) -> Self {
        Self::of(
            &TWO.replace("[[client]]\nid = \"c1\"", &format!("{more}\n[[client]]\nid = \"c1\"")),
        )
    }

    fn of(scenario: &str) -> Self {
        let scenario: Scenario = toml::from_str(scenario).unwrap();
        let mut run = Self { scenario, records: Vec::new(), next: 1 };
        run.record(0.0, Event::Phase { phase: Phase::Run });
        run
    }

    fn record(&mut self, ms: f64, event: Event) -> &mut Self {
        self.records.push(Record { ns: ns(ms), event });
        self
    }

    fn ready(&mut self, process: &str, can: &[Can]) -> &mut Self {
        self.record(0.0, Event::Ready { process: process.to_owned(), can: can.to_vec() })
    }

    /// Asks; the number of the request.
    fn ask(&mut self, ms: f64, client: &str, op: &str, resource: Option<&str>, wait: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.record(
            ms,
            Event::Asked {
                client: client.to_owned(),
                id,
                op: op.to_owned(),
                resource: resource.map(str::to_owned),
                ttl_ms: Some(2000),
                wait_ms: Some(wait),
            },
        );
        id
    }

    fn answer(&mut self, ms: f64, client: &str, id: u64, answer: Answer<'_>) -> &mut Self {
        let Answer { ok, token, from, at, deadline, valid, why } = answer;
        self.record(
            ms,
            Event::Answered {
                client: client.to_owned(),
                id,
                ok,
                token: token.map(str::to_owned),
                from: from.map(ns),
                at: at.map(ns),
                deadline: deadline.map(ns),
                valid_ms: valid,
                fence: None,
                why,
                text: None,
            },
        )
    }

    /// An acquire that is granted by these masters: asked 1 ms before, keys set 0.5 ms before.
    fn grant(
        &mut self,
        client: &str,
        token: &str,
        at: f64,
        deadline: f64,
        nodes: &[usize],
    ) -> &mut Self {
        let id = self.ask(at - 1.0, client, "acquire", Some("L"), 0);
        for node in nodes {
            self.set(client, *node, token, at - 0.6, Some(at - 0.4));
        }
        self.granted(at, client, id, token, deadline)
    }

    fn granted(&mut self, at: f64, client: &str, id: u64, token: &str, deadline: f64) -> &mut Self {
        let stamps = (Some(at), Some(deadline));
        let answer =
            Answer { token: Some(token), at: stamps.0, deadline: stamps.1, ..Answer::default() };
        self.answer(at, client, id, answer)
    }

    fn refused(&mut self, client: &str, asked: f64, at: f64, wait: u64, why: Why) -> &mut Self {
        let id = self.ask(asked, client, "acquire", Some("L"), wait);
        let answer = Answer { ok: false, at: Some(at), why: Some(why), ..Answer::default() };
        self.answer(at, client, id, answer)
    }

    fn extend(&mut self, client: &str, token: &str, at: f64, deadline: f64, nodes: &[usize]) {
        let id = self.ask(at - 1.0, client, "extend", Some("L"), 0);
        for node in nodes {
            let act = Act::Keep {
                key: "L".to_owned(),
                token: Some(token.to_owned()),
                ttl_ms: Some(2000),
            };
            self.command(client, *node, act, at - 0.6, Some(at - 0.4), Said::Done);
        }
        let answer = Answer { at: Some(at), deadline: Some(deadline), ..Answer::default() };
        self.answer(at, client, id, answer);
    }

    /// A release that is called at this time, and deletes on these masters.
    fn release(&mut self, client: &str, token: &str, at: f64, nodes: &[usize]) -> &mut Self {
        let id = self.ask(at, client, "release", Some("L"), 0);
        for node in nodes {
            self.delete(client, *node, Some(token), at + 0.1, Some(at + 0.2), Said::Done);
        }
        let answer = Answer { from: Some(at), at: Some(at + 0.4), ..Answer::default() };
        self.answer(at + 0.4, client, id, answer)
    }

    fn lost(&mut self, client: &str, at: f64) -> &mut Self {
        let (client, resource) = (client.to_owned(), "L".to_owned());
        self.record(at, Event::Lost { client, resource, at: ns(at) })
    }

    fn command(
        &mut self,
        process: &str,
        node: usize,
        act: Act,
        sent: f64,
        replied: Option<f64>,
        result: Said,
    ) -> &mut Self {
        let number = self.next;
        self.next += 1;
        self.record(
            replied.unwrap_or(sent),
            Event::Command {
                process: process.to_owned(),
                node,
                connection: node as u64,
                number,
                act,
                sent: ns(sent),
                replied: replied.map(ns),
                delivered: replied.map(|replied| ns(replied + 0.1)),
                result,
            },
        )
    }

    /// A key is set; without a reply: perhaps.
    fn set(
        &mut self,
        process: &str,
        node: usize,
        token: &str,
        sent: f64,
        replied: Option<f64>,
    ) -> &mut Self {
        let act = Act::Set { key: "L".to_owned(), token: token.to_owned(), ttl_ms: Some(2000) };
        let result = if replied.is_some() { Said::Done } else { Said::Silent };
        self.command(process, node, act, sent, replied, result)
    }

    fn delete(
        &mut self,
        process: &str,
        node: usize,
        token: Option<&str>,
        sent: f64,
        replied: Option<f64>,
        result: Said,
    ) -> &mut Self {
        let act = Act::Delete { key: "L".to_owned(), token: token.map(str::to_owned) };
        self.command(process, node, act, sent, replied, result)
    }

    /// A fault strikes: written as in TOML, `node.kill = { nodes = [1] }`.
    fn struck(
        &mut self,
        at: f64,
        fault: usize,
        harm: &str,
        nodes: &[usize],
        processes: &[&str],
    ) -> &mut Self {
        self.struck_or_failed(at, fault, harm, nodes, processes, None)
    }

    fn struck_or_failed(
        &mut self,
        at: f64,
        fault: usize,
        harm: &str,
        nodes: &[usize],
        processes: &[&str],
        failed: Option<&str>,
    ) -> &mut Self {
        let harm = toml::from_str(harm).unwrap();
        self.record(
            at,
            Event::Struck {
                fault,
                harm,
                nodes: nodes.to_vec(),
                processes: processes.iter().map(|&name| name.to_owned()).collect(),
                at: window(at, at + 0.5),
                failed: failed.map(str::to_owned),
            },
        )
    }

    fn cured(&mut self, at: f64, fault: usize) -> &mut Self {
        self.record(at, Event::Cured { fault, at: window(at, at + 0.5), failed: None })
    }

    fn clock(&mut self, at: f64, node: usize, ahead: f64, rate: f64) -> &mut Self {
        self.strobe(at, node, ahead, rate, 0.0)
    }

    fn strobe(&mut self, at: f64, node: usize, ahead: f64, rate: f64, by: f64) -> &mut Self {
        let event = Event::Clock {
            node,
            since: window(at, at + 0.2),
            ahead: ns(ahead),
            rate,
            strobe_by: ns(by),
            strobe_every: if by == 0.0 { 0 } else { ns(100.0) },
        };
        self.record(at, event)
    }

    fn read(&mut self, at: f64, client: &str, version: u64) -> &mut Self {
        self.touch(at, client, Way::Read, version, version)
    }

    fn write(&mut self, at: f64, client: &str, seen: u64, version: u64) -> &mut Self {
        self.touch(at, client, Way::Write, seen, version)
    }

    fn touch(&mut self, at: f64, client: &str, way: Way, seen: u64, version: u64) -> &mut Self {
        let (client, register) = (client.to_owned(), "R".to_owned());
        self.record(at, Event::Touched { client, register, way, seen, version })
    }

    fn phase(&mut self, at: f64, phase: Phase) -> &mut Self {
        self.record(at, Event::Phase { phase })
    }

    fn keys(&mut self, at: f64, node: usize, left: Option<&[(&str, &str)]>) -> &mut Self {
        let keys = left.map(|left| {
            let of = |&(key, value): &(&str, &str)| Left {
                key: key.to_owned(),
                value: value.to_owned(),
                ttl_ms: Some(100),
            };
            left.iter().map(of).collect()
        });
        self.record(at, Event::Keys { node, keys })
    }

    /// Everything is healed, each process that is named acquires once more, nothing is left.
    fn witnessed(&mut self, at: f64, processes: &[&str]) -> &mut Self {
        self.phase(at, Phase::Heal).phase(at + 10.0, Phase::Witness);
        for (index, process) in processes.iter().enumerate() {
            let begin = at + 20.0 + 10.0 * index as f64;
            let token = format!("w-{process}");
            self.grant(process, &token, begin, begin + 1978.0, &[1, 2, 3, 4, 5]);
            self.release(process, &token, begin + 1.0, &[1, 2, 3, 4, 5]);
        }
        self.phase(at + 500.0, Phase::Settle);
        for node in 1..=5 {
            self.keys(at + 510.0, node, Some(&[]));
        }
        self.phase(at + 520.0, Phase::End)
    }

    fn history(&self) -> History {
        let mut records = self.records.clone();
        records.sort_by_key(|record| record.ns);
        let header = Header {
            schema: SCHEMA,
            scenario: self.scenario.clone(),
            seed: 0,
            backend: "none".to_owned(),
            masters: String::new(),
            client: None,
            harness: String::new(),
        };
        History { header, records }
    }

    fn judge(&self) -> Verdict {
        judge(&self.history())
    }

    /// Heals, lets both clients bear witness at this time, and judges.
    fn ended(&mut self, at: f64) -> Verdict {
        self.witnessed(at, &["c1", "c2"]).judge()
    }
}

struct Answer<'a> {
    ok: bool,
    token: Option<&'a str>,
    from: Option<f64>,
    at: Option<f64>,
    deadline: Option<f64>,
    valid: Option<u64>,
    why: Option<Why>,
}

impl Default for Answer<'_> {
    fn default() -> Self {
        Self { ok: true, token: None, from: None, at: None, deadline: None, valid: None, why: None }
    }
}

impl Verdict {
    fn seen(&self, layer: Layer) -> Seen {
        self.observed[&layer]
    }

    /// All that was told of a layer.
    fn story(&self, layer: Layer) -> String {
        let of = self.findings.iter().filter(|finding| finding.layer == layer);
        of.flat_map(|finding| finding.story.clone()).collect::<Vec<_>>().join("\n")
    }

    /// Every layer but these is safe.
    #[track_caller]
    fn only(&self, layers: &[(Layer, Seen)]) -> &Self {
        for layer in Layer::ALL {
            let wanted = layers.iter().find(|(which, _)| *which == layer);
            let wanted = wanted.map_or(Seen::Safe, |(_, seen)| *seen);
            assert_eq!(self.seen(layer), wanted, "{layer}: {self:#?}");
        }
        self
    }

    #[track_caller]
    fn because(&self, causes: &[Cause]) -> &Self {
        assert_eq!(self.because, causes, "{self:#?}");
        self
    }

    #[track_caller]
    fn tells(&self, layer: Layer, part: &str) -> &Self {
        let story = self.story(layer);
        assert!(story.contains(part), "`{part}` is not in:\n{story}");
        self
    }
}
