//! The events that a lock tells the `tracing` crate, or nobody where it is not built in.
//!
//! No event carries a token, a credential or a URL.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "without the feature there is nobody to tell")
)]

use crate::report::Report;

pub(crate) fn connected(master: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "redquorum", master, "connected");
}

pub(crate) fn disconnected(master: &str, why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redquorum", master, why, "not connected");
}

pub(crate) fn acquired(resource: &[u8], report: &Report) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "redquorum", resource = %resource.escape_ascii(), %report, "acquired");
}

pub(crate) fn not_acquired(resource: &[u8], attempts: u32, why: &str, report: &Report) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "redquorum", resource = %resource.escape_ascii(), attempts, why, %report, "not acquired");
}

pub(crate) fn not_extended(resource: &[u8], report: &Report) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redquorum", resource = %resource.escape_ascii(), %report, "not extended");
}

pub(crate) fn lost(resource: &[u8], why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redquorum", resource = %resource.escape_ascii(), why, "lease lost");
}
