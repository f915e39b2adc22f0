//! A client process as a state machine: the shipped [`Client`] and the client protocol around it.
//! It reads no clock and opens no socket.
//!
//! It does the work of the Tokio shell and the built-in client, without Tokio. The simulation runs
//! it in virtual time, and `harness/src/mutants.rs` runs mutants of it on real masters. It decides
//! nothing about the lock: it passes requests to the client, and answers them by the results of its
//! claims.
//!
//! [`Conduct`] is the seam for mutants. [`ClientLeases`] has the rules for leases that all client
//! processes follow, `lease.rs` the requests that wait for one claim, `multi_lock.rs` the requests
//! for several resources.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use self::lease::{Lease, PendingClaim, each};
use self::multi_lock::{Group, MultiRelease};
use self::one_of::Choice;
use redquorum_protocol::wire::{Command, Expect, Greeting};
use redquorum_protocol::{
    AcquireRequest, BadOption, Bounds, Claim, ClaimId, ClaimMachine, Client, ClientConfig,
    ClientEffect, Context, Drift, Guard, Hold, HolderName, Input, Key, Link, LockConfig, NodeId,
    Progress, Quorum, Reentry, Reply as Vote, RequestState, Rng, Time, Token, WaiterId,
};
use redquorum_redis_model::Value;
use redquorum_scenario::client_leases::{ClientLeases, LeaseKey};
use redquorum_scenario::client_protocol::{
    Call, ClientLine, Each, FENCING_COUNTER_TTL, FailureReason, Op, Options, Request, RequestError,
};
use redquorum_scenario::name::Name;

mod lease;
mod multi_lock;
mod one_of;

/// What the clocks of a process show at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Clocks {
    /// Never goes back.
    pub monotonic: Time,
    /// Never goes back, and stops while the machine is suspended.
    pub awake: Time,
    /// Can be set.
    pub wall: Time,
}

/// An event for a process.
#[derive(Clone, Debug)]
pub enum ProcessEvent {
    /// The harness sent a request.
    Requested(Request),
    /// A connection opened, with its handshake complete.
    Connected { node: usize, epoch: u64, greeting: Greeting },
    /// A connection did not open, or broke.
    Closed { node: usize, epoch: u64, why: Arc<str>, random: u64 },
    /// A master replied to the oldest unanswered command of a connection.
    Replied {
        node: usize,
        epoch: u64,
        reply: Vote,
        /// The reply on the wire, for the library.
        value: Value,
    },
    /// A master woke a waiter.
    Woken { node: usize, epoch: u64, waiter_id: WaiterId },
    /// The requested wake-up time has come.
    Wake,
}

/// An effect of a process.
#[derive(Clone, Debug)]
pub enum ProcessEffect {
    /// Send a message to the harness.
    Tell(ClientLine),
    /// Write a command to a connection.
    Write { node: usize, epoch: u64, command: Command },
    /// Open a connection.
    Dial { node: usize, epoch: u64 },
    /// Reset a connection, or abandon a connection attempt.
    Close { node: usize, epoch: u64 },
    /// Reset a connection that opened and must not vote, and report that it is closed.
    Refuse { node: usize, epoch: u64, why: Arc<str> },
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Process<K: Conduct> {
    conduct: K,
    options: Options,
    client: Client<K::Claim>,
    /// All claims, in the order of their requests.
    claims: Vec<PendingClaim>,
    leases: ClientLeases<Lease, Time>,
    /// How many owners there have been.
    owners: usize,
    /// Multi-lock requests under way.
    groups: Vec<Group>,
    /// Requests for one of several resources under way.
    choices: Vec<Choice>,
    /// Requests under way that release several leases.
    multi_releases: Vec<MultiRelease>,
    /// One random token for each client, if the conduct uses one.
    roots: Vec<(Name, Token)>,
    /// The latest claim of each client that was granted a resource.
    former: Vec<(LeaseKey, K::Claim)>,
    effects: Vec<ClientEffect>,
}

/// The context of one input: the clocks, the random source with the hint of the wall clock, and the
/// list of effects.
pub struct InputContext<'a> {
    pub clocks: Clocks,
    pub rng: &'a mut dyn Rng,
    pub out: &'a mut Vec<ProcessEffect>,
}

