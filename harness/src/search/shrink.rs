//! Makes a find small: takes away whatever is not needed for the same layer to be violated for the same
//! causes, and makes what is left easy to read.
//!
//! First whole faults are left out (delta debugging), then clients, steps, masters, options; then
//! faults get moments of the protocol for times and roles for numbers, and times become round. Each
//! of these passes proposes changes; one is kept if the scenario [weighs](weight) less with it, makes
//! sense, and shows the same [`Kind`]. So it ends, and ends the same way every time. Last, times are
//! widened until the find does not hang on its seed (`steady.rs`).
//!
//! `passes.rs` leaves out, `moments.rs` renames and rounds. What is run here is the simulation and the judge.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use super::{Found, Kind};
use crate::history::{Event, History, Phase};
use crate::judge::Verdict;
use crate::sabotage::Lie;
use crate::scenario::{Scenario, Step, makes_sense};
use crate::sim;

mod moments;
mod passes;
mod steady;
#[cfg(test)]
mod tests;
mod weight;

pub use weight::{Weight, weight};

/// How much a shrink may usually do: less than ten seconds of an optimised build.
pub const EFFORT: u64 = 3_000_000;
/// What a run costs besides its records: masters and clients that start, handshakes.
const RUN: u64 = 300;

/// How far a shrink is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// How many scenarios were tried.
    pub tries: u64,
    /// The smallest so far.
    pub best: &'a Scenario,
}

/// Shrinks a find, by the worst of its kinds. `effort` is how much may be done, in events of the
/// simulation, so that the result does not hang on the machine; see [`EFFORT`]. Who is told of the
/// progress may end it early: what there is then is the result.
pub fn shrink(
    found: &Found,
    effort: u64,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Found {
    shrink_to(found, &found.kind(), effort, progress)
}

/// The same, by another of its kinds.
pub fn shrink_to(
    found: &Found,
    kind: &Kind,
    effort: u64,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Found {
    let mut trial = Trial {
        // What breaks a lock with defences is another lesson than what breaks one without.
        defended: found.scenario.lock.guard.is_some(),
        best: found.clone(),
        masters: found.scenario.cluster.nodes.min(3),
        kind: kind.clone(),
        early: false,
        known: BTreeSet::new(),
        tries: 0,
        left: effort,
        progress,
    };
    trial.best.scenario.variants.clear();
    let start = sim::run(trial.scenario(), found.seed, found.lie);
    trial.early = is_early(&start, &found.verdict, kind);
    // The simplest seed that shows it.
    for seed in 0..8 {
        if trial.has_seed(seed) {
            break;
        }
    }
    loop {
        let before = weight(&trial.best.scenario);
        passes::all(&mut trial);
        moments::all(&mut trial);
        if weight(&trial.best.scenario) == before || trial.is_over() {
            break;
        }
    }
    steady::all(&mut trial);
    trial.best
}

/// A shrink under way.
struct Trial<'a> {
    best: Found,
    /// So many masters must be left: with fewer than three there is nothing to agree on.
    masters: usize,
    kind: Kind,
    /// Whether the lock's defences stay.
    defended: bool,
    /// Whether it went wrong while the clients worked: then it must not be the witnesses, who come after
    /// all is cured, that show it.
    early: bool,
    /// What was tried already.
    known: BTreeSet<u64>,
    tries: u64,
    left: u64,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
}

impl Trial<'_> {
    const fn is_over(&self) -> bool {
        self.left == 0
    }

    const fn scenario(&self) -> &Scenario {
        &self.best.scenario
    }

    /// Proposes another scenario, and says whether it is the best now.
    fn offer(&mut self, scenario: Scenario) -> bool {
        if weight(&scenario) >= weight(self.scenario()) || !self.is_new(&scenario) {
            return false;
        }
        match self.shows(&scenario, self.best.seed) {
            Some(found) => {
                self.best = found;
                true
            }
            None => false,
        }
    }

    /// Proposes another seed.
    fn has_seed(&mut self, seed: u64) -> bool {
        if seed == self.best.seed {
            return true;
        }
        let scenario = self.scenario().clone();
        let found = self.shows(&scenario, seed);
        found.map(|found| self.best = found).is_some()
    }

    fn is_new(&mut self, scenario: &Scenario) -> bool {
        let mut hash = DefaultHasher::new();
        // It has floating numbers, which have no hash; as text they have.
        format!("{scenario:?}").hash(&mut hash);
        self.known.insert(hash.finish()) && makes_sense(scenario) && keeps_to_leases(scenario)
    }

    /// The same kind of find in another scenario, if it is there.
    fn shows(&mut self, scenario: &Scenario, seed: u64) -> Option<Found> {
        let lie = self.best.lie;
        let history = self.run(scenario, seed, lie)?;
        let found = Found::in_history(&history, lie)?;
        if !found.kinds().contains(&self.kind)
            || self.early && !is_early(&history, &found.verdict, &self.kind)
        {
            return None;
        }
        // A lie is caught only where the truth passes.
        if lie != Lie::None {
            let honest = self.run(scenario, seed, Lie::None)?;
            if Found::in_history(&honest, Lie::None).is_some() {
                return None;
            }
        }
        Some(found)
    }

    /// Runs something, if there is effort left.
    fn run(&mut self, scenario: &Scenario, seed: u64, lie: Lie) -> Option<History> {
        if self.is_over() {
            return None;
        }
        let history = sim::run(scenario, seed, lie);
        let cost = RUN + u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(cost);
        self.tries += 1;
        let progress = Progress { tries: self.tries, best: &self.best.scenario };
        if (self.progress)(progress).is_break() {
            self.left = 0;
        }
        Some(history)
    }

    /// How long what is looked for lasts in a run, in nanoseconds; none: it is not there.
    fn lasts(&mut self, scenario: &Scenario, seed: u64) -> Option<i64> {
        let found = self.shows(scenario, seed)?;
        let lasts = found.verdict.findings.iter().map(|finding| finding.to - finding.from);
        Some(lasts.max().unwrap_or(0))
    }
}

/// Whether something of a kind went wrong before all was cured.
fn is_early(history: &History, verdict: &Verdict, kind: &Kind) -> bool {
    let healed = history.records.iter().find_map(|record| match record.event {
        Event::Phase { phase: Phase::Heal } => Some(record.ns),
        _ => None,
    });
    let healed = healed.unwrap_or(i64::MAX);
    let mut of_kind = verdict.findings.iter().filter(|finding| Kind::of(finding) == *kind);
    of_kind.any(|finding| finding.from < healed)
}

/// Whether nobody touches what a lock protects without having asked for the lock: that would be lost
/// updates of no lock's making.
fn keeps_to_leases(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| {
        // What it asked for and has not given back, handle by handle.
        let mut asked: usize = 0;
        client.script.iter().all(|step| {
            asked = (asked + step.acquires().count()).saturating_sub(step.releases().count());
            asked > 0 || !matches!(step, Step::Touch { .. })
        })
    })
}
