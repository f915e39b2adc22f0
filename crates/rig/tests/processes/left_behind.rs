//! Nothing is left behind, however the process that owns the masters ends.

use std::{
    env,
    ffi::OsStr,
    panic::{catch_unwind, resume_unwind},
    process::{self, Command, ExitCode},
    thread,
    time::Duration,
};

use redquorum_rig::{
    Builder, Masters, Persistence, clocks_supported,
    trials::{Case, with_masters},
};

use crate::support::{Owner, exists};

/// Set for a child of the tests, which then starts masters. The value is the way in which it ends.
pub(crate) const CHILD: &str = "RIG_TEST_CHILD_ENDS_BY";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        with_masters: nothing_is_left_after_a_drop,
        with_masters: nothing_is_left_after_a_panic,
        with_masters: nothing_is_left_after_a_failed_start,
        with_masters: nothing_is_left_after_kill_9_at_any_moment_of_the_start,
        with_masters: the_search_for_leftovers_finds_what_is_there,
    ];
    // The way in which a process ends, the signal to its group, and its exit code.
    for (name, end, signal, code) in [
        ("nothing_is_left_after_exit", "exit", "0", Some(7)),
        ("nothing_is_left_after_abort", "abort", "0", None),
        ("nothing_is_left_after_a_signal_that_is_not_caught", "signal", "TERM", None),
        ("nothing_is_left_after_kill_9", "signal", "KILL", None),
    ] {
        cases.push(with_masters(name, move || {
            let mut owner = owner(end, &format!("{end}_{signal}"));
            owner.signal_group(signal);
            assert_eq!(owner.child.wait().unwrap().code(), code);
            owner.nothing_is_left();
        }));
    }
    cases
}

/// The child's side of [`owner`].
pub(crate) fn child(end: &OsStr) -> ExitCode {
    if end == "failed start" {
        let builder = Masters::builder().count(3).args(["--rename-command", "PING", ""]);
        builder.within(Duration::from_millis(100)).start().unwrap_err();
        println!("ready");
        return ExitCode::SUCCESS;
    }
    let masters = with_files().count(2).start().unwrap();
    masters.pause(2).unwrap();
    println!("ready");
    match end.to_str() {
        Some("exit") => process::exit(7),
        Some("abort") => process::abort(),
        _ => loop {
            thread::park();
        },
    }
}

/// Masters with all kinds of files in their directories.
fn with_files() -> Builder {
    let builder = Masters::builder().unix_socket().persistence(Persistence::AofEverysec);
    if clocks_supported().is_ok() { builder.clocks() } else { builder }
}

/// A process that owns two masters, the second of which is paused.
fn owner(end: &str, name: &str) -> Owner {
    let mut owner = Owner::spawn(child_that_ends(end), name);
    owner.read_until("ready");
    owner
}

fn child_that_ends(end: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(CHILD, end);
    command
}

fn nothing_is_left_after_a_drop() {
    let masters = with_files().count(3).start().unwrap();
    let all: Vec<_> =
        (1..=3).map(|node| (masters.pid(node).unwrap(), masters.dir(node).to_owned())).collect();
    assert!(all.iter().all(|(pid, dir)| exists(*pid) && dir.join("log").exists()));
    masters.pause(2).unwrap();
    masters.kill(3).unwrap();
    drop(masters);
    // At once, without waiting.
    assert!(!all.iter().any(|(pid, dir)| exists(*pid) || dir.exists()));
}

fn nothing_is_left_after_a_panic() {
    let panic = catch_unwind(|| {
        let masters = Masters::start(2).unwrap();
        // A panic without the message, which would disturb the output of the tests.
        resume_unwind(Box::new((masters.pid(1).unwrap(), masters.dir(2).to_owned())));
    })
    .unwrap_err();
    let (pid, dir) = *panic.downcast::<(u32, std::path::PathBuf)>().unwrap();
    assert!(!exists(pid) && !dir.exists());
}

fn nothing_is_left_after_a_failed_start() {
    let mut owner = owner("failed start", "failed_start");
    assert_eq!(owner.files(), 0, "all was gone when the error was returned");
    assert!(owner.child.wait().unwrap().success());
    owner.nothing_is_left();
}

fn nothing_is_left_after_kill_9_at_any_moment_of_the_start() {
    // The moments cover a start: before, between and after the five spawns.
    for moment in 0..16 {
        let mut binary = Command::new(env!("CARGO_BIN_EXE_masters"));
        binary.arg("5");
        // With clocks, more files are written between the directory and the server.
        let with_clocks = child_that_ends("signal");
        for (command, name, micros) in [(binary, "plain", 2500), (with_clocks, "clocks", 1500)] {
            let mut owner = Owner::spawn(command, &format!("kill_9_in_start_{name}"));
            thread::sleep(Duration::from_micros(moment * micros));
            owner.child.kill().unwrap();
            owner.child.wait().unwrap();
            owner.nothing_is_left();
        }
    }
}

fn the_search_for_leftovers_finds_what_is_there() {
    let owner = owner("signal", "look");
    let all = owner.processes();
    assert!(all >= 2, "found {all} of itself, two keepers and two servers");
    assert_eq!(owner.files(), 2);
}
