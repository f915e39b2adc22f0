//! The handle of a client process: it reads its output, pauses it, kills it, and leaves nothing
//! behind.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{park, sleep};
use std::time::Duration;

use redquorum_harness::process::{ClientProcess, OutputEvent, ReceivedMessage};
use redquorum_rig::trials::{Case, eventually, processes_with};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::check::SOON;
use crate::folder::folder;

/// Set for a process that starts clients and is then killed.
pub(crate) const PARENT: &str = "HARNESS_TEST_PARENT";

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: lines_arrive_in_order_and_the_end_arrives_last,
        plain: standard_error_goes_to_a_file_up_to_a_size_and_the_end_is_always_there,
        plain: a_paused_client_is_silent_until_it_is_resumed,
        plain: a_client_that_is_starting_a_child_can_be_paused,
        plain: a_client_that_does_not_read_does_not_block_the_harness,
        plain: a_client_that_leaves_children_with_its_pipes_has_ended,
        plain: dropping_a_client_kills_its_children,
        plain: nothing_outlives_a_parent_that_is_killed,
        plain: nothing_outlives_a_parent_that_is_killed_while_it_starts_clients,
    ]
}

fn start(script: &str) -> (ClientProcess, Receiver<ReceivedMessage>) {
    start_with(script, None)
}

fn start_with(script: &str, errors: Option<&Path>) -> (ClientProcess, Receiver<ReceivedMessage>) {
    let command = ["sh", "-c", script].map(OsString::from);
    let (out, received) = channel();
    let errors = errors.map(Path::to_owned);
    let client = ClientProcess::spawn(&command, [("MOOD", "good")], errors, move |word| {
        let _ = out.send(word);
    });
    (client.unwrap(), received)
}

fn next(received: &Receiver<ReceivedMessage>) -> OutputEvent {
    received.recv_timeout(SOON).expect("an event in time").what
}

fn line(text: &str) -> OutputEvent {
    OutputEvent::Line(text.to_owned())
}

fn is_gone(pid: u32) -> bool {
    // A zombie is gone, too: it only waits for its parent, which may be any process.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().to_owned();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    test_kill_process(pid).is_err() || state.starts_with('Z')
}

fn await_gone(pid: u32) {
    eventually(&format!("process {pid} is gone"), || is_gone(pid));
}

fn lines_arrive_in_order_and_the_end_arrives_last() {
    let (mut client, received) =
        start(r#"echo "$MOOD"; read a; echo "got $a"; printf '\377\n'; echo oops >&2; exit 7"#);
    assert_eq!(next(&received), line("good"));
    client.send("this").unwrap();
    assert_eq!(next(&received), line("got this"));
    assert_eq!(next(&received), OutputEvent::NotUtf8);
    assert_eq!(next(&received), OutputEvent::Closed("it ended with exit code 7".to_owned()));
    assert_eq!(client.complaints(), "oops");
    assert!(received.recv_timeout(SOON).is_err(), "nothing comes after the end");
    assert!(client.send("more").is_err());
}

fn standard_error_goes_to_a_file_up_to_a_size_and_the_end_is_always_there() {
    let folder = folder("errors");
    for (script, least, most) in [
        ("echo begin >&2; echo end >&2", 10, 10),
        ("echo begin >&2; yes | head -c 5000000 >&2; echo end >&2", 4_000_000, 4_300_000),
    ] {
        let file = folder.join("c1.stderr.txt");
        let (client, received) = start_with(script, Some(&file));
        assert!(matches!(next(&received), OutputEvent::Closed(_)));
        drop(client);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("begin\n") && text.ends_with("end\n"), "{script}");
        assert!((least..=most).contains(&text.len()), "{script}: {}", text.len());
    }
    let (client, received) = start_with("echo out", Some(&folder.join("c2.stderr.txt")));
    assert_eq!(next(&received), line("out"));
    drop(client);
    assert!(!folder.join("c2.stderr.txt").exists(), "nothing was written");
}

fn a_paused_client_is_silent_until_it_is_resumed() {
    let (mut client, received) = start("while read -r a; do echo $a; done");
    client.send("one").unwrap();
    assert_eq!(next(&received), line("one"));
    client.pause().unwrap();
    client.send("two").unwrap();
    assert!(received.recv_timeout(Duration::from_millis(200)).is_err());
    client.resume().unwrap();
    assert_eq!(next(&received), line("two"));
    client.hang_up();
    assert_eq!(next(&received), OutputEvent::Closed("it ended with exit code 0".to_owned()));
}

