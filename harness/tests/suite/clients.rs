//! Clients that break the client protocol get a clear verdict, soon, and nothing hangs.

use std::fs;
use std::time::{Duration, Instant};

use redquorum_rig::trials::Case;

use crate::support::{Ended, ask, folder};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: one_that_says_nothing_is_told_of,
        with_masters: one_that_dies_at_once_is_told_of_with_its_complaints,
        with_masters: one_that_is_not_there_is_told_of,
        with_masters: one_that_says_garbage_first_is_told_of,
        with_masters: one_of_another_protocol_is_told_of,
        with_masters: one_that_says_garbage_later_differs,
        with_masters: one_that_floods_differs,
        with_masters: one_that_dies_later_differs,
        with_masters: one_that_answers_twice_differs,
        with_masters: one_that_answers_what_was_not_asked_differs,
        with_masters: one_that_never_answers_differs,
        with_masters: one_that_cannot_extend_is_spared_what_it_cannot,
    ]
}

const READY: &str = r#"echo '{"event":"ready","protocol":1,"can":["wait"]}'"#;

/// Runs a scenario with a shell script as the client. The run must end in good time.
fn with(case: &str, scenario: &str, script: &str) -> Ended {
    let folder = folder(case);
    fs::write(folder.join("client.sh"), script).unwrap();
    let client = format!("sh {}", folder.join("client.sh").display());
    let start = Instant::now();
    let ended = ask(&folder, &[scenario, "--client", &client]);
    assert!(start.elapsed() < Duration::from_secs(40), "{}", ended.said);
    ended
}

fn not_ready(case: &str, script: &str, why: &str) {
    let ended = with(case, "calm", script);
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert!(ended.said.contains("does not get ready"), "{}", ended.said);
    assert!(ended.said.contains(why), "{}", ended.said);
    assert!(ended.said.contains("client-check"), "{}", ended.said);
}

fn differs(case: &str, script: &str, why: &str) {
    let ended = with(case, "calm", &format!("{READY}\n{script}"));
    assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.said);
    assert!(ended.said.contains(why), "{}", ended.said);
}

fn one_that_says_nothing_is_told_of() {
    not_ready("silent", "sleep 1000", "it says nothing for 10 s");
}

fn one_that_dies_at_once_is_told_of_with_its_complaints() {
    not_ready("dies", "echo no module named lock >&2; exit 7", "no module named lock");
}

fn one_that_is_not_there_is_told_of() {
    let ended = ask(&folder("absent-client"), &["calm", "--client", "./no-such-driver"]);
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert!(ended.said.contains("no-such-driver"), "{}", ended.said);
}

fn one_that_says_garbage_first_is_told_of() {
    not_ready("garbage", "echo hello; sleep 1000", "its first line is `hello`: it is not JSON");
}

fn one_of_another_protocol_is_told_of() {
    let script = r#"echo '{"event":"ready","protocol":9}'; sleep 1000"#;
    not_ready("protocol", script, "it speaks protocol 9, and this harness speaks 1");
}

fn one_that_says_garbage_later_differs() {
    differs("garbage-later", "read -r _; echo hello; sleep 1000", "it said `hello`");
}

fn one_that_floods_differs() {
    let flood = "read -r _; head -c 100000000 /dev/zero | tr '\\0' x; sleep 1000";
    differs("flood", flood, "longer than 1 MiB");
}

fn one_that_dies_later_differs() {
    differs("dies-later", "read -r _; exit 3", "it ended with exit code 3");
}

fn one_that_answers_twice_differs() {
    let twice =
        r#"read -r _; for i in 1 2; do echo '{"id":1,"ok":false,"why":"taken"}'; done; sleep 1000"#;
    differs("twice", twice, "it answered request 1, which is not open");
}

fn one_that_answers_what_was_not_asked_differs() {
    let answer = r#"read -r _; echo '{"id":99,"ok":true}'; sleep 1000"#;
    differs("unasked", answer, "it answered request 99, which is not open");
}

fn one_that_never_answers_differs() {
    differs("never-answers", "sleep 1000", "it does not answer to `acquire L wait 5s`");
}

fn one_that_cannot_extend_is_spared_what_it_cannot() {
    let ended = with("cannot", "holder-cut-off-stops", &format!("{READY}\nsleep 1000"));
    assert_eq!(ended.outcome(), "skipped", "{}", ended.said);
    assert!(ended.said.contains("the client cannot `keep_alive`"), "{}", ended.said);
}
