//! The contenders. Each acquires and releases one resource, and measures the duration of both.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, SelectAll};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, Value};
use redquorum::{Builder, Redlock};
use redquorum_protocol::slot_of;
use redquorum_protocol::wire::GRANT;
use tokio::sync::Mutex;

#[cfg(unix)]
use crate::raw::Raw;

const TTL: Duration = Duration::from_millis(TTL_MS);
const TTL_MS: u64 = 10_000;
/// How long a request may wait where nothing is in its way: a busy machine makes figures worse, and
/// must not end the run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The number of permits of the semaphore.
pub(crate) const PERMITS: usize = 4;

/// How many leases the contender [`Kind::Laden`] holds, and their TTL.
const HELD: usize = 20_000;
const HELD_TTL: Duration = Duration::from_secs(3600);
/// The library's default.
const FENCING_COUNTER_TTL_MS: u64 = 30 * 24 * 60 * 60 * 1000;

#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) acquire: Duration,
    pub(crate) release: Duration,
}

#[derive(Clone)]
pub(crate) struct Contender {
    pub(crate) kind: Kind,
    client: Client,
    /// Dropped with the contender.
    _held: Arc<Vec<redquorum::Lease>>,
}

#[derive(Clone)]
enum Client {
    /// No lock: five connections of the `redis` crate with the same socket options. It returns at
    /// the third reply. No safe lock needs less over these connections. With the messages of
    /// releases it waits for them, and not for a time.
    Floor(Vec<MultiplexedConnection>, Option<Arc<Mutex<Messages>>>),
    /// No lock and no client library. It returns at the third reply.
    #[cfg(unix)]
    Raw(Raw),
    Redquorum(Redlock),
    #[cfg(feature = "rslock")]
    Rslock(rslock::LockManager),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The floor's commands over bare sockets.
    #[cfg(unix)]
    Raw,
    Floor,
    /// The floor with the script of a fenced acquire in place of the plain command.
    ScriptFloor,
    Polling,
    /// No safe lock, and for two clients only: a release publishes a message, and a waiter makes
    /// its next attempt when a quorum of masters has pushed that.
    Notified,
    Redquorum,
    Fair,
    /// The library, whose process holds many other leases.
    Laden,
    /// The library's leases with fencing tokens.
    Fenced,
    /// The library's shared leases.
    Shared,
    /// The library's shared leases, and a fair lock.
    SharedFair,
    /// A permit of a semaphore with [`PERMITS`].
    Permit,
    /// The library's lease on one of as many resources, drawn at random.
    Drawn,
    /// The library's leases with fencing tokens, and a guard against masters that forget.
    Guarded,
    /// A lock that moves from five masters to five others, of which four are the same.
    Moving,
    /// The same lock behind the move.
    Moved,
    /// A lock of all these masters: as many as the lock that moves asks.
    Six,
    #[cfg(feature = "rslock")]
    Rslock,
}

impl Kind {
    /// The contenders that show the cost of defences.
    pub(crate) const DEFENDED: &[Self] = &[
        Self::Redquorum,
        Self::Fair,
        Self::Fenced,
        Self::Shared,
        Self::Guarded,
        Self::ScriptFloor,
    ];

    /// The contenders that show what a move to other masters costs: before, meanwhile, behind it.
    pub(crate) const MOVING: &[Self] =
        &[Self::Floor, Self::Redquorum, Self::Moving, Self::Moved, Self::Six];

    /// The contenders of a crowd of readers and writers: who reads and who writes.
    pub(crate) const SHARING: &[[Self; 2]] =
        &[[Self::Shared, Self::Redquorum], [Self::SharedFair, Self::Fair]];

    /// The contenders for one of several resources.
    pub(crate) const PERMITTED: &[Self] = &[Self::Permit, Self::Drawn];

    /// The contenders that show what leases cost that are held meanwhile.
    pub(crate) const HOLDING: &[Self] = &[Self::Floor, Self::Redquorum, Self::Laden];

    pub(crate) const CROWDED: &[Self] = &[
        Self::Redquorum,
        Self::Fair,
        Self::Polling,
        #[cfg(feature = "rslock")]
        Self::Rslock,
    ];

    /// The contenders of a crowd of two.
    pub(crate) const PAIRED: &[Self] = &[Self::Notified, Self::Redquorum, Self::Fair];

    /// The contenders of one task, from the socket up.
    #[cfg(unix)]
    pub(crate) const BARE: &[Self] = &[Self::Raw, Self::Floor, Self::Redquorum];

