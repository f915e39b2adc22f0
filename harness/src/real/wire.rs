//! What a command on the wire does to a key, and what its reply means, for any client in any
//! language. The tap and the rules of the network use this.
//!
//! Commands of this library and of its mutants say it themselves ([`KeyEffect`](wire::KeyEffect)),
//! and so do commands such as `SET … NX`. Scripts of other clients do not: `script.rs` reads their
//! text, as seen on the wire (`EVAL`, `SCRIPT LOAD`). A script whose effect is not clear is
//! [`Act::Other`], and the checker draws no conclusions from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::run::RunClock;
use super::script::{Kind, Script};
use crate::unpoisoned;
use redquorum_protocol::wire;
use redquorum_redis_model::{Request, ScriptMutant};
use redquorum_rig::RespValue;
use redquorum_rig::network::{self, Traffic, TrafficEvent};
use redquorum_scenario::history::{Act, Event, Outcome, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, Side};
use redquorum_simulator::orchestrator::Input;

/// The scripts that were seen, by their SHA-1. `None`: the effect is not clear.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: Mutex<HashMap<String, Option<Script>>>,
}

impl Scripts {
    /// The class of a command, and its effect on a key if it has one.
    pub(super) fn read(&self, command: &[Vec<u8>]) -> (Class, Option<Act>) {
        // A push message of a master: no client requests it.
        if matches!(command, [message, channel, _] if message == b"message" && wire::is_channel(channel))
        {
            return (Class::WakeUp, None);
        }
        let words = command.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let own = Request::of_lock(&words);
        let compares = !matches!(own, Some(Request::Mutant(_, ScriptMutant::Uncompared)));
        if let Some(Request::Lock(own) | Request::Mutant(own, _)) = own {
            let effect = own.key_effect();
            let act = Act::of(effect, |key| text_of(key), |token| text_of(token.as_bytes()));
            return (Class::of(effect), if compares { act } else { act.map(Act::uncompared) });
        }
        let act = self.act_of_another_client(command);
        let class = match act {
            Some(Act::Set { .. }) => Class::Acquire,
            Some(Act::Keep { .. }) => Class::Extend,
            Some(Act::Delete { .. }) => Class::Release,
            _ => Class::Any,
        };
        (class, act)
    }

    /// `None` if the command has nothing to do with keys.
    fn act_of_another_client(&self, command: &[Vec<u8>]) -> Option<Act> {
        let (name, words) = command.split_first()?;
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let key = || words.first().map_or_else(|| "".into(), |word| text_of(word));
        Some(match name.as_str() {
            "SET" => set(words),
            "SETNX" if words.len() == 2 => {
                Act::Set { key: key(), token: text_of(&words[1]), ttl_ms: None, shared: false }
            }
            "DEL" | "UNLINK" if words.len() == 1 => Act::Delete { key: key(), token: None },
            "PEXPIRE" if words.len() >= 2 => {
                Act::Keep { key: key(), token: None, ttl_ms: number(&words[1]), shared: false }
            }
            "EXPIRE" if words.len() >= 2 => {
                let ttl_ms = number(&words[1]).map(|seconds| seconds.saturating_mul(1000));
                Act::Keep { key: key(), token: None, ttl_ms, shared: false }
            }
            "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" => {
                scripted(self.script(&name, words), words, &name)
            }
            // Reads and housekeeping change nothing.
            "GET" | "GETRANGE" | "PTTL" | "TTL" | "EXISTS" | "PING" | "AUTH" | "SELECT"
            | "HELLO" | "CLIENT" | "INFO" | "SCRIPT" | "COMMAND" | "CONFIG" | "TIME" | "ECHO"
            | "QUIT" | "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "PUBLISH" | "WATCH"
            | "UNWATCH" | "MULTI" | "EXEC" | "DISCARD" | "WAIT" | "STRLEN" | "TYPE" => return None,
            _ => Act::Other { key: words.first().map(|word| text_of(word)), command: name.into() },
        })
    }

