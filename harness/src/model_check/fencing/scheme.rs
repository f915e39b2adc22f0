//! The protocol of fencing tokens, and similar schemes that are wrong.

use super::{Number, QUORUM};

/// How tokens are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// The correct protocol.
    Certified,
    /// The token is the largest of the numbers with which a quorum granted.
    LargestGrant,
    /// The token is the median of these numbers.
    MedianGrant,
    /// The token is written back to any majority, without a check of the key's owner.
    AnyMajority,
    /// A key that an extension creates does not increment the counter.
    RepairWithoutBump,
    /// A client that takes a lease over gets the token of the client before it.
    OldTokenHandedOver,
    /// A counter at its largest value stays there instead of refusing. Doubles do this at 2⁵³.
    StaysAtTheEnd,
    /// The largest number seen is certified, instead of the q-th smallest.
    CertifiesLargest,
    /// The scheme is correct, but one master forgets its counter, which violates the assumptions.
    ForgetsCounters,
}

impl Scheme {
    /// All of them, the correct one first.
    pub const ALL: [Self; 9] = [
        Self::Certified,
        Self::LargestGrant,
        Self::MedianGrant,
        Self::AnyMajority,
        Self::RepairWithoutBump,
        Self::OldTokenHandedOver,
        Self::StaysAtTheEnd,
        Self::CertifiesLargest,
        Self::ForgetsCounters,
    ];

    /// Its name, on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certified => "certified",
            Self::LargestGrant => "largest-grant",
            Self::MedianGrant => "median-grant",
            Self::AnyMajority => "any-majority",
            Self::RepairWithoutBump => "repair-without-bump",
            Self::OldTokenHandedOver => "old-token-handed-over",
            Self::StaysAtTheEnd => "stays-at-the-end",
            Self::CertifiesLargest => "certifies-largest",
            Self::ForgetsCounters => "forgets-counters",
        }
    }

    /// What it does, in half a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Certified => "what this project does",
            Self::LargestGrant => "takes the largest number with which a quorum granted",
            Self::MedianGrant => "takes the median of the numbers with which a quorum granted",
            Self::AnyMajority => "writes the token back to any majority, over the keys of others",
            Self::RepairWithoutBump => "does not count a key that an extension creates",
            Self::OldTokenHandedOver => "hands a lease over with its old token",
            Self::StaysAtTheEnd => "counts on at the end of the numbers, where c + 1 = c",
            Self::CertifiesLargest => "certifies the largest number seen, not the q-th smallest",
            Self::ForgetsCounters => "is right, on a master that forgets its counter",
        }
    }

    /// Whether a quorum of grants is enough, with any numbers.
    pub(super) const fn asks_once(self) -> bool {
        matches!(self, Self::LargestGrant | Self::MedianGrant)
    }

    /// The token to ask for, from the numbers of at least a quorum.
    pub(super) fn pick(self, numbers: &mut [Number]) -> Number {
        numbers.sort_unstable();
        let place = match self {
            Self::LargestGrant | Self::CertifiesLargest => numbers.len() - 1,
            Self::MedianGrant => (numbers.len() - 1) / 2,
            _ => QUORUM - 1,
        };
        numbers[place]
    }
}
