//! ClaimCell: a caller's handle of one claim of the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, BadOption, Claim, ClaimId, Client, Extension, Failure, Hold, Input, Key,
    LockConfig, Loss, Progress, Refusal, RequestState, Time, Token, Votes,
};
use tokio::sync::Notify;

use super::{After, EndClaim, LockState, Turn, Writer, lock};
use crate::error::{AcquireError, ExtendError};
use crate::owner::Owner;
use crate::report::Report;
use crate::trace::{self, Resource, Span};

/// A claim, shared by its caller and the handles of its lease. The claim ends with the last of
/// them.
pub(crate) struct ClaimCell {
    pub(crate) lock_state: Arc<LockState>,
    pub(crate) key: Key,
    id: ClaimId,
    /// Keeps the owner's id from being used for another owner.
    _owner: Option<Owner>,
    /// Notified when the claim changed in a way that a holder may wait for.
    pub(crate) changed: Notify,
    pub(crate) grant: OnceLock<Report>,
    pub(crate) granted: OnceLock<Granted>,
    pub(crate) span: OnceLock<Span>,
    /// The latest round of extending that a caller asked for. One caller extends at a time, through
    /// any handle.
    extending: Mutex<(u32, Weak<EndedRound>)>,
    /// The latest extension failed, and the lease is not lost.
    pub(super) endangered: AtomicBool,
    /// Why the lease was lost, for signals that outlive it. Made by the first signal.
    loss: OnceLock<Arc<OnceLock<Loss>>>,
    /// The client has forgotten the claim.
    over: AtomicBool,
}

/// What stays true of a lease, also where nobody may ask the client.
pub(crate) struct Granted {
    pub(crate) at: Time,
    pub(crate) token: Token,
    pub(crate) fencing_token: Option<u64>,
}

/// How a round of extending ended, kept for a caller that looks later.
pub(crate) type EndedRound = OnceLock<(Extension, Votes)>;

pub(crate) enum Found {
    /// At this time.
    Granted(Time),
    /// Another handle of this claim's lease, which the owner of the request holds.
    Reentered(Arc<ClaimCell>),
    /// The request has a handle of this claim's lease, which is extended for it until this time.
    Extending(Arc<ClaimCell>, Time),
    Refused(AcquireError),
    /// A quorum has granted; the caller may collect the lease until this time.
    Won(Time),
    /// Why there is no lease, the replies of the masters, and the number of attempts.
    Failed(Failure, Report, u32),
    /// No result yet: when to look again, and whether the claim waits for its turn in this process.
    Pending {
        until: Time,
        queued: bool,
    },
}

static ENDED: Claim = Claim::Ended;

impl ClaimCell {
    pub(crate) fn start(
        lock_state: &Arc<LockState>,
        key: Key,
        request: AcquireRequest,
        owner: Option<Owner>,
        waker: &Waker,
    ) -> (Arc<Self>, Found, Time) {
        let mut turn = lock_state.shared.turn();
        let cell = Self::open(lock_state, &mut turn, key, request, owner);
        let (found, now) = (cell.look(&mut turn, waker, false), turn.now);
        turn.finish(Writer::Idle);
        (cell, found, now)
    }

    /// Starts to acquire, but only queues the commands: the caller starts other claims too, and
    /// then [finishes](crate::shared::Shared::finish) all of them.
    pub(crate) fn queue(
        lock_state: &Arc<LockState>,
        key: Key,
        request: AcquireRequest,
    ) -> (Arc<Self>, After) {
        let mut turn = lock_state.shared.turn();
        let cell = Self::open(lock_state, &mut turn, key, request, None);
        (cell, turn.end(Writer::All))
    }

    /// Opens a claim. Nothing is sent before the turn has read the clock (R1).
    fn open(
        lock_state: &Arc<LockState>,
        turn: &mut Turn<'_>,
        key: Key,
        request: AcquireRequest,
        owner: Option<Owner>,
    ) -> Arc<Self> {
        let id = turn.input(|client, cx| client.acquire(key.clone(), request, cx));
        let cell = Arc::new(Self {
            lock_state: lock_state.clone(),
            key,
            id,
            _owner: owner,
            changed: Notify::new(),
            grant: OnceLock::new(),
            granted: OnceLock::new(),
            span: OnceLock::new(),
            extending: Mutex::default(),
            endangered: AtomicBool::new(false),
            loss: OnceLock::new(),
            over: AtomicBool::new(false),
        });
        turn.enlist(id, Arc::downgrade(&cell));
        cell
    }

    /// Looks at the claim, and registers `waker` for its next change. With `collect`, it takes a
    /// lease that was won: this turn has read the clock for the last time (R1).
    pub(crate) fn poll(&self, waker: &Waker, collect: bool) -> Found {
        let mut turn = self.turn();
        let found = self.look(&mut turn, waker, collect);
        turn.finish(Writer::Idle);
        found
    }

