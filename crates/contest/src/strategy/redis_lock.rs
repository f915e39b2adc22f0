//! A lock on one Redis: `SET NX PX`. It polls, or it waits for a message as Redisson does: a
//! refused attempt returns the TTL of the key; the client subscribes to the lock's channel, and
//! tries again after a message, of which each release publishes one, or after that TTL.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        self, Arc, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, RedisResult, Script,
    aio::{MultiplexedConnection, PubSubSink, PubSubStream},
    io::tcp::TcpSettings,
};
use tokio::sync::{Mutex, Notify};

use super::{Application, ApplyError, Context, Reply, lock_error, sql::sign_up};

/// Longer than a server hangs in a fault: a reply that was given up may have set the key.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Nil: granted; else the TTL of the key that is in the way.
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                       return nil end return redis.call('PTTL', KEYS[1])";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";
const RELEASE_AND_WAKE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '0') return 1 \
                       else return 0 end";

pub(crate) struct RedisLock {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    ttl_ms: u64,
    prefix: String,
    commands: AtomicU64,
    acquire: Script,
    release: Script,
    /// `None`: polls.
    subscriptions: Option<Subscriptions>,
}

impl RedisLock {
    pub(super) fn new(context: &Context, wakes: bool) -> Result<Self, String> {
        let wrong = |error: redis::RedisError| format!("the master's URL is wrong: {error}");
        let info = context.masters[0].as_str().into_connection_info().map_err(wrong)?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(wrong)?;
        Ok(Self {
            connection: Mutex::new(None),
            ttl_ms: u64::try_from(context.ttl.as_millis()).unwrap_or(u64::MAX),
            prefix: context.prefix.clone(),
            commands: AtomicU64::new(0),
            acquire: Script::new(ACQUIRE),
            release: Script::new(if wakes { RELEASE_AND_WAKE } else { RELEASE }),
            subscriptions: wakes.then(|| Subscriptions::new(client.clone())),
            client,
        })
    }

    pub(super) fn connections(&self) -> u64 {
        1 + u64::from(self.subscriptions.is_some())
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) async fn apply(&self, application: &Application) -> Result<Reply, ApplyError> {
        let key = format!("{}{}", self.prefix, application.recruitment);
        let token = format!("{:032x}", rand::random::<u128>());
        self.acquire(&key, &token, application).await?;
        let result = sign_up(application, || true).await;
        let mut release = self.release.key(&key);
        release.arg(&token);
        if self.subscriptions.is_some() {
            release.arg(channel(&key));
        }
        let send = |mut connection| async move { release.invoke_async(&mut connection).await };
        // The TTL ends a lock whose release failed.
        let _released: Result<i64, _> = self.query(send).await;
        result
    }

    async fn acquire(
        &self,
        key: &str,
        token: &str,
        application: &Application,
    ) -> Result<(), ApplyError> {
        let Some(subscriptions) = &self.subscriptions else {
            return self.until_granted(key, token, application, None).await;
        };
        if self.try_acquire(key, token).await?.is_none() {
            return Ok(());
        }
        let channel = channel(key);
        self.count();
        let woken = subscriptions.join(&channel).await?;
        let wake_ups = Some((subscriptions, &*woken));
        let result = self.until_granted(key, token, application, wake_ups).await;
        self.count();
        subscriptions.leave(&channel).await;
        result
    }

    async fn until_granted(
        &self,
        key: &str,
        token: &str,
        application: &Application,
        wake_ups: Option<(&Subscriptions, &Notify)>,
    ) -> Result<(), ApplyError> {
        while let Some(left) = self.try_acquire(key, token).await? {
            if application.remaining().is_zero() {
                return Err(lock_error("the lock was not granted in time"));
            }
            if let Some((subscriptions, woken)) = wake_ups {
                let most = left.min(application.remaining()) + Duration::from_millis(1);
                let _expired = tokio::time::timeout(most, woken.notified()).await;
                subscriptions.ensure_connected().await?;
            } else {
                tokio::time::sleep(Duration::from_millis(rand::random_range(5..=25))).await;
            }
        }
        Ok(())
    }

