//! What applicants saw during a run, and the figures made of it.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use crate::results::Latency;

/// Counts of a run, added to by all applicants.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    pub(crate) retries: AtomicU64,
    times: Mutex<Times>,
    /// Notified once so many were accepted.
    pub(crate) some_accepted: Notify,
}

#[derive(Debug, Default)]
struct Times {
    latencies: Vec<f64>,
    accepted: Vec<Instant>,
    last_error: Option<String>,
}

/// After so many accepted applications a fault happens in the middle of a rush.
const SOME: u64 = 10;

impl Tally {
    /// An application was accepted.
    pub(crate) fn accept(&self, start: Instant) {
        let now = Instant::now();
        {
            let mut times = self.times();
            times.latencies.push(ms(start, now));
            times.accepted.push(now);
        }
        if self.accepted.fetch_add(1, Ordering::Relaxed) + 1 == SOME {
            self.some_accepted.notify_one();
        }
    }

    /// An application was refused.
    pub(crate) fn refuse(&self, start: Instant) {
        self.times().latencies.push(ms(start, Instant::now()));
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// An application ended with an error.
    pub(crate) fn fail(&self, start: Instant, error: String) {
        {
            let mut times = self.times();
            times.latencies.push(ms(start, Instant::now()));
            times.last_error = Some(error);
        }
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The last error.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.times().last_error.clone()
    }

    /// The quantiles of the latencies.
    pub(crate) fn latency(&self) -> Latency {
        latency(&mut self.times().latencies)
    }

    /// The longest time without an accepted application from `start` on, in milliseconds. It counts
    /// to `end` only if places were left.
    pub(crate) fn stall_ms(&self, start: Instant, end: Option<Instant>) -> f64 {
        let mut instants = self.times().accepted.clone();
        instants.sort_unstable();
        instants.extend(end);
        let mut last = start;
        let mut longest = 0.0_f64;
        for instant in instants {
            longest = longest.max(ms(last, instant));
            last = instant;
        }
        longest
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The middle of some figures; the mean of the two in the middle of an even number.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let (half, odd) = (figures.len() / 2, figures.len() % 2 == 1);
    match figures.get(half) {
        None => 0.0,
        Some(middle) if odd => *middle,
        Some(middle) => f64::midpoint(figures[half - 1], *middle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let mut latencies: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let found = latency(&mut latencies);
        assert_eq!(found, Latency { p50: 100.0, p95: 190.0, p99: 198.0, longest: 200.0 });
        let one = Latency { p50: 7.0, p95: 7.0, p99: 7.0, longest: 7.0 };
        assert_eq!(latency(&mut [7.0]), one);
        let none = Latency { p50: 0.0, p95: 0.0, p99: 0.0, longest: 0.0 };
        assert_eq!(latency(&mut []), none);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_two() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn a_stall_is_the_longest_gap_between_accepted_applications() {
        let tally = Tally::default();
        let start = Instant::now();
        let ten = start + std::time::Duration::from_millis(10);
        assert!(tally.stall_ms(start, None).abs() < 1e-9);
        assert!((tally.stall_ms(start, Some(ten)) - 10.0).abs() < 1e-9);
    }
}
