//! Times in the form of scenario files: `"150ms"`, `"2s"`, and `"-3s"` where a time can be
//! negative.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redquorum_protocol::MAX_NUMBER;

use crate::units::nanos;

/// The longest time in a scenario: a month, so that no sum overflows.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length(pub Duration);

/// A length of time, forward or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shift {
    /// The absolute value.
    pub by: Length,
    /// Whether the shift goes back.
    pub back: bool,
}

impl Length {
    /// Whether the length is zero.
    pub const fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

impl Shift {
    /// The length in nanoseconds.
    pub fn nanos(self) -> i64 {
        let nanos = nanos(self.by.0);
        if self.back { -nanos } else { nanos }
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = humantime::parse_duration(text.trim()).map_err(|why| {
            let why = match why {
                humantime::DurationError::NumberExpected(_) => String::new(),
                why => format!(" ({why})"),
            };
            format!("`{text}` is not a time{why}: write a number with a unit, such as 150ms or 2s")
        })?;
        if length > LONGEST {
            return Err(format!("`{text}` is too long: at most 31 days"));
        }
        Ok(Self(length))
    }
}

impl FromStr for Shift {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (rest, back) = match text.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (text.strip_prefix('+').unwrap_or(text), false),
        };
        Ok(Self { by: rest.parse()?, back })
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.back { "-" } else { "" }, self.by)
    }
}

/// The new value of a fencing counter: `"1d"`, `"last"` or `"end"`.
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

/// Implements Serde and the schema through `FromStr` and `Display`, for every type that is a string
/// in TOML.
macro_rules! as_text {
    ($type:ty, $what:literal, $($example:literal),+) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a string: ", $what))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Visitor)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $what,
                    "examples": [$($example),+],
                })
            }
        }
    };
}
pub(super) use as_text;

as_text!(Length, "a time with its unit, such as 150ms or 2s", "150ms", "2s");
as_text!(Shift, "a time with its unit, forward or back, such as 3s or -3s", "3s", "-3s");
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
    fn times_are_written_as_they_are_read() {
        for text in ["0s", "1ms", "1s 500ms", "2m", "31days"] {
            let length: Length = text.parse().unwrap();
            assert_eq!(length.to_string().parse::<Length>().unwrap(), length, "{text}");
        }
        let shift: Shift = "-3s".parse().unwrap();
        assert_eq!((shift.nanos(), shift.to_string()), (-3_000_000_000, "-3s".to_owned()));
        assert_eq!("+1ms".parse::<Shift>().unwrap().nanos(), 1_000_000);
        for text in ["1day", "10s", "last", "end"] {
            assert_eq!(text.parse::<Ahead>().unwrap().to_string(), text);
        }
    }
}
