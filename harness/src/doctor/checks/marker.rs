//! Marker: whether a lock with a guard trusts the master. The lock's own rules decide.

use std::time::Duration;

use redquorum_protocol::wire::ErrorKind;
use redquorum_protocol::{Distrust, Drift, Guard};

use crate::doctor::finding::{Finding, Level};
use crate::doctor::server_info::Visit;

/// The longest TTL, according to the marker.
pub(super) fn max_ttl(marker: &str) -> Option<Duration> {
    marker.split(' ').nth(1)?.parse().ok().map(Duration::from_millis)
}

/// How much a clock may gain unnoticed, if the marker belongs to locks with a clock guard.
pub(super) fn clock_bound(marker: &str) -> Option<Duration> {
    let bound = marker.split(' ').skip(2).find_map(|word| word.strip_prefix("clock="))?;
    bound.parse().ok().map(Duration::from_millis)
}

/// Whether a lock with a guard trusts a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// The lock trusts the master.
    Now,
    /// After a quarantine.
    Later,
    /// Not until an operator fixes something.
    Never,
}

/// The finding about the marker, and whether the lock trusts the master. Without a guard, the
/// marker is checked against itself. A missing marker is then reported for all masters together.
pub(super) fn check(visit: &Visit, guard: Option<Guard>) -> (Option<Finding>, Trust) {
    let marker = match &visit.marker {
        Ok(marker) => marker.as_deref(),
        Err(error) => {
            let level = if guard.is_some() { Level::Error } else { Level::Warn };
            let text = format!("its marker `redquorum:boot` cannot be read: {error}");
            let fix = match ErrorKind::of(error.as_bytes()) {
                ErrorKind::Forbidden => "allow +get on the key redquorum:boot",
                ErrorKind::WrongType => "delete the key: it holds no text",
                _ => "fix what the master says, then look again",
            };
            return (Some(Finding::bad(level, "marker", text, fix)), Trust::Never);
        }
    };
    if marker.is_none() && guard.is_none() {
        return (None, Trust::Later);
    }
    let own = || Guard::new(max_ttl(marker?)?, Drift::default(), 0).ok();
    // If the options set no clock guard, the markers' clock guards are compared for all masters
    // together.
    let alike = |guard: Guard| {
        let bound = marker.and_then(clock_bound).filter(|_| guard.clock_bound().is_none());
        bound.and_then(|bound| guard.with_clock_bound(bound).ok()).unwrap_or(guard)
    };
    let Some(guard) = guard.or_else(own).map(alike) else {
        return (Some(distrusted(&Distrust::Garbled, None)), Trust::Later);
    };
    match guard.check(marker, visit.run_id().as_ref(), visit.durable()) {
        Ok(()) => (Some(Finding::ok("marker", "a lock with a guard trusts it")), Trust::Now),
        Err(why) => {
            let trust = if why.passes() { Trust::Later } else { Trust::Never };
            (Some(distrusted(&why, Some(guard))), trust)
        }
    }
}

fn distrusted(why: &Distrust, guard: Option<Guard>) -> Finding {
    let text = format!("a lock with a guard does not trust it: {why}");
    let quarantine =
        guard.map_or("a quarantine".to_owned(), |guard| format!("{:?}", guard.quarantine()));
    let fix = match why {
        Distrust::Unmarked => format!(
            "if no lease can be alive on it, mark it by --init; else a lock trusts it after {quarantine}"
        ),
        Distrust::OtherMaxTtl { .. } => {
            "give all clients the same guard, then delete `redquorum:boot` where it is wrong"
                .to_owned()
        }
        Distrust::OtherClockBound { .. } => {
            "give all clients the same clock guard, then delete `redquorum:boot` where it is wrong"
                .to_owned()
        }
        Distrust::OtherMasters { .. } => {
            "give all clients the same list of masters, or one `masters_id`, and this program the same \
             (--masters-id NAME); if the list was changed on purpose, stop the old clients, then delete \
             `redquorum:boot` where it is wrong"
                .to_owned()
        }
        Distrust::Nameless => "allow +info".to_owned(),
        _ => format!("nothing: a lock with a guard watches it for {quarantine}, then trusts it"),
    };
    let level = if why.passes() { Level::Warn } else { Level::Error };
    Finding::bad(level, "marker", text, fix)
}

#[cfg(test)]
mod tests {
    use redquorum_protocol::Fingerprint;

    use super::*;
    use crate::doctor::server_info::Settings;

