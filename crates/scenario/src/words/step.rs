//! Steps: the actions of a client, `"acquire L wait 5s"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Words, compact};
use crate::length::{Length, as_text};
use crate::name::Name;
use crate::named;

/// One step of a client's script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `acquire L [and M]… [wait 5s] [ttl 2s] [cancel 100ms]`, or `reacquire L [wait 5s] …`:
    /// acquire the resource.
    ///
    /// - `and`: acquire all of the resources, or none.
    /// - `reacquire`: acquire as the owner of the lease that the client has, which yields another
    ///   handle of it. Each handle has a `release` of its own.
    /// - `wait`: wait at most this long. Default: one attempt.
    /// - `ttl`: use this TTL in place of the lock's.
    /// - `cancel`: give the request up after this time.
    Acquire {
        /// The resource to lock.
        resource: Name,
        /// Further resources.
        also: Vec<Name>,
        /// How long to wait while another client holds the resource.
        wait: Length,
        /// A TTL in place of the lock's.
        ttl: Option<Length>,
        /// When to give the request up.
        cancel: Option<Length>,
        /// Whether the client acquires as the owner of its existing lease.
        again: bool,
    },
    /// `extend L [ttl 2s]`.
    Extend {
        /// The resource of the lease.
        resource: Name,
        /// A TTL in place of the lock's.
        ttl: Option<Length>,
    },
    /// `keep L for 10s`: let the watchdog extend the lease, for at most this long.
    Keep {
        /// The resource of the lease.
        resource: Name,
        /// The longest time for which the watchdog extends it.
        most: Length,
    },
    /// `release L [and M]…`.
    Release {
        /// The resource of the lease.
        resource: Name,
        /// Further resources to release at once.
        also: Vec<Name>,
    },
    /// `read R` or `write R`: touch the register R that the lock protects.
    ///
    /// - `write R if L`: touch it only if the client finds that it still holds the lease.
    /// - `present R under L`, `read R under L`: send the lease's fencing token with the request, so
    ///   that the register can refuse it.
    Touch {
        /// The register.
        register: Name,
        /// Present, read or write.
        way: AccessKind,
        /// The lease whose fencing token is sent.
        under: Option<Name>,
        /// The lease that the client checks first.
        held: Option<Name>,
    },
    /// `work 1s`: continue after this time.
    Work(Length),
}

named! {
    /// The kind of access to a register.
    pub enum AccessKind {
        /// Present a fencing token, which the register keeps if it is the largest.
        Present = "present",
        /// Read the version.
        Read = "read",
        /// Write a new version, based on the one that was read.
        Write = "write",
    }
}

const STEPS: &str = "one of `acquire L [and M] [wait 5s] [ttl 2s] [cancel 1s]`, \
                     `reacquire L [wait 5s] [ttl 2s] [cancel 1s]`, `extend L [ttl 2s]`, \
                     `keep L for 10s`, `read R [under L] [if L]`, `work 1s`, `write R [under L] \
                     [if L]`, `present R under L`, `release L [and M]`";

impl Step {
    /// The TTL that the step names, if any.
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Acquire { ttl, .. } | Self::Extend { ttl, .. } => ttl.map(|ttl| ttl.0),
            _ => None,
        }
    }

    /// The resource whose lease the step is about.
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::Acquire { resource, .. }
            | Self::Extend { resource, .. }
            | Self::Keep { resource, .. }
            | Self::Release { resource, .. } => Some(resource),
            Self::Touch { under, held, .. } => under.as_deref().or(held.as_deref()),
            Self::Work(_) => None,
        }
    }

    /// The resources that the step acquires.
    pub fn acquires(&self) -> impl Iterator<Item = &Name> {
        let of = match self {
            Self::Acquire { resource, also, .. } => Some((resource, also)),
            _ => None,
        };
        of.into_iter().flat_map(|(resource, also)| std::iter::once(resource).chain(also))
    }

    /// The resources that the step releases.
    pub fn releases(&self) -> impl Iterator<Item = &Name> {
        let of = match self {
            Self::Release { resource, also } => Some((resource, also)),
            _ => None,
        };
        of.into_iter().flat_map(|(resource, also)| std::iter::once(resource).chain(also))
    }

    /// Whether the step is about several resources at once.
    pub const fn is_of_several(&self) -> bool {
        matches!(self, Self::Acquire { also, .. } | Self::Release { also, .. } if !also.is_empty())
    }

    /// All times of the step.
    pub fn lengths_mut(&mut self) -> Vec<&mut Length> {
        match self {
            Self::Acquire { wait, ttl, cancel, .. } => {
                std::iter::once(wait).chain(ttl).chain(cancel).collect()
            }
            Self::Extend { ttl, .. } => ttl.iter_mut().collect(),
            Self::Keep { most: length, .. } | Self::Work(length) => vec![length],
            Self::Release { .. } | Self::Touch { .. } => Vec::new(),
        }
    }
}

