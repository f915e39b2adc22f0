//! A model of fencing tokens over independent masters: are they unique, and do they grow?
//!
//! This is the protocol of `docs/fencing.md`, not the shipped machines. The check of
//! [`machines`](super::machines) does not reach what this one shows: its claims have no fencing
//! tokens, its two clients' messages arrive in order and at most once, and keys stay while a client
//! relies on them. Here up to three clients contend, a grant may be executed twice and long after
//! its client gave up, and any key may expire at any time.
//!
//! There is no clock. So every result holds for any behaviour of clocks, pauses and TTLs. Replies
//! may be lost. A client may give up, or go on to the next step, at any time.
//!
//! The model leaves out what changes nothing here. A release is a key that expires. Re-entry keeps
//! its token and sends nothing. A reply that is late or lost is one that a client does not use when
//! it goes on. The model also hands leases over to other users, which no shipped claim does: this
//! shows what a second token of one lease would need.

mod canonical;
mod event;
mod scope;
#[cfg(test)]
mod tests;

pub use event::Event;
pub use scope::Scope;

use super::{Broken, Explored, Fairness, Model, explore};
use redquorum_scenario::Mutant;

/// The number of masters, and the size of a quorum.
const MASTERS: usize = 3;
const QUORUM: usize = 2;
/// The largest number of clients.
const CLIENTS: usize = 3;

/// The model: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    scope: Scope,
    mutant: Mutant,
}

/// A token, or the number of a counter. 0 means none: counters start there.
type Number = u8;

/// The owner of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    #[default]
    None,
    /// A client with a token.
    Client(u8),
    /// A client without tokens.
    Unfenced,
}

impl Holder {
    fn of(client: usize) -> Self {
        Self::Client(u8::try_from(client).expect("there are few"))
    }
}

/// One master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Master {
    key: Holder,
    counter: Number,
}

/// The messages between a client and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// A grant that was sent and not executed.
    grant: bool,
    /// An extension under way, which creates the key if it is gone.
    repair: bool,
    /// The number in a request for a token that was not executed.
    certify: Number,
    /// The number in the reply to the grant.
    number: Number,
    /// The number in the reply of this round.
    reply: Number,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// It collects grants.
    Asking,
    /// It collects replies for a token, in this round.
    Certifying(Number, u8),
    /// It holds a token.
    Holding(Number),
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Client {
    phase: Phase,
    /// Whether it has asked. It asks once.
    asked: bool,
    hint: Number,
    /// The largest token that was issued before it asked. Its own must be larger.
    floor: Number,
    handed_over: u8,
    extended: u8,
}

/// One state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    masters: [Master; MASTERS],
    clients: [Client; CLIENTS],
    slots: [[Slot; MASTERS]; CLIENTS],
    /// The tokens that were issued, one bit each.
    issued: u64,
    /// How often a grant was executed twice, a client without tokens had a key, a master forgot.
    copies: u8,
    unfenced: u8,
    forgotten: u8,
}

/// Explores the protocol, or a mutant of it, within bounds, up to `most` states.
pub fn model_check(scope: Scope, mutant: Mutant, most: usize) -> Explored {
    explore(&mut Fencing { scope, mutant }, most)
}

impl State {
    /// Whether a client attempts or holds.
    fn is_current(&self, client: usize) -> bool {
        self.clients[client].phase != Phase::Idle
    }

    /// The largest token that was issued.
    fn largest(&self) -> Number {
        let bits = u64::BITS - self.issued.leading_zeros();
        u8::try_from(bits.saturating_sub(1)).unwrap_or(u8::MAX)
    }
}

impl Model for Fencing {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        vec![State::default()]
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        self.list(state, &mut |event| out.push((Fairness::Free, event)));
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.happen(*state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        self.canonical(state)
    }

    fn describe_event(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        event.describe_event(state, after.unwrap_or(state))
    }

    fn describe_state(&mut self, state: &State) -> Vec<String> {
        let masters = (1..).zip(state.masters).map(|(number, Master { key, counter })| {
            format!("master {number}: counter {counter}, key of {key}")
        });
        let clients = ('A'..).zip(state.clients).take(self.scope.clients);
        let clients = clients.map(|(letter, client)| format!("{letter}: {:?}", client.phase));
        masters.chain(clients).collect()
    }
}
