//! A client process as a machine: it speaks the client protocol, drives the shipped claims and links,
//! and says what it wants done. It reads no clock and opens no socket.
//!
//! It is what the Tokio shell and the built-in client are together, without Tokio: the simulation has
//! them in virtual time, and `shell.rs` drives one on real masters. Every claim goes through the
//! adapter that lies, which for the honest [`Lie::None`] passes everything on as it is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(unix, feature = "real"))]
use redquorum_protocol::wire::Expect;
use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Answer as Vote, Bounds, Claim, Dice, Drift, Effect, Fingerprint, Guard, Input, Key, Link,
    LinkEffect, LinkInput, NodeId, Roster, RunId, Step, Terms, Ticket, Time, Token, Turn, Word,
};

use self::again::Wanted;
use super::lease::{Lease, Whose};
use super::numbers::Numbers;
use super::rooms::{Rooms, Seat};
use super::several::{Group, Parting};
use super::{Clocks, Lie};
use crate::name::Name;
use crate::talk::{Answer, FENCING_MEMORY, Notice, Op, Options, Request, Why};

pub(super) mod again;
mod turns;

/// What a link gets back with an answer: the number of the claim, and what was asked.
type Tag = (u64, Step);

/// What happens to a process.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The harness said something.
    Asked(Request),
    /// A connection was greeted.
    Connected { node: usize, epoch: u64, greeting: Greeting },
    /// A connection did not come up, or broke.
    Closed { node: usize, epoch: u64, why: Arc<str>, random: u64 },
    /// A master answered the oldest unanswered command of a connection.
    Answered { node: usize, epoch: u64, answer: Vote },
    /// A master said unasked that a resource became free there.
    Freed { node: usize, epoch: u64, key: Key, next: Option<Ticket> },
    /// The time that it asked for has come.
    Wake,
}

/// What a process wants.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Tell the harness.
    Answer(Answer),
    /// Tell the harness unasked.
    Notice(Notice),
    /// Write this to a connection.
    Write { node: usize, epoch: u64, command: Command },
    /// Open a connection.
    Dial { node: usize, epoch: u64 },
    /// Reset a connection, or give up a try.
    Close { node: usize, epoch: u64 },
    /// Reset a connection that came up and must not vote, and say that it is closed.
    Refuse { node: usize, epoch: u64, why: Arc<str> },
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(super) lie: Lie,
    options: Options,
    links: Vec<Link<Tag>>,
    /// Which server each of them leads to.
    roster: Roster,
    /// When each of them wants to be woken.
    wakes: Vec<Time>,
    /// By the numbers of their claims, which grow.
    pub(super) leases: Vec<(u64, Lease)>,
    /// Who holds what, by the number of the claim.
    pub(super) held: Vec<(Whose, u64)>,
    pub(super) rooms: Rooms,
    /// Requests for several resources, under way.
    pub(super) groups: Vec<Group>,
    /// Requests that give several back.
    pub(super) partings: Vec<Parting>,
    /// The number of the latest claim that belongs to a group.
    pub(super) grouped: u64,
    /// One token for each client, of which its others are made if it has but one.
    roots: Vec<(Name, Token)>,
    /// What masters said of their counters to a client, if that is counted again.
    numbers: Vec<(Whose, Numbers)>,
    /// Answers that claims are yet to be told. Never told at once: a claim that fails in the middle of
    /// its own effects would have its clean-up written before its last SET.
    told: VecDeque<(u64, Input)>,
    /// For reuse.
    effects: Vec<Effect>,
    link_effects: Vec<LinkEffect<Tag>>,
}

/// What surrounds one input: the clocks, randomness, and where the wishes go.
pub(crate) struct Around<'a> {
    pub(crate) clocks: Clocks,
    pub(crate) dice: &'a mut dyn Dice,
    pub(crate) out: &'a mut Vec<Wish>,
}

