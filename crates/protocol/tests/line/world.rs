//! A small world for processes that acquire one resource again and again.
//!
//! Each master has one key and one fair queue. Messages take time. Between a process and a master
//! they arrive in the order in which they were sent, in both directions, as over a link. Push
//! messages may be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use redquorum_protocol::wire::WaitQueue;
use redquorum_protocol::{
    Claim, Drift, Effect, Holder, Input, LockConfig, NodeId, Position, QueueEvent, Reply, RoundId,
    Time, Token, Turn, VoteRequest, WaitPolicy, Waiter, WaiterId, WakeUp, quorum,
};

use crate::chance::Random;

pub(crate) const MS: Duration = Duration::from_millis(1);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const TTL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sort {
    pub(crate) nodes: usize,
    pub(crate) fair: bool,
    pub(crate) wake_ups: bool,
    /// The longest delay of a message, in microseconds.
    pub(crate) latency: u64,
    /// The extra delay between each process and one master of its own, in microseconds.
    pub(crate) slow: u64,
    /// The share of push messages that are lost, in percent.
    pub(crate) lost: u64,
}

struct Process {
    claim: Option<Claim>,
    /// The number of the current acquire.
    acquires: u64,
    /// The number of acquires still to make.
    left: u32,
    /// The time of the next acquire, or of the release of a held lease.
    next: Time,
    waiter_id: Option<WaiterId>,
    /// The queue numbers that masters returned in the latest round.
    numbers: BTreeMap<usize, u64>,
    round: u32,
    /// The time of the latest acquire.
    asked: Time,
    /// Set while the process is in the fair queue, or, without one, has waited for long enough: the
    /// leases that each other process got since then.
    overtaken: Option<Vec<u32>>,
    dead: bool,
}

#[derive(Default)]
struct Master {
    key: Option<(Token, Time)>,
    queue: WaitQueue,
    /// Processes that the master can wake.
    listeners: Vec<usize>,
}

enum Event {
    Arrived { process: usize, acquire: u64, node: usize, what: What },
    QueueEvent { process: usize, acquire: Option<u64>, input: Input },
}

#[derive(Clone, Copy)]
enum What {
    Set(RoundId, Token, u64),
    Delete(RoundId, Token, WakeUp, Option<Waiter>),
    Enqueue(RoundId, Waiter, Position),
    Dequeue(Waiter, bool),
    Subscribe,
}

pub(crate) struct World {
    sort: Sort,
    terms: LockConfig,
    pub(crate) now: Time,
    pub(crate) random: Random,
    processes: Vec<Process>,
    masters: Vec<Master>,
    /// The arrival of the latest message between a process and a master, in each direction.
    latest: BTreeMap<(usize, usize, bool), Time>,
    queue: BTreeMap<(Time, u64), Event>,
    numbers: u64,
    /// Leases, in order of time.
    pub(crate) granted: Vec<(Time, usize)>,
    /// The most leases that one process got before another process that was in the queue.
    pub(crate) most: u32,
}

impl World {
    pub(crate) fn new(seed: u64, sort: Sort) -> Self {
        let terms = LockConfig::new(sort.nodes, TTL, Drift::default(), NODE_TIMEOUT);
        Self {
            sort,
            terms: terms.expect("they fit"),
            now: Time::from_millis(1_000),
            random: Random(seed),
            processes: Vec::new(),
            masters: (0..sort.nodes).map(|_| Master::default()).collect(),
            latest: BTreeMap::new(),
            queue: BTreeMap::new(),
            numbers: 0,
            granted: Vec::new(),
            most: 0,
        }
    }

    /// Adds a process that acquires `left` times, beginning at `start`.
    pub(crate) fn enter(&mut self, start: Time, left: u32) {
        let next = start;
        self.processes.push(Process {
            claim: None,
            acquires: 0,
            left,
            next,
            asked: Time::NEVER,
            waiter_id: None,
            numbers: BTreeMap::new(),
            round: 0,
            overtaken: None,
            dead: false,
        });
    }

