//! Random search: runs random scenarios on all cores, up to a number of runs or until the caller
//! stops it.
//!
//! Each run has a number. Its scenario, its random choices and therefore its result follow from
//! that number alone. The report does not depend on the order of runs: it keeps the least number
//! that showed each [`Kind`], and how often the search saw each kind and each [`Goal`]. So the same
//! seed and number of runs give the same report on any number of threads. `goals.rs` lists the
//! coverage goals that a search should reach.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::Space;
use super::{Found, Kind, in_parallel, kinds};
use redquorum_checker::{Verdict, check};
use redquorum_scenario::history::History;
use redquorum_scenario::{Mutant, Scenario};

mod goals;

pub use goals::Goal;

/// The number of runs that a thread takes at a time.
const BATCH: u64 = 32;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The space from which scenarios are drawn.
    pub space: Space,
    /// The number of the first run. Each run has the next number.
    pub seed: u64,
    /// The largest number of runs.
    pub runs: u64,
    /// Whether the clients are mutants, and which one.
    pub mutant: Mutant,
    /// Plays a run: [`redquorum_simulator::run`], or with clients of another kind.
    pub play: Play,
    /// The number of threads.
    pub jobs: usize,
}

/// Plays a run of a scenario from a seed, with the clients of a kind.
pub type Play = fn(&Scenario, u64, Mutant) -> History;

/// What the search saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of runs.
    pub runs: u64,
    /// The number of events in all runs, as a measure of their size.
    pub events: u64,
    /// The virtual time of all runs together.
    pub passed: Duration,
    /// Every kind of failure.
    pub kinds: BTreeMap<Kind, Sight>,
    /// The number of runs that reached each goal.
    pub goals: BTreeMap<Goal, u64>,
}

/// What the search saw of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The least number of a run that showed it.
    pub first: u64,
    /// The number of runs that showed it.
    pub runs: u64,
}

impl Report {
    /// The goals that no run has reached, with the `library` or with the machines.
    pub fn missed(&self, library: bool) -> impl Iterator<Item = Goal> {
        Goal::all(library).filter(|goal| !self.goals.contains_key(goal))
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.passed = self.passed.saturating_add(other.passed);
        for (kind, sight) in &other.kinds {
            let of = self.kinds.entry(kind.clone()).or_insert(Sight { runs: 0, ..*sight });
            of.first = of.first.min(sight.first);
            of.runs += sight.runs;
        }
        for (goal, runs) in &other.goals {
            *self.goals.entry(*goal).or_default() += runs;
        }
    }
}

impl Search {
    /// Runs the search. Each thread in turn passes the report so far to `go_on`, which returns
    /// whether to continue.
    pub fn run(&self, go_on: &(dyn Fn(&Report) -> bool + Sync)) -> Report {
        let batch = |batch: u64| {
            let mut own = Report::default();
            for index in batch * BATCH..self.runs.min((batch + 1) * BATCH) {
                self.one(self.seed.wrapping_add(index), &mut own);
            }
            own
        };
        let mut report = Report::default();
        in_parallel(self.jobs, self.runs.div_ceil(BATCH), batch, |_, own| {
            report.add(&own);
            go_on(&report)
        });
        report
    }

    /// Executes the run of a number.
    fn one(&self, number: u64, report: &mut Report) {
        let history = self.history(number);
        let (verdict, goals) = goals::checked(&history);
        report.runs += 1;
        report.events += u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        report.passed = report.passed.saturating_add(history.length().unwrap_or_default());
        for kind in kinds(&history.header.scenario, &verdict) {
            if self.is_wrong(&kind) {
                let sight = report.kinds.entry(kind).or_insert(Sight { first: number, runs: 0 });
                sight.runs += 1;
            }
        }
        for goal in goals {
            *report.goals.entry(goal).or_default() += 1;
        }
    }

    /// Passes the history of each run and the verdict on it to `read`, on all threads, and the
    /// result to `take`, which returns whether to continue. The runs come in no order.
    pub fn each<T>(
        &self,
        read: impl Fn(&History, &Verdict) -> T + Sync,
        mut take: impl FnMut(T) -> bool + Send,
    ) {
        let one = |index: u64| {
            let history = self.history(self.seed.wrapping_add(index));
            read(&history, &check(&history))
        };
        in_parallel(self.jobs, self.runs, one, |_, result| take(result));
    }

    /// Whether this kind is reported.
    fn is_wrong(&self, kind: &Kind) -> bool {
        if self.space.inside { !kind.is_by_design() } else { !kind.is_doubt() }
    }

    /// The find of the run with this number.
    pub fn found(&self, number: u64) -> Option<Found> {
        Found::in_history(&self.history(number), self.mutant)
    }

    /// The history of the run with this number.
    pub fn history(&self, number: u64) -> History {
        let scenario = self.space.draw(number);
        (self.play)(&scenario, number, self.mutant)
    }

    /// The first run in which something goes wrong: after how many runs, the find and its kind.
    pub fn first(&self) -> Option<(u64, Found, Kind)> {
        (0..self.runs).find_map(|index| {
            let found = self.found(self.seed.wrapping_add(index))?;
            let kind = found.kinds().into_iter().find(|kind| self.is_wrong(kind))?;
            Some((index + 1, found, kind))
        })
    }
}

