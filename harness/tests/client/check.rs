//! `client-check` accepts the built-in client, and reports the mistakes of any other one.

use redquorum_harness::client_check::check;
use redquorum_rig::trials::{Case, with_masters};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        with_masters: the_built_in_client_is_accepted,
        with_masters: a_lock_on_one_server_is_checked_on_one_master,
    ];
    // READY stands for the first message of a client.
    let table: [(&str, &str, &[&str]); 11] = [
        (
            "a_silent_client_is_given_up",
            "sleep 1000",
            &["wrong    ready: no line was printed", "25 checks"],
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
                   echo "{\"id\":$id,\"ok\":true,\"at_ns\":$at,\"valid_ms\":9000}"
               done; sleep 1000"#,
            &[
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
            ],
        ),
    ];
    for (name, command, words) in table {
        let command = command.replace("READY", READY);
        cases.push(with_masters(name, move || refused(&command, words)));
    }
    cases
}

const BUILT_IN: &str = concat!(env!("CARGO_BIN_EXE_redquorum-chaos"), " client");
const READY: &str = r#"echo '{"event":"ready","protocol":1,"can":[]}'"#;

/// Whether the check accepts a client, and its report.
pub(crate) fn checked(command: &str, quorum: usize) -> (bool, String) {
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
    let (well, page) = checked(BUILT_IN, 2);
    assert!(well, "{page}");
    // The library shows no token, and renews no lease unasked.
    let skipped = page.lines().filter(|line| line.starts_with("skipped"));
    let skipped: Vec<&str> = skipped.filter_map(|line| line.split([' ', ':']).nth(2)).collect();
    assert_eq!(skipped, ["token", "renews"], "{page}");
}

fn a_lock_on_one_server_is_checked_on_one_master() {
    let (well, page) = checked(BUILT_IN, 1);
    assert!(well && page.contains("on 1 of 1 masters"), "{page}");
}
