//! LossSignal: notifies tasks and threads that do not hold a lease when the lease is over.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use redquorum_protocol::{Claim, Hold, Loss};

use crate::clock::Deadline;
use crate::error::Lost;
use crate::shared::ClaimCell;

/// Signals that a lease is over: lost, or given back. Made by
/// [`Lease::loss_signal`](crate::Lease::loss_signal). It borrows nothing, can be cloned, and keeps
/// neither the lease nor a connection alive. So it can go where the lease does not: into spawned
/// tasks, blocking threads and cancellation tokens.
///
/// | to | use |
/// |---|---|
/// | stop what needs the lease, however the lease ends | [`lost`](Self::lost), [`is_lost`](Self::is_lost) |
/// | raise an alert, but not after an ordinary release | [`ended`](Self::ended) |
/// | act while there is time left, because an extension has failed | [`endangered`](Self::endangered), [`is_endangered`](Self::is_endangered) |
///
/// ```no_run
/// # struct Token; impl Token { fn cancel(&self) {} }
/// # fn alert(_: redquorum::Lost) {} fn take_no_new_work() {}
/// # async fn f(lease: redquorum::Lease, token: Token) -> Result<(), Box<dyn std::error::Error>> {
/// // A thread checks the signal before each step.
/// let signal = lease.loss_signal();
/// let work = tokio::task::spawn_blocking(move || (0..100).try_for_each(|step| {
///     println!("step {step}");
///     signal.loss().map_or(Ok(()), Err)
/// }));
/// // A task passes it on, for instance to a cancellation token. It ends with the lease or before.
/// let signal = lease.loss_signal();
/// tokio::spawn(async move {
///     signal.lost().await;
///     token.cancel();
/// });
/// // Another one warns early, and tells a loss from a release.
/// let signal = lease.loss_signal();
/// tokio::spawn(async move {
///     if signal.endangered().await.is_some() {
///         take_no_new_work();
///     }
///     if let Some(lost) = signal.ended().await {
///         alert(lost);
///     }
/// });
/// work.await??;
/// let _ = lease.release().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LossSignal {
    claim: Weak<ClaimCell>,
    /// A loss is final, also when the lease was given back after it.
    lost: Arc<OnceLock<Loss>>,
    resource: Arc<[u8]>,
}

impl LossSignal {
    pub(crate) fn new(claim: &Arc<ClaimCell>, resource: &[u8]) -> Self {
        let lost = claim.kept_loss();
        Self { claim: Arc::downgrade(claim), lost, resource: resource.into() }
    }

    /// Whether the lease is over. It needs no runtime. It reads the clock: a deadline that has
    /// passed counts, whether or not any task noticed it.
    pub fn is_lost(&self) -> bool {
        self.cause().is_some()
    }

    /// Why the lease is over, if it is: [`Loss::GivenBack`] once its last handle was released or
    /// dropped without a loss before. For the rest see [`is_lost`](LossSignal::is_lost).
    pub fn loss(&self) -> Option<Lost> {
        self.cause().map(|cause| self.lost_by(cause))
    }

    fn cause(&self) -> Option<Loss> {
        let Some(claim) = self.claim.upgrade() else { return Some(self.last_cause()) };
        if claim.is_forked() {
            return Some(Loss::Forked);
        }
        claim.notice_deadline();
        claim.view(|claim| self.over(claim))
    }

    /// Why the lease is over, when its claim is.
    fn last_cause(&self) -> Loss {
        self.lost.get().copied().unwrap_or(Loss::GivenBack)
    }

    /// Why a claim is no longer held; `None` while it is held.
    fn over(&self, claim: &Claim) -> Option<Loss> {
        claim.hold().map_or_else(|| Some(self.last_cause()), Hold::lost)
    }

    fn lost_by(&self, cause: Loss) -> Lost {
        Lost { resource: self.resource.to_vec(), cause }
    }

    /// Waits until the lease is over, and returns why: see [`Lease::lost`](crate::Lease::lost). It
    /// must be polled inside a Tokio runtime with timers, not necessarily that of the lock.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> Lost {
        self.lost_by(match self.claim.upgrade() {
            Some(claim) if claim.is_forked() => Loss::Forked,
            Some(claim) => claim.until(|claim| self.over(claim)).await.unwrap_or(Loss::Forked),
            None => self.last_cause(),
        })
    }

    /// Waits until the lease is over, as [`lost`](Self::lost) does. `None` if it was given back: a
    /// loss is an alert, a release is not. A lease that is given back after its deadline was lost.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> Option<Lost> {
        Some(self.lost().await).filter(|lost| lost.cause != Loss::GivenBack)
    }

    /// Whether the latest extension has failed, the watchdog's or another one, while there is time
    /// left: the lease is held, and will be lost at its [`deadline`](Self::deadline) unless a later
    /// extension succeeds. It needs no runtime. It is false once the lease is over.
    pub fn is_endangered(&self) -> bool {
        // In this order: a deadline that has passed is a loss.
        self.cause().is_none() && self.claim.upgrade().is_some_and(|claim| claim.is_endangered())
    }

    /// Waits until an extension fails while there is time left, and returns the deadline: see
    /// [`is_endangered`](Self::is_endangered). `None` if the lease is over first. It must be polled
    /// inside a Tokio runtime with timers.
    ///
    /// It is an early warning, and may pass: the watchdog tries again, at least twice before the
    /// deadline. While the lease is endangered, it returns at once.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn endangered(&self) -> Option<Deadline> {
        let claim = self.claim.upgrade().filter(|claim| !claim.is_forked())?;
        let deadline = claim.endangered().await?;
        Some(Deadline::new(claim.lock_state.clock, deadline))
    }

    /// The instant after which the lease must be taken for lost, as of now: an extension moves it.
    /// `None` once the lease was given back, and in a forked process.
    pub fn deadline(&self) -> Option<Deadline> {
        let claim = self.claim.upgrade().filter(|claim| !claim.is_forked())?;
        let deadline = claim.view(|state| state.hold().map(Hold::deadline))?;
        Some(Deadline::new(claim.lock_state.clock, deadline))
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal").field("lost", &self.cause()).finish()
    }
}