impl InputContext<'_> {
    fn stamp(&self) -> i64 {
        i64::try_from(self.clocks.monotonic.as_nanos()).unwrap_or(i64::MAX)
    }

    fn call(&self, id: u64) -> Call {
        Call { id, from_ns: self.stamp() }
    }

    fn tell(&mut self, message: impl Into<ClientLine>) {
        self.out.push(ProcessEffect::Tell(message.into()));
    }

    fn reply(&mut self, call: Call, result: Result<(), RequestError>) {
        self.tell(call.reply(self.stamp(), result));
    }

    /// Replies to a request that needed no command, or failed before it.
    fn done(&mut self, id: u64, result: Result<(), RequestError>) {
        self.reply(self.call(id), result);
    }
}

impl<K: Conduct> Process<K> {
    /// Starts a process, which dials all masters.
    pub fn start(
        options: Options,
        nodes: usize,
        conduct: K,
        context: &mut InputContext<'_>,
    ) -> Self {
        let options = conduct.options(options);
        // Drawn only with a guard: without one, all other random numbers stay the same.
        let guard = guard(&options, || {
            let token = context.rng.token();
            let (salt, _) = token.as_bytes().split_first_chunk().expect("a token has 20 bytes");
            u64::from_le_bytes(*salt)
        });
        let node_timeout = Duration::from_millis(options.node_timeout_ms);
        let config = ClientConfig {
            quorum: conduct.quorum(options.quorum(nodes)),
            node_timeout,
            bounds: Bounds::for_node_timeout(node_timeout),
            wake_ups: options.wake_ups,
            fair: options.fair,
            guard,
            inbox: if options.wake_ups { context.rng.random().max(1) } else { 0 },
        };
        let mut effects = Vec::new();
        let client = Client::start(config, &mut effects);
        let mut process = Self {
            conduct,
            options,
            client,
            claims: Vec::new(),
            leases: ClientLeases::default(),
            owners: 0,
            groups: Vec::new(),
            choices: Vec::new(),
            multi_releases: Vec::new(),
            roots: Vec::new(),
            former: Vec::new(),
            effects,
        };
        process.carry_out(context);
        process
    }

    /// Whether the options are compatible with each other.
    ///
    /// # Errors
    ///
    /// The first incompatible option.
    pub fn fits(&self) -> Result<(), BadOption> {
        self.config(self.options.ttl_ms, false).map(drop)
    }

    /// Whether the process distrusts masters that may have lost data.
    pub const fn is_guarded(&self) -> bool {
        self.options.restart_guard_ms.is_some()
    }

    /// Whether the process has tried every master.
    pub fn is_ready(&self) -> bool {
        !self.client.links().iter().any(Link::is_first_dial)
    }

    /// How to read the next reply of a master.
    pub fn expects(&self, node: usize) -> Option<Expect> {
        self.client.links()[node].oldest().map(|(expect, _)| expect)
    }

    /// Whether a connection with this epoch is still wanted.
    pub fn awaits(&self, node: usize, epoch: u64) -> bool {
        self.client.links()[node].awaits(epoch)
    }

    /// When to report [`ProcessEvent::Wake`], by the monotonic clock.
    pub fn next_wake(&self, clocks: Clocks) -> Time {
        let links = self.client.links().iter().map(Link::next_wake);
        let looks = self.claims.iter().map(|claim| self.looks_at(claim.id, clocks));
        let next = links.chain(looks).min().unwrap_or(Time::NEVER);
        next.min(self.client.leases_wake_at())
            .min(self.groups_wake(clocks))
            .min(self.choices_wake())
    }

    /// When the process next looks at a claim by itself.
    fn looks_at(&self, id: ClaimId, clocks: Clocks) -> Time {
        match self.client.hold(id).and(self.client.claim(id)) {
            Some(claim) if K::CLOCKS_JUMP => claim.next_wake(clocks.into()),
            // The client has timers for leases.
            Some(_) => Time::NEVER,
            None => self.client.look_again_at(id, clocks.into()),
        }
    }