    fn found(
        marker: Option<&str>,
        info: &str,
        always: bool,
        guard: Option<Guard>,
    ) -> (Option<Level>, Trust) {
        let words =
            ["appendonly", "yes", "appendfsync", "always", "no-appendfsync-on-rewrite", "no"];
        let mut visit = Visit::with(info, marker);
        if always {
            visit.settings = Ok(Settings::read(&words.map(str::to_owned)));
        }
        let (finding, trusted) = check(&visit, guard);
        (finding.map(|finding| finding.level), trusted)
    }

    #[test]
    fn a_clock_guard_that_is_asked_for_must_be_that_of_the_marker() {
        let guard = Guard::new(Duration::from_secs(30), Drift::default(), 0).unwrap();
        let guard = guard.with_clock_bound(Duration::from_millis(500)).unwrap();
        for (marker, wanted) in [
            ("a 30000 clock=500", (Some(Level::Ok), Trust::Now)),
            ("a 30000 clock=501", (Some(Level::Error), Trust::Never)),
            ("a 30000", (Some(Level::Error), Trust::Never)),
        ] {
            let result = found(Some(marker), "run_id:a\r\n", false, Some(guard));
            assert_eq!(result, wanted, "{marker}");
        }
    }

    #[test]
    fn a_marker_is_rated_as_by_the_lock() {
        let guard = Guard::new(Duration::from_secs(30), Drift::default(), 0).unwrap();
        let guard = guard.over(Fingerprint::of_name("f"));
        let (ours, other) = ("run_id:a\r\n", "run_id:b\r\nmaster_replid2:00\r\n");
        let promoted = "run_id:b\r\nmaster_replid2:6c2a\r\n";
        let of = |name| Fingerprint::of_name(name).to_string();
        let (f, g) = (format!("masters={}", of("f")), format!("masters={}", of("g")));
        let (plain, always) = (format!("a 30000 {f}"), format!("a 30000 {f} always"));
        let (clock, no_clock) = (format!("{plain} clock=500"), format!("{plain} clock=x"));
        let (else_length, else_masters) = (format!("a 10000 {f}"), format!("a 30000 {g} always"));
        let table = [
            (Some(&*plain), ours, false, true, Some(Level::Ok), Trust::Now),
            (Some(&*always), other, true, true, Some(Level::Ok), Trust::Now),
            (Some(&*always), other, false, true, Some(Level::Warn), Trust::Later),
            // It took over, and does not have all of its master's data.
            (Some(&*always), promoted, true, true, Some(Level::Warn), Trust::Later),
            (Some(&*plain), other, true, true, Some(Level::Warn), Trust::Later),
            (Some(&*else_length), ours, false, true, Some(Level::Error), Trust::Never),
            (Some(&*else_masters), ours, true, true, Some(Level::Error), Trust::Never),
            (Some(&*clock), ours, false, true, Some(Level::Ok), Trust::Now),
            (Some(&*no_clock), ours, false, true, Some(Level::Warn), Trust::Later),
            // A marker of an earlier version.
            (Some("a 30000"), ours, true, true, Some(Level::Error), Trust::Never),
            (Some("?"), ours, false, true, Some(Level::Warn), Trust::Later),
            (Some(&*plain), "", false, true, Some(Level::Error), Trust::Never),
            (None, ours, false, true, Some(Level::Warn), Trust::Later),
            // Without a guard: against itself.
            (Some("a 10000"), ours, false, false, Some(Level::Ok), Trust::Now),
            (Some(&*else_masters), ours, false, false, Some(Level::Ok), Trust::Now),
            (Some("a 10000"), other, false, false, Some(Level::Warn), Trust::Later),
            (Some("?"), ours, false, false, Some(Level::Warn), Trust::Later),
            (None, ours, false, false, None, Trust::Later),
        ];
        for (marker, info, always, guarded, level, trusted) in table {
            let result = found(marker, info, always, guarded.then_some(guard));
            assert_eq!(result, (level, trusted), "{marker:?} {info} {always} {guarded}");
        }
    }
    #[test]
    fn a_marker_that_cannot_be_read_gets_the_remedy_of_the_error() {
        for (error, wanted) in [
            ("NOPERM this user has no permissions to access a key", "+get"),
            ("WRONGTYPE Operation against a key", "delete the key"),
            ("CLUSTERDOWN Hash slot not served", "what the master says"),
        ] {
            let visit = Visit { marker: Err(error.to_owned()), ..Visit::with("", None) };
            let fix = check(&visit, None).0.unwrap().fix.unwrap();
            assert!(fix.contains(wanted), "{error}: {fix}");
        }
    }
}
