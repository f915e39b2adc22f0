//! The events and spans for the `tracing` crate; without the feature they go nowhere.
//!
//! A warning reports a change of state, once: a master goes down or is distrusted, a lease is
//! endangered or lost. If
//! a caller learns the result from a return value, the event has level debug. No event contains a
//! credential, a URL, or more than the first four bytes of a key's token.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "without the feature there is nothing to log to")
)]

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redquorum_protocol::{Cause, Fingerprint, Time};
#[cfg(feature = "tracing")]
use tracing::field::Empty;

use crate::error::AcquireError;
use crate::report::Report;

/// The length of a window, in which at most [`MOST`] events of one master, or of all leases of one
/// lock, are logged.
const WINDOW: Duration = Duration::from_secs(10);

const MOST: u32 = 10;

/// Limits how often changes of state are logged: of one master, or of all leases of a lock.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<Window>);

#[derive(Default)]
struct Window {
    began: Option<Time>,
    logged: u32,
    suppressed: u64,
}

impl Throttle {
    /// Whether an event may be logged now. Returns how many were suppressed before it.
    pub(crate) fn admit(&self, now: Time) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.began.is_none_or(|began| now.since(began) >= WINDOW) {
            (window.began, window.logged) = (Some(now), 0);
        }
        if window.logged == MOST {
            window.suppressed += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

/// A resource in events and spans: its name, as errors show it, or a hash of the name.
#[derive(Clone, Copy)]
pub(crate) struct Resource<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) hashed: bool,
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.hashed {
            return self.name.escape_ascii().fmt(f);
        }
        // The same in every process and version.
        write!(f, "#{}", Fingerprint::of_name(&self.name.escape_ascii().to_string()))
    }
}

#[derive(Clone)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

macro_rules! span {
    ($name:literal, $($fields:tt)*) => {
        Span {
            #[cfg(feature = "tracing")]
            span: tracing::info_span!(target: "redquorum", $name, $($fields)*),
        }
    };
}

impl Span {
    pub(crate) const NONE: Self = Self {
        #[cfg(feature = "tracing")]
        span: tracing::Span::none(),
    };

    /// The span of an acquire of one resource, from its first poll to its result.
    pub(crate) fn acquire(resource: Resource<'_>) -> Self {
        span!("acquire", %resource, attempts = Empty, queued = Empty, outcome = Empty)
    }

    pub(crate) fn acquire_all(resources: usize) -> Self {
        span!("acquire", resources, outcome = Empty)
    }

    pub(crate) fn hold(
        resource: Resource<'_>,
        fencing_token: impl FnOnce() -> Option<u64>,
    ) -> Self {
        span!("hold", %resource, fencing_token = fencing_token(), lost = Empty)
    }

    pub(crate) fn release(resource: Resource<'_>) -> Self {
        span!("release", %resource, outcome = Empty)
    }

    pub(crate) fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        #[cfg(feature = "tracing")]
        return self.span.in_scope(work);
        #[cfg(not(feature = "tracing"))]
        work()
    }

    pub(crate) async fn around<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| self.within(|| work.as_mut().poll(cx))).await
    }

    pub(crate) fn record(&self, field: &str, value: impl fmt::Display) {
        #[cfg(feature = "tracing")]
        self.span.record(field, tracing::field::display(value));
    }

    pub(crate) fn acquired<T>(&self, result: &Result<T, AcquireError>) {
        let outcome = match result {
            Ok(_) => "acquired",
            Err(AcquireError::Taken { .. }) => "taken",
            Err(AcquireError::NoQuorum { .. }) => "no_quorum",
            Err(AcquireError::TooLate { .. }) => "too_late",
            Err(AcquireError::ShutDown) => "shut_down",
            Err(_) => "refused",
        };
        self.record("outcome", outcome);
    }
}

fn some(suppressed: u64) -> Option<u64> {
    (suppressed > 0).then_some(suppressed)
}

macro_rules! event {
    ($level:ident, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "redquorum", $($fields)*)
    };
}

pub(crate) fn master_up(suppressed: u64, master: &str) {
    event!(info, master, suppressed = some(suppressed), "master up");
}

pub(crate) fn master_down(suppressed: u64, master: &str, why: &str) {
    event!(warn, master, why, suppressed = some(suppressed), "master down");
}

pub(crate) fn node_panicked(master: &str, why: &str) {
    event!(warn, master, why, "node panicked");
}

/// Logs that the grants of a connected master do not count. The text has the reason, and for how
/// long, if the distrust ends by itself.
pub(crate) fn master_distrusted(suppressed: u64, master: &str, why: &Cause) {
    event!(warn, master, %why, suppressed = some(suppressed), "master distrusted");
}

pub(crate) fn master_trusted(suppressed: u64, master: &str) {
    event!(info, master, suppressed = some(suppressed), "master trusted again");
}

pub(crate) fn acquired(resource: Resource<'_>, waited: Duration, report: &Report) {
    event!(debug, %resource, ?waited, %report, "acquired");
}

pub(crate) fn not_acquired(resource: Resource<'_>, attempts: u32, why: &str, report: &Report) {
    event!(debug, %resource, attempts, why, %report, "not acquired");
}

pub(crate) fn given_back(resource: Resource<'_>, held: Duration) {
    event!(debug, %resource, ?held, "given back");
}

/// Logs a failed extension, unless the one before it failed too.
pub(crate) fn endangered(suppressed: u64, resource: Resource<'_>, left: Duration, report: &Report) {
    let suppressed = some(suppressed);
    event!(warn, %resource, ?left, %report, suppressed, "lease endangered");
}

pub(crate) fn still_endangered(resource: Resource<'_>, left: Duration) {
    event!(debug, %resource, ?left, "not extended");
}

pub(crate) fn recovered(suppressed: u64, resource: Resource<'_>) {
    event!(info, %resource, suppressed = some(suppressed), "lease recovered");
}

pub(crate) fn lost(suppressed: u64, resource: Resource<'_>, why: &str) {
    event!(warn, %resource, why, suppressed = some(suppressed), "lease lost");
}