    /// Handles an event and adds its effects.
    pub fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>) {
        match event {
            ProcessEvent::Requested(request) => self.request(request, context),
            ProcessEvent::Connected { node, epoch, greeting } => {
                let master = NodeId::new(node);
                let greeting = self.conduct.greeting(master, greeting);
                let awaited = self.client.link(master).awaits(epoch);
                let greeted = |client: &mut Client<K::Claim>, cx: &mut Context<'_, K::Claim>| {
                    client.connected(master, epoch, greeting, cx)
                };
                if awaited && let Err(duplicate) = self.client(context, greeted) {
                    let why = format!(
                        "it is the same server as {duplicate}, and one server must not vote twice"
                    );
                    context.out.push(ProcessEffect::Refuse { node, epoch, why: why.into() });
                }
            }
            ProcessEvent::Closed { node, epoch, why, random } => {
                self.client(context, |client, cx| {
                    client.closed(NodeId::new(node), epoch, why, random, cx);
                });
            }
            ProcessEvent::Replied { node, epoch, reply, .. } => {
                self.client(context, |client, cx| {
                    client.replied(NodeId::new(node), epoch, reply, cx);
                });
            }
            ProcessEvent::Woken { node, epoch, waiter_id } => {
                self.client(context, |client, cx| {
                    client.woken(NodeId::new(node), epoch, waiter_id, cx);
                });
            }
            ProcessEvent::Wake => self.wake(context),
        }
        self.carry_out(context);
    }

    fn wake(&mut self, context: &mut InputContext<'_>) {
        for node in NodeId::all(self.client.links().len()) {
            self.client(context, |client, cx| client.wake_link(node, cx));
        }
        self.client(context, |client, cx| client.wake_leases(cx));
        let now = context.clocks.monotonic;
        let due = |claim: &&PendingClaim| self.looks_at(claim.id, context.clocks) <= now;
        let due: Vec<ClaimId> = self.claims.iter().filter(due).map(|claim| claim.id).collect();
        for id in due {
            if self.client.hold(id).is_some() {
                self.advance(id, Input::Wake, context);
            }
            self.attend(id, context);
        }
        self.wake_groups(context);
        self.wake_choices(context);
    }

    /// Passes an input to the client.
    fn client<R>(
        &mut self,
        context: &mut InputContext<'_>,
        act: impl FnOnce(&mut Client<K::Claim>, &mut Context<'_, K::Claim>) -> R,
    ) -> R {
        let clocks = context.clocks.into();
        let mut cx = Context { clocks, rng: context.rng, out: &mut self.effects };
        act(&mut self.client, &mut cx)
    }

    /// Carries out the effects of the client, and answers the requests whose claims have changed.
    fn carry_out(&mut self, context: &mut InputContext<'_>) {
        while !self.effects.is_empty() {
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    ClientEffect::Write { node, epoch, command } => {
                        context.out.push(ProcessEffect::Write {
                            node: node.index(),
                            epoch,
                            command,
                        });
                    }
                    ClientEffect::Dial { node, epoch } => {
                        context.out.push(ProcessEffect::Dial { node: node.index(), epoch });
                    }
                    ClientEffect::Close { node, epoch } => {
                        context.out.push(ProcessEffect::Close { node: node.index(), epoch });
                    }
                    // No timer needed: the process looks at all links at each instant.
                    ClientEffect::Rearm { .. } => {}
                    ClientEffect::Changed(id) => self.attend(id, context),
                    ClientEffect::Replied { node, request, reply } => {
                        self.told_holder((request, node), &reply, context);
                    }
                    other => unreachable!("an effect that this process does not know: {other:?}"),
                }
            }
        }
    }

    /// Passes one input to a claim.
    fn advance(&mut self, id: ClaimId, input: Input, context: &mut InputContext<'_>) {
        self.client(context, |client, cx| client.handle(id, input, cx));
    }

    /// Releases a lease.
    fn give_back(&mut self, id: ClaimId, input: Input, context: &mut InputContext<'_>) {
        self.client(context, |client, cx| client.give_back(id, input, cx));
    }

    fn request(&mut self, Request { id, client, op }: Request, context: &mut InputContext<'_>) {
        let begun = match op {
            Op::Acquire { resource, ttl_ms, wait_ms, again, shared } => {
                self.acquire(id, (client, resource), (ttl_ms, wait_ms, again, shared), context)
            }
            Op::AcquireAll { resources, ttl_ms, wait_ms, shared } => {
                self.acquire_all(id, (client, resources), (ttl_ms, wait_ms, shared), context)
            }
            Op::AcquireAny { resources, ttl_ms, wait_ms, shared } => {
                self.acquire_any(id, (client, resources), (ttl_ms, wait_ms, shared), context)
            }
            Op::ReleaseAll { resources } => {
                self.release_all(id, &client, resources, context);
                Ok(())
            }
            Op::Extend { resource, ttl_ms } => {
                self.extend(id, &(client, resource), ttl_ms, context)
            }
            Op::KeepAlive { resource, max_ms } => {
                self.keep_alive(id, &(client, resource), max_ms, context)
            }
            Op::Release { resource } => self.release(id, &(client, resource), context),
            Op::Cancel { request } => {
                context.done(id, Ok(()));
                self.cancel_group(request, context);
                self.cancel_choice(request, context);
                let mut claims = self.claims.iter();
                if let Some(claim) = claims.find(|claim| claim.is_acquiring(request)) {
                    self.cancel(request, claim.id, context);
                }
                Ok(())
            }
            Op::Step { check: None, .. } => {
                context.done(id, Ok(()));
                Ok(())
            }
            Op::Step { check: Some(resource), .. } => {
                let held = self.leases.find(&(client, resource)).map(|record| record.lease.id);
                held.and_then(|claim| self.held(claim, context)).map(|()| context.done(id, Ok(())))
            }
        };
        if let Err(error) = begun {
            context.done(id, Err(error));
        }
    }

    /// Acquires, with a TTL of 0 for the configured one. A request that acquires `again` extends a
    /// lease that it finds held only if it has a TTL of its own.
    fn acquire(
        &mut self,
        id: u64,
        whose: LeaseKey,
        (ttl_ms, wait_ms, again, shared): (u64, u64, bool, bool),
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let extend = ttl_ms != 0;
        let ttl_ms = if extend { ttl_ms } else { self.options.ttl_ms };
        let config = self.config(ttl_ms, shared)?;
        let seed = self.seed(&whose, context);
        let wait = Duration::from_millis(wait_ms);
        let reentry = Some(Reentry { owner: self.owner(&whose, again), extend });
        let request = AcquireRequest {
            reentry,
            fair: true,
            ..AcquireRequest::for_member(config, wait, true, seed)
        };
        let call = context.call(id);
        self.claim(whose, request, Some(call), context);
        Ok(())
    }

    /// Starts a claim. A multi-lock request is answered once for all its claims.
    fn claim(
        &mut self,
        whose: LeaseKey,
        request: AcquireRequest<<K::Claim as ClaimMachine>::Seed>,
        acquiring: Option<Call>,
        context: &mut InputContext<'_>,
    ) -> ClaimId {
        let key: Key = Arc::from(whose.1.as_bytes());
        let owner = request.reentry.map(|reentry| reentry.owner);
        let id = self.client(context, |client, cx| client.acquire(key, request, cx));
        self.claims.push(PendingClaim { id, whose, owner, acquiring, releasing: None });
        id
    }

    fn seed(
        &mut self,
        whose: &LeaseKey,
        context: &mut InputContext<'_>,
    ) -> <K::Claim as ClaimMachine>::Seed {
        let Self { conduct, roots, former, .. } = self;
        let mut root = || {
            if let Some((_, root)) = roots.iter().find(|(client, _)| *client == whose.0) {
                return *root;
            }
            let root = context.rng.token();
            roots.push((whose.0.clone(), root));
            root
        };
        let former = former.iter().find(|(of, _)| of == whose).map(|(_, claim)| claim);
        conduct.seed(&mut root, former)
    }

    /// Answers the request that waits for a claim, if the claim has reached the awaited state.
    fn attend(&mut self, id: ClaimId, context: &mut InputContext<'_>) {
        // Its caller looks at every change.
        self.client(context, |client, cx| _ = client.look(id, cx));
        if self.attend_group(id, context) || self.attend_choice(id, context) {
            return;
        }
        let Self { client, claims, .. } = self;
        let Some(pending) = claims.iter_mut().find(|claim| claim.id == id) else { return };
        let Some(standing) = client.standing(id) else { return self.end(id, context) };
        match (standing.progress(), standing) {
            (Progress::Pending, _) | (_, RequestState::Extending(_)) => {}
            (Progress::Won(_), _) => {
                self.advance(id, Input::Collect, context);
                self.attend(id, context);
            }
            (Progress::Failed(why, votes, _), _) => {
                pending.fail(why, votes, context);
                self.end(id, context);
            }
            (_, RequestState::Refused(refusal)) => {
                pending.refuse(refusal, context);
                self.end(id, context);
            }
            (_, RequestState::Reentered(_)) => self.take_handle(id, context),
            (_, RequestState::Claim(claim)) => match claim.claim() {
                Claim::Holding(_) => self.hold(id, context),
                Claim::Releasing(release) => {
                    if let Some(outcome) = release.outcome() {
                        pending.released(outcome, context);
                        self.end(id, context);
                        self.parted(id, outcome, context);
                    }
                }
                _ => self.end(id, context),
            },
            _ => unreachable!("a request that is queued or over has that for its progress"),
        }
    }

    /// Records that a claim was collected: its client holds the resource. Returns the grant.
    fn granted(&mut self, id: ClaimId, context: &mut InputContext<'_>) -> Option<Each> {
        let pending = self.claims.iter().find(|claim| claim.id == id)?;
        let (whose, owner) = (pending.whose.clone(), pending.owner);
        let claim = self.client.claim(id)?;
        let grant = each(self.conduct, claim, context.clocks)?;
        if K::REMEMBERS {
            self.former.retain(|(of, _)| *of != whose);
            self.former.push((whose.clone(), claim.clone()));
        }
        let reported = (self.client.hold(id)?.deadline(), grant.deadline_ns?);
        if let Some(old) = self.leases.insert(whose, Lease { id, owner, round: 0 }, reported) {
            // Once for each of its handles.
            for _ in 0..self.handles(old.id) {
                self.give_back(old.id, Input::Abandon, context);
            }
            self.end(old.id, context);
        }
        Some(grant)
    }

    fn pending(&mut self, id: ClaimId) -> Option<&mut PendingClaim> {
        self.claims.iter_mut().find(|claim| claim.id == id)
    }

    /// Whether a lease is held, as its holder finds it.
    fn held(&mut self, id: ClaimId, context: &InputContext<'_>) -> Result<(), RequestError> {
        let (conduct, clocks) = (self.conduct, context.clocks);
        let claim = self.client.claim(id);
        let seems_held = claim.is_some_and(|claim| match claim.claim() {
            Claim::Holding(hold) => conduct.seems_held(claim, hold, clocks),
            _ => false,
        });
        match self.leases.find_by(|lease| lease.id == id) {
            Some(record) if seems_held => record.held(),
            _ => Err(FailureReason::Lost.into()),
        }
    }

    /// How many handles of a lease are out, as far as the machine counts.
    fn handles(&self, id: ClaimId) -> u32 {
        self.client.hold(id).map_or(1, redquorum_protocol::Hold::handles)
    }

    /// Ends a claim: no request waits for it any more.
    fn end(&mut self, id: ClaimId, context: &mut InputContext<'_>) {
        self.claims.retain(|claim| claim.id != id);
        self.client(context, |client, cx| client.cancel(id, cx));
    }

    /// The lock config of a request.
    fn config(&self, ttl_ms: u64, shared: bool) -> Result<LockConfig, BadOption> {
        let options = &self.options;
        let fixed = Duration::from_millis(options.drift_ms);
        let drift = self.conduct.drift(Drift { ppm: options.drift_ppm, fixed });
        let ttl = Duration::from_millis(ttl_ms);
        let node_timeout = Duration::from_millis(options.node_timeout_ms);
        let quorum = self.client.quorum();
        let config = LockConfig::new(quorum.nodes(), ttl, drift, node_timeout)?.with_quorum(quorum);
        let config = config.with_lock_delay(Duration::from_millis(options.lock_delay_ms))?;
        let config = match guard(options, || 0) {
            Some(guard) => config
                .with_max_ttl(guard.max_ttl())?
                .with_clock_bound(guard.clock_bound().unwrap_or_default())?,
            None => config,
        };
        let config = if shared { config.with_sharing()? } else { config };
        let config = match &options.name {
            Some(name) => config.with_name(HolderName::new(name)?),
            None => config,
        };
        if options.fencing { config.with_fencing(FENCING_COUNTER_TTL) } else { Ok(config) }
    }
}

