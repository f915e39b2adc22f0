//! A notation for histories, and for what the checker must find in them.
//!
//! An event is its time in milliseconds and some words: `10 c1 gets t1 on 123 until 1988`. Events
//! are on lines of their own, or separated by `; `. A part without a time belongs to the scenario:
//! `lock.fencing = true`, or `c1: nodes = [1, 2]`. The usual scenario has five masters, a TTL of
//! two seconds, and the clients `c1` and `c2`. The windows of faults have no length in an event
//! that ends with `exactly`, as in the simulation.
//!
//! `== ` begins a block, with its title. `- ` begins a row of the block; the lines before the first
//! row are part of every row. `{name}` stands for a cell of the block's table, if it has one: `| `
//! and the names of the columns, and such lines with their cells. Each of these makes the whole
//! block anew. After the events of a row:
//!
//! - `=> validity violated because bug`: the verdict on a property, and the causes of all
//!   violations;
//! - `=> not-seen`: the outcome, and after it `! ` and each difference from the expectation;
//! - `=> all safe`, `=> overtaken no`, `=> margins 1 2`, `=> grants 2`, `=> hollow 12.5`,
//!   `=> hand-over 12.5`, `=> commands 3 9`; `=> reason`, and why no property failed;
//! - `~ ` and a part of the report text, or `!~ ` and a text that is not in it; `# ` and a comment.

use redquorum_scenario::client_protocol::{ClientReply, Op, Request};
use redquorum_scenario::history::{
    Act, Event, Header, History, LeftKey, Ns, Phase, Record, Window,
};
use redquorum_scenario::name::Name;
use redquorum_scenario::{AccessKind, Fault, Scenario};

/// The events, scenario lines and results of a text.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().flat_map(|line| {
        let (events, result) = line.split_at(line.find("=> ").unwrap_or(line.len()));
        let separator = if is_event(&events) { "; " } else { "\n" };
        events.split(separator).chain([result])
    });
    lines.map(str::trim).filter(|part| !part.is_empty())
}

pub(super) fn is_event(part: &&str) -> bool {
    !["=>", "~ ", "!~ ", "! "].iter().any(|sign| part.starts_with(sign))
}

/// A value by its name in TOML and JSON.
pub(super) fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(name.into()).unwrap()
}

/// Nanoseconds.
fn ns(ms: f64) -> Ns {
    crate::time::of_float(ms * 1e6)
}

fn window(from: f64, to: f64) -> Window {
    Window { from: ns(from), to: ns(to) }
}

/// A history under construction. The records are sorted at the end.
#[derive(Default)]
pub struct Run {
    head: Vec<String>,
    /// The lines of each client in the scenario.
    clients: Vec<(String, Vec<String>)>,
    records: Vec<Record>,
    /// The requests that have no reply yet, and their clients.
    open: Vec<(String, u64)>,
    next: u64,
    /// The faults that strike.
    faults: Vec<Fault>,
}

/// The words of an event, with its time in front.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    /// Whether it is about a shared lease.
    fn is_shared(&self) -> bool {
        self.has("shares") || self.has("shared")
    }

    /// The word that follows another one.
    fn after(&self, word: &str) -> Option<&'a str> {
        let place = self.0.iter().position(|one| *one == word)?;
        Some(self.0[place + 1])
    }

    fn number<T: std::str::FromStr>(&self, word: &str) -> Option<T> {
        self.after(word).and_then(|number| number.parse().ok())
    }

    fn time(&self, word: &str) -> Option<Ns> {
        self.number(word).map(ns)
    }

    /// The masters that follow the word `on`, as in `on 123`.
    fn nodes(&self) -> Vec<usize> {
        digits(self.after("on").unwrap_or_default())
    }
}

fn digits(text: &str) -> Vec<usize> {
    text.bytes().map(|digit| usize::from(digit - b'0')).collect()
}

impl Run {
    /// The history of a text without results.
    pub fn of(text: &str) -> Self {
        let mut run = Self::default();
        run.client("c1");
        run.client("c2");
        run.record(0.0, Event::Phase { phase: Phase::Run });
        for part in parts(text) {
            match part.split_once(": ") {
                _ if part.starts_with(|first: char| first.is_ascii_digit()) => run.event(part),
                Some((client, more)) => run.client(client).push(more.to_owned()),
                None => run.head.push(part.to_owned()),
            }
        }
        run
    }

