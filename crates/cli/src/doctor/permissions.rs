//! Permissions: tries each command that the lock needs, on a key of its own that is removed again.

use std::sync::Arc;

use redquorum_protocol::wire::{
    Command, ErrorKind, GUARD_SCRIPTS, SCRIPTS, Script, channel_of, counter_of,
};
use redquorum_protocol::{Fence, Key, Position, TOKEN_LEN, Token, Waiter, WaiterId, WakeUp};

use super::questions;
use super::server_info::{QueryResult, Requirement, Trial, Visit};
use super::{Finding, Level};
use crate::line::{AskError, Line, Unreached, reply};

/// The TTL of keys that a trial sets, in milliseconds, in case they cannot be removed.
const TTL_MS: u64 = 10_000;

/// The effect of a missing wake-up command, and how to allow these commands.
const NOT_WOKEN: &str = "a waiter is not woken by a release, and tries again and again";
const ALLOW_WAKE_UPS: &str = "allow +hello +subscribe +publish and the channels &redquorum:wake:*";

impl Requirement {
    /// The command, what does not work without it, and how to allow it.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scripts => (
                "SCRIPT LOAD",
                "the lock does not use this master at all",
                "allow +script|load +evalsha",
            ),
            Self::Acquire => {
                ("SET NX PX", "nothing can be acquired", "allow +set and the keys of the lock")
            }
            Self::Extend => (
                "the script of extend",
                "leases cannot be extended",
                "allow +evalsha +get +pttl +pexpire +set",
            ),
            Self::Release => (
                "the script of release",
                "keys are not given back, and live for their TTL",
                "allow +evalsha +get +del +pttl",
            ),
            Self::Fenced => (
                "the scripts of fenced leases",
                "fenced leases do not work; plain ones do",
                "if the lock has fencing: allow +evalsha +time +set +get +pexpire and the keys redquorum:fence:*",
            ),
            Self::Guarded => (
                "the scripts of guarded leases",
                "a lock with a guard does not work; one without does",
                "if the lock has a guard: allow +evalsha +time +get +set +del and the keys redquorum:boot and redquorum:probation",
            ),
            Self::ClientId => (
                "CLIENT ID",
                "a SET in the socket of a broken connection may take effect late, and its key stays for a TTL",
                "allow +client|id +client|kill",
            ),
            Self::ClientKill => (
                "CLIENT KILL ID",
                "a SET in the socket of a broken connection may take effect late, and its key stays for a TTL",
                "allow +client|id +client|kill",
            ),
            Self::OneServer => (
                "a second connection",
                "what stands there is no master but something that spreads connections over several",
                "give the address of the master itself",
            ),
            Self::Ping => {
                ("PING", "the doctor cannot measure its latency; the lock works", "allow +ping")
            }
            Self::Info => (
                "INFO",
                "a restart is not seen, nor one server under two URLs; a lock with a guard never trusts this master",
                "allow +info",
            ),
            Self::Hello => ("HELLO 3", NOT_WOKEN, ALLOW_WAKE_UPS),
            Self::Subscribe => ("SUBSCRIBE", NOT_WOKEN, ALLOW_WAKE_UPS),
            Self::Publish => ("PUBLISH", NOT_WOKEN, ALLOW_WAKE_UPS),
            Self::Queue => (
                "the script of queues",
                "a waiter is not woken by a release, and tries again and again; a lock that is fair keeps no order, and no shared lease is granted",
                "allow +evalsha +time +zadd +zrem +zrange +zrevrange +zrangebyscore +zrank +zscore +zcard +zcount +pexpire +exists +get +pttl and the keys redquorum:queue:*, redquorum:readers:* and redquorum:lapse:*",
            ),
        }
    }

    /// The level of a failure, for a lock with a guard or without one.
    const fn level(self, guarded: bool) -> Level {
        match self {
            Self::Scripts | Self::Acquire | Self::Extend | Self::Release | Self::OneServer => {
                Level::Error
            }
            Self::Guarded | Self::Info if guarded => Level::Error,
            _ => Level::Warn,
        }
    }
}

