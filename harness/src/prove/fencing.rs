//! Fencing tokens over independent masters, every way: are they unique, and do they grow?
//!
//! This is a protocol on paper, which `docs/safety.md` states: the library has no fencing tokens yet. A master has a counter for a
//! resource, beside its key. A grant sets the key and, with it, `c := max(c + 1, hint)`, and answers `c`. If a
//! quorum grants with one number T, T is the token. Else the client asks the masters whose key is still
//! its own to make it `c := max(c, T)`, with the q-th smallest number seen for T; T is the token when a
//! quorum of masters, the key still there, has answered exactly T.
//!
//! There is no clock. A key may go at any moment, whoever counts on it: what holds here holds whatever
//! clocks, pauses and TTLs do. A message may be executed at any time after it was sent, also long after
//! its client has given up, or never; grants also twice. Answers may be lost. A client may give up, or go
//! on to the next step, whenever it likes.
//!
//! What is left out changes nothing here: a release is a key that goes; re-entry keeps its token and sends
//! nothing; an answer that is late or lost is one of those that a client does not use when it goes on.
//!
//! | file | what it has |
//! |---|---|
//! | `scheme.rs` | the protocol, and what is known to be wrong |
//! | `scope.rs` | the bounds of a run |
//! | `event.rs` | what can happen, and what comes of it |
//! | `fold.rs` | which states are the same |
//! | `story.rs` | states and events in words |

mod event;
mod fold;
mod scheme;
mod scope;
mod story;
#[cfg(test)]
mod tests;

pub use event::Event;
pub use scheme::Scheme;
pub use scope::Scope;

use super::{Broken, Explored, Fate, Model, explore};

/// Masters, and how many are a quorum.
const MASTERS: usize = 3;
const QUORUM: usize = 2;
/// Most clients, and most attempts of each.
const CLIENTS: usize = 3;
const ATTEMPTS: usize = 2;

/// The model: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    scope: Scope,
    scheme: Scheme,
}

/// A token, or the number of a counter. None is 0: counters begin there.
type Number = u8;

/// Whose key it is: an attempt of a client, from 1; or of somebody who knows nothing of tokens.
type Holder = u8;
const NOBODY: Holder = 0;
const UNFENCED: Holder = u8::MAX;

/// One master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Master {
    key: Holder,
    counter: Number,
}

/// What is between an attempt and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// A grant that was sent and not executed.
    grant: bool,
    /// An extension that would create the key if it is gone.
    repair: bool,
    /// The number that is asked for, if it is asked for and was not executed.
    certify: Number,
    /// What the grant was answered.
    number: Number,
    /// What was answered in this round.
    answer: Number,
}

/// What a client is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// It collects grants.
    Asking,
    /// It collects answers for a token, in this round.
    Certifying(Number, u8),
    /// It was handed a token.
    Holding(Number),
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Client {
    phase: Phase,
    attempt: u8,
    hints: [Number; ATTEMPTS],
    /// The largest token that was handed out before it asked: its own must be larger.
    floor: Number,
    handed_over: u8,
    extended: u8,
}

/// One state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    masters: [Master; MASTERS],
    clients: [Client; CLIENTS],
    slots: [[[Slot; MASTERS]; ATTEMPTS]; CLIENTS],
    /// The tokens that were handed out, a bit each.
    issued: u64,
    /// How often a grant was executed twice, somebody without tokens had a key, a master forgot.
    copies: u8,
    unfenced: u8,
    forgotten: u8,
}

/// Explores a scheme within bounds; `most` states of it at most.
pub fn prove(scope: Scope, scheme: Scheme, most: usize) -> Explored {
    explore(&mut Fencing { scope, scheme }, most)
}

impl State {
    fn first() -> Self {
        Self {
            masters: [Master::default(); MASTERS],
            clients: [Client::default(); CLIENTS],
            slots: [[[Slot::default(); MASTERS]; ATTEMPTS]; CLIENTS],
            issued: 0,
            copies: 0,
            unfenced: 0,
            forgotten: 0,
        }
    }

    /// The slots of the attempt that a client is about.
    fn now(&self, client: usize) -> &[Slot; MASTERS] {
        &self.slots[client][usize::from(self.clients[client].attempt.saturating_sub(1))]
    }

    fn now_mut(&mut self, client: usize) -> &mut [Slot; MASTERS] {
        &mut self.slots[client][usize::from(self.clients[client].attempt.saturating_sub(1))]
    }

    /// Whether it is this attempt that a client is about.
    fn is_current(&self, client: usize, attempt: usize) -> bool {
        let who = self.clients[client];
        who.phase != Phase::Idle && usize::from(who.attempt) == attempt + 1
    }

    /// The largest token that was handed out.
    fn largest(&self) -> Number {
        u8::try_from(u64::BITS - self.issued.leading_zeros())
            .map_or(0, |bits| bits.saturating_sub(1))
    }
}

/// By what name a key is a client's attempt's. Attempts are counted from 1.
fn holder(client: usize, attempt: usize) -> Holder {
    u8::try_from(client * ATTEMPTS + attempt).unwrap_or(UNFENCED - 1)
}

impl Model for Fencing {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        vec![State::first()]
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fate, Event)>) {
        event::list(&self.scope, self.scheme, state, &mut |event| out.push((Fate::Free, event)));
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        event::happen(&self.scope, self.scheme, state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        fold::key(&self.scope, self.scheme, state)
    }

    fn check(&mut self, _: &State) -> Result<(), Broken> {
        Ok(())
    }

    fn check_end(&mut self, _: &State) -> Result<(), Broken> {
        Ok(())
    }

    fn tell(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        story::tell(state, event, after)
    }

    fn show(&mut self, state: &State) -> Vec<String> {
        story::show(&self.scope, state)
    }
}
