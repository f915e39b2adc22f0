//! Client: everything that one process does with one set of masters, as one machine.
//!
//! It owns the [links](crate::Link) to the masters, the [claims](crate::Claim) of all requests, the
//! local wait queues in which requests for one resource take turns, the timers of held leases, and
//! the identities of the servers. A driver passes it requests, connection events and the time, and
//! carries out its [`ClientEffect`]s. The Tokio shell of the `redquorum` crate does so on sockets,
//! the simulation in virtual time.
//!
//! | file | rules |
//! |---|---|
//! | `client/routes.rs` | routes effects of claims to links, and replies of links to claims |
//! | `client/wait_queues.rs` | decides which local request asks the masters next |
//! | `client/owners.rs` | decides which request of an owner gets a handle of the owner's lease |
//! | `client/marking.rs` | decides whether a link may mark a master that it has watched |
//! | `client/timers.rs`, `client/pacing.rs` | decide when leases end and when they are renewed |
//! | `client/unpolled.rs` | sets requests aside whose callers do not look at them |
//! | `client/types.rs` | options, requests and effects |
//! | `client/machine.rs` | the seam between the client and the claims that it drives |

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::acquire::{Failure, Turn};
use crate::claim::{Claim, Input};
use crate::effect::{Effect, Key, Rng};
use crate::guard::RunId;
use crate::hold::Hold;
use crate::link::{Link, LinkEffect, LinkInput};
use crate::quorum::{NodeId, Quorum};
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Reply, Votes};
use crate::waiter::WaiterId;
use crate::wire::Greeting;

mod machine;
mod marking;
mod owners;
mod pacing;
mod routes;
mod timers;
mod types;
mod unpolled;
mod wait_queues;

pub use machine::ClaimMachine;
use owners::{Owners, Round};
use timers::{Timer, Timers};
pub use types::{
    AcquireRequest, ClaimId, ClientConfig, ClientEffect, OwnerId, Progress, Reentry, Refusal,
    ReplyTo, RequestState, VoteCounts,
};
use unpolled::Leeway;
use wait_queues::WaitQueues;

/// Everything that one process does with one set of masters.
///
/// A driver passes it requests, connection events and the time, and carries out its
/// [`ClientEffect`]s in their order. [`wake_link`](Client::wake_link) wakes links, and
/// [`wake_leases`](Client::wake_leases) wakes leases. Waiting requests go on when their callers
/// [look](Client::look) at them. What a request has on masters, and what waits behind it, never
/// depends on its caller: [`acts_at`](Client::acts_at) names the next instant at which the client
/// acts by itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client<C: ClaimMachine = Claim> {
    config: ClientConfig,
    leeway: Leeway,
    links: Vec<Link<ReplyTo>>,
    /// The server to which each link leads, as far as it is known. Two addresses can lead to one
    /// server (`localhost` and `127.0.0.1`, two names, a proxy). If it counted twice, a quorum
    /// would be fewer masters than it seems.
    servers: Vec<Option<RunId>>,
    /// Boxed, so that the map moves pointers.
    claims: BTreeMap<ClaimId, Box<Entry<C, C::Seed>>>,
    /// The number of the latest claim.
    last: u64,
    queues: WaitQueues,
    owners: Owners,
    timers: Timers,
    /// The votes of each master.
    votes: Vec<VoteCounts>,
    /// Replies that claims have yet to receive.
    inputs: VecDeque<(ClaimId, Input)>,
    shut_down: bool,
    /// An empty buffer, kept for its allocation.
    effects: Vec<Effect>,
    /// An empty buffer, kept for its allocation.
    link_effects: Vec<LinkEffect<ReplyTo>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry<C, S> {
    key: Key,
    request: AcquireRequest<S>,
    /// The end of its wait.
    give_up: Time,
    /// How long it may wait for another request of its owner.
    waits_until: Time,
    state: State<C>,
    /// Whether it has a place in the local queue.
    queued: bool,
    /// The waiter id by which masters wake it, if they do.
    waiter_id: Option<WaiterId>,
    /// Whether its caller has looked at it since its last change.
    waits: bool,
    /// The time of its last change, or of its start.
    changed: Time,
    /// Its caller did not look in time, although the client ran: until when it is waited for.
    overdue: Option<Time>,
    /// The claim of a request of an owner that was set aside: masters keep nothing of it. The
    /// request goes on with it, because late replies to its attempts must not count for new ones.
    aside: Option<Box<C>>,
    timer: Timer,
    /// Its number among the leases that have had a watchdog.
    number: Option<u64>,
    /// Whether its timer was set for a held lease.
    holds: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State<C> {
    /// It waits for another request of its owner.
    Waiting,
    Queued,
    Claim(C),
    /// It has a handle of this lease, which is extended for it first.
    Extending(ClaimId, Round),
    /// It has a handle of this lease, which its caller has not taken.
    Reentered(ClaimId),
    Refused(Refusal),
    Over(Failure, Votes),
}

/// The clocks, the random source and the effects of one input.
pub struct Context<'a, C: ClaimMachine> {
    /// The readings of the clocks.
    pub clocks: C::Clocks,
    /// The source of random numbers and tokens.
    pub rng: &'a mut dyn Rng,
    /// What the driver is to do.
    pub out: &'a mut Vec<ClientEffect>,
}

