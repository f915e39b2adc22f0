//! A builder of histories for tests.

use super::*;

/// A history under construction. The records are sorted at the end.
pub(super) struct Run {
    pub(super) scenario: Scenario,
    pub(super) records: Vec<Record>,
    pub(super) next: u64,
}

impl Run {
    pub(super) fn two() -> Self {
        Self::of(TWO)
    }

    /// A run with two clients, and with these lines of TOML in front of them.
    pub(super) fn with(more: &str) -> Self {
        Self::of(
            &TWO.replace("[[client]]\nid = \"c1\"", &format!("{more}\n[[client]]\nid = \"c1\"")),
        )
    }

    pub(super) fn of(scenario: &str) -> Self {
        let scenario: Scenario = toml::from_str(scenario).unwrap();
        let mut run = Self { scenario, records: Vec::new(), next: 1 };
        run.record(0.0, Event::Phase { phase: Phase::Run });
        run
    }

    pub(super) fn record(&mut self, ms: f64, event: Event) -> &mut Self {
        self.records.push(Record { ns: ns(ms), event });
        self
    }

    pub(super) fn ready(&mut self, process: &str, can: &[Capability]) -> &mut Self {
        self.record(0.0, Event::Ready { process: process.into(), can: can.to_vec() })
    }

    /// Sends a request, and returns its number.
    pub(super) fn ask(
        &mut self,
        ms: f64,
        client: &str,
        op: &str,
        resource: Option<&str>,
        wait: u64,
    ) -> u64 {
        self.ask_as((ms, client, op), resource, (false, Some(2000), wait))
    }

    /// Sends a re-entry for the lease that the client holds, for no longer.
    pub(super) fn ask_again(&mut self, ms: f64, client: &str, resource: &str) -> u64 {
        self.ask_as((ms, client, "acquire"), Some(resource), (true, None, 0))
    }

    fn ask_as(
        &mut self,
        (ms, client, op): (f64, &str, &str),
        resource: Option<&str>,
        (again, ttl_ms, wait): (bool, Option<u64>, u64),
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        self.record(
            ms,
            Event::Asked {
                client: client.into(),
                id,
                op: op.to_owned().into(),
                resource: resource.map(Name::from),
                with: Vec::new(),
                again,
                ttl_ms,
                wait_ms: Some(wait),
            },
        );
        id
    }

    pub(super) fn answer(
        &mut self,
        ms: f64,
        client: &str,
        id: u64,
        answer: Answer<'_>,
    ) -> &mut Self {
        let Answer { ok, token, from, at, deadline, valid, fence, handles, why } = answer;
        self.record(
            ms,
            Event::Answered {
                client: client.into(),
                id,
                ok,
                token: token.map(Name::from),
                from: from.map(ns),
                at: at.map(ns),
                deadline: deadline.map(ns),
                valid_ms: valid,
                fence,
                handles,
                why,
                text: None,
            },
        )
    }

    /// An acquire that these masters grant: asked 1 ms before, keys set 0.5 ms before.
    pub(super) fn grant(
        &mut self,
        client: &str,
        token: &str,
        at: f64,
        deadline: f64,
        nodes: &[usize],
    ) -> &mut Self {
        let id = self.voted(client, token, at, nodes);
        self.granted(at, client, id, token, deadline)
    }

    /// Like [`Run::grant`], with a fencing token.
    pub(super) fn fenced(
        &mut self,
        client: &str,
        token: &str,
        at: f64,
        deadline: f64,
        nodes: &[usize],
        fence: u64,
    ) -> &mut Self {
        let id = self.voted(client, token, at, nodes);
        let (stamp, deadline, fence) = (Some(at), Some(deadline), Some(fence));
        let answer = Answer { token: Some(token), at: stamp, deadline, fence, ..Answer::default() };
        self.answer(at, client, id, answer)
    }