    pub(crate) const PLAIN: &[Self] = &[
        Self::Floor,
        Self::Redquorum,
        #[cfg(feature = "rslock")]
        Self::Rslock,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            #[cfg(unix)]
            Self::Raw => "bare sockets and `poll`",
            Self::Floor => "floor",
            Self::ScriptFloor => "script floor",
            Self::Polling => "polling, every 50 to 250 ms",
            Self::Notified => "bare `SUBSCRIBE` and `SET`",
            Self::Redquorum => "redquorum",
            Self::Laden => "redquorum, 20 000 leases held",
            Self::Fair => "redquorum, fair",
            Self::Fenced => "redquorum, fenced",
            Self::Shared => "redquorum, shared",
            Self::SharedFair => "redquorum, shared and fair",
            Self::Permit => "redquorum, a semaphore",
            Self::Drawn => "redquorum, one of its slots at random",
            Self::Guarded => "redquorum, fenced and guarded",
            Self::Moving => "redquorum, moving to one other master",
            Self::Moved => "redquorum, behind the move",
            Self::Six => "redquorum, on all six masters",
            #[cfg(feature = "rslock")]
            Self::Rslock => "rslock",
        }
    }

    /// Connects to the first five masters; a lock that moves replaces the first one by a sixth.
    pub(crate) async fn connect(self, urls: &[String]) -> Contender {
        let (all, urls) = (urls, &urls[..5]);
        let client = match self {
            #[cfg(unix)]
            Self::Raw => {
                // This also loads the scripts.
                join_all(urls.iter().map(|url| open(url))).await;
                Client::Raw(Raw::connect(urls))
            }
            Self::Floor | Self::Polling | Self::ScriptFloor => {
                Client::Floor(join_all(urls.iter().map(|url| open(url))).await, None)
            }
            Self::Notified => {
                let messages = Arc::new(Mutex::new(Messages::subscribe(urls).await));
                Client::Floor(join_all(urls.iter().map(|url| open(url))).await, Some(messages))
            }
            Self::Redquorum | Self::Fenced | Self::Shared | Self::Permit | Self::Drawn => {
                Client::Redquorum(connect(urls, TTL).await)
            }
            Self::Laden => {
                let lock = connect(urls, TTL).await;
                let held = Arc::new(hold(&lock).await);
                return Contender { kind: self, client: Client::Redquorum(lock), _held: held };
            }
            Self::Fair | Self::SharedFair => {
                Client::Redquorum(build(builder(urls, TTL).fair(true)).await)
            }
            Self::Moving => Client::Redquorum(build(builder(urls, TTL).moving_to(&all[1..])).await),
            Self::Moved => Client::Redquorum(build(builder(&all[1..], TTL)).await),
            Self::Six => Client::Redquorum(connect(all, TTL).await),
            Self::Guarded => Client::Redquorum(build(builder(urls, TTL).restart_guard(TTL)).await),
            #[cfg(feature = "rslock")]
            Self::Rslock => Client::Rslock(rslock::LockManager::new(urls.to_vec())),
        };
        Contender { kind: self, client, _held: Arc::default() }
    }
}

/// Acquires leases that outlive the benchmark.
async fn hold(lock: &Redlock) -> Vec<redquorum::Lease> {
    let acquire = async |number| {
        let request = lock.acquire(format!("bench:held:{number}")).ttl(HELD_TTL);
        request.wait(PATIENCE).await.expect("it is free")
    };
    futures_util::stream::iter(0..HELD).map(acquire).buffer_unordered(64).collect().await
}

/// A lock on these masters, which are up.
pub(crate) async fn connect(urls: &[String], ttl: Duration) -> Redlock {
    build(builder(urls, ttl)).await
}

pub(crate) fn builder(urls: &[String], ttl: Duration) -> Builder {
    Redlock::builder().masters(urls).ttl(ttl)
}

/// Builds a lock, and waits until a quorum of masters answers, which takes longer than a node
/// timeout on a machine that is busy with other things.
pub(crate) async fn build(builder: Builder) -> Redlock {
    let lock = builder.build().await.expect("its options are good");
    // A guard distrusts new masters until they are initialized.
    lock.initialize_masters().await;
    answers(&lock).await;
    lock
}

pub(crate) async fn answers(lock: &Redlock) {
    let answers = async { while !lock.health().await.has_quorum() {} };
    tokio::time::timeout(PATIENCE, answers).await.expect("its masters are up");
}

static DELETE: LazyLock<Script> = LazyLock::new(|| Script::new(DELETE_SOURCE));
static DELETE_AND_PUBLISH: LazyLock<Script> =
    LazyLock::new(|| Script::new(DELETE_AND_PUBLISH_SOURCE));
