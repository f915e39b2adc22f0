//! The protocol holds within small bounds, and what is known to be wrong is refuted.

use super::*;

/// More than any of the scopes here has.
const MOST: usize = 3_000_000;

fn broken(scope: Scope, scheme: Scheme) -> Option<&'static str> {
    let Proof { explored, .. } = prove(scope, scheme, MOST);
    let rule = explored.broken.as_ref().map(|found| found.broken.rule);
    assert!(explored.complete || rule.is_some(), "{scheme:?}: more than {MOST} states");
    rule
}

#[test]
fn tokens_are_unique_and_grow() {
    let Proof { explored, .. } = prove(Scope::SMALL, Scheme::Certified, MOST);
    assert!(explored.complete);
    assert!(explored.broken.is_none(), "{:#?}", explored.broken);
    assert!(explored.states > 10_000, "{} states show nothing", explored.states);
}

#[test]
fn what_is_known_to_be_wrong_is_refuted() {
    let near = Scope { end: 3, ..Scope::SMALL };
    for (scope, scheme, rule) in [
        (Scope::SMALL, Scheme::LargestGrant, "tokens are unique"),
        (Scope::SMALL, Scheme::MedianGrant, "tokens are unique"),
        (Scope::SMALL, Scheme::AnyMajority, "tokens are unique"),
        (Scope::SMALL, Scheme::RepairWithoutBump, "tokens are unique"),
        (Scope::SMALL, Scheme::OldTokenHandedOver, "tokens are unique"),
        (near, Scheme::StaysAtTheEnd, "tokens are unique"),
        (Scope::SMALL, Scheme::CertifiesLargest, "no larger number than needed"),
    ] {
        assert_eq!(broken(scope, scheme), Some(rule), "{}", scheme.name());
    }
}

#[test]
fn a_counter_that_is_at_its_end_refuses() {
    assert_eq!(broken(Scope { end: 3, ..Scope::SMALL }, Scheme::Certified), None);
}

#[test]
fn a_master_that_forgets_breaks_it() {
    let forgets = Scope { forgets: 1, hints: &[0], ..Scope::SMALL };
    let rule = broken(forgets, Scheme::Certified);
    assert_eq!(rule, Some("tokens are unique"));
}

#[test]
fn masters_and_clients_in_another_order_are_the_same() {
    let tiny = Scope { hints: &[0], rounds: 1, hand_overs: 0, extensions: 0, ..Scope::SMALL };
    let folded = prove(tiny, Scheme::Certified, MOST).explored;
    let all = prove(Scope { fold: false, ..tiny }, Scheme::Certified, MOST).explored;
    assert!(folded.complete && all.complete && folded.broken.is_none() && all.broken.is_none());
    assert_eq!(folded.depth, all.depth);
    // Six orders of masters, two of clients; states that are alike in themselves have fewer.
    let ratio = all.states / folded.states;
    assert!((6..=12).contains(&ratio), "{} states, {} folded", all.states, folded.states);
    for scheme in [Scheme::LargestGrant, Scheme::AnyMajority] {
        let steps = |scope| {
            let broken = prove(scope, scheme, MOST).explored.broken;
            broken.map(|found| (found.broken.rule, found.story.len()))
        };
        assert_eq!(steps(tiny), steps(Scope { fold: false, ..tiny }), "{scheme:?}");
    }
}
