//! A master that replies nonsense to the commands of a restart guard is never counted. It never
//! makes the lock spin, panic or fail while the other masters reply.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Outcome, stats::LinkState};
use redquorum_protocol::wire::{GUARDED, WATCH};
use tokio::time::sleep;

use crate::scripted::{Args, Say, Scripted};

const S: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
const NAME: &str = "bad";
/// The boot marker of the scripted master: its run id is the master's name.
const MARKER: &str = "bad 5000 fleet=ca9baebb92353c04";
/// The boot marker of another server process.
const OTHER: &str = "other 5000 fleet=ca9baebb92353c04";
/// The name of the set of masters; the markers contain its fingerprint. A marker of another set
/// would refuse the whole attempt instead of one vote.
const FLEET: &str = "jobs";

/// What the master replies to each command of the guard.
#[derive(Clone, Default)]
struct Says {
    get: Option<String>,
    config: Option<String>,
    watch: Option<String>,
    grant: Option<String>,
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}", text.len())
}

/// The master's time, the last element of these replies.
const TIME: &str = ":1700000000000000";

fn pair(boot: &str, vigil: &str) -> String {
    format!("*3\r\n{}\r\n{}\r\n{TIME}", bulk(boot), bulk(vigil))
}

impl Says {
    fn to(&self, args: &Args<'_>) -> Say {
        let of = |text: &Option<String>, well: &str| Say::line(text.as_deref().unwrap_or(well));
        match args {
            // Another marker exists already.
            [b"SET", b"redquorum:boot", ..] => Say::line("$-1"),
            [b"GETRANGE", ..] => of(&self.get, "$0\r\n"),
            [b"CONFIG", ..] => of(&self.config, "*0"),
            [b"EVALSHA", sha, ..] if *sha == WATCH.sha1.as_bytes() => {
                of(&self.watch, &pair("", "x"))
            }
            [b"EVALSHA", sha, ..] if *sha == GUARDED.sha1.as_bytes() => {
                of(&self.grant, &format!("*2\r\n:1\r\n{TIME}"))
            }
            _ => Say::Well,
        }
    }
}

/// Runs a lock over two good masters and this one for a minute; the good ones are a quorum. Returns
/// how often the bad master granted.
async fn with(says: Says) -> (u64, LinkState, usize) {
    let good = Masters::new(2);
    let script = move |args: Option<&Args<'_>>| args.map_or(Say::Well, |args| says.to(args));
    let bad = Scripted::new(NAME, script);
    let seen = bad.seen();
    let lock = good
        .builder()
        .master(bad)
        .ttl(TTL)
        .restart_guard(TTL)
        .masters_id(FLEET)
        .build()
        .await
        .unwrap();
    lock.initialize_masters().await;
    for _ in 0..60 {
        let lease = lock.acquire("r").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        sleep(S).await;
    }
    assert!(seen.commands() < 2_000, "{} commands in a minute", seen.commands());
    assert!(seen.connects() < 100, "{} connects in a minute", seen.connects());
    let bad = &lock.stats().masters[2];
    (bad.granted, bad.state.clone(), seen.commands())
}

#[tokio::test(start_paused = true)]
async fn markers_that_are_none_are_never_trusted() {
    let of = |text: &str| Says { get: Some(bulk(text)), ..Says::default() };
    for text in
        ["bad", "bad x", "bad 5001", " 5000", "bad -1", "bad  5000", "\u{1b}[31m 5000", OTHER]
    {
        let (granted, ..) = with(of(text)).await;
        assert_eq!(granted, 0, "{text:?}");
    }
    let (granted, state, _) = with(of(&format!("bad 5000 {}", "x".repeat(300)))).await;
    assert_eq!((granted, state), (0, LinkState::Up), "a long one");
    for answer in ["-ERR no", "-NOPERM no permissions", "-WRONGTYPE not a string"] {
        let says = Says { get: Some(answer.into()), ..Says::default() };
        assert_eq!(with(says).await.0, 0, "{answer}");
    }
    // Control: a valid marker makes the master count.
    assert!(with(of(MARKER)).await.0 > 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_rediss_ends_the_connection() {
    for answer in [":1", "*1\r\n:1", "+OK"] {
        for says in [
            Says { get: Some(answer.into()), ..Says::default() },
            Says { config: Some(":1".into()), ..Says::default() },
            Says { watch: Some(answer.into()), ..Says::default() },
        ] {
            let (granted, state, _) = with(says).await;
            assert_eq!(granted, 0, "{answer}");
            assert!(matches!(state, LinkState::Down(_)), "{answer}: {state:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_make_no_sense_are_no_reason_to_trust() {
    let always_marked = format!("{OTHER} always");
    let marker = Some(bulk(&always_marked));
    let always = ["appendonly", "yes", "appendfsync", "always", "no-appendfsync-on-rewrite", "no"];
    let config = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| bulk(word)).collect();
        format!("*{}\r\n{}", words.len(), words.join("\r\n"))
    };
    let says = |words: &[&str]| Says {
        get: marker.clone(),
        config: Some(config(words)),
        watch: Some(pair(&always_marked, "x.1")),
        ..Says::default()
    };
    for words in [&always[..5], &always[..4], &always[1..], &["appendonly"], &[""]] {
        // The probation key is always present, so the lock watches it for long enough. But the
        // marker stays another process's.
        assert_eq!(with(says(words)).await.0, 0, "{words:?}");
    }
    assert!(with(says(&always)).await.0 > 50, "and these do");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_shows_another_marker_at_each_grant_is_not_counted_and_not_asked_in_a_spin() {
    for shown in ["", "x", MARKER, OTHER] {
        let grant = Some(format!("*2\r\n{}\r\n{TIME}", bulk(shown)));
        let says = Says {
            get: Some(bulk(MARKER)),
            watch: Some(pair(MARKER, "")),
            grant,
            ..Says::default()
        };
        let (granted, state, _) = with(says).await;
        assert_eq!((granted, state), (0, LinkState::Up), "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn vigils_that_change_or_cannot_be_kept_never_end() {
    for watch in [pair("", ""), pair("bad", "x"), "-READONLY You can't write".into(), "-OOM".into()]
    {
        let says = Says { watch: Some(watch.clone()), ..Says::default() };
        assert_eq!(with(says).await.0, 0, "{watch}");
    }
}
