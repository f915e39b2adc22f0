//! LossSignal: notifies tasks and threads that do not hold a lease when the lease is over.

use std::fmt;
use std::sync::{Arc, Weak};

use redquorum_protocol::{Claim, Hold, Loss};

use crate::clock::Deadline;
use crate::error::Lost;
use crate::shared::ClaimCell;

/// Signals that a lease is over: lost, or given back. Made by
/// [`Lease::loss_signal`](crate::Lease::loss_signal). It borrows nothing, can be cloned, and keeps
/// neither the lease nor a connection alive. So it can go where the lease does not: into spawned
/// tasks, blocking threads and cancellation tokens.
///
/// ```no_run
/// # struct Token; impl Token { fn cancel(&self) {} }
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
/// work.await??;
/// let _ = lease.release().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LossSignal {
    claim: Weak<ClaimCell>,
    resource: Arc<[u8]>,
}

impl LossSignal {
    pub(crate) fn new(claim: Weak<ClaimCell>, resource: &[u8]) -> Self {
        Self { claim, resource: resource.into() }
    }

    /// Whether the lease is over. It needs no runtime. It reads the clock: a deadline that has
    /// passed counts, whether or not any task noticed it.
    pub fn is_lost(&self) -> bool {
        self.cause().is_some()
    }

    /// Why the lease is over, if it is: [`Loss::GivenBack`] once its last handle was released or
    /// dropped. For the rest see [`is_lost`](LossSignal::is_lost).
    pub fn loss(&self) -> Option<Lost> {
        self.cause().map(|cause| self.lost_by(cause))
    }

    fn cause(&self) -> Option<Loss> {
        let Some(claim) = self.claim.upgrade() else { return Some(Loss::GivenBack) };
        if claim.is_forked() {
            return Some(Loss::Forked);
        }
        claim.notice_deadline();
        claim.view(over)
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
            Some(claim) => claim.until(over).await,
            None => Loss::GivenBack,
        })
    }

    /// The instant after which the lease must be taken for lost, as of now: an extension moves it.
    /// `None` once the lease was given back, and in a forked process.
    pub fn deadline(&self) -> Option<Deadline> {
        let claim = self.claim.upgrade().filter(|claim| !claim.is_forked())?;
        let deadline = claim.view(|state| state.hold().map(Hold::deadline))?;
        Some(Deadline::new(claim.lock_state.clock, deadline))
    }
}

/// Why a claim is no longer held; `None` while it is held.
fn over(claim: &Claim) -> Option<Loss> {
    claim.hold().map_or(Some(Loss::GivenBack), Hold::lost)
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal").field("lost", &self.cause()).finish()
    }
}
