//! The replies of a master to a visit, as values, without any judgement.

use std::time::Duration;

use redquorum_protocol::{RunId, wire};

use crate::line::Unreached;
use crate::look::Look;

/// A reply, or the error that the master returned instead.
pub(super) type QueryResult<T> = Result<T, String>;

/// A master and the result of the visit.
#[derive(Clone, Debug)]
pub(super) struct ServerInfo {
    pub(super) name: String,
    pub(super) visit: Result<Visit, Unreached>,
}

/// All replies of a master.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) info: QueryResult<Info>,
    pub(super) settings: QueryResult<Settings>,
    /// How long each `PING` took.
    pub(super) pings: QueryResult<Vec<Duration>>,
    /// The master's clock at the beginning and at the end of the visit.
    pub(super) clock: QueryResult<[Look; 2]>,
    /// The boot marker, after `--init` if that was requested.
    pub(super) marker: QueryResult<Option<String>>,
    pub(super) init: Option<Init>,
    /// Empty if the server is no master that accepts writes.
    pub(super) trials: Vec<Trial>,
}

/// The result of setting the boot marker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Init {
    /// The marker was set.
    Marked,
    /// The master already had a marker, which stays as it is.
    Had,
    /// The marker cannot be set, for this reason.
    Impossible(String),
    /// The marker was not set, because of this about another master.
    Withheld(String),
}

/// What was tried, and the error if it does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trial {
    pub(super) what: Requirement,
    pub(super) result: QueryResult<()>,
}

/// The features that are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Requirement {
    Scripts,
    Acquire,
    Extend,
    Release,
    Fenced,
    Guarded,
    ClientId,
    ClientKill,
    /// Whether a second connection reaches the same server.
    OneServer,
    Ping,
    Info,
    Hello,
    Subscribe,
    Publish,
    Queue,
}

impl ServerInfo {
    pub(super) fn info(&self) -> Option<&Info> {
        self.visit.as_ref().ok()?.info.as_ref().ok()
    }

    pub(super) fn marker(&self) -> Option<&str> {
        self.visit.as_ref().ok()?.marker.as_ref().ok()?.as_deref()
    }
}

impl Visit {
    /// A visit that got this reply to `INFO`, and this marker.
    #[cfg(test)]
    pub(super) fn with(info: &str, marker: Option<&str>) -> Self {
        Self {
            info: Ok(Info::read(info)),
            settings: Ok(Settings::default()),
            pings: Ok(Vec::new()),
            clock: Err(String::new()),
            marker: Ok(marker.map(str::to_owned)),
            init: None,
            trials: Vec::new(),
        }
    }

    /// Whether the master reports that it syncs every write, and that it was never a replica, as a
    /// lock with a guard requires. A replica that took over has its master's marker, but not all of
    /// its data.
    pub(super) fn durable(&self) -> bool {
        self.settings.as_ref().is_ok_and(Settings::durable)
            && self.info.as_ref().is_ok_and(|info| info.was_no_replica)
    }

    /// Whether the server grants a lock what it asks for: a trial has shown it.
    pub(super) fn can_vote(&self) -> bool {
        let works =
            |what| self.trials.iter().any(|trial| trial.what == what && trial.result.is_ok());
        works(Requirement::Acquire) && works(Requirement::Scripts)
    }

    pub(super) fn run_id(&self) -> Option<RunId> {
        self.info.as_ref().ok()?.run_id.clone()
    }
}

/// The fields of `INFO`. A missing field is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Info {
    redis: Option<String>,
    valkey: Option<String>,
    pub(super) is_sentinel: bool,
    pub(super) run_id: Option<RunId>,
    pub(super) role: Option<String>,
    pub(super) replicas: Option<u64>,
    pub(super) maxmemory: Option<u64>,
    pub(super) policy: Option<String>,
    pub(super) appends: Option<bool>,
    pub(super) cluster: bool,
    pub(super) loading: bool,
    pub(super) was_no_replica: bool,
}

impl Info {
    pub(super) fn read(text: &str) -> Self {
        let word = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
            (!value.is_empty()).then(|| value.to_owned())
        };
        let number = |name| word(name).and_then(|text| text.parse().ok());
        Self {
            redis: word("redis_version"),
            valkey: word("valkey_version"),
            is_sentinel: wire::is_sentinel(text.as_bytes()),
            run_id: wire::run_id(text.as_bytes()),
            role: word("role"),
            replicas: number("connected_slaves"),
            maxmemory: number("maxmemory"),
            policy: word("maxmemory_policy"),
            appends: number("aof_enabled").map(|on| on != 0),
            cluster: number("cluster_enabled") == Some(1),
            loading: number("loading") == Some(1),
            was_no_replica: wire::was_no_replica(text.as_bytes()),
        }
    }

    /// Such as `redis 7.0.15`.
    pub(super) fn version(&self) -> Option<String> {
        self.release().map(|(name, version, _)| format!("{name} {version}"))
    }

    /// The name of the server, its version, and the oldest supported version.
    pub(super) fn release(&self) -> Option<(&'static str, &str, (u64, u64))> {
        let valkey = self.valkey.as_deref().map(|version| ("valkey", version, (7, 2)));
        valkey.or_else(|| Some(("redis", self.redis.as_deref()?, (6, 2))))
    }

    /// Whether the server accepts a lock's writes at all.
    pub(super) fn is_master(&self) -> bool {
        self.role.as_deref() == Some("master") && !self.cluster
    }
}

/// The reply to `CONFIG GET` about the append-only file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    pub(super) appends: bool,
    /// `always`, `everysec` or `no`.
    pub(super) syncs: String,
    /// Whether the server goes on syncing while it rewrites its file.
    syncs_on_rewrite: bool,
}

impl Settings {
    /// Reads names and values in turn.
    pub(super) fn read(words: &[String]) -> Self {
        let value = |name: &str| {
            words.chunks_exact(2).find(|pair| pair[0] == name).map_or("", |pair| &*pair[1])
        };
        Self {
            appends: value("appendonly") == "yes",
            syncs: value("appendfsync").to_owned(),
            syncs_on_rewrite: value("no-appendfsync-on-rewrite") == "no",
        }
    }

    pub(super) fn durable(&self) -> bool {
        self.appends && self.syncs == "always" && self.syncs_on_rewrite
    }
}
