//! A small world for callers that request several resources: masters that keep keys, and messages
//! that take time. Between a caller and a master they arrive in the order in which they were sent,
//! as over a link.

use std::collections::BTreeMap;
use std::time::Duration;

use redquorum_protocol::{
    Claim, Drift, Effect, Failure, Holder, Input, LockConfig, MemberAction, MemberEvent, MultiLock,
    NodeId, Reply, RoundId, TOKEN_LEN, Time, Token, VoteRequest,
};

use crate::chance::Random;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const NODES: usize = 3;
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(20);
pub(crate) const TTL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Trying,
    /// Held since the first time, with the second one as its deadline.
    Held(Time, Time),
    Refused(Time, usize, Failure),
    Gone,
}

pub(crate) struct Caller {
    several: MultiLock,
    /// The keys of its members, in the caller's order.
    keys: Vec<usize>,
    claims: Vec<Option<(u64, Claim)>>,
    pub(crate) fate: Fate,
    terms: LockConfig,
}

enum Event {
    /// A reply reaches a claim: its caller, its member, its number.
    Answered(usize, usize, u64, Input),
    /// A message from a caller reaches a master.
    Arrived(usize, usize, Sent),
}

struct Sent {
    member: usize,
    claim: u64,
    step: RoundId,
    key: usize,
    what: What,
}

