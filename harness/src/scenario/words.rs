//! The small languages inside strings: steps of a script and moments at which a fault strikes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::fault::Class;
use super::length::{Length, as_text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;

/// One step of a client's script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `acquire L [wait 5s] [ttl 2s] [cancel 100ms]`: ask for the resource; wait at most so long
    /// (default: one attempt); give the request up after so long.
    Acquire {
        /// What to lock.
        resource: String,
        /// How long to wait while it is taken.
        wait: Length,
        /// Another TTL than the lock's.
        ttl: Option<Length>,
        /// When to give the request up.
        cancel: Option<Length>,
    },
    /// `extend L [ttl 2s]`.
    Extend {
        /// Which lease.
        resource: String,
        /// Another TTL than the lock's.
        ttl: Option<Length>,
    },
    /// `keep L for 10s`: let the watchdog extend it, at most so long.
    Keep {
        /// Which lease.
        resource: String,
        /// At most so long.
        most: Length,
    },
    /// `release L`.
    Release {
        /// Which lease.
        resource: String,
    },
    /// `read R` or `write R`, `write R if L`: touch the register R that the lock protects; with
    /// `if`, only when the client finds that it still holds the lease.
    Touch {
        /// Which register.
        register: String,
        /// Read or write.
        way: Way,
        /// The lease that it checks first.
        held: Option<String>,
    },
    /// `work 1s`: go on after so long.
    Work(Length),
}

/// Which way a register is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Take its version.
    Read,
    /// Put a new version, on top of the one that was read.
    Write,
}

const STEPS: &str = "one of `acquire L [wait 5s] [ttl 2s] [cancel 1s]`, `extend L [ttl 2s]`, \
                     `keep L for 10s`, `read R [if L]`, `work 1s`, `write R [if L]`, `release L`";

impl Step {
    /// The TTL that it asks for, if it names one.
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Acquire { ttl, .. } | Self::Extend { ttl, .. } => ttl.map(|ttl| ttl.0),
            _ => None,
        }
    }

    /// The resource whose lease it is about.
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::Acquire { resource, .. }
            | Self::Extend { resource, .. }
            | Self::Keep { resource, .. }
            | Self::Release { resource } => Some(resource),
            Self::Touch { held, .. } => held.as_deref(),
            Self::Work(_) => None,
        }
    }
}

/// The words of a string, taken one after the other.
struct Words<'a> {
    text: &'a str,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    wanted: &'static str,
}

impl<'a> Words<'a> {
    fn of(text: &'a str, wanted: &'static str) -> Self {
        Self { text, rest: text.split_whitespace().peekable(), wanted }
    }

    fn wrong(&self, why: impl fmt::Display) -> String {
        format!("`{}`: {why}; write {}", self.text, self.wanted)
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.rest.next().ok_or_else(|| self.wrong(format_args!("{what} is missing")))
    }

    fn name(&mut self, what: &str) -> Result<String, String> {
        let word = self.next(what)?;
        let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        if !word.chars().all(good) {
            return Err(self.wrong(format_args!(
                "`{word}` is no name for {what}: use letters, digits and . _ : -"
            )));
        }
        Ok(word.to_owned())
    }

    fn length(&mut self, after: &str) -> Result<Length, String> {
        self.next(&format!("the time after `{after}`"))?.parse()
    }

    /// The length behind a word, if the word is next.
    fn option(&mut self, word: &str) -> Result<Option<Length>, String> {
        match self.rest.next_if_eq(&word) {
            Some(_) => self.length(word).map(Some),
            None => Ok(None),
        }
    }

    fn end<T>(mut self, value: T) -> Result<T, String> {
        match self.rest.next() {
            Some(word) => Err(self.wrong(format_args!("`{word}` is too much"))),
            None => Ok(value),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words::of(text, STEPS);
        let step = match words.next("the verb")? {
            "acquire" => {
                let resource = words.name("the resource")?;
                let (mut wait, mut ttl, mut cancel) = (None, None, None);
                // In any order, each once.
                while let Some(word) = words.rest.peek().copied() {
                    let option = match word {
                        "wait" => &mut wait,
                        "ttl" => &mut ttl,
                        "cancel" => &mut cancel,
                        _ => break,
                    };
                    if option.is_some() {
                        return Err(words.wrong(format_args!("`{word}` is there twice")));
                    }
                    *option = words.option(word)?;
                }
                Self::Acquire { resource, wait: wait.unwrap_or_default(), ttl, cancel }
            }
            "extend" => {
                let resource = words.name("the resource")?;
                Self::Extend { resource, ttl: words.option("ttl")? }
            }
            "keep" => {
                let resource = words.name("the resource")?;
                let most = words.option("for")?;
                let most = most.ok_or_else(|| words.wrong("`for` and a time are missing"))?;
                Self::Keep { resource, most }
            }
            "release" => Self::Release { resource: words.name("the resource")? },
            verb @ ("read" | "write") => {
                let register = words.name("the register")?;
                let held = match words.rest.next_if_eq(&"if") {
                    Some(_) => Some(words.name("the lease after `if`")?),
                    None => None,
                };
                let way = if verb == "read" { Way::Read } else { Way::Write };
                Self::Touch { register, way, held }
            }
            "work" => Self::Work(words.length("work")?),
            verb => return Err(words.wrong(format_args!("`{verb}` is no step"))),
        };
        words.end(step)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { resource, wait, ttl, cancel } => {
                write!(f, "acquire {resource}")?;
                let wait = Some(wait).filter(|wait| !wait.is_zero());
                for (word, length) in
                    [("wait", wait), ("ttl", ttl.as_ref()), ("cancel", cancel.as_ref())]
                {
                    if let Some(length) = length {
                        write!(f, " {word} {}", compact(*length))?;
                    }
                }
                Ok(())
            }
            Self::Extend { resource, ttl: None } => write!(f, "extend {resource}"),
            Self::Extend { resource, ttl: Some(ttl) } => {
                write!(f, "extend {resource} ttl {}", compact(*ttl))
            }
            Self::Keep { resource, most } => write!(f, "keep {resource} for {}", compact(*most)),
            Self::Release { resource } => write!(f, "release {resource}"),
            Self::Touch { register, way, held } => {
                f.write_str(if *way == Way::Read { "read " } else { "write " })?;
                f.write_str(register)?;
                held.as_ref().map_or(Ok(()), |held| write!(f, " if {held}"))
            }
            Self::Work(length) => write!(f, "work {}", compact(*length)),
        }
    }
}

