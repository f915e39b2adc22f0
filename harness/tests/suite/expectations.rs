//! A wrong expectation fails in either direction; a key that is left fails hygiene.

use redquorum_rig::trials::Case;

use crate::support::{CHAOS, ask, ask_text, folder, text};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_violation_that_was_not_expected_differs,
        with_masters: a_violation_that_does_not_come_is_not_seen,
        with_masters: a_violation_with_another_cause_differs,
        with_masters: a_margin_that_is_not_there_is_not_seen,
        with_masters: an_acquire_that_ends_otherwise_is_not_seen,
        with_masters: a_fault_that_never_strikes_is_not_seen,
        with_masters: a_key_that_is_left_fails_hygiene,
    ]
}

/// The scenario without its variants, with one text replaced.
fn changed(name: &str, from: &str, to: &str) -> String {
    let text = text(name).split("[[variant]]").next().unwrap();
    assert!(text.contains(from), "{name} has no {from}");
    text.replace(from, to)
}

fn a_violation_that_was_not_expected_differs() {
    let text = changed("clock-step-one-holder", "mutual-exclusion = \"violated\"\n", "");
    let ended = ask_text(&folder("unexpected"), "clock-step-one-holder", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.said);
    assert!(ended.said.contains("mutual-exclusion: expected safe, observed violated"));
    assert!(ended.said.contains("its clock was set 3000 ms forward"), "{}", ended.said);
    assert!(ended.said.contains("again "), "{}", ended.said);
}

fn a_violation_that_does_not_come_is_not_seen() {
    let text = changed("calm", "[expect]", "[expect]\nmutual-exclusion = \"violated\"");
    let ended = ask_text(&folder("absent"), "calm", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(2), "not-seen"), "{}", ended.said);
}

fn a_violation_with_another_cause_differs() {
    let text = changed("pause-in-critical-section", "[\"client.pause\"]", "[\"late-write\"]");
    let ended = ask_text(&folder("cause"), "pause-in-critical-section", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.said);
}

fn a_margin_that_is_not_there_is_not_seen() {
    let text = changed("even-masters", "margin = { c1 = 2 }", "margin = { c1 = 1 }");
    let ended = ask_text(&folder("margin"), "even-masters", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(2), "not-seen"), "{}", ended.said);
}

fn an_acquire_that_ends_otherwise_is_not_seen() {
    let text = changed("reply-lost", "c1 = \"no-quorum\"", "c1 = \"granted\"");
    let ended = ask_text(&folder("acquire"), "reply-lost", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(2), "not-seen"), "{}", ended.said);
}

fn a_fault_that_never_strikes_is_not_seen() {
    let text = changed("minority-killed", "at = \"100ms\"", "after = \"w1 lost L\"");
    let ended = ask_text(&folder("never"), "minority-killed", &text, &[]);
    assert_eq!((ended.code, ended.outcome()), (Some(2), "not-seen"), "{}", ended.said);
    assert!(ended.said.contains("never struck"), "{}", ended.said);
}

/// The client puts a key without a TTL on the first master, and then becomes the built-in client.
fn a_key_that_is_left_fails_hygiene() {
    let plant = r#"port=${REDQUORUM_NODES%%,*}; port=${port##*:}; exec 3<>/dev/tcp/127.0.0.1/$port; printf "*3\r\n\$3\r\nSET\r\n\$4\r\nleft\r\n\$1\r\nx\r\n" >&3; read -r _ <&3; exec "#;
    let client = format!("bash -c '{plant} {CHAOS} client'");
    let ended = ask(&folder("left"), &["majority-killed", "--client", &client]);
    assert_eq!((ended.code, ended.outcome()), (Some(1), "differs"), "{}", ended.said);
    assert!(ended.said.contains("hygiene: expected safe, observed violated"), "{}", ended.said);
    assert!(ended.said.contains("left"), "{}", ended.said);
}
