//! Stats: the counters of a lock, as a snapshot of plain numbers.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::Cause;
pub use redquorum_protocol::LinkState;

use crate::error::FORKED;
use crate::metrics::{Counter, Histogram};

/// A snapshot of a lock's counters since it was built.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Leases granted.
    pub acquired: u64,
    /// Further handles of leases that their [owners](crate::Owner) held already; not included in
    /// `acquired`.
    pub reentered: u64,
    /// Granted fenced leases whose token needed a certification, because the counters of the
    /// masters differed. A high share means that the clocks of clients or masters disagree by more
    /// than a second, or that a master has lost its counters or has a counter that is far ahead.
    pub certified: u64,
    /// Acquires that ended because the resource was taken.
    pub taken: u64,
    /// Acquires that ended with [`NoQuorum`](crate::AcquireError::NoQuorum): too few masters
    /// answered, or they refuse writes or are distrusted.
    pub no_quorum: u64,
    /// Acquires that ended because a quorum granted too late.
    pub too_late: u64,
    /// Extensions that succeeded, the watchdog's included.
    pub extended: u64,
    /// Those of them after which no more masters than a quorum held the key, as far as was known: a
    /// bare quorum, with the least [margin](crate::Lease::margin) that a lease can have.
    pub extended_bare: u64,
    /// Extensions that failed, the watchdog's included.
    pub not_extended: u64,
    /// Leases lost before they were released or dropped.
    pub lost: u64,
    /// Leases given back by [`Lease::release`](crate::Lease::release), by the last handle.
    pub released: u64,
    /// The number of resources with a local queue. A request with a wait is in the queue while it
    /// waits for the resource, and while its lease is held.
    pub waiting: usize,
    /// Each master, in order.
    pub masters: Vec<MasterStats>,
}

/// The counters of one master.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MasterStats {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it can vote now.
    pub state: LinkState,
    /// Why its grants do not count although it is connected, and for how long. `None` if they
    /// count. Only with a [guard](crate::Builder::restart_guard).
    pub distrusted: Option<Cause>,
    /// Keys that it created for this lock, at a grant or a repair.
    pub granted: u64,
    /// Attempts and extensions that it refused because another client's key was there.
    pub refused: u64,
    /// Attempts and extensions with an unknown outcome: never sent, never answered, or answered by
    /// an error.
    pub unknown: u64,
    /// Connections that came up; all but the first are reconnects.
    pub connected: u64,
    /// Keys to delete that it has not yet confirmed as deleted.
    pub pending_cleanups: usize,
    /// Waiters that it is to wake. They count also while it is down or forbids wake-ups.
    pub subscriptions: usize,
    /// Commands that it has not answered yet.
    pub unanswered: usize,
    /// How long it took to answer.
    pub latency: Latency,
}

/// How long a master took to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The number of replies.
    pub count: u64,
    /// Half of the replies took at most this long; rounded up by at most a quarter.
    pub p50: Duration,
    /// 99 of 100 answers took at most this long; rounded up by at most a quarter.
    pub p99: Duration,
    /// The longest of them.
    pub max: Duration,
}

impl MasterStats {
    /// What a forked process knows of a master of its parent: nothing.
    pub(crate) fn of_forked(name: Arc<str>) -> Self {
        Self {
            name,
            state: LinkState::Down(FORKED.into()),
            distrusted: None,
            granted: 0,
            refused: 0,
            unknown: 0,
            connected: 0,
            pending_cleanups: 0,
            subscriptions: 0,
            unanswered: 0,
            latency: Latency::default(),
        }
    }
}

/// Declares the counters of one lock: the field of [`Stats`] for each, its metric and its label.
macro_rules! counters {
    ($($field:ident $metric:literal $label:expr;)*) => {
        /// The counters of one lock.
        pub(crate) struct Counters {
            $(pub(crate) $field: Counter,)*
            /// How long acquires waited that were granted, and that were not.
            pub(crate) waits: [Histogram; 2],
            /// How long leases were held.
            pub(crate) holds: Histogram,
        }

        impl Default for Counters {
            fn default() -> Self {
                let waits = ["yes", "no"].map(|granted| {
                    Histogram::new("redquorum_wait_seconds", Some(("granted", granted)))
                });
                Self {
                    $($field: Counter::new($metric, $label),)*
                    waits,
                    holds: Histogram::new("redquorum_hold_seconds", None),
                }
            }
        }

        impl Counters {
            pub(crate) fn snapshot(&self, waiting: usize, masters: Vec<MasterStats>) -> Stats {
                Stats { $($field: self.$field.count(),)* waiting, masters }
            }
        }
    };
}

counters! {
    acquired "redquorum_acquires_total" Some(("outcome", "acquired"));
    taken "redquorum_acquires_total" Some(("outcome", "taken"));
    no_quorum "redquorum_acquires_total" Some(("outcome", "no_quorum"));
    too_late "redquorum_acquires_total" Some(("outcome", "too_late"));
    reentered "redquorum_reentries_total" None;
    certified "redquorum_certifications_total" None;
    extended "redquorum_extensions_total" Some(("outcome", "extended"));
    extended_bare "redquorum_bare_extensions_total" None;
    not_extended "redquorum_extensions_total" Some(("outcome", "not_extended"));
    lost "redquorum_losses_total" None;
    released "redquorum_releases_total" None;
}

/// Four buckets for every doubling of nanoseconds, over the whole range of 64 bits.
const BUCKETS: usize = 4 * 64;

pub(crate) struct Latencies {
    max: Duration,
    buckets: Box<[u64; BUCKETS]>,
    exported: Histogram,
}

impl Latencies {
    pub(crate) fn of(master: &str) -> Self {
        let exported = Histogram::new("redquorum_reply_seconds", Some(("master", master)));
        Self { max: Duration::ZERO, buckets: Box::new([0; BUCKETS]), exported }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.exported.record(time);
        self.max = self.max.max(time);
        self.buckets[bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))] += 1;
    }

    pub(crate) fn summary(&self) -> Latency {
        let count: u64 = self.buckets.iter().sum();
        let quantile = |share: u64| {
            let mut left = (count * share).div_ceil(100);
            let found = self.buckets.iter().position(|in_bucket| {
                let reached = left <= *in_bucket && left > 0;
                left = left.saturating_sub(*in_bucket);
                reached
            });
            found.map_or(Duration::ZERO, |index| {
                Duration::from_nanos(upper_end(index)).min(self.max)
            })
        };
        Latency { count, p50: quantile(50), p99: quantile(99), max: self.max }
    }
}

fn bucket(nanos: u64) -> usize {
    let doubling = nanos.max(4).ilog2();
    let quarter = (nanos.max(4) >> (doubling - 2)) & 3;
    usize::try_from(4 * u64::from(doubling) + quarter).unwrap_or(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    let end = (u128::from(5 + quarter) << doubling.saturating_sub(2)) - 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_quarter_of_a_doubling() {
        for nanos in [1, 7, 1_000, 123_456_789, u64::MAX] {
            assert!(upper_end(bucket(nanos)) >= nanos, "{nanos}");
        }
        let mut latencies = Latencies::of("m");
        assert_eq!(latencies.summary(), Latency::default());
        for micros in 1..=100 {
            latencies.add(Duration::from_micros(micros));
        }
        let Latency { count, p50, p99, max } = latencies.summary();
        assert_eq!((count, max), (100, Duration::from_micros(100)));
        assert!(p50 >= Duration::from_micros(50) && p50 <= Duration::from_micros(63), "{p50:?}");
        assert!(p99 >= Duration::from_micros(99) && p99 <= Duration::from_micros(100), "{p99:?}");
    }
}
