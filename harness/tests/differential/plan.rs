//! Random steps from a seed. They name connections by slots and do not refer to any state, so the
//! shrinker can leave out any of them.

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{
    Fence, HolderName, Key, MAX_HOLDER_NAME, MAX_NUMBER, Position, RunId, Token, Waiter, WaiterId,
    WakeUp, splitmix64,
};
use redquorum_redis_model::{Persistence, Request, ScriptMutant};

const POSITIONS: [Position; 9] = [
    Position::Any,
    Position::Any,
    Position::Last,
    Position::Last,
    Position::Last,
    Position::NotBefore(2),
    Position::NotBefore(1_000),
    Position::At(1),
    Position::At(3),
];

/// The inboxes for which connections subscribe.
pub(crate) const INBOXES: [u64; 2] = [1, u64::MAX];

/// The waiters: inbox and waiter id. They are few, so that they meet. No two have the same waiter
/// id.
const WAITERS: [(u64, WaiterId); 11] = [
    (0, WaiterId::new(1)),
    (0, WaiterId::new(9)),
    (INBOXES[0], WaiterId::new(2)),
    (INBOXES[0], WaiterId::new(10)),
    (INBOXES[1], WaiterId::new(3)),
    (INBOXES[1], WaiterId::new(MAX_NUMBER)),
    (0x1f, WaiterId::new(4)), // No connection ever subscribes for it.
    (0, WaiterId::new(1).shared()),
    (INBOXES[0], WaiterId::new(5).shared()),
    (INBOXES[1], WaiterId::new(6).shared()),
    (0x1f, WaiterId::new(7).shared()),
];

pub(crate) fn waiter_of(waiter_id: WaiterId) -> Waiter {
    let (inbox, _) = WAITERS.into_iter().find(|(_, of)| *of == waiter_id).expect("it is one");
    Waiter { inbox, waiter_id }
}

/// The number of connections in use at the same time.
pub(crate) const SLOTS: usize = 4;

/// The number of slots whose connections use RESP3 and subscribe. Each gets one greeting, as in the
/// library.
const LISTENERS: usize = 2;

const KEYS: usize = 3;

const MS: i64 = 1_000_000;

/// One request, which does not depend on earlier ones.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    Request(Request),
    /// `CLIENT KILL` of the latest connection in this slot.
    Kill(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// Closes only the sending half: the replies still arrive.
    Half,
    Whole,
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Kill,
    Stop,
    PowerLoss,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes all requests at once, and reads the replies unless the master is paused.
    Send(usize, Vec<Planned>),
    /// Writes all requests at once and closes the connection.
    Leave(usize, Vec<Planned>, Leave),
    /// The wall clock steps by this number of nanoseconds.
    Clock(i64),
    /// The wall clock runs at this rate for a moment. Otherwise it stands still.
    Run(f64),
    Pause,
    Resume,
    /// The master ends, its clock steps, and it starts again.
    Restart(End, i64),
    /// The file is synced, a second later.
    Sync,
    Expire,
    /// Memory becomes short, or available again.
    Memory(bool),
}

/// A seed always means the same plan, as long as this file does not change.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(splitmix64(&mut self.0) % bound as u64).expect("an index fits")
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

pub(crate) fn key(number: usize) -> Key {
    // Not text, so that a step that mishandles bytes fails.
    Arc::from([b'k', 0xff, b'\r', b'\n', u8::try_from(number).expect("a few")])
}

fn token(random: &mut Random) -> Token {
    let token = Token::new([random.of(&[0, 1, b'\n', 0xfe]); 20]);
    let token = if random.below(3) == 0 { token.shared() } else { token };
    let longest = "n".repeat(MAX_HOLDER_NAME);
    let name = HolderName::new(random.of(&["a", "web-3/71 ü", &longest]));
    if random.below(3) == 0 { token.named(name.expect("a name")) } else { token }
}

/// How long a key lives, or one of its shared tokens. No client asks for a shared one with a TTL
/// that Lua cannot count.
fn ttl_of(token: Token, random: &mut Random) -> u64 {
    let ttl = ttl(random);
    if token.is_shared() { ttl.min(86_400_000) } else { ttl }
}

fn ttl(random: &mut Random) -> u64 {
    match random.below(60) {
        0 => random.of(&[0, i64::MAX.cast_unsigned(), u64::MAX]),
        1..20 => random.of(&[1, 2, 3, 5]),
        20..40 => random.of(&[20, 999, 1000, 1001, 5000]),
        _ => random.of(&[10_000, 60_000, 86_400_000]),
    }
}

/// Numbers so small that no clock clamps them, and TTLs so short that counters expire.
fn fence(random: &mut Random) -> Option<Fence> {
    let fence =
        Fence { number: random.of(&[0, 1, 2, 40, 60]), memory_ms: 1 + ttl(random) % 86_400_000 };
    (random.below(2) == 0).then_some(fence)
}

