//! The interface of the backends that run scenarios: real masters, the simulation, or a double in
//! tests.

use std::time::Duration;

use crate::history::History;
use crate::real::lateness::Lateness;
use crate::real::{Failure, RealBackend};
use crate::scenario::Scenario;

/// A backend that runs scenarios, several of them at once.
pub trait ScenarioRunner: Sync {
    /// A description of the backend, and why it was chosen.
    fn describe(&self) -> String;

    /// `process`, `container`, ….
    fn backend(&self) -> &str;

    /// Whether this backend can run a scenario.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn can(&self, scenario: &Scenario) -> Result<(), String>;

    /// Runs one of a scenario's [runs](Scenario::runs), and reports its progress.
    ///
    /// # Errors
    ///
    /// Why it did not run to its end.
    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure>;

    /// Whether the backend runs in virtual time.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Starts to measure how late this machine runs what is due. The function returns the longest
    /// delay so far. In virtual time nothing is late.
    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        Box::new(|| Duration::ZERO)
    }
}

impl ScenarioRunner for RealBackend {
    fn is_virtual(&self) -> bool {
        Self::is_virtual(self)
    }

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
        if self.is_virtual() {
            return Box::new(|| Duration::ZERO);
        }
        let lateness = Lateness::watch();
        Box::new(move || lateness.worst())
    }
}
