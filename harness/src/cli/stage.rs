//! Where scenarios are run: real masters, or in tests whatever plays them.

use std::time::Duration;

use crate::history::History;
use crate::real::lateness::Lateness;
use crate::real::{Failure, Ground};
use crate::scenario::Scenario;

/// What can run scenarios, several at once.
pub trait Stage: Sync {
    /// What it is, and why it was chosen.
    fn describe(&self) -> String;

    /// `process`, `container`, ….
    fn backend(&self) -> &str;

    /// Whether a scenario can be run here.
    ///
    /// # Errors
    /// Why not.
    fn can(&self, scenario: &Scenario) -> Result<(), String>;

    /// Runs one of a scenario's [runs](Scenario::runs), and says how far it is.
    ///
    /// # Errors
    /// Why it was not run to its end.
    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure>;

    /// Watches from here on how late this machine runs what is due: the most so far. Nothing is late in
    /// virtual time.
    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        Box::new(|| Duration::ZERO)
    }
}

impl Stage for Ground {
    fn describe(&self) -> String {
        Self::describe(self)
    }

    fn backend(&self) -> &str {
        Self::backend(self)
    }

    fn can(&self, scenario: &Scenario) -> Result<(), String> {
        Self::can(self, scenario)
    }

    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure> {
        Self::run(self, scenario, seed, progress)
    }

    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        if self.backend() == "sim" {
            return Box::new(|| Duration::ZERO);
        }
        let lateness = Lateness::watch();
        Box::new(move || lateness.worst())
    }
}
