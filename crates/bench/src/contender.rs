//! The contenders. Each acquires and releases one resource, and measures the duration of both.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, Value};
use redquorum::{Builder, Redlock};
use redquorum_protocol::wire::GRANT;

const TTL: Duration = Duration::from_millis(TTL_MS);
const TTL_MS: u64 = 10_000;
/// The library's default.
const FENCING_MEMORY_MS: u64 = 30 * 24 * 60 * 60 * 1000;

#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) acquire: Duration,
    pub(crate) release: Duration,
}

#[derive(Clone)]
pub(crate) enum Contender {
    /// No lock: five connections of the `redis` crate with the same socket options. It returns at
    /// the third reply. No safe lock needs less over these connections.
    Floor(Vec<MultiplexedConnection>, Script),
    /// The floor with the script of a fenced acquire in place of the plain command.
    ScriptFloor(Vec<MultiplexedConnection>, Script, Script),
    Redquorum(Redlock),
    /// The library's leases with fencing tokens.
    Fenced(Redlock),
    /// The library's leases with fencing tokens, and a guard against masters that forget.
    Guarded(Redlock),
    #[cfg(feature = "rslock")]
    Rslock(rslock::LockManager),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Floor,
    ScriptFloor,
    Polling,
    Redquorum,
    Fair,
    Fenced,
    Guarded,
    #[cfg(feature = "rslock")]
    Rslock,
}

impl Kind {
    /// The contenders that show the cost of defences.
    pub(crate) const DEFENDED: &[Self] =
        &[Self::Redquorum, Self::Fenced, Self::Guarded, Self::ScriptFloor];

    pub(crate) const CROWDED: &[Self] = &[
        Self::Redquorum,
        Self::Fair,
        Self::Polling,
        #[cfg(feature = "rslock")]
        Self::Rslock,
    ];

    pub(crate) const PLAIN: &[Self] = &[
        Self::Floor,
        Self::Redquorum,
        #[cfg(feature = "rslock")]
        Self::Rslock,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::ScriptFloor => "script floor",
            Self::Polling => "polling, every 50 to 250 ms",
            Self::Redquorum => "redquorum",
            Self::Fair => "redquorum, fair",
            Self::Fenced => "redquorum, fenced",
            Self::Guarded => "redquorum, fenced and guarded",
            #[cfg(feature = "rslock")]
            Self::Rslock => "rslock",
        }
    }

    pub(crate) async fn connect(self, urls: &[String]) -> Contender {
        match self {
            Self::Floor | Self::Polling => {
                Contender::Floor(connect_all(urls).await, Script::new(DELETE))
            }
            Self::ScriptFloor => {
                let grant = Script::new(GRANT.source);
                Contender::ScriptFloor(connect_all(urls).await, Script::new(DELETE), grant)
            }
            Self::Redquorum => Contender::Redquorum(lock(plain(urls)).await),
            Self::Fair => Contender::Redquorum(lock(plain(urls).fair(true)).await),
            Self::Fenced => Contender::Fenced(lock(plain(urls)).await),
            Self::Guarded => {
                // A guard distrusts new masters until they are initialized.
                let lock = lock(plain(urls).guard(TTL).require_quorum(false)).await;
                lock.initialize_masters().await;
                assert!(lock.health().await.has_quorum(), "blessed masters are trusted");
                Contender::Guarded(lock)
            }
            #[cfg(feature = "rslock")]
            Self::Rslock => Contender::Rslock(rslock::LockManager::new(urls.to_vec())),
        }
    }
}

fn plain(urls: &[String]) -> Builder {
    Redlock::builder().urls(urls).ttl(TTL).require_quorum(true)
}

async fn lock(builder: Builder) -> Redlock {
    builder.build().await.expect("five masters are up")
}

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

async fn connect_all(urls: &[String]) -> Vec<MultiplexedConnection> {
    let mut connections = Vec::new();
    for url in urls {
        connections.push(connect(url).await);
    }
    connections
}

async fn connect(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("the rig's URLs are good");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).expect("the rig's URLs are good");
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&config).await.expect("a master is up");
    for source in [DELETE, GRANT.source] {
        let load = Script::new(source);
        load.load_async(&mut connection).await.expect("a script is loaded");
    }
    connection
}

