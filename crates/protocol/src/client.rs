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
//! | `client.rs` | routes effects of claims to links, and replies of links to claims |
//! | `client/wait_queues.rs` | decides which local request asks the masters next |
//! | `client/owners.rs` | decides which request of an owner gets a handle of the owner's lease |
//! | `client/timers.rs`, `client/pacing.rs` | decide when leases end and when they are renewed |
//! | `client/types.rs` | options, requests and effects |
//! | `client/machine.rs` | the seam between the client and the claims that it drives |
//!
//! A claim never receives a reply while the client routes the claim's own effects. Otherwise an
//! attempt could fail before its last `SET` is queued, and its clean-up would be queued first.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acquire::{Failure, Turn};
use crate::claim::{Claim, Input};
use crate::effect::{Effect, Key, QueueEvent, Rng, RoundId};
use crate::hold::Hold;
use crate::link::{Link, LinkEffect, LinkInput, LinkState};
use crate::quorum::{NodeId, quorum};
use crate::server_identities::ServerIdentities;
use crate::time::Time;
use crate::vote::{Reply, Votes};
use crate::waiter::WaiterId;
use crate::wire::Greeting;

mod machine;
mod owners;
mod pacing;
mod timers;
mod types;
mod wait_queues;

pub use machine::ClaimMachine;
use owners::{Owners, Round};
use pacing::renewal_moment;
use timers::{BATCH, Timer, Timers, room};
pub use types::{
    AcquireRequest, ClaimId, ClientConfig, ClientEffect, OwnerId, Progress, Reentry, Refusal,
    ReplyTo, RequestState, VoteCounts,
};
use wait_queues::WaitQueues;

/// The shortest delay after which a caller that does not look at its request counts as
/// unresponsive.
const LEEWAY: Duration = Duration::from_millis(500);

