//! What a contest measured: the content of `contest.json`.

use serde::{Deserialize, Serialize};

use crate::names::{named, titled};

/// One contest: where it ran and what each run measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contest {
    /// The version of this format.
    pub format: u32,
    /// The version of redquorum.
    pub version: String,
    /// The command that runs the same contest again.
    pub command: String,
    /// When it started, as RFC 3339.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Why the contest ended before its last run. A contest with a reason is partial.
    pub stopped: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The database under test.
    pub database: Server,
    /// The Redis masters under test.
    pub masters: Server,
    /// The strategies, in the order of the tables.
    pub strategies: Vec<StrategyInfo>,
    /// All runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// The machine on which a contest ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system and its architecture.
    pub os: String,
    /// The logical processors.
    pub processors: usize,
}

/// A server under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The product, for example `MariaDB`.
    pub product: String,
    /// The version, as the server reports it.
    pub version: String,
    /// Where it runs, for example `a private process` or `in memory`.
    pub place: String,
}

/// A way to keep applicants from overwriting each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyInfo {
    /// The name on the command line, for example `atomic-update`.
    pub name: String,
    /// A short title.
    pub title: String,
    /// What it needs besides the database.
    pub needs: Needs,
    /// Whether the strategy is expected to be correct while nothing fails.
    pub correct: bool,
}

titled! {
    /// What a strategy needs besides the database.
    pub enum Needs {
        Nothing "nothing",
        OneRedis "one Redis server",
        SeveralMasters "several Redis masters",
        Worker "a worker process",
    }
}

impl Needs {
    /// Whether it needs a Redis server.
    pub const fn uses_redis(self) -> bool {
        matches!(self, Self::OneRedis | Self::SeveralMasters)
    }
}

/// One strategy under one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the strategy.
    pub strategy: String,
    /// What the applicants do.
    pub workload: Workload,
    /// What fails during the run.
    pub fault: Option<Fault>,
    /// The latency that is added to each round trip to the database and to Redis, in milliseconds.
    pub network_ms: u32,
    /// Counts the runs of the same strategy, workload, fault and latency, from 1.
    pub repetition: u32,
    /// What came of it.
    pub outcome: Outcome,
}

impl Run {
    /// Whether it is a run of this workload without a fault.
    pub fn is_of(&self, workload: Workload) -> bool {
        self.workload == workload && self.fault.is_none()
    }
}

named! {
    /// What the applicants do.
    pub enum Workload, "no such workload: use one of " {
        Rush "rush" "100 applicants at once, 50 places",
        LastPlace "last-place" "2 applicants at once, 1 place",
        Throughput "throughput" "20 users, a million places",
        Spread "spread" "20 users, 1 000 recruitments",
    }
}

named! {
    /// What fails during a run.
    pub enum Fault, "no such fault: use none or one of " {
        PausePastTtl "pause-past-ttl" "application paused past the TTL",
        MasterKilled "master-killed" "one Redis server killed",
        MasterHung "master-hung" "one Redis server hung",
        RedisRestart "redis-restart" "one Redis server restarted without persistence",
        ReplicaPromoted "replica-promoted" "lagging replica promoted",
        CommitReplyLost "commit-reply-lost" "connection broken between commit and reply",
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Outcome {
    /// It ran to its end.
    Measured(Figures),
    /// The database or the strategy cannot show it.
    NotOffered {
        /// Why.
        reason: String,
    },
    /// It could not be run to its end.
    Failed {
        /// Why.
        error: String,
    },
}

impl Outcome {
    /// The figures of a run that ran to its end.
    pub const fn figures(&self) -> Option<&Figures> {
        match self {
            Self::Measured(figures) => Some(figures),
            _ => None,
        }
    }
}

/// What a run measured. Rows and counters are counted by a query of their own, after the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The places.
    pub places: u64,
    /// The applications that were sent.
    pub applications: u64,
    /// The applications that were accepted, by the reply that the applicant got.
    pub accepted: u64,
    /// The applications that were refused since no place was left.
    pub refused: u64,
    /// The applications that ended with an error.
    pub errors: u64,
    /// The rows of applicants in the database.
    pub rows: u64,
    /// The counter of applicants in the database.
    pub counter: u64,
    /// The updates of the counter that were overwritten: rows without a counted place.
    pub lost_updates: u64,
    /// The rows beyond the places.
    pub oversold: u64,
    /// The deadlocks that the database reported.
    pub deadlocks: u64,
    /// The attempts beyond the first of each application.
    pub retries: u64,
    /// How long the run took, in seconds.
    pub seconds: f64,
    /// Accepted applications per second.
    pub per_second: f64,
    /// The time of an application.
    pub latency: Latency,
    /// The longest time in which no application was accepted while applicants waited, in
    /// milliseconds.
    pub stall_ms: f64,
    /// The statements per accepted application.
    pub statements: f64,
    /// The Redis commands per accepted application, on all masters together.
    pub redis_commands: f64,
    /// The connections to the database and to Redis that were open at once.
    pub connections: u64,
}

/// The time from an application to its reply, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the applications take at most this.
    pub p50: f64,
    /// 95 of 100 applications take at most this.
    pub p95: f64,
    /// 99 of 100 applications take at most this.
    pub p99: f64,
    /// The longest.
    pub longest: f64,
}
