//! Clients that break the client protocol get a clear verdict, soon, and nothing hangs.

use std::fs;
use std::time::{Duration, Instant};

use redquorum_rig::trials::{Case, with_masters};

use crate::support::{Ended, ask, folder};

const READY: &str = r#"echo '{"event":"ready","protocol":1,"can":["wait"]}'"#;

/// Runs a scenario with a shell script as the client. The run must end in good time.
fn with(case: &str, scenario: &str, script: &str) -> Ended {
    let folder = folder(case);
    fs::write(folder.join("client.sh"), script).unwrap();
    let client = format!("sh {}", folder.join("client.sh").display());
    let start = Instant::now();
    let ended = ask(&folder, &[scenario, "--client", &client]);
    assert!(start.elapsed() < Duration::from_secs(40), "{}", ended.output);
    ended
}

/// A client that never gets ready, and a part of the message.
const NOT_READY: [(&str, &str, &str); 3] = [
    ("dies_at_once", "echo no module named lock >&2; exit 7", "no module named lock"),
    ("prints_garbage_first", "echo hello; sleep 1000", "its first line is `hello`: it is not JSON"),
    (
        "has_another_protocol",
        r#"echo '{"event":"ready","protocol":9}'; sleep 1000"#,
        "it has protocol 9, and this harness 1",
    ),
];

/// What a client does after it is ready, and a part of the message.
const DIFFER: [(&str, &str, &str); 6] = [
    ("prints_garbage_later", "read -r _; echo hello; sleep 1000", "it wrote `hello`"),
    (
        "floods",
        "read -r _; head -c 100000000 /dev/zero | tr '\\0' x; sleep 1000",
        "longer than 1 MiB",
    ),
    ("dies_later", "read -r _; exit 3", "it ended with exit code 3"),
    (
        "answers_twice",
        r#"read -r _; for i in 1 2; do echo '{"id":1,"ok":false,"why":"taken"}'; done; sleep 1000"#,
        "it answered request 1, which is not open",
    ),
    (
        "answers_an_unknown_request",
        r#"read -r _; echo '{"id":99,"ok":true}'; sleep 1000"#,
        "it answered request 99, which is not open",
    ),
    ("never_answers", "sleep 1000", "it does not answer to `acquire L wait 5s`"),
];

pub(crate) fn cases() -> Vec<Case> {
    let not_ready = NOT_READY.into_iter().map(|(what, script, why)| {
        with_masters(&format!("a_client_that_{what}_is_reported"), move || {
            let ended = with(what, "calm", script);
            assert_eq!(ended.code, Some(3), "{}", ended.output);
            for part in ["does not get ready", why, "client-check"] {
                assert!(ended.output.contains(part), "{}", ended.output);
            }
        })
    });
    let differ = DIFFER.into_iter().map(|(what, script, why)| {
        with_masters(&format!("a_client_that_{what}_differs"), move || {
            let ended = with(what, "calm", &format!("{READY}\n{script}"));
            assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.output);
            assert!(ended.output.contains(why), "{}", ended.output);
        })
    });
    let others = cases![
        with_masters: a_client_without_output_is_reported,
        with_masters: a_client_without_extend_skips_scenarios_that_need_it,
    ];
    not_ready.chain(differ).chain(others).collect()
}

fn a_client_without_output_is_reported() {
    let words = ["calm", "--client", "sleep 1000", "--ready-timeout", "300ms"];
    let ended = ask(&folder("silent"), &words);
    assert_eq!(ended.code, Some(3), "{}", ended.output);
    assert!(ended.output.contains("sends nothing for 300ms (--ready-timeout)"), "{}", ended.output);
}

fn a_client_without_extend_skips_scenarios_that_need_it() {
    let ended = with("cannot", "holder-cut-off-stops", &format!("{READY}\nsleep 1000"));
    assert_eq!(ended.outcome(), "skipped", "{}", ended.output);
    assert!(ended.output.contains("the client cannot `keep_alive`"), "{}", ended.output);
}
