//! Identity: the kind of server, its role and its replicas.

use crate::doctor::finding::Finding;
use crate::doctor::server_info::Info;

/// Checks version, role, cluster mode and replicas.
pub(super) fn check(info: &Info) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn worst(text: &str, name: &str) -> Option<Level> {
        let found = check(&Info::read(text));
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
}