/// Tests of a short search. Inside the assumptions nothing may go wrong, and mutants are found.
#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Goal, Report, Search, goals};
    use crate::Found;
    use crate::plan::Space;
    use redquorum_scenario::Mutant;
    use redquorum_scenario::embedded_runs;

    /// A search with the shipped machines.
    fn search(space: Space, runs: u64, jobs: usize) -> Search {
        Search { space, seed: 0, runs, mutant: Mutant::None, play: redquorum_simulator::run, jobs }
    }

    fn report(space: Space, runs: u64, jobs: usize) -> Report {
        search(space, runs, jobs).run(&|_| true)
    }

    #[test]
    fn the_report_does_not_hang_on_the_number_of_threads() {
        assert_eq!(report(Space::OUTSIDE, 200, 1), report(Space::OUTSIDE, 200, 3));
    }

    /// `redquorum-chaos search --runs 1 --seed NUMBER` shrinks a violation.
    #[test]
    fn inside_the_assumptions_every_goal_is_reached_and_nothing_goes_wrong() {
        let report = report(Space::INSIDE, 1_500, 2);
        assert_eq!(report.missed(false).collect::<Vec<Goal>>(), []);
        assert!(report.kinds.is_empty(), "{:#?}", report.kinds);
    }

    /// Scenarios in which the simulation or the checker was wrong, shrunk, each with its seed.
    #[test]
    fn violations_of_earlier_searches_stay_fixed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/inside/found");
        let files: Vec<_> =
            fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() > 30, "{}", files.len());
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let scenario = toml::from_str(&text).unwrap();
            let seed = text.lines().find_map(|line| line.strip_prefix("# --seed ")).unwrap();
            let found = Found::of(&scenario, seed.parse().unwrap(), Mutant::None);
            let mut kinds = found.map_or_else(Vec::new, |found| found.kinds());
            kinds.retain(|kind| !kind.is_by_design());
            assert_eq!(kinds, [], "{}", file.display());
        }
    }

    #[test]
    fn every_mutant_that_shows_inside_the_assumptions_is_found() {
        let shows = |mutant: &Mutant| *mutant != Mutant::None && mutant.shows_inside();
        let is_missed = |mutant: &Mutant| {
            let search = Search { mutant: *mutant, ..search(Space::INSIDE, 1_500, 1) };
            search.first().is_none()
        };
        let missed: Vec<Mutant> = Mutant::clients().filter(shows).filter(is_missed).collect();
        assert_eq!(missed, []);
    }

    /// A known scenario reaches exactly these goals of those about owners and multi-locks, or of
    /// those about waiters.
    #[test]
    fn goals_are_distinguished() {
        let owners = Goal::HandleLeft..=Goal::CollectUndone;
        let waiters = Goal::Woken..=Goal::FirstOverruled;
        for (about, name, goals) in [
            (&owners, "calm", &[][..]),
            (&owners, "reentry", &[Goal::Reacquired]),
            (&owners, "reentry/released-once", &[Goal::HandleLeft]),
            (&owners, "reentry/longer", &[Goal::HandleLeft, Goal::Prolonged]),
            (&owners, "several/one-taken", &[Goal::CollectUndone]),
            (&owners, "several/holder-dies", &[Goal::CollectUndone]),
            (&owners, "several/minority-silent", &[]),
            (&waiters, "one-master-hung", &[]),
            (&waiters, "wake-up-lost/calm", &[Goal::Woken]),
            (&waiters, "wake-up-lost/no-wake-up", &[Goal::Polled]),
            (&waiters, "waiter-gone/queued", &[Goal::Woken]),
            (&waiters, "waiter-gone/next-waiter", &[Goal::HandOff, Goal::HandedOffGone]),
        ] {
            for seed in 0..5 {
                let mut found = reached(name, seed);
                found.retain(|goal| about.contains(goal));
                assert_eq!(found, goals, "{name} with seed {seed}");
            }
        }
        for (name, goal) in [
            ("several", Goal::OppositeOrders),
            ("herd", Goal::Yielded),
            ("first-master/left-key", Goal::RefusedFirst),
            ("first-master/left-key", Goal::FirstOverruled),
        ] {
            for seed in 0..5 {
                assert!(reached(name, seed).contains(&goal), "{name} with seed {seed}: {goal}");
            }
        }
    }

    /// The goals that a known scenario reaches, sorted.
    fn reached(name: &str, seed: u64) -> Vec<Goal> {
        let run = embedded_runs().find(|run| run.name == name).expect("it is there");
        let (_, mut goals) = goals::checked(&redquorum_simulator::run(&run, seed, Mutant::None));
        goals.sort_unstable();
        goals
    }

    #[test]
    fn outside_of_the_assumptions_something_goes_wrong_for_a_reason() {
        let report = report(Space::OUTSIDE, 500, 2);
        assert!(!report.kinds.is_empty());
        let ours: Vec<_> = report.kinds.iter().filter(|(kind, _)| kind.is_unexplained()).collect();
        assert!(ours.is_empty(), "{ours:#?}");
    }

    #[test]
    fn a_search_stops_when_its_caller_interrupts_it() {
        let report = search(Space::INSIDE, 100_000, 2).run(&|report| report.runs < 64);
        assert!((64..1_000).contains(&report.runs), "{}", report.runs);
    }
}
