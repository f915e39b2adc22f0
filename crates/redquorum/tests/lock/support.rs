//! Helpers of all tests: the two kinds of masters behind one trait, locks, and waits.

use std::future::{Future, IntoFuture, poll_fn};
use std::ops::{Deref, RangeInclusive};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use redquorum::{
    Builder, Lease, Redlock, memory,
    report::{MasterOutcome, Report},
    stats::{LinkState, MasterStats},
};
use redquorum_rig::{Masters, RespValue};
use tokio::time::{Instant, sleep};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

/// A node timeout that no healthy master reaches, even on a busy machine.
pub(crate) const CALM: Duration = S;

/// An operation on real masters that takes less than this did not wait for a timeout.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(900);

/// An operation that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A list of tests. Those after `both` run on masters in memory and on real ones; those after
/// `real` need real ones.
macro_rules! cases {
    ($($kind:ident: $($test:ident),+ $(,)?);+ $(;)?) => {
        [$($(cases!(@$kind $test)),+),+].into_iter().flatten().collect::<Vec<_>>()
    };
    (@both $test:ident) => {
        vec![
            redquorum_rig::trials::plain(concat!(module_path!(), "::memory::", stringify!($test)), || {
                crate::support::run_in_memory($test::<crate::support::Memory>());
            }),
            redquorum_rig::trials::with_masters(concat!(module_path!(), "::real::", stringify!($test)), || {
                crate::support::run($test::<crate::support::Real>());
            }),
        ]
    };
    (@real $test:ident) => {
        vec![redquorum_rig::trials::with_masters(concat!(module_path!(), "::real::", stringify!($test)), || {
            crate::support::run($test());
        })]
    };
}

/// Why a master is down, if it is.
pub(crate) fn why_down(lock: &Redlock, node: usize) -> Option<String> {
    match &lock.stats().masters[node - 1].state {
        LinkState::Down(why) => Some(why.to_string()),
        _ => None,
    }
}

pub(crate) fn run_in_memory(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(Box::pin(test));
}

/// Lists the tests of a file.
macro_rules! tests {
    ($($list:tt)*) => {
        pub(crate) fn cases() -> Vec<redquorum_rig::trials::Case> {
            cases![$($list)*]
        }
    };
}

/// Runs an async test in a runtime of its own. A test that hangs fails.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = runtime(2);
    let ended = runtime.block_on(async { tokio::time::timeout(HANGS, Box::pin(test)).await });
    runtime.shutdown_background();
    ended.expect("the test hangs");
}

pub(crate) fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads).enable_all().build().unwrap()
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// It executes nothing until it is resumed.
    Stop,
    Resume,
    Kill,
    /// Starts a killed master again, without its data.
    Restart,
    Flush,
}

pub(crate) use Change::{Flush, Kill, Restart, Resume, Stop};

pub(crate) const FAULTS: [(Change, Change); 2] = [(Kill, Restart), (Stop, Resume)];

