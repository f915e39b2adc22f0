//! The worst of a set of runs: what was violated, and how long the applicants waited.

use crate::results::{Figures, Outcome, Run, Workload};

/// From this time on, in milliseconds, a time without any accepted application is called a stall.
///
/// Shorter times occur without a fault too, when processors are busy.
pub const STALL_MS: f64 = 500.0;

/// How far a result is from the correct one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Violations {
    /// The rows beyond the places.
    pub oversold: u64,
    /// The difference between the rows and the counter.
    pub lost_updates: u64,
    /// The places that are free although an applicant was not accepted.
    pub unsold: u64,
}

impl Violations {
    /// Compares the rows and the counter in the database with the correct ones.
    ///
    /// The strategy's own bookkeeping is not consulted: a wrong strategy does not notice its
    /// violations.
    #[must_use]
    pub fn of(workload: Workload, figures: &Figures) -> Self {
        // In a rush the next applicant takes the place of an application that fails. In a timed
        // run no other applicant applies for it, so that a failed application is no free place.
        let serious = match workload {
            Workload::Rush | Workload::LastPlace => figures.applications,
            Workload::Throughput | Workload::Spread => {
                figures.applications.saturating_sub(figures.errors)
            }
        };
        Self {
            oversold: figures.oversold.max(figures.rows.saturating_sub(figures.places)),
            lost_updates: figures.lost_updates.max(figures.rows.abs_diff(figures.counter)),
            unsold: serious.min(figures.places).saturating_sub(figures.rows),
        }
    }

    /// Whether the result is the correct one.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether data is wrong. A free place is not: its applicant can apply again.
    #[must_use]
    pub fn corrupts(self) -> bool {
        self.oversold > 0 || self.lost_updates > 0
    }

    /// The larger of each violation.
    #[must_use]
    pub fn worst(self, other: Self) -> Self {
        Self {
            oversold: self.oversold.max(other.oversold),
            lost_updates: self.lost_updates.max(other.lost_updates),
            unsold: self.unsold.max(other.unsold),
        }
    }

    /// The violations in words, the worst first, for example `oversold by 3`, `41 lost updates`.
    #[must_use]
    pub fn parts(self) -> Vec<String> {
        let Self { oversold, lost_updates, unsold } = self;
        let mut parts = Vec::new();
        if oversold > 0 {
            parts.push(format!("oversold by {oversold}"));
        }
        if lost_updates > 0 {
            let noun = if lost_updates == 1 { "lost update" } else { "lost updates" };
            parts.push(format!("{lost_updates} {noun}"));
        }
        if unsold > 0 {
            let noun = if unsold == 1 { "place" } else { "places" };
            parts.push(format!("{unsold} {noun} left free"));
        }
        parts
    }

    /// The violations in words, for example `oversold by 3 and 41 lost updates`.
    #[must_use]
    pub fn describe(self) -> String {
        self.parts().join(" and ")
    }
}

/// What a set of runs shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All runs ended with the correct rows and counter.
    Correct,
    /// At least one run did not. These are the largest violations.
    Wrong(Violations),
    /// The database or the strategy cannot show it, for this reason.
    NotOffered(String),
    /// No run was wrong, but at least one ended early with this error.
    Failed(String),
    /// There is no such run.
    NotRun,
}

/// The worst of a set of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    /// The runs with figures.
    pub measured: usize,
    /// The runs with figures whose result is not correct.
    pub wrong: usize,
    /// The largest violations.
    pub violations: Violations,
    /// The longest time without an accepted application, in milliseconds.
    pub longest_stall_ms: f64,
    /// The error of the first run that failed.
    pub failed: Option<String>,
    /// The reason of the first run that is not offered.
    pub not_offered: Option<String>,
}

impl RunSummary {
    /// Summarizes runs of one strategy.
    #[must_use]
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut summary = Self::default();
        for run in runs {
            match &run.outcome {
                Outcome::Measured(figures) => {
                    let violations = Violations::of(run.workload, figures);
                    summary.measured += 1;
                    summary.wrong += usize::from(!violations.is_none());
                    summary.violations = summary.violations.worst(violations);
                    summary.longest_stall_ms = summary.longest_stall_ms.max(figures.stall_ms);
                }
                Outcome::NotOffered { reason } => {
                    summary.not_offered.get_or_insert_with(|| reason.clone());
                }
                Outcome::Failed { error } => {
                    summary.failed.get_or_insert_with(|| error.clone());
                }
            }
        }
        summary
    }

    /// What the runs show. One wrong run outweighs all others.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.wrong > 0 {
            return Verdict::Wrong(self.violations);
        }
        match (&self.failed, &self.not_offered) {
            (Some(error), _) => Verdict::Failed(error.clone()),
            (None, _) if self.measured > 0 => Verdict::Correct,
            (None, Some(reason)) => Verdict::NotOffered(reason.clone()),
            (None, None) => Verdict::NotRun,
        }
    }

    /// The longest stall in milliseconds, if it is long enough to be called one.
    #[must_use]
    pub fn stall_ms(&self) -> Option<f64> {
        (self.longest_stall_ms >= STALL_MS).then_some(self.longest_stall_ms)
    }
}