    /// Learns scripts from replies to `SCRIPT LOAD`, and from `EVAL`. A master caches the script of
    /// an `EVAL`, too, and a client knows its SHA-1 without a reply.
    fn learn(&self, command: &[Vec<u8>], reply: &RespValue) {
        if let [eval, text, ..] = command
            && (eval.eq_ignore_ascii_case(b"EVAL") || eval.eq_ignore_ascii_case(b"EVAL_RO"))
        {
            unpoisoned(&self.known)
                .entry(sha1_smol::Sha1::from(text).digest().to_string())
                .or_insert_with(|| Script::read(text));
        }
        if let [script, load, text] = command
            && script.eq_ignore_ascii_case(b"SCRIPT")
            && load.eq_ignore_ascii_case(b"LOAD")
            && let Some(sha) = reply.text()
        {
            unpoisoned(&self.known).insert(sha.to_ascii_lowercase(), Script::read(text));
        }
    }

    /// The outcome of a command for its key, according to the reply. `None`: the master has queued
    /// the command in a transaction.
    pub(super) fn outcome(
        &self,
        command: &[Vec<u8>],
        act: &Act,
        reply: &RespValue,
    ) -> Option<Outcome> {
        if matches!(reply, RespValue::Status(status) if status == "QUEUED") {
            return None;
        }
        let words = command.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let script = match (act, command.split_first()) {
            (Act::Other { .. }, _) | (_, None) => None,
            _ if Request::of_lock(&words).is_some() => None,
            (_, Some((name, words))) => self.script(&String::from_utf8_lossy(name), words),
        };
        Some(script.map_or_else(|| outcome(act, reply), |script| script.outcome(reply)))
    }

    /// What a reply shows of a key: the effect of its command, and the outcome.
    pub(crate) fn reading(&self, event: &TrafficEvent) -> Option<(Act, Outcome)> {
        let TrafficEvent::Replied { command, reply, .. } = event else { return None };
        self.learn(command, reply);
        let (_, act) = self.read(command);
        let act = act?;
        let outcome = self.outcome(command, &act, reply)?;
        Some((act, outcome))
    }

    /// The script that a command names or carries, if it is one and its effect is clear.
    fn script(&self, name: &str, words: &[Vec<u8>]) -> Option<Script> {
        let script = words.first()?;
        match name.to_ascii_uppercase().as_str() {
            "EVAL" | "EVAL_RO" => Script::read(script),
            "EVALSHA" | "EVALSHA_RO" => {
                let sha = String::from_utf8_lossy(script).to_ascii_lowercase();
                unpoisoned(&self.known).get(&sha).copied().flatten()
            }
            _ => None,
        }
    }
}

/// The outcome of a command whose reply means what it does in Redis, or in this library's scripts.
fn outcome(act: &Act, reply: &RespValue) -> Outcome {
    match (act, reply) {
        (_, RespValue::Error(_)) => Outcome::Error,
        // Whatever it replied, its effect is unknown.
        (Act::Other { .. }, _) => Outcome::Done,
        (Act::Keep { .. }, RespValue::Integer(2)) => Outcome::Created,
        // The reply to a repair under a guard: the number and the time.
        (Act::Keep { .. }, RespValue::Array(parts)) => match parts[..] {
            [RespValue::Integer(2), RespValue::Integer(_)] => Outcome::Created,
            [RespValue::Integer(1), RespValue::Integer(_)] => Outcome::Done,
            _ => Outcome::Refused,
        },
        (_, RespValue::Integer(number)) if *number > 0 => Outcome::Done,
        // A guarded lock's reply: the number and the time.
        (Act::Set { .. }, RespValue::Array(parts))
            if matches!(parts[..], [RespValue::Integer(1..), RespValue::Integer(_)]) =>
        {
            Outcome::Done
        }
        (_, RespValue::Status(_)) => Outcome::Done,
        (Act::Set { .. }, RespValue::Bulk(_)) => Outcome::Done,
        _ => Outcome::Refused,
    }
}

fn set(words: &[Vec<u8>]) -> Act {
    let (mut new, mut ttl_ms) = (false, None);
    let mut options = words.iter().skip(2);
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => new = true,
            b"PX" => ttl_ms = options.next().and_then(|word| number(word)),
            b"EX" => {
                let seconds = options.next().and_then(|word| number(word));
                ttl_ms = seconds.map(|seconds| seconds.saturating_mul(1000));
            }
            _ => {}
        }
    }
    match words {
        [key, token, ..] if new => {
            Act::Set { key: text_of(key), token: text_of(token), ttl_ms, shared: false }
        }
        _ => {
            let key = words.first().map(|word| text_of(word));
            Act::Other { key, command: "SET".into() }
        }
    }
}

