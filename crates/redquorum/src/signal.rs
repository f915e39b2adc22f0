//! LossSignal: notifies tasks and threads that do not hold a lease when the lease is over.

use std::fmt;
use std::sync::Weak;

use redquorum_protocol::{Claim, Hold, Loss};

use crate::claim::ClaimCell;
use crate::clock::Deadline;
use crate::error::Lost;

/// Signals that a lease is over: lost, or given back. Made by
/// [`Lease::loss_signal`](crate::Lease::loss_signal).
///
/// It borrows nothing and can be cloned. So it can go where the lease does not: into spawned tasks,
/// blocking threads and cancellation tokens. The lease can be released meanwhile. A signal that is
/// kept keeps neither the lease nor a connection alive.
///
/// ```no_run
/// # struct Token; impl Token { fn cancel(&self) {} }
/// # async fn f(lease: redquorum::Lease, token: Token) -> Result<(), Box<dyn std::error::Error>> {
/// // A thread checks the signal before each step.
/// let signal = lease.loss_signal();
/// let work = tokio::task::spawn_blocking(move || {
///     for step in 0..100 {
///         if let Some(lost) = signal.is_lost() {
///             return Err(lost);
///         }
///         println!("step {step}");
///     }
///     Ok(())
/// });
/// // A task passes it on, for instance to a cancellation token. It ends with the lease or before.
/// let signal = lease.loss_signal();
/// tokio::spawn(async move {
///     signal.lost().await;
///     token.cancel();
/// });
/// work.await??;
/// lease.release().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LossSignal {
    claim: Weak<ClaimCell>,
}

impl LossSignal {
    pub(crate) const fn new(claim: Weak<ClaimCell>) -> Self {
        Self { claim }
    }

    /// Why the lease is over, if it is: [`Loss::GivenBack`] once its last handle was released or
    /// dropped. It needs no runtime. It reads the clock: a deadline that has passed counts, whether
    /// or not any task noticed it.
    pub fn is_lost(&self) -> Option<Lost> {
        let Some(claim) = self.claim.upgrade() else { return Some(Lost(Loss::GivenBack)) };
        claim.notice_deadline();
        claim.view(over).map(Lost)
    }

    /// Waits until the lease is over, and returns why: see [`Lease::lost`](crate::Lease::lost). It
    /// must be polled inside a Tokio runtime with timers, not necessarily that of the lock.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> Lost {
        match self.claim.upgrade() {
            Some(claim) => Lost(claim.until(over).await),
            None => Lost(Loss::GivenBack),
        }
    }

    /// The instant after which the lease must be taken for lost, as of now: an extension moves it.
    /// `None` once the lease was given back.
    pub fn deadline(&self) -> Option<Deadline> {
        let claim = self.claim.upgrade()?;
        let deadline = claim.view(|state| match state {
            Claim::Holding(hold) => Some(Hold::deadline(hold)),
            _ => None,
        })?;
        Some(Deadline::new(claim.fleet.clock, deadline))
    }
}

/// Why a claim is no longer held; `None` while it is held.
const fn over(claim: &Claim) -> Option<Loss> {
    match claim {
        Claim::Holding(hold) => hold.lost(),
        _ => Some(Loss::GivenBack),
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal").field("lost", &self.is_lost()).finish()
    }
}
