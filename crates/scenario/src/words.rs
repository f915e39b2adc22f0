//! The small languages inside strings, word by word. [`Step`]s are the actions of a client,
//! `"acquire L wait 5s"`, [`Moment`]s the events that a fault waits for, `"c1 granted L + 10ms"`;
//! `length.rs` has the lengths of time. This module
//! does not know whether the names exist in the scenario; `read/check` checks that.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redquorum_protocol::slot_of;

use super::length::Length;
use crate::Side;
use crate::length::as_text;
use crate::name::Name;
use crate::named;

named! {
    /// The purpose of a request, by its effect on a key.
    #[derive(Default)]
    pub enum Class {
        /// The request sets a key that must not exist.
        Acquire = "acquire",
        /// The request prolongs a key.
        Extend = "extend",
        /// The request deletes a key.
        Release = "release",
        /// The request enters the fair queue, or leaves it. It touches no key of a lock.
        Queue = "queue",
        /// No request: a master notifies a client that a resource became free.
        WakeUp = "wake-up",
        /// Any request.
        #[default]
        Any = "any",
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

    fn name(&mut self, what: &str) -> Result<Name, String> {
        let word = self.next(what)?;
        let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        if !word.chars().all(good) {
            return Err(self.wrong(format_args!(
                "`{word}` is no name for {what}: use letters, digits and . _ : -"
            )));
        }
        Ok(word.into())
    }

    /// The name after a word, if the word is next.
    fn name_after(&mut self, word: &str, what: &str) -> Result<Option<Name>, String> {
        self.rest.next_if_eq(&word).map(|_| self.name(what)).transpose()
    }

    /// The number after `permits`.
    fn permits(&mut self) -> Result<u32, String> {
        let number = self.next("the number after `permits`")?;
        let few = number.parse().ok().filter(|number| (1..=MOST_PERMITS).contains(number));
        few.ok_or_else(|| {
            self.wrong(format_args!("`{number}` is no number of permits from 1 to {MOST_PERMITS}"))
        })
    }

    fn length(&mut self, after: &str) -> Result<Length, String> {
        self.next(&format!("the time after `{after}`"))?.parse()
    }

    /// The length after a word, if the word is next.
    fn option(&mut self, word: &str) -> Result<Option<Length>, String> {
        self.rest.next_if_eq(&word).map(|_| self.length(word)).transpose()
    }

    fn end<T>(mut self, value: T) -> Result<T, String> {
        match self.rest.next() {
            Some(word) => Err(self.wrong(format_args!("`{word}` is too much"))),
            None => Ok(value),
        }
    }
}

/// A time without spaces, so that it is one word: `1s500ms`.
fn compact(length: Length) -> String {
    length.to_string().replace(' ', "")
}

/// The most permits of a semaphore.
const MOST_PERMITS: u32 = 100;

/// One step of a client's script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `acquire L [and M]… [permits 2] [shared] [wait 5s] [ttl 2s] [cancel 100ms]`, or `reacquire L
    /// [wait 5s] …`: acquire the resource.
    ///
    /// - `and`: acquire all of the resources, or none.
    /// - `permits`: acquire one permit of the semaphore L, of which so many may be out. Other steps
    ///   name the lease L, too.
    /// - `shared`: acquire a shared lease, beside other clients that do. Default: an exclusive one.
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
        /// The number of permits of the semaphore that the resource is.
        permits: Option<u32>,
        /// Whether other clients may have shared leases of the resources at the same time.
        shared: bool,
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

const STEPS: &str = "one of `acquire L [and M] [permits 2] [shared] [wait 5s] [ttl 2s] [cancel 1s]`, \
                     `reacquire L [shared] [wait 5s] [ttl 2s] [cancel 1s]`, `extend L [ttl 2s]`, \
                     `keep L for 10s`, `read R [under L] [if L]`, `work 1s`, `write R [under L] \
                     [if L]`, `present R under L`, `release L [and M]`";

impl Step {
    /// What the step does to the leases of its resources.
    pub const fn effect(&self) -> LeaseEffect {
        match self {
            Self::Acquire { .. } => LeaseEffect::Acquires,
            Self::Extend { .. } => LeaseEffect::Extends,
            Self::Keep { .. } => LeaseEffect::Keeps,
            Self::Release { .. } => LeaseEffect::Releases,
            Self::Touch { .. } | Self::Work(_) => LeaseEffect::None,
        }
    }

    /// The resources of the leases that the step is about. For an access to a register, the lease
    /// that it depends on.
    pub fn resources(&self) -> impl Iterator<Item = &Name> {
        let (first, also) = match self {
            Self::Acquire { resource, also, .. } | Self::Release { resource, also } => {
                (Some(resource), also.as_slice())
            }
            Self::Extend { resource, .. } | Self::Keep { resource, .. } => {
                (Some(resource), &[][..])
            }
            Self::Touch { under, held, .. } => (under.as_ref().or(held.as_ref()), &[][..]),
            Self::Work(_) => (None, &[][..]),
        };
        first.into_iter().chain(also)
    }

    /// The resources of the step, if it has this effect on them.
    pub fn resources_if(&self, effect: LeaseEffect) -> impl Iterator<Item = &Name> {
        self.resources().filter(move |_| self.effect() == effect)
    }

    /// The resources that the step acquires.
    pub fn acquires(&self) -> impl Iterator<Item = &Name> {
        self.resources_if(LeaseEffect::Acquires)
    }

    /// The resources on the masters of which the step acquires all, or one if it is a permit: the
    /// slots of the semaphore.
    pub fn slots(&self) -> Vec<Name> {
        let slot = |resource: &Name, number: u32| {
            let name = slot_of(resource.as_bytes(), number as usize);
            Name::from(String::from_utf8_lossy(&name).as_ref())
        };
        match self {
            Self::Acquire { resource, permits: Some(permits), .. } => {
                (1..=*permits).map(|number| slot(resource, number)).collect()
            }
            _ => self.acquires().cloned().collect(),
        }
    }

    /// The resources that the step releases.
    pub fn releases(&self) -> impl Iterator<Item = &Name> {
        self.resources_if(LeaseEffect::Releases)
    }

    /// Whether the client acquires as the owner of a lease that it has: a re-entry.
    pub const fn is_again(&self) -> bool {
        matches!(self, Self::Acquire { again: true, .. })
    }

    /// Whether the client acquires a permit of a semaphore.
    pub const fn is_permit(&self) -> bool {
        matches!(self, Self::Acquire { permits: Some(_), .. })
    }

    /// Whether the client acquires a shared lease.
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Acquire { shared: true, .. })
    }

    /// Whether the step is about several leases at once.
    pub fn is_of_several(&self) -> bool {
        self.resources().nth(1).is_some()
    }

    /// The TTL that the step names, if any.
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Acquire { ttl, .. } | Self::Extend { ttl, .. } => ttl.map(|ttl| ttl.0),
            Self::Keep { .. } | Self::Release { .. } | Self::Touch { .. } | Self::Work(_) => None,
        }
    }

    /// How long the client may wait for a resource that is taken.
    pub const fn wait(&self) -> Duration {
        match self {
            Self::Acquire { wait, .. } => wait.0,
            Self::Extend { .. }
            | Self::Keep { .. }
            | Self::Release { .. }
            | Self::Touch { .. }
            | Self::Work(_) => Duration::ZERO,
        }
    }

    /// When the client gives the request of the step up, if it does.
    pub fn cancel(&self) -> Option<Duration> {
        match self {
            Self::Acquire { cancel, .. } => cancel.map(|cancel| cancel.0),
            Self::Extend { .. }
            | Self::Keep { .. }
            | Self::Release { .. }
            | Self::Touch { .. }
            | Self::Work(_) => None,
        }
    }

    /// How long the client works in the step.
    pub const fn work(&self) -> Duration {
        match self {
            Self::Work(length) => length.0,
            Self::Acquire { .. }
            | Self::Extend { .. }
            | Self::Keep { .. }
            | Self::Release { .. }
            | Self::Touch { .. } => Duration::ZERO,
        }
    }

    /// The register that the step touches, if it touches one.
    pub const fn touches(&self) -> Option<(&Name, AccessKind)> {
        match self {
            Self::Touch { register, way, .. } => Some((register, *way)),
            Self::Acquire { .. }
            | Self::Extend { .. }
            | Self::Keep { .. }
            | Self::Release { .. }
            | Self::Work(_) => None,
        }
    }

    /// The events when the client gets the request of the step.
    pub fn before(&self) -> impl Iterator<Item = EventKind> {
        self.resources().filter_map(|resource| self.effect().before(resource.clone()))
    }

    /// The events when the client has answered.
    pub fn after(&self, ok: bool) -> impl Iterator<Item = EventKind> {
        self.resources().filter_map(move |resource| self.effect().after(ok, resource.clone()))
    }

    /// The event when the access to a register arrives there, if the step is one.
    pub fn access(&self) -> Option<EventKind> {
        self.touches().map(|(register, way)| EventKind::of_access(way, register.clone()))
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

/// What a step of a script, or an operation of a client, does to the leases of its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEffect {
    /// It acquires them: another handle, where the client has the lease already.
    Acquires,
    /// It extends them once.
    Extends,
    /// It lets the watchdog extend them.
    Keeps,
    /// It gives them up: one handle of each.
    Releases,
    /// It leaves them as they are.
    None,
}

