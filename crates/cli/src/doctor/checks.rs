//! Checks: from the replies of masters to findings. Pure.

use std::time::Duration;

use super::server_info::{Info, Init, QueryResult, ServerInfo, Settings, Visit};
use super::{ExamineOptions, Finding, Level, permissions};
use crate::line::Unreached;
use crate::look::Look;
use redquorum_protocol::wire::ErrorKind;
use redquorum_protocol::{Distrust, Drift, Guard};

mod masters;

pub(super) use masters::of_all;

/// The findings about one master by itself.
pub(super) fn of_master(server: &ServerInfo, options: &ExamineOptions) -> Vec<Finding> {
    let visit = match &server.visit {
        Ok(visit) => visit,
        Err(why) => return vec![unreached(why)],
    };
    let mut found = vec![Finding::ok("reachable", "it answers")];
    if let Ok(info) = &visit.info {
        found.extend(identity(info));
        found.extend(eviction(info));
    }
    found.push(persistence(visit.info.as_ref().ok(), &visit.settings));
    if let Ok(pings) = &visit.pings {
        found.extend(latency(pings, options.node_timeout));
    }
    found.extend(clocks(&visit.clock));
    let (marked, trusted) = boot_marker(visit, options.guard);
    found.extend(marked);
    if let (Some(done), Some(guard)) = (&visit.init, options.guard) {
        found.push(initialization(done, guard, trusted));
    }
    found.extend(permissions::check(&visit.trials, options.guard.is_some()));
    found
}

fn unreached(why: &Unreached) -> Finding {
    match why {
        Unreached::Down(text) => {
            let fix = if text.contains("certificate") || text.contains("fatal alert") {
                "give the authority that signed its certificate by --tls-ca-file, and where it asks for \
                 one, this client's by --tls-cert-file and --tls-key-file; its host must be in its \
                 certificate"
            } else {
                "start it, or correct its host and port; look for a firewall on the way"
            };
            Finding::error("reachable", format!("it cannot be reached: {text}"), fix)
        }
        Unreached::Silent(text) => Finding::error(
            "reachable",
            text.clone(),
            "look whether it is stopped, overloaded or swapping, and whether it is Redis at all",
        ),
        Unreached::Refused(text) => {
            let fix = match text.split(' ').next() {
                Some("WRONGPASS") => "correct the user and the password in the URL",
                Some("NOAUTH") => {
                    "it wants a password: redis://:password@host or redis://user:password@host"
                }
                Some("NOPERM") => "allow the user this command: docs/wire.md has the whole line",
                Some("DENIED") => "it is in protected mode: set `bind` and a password there",
                _ if text.contains("AUTH") => "it has no password set: leave it out of the URL",
                _ if text.contains("max number of clients") => {
                    "raise `maxclients`, or find who leaks"
                }
                _ => "fix what the master says, then look again",
            };
            Finding::error("access", format!("it does not let us in: {text}"), fix)
        }
    }
}

/// Checks version, role, cluster mode and replicas.
fn identity(info: &Info) -> Vec<Finding> {
    let mut found = vec![version(info)];
    if info.is_sentinel {
        let fix = "give the URLs of masters: no Sentinel is one, and none must move them";
        found.push(Finding::error("role", "it is a Sentinel", fix));
        return found;
    }
    found.push(match info.role.as_deref() {
        Some("master") => Finding::ok("role", "it is a master"),
        Some("slave" | "replica") => Finding::error(
            "role",
            "it is a replica, and takes no writes",
            "give a master of its own instead: REPLICAOF NO ONE makes it one",
        ),
        other => Finding::error(
            "role",
            format!("it says no role that a lock knows: {}", other.unwrap_or("none")),
            "give the URL of a Redis or Valkey master",
        ),
    });
    if info.cluster {
        found.push(Finding::error(
            "cluster",
            "it belongs to a Redis Cluster, which moves keys between its nodes",
            "use masters that are independent, with `cluster-enabled no`",
        ));
    }
    if info.loading {
        let fix = "wait until it has read its file, then look again";
        found.push(Finding::warn("loading", "it is still loading its data", fix));
    }
    if info.is_master() {
        found.push(match info.replicas {
            Some(0) | None => Finding::ok("replicas", "no replica follows it"),
            Some(count) => Finding::warn(
                "replicas",
                format!("{count} {} it: a failover forgets what had not arrived", {
                    if count == 1 { "replica follows" } else { "replicas follow" }
                }),
                "detach them, or see that none ever takes over; a lock with a guard notices one that does",
            ),
        });
    }
    found
}

