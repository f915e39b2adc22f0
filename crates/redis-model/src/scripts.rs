//! The lock's commands and scripts. Each script does in Rust what its text in
//! [`redquorum_protocol::wire`] does in Lua, line by line.

use std::borrow::Cow;

use redquorum_protocol::wire::{
    BOOT, Command, LAPSE_MS, PROBATION, TURN_MS, counter_of, queue_of, scripts,
};
use redquorum_protocol::{Fence, Key, MAX_NUMBER, Position, Token, Waiter, WakeUp};

use crate::keys::{Error, Execution};
use crate::{ScriptMutant, Value};

const SPENT: Error =
    "FENCE the counter of this resource holds no number, or one too large to go on";

/// How far ahead of its own clock a server accepts a hint, in microseconds.
const HINT_AHEAD: u64 = 1_000_000;

/// A waiter that asks again writes nothing if it has at least this much time left, in milliseconds.
const FRESH_MS: u64 = 10_000;

/// In milliseconds: a waiter with more time left than this has just asked, and may be about to
/// subscribe.
const NEW_MS: u64 = 14_000;

/// How many waiters a script drops at a time.
const SWEEP: usize = 1_000;

/// How many waiters a script passes over in order to wake one.
const WAKE: usize = 100;

/// In milliseconds: a first waiter that was woken and has no more time left may be silent.
const SILENT_MS: u64 = 2_500;

/// How long waiters have to show that they are not silent, in milliseconds.
const ASK_MS: u64 = 1_500;

/// The keys of a resource's queue: the positions of its waiters, and the times at which they lapse.
type Queue = [Vec<u8>; 2];

/// The index among the lock's [`scripts`] of the script that a command calls.
pub(crate) fn script_of(command: &Command) -> Option<usize> {
    let script = command.script()?;
    scripts(true).position(|known| known.sha1 == script.sha1)
}