    /// An acquire for which these masters set the key, and which is not answered yet.
    fn voted(&mut self, client: &str, token: &str, at: f64, nodes: &[usize]) -> u64 {
        let id = self.ask(at - 1.0, client, "acquire", Some("L"), 0);
        for node in nodes {
            self.set(client, *node, token, at - 0.6, Some(at - 0.4));
        }
        id
    }

    pub(super) fn granted(
        &mut self,
        at: f64,
        client: &str,
        id: u64,
        token: &str,
        deadline: f64,
    ) -> &mut Self {
        let stamps = (Some(at), Some(deadline));
        let answer =
            Answer { token: Some(token), at: stamps.0, deadline: stamps.1, ..Answer::default() };
        self.answer(at, client, id, answer)
    }

    pub(super) fn refused(
        &mut self,
        client: &str,
        asked: f64,
        at: f64,
        wait: u64,
        why: FailureReason,
    ) -> &mut Self {
        let id = self.ask(asked, client, "acquire", Some("L"), wait);
        let answer = Answer { ok: false, at: Some(at), why: Some(why), ..Answer::default() };
        self.answer(at, client, id, answer)
    }

    pub(super) fn extend(
        &mut self,
        client: &str,
        token: &str,
        at: f64,
        deadline: f64,
        nodes: &[usize],
    ) {
        let id = self.ask(at - 1.0, client, "extend", Some("L"), 0);
        for node in nodes {
            let act = Act::Keep { key: "L".into(), token: Some(token.into()), ttl_ms: Some(2000) };
            self.command(client, *node, act, at - 0.6, Some(at - 0.4), Said::Done);
        }
        let answer = Answer { at: Some(at), deadline: Some(deadline), ..Answer::default() };
        self.answer(at, client, id, answer);
    }

    /// A release that is called at this time, and deletes the key on these masters.
    pub(super) fn release(
        &mut self,
        client: &str,
        token: &str,
        at: f64,
        nodes: &[usize],
    ) -> &mut Self {
        let id = self.ask(at, client, "release", Some("L"), 0);
        for node in nodes {
            self.delete(client, *node, Some(token), at + 0.1, Some(at + 0.2), Said::Done);
        }
        let answer = Answer { from: Some(at), at: Some(at + 0.4), ..Answer::default() };
        self.answer(at + 0.4, client, id, answer)
    }

    pub(super) fn lost(&mut self, client: &str, at: f64) -> &mut Self {
        let (client, resource) = (client.into(), "L".into());
        self.record(at, Event::Lost { client, resource, at: ns(at) })
    }