impl Around<'_> {
    pub(crate) fn stamp(&self) -> i64 {
        i64::try_from(self.clocks.monotonic.as_nanos()).unwrap_or(i64::MAX)
    }

    pub(crate) fn answer(
        &mut self,
        (id, from): (u64, i64),
        result: Result<(), Why>,
        more: impl FnOnce(&mut Answer),
    ) {
        let mut answer = Answer {
            id,
            ok: result.is_ok(),
            from_ns: Some(from),
            at_ns: Some(self.stamp()),
            why: result.err(),
            ..Answer::default()
        };
        more(&mut answer);
        self.out.push(Wish::Answer(answer));
    }

    fn done(&mut self, id: u64) {
        self.answer((id, self.stamp()), Ok(()), |_| ());
    }

    pub(crate) fn refuse(&mut self, id: u64, why: Why) {
        self.answer((id, self.stamp()), Err(why), |_| ());
    }
}

impl Process {
    /// Starts, and dials all masters.
    pub(crate) fn start(options: Options, nodes: usize, lie: Lie, around: &mut Around<'_>) -> Self {
        let options = Options { fair: options.fair && lie != Lie::JumpsQueue, ..options };
        let mut process = Self {
            lie,
            options,
            links: Vec::with_capacity(nodes),
            roster: Roster::new(nodes),
            wakes: vec![Time::NEVER; nodes],
            leases: Vec::new(),
            held: Vec::new(),
            rooms: Rooms::default(),
            groups: Vec::new(),
            partings: Vec::new(),
            grouped: 0,
            roots: Vec::new(),
            numbers: Vec::new(),
            told: VecDeque::new(),
            effects: Vec::new(),
            link_effects: Vec::new(),
        };
        let bounds = Bounds::for_node_timeout(process.node_timeout());
        // Drawn only where it is needed: without a guard nothing else shall come by another chance.
        let guard = process.guard(|| {
            let token = around.dice.token();
            let (salt, _) = token.as_bytes().split_first_chunk().expect("a token has 20 bytes");
            u64::from_le_bytes(*salt)
        });
        for node in 0..nodes {
            let mut effects = Vec::new();
            process.links.push(Link::start(bounds, &mut effects).guarded_by(guard));
            process.carry_out(node, &mut effects, around);
        }
        process
    }

    /// Whether its options fit each other.
    ///
    /// # Errors
    /// The first that does not.
    #[cfg(all(unix, feature = "real"))]
    pub(crate) fn fits(&self) -> Result<(), redquorum_protocol::BadOption> {
        self.terms(self.options.ttl_ms).map(drop)
    }

    /// Whether it distrusts masters that may have forgotten.
    #[cfg(all(unix, feature = "real"))]
    pub(crate) const fn is_guarded(&self) -> bool {
        self.options.guard_ms.is_some()
    }

    /// Whether every master was tried.
    pub(crate) fn is_ready(&self) -> bool {
        !self.links.iter().any(Link::is_first_dial)
    }

    /// How the next answer of a master is to be read.
    #[cfg(all(unix, feature = "real"))]
    pub(crate) fn expects(&self, node: usize) -> Option<Expect> {
        self.links[node].oldest().map(|(expect, _)| expect)
    }

    /// Whether a connection with this number is still wanted.
    #[cfg(all(unix, feature = "real"))]
    pub(crate) fn awaits(&self, node: usize, epoch: u64) -> bool {
        self.links[node].awaits(epoch)
    }

    /// When to say [`Happening::Wake`], by the monotonic clock.
    pub(crate) fn next_wake(&self, clocks: Clocks) -> Time {
        let links = self.wakes.iter().copied().min().unwrap_or(Time::NEVER);
        let links = links.min(self.rooms.next_wake());
        let sleeps = self.leases.iter().filter_map(|(_, lease)| lease.claim.sleeps(clocks)).min();
        let groups = self.groups_wake(clocks);
        sleeps.map_or(links, |sleep| links.min(clocks.monotonic.plus(sleep))).min(groups)
    }

