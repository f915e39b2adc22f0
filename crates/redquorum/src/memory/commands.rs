//! The commands of a lock, executed on a master in memory as Redis would.

use std::time::Duration;

use redquorum_protocol::wire::{
    CERTIFY, DELETE, Frame, GRANT, GUARDED, KEEP, LINE, WATCH, scripts,
};
use redquorum_protocol::{MAX_NUMBER, Spot, Ticket};
use tokio::time::Instant;

use super::{Entry, Line, Master, State};
use crate::clock::wall_micros;

impl Entry {
    pub(super) fn is_live(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }

    /// As `PTTL`: −1 without a TTL.
    fn left_ms(&self) -> i64 {
        self.expires.map_or(-1, |expires| {
            i64::try_from((expires - Instant::now()).as_millis()).unwrap_or(i64::MAX)
        })
    }
}

impl State {
    /// Without a file, and without what was in memory.
    pub(super) fn forget(&mut self) {
        self.keys.clear();
        self.lines.clear();
    }

    pub(super) fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| !entry.is_live()) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// [`KEEP`].
    fn keep(
        &mut self,
        key: &[u8],
        token: &[u8],
        (ttl, repair): (&[u8], &[u8]),
        fence: Option<Fence<'_>>,
        out: &mut Vec<u8>,
    ) {
        let ttl = milliseconds(ttl);
        match self.live(key) {
            Some(entry) if entry.value == token => {
                entry.expires = entry.expires.max(Some(Instant::now() + ttl));
                if let Some(Fence { counter, least, memory }) = fence {
                    match self.live(counter) {
                        Some(entry) => {
                            let until = Instant::now() + milliseconds(memory);
                            entry.expires = entry.expires.map(|expires| expires.max(until));
                        }
                        None => {
                            self.create(
                                counter,
                                least.to_string().as_bytes(),
                                milliseconds(memory),
                            );
                        }
                    }
                }
                integer(out, 1);
            }
            Some(entry) => taken(out, entry),
            None if repair == b"0" => integer(out, 0),
            None => {
                if let Some(fence) = fence
                    && self.raise(1, Fence { least: clamp(fence.least), ..fence }).is_none()
                {
                    return out.extend(SPENT);
                }
                self.create(key, token, ttl);
                integer(out, 2);
            }
        }
    }

    /// Raises a counter, as the scripts do; `None`: it holds no number, or one too large.
    fn raise(&mut self, step: u64, fence: Fence<'_>) -> Option<i64> {
        let was = match self.live(fence.counter) {
            Some(entry) => std::str::from_utf8(&entry.value).ok()?.parse::<u64>().ok()?,
            None => 0,
        };
        let number = was.checked_add(step)?.max(fence.least).max(1);
        if number > MAX_NUMBER {
            return None;
        }
        // No memory is made shorter.
        let left = self.live(fence.counter).and_then(|entry| entry.expires);
        let left = left.map_or(Duration::ZERO, |expires| expires - Instant::now());
        let memory = milliseconds(fence.memory).max(left);
        self.create(fence.counter, number.to_string().as_bytes(), memory);
        i64::try_from(number).ok()
    }

    fn create(&mut self, key: &[u8], value: &[u8], ttl: Duration) {
        self.put(key, value, Some(ttl));
    }

    fn put(&mut self, key: &[u8], value: &[u8], ttl: Option<Duration>) {
        let entry = Entry { value: value.to_vec(), expires: ttl.map(|ttl| Instant::now() + ttl) };
        self.keys.insert(key.to_vec(), entry);
    }

    /// [`GRANT`], and what is behind the marker in [`GUARDED`]; `None`: its counter is [`SPENT`].
    fn grant(
        &mut self,
        key: &[u8],
        token: &[u8],
        ttl: &[u8],
        fence: Option<Fence<'_>>,
    ) -> Option<i64> {
        if self.live(key).is_some() {
            return Some(0);
        }
        let number = fence.map_or(Some(1), |fence| self.raise(1, fence))?;
        self.create(key, token, milliseconds(ttl));
        Some(number)
    }

    /// [`GUARDED`].
    fn guarded(
        &mut self,
        micros: i64,
        (boot, marker): (&[u8], &[u8]),
        (key, token, ttl): (&[u8], &[u8], &[u8]),
        fence: Option<Fence<'_>>,
        out: &mut Vec<u8>,
    ) {
        let shown = self.text(boot);
        if shown == marker {
            let Some(number) = self.grant(key, token, ttl, fence) else { return out.extend(SPENT) };
            out.extend(b"*2\r\n");
            integer(out, number);
        } else {
            out.extend(b"*2\r\n");
            bulk(out, &shown);
        }
        integer(out, micros);
    }

    /// A value, or nothing.
    fn text(&mut self, key: &[u8]) -> Vec<u8> {
        self.live(key).map(|entry| entry.value.clone()).unwrap_or_default()
    }

    /// [`WATCH`].
    fn watch(
        &mut self,
        micros: i64,
        (boot, vigil): (&[u8], &[u8]),
        (run_id, marker): (&[u8], &[u8]),
        (begin, ms, ended): (&[u8], &[u8], &[u8]),
        out: &mut Vec<u8>,
    ) {
        let (shown, kept) = (self.text(boot), self.text(vigil));
        let ours = shown.strip_prefix(run_id).is_some_and(|rest| rest.starts_with(b" "));
        if !ours || run_id.is_empty() {
            if !kept.is_empty() && kept == ended {
                self.put(boot, marker, None);
                self.keys.remove(vigil);
            } else if kept.is_empty() && !begin.is_empty() {
                self.create(vigil, begin, milliseconds(ms));
            }
        }
        out.extend(b"*3\r\n");
        bulk(out, &self.text(boot));
        bulk(out, &self.text(vigil));
        integer(out, micros);
    }
}