/// A command. For some times and numbers, a mutated one whose script lacks a line.
fn script_mutant(command: Command) -> Request {
    let script_mutant = match &command {
        Command::Set { token, ttl_ms, .. } if token.is_shared() => match ttl_ms {
            999 => ScriptMutant::PassesWaiters,
            1000 => ScriptMutant::NewestEnd,
            1001 => ScriptMutant::Evicts,
            _ => return Request::Lock(command),
        },
        Command::Set { fence: Some(_), ttl_ms: 999, .. } => ScriptMutant::Unclamped,
        Command::Set { fence: Some(_), ttl_ms: 1001, .. } => ScriptMutant::Endless,
        Command::Certify { fence: Fence { number: 50, .. }, .. } => ScriptMutant::Uncompared,
        Command::Keep { repair, marker: Some(_), ttl_ms: 1000, .. } => match repair {
            true => ScriptMutant::RepairsUnmarked,
            false => ScriptMutant::ExtendsUnadmitted,
        },
        _ => return Request::Lock(command),
    };
    Request::Mutant(command, script_mutant)
}

fn call(random: &mut Random) -> WakeUp {
    random.of(&[
        WakeUp::None,
        WakeUp::Quiet,
        WakeUp::Count,
        WakeUp::Count,
        WakeUp::First,
        WakeUp::First,
        WakeUp::First,
    ])
}

/// Requests of a subscribed connection only. A greeting precedes each, so that any step can be left
/// out: without it, the connection could send nothing else.
fn listening(random: &mut Random) -> [Planned; 2] {
    let subscribe = Command::Subscribe { inbox: random.of(&INBOXES) };
    [Command::Hello, subscribe].map(|command| Planned::Request(Request::Lock(command)))
}

fn ask(random: &mut Random, slot: usize) -> Planned {
    let key = key(random.below(KEYS));
    let lock = |command| Planned::Request(Request::Lock(command));
    let words = |words: &[&[u8]]| Planned::Request(Request::words(words));
    match random.below(1000) {
        0..300 => {
            let (token, fence) = (token(random), fence(random));
            let ttl_ms = ttl_of(token, random);
            let fair = random.below(4) == 0;
            Planned::Request(script_mutant(Command::Set { key, token, ttl_ms, fair, fence }))
        }
        300..340 => {
            let token = token(random);
            let fence = Fence {
                number: random.of(&[3, 50, 70, MAX_NUMBER - 1]),
                memory_ms: 1 + ttl(random) % 86_400_000,
            };
            Planned::Request(script_mutant(Command::Certify { key, token, fence }))
        }
        340..450 => {
            let (token, wake_up) = (token(random), call(random));
            let leave = (random.below(3) == 0).then(|| waiter(random));
            lock(Command::Delete { key, token, wake_up, leave })
        }
        450..490 => Planned::Request(script_mutant(guards(random, key))),
        490..650 => lock(waits(random, key)),
        650..690 => {
            let token = token(random);
            let (ttl_ms, repair) = (ttl_of(token, random), random.below(3) == 0);
            lock(Command::Keep { key, token, ttl_ms, repair, marker: None, fence: fence(random) })
        }
        690..780 => words(&[b"GET", &key]),
        780..885 => words(&[b"PTTL", &key]),
        885..890 => words(&[b"DEL", &key]),
        890..900 => words(&[b"PEXPIRE", &key, random.of(&[&b"1"[..], b"20", b"10000"])]),
        900..930 => words(&[b"TIME"]),
        930..945 => lock(Command::Probe),
        945..955 => words(&[b"FLUSHALL"]),
        955..960 => words(&[b"SCRIPT", b"FLUSH"]),
        960..975 => {
            let scripts: Vec<Command> = Command::load_scripts(true).collect();
            lock(scripts[random.below(scripts.len())].clone())
        }
        975..985 if slot >= LISTENERS => Planned::Request(Request::Hello),
        _ => Planned::Kill(random.below(SLOTS)),
    }
}

fn waiter(random: &mut Random) -> Waiter {
    let (inbox, waiter_id) = random.of(&WAITERS);
    Waiter { inbox, waiter_id }
}

fn waits(random: &mut Random, key: Key) -> Command {
    let waiter = waiter(random);
    match random.below(10) {
        0..7 => Command::Enqueue { key, waiter, position: random.of(&POSITIONS) },
        _ => Command::Dequeue { key, waiter, wake: random.below(2) == 0 },
    }
}

/// Of two processes, with and without masters. The last ones have the two sets of a step of a move:
/// masters show them, and no client asks for them.
const MARKERS: [&str; 7] = [
    "a 1000",
    "ab 1000",
    "b 1000 always",
    "a 1000 masters=x",
    "a 1000 masters=y",
    "a 1000 masters=x,y",
    "b 1000 masters=x,y always",
];

