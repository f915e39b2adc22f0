//! The ticket: by which masters know who stands in their lines.

use core::fmt;

use crate::fence::MAX_NUMBER;

/// A random number below 2⁵³, fresh for every wait. Two that are equal by chance share a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// At which number a ticket wants to stand in a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spot {
    /// At the one that it has there, or behind all others.
    Last,
    /// The same, but not before this one, which another master gave it.
    NotBefore(u64),
    /// At this one, wherever it stands there: a quorum keeps it so.
    At(u64),
}

impl Spot {
    /// The number that is said; 0 for none.
    pub const fn number(self) -> u64 {
        match self {
            Self::Last => 0,
            Self::NotBefore(number) | Self::At(number) => number,
        }
    }
}

impl Ticket {
    /// The ticket with this number, less what scripts cannot count exactly.
    pub const fn new(random: u64) -> Self {
        Self(random & MAX_NUMBER)
    }

    /// The ticket that a master names, if it is one.
    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        let number: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
        (number <= MAX_NUMBER).then_some(Self(number))
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