/// Masters for one test, counted from 1.
pub(crate) trait Cluster: Sized + Send + Sync + 'static {
    /// How late an event may be. Machines stall in real time.
    const LATE: Duration;

    fn start(count: usize) -> Self;
    fn len(&self) -> usize;
    /// A builder with a timeout that no healthy master reaches.
    fn builder(&self) -> Builder;
    /// A builder over some of the masters.
    fn over(&self, nodes: &[usize]) -> Builder;
    /// The builder of a lock that moves to these masters.
    fn moving(&self, builder: Builder, nodes: &[usize]) -> Builder;
    /// The builder of a client with these shards, that moves to others.
    fn shards(
        &self,
        builder: Builder,
        shards: &[(&str, &[usize])],
        to: &[(&str, &[usize])],
    ) -> Builder;
    fn name(&self, node: usize) -> String;
    fn change(&self, node: usize, change: Change);
    fn value(&self, node: usize, key: &str) -> Option<Vec<u8>>;
    /// Sets a key, whatever is there. Without a TTL it stays.
    fn set(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>);
    fn unset(&self, node: usize, key: &str);
    fn keys_on(&self, node: usize) -> Vec<String>;

    fn all(&self) -> RangeInclusive<usize> {
        1..=self.len()
    }

    fn each(&self, change: Change, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|node| self.change(node, change));
    }

    /// Sets a key of another program for a minute.
    fn put(&self, nodes: impl IntoIterator<Item = usize>, key: &str) {
        nodes.into_iter().for_each(|node| self.set(node, key, "stranger", Some(60 * S)));
    }

    fn delete(&self, nodes: impl IntoIterator<Item = usize>, key: &str) {
        nodes.into_iter().for_each(|node| self.unset(node, key));
    }

    fn holders(&self, key: &str) -> Vec<usize> {
        self.all().filter(|node| self.value(*node, key).is_some()).collect()
    }

    fn keys(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<String> {
        nodes.into_iter().flat_map(|node| self.keys_on(node)).collect()
    }

    async fn freed(&self, key: &str) {
        eventually(&format!("{key} is free"), || self.holders(key).is_empty()).await;
    }

    async fn cleaned(&self) {
        eventually("no key is left", || self.keys(self.all()).is_empty()).await;
    }

    async fn lock(&self) -> Redlock {
        built(self.builder()).await
    }

    /// A builder with the timeout of a service, for tests of timeouts.
    fn brisk(&self) -> Builder {
        self.builder().node_timeout(100 * MS)
    }

    /// A lease with its key on all masters.
    async fn held(&self, lock: &Redlock, key: &str) -> Lease {
        let lease = lock.acquire(key).await.unwrap();
        replied(lock).await;
        assert_eq!(self.holders(key).len(), self.len());
        lease
    }

    async fn takes<F: IntoFuture>(time: Duration, what: F) -> F::Output {
        let (took, output) = timed(what).await;
        // The time was read a moment before.
        assert!(took + MS >= time && took <= time + Self::LATE, "{took:?} instead of {time:?}");
        output
    }

    async fn at_once<F: IntoFuture>(what: F) -> F::Output {
        Self::takes(Duration::ZERO, what).await
    }
}

/// Masters in memory, in virtual time.
pub(crate) struct Memory {
    pub(crate) masters: memory::Masters,
    count: usize,
}

impl Cluster for Memory {
    const LATE: Duration = Duration::from_millis(5);

    fn start(count: usize) -> Self {
        Self { masters: memory::Masters::new(count), count }
    }

    fn len(&self) -> usize {
        self.count
    }

    fn builder(&self) -> Builder {
        self.masters.builder().node_timeout(CALM)
    }

    fn over(&self, nodes: &[usize]) -> Builder {
        let masters = nodes.iter().map(|node| self.masters.node(*node));
        Redlock::builder().tokio_clock_for_tests().masters(masters).node_timeout(CALM)
    }

    fn moving(&self, builder: Builder, nodes: &[usize]) -> Builder {
        builder.moving_to(nodes.iter().map(|node| self.masters.node(*node)))
    }

    fn shards(
        &self,
        builder: Builder,
        shards: &[(&str, &[usize])],
        to: &[(&str, &[usize])],
    ) -> Builder {
        let masters = |nodes: &[usize]| -> Vec<_> {
            nodes.iter().map(|node| self.masters.node(*node)).collect()
        };
        builder
            .tokio_clock_for_tests()
            .shards(shards.iter().map(|(name, nodes)| (*name, masters(nodes))))
            .moving_to_shards(to.iter().map(|(name, nodes)| (*name, masters(nodes))))
    }

    fn name(&self, node: usize) -> String {
        format!("memory-{node}")
    }

    fn change(&self, node: usize, change: Change) {
        match change {
            Stop => self.masters.stop(node),
            Resume => self.masters.resume(node),
            Kill => self.masters.kill(node),
            Restart => self.masters.restart(node),
            Flush => self.masters.forget(node),
        }
    }

