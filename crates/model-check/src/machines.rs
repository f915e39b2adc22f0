//! The model of the shipped machines: clients with their claims and links, masters, and every
//! interleaving of events between them, within the bounds of a [`Scope`].
//!
//! The shipped parts are [`Claim`] and [`Link`](redquorum_protocol::Link), driven as the Tokio
//! shell drives them. The rest is modelled: a master is one key, with its holders, and a queue of
//! waiters; a connection is two queues, whose ends move independently.
//!
//! | file | contents |
//! |---|---|
//! | `scope.rs` | the bounds of a run, and the list of runs |
//! | `caller.rs` | a client: its claim, its clock, what it believes; its successors, computed once |
//! | `connection.rs` | a client's link to a master, and the connections |
//! | `master.rs` | the commands of a master, and their replies |
//! | `event.rs` | the events that can happen in a state; states and events in words |
//! | `turn.rs` | the driver around the machines: the state after an event |
//! | `rules.rs` | the rules that must hold |
//! | `canonical.rs` | the canonical form of states: clocks shifted, masters or clients reordered |
//!
//! `docs/evidence.md` describes how the model treats time and waiting. The reasons:
//!
//! **Links** stay at one instant, and their timers fire at any time once they are set. That is more
//! than real time allows, and no guarantee of links depends on time.
//!
//! **Claims** have a clock each, which nothing forces to move. So the exploration includes clients
//! that are slow or paused at any point.
//!
//! **Masters** keep a key at least until its owner's clock has passed t0 + TTL − drift of the
//! command that set it: a command arrives no sooner than t0, and a master's clock is no faster than
//! the drift. So the clocks of two clients need no comparison, and the model covers any drift
//! within the allowance. For the same reason masters report one duration as the remaining time of
//! another client's key.
//!
//! Two waiters in one queue need a third process that holds the lease. It has no machines: its keys
//! are there at the start, and masters execute its clean-ups one after the other
//! ([`Start::Others`]).

mod caller;
mod canonical;
mod connection;
mod event;
mod master;
pub(super) mod rules;
mod scope;
#[cfg(test)]
mod tests;
mod turn;

use redquorum_protocol::Claim;

use caller::{Caller, Known, Local, Pool};
use connection::{Connection, Entries};
pub use event::{Act, ClientEvent, Event, LinkEvent};
use master::{Held, Queue, STRANGER};
pub use scope::{Scope, Spent, Start, Withheld};

use super::{Broken, Explored, Fairness, Model, explore};
use redquorum_scenario::Mutant;

/// The largest number of masters, and of clients, of a scope.
const MASTERS: usize = 3;
const CLIENTS: usize = 2;

/// The model: see the [module](self).
#[derive(Debug)]
pub struct Machines {
    scope: Scope,
    mutant: Mutant,
    callers: Pool<Caller>,
    sides: Pool<(Connection, Entries)>,
    locals: Pool<Local>,
    /// The derived facts of each local, by its number.
    known: Vec<Known>,
    withheld: Withheld,
}

/// One state: the parts of each client, by their numbers in the pool; the keys; and the spent
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    locals: [u32; CLIENTS],
    held: [Held; MASTERS],
    queues: [Queue; MASTERS],
    spent: Spent,
    /// In scopes with wake-ups: the tokens of each client that were on a quorum of masters at once.
    quorate: [u8; CLIENTS],
    /// The masters on which such a key was deleted, unless the votes refused its attempt, with no
    /// other holder left, and on which no key was set since.
    given_back: u8,
    /// The masters among these that each client has looked at while they were a quorum.
    looked: [u8; CLIENTS],
    /// The clients whose wake-up was lost, or may have been: the wake-up itself was lost, or
    /// another client that died or was cut off had it.
    lossy: u8,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The bounds.
    pub scope: Scope,
    /// What was found.
    pub explored: Explored,
    /// How often the bounds have prevented an event.
    pub withheld: Withheld,
}