/// Commands of guarded locks, with few markers and probations, so that they meet.
fn guards(random: &mut Random, key: Key) -> Command {
    let marker = |random: &mut Random| Arc::from(random.of(&MARKERS));
    let wanted = |random: &mut Random| Arc::from(MARKERS[random.below(5)]);
    let probation = |random: &mut Random| Some(Arc::from(random.of(&["x", "y"])));
    match random.below(10) {
        0..4 => {
            let (token, fence) = (token(random), fence(random));
            let ttl_ms = ttl_of(token, random);
            let fair = random.below(4) == 0;
            Command::Guarded { key, token, ttl_ms, fair, fence, marker: wanted(random) }
        }
        4 => {
            let (token, fence) = (token(random), fence(random));
            let (ttl_ms, repair) = (ttl_of(token, random), random.below(2) == 0);
            let mut admits = || Arc::from(random.of(&["- masters=x", "- masters=y"]));
            let marker = Some(if repair { wanted(random) } else { admits() });
            Command::Keep { key, token, ttl_ms, repair, marker, fence }
        }
        5..9 => Command::Watch {
            run_id: RunId(Arc::from(random.of(&["a", "b", ""]))),
            marker: marker(random),
            begin: probation(random).filter(|_| random.below(4) > 0),
            probation_ms: 1 + ttl(random) % 86_400_000,
            ended: probation(random).filter(|_| random.below(3) > 0),
        },
        _ => Command::Initialize { marker: marker(random) },
    }
}

/// The requests that are written at once. What a master finds when it resumes must fit into the 16
/// KB that it reads at once, because it executes the rest after the commands of other connections;
/// so must what it finds of a connection that was reset. A handshake takes 14 KB of it, and a new
/// connection begins with one.
fn asks(random: &mut Random, slot: usize, is_bounded: bool) -> Vec<Planned> {
    let count = if is_bounded { random.of(&[1, 2]) } else { random.of(&[1, 1, 1, 2, 3, 8]) };
    let mut asks = Vec::new();
    for _ in 0..count {
        if slot < LISTENERS && random.below(4) == 0 {
            asks.extend(listening(random));
        } else {
            asks.push(ask(random, slot));
        }
    }
    let is_long = |request: &&mut Planned| {
        let Planned::Request(request) = request else { return false };
        matches!(request, Request::Hello | Request::Lock(Command::Load(_)))
            || is_bounded && matches!(request, Request::Mutant(..))
    };
    for long in asks.iter_mut().filter(is_long).skip(usize::from(!is_bounded)) {
        *long = Planned::Request(Request::words(&[b"TIME"]));
    }
    asks
}

/// A clock step in nanoseconds. Most are so small that keys are read in their last milliseconds.
/// The others are about the lifetime of a waiter's position.
fn change(random: &mut Random) -> i64 {
    let size = match random.below(10) {
        0..6 => random.of(&[MS / 10, MS / 2, MS - 1, MS, MS + 1, 2 * MS, 4 * MS]),
        6..8 => random.of(&[15 * MS, 990 * MS, 1000 * MS, 1010 * MS, 3000 * MS, 4990 * MS]),
        8 => random.of(&[1000 * MS, 3000 * MS, 5000 * MS, 12_000 * MS, 15_000 * MS]),
        _ => random.of(&[9_999 * MS, 61_000 * MS, 3_600_000 * MS, 86_400_001 * MS]),
    };
    if random.below(3) == 0 { -size } else { size }
}

pub(crate) fn plan(seed: u64, steps: usize, persistence: Persistence) -> Vec<Step> {
    let mut random = Random(seed);
    let mut plan = Vec::with_capacity(steps);
    // During a pause: the number of steps until the master resumes.
    let mut paused: Option<usize> = None;
    while plan.len() < steps {
        if paused == Some(0) {
            paused = None;
            plan.push(Step::Resume);
        }
        paused = paused.map(|left| left - 1);
        plan.push(match random.below(1000) {
            0..620 => {
                let slot = random.below(SLOTS);
                Step::Send(slot, asks(&mut random, slot, paused.is_some()))
            }
            620..700 => {
                let how = random.of(&[Leave::Half, Leave::Whole, Leave::Reset]);
                let slot = random.below(SLOTS);
                let is_bounded = paused.is_some() || how == Leave::Reset;
                Step::Leave(slot, asks(&mut random, slot, is_bounded), how)
            }
            700..910 => Step::Clock(change(&mut random)),
            910..920 => Step::Run(random.of(&[0.5, 1.0, 1.01, 20.0])),
            920..950 if paused.is_none() => {
                paused = Some(random.below(8));
                Step::Pause
            }
            950..965 if paused.is_none() => Step::Memory(random.below(3) == 0),
            965..972 => {
                paused = None;
                let end = random.of(&[End::Kill, End::Stop, End::PowerLoss]);
                let nanos = change(&mut random);
                Step::Restart(end, random.of(&[0, nanos]))
            }
            972..980 if persistence == Persistence::AofEverysec => Step::Sync,
            _ => Step::Expire,
        });
    }
    plan
}