/// Tries everything. Skips a trial that cannot work since an earlier one failed.
pub(super) async fn attempt(
    line: &mut Line,
    visit: &Visit,
    prefix: &[u8],
) -> Result<Vec<Trial>, Unreached> {
    let mut trials = Trials(Vec::new());
    trials.note(Requirement::Info, visit.info.as_ref().map(|_| ()).map_err(String::clone));
    trials.note(Requirement::Ping, visit.pings.as_ref().map(|_| ()).map_err(String::clone));
    kill_connection(line, visit, &mut trials).await?;

    // Outside of `redquorum:`, which a user may have for the lock's other keys only: without a
    // prefix, the name must be refused where the names of resources are.
    let name = format!("redquorum-doctor:{:016x}", rand::random::<u64>());
    let name = [prefix, name.as_bytes()].concat();
    let key: Key = Arc::from(&*name);
    let token = Token::new(rand::random::<[u8; TOKEN_LEN]>());
    let keys = Keys { key, token };
    let acquired =
        trials.attempt(Requirement::Acquire, expect(line, &keys.set(None), "OK").await)?;
    if trials.attempt(Requirement::Scripts, load(line, &SCRIPTS).await)? {
        if acquired {
            trials.attempt(Requirement::Extend, expect(line, &keys.keep(None), "1").await)?;
            trials.attempt(Requirement::Release, expect(line, &keys.delete(), "1").await)?;
        }
        trials.attempt(Requirement::Fenced, fenced(line, &keys).await)?;
        trials.attempt(Requirement::Queue, queue(line, &keys).await)?;
    }
    // `DEL` also works where scripts do not. Otherwise the key would stay for its TTL.
    reply(line.ask(&[b"DEL", &name]).await)?.ok();
    let guarded = guarded(line, &keys).await;
    trials.attempt(Requirement::Guarded, guarded)?;

    let channel = channel_of(0);
    let published = line.ask(&[b"PUBLISH", &channel, b""]).await;
    trials.attempt(Requirement::Publish, published.map(drop))?;
    // On a connection of its own, in RESP2, where the reply is an ordinary reply.
    let subscribed = line.another().await?.ask(&[b"SUBSCRIBE", &channel]).await;
    trials.attempt(Requirement::Subscribe, subscribed.map(drop))?;
    let resp3 = line.another().await?.ask(&[b"HELLO", b"3"]).await;
    trials.attempt(Requirement::Hello, resp3.map(drop))?;
    Ok(trials.0)
}

struct Trials(Vec<Trial>);

impl Trials {
    /// Notes a result. Returns whether the trial succeeded.
    fn note(&mut self, what: Requirement, result: QueryResult<()>) -> bool {
        let works = result.is_ok();
        self.0.push(Trial { what, result });
        works
    }

    fn attempt(
        &mut self,
        what: Requirement,
        result: Result<(), AskError>,
    ) -> Result<bool, Unreached> {
        Ok(self.note(what, reply(result)?))
    }
}

/// Opens a second connection and kills it. Kills it only if it reached the same process: in another
/// process, the id belongs to a connection of another client.
async fn kill_connection(
    line: &mut Line,
    visit: &Visit,
    trials: &mut Trials,
) -> Result<(), Unreached> {
    let mut other = line.another().await?;
    let id = reply(other.ask(&[b"CLIENT", b"ID"]).await)?.map(|id| id.words().concat());
    trials.note(Requirement::ClientId, id.as_ref().map(|_| ()).map_err(String::clone));
    let Some(first) = visit.run_id() else { return Ok(()) };
    let second = reply(questions::info(&mut other).await)?.ok().and_then(|info| info.run_id);
    if second.as_ref() != Some(&first) {
        let second = second.as_ref().map_or("another", |second| &*second.0);
        let text = format!("it reached {second}, the first one {}", first.0);
        trials.note(Requirement::OneServer, Err(text));
    } else if let Ok(id) = id {
        let killed = line.ask(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]).await;
        trials.attempt(Requirement::ClientKill, killed.map(drop))?;
    }
    Ok(())
}

/// The key and the token of the trials.
struct Keys {
    key: Key,
    token: Token,
}

impl Keys {
    fn set(&self, fence: Option<Fence>) -> Command {
        let Self { key, token } = self;
        Command::Set { key: key.clone(), token: *token, ttl_ms: TTL_MS, fair: false, fence }
    }