static GRANT_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(GRANT.source));

const DELETE_SOURCE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1]) else return 0 end";

const DELETE_AND_PUBLISH_SOURCE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) \
     redis.call('PUBLISH', 'bench:released', ARGV[1]) end return 1";

async fn open(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("the rig's URLs are good");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).expect("the rig's URLs are good");
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&config).await.expect("a master is up");
    for script in [&*DELETE, &*DELETE_AND_PUBLISH, &*GRANT_SCRIPT] {
        script.load_async(&mut connection).await.expect("a script is loaded");
    }
    connection
}

/// The number of commands that masters have answered.
pub(crate) fn commands(lock: &Redlock) -> u64 {
    lock.stats().masters.iter().map(|master| master.latency.count).sum()
}

/// The messages of releases, from all masters.
struct Messages {
    all: SelectAll<redis::aio::PubSubStream>,
    /// A subscription ends with its sink.
    _sinks: Vec<redis::aio::PubSubSink>,
    /// How many masters have pushed the message of the latest release.
    latest: (Vec<u8>, usize),
}

impl Messages {
    async fn subscribe(urls: &[String]) -> Self {
        let (mut all, mut sinks) = (SelectAll::new(), Vec::new());
        for url in urls {
            let client = redis::Client::open(url.as_str()).expect("the rig's URLs are good");
            let (mut sink, stream) =
                client.get_async_pubsub().await.expect("a master is up").split();
            sink.subscribe("bench:released").await.expect("a master is up");
            all.push(stream);
            sinks.push(sink);
        }
        Self { all, _sinks: sinks, latest: (Vec::new(), 0) }
    }

