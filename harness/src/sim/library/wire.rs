//! Decodes the commands of the library, and encodes the replies of the model of Redis. Each command
//! is encoded again and each reply is read again, so that no mistake here goes unnoticed.

use std::sync::Arc;

use redquorum_protocol::wire::{
    BOOT, CERTIFY, Command, DELETE, Expect, Frame, GRANT, GUARDED, Greeting, KEEP, PROBE, QUEUE,
    WATCH, channel_of, parse, scripts, write_command,
};
use redquorum_protocol::{
    Cause, Fence, Holder, Key, Position, Reply, RunId, Token, Waiter, WaiterId, WakeUp,
};

/// The words of a command.
pub(super) fn words<'a>(frame: &Frame<'a>) -> Vec<&'a [u8]> {
    let Frame::Array(words) = frame else { return Vec::new() };
    let word = |word: &Frame<'a>| match word {
        Frame::Bulk(bytes) => *bytes,
        _ => b"",
    };
    words.iter().map(word).collect()
}

/// The command with these words.
///
/// # Errors
///
/// The words that are no command of a lock.
pub(super) fn decode(words: &[&[u8]]) -> Result<Command, String> {
    let command = command(words).ok_or_else(|| shown(words))?;
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    write_command(&mut bytes, words);
    command.encode(&mut again);
    if bytes == again { Ok(command) } else { Err(shown(words)) }
}

fn shown(words: &[&[u8]]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
    format!("no command of a lock: {}", words.join(" "))
}

fn command(words: &[&[u8]]) -> Option<Command> {
    Some(match words {
        [b"SET", key, b"", b"XX", ..] if *key == PROBE => Command::Probe,
        [b"SET", key, marker, b"NX"] if *key == BOOT => {
            Command::Initialize { marker: text(marker)? }
        }
        [b"SET", key, token, b"NX", b"PX", ttl] => Command::Set {
            key: Key::from(*key),
            token: Token::from_slice(token)?,
            ttl_ms: number(ttl)?,
            fence: None,
        },
        [b"EVALSHA", sha, _, arguments @ ..] => scripted(sha, arguments)?,
        [b"HELLO", _] => Command::Hello,
        [b"SUBSCRIBE", channel] => {
            let inbox = channel.get(channel.len().checked_sub(16)?..)?;
            let inbox = u64::from_str_radix(std::str::from_utf8(inbox).ok()?, 16).ok()?;
            Command::Subscribe { inbox }
        }
        [b"CLIENT", b"KILL", b"ID", id] => Command::Kill { client_id: number(id)? },
        [b"SCRIPT", b"LOAD", source] => {
            Command::Load(scripts(true).find(|script| script.source.as_bytes() == *source)?)
        }
        _ => return None,
    })
}