impl<C: ClaimMachine> Context<'_, C> {
    fn now(&self) -> Time {
        C::now(self.clocks)
    }
}

impl<C: ClaimMachine> Client<C> {
    /// A client that dials all its masters.
    pub fn start(config: ClientConfig, out: &mut Vec<ClientEffect>) -> Self {
        let mut client = Self {
            config,
            leeway: Leeway::of(config.node_timeout),
            links: Vec::with_capacity(config.quorum.nodes()),
            servers: alloc::vec![None; config.quorum.nodes()],
            claims: BTreeMap::new(),
            last: 0,
            queues: WaitQueues::default(),
            owners: Owners::new(),
            timers: Timers::default(),
            votes: alloc::vec![VoteCounts::default(); config.quorum.nodes()],
            inputs: VecDeque::new(),
            shut_down: false,
            effects: Vec::new(),
            link_effects: Vec::new(),
        };
        for node in NodeId::all(config.quorum.nodes()) {
            let mut effects = Vec::new();
            let link = Link::start(config.bounds, &mut effects);
            client.links.push(link.guarded_by(config.guard).woken_at(config.inbox));
            for effect in effects {
                client.report(node, effect, None, Time::ZERO, out);
            }
        }
        client
    }

    /// Starts a request for a lease of `key`. Its caller [looks](Client::look) at it until it has
    /// the lease. Then the caller [gives the lease back](Client::give_back), or
    /// [cancels](Client::cancel) the request. If the request's owner holds the lease already, the
    /// caller [takes another handle](Client::take_handle) of it.
    pub fn acquire(
        &mut self,
        key: Key,
        request: AcquireRequest<C::Seed>,
        cx: &mut Context<'_, C>,
    ) -> ClaimId {
        debug_assert_eq!(request.config.quorum(), self.config.quorum, "R3: another quorum");
        self.last += 1;
        let (id, now) = (ClaimId(self.last), cx.now());
        let is_owned = request.reentry.is_some();
        let entry = Box::new(Entry {
            key,
            give_up: now.plus(request.wait),
            waits_until: now.plus(request.wait.max(request.config.node_timeout())),
            request,
            state: if is_owned { State::Waiting } else { State::Queued },
            queued: false,
            waiter_id: None,
            waits: false,
            changed: now,
            overdue: None,
            aside: None,
            timer: Timer::default(),
            number: None,
            holds: false,
        });
        self.claims.insert(id, entry);
        if is_owned {
            self.continue_reentry(id, cx);
        } else {
            self.enqueue(id, cx);
        }
        self.deliver(cx);
        id
    }

