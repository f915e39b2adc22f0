//! What the rig promises of masters, whatever they run in: the tests of processes and of containers
//! both run these cases. Each file tests one promise.

use std::{env, process::Command};

pub(crate) use redquorum_rig::trials::eventually;
use redquorum_rig::{Builder, Masters, RespValue};

/// A test with a builder of processes, or of containers.
pub(crate) type Test = fn(Builder);

/// Tests by the names of their functions.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, super::Test)] = &[$((stringify!($test), $test)),*];
    };
}

mod clocks;
mod persistence;
mod replicas;
mod start;
mod verbs;

pub(crate) fn tests() -> impl Iterator<Item = (&'static str, Test)> {
    let all = [start::TESTS, verbs::TESTS, persistence::TESTS, replicas::TESTS, clocks::tests()];
    all.into_iter().flatten().copied()
}

/// Sets a key of a master.
#[track_caller]
fn set(masters: &Masters, node: usize, key: &str) {
    let reply = masters.ask(node, &format!("SET {key} value")).unwrap();
    assert_eq!(reply.text().unwrap(), "OK");
}

/// Whether a master has a key.
fn has(masters: &Masters, node: usize, key: &str) -> bool {
    masters.ask(node, &format!("GET {key}")).unwrap() != RespValue::Nil
}

/// Whether a master answers.
fn is_up(masters: &Masters, node: usize) -> bool {
    masters.ask(node, "PING").is_ok()
}

/// Runs this program once more, as a harness of one test without its requirements. The variable
/// `require` decides whether the test is ignored or fails, each for its reason.
pub(crate) fn tests_without(missing: (&str, &str), require: &str, reasons: [&str; 2]) {
    const TEST: &str = "a_dead_master_can_neither_be_paused_nor_stopped";
    for (required, code, outcome) in [("0", 0, "ignored"), ("1", 101, "FAILED")] {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(TEST).env(missing.0, missing.1).env(require, required);
        let output = command.output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        assert_eq!(output.status.code(), Some(code), "{out}");
        assert!(out.contains(&format!("{TEST} ... {outcome}")), "{out}");
        assert!(err.contains(reasons[usize::from(required == "1")]), "{err}");
    }
}
