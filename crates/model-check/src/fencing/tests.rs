//! Tests that the protocol holds within small bounds.

use super::*;

/// More states than any scope in these tests has.
const MOST: usize = 1_000_000;

#[test]
fn tokens_are_unique_and_grow() {
    let base = Scope { hints: &[0], ..Scope::BASE };
    for scope in [base, Scope { end: 3, ..base }] {
        let explored = model_check(scope, Mutant::None, MOST);
        assert!(explored.complete, "{scope:?}: more than {MOST} states");
        assert!(explored.broken.is_none(), "{:#?}", explored.broken);
        assert!(explored.states > 10_000, "{} states show nothing", explored.states);
    }
}

/// The canonical form merges states that differ in more than an order. So the exploration must find
/// the same errors, in as few steps, without it.
#[test]
fn canonical_forms_change_no_result() {
    let all_states = |scope| Scope { canonicalize: false, ..scope };
    let tiny = Scope { hints: &[0], rounds: 0, ..Scope::BASE };
    let canonical = model_check(tiny, Mutant::None, MOST);
    let all = model_check(all_states(tiny), Mutant::None, MOST);
    assert!(
        canonical.complete && all.complete && canonical.broken.is_none() && all.broken.is_none()
    );
    assert_eq!(canonical.depth, all.depth);
    assert!(
        all.states > 6 * canonical.states,
        "{} states, {} canonical",
        all.states,
        canonical.states
    );
    use Mutant::{CertifiesAnywhere, RepairsUncounted, StaysAtEnd};
    let is_large = |it| matches!(it, CertifiesAnywhere | RepairsUncounted | StaysAtEnd);
    for (mutant, scope) in Scope::WRONG.into_iter().filter(|(mutant, _)| !is_large(*mutant)) {
        let steps = |scope| {
            let broken = model_check(scope, mutant, MOST).broken;
            broken.map(|found| (found.broken.rule, found.steps.len()))
        };
        assert!(steps(scope).is_some(), "{mutant:?}");
        assert_eq!(steps(scope), steps(all_states(scope)), "{mutant:?}");
    }
}
