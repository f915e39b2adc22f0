//! The commands of a lock, executed by a master in memory as Redis does.

use std::time::Duration;

use redquorum_protocol::wire::{
    CERTIFY, DELETE, Frame, GRANT, GUARDED, KEEP, PROBE, QUEUE, WATCH, channel_of, scripts,
};
use redquorum_protocol::{MAX_NUMBER, Position, Waiter};
use tokio::time::Instant;

use super::{Entry, Line, Master, State};
use crate::clock::wall_micros;

impl Entry {
    pub(super) fn is_live(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }

    /// Like `PTTL`: −1 without a TTL.
    fn left_ms(&self) -> i64 {
        self.expires.map_or(-1, |expires| {
            i64::try_from((expires - Instant::now()).as_millis()).unwrap_or(i64::MAX)
        })
    }
}

impl State {
    /// Forgets all data: there is no file.
    pub(super) fn forget(&mut self) {
        self.keys.clear();
        self.queues.clear();
    }

    pub(super) fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| !entry.is_live()) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// Executes [`KEEP`].
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

    /// Raises a counter, as the scripts do. `None`: it holds no number, or one that is too large.
    fn raise(&mut self, step: u64, fence: Fence<'_>) -> Option<i64> {
        let was = match self.live(fence.counter) {
            Some(entry) => std::str::from_utf8(&entry.value).ok()?.parse::<u64>().ok()?,
            None => 0,
        };
        let number = was.checked_add(step)?.max(fence.least).max(1);
        if number > MAX_NUMBER {
            return None;
        }
        // Never shorten the time for which a counter is kept.
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

    /// Executes [`GRANT`], and the grant of [`GUARDED`]. `None`: the reply is [`SPENT`].
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

    /// Executes [`GUARDED`].
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
            bulk(out, start(&shown));
        }
        integer(out, micros);
    }

    /// The value of a key; empty without the key.
    fn text(&mut self, key: &[u8]) -> Vec<u8> {
        self.live(key).map(|entry| entry.value.clone()).unwrap_or_default()
    }

    /// Executes [`WATCH`].
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
        bulk(out, start(&self.text(boot)));
        bulk(out, start(&self.text(vigil)));
        integer(out, micros);
    }
}

impl State {
    /// Forgets a connection and its subscriptions.
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

    /// Executes the queue part of [`DELETE`]. Returns the number of waiters.
    fn give_back(&mut self, now: u64, key: &[u8], call: &[&[u8]], is_free: bool) -> i64 {
        let [wakes, leaver] = call else { return 0 };
        self.leave(key, leaver);
        if *wakes == b"1" && is_free {
            self.wake(now, key, None);
        }
        let waiters = self.queues.get(key).map_or(0, |queue| queue.len(now));
        i64::try_from(waiters).unwrap_or(i64::MAX)
    }

    fn leave(&mut self, key: &[u8], waiter: &[u8]) {
        if let (Some(waiter), Some(queue)) = (Waiter::parse(waiter), self.queues.get_mut(key)) {
            queue.leave(waiter);
            if queue.is_empty() {
                self.queues.remove(key);
            }
        }
    }

    /// Wakes the first waiter.
    fn wake(&mut self, now: u64, key: &[u8], asker: Option<Waiter>) {
        let Some(mut queue) = self.queues.remove(key) else { return };
        queue.wake(now, asker, true, |first| self.publish(first));
        if !queue.is_empty() {
            self.queues.insert(key.to_vec(), queue);
        }
    }

    /// Publishes a wake-up. Returns whether a connection subscribes for this waiter.
    fn publish(&self, waiter: Waiter) -> bool {
        let (channel, waiter_id) = (channel_of(waiter.inbox), waiter.waiter_id.to_string());
        let mut message = Vec::new();
        push(&mut message, b"message", &channel, &Frame::Bulk(waiter_id.as_bytes()));
        let listeners = self.channels.get(&channel).into_iter().flatten();
        let lines = listeners.filter_map(|id| self.connections.get(id));
        lines.fold(false, |_, line| {
            // A connection that has just closed gets nothing.
            let _ = line.unasked.send(message.clone());
            true
        })
    }

