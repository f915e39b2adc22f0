//! Programs in other languages, by the agent: its requests, its socket, and what becomes of the
//! leases of a program that dies.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use redquorum_rig::Masters;
use redquorum_rig::trials::{Case, eventually};
use serde_json::{Value, json};

use crate::support::{Folder, Process, holder, redquorum};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: requests_say_only_what_they_need_and_the_end_of_input_gives_all_back,
        with_masters: a_line_that_is_no_request_ends_the_agent_and_says_so,
        with_masters: each_connection_has_leases_of_its_own_and_its_end_gives_them_back,
        with_masters: a_socket_is_private_and_one_of_a_dead_agent_is_replaced,
        with_masters: python_has_a_lock,
        with_masters: a_harness_gets_its_client,
    ]
}

/// Writes requests, and reads what comes back.
struct Wire<W> {
    to: W,
    from: Lines<BufReader<Box<dyn std::io::Read>>>,
}

impl<W: Write> Wire<W> {
    fn new(to: W, from: impl std::io::Read + 'static) -> Self {
        let from: Box<dyn std::io::Read> = Box::new(from);
        let mut wire = Self { to, from: BufReader::new(from).lines() };
        assert_eq!(wire.next("event", &json!("ready"))["name"], "redquorum");
        wire
    }

    fn next(&mut self, field: &str, value: &Value) -> Value {
        loop {
            let line = self.from.next().expect("the agent goes on").unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message[field] == *value {
                return message;
            }
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.to, "{request}").unwrap();
        self.next("id", &request["id"])
    }
}

fn requests_say_only_what_they_need_and_the_end_of_input_gives_all_back() {
    let masters = Masters::start(3).unwrap();
    let mut agent = redquorum(&masters);
    agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = Process::start(&mut agent);
    let mut wire = Wire::new(agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    let granted = wire.ask(&json!({"id": 1, "op": "acquire", "resource": "r"}));
    assert!(granted["ok"] == true && granted["fence"].is_u64(), "{granted}");
    let shared = wire.ask(&json!({"id": 2, "op": "acquire", "resource": "s", "shared": true}));
    assert!(shared["ok"] == true && shared["fence"].is_null(), "{shared}");
    let again = wire.ask(&json!({"id": 7, "op": "acquire", "resource": "s", "shared": true}));
    assert!(
        again["why"] == "error" && again["text"].as_str().unwrap().contains("again"),
        "{again}"
    );
    assert!(holder(&masters, "s").starts_with("s: shared"), "the first one is kept");
    let extended = wire.ask(&json!({"id": 3, "op": "extend", "resource": "r"}));
    assert!(extended["deadline_ns"].as_i64() > granted["deadline_ns"].as_i64(), "{extended}");
    let taken = json!({"id": 4, "client": "b", "op": "acquire", "resource": "r", "wait_ms": 0});
    assert_eq!(wire.ask(&taken)["why"], "taken");
    assert_eq!(wire.ask(&json!({"id": 5, "op": "dance"}))["why"], "unsupported");
    // One that waits is given up with the rest.
    writeln!(wire.to, "{}", json!({"id": 6, "client": "b", "op": "acquire", "resource": "r"}))
        .unwrap();
    assert!(holder(&masters, "r").starts_with("r: held"));
    drop(wire);
    assert_eq!(agent.code(), 0);
    for resource in ["r", "s"] {
        assert_eq!(holder(&masters, resource), format!("{resource}: free"));
    }
}

fn a_line_that_is_no_request_ends_the_agent_and_says_so() {
    let masters = Masters::start(3).unwrap();
    for line in ["no request", "[]", r#"{"op": "acquire", "resource": "s"}"#] {
        let mut agent = redquorum(&masters);
        agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = Process::start(&mut agent);
        let mut wire = Wire::new(agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
        assert_eq!(wire.ask(&json!({"id": 1, "op": "acquire", "resource": "r"}))["ok"], true);
        writeln!(wire.to, "{line}").unwrap();
        assert_eq!(agent.code(), 65, "{line}");
        let mut errors = String::new();
        agent.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(errors.contains("without a number"), "{errors}");
        assert_eq!(holder(&masters, "r"), "r: free");
    }
}

fn listening(masters: &Masters, socket: &Path, words: &[&str]) -> Process {
    let mut agent = redquorum(masters);
    agent.args(["agent", "--socket"]).arg(socket).args(words);
    let agent = Process::start(&mut agent);
    eventually("it listens", || UnixStream::connect(socket).is_ok());
    agent
}

fn connect(socket: &Path) -> Wire<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    Wire::new(stream.try_clone().unwrap(), stream)
}

fn each_connection_has_leases_of_its_own_and_its_end_gives_them_back() {
    let (masters, folder) = (Masters::start(3).unwrap(), Folder::new());
    let socket = folder.file("agent.sock");
    let mut agent = listening(&masters, &socket, &[]);
    let (mut one, mut other) = (connect(&socket), connect(&socket));
    let acquire = |wait: u32| json!({"id": 1, "op": "acquire", "resource": "r", "wait_ms": wait});
    assert_eq!(one.ask(&acquire(0))["ok"], true);
    assert_eq!(other.ask(&acquire(0))["why"], "taken");
    assert_eq!(other.ask(&json!({"id": 2, "op": "release", "resource": "r"}))["why"], "lost");
    // The program dies.
    drop(one);
    let waits = json!({"id": 3, "op": "acquire", "resource": "r", "wait_ms": 60_000});
    assert_eq!(other.ask(&waits)["ok"], true);
    // A line that never ends, and one that does not read, harm nobody else.
    let mut endless = connect(&socket);
    while endless.to.write_all(&[b'x'; 1 << 16]).is_ok() {}
    assert_eq!(other.ask(&json!({"id": 4, "op": "extend", "resource": "r"}))["ok"], true);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.code(), 0);
    assert!(!socket.exists());
    assert_eq!(holder(&masters, "r"), "r: free");
}

