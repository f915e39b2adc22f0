//! Peer: the client protocol with a driver that may misbehave in any way: it may be silent, write
//! too much, write nonsense, or die. Every wait is bounded, and so are all buffers.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::process::{ClientProcess, OutputEvent, ReceivedMessage};
use crate::real::run::{Key, keys_of};
use crate::stamp;
use redquorum_rig::{Masters, RigError};
use redquorum_scenario::client_protocol::{
    ClientLine, ClientReply, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Op, Options, Request, shown,
};

/// How long a reply may take that has to wait only for masters.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// The number of lines in the buffer. When it is full, the driver blocks.
const WAITING: usize = 16;

/// After this many invalid lines, the check reads no more.
const ENOUGH: usize = 100;

/// After this many requests without a reply, the check sends no more.
const TIMEOUT: usize = 2;

/// The reason why a check failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The driver is wrong: its output, the expected output, and how to fix it.
    Wrong(String),
    /// The driver is wrong, and no further check is possible.
    Over(String),
    /// The check was not run, with the reason.
    Skipped(String),
    /// The environment failed, not the driver.
    Environment(String),
}

/// A request in flight.
#[derive(Clone, Copy)]
pub(super) struct PendingRequest {
    pub(super) id: u64,
    /// The stamp at which it was sent.
    pub(super) at: i64,
    op: &'static str,
}

pub(super) struct Peer {
    process: ClientProcess,
    received: Receiver<ReceivedMessage>,
    /// The same instant on both clocks.
    origin: (Instant, i64),
    last: u64,
    /// The replies that have come. A malformed reply has a description of its problem.
    replies: HashMap<u64, (i64, Result<ClientReply, String>)>,
    notices: Vec<(i64, Notice)>,
    /// The problems of the driver's lines: the first of each kind, and how many there were.
    complaints: BTreeMap<&'static str, (String, usize)>,
    unanswered: usize,
    closed: Option<String>,
}

impl Peer {
    pub(super) fn start(command: &str, urls: &[String], options: &Options) -> Result<Self, String> {
        let options = serde_json::to_string(options).map_err(|why| why.to_string())?;
        let env = [(NODES_VARIABLE, urls.join(",")), (OPTIONS_VARIABLE, options)];
        // The command runs as a person would type it. All signals go to the group, so the shell is
        // not in the way.
        let command = ["/bin/sh", "-c", command].map(OsString::from);
        let (out, received) = sync_channel(WAITING);
        let process = ClientProcess::spawn(&command, env, None, move |word| {
            // The check is over: no receiver is left.
            let _ = out.send(word);
        });
        let process = process.map_err(|why| format!("the client cannot be started: {why}"))?;
        Ok(Self {
            process,
            received,
            origin: (Instant::now(), stamp::now()),
            last: 0,
            replies: HashMap::new(),
            notices: Vec::new(),
            complaints: BTreeMap::new(),
            unanswered: 0,
            closed: None,
        })
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, client: &str, op: Op) -> Result<PendingRequest, Fault> {
        let (name, id) = (op.name(), self.last + 1);
        let request = Request { id, client: client.into(), op };
        let line =
            serde_json::to_string(&request).map_err(|why| Fault::Environment(why.to_string()))?;
        self.ask_raw(name, &line)
    }

    /// The number of the next request.
    pub(super) const fn next_id(&self) -> u64 {
        self.last + 1
    }

    /// Sends a request as it is. Its number must be [`next_id`](Self::next_id).
    pub(super) fn ask_raw(
        &mut self,
        op: &'static str,
        line: &str,
    ) -> Result<PendingRequest, Fault> {
        self.last += 1;
        let at = stamp::now();
        if let Err(why) = self.process.send(line) {
            // If the driver has ended, that is the problem to report.
            self.read_until(Duration::from_secs(1), |peer| peer.closed.is_some())?;
            return Err(Fault::Over(format!("it cannot be asked to {op}: {why}")));
        }
        Ok(PendingRequest { id: self.last, at, op })
    }

    /// Waits for a reply. Returns it with the time at which it was read.
    pub(super) fn reply(&mut self, asked: PendingRequest) -> Result<(ClientReply, i64), Fault> {
        self.answer_within(asked, ANSWER)
    }

