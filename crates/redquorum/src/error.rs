//! The errors. What a caller does differently is a variant; what each master said rides along.

use std::fmt;
use std::time::Duration;

use redquorum_protocol::{Answer, BadOption, Loss, quorum};

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
    /// A quorum was asked for, and too few masters are reachable.
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
            Self::NoQuorum(report) => write!(f, "no quorum of masters is reachable: {report}"),
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
    /// Too few masters answered: the lock is unavailable, whoever holds it.
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
        let (what, report, attempts) = match self {
            Self::Taken { report, attempts: 0 } if !report.says_anything() => {
                return f.write_str(
                    "another request of the same owner was still under way: wait longer, or await that one first",
                );
            }
            Self::Taken { report, attempts } => ("taken by another", report, attempts),
            Self::NoQuorum { report, attempts } if is_of_another_fleet(report) => (
                "no quorum: other locks use some of these masters and not all of them, so that both could be \
                 granted",
                report,
                attempts,
            ),
            Self::NoQuorum { report, attempts } if is_for_distrust(report) => (
                "no quorum: masters that may have forgotten leases, or ended them too early, are \
                 distrusted until none of those can be alive; wait, or bless masters that are new",
                report,
                attempts,
            ),
            Self::NoQuorum { report, attempts } => {
                ("no quorum: too few masters answered", report, attempts)
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

/// Whether a master has the marker of another set of masters, which refuses whatever the others say.
fn is_of_another_fleet(report: &Report) -> bool {
    let mut answers = report.masters().iter().map(|master| &master.answer);
    answers.any(|answer| matches!(answer, Some(Answer::Unknown(cause)) if cause.refuses()))
}

/// Whether there would be a quorum if no master were distrusted.
fn is_for_distrust(report: &Report) -> bool {
    let unknown =
        report.masters().iter().filter(|master| matches!(master.answer, Some(Answer::Unknown(_))));
    let (masters, distrusted) = (report.masters().len(), report.distrusted());
    masters + distrusted - unknown.count() >= quorum(masters) && distrusted > 0
}

impl std::error::Error for AcquireError {}

/// Why a lease was not extended. Its old deadline stands, unless it is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendError {
    /// Too few masters confirmed that the key is still ours. Trying again may help.
    NoQuorum(Report),
    /// So many masters answered that the key is gone that no quorum holds it: somebody else may
    /// hold the resource already. Trying again does not help. Stop, although the deadline has not
    /// passed: a failed extension
    /// changes nothing, so [`run`](crate::Lease::run) and [`lost`](crate::Lease::lost) do not
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
                write!(f, "not extended, the old deadline stands: no quorum confirmed ({report})")
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