    /// Ends a process: it takes no further action.
    pub(crate) fn kill(&mut self, process: usize) {
        self.processes[process].dead = true;
        self.masters.iter_mut().for_each(|master| master.listeners.retain(|it| *it != process));
    }

    /// Whether a process waits, and is at the head of the queue on a quorum.
    pub(crate) fn is_first(&mut self, process: usize) -> bool {
        let Some(waiter_id) = self.processes[process].waiter_id else { return false };
        let waiter = self.waiter(process, waiter_id);
        let waits = matches!(&self.processes[process].claim, Some(Claim::Acquiring(_)));
        let first = |master: &&Master| {
            master.queue.number(waiter).is_some() && master.queue.before(waiter) == 0
        };
        waits && self.masters.iter().filter(first).count() >= quorum(self.sort.nodes)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.processes.iter().all(|it| it.dead || it.left == 0 && it.claim.is_none())
    }

    /// Lets time pass until `end`, or until all processes are done.
    pub(crate) fn run_until(&mut self, end: Time) {
        while !self.is_done() {
            let event = self.queue.keys().next().map_or(Time::NEVER, |(time, _)| *time);
            let wake = self.processes.iter().map(Process::next_wake).min().unwrap_or(Time::NEVER);
            if event.min(wake) > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(event.min(wake));
            if event <= wake {
                let (_, event) = self.queue.pop_first().expect("seen above");
                self.happen(event);
            } else {
                (0..self.processes.len()).for_each(|process| self.wake(process));
            }
            self.look();
        }
    }

    fn wake(&mut self, process: usize) {
        let of = &self.processes[process];
        if of.next_wake() > self.now {
            return;
        }
        match &of.claim {
            None => self.acquire(process),
            Some(Claim::Holding(_)) if of.next <= self.now => {
                self.drive(process, Input::Release);
                let pause = MS * u32::try_from(self.random.below(30)).expect("it fits");
                let of = &mut self.processes[process];
                (of.claim, of.next) = (None, self.now.plus(pause));
            }
            Some(_) => self.drive(process, Input::Wake),
        }
    }

    fn acquire(&mut self, process: usize) {
        let Sort { wake_ups, fair, .. } = self.sort;
        let wait = Duration::from_secs(3_600);
        let policy = WaitPolicy { wait, explain: false, wake_ups, fair, turn: Turn::First };
        let mut out = Vec::new();
        let claim = Claim::acquire(self.now, self.terms, policy, &mut self.random, &mut out);
        let of = &mut self.processes[process];
        (of.claim, of.acquires, of.left) = (Some(claim), of.acquires + 1, of.left - 1);
        (of.waiter_id, of.overtaken, of.next, of.asked) = (None, None, Time::NEVER, self.now);
        of.numbers.clear();
        self.send(process, out);
    }

    fn drive(&mut self, process: usize, input: Input) {
        let mut out = Vec::new();
        let of = &mut self.processes[process];
        if let Some(claim) = &mut of.claim {
            claim.handle(self.now, input, &mut self.random, &mut out);
        }
        self.send(process, out);
        if matches!(&self.processes[process].claim, Some(Claim::Acquiring(it)) if it.is_won()) {
            self.won(process);
        }
    }

    fn won(&mut self, process: usize) {
        for (at, other) in self.processes.iter_mut().enumerate().filter(|(at, _)| *at != process) {
            if let Some(overtaken) = other.overtaken.as_mut().filter(|_| !other.dead) {
                overtaken[process] += 1;
                self.most = self.most.max(overtaken[process]);
                debug_assert!(at != process);
            }
        }
        self.granted.push((self.now, process));
        let hold = MS * u32::try_from(1 + self.random.below(20)).expect("it fits");
        let of = &mut self.processes[process];
        (of.next, of.waiter_id, of.overtaken) = (self.now.plus(hold), None, None);
        self.drive(process, Input::Collect);
        assert!(matches!(self.processes[process].claim, Some(Claim::Holding(_))));
    }

