//! The errors. Each case that a caller handles differently is a variant; the replies of the masters
//! are attached.

use std::fmt;

use redquorum_protocol::{BadOption, Loss};

use crate::endpoint::BadUrl;
use crate::report::Report;

/// Why a lock could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// An option is out of its range or does not fit another.
    Options(BadOption),
    /// The address of a master cannot be used.
    Address {
        /// The number of the master, counted from 1.
        number: usize,
        /// What is wrong with the address.
        error: BadUrl,
    },
    /// Two masters have the same name: one server must not vote twice.
    Duplicate {
        /// The first, counted from 1.
        first: usize,
        /// The second, counted from 1.
        second: usize,
        /// Their name.
        name: String,
    },
    /// The certificates cannot be used.
    Tls(String),
    /// There is no Tokio runtime here, or one without timers.
    NoRuntime,
    /// The thread of a [blocking](crate::Builder#method.build_blocking) lock, or its runtime, could
    /// not be started.
    Runtime(String),
    /// Too few masters are usable for [`require_quorum`](crate::Builder::require_quorum). The
    /// report names those that do not answer, refuse writes or are distrusted.
    NoQuorum(Report),
    /// One of the [shards](crate::Builder::shards) could not be built.
    Shard {
        /// The name of the shard. Of resources that change hands, of both: `east>west`.
        name: String,
        /// Why.
        error: Box<Self>,
    },
}

impl BuildError {
    pub(crate) fn of_shard(self, name: &str) -> Self {
        Self::Shard { name: name.to_owned(), error: Box::new(self) }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(bad) => bad.fmt(f),
            Self::Shard { name, error } => write!(f, "shard {name:?}: {error}"),
            Self::Address { number, error } => write!(f, "master {number}: {error}"),
            Self::Duplicate { first, second, name } => write!(
                f,
                "masters {first} and {second} are both {name}, and one server must not vote twice: \
                 give each master once"
            ),
            Self::Tls(why) => write!(f, "certificates: {why}"),
            Self::NoRuntime => {
                f.write_str("no Tokio runtime with timers here: build the lock inside one")
            }
            Self::Runtime(why) => write!(f, "the lock's own thread could not be started: {why}"),
            Self::NoQuorum(report) => match report.why_no_quorum() {
                Some(why) => write!(f, "no quorum: {why} ({report})"),
                None => {
                    let set = report.set_without_quorum().unwrap_or("masters");
                    write!(f, "no quorum of {set} is reachable: {report}")
                }
            },
        }
    }
}

impl std::error::Error for BuildError {}

/// Why a resource was not acquired. Of several resources, none is held then.
///
/// If a variant contains another error, its text contains the text of that error. The texts name
/// masters and their addresses: log them, and do not send them to your callers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// For the whole wait, other clients held the resource, asked for it at the same moments, or
    /// came first in a [fair queue](crate::Builder::fair). The key of a holder that died or was
    /// late counts until it expires. Of several resources, it was this one at the end. Not a fault:
    /// try later.
    Taken {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies at the last attempt, with the holder of the key where a master named it.
        report: Report,
        /// The number of attempts. It is 0 if another request of this process, or of the same
        /// [owner](crate::Owner), was before it all the time. In a [fair
        /// queue](crate::Builder::fair) it is at most 1 if its turn never came.
        attempts: u32,
    },
    /// Too few masters answered, or those that did refuse writes or are distrusted. The lock is
    /// unavailable, with or without a holder. The text says which. The acquire has repeated
    /// its attempts, with pauses, for its whole wait. After a wait of zero, pause before you try
    /// again.
    NoQuorum {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies at the last attempt.
        report: Report,
        /// The number of attempts.
        attempts: u32,
    },
    /// A quorum granted, but the lease was not handed out in time. The TTL is too short for the
    /// masters' latency, or this process was paused, or the future was not polled for 8 node
    /// timeouts and at least a second. Or the clock of this process ran backwards.
    TooLate {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies at the last attempt.
        report: Report,
        /// The number of attempts.
        attempts: u32,
    },
    /// The [owner](crate::Owner) holds the resource already, and its lease could not be extended to
    /// the requested TTL. The existing handles keep the old deadline. Ask again, or without a TTL.
    NotExtended(ExtendError),
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// What is wrong.
        error: BadOption,
    },
    /// A request for several resources named none. Nothing was sent.
    NoResources,
    /// A request named too many resources. Nothing was sent.
    TooManyResources {
        /// How many were named.
        resources: usize,
        /// How many are allowed.
        most: usize,
    },
    /// A request named a resource twice, on the same masters. Nothing was sent.
    NamedTwice {
        /// The resource.
        resource: Vec<u8>,
    },
    /// The lock was shut down, before or meanwhile. Keys that were set are cleaned up.
    ShutDown,
    /// This process is a fork of the one that built the lock. Nothing was sent. Build a lock in
    /// this process.
    Forked,
}