    fn look(&self, turn: &mut Turn<'_>, waker: &Waker, collect: bool) -> Found {
        turn.wake_by(self.id, waker);
        turn.input(|client, cx| _ = client.look(self.id, cx));
        self.found(turn, collect)
    }

    pub(crate) fn collect<R>(&self, read: impl FnOnce(Progress<'_>) -> R) -> R {
        self.lock_state.shared.act(|client, cx| {
            client.handle(self.id, Input::Collect, cx);
            read(client.standing(self.id).map_or(Progress::Other, |standing| standing.progress()))
        })
    }

    fn found(&self, turn: &mut Turn<'_>, collect: bool) -> Found {
        let is_won = |claim: &Claim| matches!(claim, Claim::Acquiring(it) if it.is_won());
        if collect && is_won(self.of(&turn.state.client)) {
            turn.input(|client, cx| client.handle(self.id, Input::Collect, cx));
        }
        let until = turn.state.client.look_again_at(self.id, turn.now);
        let Some(standing) = turn.state.client.standing(self.id) else {
            unreachable!("a claim ends with its caller")
        };
        match standing {
            RequestState::Reentered(of) => {
                turn.input(|client, cx| client.take_handle(self.id, cx));
                Found::Reentered(turn.cell(of))
            }
            RequestState::Extending(of) => Found::Extending(turn.cell(of), until),
            RequestState::Refused(why) => Found::Refused(self.refused(why)),
            _ => match standing.progress() {
                Progress::Held => Found::Granted(turn.now),
                Progress::Won(deadline) => Found::Won(deadline),
                Progress::Failed(why, votes, attempts) => {
                    Found::Failed(why, self.report(votes), attempts)
                }
                _ => Found::Pending { until, queued: matches!(standing, RequestState::Queued(_)) },
            },
        }
    }

    fn refused(&self, why: &Refusal) -> AcquireError {
        let resource = self.resource();
        match why {
            Refusal::HeldUnfenced => {
                AcquireError::Options { resource, error: BadOption::HeldUnfenced }
            }
            Refusal::HeldShared => AcquireError::Options { resource, error: BadOption::HeldShared },
            Refusal::NotExtended(result, votes) => {
                AcquireError::NotExtended(self.not_extended(*result, votes))
            }
        }
    }

    pub(crate) fn not_extended(&self, result: Extension, votes: &Votes) -> ExtendError {
        let (resource, report) = (self.resource(), self.report(votes));
        match result {
            Extension::QuorumGone => ExtendError::QuorumGone { resource, report },
            _ => ExtendError::NoQuorum { resource, report },
        }
    }

    pub(crate) fn resource(&self) -> Vec<u8> {
        self.lock_state.resource(&self.key).to_vec()
    }

    pub(crate) fn shown(&self) -> Resource<'_> {
        self.lock_state.shown(&self.key)
    }