/// The names after `and`.
fn also(words: &mut Words<'_>) -> Result<Vec<Name>, String> {
    let next = || words.name_after("and", "the resource after `and`").transpose();
    std::iter::from_fn(next).collect()
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words::of(text, STEPS);
        let step = match words.next("the verb")? {
            verb @ ("acquire" | "reacquire") => {
                let again = verb == "reacquire";
                let resource = words.name("the resource")?;
                let also = if again { Vec::new() } else { also(&mut words)? };
                let (mut wait, mut ttl, mut cancel) = (None, None, None);
                // Options come in any order, each at most once.
                while let Some(word) = words.rest.peek().copied() {
                    let option = match word {
                        "again" => {
                            return Err(words.wrong("`acquire L again` is `reacquire L` now"));
                        }
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
                let wait = wait.unwrap_or_default();
                Self::Acquire { resource, also, wait, ttl, cancel, again }
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
            "release" => {
                let resource = words.name("the resource")?;
                Self::Release { resource, also: also(&mut words)? }
            }
            verb @ ("present" | "read" | "write") => {
                let register = words.name("the register")?;
                let under = words.name_after("under", "the lease after `under`")?;
                if verb == "present" && under.is_none() {
                    return Err(words.wrong("`under` and a lease are missing"));
                }
                let held = words.name_after("if", "the lease after `if`")?;
                let way = match verb {
                    "present" => AccessKind::Present,
                    "read" => AccessKind::Read,
                    _ => AccessKind::Write,
                };
                Self::Touch { register, way, under, held }
            }
            "work" => Self::Work(words.length("work")?),
            verb => return Err(words.wrong(format_args!("`{verb}` is no step"))),
        };
        words.end(step)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = |word: &str, length: &Option<Length>| {
            length.map_or_else(String::new, |length| format!(" {word} {}", compact(length)))
        };
        let names = |word: &str, names: &mut dyn Iterator<Item = &Name>| -> String {
            names.map(|name| format!(" {word} {name}")).collect()
        };
        match self {
            Self::Acquire { resource, also, wait, ttl, cancel, again } => {
                let verb = if *again { "reacquire" } else { "acquire" };
                let wait = option("wait", &Some(*wait).filter(|wait| !wait.is_zero()));
                let (ttl, cancel) = (option("ttl", ttl), option("cancel", cancel));
                write!(f, "{verb} {resource}{}{wait}{ttl}{cancel}", names("and", &mut also.iter()))
            }
            Self::Extend { resource, ttl } => write!(f, "extend {resource}{}", option("ttl", ttl)),
            Self::Keep { resource, most } => write!(f, "keep {resource} for {}", compact(*most)),
            Self::Release { resource, also } => {
                write!(f, "release {resource}{}", names("and", &mut also.iter()))
            }
            Self::Touch { register, way, under, held } => {
                let (under, held) =
                    (names("under", &mut under.iter()), names("if", &mut held.iter()));
                write!(f, "{way} {register}{under}{held}")
            }
            Self::Work(length) => write!(f, "work {}", compact(*length)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_written_as_they_are_read() {
        for text in [
            "acquire L",
            "acquire L wait 5s ttl 1s500ms cancel 10ms",
            "acquire L and M",
            "acquire L and M and N wait 5s ttl 1s500ms cancel 10ms",
            "release L and M",
            "reacquire L",
            "reacquire L wait 5s ttl 3s",
            "extend L",
            "extend L ttl 3s",
            "keep L for 10s",
            "read R",
            "write R if L",
            "present R under L",
            "read R under L",
            "write R under L if L",
            "work 1s",
            "release L",
        ] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
    }
}
