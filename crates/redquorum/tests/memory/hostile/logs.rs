//! The events that the lock sends to `tracing` (feature `tracing`): complete, and without
//! secrets.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::future::IntoFuture;
use std::sync::Once;
use std::time::Duration;

use redquorum::connect::Hello;
use redquorum::memory::Masters;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::scripted::{Reaction, Scripted};
use crate::support::S;

/// Keeps events as text, separately for each thread that called [`keep`]. A subscriber of a single
/// thread would miss events that a thread without a subscriber reaches first.
struct Keeper;

thread_local! {
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redquorum"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        note(&format!("SPAN {}", attributes.metadata().name()), |fields| attributes.record(fields));
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        note(event.metadata().level().as_str(), |fields| event.record(fields));
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        note("FIELD", |fields| values.record(fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Adds a line, if this thread keeps events.
fn note(start: &str, record: impl FnOnce(&mut Fields<'_>)) {
    KEPT.with_borrow_mut(|text| {
        let Some(text) = text else { return };
        text.push_str(start);
        record(&mut Fields(text));
        text.push('\n');
    });
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
    KEPT.set(Some(String::new()));
}

/// Takes the events so far, and returns those that start with this text.
fn kept(start: &str) -> Vec<String> {
    let text = KEPT.replace(Some(String::new())).unwrap();
    text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn count(events: &[String], words: &str) -> usize {
    events.iter().filter(|event| event.contains(words)).count()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_with_its_masters_takes_a_line_for_each_change() {
    keep();
    let masters = Masters::new(5);
    let lock = masters.builder().ttl(2 * S).build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    lease.keep_alive(60 * S);
    tokio::time::sleep(5 * S).await;
    assert_eq!(kept("WARN"), Vec::<String>::new());
    (1..=3).for_each(|number| masters.stop(number));
    lease.lost().await;
    tokio::time::sleep(60 * S).await;
    let warnings = kept("WARN");
    assert_eq!(count(&warnings, "master down"), 3, "{warnings:#?}");
    assert_eq!(count(&warnings, "lease endangered"), 1, "{warnings:#?}");
    assert_eq!(count(&warnings, "lease lost"), 1, "{warnings:#?}");
    assert_eq!(warnings.len(), 5, "{warnings:#?}");
    let bytes: usize = warnings.iter().map(String::len).sum();
    assert!(bytes < 1_500, "{bytes} bytes: {warnings:#?}");
    // The masters come back.
    (1..=3).for_each(|number| masters.resume(number));
    tokio::time::sleep(5 * S).await;
    let up = kept("INFO");
    assert_eq!((count(&up, "master up"), up.len()), (3, 3), "{up:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_recovery_is_logged_once_and_the_times_of_a_lease_at_level_debug() {
    keep();
    let masters = Masters::new(3);
    let lock = masters.builder().ttl(9 * S).build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    lease.keep_alive(60 * S);
    let waiter = tokio::spawn(lock.acquire("r").wait(60 * S).into_future());
    (1..=2).for_each(|number| masters.stop(number));
    tokio::time::sleep(5 * S).await;
    (1..=2).for_each(|number| masters.resume(number));
    tokio::time::sleep(5 * S).await;
    assert!(!lease.is_lost());
    let _ = lease.release().await;
    let next = waiter.await.unwrap().unwrap();
    drop(next);
    let events = kept("");
    for (level, words, wanted) in [
        ("WARN", "lease endangered", 1),
        ("INFO", "lease recovered", 1),
        ("WARN", "lease lost", 0),
        ("DEBUG", "waited=0ns", 1),
        ("DEBUG", "waited=10s", 1),
        ("DEBUG", "given back", 2),
        ("DEBUG", "held=10s", 1),
    ] {
        let of_level: Vec<_> = events.iter().filter(|e| e.starts_with(level)).cloned().collect();
        assert_eq!(count(&of_level, words), wanted, "{level} {words}: {events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_comes_and_goes_and_thousands_of_leases_fill_no_log() {
    keep();
    let flaps = Scripted::new("flaps", |args| match args {
        Some(args) if args[0] == b"SET" => Reaction::Last(Vec::new()),
        _ => Reaction::Well,
    });
    let masters = Masters::new(4);
    let lock = masters.builder().master(flaps).ttl(2 * S).build().await.unwrap();
    for _ in 0..600 {
        let _ = lock.acquire("r").await.unwrap().release().await;
        tokio::time::sleep(S / 10).await;
    }
    let events: Vec<_> = kept("").into_iter().filter(|e| e.contains("flaps")).collect();
    let changes = count(&events, "message=master");
    assert!((10..=70).contains(&changes), "{changes} in a minute");
    assert!(count(&events, "suppressed=") > 0, "{events:#?}");
    let mut leases = Vec::new();
    for number in 0..2_000 {
        leases.push(lock.acquire(format!("r{number}")).await.unwrap());
        leases.last().unwrap().keep_alive(60 * S);
    }
    (1..=4).for_each(|number| masters.kill(number));
    tokio::time::sleep(9 * S).await;
    assert!(leases.iter().all(|lease| lease.is_lost()));
    let events = kept("WARN");
    let changes = count(&events, "message=lease");
    assert!((2..=20).contains(&changes), "{changes} of 4000");
}

#[tokio::test(start_paused = true)]
async fn events_contain_neither_password_nor_token() {
    const PASSWORD: &str = "hunter2-Passw0rd";
    keep();
    let masters = Masters::new(3);
    let mut builder = masters.builder();
    let hello = || Hello { password: Some(PASSWORD.into()), ..Hello::default() };
    for command in ["AUTH", "SCRIPT", "SET", "EVALSHA"] {
        let script = move |args: Option<&super::scripted::Args<'_>>| match args {
            Some(args) if args[0] == command.as_bytes() => {
                Reaction::Last(format!("-ERR {PASSWORD}\r\n").into_bytes())
            }
            _ => Reaction::Well,
        };
        builder = builder.master(Scripted::new(command, script).with_hello(hello()));
    }
    let lock = builder.ttl(Duration::from_secs(1)).build().await.unwrap();
    let lease = lock.acquire("a\nb").wait(Duration::ZERO).await;
    let token = masters.value(1, "a\nb");
    assert!(lock.acquire("a\nb").wait(Duration::ZERO).await.is_err());
    if let Ok(lease) = lease {
        (1..=3).for_each(|number| masters.kill(number));
        assert!(lease.extend().await.is_err());
        lease.lost().await;
    }
    let text = KEPT.take().unwrap();
    for word in ["master up", "master down", "a\\nb", "not acquired", "closed by the master"] {
        assert!(text.contains(word), "{word:?} is missing in\n{text}");
    }
    assert!(!text.contains(&PASSWORD[..7]), "{text}");
    if let Some(token) = token {
        let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&hex), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn spans_show_where_an_acquire_waited_and_how_it_ended() {
    keep();
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let lease = lock.acquire("r").fenced().await.unwrap();
    let token = lease.fencing_token().unwrap();
    let waiter = tokio::spawn(lock.acquire("r").wait(60 * S).into_future());
    assert!(lock.acquire("r").wait(S).await.is_err());
    tokio::time::sleep(S).await;
    let _ = lease.release().await;
    let next = waiter.await.unwrap().unwrap();
    (1..=3).for_each(|number| masters.stop(number));
    next.lost().await;
    let seen = kept("");
    for line in [
        "SPAN acquire resource=r".to_owned(),
        "FIELD outcome=acquired".to_owned(),
        format!("SPAN hold resource=r fencing_token={token}"),
        "FIELD queued=2s".to_owned(),
        "FIELD outcome=taken".to_owned(),
        "SPAN release resource=r".to_owned(),
        "FIELD outcome=released".to_owned(),
    ] {
        assert!(seen.contains(&line), "{line} is missing: {seen:#?}");
    }
    assert!(count(&seen, "FIELD lost=") == 1, "{seen:#?}");

    let lock = Masters::new(1).builder().hash_resources(true).build().await.unwrap();
    keep();
    drop(lock.acquire_all(["secret", "other"]).await.unwrap());
    let text = KEPT.take().unwrap();
    assert!(text.contains("SPAN acquire resources=2"), "{text}");
    assert!(text.contains("SPAN hold resource=#") && !text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_distrusted_master_is_a_warning_with_the_reason_and_for_how_long() {
    keep();
    let masters = Masters::new(3);
    let lock = masters.builder().ttl(2 * S).restart_guard(4 * S).build().await.unwrap();
    lock.initialize_masters().await;
    tokio::time::sleep(S).await;
    // They were new, which is logged too.
    kept("");
    masters.restart(2);
    tokio::time::sleep(3 * S).await;
    let warnings = kept("WARN");
    let distrusted: Vec<_> =
        warnings.iter().filter(|event| event.contains("master distrusted")).collect();
    assert_eq!(distrusted.len(), 1, "{warnings:#?}");
    for words in ["master=\"memory-2\"", "distrusted for another 6.0s: it has no marker"] {
        assert!(distrusted[0].contains(words), "{words} is missing in {distrusted:?}");
    }
    tokio::time::sleep(10 * S).await;
    assert_eq!(count(&kept("INFO"), "master trusted again"), 1);
    // A marker of other locks.
    masters.set(1, "redquorum:boot", "run 5000", None);
    assert!(lock.try_acquire("r").await.is_err());
    tokio::time::sleep(S).await;
    let warnings = kept("WARN");
    assert_eq!(count(&warnings, "its marker does not say over which masters"), 1, "{warnings:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_the_process_stands_still_says_so() {
    keep();
    let lock = Masters::new(3).builder().ttl(2 * S).build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    lease.keep_alive(60 * S);
    tokio::time::sleep(3 * S).await;
    // As `SIGSTOP` and `SIGCONT` do, or work that blocks the runtime.
    tokio::time::advance(12 * S).await;
    lease.lost().await;
    tokio::time::sleep(S).await;
    let warnings = kept("WARN");
    assert_eq!(count(&warnings, "stood still for 12."), 1, "{warnings:#?}");

    // A long time without a lease is none, and neither is a lease that nobody renews.
    tokio::time::sleep(60 * S).await;
    let lease = lock.acquire("r").await.unwrap();
    lease.lost().await;
    tokio::time::sleep(S).await;
    let warnings = kept("WARN");
    assert_eq!(count(&warnings, "lease lost"), 1, "{warnings:#?}");
    assert_eq!(count(&warnings, "stood still"), 0, "{warnings:#?}");
}

#[tokio::test(start_paused = true)]
async fn events_and_errors_name_a_resource_alike() {
    keep();
    let masters = Masters::new(3);
    let lock = masters.builder().prefix("app:").build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    let taken = lock.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    assert!(taken.to_string().starts_with("r: "), "{taken}");
    let _ = lease.release().await;
    let events = kept("");
    for start in ["SPAN acquire resource=r", "SPAN hold resource=r", "SPAN release resource=r"] {
        assert!(events.iter().any(|event| event.starts_with(start)), "{start}: {events:#?}");
    }
    assert_eq!(count(&events, "resource=app:"), 0, "{events:#?}");
    assert!(count(&events, "resource=r") >= 6, "{events:#?}");
}
