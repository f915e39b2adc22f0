//! Said: what a master said when it was visited, as values. No opinions.

use std::time::Duration;

use redquorum_protocol::RunId;

use super::init::Init;
use super::permissions::Trial;

/// An answer, or the error that the master gave instead.
pub(super) type Asked<T> = Result<T, String>;

/// A master, and what came of the visit.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) name: String,
    pub(super) visit: Result<Visit, Unreached>,
}

/// Why a master could not be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unreached {
    /// No connection, or one that ended.
    Down(String),
    /// It takes connections, or nothing is known, and does not answer.
    Silent(String),
    /// It does not let us in: the error it gave.
    Refused(String),
}

/// All that it said.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) info: Asked<Info>,
    pub(super) settings: Asked<Settings>,
    /// How long it took to answer each `PING`.
    pub(super) pings: Asked<Vec<Duration>>,
    /// Its clock at the begin and at the end of the visit.
    pub(super) clock: Asked<[Look; 2]>,
    /// Its marker, after `--init` if that was asked for.
    pub(super) marker: Asked<Option<String>>,
    pub(super) init: Option<Init>,
    /// None where it is no master that takes writes.
    pub(super) trials: Vec<Trial>,
}

/// One look at a master's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// When, on the monotonic clock of this machine, from any origin: halfway between question and answer.
    pub(super) at: Duration,
    /// How far both `at` and `ahead` may be wrong: half the way between question and answer.
    pub(super) slack: Duration,
    /// Its clock, in microseconds since 1970.
    pub(super) micros: i64,
    /// How far that is ahead of the wall clock of this machine, in microseconds.
    pub(super) ahead: i64,
}

impl Said {
    pub(super) fn info(&self) -> Option<&Info> {
        self.visit.as_ref().ok()?.info.as_ref().ok()
    }

    pub(super) fn marker(&self) -> Option<&str> {
        self.visit.as_ref().ok()?.marker.as_ref().ok()?.as_deref()
    }
}

impl Visit {
    /// Whether it says that it syncs every write, as a lock with a guard wants it.
    pub(super) fn durable(&self) -> bool {
        self.settings.as_ref().is_ok_and(Settings::durable)
    }

    pub(super) fn run_id(&self) -> Option<RunId> {
        self.info.as_ref().ok()?.run_id.as_deref().map(|id| RunId(id.into()))
    }
}

/// What `INFO` says. A field that it does not mention is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Info {
    redis: Option<String>,
    valkey: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) role: Option<String>,
    pub(super) replicas: Option<u64>,
    pub(super) maxmemory: Option<u64>,
    pub(super) policy: Option<String>,
    pub(super) appends: Option<bool>,
    pub(super) cluster: bool,
    pub(super) loading: bool,
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
            mode: word("redis_mode"),
            run_id: word("run_id").filter(|id| id.len() <= 64),
            role: word("role"),
            replicas: number("connected_slaves"),
            maxmemory: number("maxmemory"),
            policy: word("maxmemory_policy"),
            appends: number("aof_enabled").map(|on| on != 0),
            cluster: number("cluster_enabled") == Some(1),
            loading: number("loading") == Some(1),
        }
    }

    /// Such as `redis 7.0.15`.
    pub(super) fn version(&self) -> Option<String> {
        self.release().map(|(name, version, _)| format!("{name} {version}"))
    }

    /// The name of the server, its version, and the oldest that is supported.
    pub(super) fn release(&self) -> Option<(&'static str, &str, (u64, u64))> {
        let valkey = self.valkey.as_deref().map(|version| ("valkey", version, (7, 2)));
        valkey.or_else(|| Some(("redis", self.redis.as_deref()?, (6, 2))))
    }

    /// Whether it takes writes of a lock at all.
    pub(super) fn is_master(&self) -> bool {
        self.role.as_deref() == Some("master") && !self.cluster
    }
}

/// What `CONFIG GET` says of the append-only file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    pub(super) appends: bool,
    /// `always`, `everysec` or `no`.
    pub(super) syncs: String,
    /// Whether it goes on syncing while it rewrites its file.
    pub(super) syncs_on_rewrite: bool,
}

impl Settings {
    /// From names and values in turn.
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
