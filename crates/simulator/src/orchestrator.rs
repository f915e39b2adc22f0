//! The orchestrator conducts a run: it follows the scenario's script. It takes inputs (events of
//! the run) and returns orders (actions for the backend). It starts no process, opens no socket and
//! reads no clock, so every backend uses the same orchestrator.
//!
//! Its interface is that of the protocol's machines: `handle(now, input, &mut orders)` and
//! `next_wake()`. It records all events in order; the records are the history of the run.
//!
//! A run has these phases:
//!
//! - `run`: the clients follow their scripts, and faults strike.
//! - `heal`: every fault is healed.
//! - `final-acquire`: each client process that lives acquires each resource once more (the final
//!   acquire).
//! - `drain`: the keys that are left on the masters must disappear within one TTL (the drain).
//! - `end`: the run is over.
//!
//! The submodules have the rest:
//!
//! - `phases.rs`: the actions that are due in each phase; the phases `final-acquire` and `drain`
//! - `player.rs`: the way of one client through its script
//! - `faults.rs`: the times at which faults strike and are healed, and the masters and processes
//!   that they hit
//!
//! The backend knows how to carry out an [`Order`]. The checker (`check`) interprets the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use faults::{Faults, Granted, clients_of, process_of};
use phases::{Drain, FinalAcquire};
use player::{Player, Register};
use redquorum_protocol::wire::LAPSE_MS;
use redquorum_scenario::client_protocol::{
    Capability, ClientLine, ClientReply, Notice, Op, Request,
};
use redquorum_scenario::history::{Act, Event, LeftKey, Ns, Outcome, Phase, Record, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    Class, Client, ClockFault, EventKind, FaultKind, FaultTime, LeaseEffect, Messages, OnClient,
    ResourceFault, Scenario, SetsClock, Side,
};

mod faults;
mod phases;
mod player;
#[cfg(test)]
mod tests;

pub use faults::{Counts, Place, processes_of};
pub use player::to_release;

/// An event of the run. The backend that carries out the orders sends it.
#[derive(Clone, Debug)]
pub enum Input {
    /// All clients are ready. The map has the features of each process.
    Begin(BTreeMap<Name, Vec<Capability>>),
    /// A client replied to a request. Its stamps are nanoseconds of the run.
    Replied(ClientReply),
    /// A message passed: a request on its way to a master, or a reply that reached its client.
    Passed { process: Name, side: Side, class: Class },
    /// A master replied to a command. The reply may be in flight for a long time.
    MasterReplied { process: Name, node: usize, act: Act, result: Outcome },
    /// An event for the history. Faults may strike after [`Event::Lost`].
    Recorded(Event),
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// A fault struck, or failed to.
    Struck {
        /// The fault, counted from 0.
        fault: usize,
        at: Window,
        failed: Option<String>,
    },
    /// A fault was healed, or could not be.
    Healed {
        /// The fault, counted from 0.
        fault: usize,
        at: Window,
        failed: Option<String>,
    },
    /// A client process has ended, or the orchestrator must ignore it from now on.
    Broken { process: Name, why: String },
    /// The keys of a master.
    Keys {
        node: usize,
        /// The keys. `None`: the master does not reply.
        keys: Option<Vec<LeftKey>>,
    },
    /// The time of [`Orchestrator::next_wake`] has come.
    Wake,
}

impl Input {
    /// A message of a client, with its stamps as times of the run. `None`: the client is ready.
    pub fn of_client(message: ClientLine, time: impl Fn(i64) -> Ns) -> Option<Self> {
        Some(match message {
            ClientLine::Reply(mut reply) => {
                reply.stamps().flatten().for_each(|stamp| *stamp = time(*stamp));
                Self::Replied(reply)
            }
            ClientLine::Notice(Notice::Lost { client, resource, at_ns }) => {
                Self::Recorded(Event::Lost { client, resource, at: time(at_ns) })
            }
            ClientLine::Notice(Notice::Extended { client, resource, deadline_ns, .. }) => {
                Self::Recorded(Event::Extended { client, resource, deadline: time(deadline_ns) })
            }
            ClientLine::Notice(Notice::Unpolled { client, request, from_ns, to_ns }) => {
                let (from, to) = (time(from_ns), time(to_ns));
                Self::Recorded(Event::Unpolled { client, id: request, from, to })
            }
            ClientLine::Notice(Notice::Ready { .. }) => return None,
        })
    }
}

