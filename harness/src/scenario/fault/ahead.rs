//! How far a fault advances a fencing counter: `"1d"`, `"last"` or `"end"`.

use std::fmt;
use std::str::FromStr;

use redquorum_protocol::MAX_NUMBER;

use crate::scenario::length::{Length, as_text};

/// The new value of a fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ahead {
    /// This far ahead of the master's wall clock, which counters follow.
    By(Length),
    /// One less than the largest number: the master can grant once more.
    Last,
    /// The largest number: the master refuses the next grant.
    End,
}

impl Ahead {
    /// The number itself, if it does not depend on a clock.
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::By(_) => None,
            Self::Last => Some(MAX_NUMBER - 1),
            Self::End => Some(MAX_NUMBER),
        }
    }
}

impl FromStr for Ahead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "last" => Ok(Self::Last),
            "end" => Ok(Self::End),
            text => text.parse().map(Self::By).map_err(|why| {
                format!(
                    "{why}, or `last`, after which one grant is left, or `end`, after which none is"
                )
            }),
        }
    }
}

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(length) => length.fmt(f),
            Self::Last => f.write_str("last"),
            Self::End => f.write_str("end"),
        }
    }
}

as_text!(
    Ahead,
    "how far ahead of the master's clock, or the last number but one, or the last",
    "1d",
    "last",
    "end"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["1day", "10s", "last", "end"] {
            assert_eq!(text.parse::<Ahead>().unwrap().to_string(), text);
        }
        let why = "far".parse::<Ahead>().unwrap_err();
        assert!(why.contains("write a number with a unit") && why.contains("`end`"), "{why}");
    }
}
