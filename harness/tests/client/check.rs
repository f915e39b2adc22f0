//! `client-check` accepts the built-in client, and reports the mistakes of any other one.
//!
//! Then the behaviour of the built-in client, and of the honest client of the mutants, that
//! scenarios rely on and that `client-check` does not check; and the mutants as processes on real
//! masters: all of them work while nothing fails. `tests/suite` shows that each is caught.

use std::ffi::OsString;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redquorum_harness::client_check::check;
use redquorum_harness::process::{ClientProcess, OutputEvent, ReceivedMessage};
use redquorum_harness::stamp;
use redquorum_rig::trials::{Case, eventually, with_masters};
use redquorum_rig::{Masters, RespValue};
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::{
    ClientLine, ClientReply, FailureReason, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Op, Request,
};

/// A limit that allows for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The options of a client.
const OPTIONS: &str = r#"{"ttl_ms":1000,"node_timeout_ms":100,"drift_ppm":10000,"drift_ms":2,
                          "fencing":false}"#;

const BUILT_IN: &[&str] = &[env!("CARGO_BIN_EXE_redquorum-chaos"), "client"];

/// A mutant, or the honest client.
const fn mutant_command(name: &str) -> [&str; 3] {
    [env!("CARGO_BIN_EXE_redquorum-mutant"), "--mutant", name]
}

pub(crate) struct Client {
    pub(crate) process: ClientProcess,
    received: Receiver<ReceivedMessage>,
    last: u64,
    replies: Vec<ClientReply>,
    notices: Vec<Notice>,
}

impl Client {
    /// Starts a client, and returns when it is ready.
    pub(crate) fn start(command: &[&str], masters: &Masters) -> Self {
        let nodes = masters.urls().join(",");
        let env = [(NODES_VARIABLE, nodes.as_str()), (OPTIONS_VARIABLE, OPTIONS)];
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let (out, received) = channel();
        let process = ClientProcess::spawn(&command, env, None, move |word| {
            let _ = out.send(word);
        });
        let (replies, notices) = (Vec::new(), Vec::new());
        let mut client = Self { process: process.unwrap(), received, last: 0, replies, notices };
        client.listen(SOON, |client| !client.notices.is_empty());
        assert!(matches!(client.notices[..], [Notice::Ready { .. }]), "{:?}", client.notices);
        client
    }

    /// Sends a request, and does not wait.
    fn request(&mut self, client: &str, op: Op) -> u64 {
        self.last += 1;
        let request = Request { id: self.last, client: client.into(), op };
        self.process.send(&serde_json::to_string(&request).unwrap()).unwrap();
        self.last
    }

    fn reply(&mut self, id: u64) -> ClientReply {
        let is = |reply: &&ClientReply| reply.id == id;
        self.listen(SOON, |client| client.replies.iter().any(|reply| reply.id == id));
        let complaints = self.process.complaints();
        let reply = self.replies.iter().find(is);
        reply.unwrap_or_else(|| panic!("no reply to {id}; {complaints}")).clone()
    }

    fn ask(&mut self, client: &str, op: Op) -> ClientReply {
        let id = self.request(client, op);
        self.reply(id)
    }