/// Why a lock does nothing in a forked process.
pub(crate) const FORKED: &str =
    "this process is a fork of the one that built the lock: build a lock in this process";

impl AcquireError {
    /// Whether other clients had the resource, or asked for it at the same moments:
    /// [`Taken`](Self::Taken). Try later.
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken { .. })
    }

    /// Whether the lock was unavailable: [`NoQuorum`](Self::NoQuorum) or
    /// [`TooLate`](Self::TooLate). The masters need attention.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::NoQuorum { .. } | Self::TooLate { .. })
    }

    /// Whether the same request may succeed later, with nothing changed in this program: the
    /// resource is taken, or the lock unavailable. With the masters of another lock
    /// ([`Distrust::OtherMasters`](crate::report::Distrust::OtherMasters)) it cannot.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotExtended(error) => error.is_retryable(),
            Self::NoQuorum { report, .. } => !report.is_of_other_masters(),
            error => error.is_taken() || error.is_unavailable(),
        }
    }

    /// The resource that was not acquired, if the error is about one.
    pub fn resource(&self) -> Option<&[u8]> {
        match self {
            Self::Taken { resource, .. }
            | Self::NoQuorum { resource, .. }
            | Self::TooLate { resource, .. }
            | Self::Options { resource, .. }
            | Self::NamedTwice { resource } => Some(resource),
            Self::NotExtended(error) => error.resource(),
            Self::NoResources | Self::TooManyResources { .. } | Self::ShutDown | Self::Forked => {
                None
            }
        }
    }

    /// The replies at the last attempt, if one was made.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Taken { report, .. }
            | Self::NoQuorum { report, .. }
            | Self::TooLate { report, .. } => Some(report),
            Self::NotExtended(error) => error.report(),
            _ => None,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = About(self.resource().unwrap_or_default());
        let (what, report, attempts) = match self {
            Self::Taken { report, attempts: 0, .. } if !report.says_anything() => {
                return write!(
                    f,
                    "{resource}another request of the same owner was still under way: wait \
                     longer, or await that one first"
                );
            }
            Self::Taken { report, attempts, .. } => ("taken by another".into(), report, attempts),
            Self::NoQuorum { report, attempts, .. } => {
                let why = no_quorum(report, "too few masters answered");
                (format!("no quorum: {why}"), report, attempts)
            }
            Self::TooLate { report, attempts, .. } => {
                ("granted, but not handed out in time".into(), report, attempts)
            }
            Self::NotExtended(error) => {
                return write!(
                    f,
                    "the owner holds it already, but not for the ttl that it asks for; {error}; \
                     ask again, or without a ttl"
                );
            }
            Self::Options { error, .. } => return write!(f, "{resource}{error}"),
            Self::NoResources => return f.write_str("no resource was named: name at least one"),
            Self::TooManyResources { resources, most } => {
                return write!(
                    f,
                    "{resources} resources at once: ask for {most} at most, or lock one that \
                     stands for them"
                );
            }
            Self::NamedTwice { .. } => {
                return write!(f, "{resource}named twice in one request: name it once");
            }
            Self::ShutDown => return f.write_str("the lock was shut down"),
            Self::Forked => return f.write_str(FORKED),
        };
        match attempts {
            0 => write!(
                f,
                "{resource}{what} (not tried: another request of this process was before it for \
                 the whole wait; {report})"
            ),
            1 => write!(f, "{resource}{what} (1 attempt; {report})"),
            _ => write!(f, "{resource}{what} ({attempts} attempts; {report})"),
        }
    }
}

/// The resource in front of a text about it. A name may be long, or empty by mistake.
pub(crate) struct About<'a>(pub(crate) &'a [u8]);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The most bytes of a name that a text repeats.
        const MOST: usize = 100;
        match self.0 {
            [] => Ok(()),
            name if name.len() > MOST => write!(f, "{}…: ", name[..MOST].escape_ascii()),
            name => write!(f, "{}: ", name.escape_ascii()),
        }
    }
}

/// Why there was no quorum; `otherwise` if too few masters answered.
fn no_quorum(report: &Report, otherwise: &str) -> String {
    report.why_no_quorum().unwrap_or_else(|| match report.set_without_quorum() {
        None => otherwise.to_owned(),
        Some(set) => format!("{otherwise}, of {set}"),
    })
}

