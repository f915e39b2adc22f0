//! What a Lua script of another lock does to its key, read from its text.
//!
//! The reading follows conventions that `docs/scenarios.md` states for authors of drivers: the
//! lock's key is `KEYS[1]`, and the script sets, extends or deletes it. Any other script has no
//! reading: its effect is unknown, and the checker draws no conclusions from it.
//! `client-check` compares readings with the keys that are really there.

use redquorum_rig::RespValue;
use redquorum_scenario::history::Outcome;

/// Commands that change no key, or none of a lock.
const READS: [&str; 13] = [
    "get",
    "pttl",
    "ttl",
    "exists",
    "time",
    "publish",
    "type",
    "strlen",
    "hget",
    "hexists",
    "pexpiretime",
    "echo",
    "getrange",
];

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub kind: Kind,
    /// Which argument is the token, counted from 0, if the text shows it.
    pub token: Option<usize>,
    /// Which argument is the TTL, if the text shows it.
    pub ttl: Option<usize>,
    /// Whether the TTL is in seconds.
    pub seconds: bool,
    replies: Replies,
}

/// The effect of a script on the lock's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Set,
    Keep { compares: bool },
    Delete { compares: bool },
}

/// The meaning of a script's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    /// It returns the reply of the command; or this number after it has set the key anew.
    OfCommand { created: Option<i64> },
    /// It returns this number if it took effect, and other numbers if not.
    Number(i64),
    /// The text does not show it.
    Unknown,
}

impl Script {
    /// The outcome of a script that replied, for its key.
    pub(super) fn outcome(&self, reply: &RespValue) -> Outcome {
        match (self.replies, reply) {
            (_, RespValue::Error(_)) => Outcome::Error,
            (Replies::Unknown, _) => Outcome::Silent,
            (Replies::OfCommand { created: Some(created) }, RespValue::Integer(number))
                if *number == created =>
            {
                Outcome::Created
            }
            (Replies::OfCommand { .. }, RespValue::Integer(number)) if *number > 0 => Outcome::Done,
            // `redis.status_reply('OK')` may stand for "was not there".
            (Replies::OfCommand { .. }, RespValue::Status(_)) => match self.kind {
                Kind::Delete { .. } => Outcome::Silent,
                Kind::Set | Kind::Keep { .. } => Outcome::Done,
            },
            (Replies::Number(done), RespValue::Integer(number)) if *number == done => Outcome::Done,
            _ => Outcome::Refused,
        }
    }

    /// Reads the text of a script. `None`: its effect is not clear.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = plain(text);
        let calls = calls(&text)?;
        let mut writes = Vec::new();
        let mut compares = false;
        for call in &calls {
            let of_lock = match call.args.first() {
                Some(key) => key_of(&text, key),
                None => Some(false),
            };
            if READS.contains(&call.command.as_str()) {
                compares |= call.command == "get" && of_lock == Some(true);
            } else if of_lock? {
                writes.push(call);
            }
        }
        let (kind, call) = kind(&writes, compares)?;
        let (ttl, seconds) = ttl(&text, &writes).unwrap_or_default();
        // A TTL that the script computes is unknown.
        if ttl.is_none() && matches!(kind, Kind::Keep { .. }) {
            return None;
        }
        let set = writes.iter().find(|call| call.sets());
        let compared = || {
            let signs = ["==", "~="].into_iter().flat_map(|sign| text.match_indices(sign));
            signs.map(|(at, sign)| text[at + sign.len()..].trim_start()).find_map(argument)
        };
        let token = match (kind, set) {
            (Kind::Set, Some(set)) => argument_of(&text, set.args.get(1)?),
            _ => compared(),
        };
        Some(Self { kind, token, ttl, seconds, replies: replies(&text, &writes, call) })
    }
}

/// A call of a command in a script.
struct Call<'t> {
    command: String,
    args: Vec<&'t str>,
    /// Where the call begins and ends in the text.
    from: usize,
    to: usize,
}

impl Call<'_> {
    fn sets(&self) -> bool {
        ["set", "setnx", "setex", "psetex"].contains(&self.command.as_str())
    }

    fn deletes(&self) -> bool {
        self.command == "del" || self.command == "unlink"
    }

    fn creates(&self) -> bool {
        self.command == "setnx" || self.sets() && self.args.iter().any(|arg| unquoted(arg) == "nx")
    }

    fn expires(&self) -> bool {
        self.command == "pexpire" || self.command == "expire"
    }
}

