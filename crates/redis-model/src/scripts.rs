//! The lock's commands and scripts. Each script does in Rust what its text in
//! [`redquorum_protocol::wire`] does in Lua, line by line.

use std::borrow::Cow;
use std::ops::Range;

use redquorum_protocol::wire::{
    BOOT, Command, LAPSE_MS, PROBATION, TURN_MS, counter_of, queue_of, scripts,
};
use redquorum_protocol::{Fence, Key, MAX_NUMBER, Position, Token, Waiter, WakeUp};

use crate::keys::{Error, Execution};
use crate::script_mutant::slots_of;
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

/// The keys of a resource's queue: the positions of the waiters for an exclusive lease and for a
/// shared one, and the times at which all of them lapse.
type Queue = [Vec<u8>; 3];

/// Who holds a resource.
enum Held {
    No,
    /// An exclusive holder, with this value.
    By(Key),
    /// Shared holders. The token is that of the one that ends last.
    Shared(Key),
}

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
            Command::Set { key, token, ttl_ms, .. } if command.script().is_none() => {
                self.set(key, token.as_bytes(), Some(*ttl_ms), true).map(created)
            }
            Command::Set { key, token, ttl_ms, fair, fence } => {
                self.grant(key, *token, *ttl_ms, (*fair, *fence), mutant).map(Value::Integer)
            }
            Command::Guarded { key, token, ttl_ms, fair, fence, marker } => {
                let shown = self.text(BOOT)?;
                let reply = if shows(&shown, marker.as_bytes()) {
                    let grant = (*fair, *fence);
                    Value::Integer(self.grant(key, *token, *ttl_ms, grant, mutant)?)
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
            Command::Keep { key, token, ttl_ms, repair, marker: None, fence } => {
                self.keep(key, *token, *ttl_ms, *repair, *fence)
            }
            Command::Keep { key, token, ttl_ms, repair, marker: Some(marker), fence } => {
                self.holder(key)?;
                let (shown, marker) = (self.text(BOOT)?, marker.as_bytes());
                let unadmitted = mutant == Some(ScriptMutant::ExtendsUnadmitted);
                if !unadmitted && !admits(&shown, marker) {
                    return Ok(Value::Array(vec![start(&shown, 257), integer(self.micros)]));
                }
                if !repair {
                    return self.keep(key, *token, *ttl_ms, false, *fence);
                }
                let repairs =
                    mutant == Some(ScriptMutant::RepairsUnmarked) || shows(&shown, marker);
                let reply = match self.keep(key, *token, *ttl_ms, repairs, *fence)? {
                    Value::Integer(0) => start(&shown, 257),
                    taken @ Value::Array(_) => return Ok(taken),
                    reply => reply,
                };
                Ok(Value::Array(vec![reply, integer(self.micros)]))
            }
            Command::Certify { key, token, fence } => match self.holder(key)? {
                held if mutant == Some(ScriptMutant::Uncompared) || held.is(*token) => {
                    self.raise(key, 0, fence.number, *fence, None)?.map(integer).ok_or(SPENT)
                }
                held => Ok(self.other(key, &held)),
            },
            Command::Delete { key, token, wake_up, leave } => {
                self.delete(key, *token, (*wake_up, *leave), mutant)
            }
            Command::Enqueue { key, waiter, position } => self.enqueue(key, *waiter, *position),
            Command::Dequeue { key, waiter, wake } => {
                let queue = queue_of(key);
                let held = self.holder(key);
                for name in [line_of(&queue, *waiter), &queue[2]] {
                    self.zrem(name, &[member_of(*waiter)])?;
                }
                if *wake && let Ok(held @ (Held::No | Held::Shared(_))) = held {
                    self.wake(&queue, None, held.is_shared(), false);
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

    /// Fails for a key of another type, and for a sorted set that is not ours.
    fn holder(&mut self, key: &[u8]) -> Result<Held, Error> {
        match self.get(key) {
            Ok(value) => Ok(value.map_or(Held::No, Held::By)),
            Err(error) => match self.last_member(key) {
                Ok(Some((last, _))) if is_shared_token(&last) => Ok(Held::Shared(last)),
                _ => Err(error),
            },
        }
    }

    /// The reply of a script that finds no key or another key.
    fn other(&mut self, key: &[u8], held: &Held) -> Value {
        match held {
            Held::No => Value::Integer(0),
            Held::By(value) | Held::Shared(value) => {
                Value::Array(vec![Value::Integer(self.pttl(key)), start(value, 64)])
            }
        }
    }

    /// Removes the shared tokens whose end has come.
    fn bury(&mut self, key: &[u8]) -> Result<(), Error> {
        let now = self.now;
        let gone = self.members(key, SWEEP, |end| end < now)?;
        if gone.is_empty() { Ok(()) } else { self.zrem(key, &gone) }
    }

    /// Adds a token to the shared holders, or lets it live at least so long. With `only`, it adds
    /// none that is not there. Returns whether it was there.
    fn share(&mut self, key: &[u8], token: Token, ttl_ms: u64, only: bool) -> Result<bool, Error> {
        self.bury(key)?;
        let ends = self.zscore(key, token.as_bytes())?;
        if only && ends.is_none() {
            return Ok(false);
        }
        let end = self.now.saturating_add(ttl_ms);
        if ends.is_none_or(|ends| ends < end) {
            self.zadd(key, token.as_bytes(), end)?;
        }
        if u64::try_from(self.pttl(key)).map_or(true, |left| left < ttl_ms) {
            self.pexpire(key, ttl_ms)?;
        }
        Ok(ends.is_some())
    }

    fn text(&mut self, key: &[u8]) -> Result<Key, Error> {
        Ok(self.get(key)?.unwrap_or_default())
    }

    /// [`GRANT`](redquorum_protocol::wire::GRANT), without its guard. Returns 0 if there is a key,
    /// and −1 if the grant is fair and a waiter is in the queue. A shared token is granted beside
    /// other shared ones.
    fn grant(
        &mut self,
        key: &[u8],
        token: Token,
        ttl_ms: u64,
        (fair, fence): (bool, Option<Fence>),
        mutant: Option<ScriptMutant>,
    ) -> Result<i64, Error> {
        let [exclusive, shared, _] = queue_of(key);
        if token.is_shared() {
            if matches!(self.holder(key), Err(_) | Ok(Held::By(_))) {
                if mutant != Some(ScriptMutant::Evicts) {
                    return Ok(0);
                }
                self.del(key)?;
            }
            let passes = !fair || mutant == Some(ScriptMutant::PassesWaiters);
            if !passes && self.exists(&exclusive) {
                return Ok(-1);
            }
            self.share(key, token, ttl_ms, false)?;
            if mutant == Some(ScriptMutant::NewestEnd) {
                self.pexpire(key, ttl_ms)?;
            }
            return Ok(1);
        }
        // One `EXISTS` looks at both.
        if fair && self.exists(&exclusive) | self.exists(&shared) {
            return Ok(-1);
        }
        let mut take = |key: &[u8]| self.set(key, token.as_bytes(), Some(ttl_ms), true);
        let taken = match mutant {
            Some(ScriptMutant::CountsPermits) => match slots_of(key) {
                Some([one, other]) => take(&one)? || take(&other)?,
                None => take(key)?,
            },
            _ => take(key)?,
        };
        if !taken {
            return Ok(0);
        }
        let Some(fence) = fence else { return Ok(1) };
        let hint = match mutant {
            Some(ScriptMutant::Unclamped) => fence.number,
            _ => self.clamp(fence.number),
        };
        if let Some(number) = self.raise(key, 1, hint, fence, mutant)? {
            return Ok(number.cast_signed());
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
        let held = self.holder(key)?;
        if token.is_shared() && !matches!(held, Held::By(_)) {
            let kept = self.share(key, token, ttl_ms, !repair)?;
            return Ok(Value::Integer(if kept { 1 } else { i64::from(repair) * 2 }));
        }
        if held.is(token) {
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
        if !matches!(held, Held::No) || !repair {
            return Ok(self.other(key, &held));
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
        (wake_up, leave): (WakeUp, Option<Waiter>),
        mutant: Option<ScriptMutant>,
    ) -> Result<Value, Error> {
        let mut held = self.holder(key)?;
        let ours = match held {
            Held::Shared(_) => self.zscore(key, token.as_bytes())?.is_some(),
            _ => held.is(token),
        };
        if ours {
            if held.is_shared() {
                self.zrem(key, &[Key::from(token.as_bytes())])?;
                held = match self.last_member(key)? {
                    Some((last, end)) if end >= self.now => {
                        if mutant != Some(ScriptMutant::KeepsEnd) {
                            self.pexpire(key, end - self.now)?;
                        }
                        Held::Shared(last)
                    }
                    _ => {
                        self.del(key)?;
                        Held::No
                    }
                };
            } else {
                self.del(key)?;
                held = Held::No;
            }
        }
        let mut waiters = 0;
        let queue @ [exclusive, shared, _] = &queue_of(key);
        let asks = wake_up != WakeUp::None || leave.is_some();
        if asks && self.exists(exclusive) | self.exists(shared) {
            if let Some(waiter) = leave {
                self.remove(queue, &[member_of(waiter)]);
            }
            let quiet = wake_up == WakeUp::Quiet;
            if (quiet || wake_up == WakeUp::First) && !matches!(held, Held::By(_)) {
                self.wake(queue, None, held.is_shared(), quiet);
            }
            waiters = self.zcard(exclusive).unwrap_or(0) + self.zcard(shared).unwrap_or(0);
        }
        Ok(if ours { integer(waiters as u64 + 1) } else { self.other(key, &held) })
    }

    fn enqueue(&mut self, key: &[u8], waiter: Waiter, position: Position) -> Result<Value, Error> {
        let queue @ [exclusive, shared, lapses] = &queue_of(key);
        let (line, member) = (line_of(queue, waiter), member_of(waiter));
        let held = self.holder(key);
        let is_free = match held {
            Ok(Held::No) => true,
            Ok(Held::Shared(_)) => waiter.waiter_id.is_shared(),
            Ok(Held::By(_)) | Err(_) => false,
        };
        self.sweep(queue);
        let ours = self.zscore(line, &member)?;
        let number = match (position, ours) {
            (Position::At(number), _) => number,
            (_, Some(ours)) => ours.max(position.number()),
            (_, None) => {
                let last = [self.last_member(exclusive)?, self.last_member(shared)?];
                let last = last.into_iter().flatten().map(|(_, number)| number).max();
                (last.unwrap_or(0) + 1).max(position.number())
            }
        };
        let left = self.pttl(key);
        let lapse = self.zscore(lapses, &member)?.unwrap_or(0);
        if ours != Some(number) || lapse < self.now + FRESH_MS || is_free {
            self.zadd(line, &member, number)?;
            self.zadd(lapses, &member, self.now + LAPSE_MS)?;
            self.pexpire(line, LAPSE_MS)?;
            self.pexpire(lapses, LAPSE_MS)?;
        }
        let mut before = self.ahead(queue, waiter, number)?;
        if is_free && before > 0 && position != Position::Any {
            let is_held = !matches!(held, Ok(Held::No));
            self.wake(queue, Some(&member), is_held, false);
            if !is_held {
                self.pass(queue)?;
            }
            before = self.ahead(queue, waiter, number)?;
        }
        let mut reply = vec![integer(number), integer(before as u64)];
        match held {
            Ok(Held::No) => {}
            Ok(Held::Shared(_)) if is_free && before == 0 => {}
            Ok(Held::By(value) | Held::Shared(value)) => {
                reply.extend([Value::Integer(left), start(&value, 64)]);
            }
            Err(_) => reply.push(Value::Integer(left)),
        }
        Ok(Value::Array(reply))
    }

    /// How many waiters are before this one. Those for a shared lease go in together: they are only
    /// behind others.
    fn ahead(
        &mut self,
        [exclusive, shared, _]: &Queue,
        waiter: Waiter,
        number: u64,
    ) -> Result<usize, Error> {
        if waiter.waiter_id.is_shared() {
            return self.zcount(exclusive, |other| other < number);
        }
        let readers = self.zcount(shared, |other| other <= number)?;
        Ok(self.zrank(exclusive, &member_of(waiter))? + readers)
    }

    /// Removes waiters from a queue, whatever permissions and types say.
    fn remove(&mut self, queue: &Queue, waiters: &[Key]) {
        queue.iter().for_each(|key| _ = self.zrem(key, waiters));
    }

    /// Drops the waiters that have lapsed, and those that stay for too long, since the clock was
    /// set back.
    fn sweep(&mut self, queue @ [.., lapses]: &Queue) {
        let now = self.now;
        for gone in [&|at| at <= now, &|at| at > now + LAPSE_MS] as [&dyn Fn(u64) -> bool; 2] {
            let waiters = self.members(lapses, SWEEP, gone).unwrap_or_default();
            if !waiters.is_empty() {
                self.remove(queue, &waiters);
            }
        }
    }

    /// The first waiter of both queues, after this many of each, and whether it waits for a shared
    /// lease. Of two with one position, that one comes first.
    fn first(
        &mut self,
        [exclusive, shared, _]: &Queue,
        [at, past]: [usize; 2],
    ) -> Option<(Key, bool)> {
        let first = self.member(exclusive, at).ok().flatten();
        let reader = self.member(shared, past).ok().flatten();
        match (first, reader) {
            (Some((first, number)), Some((_, place))) if number < place => Some((first, false)),
            (_, Some((reader, _))) => Some((reader, true)),
            (first, None) => first.map(|(first, _)| (first, false)),
        }
    }

    /// Shortens the time of all waiters that have not asked since the first one was woken, if that
    /// one may be silent.
    fn pass(&mut self, queue @ [.., lapses]: &Queue) -> Result<(), Error> {
        let Some((first, _)) = self.first(queue, [0, 0]) else { return Ok(()) };
        let turn = self.zscore(lapses, &first)?;
        let Some(turn) = turn.filter(|turn| *turn <= self.now + SILENT_MS) else { return Ok(()) };
        let last = turn.max(self.now + ASK_MS);
        let silent = |at| last < at && at <= turn + LAPSE_MS - TURN_MS;
        for waiter in self.members(lapses, SWEEP, silent)? {
            self.zadd(lapses, &waiter, last)?;
        }
        Ok(())
    }

    /// Wakes the first waiter that a message reaches. If that one waits for a shared lease, those
    /// that follow and do so, too, are woken with it. While shared holders have the resource
    /// (`is_held`), no other ones are woken. The waiter `asker` needs no wake-up. If it is `quiet`,
    /// no message is sent, and all are taken to arrive.
    fn wake(
        &mut self,
        queue @ [.., lapses]: &Queue,
        asker: Option<&Key>,
        is_held: bool,
        quiet: bool,
    ) {
        self.sweep(queue);
        let (mut passed, mut any) = ([0, 0], is_held);
        for _ in 0..WAKE {
            let Some((first, reads)) = self.first(queue, passed) else { return };
            let is_asker = Some(&first) == asker;
            if !reads && (any || is_asker) {
                return;
            }
            let looks = is_asker || first.starts_with(b"0000000000000000");
            let waiter = Waiter::parse(&first);
            let hears = looks || quiet || waiter.is_some_and(&mut self.publish);
            let lapse = self.zscore(lapses, &first).ok().flatten().unwrap_or(0);
            if hears || lapse > self.now + NEW_MS {
                if !is_asker {
                    // Without memory, the waiter keeps its position for longer.
                    _ = self.zadd_lower(lapses, &first, self.now + TURN_MS);
                }
                if hears && !reads {
                    return;
                }
                any |= hears;
                passed[usize::from(reads)] += 1;
            } else {
                self.remove(queue, &[first]);
            }
        }
    }
}

impl Held {
    /// Whether the exclusive holder is the one with this token.
    fn is(&self, token: Token) -> bool {
        matches!(self, Self::By(value) if **value == *token.as_bytes())
    }

    const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

fn is_shared_token(member: &Key) -> bool {
    member.len() < 63 && matches!(member.get(20..), Some([b's'] | [b's', b'@', ..]))
}

/// The key of the queue in which a waiter has its position.
fn line_of([exclusive, shared, _]: &Queue, waiter: Waiter) -> &[u8] {
    if waiter.waiter_id.is_shared() { shared } else { exclusive }
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

/// Where a boot marker names masters: what follows ` masters=`, up to a space.
fn named(marker: &[u8]) -> Option<Range<usize>> {
    let word = b" masters=";
    let at = marker.windows(word.len()).position(|bytes| bytes == word)? + word.len();
    let length = marker[at..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    (length > 0).then_some(at..at + length)
}

/// Whether a marker admits the masters that the wanted one names, or one of the two names none.
fn admits(shown: &[u8], wanted: &[u8]) -> bool {
    match (named(shown), named(wanted)) {
        (Some(theirs), Some(ours)) => {
            shown[theirs].split(|byte| *byte == b',').any(|it| *it == wanted[ours.clone()])
        }
        _ => true,
    }
}

/// Whether a marker admits the masters that the wanted one names, and is otherwise the same.
fn shows(shown: &[u8], wanted: &[u8]) -> bool {
    let Some((theirs, ours)) = named(shown).zip(named(wanted)) else { return shown == wanted };
    let rest = [&shown[..theirs.start], &wanted[ours], &shown[theirs.end..]].concat();
    shown == wanted || admits(shown, wanted) && rest == wanted
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
