//! The exit codes, and their precedence where several apply.

use std::process::ExitCode;

use redquorum_checker::Outcome;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    every run came out as its scenario expects (some may have been skipped)
  1    a run differs: a violation that was not expected, or one with another cause
  2    an expected violation did not show, or the record does not show it
  3    the environment: no server, no engine, nowhere to write, nothing that could be run here
  64   the command line or a scenario file is wrong
  70   a fault of this program
  130  interrupted";

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// As expected.
    AsExpected = 0,
    /// Something differs.
    Differs = 1,
    /// An expected violation was not observed, or the result is uncertain.
    NotSeen = 2,
    /// The environment.
    Environment = 3,
    /// The command line or a scenario.
    Usage = 64,
    /// A fault of this program.
    Internal = 70,
    /// Interrupted.
    Interrupted = 130,
}

/// The outcomes of all runs: how many runs ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As expected.
    pub as_expected: usize,
    /// Differs.
    pub differs: usize,
    /// Not seen.
    pub not_seen: usize,
    /// Inconclusive.
    pub inconclusive: usize,
    /// Skipped.
    pub skipped: usize,
    /// The environment failed.
    pub environment: usize,
    /// The program failed.
    pub internal: usize,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::AsExpected => self.as_expected += 1,
            Outcome::Differs => self.differs += 1,
            Outcome::NotSeen => self.not_seen += 1,
            Outcome::Inconclusive => self.inconclusive += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }

    /// The exit code. An error of the program takes precedence, because it makes all other results
    /// doubtful. An interrupt follows, because the user knows the reason. Then come 3, 1, 2 and 0.
    /// Wrong usage (64) ends the program before any run.
    pub const fn code(&self) -> Code {
        if self.internal > 0 {
            Code::Internal
        } else if self.interrupted {
            Code::Interrupted
        } else if self.environment > 0 {
            Code::Environment
        } else if self.differs > 0 {
            Code::Differs
        } else if self.not_seen > 0 || self.inconclusive > 0 {
            Code::NotSeen
        } else if self.as_expected == 0 && self.skipped > 0 {
            // If nothing ran, the result shows nothing.
            Code::Environment
        } else {
            Code::AsExpected
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_wins() {
        let none = Tally::default();
        let table = [
            (none, Code::AsExpected),
            (Tally { as_expected: 2, skipped: 3, ..none }, Code::AsExpected),
            (Tally { skipped: 3, ..none }, Code::Environment),
            (Tally { as_expected: 2, not_seen: 1, ..none }, Code::NotSeen),
            (Tally { as_expected: 2, inconclusive: 1, ..none }, Code::NotSeen),
            (Tally { not_seen: 4, differs: 1, ..none }, Code::Differs),
            (Tally { not_seen: 4, differs: 1, environment: 1, ..none }, Code::Environment),
            (Tally { differs: 1, environment: 1, interrupted: true, ..none }, Code::Interrupted),
            (Tally { as_expected: 9, interrupted: true, ..none }, Code::Interrupted),
            (Tally { differs: 1, interrupted: true, internal: 1, ..none }, Code::Internal),
        ];
        for (tally, code) in table {
            assert_eq!(tally.code(), code, "{tally:?}");
        }
    }
}
