//! The world of a run in virtual time: what is going to happen, in order, and who is there. `wires.rs`
//! moves messages, `actors.rs` drives the client processes, `faults.rs` carries out faults.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::dice::Streams;
use super::process::{Happening, Process};
use super::rules::Rules;
use super::server::{self, Connection, Server};
use super::wires::{Lane, Message, Reply};
use crate::director::{Director, Input, Order};
use crate::history::Ns;
use crate::sabotage::Lie;
use crate::scenario::Scenario;
use crate::talk::Request;

/// Virtual nanoseconds since the world began.
pub(super) type Instant = u64;

/// What is going to happen.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A request is in the master's socket buffer.
    ToMaster(u64, Message),
    /// A master that went on gets to this connection.
    Serve(usize, Connection),
    /// The client's end of a connection reaches the master.
    Hangup(u64),
    /// A reply is with the client.
    ToClient(u64, Reply),
    /// The master's end of a connection reaches the client.
    Ended(u64, &'static str),
    /// A connection is to be made.
    Connect(u64),
    /// A try to connect has had its time.
    GiveUp(u64),
    /// The harness's words reach a process.
    Ask(usize, Request),
    /// A process wakes up.
    Wake(usize),
    /// Something reaches the director.
    Tell(Input),
    /// The director wakes up.
    Direct,
    /// A fault strikes, or is cured, or both ends of its doing are reached.
    Strike(usize, Vec<usize>, Vec<String>),
    Cure(usize),
    /// Masters that were killed are up again, for this fault: struck, or cured.
    Up {
        fault: usize,
        nodes: Vec<usize>,
        since: Instant,
        cured: bool,
    },
    /// A gate is opened.
    Open(usize),
    /// The masters' keys are looked at.
    Look,
    /// A process that does not keep to the protocol is killed.
    Kill(String),
    /// The masters look for keys that have expired.
    Tick,
}

/// Something that is going to happen, and when. Of what happens at the same time the first that was
/// entered is the first.
#[derive(Clone, Debug)]
struct Entry {
    at: Instant,
    number: u64,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap's first is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// A master, and what its wall clock shows.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) server: Server,
    pub(super) clock: super::clock::WallClock,
    /// Which wire each of its connections is the end of.
    pub(super) wires: BTreeMap<Connection, u64>,
}

/// A client process.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) process: Process,
    /// The wires that it has not closed: master, epoch, number.
    pub(super) wires: Vec<(usize, u64, u64)>,
    pub(super) paused: bool,
    pub(super) dead: bool,
    /// What came while it was paused.
    pub(super) inbox: VecDeque<Happening>,
    /// How far its wall clock is ahead.
    pub(super) wall_ahead: i64,
    /// Since when its machine is suspended, and for how long it was, all together.
    pub(super) suspended_at: Option<Instant>,
    pub(super) suspended: u64,
    /// When it is to be woken next, as entered.
    pub(super) wake: Instant,
}

/// A connection between a process and a master, with the proxy in the middle.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) actor: usize,
    pub(super) node: usize,
    pub(super) epoch: u64,
    /// The number by which the history knows it: that of the first, if it is a duplicate's.
    pub(super) shown: u64,
    /// At the master, once it is there.
    pub(super) connection: Option<Connection>,
    /// How many requests were written.
    pub(super) requests: u64,
    /// Each end, as long as it does not know that the connection is over.
    pub(super) client_open: bool,
    pub(super) master_open: bool,
    /// It was greeted.
    pub(super) greeted: bool,
    pub(super) up: Lane<Message>,
    pub(super) down: Lane<Reply>,
    /// What the master has, or will have, to answer.
    pub(super) awaiting: VecDeque<super::wires::Pending>,
    /// The rules that will reset it when they are healed.
    pub(super) suffers: Vec<u64>,
    /// The rule that keeps it from being made.
    pub(super) apart: Option<u64>,
    /// The client's end waits behind what is held.
    pub(super) hangup_waits: bool,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: Instant,
    /// When the run began.
    pub(super) origin: Instant,
    queue: BinaryHeap<Entry>,
    entered: u64,
    pub(super) scenario: Scenario,
    pub(super) director: Director,
    pub(super) direct_at: Instant,
    pub(super) masters: Vec<Master>,
    pub(super) actors: Vec<Actor>,
    pub(super) wires: BTreeMap<u64, Wire>,
    pub(super) last_wire: u64,
    pub(super) rules: Rules,
    pub(super) there: BTreeMap<usize, super::faults::There>,
    pub(super) dice: Streams,
    pub(super) lie: Lie,
    pub(super) began: bool,
    /// For reuse.
    pub(super) orders: Vec<Order>,
    pub(super) events: Vec<server::Event>,
}

impl World {
    pub(super) fn new(scenario: &Scenario, seed: u64, lie: Lie) -> Self {
        let mut dice = Streams::of(seed);
        let masters = (0..scenario.cluster.nodes).map(|node| Master {
            server: Server::new(
                dice.below(1 << 32) << 8 | node as u64,
                scenario.cluster.persistence,
            ),
            clock: super::clock::WallClock::REAL,
            wires: BTreeMap::new(),
        });
        let masters = masters.collect();
        Self {
            now: 0,
            origin: 0,
            queue: BinaryHeap::new(),
            entered: 0,
            scenario: scenario.clone(),
            director: Director::new(scenario),
            direct_at: Instant::MAX,
            masters,
            actors: Vec::new(),
            wires: BTreeMap::new(),
            last_wire: 0,
            rules: Rules::default(),
            there: BTreeMap::new(),
            dice,
            lie,
            began: false,
            orders: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self, at: Instant, what: What) {
        self.entered += 1;
        self.queue.push(Entry { at: at.max(self.now), number: self.entered, what });
    }

    /// What happens next; time goes on to it.
    pub(super) fn next(&mut self) -> Option<What> {
        let entry = self.queue.pop()?;
        self.now = entry.at;
        Some(entry.what)
    }

    /// Nanoseconds of the run.
    pub(super) fn ns(&self, at: Instant) -> Ns {
        let signed = |at| Ns::try_from(at).unwrap_or(Ns::MAX);
        signed(at).saturating_sub(signed(self.origin))
    }

    /// What the wall clock of a master shows.
    pub(super) fn wall(&self, node: usize) -> server::Wall {
        self.masters[node].clock.shown(self.now)
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
            let wake = u64::try_from(wake.saturating_add(self.ns_of_origin())).unwrap_or(0);
            if wake < self.direct_at || self.direct_at <= self.now {
                // Later in any case: time goes on.
                self.direct_at = wake.max(self.now + 1_000);
                self.enter(self.direct_at, What::Direct);
            }
        }
    }

    fn ns_of_origin(&self) -> Ns {
        Ns::try_from(self.origin).unwrap_or(Ns::MAX)
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Ask { process, request } => {
                if let Some(actor) = self.actor(&process) {
                    let at = self.now + super::PIPE;
                    self.enter(at, What::Ask(actor, request));
                }
            }
            Order::Gate { fault, process, side, class, number } => {
                self.gate(fault, &process, side, class, number);
            }
            Order::Open(fault) => self.enter(self.now + super::DOING, What::Open(fault)),
            Order::Strike { fault, nodes, processes } => {
                self.enter(self.now + super::DOING, What::Strike(fault, nodes, processes));
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
