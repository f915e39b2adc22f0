//! The answer to a situation, with the figures that it rests on.

use std::fmt;

use super::situation::Situation;

/// A row of the decision table.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The situation.
    pub situation: Situation,
    /// The answer.
    pub answer: Answer,
    /// The figures behind the answer, one short statement each.
    pub evidence: Vec<String>,
}

/// The answer to a situation.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Use this strategy.
    Use {
        /// The name of the strategy.
        strategy: String,
        /// Its throughput as a ratio to the baseline, without added latency.
        ratio: Option<f64>,
    },
    /// No strategy of the contest is correct in this situation.
    NoStrategy,
    /// The contest lacks runs that the answer depends on.
    Incomplete {
        /// The missing runs.
        missing: Vec<MissingRun>,
    },
}

impl Answer {
    /// The command of a contest that has the missing runs. It makes all of them: figures of
    /// different contests cannot be compared.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let Self::Incomplete { missing } = self else { return None };
        // Another contest on the same servers does not change a reason.
        let runs = missing.iter().filter(|it| it.reason.is_none());
        runs.fold(None, |command, it| {
            let command = command.unwrap_or_else(|| "cargo contest".to_owned());
            Some(if it.is_fault { format!("{command} --fault {}", it.run) } else { command })
        })
    }
}

/// Runs that a contest lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRun {
    /// The name of the workload or of the fault.
    pub run: &'static str,
    /// Whether `run` names a fault.
    pub is_fault: bool,
    /// The strategies without this run.
    pub strategies: Vec<String>,
    /// The reason, where the contest has one: not offered, or an error.
    pub reason: Option<String>,
}

impl MissingRun {
    /// Adds a run, and merges it with one that differs only in its strategy.
    pub(super) fn add(self, to: &mut Vec<Self>) {
        let same = to.iter_mut().find(|it| it.run == self.run && it.reason == self.reason);
        match same {
            Some(same) => same.strategies.extend(self.strategies),
            None => to.push(self),
        }
    }
}

impl fmt::Display for MissingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, strategies, reason, .. } = self;
        write!(f, "{run} of {}", strategies.join(", "))?;
        reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use { strategy, .. } => f.write_str(strategy),
            Self::NoStrategy => f.write_str("no strategy"),
            Self::Incomplete { missing } => {
                f.write_str("missing: ")?;
                for (index, run) in missing.iter().enumerate() {
                    write!(f, "{}{run}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}
