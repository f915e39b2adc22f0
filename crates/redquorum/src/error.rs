//! The errors. What a caller does differently is a variant; what each master said rides along.

use std::fmt;
use std::time::Duration;

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
        /// Which one, counted from 1.
        number: usize,
        /// What is wrong with it.
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
    /// A quorum was asked for, and too few masters are usable: the report tells which do not
    /// answer, and which refuse writes or are distrusted.
    NoQuorum(Report),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(bad) => bad.fmt(f),
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
            Self::NoQuorum(report) => match report.why_no_quorum() {
                Some(why) => write!(f, "no quorum: {why} ({report})"),
                None => write!(f, "no quorum of masters is reachable: {report}"),
            },
        }
    }
}

impl std::error::Error for BuildError {}

/// Why there is no lease. Where it shows a cause of its own, its text holds the cause's text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// Others held the resource, or asked for it at the same moments, for as long as was
    /// waited. Not a fault: try later.
    Taken {
        /// What the masters said at the last attempt, with who holds the key where they told.
        report: Report,
        /// How many attempts were made. None, where another request of the same
        /// [owner](crate::Owner) was under way all the while, or where others [came first](crate::Builder::fair).
        attempts: u32,
    },
    /// Too few masters answered, or those that did refuse writes or are distrusted: the lock is
    /// unavailable, with or without a holder. The text says which.
    NoQuorum {
        /// What the masters said at the last attempt.
        report: Report,
        /// How many attempts were made.
        attempts: u32,
    },
    /// A quorum granted, but the lease was over before it could be handed out: the TTL is too
    /// short for the masters' latency, or this process was stopped meanwhile.
    TooLate {
        /// What the masters said at the last attempt.
        report: Report,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The [owner](crate::Owner) holds the resource already, and its lease could not be extended to the TTL
    /// that was asked for. Nothing was taken away: the handles that are out live on to the old
    /// deadline. Ask again, or without a TTL.
    NotExtended(ExtendError),
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options(BadOption),
    /// The lock was shut down, before or meanwhile. What had been sent is cleaned up.
    ShutDown,
}

impl AcquireError {
    /// What each master said at the last attempt, if one was made.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Taken { report, .. }
            | Self::NoQuorum { report, .. }
            | Self::TooLate { report, .. } => Some(report),
            Self::NotExtended(error) => error.report(),
            Self::Options(_) | Self::ShutDown => None,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why_not;
        let (what, report, attempts) = match self {
            Self::Taken { report, attempts: 0 } if !report.says_anything() => {
                return f.write_str(
                    "another request of the same owner was still under way: wait longer, or await that one first",
                );
            }
            Self::Taken { report, attempts } => ("taken by another", report, attempts),
            Self::NoQuorum { report, attempts } => {
                why_not = format!("no quorum: {}", no_quorum(report, "too few masters answered"));
                (&*why_not, report, attempts)
            }
            Self::TooLate { report, attempts } => {
                ("granted too late, when nothing was left of the ttl", report, attempts)
            }
            Self::NotExtended(error) => {
                return write!(
                    f,
                    "the owner holds it already, but not for the ttl that it asks for; {error}; ask again, \
                     or without a ttl"
                );
            }
            Self::Options(bad) => return bad.fmt(f),
            Self::ShutDown => return f.write_str("the lock was shut down"),
        };
        let plural = if *attempts == 1 { "" } else { "s" };
        write!(f, "{what} ({attempts} attempt{plural}; {report})")
    }
}

/// Why there was no quorum; `otherwise` where too few masters answered.
fn no_quorum(report: &Report, otherwise: &str) -> String {
    report.why_no_quorum().unwrap_or_else(|| otherwise.to_owned())
}

impl std::error::Error for AcquireError {}

/// Why a lease was not extended. Its old deadline stands, unless it is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendError {
    /// Too few masters confirmed that the key is still ours. Trying again may help.
    NoQuorum(Report),
    /// The answers to this extension and to earlier ones show that a quorum of masters lacked the key
    /// at one time: a rival may hold the resource, or have held it. Trying again does not help. Stop,
    /// although the deadline has not passed: a failed extension changes nothing, so [`run`](crate::Lease::run) and [`lost`](crate::Lease::lost) do not
    /// stop for you. The watchdog, which nobody reads the errors of, does take it for a loss.
    QuorumGone(Report),
    /// The lease was lost, before or meanwhile.
    Lost(Lost),
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options(BadOption),
    /// The lock was shut down: its leases live on to their deadlines, and no longer.
    ShutDown,
}

impl ExtendError {
    /// What each master said, if they were asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::NoQuorum(report) | Self::QuorumGone(report) => Some(report),
            Self::Lost(_) | Self::Options(_) | Self::ShutDown => None,
        }
    }
}

impl fmt::Display for ExtendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQuorum(report) => {
                let why = no_quorum(report, "no quorum confirmed");
                write!(f, "not extended, the old deadline stands: {why} ({report})")
            }
            Self::QuorumGone(report) => {
                write!(f, "not extended: the key is gone from a quorum of masters ({report})")
            }
            Self::Lost(lost) => lost.fmt(f),
            Self::Options(bad) => bad.fmt(f),
            Self::ShutDown => f.write_str("not extended: the lock was shut down"),
        }
    }
}

impl std::error::Error for ExtendError {}

/// A lease is lost, for good: whoever acts on it from now on acts without a lock. What the masters
/// said last is in [`Lease::latest_report`](crate::Lease::latest_report).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lost(pub Loss);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease is lost: {}", self.0)
    }
}

impl std::error::Error for Lost {}

/// Why the work of [`Acquire::run`](crate::Acquire::run) was not done, or not to its end. Errors of
/// the work itself are in its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// There was no lease. The work was not started.
    NotAcquired(AcquireError),
    /// The lease was lost before the work was done. The work was dropped at one of its awaits.
    Lost(Lost),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => write!(f, "the work was not started: {error}"),
            Self::Lost(lost) => write!(f, "the work was stopped halfway: {lost}"),
        }
    }
}

impl std::error::Error for RunError {}

/// What a shutdown could not finish in its time. The keys expire by themselves within one TTL
/// of when their master got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Keys, counted per master, that shall go and are not yet said to be gone.
    pub owed: usize,
    /// Keys, counted per master, of leases that are still alive.
    pub held: usize,
    /// How long was waited.
    pub waited: Duration,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owed, held, waited } = self;
        write!(
            f,
            "not everything was cleaned up within {waited:?}: {owed} keys owed, {held} keys of \
             living leases; they expire within one ttl"
        )
    }
}

impl std::error::Error for Unfinished {}