impl Execution<'_> {
    /// Executes a command of the lock, but none about connections or scripts. A mutant leaves a
    /// line of its script out.
    pub(crate) fn command(
        &mut self,
        command: &Command,
        mutant: Option<ScriptMutant>,
    ) -> Result<Value, Error> {
        match command {
            Command::Set { key, token, ttl_ms, fair: false, fence: None } => {
                self.set(key, token.as_bytes(), Some(*ttl_ms), true).map(created)
            }
            Command::Set { key, token, ttl_ms, fair, fence } => {
                self.grant(key, *token, *ttl_ms, (*fair, *fence), mutant).map(integer)
            }
            Command::Guarded { key, token, ttl_ms, fair, fence, marker } => {
                let shown = self.text(BOOT)?;
                let reply = if *shown == *marker.as_bytes() {
                    integer(self.grant(key, *token, *ttl_ms, (*fair, *fence), mutant)?)
                } else {
                    start(&shown, 257)
                };
                Ok(Value::Array(vec![reply, integer(self.micros)]))
            }
            Command::Watch { run_id, marker, begin, probation_ms, ended } => {
                let [begin, ended] =
                    [begin, ended].map(|name| name.as_deref().unwrap_or_default().as_bytes());
                let marker = marker.as_bytes();
                self.watch(run_id.0.as_bytes(), marker, (begin, *probation_ms), ended)
            }
            Command::Initialize { marker } => {
                self.set(BOOT, marker.as_bytes(), None, true).map(created)
            }
            Command::Keep { key, token, ttl_ms, repair, fence } => {
                self.keep(key, *token, *ttl_ms, *repair, *fence)
            }
            Command::Certify { key, token, fence } => match self.get(key)? {
                value if mutant == Some(ScriptMutant::Uncompared) || is(value.as_ref(), *token) => {
                    self.raise(key, 0, fence.number, *fence, None)?.map(integer).ok_or(SPENT)
                }
                value => Ok(self.other(key, value)),
            },
            Command::Delete { key, token, wake_up, leave } => {
                self.delete(key, *token, *wake_up, *leave)
            }
            Command::Enqueue { key, waiter, position } => self.enqueue(key, *waiter, *position),
            Command::Dequeue { key, waiter, wake } => {
                let queue = queue_of(key);
                for name in &queue {
                    self.zrem(name, &[member_of(*waiter)])?;
                }
                if *wake && !self.exists(key) {
                    self.wake(&queue, None, false);
                }
                Ok(Value::Integer(0))
            }
            // `SET XX`: nothing creates the key.
            Command::Probe => self.writes(true).map(|()| Value::Null),
            Command::Kill { .. }
            | Command::Hello
            | Command::Subscribe { .. }
            | Command::Load(_) => {
                unreachable!("executed by the server")
            }
        }
    }

    /// The reply of a script that finds no key or another key.
    fn other(&mut self, key: &[u8], value: Option<Key>) -> Value {
        value.map_or(Value::Integer(0), |value| {
            Value::Array(vec![Value::Integer(self.pttl(key)), start(&value, 64)])
        })
    }

    fn text(&mut self, key: &[u8]) -> Result<Key, Error> {
        Ok(self.get(key)?.unwrap_or_default())
    }

    /// The grant of [`GRANT`](redquorum_protocol::wire::GRANT) and of
    /// [`GUARDED`](redquorum_protocol::wire::GUARDED). Returns 0 if there is a key, or if the grant
    /// is fair and a waiter is in the queue.
    fn grant(
        &mut self,
        key: &[u8],
        token: Token,
        ttl_ms: u64,
        (fair, fence): (bool, Option<Fence>),
        mutant: Option<ScriptMutant>,
    ) -> Result<u64, Error> {
        let queued = fair && self.exists(&queue_of(key)[0]);
        if queued || !self.set(key, token.as_bytes(), Some(ttl_ms), true)? {
            return Ok(0);
        }
        let Some(fence) = fence else { return Ok(1) };
        let hint = match mutant {
            Some(ScriptMutant::Unclamped) => fence.number,
            _ => self.clamp(fence.number),
        };
        if let Some(number) = self.raise(key, 1, hint, fence, mutant)? {
            return Ok(number);
        }
        self.del(key)?;
        Err(SPENT)
    }

    /// A hint counts only as far as the server's own clock allows.
    fn clamp(&self, hint: u64) -> u64 {
        hint.min(self.micros + HINT_AHEAD)
    }

    /// Raises the counter of a resource. `None`: it holds no number, or would be too large.
    fn raise(
        &mut self,
        key: &[u8],
        step: u64,
        least: u64,
        fence: Fence,
        mutant: Option<ScriptMutant>,
    ) -> Result<Option<u64>, Error> {
        let counter = counter_of(key);
        let Ok(text) = self.get(&counter) else { return Ok(None) };
        let text = text.as_deref().unwrap_or(b"0");
        let count = str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
        let count = count.map(|count| count.saturating_add(step).max(least).max(1));
        let count = match mutant {
            Some(ScriptMutant::Endless) => count.map(|count| count.min(MAX_NUMBER)),
            _ => count.filter(|count| *count <= MAX_NUMBER),
        };
        let Some(count) = count else { return Ok(None) };
        let left = u64::try_from(self.pttl(&counter)).unwrap_or(0);
        let memory_ms = left.max(fence.memory_ms);
        self.set(&counter, count.to_string().as_bytes(), Some(memory_ms), false)?;
        Ok(Some(count))
    }

    fn keep(
        &mut self,
        key: &[u8],
        token: Token,
        ttl_ms: u64,
        repair: bool,
        fence: Option<Fence>,
    ) -> Result<Value, Error> {
        let value = self.get(key)?;
        if is(value.as_ref(), token) {
            let less = |left: i64, than: u64| u64::try_from(left).is_ok_and(|left| left < than);
            if matches!(self.pttl(key), left if left < 0 || less(left, ttl_ms)) {
                self.pexpire(key, ttl_ms)?;
            }
            if let Some(fence) = fence {
                let counter = counter_of(key);
                let left = self.pttl(&counter);
                if left == -2 {
                    let number = fence.number.to_string();
                    self.set(&counter, number.as_bytes(), Some(fence.memory_ms), false)?;
                } else if less(left, fence.memory_ms) {
                    self.pexpire(&counter, fence.memory_ms)?;
                }
            }
            return Ok(Value::Integer(1));
        }
        if value.is_some() || !repair {
            return Ok(self.other(key, value));
        }
        if let Some(fence) = fence {
            let least = self.clamp(fence.number);
            self.raise(key, 1, least, fence, None)?.ok_or(SPENT)?;
        }
        self.set(key, token.as_bytes(), Some(ttl_ms), false)?;
        Ok(Value::Integer(2))
    }

    fn watch(
        &mut self,
        run_id: &[u8],
        marker: &[u8],
        (begin, probation_ms): (&[u8], u64),
        ended: &[u8],
    ) -> Result<Value, Error> {
        let (boot, probation) = (self.text(BOOT)?, self.text(PROBATION)?);
        let rest = boot.strip_prefix(run_id).filter(|_| !run_id.is_empty());
        if !rest.is_some_and(|rest| rest.starts_with(b" ")) {
            if !probation.is_empty() && *probation == *ended {
                self.set(BOOT, marker, None, false)?;
                self.del(PROBATION)?;
            } else if probation.is_empty() && !begin.is_empty() {
                self.set(PROBATION, begin, Some(probation_ms), false)?;
            }
        }
        let (boot, probation) = (self.text(BOOT)?, self.text(PROBATION)?);
        Ok(Value::Array(vec![start(&boot, 257), start(&probation, 257), integer(self.micros)]))
    }

    fn delete(
        &mut self,
        key: &[u8],
        token: Token,
        wake_up: WakeUp,
        leave: Option<Waiter>,
    ) -> Result<Value, Error> {
        let value = self.get(key)?;
        let ours = is(value.as_ref(), token);
        if ours {
            self.del(key)?;
        }
        let mut waiters = 0;
        let queue = queue_of(key);
        if (wake_up != WakeUp::None || leave.is_some()) && self.exists(&queue[0]) {
            if let Some(waiter) = leave {
                self.remove(&queue, &[member_of(waiter)]);
            }
            let quiet = wake_up == WakeUp::Quiet;
            if (quiet || wake_up == WakeUp::First) && (ours || value.is_none()) {
                self.wake(&queue, None, quiet);
            }
            waiters = self.zcard(&queue[0]).unwrap_or(0);
        }
        Ok(if ours { integer(waiters as u64 + 1) } else { self.other(key, value) })
    }

    fn enqueue(&mut self, key: &[u8], waiter: Waiter, position: Position) -> Result<Value, Error> {
        let queue @ [positions, lapses] = &queue_of(key);
        let member = member_of(waiter);
        self.sweep(queue);
        let ours = self.zscore(positions, &member)?;
        let number = match (position, ours) {
            (Position::At(number), _) => number,
            (_, Some(ours)) => ours.max(position.number()),
            (_, None) => {
                let last = self.last_score(positions)?.unwrap_or(0);
                (last + 1).max(position.number())
            }
        };
        let (left, value) = (self.pttl(key), self.get(key));
        let lapse = self.zscore(lapses, &member)?.unwrap_or(0);
        if ours != Some(number) || lapse < self.now + FRESH_MS || value == Ok(None) {
            self.zadd(positions, &member, number)?;
            self.zadd(lapses, &member, self.now + LAPSE_MS)?;
            self.pexpire(positions, LAPSE_MS)?;
            self.pexpire(lapses, LAPSE_MS)?;
        }
        let mut before = self.zrank(positions, &member)?;
        if value == Ok(None) && before > 0 && position != Position::Any {
            self.wake(queue, Some(&member), false);
            self.pass(queue)?;
            before = self.zrank(positions, &member)?;
        }
        let mut reply = vec![integer(number), integer(before as u64)];
        match value {
            Ok(None) => {}
            Ok(Some(value)) => reply.extend([Value::Integer(left), start(&value, 64)]),
            Err(_) => reply.push(Value::Integer(left)),
        }
        Ok(Value::Array(reply))
    }

    /// Removes waiters from a queue, whatever permissions and types say.
    fn remove(&mut self, queue: &Queue, waiters: &[Key]) {
        queue.iter().for_each(|key| _ = self.zrem(key, waiters));
    }

    /// Drops the waiters that have lapsed, and those that stay for too long, since the clock was
    /// set back.
    fn sweep(&mut self, queue @ [_, lapses]: &Queue) {
        let now = self.now;
        for gone in [&|at| at <= now, &|at| at > now + LAPSE_MS] as [&dyn Fn(u64) -> bool; 2] {
            let waiters = self.members(lapses, SWEEP, gone).unwrap_or_default();
            if !waiters.is_empty() {
                self.remove(queue, &waiters);
            }
        }
    }

    /// Shortens the time of all waiters that have not asked since the first one was woken, if that
    /// one may be silent.
    fn pass(&mut self, [positions, lapses]: &Queue) -> Result<(), Error> {
        let Some(first) = self.member(positions, 0)? else { return Ok(()) };
        let turn = self.zscore(lapses, &first)?;
        let Some(turn) = turn.filter(|turn| *turn <= self.now + SILENT_MS) else { return Ok(()) };
        let last = turn.max(self.now + ASK_MS);
        let silent = |at| last < at && at <= turn + LAPSE_MS - TURN_MS;
        for waiter in self.members(lapses, SWEEP, silent)? {
            self.zadd(lapses, &waiter, last)?;
        }
        Ok(())
    }

    /// Wakes the first waiter that a message reaches. The waiter `asker` needs no wake-up. If it is
    /// `quiet`, no message is sent, and all are taken to arrive.
    fn wake(&mut self, queue @ [positions, lapses]: &Queue, asker: Option<&Key>, quiet: bool) {
        self.sweep(queue);
        let mut at = 0;
        for _ in 0..WAKE {
            let Ok(Some(first)) = self.member(positions, at) else { return };
            if Some(&first) == asker {
                return;
            }
            let looks = first.starts_with(b"0000000000000000");
            let waiter = Waiter::parse(&first);
            let woken = !looks && (quiet || waiter.is_some_and(&mut self.publish));
            let lapse = self.zscore(lapses, &first).ok().flatten().unwrap_or(0);
            if woken || looks || lapse > self.now + NEW_MS {
                // Without memory, the waiter keeps its position for longer.
                _ = self.zadd_lower(lapses, &first, self.now + TURN_MS);
                if woken || looks {
                    return;
                }
                at += 1;
            } else {
                self.remove(queue, &[first]);
            }
        }
    }
}

/// Whether a value is this token.
fn is(value: Option<&Key>, token: Token) -> bool {
    value.is_some_and(|value| **value == *token.as_bytes())
}

/// The reply of a `SET NX`.
const fn created(created: bool) -> Value {
    if created { Value::OK } else { Value::Null }
}

/// The member of a waiter in a queue.
fn member_of(waiter: Waiter) -> Key {
    Key::from(waiter.to_string().as_bytes())
}

pub(crate) fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The start of a value.
fn start(value: &Key, most: usize) -> Value {
    if value.len() <= most { Value::Bulk(value.clone()) } else { Value::bulk(&value[..most]) }
}

impl From<Error> for Value {
    fn from(text: Error) -> Self {
        Self::Error(Cow::Borrowed(text.as_bytes()))
    }
}
