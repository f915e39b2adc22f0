//! Tests of the checker on histories written by hand: the files `tests/*.txt`, in the notation of
//! `notation.rs`.

use proptest::prelude::*;

use super::exclusion::overlaps;
use super::leases::Hold;
use crate::history::Window;

mod garbled;
pub(crate) mod notation;

#[test]
fn histories_have_their_verdicts() {
    for (file, text) in [
        ("causes", include_str!("tests/causes.txt")),
        ("exclusion", include_str!("tests/exclusion.txt")),
        ("fencing", include_str!("tests/fencing.txt")),
        ("holds", include_str!("tests/holds.txt")),
        ("keys", include_str!("tests/keys.txt")),
        ("measures", include_str!("tests/measures.txt")),
        ("outcome", include_str!("tests/outcome.txt")),
        ("progress", include_str!("tests/progress.txt")),
        ("validity", include_str!("tests/validity.txt")),
    ] {
        notation::check(file, text);
    }
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64), 0..12)
    ) {
        let hold = |(lease, (from, length)): (usize, &(i64, i64))| {
            let span = Window::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
        }
        // The checker reports every hold that overlaps an earlier one, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| before.inner.meet(hold.inner).is_some())
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}
