//! What applicants saw during a run, and the figures made of it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Notify;

use crate::{results::Latency, strategy::Reply};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Mutex<Counts>,
    /// Notified once so many were accepted.
    pub(crate) some_accepted: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) refused: u64,
    pub(crate) errors: u64,
    pub(crate) deadlocks: u64,
    pub(crate) retries: u64,
    /// What child processes sent to the database, and to Redis.
    pub(crate) child_statements: u64,
    pub(crate) child_commands: u64,
    pub(crate) last_error: Option<String>,
    accepted: Vec<Instant>,
    latencies: Vec<f64>,
}

/// After so many accepted applications a fault happens in the middle of a rush.
const SOME: u64 = 10;

impl Tally {
    pub(crate) fn end(&self, start: Instant, result: Result<Reply, String>) {
        let now = Instant::now();
        let mut counts = self.counts();
        counts.latencies.push(ms(start, now));
        match result {
            Ok(Reply::Accepted) => {
                counts.accepted.push(now);
                if counts.accepted() == SOME {
                    self.some_accepted.notify_one();
                }
            }
            Ok(Reply::Refused) => counts.refused += 1,
            Err(error) => {
                counts.errors += 1;
                counts.last_error = Some(error);
            }
        }
    }

    /// The counts, which no applicant changes meanwhile.
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.len() as u64
    }

    pub(crate) fn latency(&mut self) -> Latency {
        latency(&mut self.latencies)
    }

    /// The longest time without an accepted application from `start` on, in milliseconds. It counts
    /// to `end` only if places were left.
    pub(crate) fn stall_ms(&self, start: Instant, end: Option<Instant>) -> f64 {
        let mut instants: Vec<Instant> = self.accepted.iter().copied().chain(end).collect();
        instants.push(start);
        instants.sort_unstable();
        instants.windows(2).map(|pair| ms(pair[0], pair[1])).fold(0.0, f64::max)
    }
}

fn ms(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// Quantiles by nearest rank; zeros without latencies.
fn latency(latencies: &mut [f64]) -> Latency {
    latencies.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (latencies.len() * percent).div_ceil(100);
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    Latency { p50: at(50), p95: at(95), p99: at(99), longest: at(100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let all = |p50, p95, p99, longest| Latency { p50, p95, p99, longest };
        let mut latencies: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(latency(&mut latencies), all(100.0, 190.0, 198.0, 200.0));
        assert_eq!(latency(&mut [7.0]), all(7.0, 7.0, 7.0, 7.0));
        assert_eq!(latency(&mut []), all(0.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn a_stall_is_the_longest_gap_between_accepted_applications() {
        let start = Instant::now();
        let at = |ms| start + std::time::Duration::from_millis(ms);
        let stall = |accepted, end| Counts { accepted, ..Counts::default() }.stall_ms(start, end);
        assert!(stall(Vec::new(), None).abs() < 1e-9);
        assert!((stall(Vec::new(), Some(at(10))) - 10.0).abs() < 1e-9);
        assert!((stall(vec![at(9), at(2)], Some(at(10))) - 7.0).abs() < 1e-9);
    }
}