/// A call of a script, by its keys and arguments.
fn scripted(sha: &[u8], arguments: &[&[u8]]) -> Option<Command> {
    let script = scripts(true).find(|script| script.sha1.as_bytes() == sha)?;
    let key = Key::from(*arguments.first()?);
    let token = |token: &[u8]| Token::from_slice(token);
    Some(match arguments {
        [_, _, ours, ttl, least, memory] if script == GRANT => Command::Set {
            key,
            token: token(ours)?,
            ttl_ms: number(ttl)?,
            fence: Some(fence(least, memory)?),
        },
        [_, _, ours, ttl, marker] if script == GUARDED => Command::Guarded {
            key,
            token: token(ours)?,
            ttl_ms: number(ttl)?,
            fence: None,
            marker: text(marker)?,
        },
        [_, _, _, ours, ttl, marker, least, memory] if script == GUARDED => Command::Guarded {
            key,
            token: token(ours)?,
            ttl_ms: number(ttl)?,
            fence: Some(fence(least, memory)?),
            marker: text(marker)?,
        },
        [_, _, run_id, marker, begin, vigil_ms, ended] if script == WATCH => Command::Watch {
            run_id: RunId(text(run_id)?),
            marker: text(marker)?,
            begin: text(begin).filter(|begin| !begin.is_empty()),
            vigil_ms: number(vigil_ms)?,
            ended: text(ended).filter(|ended| !ended.is_empty()),
        },
        [_, ours, ttl, repair] if script == KEEP => Command::Keep {
            key,
            token: token(ours)?,
            ttl_ms: number(ttl)?,
            repair: *repair == b"1",
            fence: None,
        },
        [_, _, ours, ttl, repair, least, memory] if script == KEEP => Command::Keep {
            key,
            token: token(ours)?,
            ttl_ms: number(ttl)?,
            repair: *repair == b"1",
            fence: Some(fence(least, memory)?),
        },
        [_, _, ours, least, memory] if script == CERTIFY => {
            Command::Certify { key, token: token(ours)?, fence: fence(least, memory)? }
        }
        [_, ours] if script == DELETE => {
            Command::Delete { key, token: token(ours)?, call: WakeUp::None, leave: None }
        }
        [_, ours, wakes, leaver] if script == DELETE => Command::Delete {
            key,
            token: token(ours)?,
            call: if *wakes == b"1" { WakeUp::First } else { WakeUp::Count },
            leave: Waiter::parse(leaver),
        },
        [_, waiter, b"-", call @ ..] if script == QUEUE => {
            Command::Dequeue { key, waiter: Waiter::parse(waiter)?, call: !call.is_empty() }
        }
        [_, waiter, position, exactly @ ..] if script == QUEUE => {
            let position = match (*position, exactly) {
                (b"=", _) => Position::Any,
                (b"0", []) => Position::Last,
                (digits, []) => Position::NotBefore(number(digits)?),
                (digits, _) => Position::At(number(digits)?),
            };
            Command::Enqueue { key, waiter: Waiter::parse(waiter)?, position }
        }
        _ => return None,
    })
}

fn fence(least: &[u8], memory: &[u8]) -> Option<Fence> {
    Some(Fence { number: number(least)?, memory_ms: number(memory)? })
}

