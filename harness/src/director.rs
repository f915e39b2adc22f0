//! The director: follows a scenario's script. It is told what happens and says what to do next;
//! it starts no process, opens no socket and reads no clock, so every backend has the same one.
//!
//! `handle(now, input, &mut orders)` and `next_wake()`, like the machines of the protocol. All
//! that happened goes into the records, in order: they are the run's history.
//!
//! A run has phases: `run` (scripts and faults), `heal` (every fault is cured), `witness` (each
//! client process that lives acquires each resource once more), `settle` (what is left on the
//! masters must go within one TTL), `end`.
//!
//! Here an [`Input`] is taken in; `phases.rs` says what is due then, `requests.rs` numbers requests
//! and awaits their answers, `player.rs` has one client's way through its script, `faults.rs` when
//! which fault strikes and is cured, `whom.rs` whom it hits, `witness.rs` and `settle.rs` the phases of these names. What an
//! [`Order`] takes is for the backend, and what the records mean for the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::LAPSE_MS;

use crate::history::{Act, Event, Ns, Outcome, Phase, Record, Window};
use crate::name::Name;
use crate::scenario::{Client, ClientHarm, ClockHarm, Harm, ResourceHarm, Scenario, Step, When};
use crate::talk::Can;
use crate::units::nanos;

mod faults;
mod granted;
mod input;
mod order;
mod phases;
mod places;
mod player;
mod register;
mod requests;
mod settle;
#[cfg(test)]
mod tests;
mod whom;
mod witness;

use faults::Faults;
use granted::Granted;
pub use input::Input;
pub use order::Order;
pub use places::Place;
use player::Player;
use register::Register;
use settle::Settle;
use whom::clients_of;
pub use whom::processes_of;
use witness::Witness;

/// How long a run may take beyond what its script and faults ask for, before it is healed all the
/// same: a client that never answers must not keep it for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Director {
    scenario: Arc<Scenario>,
    phase: Option<Phase>,
    players: Vec<Player>,
    faults: Faults,
    witness: Witness,
    granted: Granted,
    registers: BTreeMap<Name, Register>,
    can: BTreeMap<Name, Vec<Can>>,
    gone: BTreeSet<Name>,
    next_id: u64,
    /// Who was asked, by the number of the request.
    asked: Vec<(u64, Name, usize)>,
    /// When the run is healed, whatever is still under way.
    limit: Ns,
    settle: Settle,
    /// When something is due by itself, as of the latest input.
    wake: Option<Ns>,
    follows_messages: bool,
    follows_grants: bool,
    records: Vec<Record>,
}

impl Director {
    /// A director of one run; the scenario is one of [`Scenario::runs`].
    pub fn new(scenario: &Scenario) -> Self {
        Self::shared(Arc::new(scenario.clone()))
    }

    /// The same, of a scenario that others have, too.
    pub(crate) fn shared(scenario: Arc<Scenario>) -> Self {
        let players =
            scenario.clients.iter().map(|client| Player::new(client, &scenario.lock)).collect();
        let faults = Faults::new(&scenario.faults);
        Self {
            phase: None,
            players,
            faults,
            witness: Witness::default(),
            granted: Granted::default(),
            registers: BTreeMap::new(),
            can: BTreeMap::new(),
            gone: BTreeSet::new(),
            next_id: 1,
            asked: Vec::new(),
            limit: limit(&scenario),
            settle: Settle::default(),
            wake: None,
            follows_messages: Faults::follow_messages(&scenario.faults),
            follows_grants: Faults::follow_grants(&scenario.faults),
            records: Vec::with_capacity(2048),
            scenario,
        }
    }

    /// Whether [`Input::Passed`] means anything to it: else it need not be said.
    pub fn follows_messages(&self) -> bool {
        self.follows_messages
    }

    /// Whether [`Input::Replied`] means anything to it: else it need not be said.
    pub fn follows_grants(&self) -> bool {
        self.follows_grants
    }

    /// The gates that must be closed before the run begins.
    pub fn gates(&self) -> Vec<Order> {
        self.faults.gates(&self.scenario)
    }

