//! The state of a run in virtual time: the pending events, the masters and the client processes.
//! `wires.rs` moves messages, and `faults.rs` carries out faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::rng::{Latency, LinkRng, ProcessRng, Seed, Stream};
use super::rules::Rules;
use super::wires::{Texts, WireId, Wires};
use super::{EPOCH, LONGEST, PIPE, SimulatedProcess, TICK};
use crate::client_machine::{Clocks, InputContext, ProcessEffect, ProcessEvent};
use crate::orchestrator::{Input, Orchestrator, Order};
use redquorum_protocol::Time;
use redquorum_protocol::wire::BOOT;
use redquorum_redis_model::{self as server, Connection, Server};
use redquorum_scenario::client_protocol::{Options, Request};
use redquorum_scenario::history::{Header, History, Ns, Phase};
use redquorum_scenario::name::Name;
use redquorum_scenario::wall::WallClock;
use redquorum_scenario::{Mutant, Scenario};

/// Virtual nanoseconds since the start of the simulation.
pub(super) type Instant = u64;

/// A pending event.
#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    /// A request arrives in the master's socket buffer.
    AtMaster(WireId),
    /// A resumed master serves this connection.
    Serve(usize, Connection),
    /// The close of the client's end of a connection reaches the master.
    Hangup(WireId),
    /// A reply reaches the client.
    AtClient(WireId),
    /// The close of the master's end of a connection reaches the client.
    Ended(WireId, &'static str),
    /// A connection attempt reaches the master.
    Connect(WireId),
    /// A connection attempt times out.
    GiveUp(WireId),
    /// The oldest pending request of the harness reaches a process.
    AtProcess(usize),
    /// A process wakes up.
    Wake(usize),
    /// The oldest pending message of the processes reaches the orchestrator.
    Tell,
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// The orchestrator wakes up.
    Direct,
    /// The harness has carried out an order.
    Do(Box<Order>),
    /// Masters that were killed are up again: for a fault that strikes, or for one that is healed.
    Up(Box<Up>),
    /// The masters look for expired keys.
    Tick,
}

/// Masters that were killed and are starting.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub(super) fault: usize,
    pub(super) nodes: Vec<usize>,
    pub(super) since: Instant,
    pub(super) healed: bool,
}

/// A master and its wall clock.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) server: Server,
    pub(super) clock: WallClock,
    /// The state of its replica while that lags, and since when it lags.
    pub(super) lags: Option<(server::Replica, Instant)>,
    /// Whether its replica has taken over.
    pub(super) failed_over: bool,
    /// When the master last synced its file.
    pub(super) synced: Instant,
    /// The wire at the other end of each of its connections.
    pub(super) wires: BTreeMap<Connection, WireId>,
    /// Random order in which it serves its connections after a resume.
    pub(super) order: Stream,
}

/// A client process.
#[derive(Clone, Debug)]
pub(super) struct Actor<P> {
    pub(super) name: Name,
    pub(super) process: P,
    /// The master at the other end of each of its links. Two links may lead to one master.
    pub(super) nodes: Arc<[usize]>,
    /// The wires that it has not closed: link, epoch, id.
    pub(super) wires: Vec<(usize, u64, WireId)>,
    pub(super) rng: ProcessRng,
    pub(super) paused: bool,
    dead: bool,
    /// Requests of the harness that have not reached it.
    pub(super) asked: VecDeque<Request>,
    /// Events that arrived while it was paused.
    pub(super) inbox: VecDeque<ProcessEvent>,
    /// How far its wall clock is ahead.
    pub(super) wall_ahead: i64,
    /// The clock by which it measures leases.
    lease_clock: WallClock,
    /// Since when its machine is suspended, and the total time of suspension.
    pub(super) suspended_at: Option<Instant>,
    suspended: u64,
    /// Time of its next wake-up, as entered in the queue.
    pub(super) wake: Instant,
}

/// Random streams of the links of each process.
#[derive(Clone, Debug)]
pub(super) struct Links {
    most: usize,
    all: Vec<LinkRng>,
}

impl Links {
    fn of(seed: Seed, scenario: &Scenario) -> Self {
        let links = |process: &Name| scenario.list_of(process).addresses().len();
        let processes = scenario.processes();
        let most = processes.iter().map(|process| links(process)).max().unwrap_or(0);
        let each = |process| (0..most).map(move |link| seed.of_link(process, link));
        Self { most, all: (0..processes.len()).flat_map(each).collect() }
    }

