//! A driver of the protocol in virtual time: client processes in a model world, without clocks,
//! sockets or sleeps.
//!
//! It is an example, too. A driver needs three functions: [`Cluster::carry_out`] passes the effects
//! of a client to the wire, or to the callers of its requests; [`Cluster::replied`] passes bytes
//! from the wire to the client; and [`Cluster::wake`]. The rest is the check, and [`world`].

pub(crate) mod world;

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{
    AcquireRequest, Bounds, Claim, ClaimId, Client, ClientConfig, ClientEffect, Context, Drift,
    Guard, Input, Key, Link, LockConfig, NodeId, Time,
};

use self::world::{Event, MasterReply, Request, WireId, World};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) clients: Vec<Client>,
    /// The claims of each client that still have a caller.
    claims: Vec<Vec<ClaimId>>,
    pub(crate) terms: LockConfig,
    pub(crate) grants: Vec<(Time, usize)>,
    /// Grants during another claim's valid lease.
    pub(crate) violations: Vec<(Time, usize)>,
    pub(crate) fencing_tokens: Vec<u64>,
    key: Key,
}

/// The same guard with another salt, so its probation keys have other names.
fn salted(guard: Guard, salt: u64) -> Guard {
    let other = Guard::new(guard.max_ttl(), Drift::default(), salt).expect("it was short");
    guard.clock_bound().map_or(other, |bound| other.with_clock_bound(bound).expect("it was"))
}

impl Cluster {
    pub(crate) fn new(seed: u64, masters: usize, clients: usize) -> Self {
        Self::with(seed, masters, clients, None)
    }

    /// A cluster with a guard for leases up to `max_ttl`, on masters that are initialized.
    pub(crate) fn guarded(seed: u64, masters: usize, clients: usize, max_ttl: Duration) -> Self {
        let guard = Guard::new(max_ttl, Drift::default(), 0).expect("it is short");
        Self::with(seed, masters, clients, Some(guard))
    }

