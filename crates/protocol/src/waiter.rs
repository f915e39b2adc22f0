//! Waiter ids and waiters: the names by which masters know the waiters in their queues.

use core::fmt;

/// A random number below 2⁵³, fresh for every wait, and what it waits for: a shared lease or an
/// exclusive one.
///
/// On the wire it is 16 hexadecimal digits, with the letter `s` behind them for a shared lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId {
    number: u64,
    shared: bool,
}

const LARGEST: u64 = (1 << 53) - 1;

/// A waiter as a master's queue knows it: its id, and the inbox on which its process is woken.
///
/// In the queue, a waiter is 32 hexadecimal digits, with the inbox first, and the letter `s` if it
/// waits for a shared lease. No connection subscribes to an inbox of 0.
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
    /// The id with this number, cut to 53 bits, of a waiter for an exclusive lease.
    pub const fn new(random: u64) -> Self {
        Self { number: random & LARGEST, shared: false }
    }

    /// This id, of a waiter for a shared lease.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Whether it waits for a shared lease.
    pub const fn is_shared(self) -> bool {
        self.shared
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let (digits, shared) = text.strip_suffix('s').map_or((text, false), |it| (it, true));
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)?;
        (number <= LARGEST).then_some(Self { number, shared })
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl Waiter {
    /// The waiter with this text, if it is one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (inbox, waiter_id) = text.split_at_checked(16)?;
        let inbox = u64::from_str_radix(core::str::from_utf8(inbox).ok()?, 16).ok()?;
        Some(Self { inbox, waiter_id: WaiterId::parse(waiter_id)? })
    }
}

impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{}", self.number, if self.shared { "s" } else { "" })
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{}", self.inbox, self.waiter_id)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;
    use crate::effect::MAX_NUMBER;

    #[test]
    fn a_waiter_for_a_shared_lease_is_told_from_others() {
        let (inbox, id) = (7, WaiterId::new(9));
        for waiter_id in [id, id.shared()] {
            let waiter = Waiter { inbox, waiter_id };
            assert_eq!(Waiter::parse(waiter.to_string().as_bytes()), Some(waiter));
        }
        let text = "00000000000000070000000000000009";
        for wrong in [&text[1..], &format!("{text}x"), &format!("{text}ss"), &format!("s{text}")] {
            assert_eq!(Waiter::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// Lua keeps numbers as doubles, which count by ones up to 2⁵³ = 9 007 199 254 740 992.
    #[test]
    fn ids_of_waiters_and_fencing_tokens_are_whole_numbers_in_a_script() {
        assert_eq!(WaiterId::new(u64::MAX).number(), 9_007_199_254_740_991);
        assert_eq!(WaiterId::new(7).number(), 7);
        assert_eq!(MAX_NUMBER, 9_007_199_254_740_990);
    }
}
