//! Wait queues: which request of this process asks the masters for a resource, and what happens to
//! the requests behind it.
//!
//! Requests for one resource wait in a local [`Queue`]; the first one asks the masters, and with it
//! those behind it that share the resource. A request whose wait is over reports what the latest
//! claim has found, and sends nothing. If that claim has found nothing yet, the request makes one
//! attempt outside the queue.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{ClaimId, ClaimMachine, Client, Context, State};
use crate::acquire::{Failure, Turn, WaitPolicy};
use crate::claim::Claim;
use crate::effect::Key;
use crate::queue::{Queue, RecentReleases};
use crate::time::{Time, millis};
use crate::vote::{Holder, Reply, Votes};

/// The local queues of all resources. A queue exists while a request waits in it or subscribes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct WaitQueues {
    queues: BTreeMap<Key, WaitQueue>,
    recent_releases: RecentReleases,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct WaitQueue {
    queue: Queue<ClaimId>,
    /// The request whose turn came last.
    latest: Option<ClaimId>,
    /// Requests that masters wake.
    subscribers: Vec<ClaimId>,
}

impl WaitQueues {
    /// Adds a request. Returns its turn, if that is now.
    pub(super) fn join(
        &mut self,
        now: Time,
        key: &Key,
        (id, shared): (ClaimId, bool),
    ) -> Option<Turn> {
        let first = self.queues.entry(key.clone()).or_default().queue.join(id, shared);
        first.then(|| self.recent_releases.turn(now, key))
    }

    /// The request is done, and holds no lease. Returns the next request and its turn.
    pub(super) fn leave(&mut self, key: &Key, id: ClaimId) -> Option<(ClaimId, Turn)> {
        self.next(key, |queue| queue.leave(&id, Turn::First))
    }

    pub(super) fn next(
        &mut self,
        key: &Key,
        leave: impl FnOnce(&mut Queue<ClaimId>) -> Option<(ClaimId, Turn)>,
    ) -> Option<(ClaimId, Turn)> {
        let next = leave(&mut self.queues.get_mut(key)?.queue);
        self.tidy(key);
        next
    }

    fn tidy(&mut self, key: &Key) {
        let empty = |it: &WaitQueue| it.queue.is_empty() && it.subscribers.is_empty();
        if self.queues.get(key).is_some_and(empty) {
            self.queues.remove(key);
        }
    }

    /// The requests whose turn has come, in each queue.
    pub(super) fn started(&self) -> impl Iterator<Item = ClaimId> {
        self.queues.values().flat_map(|it| it.queue.started().copied())
    }

    /// Whether others wait behind this request, whose turn has come.
    pub(super) fn has_others(&self, key: &Key, id: ClaimId) -> bool {
        let waits = |it: &WaitQueue| it.queue.is_started(&id) && it.queue.has_waiting();
        self.queues.get(key).is_some_and(waits)
    }

    pub(super) fn subscribe(&mut self, key: &Key, id: ClaimId) {
        let subscribers = &mut self.queues.entry(key.clone()).or_default().subscribers;
        if !subscribers.contains(&id) {
            subscribers.push(id);
        }
    }

    pub(super) fn unsubscribe(&mut self, key: &Key, id: ClaimId) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.subscribers.retain(|subscriber| *subscriber != id);
        }
        self.tidy(key);
    }

    pub(super) fn subscribers(&self, key: &Key) -> Vec<ClaimId> {
        self.queues.get(key).map(|queue| queue.subscribers.clone()).unwrap_or_default()
    }

    /// Notes how many waiters a master reported when a key of this process was deleted.
    pub(super) fn others(&mut self, now: Time, key: &Key, others: u32) {
        self.recent_releases.note(now, key, others);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.queue.note_others(others);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Which resources are taken, as far as this process knows: those that it waits for, or has
    /// got by a wait. If it has just given one of them back, and others waited, then probably all
    /// are: those others would have found a free one.
    pub(super) fn taken(&self, now: Time, keys: &[Key]) -> Vec<bool> {
        let others = keys.iter().any(|key| self.recent_releases.contains(now, key));
        keys.iter().map(|key| others || self.queues.contains_key(key)).collect()
    }
}

impl<C: ClaimMachine> Client<C> {
    /// The request asks the masters when its turn comes. A request that may not wait asks at once.
    pub(super) fn enqueue(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let now = cx.now();
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.state = State::Queued;
        entry.queued = now < entry.give_up;
        let claim = (id, entry.request.config.is_shared());
        let turn =
            if entry.queued { self.queues.join(now, &entry.key, claim) } else { Some(Turn::First) };
        self.start_next(turn.map(|turn| (id, turn)), cx);
    }