    /// The caller looks at its request: if the request is due, it acts. Only a request whose caller
    /// looks at it makes attempts: a lease that is won for a caller that hangs would keep others
    /// out. A request whose caller does not look is set aside, and goes on when its caller looks
    /// again.
    pub fn look(&mut self, id: ClaimId, cx: &mut Context<'_, C>) -> Option<RequestState<'_, C>> {
        let entry = self.claims.get_mut(&id)?;
        (entry.waits, entry.overdue) = (true, None);
        let due = cx.now() >= self.look_again_at(id, cx.clocks);
        match &self.claims.get(&id)?.state {
            State::Waiting | State::Extending(..) => self.continue_reentry(id, cx),
            State::Queued if due => self.wait_is_over(id, cx),
            State::Claim(_) if due => self.drive(id, Input::Wake, cx),
            _ => return self.standing(id),
        }
        self.deliver(cx);
        self.standing(id)
    }

    /// The caller of a request takes the handle that it got. Returns the claim of the lease. The
    /// request is over then.
    pub fn take_handle(&mut self, id: ClaimId, cx: &mut Context<'_, C>) -> Option<ClaimId> {
        let State::Reentered(of) = self.claims.get(&id)?.state else { return None };
        debug_assert!(self.hold(of).is_some(), "R8: a handle of a lease that was given back");
        self.forget(id, cx);
        Some(of)
    }

    /// The state of a request; `None` once the request is over and its caller was informed.
    pub fn standing(&self, id: ClaimId) -> Option<RequestState<'_, C>> {
        let entry = self.claims.get(&id)?;
        Some(match &entry.state {
            State::Waiting => RequestState::Queued(entry.waits_until),
            State::Queued => RequestState::Queued(entry.give_up),
            State::Extending(of, _) => RequestState::Extending(*of),
            State::Reentered(of) => RequestState::Reentered(*of),
            State::Refused(why) => RequestState::Refused(why),
            State::Claim(claim) => RequestState::Claim(claim),
            State::Over(why, votes) => RequestState::Over(*why, votes),
        })
    }