enum What {
    Set(Token, u64),
    Delete(Token),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) random: Random,
    pub(crate) callers: Vec<Caller>,
    /// The keys of each master: token and expiry.
    pub(crate) keys: Vec<BTreeMap<usize, (Token, Time)>>,
    pub(crate) stopped: [Time; NODES],
    /// The arrival of the latest message from a caller to a master.
    latest: BTreeMap<(usize, usize), Time>,
    queue: BTreeMap<(Time, u64), Event>,
    numbers: u64,
    /// The start of each claim: time, caller, member.
    pub(crate) sets: Vec<(Time, usize, usize)>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            random: Random(seed),
            callers: Vec::new(),
            keys: vec![BTreeMap::new(); NODES],
            stopped: [Time::ZERO; NODES],
            latest: BTreeMap::new(),
            queue: BTreeMap::new(),
            numbers: 0,
            sets: Vec::new(),
        }
    }

    /// Adds a caller that requests `keys`, in this order, and waits for up to `wait`.
    pub(crate) fn ask(&mut self, keys: &[usize], wait: Duration) -> usize {
        let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).expect("they fit");
        self.ask_on(terms, keys, wait)
    }

    pub(crate) fn ask_on(&mut self, terms: LockConfig, keys: &[usize], wait: Duration) -> usize {
        let mut orders = Vec::new();
        let several = MultiLock::start(self.now, keys.len(), wait, &mut orders);
        let number = self.callers.len();
        self.callers.push(Caller {
            several,
            keys: keys.to_vec(),
            claims: vec![None; keys.len()],
            fate: Fate::Trying,
            terms,
        });
        self.carry_out(number, orders);
        number
    }

    /// Lets another client hold a key on every master for `length`.
    pub(crate) fn occupy(&mut self, key: usize, length: Duration) {
        let held = (Token::new([255; TOKEN_LEN]), self.now.plus(length));
        for keys in &mut self.keys {
            keys.insert(key, held);
        }
    }

    /// Ends the caller's request, or releases its leases.
    pub(crate) fn leave(&mut self, caller: usize) {
        let mut orders = Vec::new();
        let of = &mut self.callers[caller];
        of.several.handle(self.now, MemberEvent::Abandon, &mut self.random, &mut orders);
        let held = matches!(of.fate, Fate::Held(..));
        of.fate = Fate::Gone;
        self.carry_out(caller, orders);
        if held {
            let members = self.callers[caller].claims.len();
            (0..members).for_each(|member| self.drive(caller, member, Input::Release));
        }
    }

    fn carry_out(&mut self, caller: usize, orders: Vec<MemberAction>) {
        for order in orders {
            match order {
                MemberAction::Try { member, policy } => {
                    let mut out = Vec::new();
                    let terms = self.callers[caller].terms;
                    let claim = Claim::acquire(self.now, terms, policy, &mut self.random, &mut out);
                    self.numbers += 1;
                    self.sets.push((self.now, caller, member));
                    self.callers[caller].claims[member] = Some((self.numbers, claim));
                    self.send(caller, member, out);
                }
                MemberAction::Undo { member } => {
                    // Releases a collected member: no work has begun under it.
                    self.drive(caller, member, Input::Release);
                    if let Some((_, Claim::Acquiring(_))) = &self.callers[caller].claims[member] {
                        self.drive(caller, member, Input::Abandon);
                    }
                }
                _ => {}
            }
        }
    }

    fn drive(&mut self, caller: usize, member: usize, input: Input) {
        let mut out = Vec::new();
        let Some((_, claim)) = &mut self.callers[caller].claims[member] else { return };
        claim.handle(self.now, input, &mut self.random, &mut out);
        self.send(caller, member, out);
    }

    fn send(&mut self, caller: usize, member: usize, effects: Vec<Effect>) {
        let of = &self.callers[caller];
        let Some((claim, _)) = of.claims[member] else { return };
        let key = of.keys[member];
        for effect in effects {
            let (node, step, what) = match effect {
                Effect::Send { node, step, ask: VoteRequest::Set { token, ttl_ms, .. } } => {
                    (node, step, What::Set(token, ttl_ms))
                }
                Effect::CleanUp { node, step, token, .. } => (node, step, What::Delete(token)),
                _ => continue,
            };
            let latency = Duration::from_micros(100 + self.random.below(3_000));
            let latest = self.latest.entry((caller, node.index())).or_insert(Time::ZERO);
            *latest = self.now.plus(latency).max(*latest);
            let (arrives, sent) = (*latest, Sent { member, claim, step, key, what });
            self.enter(arrives, Event::Arrived(caller, node.index(), sent));
        }
    }

    fn enter(&mut self, time: Time, event: Event) {
        self.numbers += 1;
        self.queue.insert((time, self.numbers), event);
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            (0..self.callers.len()).for_each(|caller| self.attend(caller));
            let event = self.queue.keys().next().map_or(Time::NEVER, |(time, _)| *time);
            let wake = self.next_wake();
            let next = event.min(wake);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if event <= wake {
                let (_, event) = self.queue.pop_first().expect("seen above");
                self.happen(event);
            } else {
                self.wake();
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrived(caller, node, sent) if self.now < self.stopped[node] => {
                // The message waits in the socket, behind all earlier ones.
                let resumed = self.stopped[node];
                self.enter(resumed, Event::Arrived(caller, node, sent));
            }
            Event::Arrived(caller, node, sent) => {
                let answer = self.execute(node, &sent);
                let latency = Duration::from_micros(100 + self.random.below(3_000));
                let input = Input::Answered { node: NodeId::new(node), step: sent.step, answer };
                let back = Event::Answered(caller, sent.member, sent.claim, input);
                self.enter(self.now.plus(latency), back);
            }
            Event::Answered(caller, member, number, input) => {
                let now = &self.callers[caller].claims[member];
                if now.as_ref().is_some_and(|(known, _)| *known == number) {
                    self.drive(caller, member, input);
                }
            }
        }
    }

    fn execute(&mut self, node: usize, sent: &Sent) -> Reply {
        let now = self.now;
        let keys = &mut self.keys[node];
        if keys.get(&sent.key).is_some_and(|(_, expires)| *expires <= now) {
            keys.remove(&sent.key);
        }
        let there = keys.get(&sent.key).copied();
        match (&sent.what, there) {
            (What::Set(token, ttl_ms), None) => {
                let expires = now.plus(Duration::from_millis(*ttl_ms));
                keys.insert(sent.key, (*token, expires));
                Reply::Created
            }
            (What::Set(..), Some(_)) => Reply::Taken(Holder::NotAsked),
            (What::Delete(token), Some((held, _))) if held == *token => {
                keys.remove(&sent.key);
                Reply::Deleted
            }
            (What::Delete(_), Some((token, expires))) => {
                let left_ms = u64::try_from(expires.since(now).as_millis()).expect("it fits");
                Reply::Taken(Holder::Lease { token, left_ms })
            }
            (What::Delete(_), None) => Reply::Absent,
        }
    }

    fn next_wake(&self) -> Time {
        let of = |caller: &Caller| {
            let claims = caller.claims.iter().flatten().map(|(_, claim)| claim.next_wake());
            claims.chain([caller.several.next_wake()]).min()
        };
        self.callers.iter().filter_map(of).min().unwrap_or(Time::NEVER)
    }

    fn wake(&mut self) {
        for caller in 0..self.callers.len() {
            for member in 0..self.callers[caller].claims.len() {
                let claim = &self.callers[caller].claims[member];
                if claim.as_ref().is_some_and(|(_, claim)| claim.next_wake() <= self.now) {
                    self.drive(caller, member, Input::Wake);
                }
            }
            if self.callers[caller].several.next_wake() <= self.now {
                self.tell(caller, MemberEvent::Wake);
            }
        }
    }

    fn tell(&mut self, caller: usize, told: MemberEvent) {
        let mut orders = Vec::new();
        self.callers[caller].several.handle(self.now, told, &mut self.random, &mut orders);
        self.carry_out(caller, orders);
    }

    /// Reports the results of a caller's claims to its machine.
    fn attend(&mut self, caller: usize) {
        if self.callers[caller].fate != Fate::Trying {
            return;
        }
        for member in 0..self.callers[caller].claims.len() {
            let told = match &self.callers[caller].claims[member] {
                Some((_, Claim::Acquiring(acquire))) => match acquire.failure() {
                    Some(why) => MemberEvent::Failed { member, why },
                    None if acquire.is_won() => {
                        MemberEvent::Won { member, deadline: acquire.deadline() }
                    }
                    None => continue,
                },
                _ => continue,
            };
            self.tell(caller, told);
        }
        if let Some((member, why)) = self.callers[caller].several.failure() {
            self.callers[caller].fate = Fate::Refused(self.now, member, why);
        } else if self.callers[caller].several.is_won() {
            self.collect(caller);
        }
    }

    fn collect(&mut self, caller: usize) {
        for member in 0..self.callers[caller].claims.len() {
            self.drive(caller, member, Input::Collect);
            match &self.callers[caller].claims[member] {
                Some((_, Claim::Holding(_))) => {}
                _ => {
                    return self.tell(caller, MemberEvent::Failed { member, why: Failure::TooLate });
                }
            }
        }
        self.tell(caller, MemberEvent::Collect);
        let of = &mut self.callers[caller];
        if of.several.is_held() {
            let deadlines = of.claims.iter().map(|claim| match claim {
                Some((_, Claim::Holding(hold))) => hold.deadline(),
                _ => unreachable!("all are collected"),
            });
            let earliest = deadlines.min().expect("there are some");
            assert_eq!(of.several.deadline(), Some(earliest));
            assert!(self.now < earliest, "an expired lease was handed out");
            of.fate = Fate::Held(self.now, earliest);
        }
    }

    /// The callers with valid leases now.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let holds = |caller: &&usize| match self.callers[**caller].fate {
            Fate::Held(_, deadline) => self.now < deadline,
            _ => false,
        };
        let all: Vec<usize> = (0..self.callers.len()).collect();
        all.iter().filter(holds).copied().collect()
    }

    pub(crate) fn keys_of(&self, caller: usize) -> &[usize] {
        &self.callers[caller].keys
    }

    pub(crate) fn rounds(&self, caller: usize) -> u32 {
        self.callers[caller].several.rounds()
    }

    /// The number of keys that have not expired.
    pub(crate) fn left(&self) -> usize {
        let alive = |(_, expires): &&(Token, Time)| *expires > self.now;
        self.keys.iter().map(|keys| keys.values().filter(alive).count()).sum()
    }
}
