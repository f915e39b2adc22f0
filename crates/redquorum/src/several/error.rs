//! The errors of requests for several resources. They name the resource that failed.

use std::fmt;

use redquorum_protocol::BadOption;

use crate::error::{AcquireError, ExtendError, Lost};
use crate::report::Report;

/// Why there are no leases. None of the resources is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireAllError {
    /// Other clients held one of the resources for the whole wait; at the end it was this one. Not
    /// a fault: try later.
    Taken {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies of its masters at the last attempt, with the holder of the key where a
        /// master named it.
        report: Report,
        /// How often all resources were requested together.
        attempts: u32,
    },
    /// Too few masters answered for this resource.
    NoQuorum {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies of its masters at the last attempt.
        report: Report,
        /// How often all resources were requested together.
        attempts: u32,
    },
    /// Quorums granted all of them, but the lease of this resource was over before all could be
    /// handed out.
    TooLate {
        /// The resource, without the lock's prefix.
        resource: Vec<u8>,
        /// The replies of its masters at the last attempt.
        report: Report,
        /// How often all resources were requested together.
        attempts: u32,
    },
    /// No resource was named.
    NoResources,
    /// Too many resources were named.
    TooMany {
        /// How many were named.
        resources: usize,
        /// How many are allowed.
        most: usize,
    },
    /// A resource was named twice, on the same masters.
    NamedTwice {
        /// The resource.
        resource: Vec<u8>,
    },
    /// An option is out of its range or does not fit another. Nothing was sent.
    Options {
        /// The resource with this option.
        resource: Vec<u8>,
        /// What is wrong.
        bad: BadOption,
    },
    /// One of the locks was shut down, before or meanwhile. Keys that were set are cleaned up.
    ShutDown,
}

impl AcquireAllError {
    /// The resource that failed, or that was named wrongly.
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

    /// The replies of its masters at the last attempt, if one was made.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Taken { report, .. }
            | Self::NoQuorum { report, .. }
            | Self::TooLate { report, .. } => Some(report),
            _ => None,
        }
    }

    /// The error of a request for this resource alone, for its text.
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

/// Not all leases were extended. For the resource named here the old deadline stands, unless its
/// lease is lost. The other leases were extended, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotExtended {
    /// The resource, without the lock's prefix. If several failed: the one with the worst error.
    pub resource: Vec<u8>,
    /// Why it was not extended.
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
    /// The resource, without the lock's prefix.
    pub resource: Vec<u8>,
    /// Why the lease is lost.
    pub lost: Lost,
}

impl fmt::Display for LostOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.resource.escape_ascii(), self.lost)
    }
}

impl std::error::Error for LostOne {}
