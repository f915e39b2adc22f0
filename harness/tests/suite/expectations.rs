//! A wrong expectation fails in either direction; a key that is left fails hygiene.

use redquorum_rig::trials::{Case, with_masters};

use crate::support::{CHAOS, ask, ask_text, folder, text};

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
    changes.chain([left]).collect()
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
