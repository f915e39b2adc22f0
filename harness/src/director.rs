//! The director: follows a scenario's script. It is told what happens and says what to do next;
//! it starts no process and opens no socket, so every backend has the same one.
//!
//! `handle(now, input, &mut orders)` and `next_wake()`, like the machines of the protocol. All
//! that happened goes into the records, in order: they are the run's history.
//!
//! A run has phases: `run` (scripts and faults), `heal` (every fault is cured), `witness` (each
//! client process that lives acquires each resource once more), `settle` (what is left on the
//! masters must go within one TTL), `end`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{Act, Event, Left, Ns, Outcome, Phase, Record, Window};
use crate::scenario::{Class, Harm, Scenario, Side, Step};
use crate::talk::{Answer, Can, Op, Request};

mod faults;
mod player;
mod witness;

use faults::Faults;
pub use faults::processes_of;
use player::Player;
use witness::Witness;

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// All clients are ready, and can do this, by process.
    Begin(BTreeMap<String, Vec<Can>>),
    /// A client answered; its stamps are nanoseconds of the run.
    Answered(Answer),
    /// A client was told that its lease is lost.
    Lost {
        /// Who.
        client: String,
        /// What.
        resource: String,
        /// When, by its own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease.
    Extended {
        /// Who.
        client: String,
        /// What.
        resource: String,
        /// The new deadline.
        deadline: Ns,
    },
    /// A message passed: a request on its way to a master, or a reply that reached its client.
    Passed {
        /// Whose.
        process: String,
        /// Request or reply.
        side: Side,
        /// What the request is for.
        class: Class,
    },
    /// A master replied to a command; the reply may be on its way for long.
    Replied {
        /// Whose command it was.
        process: String,
        /// Which master.
        node: usize,
        /// The command.
        act: Act,
        /// What the master said.
        result: Outcome,
    },
    /// For the history alone.
    Recorded(Event),
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// A fault struck, or failed to.
    Struck {
        /// Which, counted from 0.
        fault: usize,
        /// When.
        at: Window,
        /// Why not.
        failed: Option<String>,
    },
    /// A fault was cured, or could not be.
    Cured {
        /// Which, counted from 0.
        fault: usize,
        /// When.
        at: Window,
        /// Why not.
        failed: Option<String>,
    },
    /// A client process is gone, or is to be ignored from now on.
    Broken {
        /// Which.
        process: String,
        /// What it did.
        why: String,
    },
    /// The keys of a master.
    Keys {
        /// Which.
        node: usize,
        /// None: it does not answer.
        keys: Option<Vec<Left>>,
    },
    /// The time that was asked for has come.
    Wake,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Order {
    /// Tell a client process.
    Ask {
        /// Which.
        process: String,
        /// What.
        request: Request,
    },
    /// Hold back these messages of a process, from the `number`-th on, and say
    /// [`Input::Gated`] as soon as one waits. Given before the run.
    Gate {
        /// For which fault, counted from 0.
        fault: usize,
        /// Whose messages.
        process: String,
        /// Requests or replies.
        side: Side,
        /// Of which class.
        class: Class,
        /// From which on.
        number: u64,
    },
    /// Let go what waits at the gate of this fault.
    Open(usize),
    /// Let this fault strike.
    Strike {
        /// Which, counted from 0.
        fault: usize,
        /// The masters that it hits.
        nodes: Vec<usize>,
        /// The client processes that it hits.
        processes: Vec<String>,
    },
    /// Cure it.
    Cure(usize),
    /// Say which keys each master has.
    Look,
}

/// How long a run may take beyond what its script and faults ask for, before it is healed all the
/// same: a client that never answers must not keep it for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one round of looking at the masters' keys is apart from the next.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What is added to one TTL before a key that is left counts as left for good.
const SLACK: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Director {
    scenario: Scenario,
    phase: Option<Phase>,
    players: Vec<Player>,
    faults: Faults,
    witness: Witness,
    /// Which masters granted the latest token of each process.
    granted: BTreeMap<String, (String, BTreeSet<usize>)>,
    registers: BTreeMap<String, u64>,
    can: BTreeMap<String, Vec<Can>>,
    gone: BTreeSet<String>,
    next_id: u64,
    /// Who was asked, by the number of the request.
    asked: BTreeMap<u64, String>,
    /// When the run is healed, whatever is still under way.
    limit: Ns,
    settle: Settle,
    records: Vec<Record>,
}

/// How the last phase is going.
#[derive(Clone, Debug, Default)]
struct Settle {
    until: Ns,
    look_at: Option<Ns>,
    seen: BTreeMap<usize, Option<Vec<Left>>>,
}

impl Director {
    /// A director of one run; the scenario is one of [`Scenario::runs`].
    pub fn new(scenario: &Scenario) -> Self {
        let players =
            scenario.clients.iter().map(|client| Player::new(client, &scenario.lock)).collect();
        let faults = Faults::new(&scenario.faults);
        Self {
            scenario: scenario.clone(),
            phase: None,
            players,
            faults,
            witness: Witness::default(),
            granted: BTreeMap::new(),
            registers: BTreeMap::new(),
            can: BTreeMap::new(),
            gone: BTreeSet::new(),
            next_id: 1,
            asked: BTreeMap::new(),
            limit: limit(scenario),
            settle: Settle::default(),
            records: Vec::new(),
        }
    }

    /// The gates that must be closed before the run begins.
    pub fn gates(&self) -> Vec<Order> {
        self.faults.gates(&self.scenario)
    }

    /// Why a client that can do only this cannot play this scenario, if so.
    pub fn missing(&self, can: &BTreeMap<String, Vec<Can>>) -> Option<String> {
        for client in &self.scenario.clients {
            for step in &client.script {
                let needed = match step {
                    Step::Extend { .. } => (Can::Extend, "extend"),
                    Step::Keep { .. } => (Can::KeepAlive, "keep_alive"),
                    _ => continue,
                };
                let known = can.get(client.process()).is_some_and(|can| can.contains(&needed.0));
                if !known {
                    return Some(format!("the client cannot `{}`", needed.1));
                }
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

    /// When to say [`Input::Wake`], at the latest.
    pub fn next_wake(&self) -> Option<Ns> {
        let mut wakes = Vec::new();
        match self.phase {
            Some(Phase::Run) => {
                wakes.push(self.limit);
                wakes.extend(self.players.iter().filter_map(Player::next_wake));
                wakes.extend(self.faults.next_wake());
            }
            Some(Phase::Heal) => wakes.push(self.limit),
            Some(Phase::Witness) => wakes.extend(self.witness.next_wake()),
            Some(Phase::Settle) => wakes.extend(self.settle.look_at),
            Some(Phase::End) | None => {}
        }
        wakes.into_iter().min()
    }

    /// Takes in what happened, and says what to do.
    pub fn handle(&mut self, now: Ns, input: Input, orders: &mut Vec<Order>) {
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
                self.faults.passed(now, &clients, side, class);
            }
            Input::Replied { process, node, act, result } => {
                if let (Act::Set { token, .. }, Outcome::Done) = (&act, result) {
                    let latest = self.granted.entry(process).or_default();
                    if latest.0 != *token {
                        *latest = (token.clone(), BTreeSet::new());
                    }
                    latest.1.insert(node);
                }
            }
            Input::Recorded(event) => self.record(now, event),
            Input::Gated(fault) => self.faults.gated(now, fault),
            Input::Struck { fault, at, failed } => self.struck(now, fault, at, failed, orders),
            Input::Cured { fault, at, failed } => {
                self.faults.cured(fault);
                self.record(now, Event::Cured { fault: fault + 1, at, failed });
            }
            Input::Broken { process, why } => {
                if self.gone.insert(process.clone()) {
                    self.lose(&process);
                    self.record(now, Event::Broken { process, why });
                }
            }
            Input::Keys { node, keys } => self.looked(now, node, keys),
            Input::Wake => {}
        }
        self.go_on(now, orders);
    }

    fn record(&mut self, now: Ns, event: Event) {
        self.records.push(Record { ns: now, event });
    }

    fn enter(&mut self, now: Ns, phase: Phase) {
        self.phase = Some(phase);
        self.record(now, Event::Phase { phase });
    }

    /// Does what is due, until nothing is.
    fn go_on(&mut self, now: Ns, orders: &mut Vec<Order>) {
        match self.phase {
            Some(Phase::Run) => {
                // What is there from the start is there before anybody does anything.
                if self.faults.are_set_up() {
                    self.play(now, orders);
                }
                self.strike(now, orders);
                let played = self.players.iter().all(Player::is_done);
                if (played && self.faults.nothing_due()) || now >= self.limit {
                    self.enter(now, Phase::Heal);
                    self.limit = now.saturating_add(nanos(PATIENCE));
                    orders.extend(self.faults.cure_all().into_iter().map(Order::Cure));
                    orders.extend(self.faults.open_all().into_iter().map(Order::Open));
                    self.go_on(now, orders);
                }
            }
            Some(Phase::Heal) if self.faults.all_cured() || now >= self.limit => {
                let alive = |process: &&str| !self.gone.contains(*process);
                let processes = self.scenario.processes().into_iter().filter(alive);
                self.witness = Witness::new(&self.scenario, processes);
                self.enter(now, Phase::Witness);
                self.go_on(now, orders);
            }
            Some(Phase::Witness) => {
                if let Some((process, op)) = self.witness.next(now, &self.gone, &self.can) {
                    let client = clients_of(&self.scenario, &process).remove(0);
                    let id = self.ask(now, client, op, orders);
                    self.witness.asked(now, id);
                } else if self.witness.is_done(&self.gone) {
                    self.enter(now, Phase::Settle);
                    let longest = self.scenario.longest_ttl().saturating_add(SLACK);
                    self.settle.until = now.saturating_add(nanos(longest));
                    self.settle.look_at = Some(now.saturating_add(nanos(LOOK_AGAIN)));
                }
            }
            Some(Phase::Settle) if self.settle.look_at.is_some_and(|at| now >= at) => {
                self.settle.look_at = None;
                orders.push(Order::Look);
            }
            _ => {}
        }
    }

    /// Each client takes the steps that it can take now.
    fn play(&mut self, now: Ns, orders: &mut Vec<Order>) {
        for index in 0..self.players.len() {
            while let Some(op) = self.players[index].next(now, &mut self.faults, &self.can) {
                let client = self.players[index].id().to_owned();
                let id = self.ask(now, client, op, orders);
                self.players[index].asked(now, id);
            }
        }
    }

    /// Every fault whose moment has come strikes; every one that had its time is cured.
    fn strike(&mut self, now: Ns, orders: &mut Vec<Order>) {
        for fault in self.faults.due(now) {
            let harm = &self.scenario.faults[fault].harm;
            let nodes = match faults::nodes_of(harm, self.scenario.cluster.nodes, |client| {
                let process = process_of(&self.scenario, client)?;
                self.granted.get(process).map(|(_, nodes)| nodes.clone())
            }) {
                Ok(nodes) => nodes,
                Err(why) => {
                    let at = Window { from: now, to: now };
                    self.struck(now, fault, at, Some(why), orders);
                    continue;
                }
            };
            let processes = processes_of(harm, &self.scenario);
            self.faults.aims(fault, nodes.clone(), processes.clone());
            orders.push(Order::Strike { fault, nodes, processes });
        }
        orders.extend(self.faults.over(now).into_iter().map(Order::Cure));
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
        if failed.is_none() && faults::is_deadly(&harm) {
            for process in &processes {
                self.gone.insert(process.clone());
                self.lose(process);
            }
        }
        let fault_number = fault + 1;
        self.record(now, Event::Struck { fault: fault_number, harm, nodes, processes, at, failed });
        if self.faults.has_gate(fault) {
            orders.push(Order::Open(fault));
        }
    }

    /// The clients of a process will never answer.
    fn lose(&mut self, process: &str) {
        for player in self.players.iter_mut().filter(|player| player.process() == process) {
            player.lose();
        }
    }

    fn ask(&mut self, now: Ns, client: String, op: Op, orders: &mut Vec<Order>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let (resource, ttl_ms, wait_ms) = match &op {
            Op::Acquire { resource, ttl_ms, wait_ms } => {
                (Some(resource.clone()), Some(*ttl_ms), Some(*wait_ms))
            }
            Op::Extend { resource, ttl_ms } => (Some(resource.clone()), Some(*ttl_ms), None),
            Op::KeepAlive { resource, .. } | Op::Release { resource } => {
                (Some(resource.clone()), None, None)
            }
            Op::Step { check, .. } => (check.clone(), None, None),
            Op::Cancel { .. } => (None, None, None),
        };
        let name = op.name().to_owned();
        let asked =
            Event::Asked { client: client.clone(), id, op: name, resource, ttl_ms, wait_ms };
        self.record(now, asked);
        self.asked.insert(id, client.clone());
        let process = process_of(&self.scenario, &client).unwrap_or_default().to_owned();
        orders.push(Order::Ask { process, request: Request { id, client, op } });
        id
    }

    fn answered(&mut self, now: Ns, answer: Answer) {
        // The backend saw to it that each request is answered once.
        let Some(client) = self.asked.remove(&answer.id) else { return };
        let player = self.players.iter().position(|player| player.awaits(answer.id));
        self.record(
            now,
            Event::Answered {
                client,
                id: answer.id,
                ok: answer.ok,
                token: answer.token.clone(),
                from: answer.from_ns,
                at: answer.at_ns,
                deadline: answer.deadline_ns,
                valid_ms: answer.valid_ms,
                fence: answer.fence,
                why: answer.why,
                text: answer.text.clone(),
            },
        );
        if let Some(index) = player {
            let touched =
                self.players[index].answered(now, &answer, &mut self.faults, &mut self.registers);
            if let Some(event) = touched {
                self.record(now, event);
            }
        } else {
            self.witness.answered(now, &answer);
        }
    }

    /// All masters were looked at: is anything left, and may it still go?
    fn looked(&mut self, now: Ns, node: usize, keys: Option<Vec<Left>>) {
        self.settle.seen.insert(node, keys);
        if self.phase != Some(Phase::Settle) || self.settle.seen.len() < self.scenario.cluster.nodes
        {
            return;
        }
        let seen = std::mem::take(&mut self.settle.seen);
        let clean = seen.values().all(|keys| keys.as_ref().is_some_and(Vec::is_empty));
        if clean || now >= self.settle.until {
            for (node, keys) in seen {
                self.record(now, Event::Keys { node, keys });
            }
            self.enter(now, Phase::End);
        } else {
            self.settle.look_at = Some(now.saturating_add(nanos(LOOK_AGAIN)));
        }
    }
}

/// Nanoseconds of a run, saturating.
pub(crate) fn nanos(length: Duration) -> Ns {
    Ns::try_from(length.as_nanos()).unwrap_or(Ns::MAX)
}

/// Whole milliseconds, rounded up.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The process of a client.
fn process_of<'a>(scenario: &'a Scenario, client: &str) -> Option<&'a str> {
    scenario.clients.iter().find(|known| known.id == client).map(crate::scenario::Client::process)
}

/// The clients of a process.
fn clients_of(scenario: &Scenario, process: &str) -> Vec<String> {
    let all = scenario.clients.iter().filter(|client| client.process() == process);
    all.map(|client| client.id.clone()).collect()
}

/// When a run is healed whatever is still under way.
fn limit(scenario: &Scenario) -> Ns {
    let faults = scenario.faults.iter().map(|fault| {
        let at = match &fault.when {
            crate::scenario::When::At(at) => at.0,
            crate::scenario::When::After(moment) | crate::scenario::When::Before(moment) => {
                moment.plus.0
            }
        };
        at.saturating_add(fault.lasts.unwrap_or_default().0)
    });
    let clients = scenario.clients.iter().map(|client| Player::longest(client, &scenario.lock));
    let longest = faults.chain(clients).max().unwrap_or_default();
    nanos(longest.saturating_add(PATIENCE))
}
