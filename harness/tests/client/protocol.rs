//! The client protocol with a client on real masters.

use std::ffi::OsString;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redquorum_harness::process::{ClientProcess, OutputEvent, ReceivedMessage};
use redquorum_rig::{Masters, RespValue, trials::eventually};
use redquorum_scenario::client_protocol::{
    ClientLine, ClientReply, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Op, Request,
};

/// A limit that allows for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The options of a client.
const OPTIONS: &str = r#"{"ttl_ms":1000,"node_timeout_ms":100,"drift_ppm":10000,"drift_ms":2,
                          "fencing":false}"#;

pub(crate) const BUILT_IN: &[&str] = &[env!("CARGO_BIN_EXE_redquorum-chaos"), "client"];

/// A mutant, or the honest client.
pub(crate) const fn mutant_command(name: &str) -> [&str; 3] {
    [env!("CARGO_BIN_EXE_redquorum-mutant"), "--mutant", name]
}

pub(crate) struct Client {
    pub(crate) process: ClientProcess,
    received: Receiver<ReceivedMessage>,
    last: u64,
    replies: Vec<ClientReply>,
    pub(crate) notices: Vec<Notice>,
}

impl Client {
    /// Starts a client, and returns when it is ready.
    pub(crate) fn start(command: &[&str], masters: &Masters) -> Self {
        let nodes = masters.urls().join(",");
        let env = [(NODES_VARIABLE, nodes.as_str()), (OPTIONS_VARIABLE, OPTIONS)];
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let (out, received) = channel();
        let process = ClientProcess::spawn(&command, env, move |word| {
            let _ = out.send(word);
        });
        let (replies, notices) = (Vec::new(), Vec::new());
        let mut client = Self { process: process.unwrap(), received, last: 0, replies, notices };
        client.listen(SOON, |client| !client.notices.is_empty());
        assert!(matches!(client.notices[..], [Notice::Ready { .. }]), "{:?}", client.notices);
        client
    }

    /// Sends a request, and does not wait.
    pub(crate) fn request(&mut self, client: &str, op: Op) -> u64 {
        self.last += 1;
        let request = Request { id: self.last, client: client.into(), op };
        self.process.send(&serde_json::to_string(&request).unwrap()).unwrap();
        self.last
    }

    pub(crate) fn reply(&mut self, id: u64) -> ClientReply {
        let is = |reply: &&ClientReply| reply.id == id;
        self.listen(SOON, |client| client.replies.iter().any(|reply| reply.id == id));
        let complaints = self.process.complaints();
        let reply = self.replies.iter().find(is);
        reply.unwrap_or_else(|| panic!("no reply to {id}; {complaints}")).clone()
    }

    pub(crate) fn ask(&mut self, client: &str, op: Op) -> ClientReply {
        let id = self.request(client, op);
        self.reply(id)
    }

    pub(crate) fn acquire(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, acquire(resource, 1000, 0))
    }

    pub(crate) fn granted(&mut self, client: &str, resource: &str) -> ClientReply {
        let reply = self.acquire(client, resource);
        assert!(reply.ok, "{reply:?}");
        reply
    }

    pub(crate) fn extend(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, Op::Extend { resource: resource.into(), ttl_ms: 1000 })
    }

    pub(crate) fn release(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, Op::Release { resource: resource.into() })
    }

    /// Waits for the notice of a loss.
    pub(crate) fn await_lost(&mut self) {
        let lost = |notice: &Notice| matches!(notice, Notice::Lost { .. });
        self.listen(SOON, |client| client.notices.iter().any(lost));
        assert!(self.notices.iter().any(lost), "no loss: {:?}", self.notices);
    }

    fn listen(&mut self, within: Duration, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + within;
        while !done(self) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(received) = self.received.recv_timeout(left) else { return };
            match received.what {
                OutputEvent::Line(line) => match ClientLine::read(&line).unwrap() {
                    ClientLine::Reply(reply) => self.replies.push(reply),
                    ClientLine::Notice(notice) => self.notices.push(notice),
                },
                other => panic!("{other:?}; {}", self.process.complaints()),
            }
        }
    }
}

pub(crate) fn acquire(resource: &str, ttl_ms: u64, wait_ms: u64) -> Op {
    Op::Acquire { resource: resource.into(), ttl_ms, wait_ms, again: false }
}

/// The number of masters with the key.
pub(crate) fn having(masters: &Masters, key: &str) -> usize {
    let has = |node: &usize| {
        masters.ask(*node, &format!("EXISTS {key}")).unwrap() == RespValue::Integer(1)
    };
    (1..=masters.len()).filter(has).count()
}

pub(crate) fn await_having(masters: &Masters, key: &str, count: usize) {
    eventually(&format!("{count} masters have {key}"), || having(masters, key) == count);
}
