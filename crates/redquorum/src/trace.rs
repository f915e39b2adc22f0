//! The events for the `tracing` crate; without the feature they go nowhere.
//!
//! A warning reports a change of state, once: a master goes down, a lease is endangered or lost. If
//! a caller learns the result from a return value, the event has level debug. No event contains a
//! token, a credential or a URL.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "without the feature there is nothing to log to")
)]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redquorum_protocol::Time;

use crate::report::Report;

/// The length of a window, in which at most [`MOST`] events of one master, or of all leases of one
/// lock, are logged.
const WINDOW: Duration = Duration::from_secs(10);

/// The most events in one window.
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
    fn admit(&self, now: Time) -> Option<u64> {
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

/// The field for suppressed events, omitted if there were none.
#[cfg(feature = "tracing")]
fn some(suppressed: u64) -> Option<u64> {
    (suppressed > 0).then_some(suppressed)
}

pub(crate) fn master_up(throttle: &Throttle, now: Time, master: &str) {
    let Some(suppressed) = throttle.admit(now) else { return };
    #[cfg(feature = "tracing")]
    tracing::info!(target: "redquorum", master, suppressed = some(suppressed), "master up");
}

pub(crate) fn master_down(throttle: &Throttle, now: Time, master: &str, why: &str) {
    let Some(suppressed) = throttle.admit(now) else { return };
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redquorum", master, why, suppressed = some(suppressed), "master down");
}

pub(crate) fn acquired(resource: &[u8], waited: Duration, report: &Report) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: "redquorum",
        resource = %resource.escape_ascii(),
        ?waited,
        %report,
        "acquired"
    );
}

pub(crate) fn not_acquired(resource: &[u8], attempts: u32, why: &str, report: &Report) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "redquorum", resource = %resource.escape_ascii(), attempts, why, %report, "not acquired");
}

pub(crate) fn given_back(resource: &[u8], held: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "redquorum", resource = %resource.escape_ascii(), ?held, "given back");
}

/// Logs a failed extension, unless the one before it failed too.
pub(crate) fn endangered(
    throttle: &Throttle,
    now: Time,
    resource: &[u8],
    left: Duration,
    report: impl FnOnce() -> Report,
) {
    let Some(suppressed) = throttle.admit(now) else { return };
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "redquorum",
        resource = %resource.escape_ascii(),
        ?left,
        report = %report(),
        suppressed = some(suppressed),
        "lease endangered"
    );
}

pub(crate) fn still_endangered(resource: &[u8], left: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "redquorum", resource = %resource.escape_ascii(), ?left, "not extended");
}

pub(crate) fn recovered(throttle: &Throttle, now: Time, resource: &[u8]) {
    let Some(suppressed) = throttle.admit(now) else { return };
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "redquorum",
        resource = %resource.escape_ascii(),
        suppressed = some(suppressed),
        "lease recovered"
    );
}

pub(crate) fn lost(throttle: &Throttle, now: Time, resource: &[u8], why: &str) {
    let Some(suppressed) = throttle.admit(now) else { return };
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "redquorum",
        resource = %resource.escape_ascii(),
        why,
        suppressed = some(suppressed),
        "lease lost"
    );
}
