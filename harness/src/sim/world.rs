//! The world of a run in virtual time: what is going to happen, and who is there. `queue.rs` has it in
//! order, `wires.rs` moves messages, `actors.rs` drives the client processes, `faults.rs` carries out faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::dice::{Latency, LinkDice, ProcessDice, Seed, Stream};
use super::queue::Queue;
use super::rules::Rules;
use super::server::{self, Connection, Server};
use super::wires::{Texts, WireId, Wires};
use crate::client_machine::{Happening, Honest, Process, Wish};
use crate::director::{Director, Input, Order};
use crate::history::Ns;
use crate::name::Name;
use crate::sabotage::Lie;
use crate::scenario::Scenario;
use crate::talk::Request;
use crate::wall::WallClock;

/// Virtual nanoseconds since the world began.
pub(super) type Instant = u64;

/// What is going to happen.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A request is in the master's socket buffer.
    AtMaster(WireId),
    /// A master that went on gets to this connection.
    Serve(usize, Connection),
    /// The client's end of a connection reaches the master.
    Hangup(WireId),
    /// A reply is with the client.
    AtClient(WireId),
    /// The master's end of a connection reaches the client.
    Ended(WireId, &'static str),
    /// A connection is to be made.
    Connect(WireId),
    /// A try to connect has had its time.
    GiveUp(WireId),
    /// The oldest of the harness's words that it has not heard yet reach a process.
    Ask(usize),
    /// A process wakes up.
    Wake(usize),
    /// The oldest of the processes' words that it has not heard yet reach the director.
    Tell,
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// The director wakes up.
    Direct,
    /// A fault strikes, or is cured, or both ends of its doing are reached.
    Strike(Box<(usize, Vec<usize>, Vec<Name>)>),
    Cure(usize),
    /// Masters that were killed are up again, for this fault: struck, or cured.
    Up(Box<Up>),
    /// A gate is opened.
    Open(usize),
    /// The masters' keys are looked at.
    Look,
    /// A process that does not keep to the protocol is killed.
    Kill(Name),
    /// The masters look for keys that have expired.
    Tick,
}

/// Masters that were killed, and are starting.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub(super) fault: usize,
    pub(super) nodes: Vec<usize>,
    pub(super) since: Instant,
    pub(super) cured: bool,
}

/// A master, and what its wall clock shows.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) server: Server,
    pub(super) clock: WallClock,
    /// What its replica has, while that lags, and since when it does.
    pub(super) lags: Option<(server::Replica, Instant)>,
    /// Its replica is the master now.
    pub(super) failed_over: bool,
    /// When it last synced its file.
    pub(super) synced: Instant,
    /// Which wire each of its connections is the end of.
    pub(super) wires: BTreeMap<Connection, WireId>,
    /// In which order it gets to its connections when it goes on.
    pub(super) order: Stream,
}

/// A client process.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) name: Name,
    pub(super) process: AnyProcess,
    /// The master at the other end of each of its links: two may lead to one.
    pub(super) nodes: Arc<[usize]>,
    /// The wires that it has not closed: link, epoch, number.
    pub(super) wires: Vec<(usize, u64, WireId)>,
    pub(super) dice: ProcessDice,
    pub(super) paused: bool,
    pub(super) dead: bool,
    /// What the harness has said and it has not heard.
    pub(super) asked: VecDeque<Request>,
    /// What came while it was paused.
    pub(super) inbox: VecDeque<Happening>,
    /// How far its wall clock is ahead.
    pub(super) wall_ahead: i64,
    /// The clock by which it measures leases.
    pub(super) lease_clock: WallClock,
    /// Since when its machine is suspended, and for how long it was, all together.
    pub(super) suspended_at: Option<Instant>,
    pub(super) suspended: u64,
    /// When it is to be woken next, as entered.
    pub(super) wake: Instant,
}

/// A client process, honest or not.
#[derive(Clone, Debug)]
pub(super) enum AnyProcess {
    Honest(Process<Honest>),
    Mutant(Process<Lie>),
}

/// The chance of each link, of a process to the masters that it knows.
#[derive(Clone, Debug)]
pub(super) struct Links {
    most: usize,
    all: Vec<LinkDice>,
}

impl Links {
    fn of(seed: Seed, scenario: &Scenario) -> Self {
        let links = |process: &Name| scenario.list_of(process).addresses().len();
        let processes = scenario.processes();
        let most = processes.iter().map(|process| links(process)).max().unwrap_or(0);
        let each = |process| (0..most).map(move |link| seed.of_link(process, link));
        Self { most, all: (0..processes.len()).flat_map(each).collect() }
    }