/// A time without spaces, so that it is one word: `1s500ms`.
fn compact(length: Length) -> String {
    length.to_string().replace(' ', "")
}

/// A moment of a run: something that happens, and a time after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Whose moment.
    pub client: String,
    /// What happens.
    pub what: What,
    /// How long after it.
    pub plus: Length,
}

/// What happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// `c1 asks L`: it is told to acquire.
    Asks(String),
    /// `c1 granted L`: its acquire returned a lease.
    Granted(String),
    /// `c1 refused L`: its acquire returned none.
    Refused(String),
    /// `c1 extended L`.
    Extended(String),
    /// `c1 lost L`: it was told of a loss.
    Lost(String),
    /// `c1 releases L`: it is told to release.
    Releases(String),
    /// `c1 released L`: its release returned.
    Released(String),
    /// `c1 reads R`.
    Reads(String),
    /// `c1 writes R`.
    Writes(String),
    /// `c1 request 3 [of extend]`: the third request of a class leaves it, over all masters.
    Request(u32, Class),
    /// `c1 reply 3 [of extend]`: the third reply to requests of a class reaches it.
    Reply(u32, Class),
}

const MOMENTS: &str = "a client and what happens: `c1 granted L`, or `asks`, `refused`, `extended`, \
                       `lost`, `releases`, `released` with a resource, `reads`, `writes` with a \
                       register, `c1 request 3`, `c1 reply 3` with `of acquire`, `of extend`, `of \
                       release` or `of any`; behind it a time if you like: `c1 granted L + 10ms`";

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
                    Some(_) => words.next("the class after `of`")?.parse()?,
                    None => Class::Acquire,
                };
                if verb == "request" {
                    What::Request(number, class)
                } else {
                    What::Reply(number, class)
                }
            }
            "reads" => What::Reads(words.name("the register")?),
            "writes" => What::Writes(words.name("the register")?),
            "asks" => What::Asks(words.name("the resource")?),
            "granted" => What::Granted(words.name("the resource")?),
            "refused" => What::Refused(words.name("the resource")?),
            "extended" => What::Extended(words.name("the resource")?),
            "lost" => What::Lost(words.name("the resource")?),
            "releases" => What::Releases(words.name("the resource")?),
            "released" => What::Released(words.name("the resource")?),
            other => return Err(words.wrong(format_args!("`{other}` is nothing that happens"))),
        };
        let plus = words.option("+")?.unwrap_or_default();
        words.end(Self { client, what, plus })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.what)?;
        if self.plus.is_zero() { Ok(()) } else { write!(f, " + {}", compact(self.plus)) }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, name) = match self {
            Self::Asks(name) => ("asks", name),
            Self::Granted(name) => ("granted", name),
            Self::Refused(name) => ("refused", name),
            Self::Extended(name) => ("extended", name),
            Self::Lost(name) => ("lost", name),
            Self::Releases(name) => ("releases", name),
            Self::Released(name) => ("released", name),
            Self::Reads(name) => ("reads", name),
            Self::Writes(name) => ("writes", name),
            Self::Request(number, class) | Self::Reply(number, class) => {
                let word = if matches!(self, Self::Request(..)) { "request" } else { "reply" };
                write!(f, "{word} {number}")?;
                return match class {
                    Class::Acquire => Ok(()),
                    class => write!(f, " of {class}"),
                };
            }
        };
        write!(f, "{verb} {name}")
    }
}

as_text!(
    Step,
    "a step of a client's script",
    "acquire L wait 5s",
    "read R",
    "work 1s",
    "write R if L",
    "release L"
);
as_text!(Moment, "a moment of a run", "c1 granted L", "c1 reply 3", "c1 writes R + 10ms");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_moments_are_written_as_they_are_read() {
        for text in [
            "acquire L",
            "acquire L wait 5s ttl 1s500ms cancel 10ms",
            "extend L",
            "extend L ttl 3s",
            "keep L for 10s",
            "read R",
            "write R if L",
            "work 1s",
            "release L",
        ] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        for text in ["c1 granted L", "c1 reply 3", "c1 request 2 of extend", "c1 writes R + 10ms"] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_word_is_named_with_what_would_be_right() {
        for (text, part) in [
            ("", "the verb is missing"),
            ("lock L", "`lock` is no step"),
            ("acquire", "the resource is missing"),
            ("acquire L wait", "the time after `wait` is missing"),
            ("acquire L wait 1s wait 2s", "`wait` is there twice"),
            ("acquire L later", "`later` is too much"),
            ("acquire a\"b", "is no name for the resource"),
            ("keep L", "`for` and a time are missing"),
            ("write R if", "the lease after `if` is missing"),
        ] {
            let why = text.parse::<Step>().unwrap_err();
            assert!(why.contains(part) && why.contains("write one of"), "{text}: {why}");
        }
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