    pub(super) fn of_mut(&mut self, process: usize, link: usize) -> &mut LinkRng {
        &mut self.all[process * self.most + link]
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct World<P> {
    pub(super) now: Instant,
    /// When the run began.
    pub(super) origin: Instant,
    queue: Queue<WorldEvent>,
    pub(super) scenario: Arc<Scenario>,
    pub(super) orchestrator: Orchestrator,
    pub(super) direct_at: Instant,
    pub(super) masters: Vec<Master>,
    pub(super) actors: Vec<Actor<P>>,
    pub(super) wires: Wires,
    pub(super) links: Links,
    pub(super) texts: Texts,
    pub(super) rules: Rules,
    pub(super) there: BTreeMap<usize, super::faults::FaultContext>,
    pub(super) seed: Seed,
    pub(super) mutant: Mutant,
    pub(super) began: bool,
    /// How long a master takes to start.
    pub(super) restart: Instant,
    /// Messages of processes that have not reached the orchestrator.
    pub(super) inputs: VecDeque<Input>,
    /// A buffer, kept for reuse.
    pub(super) orders: Vec<Order>,
    pub(super) events: Vec<server::Event>,
    pub(super) effects: Vec<ProcessEffect>,
}

impl<P: SimulatedProcess> World<P> {
    pub(super) fn new(scenario: &Scenario, seed: u64, latency: Latency, mutant: Mutant) -> Self {
        let seed = Seed::new(seed, latency);
        let nodes = scenario.cluster.nodes;
        let masters = (0..nodes).map(|node| {
            let rng = seed.of_master(node);
            let mut server = Server::new(rng.id, scenario.cluster.persistence);
            if let Some(marker) = scenario.marker(node + 1, &server.run_id().0) {
                server.set(EPOCH, BOOT, marker.as_bytes(), None);
            }
            Master {
                server,
                clock: WallClock::REAL,
                lags: None,
                failed_over: false,
                synced: 0,
                wires: BTreeMap::new(),
                order: rng.order,
            }
        });
        let masters = masters.collect();
        let scenario = Arc::new(scenario.clone());
        Self {
            now: 0,
            origin: 0,
            queue: Queue::new(),
            orchestrator: Orchestrator::new(Arc::clone(&scenario)),
            links: Links::of(seed, &scenario),
            scenario,
            direct_at: Instant::MAX,
            masters,
            actors: Vec::new(),
            wires: Wires::default(),
            texts: Texts::default(),
            rules: Rules::default(),
            there: BTreeMap::new(),
            seed,
            mutant,
            began: false,
            restart: super::RESTART,
            inputs: VecDeque::new(),
            orders: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Handles the next event. Returns `false` at the end of the run.
    pub(super) fn step(&mut self) -> bool {
        if self.orchestrator.phase() == Some(Phase::End) || self.now >= LONGEST {
            return false;
        }
        if !self.began && self.all_ready() {
            self.begin();
            return true;
        }
        let Some((at, what)) = self.queue.next() else { return false };
        self.now = at;
        self.handle(what);
        true
    }

    /// Ends the run and returns its history.
    pub(super) fn into_history(mut self, seed: u64, backend: &str) -> History {
        self.finish();
        let Self { orchestrator, scenario, mutant, .. } = self;
        let mut records = orchestrator.into_records();
        records.sort_by_key(|record| record.ns);
        let masters = format!("a model of Redis 7.0, {} masters", scenario.cluster.nodes);
        let client = (mutant != Mutant::None).then(|| format!("mutant {mutant}"));
        let header = Header::new(Arc::unwrap_or_clone(scenario), seed, backend, masters);
        Header { client, ..header }.with(records)
    }

    pub(super) fn enter(&mut self, at: Instant, what: WorldEvent) {
        self.queue.enter(at.max(self.now), what);
    }

    /// Converts an instant to nanoseconds of the run.
    pub(super) fn ns(&self, at: Instant) -> Ns {
        signed(at).saturating_sub(signed(self.origin))
    }

    /// What the wall clock of a master shows.
    pub(super) fn wall(&self, node: usize) -> server::Wall {
        let ahead = self.masters[node].clock.ahead(signed(self.now));
        super::EPOCH.saturating_add(self.now).saturating_add_signed(ahead)
    }

    /// Passes an input to the orchestrator and carries out its orders.
    pub(super) fn handle_input(&mut self, input: Input) {
        if !self.began {
            return;
        }
        let mut orders = std::mem::take(&mut self.orders);
        self.orchestrator.handle(self.ns(self.now), input, &mut orders);
        for order in orders.drain(..) {
            self.carry_out(order);
        }
        self.orders = orders;
        if let Some(wake) = self.orchestrator.next_wake() {
            let wake = u64::try_from(wake.saturating_add(signed(self.origin))).unwrap_or(0);
            if wake < self.direct_at || self.direct_at <= self.now {
                // Never at the present instant, so that time advances.
                self.direct_at = wake.max(self.now + 1_000);
                self.enter(self.direct_at, WorldEvent::Direct);
            }
        }
    }

    /// Closes the gate of the last fault, if it has one.
    pub(super) fn gate_last(&mut self) {
        let last = self.orchestrator.gates().into_iter().last();
        let number = self.scenario.faults.len() - 1;
        if let Some(order @ Order::Gate { fault, .. }) = last
            && fault == number
        {
            self.carry_out(order);
        }
    }

    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Request { process, request } => {
                if let Some(actor) = self.actor(&process) {
                    self.actors[actor].asked.push_back(request);
                    self.enter(self.now + super::PIPE, WorldEvent::AtProcess(actor));
                }
            }
            Order::Gate { fault, process, which } => {
                if let Some(actor) = self.actor(&process) {
                    self.rules.gate(fault, actor, &which);
                }
            }
            // The process violates the client protocol.
            Order::Kill { .. } => self.enter(self.now, WorldEvent::Do(Box::new(order))),
            order => self.enter(self.now + super::DOING, WorldEvent::Do(Box::new(order))),
        }
    }

    /// Does what an order says, when the harness has come to it.
    pub(super) fn do_order(&mut self, order: Order) {
        match order {
            Order::Strike { fault, nodes, processes } => self.strike(fault, &nodes, &processes),
            Order::Heal(fault) => self.heal(fault),
            Order::Open(fault) => self.open(fault),
            Order::Look => self.look(),
            Order::Kill { process } => {
                if let Some(actor) = self.actor(&process) {
                    self.die(actor);
                }
            }
            Order::Request { .. } | Order::Gate { .. } => unreachable!("it is carried out at once"),
        }
    }

    pub(super) fn actor(&self, name: &str) -> Option<usize> {
        self.actors.iter().position(|actor| actor.name == name)
    }
}

/// Converts an instant to the type that histories and clocks use.
pub(super) fn signed(at: Instant) -> Ns {
    Ns::try_from(at).unwrap_or(Ns::MAX)
}

/// The pending events in order of time. Of events at the same time, the first that was entered
/// comes first.
///
/// The next event is the last of a sorted list. There are a few dozen events at a time, and most
/// new events come before most of the pending ones. A heap would be slower.
#[derive(Clone, Debug)]
struct Queue<T> {
    all: Vec<(Instant, T)>,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { all: Vec::new() }
    }

    pub(super) fn enter(&mut self, at: Instant, event: T) {
        // An event that was entered earlier comes first at the same time, so it lies behind in the
        // list.
        let place = self.all.partition_point(|(other, _)| *other > at);
        self.all.insert(place, (at, event));
    }

    /// Takes the next event, with its time.
    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        self.all.pop()
    }
}