    pub(super) fn of_mut(&mut self, process: usize, link: usize) -> &mut LinkDice {
        &mut self.all[process * self.most + link]
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: Instant,
    /// When the run began.
    pub(super) origin: Instant,
    queue: Queue<What>,
    pub(super) scenario: Arc<Scenario>,
    pub(super) director: Director,
    pub(super) direct_at: Instant,
    pub(super) masters: Vec<Master>,
    pub(super) actors: Vec<Actor>,
    pub(super) wires: Wires,
    pub(super) links: Links,
    pub(super) texts: Texts,
    pub(super) rules: Rules,
    pub(super) there: BTreeMap<usize, super::faults::There>,
    pub(super) seed: Seed,
    pub(super) lie: Lie,
    pub(super) began: bool,
    /// What processes have said and the director has not heard.
    pub(super) said: VecDeque<Input>,
    /// For reuse.
    pub(super) orders: Vec<Order>,
    pub(super) events: Vec<server::Event>,
    pub(super) wishes: Vec<Wish>,
}

impl World {
    pub(super) fn new(scenario: &Scenario, seed: u64, latency: Latency, lie: Lie) -> Self {
        let seed = Seed::new(seed, latency);
        let nodes = scenario.cluster.nodes;
        let masters = (0..nodes).map(|node| {
            let dice = seed.of_master(node);
            let mut server = Server::new(dice.id, scenario.cluster.persistence);
            let name = server::name_of(server.run_id());
            if let Some(marker) = scenario.marker(node + 1, &name.0) {
                server.mark(Some(marker));
            }
            Master {
                server,
                clock: WallClock::REAL,
                lags: None,
                failed_over: false,
                synced: 0,
                wires: BTreeMap::new(),
                order: dice.order,
            }
        });
        let masters = masters.collect();
        let scenario = Arc::new(scenario.clone());
        Self {
            now: 0,
            origin: 0,
            queue: Queue::new(),
            director: Director::shared(Arc::clone(&scenario)),
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
            lie,
            began: false,
            said: VecDeque::new(),
            orders: Vec::new(),
            events: Vec::new(),
            wishes: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self, at: Instant, what: What) {
        self.queue.enter(at.max(self.now), what);
    }

    /// What happens next; time goes on to it.
    pub(super) fn next(&mut self) -> Option<What> {
        let (at, what) = self.queue.next()?;
        self.now = at;
        Some(what)
    }

    /// Nanoseconds of the run.
    pub(super) fn ns(&self, at: Instant) -> Ns {
        signed(at).saturating_sub(signed(self.origin))
    }

    /// What the wall clock of a master shows.
    pub(super) fn wall(&self, node: usize) -> server::Wall {
        let ahead = self.masters[node].clock.ahead(signed(self.now));
        super::EPOCH.saturating_add(self.now).saturating_add_signed(ahead)
    }

    /// Tells the director, and does what it says.
    pub(super) fn direct(&mut self, input: Input) {
        if !self.began {
            return;
        }
        let mut orders = std::mem::take(&mut self.orders);
        self.director.handle(self.ns(self.now), input, &mut orders);
        for order in orders.drain(..) {
            self.carry_out(order);
        }
        self.orders = orders;
        if let Some(wake) = self.director.next_wake() {
            let wake = u64::try_from(wake.saturating_add(signed(self.origin))).unwrap_or(0);
            if wake < self.direct_at || self.direct_at <= self.now {
                // Later in any case: time goes on.
                self.direct_at = wake.max(self.now + 1_000);
                self.enter(self.direct_at, What::Direct);
            }
        }
    }

    /// The gate of the last fault, if it has one.
    pub(super) fn gate_last(&mut self) {
        let last = self.director.gates().into_iter().last();
        let number = self.scenario.faults.len() - 1;
        if let Some(order @ Order::Gate { fault, .. }) = last
            && fault == number
        {
            self.carry_out(order);
        }
    }

    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Ask { process, request } => {
                if let Some(actor) = self.actor(&process) {
                    self.actors[actor].asked.push_back(request);
                    self.enter(self.now + super::PIPE, What::Ask(actor));
                }
            }
            Order::Gate { fault, process, side, class, number } => {
                self.gate(fault, &process, side, class, number);
            }
            Order::Open(fault) => self.enter(self.now + super::DOING, What::Open(fault)),
            Order::Strike { fault, nodes, processes } => {
                self.enter(
                    self.now + super::DOING,
                    What::Strike(Box::new((fault, nodes, processes))),
                );
            }
            Order::Cure(fault) => self.enter(self.now + super::DOING, What::Cure(fault)),
            Order::Kill { process } => self.enter(self.now, What::Kill(process)),
            Order::Look => self.enter(self.now + super::DOING, What::Look),
        }
    }

    pub(super) fn actor(&self, name: &str) -> Option<usize> {
        self.actors.iter().position(|actor| actor.name == name)
    }
}

/// As histories and clocks count it.
pub(super) fn signed(at: Instant) -> Ns {
    Ns::try_from(at).unwrap_or(Ns::MAX)
}