fn version(info: &Info) -> Finding {
    let Some((name, version, least)) = info.release() else {
        let fix = "use Redis 6.2 or newer, or Valkey 7.2 or newer";
        return Finding::warn("version", "it does not say its version", fix);
    };
    let mut numbers = version.split('.').map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < least => Finding::error(
            "version",
            format!("it is {name} {version}, which is too old"),
            format!("upgrade it to {}.{} or newer", least.0, least.1),
        ),
        (Some(Ok(_)), Some(Ok(_))) => Finding::ok("version", format!("it is {name} {version}")),
        _ => Finding::warn(
            "version",
            format!("it is {name} {version}, which is no version that a lock knows"),
            "use Redis 6.2 or newer, or Valkey 7.2 or newer",
        ),
    }
}

/// Keys expire by the rate of a clock, so an offset harms no lease. But the hints for fencing
/// tokens come from clocks, and a clock that is off will one day be corrected by a step.
const FAR: Duration = Duration::from_millis(100);
const TOO_FAR: Duration = Duration::from_secs(1);

const NTP: &str = "let NTP steer the clocks of all machines, this one included; while leases are alive, \
                   let it slew by no more than the drift that locks allow, and not step: with \
                   chrony `maxslewrate 500`, since its default of 8.3 % is more than drift covers";

/// Offset and rate of one master's clock.
fn clocks(clock: &QueryResult<[Look; 2]>) -> Vec<Finding> {
    match clock {
        Ok([first, second]) => {
            // The reading at the end is the current one.
            vec![offset(second), rate(first, second)]
        }
        Err(text) => vec![Finding::warn(
            "clock",
            format!("TIME is refused ({text}): its clock is unknown"),
            "allow +time, which fenced leases need, too",
        )],
    }
}

/// The level of an offset between two clocks.
fn level_of(apart: Duration) -> Level {
    if apart > TOO_FAR {
        Level::Error
    } else if apart > FAR {
        Level::Warn
    } else {
        Level::Ok
    }
}

/// The finding about an offset, of one master or between two.
fn finding_of(check: &'static str, apart: Duration, text: String) -> Finding {
    match level_of(apart) {
        Level::Ok => Finding::ok(check, text),
        level => Finding::bad(level, check, text, NTP),
    }
}

fn offset(look: &Look) -> Finding {
    let apart = Duration::from_micros(look.ahead.unsigned_abs());
    let side = if look.ahead < 0 { "behind" } else { "ahead of" };
    // The part of the offset that latency may explain does not count against the clock.
    let sure = apart.saturating_sub(look.slack);
    finding_of("clock", sure, format!("its clock is {} {side} this machine's", seconds(apart)))
}

fn rate(first: &Look, second: &Look) -> Finding {
    let passed = second.at.saturating_sub(first.at);
    let advanced = second.micros.saturating_sub(first.micros);
    let real = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
    let wrong = Duration::from_micros(advanced.saturating_sub(real).unsigned_abs());
    let sure = wrong.saturating_sub(first.slack).saturating_sub(second.slack);
    let allowed = passed.saturating_mul(Drift::default().ppm) / 1_000_000;
    if sure <= allowed {
        return Finding::ok("clock-rate", "its clock runs as fast as this machine's, within 1 %");
    }
    let sign = if advanced < 0 { "−" } else { "" };
    let advanced = seconds(Duration::from_micros(advanced.unsigned_abs()));
    Finding::error(
        "clock-rate",
        format!(
            "its clock went {sign}{advanced} in {}: it was stepped, or runs wrong beyond the drift \
             that locks allow (1 %)",
            seconds(passed)
        ),
        NTP,
    )
}

fn seconds(length: Duration) -> String {
    format!("{:.3} s", length.as_secs_f64())
}

/// Whether the master may evict keys of a lock when memory is short.
fn eviction(info: &Info) -> Option<Finding> {
    let policy = info.policy.as_deref()?;
    let fix = "CONFIG SET maxmemory-policy noeviction, and in its redis.conf";
    Some(match info.maxmemory {
        _ if policy == "noeviction" => Finding::ok("eviction", "it evicts nothing"),
        Some(0) => Finding::warn(
            "eviction",
            format!("it would evict keys of locks (`{policy}`), were `maxmemory` set"),
            fix,
        ),
        _ => Finding::error(
            "eviction",
            format!("it evicts keys of locks when memory is short: `maxmemory-policy {policy}`"),
            fix,
        ),
    })
}