impl Contender {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Floor(..) => Kind::Floor.name(),
            Self::ScriptFloor(..) => Kind::ScriptFloor.name(),
            Self::Redquorum(_) => Kind::Redquorum.name(),
            Self::Fenced(_) => Kind::Fenced.name(),
            Self::Guarded(_) => Kind::Guarded.name(),
            #[cfg(feature = "rslock")]
            Self::Rslock(_) => Kind::Rslock.name(),
        }
    }

    pub(crate) async fn pair(&mut self, resource: &str) -> Pair {
        let start = Instant::now();
        match self {
            Self::Floor(connections, script) => {
                let token: [u8; 20] = rand::random();
                bare_pair(start, connections, &set(resource, &token), script, (resource, &token))
                    .await
            }
            Self::ScriptFloor(connections, script, grant) => {
                let token: [u8; 20] = rand::random();
                let mut set = redis::cmd("EVALSHA");
                set.arg(grant.get_hash()).arg(2).arg(resource).arg(format!("fence:{resource}"));
                set.arg(&token).arg(TTL_MS).arg(wall_micros()).arg(FENCING_MEMORY_MS);
                bare_pair(start, connections, &set, script, (resource, &token)).await
            }
            Self::Fenced(lock) | Self::Guarded(lock) => {
                let lease = lock.acquire(resource).fenced().await.expect("nobody else wants it");
                let acquire = start.elapsed();
                let start = Instant::now();
                lease.release().await;
                Pair { acquire, release: start.elapsed() }
            }
            Self::Redquorum(lock) => {
                let lease = lock.acquire(resource).await.expect("nobody else wants it");
                let acquire = start.elapsed();
                let start = Instant::now();
                lease.release().await;
                Pair { acquire, release: start.elapsed() }
            }
            #[cfg(feature = "rslock")]
            Self::Rslock(manager) => {
                let lock = manager.lock(resource, TTL).await.expect("nobody else wants it");
                let acquire = start.elapsed();
                let start = Instant::now();
                manager.unlock(&lock).await;
                Pair { acquire, release: start.elapsed() }
            }
        }
    }
}

/// What a contender holds.
pub(crate) enum Held {
    Token([u8; 20]),
    Lease(redquorum::Lease),
    #[cfg(feature = "rslock")]
    Rslock(rslock::Lock),
}

impl Contender {
    /// Waits up to `wait` for a resource that other clients hold.
    pub(crate) async fn take(&self, resource: &str, wait: Duration) -> Option<Held> {
        match self {
            Self::Floor(connections, script) => {
                let end = Instant::now() + wait;
                while Instant::now() < end {
                    let token: [u8; 20] = rand::random();
                    if all_of(connections, &set(resource, &token)).await * 2 > connections.len() {
                        return Some(Held::Token(token));
                    }
                    all_of(connections, &delete(script, resource, &token)).await;
                    let pause = rand::random_range(50..=250);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                None
            }
            Self::Redquorum(lock) | Self::Fenced(lock) | Self::Guarded(lock) => {
                lock.acquire(resource).wait(wait).await.ok().map(Held::Lease)
            }
            #[cfg(feature = "rslock")]
            Self::Rslock(manager) => {
                let end = Instant::now() + wait;
                while Instant::now() < end {
                    if let Ok(lock) = manager.lock(resource, TTL).await {
                        return Some(Held::Rslock(lock));
                    }
                }
                None
            }
            Self::ScriptFloor(..) => None,
        }
    }

    pub(crate) async fn give_back(&self, held: Held) {
        match (self, held) {
            (_, Held::Lease(lease)) => drop(lease.release().await),
            (Self::Floor(connections, script), Held::Token(token)) => {
                all_of(connections, &delete(script, "bench:crowd", &token)).await;
            }
            #[cfg(feature = "rslock")]
            (Self::Rslock(manager), Held::Rslock(lock)) => manager.unlock(&lock).await,
            _ => unreachable!("every contender gives back what it took"),
        }
    }
}

fn set(resource: &str, token: &[u8]) -> redis::Cmd {
    let mut set = redis::cmd("SET");
    set.arg(resource).arg(token).arg("NX").arg("PX").arg(TTL_MS);
    set
}

fn delete(script: &Script, resource: &str, token: &[u8]) -> redis::Cmd {
    let mut delete = redis::cmd("EVALSHA");
    delete.arg(script.get_hash()).arg(1).arg(resource).arg(token);
    delete
}

/// Sends the command to all masters, and waits for all replies. Returns the number of positive
/// replies: OK, or a key that existed.
async fn all_of(connections: &[MultiplexedConnection], command: &redis::Cmd) -> usize {
    let ask = |connection: &MultiplexedConnection| {
        let mut connection = connection.clone();
        async move { command.query_async::<Value>(&mut connection).await }
    };
    let answers: FuturesUnordered<_> = connections.iter().map(ask).collect();
    let good = |answer: &redis::RedisResult<Value>| {
        matches!(answer, Ok(Value::Okay | Value::Int(1..) | Value::SimpleString(_)))
    };
    answers.filter(|answer| std::future::ready(good(answer))).count().await
}

fn wall_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The times to a quorum of replies: for the command that sets the key, measured from `start`, and
/// for the command that deletes it.
async fn bare_pair(
    start: Instant,
    connections: &[MultiplexedConnection],
    set: &redis::Cmd,
    script: &Script,
    (resource, token): (&str, &[u8]),
) -> Pair {
    quorum_of(connections, set).await;
    let acquire = start.elapsed();
    let start = Instant::now();
    quorum_of(connections, &delete(script, resource, token)).await;
    Pair { acquire, release: start.elapsed() }
}

async fn quorum_of(connections: &[MultiplexedConnection], command: &redis::Cmd) {
    let ask = |connection: &MultiplexedConnection| {
        let mut connection = connection.clone();
        async move { command.query_async::<Value>(&mut connection).await }
    };
    let mut answers: FuturesUnordered<_> = connections.iter().map(ask).collect();
    let mut good = 0;
    while let Some(answer) = answers.next().await {
        good += usize::from(answer.is_ok());
        if 2 * good > connections.len() {
            return;
        }
    }
    panic!("no quorum of masters answered");
}
