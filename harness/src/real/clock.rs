//! The clock of a run: nanoseconds since its start. Only here do instants and the stamps of clients
//! become times of a history.

use std::time::{Duration, Instant};

use crate::stamp;
use redquorum_scenario::history::Ns;
use redquorum_scenario::units::nanos;

/// Later than the end of any run.
const FAR: Duration = Duration::from_secs(3600);

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    origin: Instant,
    /// `CLOCK_MONOTONIC` at the origin, for the stamps of clients.
    origin_ns: i64,
}

impl RunClock {
    /// Starts the clock of a run.
    ///
    /// Reads both clocks many times and keeps the pair of readings that lie closest together. A
    /// thread that is preempted between two readings therefore does no harm.
    pub(super) fn start() -> Self {
        let read = || {
            let before = stamp::now();
            let origin = Instant::now();
            let apart = stamp::now().saturating_sub(before);
            (apart, Self { origin, origin_ns: before.saturating_add(apart / 2) })
        };
        let mut best = read();
        for _ in 0..50 {
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }

    pub(super) fn at(&self, instant: Instant) -> Ns {
        match instant.checked_duration_since(self.origin) {
            Some(after) => nanos(after),
            None => -nanos(self.origin.duration_since(instant)),
        }
    }

    pub(super) fn now(&self) -> Ns {
        self.at(Instant::now())
    }

    /// Converts a client's stamp.
    pub(super) fn stamp(&self, monotonic_ns: i64) -> Ns {
        monotonic_ns.saturating_sub(self.origin_ns)
    }

    /// The instant at which the run has this time.
    pub(super) fn instant(&self, at: Ns) -> Instant {
        let after = Duration::from_nanos(u64::try_from(at).unwrap_or(0));
        self.origin.checked_add(after).unwrap_or_else(|| self.origin + FAR)
    }
}
