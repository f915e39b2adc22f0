//! The bounds of a run.

use super::super::counted;
use super::Number;
use redquorum_scenario::Mutant;

/// The bounds. There are always three masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The schemes that must go wrong: each mutant of the protocol, in bounds that show its error,
    /// and the correct protocol outside its assumptions.
    pub const WRONG: [(Mutant, Self); 8] = [
        (
            Mutant::LargestGrant,
            Self {
                name: "the largest number with which a quorum granted is the token",
                ..Self::BASE
            },
        ),
        (Mutant::MedianGrant, Self { name: "the median of these is", ..Self::BASE }),
        (
            Mutant::CertifiesAnywhere,
            Self {
                name: "the token is written back to any majority, over the keys of others",
                hints: &[0],
                ..Self::BASE
            },
        ),
        (
            Mutant::RepairsUncounted,
            Self {
                name: "a key that an extension creates does not count",
                hand_overs: 1,
                extensions: 1,
                ..Self::BASE
            },
        ),
        (
            Mutant::HandsOverToken,
            Self { name: "a lease is handed over with its old token", hand_overs: 1, ..Self::BASE },
        ),
        (
            Mutant::StaysAtEnd,
            Self {
                name: "a counter at its end stays there, as doubles do at 2⁵³, instead of refusing",
                end: 3,
                ..Self::BASE
            },
        ),
        (
            Mutant::FollowsLargest,
            Self {
                name: "the largest number seen is certified, not the q-th smallest: tokens stay \
                       unique, but one master with an absurd counter is followed although no \
                       quorum needs it",
                ..Self::BASE
            },
        ),
        (
            Mutant::None,
            Self {
                name: "the shipped one, on a master that forgets its counter",
                hints: &[0],
                forgets: 1,
                ..Self::BASE
            },
        ),
    ];

    /// The bounds in which a mutant of the protocol shows its error; none for other mutants.
    pub fn against(mutant: Mutant) -> Option<Self> {
        let mut wrong = Self::WRONG.into_iter().filter(|(of, _)| *of != Mutant::None);
        wrong.find_map(|(of, scope)| (of == mutant).then_some(scope))
    }

    /// The bounds in words, beside the three masters.
    pub fn bounds(&self) -> String {
        let hints: Vec<String> = self.hints.iter().map(Number::to_string).collect();
        let hints = if self.hints == [0] {
            "no hints".into()
        } else {
            format!("hints {}", hints.join(" and "))
        };
        let parts = [
            Some(format!("{} clients", self.clients)),
            Some(hints),
            counted(self.rounds, "round").map(|text| text + " a token"),
            counted(self.hand_overs, "hand-over").map(|text| text + " of each"),
            counted(self.extensions, "extension").map(|text| text + " of each"),
            counted(self.copies, "copy"),
            counted(self.unfenced, "client").map(|text| text + " without tokens"),
            counted(self.forgets, "forgotten counter"),
            Some(format!("numbers below {}", self.end)).filter(|_| self.end < Self::BASE.end),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