    fn client(&mut self, id: &str) -> &mut Vec<String> {
        let known = self.clients.iter().position(|(known, _)| known == id);
        let place = known.unwrap_or_else(|| {
            self.clients.push((id.to_owned(), Vec::new()));
            self.clients.len() - 1
        });
        &mut self.clients[place].1
    }

    pub fn history(&self) -> History {
        let mut text = "name = 'test'\nabout = 'A test.'\n".to_owned() + &self.head.join("\n");
        for (id, lines) in &self.clients {
            let script = "script = ['acquire L', 'release L']";
            let own = lines.iter().any(|line| line.starts_with("script"));
            let script = if own { "" } else { script };
            text += &format!("\n[[client]]\nid = '{id}'\n{script}\n{}", lines.join("\n"));
        }
        let mut records = self.records.clone();
        records.sort_by_key(|record| record.ns);
        let mut scenario: Scenario = toml::from_str(&text).unwrap();
        let known = scenario.faults.len();
        scenario.faults.extend(self.faults.iter().skip(known).cloned());
        Header::new(scenario, 0, "none", String::new()).with(records)
    }

    fn record(&mut self, ms: f64, event: Event) {
        self.records.push(Record { ns: ns(ms), event });
    }

    fn event(&mut self, text: &str) {
        let exact = text.ends_with(" exactly");
        let words = Words(text.split_whitespace().filter(|word| *word != "exactly").collect());
        let ms: f64 = words.0[0].parse().unwrap();
        let until = |later: f64| window(ms, if exact { ms } else { ms + later });
        let at = until(0.5);
        let node = || words.0[2].parse().unwrap();
        let event = match words.0[1] {
            // `fault client.pause c1`, `fault clock.step 123 by 2s`; `fails` if it did not strike.
            "fault" | "fails" => {
                let (fault, processes) = fault(&words.0[2..]);
                self.faults.push(fault);
                let failed = words.has("fails").then(|| "it failed".to_owned());
                Event::Struck { fault: self.faults.len(), nodes: Vec::new(), processes, at, failed }
            }
            "healed" | "stays" => {
                let failed = words.has("stays").then(|| "the port is taken".to_owned());
                Event::Healed { fault: node(), at, failed }
            }
            // What master 3 kept over fault 1: `kept 3 until 4 to 5`.
            "kept" => {
                let until =
                    Window { from: words.time("until").unwrap(), to: words.time("to").unwrap() };
                Event::Kept { fault: 1, node: node(), until }
            }
            // `clock 3 ahead 2000 rate 1.5 jumps 100`.
            "clock" => Event::Clock {
                node: node(),
                since: until(0.2),
                ahead: words.time("ahead").unwrap_or(0),
                rate: words.number("rate").unwrap_or(1.0),
                strobe_by: words.time("jumps").unwrap_or(0),
                strobe_every: if words.has("jumps") { ns(100.0) } else { 0 },
            },
            "phase" => Event::Phase { phase: read(words.0[2]) },
            // The keys that a master still has: `left 3 L=t1`, `left 3 unknown`.
            "left" => {
                let keys = words.0[3..].iter().filter_map(|left| left.split_once('='));
                let keys = keys.map(|(key, value)| LeftKey {
                    key: key.into(),
                    value: value.into(),
                    ttl_ms: Some(100),
                });
                let keys = (!words.has("unknown")).then(|| keys.collect());
                Event::Keys { node: node(), keys }
            }
            // All is healed, each of these processes acquires once more, and no key is left.
            "ends" => return self.ends(ms, &words.0[2..]),
            client => return self.of_client(ms, client, &words),
        };
        self.record(ms, event);
    }

    fn ends(&mut self, ms: f64, processes: &[&str]) {
        let mut text = format!("{ms} phase heal; {} phase final-acquire; ", ms + 10.0);
        for (index, process) in processes.iter().enumerate() {
            let at = ms + 20.0 + 10.0 * index as f64;
            let (until, release) = (at + 1978.0, at + 1.0);
            text += &format!("{at} {process} gets w-{process} on 12345 until {until}; ");
            text += &format!("{release} {process} releases w-{process} on 12345; ");
        }
        text += &format!("{} phase drain; ", ms + 500.0);
        for node in 1..=5 {
            text += &format!("{} left {node}; ", ms + 510.0);
        }
        let open = std::mem::take(&mut self.open);
        parts(&text).for_each(|part| self.event(part));
        self.open = open;
        self.record(ms + 520.0, Event::Phase { phase: Phase::End });
    }

