//! The protocol of fencing tokens, and those that look like it and are wrong.

use super::{Number, QUORUM};

/// How tokens are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// As it shall be.
    Certified,
    /// The largest of the numbers with which a quorum granted is the token.
    LargestGrant,
    /// Their median is.
    MedianGrant,
    /// The token is written back to any majority, whoever's key is there.
    AnyMajority,
    /// A key that is created by an extension does not count.
    RepairWithoutBump,
    /// Who is handed a lease by another gets the other's token.
    OldTokenHandedOver,
    /// A counter at its end stays there, instead of refusing: what doubles do at 2⁵³.
    StaysAtTheEnd,
    /// The largest number seen is certified, instead of the q-th smallest.
    CertifiesLargest,
    /// Nothing is wrong but the masters, one of which forgets its counter: what is assumed not to be.
    ForgetsCounters,
}

impl Scheme {
    /// All of them, the right one first.
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

    /// What it does, half a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Certified => "what this project does",
            Self::LargestGrant => "takes the largest number with which a quorum granted",
            Self::MedianGrant => "takes the median of the numbers with which a quorum granted",
            Self::AnyMajority => "writes the token back to any majority, whoever's key is there",
            Self::RepairWithoutBump => "does not count a key that an extension creates",
            Self::OldTokenHandedOver => "hands a lease over with its old token",
            Self::StaysAtTheEnd => "counts on at the end of the numbers, where c + 1 = c",
            Self::CertifiesLargest => "certifies the largest number seen, not the q-th smallest",
            Self::ForgetsCounters => "is right, on a master that forgets its counter",
        }
    }

    /// Whether a quorum of grants is enough, whatever their numbers.
    pub(super) const fn asks_once(self) -> bool {
        matches!(self, Self::LargestGrant | Self::MedianGrant)
    }

    /// The token to go for, of the numbers seen, which are at least a quorum.
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