    /// Notes the places at which faults can strike, so that one can be [added](Self::add) there: of
    /// each class of messages the first so many of a client. With none, no more.
    pub(crate) fn note_places(&mut self, most: Option<u32>) {
        self.faults.note_places(most);
        let faults = &self.scenario.faults;
        self.follows_messages = most.is_some() || Faults::follow_messages(faults);
        self.follows_grants = most.is_some() || Faults::follow_grants(faults);
    }

    /// The places that came since they are noted, the first time that each did.
    pub(crate) fn places(&self) -> &[Place] {
        self.faults.places()
    }

    /// Its scenario has one fault more, the last, whose moment has not come. Places must be noted.
    pub(crate) fn add(&mut self, scenario: Arc<Scenario>) {
        if let Some(fault) = scenario.faults.last() {
            self.faults.add(fault.clone());
            self.limit = self.limit.max(limit(&scenario));
        }
        self.scenario = scenario;
        if self.wake.is_some() {
            self.wake = self.due();
        }
    }

    /// Why a client that can do only this cannot play this scenario, if so.
    pub fn missing(&self, can: &BTreeMap<Name, Vec<Can>>) -> Option<String> {
        for client in &self.scenario.clients {
            let lock = client.options(&self.scenario.lock);
            let of_lock = [
                (lock.guard.is_some(), (Can::Guard, "guard")),
                (lock.clock_guard.is_some(), (Can::ClockGuard, "clock_guard")),
                (!lock.grace.0.is_zero(), (Can::Grace, "grace")),
                (lock.fair, (Can::Fair, "fair")),
            ];
            let of_lock = of_lock.into_iter().filter_map(|(is, needed)| is.then_some(needed));
            let of_steps = client.script.iter().filter_map(|step| match step {
                Step::Acquire { again: true, .. } => Some((Can::Reenter, "reenter")),
                Step::Extend { .. } => Some((Can::Extend, "extend")),
                Step::Keep { .. } => Some((Can::KeepAlive, "keep_alive")),
                Step::Touch { under: Some(_), .. } => Some((Can::Fence, "fence")),
                step if step.is_of_several() => Some((Can::Several, "several")),
                _ => None,
            });
            let known = can.get(client.process()).map_or(&[][..], Vec::as_slice);
            let mut needs = of_lock.chain(of_steps);
            if let Some((_, name)) = needs.find(|(needed, _)| !known.contains(needed)) {
                return Some(format!("the client cannot `{name}`"));
            }
        }
        None
    }

    /// What a fault does, by its place in the scenario.
    pub fn harm(&self, fault: usize) -> &Harm {
        &self.scenario.faults[fault].harm
    }

    /// What happened so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What happened, at the end.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// The phase that the run is in; none before it begins.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Writes down what is for the history alone.
    pub fn note(&mut self, now: Ns, event: Event) {
        self.record(now, event);
    }

    /// Takes in what happened, and says what to do.
    pub fn handle(&mut self, now: Ns, input: Input, orders: &mut Vec<Order>) {
        if self.take_in(now, input, orders) || self.wake.is_some_and(|wake| now >= wake) {
            self.go_on(now, orders);
            self.wake = self.due();
        }
    }