/// An action for the backend, which returns its result as [`Input`].
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Send a request to a client process.
    Request { process: Name, request: Request },
    /// Hold back these messages of a process, from the first one on, and send
    /// [`Input::Gated`] as soon as one waits. Given before the run.
    Gate {
        /// The fault that the gate belongs to, counted from 0.
        fault: usize,
        process: Name,
        which: Messages,
    },
    /// Pass on the messages that wait at the gate of this fault.
    Open(usize),
    /// Apply this fault.
    Strike { fault: usize, nodes: Vec<usize>, processes: Vec<Name> },
    /// Heal this fault.
    Heal(usize),
    /// Kill a client process that violates the client protocol.
    Kill { process: Name },
    /// Report the keys of each master.
    Look,
}

/// How long a run may exceed the time that its script and its faults need. Then it is healed in any
/// case, so that a client that never answers cannot block it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Orchestrator {
    scenario: Arc<Scenario>,
    phase: Option<Phase>,
    players: Vec<Player>,
    faults: Faults,
    final_acquire: FinalAcquire,
    granted: Granted,
    registers: BTreeMap<Name, Register>,
    can: BTreeMap<Name, Vec<Capability>>,
    gone: BTreeSet<Name>,
    next_id: u64,
    /// The client of each request in flight, by the number of the request.
    asked: Vec<(u64, Name)>,
    /// When the run is healed, even if requests are in flight.
    limit: Ns,
    /// After the healing: until when clients that were late may answer.
    leave_until: Option<Ns>,
    drain: Drain,
    /// The next time at which an action is due, as of the latest input.
    wake: Option<Ns>,
    follows_messages: bool,
    follows_grants: bool,
    records: Vec<Record>,
}

impl Orchestrator {
    /// Creates the orchestrator of one run. The scenario is one of [`Scenario::runs`].
    pub fn new(scenario: Arc<Scenario>) -> Self {
        let players =
            scenario.clients.iter().map(|client| Player::new(client, &scenario.lock)).collect();
        let faults = Faults::new(&scenario.faults);
        Self {
            phase: None,
            players,
            faults,
            final_acquire: FinalAcquire::default(),
            granted: Granted::default(),
            registers: BTreeMap::new(),
            can: BTreeMap::new(),
            gone: BTreeSet::new(),
            next_id: 1,
            asked: Vec::new(),
            limit: limit(&scenario),
            leave_until: None,
            drain: Drain::default(),
            wake: None,
            follows_messages: Faults::follow_messages(&scenario.faults),
            follows_grants: Faults::follow_grants(&scenario.faults),
            records: Vec::with_capacity(2048),
            scenario,
        }
    }

    /// Sets how long a client may take for a reply, in addition to the wait of its request. The
    /// default is 5 s.
    #[must_use]
    pub fn answers_within(mut self, answer: Duration) -> Self {
        self.players.iter_mut().for_each(|player| player.answers_within(answer));
        self
    }

    /// Whether the orchestrator uses [`Input::Passed`]. If not, the backend may omit it.
    pub fn follows_messages(&self) -> bool {
        self.follows_messages
    }

    /// Whether the orchestrator uses [`Input::Replied`]. If not, the backend may omit it.
    pub fn follows_grants(&self) -> bool {
        self.follows_grants
    }

    /// The gates that the backend must close before the run begins.
    pub fn gates(&self) -> Vec<Order> {
        self.faults.gates(&self.scenario)
    }

