//! Waiter ids and waiters: the names by which masters know the waiters in their queues.

use core::fmt;

/// A random number below 2⁵³, fresh for every wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(u64);

const LARGEST: u64 = (1 << 53) - 1;

/// A waiter as a master's queue knows it: its id, and the inbox on which its process is woken.
///
/// In the queue, a waiter is 32 hexadecimal digits, with the inbox first. No connection subscribes
/// to an inbox of 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Waiter {
    /// The inbox of its process, which names a channel.
    pub inbox: u64,
    /// Its id.
    pub waiter_id: WaiterId,
}

/// The position in a queue that a waiter asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The position that it has there, or the one behind all others. It may attempt at any
    /// position.
    Any,
    /// The position that it has there, or the one behind all others.
    Last,
    /// The position that it has there, or the one behind all others, but not before this position,
    /// which another master gave it.
    NotBefore(u64),
    /// This position, wherever it is in the queue: a quorum keeps it.
    At(u64),
}

impl Position {
    /// The number of the position that is asked for; 0 for none.
    pub const fn number(self) -> u64 {
        match self {
            Self::Any | Self::Last => 0,
            Self::NotBefore(number) | Self::At(number) => number,
        }
    }
}

impl WaiterId {
    /// The waiter id with this number, cut to 53 bits.
    pub const fn new(random: u64) -> Self {
        Self(random & LARGEST)
    }

    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        let digits = core::str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        (number <= LARGEST).then_some(Self(number))
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl Waiter {
    /// The waiter with these digits, if they are one.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let (inbox, waiter_id) = digits.split_at_checked(16)?;
        let inbox = u64::from_str_radix(core::str::from_utf8(inbox).ok()?, 16).ok()?;
        Some(Self { inbox, waiter_id: WaiterId::parse(waiter_id)? })
    }
}

impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{}", self.inbox, self.waiter_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::MAX_NUMBER;

    /// Lua keeps numbers as doubles, which count by ones up to 2⁵³ = 9 007 199 254 740 992.
    #[test]
    fn ids_of_waiters_and_fencing_tokens_are_whole_numbers_in_a_script() {
        assert_eq!(WaiterId::new(u64::MAX).number(), 9_007_199_254_740_991);
        assert_eq!(WaiterId::new(7).number(), 7);
        assert_eq!(MAX_NUMBER, 9_007_199_254_740_990);
    }
}