    pub(super) fn command(
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
                process: process.into(),
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

    /// A command sets a key; without a reply, it may not have done so.
    pub(super) fn set(
        &mut self,
        process: &str,
        node: usize,
        token: &str,
        sent: f64,
        replied: Option<f64>,
    ) -> &mut Self {
        let act = Act::Set { key: "L".into(), token: token.into(), ttl_ms: Some(2000) };
        let result = if replied.is_some() { Said::Done } else { Said::Silent };
        self.command(process, node, act, sent, replied, result)
    }

    pub(super) fn delete(
        &mut self,
        process: &str,
        node: usize,
        token: Option<&str>,
        sent: f64,
        replied: Option<f64>,
        result: Said,
    ) -> &mut Self {
        let act = Act::Delete { key: "L".into(), token: token.map(Name::from) };
        self.command(process, node, act, sent, replied, result)
    }

    /// A fault strikes. It is written as in TOML: `node.kill = { nodes = [1] }`.
    pub(super) fn struck(
        &mut self,
        at: f64,
        fault: usize,
        fault_kind: &str,
        nodes: &[usize],
        processes: &[&str],
    ) -> &mut Self {
        self.struck_or_failed(at, fault, fault_kind, nodes, processes, None)
    }

    pub(super) fn struck_or_failed(
        &mut self,
        at: f64,
        fault: usize,
        fault_kind: &str,
        nodes: &[usize],
        processes: &[&str],
        failed: Option<&str>,
    ) -> &mut Self {
        let fault_kind = toml::from_str(fault_kind).unwrap();
        self.record(
            at,
            Event::Struck {
                fault,
                fault_kind,
                nodes: nodes.to_vec(),
                processes: processes.iter().map(|&name| name.into()).collect(),
                at: window(at, at + 0.5),
                failed: failed.map(str::to_owned),
            },
        )
    }

    pub(super) fn cured(&mut self, at: f64, fault: usize) -> &mut Self {
        self.record(at, Event::Cured { fault, at: window(at, at + 0.5), failed: None })
    }

    pub(super) fn clock(&mut self, at: f64, node: usize, ahead: f64, rate: f64) -> &mut Self {
        self.strobe(at, node, ahead, rate, 0.0)
    }

    pub(super) fn strobe(
        &mut self,
        at: f64,
        node: usize,
        ahead: f64,
        rate: f64,
        by: f64,
    ) -> &mut Self {
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

    pub(super) fn read(&mut self, at: f64, client: &str, version: u64) -> &mut Self {
        self.touch(at, client, AccessKind::Read, version, version)
    }

    pub(super) fn write(&mut self, at: f64, client: &str, seen: u64, version: u64) -> &mut Self {
        self.touch(at, client, AccessKind::Write, seen, version)
    }

    /// An access to a register, with a fencing token or without.
    pub(super) fn shown(
        &mut self,
        at: f64,
        client: &str,
        way: AccessKind,
        (seen, version): (u64, u64),
        fence: Option<u64>,
        refused: bool,
    ) -> &mut Self {
        let (client, register) = (client.into(), "R".into());
        self.record(
            at,
            Event::Touched { client, register, way, seen, version, sent: None, fence, refused },
        )
    }

    pub(super) fn touch(
        &mut self,
        at: f64,
        client: &str,
        way: AccessKind,
        seen: u64,
        version: u64,
    ) -> &mut Self {
        let (client, register) = (client.into(), "R".into());
        self.record(
            at,
            Event::Touched {
                client,
                register,
                way,
                seen,
                version,
                sent: None,
                fence: None,
                refused: false,
            },
        )
    }

    pub(super) fn phase(&mut self, at: f64, phase: Phase) -> &mut Self {
        self.record(at, Event::Phase { phase })
    }

    pub(super) fn keys(
        &mut self,
        at: f64,
        node: usize,
        left: Option<&[(&str, &str)]>,
    ) -> &mut Self {
        let keys = left.map(|left| {
            let of = |&(key, value): &(&str, &str)| LeftKey {
                key: key.into(),
                value: value.into(),
                ttl_ms: Some(100),
            };
            left.iter().map(of).collect()
        });
        self.record(at, Event::Keys { node, keys })
    }

    /// Everything is healed, each named process acquires once more, and no key is left.
    pub(super) fn witnessed(&mut self, at: f64, processes: &[&str]) -> &mut Self {
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

    pub(super) fn history(&self) -> History {
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

    pub(super) fn judge(&self) -> Verdict {
        judge(&self.history())
    }

    /// Heals, lets both clients make their final acquires at this time, and checks.
    pub(super) fn ended(&mut self, at: f64) -> Verdict {
        self.witnessed(at, &["c1", "c2"]).judge()
    }
}

/// The answer of a client.
pub(super) struct Answer<'a> {
    pub(super) ok: bool,
    pub(super) token: Option<&'a str>,
    pub(super) from: Option<f64>,
    pub(super) at: Option<f64>,
    pub(super) deadline: Option<f64>,
    pub(super) valid: Option<u64>,
    pub(super) fence: Option<u64>,
    pub(super) handles: Option<u64>,
    pub(super) why: Option<FailureReason>,
}

impl Default for Answer<'_> {
    fn default() -> Self {
        Self {
            ok: true,
            token: None,
            from: None,
            at: None,
            deadline: None,
            valid: None,
            fence: None,
            handles: None,
            why: None,
        }
    }
}