/// A shell waits in `vfork` until its child is another program. If a signal stopped both there,
/// neither would ever stop completely.
fn a_client_that_is_starting_a_child_can_be_paused() {
    let (client, _received) = start("while :; do /bin/true; done");
    for _ in 0..50 {
        client.pause().unwrap();
        client.resume().unwrap();
        sleep(Duration::from_millis(1));
    }
}

fn a_client_that_does_not_read_does_not_block_the_harness() {
    let (mut client, received) = start("sleep 1000");
    client.pause().unwrap();
    let long = "x".repeat(1000);
    let error = (0..10_000).find_map(|_| client.send(&long).err()).expect("the pipe is full");
    assert!(error.to_string().contains("does not read"), "{error}");
    client.kill().unwrap();
    assert_eq!(next(&received), OutputEvent::Closed("it was ended by signal 9".to_owned()));
}

fn a_client_that_leaves_children_with_its_pipes_has_ended() {
    let (_client, received) = start("sleep 1000 & echo $!");
    let OutputEvent::Line(pid) = next(&received) else { panic!("no process id") };
    assert_eq!(next(&received), OutputEvent::Closed("it ended with exit code 0".to_owned()));
    await_gone(pid.parse().unwrap());
}

fn dropping_a_client_kills_its_children() {
    let (client, received) = start("trap '' TERM HUP INT; sleep 1000 & echo $!; wait");
    let OutputEvent::Line(pid) = next(&received) else { panic!("no process id") };
    let (child, client_pid) = (pid.parse().unwrap(), client.pid());
    client.pause().unwrap();
    assert!(!is_gone(child) && !is_gone(client_pid));
    drop(client);
    await_gone(child);
    await_gone(client_pid);
}

/// The parent that the test kills. It has clients that ignore all signals, two of them paused. Or
/// it starts such clients until it is killed.
pub(crate) fn parent() -> ExitCode {
    if let Some(mark) = env::var_os(PARENT).filter(|mark| mark != "paused") {
        let mark = mark.into_string().unwrap();
        println!("ready");
        let script = format!("trap '' TERM HUP INT; while :; do sleep 1000; done; : {mark}");
        let mut clients = Vec::new();
        loop {
            clients.push(start(&script));
            clients.truncate(5);
        }
    }
    let stubborn = "trap '' TERM HUP INT; sleep 1000 & echo $!; while :; do sleep 1000; done";
    let clients: Vec<_> = (0..3).map(|_| start(stubborn)).collect();
    for (client, received) in &clients {
        let OutputEvent::Line(child) = next(received) else { panic!("no process id") };
        println!("{child}\n{}", client.pid());
    }
    clients[0].0.pause().unwrap();
    clients[1].0.pause().unwrap();
    println!("ready");
    loop {
        park();
    }
}

fn nothing_outlives_a_parent_that_is_killed() {
    let mut parent = Command::new(env::current_exe().unwrap());
    parent.env(PARENT, "paused").stdout(Stdio::piped());
    let mut parent = parent.spawn().unwrap();
    let pids: Vec<u32> = until_ready(&mut parent).map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 6);
    assert!(pids.iter().all(|pid| !is_gone(*pid)), "they run, or the test sees nothing");
    kill_process(Pid::from_child(&parent), Signal::KILL).unwrap();
    parent.wait().unwrap();
    pids.into_iter().for_each(await_gone);
}

fn until_ready(parent: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.take_while(|line| line != "ready")
}

fn nothing_outlives_a_parent_that_is_killed_while_it_starts_clients() {
    let mut any = false;
    for delay in (0..30).map(|times| Duration::from_millis(times % 10)) {
        // The parent, the reaper and the clients have the mark in their environment, and clients
        // also in their arguments, which are visible without `/proc`.
        let mark = format!("mark-{}-{}", std::process::id(), delay.as_millis());
        let mut parent = Command::new(env::current_exe().unwrap());
        parent.env(PARENT, &mark).stdout(Stdio::piped());
        let mut parent = parent.spawn().unwrap();
        until_ready(&mut parent).for_each(drop);
        sleep(delay);
        any |= processes_with(&mark).len() > 2;
        kill_process(Pid::from_child(&parent), Signal::KILL).unwrap();
        parent.wait().unwrap();
        // A client whose start was in progress appears only now, and finds its input closed.
        eventually("all clients are gone", || processes_with(&mark).is_empty());
    }
    assert!(any, "there were clients, or the test sees nothing");
}