    /// Takes in what happened. Returns whether anything can come of it at once.
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
            Input::Answered(answer) => self.answered(now, answer),
            Input::Lost { client, resource, at } => {
                self.faults.lost(now, &client, &resource);
                self.record(now, Event::Lost { client, resource, at });
            }
            Input::Extended { client, resource, deadline } => {
                self.record(now, Event::Extended { client, resource, deadline });
            }
            Input::Passed { process, side, class } => {
                let clients = clients_of(&self.scenario, &process);
                return self.faults.passed(now, &clients, side, class);
            }
            Input::Replied { process, node, act, result } => {
                if let (Act::Set { token, .. }, Outcome::Done) = (&act, result) {
                    self.granted.set(process, token, node);
                }
                return false;
            }
            Input::Recorded(event) => {
                self.record(now, event);
                return false;
            }
            Input::Gated(fault) => self.faults.gated(now, fault),
            Input::Struck { fault, at, failed } => self.struck(now, fault, at, failed, orders),
            Input::Cured { fault, at, failed } => {
                let processes = self.faults.cured(fault);
                self.delayed(now, fault, &processes, false);
                self.record(now, Event::Cured { fault: fault + 1, at, failed });
            }
            Input::Broken { process, why } => self.broken(now, process, why, orders),
            Input::Keys { node, keys } => self.looked(now, node, keys),
            Input::Wake => {}
        }
        true
    }

    fn record(&mut self, now: Ns, event: Event) {
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
        let harm = self.scenario.faults[fault].harm.clone();
        if failed.is_none() && harm.kills_clients() {
            for process in &processes {
                self.gone.insert(process.clone());
                self.lose(process);
            }
        }
        if failed.is_none() {
            self.delayed(now, fault, &processes, true);
        }
        let fault_number = fault + 1;
        self.record(
            now,
            Event::Struck {
                fault: fault_number,
                harm: Box::new(harm),
                nodes,
                processes,
                at,
                failed,
            },
        );
        if self.faults.has_gate(fault) {
            orders.push(Order::Open(fault));
        }
    }

    /// A process is not to be reckoned with any more.
    fn broken(&mut self, now: Ns, process: Name, why: String, orders: &mut Vec<Order>) {
        if self.gone.insert(process.clone()) {
            self.lose(&process);
            orders.push(Order::Kill { process: process.clone() });
            self.record(now, Event::Broken { process, why });
        }
    }

    /// A fault keeps processes from answering in time, or no longer does.
    fn delayed(&mut self, now: Ns, fault: usize, processes: &[Name], delayed: bool) {
        let harm = &self.scenario.faults[fault].harm;
        let is_slow = matches!(harm, Harm::Client(ClientHarm::Rate { .. }));
        if !is_slow && !harm.pauses_clients() {
            return;
        }
        let hit = |player: &&mut Player| processes.iter().any(|name| name == player.process());
        for player in self.players.iter_mut().filter(hit) {
            player.is_delayed(now, is_slow, delayed);
        }
    }

    /// The clients of a process will never answer.
    fn lose(&mut self, process: &str) {
        for player in self.players.iter_mut().filter(|player| player.process() == process) {
            player.lose();
        }
    }
}

/// How long a key may live that was set before everything was healed: a clock that was ahead then
/// and is right again keeps it for so much longer.
fn longest_key(scenario: &Scenario) -> Duration {
    let ahead = scenario.faults.iter().map(|fault| match &fault.harm {
        Harm::Clock(ClockHarm::Step { by, .. }) if !by.back => by.by.0,
        Harm::Clock(ClockHarm::Strobe { by, .. }) => by.0,
        _ => Duration::ZERO,
    });
    let own = scenario.longest_ttl().saturating_add(scenario.lock.grace.0);
    // Who is gone keeps a place among those who wait for so long.
    let is_fair = |client: &Client| client.options(&scenario.lock).fair;
    let fair = scenario.clients.iter().any(is_fair);
    let place = if fair { Duration::from_millis(LAPSE_MS) } else { Duration::ZERO };
    ahead.fold(own.max(place), Duration::saturating_add)
}

/// How far a clock that ran fast until now can be ahead: as it is set right, what was set by it lives for
/// so much longer.
fn gained(scenario: &Scenario, now: Ns) -> Duration {
    let share = scenario.faults.iter().map(|fault| match &fault.harm {
        Harm::Clock(ClockHarm::Rate { factor, .. }) => (factor - 1.0).max(0.0),
        _ => 0.0,
    });
    let now = Duration::from_nanos(u64::try_from(now).unwrap_or(0));
    Duration::try_from_secs_f64(now.as_secs_f64() * share.sum::<f64>()).unwrap_or_default()
}

/// When a run is healed whatever is still under way.
fn limit(scenario: &Scenario) -> Ns {
    let faults = scenario.faults.iter().map(|fault| {
        let at = match &fault.when {
            When::At(at) => at.0,
            When::After(moment) | When::Before(moment) => moment.plus.0,
        };
        at.saturating_add(fault.lasts.unwrap_or_default().0)
    });
    let late = scenario.faults.iter().map(|fault| match &fault.harm {
        Harm::Resource(ResourceHarm::Delay { by, .. }) => by.0,
        _ => Duration::ZERO,
    });
    let late = late.fold(Duration::ZERO, Duration::saturating_add);
    let clients = &scenario.clients;
    let clients = clients.iter().map(|client| Player::longest(client, &scenario.lock, late));
    let longest = faults.chain(clients).max().unwrap_or_default();
    nanos(longest.saturating_add(PATIENCE))
}