impl State {
    /// Forgets a connection.
    pub(super) fn hang_up(&mut self, id: u64) -> Option<Line> {
        let channels: Vec<_> = self.channels.keys().cloned().collect();
        channels.iter().for_each(|channel| self.ignore(channel, id));
        self.connections.remove(&id)
    }

    fn ignore(&mut self, channel: &[u8], id: u64) {
        if let Some(listeners) = self.channels.get_mut(channel) {
            listeners.retain(|listener| *listener != id);
            if listeners.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    /// What [`DELETE`] does with a channel: tells those who listen to it, or not; says how many they are.
    fn call(&mut self, now: u64, call: &[&[u8]]) -> i64 {
        let [channel, told, line @ ..] = call else { return 0 };
        if *told == b"1" {
            let next = line.first().and_then(|line| self.lines.get_mut(*line)?.first(now));
            self.publish(channel, next);
        }
        let listeners = self.channels.get(*channel).map_or(0, Vec::len);
        i64::try_from(listeners).unwrap_or(i64::MAX)
    }

    fn publish(&self, channel: &[u8], next: Option<Ticket>) {
        let mut message = Vec::new();
        let next = next.map(|next| next.to_string()).unwrap_or_default();
        push(&mut message, b"message", channel, &Frame::Bulk(next.as_bytes()));
        let listeners = self.channels.get(channel).into_iter().flatten();
        for line in listeners.filter_map(|id| self.connections.get(id)) {
            // Nobody is there if it has just hung up.
            let _ = line.unasked.send(message.clone());
        }
    }

    /// [`LINE`], for a place.
    fn stand(
        &mut self,
        now: u64,
        (key, line): (&[u8], &[u8]),
        (ticket, spot, lapse): (u64, Spot, u64),
        out: &mut Vec<u8>,
    ) {
        let line = self.lines.entry(line.to_vec()).or_default();
        let (number, ahead) = line.stand(now, Ticket::new(ticket), spot, lapse);
        let held = self.live(key).map(|entry| (entry.left_ms(), entry.value.clone()));
        out.extend(format!("*{}\r\n", if held.is_some() { 4 } else { 2 }).into_bytes());
        integer(out, i64::try_from(number).unwrap_or(i64::MAX));
        integer(out, i64::try_from(ahead).unwrap_or(i64::MAX));
        if let Some((left, value)) = held {
            integer(out, left);
            bulk(out, &value[..value.len().min(64)]);
        }
    }

    /// [`LINE`], for none.
    fn step_out(&mut self, now: u64, (key, line): (&[u8], &[u8]), ticket: u64, call: &[&[u8]]) {
        let Some(standing) = self.lines.get_mut(line) else { return };
        let next = standing.step_out(now, Ticket::new(ticket));
        if standing.is_empty() {
            self.lines.remove(line);
        }
        if let [channel] = call
            && self.live(key).is_none()
        {
            self.publish(channel, next);
        }
    }
}

impl Master {
    pub(super) fn execute(&self, id: u64, args: &[Frame<'_>], out: &mut Vec<u8>) {
        let args: Vec<&[u8]> = args
            .iter()
            .map(|arg| match arg {
                Frame::Bulk(bytes) => *bytes,
                _ => &[],
            })
            .collect();
        let mut state = self.lock();
        let micros = self.micros(&state);
        let now = u64::try_from(micros / 1_000).unwrap_or(0);
        if !state.connections.contains_key(&id) {
            // Killed meanwhile: an aborted task may run on to its next await.
            return;
        }
        match args.as_slice() {
            [b"CLIENT", b"ID"] => integer(out, i64::try_from(id).unwrap_or(i64::MAX)),
            [b"INFO", ..] => {
                bulk(
                    out,
                    format!("run_id:memory-{}-{}\r\n", self.number, state.restarts).as_bytes(),
                );
            }
            [b"SCRIPT", b"LOAD", source] => {
                match scripts(true).find(|script| script.source.as_bytes() == *source) {
                    Some(script) => bulk(out, script.sha1.as_bytes()),
                    None => {
                        out.extend(b"-ERR masters in memory run only the lock's own scripts\r\n");
                    }
                }
            }
            [b"CLIENT", b"KILL", b"ID", old] => {
                let old = number(old);
                let killed = state.hang_up(old);
                integer(out, i64::from(killed.is_some()));
                if let Some(line) = killed {
                    line.serving.abort();
                }
            }
            [b"SET", key, value, b"NX", b"PX", ttl] => {
                if state.live(key).is_some() {
                    out.extend(b"$-1\r\n");
                } else {
                    state.create(key, value, milliseconds(ttl));
                    out.extend(b"+OK\r\n");
                }
            }
            [b"SET", key, value, b"NX"] => {
                if state.live(key).is_some() {
                    out.extend(b"$-1\r\n");
                } else {
                    state.put(key, value, None);
                    out.extend(b"+OK\r\n");
                }
            }
            [b"GET", key] => match state.live(key) {
                Some(entry) => bulk(out, &entry.value),
                None => out.extend(b"$-1\r\n"),
            },
            // They have no file.
            [b"CONFIG", b"GET", _] => out.extend(b"*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
            [b"EVALSHA", sha, b"2", key, boot, token, ttl, marker]
                if *sha == GUARDED.sha1.as_bytes() =>
            {
                state.guarded(micros, (boot, marker), (key, token, ttl), None, out);
            }
            [b"EVALSHA", sha, b"3", key, counter, boot, token, ttl, marker, hint, memory]
                if *sha == GUARDED.sha1.as_bytes() =>
            {
                let fence = Fence { counter, least: clamp(number(hint)), memory };
                state.guarded(micros, (boot, marker), (key, token, ttl), Some(fence), out);
            }
            [b"EVALSHA", sha, b"2", boot, vigil, run_id, marker, begin, ms, ended]
                if *sha == WATCH.sha1.as_bytes() =>
            {
                state.watch(micros, (boot, vigil), (run_id, marker), (begin, ms, ended), out);
            }
            [b"EVALSHA", sha, b"1", key, token, call @ ..] if *sha == DELETE.sha1.as_bytes() => {
                match state.live(key) {
                    Some(entry) if entry.value == *token => {
                        state.keys.remove(*key);
                        integer(out, 1 + state.call(now, call));
                    }
                    Some(entry) => taken(out, entry),
                    None => integer(out, 0),
                }
            }
            [b"EVALSHA", sha, b"2", key, line, ticket, b"0", b"0", call @ ..]
                if *sha == LINE.sha1.as_bytes() =>
            {
                state.step_out(now, (key, line), number(ticket), call);
                integer(out, 0);
            }
            [b"EVALSHA", sha, b"2", key, line, ticket, least, lapse, exactly @ ..]
                if *sha == LINE.sha1.as_bytes() =>
            {
                let spot = match number(least) {
                    0 => Spot::Last,
                    number if exactly.is_empty() => Spot::NotBefore(number),
                    number => Spot::At(number),
                };
                let ours = (number(ticket), spot, number(lapse));
                state.stand(now, (key, line), ours, out);
            }
            [b"HELLO", b"3"] => out.extend(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
            [b"SUBSCRIBE", channel] => {
                let listeners = state.channels.entry(channel.to_vec()).or_default();
                if !listeners.contains(&id) {
                    listeners.push(id);
                }
                push(out, b"subscribe", channel, &Frame::Integer(1));
            }
            [b"UNSUBSCRIBE", channel] => {
                state.ignore(channel, id);
                push(out, b"unsubscribe", channel, &Frame::Integer(0));
            }
            [b"EVALSHA", sha, b"1", key, token, ttl, repair] if *sha == KEEP.sha1.as_bytes() => {
                state.keep(key, token, (ttl, repair), None, out);
            }
            [b"EVALSHA", sha, b"2", key, counter, token, ttl, repair, least, memory]
                if *sha == KEEP.sha1.as_bytes() =>
            {
                let fence = Fence { counter, least: number(least), memory };
                state.keep(key, token, (ttl, repair), Some(fence), out);
            }
            [b"EVALSHA", sha, b"2", key, counter, token, ttl, hint, memory]
                if *sha == GRANT.sha1.as_bytes() =>
            {
                let fence = Fence { counter, least: clamp(number(hint)), memory };
                match state.grant(key, token, ttl, Some(fence)) {
                    Some(number) => integer(out, number),
                    None => out.extend(SPENT),
                }
            }
            [b"EVALSHA", sha, b"2", key, counter, token, least, memory]
                if *sha == CERTIFY.sha1.as_bytes() =>
            {
                match state.live(key) {
                    Some(entry) if entry.value == *token => {
                        match state.raise(0, Fence { counter, least: number(least), memory }) {
                            Some(number) => integer(out, number),
                            None => out.extend(SPENT),
                        }
                    }
                    Some(entry) => taken(out, entry),
                    None => integer(out, 0),
                }
            }
            [b"PING"] => out.extend(b"+PONG\r\n"),
            _ => out.extend(b"-ERR masters in memory know only a lock's commands\r\n"),
        }
    }
}

/// What a script is told of a counter.
#[derive(Clone, Copy)]
struct Fence<'a> {
    counter: &'a [u8],
    least: u64,
    memory: &'a [u8],
}

const SPENT: &[u8] =
    b"-FENCE the counter of this resource holds no number, or one too large to go on\r\n";

/// A hint counts only up to a second ahead of the master's own clock.
fn clamp(hint: u64) -> u64 {
    hint.min(wall_micros() + 1_000_000)
}

fn number(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn milliseconds(digits: &[u8]) -> Duration {
    Duration::from_millis(number(digits))
}

fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend(format!(":{number}\r\n").into_bytes());
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(format!("${}\r\n", bytes.len()).into_bytes());
    out.extend_from_slice(bytes);
    out.extend(b"\r\n");
}

/// What a master says unasked, or to those who listen.
fn push(out: &mut Vec<u8>, what: &[u8], channel: &[u8], last: &Frame<'_>) {
    out.extend(b">3\r\n");
    bulk(out, what);
    bulk(out, channel);
    match last {
        Frame::Integer(count) => integer(out, *count),
        Frame::Bulk(bytes) => bulk(out, bytes),
        _ => bulk(out, b""),
    }
}

fn taken(out: &mut Vec<u8>, entry: &Entry) {
    out.extend(b"*2\r\n");
    integer(out, entry.left_ms());
    bulk(out, &entry.value[..entry.value.len().min(64)]);
}