/// The text in lower case, without comments, and with single spaces.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

fn unquoted(arg: &str) -> &str {
    arg.trim_matches(['\'', '"'])
}

/// All calls of commands. `None` if there is one that cannot be read.
fn calls(text: &str) -> Option<Vec<Call<'_>>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("redis.") {
        let rest = &text[at + "redis.".len()..];
        let Some(rest) = rest.strip_prefix("call").or_else(|| rest.strip_prefix("pcall")) else {
            continue;
        };
        let inside = rest.trim_start().strip_prefix('(')?;
        let from = text.len() - inside.len();
        let (mut depth, mut quote, mut begin) = (0, None, from);
        let mut args = Vec::new();
        let mut end = None;
        for (index, byte) in inside.bytes().enumerate() {
            match byte {
                b'\'' | b'"' if quote == Some(byte) => quote = None,
                b'\'' | b'"' if quote.is_none() => quote = Some(byte),
                _ if quote.is_some() => {}
                b'(' | b'[' => depth += 1,
                b')' if depth == 0 => {
                    args.push(text[begin..from + index].trim());
                    end = Some(from + index + 1);
                    break;
                }
                b')' | b']' => depth -= 1,
                b',' if depth == 0 => {
                    args.push(text[begin..from + index].trim());
                    begin = from + index + 1;
                }
                _ => {}
            }
        }
        let name = args.first()?;
        if !name.starts_with(['\'', '"']) {
            return None;
        }
        let command = unquoted(name).to_owned();
        found.push(Call { command, args: args.split_off(1), from: at, to: end? });
    }
    Some(found)
}

/// What is assigned to a name.
fn assigned<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let all = text.match_indices(name).filter(|_| is_name).filter_map(|(at, _)| {
        let before = text[..at].bytes().next_back();
        let inside = before.is_some_and(|b| b.is_ascii_alphanumeric() || b"_.[".contains(&b));
        let rest = text[at + name.len()..].trim_start_matches(' ').strip_prefix('=')?;
        let value = rest.lines().next().unwrap_or_default().trim().trim_end_matches(';');
        (!inside && !rest.starts_with('=')).then_some(value)
    });
    all.collect()
}

/// Whether an expression is the lock's key, `KEYS[1]`, or another one. `None`: it is not clear.
fn key_of(text: &str, key: &str) -> Option<bool> {
    match key {
        "keys[1]" => Some(true),
        _ if key.starts_with("keys[") || key.contains("..") || key.starts_with(['\'', '"']) => {
            Some(false)
        }
        name => {
            let values = assigned(text, name);
            let first = *values.first()?;
            (values.len() == 1 && first.starts_with("keys[")).then_some(first == "keys[1]")
        }
    }
}

/// The number of the argument, from 0, that a text begins with.
fn argument(text: &str) -> Option<usize> {
    let text = text.strip_prefix("tonumber(").unwrap_or(text);
    let number: usize = text.strip_prefix("argv[")?.split(']').next()?.parse().ok()?;
    number.checked_sub(1)
}

/// The number of the argument that an expression is, or the name that it is assigned to.
fn argument_of(text: &str, expression: &str) -> Option<usize> {
    let is_plain = |value: &&str| !value.contains(['+', '*', '/', '.', '-']);
    let direct = Some(expression).filter(is_plain).and_then(argument);
    direct.or_else(|| assigned(text, expression).into_iter().filter(is_plain).find_map(argument))
}

