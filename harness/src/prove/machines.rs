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
//!
//! # Waiting
//!
//! Each master has a queue, in which a waiter keeps the position that it was given. A position is lost when the
//! waiter leaves, when a wake-up reaches no connection, or, as a fault, at any moment: it lapses. A wake-up
//! reaches its client in order with the answers on the connection, late, or, as a fault, never. Each client has
//! one claim that waits, and one ticket.
//!
//! What masters report as left of another's key is one duration, since clocks are not compared: the TTL, or,
//! where wake-ups are lost, longer than the sleep before a look. A key is *given back* when it is deleted and its
//! token was on a quorum of masters at once, unless its own attempt was refused by its votes. That, and not
//! which wake-ups were sent, is what must wake a waiter.
//!
//! Two waiters in one queue need a third process that holds the lease. It has no machines: its keys are
//! there at the start, and masters execute its clean-ups one after the other ([`Start::Others`]).

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
use master::{Key, Queue, STRANGER};
use pool::Pool;
pub use scope::{Scope, Spent, Start, Withheld};
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
    queues: [Queue; MASTERS],
    spent: Spent,
    /// Where claims are woken: the tokens of each client that were on a quorum of masters at once.
    held: [u8; CLIENTS],
    /// The masters on which such a key was deleted, unless its attempt was refused by what its votes said,
    /// and none was set since.
    given_back: u8,
    /// The masters among these that each client has looked at while they were a quorum.
    looked: [u8; CLIENTS],
    /// The clients whose wake-up was lost, or may have been: it was lost itself, or another client that has died
    /// or was cut off had it.
    lossy: u8,
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

    /// As the scope has it before anything is explored: clients ask one after the other, and masters
    /// answer at once.
    fn prepare(&mut self, mut state: State) -> State {
        let until: &[fn(&Known) -> bool] = match self.scope.start {
            Start::Nothing => &[],
            Start::Held => &[holds],
            Start::Awaited => &[holds, waits],
            Start::Others => &[waits, waits],
        };
        for (client, done) in until.iter().enumerate() {
            let mut events = Vec::new();
            while !done(self.known(&state, client)) {
                events.clear();
                self.list_events(&state, &mut events);
                let mut events = events.iter().map(|(_, event)| *event);
                let next = events.find(|event| self.leads_on(&state, client, *event));
                let next = next.expect("it comes to what it wants");
                state = self.happen(&state, next).expect("no rule is broken on the way");
            }
        }
        state
    }

    /// Whether this is a client's claim going on, with nothing going wrong.
    fn leads_on(&self, state: &State, client: usize, event: Event) -> bool {
        let Event::Move(of, index) = event else { return false };
        let moves = self.known(state, client).moves();
        usize::from(of) == client
            && matches!(
                moves[usize::from(index)].deed,
                Deed::Act(Act::Acquire | Act::Collect)
                    | Deed::Between(_, Thing::Execute(_) | Thing::Hear)
            )
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
        let (others, masters) = (self.scope.start == Start::Others, self.scope.masters);
        let held = |master| (others && master < masters).then_some(STRANGER);
        let nothing = State {
            locals: [local; CLIENTS],
            keys: std::array::from_fn(held),
            queues: [Queue::default(); MASTERS],
            spent: Spent::default(),
            held: [0; CLIENTS],
            given_back: 0,
            looked: [0; CLIENTS],
            lossy: 0,
        };
        let start = self.prepare(nothing);
        // The first client is first in the first queue, and either in the others.
        let turned = |which: usize| {
            let mut start = start;
            let others = (0..masters).filter(|master| which >> master & 1 == 1);
            others.for_each(|master| start.queues[master].rotate());
            start
        };
        let starts = if others { 1 << masters } else { 1 };
        (0..starts).step_by(2).map(turned).collect()
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

const fn holds(known: &Known) -> bool {
    known.believed.is_some()
}

/// Whether a claim sleeps, and nothing is under way between it and masters.
fn waits(known: &Known) -> bool {
    known.sleeps.is_some() && known.quiet.count_ones() as usize == MASTERS
}