    /// Takes in what happens, and says what it wants.
    pub(crate) fn handle(&mut self, happening: Happening, around: &mut Around<'_>) {
        match happening {
            Happening::Asked(request) => self.request(request, around),
            Happening::Connected { node, epoch, greeting } => {
                if !self.links[node].awaits(epoch) {
                    // The link has changed its mind.
                } else if let Some(why) = self.is_twin(node, greeting.run_id.as_ref()) {
                    around.out.push(Wish::Refuse { node, epoch, why });
                } else {
                    self.link(node, LinkInput::Connected { epoch, greeting }, around);
                }
            }
            Happening::Closed { node, epoch, why, random } => {
                // As in the library: a try that failed, and no connection besides.
                if self.links[node].awaits(epoch) && self.links[node].epoch().is_none() {
                    self.roster.leave(NodeId::new(node));
                }
                self.link(node, LinkInput::Closed { epoch, why, random }, around);
            }
            Happening::Answered { node, epoch, answer } => {
                self.link(node, LinkInput::Answered { epoch, answer }, around);
            }
            Happening::Freed { node, epoch, key, next } => {
                self.link(node, LinkInput::Freed { epoch, key, next }, around);
            }
            Happening::Wake => self.wake(around),
        }
        while let Some((number, input)) = self.told.pop_front() {
            self.drive(number, input, around);
        }
    }

    /// Why a new connection must not vote, if it must not: it leads to a server that votes already.
    fn is_twin(&mut self, node: usize, run_id: Option<&RunId>) -> Option<Arc<str>> {
        if self.lie == Lie::ServerTwice {
            return None;
        }
        let twin = self.roster.enter(NodeId::new(node), run_id?).err()?;
        Some(format!("it is the same server as {twin}, and one server must not vote twice").into())
    }

    fn wake(&mut self, around: &mut Around<'_>) {
        let now = around.clocks.monotonic;
        for node in 0..self.links.len() {
            if self.wakes[node] <= now {
                self.link(node, LinkInput::Wake, around);
            }
        }
        let due = |lease: &Lease| lease.claim.sleeps(around.clocks) == Some(Duration::ZERO);
        let due: Vec<u64> =
            self.leases.iter().filter(|(_, lease)| due(lease)).map(|(number, _)| *number).collect();
        for number in due {
            self.drive(number, Input::Wake, around);
        }
        // One attempt without a turn.
        while let Some((key, seat)) = self.rooms.take(|seat| seat.give_up <= now) {
            self.begin(&key, Seat { give_up: now, ..seat }, Turn::First, around);
        }
        self.wake_groups(around);
    }

    fn link(&mut self, node: usize, input: LinkInput<Tag>, around: &mut Around<'_>) {
        let mut effects = std::mem::take(&mut self.link_effects);
        self.links[node].handle(around.clocks.monotonic, input, &mut effects);
        self.wakes[node] = self.links[node].next_wake();
        self.carry_out(node, &mut effects, around);
        self.link_effects = effects;
    }

    fn carry_out(
        &mut self,
        node: usize,
        effects: &mut Vec<LinkEffect<Tag>>,
        around: &mut Around<'_>,
    ) {
        for effect in effects.drain(..) {
            match effect {
                LinkEffect::Write(command) => {
                    if let Some(epoch) = self.links[node].epoch() {
                        around.out.push(Wish::Write { node, epoch, command });
                    }
                }
                LinkEffect::Dial(epoch) => around.out.push(Wish::Dial { node, epoch }),
                LinkEffect::Close(epoch) => around.out.push(Wish::Close { node, epoch }),
                LinkEffect::Tell((number, step), answer) => {
                    let node = NodeId::new(node);
                    self.told.push_back((number, Input::Answered { node, step, answer }));
                }
                LinkEffect::Hear(key, Word::Others(others)) => self.rooms.others(&key, others),
                LinkEffect::Hear(key, word) => {
                    let node = NodeId::new(node);
                    let waits = |lease: &Lease| lease.key == key && lease.is_waiting();
                    let waiting = self.leases.iter().filter(|(_, lease)| waits(lease));
                    let heard = waiting.map(|(number, _)| (*number, Input::Heard { node, word }));
                    self.told.extend(heard);
                }
                other => unreachable!("an effect that this process does not know: {other:?}"),
            }
        }
    }