    fn of_client(&mut self, at: f64, client: &str, words: &Words<'_>) {
        let verb = words.0[2];
        let object = words.0.get(3).copied().unwrap_or_default();
        let name: Name = client.into();
        let key: Name = words.after("key").unwrap_or("L").into();
        let (ttl_ms, token) = (Some(2000), Some(object).filter(|token| *token != "any"));
        let shared = words.is_shared();
        let act = match (verb, token.map(Name::from)) {
            ("gets" | "shares" | "sets", _) => {
                Act::Set { key, token: object.into(), ttl_ms, shared }
            }
            ("extends" | "keeps", token) => Act::Keep { key, token, ttl_ms, shared },
            ("releases" | "deletes", token) => Act::Delete { key, token },
            _ => Act::Other { key: Some(key), command: object.into() },
        };
        let event = match verb {
            // `asks`, `asks extend ttl 500`. The reply is in a later event.
            "asks" => {
                let id = self.ask(at, client, object, words);
                return self.open.push((client.to_owned(), id));
            }
            // An acquire that these masters grant, from 1 ms before, with keys from 0.6 ms before.
            // `shares` acquires a shared lease. Its other events have the word `shared`: `asks
            // shared`, `keeps t1 on 3 shared`.
            "gets" | "shares" => {
                let id = self.open_or_asked(at - 1.0, client, words);
                self.commands(at - 0.6, client, &act, words);
                return self.reply(at, client, id, true, words);
            }
            // A request that fails. Without an earlier `asks` it is an acquire that takes 1 ms.
            "refused" => {
                let asked = self.open.iter().any(|(open, _)| open == client);
                let id = self.open_or_asked(at, client, words);
                return self.reply(if asked { at } else { at + 1.0 }, client, id, false, words);
            }
            "answers" => {
                let id = self.open_or_asked(at, client, words);
                return self.reply(at, client, id, true, words);
            }
            "extends" => {
                let id = self.ask(at - 1.0, client, "extend", words);
                self.commands(at - 0.6, client, &act, words);
                return self.reply(at, client, id, true, words);
            }
            // A release that is called at this time, and deletes the key on these masters.
            "releases" => {
                let id = self.ask(at, client, "release", words);
                self.commands(at + 0.1, client, &act, words);
                let called = format!("{at}");
                let words = words.0.iter().copied().chain(["called", &called]);
                return self.reply(at + 0.4, client, id, true, &Words(words.collect()));
            }
            "sets" | "keeps" | "deletes" | "runs" => {
                return self.commands(at, client, &act, words);
            }
            "loses" => {
                let at = words.time("stamped").unwrap_or(ns(at));
                Event::Lost { client: name, resource: "L".into(), at }
            }
            "extended" => {
                let deadline = words.time("until").unwrap();
                Event::Extended { client: name, resource: "L".into(), deadline }
            }
            // `unpolled until 900`: its latest request.
            "unpolled" => {
                let open = self.open.iter().find(|(open, _)| open == client);
                let (id, to) = (open.expect("it asks").1, words.time("until").unwrap());
                Event::Unpolled { client: name, id, from: ns(at), to }
            }
            // `reads 0`, and `writes 0 1`: the version that the write is based on, and the new one.
            "reads" | "writes" => {
                let way = if verb == "reads" { AccessKind::Read } else { AccessKind::Write };
                Event::Touched {
                    client: name,
                    register: "R".into(),
                    way,
                    seen: object.parse().unwrap(),
                    version: words.0[if verb == "reads" { 3 } else { 4 }].parse().unwrap(),
                    sent: words.time("sent"),
                    fence: words.number("fence"),
                    refused: words.has("rejected"),
                }
            }
            "can" => {
                let can = words.0[3..].iter().map(|can| read(can)).collect();
                Event::Ready { process: name, can }
            }
            "breaks" => Event::Broken { process: name, why: words.0[3..].join(" ") },
            _ => panic!("`{verb}` is no event: {:?}", words.0),
        };
        self.record(at, event);
    }

    /// The earliest request of a client without a reply, or a new acquire.
    fn open_or_asked(&mut self, at: f64, client: &str, words: &Words<'_>) -> u64 {
        match self.open.iter().position(|(open, _)| open == client) {
            Some(place) => self.open.remove(place).1,
            None => self.ask(at, client, "acquire", words),
        }
    }

