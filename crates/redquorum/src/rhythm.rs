//! Rhythm: at which moment between the earliest and the latest a lease is renewed.
//!
//! Renewals of thousands of leases go out on common beats, so that a beat costs one write per master.
//! Each group of leases has its own place in a bar of many beats, so that leases that were granted
//! together, or were held up together, are not renewed together for ever: the masters would have
//! nothing to do for seconds, and then all at once.

use std::time::Duration;

use redquorum_protocol::{Renewal, Time};

/// How long a beat is; less for leases that are renewed every few seconds.
const BEAT: Duration = Duration::from_millis(25);

/// How many beats a bar has at least.
const BEATS: u64 = 32;

/// How many leases in a row have the same place: a few leases are not worth a beat for each.
const GROUP: u64 = 16;

/// The moment for the lease of this number. It lies between `from` and `due`.
///
/// A bar is as long as the two are apart, or up to a beat less, so there is one such moment in
/// between. Whoever was renewed at a moment is renewed next at one two bars later, which is as late
/// as it may be, so the order costs no more renewals than no order does.
pub(crate) fn moment(renewal: Renewal, number: u64) -> Time {
    let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let room = nanos(renewal.due.since(renewal.from));
    let beat = nanos(BEAT).min(room / BEATS);
    if beat == 0 {
        return renewal.due;
    }
    let beats = room / beat;
    let (bar, place) = (beats * beat, number / GROUP % beats * beat);
    let due = renewal.due.as_nanos();
    Time::from_nanos(due - (due % bar + bar - place) % bar)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The renewal of a lease that was granted or renewed then.
    fn renewal(at: Time, ttl: Duration) -> Renewal {
        Renewal::between(at.plus(ttl / 6), at.plus(ttl / 3))
    }

    #[test]
    fn a_moment_lies_between_the_earliest_and_the_latest_whatever_they_are() {
        let instants = [0, 1, 49_999_999, 1_000_000_007, 1 << 40, u64::MAX / 2, u64::MAX - 1];
        let rooms = [0, 1, 31, 32, 33, 1_000, 16_666_666, 5_000_000_000, 1 << 42];
        for (from, room) in instants.iter().flat_map(|at| rooms.map(|room| (*at, room))) {
            let from = Time::from_nanos(from);
            let due = from.plus(Duration::from_nanos(room));
            for number in [0, 1, 15, 16, 1_000, u64::MAX] {
                let moment = moment(Renewal::between(from, due), number);
                assert!(from <= moment && moment <= due, "{from:?} {due:?} {number}");
            }
        }
    }

    #[test]
    fn leases_that_are_granted_together_are_spread_and_renewed_on_common_beats() {
        let granted = Time::from_millis(123_457);
        let ttl = 30_000 * MS;
        let mut beats: BTreeMap<Time, usize> = BTreeMap::new();
        for number in 0..10_000 {
            *beats.entry(moment(renewal(granted, ttl), number)).or_default() += 1;
        }
        assert_eq!(beats.len(), 200, "five seconds of 25 ms");
        assert!(beats.values().all(|leases| (48..=64).contains(leases)), "{beats:?}");
    }

    #[test]
    fn the_rhythm_costs_no_more_renewals_than_a_third_of_the_ttl_does_and_keeps_its_place() {
        for (ttl, at_least) in
            [(30_000 * MS, 10_000 * MS), (10_000 * MS, 3_300 * MS), (100 * MS, 32 * MS)]
        {
            let mut at = moment(renewal(Time::from_millis(7_001), ttl), 777);
            for late in [0, 100, 1_000, 500, 3] {
                // The answer may take its time, and so may whoever asks.
                let begun = at.plus(Duration::from_micros(late));
                let next = moment(renewal(begun, ttl), 777);
                assert!(next.since(at) >= at_least && next.since(at) <= ttl / 3, "{ttl:?}");
                at = next;
            }
        }
    }
}