    /// Records the places at which faults can strike, so that a fault can be [added](Self::add) at
    /// one of them. Of each class of messages, only the first `most` of a client are places. `None`
    /// ends the recording.
    pub fn note_places(&mut self, most: Option<u32>) {
        self.faults.note_places(most);
        let faults = &self.scenario.faults;
        self.follows_messages = most.is_some() || Faults::follow_messages(faults);
        self.follows_grants = most.is_some() || Faults::follow_grants(faults);
    }

    /// The recorded places, in the order in which they first occurred.
    pub fn places(&self) -> &[Place] {
        self.faults.places()
    }

    /// Takes a scenario with one more fault, the last one. The moment of this fault must not have
    /// come yet, and the orchestrator must be recording places.
    pub fn add(&mut self, scenario: Arc<Scenario>) {
        if let Some(fault) = scenario.faults.last() {
            self.faults.add(fault.clone());
            self.limit = self.limit.max(limit(&scenario));
        }
        self.scenario = scenario;
        if self.wake.is_some() {
            self.wake = self.due();
        }
    }

    /// The effect of a fault, by its index in the scenario.
    pub fn kind(&self, fault: usize) -> &FaultKind {
        &self.scenario.faults[fault].kind
    }

    /// The events so far.
    #[cfg(test)]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// All events, at the end of the run.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// The current phase of the run. `None` before the run begins.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Processes an input, and appends the actions that follow from it to `orders`.
    pub fn handle(&mut self, now: Ns, input: Input, orders: &mut Vec<Order>) {
        if self.take_in(now, input, orders) || self.wake.is_some_and(|wake| now >= wake) {
            self.go_on(now, orders);
            self.wake = self.due();
        }
    }

    /// Processes an input. Returns whether an action may be due now.
    fn take_in(&mut self, now: Ns, input: Input, orders: &mut Vec<Order>) -> bool {
        match input {
            Input::Begin(can) => {
                for (process, can) in &can {
                    let (process, can) = (process.clone(), can.clone());
                    self.record(now, Event::Ready { process, can });
                }
                self.can = can;
                self.enter(now, Phase::Run);
            }
            Input::Replied(reply) => self.replied(now, reply),
            Input::Passed { process, side, class } => {
                let clients = clients_of(&self.scenario, &process);
                return self.faults.passed(now, &clients, side, class);
            }
            Input::MasterReplied { process, node, act, result } => {
                // The script of a lock may set a key that is missing, and extend it otherwise.
                let token = match (&act, result) {
                    (Act::Set { token, .. }, Outcome::Done) => Some(token),
                    (Act::Keep { token, .. }, Outcome::Done | Outcome::Created) => token.as_ref(),
                    _ => None,
                };
                if let Some(token) = token {
                    self.granted.set(process, token, node);
                }
                return false;
            }
            Input::Recorded(event) => {
                let lost = match &event {
                    Event::Lost { client, resource, .. } => {
                        let player = self.players.iter().find(|player| player.id() == client);
                        let name = player.map_or(resource, |player| player.name_of(resource));
                        self.faults.happened(now, client, &EventKind::Lost(name.clone()));
                        true
                    }
                    _ => false,
                };
                self.record(now, event);
                return lost;
            }
            Input::Gated(fault) => self.faults.gated(now, fault),
            Input::Struck { fault, at, failed } => self.struck(now, fault, at, failed, orders),
            Input::Healed { fault, at, failed } => {
                let processes = self.faults.healed(fault);
                self.delayed(now, fault, &processes, false);
                self.record(now, Event::Healed { fault: fault + 1, at, failed });
            }
            Input::Broken { process, why } => self.broken(now, process, why, orders),
            Input::Keys { node, keys } => self.looked(now, node, keys),
            Input::Wake => {}
        }
        true
    }

    /// Records an event for the history.
    pub fn record(&mut self, now: Ns, event: Event) {
        self.records.push(Record { ns: now, event });
    }

    fn enter(&mut self, now: Ns, phase: Phase) {
        self.phase = Some(phase);
        self.record(now, Event::Phase { phase });
    }

