//! A lock on one Redis with wake-ups, as Redisson does it: a refused attempt returns the TTL of
//! the key; the client subscribes to the lock's channel, and tries again after a message, of which
//! each release publishes one, or after that TTL.

use std::time::Duration;

use redis::Script;

use super::{
    Application, ApplyError, Boxed, Context, Reply, Strategy,
    single_redis::{SingleRedis, token},
    subscriptions::Subscriptions,
    transaction::sign_up_held,
};

/// Nil: granted; else the TTL of the key that is in the way.
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                       return nil end return redis.call('PTTL', KEYS[1])";
/// Deletes the key if it is still ours, and wakes a waiter.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '0') return 1 \
                       else return 0 end";

/// Waits for a message.
pub(super) struct WakeUps {
    redis: SingleRedis,
    acquire: Script,
    release: Script,
    subscriptions: Subscriptions,
}

impl WakeUps {
    pub(super) fn new(context: &Context) -> Result<Self, String> {
        let redis = SingleRedis::new(context)?;
        let subscriptions = Subscriptions::new(redis.client().clone());
        let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
        Ok(Self { redis, acquire, release, subscriptions })
    }

    /// `None`: granted; else how long the key that is in the way lives.
    async fn try_acquire(&self, key: &str, token: &str) -> Result<Option<Duration>, ApplyError> {
        let mut invocation = self.acquire.key(key);
        invocation.arg(token).arg(self.redis.ttl_ms);
        let left: Option<i64> = self
            .redis
            .query(|mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await?;
        Ok(left.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
    }

    async fn acquire(&self, key: &str, application: &Application) -> Result<String, ApplyError> {
        let token = token();
        if self.try_acquire(key, &token).await?.is_none() {
            return Ok(token);
        }
        let channel = channel(key);
        self.redis.count();
        let woken = self.subscriptions.join(&channel).await?;
        let result = loop {
            match self.try_acquire(key, &token).await {
                Ok(None) => break Ok(token),
                Ok(Some(_)) if application.remaining().is_zero() => {
                    break Err(ApplyError::Lock("the lock was not granted in time".to_owned()));
                }
                Ok(Some(left)) => {
                    let most = left.min(application.remaining()) + Duration::from_millis(1);
                    let _expired = tokio::time::timeout(most, woken.notified()).await;
                    if let Err(error) = self.subscriptions.ensure_connected().await {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.redis.count();
        self.subscriptions.leave(&channel).await;
        result
    }

    async fn release(&self, key: &str, token: &str) {
        let mut invocation = self.release.key(key);
        invocation.arg(token).arg(channel(key));
        self.redis.release(&invocation).await;
    }
}

/// The channel of a lock's releases.
fn channel(key: &str) -> String {
    format!("{key}:released")
}

impl Strategy for WakeUps {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let key = self.redis.key(application.recruitment);
            let token = self.acquire(&key, application).await?;
            let result = sign_up_held(application).await;
            self.release(&key, &token).await;
            result
        })
    }

    fn redis_connections(&self) -> u64 {
        2
    }
}