/// The client processes of a run. A process gets its inputs unless it is paused or dead, and its
/// effects are carried out.
impl<P: SimulatedProcess> World<P> {
    /// Starts the processes.
    pub(super) fn start(&mut self) {
        let names: Vec<Name> = self.scenario.processes().into_iter().cloned().collect();
        for (number, name) in names.into_iter().enumerate() {
            let mut effects = Vec::new();
            let clocks = self.clocks(&WallClock::REAL, 0, 0);
            let options = Options::of(&self.scenario, &name);
            let list = self.scenario.list_of(&name);
            let nodes: Arc<[usize]> = list.addresses().iter().map(|node| node - 1).collect();
            let mut rng = self.seed.of_process(number);
            rng.claims.wall = clocks.wall;
            let mut context = InputContext { clocks, rng: &mut rng.claims, out: &mut effects };
            let process = P::start(options, nodes.len(), self.mutant, &mut context);
            self.actors.push(Actor {
                name,
                process,
                nodes,
                wires: Vec::new(),
                rng,
                paused: false,
                dead: false,
                asked: VecDeque::new(),
                inbox: VecDeque::new(),
                wall_ahead: 0,
                lease_clock: WallClock::REAL,
                suspended_at: None,
                suspended: 0,
                wake: Instant::MAX,
            });
            self.carry_out_effects(number, &mut effects);
        }
        self.enter(TICK, WorldEvent::Tick);
    }

    /// Whether every process has tried every master.
    pub(super) fn all_ready(&self) -> bool {
        self.actors.iter().all(|actor| actor.process.is_ready())
    }

    fn clocks_of(&self, number: usize) -> Clocks {
        let actor = &self.actors[number];
        self.clocks(&actor.lease_clock, actor.wall_ahead, actor.suspended)
    }

    fn clocks(&self, lease_clock: &WallClock, wall_ahead: i64, suspended: u64) -> Clocks {
        let ahead = lease_clock.ahead(signed(self.now));
        let monotonic = self.now.saturating_add_signed(ahead);
        let wall = crate::EPOCH.saturating_add(self.now).saturating_add_signed(wall_ahead);
        Clocks {
            monotonic: Time::from_nanos(monotonic),
            awake: Time::from_nanos(monotonic.saturating_sub(suspended)),
            wall: Time::from_nanos(wall),
        }
    }