    /// The claim of a request, once its turn has come.
    pub fn claim(&self, id: ClaimId) -> Option<&C> {
        match self.standing(id)? {
            RequestState::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    /// The lease of a claim, if it has one.
    pub fn hold(&self, id: ClaimId) -> Option<&Hold> {
        self.claim(id)?.claim().hold()
    }

    /// When the caller looks at its request again, if nothing changes before.
    pub fn look_again_at(&self, id: ClaimId, clocks: C::Clocks) -> Time {
        let claim = match self.standing(id) {
            Some(RequestState::Queued(until)) => return until,
            // The round ends with the lease's own claim.
            Some(RequestState::Extending(of)) => self.claim(of),
            Some(RequestState::Claim(claim)) => Some(claim),
            _ => None,
        };
        let Some(claim) = claim else { return Time::NEVER };
        match claim.claim() {
            // The lease waits to be collected.
            Claim::Acquiring(acquire) if acquire.is_won() => Time::NEVER,
            // The client's own timers take care of renewals.
            Claim::Holding(hold) => claim.by_now(clocks, hold.next_end()),
            _ => claim.next_wake(clocks),
        }
    }

    /// Passes a claim an input of its caller: collect, extend, keep alive or re-enter.
    pub fn handle(&mut self, id: ClaimId, input: Input, cx: &mut Context<'_, C>) {
        self.drive(id, input, cx);
        self.deliver(cx);
    }

    /// Gives a lease back, by [`Input::Release`] or [`Input::Abandon`]. The next request of this
    /// process has its turn: its commands are written behind the clean-up. Of several handles, only
    /// the last one gives the lease back.
    pub fn give_back(&mut self, id: ClaimId, input: Input, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let others = matches!(&entry.state, State::Claim(claim) if claim.claim().handles() > 1);
        let next = if others || !core::mem::take(&mut entry.queued) {
            None
        } else {
            self.queues.next(&entry.key, |queue| queue.hand_on(&id, self.config.fair))
        };
        if next.is_some_and(|(_, turn)| turn == Turn::HandedOff) {
            self.drive(id, Input::HandOn, cx);
        }
        self.drive(id, input, cx);
        cx.out.push(ClientEffect::Changed(id));
        self.start_next(next, cx);
        self.deliver(cx);
    }

    /// The caller of a request is gone, whatever the state of the request. Keys that it may have
    /// set are deleted. A lease that it holds is given back with all its handles, as by
    /// [`Input::Abandon`]. A handle that was not taken is given back, as by [`Input::Release`].
    pub fn cancel(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        if let Some(RequestState::Extending(of) | RequestState::Reentered(of)) = self.standing(id) {
            self.give_back(of, Input::Release, cx);
        }
        let handles = self.claim(id).map_or(0, |claim| claim.claim().handles());
        for _ in 0..handles {
            self.drive(id, Input::Abandon, cx);
        }
        self.forget(id, cx);
        self.deliver(cx);
    }

    /// Ends a request under which no work ran, whatever its state: gives the attempt up, or gives
    /// the lease back without a lock delay.
    pub fn undo(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        if self.hold(id).is_some() {
            self.give_back(id, Input::Release, cx);
        }
        self.cancel(id, cx);
    }

    /// The caller of a request that is over, or of a release, no longer looks at it.
    fn forget(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        self.unsubscribe(id, cx);
        self.leave_owner(id, cx);
        let Some(entry) = self.claims.remove(&id) else { return };
        self.timers.replace(id, entry.timer, Timer::default());
        if entry.queued {
            let next = self.queues.leave(&entry.key, id);
            self.start_next(next, cx);
        }
    }

    /// A connection has completed its greeting.
    ///
    /// # Errors
    /// The master that is the same server: one server must not vote twice. The driver closes the
    /// connection, and reports it by [`closed`](Client::closed). Either address may be the wrong
    /// one, so the other master is dialled again, too.
    ///
    /// `Ok` does not mean that the link has taken the connection: its
    /// [number](crate::Link::epoch) shows that.
    pub fn connected(
        &mut self,
        node: NodeId,
        epoch: u64,
        greeting: Greeting,
        cx: &mut Context<'_, C>,
    ) -> Result<(), NodeId> {
        if self.links[node.index()].awaits(epoch) {
            let same = |(at, server): (usize, &Option<RunId>)| {
                at != node.index() && server.is_some() && *server == greeting.run_id
            };
            if let Some(other) = self.servers.iter().enumerate().position(same) {
                self.connection(NodeId::new(other), LinkInput::Doubt, cx);
                return Err(NodeId::new(other));
            }
            // A server that does not tell its id is not taken for the one before it.
            self.servers[node.index()].clone_from(&greeting.run_id);
            debug_assert!(self.each_server_votes_once(), "A1: {:?}", self.servers);
        }
        self.connection(node, LinkInput::Connected { epoch, greeting }, cx);
        Ok(())
    }

    fn each_server_votes_once(&self) -> bool {
        let mut known = self.servers.iter().filter(|server| server.is_some()).enumerate();
        known.all(|(at, server)| {
            self.servers.iter().filter(|it| it.is_some()).take(at).all(|it| it != server)
        })
    }

    /// A connection did not come up, or broke. `random` gives the jitter of the next try.
    pub fn closed(
        &mut self,
        node: NodeId,
        epoch: u64,
        why: Arc<str>,
        random: u64,
        cx: &mut Context<'_, C>,
    ) {
        let link = &self.links[node.index()];
        if link.awaits(epoch) && link.epoch().is_none() {
            // Otherwise two masters that swapped their addresses would exclude each other for ever.
            self.servers[node.index()] = None;
        }
        self.connection(node, LinkInput::Closed { epoch, why, random }, cx);
    }

    /// A master replied to the oldest unanswered command of a connection.
    pub fn replied(&mut self, node: NodeId, epoch: u64, reply: Reply, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::Replied { epoch, reply }, cx);
    }

    /// A master woke a waiter.
    pub fn woken(
        &mut self,
        node: NodeId,
        epoch: u64,
        waiter_id: WaiterId,
        cx: &mut Context<'_, C>,
    ) {
        self.connection(node, LinkInput::Woken { epoch, waiter_id }, cx);
    }

    /// Asks a master who holds a resource; `token` is a fresh one. [`ClientEffect::Replied`]
    /// reports the reply: no key, or a holder.
    pub fn ask_holder(
        &mut self,
        node: NodeId,
        request: u64,
        (key, token): (Key, Token),
        cx: &mut Context<'_, C>,
    ) {
        let tag = ReplyTo::Caller(request);
        self.connection(node, LinkInput::AskHolder { key, token, tag }, cx);
    }

    /// Asks a master whether it would grant a lease. [`ClientEffect::Replied`] reports the reply.
    pub fn probe(&mut self, node: NodeId, request: u64, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::Probe(ReplyTo::Caller(request)), cx);
    }