fn a_socket_is_private_and_one_of_a_dead_agent_is_replaced() {
    let (masters, folder) = (Masters::start(3).unwrap(), Folder::new());
    let socket = folder.file("agent.sock");
    let mode = || std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    let agent = listening(&masters, &socket, &[]);
    assert_eq!(mode(), 0o600);
    let second = redquorum(&masters).args(["agent", "--socket"]).arg(&socket).output().unwrap();
    assert_eq!(second.status.code(), Some(71));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another program listens"));
    drop(agent);
    let agent = listening(&masters, &socket, &["--mode", "660"]);
    assert_eq!(mode(), 0o660);
    drop(agent);
    let nowhere =
        redquorum(&masters).args(["agent", "--socket", "/no/such/a.sock"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(71));
}

fn python_has_a_lock() {
    let (masters, folder) = (Masters::start(3).unwrap(), Folder::new());
    let socket = folder.file("agent.sock");
    let agent = listening(&masters, &socket, &[]);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/lock.py");
    let lines = std::fs::read_to_string(example).unwrap().lines().count();
    assert!(lines <= 85, "an example is short: {lines}");
    let mut python = Command::new("python3");
    python.args([example, "r", "0.2"]).env("REDQUORUM_SOCKET", &socket);
    match python.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.starts_with("held with fencing token 1"), "{text} {output:?}");
            assert_eq!(holder(&masters, "r"), "r: free");
        }
        Err(why) if redquorum_rig::required() => panic!("python3: {why}"),
        Err(why) => eprintln!("NOT TESTED: the example: python3: {why}"),
    }
    drop(agent);
}

fn a_harness_gets_its_client() {
    let masters = Masters::start(3).unwrap();
    let options = json!({"ttl_ms": 10_000, "node_timeout_ms": 100, "drift_ppm": 10_000,
        "drift_ms": 2, "fencing": true});
    let mut agent = redquorum(&masters);
    agent
        .env("REDQUORUM_NODES", masters.urls().join(","))
        .env("REDQUORUM_OPTIONS", options.to_string());
    agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = Process::start(&mut agent);
    let mut wire = Wire::new(agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    let acquire = json!({"id": 1, "client": "a", "op": "acquire", "resource": "r", "ttl_ms": 10_000, "wait_ms": 0});
    assert_eq!(wire.ask(&acquire)["ok"], true);
    drop(wire);
    agent.wait().unwrap();
    // As a client that dies: a scenario looks at what it leaves behind.
    assert!(holder(&masters, "r").starts_with("r: held"));
}
