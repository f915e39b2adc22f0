//! Shrinks a find: removes everything that is not needed for the same property to be violated for
//! the same causes, and makes the rest easy to read.
//!
//! First the shrinker edits the tape (`tape.rs`) from which the scenario was drawn, as
//! Hypothesis does: it empties spans, leaves out what a random run never leaves out, and lowers
//! choices. An edit is kept if the scenario is not larger, is valid, and shows the same
//! [`Kind`]. An edit only lowers choices, so the shrinker ends, and ends the same way every time.
//! Nothing here depends on what is drawn: a new choice of the generator is shrunk like all others.
//!
//! Then `readable.rs` names moments and roles instead of times and numbers, and rounds times.
//! Finally, it widens times until the find no longer depends on its seed.
//!
//! Each try runs the simulation and the checkers.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use super::{Found, Kind};
use crate::plan::{self, Space};
use crate::tape::{Symbol, Tape, What, end_of};
use redquorum_checker::Verdict;
use redquorum_scenario::history::{Event, History, Phase};
use redquorum_scenario::{
    Client, Fault, FaultKind, Mutant, NodeFault, Rounds, Scenario, Step, makes_sense,
};

mod readable;
#[cfg(test)]
mod tests;

/// The usual limit of a shrink's work: less than ten seconds of an optimised build.
pub const EFFORT: u64 = 3_000_000;
/// The cost of a run in addition to its records: masters and clients that start, handshakes.
const RUN: u64 = 300;

/// The progress of a shrink.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The number of scenarios tried so far.
    pub tries: u64,
    /// The smallest scenario so far.
    pub best: &'a Scenario,
}

