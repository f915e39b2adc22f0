//! ClaimCell: a caller's handle of one claim of the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, Client, Failure, Hold, Input, Key, RequestState, Time, Votes,
};
use tokio::sync::Notify;

use crate::fleet::Fleet;
use crate::report::Report;
use crate::shared::{After, Turn, Writer};
use crate::trace;

/// A claim, shared by its caller and the handles of its lease. The claim ends with the last of
/// them.
pub(crate) struct ClaimCell {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) key: Key,
    id: ClaimId,
    /// Notified when the claim changed in a way that a holder may wait for.
    pub(crate) changed: Notify,
    /// The replies of the masters when the lease was granted.
    pub(crate) grant: OnceLock<Report>,
    /// When the lease was handed out.
    pub(crate) granted: OnceLock<Time>,
    /// One caller extends at a time, through any handle.
    pub(crate) extending: tokio::sync::Mutex<()>,
    /// The client has forgotten the claim.
    over: AtomicBool,
}

/// The result of a look at a claim that acquires.
pub(crate) enum Found {
    /// The lease, collected.
    Granted,
    /// A quorum has granted; the caller may collect the lease until this time.
    Won(Time),
    /// Why there is no lease, the replies of the masters, and the number of attempts.
    Failed(Failure, Report, u32),
    /// No result yet: when to look again, and whether the claim waits for its turn in this process.
    Pending { until: Time, queued: bool },
}

/// A claim that the client has forgotten.
static ENDED: Claim = Claim::Ended;

impl ClaimCell {
    /// Starts to acquire. Returns the claim and its first result.
    pub(crate) fn start(
        fleet: &Arc<Fleet>,
        key: Key,
        request: AcquireRequest,
        waker: &Waker,
    ) -> (Arc<Self>, Found) {
        let mut turn = fleet.shared.turn();
        let cell = Self::open(fleet, &mut turn, key, request);
        let found = cell.look(&mut turn, waker, false);
        turn.finish(Writer::Idle);
        (cell, found)
    }

    /// Starts to acquire, but only queues the commands: the caller starts other claims too, and
    /// then [finishes](crate::shared::Shared::finish) all of them.
    pub(crate) fn queue(
        fleet: &Arc<Fleet>,
        key: Key,
        request: AcquireRequest,
    ) -> (Arc<Self>, After) {
        let mut turn = fleet.shared.turn();
        let cell = Self::open(fleet, &mut turn, key, request);
        (cell, turn.end(Writer::All))
    }