/// Everything that one process does with one set of masters.
///
/// A driver passes it requests, connection events and the time, and carries out its
/// [`ClientEffect`]s in their order. [`wake_link`](Client::wake_link) wakes links, and
/// [`wake_leases`](Client::wake_leases) wakes leases. Waiting requests go on when their callers
/// [look](Client::look) at them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client<C: ClaimMachine = Claim> {
    config: ClientConfig,
    links: Vec<Link<ReplyTo>>,
    /// The server to which each link leads.
    servers: ServerIdentities,
    /// Boxed, so that the map moves pointers.
    claims: BTreeMap<ClaimId, Box<Entry<C, C::Seed>>>,
    /// The number of the latest claim.
    last: u64,
    queues: WaitQueues,
    owners: Owners,
    timers: Timers,
    /// How many leases have had a watchdog.
    watched: u64,
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
    listens: Option<WaiterId>,
    /// Whether its caller has looked at it since its last change.
    waits: bool,
    /// The time of its last change, or of its start.
    changed: Time,
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
    /// It waits for its turn.
    Queued,
    Claim(C),
    /// It has a handle of this lease, which is extended for it first.
    Extending(ClaimId, Round),
    /// It has a handle of this lease, which its caller has not taken.
    Reentered(ClaimId),
    /// It gets no handle.
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
            links: Vec::with_capacity(config.nodes),
            servers: ServerIdentities::new(config.nodes),
            claims: BTreeMap::new(),
            last: 0,
            queues: WaitQueues::default(),
            owners: Owners::new(),
            timers: Timers::default(),
            watched: 0,
            votes: alloc::vec![VoteCounts::default(); config.nodes],
            inputs: VecDeque::new(),
            shut_down: false,
            effects: Vec::new(),
            link_effects: Vec::new(),
        };
        for node in NodeId::all(config.nodes) {
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
        self.last += 1;
        let (id, now) = (ClaimId(self.last), cx.now());
        let is_owned = request.reentry.is_some();
        let entry = Box::new(Entry {
            key,
            give_up: now.plus(request.wait),
            waits_until: now.plus(request.wait.max(request.terms.node_timeout())),
            request,
            state: if is_owned { State::Waiting } else { State::Queued },
            queued: false,
            listens: None,
            waits: false,
            changed: now,
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
    /// out.
    pub fn look(&mut self, id: ClaimId, cx: &mut Context<'_, C>) -> Option<RequestState<'_, C>> {
        self.claims.get_mut(&id)?.waits = true;
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
        match self.claim(id)?.claim() {
            Claim::Holding(hold) => Some(hold),
            _ => None,
        }
    }

    /// When the caller looks at its request again, if nothing changes before.
    pub fn look_again_at(&self, id: ClaimId, clocks: C::Clocks) -> Time {
        let claim = match self.standing(id) {
            Some(RequestState::Queued(until)) => return until,
            // The round ends with the lease's own claim.
            Some(RequestState::Extending(of)) => self.claim(of),
            _ => self.claim(id),
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
        let others = matches!(&entry.state, State::Claim(claim) if handles(claim.claim()) > 1);
        let next = if others || !core::mem::take(&mut entry.queued) {
            None
        } else {
            self.queues.hand_on(&entry.key, id, self.config.fair)
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
        let handles = self.claim(id).map_or(0, |claim| match claim.claim() {
            Claim::Acquiring(acquire) => u32::from(acquire.failure().is_none()),
            Claim::Holding(hold) => hold.handles(),
            _ => 0,
        });
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
        let Some(mut entry) = self.claims.remove(&id) else { return };
        self.timers.replace(id, entry.timer, Timer::default());
        if let Some(reentry) = entry.request.reentry {
            self.leave_owner((reentry.owner, entry.key.clone()), id, cx);
        }
        if let Some(waiter_id) = entry.listens.take() {
            self.unlisten(waiter_id, &entry.key, id, cx);
        }
        if entry.queued {
            let next = self.queues.leave(&entry.key, id);
            self.start_next(next, cx);
        }
    }

    /// A connection has completed its greeting.
    ///
    /// # Errors
    /// The master that is the same server: one server must not vote twice. The driver closes the
    /// connection, and reports it by [`closed`](Client::closed).
    pub fn connected(
        &mut self,
        node: NodeId,
        epoch: u64,
        greeting: Greeting,
        cx: &mut Context<'_, C>,
    ) -> Result<(), NodeId> {
        if self.links[node.index()].awaits(epoch)
            && let Some(run_id) = &greeting.run_id
        {
            self.servers.enter(node, run_id)?;
        }
        self.connection(node, LinkInput::Connected { epoch, greeting }, cx);
        Ok(())
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
            self.servers.leave(node);
        }
        self.connection(node, LinkInput::Closed { epoch, why, random }, cx);
    }

    /// A master replied to the oldest unanswered command of a connection.
    pub fn replied(&mut self, node: NodeId, epoch: u64, answer: Reply, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::Answered { epoch, answer }, cx);
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

    /// Asks a master whether it would grant a lease. [`ClientEffect::Replied`] reports the reply.
    pub fn probe(&mut self, node: NodeId, request: u64, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::Probe(ReplyTo::Caller(request)), cx);
    }

    /// Marks a master as new, unless it has a boot marker. [`ClientEffect::Replied`] reports the
    /// reply.
    pub fn initialize(&mut self, node: NodeId, request: u64, cx: &mut Context<'_, C>) {
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

    /// Whether the client was shut down.
    pub const fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// The driver of one link is gone: the client collects no more votes from its master.
    pub fn abandon_link(&mut self, node: NodeId, cx: &mut Context<'_, C>) {
        self.connection(node, LinkInput::ShutDown, cx);
    }

    fn connection(&mut self, node: NodeId, input: LinkInput<ReplyTo>, cx: &mut Context<'_, C>) {
        self.enter(node, input, None, cx);
        self.deliver(cx);
    }

    /// Wakes one link: see [`Link::next_wake`].
    pub fn wake_link(&mut self, node: NodeId, cx: &mut Context<'_, C>) {
        if cx.now() >= self.links[node.index()].next_wake() {
            self.connection(node, LinkInput::Wake, cx);
        }
    }

    /// Wakes the leases that are due, at most one batch. Requests that wait go on when their
    /// callers [look](Client::look) at them.
    pub fn wake_leases(&mut self, cx: &mut Context<'_, C>) {
        let now = cx.now();
        let mut handled = 0;
        while handled < BATCH
            && let Some(id) = self.timers.next_end(now)
        {
            handled += 1;
            self.end_is_due(id, cx);
            self.deliver(cx);
        }
        let replies = |link: &Link<ReplyTo>| link.state() == LinkState::Up;
        let unanswered = self.links.iter().filter(|it| replies(it)).map(Link::unanswered);
        let mut room = room(unanswered.collect(), quorum(self.links.len()));
        while handled < BATCH
            && room > 0
            && let Some(id) = self.timers.next_renewal(now)
        {
            (handled, room) = (handled + 1, room - 1);
            if let Some(entry) = self.claims.get_mut(&id) {
                entry.timer.renewal = None;
            }
            self.drive(id, Input::Renew, cx);
            self.deliver(cx);
        }
        if room == 0 {
            self.timers.pause(now);
        }
    }

    /// When to call [`wake_leases`](Client::wake_leases) next.
    pub fn leases_wake_at(&self) -> Time {
        self.timers.next_wake()
    }

    fn end_is_due(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let (now, leeway) = (cx.now(), self.leeway());
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.timer.end = None;
        let State::Claim(claim) = &entry.state else { return };
        match claim.claim() {
            Claim::Acquiring(acquire) if !acquire.is_won() => {
                let late = now >= claim.next_wake(cx.clocks).plus(leeway);
                if late && entry.queued && self.queues.has_others(&entry.key, id) {
                    self.pass_over(id, cx);
                } else {
                    self.set_timer(id, cx);
                }
            }
            Claim::Acquiring(_) => {
                self.drive(id, Input::Wake, cx);
                // The won lease is given up. Its caller goes on without a turn.
                self.vacate(id, cx);
            }
            _ => self.drive(id, Input::Wake, cx),
        }
    }

    /// How late a caller may look at its request and still count as responsive.
    fn leeway(&self) -> Duration {
        self.config.node_timeout.saturating_mul(4).max(LEEWAY)
    }

    /// Passes a claim one input, routes its effects, and updates what depends on the claim.
    fn drive(&mut self, id: ClaimId, input: Input, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let State::Claim(claim) = &mut entry.state else { return };
        let mut effects = core::mem::take(&mut self.effects);
        claim.handle(cx.clocks, input, cx.rng, &mut effects);
        if !effects.is_empty() {
            self.route(id, &mut effects, cx);
        }
        self.effects = effects;
        self.follow_up(id, cx);
    }

    /// Routes the effects of a claim to the links.
    fn route(&mut self, id: ClaimId, effects: &mut Vec<Effect>, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get(&id) else { return };
        let key = entry.key.clone();
        for effect in effects.drain(..) {
            let key = key.clone();
            let (node, input) = match effect {
                Effect::Send { node, step, ask } => {
                    (node, LinkInput::Send { key, ask, tag: ReplyTo::Claim(id, step) })
                }
                Effect::CleanUp { node, step, token, call, leave } => {
                    let tag = ReplyTo::Claim(id, step);
                    (node, LinkInput::CleanUp { key, token, call, leave, tag })
                }
                Effect::Leave { node, token, until } => {
                    cx.out.push(ClientEffect::Rearm { node });
                    (node, LinkInput::Leave { token, until })
                }
                Effect::Enqueue { node, step, waiter_id, position } => {
                    let tag = ReplyTo::Claim(id, step);
                    (node, LinkInput::Enqueue { key, waiter_id, position, tag })
                }
                Effect::Dequeue { node, waiter_id, call } => {
                    (node, LinkInput::Dequeue { key, waiter_id, call })
                }
                Effect::Subscribe { waiter_id } => {
                    self.listen(id, &key, waiter_id, cx);
                    continue;
                }
                Effect::Decided => {
                    self.changed(id, cx);
                    continue;
                }
            };
            self.enter(node, input, None, cx);
        }
    }

    fn changed(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            if core::mem::take(&mut entry.waits) {
                entry.changed = cx.now();
            }
            cx.out.push(ClientEffect::Changed(id));
        }
    }

    fn listen(&mut self, id: ClaimId, key: &Key, waiter_id: WaiterId, cx: &mut Context<'_, C>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.listens = Some(waiter_id);
        }
        self.queues.listen(key, id);
        for node in NodeId::all(self.links.len()) {
            self.enter(node, LinkInput::Subscribe { key: key.clone(), waiter_id }, Some(id), cx);
        }
    }

    fn unlisten(&mut self, waiter_id: WaiterId, key: &Key, id: ClaimId, cx: &mut Context<'_, C>) {
        self.queues.unlisten(key, id);
        for node in NodeId::all(self.links.len()) {
            self.enter(node, LinkInput::Unsubscribe(waiter_id), None, cx);
        }
    }

    /// Passes a link one input, and keeps what claims are to receive for
    /// [`deliver`](Self::deliver). Events of a resource go to one listener, or to all.
    fn enter(
        &mut self,
        node: NodeId,
        input: LinkInput<ReplyTo>,
        listener: Option<ClaimId>,
        cx: &mut Context<'_, C>,
    ) {
        let mut effects = core::mem::take(&mut self.link_effects);
        let now = cx.now();
        self.links[node.index()].handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            self.report(node, effect, listener, now, cx.out);
        }
        self.link_effects = effects;
    }

    fn report(
        &mut self,
        node: NodeId,
        effect: LinkEffect<ReplyTo>,
        listener: Option<ClaimId>,
        now: Time,
        out: &mut Vec<ClientEffect>,
    ) {
        match effect {
            LinkEffect::Write(command) => {
                if let Some(epoch) = self.links[node.index()].epoch() {
                    out.push(ClientEffect::Write { node, epoch, command });
                }
            }
            LinkEffect::Dial(epoch) => out.push(ClientEffect::Dial { node, epoch }),
            LinkEffect::Close(epoch) => out.push(ClientEffect::Close { node, epoch }),
            LinkEffect::Reply(ReplyTo::Claim(id, step), answer) => {
                if matches!(
                    step,
                    RoundId::Attempt(_) | RoundId::Certify { .. } | RoundId::Extend(_)
                ) {
                    self.votes[node.index()].count(&answer);
                }
                self.inputs.push_back((id, Input::Answered { node, step, answer }));
            }
            LinkEffect::Reply(ReplyTo::Caller(request), answer) => {
                out.push(ClientEffect::Replied { request, node, answer });
            }
            LinkEffect::QueueEvent(key, QueueEvent::Waiters(others)) => {
                self.queues.others(now, &key, others);
            }
            LinkEffect::QueueEvent(key, word) => {
                let listeners =
                    listener.map_or_else(|| self.queues.listeners(&key), |id| alloc::vec![id]);
                let heard = listeners.into_iter().map(|id| (id, Input::QueueEvent { node, word }));
                self.inputs.extend(heard);
            }
        }
    }

    /// Passes the claims what links reported.
    fn deliver(&mut self, cx: &mut Context<'_, C>) {
        while let Some((id, input)) = self.inputs.pop_front() {
            if matches!(input, Input::QueueEvent { word: QueueEvent::Free(_), .. })
                && self.is_unresponsive(id, cx)
            {
                self.pass_over(id, cx);
            } else {
                self.drive(id, input, cx);
            }
        }
    }

    /// Whether the caller of a waiting request has not looked at it for a long time.
    fn is_unresponsive(&self, id: ClaimId, cx: &Context<'_, C>) -> bool {
        let Some(entry) = self.claims.get(&id) else { return false };
        !entry.waits && cx.now() >= entry.changed.plus(self.leeway())
    }

    /// Updates the turns, the subscriptions and the timers after an input.
    fn follow_up(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        self.set_timer(id, cx);
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let State::Claim(claim) = &entry.state else { return };
        let claim = claim.claim();
        let waits = matches!(claim, Claim::Acquiring(it) if it.failure().is_none());
        let (done, ended) = (is_done(claim), matches!(claim, Claim::Ended));
        let owned = entry.request.reentry.is_some();
        if !waits && let Some(waiter_id) = entry.listens.take() {
            let key = entry.key.clone();
            self.unlisten(waiter_id, &key, id, cx);
        }
        if owned {
            self.inform_owner(id, cx);
        }
        if ended {
            self.forget(id, cx);
        } else if done {
            self.vacate(id, cx);
        }
    }

    /// Sets the timers of a claim. They are for a held lease, for a lease that is not collected,
    /// and for a waiting request whose caller may be unresponsive.
    fn set_timer(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let leeway = self.leeway();
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let State::Claim(claim) = &entry.state else { return };
        let mut wanted = Timer::default();
        match claim.claim() {
            Claim::Holding(hold) if hold.lost().is_none() => {
                let end = claim.by_now(cx.clocks, hold.next_end());
                // A timer that fires early only looks again, so a renewal does not move it.
                let set = entry.timer.end.filter(|_| core::mem::replace(&mut entry.holds, true));
                wanted.end = Some(set.map_or(end, |set| set.min(end)));
                wanted.renewal = hold.renewal().map(|renewal| {
                    let number = *entry.number.get_or_insert_with(|| {
                        self.watched += 1;
                        self.watched - 1
                    });
                    claim.by_now(cx.clocks, renewal_moment(renewal, number))
                });
            }
            Claim::Acquiring(acquire) if acquire.is_won() => {
                wanted.end = Some(claim.next_wake(cx.clocks));
            }
            Claim::Acquiring(acquire) if acquire.is_waiting() && entry.queued => {
                wanted.end = Some(claim.next_wake(cx.clocks).max(cx.now()).plus(leeway));
            }
            _ => {}
        }
        let set = core::mem::replace(&mut entry.timer, wanted);
        if set != wanted {
            self.timers.replace(id, set, wanted);
        }
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

    /// The number of resources that owners hold or request, counted for each owner.
    pub fn owned_resources(&self) -> usize {
        self.owners.len()
    }
}

/// Whether a claim neither holds a lease nor tries to get one.
fn is_done(claim: &Claim) -> bool {
    match claim {
        Claim::Acquiring(acquire) => acquire.failure().is_some(),
        Claim::Holding(hold) => hold.lost().is_some(),
        _ => true,
    }
}

/// How many handles of a lease are out.
fn handles(claim: &Claim) -> u32 {
    match claim {
        Claim::Holding(hold) => hold.handles(),
        _ => 1,
    }
}