    fn struck(
        &mut self,
        now: Ns,
        fault: usize,
        at: Window,
        failed: Option<String>,
        orders: &mut Vec<Order>,
    ) {
        let (nodes, processes) = self.faults.struck(now, fault, failed.is_some());
        if failed.is_none() && self.kind(fault).kills_clients() {
            for process in &processes {
                self.gone.insert(process.clone());
                self.lose(process);
            }
        }
        if failed.is_none() {
            self.delayed(now, fault, &processes, true);
        }
        self.record(now, Event::Struck { fault: fault + 1, nodes, processes, at, failed });
        if self.faults.has_gate(fault) {
            orders.push(Order::Open(fault));
        }
    }

    /// Marks a process as broken: the run no longer counts on it.
    fn broken(&mut self, now: Ns, process: Name, why: String, orders: &mut Vec<Order>) {
        if self.gone.insert(process.clone()) {
            self.lose(&process);
            orders.push(Order::Kill { process: process.clone() });
            self.record(now, Event::Broken { process, why });
        }
    }

    /// A fault begins or ceases to delay the replies of processes.
    fn delayed(&mut self, now: Ns, fault: usize, processes: &[Name], delayed: bool) {
        let row = self.kind(fault).row();
        let is_slow = row.clock == SetsClock::OfLeases;
        if !is_slow && row.client != OnClient::Paused {
            return;
        }
        let hit = |player: &&mut Player| processes.iter().any(|name| name == player.process());
        for player in self.players.iter_mut().filter(hit) {
            player.is_delayed(now, is_slow, delayed);
        }
    }

    /// The clients of a process will never answer again.
    fn lose(&mut self, process: &str) {
        for player in self.players.iter_mut().filter(|player| player.process() == process) {
            player.lose();
        }
    }
}

/// How long a key may live that was set before healing. A clock that was ahead and is set right
/// keeps the key alive for longer, by the time that it was ahead.
fn longest_key(scenario: &Scenario) -> Duration {
    let ahead = master_clocks(scenario).map(ClockFault::sets_ahead);
    let own = scenario.longest_ttl().saturating_add(scenario.lock.lock_delay.0);
    // A client that died keeps its position in the queue for this long.
    let lapse = if scenario.has_queues() { LAPSE_MS } else { 0 };
    let place = Duration::from_millis(lapse);
    ahead.fold(own.max(place), Duration::saturating_add)
}

/// How far a clock that ran fast until now can be ahead. When it is set right, the keys that it
/// timed live longer by this time.
fn gained(scenario: &Scenario, now: Ns) -> Duration {
    let share = master_clocks(scenario).map(ClockFault::gains);
    let now = Duration::from_nanos(u64::try_from(now).unwrap_or(0));
    Duration::try_from_secs_f64(now.as_secs_f64() * share.sum::<f64>()).unwrap_or_default()
}

/// The faults of the clocks of masters.
fn master_clocks(scenario: &Scenario) -> impl Iterator<Item = &ClockFault> {
    scenario.faults.iter().filter_map(|fault| match &fault.kind {
        FaultKind::Clock(clock) => Some(clock),
        _ => None,
    })
}

/// When a run is healed, even if requests are in flight.
fn limit(scenario: &Scenario) -> Ns {
    let faults = scenario.faults.iter().map(|fault| {
        let at = match &fault.when {
            FaultTime::At(at) => at.0,
            FaultTime::After(moment) | FaultTime::Before(moment) => moment.plus.0,
        };
        at.saturating_add(fault.lasts.unwrap_or_default().0)
    });
    let late = scenario.faults.iter().map(|fault| match &fault.kind {
        FaultKind::Resource(ResourceFault::Delay { by, .. }) => by.0,
        FaultKind::Node(_) | FaultKind::Clock(_) | FaultKind::Net(_) | FaultKind::Client(_) => {
            Duration::ZERO
        }
    });
    let late = late.fold(Duration::ZERO, Duration::saturating_add);
    let clients = &scenario.clients;
    let clients = clients.iter().map(|client| Player::longest(client, &scenario.lock, late));
    let longest = faults.chain(clients).max().unwrap_or_default();
    nanos(longest.saturating_add(TIMEOUT))
}

