//! Masters that push too much: endless wake-ups, wake-ups for unknown waiters, or bytes that are no
//! message. The effort of the lock is bounded, and the other masters still wake the waiter.

use std::future::IntoFuture;

use redquorum::memory::Masters;
use redquorum_protocol::wire::QUEUE;
use redquorum_protocol::{Token, Waiter};
use tokio::time::{Instant, sleep};

use super::scripted::{Args, Reaction, Scripted};
use crate::support::{MS, S};

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

fn push(words: &[&[u8]]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|word| bulk(word)).collect();
    [format!(">{}\r\n", words.iter().filter(|byte| **byte == b'$').count()).as_bytes(), &words]
        .concat()
}

fn confirmed(kind: &str, channel: &[u8]) -> Vec<u8> {
    [b">3\r\n", &*bulk(kind.as_bytes()), &*bulk(channel), b":1\r\n"].concat()
}

/// A channel to which no connection subscribes.
const NO_INBOX: &[u8] = b"redquorum:wake:00000000000000aa";

/// A master that confirms the subscription and appends these bytes.
fn confirms_and_sends(args: Option<&Args<'_>>, behind: impl Fn(&[u8]) -> Vec<u8>) -> Reaction {
    match args {
        Some([b"HELLO", ..]) => Reaction::line("%1\r\n+proto\r\n:3"),
        Some([b"SUBSCRIBE", channel]) => {
            Reaction::Bytes([confirmed("subscribe", channel), behind(channel)].concat())
        }
        _ => Reaction::Well,
    }
}

/// Bytes that a master may append to its reply, and whether they end its connection.
fn pushes() -> Vec<(&'static str, Vec<u8>, bool)> {
    let unknown = push(&[b"message", NO_INBOX, b"00000000000000bb"]);
    vec![
        ("nothing", Vec::new(), false),
        ("a wake-up of an unknown waiter", unknown.clone(), false),
        ("the same without end, nearly", unknown.repeat(100_000), false),
        ("a wake-up of no waiter", push(&[b"message", NO_INBOX, b"x"]), false),
        ("on another channel", push(&[b"message", b"news", b"hello"]), false),
        ("a message that is too short", push(&[b"message"]), false),
        ("of another kind", push(&[b"invalidate", b"r"]), false),
        ("a long one", push(&[b"message", b"news", &vec![b'x'; 20_000_000]]), false),
        ("of many elements", [b">5000\r\n".to_vec(), b":7\r\n".repeat(5_000)].concat(), false),
        ("an empty push", b">0\r\n".to_vec(), false),
        ("a push of a number", b">1\r\n:7\r\n".to_vec(), false),
        ("a reply to no command", confirmed("subscribe", NO_INBOX), true),
        ("a value without a request", b"+OK\r\n".to_vec(), true),
        ("no protocol", b">x\r\n".to_vec(), true),
        ("a long push that never ends", b">1\r\n$999999999\r\n".to_vec(), true),
        ("a long answer", [b">3\r\n$9\r\nsubscribe\r\n$99999\r\n".to_vec()].concat(), true),
    ]
}

#[tokio::test(start_paused = true)]
async fn whatever_one_master_pushes_the_others_wake_the_waiter() {
    for (what, pushed, ends) in pushes() {
        let masters = Masters::new(2);
        let bad = Scripted::new("bad", move |args| confirms_and_sends(args, |_| pushed.clone()));
        let seen = bad.seen();
        let lock = || masters.builder().master(bad.clone()).ttl(60 * S).build();
        let [one, two] = [lock().await.unwrap(), lock().await.unwrap()];
        let lease = one.acquire("r").await.unwrap();
        let waiter = tokio::spawn(two.acquire("r").wait(60 * S).into_future());
        sleep(10 * S).await;
        assert!(!waiter.is_finished(), "{what}");
        let connects = seen.connects();
        assert_eq!(connects > 2, ends, "{what}: {connects} connects");
        assert!(connects < 60 && seen.commands() < 1000, "{what}: {}", seen.commands());
        let before = Instant::now();
        let _ = lease.release().await;
        let lease = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() < 50 * MS, "{what}: {:?}", before.elapsed());
        let _ = lease.release().await;
        sleep(S).await;
        let left: usize = two.stats().masters.iter().map(|master| master.subscriptions).sum();
        assert_eq!((left, two.stats().waiting), (0, 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_woken_again_and_again_asks_no_faster_than_a_round_takes() {
    let masters = Masters::new(2);
    let bad = Scripted::new("bad", |args| match args {
        // Another client holds the resource here, and the master answers each look with wake-ups
        // too.
        Some([b"EVALSHA", sha, _, _, waiter, position])
            if *sha == QUEUE.sha1.as_bytes() && Waiter::parse(waiter).is_some() =>
        {
            assert_ne!(*position, b"-", "to leave is not to look");
            let (inbox, waiter_id) = waiter.split_at(16);
            let woken = push(&[b"message", &[b"redquorum:wake:", inbox].concat(), waiter_id]);
            let held = b"*4\r\n:1\r\n:0\r\n:60000\r\n$1\r\nx\r\n".as_slice();
            Reaction::Bytes([held, &woken.repeat(100)].concat())
        }
        Some([b"EVALSHA", _, _, _, token, ..]) if Token::from_slice(token).is_some() => {
            Reaction::line("*2\r\n:60000\r\n$1\r\nx")
        }
        Some([b"SET", ..]) => Reaction::line("$-1"),
        args => confirms_and_sends(args, |_| Vec::new()),
    });
    let seen = bad.seen();
    let lock = || masters.builder().master(bad.clone()).ttl(60 * S).build();
    let [one, two] = [lock().await.unwrap(), lock().await.unwrap()];
    let lease = one.acquire("r").await.unwrap();
    let waiter = tokio::spawn(two.acquire("r").wait(60 * S).into_future());
    sleep(S).await;
    let before = seen.commands();
    sleep(10 * S).await;
    let asked = seen.commands() - before;
    println!("{asked} commands in ten seconds");
    // The client follows a hint after a few milliseconds, with at most a SET and a clean-up.
    assert!((20..=4000).contains(&asked), "{asked} commands in ten seconds");
    let _ = lease.release().await;
    drop(waiter.await.unwrap().unwrap());
}
