//! Leader election: one client leads, until it resigns, dies, or its term is over.

use std::future::Future;
use std::time::Duration;

use crate::clock::Deadline;
use crate::error::{AcquireError, RunError};
use crate::lease::Lease;
use crate::redlock::Redlock;
use crate::signal::LossSignal;

/// What a leader knows of its term. It borrows nothing and can be cloned: pass it to the tasks and
/// threads that lead.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: u64,
    signal: LossSignal,
}

impl Leadership {
    fn of(lease: &Lease) -> Self {
        let term = lease.fencing_token().expect("the request asks for one");
        Self { term, signal: lease.loss_signal() }
    }

    /// The number of the term, which is the [fencing token](Lease::fencing_token) of its lease: a
    /// later term has a larger number. A resource that remembers the largest one refuses a leader
    /// that was paused past the end of its term.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Tells tasks and threads when the term is over, and when it is endangered.
    pub const fn signal(&self) -> &LossSignal {
        &self.signal
    }
}

impl Redlock {
    /// Stands for leader until `work` returns: waits for the resource, runs `work` while it holds
    /// it, and stands again if the term ends before that.
    ///
    /// A term ends when the lease is lost, or after `max_term`, so that a leader that hangs does
    /// not lead for ever. Then `work` is dropped at its next await. After a pause, as between two
    /// [attempts](crate::Builder::retry), the client stands again, and `work` is called anew for
    /// the next term. A failed renewal alone ends no term: the watchdog repeats it until the
    /// deadline. While another client leads, or no quorum of masters answers, the client waits, for
    /// any time.
    ///
    /// `work` gets the [`Leadership`]: the number of its term, and a [signal](LossSignal) for tasks
    /// and threads that it starts. Dropping `work` does not stop these: see [`Lease::run`].
    ///
    /// If `work` returns, the leader resigns: the future gives the lease back, and returns the
    /// result.
    ///
    /// The TTL is the lock's own: it is also the longest time without a leader after one dies.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), redquorum::AcquireError> {
    /// # use std::time::Duration;
    /// # async fn schedule(_term: u64) {}
    /// let term = Duration::from_secs(3_600);
    /// lock.lead("scheduler", term, |leadership| schedule(leadership.term())).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`acquire`](Redlock::acquire) that are not
    /// [retryable](AcquireError::is_retryable), such as [`ShutDown`](AcquireError::ShutDown).
    ///
    /// # Cancel safety
    /// Dropping the future resigns, or gives the candidature up.
    pub async fn lead<F: Future>(
        &self,
        resource: impl AsRef<[u8]>,
        max_term: Duration,
        mut work: impl FnMut(Leadership) -> F,
    ) -> Result<F::Output, AcquireError> {
        let mut terms = 0;
        loop {
            let request = self.acquire(resource.as_ref()).fenced().wait(Duration::MAX);
            let led = request.run(max_term, async |lease| work(Leadership::of(lease)).await);
            match led.await {
                Ok(result) => return Ok(result),
                Err(RunError::NotAcquired(error)) if !error.is_retryable() => return Err(error),
                Err(_) => {}
            }
            // Another candidate goes first, if there is one.
            terms += 1;
            let shared = &self.lock_state.shared;
            if shared.is_forked() {
                return Err(AcquireError::Forked);
            }
            let (clock, pause) = (self.lock_state.clock, shared.with_rng(|rng| rng.pause(terms)));
            Deadline::new(clock, clock.now().plus(pause)).passed().await;
        }
    }
}
