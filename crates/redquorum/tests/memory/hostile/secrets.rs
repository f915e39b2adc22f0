//! A master that repeats the password wherever it can, and all places where it must not show.

use std::fmt::Debug;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Redlock, connect::Hello};
use tokio::time::sleep;

use super::scripted::{Args, Reaction, Scripted, is_greeting};

const PASSWORD: &str = "hunter2-Passw0rd";

/// Errors that repeat the password: plainly, twice, in place of the error code, and where the text
/// is cut off.
fn echoes() -> Vec<String> {
    let long = format!("-ERR {}{PASSWORD}", "x".repeat(190));
    let text = format!("-ERR unknown command, with args beginning with: '{PASSWORD}' '{PASSWORD}'");
    vec![text, format!("-{PASSWORD} {PASSWORD}"), long]
}

fn hello(password: &str) -> Hello {
    Hello { password: Some(password.into()), ..Hello::default() }
}

/// Checks that not even half of the password shows.
fn check(what: &dyn Debug, text: &str) {
    for shown in [text.to_owned(), format!("{what:?}"), format!("{what:#?}")] {
        assert!(!shown.contains(&PASSWORD[..7]), "the password shows in {shown}");
    }
}

async fn look_everywhere(lock: &Redlock) {
    check(lock, "");
    for _ in 0..3 {
        match lock.acquire("r").wait(Duration::ZERO).await {
            Ok(lease) => {
                check(&lease, &lease.report().to_string());
                if let Err(error) = lease.extend().await {
                    check(&error, &error.to_string());
                }
                let released = lease.release().await;
                check(&released, &released.report.to_string());
            }
            Err(error) => {
                assert!(!matches!(error, AcquireError::Options { .. }), "{error}");
                check(&error, &error.to_string());
            }
        }
        let health = lock.health().await;
        check(&health, &health.to_string());
        check(&lock.stats(), "");
        sleep(Duration::from_secs(2)).await;
    }
}

/// Checks a lock over two good masters and three that follow this script.
async fn look_at(script: impl Fn(&Args<'_>) -> Reaction + Clone + Send + Sync + 'static) {
    let mut builder = Masters::new(2).builder();
    for number in 3..=5 {
        let script = script.clone();
        let script = move |args: Option<&Args<'_>>| args.map_or(Reaction::Well, &script);
        let bad = Scripted::new(&format!("bad-{number}"), script);
        builder = builder.master(bad.with_hello(hello(PASSWORD)));
    }
    check(&builder, "");
    look_everywhere(&builder.build().await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_password_that_a_master_repeats_shows_nowhere() {
    for echo in echoes() {
        let reaction = Reaction::line(&echo);
        // The echo replies to each command of the handshake in turn, then to every other command.
        for name in [&b"AUTH"[..], b"CLIENT", b"INFO", b"SCRIPT"] {
            let reaction = reaction.clone();
            look_at(move |args| if args[0] == name { reaction.clone() } else { Reaction::Well })
                .await;
        }
        let later = reaction.clone();
        look_at(move |args| if is_greeting(args) { Reaction::Well } else { later.clone() }).await;
        let clean_ups = reaction.clone();
        look_at(move |args| if args[0] == b"EVALSHA" { clean_ups.clone() } else { Reaction::Well })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_without_the_password_is_shown_as_it_is() {
    let bad = Scripted::new("bad", |args| match args {
        Some(args) if args[0] == b"SET" => Reaction::line("-ERR hunter3 \x1b[31mwas\x07 here"),
        _ => Reaction::Well,
    });
    let lock = Redlock::builder().master(bad.with_hello(hello(PASSWORD)));
    let lock = lock.tokio_clock_for_tests().build().await.unwrap();
    let error = lock.try_acquire("r").await.unwrap_err().to_string();
    assert!(error.contains("error: ERR hunter3  [31mwas  here"), "{error}");
    assert!(!error.chars().any(char::is_control), "{error:?}");
}

#[test]
#[should_panic(expected = "the password shows")]
fn a_password_that_shows_would_be_seen() {
    check(&hello(PASSWORD).password, "");
}
