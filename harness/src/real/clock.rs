//! The clock of a run: nanoseconds since it began. The only place where instants and the stamps of
//! clients become times of a history.

use std::time::{Duration, Instant};

use crate::history::Ns;
use crate::stamp;
use crate::units::nanos;

/// Later than any run ends.
const FAR: Duration = Duration::from_secs(3600);

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    origin: Instant,
    /// `CLOCK_MONOTONIC` at the origin, for the stamps of clients.
    origin_ns: i64,
}

impl RunClock {
    /// A run begins now.
    ///
    /// Both clocks are read at about the same time, however busy the machine: whoever is put to
    /// sleep between the two readings reads again.
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

    /// A client's stamp.
    pub(super) fn stamp(&self, monotonic_ns: i64) -> Ns {
        monotonic_ns.saturating_sub(self.origin_ns)
    }

    /// The instant at which it is this late.
    pub(super) fn instant(&self, at: Ns) -> Instant {
        let after = Duration::from_nanos(u64::try_from(at).unwrap_or(0));
        self.origin.checked_add(after).unwrap_or_else(|| self.origin + FAR)
    }
}