/// Whether a request for several resources names any, and none twice.
fn distinct(resources: &[Name]) -> Result<(), RequestError> {
    let mut rest = resources.iter().enumerate();
    let twice = rest.any(|(index, name)| resources[..index].contains(name));
    if resources.is_empty() || twice { Err(FailureReason::Error.into()) } else { Ok(()) }
}

/// The guard against masters that may have lost data.
fn guard(options: &Options, salt: impl FnOnce() -> u64) -> Option<Guard> {
    let max_ttl = Duration::from_millis(options.restart_guard_ms?);
    let fixed = Duration::from_millis(options.drift_ms);
    // The lock config of the first request reports an allowance that is too large.
    let drift = Drift { ppm: options.drift_ppm, fixed };
    let guard = Guard::new(max_ttl, drift, salt()).ok()?;
    let guard = match options.clock_guard_ms.map(Duration::from_millis) {
        Some(bound) => guard.with_clock_bound(bound).ok()?,
        None => guard,
    };
    Some(options.masters().map_or(guard, |masters| guard.over(masters)))
}

/// How a client process behaves: honestly by default, and as a mutant where a method is overridden.
/// This is the one seam between a process and its mutants. An honest process drives the shipped
/// [`Claim`] and takes every default.
pub trait Conduct: Copy + Debug {
    /// The machine that the client drives for each request.
    type Claim: ClaimMachine<Clocks: From<Clocks>, Seed: Clone + Debug> + Clone + Debug;

