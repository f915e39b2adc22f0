//! Tests that the model holds, and that it detects the mutants.

use std::collections::HashSet;
use std::hash::Hash;

use super::rules::*;
use super::*;

/// More states than any run in these tests has.
const MOST: usize = 1_000_000;

/// One client with every action on one lease.
const ONE: Scope = Scope {
    name: "one",
    clients: 1,
    claims: 2,
    attempts: 2,
    waits: true,
    clocks: true,
    ..Scope::CALM
};

/// One client holds the lease, and the other waits for it.
const WAITER: Scope = Scope { masters: 1, start: Start::Awaited, ..Scope::WAKES };

/// Both clients wait for the lease of another process.
const WAITERS: Scope = Scope { masters: 1, still: true, ..Scope::WAIT };

fn holds(scope: Scope) -> Explored {
    let Proof { explored, .. } = prove(scope, MachineMutant::None, MOST);
    assert!(explored.broken.is_none(), "{}: {:#?}", scope.name, explored.broken);
    assert!(explored.complete, "{}: {} states are not all", scope.name, explored.states);
    explored
}

#[test]
fn all_rules_hold_in_small_bounds() {
    for scope in Scope::SMALL {
        let explored = holds(scope);
        assert!(explored.ends > 0 && explored.states > 1_000, "{}: {explored:?}", scope.name);
    }
}

/// The rule that each mutant breaks, and the bounds in which it shows.
#[test]
fn each_blunder_breaks_the_rule_that_is_there_for_it() {
    let cut = Scope { cuts: 1, ..ONE };
    let one = Scope { masters: 1, ..cut };
    let table = [
        (MachineMutant::TakesSilenceForPaid, cut, NO_KEY_OUTLIVES_ITS_DEBT),
        (MachineMutant::LeavesTheSilent, ONE, NO_KEY_OUTLIVES_ITS_DEBT),
        (MachineMutant::LeavesTheLost, ONE, NO_KEY_OUTLIVES_ITS_DEBT),
        (MachineMutant::KillsNobody, cut, A_CLEAN_UP_COMES_BEHIND),
        (MachineMutant::CleansUpFirst, ONE, A_CLEAN_UP_COMES_BEHIND),
        (MachineMutant::SendsAgain, cut, A_TOKEN_IS_SET_ONCE),
        (MachineMutant::OneToken, ONE, A_TOKEN_IS_SET_ONCE),
        (MachineMutant::TakesSilenceForGranted, cut, A_BELIEVED_HOLD_IS_TRUE),
        (
            MachineMutant::NoDrift,
            Scope { rounds: 1, cuts: 0, claims: 1, attempts: 1, ..one },
            A_BELIEVED_HOLD_IS_TRUE,
        ),
        (
            MachineMutant::MixesRounds,
            Scope { rounds: 2, cuts: 0, claims: 1, attempts: 1, ..one },
            A_BELIEVED_HOLD_IS_TRUE,
        ),
        (MachineMutant::ExtendsByLess, Scope { rounds: 1, ..one }, A_DEADLINE_MOVES_BY_SUCCESS),
        (MachineMutant::CollectsLate, ONE, HANDED_OUT_IN_TIME),
        (MachineMutant::RevivesLost, ONE, LOST_IS_FINAL),
        (MachineMutant::NeverTriesAgain, Scope { cuts: 2, ..one }, DEBTS_ARE_PAID),
        (MachineMutant::NeverReads, ONE, "the world settles"),
        (MachineMutant::DropsWakeUps, WAITER, NO_WAITER_IS_FORGOTTEN),
        (MachineMutant::DropsLooks, Scope { words: 1, ..WAITER }, NO_WAITER_IS_FORGOTTEN),
        (MachineMutant::WakesNobody, WAITER, NO_WAITER_IS_FORGOTTEN),
        (MachineMutant::LeavesInSilence, WAITERS, NO_WAITER_IS_FORGOTTEN),
        (MachineMutant::PassesOverNobody, Scope { deaths: 1, ..WAITERS }, NO_WAITER_IS_FORGOTTEN),
        (MachineMutant::AlwaysWakes, WAITER, A_FAILURE_WAKES_NOBODY),
        (MachineMutant::NeverLeaves, WAITER, NO_POSITION_STAYS),
    ];
    for (mutant, scope, rule) in table {
        let found = prove(scope, mutant, MOST).explored.broken;
        let found = found.unwrap_or_else(|| panic!("{mutant:?} is not seen"));
        assert_eq!(found.broken.rule, rule, "{mutant:?}: {found:#?}");
    }
    let seen: Vec<MachineMutant> = table.iter().map(|(mutant, ..)| *mutant).collect();
    assert!(MachineMutant::ALL.iter().all(|mutant| seen.contains(mutant)));
}