    pub(super) fn answer_within(
        &mut self,
        asked: PendingRequest,
        within: Duration,
    ) -> Result<(ClientReply, i64), Fault> {
        self.read_until(within, |peer| peer.replies.contains_key(&asked.id))?;
        match self.replies.get(&asked.id) {
            Some((received, Ok(reply))) => Ok((reply.clone(), *received)),
            Some((_, Err(why))) => Err(Fault::Wrong(why.clone())),
            None => {
                self.unanswered += 1;
                let why = format!(
                    "{} (request {}) was not answered within {within:?}; every request must be, \
                     also one that fails: {{\"id\":{},\"ok\":false,\"why\":\"error\"}}",
                    asked.op, asked.id, asked.id
                );
                let go_on = self.unanswered < TIMEOUT;
                Err(if go_on { Fault::Wrong(why) } else { Fault::Over(why) })
            }
        }
    }

    /// Whether a reply has come, or comes within this time.
    pub(super) fn is_answered(
        &mut self,
        asked: PendingRequest,
        within: Duration,
    ) -> Result<bool, Fault> {
        self.read_until(within, |peer| peer.replies.contains_key(&asked.id))
    }

    /// Waits for a notice. Returns it with the time at which it was read.
    pub(super) fn notice(
        &mut self,
        within: Duration,
        which: impl Fn(&Notice) -> bool,
    ) -> Result<Option<(Notice, i64)>, Fault> {
        let find = |peer: &Self| {
            let found = peer.notices.iter().find(|(_, notice)| which(notice));
            found.map(|(received, notice)| (notice.clone(), *received))
        };
        self.read_until(within, |peer| find(peer).is_some())?;
        Ok(find(self))
    }

    /// The driver's first line as it is, for a check that is more lenient than a scenario.
    pub(super) fn first_line(&mut self) -> Result<Option<String>, Fault> {
        let until = Instant::now() + ANSWER;
        while let Some(ReceivedMessage { what, .. }) = self.next(until)? {
            match what {
                OutputEvent::Line(line) if line.contains("\"ready\"") => return Ok(Some(line)),
                OutputEvent::Line(line) => self.complain(
                    "before it was ready",
                    format!(
                        "it printed `{}` before it was ready; standard output is for the protocol \
                         alone: print everything else to standard error",
                        shown(&line)
                    ),
                )?,
                other => self.complain_of(&other)?,
            }
        }
        Ok(None)
    }

    /// Closes the driver's input. Returns how the driver ended; `None` if it does not end in time.
    pub(super) fn hang_up(&mut self, within: Duration) -> Option<String> {
        self.process.hang_up();
        let until = Instant::now() + within;
        // Read on, so that the driver does not block on a write.
        while let Ok(Some(_)) = self.next(until) {}
        self.process.wait(until.saturating_duration_since(Instant::now()))
    }

    /// The problems of the driver's lines.
    pub(super) fn complaints(&self) -> Vec<String> {
        let times =
            |count: usize| if count > 1 { format!(" ({count} times)") } else { String::new() };
        self.complaints.values().map(|(text, count)| format!("{text}{}", times(*count))).collect()
    }

