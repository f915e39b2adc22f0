//! Tickets and waiters: by which masters know the waiters in their queues.

use core::fmt;

/// A random number below 2⁵³, fresh for every wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// The largest ticket.
const LARGEST: u64 = (1 << 53) - 1;

/// A waiter as a master's queue knows it: its ticket, and the inbox on which its process is woken.
///
/// In the queue it is 32 hexadecimal digits, first the inbox; an inbox of 0 is subscribed by no connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Waiter {
    /// The channel of its process.
    pub inbox: u64,
    /// Its ticket.
    pub ticket: Ticket,
}

/// At which position a waiter wants to be in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spot {
    /// At the one that it has there, or behind all others; it may attempt wherever it is.
    Any,
    /// At the one that it has there, or behind all others.
    Last,
    /// At the one that it has there, or behind all others, but not before this one, which another master gave it.
    NotBefore(u64),
    /// At this one, wherever it is there: a quorum keeps it so.
    At(u64),
}

impl Spot {
    /// The position that is asked for; 0 for none.
    pub const fn number(self) -> u64 {
        match self {
            Self::Any | Self::Last => 0,
            Self::NotBefore(number) | Self::At(number) => number,
        }
    }
}

impl Ticket {
    /// The ticket with this number, less what does not fit in 53 bits.
    pub const fn new(random: u64) -> Self {
        Self(random & LARGEST)
    }

    /// The ticket that a master names, if it is one.
    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        let digits = core::str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        (number <= LARGEST).then_some(Self(number))
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl Waiter {
    /// The waiter of these digits, if they are those of one.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let (inbox, ticket) = digits.split_at_checked(16)?;
        let inbox = u64::from_str_radix(core::str::from_utf8(inbox).ok()?, 16).ok()?;
        Some(Self { inbox, ticket: Ticket::parse(ticket)? })
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{}", self.inbox, self.ticket)
    }
}
