//! The bounds of a run.

use super::{MASTERS, Number};

/// How much may happen. Masters are three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scope {
    /// How many clients, two or three.
    pub clients: usize,
    /// How often each may ask, once or twice.
    pub attempts: usize,
    /// What the clock of a client may say when it asks; 0 stands for one that is far behind.
    pub hints: &'static [Number],
    /// How many rounds may be needed for one token.
    pub rounds: u8,
    /// How often a lease may be handed over.
    pub hand_overs: u8,
    /// How often a lease may be extended, and keys that are gone created again.
    pub extensions: u8,
    /// How often a grant may be executed twice.
    pub copies: u8,
    /// How often a client without tokens may have a key.
    pub unfenced: u8,
    /// How often a master may forget its counter: that is outside of what is assumed.
    pub forgets: u8,
    /// Where the counters stand at first.
    pub counters: [Number; MASTERS],
    /// The end of the numbers.
    pub end: Number,
    /// Whether states that differ in the order of masters and clients only count as one.
    pub fold: bool,
}

impl Scope {
    /// Two clients, each with two attempts, and all that can happen to them.
    pub const TWO: Self = Self {
        clients: 2,
        attempts: 2,
        hints: &[0, 2],
        rounds: 2,
        hand_overs: 1,
        extensions: 1,
        copies: 1,
        unfenced: 1,
        forgets: 0,
        counters: [0; MASTERS],
        end: 60,
        fold: true,
    };

    /// Three clients, each with one attempt.
    pub const THREE: Self = Self { clients: 3, attempts: 1, copies: 0, unfenced: 0, ..Self::TWO };

    /// Small enough for a test.
    pub const SMALL: Self =
        Self { attempts: 1, hints: &[0, 2], rounds: 2, copies: 0, unfenced: 0, ..Self::TWO };
}
