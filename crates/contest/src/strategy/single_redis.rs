//! The connection to one Redis, for the locks on one master.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, RedisResult,
    ScriptInvocation, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use tokio::sync::Mutex;

use super::{ApplyError, Context};

/// Longer than a server hangs in a fault: a reply that was given up may have set the key.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// One Redis, connected to again after an error.
pub(super) struct SingleRedis {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    pub(super) ttl_ms: u64,
    prefix: String,
    commands: Arc<AtomicU64>,
}

impl SingleRedis {
    pub(super) fn new(context: &Context) -> Result<Self, String> {
        let wrong = |error: redis::RedisError| format!("the master's URL is wrong: {error}");
        let info = context.addresses.single.as_str().into_connection_info().map_err(wrong)?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self {
            client: Client::open(info).map_err(wrong)?,
            connection: Mutex::new(None),
            ttl_ms: u64::try_from(context.ttl.as_millis()).unwrap_or(u64::MAX),
            prefix: context.prefix.clone(),
            commands: context.commands.clone(),
        })
    }

    /// The key of a recruitment's lock.
    pub(super) fn key(&self, recruitment: i64) -> String {
        format!("{}{recruitment}", self.prefix)
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn count(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends one command.
    pub(super) async fn query<T, F>(
        &self,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, ApplyError>
    where
        T: FromRedisValue,
        F: Future<Output = RedisResult<T>>,
    {
        let connection = self.connected().await?;
        self.count();
        let result = send(connection).await;
        if let Err(error) = &result
            && (error.is_io_error() || error.is_timeout() || error.is_connection_dropped())
        {
            *self.connection.lock().await = None;
        }
        result.map_err(lock_error)
    }

    /// Runs a script that releases a lock.
    pub(super) async fn release(&self, invocation: &ScriptInvocation<'_>) {
        let released: Result<i64, _> = self
            .query(|mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await;
        // The TTL ends a lock whose release failed.
        drop(released);
    }

    async fn connected(&self) -> Result<MultiplexedConnection, ApplyError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let new = self.client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(connection.insert(new.map_err(lock_error)?).clone())
    }
}

/// An error of Redis as one of the lock.
pub(super) fn lock_error(error: impl fmt::Display) -> ApplyError {
    ApplyError::Lock(error.to_string())
}

/// A value that no other holder has.
pub(super) fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