fn text(bytes: &[u8]) -> Option<Arc<str>> {
    std::str::from_utf8(bytes).ok().map(Arc::from)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends the reply to a command of the handshake.
///
/// # Errors
///
/// The words that are no command of the handshake.
pub(super) fn greet(words: &[&[u8]], greeting: &Greeting, out: &mut Vec<u8>) -> Result<(), String> {
    let Greeting { client_id, run_id, boot, durable } = greeting;
    match words {
        [b"CLIENT", b"ID"] => integer(out, client_id.unwrap_or_default()),
        [b"INFO", b"server"] => {
            let run_id = run_id.as_ref().map(|id| id.0.to_string()).unwrap_or_default();
            bulk(out, format!("run_id:{run_id}\r\n").as_bytes());
        }
        [b"GETRANGE", ..] => bulk(out, boot.as_deref().unwrap_or_default().as_bytes()),
        [b"CONFIG", b"GET", _] => {
            let appends: &[u8] = if *durable { b"yes" } else { b"no" };
            array(out, 6);
            let settings: [&[u8]; 6] = [
                b"appendonly",
                appends,
                b"appendfsync",
                b"always",
                b"no-appendfsync-on-rewrite",
                b"no",
            ];
            settings.iter().for_each(|word| bulk(out, word));
        }
        [b"INFO", b"replication"] => bulk(out, b"master_replid2:0000\r\n"),
        [b"SCRIPT", b"LOAD", source] => {
            let script = scripts(true).find(|script| script.source.as_bytes() == *source);
            bulk(out, script.ok_or_else(|| shown(words))?.sha1.as_bytes());
        }
        _ => return Err(shown(words)),
    }
    Ok(())
}

/// Appends the reply that the library reads as this answer.
pub(super) fn encode(expect: Expect, answer: &Reply, out: &mut Vec<u8>) {
    let start = out.len();
    reply(expect, answer, out);
    let read =
        parse(&out[start..], usize::MAX).ok().flatten().map(|(frame, _)| expect.read(&frame));
    assert_eq!(read.as_ref(), Some(answer), "the reply to {expect:?}");
}

fn reply(expect: Expect, answer: &Reply, out: &mut Vec<u8>) {
    match (expect, answer) {
        (_, Reply::Stamped { micros, answer }) => stamped(expect, answer, *micros, out),
        (_, Reply::Unknown(Cause::NoScript)) => error(out, "NOSCRIPT No matching script."),
        (_, Reply::Unknown(cause)) => match cause {
            Cause::Error(text) => error(out, text),
            cause => unreachable!("no master replies {cause:?}"),
        },
        (Expect::Set, Reply::Created) | (_, Reply::Initialized) => out.extend(b"+OK\r\n"),
        (Expect::Set, Reply::Taken(_)) | (Expect::Initialize, _) | (Expect::Probe, _) => {
            out.extend(b"$-1\r\n");
        }
        (Expect::Grant, Reply::Taken(_)) | (Expect::Dequeue, _) | (_, Reply::Absent) => {
            integer(out, 0);
        }
        (_, Reply::Granted { number } | Reply::Certified { number }) => integer(out, *number),
        (_, Reply::Kept | Reply::Deleted) | (Expect::Kill, _) => integer(out, 1),
        (_, Reply::Created) => integer(out, 2),
        (_, Reply::Freed { listeners }) => integer(out, u64::from(*listeners) + 1),
        (_, Reply::Taken(Holder::WrongType)) => {
            error(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
        }
        (_, Reply::Taken(holder)) => {
            array(out, 2);
            held(*holder, out);
        }
        (_, Reply::NoQueue) => error(out, "NOPERM this user has no permissions"),
        (_, Reply::Place { number, ahead, holder }) => {
            array(out, if holder.is_some() { 4 } else { 2 });
            integer(out, *number);
            integer(out, *ahead);
            if let Some(holder) = holder {
                held(*holder, out);
            }
        }
        (Expect::Hello, _) => out.extend(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
        (Expect::Subscribe, _) => push(out, b"subscribe", |out| integer(out, 1)),
        (Expect::Load(script), _) => bulk(out, script.sha1.as_bytes()),
        (expect, answer) => unreachable!("no master replies {answer:?} to {expect:?}"),
    }
}

/// Appends the reply of a script that ends with the master's clock.
fn stamped(expect: Expect, answer: &Reply, micros: u64, out: &mut Vec<u8>) {
    let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().as_bytes().to_vec();
    array(out, if expect == Expect::Watch { 3 } else { 2 });
    match answer {
        Reply::Marked { boot, probation } => {
            bulk(out, &text(boot));
            if expect == Expect::Watch {
                bulk(out, &text(probation));
            }
        }
        Reply::Granted { number } => integer(out, *number),
        Reply::Created => integer(out, 1),
        Reply::Taken(_) => integer(out, 0),
        answer => unreachable!("no master replies {answer:?} to {expect:?}"),
    }
    integer(out, micros);
}

/// Appends what is left of a holder's TTL, and its value.
fn held(holder: Holder, out: &mut Vec<u8>) {
    match holder {
        Holder::Lease { token, left_ms } => {
            integer(out, left_ms);
            bulk(out, token.as_bytes());
        }
        Holder::Foreign { left_ms } => {
            integer(out, left_ms);
            bulk(out, b"?");
        }
        Holder::NoExpiry => {
            out.extend(b":-1\r\n");
            bulk(out, b"?");
        }
        holder => unreachable!("no model of a master replies {holder:?}"),
    }
}

/// Appends the message that wakes a waiter.
pub(super) fn wake(waiter_id: WaiterId, out: &mut Vec<u8>) {
    push(out, b"message", |out| bulk(out, waiter_id.to_string().as_bytes()));
}

/// Appends a push message on the channel of any inbox: the library reads only that it is one.
fn push(out: &mut Vec<u8>, kind: &[u8], last: impl FnOnce(&mut Vec<u8>)) {
    out.extend(b">3\r\n");
    bulk(out, kind);
    bulk(out, &channel_of(0));
    last(out);
}

fn array(out: &mut Vec<u8>, count: usize) {
    out.extend(format!("*{count}\r\n").as_bytes());
}

fn integer(out: &mut Vec<u8>, number: u64) {
    out.extend(format!(":{number}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn error(out: &mut Vec<u8>, text: &str) {
    out.extend(format!("-{text}\r\n").as_bytes());
}
