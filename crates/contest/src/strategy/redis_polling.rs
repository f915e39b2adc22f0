//! A lock on one Redis: `SET NX PX`, tried again after a pause until it succeeds.

use std::time::Duration;

use redis::Script;

use super::{
    Application, ApplyError, Boxed, Context, Reply, Strategy,
    single_redis::{SingleRedis, token},
    transaction::sign_up_held,
};

/// Deletes the key if it is still ours.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";

/// Retries until the key is set.
pub(super) struct Polling {
    redis: SingleRedis,
    release: Script,
}

impl Polling {
    pub(super) fn new(context: &Context) -> Result<Self, String> {
        Ok(Self { redis: SingleRedis::new(context)?, release: Script::new(RELEASE) })
    }

    async fn acquire(&self, key: &str, application: &Application) -> Result<String, ApplyError> {
        let token = token();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&token).arg("NX").arg("PX").arg(self.redis.ttl_ms);
        loop {
            let set = set.clone();
            let granted: Option<String> = self
                .redis
                .query(|mut connection| async move { set.query_async(&mut connection).await })
                .await?;
            if granted.is_some() {
                return Ok(token);
            }
            if application.remaining().is_zero() {
                return Err(ApplyError::Lock("the lock was not granted in time".to_owned()));
            }
            let pause = Duration::from_millis(rand::random_range(5..=25));
            tokio::time::sleep(pause).await;
        }
    }

    async fn release(&self, key: &str, token: &str) {
        let mut invocation = self.release.key(key);
        invocation.arg(token);
        self.redis.release(&invocation).await;
    }
}

impl Strategy for Polling {
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
        1
    }
}