    fn keep(&self, fence: Option<Fence>) -> Command {
        let Self { key, token } = self;
        let (key, token) = (key.clone(), *token);
        Command::Keep { key, token, ttl_ms: TTL_MS, repair: false, marker: None, fence }
    }

    fn delete(&self) -> Command {
        let (key, token, wake_up) = (self.key.clone(), self.token, WakeUp::None);
        Command::Delete { key, token, wake_up, leave: None }
    }
}

/// Looks at the boot marker without beginning a probation, and tries a grant that relies on a
/// marker that no master has. Both change nothing.
async fn guarded(line: &mut Line, Keys { key, token }: &Keys) -> Result<(), AskError> {
    load(line, &GUARD_SCRIPTS).await?;
    let none: Arc<str> = Arc::from("");
    let run_id = redquorum_protocol::RunId(none.clone());
    let (marker, begin, ended) = (none, None, None);
    line.run(&Command::Watch { run_id, marker, begin, probation_ms: TTL_MS, ended }).await?;
    let (key, token) = (key.clone(), *token);
    let marker = Arc::from("redquorum doctor");
    let grant = Command::Guarded { key, token, ttl_ms: TTL_MS, fair: false, fence: None, marker };
    line.run(&grant).await.map(drop)
}

/// A complete fenced lease: grants, certifies, extends and releases it, and removes its counter.
async fn fenced(line: &mut Line, keys: &Keys) -> Result<(), AskError> {
    let fence = |number| Fence { number, memory_ms: TTL_MS };
    let number = line.run(&keys.set(Some(fence(1)))).await?.words().concat();
    let Ok(count) = number.parse::<u64>() else {
        return Err(AskError::Refused(format!("no number of a grant: {number}")));
    };
    let (key, token) = (keys.key.clone(), keys.token);
    expect(line, &Command::Certify { key, token, fence: fence(count) }, &number).await?;
    expect(line, &keys.keep(Some(fence(1))), "1").await?;
    expect(line, &keys.delete(), "1").await?;
    // Locks never delete a counter, so they need no permission for it. Without permission, this
    // counter expires.
    match line.ask(&[b"DEL", &counter_of(&keys.key)]).await {
        Err(why @ AskError::Unreached(_)) => Err(why),
        _ => Ok(()),
    }
}

/// Two waiters enter the queue and leave it. If they cannot leave, their positions lapse in some
/// seconds.
async fn queue(line: &mut Line, Keys { key, token }: &Keys) -> Result<(), AskError> {
    let (key, token) = (key.clone(), token.shared());
    let enter = |waiter| Command::Enqueue { key: key.clone(), waiter, position: Position::Last };
    let leave = |waiter| Command::Dequeue { key: key.clone(), waiter, wake: true };
    let waiter = |number| Waiter { inbox: 0, waiter_id: WaiterId::new(number) };
    let [first, second] = [1, 2].map(waiter);
    // Each expected reply: the waiter's position, and how many waiters are before it.
    expect(line, &enter(first), "10").await?;
    expect(line, &enter(second), "21").await?;
    // A shared lease beside the waiters, whose release counts them.
    let shared = Command::Set { key: key.clone(), token, ttl_ms: TTL_MS, fair: false, fence: None };
    expect(line, &shared, "1").await?;
    let (wake_up, leave_with) = (WakeUp::Count, None);
    let release = Command::Delete { key: key.clone(), token, wake_up, leave: leave_with };
    expect(line, &release, "3").await?;
    expect(line, &leave(first), "0").await?;
    expect(line, &leave(second), "0").await
}

async fn load(line: &mut Line, scripts: &[Script]) -> Result<(), AskError> {
    for script in scripts {
        expect(line, &Command::Load(*script), script.sha1).await?;
    }
    Ok(())
}

/// Runs a command and compares its reply with the expected one.
async fn expect(line: &mut Line, command: &Command, wanted: &str) -> Result<(), AskError> {
    match line.run(command).await?.words().concat() {
        result if result == wanted => Ok(()),
        result => Err(AskError::Refused(format!("it answers `{result}`, not `{wanted}`"))),
    }
}

