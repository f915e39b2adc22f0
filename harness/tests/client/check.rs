//! `client-check` accepts the built-in client, and reports the mistakes of any other one.

use std::time::{Duration, Instant};

use redquorum_harness::client_check::check;
use redquorum_rig::trials::Case;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: the_built_in_client_is_accepted,
        with_masters: a_silent_client_is_given_up,
        with_masters: a_client_that_dies_at_once_is_told_with_its_last_words,
        with_masters: a_client_that_floods_is_given_up,
        with_masters: a_line_without_end_fills_no_memory,
        with_masters: a_client_that_dies_in_the_middle_is_told,
        with_masters: a_client_that_answers_nothing_is_given_up,
        with_masters: answers_to_nothing_and_answers_twice_are_told,
        with_masters: capabilities_that_nobody_knows_are_told,
        with_masters: another_version_of_the_protocol_is_told,
        with_masters: an_answer_that_is_none_is_told_with_its_request,
        with_masters: a_client_that_locks_nothing_is_found_out,
    ]
}

const READY: &str = r#"echo '{"event":"ready","protocol":1,"can":[]}'"#;

/// Whether the check accepts a client, and its report.
fn says(command: &str) -> (bool, String) {
    let mut page = Vec::new();
    let well = check(command, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(well, !page.contains("\nwrong") && !page.starts_with("wrong"), "{page}");
    (well, page)
}

/// Checks that a client is refused, and that the report has these words.
fn refused(command: &str, words: &[&str]) {
    let (well, page) = says(command);
    assert!(!well, "{page}");
    for word in words {
        assert!(page.contains(word), "no {word:?} in\n{page}");
    }
}

fn the_built_in_client_is_accepted() {
    let (well, page) = says(concat!(env!("CARGO_BIN_EXE_redquorum-chaos"), " client"));
    assert!(well, "{page}");
    // The check skips only the token, which the library does not show.
    assert_eq!(page.matches("skipped").count(), 1, "{page}");
}

fn a_silent_client_is_given_up() {
    let start = Instant::now();
    refused("sleep 1000", &["wrong    ready: nothing was said", "22 checks"]);
    assert!(start.elapsed() < Duration::from_secs(20));
}

fn a_client_that_dies_at_once_is_told_with_its_last_words() {
    refused("echo 'no module' >&2; exit 3", &["exit code 3", "no module"]);
    refused("no-such-command", &["exit code 127", "no-such-command"]);
}

fn a_client_that_floods_is_given_up() {
    refused("yes nonsense", &["100 of its lines made no sense", "it said `nonsense`"]);
    refused(&format!("{READY}; yes '{{}}'"), &["(100 times)", "`{}` is not understood"]);
}

fn a_line_without_end_fills_no_memory() {
    let long = "head -c 100000000 /dev/zero | tr '\\0' x";
    refused(&format!("{long}; echo; exit 1"), &["a line of more than", "exit code 1"]);
}

fn a_client_that_dies_in_the_middle_is_told() {
    let dies = format!("{READY}; read -r request; echo 'out of luck' >&2; kill -9 $$");
    refused(
        &dies,
        &["ok       ready", "wrong    acquire: it was ended by signal 9", "out of luck"],
    );
}

fn a_client_that_answers_nothing_is_given_up() {
    let mute = format!("{READY}; while read -r request; do :; done");
    refused(&mute, &["wrong    acquire: acquire (request 1) was not answered", "the rest"]);
}

fn answers_to_nothing_and_answers_twice_are_told() {
    let answers =
        r#"echo '{"id":1,"ok":true}'; echo '{"id":1,"ok":true}'; echo '{"id":99,"ok":true}'"#;
    let stubborn = format!("{READY}; read -r request; {answers}; exit 0");
    let once_more = "answers request 1 once more";
    refused(&stubborn, &[once_more, "answers request 99, which was never made", "no \"at_ns\""]);
}

fn capabilities_that_nobody_knows_are_told() {
    let flying = r#"echo '{"event":"ready","protocol":1,"can":["extend","fly"]}'; exit 0"#;
    refused(flying, &["wrong    ready: it can \"fly\", which nobody knows"]);
}

fn another_version_of_the_protocol_is_told() {
    let newer = r#"echo '{"event":"ready","protocol":2}'; sleep 1000"#;
    refused(newer, &["wrong    ready", "say \"protocol\":1"]);
}

fn an_answer_that_is_none_is_told_with_its_request() {
    let vague = format!(r#"{READY}; read -r request; echo '{{"id":1,"ok":"maybe"}}'; exit 0"#);
    refused(&vague, &["wrong    acquire: `{\"id\":1,\"ok\":\"maybe\"}` is not understood"]);
}

/// This client replies that all is done, by the wrong clock, and does nothing.
fn a_client_that_locks_nothing_is_found_out() {
    let liar = r#"
        while read -r request; do
            id=$(printf %s "$request" | sed 's/.*"id":\([0-9]*\).*/\1/')
            at=$(date +%s%N)
            echo "{\"id\":$id,\"ok\":true,\"at_ns\":$at,\"valid_ms\":9000}"
        done; sleep 1000"#;
    let words = [
        "wrong    stamps: \"at_ns\"",
        "(that is the wall clock)",
        "wrong    deadline: \"valid_ms\" is 9000, of a TTL of 2000",
        "wrong    keys: it was granted, and a key whose name has `check` in it is on 0 of 3",
        "wrong    taken: a second client of the process was granted",
        "ok       step",
        "wrong    checked step",
        "wrong    expired lease",
        "wrong    unknown op: an op that does not exist was answered",
        "wrong    no quorum: with 2 of 3 masters dead a lease was granted",
        "wrong    end of input",
    ];
    refused(&format!("{READY}; {liar}"), &words);
}
