//! Leases that are broken: exactly the one that was named.

use std::io::Write;
use std::process::Stdio;

use redquorum_rig::Masters;
use redquorum_rig::trials::{Case, eventually};

use crate::support::{Process, bare, ended, exec, holder, redquorum};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: the_holder_that_is_named_loses_its_lease_and_learns_of_it,
        with_masters: no_other_holder_is_harmed_and_readers_are_broken_one_by_one,
        with_masters: a_lease_may_go_on_where_too_few_masters_answer,
        plain: what_cannot_be_broken_is_said,
    ]
}

/// Holds `r`.
fn hold(masters: &Masters, ttl: &str, words: &[&str]) -> Process {
    let mut command = redquorum(masters);
    command.args(["exec", "-q", "--ttl", ttl]).args(words).args(["r", "--", "sleep", "600"]);
    Process::start(&mut command)
}

/// The token of the one who holds `r`, as `holder` shows it.
fn token(masters: &Masters) -> String {
    eventually("it is held", || holder(masters, "r").contains("token "));
    let line = holder(masters, "r");
    line.split("token ").nth(1).unwrap().split([',', ' ']).next().unwrap().to_owned()
}

fn breaks(masters: &Masters, words: &[&str]) -> (i32, String, String) {
    ended(redquorum(masters).args(["break", "r", "--token"]).args(words).output().unwrap())
}

fn the_holder_that_is_named_loses_its_lease_and_learns_of_it() {
    let masters = Masters::start(3).unwrap();
    let mut held = hold(&masters, "3s", &["--name", "billing-7"]);
    let token = token(&masters);
    let (code, _, text) = breaks(&masters, &[&token]);
    assert_eq!(code, 64, "without a terminal");
    assert!(text.contains("add --yes"), "{text}");
    let (code, text, _) = breaks(&masters, &[&token, "--yes"]);
    assert_eq!(code, 0);
    let words = format!("broken: the lease of r, token {token}, held by \"billing-7\", on 3 of 3");
    assert!(text.starts_with(&words) && text.contains("3 keys are deleted"), "{text}");
    assert_eq!(held.code(), 74, "the command was stopped");
    assert_eq!(exec(&masters, &["-n", "r", "--", "true"]).0, 0);
    // One that keeps others out for an hour learns of it as soon.
    let mut held = hold(&masters, "3s", &["--at-least", "1h"]);
    let (code, _, _) = breaks(&masters, &[&self::token(&masters), "--yes"]);
    assert_eq!((code, held.code()), (0, 74));
}

fn no_other_holder_is_harmed_and_readers_are_broken_one_by_one() {
    let masters = Masters::start(3).unwrap();
    let mut first = hold(&masters, "3s", &["--shared"]);
    let one = token(&masters);
    let _second = hold(&masters, "60s", &["--shared"]);
    eventually("there are two", || token(&masters) != one);
    let other = token(&masters);
    let (code, text, _) = breaks(&masters, &[&one, "--yes"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("broken: the shared lease of r"), "{text}");
    assert_eq!(first.code(), 74);
    assert_eq!(token(&masters), other);
    // Once more, and for a token that nobody has.
    for id in [&*one, "00000000"] {
        let (code, _, text) = breaks(&masters, &[id, "--yes"]);
        assert_eq!(code, 1);
        assert!(text.contains("no master has a key of r with this token"), "{text}");
    }
    assert_eq!(token(&masters), other);
    // A key of another program is nobody's lease.
    for (set, master) in [("SET s 1234", 1), ("RPUSH s a", 2)] {
        masters.ask(master, set).unwrap();
    }
    let words = ["break", "s", "--token", "31323334", "--yes"];
    assert_eq!(redquorum(&masters).args(words).output().unwrap().status.code(), Some(1));
    assert_ne!(holder(&masters, "s"), "s: free");
}

fn a_lease_may_go_on_where_too_few_masters_answer() {
    let masters = Masters::start(3).unwrap();
    let _held = hold(&masters, "60s", &[]);
    let token = token(&masters);
    masters.kill(1).unwrap();
    let (code, text, error) = breaks(&masters, &[&token, "--yes"]);
    assert_eq!(code, 0, "a quorum has lost the key: {error}");
    assert!(
        text.contains("on 2 of 3 masters; 2 keys") && error.contains("redquorum: "),
        "{text} {error}"
    );
    masters.kill(2).unwrap();
    assert_eq!(breaks(&masters, &[&token, "--yes"]).0, 69);
}

fn what_cannot_be_broken_is_said() {
    let masters = "--masters=redis://127.0.0.1:1";
    for (words, part) in [
        (&["break", "r", masters][..], "--token"),
        (&["break", "r", "--token", "abc", masters], "8 hexadecimal digits"),
        (&["break", "r", "--token", "abcdefgh", masters], "8 hexadecimal digits"),
        (&["break", "r", "--token", "12345678"], "no masters are named"),
    ] {
        let (code, _, text) = ended(bare().args(words).output().unwrap());
        assert!(code == 64 && text.contains(part), "{words:?}: {code} {text}");
    }
    let mut command = bare();
    command.args(["break", "r", "--token", "12345678", masters]).stdin(Stdio::piped());
    let mut asked = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(asked.stdin.take().unwrap().write_all(b"y\n"));
    assert_eq!(asked.wait().unwrap().code(), Some(69));
}
