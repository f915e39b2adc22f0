//! A driver of the protocol in virtual time: clients with the real machines, in a model world.
//! No clock, no socket, no sleep.
//!
//! It is an example too. What a driver has to do is in four places: [`Cluster::send`] (a claim's
//! effects go to its links), [`Cluster::carry_out`] (a link's effects go to the wire, or back to
//! a claim), [`Cluster::replied`] (what comes over the wire goes to the link), and
//! [`Cluster::wake`]. The rest is the check, and [`world`].

pub(crate) mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{
    Bounds, Claim, Drift, Effect, Guard, Input, Key, Link, LinkEffect, LinkInput, NodeId, Patience,
    Step, Terms, Time,
};

use self::world::{Event, Reply, Request, WireId, World};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// What a link gets back with an answer: the claim's number, and what was asked.
type Tag = (u64, Step);

pub(crate) struct Client {
    pub(crate) links: Vec<Link<Tag>>,
    pub(crate) claims: BTreeMap<u64, Claim>,
}

pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) clients: Vec<Client>,
    pub(crate) terms: Terms,
    /// When, and to which client, a lease was granted.
    pub(crate) grants: Vec<(Time, usize)>,
    /// Grants that were made while another claim believed in its lease.
    pub(crate) violations: Vec<(Time, usize)>,
    /// The fencing tokens, in the order of the grants.
    pub(crate) fencing_tokens: Vec<u64>,
    key: Key,
    claims: u64,
}

/// The same guard, with vigils of other names.
fn salted(guard: Guard, salt: u64) -> Guard {
    let other = Guard::new(guard.max_ttl(), Drift::default(), salt).expect("it was short");
    guard.clock_bound().map_or(other, |bound| other.with_clock_bound(bound).expect("it was"))
}

impl Cluster {
    pub(crate) fn new(seed: u64, masters: usize, clients: usize) -> Self {
        Self::with(seed, masters, clients, None)
    }

    /// The same with a guard of so long a TTL, on masters that are marked already.
    pub(crate) fn guarded(seed: u64, masters: usize, clients: usize, max_ttl: Duration) -> Self {
        let guard = Guard::new(max_ttl, Drift::default(), 0).expect("it is short");
        Self::with(seed, masters, clients, Some(guard))
    }

    /// The same with a clock guard.
    pub(crate) fn clock_guarded(
        seed: u64,
        masters: usize,
        clients: usize,
        (max_ttl, bound): (Duration, Duration),
    ) -> Self {
        let guard = Guard::new(max_ttl, Drift::default(), 0).expect("it is short");
        let guard = guard.with_clock_bound(bound).expect("it is shorter");
        Self::with(seed, masters, clients, Some(guard))
    }

    fn with(seed: u64, masters: usize, clients: usize, guard: Option<Guard>) -> Self {
        let terms = Terms::new(masters, MS * 400, Drift::default(), MS * 20)
            .and_then(|terms| terms.with_fencing(MS * 60_000))
            .and_then(|terms| {
                terms.with_clock_bound(guard.and_then(Guard::clock_bound).unwrap_or_default())
            })
            .expect("they fit");
        let bounds =
            Bounds { retry_max: MS * 50, ..Bounds::for_node_timeout(terms.node_timeout()) };
        let mut world = World::new(seed, masters);
        if let Some(guard) = guard {
            world.mark_all(guard);
        }
        let mut cluster = Self {
            world,
            clients: Vec::new(),
            terms,
            grants: Vec::new(),
            violations: Vec::new(),
            fencing_tokens: Vec::new(),
            key: Arc::from(&b"the resource"[..]),
            claims: 0,
        };
        for client in 0..clients {
            let mut out = vec![Vec::new(); masters];
            let guard = guard.map(|guard| salted(guard, client as u64));
            let links = out.iter_mut().map(|out| Link::start(bounds, out).guarded_by(guard));
            let links = links.collect();
            cluster.clients.push(Client { links, claims: BTreeMap::new() });
            for (master, effects) in out.into_iter().enumerate() {
                cluster.carry_out(client, master, effects);
            }
        }
        cluster
    }

    /// Starts a claim and returns its number.
    pub(crate) fn acquire(&mut self, client: usize, wait: Duration) -> u64 {
        let mut out = Vec::new();
        let patience = Patience { wait, explain: true, ..Patience::default() };
        let claim =
            Claim::acquire(self.world.now, self.terms, patience, &mut self.world.random, &mut out);
        self.claims += 1;
        self.clients[client].claims.insert(self.claims, claim);
        self.send(client, self.claims, out);
        self.claims
    }

    /// Gives a claim one input and carries out what it says.
    pub(crate) fn drive(&mut self, client: usize, number: u64, input: Input) {
        let mut out = Vec::new();
        let Some(claim) = self.clients[client].claims.get_mut(&number) else { return };
        claim.handle(self.world.now, input, &mut self.world.random, &mut out);
        self.send(client, number, out);
    }

    fn send(&mut self, client: usize, number: u64, effects: Vec<Effect>) {
        for effect in effects {
            let key = self.key.clone();
            let (node, input) = match effect {
                Effect::Send { node, step, ask } => {
                    (node, LinkInput::Send { key, ask, tag: (number, step) })
                }
                Effect::Settle { node, step, token, call } => {
                    (node, LinkInput::Settle { key, token, call, tag: (number, step) })
                }
                Effect::Leave { node, token, until } => (node, LinkInput::Leave { token, until }),
                _ => {
                    self.world.enter(self.world.now, Event::Decided(client, number));
                    continue;
                }
            };
            self.link(client, node.index(), input);
        }
    }