impl LeaseEffect {
    /// The event of a resource when the client gets the request.
    pub fn before(self, resource: Name) -> Option<EventKind> {
        match self {
            Self::Acquires => Some(EventKind::Asks(resource)),
            Self::Releases => Some(EventKind::Releases(resource)),
            Self::Extends | Self::Keeps | Self::None => None,
        }
    }

    /// The event of a resource when the client has answered.
    pub fn after(self, ok: bool, resource: Name) -> Option<EventKind> {
        match (self, ok) {
            (Self::Acquires, true) => Some(EventKind::Granted(resource)),
            (Self::Acquires, false) => Some(EventKind::Refused(resource)),
            (Self::Extends, true) => Some(EventKind::Extended(resource)),
            (Self::Releases, _) => Some(EventKind::Released(resource)),
            (Self::Extends, false) | (Self::Keeps | Self::None, _) => None,
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
                let (mut shared, mut permits) = (false, None);
                // Options come in any order, each at most once.
                while let Some(word) = words.rest.peek().copied() {
                    let option = match word {
                        "again" => {
                            return Err(words.wrong("`acquire L again` is `reacquire L` now"));
                        }
                        "shared" if !shared => {
                            words.rest.next();
                            shared = true;
                            continue;
                        }
                        "shared" => return Err(words.wrong("`shared` is there twice")),
                        "permits" if permits.is_none() && !again && also.is_empty() => {
                            words.rest.next();
                            permits = Some(words.permits()?);
                            continue;
                        }
                        "permits" => {
                            return Err(words.wrong(
                                "`permits` is for a new permit of one semaphore: not with `and` or \
                                 `reacquire`, and not twice",
                            ));
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
                Self::Acquire { resource, also, permits, shared, wait, ttl, cancel, again }
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
            Self::Acquire { resource, also, permits, shared, wait, ttl, cancel, again } => {
                let verb = if *again { "reacquire" } else { "acquire" };
                let also = names("and", &mut also.iter());
                let permits = permits.map(|permits| format!(" permits {permits}"));
                let permits = permits.unwrap_or_default();
                let shared = if *shared { " shared" } else { "" };
                let wait = option("wait", &Some(*wait).filter(|wait| !wait.is_zero()));
                let (ttl, cancel) = (option("ttl", ttl), option("cancel", cancel));
                write!(f, "{verb} {resource}{also}{permits}{shared}{wait}{ttl}{cancel}")
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

    /// The event of an access to a register.
    pub const fn of_access(way: AccessKind, register: Name) -> Self {
        match way {
            AccessKind::Present => Self::Presents(register),
            AccessKind::Read => Self::Reads(register),
            AccessKind::Write => Self::Writes(register),
        }
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

    #[test]
    fn moments_are_written_as_they_are_read() {
        for text in ["c1 granted L", "c1 reply 3", "c1 request 2 of extend", "c1 writes R + 10ms"] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), text);
        }
    }
}
