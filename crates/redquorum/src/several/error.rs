//! What can go wrong with several resources at once, and which of them it was.

use std::fmt;

use redquorum_protocol::BadOption;

use crate::error::{AcquireError, ExtendError, Lost};
use crate::report::Report;

/// Why there are no leases. None of the resources is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireAllError {
    /// Others held one of them, this one at last, for as long as was waited. Not a fault: try later.
    Taken {
        /// Which, without the lock's prefix.
        resource: Vec<u8>,
        /// What its masters said at the last attempt, with who holds the key where they told.
        report: Report,
        /// How often all of them were asked for together.
        attempts: u32,
    },
    /// Too few masters answered for one of them.
    NoQuorum {
        /// Which, without the lock's prefix.
        resource: Vec<u8>,
        /// What its masters said at the last attempt.
        report: Report,
        /// How often all of them were asked for together.
        attempts: u32,
    },
    /// Quorums granted all of them, but the lease of this one was over before they could be handed out.
    TooLate {
        /// Which, without the lock's prefix.
        resource: Vec<u8>,
        /// What its masters said at the last attempt.
        report: Report,
        /// How often all of them were asked for together.
        attempts: u32,
    },
    /// No resource was named.
    NoResources,
    /// Too many resources were named.
    TooMany {
        /// How many.
        resources: usize,
        /// How many there may be.
        most: usize,
    },
    /// A resource was named twice, on the same masters.
    NamedTwice {
        /// Which.
        resource: Vec<u8>,
    },
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options {
        /// For which resource.
        resource: Vec<u8>,
        /// What is wrong.
        bad: BadOption,
    },
    /// One of the locks was shut down, before or meanwhile. What had been sent is cleaned up.
    ShutDown,
}

impl AcquireAllError {
    /// Which resource was in the way, or is named wrongly.
    pub fn resource(&self) -> Option<&[u8]> {
        match self {
            Self::Taken { resource, .. }
            | Self::NoQuorum { resource, .. }
            | Self::TooLate { resource, .. }
            | Self::NamedTwice { resource }
            | Self::Options { resource, .. } => Some(resource),
            Self::NoResources | Self::TooMany { .. } | Self::ShutDown => None,
        }
    }

    /// What each of its masters said at the last attempt, if one was made.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Taken { report, .. }
            | Self::NoQuorum { report, .. }
            | Self::TooLate { report, .. } => Some(report),
            _ => None,
        }
    }

    /// The same of one alone, for its words.
    fn alone(&self) -> Option<AcquireError> {
        match self.clone() {
            Self::Taken { report, attempts, .. } => Some(AcquireError::Taken { report, attempts }),
            Self::NoQuorum { report, attempts, .. } => {
                Some(AcquireError::NoQuorum { report, attempts })
            }
            Self::TooLate { report, attempts, .. } => {
                Some(AcquireError::TooLate { report, attempts })
            }
            Self::Options { bad, .. } => Some(AcquireError::Options(bad)),
            _ => None,
        }
    }
}

impl fmt::Display for AcquireAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(resource), Some(why)) = (self.resource(), self.alone()) {
            return write!(f, "none is held, because of {}: {why}", resource.escape_ascii());
        }
        match self {
            Self::NoResources => f.write_str("no resource was named: name at least one"),
            Self::TooMany { resources, most } => write!(
                f,
                "{resources} resources at once: ask for {most} at most, or lock one that stands for them"
            ),
            Self::NamedTwice { resource } => write!(
                f,
                "{} was named twice, and would be in its own way: name it once",
                resource.escape_ascii()
            ),
            _ => f.write_str("a lock was shut down"),
        }
    }
}

impl std::error::Error for AcquireAllError {}

/// Not all leases were extended. The others were, or may have been; of this one the old deadline stands,
/// unless it is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotExtended {
    /// Whose, without the lock's prefix. If several were not: the worst.
    pub resource: Vec<u8>,
    /// Why.
    pub error: ExtendError,
}

impl fmt::Display for NotExtended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.resource.escape_ascii(), self.error)
    }
}

impl std::error::Error for NotExtended {}

/// One of several leases is lost, for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostOne {
    /// Whose, without the lock's prefix.
    pub resource: Vec<u8>,
    /// Why.
    pub lost: Lost,
}

impl fmt::Display for LostOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.resource.escape_ascii(), self.lost)
    }
}

impl std::error::Error for LostOne {}