    /// Marks the processes that are in the queue by now: those for which a quorum of masters
    /// returned the largest number. Without a fair queue, marks those that have waited for a while.
    fn look(&mut self) {
        let (processes, quorum) = (self.processes.len(), quorum(self.sort.nodes));
        for of in self.processes.iter_mut().filter(|it| it.overtaken.is_none() && !it.dead) {
            let stands = match of.waiter_id {
                Some(_) => {
                    let largest = of.numbers.values().max();
                    of.numbers.values().filter(|it| Some(*it) == largest).count() >= quorum
                }
                None => {
                    let waits = matches!(of.claim, Some(Claim::Acquiring(_)));
                    !self.sort.fair && waits && self.now >= of.asked.plus(20 * MS)
                }
            };
            if stands {
                of.overtaken = Some(vec![0; processes]);
            }
        }
    }

    fn send(&mut self, process: usize, effects: Vec<Effect>) {
        for effect in effects {
            let (node, what) = match effect {
                Effect::Send { node, step, ask: VoteRequest::Set { token, ttl_ms, .. } } => {
                    (node, What::Set(step, token, ttl_ms))
                }
                Effect::CleanUp { node, step, token, call, leave } => {
                    let leave = leave.map(|waiter_id| self.waiter(process, waiter_id));
                    (node, What::Delete(step, token, call, leave))
                }
                Effect::Enqueue { node, step, waiter_id, position } => {
                    let of = &mut self.processes[process];
                    of.waiter_id = Some(waiter_id);
                    if let RoundId::Enqueue(round) = step {
                        of.round = round;
                    }
                    (node, What::Enqueue(step, self.waiter(process, waiter_id), position))
                }
                Effect::Dequeue { node, waiter_id, call } => {
                    let of = &mut self.processes[process];
                    (of.waiter_id, of.overtaken) = (None, None);
                    // Replies that are still on their way do not matter.
                    of.numbers.clear();
                    of.round = u32::MAX;
                    (node, What::Dequeue(self.waiter(process, waiter_id), call))
                }
                Effect::Subscribe { .. } => {
                    for node in NodeId::all(self.sort.nodes) {
                        self.ask(process, node, What::Subscribe);
                    }
                    continue;
                }
                _ => continue,
            };
            self.ask(process, node, what);
        }
    }

    fn ask(&mut self, process: usize, node: NodeId, what: What) {
        let (node, acquire) = (node.index(), self.processes[process].acquires);
        let arrives = self.travels(process, node, true);
        self.put(arrives, Event::Arrived { process, acquire, node, what });
    }

    fn travels(&mut self, process: usize, node: usize, there: bool) -> Time {
        let slow = if there && process % self.sort.nodes == node { self.sort.slow } else { 0 };
        let way = Duration::from_micros(50 + slow + self.random.below(self.sort.latency));
        let latest = self.latest.entry((process, node, there)).or_insert(Time::ZERO);
        *latest = self.now.plus(way).max(*latest);
        *latest
    }

    fn put(&mut self, time: Time, event: Event) {
        self.numbers += 1;
        self.queue.insert((time, self.numbers), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrived { process, acquire, node, what } => {
                let Some(input) = self.execute(process, node, what) else { return };
                let arrives = self.travels(process, node, false);
                self.put(arrives, Event::QueueEvent { process, acquire: Some(acquire), input });
            }
            Event::QueueEvent { process, acquire, input } => {
                let of = &self.processes[process];
                if !of.dead && acquire.is_none_or(|acquire| acquire == of.acquires) {
                    self.note(process, &input);
                    self.drive(process, input);
                }
            }
        }
    }