    /// Opens a claim. Nothing is sent before the turn has read the clock (R1).
    fn open(
        fleet: &Arc<Fleet>,
        turn: &mut Turn<'_>,
        key: Key,
        request: AcquireRequest,
    ) -> Arc<Self> {
        let id = turn.input(|client, cx| client.acquire(key.clone(), request, cx));
        let cell = Arc::new(Self {
            fleet: fleet.clone(),
            key,
            id,
            changed: Notify::new(),
            grant: OnceLock::new(),
            granted: OnceLock::new(),
            extending: tokio::sync::Mutex::new(()),
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

    /// Takes a lease that was won, and returns the result.
    pub(crate) fn collect(&self) -> Found {
        let mut turn = self.turn();
        let found = self.found(&mut turn, true);
        turn.finish(Writer::Idle);
        found
    }

    fn found(&self, turn: &mut Turn<'_>, collect: bool) -> Found {
        let is_won = |claim: &Claim| matches!(claim, Claim::Acquiring(it) if it.is_won());
        if collect && is_won(self.of(&turn.state.client)) {
            turn.input(|client, cx| client.handle(self.id, Input::Collect, cx));
        }
        let client = &turn.state.client;
        let until = client.look_again_at(self.id, turn.now);
        match client.standing(self.id) {
            Some(RequestState::Queued(until)) => Found::Pending { until, queued: true },
            Some(RequestState::Over(why, votes)) => Found::Failed(why, self.report(votes), 0),
            Some(RequestState::Claim(Claim::Holding(_))) => Found::Granted,
            Some(RequestState::Claim(Claim::Acquiring(acquire))) => match acquire.failure() {
                Some(why) => Found::Failed(why, self.report(acquire.votes()), acquire.attempt()),
                None if acquire.is_won() => Found::Won(acquire.deadline()),
                None => Found::Pending { until, queued: false },
            },
            _ => unreachable!("a claim ends with its caller"),
        }
    }

    fn turn(&self) -> Turn<'_> {
        self.fleet.shared.turn()
    }

    /// Gives the lease back, by `input`.
    pub(crate) fn give_back<R>(&self, input: Input, look: impl FnOnce(&Claim) -> R) -> R {
        let mut turn = self.turn();
        let now = turn.now;
        let is_held = |hold: &Hold| hold.lost().is_none() && hold.handles() == 1;
        let held = turn.state.client.hold(self.id).is_some_and(is_held);
        turn.input(|client, cx| client.give_back(self.id, input, cx));
        let seen = look(self.of(&turn.state.client));
        turn.finish(Writer::Idle);
        if let (Some(granted), true) = (self.granted.get(), held) {
            trace::given_back(&self.key, now.since(*granted));
        }
        seen
    }

    /// Gives the attempt up, or gives back a lease under which no work ran, without a grace period.
    pub(crate) fn undo(&self) {
        if self.view(|claim| matches!(claim, Claim::Holding(_))) {
            self.give_back(Input::Release, |_| ());
        }
        self.end();
    }

    /// Ends the claim: its caller is gone.
    pub(crate) fn end(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.fleet.shared.forget(self.id);
        }
    }

    /// Declares the lease lost if its deadline has passed. The deadline decides, not the timer.
    pub(crate) fn notice_deadline(&self) {
        let mut turn = self.turn();
        if turn.state.client.hold(self.id).is_some_and(|hold| turn.now >= hold.deadline()) {
            turn.input(|client, cx| client.handle(self.id, Input::Wake, cx));
            turn.finish(Writer::Idle);
        }
    }

    /// Gives the claim one input.
    pub(crate) fn apply(&self, input: Input) {
        self.apply_and_compare(input, |_| ());
    }

    /// Gives the claim one input, and reads the claim before and after it.
    pub(crate) fn apply_and_compare<R>(&self, input: Input, look: impl Fn(&Claim) -> R) -> (R, R) {
        let mut turn = self.turn();
        let before = look(self.of(&turn.state.client));
        turn.input(|client, cx| client.handle(self.id, input, cx));
        let after = look(self.of(&turn.state.client));
        turn.finish(Writer::Idle);
        (before, after)
    }

    /// The claim, also once the client has forgotten it.
    fn of<'a>(&self, client: &'a Client) -> &'a Claim {
        client.claim(self.id).unwrap_or(&ENDED)
    }

    /// Reads the claim.
    pub(crate) fn view<R>(&self, look: impl FnOnce(&Claim) -> R) -> R {
        self.fleet.shared.view(|client| look(self.of(client)))
    }

    /// Waits until `look` returns a value, and wakes the claim when it is due.
    ///
    /// The lock's own task wakes all leases too, but it ends, or sleeps, with the runtime in which
    /// the lock was built. This timer runs in the runtime of its caller (R7). It does not start
    /// renewals: the lock's task batches these, because it knows the other leases.
    pub(crate) async fn until<R>(&self, look: impl Fn(&Claim) -> Option<R>) -> R {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so no later change is missed.
            changed.as_mut().enable();
            let due = match self.view(|claim| look(claim).ok_or_else(|| next_end(claim))) {
                Ok(found) => return found,
                Err(due) => self.fleet.clock.timer(due),
            };
            if tokio::time::timeout_at(due, changed).await.is_err() {
                self.apply(Input::Wake);
            }
        }
    }

    pub(crate) fn report(&self, votes: &Votes) -> Report {
        self.fleet.report(votes)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.fleet.is_shut_down()
    }
}

/// The next time at which something must end for the claim, such as its deadline.
fn next_end(claim: &Claim) -> Time {
    if let Claim::Holding(hold) = claim { hold.next_end() } else { claim.next_wake() }
}

impl Drop for ClaimCell {
    fn drop(&mut self) {
        self.end();
    }
}