/// What a restart loses.
fn persistence(info: Option<&Info>, settings: &QueryResult<Settings>) -> Finding {
    let warn = |text: &str, fix: &str| Finding::warn("persistence", text, fix);
    let always = "set `appendonly yes` and `appendfsync always`, or give the lock a guard, which \
                  waits after a restart";
    if info.is_some_and(|info| info.appends == Some(false)) {
        return warn("it has no append-only file: a restart forgets leases", always);
    }
    match settings {
        Err(text) => warn(
            &format!("CONFIG GET is refused ({text}): what a restart forgets is unknown"),
            "allow +config|get, or see for yourself that it has `appendfsync always`",
        ),
        Ok(settings) if settings.durable() => {
            Finding::ok("persistence", "it syncs every write before it answers")
        }
        Ok(settings) if !settings.appends => {
            warn("it has no append-only file: a restart forgets leases", always)
        }
        Ok(settings) if settings.syncs == "always" => warn(
            "it does not sync while it rewrites its file: a loss of power then forgets leases",
            "set `no-appendfsync-on-rewrite no`",
        ),
        Ok(settings) => warn(
            &format!("it syncs `{}`: a loss of power forgets the latest leases", settings.syncs),
            always,
        ),
    }
}

/// A median above the timeout is an error. A median above a quarter of it is a warning, and so is
/// any single reply above the timeout. The vote of each late reply is unknown.
fn latency(pings: &[Duration], node_timeout: Duration) -> Option<Finding> {
    let mut sorted = pings.to_vec();
    sorted.sort_unstable();
    let (median, worst) = (*sorted.get(sorted.len() / 2)?, *sorted.last()?);
    let text = format!(
        "answers take {} (median) and {} (worst of {}), the node timeout is {node_timeout:?}",
        short(median),
        short(worst),
        sorted.len()
    );
    let fix = "give the lock a longer node timeout, or bring the master nearer or to rest";
    Some(if median > node_timeout {
        Finding::error("latency", text, fix)
    } else if median > node_timeout / 4 || worst > node_timeout {
        Finding::warn("latency", text, fix)
    } else {
        Finding::ok("latency", text)
    })
}

/// Formats a duration: three digits are enough.
fn short(length: Duration) -> String {
    format!("{:.2} ms", length.as_secs_f64() * 1000.0)
}

/// The longest TTL, according to the marker.
fn max_ttl(marker: &str) -> Option<Duration> {
    marker.split(' ').nth(1)?.parse().ok().map(Duration::from_millis)
}

/// How much a clock may gain unnoticed, if the marker belongs to locks with a clock guard.
fn clock_bound(marker: &str) -> Option<Duration> {
    let bound = marker.split(' ').skip(2).find_map(|word| word.strip_prefix("clock="))?;
    bound.parse().ok().map(Duration::from_millis)
}

/// Whether a lock with a guard trusts a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// The lock trusts the master.
    Now,
    /// After a quarantine.
    Later,
    /// Not until an operator fixes something.
    Never,
}

