//! The bounds of a run.

use super::super::counted;
use super::{MASTERS, Number};
use crate::mutants::Mutant;

/// The bounds. There are always three masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scope {
    /// The name: the bound that is wide in it.
    pub name: &'static str,
    /// The number of clients, two or three.
    pub clients: usize,
    /// The possible readings of a client's clock when it asks; 0 stands for one that is far behind.
    pub hints: &'static [Number],
    /// The largest number of rounds for one token.
    pub rounds: u8,
    /// How often a lease may be handed over.
    pub hand_overs: u8,
    /// How often a lease may be extended, and keys that are gone created again.
    pub extensions: u8,
    /// How often a grant may be executed twice.
    pub copies: u8,
    /// How often a client without tokens may have a key.
    pub unfenced: u8,
    /// How often a master may forget its counter, which is outside the assumptions.
    pub forgets: u8,
    /// The largest number.
    pub end: Number,
    /// Whether states that differ only in the order of masters and clients count as one.
    pub canonicalize: bool,
}

impl Scope {
    /// Two clients. Each asks once.
    pub const BASE: Self = Self {
        name: "two clients",
        clients: 2,
        hints: &[0, 2],
        rounds: 1,
        hand_overs: 0,
        extensions: 0,
        copies: 0,
        unfenced: 0,
        forgets: 0,
        end: 60,
        canonicalize: true,
    };

    /// All runs of `redquorum-chaos model-check fencing`. Each has another wide bound.
    pub const ALL: [Self; 5] = [
        Self { name: "leases handed over", rounds: 2, hand_overs: 1, ..Self::BASE },
        Self { name: "keys repaired", rounds: 2, extensions: 1, ..Self::BASE },
        Self { name: "grants executed twice, and strangers", copies: 1, unfenced: 1, ..Self::BASE },
        Self { name: "three clients", hints: &[0], clients: 3, ..Self::BASE },
        Self { name: "at the end of the numbers", end: 3, hand_overs: 1, ..Self::BASE },
    ];

    /// The correct protocol, on a master that forgets its counter, which violates the assumptions.
    pub const FORGETS: Self =
        Self { name: "a master that forgets its counter", hints: &[0], forgets: 1, ..Self::BASE };

    /// The bounds in which a mutant of the protocol shows its error; none for other mutants.
    pub const fn against(mutant: Mutant) -> Option<Self> {
        Some(match mutant {
            Mutant::RepairsUncounted => Self { hand_overs: 1, extensions: 1, ..Self::BASE },
            Mutant::HandsOverToken => Self { hand_overs: 1, ..Self::BASE },
            Mutant::StaysAtEnd => Self { end: 3, ..Self::BASE },
            Mutant::CertifiesAnywhere => Self { hints: &[0], ..Self::BASE },
            Mutant::LargestGrant | Mutant::MedianGrant | Mutant::FollowsLargest => Self::BASE,
            _ => return None,
        })
    }

    /// The bounds in words.
    pub fn bounds(&self) -> String {
        let hints: Vec<String> = self.hints.iter().map(Number::to_string).collect();
        let parts = [
            Some(format!("{MASTERS} masters, {} clients", self.clients)),
            Some(format!("hints {}", hints.join(" and "))),
            counted(self.rounds, "round").map(|text| text + " a token"),
            counted(self.hand_overs, "hand-over").map(|text| text + " of each"),
            counted(self.extensions, "extension").map(|text| text + " of each"),
            counted(self.copies, "grant").map(|text| text + " executed twice"),
            counted(self.unfenced, "stranger"),
            counted(self.forgets, "forgotten counter"),
            Some(format!("numbers below {}", self.end)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