impl std::error::Error for AcquireError {}

/// Why a lease was not extended. The old deadline stands, unless the lease is lost, or
/// [`extend_to`](crate::Lease::extend_to) asked for an earlier one.
///
/// [`Leases::extend`](crate::Leases::extend) returns the worst error of all leases. The other
/// leases may have been extended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendError {
    /// Too few masters confirmed that the key is still ours. Trying again may help.
    NoQuorum {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies of the masters.
        report: Report,
    },
    /// The replies to this extension and to earlier ones show that a quorum of masters lacked the
    /// key at one time: a rival may hold the resource, or have held it. Trying again does not help.
    ///
    /// Stop, although the deadline has not passed. A failed extension changes nothing, so
    /// [`run`](crate::Lease::run) and [`lost`](crate::Lease::lost) do not stop for you. The
    /// watchdog has no caller to report an error to, so it declares the lease lost.
    QuorumGone {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies of the masters.
        report: Report,
    },
    /// The lease was lost, before or meanwhile.
    Lost(Lost),
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// What is wrong.
        error: BadOption,
    },
    /// The lock was shut down: its leases live on to their deadlines, and no longer.
    ShutDown,
}

impl ExtendError {
    /// Whether the lease is lost, or a quorum of masters lacked its key at one time:
    /// [`Lost`](Self::Lost) or [`QuorumGone`](Self::QuorumGone). Stop.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::QuorumGone { .. })
    }

    /// Whether another extension may succeed, as long as the lease lives:
    /// [`NoQuorum`](Self::NoQuorum).
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NoQuorum { .. })
    }

    /// The resource of the lease, if the error is about one.
    pub fn resource(&self) -> Option<&[u8]> {
        match self {
            Self::NoQuorum { resource, .. }
            | Self::QuorumGone { resource, .. }
            | Self::Options { resource, .. } => Some(resource),
            Self::Lost(lost) => Some(&lost.resource),
            Self::ShutDown => None,
        }
    }

    /// The reply of each master, if the masters were asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::NoQuorum { report, .. } | Self::QuorumGone { report, .. } => Some(report),
            Self::Lost(_) | Self::Options { .. } | Self::ShutDown => None,
        }
    }
}

impl fmt::Display for ExtendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = About(self.resource().unwrap_or_default());
        match self {
            Self::NoQuorum { report, .. } => {
                let why = no_quorum(report, "no quorum confirmed");
                write!(f, "{resource}not extended, the old deadline stands: {why} ({report})")
            }
            Self::QuorumGone { report, .. } => {
                write!(f, "{resource}not extended: {} ({report})", Loss::QuorumGone)
            }
            Self::Lost(lost) => lost.fmt(f),
            Self::Options { error, .. } => write!(f, "{resource}{error}"),
            Self::ShutDown => f.write_str("not extended: the lock was shut down"),
        }
    }
}

impl std::error::Error for ExtendError {}

/// A lease is lost, for good. Code that acts on it from now on acts without a lock. The last
/// replies of the masters are in [`Lease::latest_report`](crate::Lease::latest_report).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lost {
    /// The resource, without the lock's prefix.
    pub resource: Vec<u8>,
    /// Why the lease is lost.
    pub cause: Loss,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}the lease is lost: {}", About(&self.resource), self.cause)
    }
}

impl std::error::Error for Lost {}

/// Why the work of [`Acquire::run`](crate::Acquire::run) was not started or not finished. Errors of
/// the work itself are in its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// There was no lease. The work was not started.
    NotAcquired(AcquireError),
    /// The lease was lost before the work was done. The work was dropped at one of its awaits, or
    /// its result, if it blocked its thread until it was done.
    Lost(Lost),
}

impl RunError {
    /// Whether the lease was lost before the work was done: [`Lost`](Self::Lost).
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the work was not started because other clients had the resource: see
    /// [`AcquireError::is_taken`].
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::NotAcquired(error) if error.is_taken())
    }

    /// Whether the work was not started because the lock was unavailable: see
    /// [`AcquireError::is_unavailable`].
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotAcquired(error) if error.is_unavailable())
    }

    /// Whether the work was not started, and may be later: see [`AcquireError::is_retryable`].
    /// Whether work that was dropped half-way may be done again, only you know.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NotAcquired(error) if error.is_retryable())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => write!(f, "the work was not started: {error}"),
            Self::Lost(lost) => write!(f, "the work was not done in time: {lost}"),
        }
    }
}

impl std::error::Error for RunError {}
