//! The strategies: each signs an applicant up in its own way.

mod quorum;
mod redis_lock;
mod sql;

use std::{
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
    names::named,
    results::{Needs, StrategyInfo},
};

pub(crate) enum Strategy {
    Sql(Kind),
    Redis(Box<redis_lock::RedisLock>),
    Quorum(quorum::Quorum),
    Queue(sql::Queue),
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

    pub(crate) async fn finish(&self) {
        if let Self::Quorum(quorum) = self {
            quorum.finish().await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Accepted,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The lock was not acquired, or was lost.
    #[error("{0}")]
    Lock(String),
    /// The version or the fencing token has changed.
    #[error("another applicant was faster")]
    Conflict,
}

/// Pauses an applicant inside its critical section, the first time.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    reached: AtomicBool,
    /// Notified when the applicant has read and has not written.
    pub(crate) arrived: Notify,
    pub(crate) resumed: Notify,
}

#[derive(Clone)]
pub(crate) struct Application {
    pub(crate) pool: Pool,
    pub(crate) recruitment: i64,
    pub(crate) volunteer: i64,
    pub(crate) deadline: Instant,
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

    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Context {
    /// The URLs of the Redis masters. Locks on one Redis use the first.
    pub(crate) masters: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) prefix: String,
}

named! {
    pub(crate) enum Kind, "no such strategy: use one of " {
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

    pub(crate) fn info(self) -> StrategyInfo {
        StrategyInfo {
            name: self.name().to_owned(),
            title: self.title().to_owned(),
            needs: self.needs(),
            correct: self.correct(),
        }
    }

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
            Self::Queue => Strategy::Queue(sql::Queue::default()),
            _ => Strategy::Sql(self),
        })
    }
}

fn lock_error(error: impl std::fmt::Display) -> ApplyError {
    ApplyError::Lock(error.to_string())
}
