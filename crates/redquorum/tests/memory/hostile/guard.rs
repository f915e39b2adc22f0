//! A master that replies nonsense to the commands of a restart guard is never counted. It never
//! makes the lock spin, panic or fail while the other masters reply.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Outcome, stats::LinkState};
use redquorum_protocol::wire::{GRANT, WATCH};
use tokio::time::sleep;

use super::scripted::{Args, Reaction, Scripted};
use crate::support::S;

const TTL: Duration = Duration::from_secs(5);
const NAME: &str = "bad";
/// The boot marker of the scripted master: its run id is the master's name.
const MARKER: &str = "bad 5000 masters=ca9baebb92353c04";
/// The boot marker of another server process.
const OTHER: &str = "other 5000 masters=ca9baebb92353c04";
/// The name of the set of masters; the markers contain its fingerprint. A marker of another set
/// would refuse the whole attempt instead of one vote.
const MASTERS_ID: &str = "jobs";

/// What the master replies to each command of the guard.
#[derive(Clone, Debug, Default)]
struct Replies {
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

fn pair(boot: &str, probation: &str) -> String {
    format!("*3\r\n{}\r\n{}\r\n{TIME}", bulk(boot), bulk(probation))
}

impl Replies {
    fn to(&self, args: &Args<'_>) -> Reaction {
        let of =
            |text: &Option<String>, well: &str| Reaction::line(text.as_deref().unwrap_or(well));
        match args {
            // Another marker exists already.
            [b"SET", b"redquorum:boot", ..] => Reaction::line("$-1"),
            [b"GETRANGE", ..] => of(&self.get, "$0\r\n"),
            [b"CONFIG", ..] => of(&self.config, "*0"),
            [b"EVALSHA", sha, ..] if *sha == WATCH.sha1.as_bytes() => {
                of(&self.watch, &pair("", "x"))
            }
            [b"EVALSHA", sha, ..] if *sha == GRANT.sha1.as_bytes() => {
                of(&self.grant, &format!("*2\r\n:1\r\n{TIME}"))
            }
            _ => Reaction::Well,
        }
    }
}

/// Runs a lock over two good masters and this one for a minute; the good ones are a quorum. Returns
/// how often the bad master granted.
async fn with(replies: Replies) -> (u64, LinkState) {
    let good = Masters::new(2);
    let script =
        move |args: Option<&Args<'_>>| args.map_or(Reaction::Well, |args| replies.to(args));
    let bad = Scripted::new(NAME, script);
    let seen = bad.seen();
    let lock = good
        .builder()
        .master(bad)
        .ttl(TTL)
        .restart_guard(TTL)
        .masters_id(MASTERS_ID)
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
    (bad.granted, bad.state.clone())
}

#[tokio::test(start_paused = true)]
async fn replies_that_prove_nothing_are_never_trusted() {
    let get = |reply: String| Replies { get: Some(reply), ..Replies::default() };
    let texts =
        ["bad", "bad x", "bad 5001", " 5000", "bad -1", "bad  5000", "\u{1b}[31m 5000", OTHER];
    let long = format!("bad 5000 {}", "x".repeat(300));
    let markers = texts.into_iter().chain([&*long]).map(|text| get(bulk(text)));
    let errors = ["-ERR no", "-NOPERM no permissions", "-WRONGTYPE not a string"];
    let errors = errors.into_iter().map(|error| get(error.into()));
    // Another marker than the first look found, at each grant.
    let shown = ["", "x", MARKER, OTHER].map(|shown| Replies {
        get: Some(bulk(MARKER)),
        watch: Some(pair(MARKER, "")),
        grant: Some(format!("*2\r\n{}\r\n{TIME}", bulk(shown))),
        ..Replies::default()
    });
    // Probations that change or cannot be kept.
    let watches =
        [pair("", ""), pair("bad", "x"), "-READONLY You can't write".into(), "-OOM".into()];
    let watches = watches.map(|watch| Replies { watch: Some(watch), ..Replies::default() });
    for replies in markers.chain(errors).chain(shown).chain(watches) {
        let (granted, state) = with(replies.clone()).await;
        assert_eq!((granted, state), (0, LinkState::Up), "{replies:?}");
    }
    // Control: a valid marker makes the master count.
    assert!(with(get(bulk(MARKER))).await.0 > 50);
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_not_redis_s_end_the_connection() {
    for reply in [":1", "*1\r\n:1", "+OK"] {
        for replies in [
            Replies { get: Some(reply.into()), ..Replies::default() },
            Replies { config: Some(":1".into()), ..Replies::default() },
            Replies { watch: Some(reply.into()), ..Replies::default() },
        ] {
            let (granted, state) = with(replies).await;
            assert_eq!(granted, 0, "{reply}");
            assert!(matches!(state, LinkState::Down(_)), "{reply}: {state:?}");
        }
    }
}