/// Explores a scope with a correct driver or with a mutant, up to `most` states.
pub fn model_check(scope: Scope, mutant: Mutant, most: usize) -> Report {
    let mut machines = Machines::new(scope, mutant);
    let explored = explore(&mut machines, most);
    Report { scope, explored, withheld: machines.withheld }
}

impl Machines {
    fn new(scope: Scope, mutant: Mutant) -> Self {
        assert!((1..=MASTERS).contains(&scope.masters) && (1..=CLIENTS).contains(&scope.clients));
        assert!(scope.readers == 0 || scope.rounds == 0 && !scope.watchdog, "see `Held::Shared`");
        Self {
            scope,
            mutant,
            callers: Pool::new(),
            sides: Pool::new(),
            locals: Pool::new(),
            known: Vec::new(),
            withheld: Withheld::default(),
        }
    }

    /// The initial state of a scope: clients ask one after the other, and masters reply at once.
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

    /// Whether the event advances a client's claim without any fault.
    fn leads_on(&self, state: &State, client: usize, event: Event) -> bool {
        let Event::Move(of, index) = event else { return false };
        let moves = self.known(state, client).moves();
        usize::from(of) == client
            && matches!(
                moves[usize::from(index)].client_event,
                ClientEvent::Act(Act::Acquire | Act::Collect)
                    | ClientEvent::Between(_, LinkEvent::Execute(_) | LinkEvent::Read)
            )
    }

    fn known(&self, state: &State, client: usize) -> &Known {
        &self.known[state.locals[client] as usize]
    }

    fn caller(&self, state: &State, client: usize) -> &Caller {
        self.callers.get(self.locals.get(state.locals[client]).caller)
    }

    fn side(&self, state: &State, client: usize, master: usize) -> &(Connection, Entries) {
        self.sides.get(self.locals.get(state.locals[client]).sides[master])
    }
}

impl Model for Machines {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        let locals = std::array::from_fn(|client| self.first_local(client));
        let (others, masters) = (self.scope.start == Start::Others, self.scope.masters);
        let held = |master| if others && master < masters { STRANGER } else { Held::No };
        let nothing = State {
            locals,
            held: std::array::from_fn(held),
            queues: [Queue::default(); MASTERS],
            spent: Spent::default(),
            quorate: [0; CLIENTS],
            given_back: 0,
            looked: [0; CLIENTS],
            lossy: 0,
        };
        let start = self.prepare(nothing);
        // Of clients that are alike, the first one is first in the first queue. In the other queues
        // either client may be first.
        let turned = |which: usize| {
            let mut start = start;
            let others = (0..masters).filter(|master| which >> master & 1 == 1);
            others.for_each(|master| start.queues[master].rotate());
            start
        };
        let starts = if others { 1 << masters } else { 1 };
        let step = if self.scope.is_mixed() { 1 } else { 2 };
        (0..starts).step_by(step).map(turned).collect()
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        self.list_events(state, out);
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.happen(state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        self.canonical_key(state)
    }

    fn check(&mut self, state: &State) -> Result<(), Broken> {
        self.check_rules(state)
    }

    fn check_end(&mut self, state: &State) -> Result<(), Broken> {
        self.check_settled(state)
    }

    fn describe_event(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        self.event_text(state, event, after)
    }

    fn describe_state(&mut self, state: &State) -> Vec<String> {
        self.state_text(state)
    }
}

/// Whether a claim is over and no caller waits for it.
const fn is_over(claim: &Claim) -> bool {
    matches!(claim, Claim::Ended)
}

const fn holds(known: &Known) -> bool {
    known.believed.is_some()
}

/// Whether a claim sleeps, and no message is under way between it and a master.
fn waits(known: &Known) -> bool {
    known.sleeps.is_some() && known.quiet.count_ones() as usize == MASTERS
}
