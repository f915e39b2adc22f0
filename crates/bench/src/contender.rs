//! The contenders: each acquires and releases one resource, and says how long each took.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, Value};
use redquorum::Redlock;

const TTL: Duration = Duration::from_millis(TTL_MS);
const TTL_MS: u64 = 10_000;

/// One acquire and one release.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) acquire: Duration,
    pub(crate) release: Duration,
}

#[derive(Clone)]
pub(crate) enum Contender {
    /// No lock at all: five connections of the `redis` crate with the same socket options;
    /// returns at the third answer, and leaves the rest to themselves. Nothing that is safe can
    /// do with less over these connections.
    Floor(Vec<MultiplexedConnection>, Script),
    Redquorum(Redlock),
    #[cfg(feature = "rslock")]
    Rslock(rslock::LockManager),
}

/// Which contender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Floor,
    Redquorum,
    #[cfg(feature = "rslock")]
    Rslock,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[
        Self::Floor,
        Self::Redquorum,
        #[cfg(feature = "rslock")]
        Self::Rslock,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Redquorum => "redquorum",
            #[cfg(feature = "rslock")]
            Self::Rslock => "rslock",
        }
    }

    pub(crate) async fn connect(self, urls: &[String]) -> Contender {
        match self {
            Self::Floor => {
                let mut connections = Vec::new();
                for url in urls {
                    connections.push(connect(url).await);
                }
                Contender::Floor(connections, Script::new(DELETE))
            }
            Self::Redquorum => {
                let lock =
                    Redlock::builder().urls(urls).ttl(TTL).require_quorum(true).build().await;
                Contender::Redquorum(lock.expect("five masters are up"))
            }
            #[cfg(feature = "rslock")]
            Self::Rslock => Contender::Rslock(rslock::LockManager::new(urls.to_vec())),
        }
    }
}

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

async fn connect(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("the rig's URLs are good");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).expect("the rig's URLs are good");
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&config).await.expect("a master is up");
    let load = Script::new(DELETE);
    load.load_async(&mut connection).await.expect("a script is loaded");
    connection
}

impl Contender {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Floor(..) => Kind::Floor.name(),
            Self::Redquorum(_) => Kind::Redquorum.name(),
            #[cfg(feature = "rslock")]
            Self::Rslock(_) => Kind::Rslock.name(),
        }
    }

    pub(crate) async fn pair(&mut self, resource: &str) -> Pair {
        let start = Instant::now();
        match self {
            Self::Floor(connections, script) => {
                let token: [u8; 20] = rand::random();
                let mut set = redis::cmd("SET");
                set.arg(resource).arg(&token).arg("NX").arg("PX").arg(TTL_MS);
                quorum_of(connections, &set).await;
                let acquire = start.elapsed();
                let start = Instant::now();
                let mut delete = redis::cmd("EVALSHA");
                delete.arg(script.get_hash()).arg(1).arg(resource).arg(&token);
                quorum_of(connections, &delete).await;
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