    fn turn(&self) -> Turn<'_> {
        self.lock_state.shared.turn()
    }

    pub(crate) fn give_back<R>(&self, input: Input, look: impl FnOnce(&Claim) -> R) -> R {
        let mut turn = self.turn();
        let now = turn.now;
        if turn.state.client.hold(self.id).is_some_and(|hold| now >= hold.deadline()) {
            // It was lost before it is given back, although nobody has noticed.
            turn.input(|client, cx| client.handle(self.id, Input::Wake, cx));
        }
        let is_held = |hold: &Hold| hold.lost().is_none() && hold.handles() == 1;
        let held = turn.state.client.hold(self.id).is_some_and(is_held);
        turn.input(|client, cx| client.give_back(self.id, input, cx));
        let seen = look(self.of(&turn.state.client));
        turn.finish(Writer::Idle);
        if held && let Some(held) = self.count_hold(now) {
            trace::given_back(self.shown(), held);
        }
        seen
    }

    pub(crate) fn count_hold(&self, now: Time) -> Option<Duration> {
        let held = now.since(self.granted.get()?.at);
        self.lock_state.shared.counters.holds.record(held);
        Some(held)
    }

    /// Ends the claim, in the process of its lock: its caller is gone.
    pub(crate) fn end(&self, end: EndClaim) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.lock_state.shared.forget(self.id, end);
        }
    }

    /// Declares the lease lost if its deadline has passed. The deadline decides, not the timer.
    pub(crate) fn notice_deadline(&self) {
        let mut turn = self.turn();
        if turn.state.client.hold(self.id).is_some_and(|hold| turn.now >= hold.deadline()) {
            turn.input(|client, cx| client.handle(self.id, Input::Wake, cx));
        }
        turn.finish(Writer::Idle);
    }

    pub(crate) fn apply<R>(&self, input: Input, look: impl FnOnce(&Claim) -> R) -> R {
        self.lock_state.shared.act(|client, cx| {
            client.handle(self.id, input, cx);
            look(self.of(client))
        })
    }

    /// The claim, also once the client has forgotten it.
    fn of<'a>(&self, client: &'a Client) -> &'a Claim {
        client.claim(self.id).unwrap_or(&ENDED)
    }

    pub(crate) fn view<R>(&self, look: impl FnOnce(&Claim) -> R) -> R {
        self.lock_state.shared.view(|client| look(self.of(client)))
    }

    /// Starts a round of extending, by `config` or as the latest extension, unless the round of
    /// another caller is under way. The client ends that one, whether or not its caller looks at
    /// it: a future that is not polled keeps no other caller waiting. Returns the number of the new
    /// round, and where its result is kept once a later one has begun.
    pub(crate) fn start_extending(
        &self,
        config: Option<LockConfig>,
    ) -> Option<(u32, Arc<EndedRound>)> {
        self.lock_state.shared.act(|client, cx| {
            let mut latest = lock(&self.extending);
            let hold = self.of(client).hold();
            let caller = latest.1.upgrade();
            let is_abandoned = |hold: &Hold| hold.extension().0 == latest.0 && caller.is_none();
            if hold.is_some_and(|hold| hold.is_extended_by_a_caller() && !is_abandoned(hold)) {
                return None;
            }
            if let (Some(caller), Some((result, votes))) =
                (caller, hold.and_then(|hold| hold.ended(latest.0)))
            {
                let _ = caller.set((result, votes.clone()));
            }
            let config = config.or_else(|| hold.map(Hold::config));
            if let Some(config) = config {
                client.handle(self.id, Input::extend(config), cx);
            }
            let number = self.of(client).hold().map_or(0, |hold| hold.extension().0);
            let ended = Arc::new(EndedRound::new());
            *latest = (number, Arc::downgrade(&ended));
            Some((number, ended))
        })
    }

    /// Waits until `look` returns a value, and wakes the claim when it is due; `None` in a process
    /// that was forked meanwhile.
    ///
    /// The lock's own task wakes all leases too, but it ends, or sleeps, with the runtime in which
    /// the lock was built. This timer runs in the runtime of its caller (R7). It does not start
    /// renewals: the lock's task batches these, because it knows the other leases.
    pub(crate) async fn until<R>(&self, look: impl Fn(&Claim) -> Option<R>) -> Option<R> {
        self.lock_state.shared.unless_forked(self.seen(look)).await
    }

    async fn seen<R>(&self, look: impl Fn(&Claim) -> Option<R>) -> R {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so no later change is missed.
            changed.as_mut().enable();
            let reading = self.lock_state.clock.read();
            let seen = self.lock_state.shared.view(|client| {
                look(self.of(client)).ok_or_else(|| client.look_again_at(self.id, reading.now))
            });
            let due = match seen {
                Ok(found) => return found,
                Err(due) => reading.timer(due),
            };
            if tokio::time::timeout_at(due, changed).await.is_err() {
                self.apply(Input::Wake, |_| ());
            }
        }
    }

    pub(crate) fn report(&self, votes: &Votes) -> Report {
        self.lock_state.report(votes)
    }

    /// Where a loss of the lease is kept for as long as a signal needs it.
    pub(crate) fn kept_loss(&self) -> Arc<OnceLock<Loss>> {
        let kept = self.loss.get_or_init(Arc::default).clone();
        // A loss before the first signal. Later ones find where to keep it.
        if !self.is_forked()
            && let Some(loss) = self.view(|claim| claim.hold().and_then(Hold::lost))
        {
            kept.get_or_init(|| loss);
        }
        kept
    }

    pub(super) fn keep_loss(&self, loss: Loss) {
        if let Some(kept) = self.loss.get() {
            kept.get_or_init(|| loss);
        }
    }

    /// Whether the latest extension of a lease that is not lost has failed.
    pub(crate) fn is_endangered(&self) -> bool {
        self.endangered.load(Ordering::Relaxed)
    }

    /// Waits until an extension has failed, and returns the deadline; `None` once the lease is
    /// over.
    pub(crate) async fn endangered(&self) -> Option<Time> {
        self.until(|claim| match claim.hold().filter(|hold| hold.lost().is_none()) {
            Some(hold) => self.is_endangered().then(|| Some(hold.deadline())),
            None => Some(None),
        })
        .await
        .flatten()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.lock_state.is_shut_down()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.lock_state.shared.is_forked()
    }
}

impl Drop for ClaimCell {
    fn drop(&mut self) {
        if !*self.over.get_mut() && !self.is_forked() {
            self.end(Client::cancel);
        }
    }
}