    /// Starts the request whose turn has come. A request whose wait is over passes the turn on.
    /// This is a loop, because thousands may time out in the same instant.
    pub(super) fn start_next(
        &mut self,
        mut next: Option<(ClaimId, Turn)>,
        cx: &mut Context<'_, C>,
    ) {
        while let Some((id, turn)) = next.take() {
            let Some(entry) = self.claims.get_mut(&id) else { return };
            let queued = entry.queued;
            let over = queued && cx.now() >= entry.give_up;
            let shared = queued && entry.request.config.is_shared();
            let key = entry.key.clone();
            // It enters the queues as a request does that lets others go first.
            let seen_taken = queued && entry.request.seen_taken && turn == Turn::First;
            let own_turn = if seen_taken { Turn::Yielded } else { turn };
            match if over { self.verdict(cx.now(), &key) } else { None } {
                Some((why, votes)) => {
                    self.refuse(id, why, votes, cx);
                    next = self.queues.next(&key, |queue| queue.leave(&id, turn));
                }
                None => {
                    if queued && let Some(queue) = self.queues.queues.get_mut(&key) {
                        queue.latest = Some(id);
                    }
                    self.begin(id, own_turn, cx);
                    if shared {
                        // Those behind it share its turn. A waiter that goes first goes before all.
                        let with = if turn == Turn::Yielded { turn } else { Turn::First };
                        next = self.queues.next(&key, |queue| Some((queue.start()?, with)));
                    }
                }
            }
        }
    }

    fn begin(&mut self, id: ClaimId, turn: Turn, cx: &mut Context<'_, C>) {
        debug_assert!(self.has_its_turn(id), "two requests of one process ask for one resource");
        let Some(entry) = self.claims.get_mut(&id) else { return };
        debug_assert!(matches!(entry.state, State::Queued), "a request begins once");
        let wait = entry.give_up.since(cx.now());
        let (explain, wake_ups) = (entry.request.explain, self.config.wake_ups);
        // Waiters for a shared lease keep the order of the masters' queues, fair or not.
        let ordered = entry.request.config.is_shared() && wake_ups && !wait.is_zero();
        let fair = (self.config.fair || ordered) && entry.request.fair;
        let policy = WaitPolicy { wait, explain, wake_ups, fair, turn };
        let (seed, config) = (entry.request.seed.clone(), entry.request.config);
        let mut effects = core::mem::take(&mut self.effects);
        let claim = C::acquire(cx.clocks, seed, config, policy, cx.rng, &mut effects);
        entry.state = State::Claim(claim);
        let key = entry.key.clone();
        self.changed(id, cx);
        self.route(id, &key, effects, cx);
    }

    /// Whether the turn of a request with a place in the local queue has come.
    fn has_its_turn(&self, id: ClaimId) -> bool {
        self.claims.get(&id).is_none_or(|entry| {
            let queue = self.queues.queues.get(&entry.key);
            !entry.queued || queue.is_some_and(|it| it.queue.is_started(&id))
        })
    }

    /// The wait of a queued request is over, and its turn has not come.
    pub(super) fn wait_is_over(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.queued = false;
        let key = entry.key.clone();
        let next = self.queues.leave(&key, id);
        match self.verdict(cx.now(), &key) {
            Some((why, votes)) => self.refuse(id, why, votes, cx),
            None => self.begin(id, Turn::First, cx),
        }
        self.start_next(next, cx);
    }

    pub(super) fn refuse(
        &mut self,
        id: ClaimId,
        why: Failure,
        votes: Votes,
        cx: &mut Context<'_, C>,
    ) {
        if let Some(entry) = self.claims.get_mut(&id) {
            (entry.state, entry.queued) = (State::Over(why, votes), false);
            self.changed(id, cx);
            self.inform_owner(id, cx);
        }
    }

    /// Why the request with the latest turn has no lease to give, if that is known by now.
    fn verdict(&self, now: Time, key: &Key) -> Option<(Failure, Votes)> {
        match self.claim(self.queues.queues.get(key)?.latest?)?.claim() {
            Claim::Acquiring(acquire) => Some((acquire.latest_failure()?, acquire.votes().clone())),
            Claim::Holding(hold) if hold.lost().is_none() => {
                let left_ms = millis(hold.deadline().since(now));
                let taken = Reply::Taken(Holder::Lease { token: hold.token(), left_ms });
                let nodes = hold.config().nodes();
                let mut votes = Votes::open(nodes, now);
                for node in hold.members().iter() {
                    votes.record(now, node, taken.clone());
                }
                Some((Failure::Taken, votes))
            }
            _ => None,
        }
    }

    /// A claim neither holds a lease nor tries to get one: the next request has its turn.
    pub(super) fn vacate(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        if core::mem::take(&mut entry.queued) {
            let key = entry.key.clone();
            let next = self.queues.leave(&key, id);
            self.start_next(next, cx);
        }
    }
}
