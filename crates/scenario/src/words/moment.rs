//! Moments: the events that a fault waits for, `"c1 granted L + 10ms"`.

use std::fmt;
use std::str::FromStr;

use super::{Class, Words, compact};
use crate::Side;
use crate::length::{Length, as_text};
use crate::name::Name;

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

/// Defines the events of a resource or a register from a table: the word of each in a scenario, and
/// what the name behind the word names. The events of messages have a number instead.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident = $verb:literal $what:literal,)+) => {
        /// The event of a moment.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($(#[$doc])* $event(Name),)+
            /// `c1 request 3 [of extend]`: the client sends its third request of a class, counted
            /// over all masters.
            Request(u32, Class),
            /// `c1 reply 3 [of extend]`: the third reply to requests of a class reaches the client.
            Reply(u32, Class),
        }

        /// The events of a resource or a register.
        const VERBS: &[(&str, &str, fn(Name) -> EventKind)] =
            &[$(($verb, $what, EventKind::$event)),+];

        impl fmt::Display for EventKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (verb, number, class) = match self {
                    $(Self::$event(name) => return write!(f, "{} {name}", $verb),)+
                    Self::Request(number, class) => ("request", number, class),
                    Self::Reply(number, class) => ("reply", number, class),
                };
                match class {
                    Class::Acquire => write!(f, "{verb} {number}"),
                    class => write!(f, "{verb} {number} of {class}"),
                }
            }
        }
    };
}

events! {
    /// The harness tells the client to acquire.
    Asks = "asks" "the resource",
    /// The client's acquire returned a lease.
    Granted = "granted" "the resource",
    /// The client's acquire returned no lease.
    Refused = "refused" "the resource",
    /// The client or its watchdog extended a lease.
    Extended = "extended" "the resource",
    /// The client was notified of a loss.
    Lost = "lost" "the resource",
    /// The harness tells the client to release.
    Releases = "releases" "the resource",
    /// The client's release returned.
    Released = "released" "the resource",
    /// The client presents a fencing token.
    Presents = "presents" "the register",
    /// The client reads.
    Reads = "reads" "the register",
    /// The client writes.
    Writes = "writes" "the register",
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

    /// The event of the message with this number.
    pub const fn of_message(side: Side, number: u32, class: Class) -> Self {
        match side {
            Side::Reply => Self::Reply(number, class),
            Side::Request | Side::Both => Self::Request(number, class),
        }
    }

    /// The message that the event is about, if any.
    pub const fn message(&self) -> Option<(Side, u32, Class)> {
        match self {
            Self::Request(number, class) => Some((Side::Request, *number, *class)),
            Self::Reply(number, class) => Some((Side::Reply, *number, *class)),
            _ => None,
        }
    }
}

const MOMENTS: &str = "a client and what happens: `c1 granted L`, or `asks`, `refused`, \
                       `extended`, `lost`, `releases`, `released` with a resource, `presents`, \
                       `reads`, `writes` with a register, `c1 request 3`, `c1 reply 3` with `of \
                       acquire`, `of extend`, `of release` or `of any`; behind it a time if you \
                       like: `c1 granted L + 10ms`";

impl Moment {
    /// Whether the moment waits for this event of this client.
    pub fn is_at(&self, client: &str, what: &EventKind) -> bool {
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

fn class(word: &str) -> Result<Class, String> {
    let found = Class::ALL.into_iter().find(|class| class.name() == word);
    found.ok_or_else(|| {
        format!(
            "`{word}` is no class of messages: write acquire, extend, release, queue, wake-up or any"
        )
    })
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.what)?;
        if self.plus.is_zero() { Ok(()) } else { write!(f, " + {}", compact(self.plus)) }
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
}