    fn note(&mut self, process: usize, input: &Input) {
        let of = &mut self.processes[process];
        if let Input::Answered { node, step: RoundId::Enqueue(round), answer } = input
            && let Reply::Place { number, .. } = answer
            && *round == of.round
        {
            of.numbers.insert(node.index(), *number);
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.now.since(Time::ZERO).as_millis()).expect("it fits")
    }

    fn execute(&mut self, process: usize, at: usize, what: What) -> Option<Input> {
        let (now, millis, node) = (self.now, self.millis(), NodeId::new(at));
        let master = &mut self.masters[at];
        master.key = master.key.filter(|(_, expires)| *expires > now);
        let holder = master.key.map(|(token, expires)| {
            let left_ms = u64::try_from(expires.since(now).as_millis()).expect("it fits");
            Holder::Lease { token, left_ms }
        });
        let (step, answer) = match (what, holder) {
            (What::Set(step, token, ttl_ms), None) => {
                master.key = Some((token, now.plus(Duration::from_millis(ttl_ms))));
                (step, Reply::Created)
            }
            (What::Set(step, ..), Some(_)) => (step, Reply::Taken(Holder::NotAsked)),
            (What::Delete(step, token, call, leave), holder) => {
                let ours = master.key.is_some_and(|it| it.0 == token);
                leave.iter().for_each(|waiter| _ = master.queue.leave(*waiter));
                let others = holder.filter(|_| !ours);
                if ours {
                    master.key = None;
                }
                if call == WakeUp::First && others.is_none() {
                    self.wake_first(at, None);
                }
                let answer = if ours { Reply::Deleted } else { Reply::Absent };
                (step, others.map_or(answer, Reply::Taken))
            }
            (What::Enqueue(step, waiter, position), holder) => {
                master.queue.sweep(millis);
                let (number, mut ahead) = master.queue.enqueue(millis, waiter, position);
                if holder.is_none() && ahead > 0 && position != Position::Any {
                    self.wake_first(at, Some(waiter));
                    ahead = self.masters[at].queue.before(waiter);
                }
                (step, Reply::Place { number, ahead, holder })
            }
            (What::Dequeue(waiter, call), holder) => {
                master.queue.leave(waiter);
                if call && holder.is_none() {
                    self.wake_first(at, None);
                }
                return None;
            }
            (What::Subscribe, _) => {
                if !master.listeners.contains(&process) && !self.processes[process].dead {
                    master.listeners.push(process);
                }
                return Some(Input::QueueEvent { node, word: QueueEvent::Subscribed });
            }
        };
        Some(Input::Answered { node, step, answer })
    }

    /// The identity of a process on masters. Its number is its inbox, and 0 means no inbox.
    fn waiter(&self, process: usize, waiter_id: WaiterId) -> Waiter {
        let wakes = self.sort.wake_ups;
        Waiter { inbox: if wakes { process as u64 + 1 } else { 0 }, waiter_id }
    }

    fn wake_first(&mut self, at: usize, asker: Option<Waiter>) {
        let millis = self.millis();
        let master = &mut self.masters[at];
        let mut woken = None;
        master.queue.wake(millis, asker, true, |first| {
            let process = usize::try_from(first.inbox).expect("it fits") - 1;
            let reaches = master.listeners.contains(&process);
            woken = reaches.then_some((process, first.waiter_id));
            reaches
        });
        if let Some((process, waiter_id)) = woken
            && self.random.below(100) >= self.sort.lost
        {
            let arrives = self.travels(process, at, false);
            let input =
                Input::QueueEvent { node: NodeId::new(at), word: QueueEvent::Free(waiter_id) };
            self.put(arrives, Event::QueueEvent { process, acquire: None, input });
        }
    }
}

impl Process {
    fn next_wake(&self) -> Time {
        match &self.claim {
            _ if self.dead => Time::NEVER,
            None if self.left == 0 => Time::NEVER,
            None => self.next,
            Some(claim) => claim.next_wake().min(self.next),
        }
    }
}
