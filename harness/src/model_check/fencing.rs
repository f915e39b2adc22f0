//! A model of fencing tokens over independent masters: are they unique, and do they grow?
//!
//! The model is a protocol on paper, which `docs/fencing.md` states. A master has a counter for a
//! resource, beside its key. A grant sets the key and, with it, `c := max(c + 1, hint)`, and
//! replies `c`. If a quorum grants with one number T, T is the token. Otherwise the client asks the
//! masters whose key is still its own to set `c := max(c, T)`, where T is the q-th smallest number
//! that it has seen. T is the token when a quorum of masters that still have the key has replied
//! exactly T.
//!
//! There is no clock. A key may expire at any time, whether a client relies on it or not. So every
//! result holds for any behaviour of clocks, pauses and TTLs. A message may be executed at any time
//! after it was sent, even long after its client has given up, or never; grants also twice. Replies
//! may be lost. A client may give up, or go on to the next step, at any time.
//!
//! The model leaves out what changes nothing here. A release is a key that expires. Re-entry keeps
//! its token and sends nothing. A reply that is late or lost is one that a client does not use when
//! it goes on.
//!
//! | file | contents |
//! |---|---|
//! | `scheme.rs` | the protocol, and schemes that are known to be wrong |
//! | `scope.rs` | the bounds of a run |
//! | `event.rs` | the events, and the state after each |
//! | `fold.rs` | the canonical form of states |
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

use super::{Broken, Explored, Fairness, Model, explore};

/// The number of masters, and the size of a quorum.
const MASTERS: usize = 3;
const QUORUM: usize = 2;
/// The largest number of clients, and of attempts of each.
const CLIENTS: usize = 3;
const ATTEMPTS: usize = 2;

/// The model: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    scope: Scope,
    scheme: Scheme,
}

/// A token, or the number of a counter. 0 means none: counters start there.
type Number = u8;

/// The owner of a key: an attempt of a client, from 1, or a client without tokens.
type Holder = u8;
const NOBODY: Holder = 0;
const UNFENCED: Holder = u8::MAX;

/// One master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Master {
    key: Holder,
    counter: Number,
}

/// The messages between an attempt and a master.
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
    answer: Number,
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
    attempt: u8,
    hints: [Number; ATTEMPTS],
    /// The largest token that was issued before it asked. Its own must be larger.
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
    /// The tokens that were issued, one bit each.
    issued: u64,
    /// How often a grant was executed twice, a client without tokens had a key, a master forgot.
    copies: u8,
    unfenced: u8,
    forgotten: u8,
}

/// Explores a scheme within bounds, up to `most` states.
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

    /// The slots of a client's current attempt.
    fn now(&self, client: usize) -> &[Slot; MASTERS] {
        &self.slots[client][usize::from(self.clients[client].attempt.saturating_sub(1))]
    }

    fn now_mut(&mut self, client: usize) -> &mut [Slot; MASTERS] {
        &mut self.slots[client][usize::from(self.clients[client].attempt.saturating_sub(1))]
    }

    /// Whether this attempt is the client's current one.
    fn is_current(&self, client: usize, attempt: usize) -> bool {
        let who = self.clients[client];
        who.phase != Phase::Idle && usize::from(who.attempt) == attempt + 1
    }

    /// The largest token that was issued.
    fn largest(&self) -> Number {
        u8::try_from(u64::BITS - self.issued.leading_zeros())
            .map_or(0, |bits| bits.saturating_sub(1))
    }
}

/// The holder number of a client's attempt. Attempts are counted from 1.
fn holder(client: usize, attempt: usize) -> Holder {
    u8::try_from(client * ATTEMPTS + attempt).unwrap_or(UNFENCED - 1)
}

impl Model for Fencing {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        vec![State::first()]
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        event::list(&self.scope, self.scheme, state, &mut |event| {
            out.push((Fairness::Free, event))
        });
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