    /// A request: `extend`, `release`, `step`, `keep_alive`, or else an acquire.
    fn ask(&mut self, at: f64, client: &str, verb: &str, words: &Words<'_>) -> u64 {
        self.next += 1;
        let resource = Name::from(words.after("of").unwrap_or("L"));
        let ttl_ms = words.number("ttl").unwrap_or(2000);
        let op = match verb {
            "extend" => Op::Extend { resource, ttl_ms },
            "release" => Op::Release { resource },
            "step" => Op::Step { name: "write R".into(), check: Some(resource) },
            "keep_alive" => Op::KeepAlive { resource, max_ms: 10_000 },
            _ => {
                let (again, wait_ms) = (words.has("again"), words.number("waiting").unwrap_or(0));
                let shared = words.is_shared();
                match words.after("with") {
                    Some(with) => {
                        let resources = vec![resource, with.into()];
                        Op::AcquireAll { resources, ttl_ms, wait_ms, shared }
                    }
                    None => {
                        let ttl_ms = if again { 0 } else { ttl_ms };
                        Op::Acquire { resource, ttl_ms, wait_ms, again, shared }
                    }
                }
            }
        };
        let request = Request { id: self.next, client: client.into(), op };
        self.record(at, Event::Requested(request));
        self.next
    }

    /// A reply, with the fields that the client sends: `unstamped`, `stamped 9`, `until 1988`, ….
    fn reply(&mut self, at: f64, client: &str, id: u64, ok: bool, words: &Words<'_>) {
        let why = ["no-quorum", "late", "cancelled", "unsupported", "no-reason"];
        let why = why.into_iter().find(|why| words.has(why)).unwrap_or("taken");
        let why = if why == "no-reason" { "refused" } else { why };
        let stamp = words.time("stamped").unwrap_or(ns(at));
        let stamped = !words.has("unstamped");
        let is_grant = words.has("gets") || words.has("shares");
        let token = words.0.get(3).filter(|_| is_grant && !words.has("unreported"));
        let token = words.after("as").or(token.copied());
        self.record(
            at,
            Event::Replied {
                client: client.into(),
                reply: ClientReply {
                    id,
                    ok,
                    token: token.map(Into::into),
                    from_ns: words.time("called").filter(|_| stamped),
                    at_ns: stamped.then_some(stamp),
                    deadline_ns: words.time("until"),
                    valid_ms: words.number("valid"),
                    fence: words.number("fence"),
                    handles: words.number("handles"),
                    why: (!ok).then(|| read(why)),
                    ..ClientReply::default()
                },
            },
        );
    }

    /// A command to each master, with the reply after 0.2 ms if the words say nothing else. Each
    /// master has one connection, unless the words name another one: `via 8`.
    fn commands(&mut self, sent: f64, process: &str, act: &Act, words: &Words<'_>) {
        let silent = words.has("silent");
        let replied = (!silent).then(|| words.number("replied").unwrap_or(sent + 0.2));
        let results = ["created", "silent", "refused", "error"];
        let result = results.into_iter().find(|result| words.has(result)).unwrap_or("done");
        for node in words.nodes() {
            self.next += 1;
            let command = Event::Command {
                process: process.into(),
                node,
                connection: words.number("via").unwrap_or(node as u64),
                number: self.next,
                act: act.clone(),
                sent: ns(sent),
                replied: replied.map(ns),
                delivered: replied.map(|replied| ns(replied + 0.1)),
                result: read(result),
                fence: None,
            };
            self.record(replied.unwrap_or(sent), command);
        }
    }
}

/// Whether a word is the name of a client or a process: `c1`, `p2`.
fn is_process(word: &str) -> bool {
    let number = word.strip_prefix(['c', 'p']);
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A fault from its words: a name, the masters, a client, and other fields with their values. Also
/// the processes that it hits.
fn fault(words: &[&str]) -> (Fault, Vec<Name>) {
    let mut fields = Vec::new();
    let mut processes = Vec::new();
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        fields.push(match *word {
            "all" => "nodes = 'all'".to_owned(),
            client if is_process(client) => {
                processes.push(client.into());
                format!("client = '{client}'")
            }
            nodes if nodes.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("nodes = {:?}", digits(nodes))
            }
            field => {
                let value = rest.next().unwrap();
                let plain = value.parse::<f64>().is_ok();
                if plain { format!("{field} = {value}") } else { format!("{field} = '{value}'") }
            }
        });
    }
    let fault = toml::from_str(&format!("at = '0s'\n{} = {{ {} }}", words[0], fields.join(", ")));
    (fault.unwrap(), processes)
}