    /// Gives a claim one input, carries out what it says, and tells what came of it.
    pub(super) fn drive(&mut self, number: u64, input: Input, around: &mut Around<'_>) {
        self.advance(number, input, around);
        self.attend(number, around);
    }

    /// Gives a claim one input and carries out what it says.
    pub(super) fn advance(&mut self, number: u64, input: Input, around: &mut Around<'_>) {
        let mut effects = std::mem::take(&mut self.effects);
        let Some(lease) = self.lease(number) else { return };
        lease.claim.handle(around.clocks, input, around.dice, &mut effects);
        let key = lease.key.clone();
        self.send(number, &key, &mut effects, around);
        self.effects = effects;
    }

    fn send(&mut self, number: u64, key: &Key, effects: &mut Vec<Effect>, around: &mut Around<'_>) {
        for effect in effects.drain(..) {
            let key = key.clone();
            match effect {
                Effect::Send { node, step, ask } => {
                    let input = LinkInput::Send { key, ask, tag: (number, step) };
                    self.link(node.index(), input, around);
                }
                Effect::Settle { node, step, token, call } => {
                    let input = LinkInput::Settle { key, token, call, tag: (number, step) };
                    self.link(node.index(), input, around);
                }
                Effect::Leave { node, token, until } => {
                    self.link(node.index(), LinkInput::Leave { token, until }, around);
                }
                Effect::Stand { node, step, ticket, number: place } => {
                    let tag = (number, step);
                    let input = LinkInput::Stand { key, ticket, number: place, tag };
                    self.link(node.index(), input, around);
                }
                Effect::StepOut { node, ticket, call } => {
                    let input = LinkInput::StepOut { key, ticket, call };
                    self.link(node.index(), input, around);
                }
                Effect::Listen => {
                    self.rooms.listen(&key);
                    for node in 0..self.links.len() {
                        self.link(node, LinkInput::Listen(key.clone()), around);
                    }
                }
                // Whoever waits for the claim looks at it after every input.
                _ => {}
            }
        }
    }

    fn request(&mut self, Request { id, client, op }: Request, around: &mut Around<'_>) {
        match op {
            Op::Acquire { resource, ttl_ms, wait_ms, again } => {
                let (whose, wanted) = ((client, resource), Wanted { ttl_ms, wait_ms });
                if !(again && self.reenter(id, &whose, wanted, around)) {
                    self.acquire(id, whose, wanted, around);
                }
            }
            Op::AcquireAll { resources, ttl_ms, wait_ms } => {
                self.acquire_all(id, (client, resources), ttl_ms, wait_ms, around);
            }
            Op::ReleaseAll { resources } => self.release_all(id, &client, resources, around),
            Op::Extend { resource, ttl_ms } => self.extend(id, (client, resource), ttl_ms, around),
            Op::KeepAlive { resource, max_ms } => {
                let Some(number) = self.find(id, &(client, resource), around) else { return };
                let most = Duration::from_millis(max_ms);
                self.advance(number, Input::KeepAlive(most), around);
                if let Some(lease) = self.lease(number) {
                    lease.watch();
                }
                around.done(id);
                self.attend(number, around);
            }
            Op::Release { resource } => {
                let whose = (client, resource);
                let Some(number) = self.find(id, &whose, around) else { return };
                if self.count_down(id, number, around) {
                    return;
                }
                self.held.retain(|(held, _)| *held != whose);
                if let Some(lease) = self.lease(number) {
                    lease.release(id, around);
                }
                self.give_back(number, Input::Release, around);
                self.attend(number, around);
            }
            Op::Cancel { request } => {
                around.done(id);
                self.cancel_group(request, around);
                let found = self.leases.iter().find(|(_, lease)| lease.is_acquiring(request));
                if let Some(number) = found.map(|(number, _)| *number) {
                    self.advance(number, Input::Abandon, around);
                    self.end(number, around);
                    around.refuse(request, Why::Cancelled);
                } else if self.rooms.take(|seat| seat.number == request).is_some() {
                    around.refuse(request, Why::Cancelled);
                } else {
                    self.cancel_prolonging(request, around);
                }
            }
            Op::Step { check: None, .. } => around.done(id),
            Op::Step { check: Some(resource), .. } => {
                let Some(number) = self.find(id, &(client, resource), around) else { return };
                let held = self.lease(number).is_some_and(|lease| lease.is_held(around.clocks));
                if held { around.done(id) } else { around.refuse(id, Why::Lost) }
            }
        }
    }

