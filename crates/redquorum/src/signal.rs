//! The signal by which tasks and threads that do not hold a lease learn that it is over.

use std::fmt;
use std::sync::Weak;

use redquorum_protocol::{Claim, Hold, Loss};

use crate::claim::ClaimCell;
use crate::clock::Deadline;
use crate::error::Lost;

/// Tells that a lease is over: lost, or given back. Made by
/// [`Lease::loss_signal`](crate::Lease::loss_signal).
///
/// It borrows nothing and can be cloned, so that it goes where the lease does not: into spawned
/// tasks, blocking threads and cancellation tokens. The lease can be released meanwhile, and a
/// signal that is kept keeps neither the lease nor a connection.
///
/// ```no_run
/// # struct Token; impl Token { fn cancel(&self) {} }
/// # async fn f(lease: redquorum::Lease, token: Token) -> Result<(), Box<dyn std::error::Error>> {
/// // A thread looks for itself before each step.
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
/// // A task passes it on, to a cancellation token for instance. It ends with the lease at the latest.
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
    /// dropped. It needs no runtime, and reads the clock: a deadline that has passed counts,
    /// whether or not any task noticed.
    pub fn is_lost(&self) -> Option<Lost> {
        let Some(claim) = self.claim.upgrade() else { return Some(Lost(Loss::GivenBack)) };
        claim.notice_deadline();
        claim.view(over).map(Lost)
    }

    /// Waits until the lease is over, and says why: see [`Lease::lost`](crate::Lease::lost). It
    /// must be polled inside a Tokio runtime with timers, not necessarily that of the lock.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        match self.claim.upgrade() {
            Some(claim) => Lost(claim.until(over).await),
            None => Lost(Loss::GivenBack),
        }
    }

    /// The instant after which the lease must be taken for lost, as of now: extending moves it.
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

/// Why a claim that was held is held no more.
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
