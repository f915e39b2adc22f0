//! Checks the lock's options as the library does, so that no scenario fails only when its clients
//! start.

use std::time::Duration;

use redquorum_protocol::{BadOption, Drift, Guard, LockConfig};

use super::{MOST_NODES, Run};
use crate::scenario::Length;
use crate::scenario::read::tree::Place;

impl Run<'_> {
    pub(super) fn options(&mut self) {
        let (place, lock) = self.lock.clone();
        for (key, length) in [
            ("ttl", lock.ttl),
            ("lock-delay", lock.grace),
            ("node-timeout", lock.node_timeout),
            ("drift", lock.drift),
        ] {
            self.whole(&place.key(key), length);
        }
        if let Some(bound) = lock.clock_guard {
            self.whole(&place.key("clock-guard"), bound);
        }
        if let Some(guard) = lock.guard {
            self.whole(&place.key("restart-guard"), guard);
        } else if !lock.initialized {
            let mend = "add `restart-guard = \"2s\"`, or leave `initialized` out";
            let at = place.key("initialized").itself();
            self.wrong(&at, "only a guard distrusts masters that are new", mend);
        }
        self.terms(&place, lock.ttl.0, &place.key("ttl"), lock.guard);
    }

    /// The harness passes options to clients in milliseconds.
    pub(super) fn whole(&mut self, place: &Place, length: Length) {
        if !length.0.subsec_nanos().is_multiple_of(1_000_000) {
            let up = length.0 + Duration::from_millis(1);
            let up =
                Length(Duration::from_millis(u64::try_from(up.as_millis()).unwrap_or(u64::MAX)));
            self.wrong(
                place,
                format!("`{length}` is not a whole number of milliseconds"),
                format!("locks count in milliseconds: write for instance {up}"),
            );
        }
    }

    /// Whether the library accepts a TTL with the other options. A problem with the TTL is reported
    /// at its place, which may be in a script. A client may have a `restart-guard` of its own.
    pub(super) fn terms(
        &mut self,
        options: &Place,
        ttl: Duration,
        at: &Place,
        guard: Option<Length>,
    ) {
        let lock = self.lock.1;
        let nodes = self.cluster.1.nodes.clamp(1, MOST_NODES);
        let drift = Drift { ppm: lock.drift_ppm, fixed: lock.drift.0 };
        let terms = LockConfig::new(nodes, ttl, drift, lock.node_timeout.0)
            .and_then(|terms| terms.with_lock_delay(lock.grace.0));
        // A client that opts out of the others' guard does not check clocks either.
        let looks = lock.clock_guard.filter(|_| guard.is_some() || lock.guard.is_none());
        let guarded = |terms: LockConfig| match (guard, looks) {
            (Some(max_ttl), None) => Guard::new(max_ttl.0, drift, 0)
                .and_then(|guard| terms.with_max_ttl(guard.max_ttl())),
            (Some(max_ttl), Some(bound)) => Guard::new(max_ttl.0, drift, 0)
                .and_then(|guard| guard.with_clock_bound(bound.0))
                .and_then(|guard| terms.with_max_ttl(guard.max_ttl()))
                .and_then(|terms| terms.with_clock_bound(bound.0)),
            (None, Some(_)) => Err(BadOption::ClockBoundWithoutGuard),
            (None, None) => Ok(terms),
        };
        let Err(bad) = terms.and_then(guarded) else { return };
        let place = match bad {
            BadOption::NodeTimeoutTooShort { .. } => options.key("node-timeout"),
            BadOption::DriftTooSmall { .. } => options.key("drift"),
            BadOption::ClockBound { .. } | BadOption::ClockBoundWithoutGuard => {
                options.key("clock-guard")
            }
            BadOption::LockDelayTooLong { .. } => options.key("lock-delay"),
            BadOption::TtlTooLong { ttl: long } if long != ttl => options.key("restart-guard"),
            _ => at.clone(),
        };
        if self.found.iter().any(|found| found.place == place) {
            return;
        }
        let text = bad.to_string();
        // Messages of the library name the fix after a semicolon or a colon.
        let cut = text.rfind("; ").or_else(|| text.rfind(": "));
        let (message, mend) =
            cut.map_or((text.as_str(), "choose another"), |cut| (&text[..cut], &text[cut + 2..]));
        self.wrong(&place, message, mend);
    }
}