    /// Waits until `quorum` masters have pushed the message of one release. A client that misses
    /// one looks again after a while.
    async fn released(&mut self, quorum: usize) {
        let count = async {
            while let Some(message) = self.all.next().await {
                if self.latest.0 != message.get_payload_bytes() {
                    self.latest = (message.get_payload_bytes().to_vec(), 0);
                }
                self.latest.1 += 1;
                if self.latest.1 == quorum {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(100), count).await;
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
    /// The lock of the library, which counts what it does.
    pub(crate) fn lock(&self) -> Option<&Redlock> {
        match &self.client {
            Client::Redquorum(lock) => Some(lock),
            _ => None,
        }
    }

    /// A request of the kind that this contender makes.
    fn request(&self, lock: &Redlock, resource: &str, wait: Duration) -> redquorum::Acquire {
        let request = lock.acquire(resource).wait(wait);
        match self.kind {
            Kind::Fenced | Kind::Guarded => request.fenced(),
            Kind::Shared | Kind::SharedFair => request.shared(),
            _ => request,
        }
    }

    pub(crate) async fn pair(&self, resource: &str) -> Pair {
        let start = Instant::now();
        let held = match &self.client {
            Client::Floor(connections, _) => {
                let token: [u8; 20] = rand::random();
                let acquire = if self.kind == Kind::ScriptFloor {
                    grant(resource, &token)
                } else {
                    set(resource, &token)
                };
                quorum_of(connections, &acquire).await;
                Held::Token(token)
            }
            #[cfg(unix)]
            Client::Raw(sockets) => {
                let token: [u8; 20] = rand::random();
                sockets.quorum_of(&set(resource, &token));
                Held::Token(token)
            }
            Client::Redquorum(lock) => {
                Held::Lease(self.request(lock, resource, PATIENCE).await.expect("it is free"))
            }
            #[cfg(feature = "rslock")]
            Client::Rslock(manager) => {
                Held::Rslock(manager.lock(resource, TTL).await.expect("it is free"))
            }
        };
        let acquire = start.elapsed();
        let start = Instant::now();
        match (&self.client, held) {
            // It does not wait for the other masters.
            (Client::Floor(connections, _), Held::Token(token)) => {
                quorum_of(connections, &delete(&DELETE, resource, &token)).await;
            }
            #[cfg(unix)]
            (Client::Raw(sockets), Held::Token(token)) => {
                sockets.quorum_of(&delete(&DELETE, resource, &token));
            }
            (_, held) => self.give_back(resource, held).await,
        }
        let pair = Pair { acquire, release: start.elapsed() };
        // Bare sockets block the thread that also runs the runtime's timers.
        #[cfg(unix)]
        if self.kind == Kind::Raw {
            tokio::task::yield_now().await;
        }
        pair
    }

    /// Waits up to `wait` for a resource that other clients hold.
    pub(crate) async fn take(&self, resource: &str, wait: Duration) -> Option<Held> {
        let end = Instant::now() + wait;
        match &self.client {
            Client::Floor(connections, messages) => {
                while Instant::now() < end {
                    let token: [u8; 20] = rand::random();
                    if all_of(connections, &set(resource, &token)).await * 2 > connections.len() {
                        return Some(Held::Token(token));
                    }
                    all_of(connections, &delete(&DELETE, resource, &token)).await;
                    if let Some(messages) = messages {
                        messages.lock().await.released(connections.len() / 2 + 1).await;
                    } else {
                        let pause = rand::random_range(50..=250);
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                    }
                }
                None
            }
            #[cfg(unix)]
            Client::Raw(_) => unreachable!("bare sockets wait for no resource"),
            Client::Redquorum(lock) if self.kind == Kind::Permit => {
                let permit = lock.semaphore(resource, PERMITS).acquire().wait(wait);
                permit.await.ok().map(Held::Lease)
            }
            Client::Redquorum(lock) if self.kind == Kind::Drawn => {
                let slot = slot_of(resource.as_bytes(), rand::random_range(1..=PERMITS));
                lock.acquire(slot).wait(wait).await.ok().map(Held::Lease)
            }
            Client::Redquorum(lock) => {
                self.request(lock, resource, wait).await.ok().map(Held::Lease)
            }
            #[cfg(feature = "rslock")]
            Client::Rslock(manager) => {
                while Instant::now() < end {
                    if let Ok(lock) = manager.lock(resource, TTL).await {
                        return Some(Held::Rslock(lock));
                    }
                }
                None
            }
        }
    }

    pub(crate) async fn give_back(&self, resource: &str, held: Held) {
        match (&self.client, held) {
            (_, Held::Lease(lease)) => drop(lease.release().await),
            (Client::Floor(connections, messages), Held::Token(token)) => {
                let script = if messages.is_some() { &DELETE_AND_PUBLISH } else { &DELETE };
                all_of(connections, &delete(script, resource, &token)).await;
            }
            #[cfg(feature = "rslock")]
            (Client::Rslock(manager), Held::Rslock(lock)) => manager.unlock(&lock).await,
            _ => unreachable!("every contender gives back what it took"),
        }
    }
}

fn set(resource: &str, token: &[u8]) -> redis::Cmd {
    let mut set = redis::cmd("SET");
    set.arg(resource).arg(token).arg("NX").arg("PX").arg(TTL_MS);
    set
}

fn grant(resource: &str, token: &[u8]) -> redis::Cmd {
    let mut grant = redis::cmd("EVALSHA");
    grant.arg(GRANT_SCRIPT.get_hash()).arg(2).arg(resource);
    grant.arg(format!("fence:{resource}")).arg(token).arg(TTL_MS).arg(0);
    grant.arg(wall_micros()).arg(FENCING_COUNTER_TTL_MS);
    grant
}

fn delete(script: &Script, resource: &str, token: &[u8]) -> redis::Cmd {
    let mut delete = redis::cmd("EVALSHA");
    delete.arg(script.get_hash()).arg(1).arg(resource).arg(token);
    delete
}

/// The replies of all masters to a command, as they come.
fn send_all<'a>(
    connections: &'a [MultiplexedConnection],
    command: &'a redis::Cmd,
) -> FuturesUnordered<impl Future<Output = redis::RedisResult<Value>> + 'a> {
    let send = async |connection: &MultiplexedConnection| {
        command.query_async::<Value>(&mut connection.clone()).await
    };
    connections.iter().map(send).collect()
}

/// Sends the command to all masters, and waits for all replies. Returns the number of positive
/// replies: OK, or a key that existed.
async fn all_of(connections: &[MultiplexedConnection], command: &redis::Cmd) -> usize {
    let good = |reply: &redis::RedisResult<Value>| {
        matches!(reply, Ok(Value::Okay | Value::Int(1..) | Value::SimpleString(_)))
    };
    let replies = send_all(connections, command);
    replies.filter(|reply| std::future::ready(good(reply))).count().await
}

fn wall_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Waits for the replies of a quorum.
async fn quorum_of(connections: &[MultiplexedConnection], command: &redis::Cmd) {
    let mut replies = send_all(connections, command);
    let mut good = 0;
    while let Some(reply) = replies.next().await {
        good += usize::from(reply.is_ok());
        if 2 * good > connections.len() {
            return;
        }
    }
    panic!("no quorum of masters replied");
}