/// The findings about the trials.
pub(super) fn check(trials: &[Trial], guarded: bool) -> Vec<Finding> {
    let finding = |trial: &Trial| {
        let text = trial.result.as_ref().err()?;
        let (command, without, fix) = trial.what.words();
        let verb = if trial.what == Requirement::OneServer { "is elsewhere" } else { "is refused" };
        let text = format!("{command} {verb} ({text}): {without}");
        Some(Finding::bad(trial.what.level(guarded), "permissions", text, fix_for(fix, trial)))
    };
    let bad: Vec<Finding> = trials.iter().filter_map(finding).collect();
    if bad.is_empty() && !trials.is_empty() {
        return vec![Finding::ok("permissions", "everything that a lock needs is allowed")];
    }
    bad
}

/// How to fix a failed trial. If the error is about keys, the trial's key may lie outside of the
/// keys that the user may touch.
fn fix_for(fix: &str, trial: &Trial) -> String {
    let text = trial.result.as_ref().err().map_or("", String::as_str);
    if trial.what == Requirement::OneServer {
        fix.to_owned()
    } else if ErrorKind::of(text.as_bytes()) != ErrorKind::Forbidden {
        "fix what the master says, then look again".to_owned()
    } else if text.contains("keys") && trial.what == Requirement::Acquire {
        "give the prefix of the lock by --prefix, or allow the keys of the lock".to_owned()
    } else {
        format!("{fix} (docs/wire.md has the whole line)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: Requirement, text: &str) -> Trial {
        Trial { what, result: Err(text.to_owned()) }
    }

    #[test]
    fn a_refused_command_is_named_with_its_effect_and_its_permission() {
        let noperm = "NOPERM this user has no permissions to run the 'x' command";
        let table = [
            (Requirement::Scripts, false, Level::Error, "+script|load"),
            (Requirement::Acquire, false, Level::Error, "+set"),
            (Requirement::Extend, false, Level::Error, "+pexpire"),
            (Requirement::Release, false, Level::Error, "+del"),
            (Requirement::Fenced, true, Level::Warn, "redquorum:fence:*"),
            (Requirement::Guarded, false, Level::Warn, "redquorum:boot"),
            (Requirement::Guarded, true, Level::Error, "redquorum:boot"),
            (Requirement::Info, false, Level::Warn, "+info"),
            (Requirement::Info, true, Level::Error, "+info"),
            (Requirement::ClientId, true, Level::Warn, "+client|id"),
            (Requirement::ClientKill, true, Level::Warn, "+client|kill"),
            (Requirement::Ping, true, Level::Warn, "+ping"),
            (Requirement::Hello, true, Level::Warn, "+hello"),
            (Requirement::Subscribe, true, Level::Warn, "+subscribe"),
            (Requirement::Publish, true, Level::Warn, "&redquorum:wake:*"),
            (Requirement::Queue, true, Level::Warn, "redquorum:queue:*"),
            (Requirement::OneServer, false, Level::Error, "address of the master itself"),
        ];
        for (what, guarded, level, part) in table {
            let found = check(&[refused(what, noperm)], guarded);
            assert_eq!((found.len(), found[0].level), (1, level), "{what:?}");
            assert!(found[0].text.contains(noperm), "{what:?}");
            assert!(found[0].fix.as_deref().unwrap().contains(part), "{what:?}");
        }
    }

    #[test]
    fn a_key_that_may_not_be_touched_asks_for_the_prefix() {
        let text =
            "NOPERM this user has no permissions to access one of the keys used as arguments";
        let found = check(&[refused(Requirement::Acquire, text)], false);
        assert!(found[0].fix.as_deref().unwrap().contains("--prefix"));
        // The error of a script.
        let text = "ERR ACL failure in script: User u has no permissions to run the 'pttl' command";
        let found = check(&[refused(Requirement::Extend, text)], false);
        assert!(found[0].fix.as_deref().unwrap().contains("docs/wire.md"));
        let full = check(&[refused(Requirement::Acquire, "OOM command not allowed")], false);
        assert!(!full[0].fix.as_deref().unwrap().contains("allow"));
    }

    #[test]
    fn without_a_trial_nothing_is_reported_as_allowed() {
        assert_eq!(check(&[], false), []);
        assert_eq!(
            check(&[Trial { what: Requirement::Ping, result: Ok(()) }], false)[0].level,
            Level::Ok
        );
    }
}