    /// Marks a master as new, unless it has a boot marker. If one of the masters has the marker of
    /// other locks, the client marks none. [`ClientEffect::Replied`] reports the reply.
    pub fn initialize(&mut self, node: NodeId, request: u64, cx: &mut Context<'_, C>) {
        if let Some(cause) = self.refuses_to_initialize() {
            let reply = Reply::Unknown(cause);
            return cx.out.push(ClientEffect::Replied { request, node, reply });
        }
        self.connection(node, LinkInput::Initialize(ReplyTo::Caller(request)), cx);
    }

    /// Stops collecting votes from all masters; pending clean-ups go on. All callers look at their
    /// requests.
    pub fn shut_down(&mut self, cx: &mut Context<'_, C>) {
        self.shut_down = true;
        for node in NodeId::all(self.links.len()) {
            self.connection(node, LinkInput::ShutDown, cx);
        }
        cx.out.extend(self.claims.keys().map(|id| ClientEffect::Changed(*id)));
    }

    /// The driver has seen its clock run backwards: every lease is lost, and every attempt under
    /// way fails. From now on the driver adds what the clock has lost, so that the time of the
    /// inputs never runs backwards.
    pub fn clock_ran_back(&mut self, cx: &mut Context<'_, C>) {
        // Not those that get their turn by this: they read the clock anew.
        let has_claim = |entry: &Entry<C, C::Seed>| matches!(entry.state, State::Claim(_));
        let claims = self.claims.iter().filter(|(_, entry)| has_claim(entry));
        let claims: Vec<ClaimId> = claims.map(|(id, _)| *id).collect();
        for id in claims {
            self.drive(id, Input::ClockRanBack, cx);
            self.deliver(cx);
        }
        let is_held = |entry: &Entry<C, C::Seed>| match &entry.state {
            State::Claim(claim) => claim.claim().hold().is_some_and(|hold| hold.lost().is_none()),
            _ => false,
        };
        debug_assert!(
            !self.claims.values().any(|entry| is_held(entry)),
            "a lease outlives the clock that measures it"
        );
    }

    /// Whether the client was shut down.
    pub const fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// The driver of one link is gone: the client collects no more votes from its master, and its
    /// clean-ups do not go on.
    pub fn abandon_link(&mut self, node: NodeId, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::Abandon, cx);
    }

    fn connection(&mut self, node: NodeId, input: LinkInput<ReplyTo>, cx: &mut Context<'_, C>) {
        self.enter(node, input, None, cx);
        self.deliver(cx);
    }

    /// Wakes one link if it is due: see [`Link::next_wake`].
    pub fn wake_link(&mut self, node: NodeId, cx: &mut Context<'_, C>) {
        if cx.now() >= self.links[node.index()].next_wake() {
            self.permit_marking(node);
            self.connection(node, LinkInput::Wake, cx);
        }
    }

    /// The masters, and which of them are a quorum.
    pub const fn quorum(&self) -> Quorum {
        self.config.quorum
    }

    /// The links, in order.
    pub fn links(&self) -> &[Link<ReplyTo>] {
        &self.links
    }

    /// The link to a master.
    pub fn link(&self, node: NodeId) -> &Link<ReplyTo> {
        &self.links[node.index()]
    }

    /// The votes of a master so far.
    pub fn votes(&self, node: NodeId) -> VoteCounts {
        self.votes[node.index()]
    }

    /// The number of resources for which requests of this process wait, or which they hold after a
    /// wait.
    pub fn resources_waited_for(&self) -> usize {
        self.queues.len()
    }

    /// Which of the resources of a request for one of them are taken, as far as this client knows:
    /// requests of its own wait for them, or got them by a wait; or others waited for one of them
    /// when it was given back here.
    pub fn taken(&self, now: Time, keys: &[Key]) -> Vec<bool> {
        self.queues.taken(now, keys)
    }

    /// The number of resources that owners hold or request, counted for each owner.
    pub fn owned_resources(&self) -> usize {
        self.owners.len()
    }
}