    /// Passes an event to a process.
    pub(super) fn happen(&mut self, number: usize, event: ProcessEvent) {
        let actor = &mut self.actors[number];
        if actor.dead {
            return;
        }
        if actor.paused {
            return actor.inbox.push_back(event);
        }
        let clocks = self.clocks_of(number);
        let mut effects = std::mem::take(&mut self.effects);
        let Actor { process, rng, .. } = &mut self.actors[number];
        rng.claims.wall = clocks.wall;
        let mut context = InputContext { clocks, rng: &mut rng.claims, out: &mut effects };
        process.handle(event, &mut context);
        self.carry_out_effects(number, &mut effects);
        self.effects = effects;
    }

    /// Carries out the effects of a process, and schedules its next wake-up.
    fn carry_out_effects(&mut self, number: usize, effects: &mut Vec<ProcessEffect>) {
        let mut refused = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                ProcessEffect::Tell(message) => {
                    // By the process's own lease clock.
                    let origin = signed(self.origin);
                    if let Some(input) = Input::of_client(message, |at| at.saturating_sub(origin)) {
                        self.inputs.push_back(input);
                        self.enter(self.now + PIPE, WorldEvent::Tell);
                    }
                }
                ProcessEffect::Write { node: link, epoch, command } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.write(id, command);
                    }
                }
                ProcessEffect::Dial { node: link, epoch } => self.dial(number, link, epoch),
                ProcessEffect::Close { node: link, epoch } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                }
                ProcessEffect::Refuse { node: link, epoch, why } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                    refused.push((link, epoch, why));
                }
            }
        }
        let actor = &self.actors[number];
        let wake = actor.process.next_wake(self.clocks_of(number));
        if wake != Time::NEVER {
            let at = actor.lease_clock.reaches(signed(wake.as_nanos()));
            let at = Instant::try_from(at).unwrap_or(0);
            if at < self.actors[number].wake {
                self.actors[number].wake = at;
                self.enter(at, WorldEvent::Wake(number));
            }
        }
        for (link, epoch, why) in refused {
            self.closed(number, link, epoch, why);
        }
    }

    /// Wakes a process if its wake-up is due. Ignores outdated wake-ups.
    pub(super) fn wake(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        if self.now < actor.wake {
            return;
        }
        actor.wake = Instant::MAX;
        self.happen(number, ProcessEvent::Wake);
    }

    /// Changes the rate of the clock by which a process measures leases.
    pub(super) fn pace(&mut self, number: usize, factor: f64) {
        let now = signed(self.now);
        let actor = &mut self.actors[number];
        actor.lease_clock = actor.lease_clock.paced(now, factor);
        // The wake-up moves to another time.
        actor.wake = Instant::MAX;
        self.carry_out_effects(number, &mut Vec::new());
    }

    /// Resumes a process. It gets all pending events at once. Its timers fire before or after them,
    /// at random.
    pub(super) fn go_on(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        let timers_first = actor.rng.waking.below(2) == 0;
        actor.paused = false;
        if let Some(since) = actor.suspended_at.take() {
            actor.suspended += self.now - since;
        }
        let inbox = std::mem::take(&mut actor.inbox);
        if timers_first {
            self.happen(number, ProcessEvent::Wake);
        }
        for event in inbox {
            self.happen(number, event);
        }
        self.happen(number, ProcessEvent::Wake);
    }

    /// Kills a process: its kernel closes all its connections.
    pub(super) fn die(&mut self, number: usize) {
        self.actors[number].dead = true;
        let wires: Vec<WireId> = self.actors[number].wires.iter().map(|(_, _, id)| *id).collect();
        for id in wires {
            self.close(id);
        }
    }

    fn wire_of(&self, number: usize, link: usize, epoch: u64) -> Option<WireId> {
        let wires = &self.actors[number].wires;
        let found = wires.iter().find(|(l, e, _)| (*l, *e) == (link, epoch));
        found.map(|(_, _, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_at_the_same_time_as_they_were_entered() {
        let mut queue = Queue::new();
        for number in 0..1000_u64 {
            queue.enter(number * 7919 % 101, number);
        }
        let (mut last, mut count) = ((0, 0), 0);
        while let Some(next) = queue.next() {
            assert!(last < next || count == 0, "{last:?} {next:?}");
            // An event that is entered at the present comes behind all others of the present.
            if next.1 == 500 {
                queue.enter(next.0, 1000);
            }
            (last, count) = (next, count + 1);
        }
        assert_eq!(count, 1001);
    }
}