/// `SHA numkeys key… arg…`
fn scripted(script: Option<Script>, words: &[Vec<u8>], name: &str) -> Act {
    let keys = words.get(1).and_then(|word| number(word)).and_then(|n| usize::try_from(n).ok());
    let key = words.get(2).filter(|_| keys.is_some_and(|keys| keys > 0)).map(|key| text_of(key));
    let args = words.get(keys.unwrap_or(0).saturating_add(2)..).unwrap_or_default();
    let (Some(script), Some(key)) = (script, key.clone()) else {
        return Act::Other { key, command: name.into() };
    };
    // If the text does not show which argument is the token: the one that is not a number, since
    // times and flags are numbers. A token that looks like a number comes first.
    let place = || args.iter().position(|arg| number(arg).is_none()).unwrap_or(0);
    let place = script.token.unwrap_or_else(place);
    let token = args.get(place).map(|arg| text_of(arg));
    let others = args.iter().enumerate().filter(|(at, _)| *at != place);
    let ttl = match script.ttl {
        Some(ttl) => args.get(ttl).and_then(|arg| number(arg)),
        None => others.filter_map(|(_, arg)| number(arg)).next(),
    };
    let ttl_ms = ttl.map(|ttl| if script.seconds { ttl.saturating_mul(1000) } else { ttl });
    match (script.kind, token) {
        (Kind::Set, Some(token)) => Act::Set { key, token, ttl_ms, shared: false },
        (Kind::Set, None) => Act::Other { key: Some(key), command: name.into() },
        (Kind::Keep { compares }, token) => {
            Act::Keep { key, token: token.filter(|_| compares), ttl_ms, shared: false }
        }
        (Kind::Delete { compares }, token) => {
            Act::Delete { key, token: token.filter(|_| compares) }
        }
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Turns the traffic on the network into events for the orchestrator and the history: which command
/// did what to which key, between which two instants. Runs on the network's thread.
///
/// It has the commands whose outcome is still open. Reports nothing before the run has begun.
pub(super) struct Tap {
    scripts: Arc<Scripts>,
    clock: Arc<OnceLock<RunClock>>,
    open: HashMap<(u64, u64, bool), Pending>,
}

struct Pending {
    process: Name,
    node: usize,
    act: Act,
    sent: Instant,
    replied: Option<(Instant, Outcome)>,
}

impl Tap {
    pub(super) fn new(scripts: Arc<Scripts>, clock: Arc<OnceLock<RunClock>>) -> Self {
        Self { scripts, clock, open: HashMap::new() }
    }

    /// Takes in a message that passed, and reports what it means.
    pub(super) fn passed(&mut self, traffic: Traffic, report: &mut impl FnMut(Input)) {
        let Traffic { at, client, node, connection, event } = traffic;
        match event {
            TrafficEvent::Forwarded { number, command, duplicate } => {
                let (class, act) = self.scripts.read(&command);
                if let Some(act) = act {
                    let pending =
                        Pending { process: (*client).into(), node, act, sent: at, replied: None };
                    self.open.insert((connection, number, duplicate), pending);
                }
                if !duplicate {
                    report(passed(&client, Side::Request, class));
                }
            }
            TrafficEvent::Replied { number, command, reply, duplicate } => {
                self.scripts.learn(&command, &reply);
                let key = (connection, number, duplicate);
                let Some(pending) = self.open.get_mut(&key) else { return };
                // A command that is queued in a transaction has not been executed yet. The reply to
                // `EXEC` has its outcome, which the tap does not look for.
                let Some(result) = self.scripts.outcome(&command, &pending.act, &reply) else {
                    return;
                };
                pending.replied = Some((at, result));
                report(Input::MasterReplied {
                    process: pending.process.clone(),
                    node: pending.node,
                    act: pending.act.clone(),
                    result,
                });
                if duplicate {
                    // The client does not wait for the second reply.
                    self.close(key, None, report);
                }
            }
            TrafficEvent::Delivered { number, command } => {
                self.close((connection, number, false), Some(at), report);
                let (class, _) = self.scripts.read(&command);
                // A push message is not a reply, so it is not counted as one.
                if class != Class::WakeUp {
                    report(passed(&client, Side::Reply, class));
                }
            }
            TrafficEvent::Lost { number, side: network::Side::Reply, .. } => {
                self.close((connection, number, false), None, report);
            }
            TrafficEvent::Closed => self.close_all(report, |key| key.0 == connection),
            _ => {}
        }
    }

    /// Ends the run: records all open commands as far as their outcome is known.
    pub(super) fn finish(&mut self, report: &mut impl FnMut(Input)) {
        self.close_all(report, |_| true);
    }

    fn close_all(
        &mut self,
        report: &mut impl FnMut(Input),
        which: impl Fn(&(u64, u64, bool)) -> bool,
    ) {
        let mut keys: Vec<_> = self.open.keys().copied().filter(which).collect();
        keys.sort_unstable();
        for key in keys {
            self.close(key, None, report);
        }
    }

    fn close(
        &mut self,
        key: (u64, u64, bool),
        delivered: Option<Instant>,
        report: &mut impl FnMut(Input),
    ) {
        let (Some(pending), Some(clock)) = (self.open.remove(&key), self.clock.get()) else {
            return;
        };
        report(Input::Recorded(Event::Command {
            process: pending.process.clone(),
            node: pending.node,
            connection: key.0,
            number: key.1,
            act: pending.act,
            sent: clock.at(pending.sent),
            replied: pending.replied.map(|(at, _)| clock.at(at)),
            delivered: delivered.map(|at| clock.at(at)),
            result: pending.replied.map_or(Outcome::Silent, |(_, result)| result),
            fence: None,
        }));
    }
}

fn passed(process: &str, side: Side, class: Class) -> Input {
    Input::Passed { process: process.into(), side, class }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redquorum_protocol::wire::Command;
    use redquorum_protocol::{Fence, Key, Position, Token, Waiter, WaiterId, WakeUp};
    use redquorum_scenario::name::Name;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn sent(command: &wire::Command) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let Ok(Some((wire::Frame::Array(parts), _))) = wire::parse(&bytes, usize::MAX) else {
            panic!("{command:?} is no array")
        };
        let word = |part: &wire::Frame<'_>| match part {
            wire::Frame::Bulk(word) => word.to_vec(),
            other => panic!("{other:?}"),
        };
        parts.iter().map(word).collect()
    }

    #[test]
    fn commands_of_the_library_are_classified() {
        let scripts = Scripts::default();
        let (key, token) = (Key::from(&b"L"[..]), Token::new(*b"tttttttttttttttttttt"));
        let (named, text) = (|| Name::from("L"), || text_of(token.as_bytes()));
        let fence = Fence { number: 17, memory_ms: 60_000 };
        let waiter = Waiter { inbox: 161, waiter_id: WaiterId::new(178) };
        let set = Act::Set { key: named(), token: text(), ttl_ms: Some(2000), shared: false };
        let keep =
            Act::Keep { key: named(), token: Some(text()), ttl_ms: Some(2000), shared: false };
        let delete = Act::Delete { key: named(), token: Some(text()) };
        let certify = Act::Certify { key: named(), token: Some(text()) };
        let (ttl_ms, fair, repair) = (2000, true, true);
        for (command, act, class) in [
            (
                Command::Set { key: key.clone(), token, ttl_ms, fair: false, fence: None },
                Some(&set),
                Class::Acquire,
            ),
            (
                Command::Set { key: key.clone(), token, ttl_ms, fair, fence: Some(fence) },
                Some(&set),
                Class::Acquire,
            ),
            (
                Command::Keep {
                    key: key.clone(),
                    token,
                    ttl_ms,
                    repair,
                    marker: None,
                    fence: Some(fence),
                },
                Some(&keep),
                Class::Extend,
            ),
            (Command::Certify { key: key.clone(), token, fence }, Some(&certify), Class::Acquire),
            (
                Command::Delete {
                    key: key.clone(),
                    token,
                    wake_up: WakeUp::First,
                    leave: Some(waiter),
                },
                Some(&delete),
                Class::Release,
            ),
            (
                Command::Enqueue { key: key.clone(), waiter, position: Position::Last },
                None,
                Class::Queue,
            ),
            (Command::Dequeue { key, waiter, wake: true }, None, Class::Queue),
            (Command::Probe, None, Class::Any),
        ] {
            let words = sent(&command);
            assert_eq!(scripts.read(&words), (class, act.cloned()), "{command:?}");
        }
        assert_eq!(scripts.read(&words("PING")), (Class::Any, None));
        let of_guarded =
            |first| RespValue::Array(vec![first, RespValue::Integer(1_700_000_000_000_000)]);
        let number = RespValue::Integer;
        for (act, reply, expected) in [
            // A release: one, plus the number of waiters.
            (&delete, number(4), Outcome::Done),
            (&keep, number(2), Outcome::Created),
            (&keep, number(1), Outcome::Done),
            (&keep, number(0), Outcome::Refused),
            (&set, number(2), Outcome::Done),
            (&set, number(0), Outcome::Refused),
            (&certify, number(17), Outcome::Done),
            (&certify, number(0), Outcome::Refused),
            (&set, of_guarded(RespValue::Bulk(b"b 3000".to_vec())), Outcome::Refused),
            (&set, of_guarded(number(0)), Outcome::Refused),
            (&set, of_guarded(number(1)), Outcome::Done),
            (&set, of_guarded(number(1_700_000_000_000_000)), Outcome::Done),
        ] {
            assert_eq!(outcome(act, &reply), expected, "{act:?} {reply:?}");
        }
    }

    #[test]
    fn a_script_of_an_eval_is_known_by_its_sha() {
        let scripts = Scripts::default();
        let text =
            b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end";
        let [key, token] = ["L", "t"].map(|word| word.as_bytes().to_vec());
        let eval = [b"EVAL".to_vec(), text.to_vec(), b"1".to_vec(), key.clone(), token.clone()];
        let delete = Act::Delete { key: "L".into(), token: Some("t".into()) };
        assert_eq!(scripts.read(&eval).1, Some(delete.clone()));
        scripts.learn(&eval, &RespValue::Integer(0));
        let sha = sha1_smol::Sha1::from(text).digest().to_string().to_uppercase().into_bytes();
        let short = [b"EVALSHA".to_vec(), sha, b"1".to_vec(), key, token];
        assert_eq!(scripts.read(&short).1, Some(delete));
    }

    #[test]
    fn tokens_may_look_like_numbers() {
        let scripts = Scripts::default();
        for (source, words, wanted) in [
            (
                "return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])",
                ["L", "777", "2000"].as_slice(),
                Act::Set {
                    key: "L".into(),
                    token: "777".into(),
                    ttl_ms: Some(2000),
                    shared: false,
                },
            ),
            (
                "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end",
                &["L", "777"],
                Act::Delete { key: "L".into(), token: Some("777".into()) },
            ),
        ] {
            let command = [&["EVAL", source, "1"], words].concat();
            let command: Vec<Vec<u8>> =
                command.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(scripts.read(&command).1, Some(wanted));
        }
    }

    #[test]
    fn a_command_in_a_transaction_is_not_done_when_it_is_queued() {
        let act = Act::Set { key: "L".into(), token: "t".into(), ttl_ms: None, shared: false };
        let outcome = |status: &str| {
            Scripts::default().outcome(
                &words("SET L t NX"),
                &act,
                &RespValue::Status(status.into()),
            )
        };
        assert_eq!(outcome("QUEUED"), None);
        assert_eq!(outcome("OK"), Some(Outcome::Done));
    }

    #[test]
    fn scripts_of_other_locks_are_read_from_their_text() {
        let scripts = Scripts::default();
        let text = r#"if redis.call("get", KEYS[1]) ~= ARGV[1] then return 1
            else redis.call("expire", KEYS[1], ARGV[2]) return 0 end"#;
        let command: Vec<Vec<u8>> =
            ["EVAL", text, "1", "L", "t", "2"].map(|word| word.as_bytes().to_vec()).into();
        let keep = Act::Keep {
            key: "L".into(),
            token: Some("t".into()),
            ttl_ms: Some(2000),
            shared: false,
        };
        assert_eq!(scripts.read(&command).1, Some(keep.clone()));
        let outcome = |act: &Act, reply| scripts.outcome(&command, act, &RespValue::Integer(reply));
        assert_eq!(outcome(&keep, 0), Some(Outcome::Done));
        assert_eq!(outcome(&keep, 1), Some(Outcome::Refused));
        // Nothing is known of a script that was never seen, so no reply of it is a refusal.
        let unknown = scripts.read(&words("EVALSHA 0f 1 L t 2")).1.unwrap();
        assert!(matches!(unknown, Act::Other { .. }));
        assert_eq!(super::outcome(&unknown, &RespValue::Integer(0)), Outcome::Done);
    }

    #[test]
    fn garbled_commands_do_not_panic() {
        let scripts = Scripts::default();
        for text in
            ["", "SET", "SET a", "EVAL", "EVALSHA x 99 k", "EVALSHA x -1", "PEXPIRE a", "DEL"]
        {
            let _ = scripts.read(&words(text));
        }
        assert_eq!(scripts.read(&[]), (Class::Any, None));
    }
}
