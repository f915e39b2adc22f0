//! Lease: what a successful acquire returns.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redquorum_protocol::{Claim, Extension, Hold, Input, Outcome, Terms};
use tokio::sync::{Mutex, MutexGuard};

use crate::claim::ClaimCell;
use crate::clock::Deadline;
use crate::error::{ExtendError, Lost};
use crate::report::Report;
use crate::stats::count;

/// A resource, held until the [deadline](Lease::deadline) or until it is given back.
///
/// **It is a lease, not a guard.** While it lasts, no other client that follows the protocol
/// holds the resource, given the [assumptions](crate#what-it-promises). It ends at its deadline
/// whatever its holder is doing then: extend it, [keep it alive](Lease::keep_alive), or stop.
/// [`run`](Lease::run) stops for you.
///
/// Dropping it gives the resource back in the background and never blocks. It is deleted on the
/// masters that can be reached, and expires on the others within one TTL. With a
/// [grace](crate::Builder::grace) a dropped lease is freed when that is over: call
/// [`release`](Lease::release), which frees it at once.
#[must_use = "the resource is given back as soon as the lease is dropped"]
pub struct Lease {
    claim: Arc<ClaimCell>,
    grant: Report,
    /// One caller extends at a time.
    extending: Mutex<()>,
}

/// What became of a released lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether the lease was ours to the end.
    pub outcome: Outcome,
    /// What each master said.
    pub report: Report,
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.outcome, self.report)
    }
}

impl Lease {
    pub(crate) fn new(claim: Arc<ClaimCell>) -> Self {
        count(&claim.fleet.counters.acquired);
        let grant = claim.report(&claim.hold(|hold| hold.ballot().clone()));
        crate::trace::acquired(&claim.key, &grant);
        Self { claim, grant, extending: Mutex::new(()) }
    }

    /// The instant after which this lease must be taken for lost: the start of the attempt
    /// that won, plus TTL, minus drift (R1). Extending moves it.
    pub fn deadline(&self) -> Deadline {
        Deadline::new(self.claim.fleet.clock, self.claim.hold(Hold::deadline))
    }

    /// What is left until the deadline; zero once the lease is lost. The value rots as soon as
    /// it is read: to stop in time use [`run`](Lease::run) or [`lost`](Lease::lost).
    pub fn validity(&self) -> Duration {
        if self.is_lost().is_some() { Duration::ZERO } else { self.deadline().remaining() }
    }

    /// Why the lease is lost, if it is. Lost is final.
    pub fn is_lost(&self) -> Option<Lost> {
        // The deadline counts, not whether the alarm has come around to it yet.
        if self.deadline().has_passed() {
            self.claim.apply(Input::Wake);
        }
        self.claim.hold(Hold::lost).map(Lost)
    }

    /// What each master had said when the lease was granted. A quorum had; the slower ones are
    /// without an answer here.
    pub fn report(&self) -> &Report {
        &self.grant
    }

    /// What each master has said by now in the latest round, the grant or an extension, finished
    /// or not.
    pub fn latest_report(&self) -> Report {
        self.claim.report(&self.claim.hold(|hold| hold.ballot().clone()))
    }

    /// The resource, without the lock's prefix.
    pub fn resource(&self) -> &[u8] {
        &self.claim.key[self.claim.fleet.prefix.len()..]
    }