/// A variant of the model for a test.
struct Seen<'m> {
    machines: &'m mut Machines,
    eye: Observer,
}

enum Observer {
    /// Explores every state, and records the canonical ones.
    Unfolded(HashSet<u128>),
    /// Checks only for overlaps. An overlap implies a hollow hold, which would otherwise be found
    /// first.
    OnlyOverlaps,
}

impl Model for Seen<'_> {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        self.machines.starts()
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        self.machines.events(state, out);
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.machines.step(state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        if let Observer::Unfolded(folded) = &mut self.eye {
            self.machines.scope.fold = true;
            folded.insert(self.machines.key(state));
            self.machines.scope.fold = false;
        }
        self.machines.key(state)
    }

    fn check(&mut self, state: &State) -> Result<(), Broken> {
        match (self.machines.check(state), &self.eye) {
            (Err(broken), Observer::OnlyOverlaps) if broken.rule != MUTUAL_EXCLUSION => Ok(()),
            (checked, _) => checked,
        }
    }

    fn check_end(&mut self, state: &State) -> Result<(), Broken> {
        self.machines.check_end(state)
    }

    fn tell(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        self.machines.tell(state, event, after)
    }

    fn show(&mut self, state: &State) -> Vec<String> {
        self.machines.show(state)
    }
}

#[test]
fn an_overlap_of_believed_holds_is_seen() {
    let scope = Scope { masters: 1, cuts: 1, ..Scope::CALM };
    let mut machines = Machines::new(scope, MachineMutant::TakesSilenceForGranted);
    let found = explore(&mut Seen { machines: &mut machines, eye: Observer::OnlyOverlaps }, MOST);
    let found = found.broken.expect("it is seen");
    assert_eq!(found.broken.rule, MUTUAL_EXCLUSION, "{found:#?}");
    let told = |text: &str| found.story.iter().any(|line| line.contains(text));
    assert!(told("c1 holds the lease") && told("c2 holds the lease"), "{found:#?}");
}

#[test]
fn folding_finds_the_same_states_once_for_each_order() {
    let whole = Scope { reduce: false, ..Scope::CALM };
    let scopes = [
        Scope { masters: 2, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, masters: 2, rounds: 1, ..whole },
        Scope { start: Start::Nothing, clocks: false, cuts: 1, reduce: false, ..WAITER },
    ];
    for scope in scopes {
        let folded = holds(scope);
        let unfolded = Scope { fold: false, ..scope };
        let mut machines = Machines::new(unfolded, MachineMutant::None);
        let eye = Observer::Unfolded(HashSet::new());
        let mut all = Seen { machines: &mut machines, eye };
        let found = explore(&mut all, MOST);
        let Observer::Unfolded(all) = all.eye else { unreachable!("it is the one above") };
        assert!(found.complete && found.broken.is_none(), "{found:?}");
        assert!(found.states > folded.states, "{scope:?}");
        assert_eq!(all.len(), folded.states, "{scope:?}");
    }
}

#[test]
fn what_is_taken_alone_leaves_out_no_end() {
    for scope in [
        Scope { masters: 2, cuts: 1, ..Scope::CALM },
        Scope { clients: 1, cuts: 1, errors: 1, masters: 2, ..Scope::CALM },
        Scope { words: 1, ..WAITER },
    ] {
        let (reduced, whole) = (holds(scope), holds(Scope { reduce: false, ..scope }));
        assert!(reduced.states < whole.states);
        assert_eq!(reduced.ends, whole.ends, "{scope:?}");
    }
}

/// The hasher recognizes the form of a claim's hash: it finds each vote list of a claim.
#[test]
fn a_hash_has_as_many_ballots_as_its_claim() {
    let lease =
        Scope { masters: 2, rounds: 2, release: true, clients: 1, clocks: true, ..Scope::CALM };
    let waiter = Scope { release: true, words: 1, ..WAITER };
    let mut seen = [0; 3];
    for scope in [lease, waiter] {
        let mut machines = Machines::new(scope, MachineMutant::None);
        assert!(explore(&mut machines, MOST).complete);
        for caller in machines.callers.all() {
            let mut fold = canonical::Canonical::at(caller.clock);
            caller.claim.hash(&mut fold);
            let (kind, least, most) = match &caller.claim {
                Claim::Acquiring(_) => (0, 1, 1),
                // With the round before, if the holder asked for it.
                Claim::Holding(_) => (1, 1, 2),
                Claim::Releasing(_) => (2, 1, 1),
                Claim::Ended => continue,
            };
            seen[kind] += 1;
            assert!((least..=most).contains(&fold.ballots()), "{caller:?}");
        }
    }
    assert!(seen.iter().all(|of| *of > 0), "{seen:?}");
}
