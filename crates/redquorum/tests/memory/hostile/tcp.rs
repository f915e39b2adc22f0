//! Bad masters over real sockets, for effects that a pipe in memory cannot show. In real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Builder, Outcome, Redlock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::support::MS;

/// A loopback port that treats every connection with this function.
async fn listen<F>(treat: impl Fn(TcpStream) -> F + Send + 'static) -> (String, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let connects = Arc::new(AtomicUsize::new(0));
    let seen = connects.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(treat(stream));
        }
    });
    (url, connects)
}

/// A server that is useless in one of five ways.
async fn useless(way: usize) -> (String, Arc<AtomicUsize>) {
    match way {
        // Reads and never replies.
        0 => listen(|mut stream| async move { while stream.read_u8().await.is_ok() {} }).await,
        // Neither reads nor replies.
        1 => {
            listen(|stream| async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(stream);
            })
            .await
        }
        // Closes at once.
        2 => listen(|stream| async move { drop(stream) }).await,
        // Resets after the first byte of a command.
        3 => {
            listen(|mut stream| async move {
                let _ = stream.read_u8().await;
                let _ = stream.write_all(b":1\r\n$100\r\nrun_id").await;
                stream.set_zero_linger().unwrap();
            })
            .await
        }
        // A server of another protocol.
        _ => {
            listen(|mut stream| async move {
                let _ = stream.write_all(b"220 mail.example.com ESMTP\r\n").await;
                let _ = stream.read_u8().await;
            })
            .await
        }
    }
}

const WAYS: usize = 5;

fn quick(builder: Builder) -> Builder {
    builder.node_timeout(50 * MS).connect_timeout(100 * MS)
}

#[tokio::test]
async fn one_useless_server_of_five_is_not_noticed_and_not_hammered() {
    let mut locks = Vec::new();
    for way in 0..WAYS {
        let (url, connects) = useless(way).await;
        let masters = Masters::new(4);
        let lock = quick(masters.builder()).master(url).build().await.unwrap();
        for _ in 0..10 {
            let lease = lock.acquire("r").await.unwrap();
            let released = lease.release().await;
            assert_eq!(released.outcome, Outcome::Released, "{way}: {}", released.report);
        }
        locks.push((lock, connects));
    }
    tokio::time::sleep(600 * MS).await;
    for (way, (lock, connects)) in locks.iter().enumerate() {
        let connects = connects.load(Ordering::Relaxed);
        assert!((1..=16).contains(&connects), "{way}: {connects} connects");
        assert!(lock.health().await.has_quorum());
    }
}

#[tokio::test]
async fn five_useless_servers_are_an_error_that_names_each() {
    let mut builder = Redlock::builder();
    for way in 0..WAYS {
        builder = builder.master(useless(way).await.0);
    }
    let start = Instant::now();
    let lock = quick(builder).build().await.unwrap();
    let error = lock.acquire("r").wait(200 * MS).await.unwrap_err();
    // Generous, because other tests run at the same time.
    assert!(start.elapsed() < 2_000 * MS, "{:?}", start.elapsed());
    let AcquireError::NoQuorum { report, .. } = &error else { panic!("{error}") };
    let causes = [
        &["connect timeout"][..],
        &["connect timeout"],
        &["closed by the master", "reset by peer", "Broken pipe"],
        &["reset by peer", "Broken pipe"],
        &["not the Redis protocol"],
    ];
    for (master, words) in report.masters().iter().zip(causes) {
        let text = master.to_string();
        assert!(words.iter().any(|word| text.contains(word)), "{text}");
    }
}
