//! The counters, gauges and histograms of a lock, for the recorder of the `metrics` crate. Without
//! the feature only the counters count, for [`Stats`](crate::stats::Stats).
//!
//! All names and labels are fixed when the lock is built, and no label has a resource. Locks of one
//! process share them: counters and gauges show their sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The name and value of a metric's label, if it has one.
type Label<'a> = Option<(&'static str, &'a str)>;

pub(crate) struct Counter {
    count: AtomicU64,
    #[cfg(feature = "metrics")]
    exported: metrics::Counter,
}

impl Counter {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "exported nowhere"))]
    pub(crate) fn new(name: &'static str, label: Label<'_>) -> Self {
        Self {
            count: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            exported: metrics::counter!(name, labels(label)),
        }
    }

    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.exported.increment(1);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

pub(crate) struct Histogram {
    #[cfg(feature = "metrics")]
    exported: metrics::Histogram,
}

#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, clippy::unused_self, reason = "exported nowhere")
)]
impl Histogram {
    pub(crate) fn new(name: &'static str, label: Label<'_>) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            exported: metrics::histogram!(name, labels(label)),
        }
    }

    pub(crate) fn record(&self, time: Duration) {
        #[cfg(feature = "metrics")]
        self.exported.record(time);
    }
}

/// What is shown about one master. It is taken back when the lock is gone.
#[cfg(feature = "metrics")]
pub(crate) struct Gauges {
    shown: [u32; 3],
    exported: [metrics::Gauge; 3],
}

#[cfg(feature = "metrics")]
impl Gauges {
    pub(crate) fn of(master: &str) -> Self {
        let gauge = |(name, _)| metrics::gauge!(name, labels(Some(("master", master))));
        Self { shown: [0; 3], exported: GAUGES.map(gauge) }
    }

    /// Whether the master is up, and distrusted, and how many keys it must still delete.
    pub(crate) fn show(&mut self, up: bool, distrusted: bool, cleanups: usize) {
        let cleanups = u32::try_from(cleanups).unwrap_or(u32::MAX);
        let now = [u32::from(up), u32::from(distrusted), cleanups];
        for ((shown, exported), now) in self.shown.iter_mut().zip(&self.exported).zip(now) {
            if *shown != now {
                exported.increment(f64::from(now) - f64::from(*shown));
                *shown = now;
            }
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for Gauges {
    fn drop(&mut self) {
        self.show(false, false, 0);
    }
}

#[cfg(feature = "metrics")]
fn labels(label: Label<'_>) -> Vec<metrics::Label> {
    let label = label.map(|(name, value)| metrics::Label::new(name, value.to_owned()));
    label.into_iter().collect()
}

#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::Unit::{Count, Seconds};
    for (name, meaning) in COUNTERS {
        metrics::describe_counter!(name, Count, meaning);
    }
    for (name, meaning) in HISTOGRAMS {
        metrics::describe_histogram!(name, Seconds, meaning);
    }
    for (name, meaning) in GAUGES {
        metrics::describe_gauge!(name, Count, meaning);
    }
}

#[cfg(feature = "metrics")]
const COUNTERS: [(&str, &str); 8] = [
    ("redquorum_acquires_total", "Acquires, by outcome"),
    ("redquorum_reentries_total", "Further handles of leases"),
    ("redquorum_certifications_total", "Fenced grants that needed one more round trip"),
    ("redquorum_extensions_total", "Extensions, by outcome"),
    ("redquorum_bare_extensions_total", "Extensions that left a lease on a bare quorum"),
    ("redquorum_losses_total", "Leases lost before their end"),
    ("redquorum_releases_total", "Leases released"),
    ("redquorum_connects_total", "Connections that came up"),
];

#[cfg(feature = "metrics")]
const HISTOGRAMS: [(&str, &str); 3] = [
    ("redquorum_wait_seconds", "How long acquires waited"),
    ("redquorum_hold_seconds", "How long leases were held"),
    ("redquorum_reply_seconds", "How long replies took"),
];

/// In the order of [`Gauges::show`].
#[cfg(feature = "metrics")]
const GAUGES: [(&str, &str); 3] = [
    ("redquorum_masters_up", "Locks that have a connection to the master"),
    ("redquorum_masters_distrusted", "Locks for which a guard distrusts the master"),
    ("redquorum_cleanups", "Keys that the master must still delete"),
];
