//! What the applicants of each workload do.

use crate::results::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) recruitments: i64,
    pub(crate) capacity: i64,
    /// Applicants, or users who apply again and again.
    pub(crate) applicants: i64,
    /// Whether each applies once, all at the same time.
    pub(crate) at_once: bool,
}

impl Workload {
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
