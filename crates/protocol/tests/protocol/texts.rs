//! What is printed for people.

use std::fmt::Display;
use std::time::Duration;

use redquorum_protocol::wire::{Malformed, marker};
use redquorum_protocol::{
    BadOption, Cause, Distrust, Holder, Loss, NodeId, NodeSet, Outcome, Time, Token,
};

/// Messages are fragments, which follow a colon: each says something else, without a capital letter
/// and without a full stop.
fn assert_fragments(messages: &[&dyn Display]) {
    let texts: Vec<String> = messages.iter().map(ToString::to_string).collect();
    for (number, text) in texts.iter().enumerate() {
        assert!(text.starts_with(|first: char| first.is_ascii_lowercase()), "{text:?}");
        assert!(!text.ends_with('.'), "{text:?}");
        assert!(!texts[..number].contains(text), "{text:?} twice");
    }
}

#[test]
fn ends_of_leases_and_holders_of_keys_are_told_apart() {
    use Loss::{ClockRanBack, Expired, Forked, GivenBack, MaxHold, QuorumGone};
    assert_fragments(&[&Expired, &MaxHold, &QuorumGone, &ClockRanBack, &Forked, &GivenBack]);
    use Outcome::{AlreadyGone, Left, Released, StillHeld, Unknown};
    assert_fragments(&[&Released, &AlreadyGone, &Unknown, &StillHeld, &Left]);
    let (token, left_ms) = (Token::new([7; 20]), 1_234);
    assert_fragments(&[
        &Holder::NotAsked,
        &Holder::Lease { token, left_ms },
        &Holder::Foreign { left_ms },
        &Holder::NoExpiry,
        &Holder::WrongType,
    ]);
    assert!(Holder::Foreign { left_ms }.to_string().contains("1234 ms"));
}

#[test]
fn masters_are_counted_from_one() {
    let [first, last] = [0, 63].map(NodeId::new);
    assert_eq!((first.to_string(), format!("{last:?}")), ("master 1".into(), "master 64".into()));
    let both = NodeSet::from_iter([last, first]);
    assert_eq!(format!("{both:?}"), "{master 1, master 64}");
}

#[test]
fn a_distrust_that_ends_by_itself_says_when() {
    let text = |left| Cause::Distrusted { why: Distrust::Unmarked, left }.to_string();
    assert!(text(Some(Duration::from_millis(1_250))).starts_with("distrusted for another 1.2s: "));
    for left in [None, Some(Duration::ZERO)] {
        assert!(text(left).starts_with("distrusted: "), "{left:?}");
    }
}

#[test]
fn times_and_tokens_are_short_in_logs() {
    assert_eq!(format!("{:?} {:?}", Time::from_millis(1_500), Time::NEVER), "1.5s never");
    assert_fragments(&[&Malformed]);
    assert_eq!(format!("{:?}", Token::new([0xab; 20])), "abababab…");
}

#[test]
fn an_option_above_the_guard_names_the_lock_delay_if_there_is_one() {
    let text = |lock_delay| {
        let [ttl, max_ttl] = [5_000, 3_000].map(Duration::from_millis);
        BadOption::TtlAboveGuard { ttl, lock_delay, max_ttl }.to_string()
    };
    assert!(text(Duration::from_secs(1)).contains("lock delay of 1s"));
    assert!(!text(Duration::ZERO).contains("lock delay"));
}

#[test]
fn a_marker_that_is_too_long_or_cannot_be_shown_is_a_question_mark() {
    let longest = "a".repeat(256);
    for (bytes, shown) in [
        (longest.as_bytes(), Some(longest.as_str())),
        (&[b'a'; 257], Some("?")),
        (b"a\tb", Some("?")),
        (b"", None),
    ] {
        assert_eq!(marker(bytes).as_deref(), shown);
    }
}

#[test]
fn locks_with_different_clock_guards_are_told_both() {
    let [one, none] = [Some(Duration::from_millis(500)), None];
    for (marked, ours) in [(one, none), (none, one)] {
        let text = Distrust::OtherClockBound { marked, ours }.to_string();
        assert!(text.contains("500ms") && text.contains("no clock guard"), "{text}");
    }
}