    fn acquire(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, acquire(resource, 1000, 0))
    }

    fn granted(&mut self, client: &str, resource: &str) -> ClientReply {
        let reply = self.acquire(client, resource);
        assert!(reply.ok, "{reply:?}");
        reply
    }

    fn extend(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, Op::Extend { resource: resource.into(), ttl_ms: 1000 })
    }

    fn release(&mut self, client: &str, resource: &str) -> ClientReply {
        self.ask(client, Op::Release { resource: resource.into() })
    }

    /// Waits for the notice of a loss.
    fn await_lost(&mut self) {
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

fn acquire(resource: &str, ttl_ms: u64, wait_ms: u64) -> Op {
    Op::Acquire { resource: resource.into(), ttl_ms, wait_ms, again: false, shared: false }
}

/// The number of masters with the key.
fn having(masters: &Masters, key: &str) -> usize {
    let has = |node: &usize| {
        masters.ask(*node, &format!("EXISTS {key}")).unwrap() == RespValue::Integer(1)
    };
    (1..=masters.len()).filter(has).count()
}

fn await_having(masters: &Masters, key: &str, count: usize) {
    eventually(&format!("{count} masters have {key}"), || having(masters, key) == count);
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        with_masters: the_built_in_client_is_accepted,
        with_masters: a_lock_on_one_server_is_checked_on_one_master,
        with_masters: the_honest_client_is_accepted,
        with_masters: a_mutant_that_breaks_the_order_is_not_fair,
        with_masters: every_mutant_is_granted_a_free_resource,
        with_masters: a_client_whose_input_ends_cleans_nothing_up,
        with_masters: a_watchdog_reports_each_extension_and_its_end,
        with_masters: masters_that_hang_do_not_keep_a_client_from_being_ready,
    ];
    // READY stands for the first message of a client.
    let table: [(&str, &str, &[&str]); 11] = [
        (
            "a_silent_client_is_given_up",
            "sleep 1000",
            &["wrong    ready: no line was printed", " checks, for that reason"],
        ),
        (
            "the_report_on_a_client_that_ends_at_once_has_its_standard_error",
            "echo 'no module' >&2; exit 3",
            &["exit code 3", "no module"],
        ),
        (
            "a_client_that_floods_before_it_is_ready_is_given_up",
            "yes nonsense",
            &["100 of its lines made no sense", "it printed `nonsense`"],
        ),
        (
            "a_client_that_floods_is_given_up",
            "READY; yes '{}'",
            &["(100 times)", "`{}` is not understood"],
        ),
        (
            "a_client_that_ends_in_the_middle_is_reported",
            "READY; read -r request; echo 'out of luck' >&2; kill -9 $$",
            &["ok       ready", "wrong    acquire: it was ended by signal 9", "out of luck"],
        ),
        (
            "a_client_that_answers_nothing_is_given_up",
            "READY; while read -r request; do :; done",
            &["wrong    acquire: acquire (request 1) was not answered", "the rest"],
        ),
        (
            "answers_without_a_request_and_second_answers_are_reported",
            r#"READY; read -r request; echo '{"id":1,"ok":true}'; echo '{"id":1,"ok":true}';
               echo '{"id":99,"ok":true}'; exit 0"#,
            &[
                "answers request 1 once more",
                "answers request 99, which was never made",
                "no \"at_ns\"",
            ],
        ),
        (
            "an_unknown_capability_is_reported",
            r#"echo '{"event":"ready","protocol":1,"can":["extend","fly"]}'; exit 0"#,
            &["wrong    ready: it can \"fly\", which the protocol does not have"],
        ),
        (
            "another_version_of_the_protocol_is_reported",
            r#"echo '{"event":"ready","protocol":2}'; sleep 1000"#,
            &["wrong    ready", "say \"protocol\":1"],
        ),
        (
            "a_malformed_answer_is_reported_with_its_request",
            r#"READY; read -r request; echo '{"id":1,"ok":"maybe"}'; exit 0"#,
            &["wrong    acquire: `{\"id\":1,\"ok\":\"maybe\"}` is not understood"],
        ),
        // It answers that all is done, by the wrong clock, and does nothing.
        (
            "a_client_that_locks_nothing_is_refused",
            r#"READY; while read -r request; do
                   id=$(printf %s "$request" | sed 's/.*"id":\([0-9]*\).*/\1/')
                   at=$(date +%s%N)
                   echo "{\"id\":$id,\"ok\":true,\"at_ns\":$at,\"valid_ms\":90000}"
               done; sleep 1000"#,
            &[
                "wrong    stamps: \"at_ns\"",
                "(that is the wall clock)",
                "wrong    deadline: \"valid_ms\" is 90000, of a TTL of 10000",
                "wrong    keys: it was granted, and a key whose name has `check` in it is on 0 of 3",
                "wrong    taken: a second client of the process was granted",
                "ok       step",
                "wrong    checked step",
                "wrong    expired lease",
                "wrong    unknown op: an op that does not exist was answered",
                "wrong    no quorum: with 2 of 3 masters dead a lease was granted",
                "wrong    end of input",
            ],
        ),
    ];
    for (name, command, words) in table {
        let command = command.replace("READY", READY);
        cases.push(with_masters(name, move || refused(&command, words)));
    }
    cases
}

const READY: &str = r#"echo '{"event":"ready","protocol":1,"can":[]}'"#;

