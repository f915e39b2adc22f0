//! The shipped machines, every way: clients with their claims and links, masters, and all that can
//! happen between them, within the bounds of a [`Scope`].
//!
//! What is shipped: [`Claim`] and [`Link`](redquorum_protocol::Link),
//! driven as the Tokio shell drives them. What is a model: a master is one key that is there or not;
//! a connection is two queues, of which each end moves on its own.
//!
//! | file | what it has |
//! |---|---|
//! | `scope.rs` | the bounds of a run, and the runs that are made |
//! | `caller.rs` | a client's claim, its clock, and what it believes |
//! | `side.rs` | a client's link to a master, and the connections |
//! | `master.rs` | what a master does with a command |
//! | `event.rs` | what can happen in a state |
//! | `turn.rs` | what comes of it: the driver around the machines |
//! | `local.rs` | all of one client, and what can come of it, worked out once |
//! | `rules.rs` | what must hold |
//! | `blunder.rs` | drivers that go wrong, to show that the rules see it |
//! | `fold.rs` | which states are the same: clocks shifted, masters or clients in another order |
//! | `pool.rs` | the parts of states, each kept once |
//! | `story.rs` | states and events in words |
//!
//! # Time
//!
//! **Links** stand at one instant; each of their timers may fire at any moment once it is set, in
//! whatever relation to the rest. That is more than real time allows, and nothing that links promise
//! rests on time.
//!
//! **Claims** have a clock each, which stands still, or moves to the next instant at which something
//! changes for the claim: a timer, the deadline, the earliest end of a key that it counts on, and the
//! instant before the deadline. Nothing forces it on, and nothing forces a due timer to fire before
//! whatever else happens: a client that is slow, or paused, at any point is among what is explored.
//!
//! **Masters** keep a key at least as long as its owner's clock has not passed t0 + TTL − drift of the
//! command that set it: that is what the drift allowance means (a command comes no sooner than t0, and
//! a master's clock is no faster than the drift). From then on it may expire at any moment, or never.
//! A key that its owner does not count on may expire whenever it likes. So the clocks of two clients
//! need not be compared, and any drift within the allowance is covered.

mod blunder;
mod caller;
mod event;
mod fold;
mod local;
mod master;
mod pool;
mod rules;
mod scope;
mod side;
mod story;
#[cfg(test)]
mod tests;
mod turn;

use redquorum_protocol::Claim;

pub use blunder::Blunder;
use caller::Caller;
pub use event::{Act, Deed, Event, Thing};
use local::{Known, Local};
use master::Key;
use pool::Pool;
pub use scope::{Scope, Spent, Withheld};
use side::{Entries, Side};

use super::{Broken, Explored, Fate, Model, explore};

/// Most masters, and most clients, of a scope.
const MASTERS: usize = 3;
const CLIENTS: usize = 2;

/// The model: see the [module](self).
#[derive(Debug)]
pub struct Machines {
    scope: Scope,
    blunder: Blunder,
    callers: Pool<Caller>,
    sides: Pool<(Side, Entries)>,
    locals: Pool<Local>,
    /// What is known of each local, by its number.
    known: Vec<Known>,
    withheld: Withheld,
}

/// One state: what there is of each client, by its number in the pool; the keys; what was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    locals: [u32; CLIENTS],
    keys: [Option<Key>; MASTERS],
    spent: Spent,
}

/// What a run has found.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The bounds.
    pub scope: Scope,
    /// What was found.
    pub explored: Explored,
    /// What the bounds have kept from happening.
    pub withheld: Withheld,
}

/// Explores a scope, with a driver that is right or that blunders; `most` states of it at most.
pub fn prove(scope: Scope, blunder: Blunder, most: usize) -> Proof {
    let mut machines = Machines::new(scope, blunder);
    let explored = explore(&mut machines, most);
    Proof { scope, explored, withheld: machines.withheld }
}

impl Machines {
    fn new(scope: Scope, blunder: Blunder) -> Self {
        assert!((1..=MASTERS).contains(&scope.masters) && (1..=CLIENTS).contains(&scope.clients));
        Self {
            scope,
            blunder,
            callers: Pool::new(),
            sides: Pool::new(),
            locals: Pool::new(),
            known: Vec::new(),
            withheld: Withheld::default(),
        }
    }

    fn known(&self, state: &State, client: usize) -> &Known {
        &self.known[state.locals[client] as usize]
    }

    fn caller(&self, state: &State, client: usize) -> &Caller {
        self.callers.get(self.locals.get(state.locals[client]).caller)
    }

    fn side(&self, state: &State, client: usize, master: usize) -> &(Side, Entries) {
        self.sides.get(self.locals.get(state.locals[client]).sides[master])
    }
}

impl Model for Machines {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        let local = self.first_local();
        vec![State { locals: [local; CLIENTS], keys: [None; MASTERS], spent: Spent::default() }]
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fate, Event)>) {
        self.list_events(state, out);
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.happen(state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        self.folded(state)
    }

    fn check(&mut self, state: &State) -> Result<(), Broken> {
        self.check_rules(state)
    }

    fn check_end(&mut self, state: &State) -> Result<(), Broken> {
        self.check_settled(state)
    }

    fn tell(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        self.tell_event(state, event, after)
    }

    fn show(&mut self, state: &State) -> Vec<String> {
        self.show_state(state)
    }
}

/// Whether a claim is over and nobody waits for it.
const fn is_over(claim: &Claim) -> bool {
    matches!(claim, Claim::Ended)
}