    /// Waits until the lease is lost, and says why. It is told by a local timer at the deadline,
    /// whether or not any master can be reached; after a suspend of the machine within 250 ms.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        Lost(self.claim.until(|claim| holding(claim)?.lost()).await)
    }

    /// Extends the lease by its TTL from now, in one round trip.
    ///
    /// Counted are only masters that have held the key without a gap. Masters that had lost it
    /// get it back if it is free, and count from the next extension on. A failed extension
    /// takes nothing away (R6).
    ///
    /// # Errors
    /// * [`ExtendError::NoQuorum`]: the old deadline stands; try again.
    /// * [`ExtendError::QuorumGone`]: no quorum holds the key any more; stop.
    /// * [`ExtendError::Lost`]: the lease was lost, before or meanwhile.
    /// * [`ExtendError::ShutDown`]: the lock was shut down.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the extension back: the masters may have been asked,
    /// and the deadline may move on.
    pub async fn extend(&self) -> Result<Deadline, ExtendError> {
        let one_at_a_time = self.extending.lock().await;
        // Not before: the one ahead may change it.
        let terms = self.claim.hold(Hold::terms);
        self.extend_on(terms, one_at_a_time).await
    }

    /// As [`extend`](Lease::extend), by another TTL, which further extensions then use too.
    ///
    /// A shorter one brings the deadline nearer at once, before anything is sent and whatever
    /// comes of it. It never shortens the key on a master.
    ///
    /// # Errors
    /// As [`extend`](Lease::extend), and [`ExtendError::Options`]: the TTL is out of its
    /// [bounds](crate::Builder::ttl); nothing was sent.
    ///
    /// # Cancel safety
    /// As [`extend`](Lease::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<Deadline, ExtendError> {
        let terms = self.claim.fleet.terms.with_ttl(ttl).map_err(ExtendError::Options)?;
        self.extend_on(terms, self.extending.lock().await).await
    }

    async fn extend_on(
        &self,
        terms: Terms,
        _one_at_a_time: MutexGuard<'_, ()>,
    ) -> Result<Deadline, ExtendError> {
        if self.claim.is_shut_down() {
            return Err(ExtendError::ShutDown);
        }
        let round = self.claim.apply_and_view(Input::Extend(terms), |claim| {
            holding(claim).map_or(0, |hold| hold.extension().0)
        });
        let ended = self.claim.until(|claim| {
            let hold = holding(claim)?;
            let lost = hold.lost().map(|loss| (Extension::Lost(loss), hold.ballot()));
            let (result, ballot) = hold.ended(round).or(lost)?;
            Some((result, ballot.clone()))
        });
        let (result, ballot) = ended.await;
        match (result, self.is_lost()) {
            // Whoever was stopped since the last vote is not told that all is well.
            (_, Some(lost)) => Err(ExtendError::Lost(lost)),
            (Extension::Extended, None) => Ok(self.deadline()),
            (Extension::QuorumGone, None) => {
                Err(ExtendError::QuorumGone(self.claim.report(&ballot)))
            }
            _ => Err(ExtendError::NoQuorum(self.claim.report(&ballot))),
        }
    }

    /// Starts the watchdog: it extends the lease in the background, a third of the TTL after
    /// each success and sooner after a failure, until `max_hold` from now.
    ///
    /// Leases of one lock are extended together, up to a sixth of the TTL earlier, so that thousands of
    /// them cost few writes: 10 000 at a TTL of 30 s take about a fiftieth of a core. Deadlines are not moved by
    /// that, and no loss is told later.
    ///
    /// It never moves the deadline beyond that bound, so a holder that hangs does not keep others
    /// out for ever; nor does it bring the deadline nearer. What you extend yourself is not
    /// bounded. The watchdog ends with the lease; called again, it starts anew with the new bound;
    /// on a lost lease it does nothing. If it learns that the key is gone from a quorum of masters,
    /// the lease is lost at once.
    ///
    /// It runs on the runtime in which the lock was built: one that stands still, as a
    /// current-thread runtime does between two `block_on`s, renews nothing.
    pub fn keep_alive(&self, max_hold: Duration) {
        self.claim.apply(Input::KeepAlive(max_hold));
    }

    /// Runs `work` while the lease lasts. At the deadline, or at an earlier loss, it is not
    /// polled again and is dropped.
    ///
    /// The clock is read before each poll, so what `work` does between two awaits is the only
    /// thing that can happen after the deadline. Extend the lease meanwhile by
    /// [`keep_alive`](Lease::keep_alive).
    ///
    /// # Errors
    /// [`Lost`] if the lease ended first.
    ///
    /// When `work` is done, [release](Lease::release) the lease: with a [grace](crate::Builder::grace) a mere drop
    /// keeps others out until that is over.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and leaves the lease as it is.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            if let Some(lost) = self.is_lost() {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives the resource back: compare-and-delete on all masters, as far as they can be
    /// reached. Returns as soon as the outcome is clear, after one node timeout at the latest;
    /// what is still owed then is paid in the background.
    ///
    /// Releasing a lease that has expired is an answer, not an error. With a [grace](crate::Builder::grace) no
    /// master is asked then, and others are kept out until the grace is over.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, gives the resource back all the same; only the
    /// answer is lost.
    pub async fn release(self) -> Released {
        self.claim.give_back(Input::Release);
        count(&self.claim.fleet.counters.released);
        let released = self.claim.until(|claim| match claim {
            Claim::Releasing(release) => Some((release.outcome()?, release.ballot().clone())),
            _ => None,
        });
        let (outcome, ballot) = released.await;
        Released { outcome, report: self.claim.report(&ballot) }
    }
}

fn holding(claim: &Claim) -> Option<&Hold> {
    if let Claim::Holding(hold) = claim { Some(hold) } else { None }
}

impl ClaimCell {
    /// Looks at the hold of a claim that has a lease.
    pub(crate) fn hold<R>(&self, look: impl FnOnce(&Hold) -> R) -> R {
        self.view(|claim| look(holding(claim).expect("a lease holds until it is released")))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.claim.give_back(Input::Abandon);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", &format_args!("{}", self.claim.key.escape_ascii()))
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}
