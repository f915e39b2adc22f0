//! Helpers of all tests on real masters: masters, locks, and looks at the keys without the library.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use redquorum::{
    Builder, Redlock,
    report::{MasterOutcome, Report},
};
use redquorum_rig::{Masters, RespValue};
use tokio::time::Instant;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A node timeout that no healthy master reaches, even on a busy machine.
pub(crate) const CALM: Duration = Duration::from_secs(1);

/// An operation that takes less than this, half of [`CALM`], did not wait for a timeout.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(500);

/// An operation that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Runs an async test in a runtime of its own. A test that hangs fails.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_within(HANGS, test);
}

/// Runs an async test that may take this long.
pub(crate) fn run_within(time: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended = runtime.block_on(async { tokio::time::timeout(time, Box::pin(test)).await });
    runtime.shutdown_background();
    ended.expect("the test hangs");
}

/// Five masters for all tests that break none of them. Their resources must be [`unique`].
pub(crate) fn shared() -> &'static Masters {
    static SHARED: OnceLock<Masters> = OnceLock::new();
    SHARED.get_or_init(|| Masters::start(5).expect("five masters"))
}

/// Masters for a test that breaks some.
pub(crate) fn own(count: usize) -> Masters {
    Masters::start(count).expect("masters")
}

/// A resource that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A lock over these masters with a timeout that no healthy master reaches.
pub(crate) fn calm(masters: &Masters) -> Builder {
    Redlock::builder().masters(masters.urls()).node_timeout(CALM)
}

/// A lock with the timeouts of a service, for tests of these timeouts.
pub(crate) fn brisk(masters: &Masters) -> Builder {
    Redlock::builder().masters(masters.urls()).node_timeout(100 * MS)
}

pub(crate) async fn built(builder: Builder) -> Redlock {
    builder.build().await.expect("a lock")
}

/// The duration and the output of a future.
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
        assert!(start.elapsed() < 5 * CALM, "not within {:?}: {what}", 5 * CALM);
        tokio::time::sleep(2 * MS).await;
    }
}

/// The numbers of all masters of a set.
pub(crate) fn all(masters: &Masters) -> std::ops::RangeInclusive<usize> {
    1..=masters.len()
}

/// The keys that match on these masters, each with the number of its master.
pub(crate) fn keys_on(
    masters: &Masters,
    nodes: impl IntoIterator<Item = usize>,
    pattern: &str,
) -> Vec<(usize, String)> {
    let keys = |node| match masters.command(node, &[b"KEYS", pattern.as_bytes()]) {
        Ok(RespValue::Array(keys)) => keys,
        other => panic!("master {node} does not list its keys: {other:?}"),
    };
    nodes
        .into_iter()
        .flat_map(|node| keys(node).into_iter().map(move |key| (node, key)))
        .map(|(node, key)| (node, key.text().unwrap_or_default().into_owned()))
        .collect()
}

/// The keys that match on all masters.
pub(crate) fn keys(masters: &Masters, pattern: &str) -> Vec<(usize, String)> {
    keys_on(masters, all(masters), pattern)
}

/// Waits until no key matches on any master. Checks first that it would see such a key.
pub(crate) async fn cleaned(masters: &Masters, pattern: &str) {
    let planted = pattern.replace('*', "planted");
    let (node, probe) = (masters.len(), format!("{planted}-probe"));
    put(masters, node, &probe, 60_000);
    assert_eq!(keys_on(masters, [node], &probe), [(node, probe.clone())], "the check is blind");
    delete(masters, [node], &probe);
    let what = format!("keys {pattern} are gone");
    eventually(&what, || keys(masters, pattern).is_empty()).await;
}

/// The masters that have the key.
pub(crate) fn holders(masters: &Masters, key: &str) -> Vec<usize> {
    all(masters).filter(|node| value(masters, *node, key).is_some()).collect()
}

pub(crate) fn value(masters: &Masters, node: usize, key: &str) -> Option<Vec<u8>> {
    match masters.command(node, &[b"GET", key.as_bytes()]) {
        Ok(RespValue::Bulk(value)) => Some(value),
        Ok(RespValue::Nil) => None,
        other => panic!("master {node} does not tell a value: {other:?}"),
    }
}

/// Milliseconds until the key expires; -1: never, -2: no such key.
pub(crate) fn pttl(masters: &Masters, node: usize, key: &str) -> i64 {
    match masters.ask(node, &format!("PTTL {key}")) {
        Ok(RespValue::Integer(left)) => left,
        other => panic!("master {node} does not tell a TTL: {other:?}"),
    }
}

/// The number of waiters in a master's queue for a resource.
pub(crate) fn queued(masters: &Masters, node: usize, resource: &str) -> i64 {
    match masters.ask(node, &format!("ZCARD redquorum:queue:{resource}")) {
        Ok(RespValue::Integer(count)) => count,
        other => panic!("master {node} does not count its waiters: {other:?}"),
    }
}

/// The clock of a master in milliseconds.
pub(crate) fn now_ms(masters: &Masters, node: usize) -> u64 {
    let Ok(RespValue::Array(time)) = masters.ask(node, "TIME") else { panic!("no time") };
    let part = |at: usize| time[at].text().expect("a text").parse::<u64>().expect("a number");
    part(0) * 1_000 + part(1) / 1_000
}

/// Sets a key that belongs to no lease.
pub(crate) fn put(masters: &Masters, node: usize, key: &str, ttl_ms: u64) {
    done(masters, node, &format!("SET {key} somebody PX {ttl_ms}"));
}

pub(crate) fn delete(masters: &Masters, nodes: impl IntoIterator<Item = usize>, key: &str) {
    nodes.into_iter().for_each(|node| done(masters, node, &format!("DEL {key}")));
}

/// Sends a command that must not fail.
pub(crate) fn done(masters: &Masters, node: usize, command: &str) {
    match masters.ask(node, command) {
        Ok(RespValue::Error(error)) => panic!("master {node} to {command}: {error}"),
        Ok(_) => {}
        Err(error) => panic!("master {node} to {command}: {error}"),
    }
}

/// How often a master has executed a command, such as `set` or `client|kill`.
pub(crate) fn calls(masters: &Masters, node: usize, command: &str) -> u64 {
    let info = masters.ask(node, "INFO commandstats").expect("an answer");
    let info = info.text().expect("a text").into_owned();
    let line =
        info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| {
        rest.split(',').next().and_then(|count| count.parse().ok()).expect("a number")
    })
}

/// How many connections this master killed for `lock`, its only client.
pub(crate) fn kills(masters: &Masters, node: usize, lock: &Redlock) -> u64 {
    // Before Redis 7.0 all subcommands count as one command; a connection sends `CLIENT ID` once.
    let connected = lock.stats().masters[node - 1].connected;
    calls(masters, node, "client|kill") + calls(masters, node, "client").saturating_sub(connected)
}

/// Each master's reply, in order; `None` where the operation did not wait for it.
pub(crate) fn answers(report: &Report) -> Vec<Option<MasterOutcome>> {
    report.masters().iter().map(|master| master.outcome.clone()).collect()
}

/// Waits until every master has replied to all commands.
pub(crate) async fn answered(lock: &Redlock) {
    eventually("all is answered", || {
        lock.stats().masters.iter().all(|master| master.unanswered == 0)
    })
    .await;
}