    /// The claim that holds, or held, this; without one the request is refused.
    pub(super) fn find(&self, id: u64, whose: &Whose, around: &mut Around<'_>) -> Option<u64> {
        let number = self.held.iter().find(|(held, _)| held == whose).map(|(_, number)| *number);
        if number.is_none() {
            around.refuse(id, Why::Lost);
        }
        number
    }

    fn acquire(&mut self, id: u64, whose: Whose, wanted: Wanted, around: &mut Around<'_>) {
        let Wanted { ttl_ms, wait_ms } = wanted;
        let ttl_ms = if ttl_ms == 0 { self.options.ttl_ms } else { ttl_ms };
        let Ok(terms) = self.terms(ttl_ms) else { return around.refuse(id, Why::Error) };
        let key: Key = Arc::from(whose.1.as_bytes());
        let give_up = around.clocks.monotonic.plus(Duration::from_millis(wait_ms));
        // Requests are numbered by the harness, so a claim can have the number of its own.
        let seat = Seat { number: id, whose, terms, give_up, from: around.stamp() };
        // Who does not wait needs no turn.
        let seat = if wait_ms == 0 { Some(seat) } else { self.rooms.join(&key, seat) };
        if let Some(seat) = seat {
            self.begin(&key, seat, Turn::First, around);
        }
    }

    fn extend(&mut self, id: u64, whose: Whose, ttl_ms: u64, around: &mut Around<'_>) {
        let Some(number) = self.find(id, &whose, around) else { return };
        let Ok(terms) = self.terms(ttl_ms) else { return around.refuse(id, Why::Error) };
        let from = around.stamp();
        if self.lease(number).is_some_and(|lease| lease.is_extending()) {
            return around.refuse(id, Why::Error);
        }
        self.advance(number, Input::Extend(terms), around);
        if let Some(lease) = self.lease(number) {
            lease.extend((id, from));
        }
        self.attend(number, around);
    }

    /// Tells what came of a claim, to whoever waits for it.
    pub(super) fn attend(&mut self, number: u64, around: &mut Around<'_>) {
        if self.attend_group(number, around) {
            return;
        }
        let Some(lease) = self.lease(number) else { return };
        match lease.claim.claim() {
            Claim::Acquiring(acquire) if acquire.is_won() => {
                self.drive(number, Input::Collect, around);
            }
            Claim::Acquiring(acquire) => {
                if let Some(why) = acquire.failure() {
                    lease.fail(why, around);
                    self.end(number, around);
                }
            }
            Claim::Holding(hold) => {
                let lost = hold.lost().is_some().then(|| lease.key.clone());
                let Some(lease) = self.lease(number) else { return };
                let granted = lease.hold(around);
                let refused = lease.not_prolonged.take();
                if granted {
                    self.granted(number, around);
                }
                if let Some(refused) = refused {
                    self.not_prolonged(number, refused, around);
                }
                if let Some(key) = lost {
                    self.vacate(&key, number, around);
                }
            }
            Claim::Releasing(release) => {
                if let Some(outcome) = release.outcome() {
                    lease.released(outcome, around);
                    self.end(number, around);
                    self.parted(number, outcome, around);
                }
            }
            Claim::Ended => self.end(number, around),
        }
    }