/// The finding about the marker, and whether the lock trusts the master. Without a guard, the
/// marker is checked against itself. A missing marker is then reported for all masters together.
fn boot_marker(visit: &Visit, guard: Option<Guard>) -> (Option<Finding>, Trust) {
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

/// Why no master may be marked: what one of them shows, in words.
pub(super) fn obstacle_to_init(all: &[ServerInfo], guard: Guard) -> Option<String> {
    if let Some((first, second)) = masters::one_server(all) {
        return Some(format!("{first} and {second} are one server"));
    }
    all.iter().find_map(|server| {
        let name = &server.name;
        let Ok(visit) = &server.visit else {
            return Some(format!("{name} could not be looked at"));
        };
        if !visit.info.as_ref().is_ok_and(Info::is_master) {
            return Some(format!("{name} is not known to be a master"));
        }
        let is_foreign = boot_marker(visit, Some(guard)).1 == Trust::Never;
        is_foreign.then(|| format!("{name} has another marker, or none can be seen there"))
    })
}

/// The finding. `trust` tells whether a lock with the guard trusts the master now.
fn initialization(init: &Init, guard: Guard, trust: Trust) -> Finding {
    let max_ttl = guard.max_ttl();
    match init {
        Init::Marked => Finding::ok("init", format!("it is marked now, for leases of {max_ttl:?}")),
        Init::Had if trust == Trust::Now => {
            Finding::ok("init", "it had its marker already, and keeps it")
        }
        Init::Had if trust == Trust::Never => Finding::error(
            "init",
            "it is not marked: it has another marker already, which no wait makes good",
            "see the finding about its marker, then run --init again",
        ),
        Init::Had => Finding::error(
            "init",
            "it is not marked: it has another marker already",
            format!(
                "leave it to the lock, which trusts it {:?} after it was first seen; or, if surely no \
                 lease of it is alive, DEL redquorum:boot there and run --init again",
                guard.quarantine()
            ),
        ),
        Init::Impossible(why) => Finding::error(
            "init",
            format!("it cannot be marked: {why}"),
            "see the other findings about it, then run --init again",
        ),
        Init::Withheld(why) => Finding::error(
            "init",
            format!("it is not marked, and neither is any other master: {why}"),
            "correct the list, or what the findings say about that master, then run --init again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Level;
    use super::super::server_info::Settings;
    use super::*;
    use redquorum_protocol::{Drift, Fingerprint, MastersId};

    #[test]
    fn unreachable_masters_and_refusals_are_distinguished() {
        let table = [
            (Unreached::Down("refused".into()), "reachable", "start it"),
            (Unreached::Down("invalid peer certificate".into()), "reachable", "--tls-ca-file"),
            (Unreached::Silent("silent".into()), "reachable", "stopped"),
            (Unreached::Refused("WRONGPASS invalid".into()), "access", "password in the URL"),
            (Unreached::Refused("NOAUTH required".into()), "access", "wants a password"),
            (Unreached::Refused("ERR AUTH <password> called".into()), "access", "leave it out"),
            (Unreached::Refused("ERR max number of clients".into()), "access", "maxclients"),
            (Unreached::Refused("NOPERM select".into()), "access", "docs/wire.md"),
        ];
        for (why, check, part) in table {
            let found = unreached(&why);
            assert_eq!(found.check, check, "{why:?}");
            assert!(found.fix.unwrap().contains(part), "{why:?}");
        }
    }

    fn worst(text: &str, name: &str) -> Option<Level> {
        let found = identity(&Info::read(text));
        found.iter().filter(|finding| finding.check == name).map(|finding| finding.level).max()
    }

    #[test]
    fn each_server_that_is_no_independent_master_is_reported() {
        let table = [
            ("redis_version:7.0.15\r\nrole:master\r\n", "version", Some(Level::Ok)),
            ("redis_version:6.2.0\r\n", "version", Some(Level::Ok)),
            ("redis_version:6.0.16\r\n", "version", Some(Level::Error)),
            ("redis_version:10.0\r\n", "version", Some(Level::Ok)),
            ("redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n", "version", Some(Level::Ok)),
            ("redis_version:7.2.4\r\nvalkey_version:7.1.9\r\n", "version", Some(Level::Error)),
            ("redis_version:unstable\r\n", "version", Some(Level::Warn)),
            ("", "version", Some(Level::Warn)),
            ("role:master\r\n", "role", Some(Level::Ok)),
            ("role:slave\r\n", "role", Some(Level::Error)),
            ("redis_mode:sentinel\r\n", "role", Some(Level::Error)),
            ("role:master\r\ncluster_enabled:1\r\n", "cluster", Some(Level::Error)),
            ("role:master\r\ncluster_enabled:0\r\n", "cluster", None),
            ("role:master\r\nconnected_slaves:0\r\n", "replicas", Some(Level::Ok)),
            ("role:master\r\nconnected_slaves:2\r\n", "replicas", Some(Level::Warn)),
            ("role:master\r\nloading:1\r\n", "loading", Some(Level::Warn)),
        ];
        for (text, name, level) in table {
            assert_eq!(worst(text, name), level, "{text}");
        }
    }

    fn look(at_ms: u64, slack_ms: u64, ahead_ms: i64) -> Look {
        Look {
            at: Duration::from_millis(at_ms),
            slack: Duration::from_millis(slack_ms),
            micros: (at_ms.cast_signed() + ahead_ms) * 1000,
            ahead: ahead_ms * 1000,
        }
    }

    #[test]
    fn an_offset_counts_in_both_directions_and_not_for_what_the_way_may_explain() {
        let table = [
            (0, 0, Level::Ok),
            (100, 0, Level::Ok),
            (101, 0, Level::Warn),
            (-101, 0, Level::Warn),
            (120, 30, Level::Ok),
            (1000, 0, Level::Warn),
            (1001, 0, Level::Error),
            (-5000, 1, Level::Error),
        ];
        for (ahead, slack, level) in table {
            assert_eq!(offset(&look(0, slack, ahead)).level, level, "{ahead} {slack}");
        }
        assert!(offset(&look(0, 0, -5000)).text.contains("5.000 s behind"));
    }

    #[test]
    fn a_rate_beyond_the_drift_allowance_is_an_error_and_so_is_a_step() {
        let level = |slack, ahead| rate(&look(0, slack, 0), &look(1000, slack, ahead)).level;
        assert_eq!(level(0, 10), Level::Ok);
        assert_eq!(level(0, 11), Level::Error);
        assert_eq!(level(0, -11), Level::Error);
        assert_eq!(level(1, 12), Level::Ok);
        assert_eq!(level(1, -5000), Level::Error);
    }

    #[test]
    fn a_clock_that_may_not_be_read_is_no_ok() {
        assert_eq!(clocks(&Err("NOPERM".into()))[0].level, Level::Warn);
    }

    #[test]
    fn every_policy_but_noeviction_can_drop_keys_of_locks() {
        let level = |policy: &str, max: u64| {
            let info = Info::read(&format!("maxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n"));
            eviction(&info).unwrap().level
        };
        assert_eq!(level("noeviction", 1), Level::Ok);
        // Keys of locks have a TTL, so the `volatile` policies evict them, too.
        for policy in ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-random"] {
            assert_eq!((level(policy, 0), level(policy, 1)), (Level::Warn, Level::Error));
        }
        assert_eq!(eviction(&Info::default()), None);
    }

    #[test]
    fn lossy_restarts_are_reported_and_unknown_settings_are_no_ok() {
        let settings = |appends: &str, syncs: &str, rewrite: &str| {
            let words =
                ["appendonly", appends, "appendfsync", syncs, "no-appendfsync-on-rewrite", rewrite];
            Ok(Settings::read(&words.map(str::to_owned)))
        };
        let table = [
            (settings("yes", "always", "no"), Level::Ok, "syncs every write"),
            (settings("yes", "always", "yes"), Level::Warn, "rewrites"),
            (settings("yes", "everysec", "no"), Level::Warn, "`everysec`"),
            (settings("no", "always", "no"), Level::Warn, "a restart forgets"),
            (Err("NOPERM".to_owned()), Level::Warn, "is unknown"),
            (Ok(Settings::read(&[])), Level::Warn, "no append-only file"),
        ];
        for (settings, level, part) in table {
            let found = persistence(None, &settings);
            assert_eq!(found.level, level, "{settings:?}");
            assert!(found.text.contains(part), "{}", found.text);
        }
        // If `CONFIG` is forbidden, `INFO` still shows that there is no file.
        let info = Info::read("aof_enabled:0\r\n");
        assert!(persistence(Some(&info), &Err(String::new())).text.contains("no append-only file"));
    }

    #[test]
    fn the_median_counts_and_one_late_answer_is_a_warning() {
        let ms = Duration::from_millis;
        let level = |pings: &[u64]| {
            let pings: Vec<Duration> = pings.iter().map(|length| ms(*length)).collect();
            latency(&pings, ms(100)).map(|found| found.level)
        };
        assert_eq!(level(&[]), None);
        assert_eq!(level(&[1, 25, 25, 25]), Some(Level::Ok));
        assert_eq!(level(&[1, 26, 26, 26]), Some(Level::Warn));
        assert_eq!(level(&[1, 1, 1, 100]), Some(Level::Ok));
        assert_eq!(level(&[1, 1, 1, 101]), Some(Level::Warn));
        assert_eq!(level(&[1, 100, 100]), Some(Level::Warn));
        assert_eq!(level(&[1, 101, 101]), Some(Level::Error));
    }

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
        let (finding, trusted) = boot_marker(&visit, guard);
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
        let guard = guard.over(MastersId::Of(Fingerprint::of_name("f")));
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
            let fix = boot_marker(&visit, None).0.unwrap().fix.unwrap();
            assert!(fix.contains(wanted), "{error}: {fix}");
        }
    }

    #[test]
    fn each_outcome_is_reported_and_a_refusal_is_an_error() {
        let guard = Guard::new(Duration::from_secs(30), Drift::default(), 0).unwrap();
        let level = |init, trust| initialization(&init, guard, trust).level;
        assert_eq!(level(Init::Marked, Trust::Now), Level::Ok);
        assert_eq!(level(Init::Had, Trust::Now), Level::Ok);
        assert_eq!(level(Init::Had, Trust::Later), Level::Error);
        assert_eq!(level(Init::Impossible("NOPERM".into()), Trust::Later), Level::Error);
        assert_eq!(level(Init::Withheld("a is down".into()), Trust::Later), Level::Error);
        // No quarantine ends this.
        let never = initialization(&Init::Had, guard, Trust::Never);
        assert_eq!(never.level, Level::Error);
        assert!(!never.fix.unwrap().contains("leave it to the lock"));
    }
}