    fn link(&mut self, client: usize, master: usize, input: LinkInput<Tag>) {
        let mut out = Vec::new();
        self.clients[client].links[master].handle(self.world.now, input, &mut out);
        self.carry_out(client, master, out);
    }

    fn carry_out(&mut self, client: usize, master: usize, effects: Vec<LinkEffect<Tag>>) {
        for effect in effects {
            match effect {
                LinkEffect::Write(command) => {
                    let epoch = self.clients[client].links[master].epoch().expect("it is open");
                    self.world.transmit((client, master, epoch), Request::Run(command));
                }
                LinkEffect::Dial(epoch) => self.world.dial((client, master, epoch)),
                LinkEffect::Close(epoch) => self.world.give_up((client, master, epoch)),
                // Queued, never passed on at once: a claim that fails in the middle of its own
                // effects would have its clean-up written before its last SET.
                LinkEffect::Tell((number, step), answer) => {
                    let node = NodeId::new(master);
                    let input = Input::Answered { node, step, answer };
                    self.world.enter(self.world.now, Event::Told(client, number, input));
                }
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
    }

    /// Runs until `end`: what happens next is the next event, or the next wake-up.
    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            let event = self.world.next_event();
            let wake = self.next_wake();
            if event.min(wake) > end {
                break self.world.now = end;
            }
            self.world.now = self.world.now.max(event.min(wake));
            if wake < event {
                self.wake();
            } else if let Some(event) = self.world.happen() {
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Told(client, number, input) => self.drive(client, number, input),
            Event::Decided(client, number) => self.decided(client, number),
            Event::Replied(id, reply) => self.replied(id, reply),
            Event::Arrived(..) | Event::Served(_) => unreachable!("it happens to a master"),
        }
    }

    fn replied(&mut self, (client, master, epoch): WireId, reply: Reply) {
        let input = match reply {
            Reply::Greeting(id, run_id, boot) => {
                let (client_id, run_id) = (Some(id), Some(run_id));
                let greeting = Greeting { client_id, run_id, boot, durable: false };
                LinkInput::Connected { epoch, greeting }
            }
            Reply::Answer(answer) => LinkInput::Answered { epoch, answer },
            Reply::Reset => LinkInput::Closed {
                epoch,
                why: Arc::from("reset"),
                random: self.world.random.next(),
            },
        };
        self.link(client, master, input);
    }

    fn next_wake(&self) -> Time {
        let of = |client: &Client| {
            let links = client.links.iter().map(Link::next_wake);
            links.chain(client.claims.values().map(Claim::next_wake)).min()
        };
        self.clients.iter().filter_map(of).min().unwrap_or(Time::NEVER)
    }

    fn wake(&mut self) {
        for client in 0..self.clients.len() {
            for master in 0..self.world.masters.len() {
                if self.clients[client].links[master].next_wake() <= self.world.now {
                    self.link(client, master, LinkInput::Wake);
                }
            }
            let due = |(number, claim): (&u64, &Claim)| {
                (claim.next_wake() <= self.world.now).then_some(*number)
            };
            let due: Vec<u64> = self.clients[client].claims.iter().filter_map(due).collect();
            due.into_iter().for_each(|number| self.drive(client, number, Input::Wake));
        }
    }

    fn decided(&mut self, client: usize, number: u64) {
        match self.clients[client].claims.get(&number) {
            Some(Claim::Acquiring(acquire)) if acquire.is_won() => {
                self.drive(client, number, Input::Collect);
                self.granted(client, number);
            }
            Some(Claim::Acquiring(acquire)) if acquire.failure().is_some() => {
                self.clients[client].claims.remove(&number);
            }
            Some(Claim::Releasing(release)) if release.outcome().is_some() => {
                self.clients[client].claims.remove(&number);
            }
            _ => {}
        }
    }

    /// The check: at the instant of a grant, nobody else believes in a lease.
    fn granted(&mut self, client: usize, number: u64) {
        if !self.believes(client, number) {
            return; // too late: it tries again, or has failed
        }
        self.grants.push((self.world.now, client));
        if let Some(Claim::Holding(hold)) = self.clients[client].claims.get(&number) {
            self.fencing_tokens.extend(hold.fencing_token());
        }
        let all = self.clients.iter().enumerate();
        let all =
            all.flat_map(|(client, of)| of.claims.keys().map(move |number| (client, *number)));
        if all.filter(|(client, number)| self.believes(*client, *number)).count() > 1 {
            self.violations.push((self.world.now, client));
        }
    }

    pub(crate) fn believes(&self, client: usize, number: u64) -> bool {
        matches!(self.clients[client].claims.get(&number), Some(Claim::Holding(hold))
            if hold.lost().is_none() && self.world.now < hold.deadline())
    }

    /// Heals everything, ends every claim, and lets `length` pass.
    pub(crate) fn heal(&mut self, length: Duration) {
        for master in 0..self.world.masters.len() {
            self.world.restart(master);
            self.world.resume(master);
        }
        for client in 0..self.clients.len() {
            for number in self.clients[client].claims.keys().copied().collect::<Vec<_>>() {
                self.drive(client, number, Input::Abandon);
            }
            self.clients[client].claims.clear();
        }
        self.run_until(self.world.now.plus(length));
    }

    /// Keys on masters, and entries in ledgers.
    pub(crate) fn leftovers(&self) -> (usize, usize) {
        let links = self.clients.iter().flat_map(|client| &client.links);
        let keys = self.world.masters.iter().map(|master| master.keys.len()).sum();
        (keys, links.map(|link| link.owed() + link.claimed()).sum())
    }
}