    /// A guarded cluster with a clock guard.
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
        let terms = LockConfig::new(masters, MS * 400, Drift::default(), MS * 20)
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
            claims: vec![Vec::new(); clients],
            terms,
            grants: Vec::new(),
            violations: Vec::new(),
            fencing_tokens: Vec::new(),
            key: Arc::from(&b"the resource"[..]),
        };
        for client in 0..clients {
            let config = ClientConfig {
                nodes: masters,
                node_timeout: terms.node_timeout(),
                bounds,
                wake_ups: false,
                fair: false,
                guard: guard.map(|guard| salted(guard, client as u64)),
                inbox: 0,
            };
            let mut out = Vec::new();
            cluster.clients.push(Client::start(config, &mut out));
            cluster.carry_out(client, out);
        }
        cluster
    }

    /// Calls the client, and carries out its effects.
    fn act<R>(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R,
    ) -> R {
        let World { now, random, .. } = &mut self.world;
        let mut out = Vec::new();
        let mut cx = Context { clocks: *now, rng: random, out: &mut out };
        let result = act(&mut self.clients[client], &mut cx);
        self.carry_out(client, out);
        result
    }

    pub(crate) fn acquire(&mut self, client: usize, wait: Duration) -> ClaimId {
        let (key, terms) = (self.key.clone(), self.terms);
        let request = AcquireRequest { terms, wait, explain: true, fair: false, seed: () };
        let id = self.act(client, |client, cx| client.acquire(key, request, cx));
        self.claims[client].push(id);
        id
    }

    /// The oldest claim of a client that still has a caller.
    pub(crate) fn oldest(&self, client: usize) -> Option<(ClaimId, &Claim)> {
        let id = *self.claims[client].first()?;
        Some((id, self.clients[client].claim(id)?))
    }

    /// Passes an input of the caller to a claim. [`Input::Abandon`] means that the caller is gone.
    pub(crate) fn drive(&mut self, client: usize, id: ClaimId, input: Input) {
        match input {
            Input::Abandon => {
                self.act(client, |client, cx| client.cancel(id, cx));
                self.claims[client].retain(|of| *of != id);
            }
            Input::Release => self.act(client, |client, cx| client.give_back(id, input, cx)),
            input => self.act(client, |client, cx| client.handle(id, input, cx)),
        }
    }

    fn carry_out(&mut self, client: usize, effects: Vec<ClientEffect>) {
        for effect in effects {
            match effect {
                ClientEffect::Write { node, epoch, command } => {
                    self.world.transmit((client, node.index(), epoch), Request::Run(command));
                }
                ClientEffect::Dial { node, epoch } => {
                    self.world.dial((client, node.index(), epoch));
                }
                ClientEffect::Close { node, epoch } => {
                    self.world.give_up((client, node.index(), epoch));
                }
                ClientEffect::Changed(id) => {
                    self.world.enter(self.world.now, Event::Changed(client, id));
                }
                // The driver checks all links at each event.
                ClientEffect::Rearm { .. } => {}
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
    }

    /// Runs until `end`, from one event or wake-up to the next.
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
            Event::Changed(client, id) => self.changed(client, id),
            Event::Replied(id, reply) => self.replied(id, reply),
            Event::Arrived(..) | Event::Served(_) => unreachable!("it happens to a master"),
        }
    }

    fn replied(&mut self, (client, master, epoch): WireId, reply: MasterReply) {
        let node = NodeId::new(master);
        match reply {
            MasterReply::Greeting(id, run_id, boot) => {
                let (client_id, run_id) = (Some(id), Some(run_id));
                let greeting = Greeting { client_id, run_id, boot, durable: false };
                let greeted =
                    self.act(client, |client, cx| client.connected(node, epoch, greeting, cx));
                greeted.expect("no two masters are one server");
            }
            MasterReply::Reply(answer) => {
                self.act(client, |client, cx| client.replied(node, epoch, answer, cx));
            }
            MasterReply::Reset => {
                let random = self.world.random.next();
                let why = Arc::from("reset");
                self.act(client, |client, cx| client.closed(node, epoch, why, random, cx));
            }
        }
    }

    fn next_wake(&self) -> Time {
        let of = |(client, claims): (&Client, &Vec<ClaimId>)| {
            let links = client.links().iter().map(Link::next_wake);
            let looks = claims.iter().map(|id| client.look_again_at(*id, self.world.now));
            links.chain(looks).min().unwrap_or(Time::NEVER).min(client.leases_wake_at())
        };
        self.clients.iter().zip(&self.claims).map(of).min().unwrap_or(Time::NEVER)
    }

    fn wake(&mut self) {
        for client in 0..self.clients.len() {
            for node in NodeId::all(self.world.masters.len()) {
                self.act(client, |client, cx| client.wake_link(node, cx));
            }
            self.act(client, |client, cx| client.wake_leases(cx));
            for id in self.claims[client].clone() {
                self.act(client, |client, cx| _ = client.look(id, cx));
            }
        }
    }

    fn changed(&mut self, client: usize, id: ClaimId) {
        let won = match self.clients[client].claim(id) {
            Some(Claim::Acquiring(acquire)) if acquire.is_won() => true,
            Some(Claim::Acquiring(acquire)) if acquire.failure().is_some() => false,
            Some(Claim::Releasing(release)) if release.outcome().is_some() => false,
            _ => return,
        };
        if won {
            self.drive(client, id, Input::Collect);
            self.granted(client, id);
        } else {
            self.drive(client, id, Input::Abandon);
        }
    }

    /// The check: at the instant of a grant, no other claim has a valid lease.
    fn granted(&mut self, client: usize, id: ClaimId) {
        if !self.believes(client, id) {
            return; // Too late: the claim tries again, or has failed.
        }
        self.grants.push((self.world.now, client));
        let hold = self.clients[client].hold(id);
        self.fencing_tokens.extend(hold.and_then(redquorum_protocol::Hold::fencing_token));
        let all = self.claims.iter().enumerate();
        let all = all.flat_map(|(client, ids)| ids.iter().map(move |id| (client, *id)));
        if all.filter(|(client, id)| self.believes(*client, *id)).count() > 1 {
            self.violations.push((self.world.now, client));
        }
    }

    pub(crate) fn believes(&self, client: usize, id: ClaimId) -> bool {
        let held = |hold: &redquorum_protocol::Hold| {
            hold.lost().is_none() && self.world.now < hold.deadline()
        };
        self.clients[client].hold(id).is_some_and(held)
    }

    /// Heals everything, ends every claim, and lets `length` pass.
    pub(crate) fn heal(&mut self, length: Duration) {
        for master in 0..self.world.masters.len() {
            self.world.restart(master);
            self.world.resume(master);
        }
        for client in 0..self.clients.len() {
            for id in self.claims[client].clone() {
                self.drive(client, id, Input::Abandon);
            }
        }
        self.run_until(self.world.now.plus(length));
    }

    /// The numbers of keys on masters, and of entries in ledgers.
    pub(crate) fn leftovers(&self) -> (usize, usize) {
        let links = self.clients.iter().flat_map(Client::links);
        let keys = self.world.masters.iter().map(|master| master.keys.len()).sum();
        (keys, links.map(|link| link.owed() + link.claimed()).sum())
    }
}