/// Whether the check accepts a client, and its report.
fn checked(command: &str, quorum: u8) -> (bool, String) {
    let mut page = Vec::new();
    let well = check(command, quorum, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(well, !page.contains("\nwrong") && !page.starts_with("wrong"), "{page}");
    (well, page)
}

/// Checks that a client is refused, and that the report has these words.
fn refused(command: &str, words: &[&str]) {
    let (well, page) = checked(command, 2);
    assert!(!well, "{page}");
    for word in words {
        assert!(page.contains(word), "no {word:?} in\n{page}");
    }
}

fn the_built_in_client_is_accepted() {
    let (well, page) = checked(&BUILT_IN.join(" "), 2);
    // Of its token the library shows the start.
    assert!(well && page.contains("token: it is the start of the value"), "{page}");
    // It renews no lease unasked.
    let skipped = page.lines().filter(|line| line.starts_with("skipped"));
    let skipped: Vec<&str> = skipped.filter_map(|line| line.split([' ', ':']).nth(2)).collect();
    assert_eq!(skipped, ["renews"], "{page}");
}

fn a_lock_on_one_server_is_checked_on_one_master() {
    let (well, page) = checked(&BUILT_IN.join(" "), 1);
    assert!(well && page.contains("on 1 of 1 masters"), "{page}");
}

/// Runs a test with both clients, each on three masters.
fn each(test: impl Fn(Client, &Masters)) {
    for command in [BUILT_IN, &mutant_command("none")] {
        let masters = Masters::start(3).unwrap();
        test(Client::start(command, &masters), &masters);
    }
}

fn a_client_whose_input_ends_cleans_nothing_up() {
    each(|mut client, masters| {
        // The keys do not expire before the test ends.
        assert!(client.ask("c1", acquire("r", 600_000, 0)).ok);
        await_having(masters, "r", 3);
        client.process.hang_up();
        let exit = client.process.wait(SOON);
        assert_eq!(exit.as_deref(), Some("it ended with exit code 0"));
        assert_eq!(having(masters, "r"), 3);
    });
}

fn a_watchdog_reports_each_extension_and_its_end() {
    each(|mut client, _| {
        let mut deadline = client.granted("c1", "r").deadline_ns.unwrap();
        let op = Op::KeepAlive { resource: "r".into(), max_ms: 2000 };
        assert!(client.ask("c1", op).ok);
        let end = stamp::later(stamp::now(), Duration::from_millis(2000));
        client.await_lost();
        let mut extensions = 0;
        for notice in &client.notices {
            match notice {
                Notice::Extended { deadline_ns, .. } => {
                    assert!(*deadline_ns > deadline && *deadline_ns <= end, "{notice:?}");
                    deadline = *deadline_ns;
                    extensions += 1;
                }
                Notice::Lost { at_ns, .. } => {
                    assert!(*at_ns >= deadline, "{notice:?}");
                }
                _ => {}
            }
        }
        assert!(extensions > 0, "{:?}", client.notices);
    });
}

fn masters_that_hang_do_not_keep_a_client_from_being_ready() {
    for command in [BUILT_IN, &mutant_command("none")] {
        let masters = Masters::start(3).unwrap();
        masters.kill(1).unwrap();
        masters.pause(2).unwrap();
        let mut client = Client::start(command, &masters);
        assert_eq!(client.acquire("c1", "r").why, Some(FailureReason::NoQuorum));
        masters.resume(2).unwrap();
        eventually("a majority replies again", || client.acquire("c1", "r").ok);
    }
}

/// Whether the conformance check accepts a mutant, and its report.
fn checked_mutant(mutant: Mutant) -> (bool, String) {
    checked(&mutant_command(mutant.name()).join(" "), 2)
}

fn the_honest_client_is_accepted() {
    let (well, page) = checked_mutant(Mutant::None);
    assert!(well && page.matches("skipped").count() == 1, "{page}");
    assert!(page.contains("skipped  renews"), "{page}");
}

fn a_mutant_that_breaks_the_order_is_not_fair() {
    for mutant in [Mutant::JumpsQueue, Mutant::KeepsPlace] {
        let (well, page) = checked_mutant(mutant);
        let wrong = page.contains("wrong    fair: 3 processes with the option");
        assert!(!well && wrong, "{mutant}: {page}");
    }
}

fn every_mutant_is_granted_a_free_resource() {
    let masters = Masters::start(3).unwrap();
    for mutant in Mutant::clients() {
        let mut client = Client::start(&mutant_command(mutant.name()), &masters);
        let deadline = client.granted("c1", mutant.name()).deadline_ns.unwrap();
        assert!(client.extend("c1", mutant.name()).deadline_ns.unwrap() > deadline, "{mutant}");
        assert!(client.release("c1", mutant.name()).ok, "{mutant}");
        await_having(&masters, mutant.name(), 0);
    }
}