    fn value(&self, node: usize, key: &str) -> Option<Vec<u8>> {
        self.masters.value(node, key)
    }

    fn set(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>) {
        self.masters.set(node, key, value, ttl);
    }

    fn unset(&self, node: usize, key: &str) {
        self.masters.set(node, key, "", Some(Duration::ZERO));
    }

    fn keys_on(&self, node: usize) -> Vec<String> {
        let keys = self.masters.keys(node);
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }
}

pub(crate) struct Real(Masters);

impl Deref for Real {
    type Target = Masters;

    fn deref(&self) -> &Masters {
        &self.0
    }
}

impl Cluster for Real {
    // Exact times are checked on masters in memory: here a wait must end, on a busy machine, too.
    const LATE: Duration = Duration::from_secs(5);

    fn start(count: usize) -> Self {
        Self(Masters::start(count).expect("masters"))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn builder(&self) -> Builder {
        over(self.urls())
    }

    fn over(&self, nodes: &[usize]) -> Builder {
        over(nodes.iter().map(|node| self.url(*node)))
    }

    fn moving(&self, builder: Builder, nodes: &[usize]) -> Builder {
        builder.moving_to(nodes.iter().map(|node| self.url(*node)))
    }

    fn shards(
        &self,
        builder: Builder,
        shards: &[(&str, &[usize])],
        to: &[(&str, &[usize])],
    ) -> Builder {
        let masters =
            |nodes: &[usize]| -> Vec<_> { nodes.iter().map(|node| self.url(*node)).collect() };
        builder
            .shards(shards.iter().map(|(name, nodes)| (*name, masters(nodes))))
            .moving_to_shards(to.iter().map(|(name, nodes)| (*name, masters(nodes))))
    }

    fn name(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.port(node))
    }

    fn change(&self, node: usize, change: Change) {
        let changed = match change {
            Stop => self.0.pause(node),
            Resume => self.0.resume(node),
            Kill => self.0.kill(node),
            Restart => self.0.restart(node),
            Flush => self.ask(node, "FLUSHALL").map(drop),
        };
        changed.unwrap_or_else(|error| panic!("{change:?} of master {node}: {error}"));
    }

    fn value(&self, node: usize, key: &str) -> Option<Vec<u8>> {
        match self.command(node, &[b"GET", key.as_bytes()]) {
            Ok(RespValue::Bulk(value)) => Some(value),
            Ok(RespValue::Nil) => None,
            other => panic!("the value on master {node}: {other:?}"),
        }
    }

    fn set(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>) {
        let ttl = ttl.map(|ttl| ttl.as_millis().to_string());
        let mut words = vec![b"SET".as_slice(), key.as_bytes(), value.as_bytes()];
        words.extend(ttl.iter().flat_map(|ttl| [b"PX".as_slice(), ttl.as_bytes()]));
        self.command(node, &words).expect("it is set");
    }

    fn unset(&self, node: usize, key: &str) {
        self.done(node, &format!("DEL {key}"));
    }

    fn keys_on(&self, node: usize) -> Vec<String> {
        self.matching(node, "*")
    }
}

impl Real {
    pub(crate) fn of(builder: redquorum_rig::Builder) -> Self {
        Self(builder.start().expect("masters"))
    }

    pub(crate) fn done(&self, node: usize, command: &str) {
        match self.ask(node, command) {
            Ok(RespValue::Error(error)) => panic!("master {node} to {command}: {error}"),
            Ok(_) => {}
            Err(error) => panic!("master {node} to {command}: {error}"),
        }
    }

    /// A builder that logs in as a new user with these permissions.
    pub(crate) fn user(&self, acl: &str, database: u32) -> Builder {
        self.done_on(self.all(), &format!("ACL SETUSER locker on >pw {acl}"));
        let url = |node| format!("redis://locker:pw@127.0.0.1:{}/{database}", self.port(node));
        over(self.all().map(url))
    }

