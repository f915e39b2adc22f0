//! Tests that the protocol holds within small bounds, and that the wrong schemes are refuted.

use super::*;

/// More states than any scope in these tests has.
const MOST: usize = 1_000_000;

#[test]
fn tokens_are_unique_and_grow() {
    let base = Scope { hints: &[0], ..Scope::BASE };
    for scope in [base, Scope { end: 3, ..base }] {
        let explored = prove(scope, Scheme::Certified, MOST);
        assert!(explored.complete, "{scope:?}: more than {MOST} states");
        assert!(explored.broken.is_none(), "{:#?}", explored.broken);
        assert!(explored.states > 10_000, "{} states show nothing", explored.states);
    }
}

/// Except repairs without an increment, which take a million states: `prove fencing` covers them.
#[test]
fn what_is_known_to_be_wrong_is_refuted() {
    for scheme in Scheme::ALL {
        let rule = match scheme {
            Scheme::Certified | Scheme::RepairWithoutBump => continue,
            Scheme::CertifiesLargest => "no larger number than needed",
            _ => "tokens are unique",
        };
        let explored = prove(Scope::against(scheme), scheme, MOST);
        let broken = explored.broken.as_ref().map(|found| found.broken.rule);
        assert_eq!(broken, Some(rule), "{}", scheme.name());
    }
}

/// The canonical form merges states that differ in more than an order. So the exploration must find
/// the same errors, in as few steps, without it.
#[test]
fn what_is_folded_is_the_same() {
    let unfolded = |scope| Scope { fold: false, ..scope };
    let tiny = Scope { hints: &[0], rounds: 0, ..Scope::BASE };
    let folded = prove(tiny, Scheme::Certified, MOST);
    let all = prove(unfolded(tiny), Scheme::Certified, MOST);
    assert!(folded.complete && all.complete && folded.broken.is_none() && all.broken.is_none());
    assert_eq!(folded.depth, all.depth);
    assert!(all.states > 6 * folded.states, "{} states, {} folded", all.states, folded.states);
    for scheme in [
        Scheme::LargestGrant,
        Scheme::MedianGrant,
        Scheme::OldTokenHandedOver,
        Scheme::CertifiesLargest,
        Scheme::ForgetsCounters,
    ] {
        let steps = |scope| {
            let broken = prove(scope, scheme, MOST).broken;
            broken.map(|found| (found.broken.rule, found.story.len()))
        };
        let scope = Scope::against(scheme);
        assert!(steps(scope).is_some(), "{scheme:?}");
        assert_eq!(steps(scope), steps(unfolded(scope)), "{scheme:?}");
    }
}
