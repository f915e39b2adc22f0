//! The strategies: each signs an applicant up in its own way.

mod queue;
mod quorum;
mod redis_lock;
mod sql;
mod subscriptions;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    database::{Pool, SqlError},
    masters::Addresses,
    names::named,
    results::{Needs, StrategyInfo},
};

/// A way to sign an applicant up, connected to what it needs.
pub(crate) enum Strategy {
    /// Statements of the database.
    Sql(Kind),
    /// A lock on one Redis.
    Redis(Box<redis_lock::RedisLock>),
    /// redquorum.
    Quorum(quorum::Quorum),
    /// One worker for each recruitment.
    Queue(queue::Queue),
}

impl Strategy {
    /// Signs up, once: the caller decides whether to try again.
    pub(crate) async fn apply(&self, application: &Application) -> Result<Reply, ApplyError> {
        // Boxed: the futures of sqlx are large, and so would be all that hold them.
        match self {
            Self::Sql(kind) => Box::pin(sql::apply(*kind, application)).await,
            Self::Redis(lock) => Box::pin(lock.apply(application)).await,
            Self::Quorum(quorum) => Box::pin(quorum.apply(application)).await,
            Self::Queue(queue) => queue.apply(application).await,
        }
    }

    /// The connections to Redis.
    pub(crate) fn redis_connections(&self) -> u64 {
        match self {
            Self::Redis(lock) => lock.connections(),
            Self::Quorum(quorum) => quorum.connections(),
            Self::Sql(_) | Self::Queue(_) => 0,
        }
    }

    /// The commands to Redis, without those that connect.
    pub(crate) fn redis_commands(&self) -> u64 {
        match self {
            Self::Redis(lock) => lock.commands(),
            Self::Quorum(quorum) => quorum.commands(),
            Self::Sql(_) | Self::Queue(_) => 0,
        }
    }

    /// Ends the strategy's clean-ups.
    pub(crate) async fn finish(&self) {
        if let Self::Quorum(quorum) = self {
            quorum.finish().await;
        }
    }
}

/// The reply to an applicant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Signed up.
    Accepted,
    /// No place is left.
    Refused,
}

/// Why an attempt to sign up failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApplyError {
    /// The database.
    Sql(SqlError),
    /// The lock was not acquired, or was lost.
    Lock(String),
    /// Another applicant was faster: the version or the fencing token has changed.
    Conflict,
}

impl From<SqlError> for ApplyError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql(error) => error.fmt(f),
            Self::Lock(why) => f.write_str(why),
            Self::Conflict => f.write_str("another applicant was faster"),
        }
    }
}

/// Pauses an applicant inside its critical section, the first time.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    reached: AtomicBool,
    /// Notified when the applicant has read and has not written.
    pub(crate) arrived: Notify,
    /// Ends the pause.
    pub(crate) resumed: Notify,
}

/// The application of one volunteer for one recruitment.
#[derive(Clone)]
pub(crate) struct Application {
    /// Connections to the database.
    pub(crate) pool: Pool,
    /// The recruitment's id.
    pub(crate) recruitment: i64,
    /// The volunteer's id.
    pub(crate) volunteer: i64,
    /// When the applicant gives up.
    pub(crate) deadline: Instant,
    /// Whether the applicant is paused.
    pub(crate) pause: Option<Arc<Pause>>,
}

impl Application {
    /// Marks the place inside the critical section at which a process is paused.
    async fn pause_point(&self) {
        if let Some(pause) = &self.pause
            && !pause.reached.swap(true, Ordering::Relaxed)
        {
            pause.arrived.notify_one();
            pause.resumed.notified().await;
        }
    }

    /// What is left until the applicant gives up.
    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// What strategies are made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Context {
    /// Where the masters are.
    pub(crate) addresses: Addresses,
    /// The time to live of locks.
    pub(crate) ttl: Duration,
    /// The beginning of all keys.
    pub(crate) prefix: String,
}

/// Which strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    None,
    Pessimistic,
    Optimistic,
    AtomicUpdate,
    NamedLockEarly,
    NamedLock,
    RedisPolling,
    RedisWakeUps,
    Redquorum,
    RedquorumFenced,
    Queue,
}

named! {
    pub(crate) Kind, "no such strategy: use one of ",
    None "none" "no lock",
    Pessimistic "pessimistic" "SELECT … FOR UPDATE",
    Optimistic "optimistic" "version column, retries",
    AtomicUpdate "atomic-update" "one conditional UPDATE",
    NamedLockEarly "named-lock-early" "GET_LOCK, released before the commit",
    NamedLock "named-lock" "GET_LOCK, released after the commit",
    RedisPolling "redis-polling" "lock on one Redis, polling",
    RedisWakeUps "redis-wake-ups" "lock on one Redis, wake-ups",
    Redquorum "redquorum" "redquorum on five masters",
    RedquorumFenced "redquorum-fenced" "redquorum with fencing tokens",
    Queue "queue" "one worker per recruitment",
}

impl Kind {
    /// What it needs besides the database.
    pub(crate) const fn needs(self) -> Needs {
        match self {
            Self::RedisPolling | Self::RedisWakeUps => Needs::OneRedis,
            Self::Redquorum | Self::RedquorumFenced => Needs::SeveralMasters,
            Self::Queue => Needs::Worker,
            _ => Needs::Nothing,
        }
    }

    /// Whether it is correct while nothing fails.
    pub(crate) const fn correct(self) -> bool {
        !matches!(self, Self::None | Self::NamedLockEarly)
    }

    /// The description in `contest.json`.
    pub(crate) fn info(self) -> StrategyInfo {
        StrategyInfo {
            name: self.name().to_owned(),
            title: self.title().to_owned(),
            needs: self.needs(),
            correct: self.correct(),
        }
    }

    /// Connects to what the strategy needs.
    pub(crate) async fn build(self, context: &Context) -> Result<Strategy, String> {
        Ok(match self {
            Self::RedisPolling | Self::RedisWakeUps => {
                let wakes = self == Self::RedisWakeUps;
                Strategy::Redis(Box::new(redis_lock::RedisLock::new(context, wakes)?))
            }
            Self::Redquorum | Self::RedquorumFenced => {
                let fenced = self == Self::RedquorumFenced;
                Strategy::Quorum(quorum::Quorum::new(context, fenced).await?)
            }
            Self::Queue => Strategy::Queue(queue::Queue::default()),
            _ => Strategy::Sql(self),
        })
    }
}