    /// A claim was collected: its client holds what it asked for.
    pub(super) fn granted(&mut self, number: u64, around: &mut Around<'_>) {
        let Some(lease) = self.lease(number) else { return };
        let whose = lease.whose.clone();
        if let Some(numbers) = lease.claim.numbers().cloned() {
            self.numbers.retain(|(known, _)| *known != whose);
            self.numbers.push((whose.clone(), numbers));
        }
        self.replace(whose, number, around);
    }

    /// A lease that was lost and never released gives way to its client's next one.
    fn replace(&mut self, whose: Whose, number: u64, around: &mut Around<'_>) {
        let old = self.held.iter_mut().find(|(held, _)| *held == whose);
        match old {
            Some((_, of)) => {
                let old = std::mem::replace(of, number);
                // Once for each of its handles.
                for _ in 0..self.lease(old).map_or(0, |lease| lease.handles()) {
                    self.give_back(old, Input::Abandon, around);
                }
                self.end(old, around);
            }
            None => self.held.push((whose, number)),
        }
    }

    pub(super) fn lease(&mut self, number: u64) -> Option<&mut Lease> {
        let place = self.leases.iter().position(|(known, _)| *known == number)?;
        Some(&mut self.leases[place].1)
    }

    pub(super) fn end(&mut self, number: u64, around: &mut Around<'_>) {
        let place = self.leases.iter().position(|(known, _)| *known == number);
        if let Some(place) = place {
            let (_, lease) = self.leases.remove(place);
            self.vacate(&lease.key, number, around);
        }
    }

    fn node_timeout(&self) -> Duration {
        Duration::from_millis(self.options.node_timeout_ms)
    }

    /// How masters that may have forgotten are distrusted.
    fn guard(&self, salt: impl FnOnce() -> u64) -> Option<Guard> {
        let max_ttl = Duration::from_millis(self.options.guard_ms?);
        let fixed = Duration::from_millis(self.options.drift_ms);
        // One that is too long is told with the terms of the first request.
        let drift = Drift { ppm: self.options.drift_ppm, fixed };
        let guard = Guard::new(max_ttl, drift, salt()).ok()?;
        let guard = match self.options.clock_guard_ms.map(Duration::from_millis) {
            Some(bound) => guard.with_clock_bound(bound).ok()?,
            None => guard,
        };
        Some(match &self.options.fleet {
            Some(name) => guard.over(Fingerprint::of_name(name)),
            None => guard,
        })
    }

    /// The terms of a request.
    pub(super) fn terms(&self, ttl_ms: u64) -> Result<Terms, redquorum_protocol::BadOption> {
        let fixed = Duration::from_millis(self.options.drift_ms);
        let drift = self.lie.drift(Drift { ppm: self.options.drift_ppm, fixed });
        let ttl = Duration::from_millis(ttl_ms);
        let terms = Terms::new(self.links.len(), ttl, drift, self.node_timeout())?;
        let terms = terms.with_grace(Duration::from_millis(self.options.grace_ms))?;
        let terms = match self.guard(|| 0) {
            Some(guard) => terms
                .with_max_ttl(guard.max_ttl())?
                .with_clock_bound(guard.clock_bound().unwrap_or_default())?,
            None => terms,
        };
        if self.options.fencing { terms.with_fencing(FENCING_MEMORY) } else { Ok(terms) }
    }

    fn root(&mut self, client: &Name, around: &mut Around<'_>) -> Token {
        if let Some((_, root)) = self.roots.iter().find(|(known, _)| known == client) {
            return *root;
        }
        // Drawn only for the lie that needs it: the honest client draws what the library draws.
        let root = if self.lie == Lie::OneToken {
            around.dice.token()
        } else {
            Token::new([0; redquorum_protocol::TOKEN_LEN])
        };
        self.roots.push((client.clone(), root));
        root
    }
}
