//! What is told to `tracing` (feature `tracing`): what happened, and no secret.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::time::Duration;

use redquorum::Hello;
use redquorum::memory::Masters;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::scripted::{Say, Scripted};

/// Keeps the events of threads that want it, as text, of each apart: a subscriber of one thread alone would miss
/// events that another thread, which has none, was the first to come by.
struct Keeper;

thread_local! {
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redquorum"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        KEPT.with_borrow_mut(|text| {
            let Some(text) = text else { return };
            write!(text, "{}", event.metadata().level()).unwrap();
            event.record(&mut Fields(text));
            text.push('\n');
        });
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_happened_and_neither_password_nor_token() {
    const PASSWORD: &str = "hunter2-Passw0rd";
    tracing::subscriber::set_global_default(Keeper).unwrap();
    KEPT.set(Some(String::new()));
    let masters = Masters::new(3);
    let mut builder = masters.builder();
    let hello = || Hello { password: Some(PASSWORD.into()), ..Hello::default() };
    for command in ["AUTH", "SCRIPT", "SET", "EVALSHA"] {
        let script = move |args: Option<&crate::scripted::Args<'_>>| match args {
            Some(args) if args[0] == command.as_bytes() => {
                Say::Last(format!("-ERR {PASSWORD}\r\n").into_bytes())
            }
            _ => Say::Well,
        };
        builder = builder.node(Scripted::new(command, script).with_hello(hello()));
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
    for word in ["connected", "not connected", "a\\nb", "not acquired", "closed by the master"] {
        assert!(text.contains(word), "{word:?} is missing in\n{text}");
    }
    assert!(!text.contains(&PASSWORD[..7]), "{text}");
    if let Some(token) = token {
        let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&hex), "{text}");
    }
}