/// Shrinks a find, by one of its kinds. It was drawn from this space, from the number that is its
/// seed. No space: it was not drawn, and only faults, clients and steps are left out.
///
/// `effort` limits the work, in events of the simulation, so that the result does not depend on the
/// machine; see [`EFFORT`]. The progress callback may end the shrink early; then the result is the
/// smallest scenario so far.
pub fn shrink_to(
    space: Option<Space>,
    found: &Found,
    kind: &Kind,
    effort: u64,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Found {
    let start = found.scenario.clone();
    let read = |tape: &mut Tape| match space {
        Some(space) => space.read(tape),
        None => {
            let mut scenario = start.clone();
            plan::leave_out(tape, &mut scenario);
            scenario
        }
    };
    let mut tape = Tape::of_seed(found.seed);
    let drawn = read(&mut tape);
    debug_assert_eq!(drawn, start, "it is not the run of its number");
    let history = redquorum_simulator::run(&start, found.seed, found.mutant);
    let mut trial = Trial {
        read: &read,
        early: is_early(&history, &found.verdict, kind),
        start: &start,
        best: found.clone(),
        tape: tape.written(),
        wanted: 0,
        kind: kind.clone(),
        known: BTreeSet::new(),
        tries: 0,
        left: effort,
        progress,
    };
    // Looks for the simplest seed that shows the find.
    for seed in 0..8 {
        if trial.has_seed(seed) {
            break;
        }
    }
    loop {
        let before = trial.tape.clone();
        // Faults and clients first, then steps and masters, then all else. What is left of the
        // latter may be what the former need.
        for wanted in [2, 4, 0] {
            trial.wanted = wanted;
            trial.leave_out();
            trial.empty();
            if wanted != 2 {
                trial.fewer_masters();
                trial.lower();
            }
        }
        if trial.tape == before || trial.is_over() {
            break;
        }
    }
    readable::to_moments(&mut trial);
    readable::to_steady(&mut trial);
    trial.best
}

/// A shrink in progress.
struct Trial<'a> {
    /// The scenario of a tape.
    read: &'a dyn Fn(&mut Tape) -> Scenario,
    /// The scenario that was found.
    start: &'a Scenario,
    best: Found,
    /// The tape from which the best scenario is drawn.
    tape: Vec<Symbol>,
    /// The first so many components of its size must fall with the next edit; 0: none must.
    wanted: usize,
    kind: Kind,
    /// Whether it went wrong while the clients worked. Then the final acquires, which come after
    /// all faults are healed, must not be what shows it.
    early: bool,
    /// The hashes of the tapes and scenarios that are not the best, and cannot become it.
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

    /// Proposes another tape, and returns whether it is the best now.
    fn edit(&mut self, symbols: Vec<Symbol>) -> bool {
        let id = id_of(&symbols);
        if self.known.contains(&id) {
            return false;
        }
        let mut tape = Tape::replay(symbols);
        let scenario = (self.read)(&mut tape);
        let tape = tape.written();
        let (now, then) = (size(self.scenario()), size(&scenario));
        let order_of_tapes = || tape.iter().map(order).cmp(self.tape.iter().map(order));
        let is_less = then.cmp(&now).then_with(order_of_tapes).is_lt();
        if is_less && scenario == *self.scenario() {
            self.tape = tape;
            return true;
        }
        if is_less && self.wanted > 0 && then[..self.wanted] >= now[..self.wanted] {
            return false;
        }
        let is_better = is_less && self.offer(&scenario);
        if is_better {
            self.tape = tape;
        } else {
            self.known.insert(id);
        }
        is_better
    }

    /// Proposes another scenario, and returns whether it is the best now.
    fn offer(&mut self, scenario: &Scenario) -> bool {
        // A scenario contains floating-point numbers, which have no hash. Its text has one.
        if !self.known.insert(id_of(&format!("{scenario:?}"))) || !self.may_become(scenario) {
            return false;
        }
        let found = self.shows(scenario, self.best.seed);
        found.map(|found| self.best = found).is_some()
    }

    /// Proposes to empty each span, those around others first.
    fn empty(&mut self) {
        let mut open = 0;
        while open < self.tape.len() {
            let own = match self.tape[open] {
                Symbol::Open => open + 1..end_of(&self.tape, open),
                _ => open..open,
            };
            let is_more = |symbol: &Symbol| matches!(symbol, Symbol::Choice(1.., what) if *what != What::Time);
            if self.tape[own.clone()].iter().any(is_more) {
                let mut less = self.tape.clone();
                less.drain(own);
                self.edit(less);
            }
            open += 1;
        }
    }

    /// Proposes to leave out elements that stand side by side: many, then fewer, finally each one.
    fn leave_out(&mut self) {
        let is_kept = |symbol: &Symbol| *symbol == Symbol::Choice(1, What::Kept);
        let mut from = 0;
        while from < self.tape.len() {
            let mut size = self.tape[from..].iter().take_while(|symbol| is_kept(symbol)).count();
            let behind = from + size.max(1);
            while size > 0 {
                for at in from..=behind - size {
                    let mut less = self.tape.clone();
                    less[at..at + size].fill(Symbol::Choice(0, What::Kept));
                    self.edit(less);
                }
                size -= size.div_ceil(8);
            }
            from = behind;
        }
    }

    /// Proposes fewer masters. What hits one of the others hits none, or the last one that is left.
    fn fewer_masters(&mut self) {
        for masters in 1..self.scenario().cluster.nodes as u64 {
            let mut less = self.tape.clone();
            let mut gone = less.clone();
            for at in 0..less.len() {
                match less[at] {
                    Symbol::Choice(_, What::Masters) => {
                        less[at] = Symbol::Choice(masters, What::Masters);
                        gone[at] = less[at];
                    }
                    Symbol::Choice(number, What::Master) if number > masters => {
                        gone[at - 1] = Symbol::Choice(0, What::Kept);
                    }
                    _ => {}
                }
            }
            if self.edit(gone) || self.edit(less) {
                return;
            }
        }
    }

    /// Proposes simpler values for each choice.
    fn lower(&mut self) {
        for at in 0..self.tape.len() {
            let Some(Symbol::Choice(value, what)) = self.tape.get(at).copied() else { continue };
            // A time makes no scenario smaller.
            if self.wanted > 0 && what == What::Time {
                continue;
            }
            let _ = simpler(value, what).into_iter().any(|simpler| {
                let mut less = self.tape.clone();
                less[at] = Symbol::Choice(simpler, what);
                self.edit(less)
            });
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

    /// Whether the find may become this scenario, if that shows it.
    fn may_become(&self, scenario: &Scenario) -> bool {
        let loses_power =
            |fault: &Fault| matches!(fault.kind, FaultKind::Node(NodeFault::PowerLoss));
        // A violation of a lock with defences is another find than one of a lock without, and a
        // disk that lost the end of its data another than no disk.
        scenario.lock.guard.is_some() == self.start.lock.guard.is_some()
            && (scenario.cluster.persistence == self.start.cluster.persistence
                || !scenario.faults.iter().any(loses_power))
            // With fewer masters there is nothing to agree on.
            && scenario.cluster.nodes >= self.start.cluster.nodes.min(3)
            && makes_sense(scenario)
            && keeps_to_leases(scenario)
    }

    /// The same kind of violation in another scenario, if it is there.
    fn shows(&mut self, scenario: &Scenario, seed: u64) -> Option<Found> {
        let mutant = self.best.mutant;
        let history = self.run(scenario, seed, mutant)?;
        let found = Found::in_history(&history, mutant)?;
        if !found.kinds().contains(&self.kind)
            || self.early && !is_early(&history, &found.verdict, &self.kind)
        {
            return None;
        }
        // A mutant is detected only by a scenario that passes without the mutation.
        if mutant != Mutant::None {
            let honest = self.run(scenario, seed, Mutant::None)?;
            if Found::in_history(&honest, Mutant::None).is_some() {
                return None;
            }
        }
        Some(found)
    }

    /// Runs a scenario, if there is effort left.
    fn run(&mut self, scenario: &Scenario, seed: u64, mutant: Mutant) -> Option<History> {
        if self.is_over() {
            return None;
        }
        let history = redquorum_simulator::run(scenario, seed, mutant);
        let cost = RUN + u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(cost);
        self.tries += 1;
        let progress = Progress { tries: self.tries, best: &self.best.scenario };
        if (self.progress)(progress).is_break() {
            self.left = 0;
        }
        Some(history)
    }

    /// How long the violation lasts in a run, in nanoseconds; none if it does not occur.
    fn lasts(&mut self, scenario: &Scenario, seed: u64) -> Option<i64> {
        let found = self.shows(scenario, seed)?;
        let lasts = found.verdict.findings.iter().map(|finding| finding.to - finding.from);
        Some(lasts.max().unwrap_or(0))
    }
}

/// Whether something of a kind went wrong before all faults were healed.
fn is_early(history: &History, verdict: &Verdict, kind: &Kind) -> bool {
    let healed = history.records.iter().find_map(|record| match record.event {
        Event::Phase { phase: Phase::Heal } => Some(record.ns),
        _ => None,
    });
    let healed = healed.unwrap_or(i64::MAX);
    let mut of_kind = verdict.findings.iter().filter(|finding| Kind::of(finding) == *kind);
    of_kind.any(|finding| finding.from < healed)
}

/// Whether each client asks for the lock before it touches the protected register. Otherwise
/// updates would be lost without any fault of the lock.
fn keeps_to_leases(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| {
        // The number of acquires that were requested and not released, handle by handle.
        let mut asked: usize = 0;
        client.script.iter().all(|step| {
            asked = (asked + step.acquires().count()).saturating_sub(step.releases().count());
            asked > 0 || !matches!(step, Step::Touch { .. })
        })
    })
}

fn id_of(value: &impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    value.hash(&mut hash);
    hash.finish()
}

/// The order of a choice among its alternatives, the simplest first.
fn order(symbol: &Symbol) -> (u64, u64) {
    match symbol {
        Symbol::Choice(value, What::Time) => (roughness(*value), *value),
        Symbol::Choice(value, _) => (*value, 0),
        Symbol::Close => (u64::MAX, 0),
        Symbol::Open => (u64::MAX, 1),
    }
}

/// The values that are tried for a choice, in this order.
fn simpler(value: u64, what: What) -> Vec<u64> {
    let is_simpler =
        |other: &u64| order(&Symbol::Choice(*other, what)) < order(&Symbol::Choice(value, what));
    let mut tried: Vec<u64> = match what {
        What::Kept => vec![0],
        What::Masters | What::Master => Vec::new(),
        What::Index => [0, 1, 2, 4, 8, value / 2, value.saturating_sub(1)].into(),
        // Not the least: that just suffices, and depends on microseconds.
        What::Time => {
            let round = |unit: u64| [value.next_multiple_of(unit), value / unit * unit];
            ROUND.into_iter().flat_map(round).filter(|time| *time > 0).collect()
        }
    };
    tried.dedup();
    tried.into_iter().filter(is_simpler).collect()
}

/// The values to which times are rounded, the roundest first.
const ROUND: [u64; 13] = [10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1];

/// How far a number is from a simple one: 0 for 0, 1 for 1, 2 and 5 with zeros behind them, else
/// twice the number of the remaining digits.
fn roughness(number: u64) -> u64 {
    if number == 0 {
        return 0;
    }
    let mut number = number;
    while number.is_multiple_of(10) {
        number /= 10;
    }
    if matches!(number, 1 | 2 | 5) { 1 } else { 2 * (u64::from(number.ilog10()) + 1) }
}

/// The size of a scenario, most significant first: faults, clients, steps, masters.
type Size = [usize; 4];

fn size(scenario: &Scenario) -> Size {
    // Repeated steps count each time, up to a limit.
    let steps = |client: &Client| {
        let repeats = match client.rounds {
            None => 0,
            Some(Rounds::Times(times)) => 1 + times.min(50) as usize,
            Some(Rounds::For(_)) => 60,
        };
        client.script.len() + repeats
    };
    [
        scenario.faults.len(),
        scenario.clients.len(),
        scenario.clients.iter().map(steps).sum(),
        scenario.cluster.nodes,
    ]
}
