//! Moments: the events that a fault waits for, `"c1 granted L + 10ms"`.

use std::fmt;
use std::str::FromStr;

use super::{Words, compact};
use crate::name::Name;
use crate::scenario::fault::Class;
use crate::scenario::length::{Length, as_text};

/// A moment of a run: an event, and a time after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The client of the event.
    pub client: Name,
    /// The event.
    pub what: EventKind,
    /// The time after the event.
    pub plus: Length,
}

/// The event of a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// `c1 asks L`: the harness tells the client to acquire.
    Asks(Name),
    /// `c1 granted L`: the client's acquire returned a lease.
    Granted(Name),
    /// `c1 refused L`: the client's acquire returned no lease.
    Refused(Name),
    /// `c1 extended L`.
    Extended(Name),
    /// `c1 lost L`: the client was notified of a loss.
    Lost(Name),
    /// `c1 releases L`: the harness tells the client to release.
    Releases(Name),
    /// `c1 released L`: the client's release returned.
    Released(Name),
    /// `c1 presents R`.
    Presents(Name),
    /// `c1 reads R`.
    Reads(Name),
    /// `c1 writes R`.
    Writes(Name),
    /// `c1 request 3 [of extend]`: the client sends its third request of a class, counted over all
    /// masters.
    Request(u32, Class),
    /// `c1 reply 3 [of extend]`: the third reply to requests of a class reaches the client.
    Reply(u32, Class),
}

impl EventKind {
    /// Whether the event can be held back until a fault has struck.
    pub const fn can_wait(&self) -> bool {
        matches!(
            self,
            Self::Asks(_)
                | Self::Releases(_)
                | Self::Presents(_)
                | Self::Reads(_)
                | Self::Writes(_)
                | Self::Request(..)
                | Self::Reply(..)
        )
    }
}

const MOMENTS: &str = "a client and what happens: `c1 granted L`, or `asks`, `refused`, \
                       `extended`, `lost`, `releases`, `released` with a resource, `presents`, \
                       `reads`, `writes` with a register, `c1 request 3`, `c1 reply 3` with `of \
                       acquire`, `of extend`, `of release` or `of any`; behind it a time if you \
                       like: `c1 granted L + 10ms`";

impl Moment {
    /// Whether the moment waits for this event of this client.
    pub(crate) fn is_at(&self, client: &str, what: &EventKind) -> bool {
        self.client == *client && self.what == *what
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words::of(text, MOMENTS);
        let client = words.name("the client")?;
        let verb = words.next("what happens")?;
        let what = match verb {
            "request" | "reply" => {
                let number = words.next("which one, counted from 1,")?;
                let number = match number.parse() {
                    Ok(number) if number > 0 => number,
                    _ => return Err(words.wrong(format_args!("`{number}` is no count from 1"))),
                };
                let class = match words.rest.next_if_eq(&"of") {
                    Some(_) => class(words.next("the class after `of`")?)?,
                    None => Class::Acquire,
                };
                match verb {
                    "reply" => EventKind::Reply(number, class),
                    _ => EventKind::Request(number, class),
                }
            }
            verb => {
                let mut verbs = VERBS.iter();
                let Some((_, what, of)) = verbs.find(|(known, ..)| *known == verb) else {
                    return Err(words.wrong(format_args!("`{verb}` is nothing that happens")));
                };
                of(words.name(what)?)
            }
        };
        let plus = words.option("+")?.unwrap_or_default();
        words.end(Self { client, what, plus })
    }
}

type OfName = fn(Name) -> EventKind;

/// The events of a resource or a register.
const VERBS: [(&str, &str, OfName); 10] = [
    ("asks", "the resource", EventKind::Asks),
    ("granted", "the resource", EventKind::Granted),
    ("refused", "the resource", EventKind::Refused),
    ("extended", "the resource", EventKind::Extended),
    ("lost", "the resource", EventKind::Lost),
    ("releases", "the resource", EventKind::Releases),
    ("released", "the resource", EventKind::Released),
    ("presents", "the register", EventKind::Presents),
    ("reads", "the register", EventKind::Reads),
    ("writes", "the register", EventKind::Writes),
];

fn class(word: &str) -> Result<Class, String> {
    let found = Class::ALL.into_iter().find(|class| class.name() == word);
    found.ok_or_else(|| {
        format!(
            "`{word}` is no class of messages: write acquire, extend, release, line, wake-up or any"
        )
    })
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.what)?;
        if self.plus.is_zero() { Ok(()) } else { write!(f, " + {}", compact(self.plus)) }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks(name) => write!(f, "asks {name}"),
            Self::Granted(name) => write!(f, "granted {name}"),
            Self::Refused(name) => write!(f, "refused {name}"),
            Self::Extended(name) => write!(f, "extended {name}"),
            Self::Lost(name) => write!(f, "lost {name}"),
            Self::Releases(name) => write!(f, "releases {name}"),
            Self::Released(name) => write!(f, "released {name}"),
            Self::Presents(name) => write!(f, "presents {name}"),
            Self::Reads(name) => write!(f, "reads {name}"),
            Self::Writes(name) => write!(f, "writes {name}"),
            Self::Request(number, Class::Acquire) => write!(f, "request {number}"),
            Self::Request(number, class) => write!(f, "request {number} of {class}"),
            Self::Reply(number, Class::Acquire) => write!(f, "reply {number}"),
            Self::Reply(number, class) => write!(f, "reply {number} of {class}"),
        }
    }
}

as_text!(Moment, "a moment of a run", "c1 granted L", "c1 reply 3", "c1 writes R + 10ms");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_they_are_read() {
        for text in ["c1 granted L", "c1 reply 3", "c1 request 2 of extend", "c1 writes R + 10ms"] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (text, part) in [
            ("c1", "what happens is missing"),
            ("c1 wins L", "`wins` is nothing that happens"),
            ("c1 reply 0", "`0` is no count from 1"),
            ("c1 granted L +", "the time after `+` is missing"),
        ] {
            let why = text.parse::<Moment>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
