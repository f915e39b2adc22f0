//! The strategies: each signs an applicant up in its own way, behind one trait.

mod atomic_update;
mod named_lock;
mod none;
mod optimistic;
mod pessimistic;
mod queue;
mod redis_polling;
mod redis_wake_ups;
mod redquorum;
mod redquorum_fenced;
mod single_redis;
mod subscriptions;
mod transaction;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    database::{Pool, SqlError},
    masters::Addresses,
    results::{Needs, StrategyInfo},
};

/// A way to sign an applicant up.
pub(crate) trait Strategy: Send + Sync {
    /// Signs up, once: the caller decides whether to try again.
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>>;

    /// The connections to Redis.
    fn redis_connections(&self) -> u64 {
        0
    }

    /// Ends the strategy's clean-ups.
    fn finish(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
}

/// A future behind a trait.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reply to an applicant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Called inside the critical section, after the read and before the write.
pub(crate) type PauseHook = Arc<dyn Fn() -> Boxed<'static, ()> + Send + Sync>;

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
    /// Pauses the applicant inside the critical section, the first time.
    pub(crate) pause_hook: Option<PauseHook>,
    /// Whether it was called.
    pub(crate) pause_reached: Arc<AtomicBool>,
}

impl Application {
    /// Marks the place inside the critical section at which a process is paused.
    async fn pause_point(&self) {
        if let Some(pause) = &self.pause_hook
            && !self.pause_reached.swap(true, Ordering::Relaxed)
        {
            pause().await;
        }
    }

    /// What is left until the applicant gives up.
    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// What strategies are made of.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Where the masters are.
    pub(crate) addresses: Addresses,
    /// The time to live of locks.
    pub(crate) ttl: Duration,
    /// The beginning of all keys.
    pub(crate) prefix: String,
    /// Counts commands to Redis.
    pub(crate) commands: Arc<std::sync::atomic::AtomicU64>,
}

/// Which strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Kind {
    /// All, in the order of the tables.
    pub(crate) const ALL: [Self; 11] = [
        Self::None,
        Self::Pessimistic,
        Self::Optimistic,
        Self::AtomicUpdate,
        Self::NamedLockEarly,
        Self::NamedLock,
        Self::RedisPolling,
        Self::RedisWakeUps,
        Self::Redquorum,
        Self::RedquorumFenced,
        Self::Queue,
    ];

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        self.names().0
    }

    /// A short title.
    pub(crate) const fn title(self) -> &'static str {
        self.names().1
    }

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("none", "no lock"),
            Self::Pessimistic => ("pessimistic", "SELECT … FOR UPDATE"),
            Self::Optimistic => ("optimistic", "version column, retries"),
            Self::AtomicUpdate => ("atomic-update", "one conditional UPDATE"),
            Self::NamedLockEarly => ("named-lock-early", "GET_LOCK, released before the commit"),
            Self::NamedLock => ("named-lock", "GET_LOCK, released after the commit"),
            Self::RedisPolling => ("redis-polling", "lock on one Redis, polling"),
            Self::RedisWakeUps => ("redis-wake-ups", "lock on one Redis, wake-ups"),
            Self::Redquorum => ("redquorum", "redquorum on five masters"),
            Self::RedquorumFenced => ("redquorum-fenced", "redquorum with fencing tokens"),
            Self::Queue => ("queue", "one worker per recruitment"),
        }
    }

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

    /// Whether an attempt that failed is made again. Without a lock the applicant gets the error,
    /// as in the program that the contest is about.
    pub(crate) const fn retries(self) -> bool {
        self.correct()
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
    pub(crate) async fn build(self, context: &Context) -> Result<Arc<dyn Strategy>, String> {
        Ok(match self {
            Self::None => Arc::new(none::NoLock),
            Self::Pessimistic => Arc::new(pessimistic::Pessimistic),
            Self::Optimistic => Arc::new(optimistic::Optimistic),
            Self::AtomicUpdate => Arc::new(atomic_update::AtomicUpdate),
            Self::NamedLockEarly => Arc::new(named_lock::NamedLock { release_early: true }),
            Self::NamedLock => Arc::new(named_lock::NamedLock { release_early: false }),
            Self::RedisPolling => Arc::new(redis_polling::Polling::new(context)?),
            Self::RedisWakeUps => Arc::new(redis_wake_ups::WakeUps::new(context)?),
            Self::Redquorum => Arc::new(redquorum::Quorum::new(context).await?),
            Self::RedquorumFenced => Arc::new(redquorum_fenced::Fenced::new(context).await?),
            Self::Queue => Arc::new(queue::Queue::default()),
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("no such strategy: use one of {}", names.join(", "))
        })
    }
}
