//! The names of strategies, workloads and faults on the command line, and their titles in tables.

use crate::results::{Fault, Needs, Workload};

/// Gives an enum its names and titles. The table has the order of all tables. `$wrong` begins the
/// error for another name.
macro_rules! named {
    ($vis:vis $type:ty, $wrong:literal, $($variant:ident $name:literal $title:literal,)+) => {
        impl $type {
            /// All of them, in the order of the tables.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name on the command line and in `contest.json`.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it is, in a few words.
            $vis const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let found = Self::ALL.into_iter().find(|it| it.name() == name);
                found.ok_or_else(|| format!("{}{}", $wrong, [$($name),+].join(", ")))
            }
        }
    };
}
#[cfg(feature = "databases")]
pub(crate) use named;

named! {
    pub Workload, "no such workload: use one of ",
    Rush "rush" "100 applicants at once, 50 places",
    LastPlace "last-place" "2 applicants at once, 1 place",
    Throughput "throughput" "20 users, a million places",
    Spread "spread" "20 users, 1 000 recruitments",
}

named! {
    pub Fault, "no such fault: use none or one of ",
    PausePastTtl "pause-past-ttl" "application paused past the TTL",
    MasterKilled "master-killed" "one Redis server killed",
    MasterHung "master-hung" "one Redis server hung",
    RedisRestart "redis-restart" "one Redis server restarted without persistence",
    ReplicaPromoted "replica-promoted" "lagging replica promoted",
    CommitReplyLost "commit-reply-lost" "connection broken between commit and reply",
}

impl Needs {
    /// Whether it needs a Redis server.
    pub const fn uses_redis(self) -> bool {
        matches!(self, Self::OneRedis | Self::SeveralMasters)
    }

    /// What it is, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::OneRedis => "one Redis server",
            Self::SeveralMasters => "several Redis masters",
            Self::Worker => "a worker process",
        }
    }
}
