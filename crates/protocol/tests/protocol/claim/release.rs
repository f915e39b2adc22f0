//! Release: every product of outcomes in every order.

use redquorum_protocol::{Input, Outcome};

use super::play::*;

/// The outcome of a release, if all possible replies of `awaited` masters agree on it.
fn released(deleted: usize, gone: usize, awaited: usize, masters: usize) -> Option<Outcome> {
    let outcome = |deleted: usize, gone: usize| {
        // A majority deleted the key: a majority held it. So many lack the key that a majority is
        // impossible: no majority held it.
        match (2 * deleted > masters, 2 * gone >= masters) {
            (true, _) => Outcome::Released,
            (_, true) => Outcome::AlreadyGone,
            _ => Outcome::Unknown,
        }
    };
    let ways = (0..=awaited).flat_map(|more| (0..=awaited - more).map(move |gone| (more, gone)));
    let mut ways = ways.map(|(more, also)| outcome(deleted + more, gone + also));
    let first = ways.next()?;
    ways.all(|way| way == first).then_some(first)
}

#[test]
fn a_release_reports_what_masters_reply_in_every_order_and_asks_each_once() {
    for masters in 1..=5 {
        for outcomes in product(masters) {
            for order in orders(&outcomes) {
                let mut play = Play::hold(&vec![Grants; masters]);
                play.handle(Input::Release);
                let mut expected = None;
                for received in 0..=order.len() {
                    if let Some(at) = received.checked_sub(1).map(|last| order[last]) {
                        play.reply(Release, at, compared(outcomes[at], at, Deleted));
                    }
                    let of = |what| count(&outcomes, &order[..received], &[what]);
                    expected = expected
                        .or_else(|| released(of(Grants), of(Refuses), masters - received, masters));
                    assert_eq!(play.outcome(), expected, "{outcomes:?} {order:?} after {received}");
                }
                play.wake_at(START.plus(50 * MS));
                late(&outcomes)
                    .for_each(|at| play.reply(Release, at, compared(outcomes[at], at, Deleted)));
                let expected = expected.unwrap_or(Outcome::Unknown);
                assert_eq!(play.outcome(), Some(expected), "{outcomes:?} {order:?}");
                play.handle(Input::Abandon);
                assert_eq!(play.cleaned_up(masters, 1), vec![1; masters]);
            }
        }
    }
}
