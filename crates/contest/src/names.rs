//! The names of workloads and faults on the command line, and their titles in tables.

use crate::results::{Fault, Needs, Workload};

impl Workload {
    /// All workloads, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Rush, Self::LastPlace, Self::Throughput, Self::Spread];

    /// The name on the command line and in `contest.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rush => "rush",
            Self::LastPlace => "last-place",
            Self::Throughput => "throughput",
            Self::Spread => "spread",
        }
    }

    /// What the applicants do, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rush => "100 applicants at once, 50 places",
            Self::LastPlace => "2 applicants at once, 1 place",
            Self::Throughput => "20 users, a million places",
            Self::Spread => "20 users, 1 000 recruitments",
        }
    }
}

impl Fault {
    /// All faults, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::PausePastTtl,
        Self::MasterKilled,
        Self::MasterHung,
        Self::RedisRestart,
        Self::ReplicaPromoted,
        Self::CommitReplyLost,
    ];

    /// The name on the command line and in `contest.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PausePastTtl => "pause-past-ttl",
            Self::MasterKilled => "master-killed",
            Self::MasterHung => "master-hung",
            Self::RedisRestart => "redis-restart",
            Self::ReplicaPromoted => "replica-promoted",
            Self::CommitReplyLost => "commit-reply-lost",
        }
    }

    /// What fails, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::PausePastTtl => "application paused past the TTL",
            Self::MasterKilled => "one Redis server killed",
            Self::MasterHung => "one Redis server hung",
            Self::RedisRestart => "one Redis server restarted without persistence",
            Self::ReplicaPromoted => "lagging replica promoted",
            Self::CommitReplyLost => "connection broken between commit and reply",
        }
    }
}

impl Needs {
    /// What it is, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::OneRedis => "one Redis server",
            Self::SeveralMasters => "several Redis masters",
            Self::Worker => "a worker process",
        }
    }
}
