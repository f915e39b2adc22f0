//! Pacing: the moment between the earliest and the latest at which a lease is renewed.
//!
//! Renewals of thousands of leases are sent at common moments, so each moment costs one write per
//! master. A cycle has many moments, and each group of leases has one of them. So leases that were
//! granted together, or were delayed together, are not renewed together for ever. Otherwise masters
//! would be idle for seconds, and then have to answer everything at once.

use core::time::Duration;

use crate::hold::Renewal;
use crate::time::{Time, nanos};

/// The time between two moments. It is shorter for leases that are renewed every few seconds.
const STEP: Duration = Duration::from_millis(25);

/// The least number of moments in a cycle.
const STEPS: u64 = 32;

/// The number of successive leases with the same moment: a few leases are not worth a moment each.
const GROUP: u64 = 16;

/// The moment for the lease with this number. It lies between `from` and `due`.
///
/// A cycle is as long as the time between the two, or up to a step shorter, so one such moment lies
/// in between. A lease that is renewed at its moment is next renewed two cycles later, which is as
/// late as possible. So pacing costs no more renewals than renewing each lease when it is due.
pub(super) fn renewal_moment(renewal: Renewal, number: u64) -> Time {
    let span = nanos(renewal.due.since(renewal.from));
    let step = nanos(STEP).min(span / STEPS);
    if step == 0 {
        return renewal.due;
    }
    let steps = span / step;
    let (cycle, place) = (steps * step, number / GROUP % steps * step);
    let due = renewal.due.as_nanos();
    Time::from_nanos(due - (due % cycle + cycle - place) % cycle)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The renewal of a lease that was granted or renewed at `at`.
    fn renewal(at: Time, ttl: Duration) -> Renewal {
        Renewal { from: at.plus(ttl / 6), due: at.plus(ttl / 3) }
    }

    #[test]
    fn a_moment_lies_between_the_earliest_and_the_latest_whatever_they_are() {
        let instants = [0, 1, 49_999_999, 1_000_000_007, 1 << 40, u64::MAX / 2, u64::MAX - 1];
        let spans = [0, 1, 31, 32, 33, 1_000, 16_666_666, 5_000_000_000, 1 << 42];
        for (from, span) in instants.iter().flat_map(|at| spans.map(|span| (*at, span))) {
            let from = Time::from_nanos(from);
            let due = from.plus(Duration::from_nanos(span));
            for number in [0, 1, 15, 16, 1_000, u64::MAX] {
                let moment = renewal_moment(Renewal { from, due }, number);
                assert!(from <= moment && moment <= due, "{from:?} {due:?} {number}");
            }
        }
    }

    #[test]
    fn pacing_costs_no_more_renewals_than_a_third_of_the_ttl_and_keeps_the_place() {
        for (ttl, at_least) in
            [(30_000 * MS, 10_000 * MS), (10_000 * MS, 3_300 * MS), (100 * MS, 32 * MS)]
        {
            let mut at = renewal_moment(renewal(Time::from_millis(7_001), ttl), 777);
            for late in [0, 100, 1_000, 500, 3] {
                // The reply and the caller may be late.
                let begun = at.plus(Duration::from_micros(late));
                let next = renewal_moment(renewal(begun, ttl), 777);
                assert!(next.since(at) >= at_least && next.since(at) <= ttl / 3, "{ttl:?}");
                at = next;
            }
        }
    }

    #[test]
    fn leases_that_are_granted_together_are_spread_over_common_moments() {
        let granted = Time::from_millis(123_457);
        let ttl = 30_000 * MS;
        let mut moments: BTreeMap<Time, usize> = BTreeMap::new();
        for number in 0..10_000 {
            *moments.entry(renewal_moment(renewal(granted, ttl), number)).or_default() += 1;
        }
        assert_eq!(moments.len(), 200, "five seconds of 25 ms");
        let times: Vec<Time> = moments.keys().copied().collect();
        assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) == STEP), "{times:?}");
        assert!(moments.values().all(|leases| (48..=64).contains(leases)), "{moments:?}");
    }
}