/// The first feature that the scenario needs and the clients lack, as a message. `None` if they
/// can play it.
pub fn missing(scenario: &Scenario, can: &BTreeMap<Name, Vec<Capability>>) -> Option<String> {
    for client in &scenario.clients {
        let lock = client.options(&scenario.lock);
        let of_lock = [
            (lock.guard.is_some(), Capability::RestartGuard),
            (lock.clock_guard.is_some(), Capability::ClockGuard),
            (!lock.lock_delay.0.is_zero(), Capability::LockDelay),
            (lock.fair, Capability::Fair),
            (client.moving_to.is_some(), Capability::Moves),
        ];
        let of_lock = of_lock.into_iter().filter_map(|(is, needed)| is.then_some(needed));
        let known = can.get(client.process()).map_or(&[][..], Vec::as_slice);
        let mut needs = of_lock.chain(client.script.iter().flat_map(Capability::needed_by));
        if let Some(needed) = needs.find(|needed| !known.contains(needed)) {
            return Some(format!("the client cannot `{}`", needed.name()));
        }
        if known.contains(&Capability::Renews) && outlives_lease(client, lock.ttl.0) {
            return Some(format!(
                "the client `renews` its leases, and here one must end ({})",
                client.id
            ));
        }
    }
    None
}

/// Whether a client works for longer than its lease lasts, and does not ask to keep it.
fn outlives_lease(client: &Client, usual: Duration) -> bool {
    let (mut left, mut kept) = (None, false);
    client.script.iter().any(|step| {
        match step.effect() {
            LeaseEffect::Acquires | LeaseEffect::Extends => {
                left = Some(step.ttl().unwrap_or(usual));
            }
            LeaseEffect::Keeps => kept = true,
            LeaseEffect::Releases => (left, kept) = (None, false),
            LeaseEffect::None => left = left.map(|left| left.saturating_sub(step.work())),
        }
        !kept && left.is_some_and(|left| left.is_zero())
    })
}

impl Orchestrator {
    /// Sends a request. `recorded`: the operation as the history has it, unless the history has the
    /// request already.
    fn ask(
        &mut self,
        now: Ns,
        client: Name,
        (op, recorded): (Op, Option<Op>),
        orders: &mut Vec<Order>,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.push((id, client.clone()));
        let process = process_of(&self.scenario, &client).unwrap_or(&client).clone();
        if let Some(op) = recorded {
            self.record(now, Event::Requested(Request { id, client: client.clone(), op }));
        }
        orders.push(Order::Request { process, request: Request { id, client, op } });
        id
    }

    fn replied(&mut self, now: Ns, reply: ClientReply) {
        // The backend ensures that each request is answered once.
        let Some(place) = self.asked.iter().position(|(id, _)| *id == reply.id) else { return };
        let (_, client) = self.asked.swap_remove(place);
        let player = self.players.iter().position(|player| player.awaits(reply.id));
        let asking = player.map(|index| &self.players[index]);
        if !asking.is_some_and(|player| player.asks_again(now, &reply)) {
            let id = asking.map_or(reply.id, |player| player.recorded(reply.id));
            self.record(now, Event::Replied { client, reply: ClientReply { id, ..reply.clone() } });
        }
        if let Some(index) = player {
            if reply.ok && self.players[index].is_acquiring() {
                let player = &self.players[index];
                let quorum = self.scenario.list_of(player.process()).quorum();
                let reported = reply.of(0).token;
                self.granted.won(player.id(), player.process(), reported.as_ref(), quorum);
            }
            let touched =
                self.players[index].replied(now, &reply, &mut self.faults, &mut self.registers);
            if let Some(event) = touched {
                self.record(now, event);
            }
        } else {
            self.final_acquire.replied(now, &reply);
        }
    }
}
