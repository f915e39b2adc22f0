//! A wrong expectation fails in either direction; a key that is left fails hygiene. Clients that
//! break the client protocol get a clear verdict, soon, and nothing hangs. Every mutant is caught
//! by the scenario that exists for it. The honest client, which has the same shell, is not.
//! `just mutants` prints the whole table.

use std::fs;
use std::time::{Duration, Instant};

use crate::program::{CHAOS, Ended, ask, ask_text, folder, text};
use redquorum_rig::trials::{Case, thrice, with_masters};
use redquorum_scenario::Mutant;

/// What is wrong, a scenario, one text in it and another in its place; the outcome, and a part of
/// the output.
const CHANGES: [(&str, &str, [&str; 2], &str, &str); 6] = [
    (
        "a_violation_that_was_not_expected",
        "clock-step-one-holder",
        ["mutual-exclusion = \"violated\"\n", ""],
        "differs",
        "its clock was set 3000 ms forward",
    ),
    (
        "a_violation_that_does_not_come",
        "calm",
        ["[expect]", "[expect]\nmutual-exclusion = \"violated\""],
        "not-seen",
        "mutual-exclusion",
    ),
    (
        "a_violation_with_another_cause",
        "pause-in-critical-section",
        ["[\"client.pause\"]", "[\"late-write\"]"],
        "differs",
        "again ",
    ),
    (
        "a_margin_that_is_not_there",
        "even-masters",
        ["margin = { c1 = 2 }", "margin = { c1 = 1 }"],
        "not-seen",
        "margin",
    ),
    (
        "an_acquire_that_ends_otherwise",
        "reply-lost",
        ["c1 = \"no-quorum\"", "c1 = \"granted\""],
        "not-seen",
        "c1",
    ),
    (
        "a_fault_that_never_strikes",
        "minority-killed",
        ["at = \"100ms\"", "after = \"w1 lost L\""],
        "not-seen",
        "never struck",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let changes = CHANGES.iter().map(|(wrong, scenario, [from, to], outcome, part)| {
        let case = format!("{wrong}_is_{outcome}");
        with_masters(&case.clone(), move || {
            // The scenario without its variants.
            let text = text(scenario).split("[[variant]]").next().unwrap();
            assert!(text.contains(from), "{scenario} has no {from}");
            let ended = ask_text(&folder(&case), scenario, &text.replace(from, to), &[]);
            let code = if *outcome == "differs" { 1 } else { 2 };
            assert_eq!((ended.code, ended.outcome()), (Some(code), *outcome), "{}", ended.output);
            assert!(ended.output.contains(part), "{}", ended.output);
        })
    });
    let left = with_masters("a_key_that_is_left_fails_hygiene", a_key_that_is_left_fails_hygiene);
    changes.chain([left]).chain(client_cases()).chain(mutant_cases()).collect()
}

/// The client puts a key without a TTL on the first master, and then becomes the built-in client.
fn a_key_that_is_left_fails_hygiene() {
    let plant = r#"port=${REDQUORUM_NODES%%,*}; port=${port##*:}; exec 3<>/dev/tcp/127.0.0.1/$port; printf "*3\r\n\$3\r\nSET\r\n\$4\r\nleft\r\n\$1\r\nx\r\n" >&3; read -r _ <&3; exec "#;
    let client = format!("bash -c '{plant} {CHAOS} client'");
    let ended = ask(&folder("left"), &["majority-killed", "--client", &client]);
    assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.output);
    assert!(ended.output.contains("hygiene: expected safe, observed violated"), "{}", ended.output);
    assert!(ended.output.contains("left"), "{}", ended.output);
}

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

fn client_cases() -> Vec<Case> {
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

fn mutant_cases() -> Vec<Case> {
    let known = Mutant::clients().filter_map(|mutant| Some((mutant, mutant.scenario()?)));
    let caught = known.clone().map(|(mutant, scenario)| {
        with_masters(&format!("{mutant}_is_caught_by_{scenario}"), move || {
            thrice(|| {
                let ended = run_mutant(mutant, scenario);
                assert_eq!(ended.code, Some(1), "{}", ended.output);
            });
        })
    });
    let mut scenarios: Vec<&str> = known.map(|(_, scenario)| scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    let honest = scenarios.into_iter().map(|scenario| {
        with_masters(&format!("the_honest_mutant_passes_{scenario}"), move || {
            thrice(|| {
                let ended = run_mutant(Mutant::None, scenario);
                assert_eq!(ended.code, Some(0), "{}", ended.output);
            });
        })
    });
    caught.chain(honest).collect()
}

fn run_mutant(mutant: Mutant, scenario: &str) -> Ended {
    let client = format!("{} --mutant {mutant}", env!("CARGO_BIN_EXE_redquorum-mutant"));
    ask(&folder(&format!("mutant-{mutant}-{scenario}")), &[scenario, "--client", &client])
}