/// The TTL: which argument it is, and whether it is in seconds. `None`: no call has a TTL.
fn ttl(text: &str, writes: &[&Call<'_>]) -> Option<(Option<usize>, bool)> {
    writes.iter().find_map(|call| {
        let after = |option: &str| {
            let place = call.args.iter().position(|arg| unquoted(arg) == option)?;
            call.args.get(place + 1).copied()
        };
        let (value, seconds) = match call.command.as_str() {
            "pexpire" | "psetex" => (call.args.get(1).copied(), false),
            "expire" | "setex" => (call.args.get(1).copied(), true),
            "set" => match (after("px"), after("ex")) {
                (None, Some(value)) => (Some(value), true),
                (value, _) => (value, false),
            },
            _ => (None, false),
        };
        Some((argument_of(text, value?), seconds))
    })
}

/// The effect of the commands that a script runs on its key, and the one whose reply counts.
fn kind<'c, 't>(writes: &[&'c Call<'t>], compares: bool) -> Option<(Kind, &'c Call<'t>)> {
    let first = *writes.first()?;
    if writes.iter().all(|call| call.deletes()) {
        return Some((Kind::Delete { compares }, first));
    }
    if !writes.iter().all(|call| call.sets() || call.expires()) {
        return None;
    }
    let creates = writes.iter().copied().find(|call| call.creates());
    let expires = writes.iter().copied().find(|call| call.expires());
    let only_expires = writes.iter().all(|call| call.expires());
    Some(match (creates, expires) {
        // It extends the key of its owner, and may create it anew.
        (_, Some(expires)) if compares => (Kind::Keep { compares }, expires),
        (Some(creates), _) => (Kind::Set, creates),
        (None, Some(expires)) if only_expires => (Kind::Keep { compares }, expires),
        // It sets a key that another command found free, or its own anew.
        (None, None) if compares => (Kind::Keep { compares }, first),
        (None, _) => (Kind::Set, first),
    })
}

/// The meaning of a script's replies, of which one command decides.
fn replies(text: &str, writes: &[&Call<'_>], of: &Call<'_>) -> Replies {
    let returned = |call: &Call<'_>| text[..call.from].trim_end().ends_with("return");
    let returns: Vec<(usize, Option<i64>)> = text
        .match_indices("return")
        .map(|(at, word)| {
            let value = text[at + word.len()..].trim_start();
            let end = value.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(value.len());
            (at, value[..end].parse().ok())
        })
        .collect();
    let after = |call: &Call<'_>| returns.iter().find(|(at, _)| *at >= call.to);
    let others = |but: Option<usize>| {
        let others = returns.iter().filter(move |(at, _)| Some(*at) != but);
        others.filter_map(|(_, value)| *value)
    };
    if returned(of) {
        let set = writes.iter().find(|call| call.sets() && call.from != of.from);
        let created = set.and_then(|set| after(set)).and_then(|(_, value)| *value);
        // A positive number that the script itself returns looks like the command's.
        let is_doubtful = others(None).any(|value| value > 0 && Some(value) != created);
        return if is_doubtful { Replies::Unknown } else { Replies::OfCommand { created } };
    }
    // A `return` behind the end of the block is also reached where the command was not run.
    let is_shared = |at: usize| {
        let mut words = text[of.to..at].split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| word == "end" || word == "else")
    };
    match after(of) {
        Some((at, Some(done)))
            if !is_shared(*at) && !others(Some(*at)).any(|value| value == *done) =>
        {
            Replies::Number(*done)
        }
        _ => Replies::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn script(kind: Kind, token: usize, ttl: Option<usize>, replies: Replies) -> Script {
        Script { kind, token: Some(token), ttl, seconds: false, replies }
    }

    #[test]
    fn scripts_of_locks_are_read_as_they_work() {
        let (keep, delete) = (Kind::Keep { compares: true }, Kind::Delete { compares: true });
        let of_command = Replies::OfCommand { created: None };
        let table: [(&str, &str, Option<Script>); 14] = [
            (
                "the release of the algorithm",
                r#"if redis.call("get",KEYS[1]) == ARGV[1] then
                       return redis.call("del",KEYS[1]) else return 0 end"#,
                Some(script(delete, 0, None, of_command)),
            ),
            (
                "the release of redis-py",
                r"local token = redis.call('get', KEYS[1])
                  if not token or token ~= ARGV[1] then
                      return 0
                  end
                  redis.call('del', KEYS[1])
                  return 1",
                Some(script(delete, 0, None, Replies::Number(1))),
            ),
            (
                "the extension of redis-py",
                r#"local token = redis.call('get', KEYS[1])
                  if not token or token ~= ARGV[1] then
                      return 0
                  end
                  local expiration = redis.call('pttl', KEYS[1])
                  if not expiration then
                      expiration = 0
                  end
                  if expiration < 0 then
                      return 0
                  end
                  local newttl = ARGV[2]
                  if ARGV[3] == "0" then
                      newttl = ARGV[2] + expiration
                  end
                  redis.call('pexpire', KEYS[1], newttl)
                  return 1"#,
                Some(script(keep, 0, Some(1), Replies::Number(1))),
            ),
            (
                "the release of python-redis-lock: 0 is success, and it signals by another key",
                r#"if redis.call("get", KEYS[1]) ~= ARGV[1] then
                      return 1
                  else
                      redis.call("del", KEYS[2])
                      redis.call("lpush", KEYS[2], 1)
                      redis.call("pexpire", KEYS[2], ARGV[2])
                      redis.call("del", KEYS[1])
                      return 0
                  end"#,
                Some(script(delete, 0, None, Replies::Number(0))),
            ),
            (
                "the extension of python-redis-lock: 0 is success, and its TTL is in seconds",
                r#"if redis.call("get", KEYS[1]) ~= ARGV[1] then
                      return 1
                  elseif redis.call("ttl", KEYS[1]) < 0 then
                      return 2
                  else
                      redis.call("expire", KEYS[1], ARGV[2])
                      return 0
                  end"#,
                Some(Script { seconds: true, ..script(keep, 0, Some(1), Replies::Number(0)) }),
            ),
            (
                "the set of aioredlock",
                r#"local identifier = redis.call('get', KEYS[1])
                  if not identifier or identifier == ARGV[1] then
                      return redis.call("set", KEYS[1], ARGV[1], 'PX', ARGV[2])
                  else
                      return redis.error_reply('ERROR')
                  end"#,
                Some(script(keep, 0, Some(1), of_command)),
            ),
            (
                "a set that is none of the owner's",
                "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2])",
                Some(Script { seconds: true, ..script(Kind::Set, 0, Some(1), of_command) }),
            ),
            (
                "a set in two commands",
                r"local key = KEYS[1]
                  if redis.call('setnx', key, ARGV[2]) == 1 then
                      redis.call('pexpire', key, ARGV[1])
                      return 1
                  end
                  return 0",
                Some(script(Kind::Set, 1, Some(0), Replies::Number(1))),
            ),
            (
                "an extension that creates the key anew",
                r#"if redis.call("get", KEYS[1]) == ARGV[1] then
                       return redis.call("pexpire", KEYS[1], ARGV[2]) end
                   if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 2 end
                   return 0"#,
                Some(script(keep, 0, Some(1), Replies::OfCommand { created: Some(2) })),
            ),
            (
                "a release whose replies are the same",
                r"if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end
                  return 1",
                Some(script(delete, 0, None, Replies::Unknown)),
            ),
            ("a TTL that is computed", "redis.call('pexpire', KEYS[1], ARGV[1] * 1000)", None),
            ("a hash", "return redis.call('hincrby', KEYS[1], ARGV[2], 1)", None),
            ("an unknown command", "return redis.call(ARGV[1], KEYS[1])", None),
            ("an unknown key", "return redis.call('del', name)", None),
        ];
        for (name, text, wanted) in table {
            assert_eq!(Script::read(text.as_bytes()), wanted, "{name}");
        }
    }

    #[test]
    fn the_replies_of_a_script_mean_what_its_text_says() {
        let number = RespValue::Integer;
        let delete = Kind::Delete { compares: true };
        for (replies, reply, wanted) in [
            (Replies::Number(0), number(0), Outcome::Done),
            (Replies::Number(0), number(1), Outcome::Refused),
            (Replies::OfCommand { created: None }, number(0), Outcome::Refused),
            (Replies::OfCommand { created: None }, number(2), Outcome::Done),
            (Replies::OfCommand { created: Some(2) }, number(2), Outcome::Created),
            (Replies::OfCommand { created: None }, RespValue::Status("OK".into()), Outcome::Silent),
            (Replies::Unknown, number(1), Outcome::Silent),
            (Replies::Unknown, RespValue::Error("NOSCRIPT".into()), Outcome::Error),
        ] {
            assert_eq!(script(delete, 0, None, replies).outcome(&reply), wanted, "{replies:?}");
        }
    }
}
