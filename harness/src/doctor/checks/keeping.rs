//! Keeping: whether a master keeps what it acknowledged, under memory pressure and over a restart
//! (A2).

use crate::doctor::finding::Finding;
use crate::doctor::server_info::{Info, QueryResult, Settings};

/// Whether the master may evict keys of a lock when memory is short.
pub(super) fn eviction(info: &Info) -> Option<Finding> {
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
pub(super) fn persistence(info: Option<&Info>, settings: &QueryResult<Settings>) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

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
}
