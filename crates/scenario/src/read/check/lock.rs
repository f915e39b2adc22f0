//! Checks the lock's options as the library does, so that no scenario fails only when its clients
//! start.

use std::time::Duration;

use redquorum_protocol::{BadOption, Drift, Guard, LockConfig};

use super::{MOST_NODES, Run};
use crate::Length;
use crate::read::tree::Place;

impl Run<'_> {
    pub(super) fn options(&mut self) {
        let (place, lock) = self.lock.clone();
        for (key, length) in [
            ("ttl", Some(lock.ttl)),
            ("lock-delay", Some(lock.lock_delay)),
            ("node-timeout", Some(lock.node_timeout)),
            ("drift", Some(lock.drift)),
            ("clock-guard", lock.clock_guard),
            ("restart-guard", lock.guard),
        ] {
            length.into_iter().for_each(|length| self.whole(&place.key(key), length));
        }
        if lock.guard.is_none() && !lock.initialized {
            let fix = "add `restart-guard = \"2s\"`, or leave `initialized` out";
            let at = place.key("initialized").itself();
            self.wrong(&at, "only a guard distrusts masters that are new", fix);
        }
        self.config(lock.ttl.0, &place.key("ttl"), lock.guard);
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
    pub(super) fn config(&mut self, ttl: Duration, at: &Place, guard: Option<Length>) {
        let (options, lock) = &self.lock;
        let nodes = self.cluster.1.nodes.clamp(1, MOST_NODES);
        let drift = Drift { ppm: lock.drift_ppm, fixed: lock.drift.0 };
        let config = LockConfig::new(nodes, ttl, drift, lock.node_timeout.0)
            .and_then(|config| config.with_lock_delay(lock.lock_delay.0));
        // A client that opts out of the others' guard does not check clocks either.
        let looks = lock.clock_guard.filter(|_| guard.is_some() || lock.guard.is_none());
        let guarded = |config: LockConfig| {
            let Some(max_ttl) = guard else {
                return looks.map_or(Ok(config), |_| Err(BadOption::ClockBoundWithoutGuard));
            };
            let guard = Guard::new(max_ttl.0, drift, 0)?;
            let Some(bound) = looks else { return config.with_max_ttl(guard.max_ttl()) };
            let guard = guard.with_clock_bound(bound.0)?;
            config.with_max_ttl(guard.max_ttl())?.with_clock_bound(bound.0)
        };
        let Err(bad) = config.and_then(guarded) else { return };
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
        let (message, fix) =
            cut.map_or((text.as_str(), "choose another"), |cut| (&text[..cut], &text[cut + 2..]));
        self.wrong(&place, message, fix);
    }
}
