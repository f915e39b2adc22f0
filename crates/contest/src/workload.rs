//! What the applicants of each workload do.

use crate::results::Workload;

/// The recruitments and the applicants of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// How many recruitments there are.
    pub(crate) recruitments: i64,
    /// The places of each.
    pub(crate) capacity: i64,
    /// Applicants, or users who apply again and again.
    pub(crate) applicants: i64,
    /// Whether each applies once, all at the same time.
    pub(crate) at_once: bool,
}

impl Workload {
    /// Its recruitments and applicants.
    pub(crate) const fn shape(self) -> Shape {
        const MILLION: i64 = 1_000_000;
        let (recruitments, capacity, applicants, at_once) = match self {
            Self::Rush => (1, 50, 100, true),
            Self::LastPlace => (1, 1, 2, true),
            Self::Throughput => (1, MILLION, 20, false),
            Self::Spread => (1_000, MILLION, 20, false),
        };
        Shape { recruitments, capacity, applicants, at_once }
    }
}

/// Zipf's law over `1..=count`: the probability of rank `k` is proportional to `1 / k`.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    /// The sums of the probabilities up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    /// The distribution over so many ranks.
    pub(crate) fn new(count: i64) -> Self {
        let mut total = 0.0;
        let mut sums: Vec<f64> = Vec::new();
        let mut rank = 1.0;
        for _ in 0..count {
            total += 1.0 / rank;
            rank += 1.0;
            sums.push(total);
        }
        sums.iter_mut().for_each(|sum| *sum /= total);
        Self { sums }
    }

    /// The rank, counted from 0, for a number in `0.0..1.0`.
    pub(crate) fn rank(&self, number: f64) -> i64 {
        let rank = self.sums.partition_point(|sum| *sum <= number).min(self.sums.len() - 1);
        i64::try_from(rank).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_zipf_is_twice_as_likely_as_the_second() {
        let zipf = Zipf::new(1_000);
        // The 1 000th harmonic number is 7.485…
        let first = 1.0 / 7.485_470_860_550_345;
        assert_eq!(zipf.rank(0.0), 0);
        assert_eq!(zipf.rank(first - 1e-9), 0);
        assert_eq!(zipf.rank(first + 1e-9), 1);
        assert_eq!(zipf.rank(first * 1.5 + 1e-9), 2);
        assert_eq!(zipf.rank(1.0 - 1e-12), 999);
        assert_eq!(zipf.rank(1.0), 999);
    }
}