    /// `None`: granted; else how long the key that is in the way lives, if that is known.
    async fn try_acquire(&self, key: &str, token: &str) -> Result<Option<Duration>, ApplyError> {
        if self.subscriptions.is_none() {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(token).arg("NX").arg("PX").arg(self.ttl_ms);
            let send = |mut connection| async move { set.query_async(&mut connection).await };
            let granted: Option<String> = self.query(send).await?;
            return Ok(granted.is_none().then_some(Duration::ZERO));
        }
        let mut acquire = self.acquire.key(key);
        acquire.arg(token).arg(self.ttl_ms);
        let send = |mut connection| async move { acquire.invoke_async(&mut connection).await };
        let left: Option<i64> = self.query(send).await?;
        Ok(left.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
    }

    fn count(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    async fn query<T, F>(
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

fn channel(key: &str) -> String {
    format!("{key}:released")
}

type Channels = Arc<sync::Mutex<HashMap<String, Channel>>>;

/// The waiters of one channel. A message wakes one of them.
struct Channel {
    waiters: usize,
    woken: Arc<Notify>,
}

/// Subscriptions of one process to the channels of its locks, on one connection.
struct Subscriptions {
    client: Client,
    channels: Channels,
    /// `None`: not connected.
    sink: Arc<Mutex<Option<PubSubSink>>>,
}

impl Subscriptions {
    fn new(client: Client) -> Self {
        Self { client, channels: Channels::default(), sink: Arc::default() }
    }

    async fn join(&self, channel: &str) -> Result<Arc<Notify>, ApplyError> {
        let mut sink = self.sink.lock().await;
        let (woken, is_first) = {
            let mut channels = locked(&self.channels);
            let entry = channels
                .entry(channel.to_owned())
                .or_insert_with(|| Channel { waiters: 0, woken: Arc::default() });
            entry.waiters += 1;
            (entry.woken.clone(), entry.waiters == 1)
        };
        match &mut *sink {
            Some(sink) if is_first => sink.subscribe(channel).await.map_err(lock_error)?,
            Some(_) => {}
            None => *sink = Some(self.connect().await?),
        }
        Ok(woken)
    }

    async fn leave(&self, channel: &str) {
        let mut sink = self.sink.lock().await;
        let is_last = {
            let mut channels = locked(&self.channels);
            let Some(entry) = channels.get_mut(channel) else { return };
            entry.waiters = entry.waiters.saturating_sub(1);
            let is_last = entry.waiters == 0;
            if is_last {
                channels.remove(channel);
            }
            is_last
        };
        if is_last
            && let Some(open) = &mut *sink
            && open.unsubscribe(channel).await.is_err()
        {
            *sink = None;
        }
    }

    async fn ensure_connected(&self) -> Result<(), ApplyError> {
        let mut sink = self.sink.lock().await;
        if sink.is_none() {
            *sink = Some(self.connect().await?);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<PubSubSink, ApplyError> {
        let (mut sink, stream) = self.client.get_async_pubsub().await.map_err(lock_error)?.split();
        tokio::spawn(receive(stream, self.channels.clone(), Arc::downgrade(&self.sink)));
        let channels: Vec<String> = locked(&self.channels).keys().cloned().collect();
        for channel in channels {
            sink.subscribe(channel).await.map_err(lock_error)?;
        }
        Ok(sink)
    }
}

/// Wakes a waiter for each message, and all waiters at the end of the connection.
async fn receive(
    mut stream: PubSubStream,
    channels: Channels,
    sink: Weak<Mutex<Option<PubSubSink>>>,
) {
    while let Some(message) = stream.next().await {
        if let Some(channel) = locked(&channels).get(message.get_channel_name()) {
            channel.woken.notify_one();
        }
    }
    if let Some(sink) = sink.upgrade() {
        *sink.lock().await = None;
    }
    locked(&channels).values().for_each(|channel| channel.woken.notify_waiters());
}

fn locked(channels: &Channels) -> MutexGuard<'_, HashMap<String, Channel>> {
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}