    /// Whether claims measure by clocks that may jump, so that no timer is reliable.
    const CLOCKS_JUMP: bool = false;

    /// Whether a new claim depends on the result of an earlier one.
    const REMEMBERS: bool = false;

    /// The ingredients of a claim. `root` draws the random token that all claims of the client
    /// share. `former` is the latest claim of the client that was granted the same resource.
    fn seed(
        self,
        root: &mut dyn FnMut() -> Token,
        former: Option<&Self::Claim>,
    ) -> <Self::Claim as ClaimMachine>::Seed;

    /// The options as the process uses them.
    fn options(self, options: Options) -> Options {
        options
    }

    /// The masters, and which of them are a quorum.
    fn quorum(self, quorum: Quorum) -> Quorum {
        quorum
    }

    /// The drift allowance.
    fn drift(self, drift: Drift) -> Drift {
        drift
    }

    /// A master's greeting as the process uses it.
    fn greeting(self, _node: NodeId, greeting: Greeting) -> Greeting {
        greeting
    }

    /// The clock by which multi-lock requests are measured.
    fn clock(self, clocks: Clocks) -> Time {
        clocks.monotonic
    }

    /// The clock for multi-lock requests at the moment of the collection.
    fn clock_to_collect(self, clocks: Clocks) -> Time {
        self.clock(clocks)
    }

    /// Whether the process keeps a member of a multi-lock that it should undo.
    fn keeps(self, _claim: &Self::Claim) -> bool {
        false
    }

    /// The deadline of a lease, by the monotonic clock.
    fn deadline(self, _claim: &Self::Claim, hold: &Hold, _clocks: Clocks) -> Time {
        hold.deadline()
    }

    /// Whether the holder finds its lease held.
    fn seems_held(self, _claim: &Self::Claim, hold: &Hold, clocks: Clocks) -> bool {
        hold.lost().is_none() && clocks.monotonic < hold.deadline()
    }

    /// Whether the process reports a loss.
    fn reports_loss(self) -> bool {
        true
    }

    /// The value of a token on the masters.
    fn on_the_wire(self, token: Token) -> Token {
        token
    }
}

/// The conduct of the shipped lock.
#[derive(Clone, Copy, Debug)]
pub struct Honest;

impl Conduct for Honest {
    type Claim = Claim;

    fn seed(self, _: &mut dyn FnMut() -> Token, _: Option<&Claim>) {}
}

impl From<Clocks> for Time {
    fn from(clocks: Clocks) -> Self {
        clocks.monotonic
    }
}