    /// Waits without a request. Lines that come meanwhile are processed.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        self.read_until(time, |_| false).map(drop)
    }

    /// Reads lines until `done` holds or the time is over. Returns whether it holds.
    fn read_until(
        &mut self,
        within: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<bool, Fault> {
        let until = Instant::now() + within;
        while !done(self) {
            let Some(received) = self.next(until)? else { return Ok(done(self)) };
            self.take(received)?;
        }
        Ok(true)
    }

    fn next(&mut self, until: Instant) -> Result<Option<ReceivedMessage>, Fault> {
        if let Some(exit) = &self.closed {
            return Err(self.over(exit));
        }
        match self.received.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(ReceivedMessage { what: OutputEvent::Closed(exit), .. }) => {
                let over = self.over(&exit);
                self.closed = Some(exit);
                Err(over)
            }
            Ok(received) => Ok(Some(received)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.over("nothing is received of it")),
        }
    }

    fn over(&self, exit: &str) -> Fault {
        let complaints = self.process.complaints();
        Fault::Over(if complaints.is_empty() {
            format!(
                "{exit}, and printed nothing on standard error; it must go on until its input ends"
            )
        } else {
            format!("{exit}; its standard error ends with\n{complaints}")
        })
    }

    fn take(&mut self, ReceivedMessage { at, what }: ReceivedMessage) -> Result<(), Fault> {
        let at = stamp::later(self.origin.1, at.saturating_duration_since(self.origin.0));
        let Ok(line) = what.line() else { return self.complain_of(&what) };
        match ClientLine::read(line) {
            Ok(ClientLine::Notice(Notice::Ready { .. })) => {
                self.complain("ready again", "it sent `ready` more than once".to_owned())
            }
            Ok(ClientLine::Notice(notice)) => {
                // More notices than a check examines are not kept.
                if self.notices.len() < 1000 {
                    self.notices.push((at, notice));
                }
                Ok(())
            }
            Ok(ClientLine::Reply(reply)) => self.replied(at, reply.id, Ok(reply), line),
            Err(why) => {
                let text = format!("`{}` is not understood: {why}", shown(line));
                match numbered(line) {
                    Some(id) => self.replied(at, id, Err(text), line),
                    None => self.complain(
                        "no sense",
                        format!("{text}; print what is not of the protocol to standard error"),
                    ),
                }
            }
        }
    }

    fn replied(
        &mut self,
        at: i64,
        id: u64,
        reply: Result<ClientReply, String>,
        line: &str,
    ) -> Result<(), Fault> {
        if id == 0 || id > self.last {
            let text = format!("`{}` answers request {id}, which was never made", shown(line));
            return self.complain("unknown id", text);
        }
        if self.replies.contains_key(&id) {
            let text =
                format!("`{}` answers request {id} once more: answer each once", shown(line));
            return self.complain("twice", text);
        }
        self.replies.insert(id, (at, reply));
        Ok(())
    }

    fn complain_of(&mut self, word: &OutputEvent) -> Result<(), Fault> {
        let kind = if *word == OutputEvent::TooLong { "too long" } else { "no text" };
        let text = word.line().err().unwrap_or_default();
        self.complain(kind, format!("{text}: write one JSON object a line"))
    }

    fn complain(&mut self, kind: &'static str, text: String) -> Result<(), Fault> {
        self.complaints.entry(kind).or_insert((text, 0)).1 += 1;
        let all: usize = self.complaints.values().map(|(_, count)| count).sum();
        if all < ENOUGH {
            Ok(())
        } else {
            Err(Fault::Over(format!("{all} of its lines made no sense; see below")))
        }
    }
}

/// The number of the request that a line seems to answer.
fn numbered(line: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    if value.get("event").is_some() { None } else { value.get("id")?.as_u64() }
}

/// The masters with the keys that a driver has left on them, and the numbers of the dead ones.
pub(super) struct Keys {
    masters: Masters,
    dead: Vec<usize>,
}

impl Keys {
    pub(super) const fn new(masters: Masters) -> Self {
        Self { masters, dead: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.masters.len()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.masters.urls()
    }

    pub(super) fn quorum(&self) -> usize {
        self.len() / 2 + 1
    }

    /// The keys on each living master whose name contains that of the resource.
    pub(super) fn of(&self, resource: &str) -> Result<Vec<Vec<Key>>, Fault> {
        let living = (1..=self.len()).filter(|node| !self.dead.contains(node));
        let on = living.map(|node| {
            let mut keys = keys_of(&self.masters, node).map_err(Fault::Environment)?;
            keys.retain(|key| String::from_utf8_lossy(&key.name).contains(resource));
            Ok(keys)
        });
        on.collect()
    }

    /// Waits up to a second until no master has a key of the resource. Returns how many masters
    /// still have one.
    pub(super) fn gone(&self, resource: &str) -> Result<usize, Fault> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            let left = self.of(resource)?.iter().filter(|keys| !keys.is_empty()).count();
            if left == 0 || Instant::now() >= until {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills so many masters that no quorum is left.
    pub(super) fn kill_a_majority(&mut self) -> Result<usize, Fault> {
        for node in 1..=self.quorum() {
            self.masters.kill(node).map_err(|error| broken(&error))?;
            self.dead.push(node);
        }
        Ok(self.dead.len())
    }

    /// Restarts the dead masters.
    pub(super) fn restart(&mut self) -> Result<(), Fault> {
        for node in std::mem::take(&mut self.dead) {
            self.masters.restart(node).map_err(|error| broken(&error))?;
        }
        Ok(())
    }
}

fn broken(error: &RigError) -> Fault {
    Fault::Environment(error.to_string())
}