    /// Executes [`QUEUE`] for a request to enqueue.
    fn enqueue(
        &mut self,
        now: u64,
        key: &[u8],
        (waiter, position): (&[u8], Position),
        out: &mut Vec<u8>,
    ) {
        let Some(waiter) = Waiter::parse(waiter) else {
            return out.extend(b"-ERR masters in memory know only the waiters of a lock\r\n");
        };
        let queue = self.queues.entry(key.to_vec()).or_default();
        queue.sweep(now);
        let (number, mut before) = queue.enqueue(now, waiter, position);
        let held = self.live(key).map(|entry| (entry.left_ms(), entry.value.clone()));
        if held.is_none() && before > 0 && position != Position::Any {
            self.wake(now, key, Some(waiter));
            before = self.queues.get(key).map_or(0, |queue| queue.before(waiter));
        }
        out.extend(format!("*{}\r\n", if held.is_some() { 4 } else { 2 }).into_bytes());
        integer(out, i64::try_from(number).unwrap_or(i64::MAX));
        integer(out, i64::try_from(before).unwrap_or(i64::MAX));
        if let Some((left, value)) = held {
            integer(out, left);
            bulk(out, &value[..value.len().min(64)]);
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
            // The connection was killed meanwhile: an aborted task may run until its next await.
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
            [b"GETRANGE", key, b"0", last] => {
                let value = state.text(key);
                let length = usize::try_from(number(last)).map_or(usize::MAX, |last| last + 1);
                bulk(out, &value[..value.len().min(length)]);
            }
            // Masters in memory have no file.
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
                        integer(out, 1 + state.give_back(now, key, call, true));
                    }
                    Some(entry) => {
                        taken(out, entry);
                        state.give_back(now, key, call, false);
                    }
                    None => {
                        state.give_back(now, key, call, true);
                        integer(out, 0);
                    }
                }
            }
            [b"EVALSHA", sha, b"1", key, waiter, b"-", wake @ ..]
                if *sha == QUEUE.sha1.as_bytes() =>
            {
                state.leave(key, waiter);
                if !wake.is_empty() && state.live(key).is_none() {
                    state.wake(now, key, None);
                }
                integer(out, 0);
            }
            [b"EVALSHA", sha, b"1", key, waiter, least, exactly @ ..]
                if *sha == QUEUE.sha1.as_bytes() =>
            {
                let position = match number(least) {
                    _ if *least == b"=" => Position::Any,
                    number if !exactly.is_empty() => Position::At(number),
                    0 => Position::Last,
                    number => Position::NotBefore(number),
                };
                state.enqueue(now, key, (waiter, position), out);
            }
            [b"HELLO", b"3"] => out.extend(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
            [b"SUBSCRIBE", channel] => {
                let listeners = state.channels.entry(channel.to_vec()).or_default();
                if !listeners.contains(&id) {
                    listeners.push(id);
                }
                push(out, b"subscribe", channel, &Frame::Integer(1));
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
            // Nothing creates the key of the probe.
            [b"SET", PROBE, _, b"XX", ..] => out.extend(b"$-1\r\n"),
            _ => out.extend(b"-ERR masters in memory know only a lock's commands\r\n"),
        }
    }
}

/// The arguments of a script about a fencing counter.
#[derive(Clone, Copy)]
struct Fence<'a> {
    counter: &'a [u8],
    least: u64,
    memory: &'a [u8],
}

const SPENT: &[u8] =
    b"-FENCE the counter of this resource holds no number, or one too large to go on\r\n";

/// A hint counts up to one second ahead of the master's own clock, and no further.
fn clamp(hint: u64) -> u64 {
    hint.min(wall_micros() + 1_000_000)
}

fn number(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn milliseconds(digits: &[u8]) -> Duration {
    Duration::from_millis(number(digits))
}

/// The part of a boot marker or probation key that the scripts return.
fn start(text: &[u8]) -> &[u8] {
    &text[..text.len().min(257)]
}

fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend(format!(":{number}\r\n").into_bytes());
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(format!("${}\r\n", bytes.len()).into_bytes());
    out.extend_from_slice(bytes);
    out.extend(b"\r\n");
}

/// A push message, or the reply to a subscription.
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