    pub(crate) fn done_on(&self, nodes: impl IntoIterator<Item = usize>, command: &str) {
        nodes.into_iter().for_each(|node| self.done(node, command));
    }

    pub(crate) fn text(&self, node: usize, command: &str) -> String {
        self.ask(node, command).expect("an answer").text().expect("a text").into_owned()
    }

    pub(crate) fn number(&self, node: usize, command: &str) -> i64 {
        match self.ask(node, command) {
            Ok(RespValue::Integer(number)) => number,
            other => panic!("master {node} to {command}: {other:?}"),
        }
    }

    pub(crate) fn matching(&self, node: usize, pattern: &str) -> Vec<String> {
        match self.command(node, &[b"KEYS", pattern.as_bytes()]) {
            Ok(RespValue::Array(keys)) => {
                keys.iter().map(|key| key.text().unwrap_or_default().into_owned()).collect()
            }
            other => panic!("the keys of master {node}: {other:?}"),
        }
    }

    /// Milliseconds until the key expires; -1: never, -2: no such key.
    pub(crate) fn pttl(&self, node: usize, key: &str) -> i64 {
        self.number(node, &format!("PTTL {key}"))
    }

    /// How often a master has executed a command, such as `set` or `client|kill`.
    pub(crate) fn calls(&self, node: usize, command: &str) -> u64 {
        let info = self.text(node, "INFO commandstats");
        let start = format!("cmdstat_{command}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|rest| rest.split(',').next()).map_or(0, |count| count.parse().unwrap())
    }
}

/// A lock over these masters with a timeout that no healthy master reaches.
pub(crate) fn over(urls: impl IntoIterator<Item = String>) -> Builder {
    Redlock::builder().masters(urls).node_timeout(CALM)
}

pub(crate) async fn built(builder: Builder) -> Redlock {
    builder.build().await.expect("a lock")
}

pub(crate) async fn timed<F: IntoFuture>(what: F) -> (Duration, F::Output) {
    let start = Instant::now();
    let output = what.await;
    (start.elapsed(), output)
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Waits until the condition holds; fails if it never does.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < 20 * S, "not within {:?}: {what}", 20 * S);
        sleep(2 * MS).await;
    }
}

/// Each master's reply, in order; `None` where the operation did not wait for it.
pub(crate) fn replies(report: &Report) -> Vec<Option<MasterOutcome>> {
    report.masters().iter().map(|master| master.outcome.clone()).collect()
}

async fn every_master(lock: &Redlock, what: &str, is: fn(&MasterStats) -> bool) {
    eventually(what, || lock.stats().masters.iter().all(is)).await;
}

/// Waits until every master has replied to all commands.
pub(crate) async fn replied(lock: &Redlock) {
    every_master(lock, "all is answered", |master| master.unanswered == 0).await;
}

/// Waits until no clean-up is pending: a master may have deleted a key before its reply is read.
pub(crate) async fn tidied(lock: &Redlock) {
    eventually("no clean-up is pending", || pending_cleanups(lock) == 0).await;
}

/// Waits until every master is connected and has completed all clean-ups.
pub(crate) async fn recovered(lock: &Redlock) {
    let is = |master: &MasterStats| master.state == LinkState::Up && master.pending_cleanups == 0;
    every_master(lock, "all clean-ups are complete", is).await;
}

pub(crate) async fn up(lock: &Redlock, count: usize) {
    let is_up = |master: &&MasterStats| master.state == LinkState::Up;
    let up = || lock.stats().masters.iter().filter(is_up).count() == count;
    eventually(&format!("{count} masters are connected"), up).await;
}

pub(crate) fn sum(lock: &Redlock, figure: fn(&MasterStats) -> u64) -> u64 {
    lock.stats().masters.iter().map(figure).sum()
}

/// The number of keys that the masters must still delete.
pub(crate) fn pending_cleanups(lock: &Redlock) -> u64 {
    sum(lock, |master| master.pending_cleanups as u64)
}
