//! The random source: the values that the protocol leaves to chance.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use redquorum_protocol::{Backoff, BadOption, Rng, TOKEN_LEN, Token};

use crate::clock::wall_micros;

/// Random tokens, the wall clock's hint, and the lock's policy for pauses; `None` once that is
/// dropped.
pub(crate) struct SystemRng<'a>(pub(crate) Option<&'a dyn RetryPolicy>);

thread_local! {
    /// Whether this thread runs a caller's own policy.
    static IN_POLICY: Cell<bool> = const { Cell::new(false) };
}

/// Panics in a caller's own policy. The policy runs while its lock is locked, so it would wait for
/// that for ever. The panic ends the policy like any other panic in it.
pub(crate) fn refuse_in_policy() {
    assert!(!IN_POLICY.get(), "a policy of `Builder::retry` must not use a lock");
}

const PAUSE_AFTER_PANIC: Duration = Duration::from_millis(250);

/// The pauses of an acquire that waits, between its attempts: see
/// [`Builder::retry`](crate::Builder::retry).
///
/// A [`Backoff`] is one, and so is a function of the attempt and a random number.
pub trait RetryPolicy: Send + Sync + 'static {
    /// The pause after an attempt that failed. `attempt` counts from 1; `random` has 64 uniform
    /// bits.
    ///
    /// A pause of less than a millisecond becomes a millisecond. The policy must neither block nor
    /// use a lock. If it uses one, or panics, the pause is 250 ms.
    fn pause(&self, attempt: u32, random: u64) -> Duration;

    /// Checks the options of the policy. [`Builder::build`](crate::Builder::build) calls it once.
    ///
    /// # Errors
    /// The option that is out of bounds.
    fn check(&self) -> Result<(), BadOption> {
        Ok(())
    }
}

impl RetryPolicy for Backoff {
    fn pause(&self, attempt: u32, random: u64) -> Duration {
        Self::pause(*self, attempt, random)
    }

    fn check(&self) -> Result<(), BadOption> {
        Self::check(*self)
    }
}

impl<F: Fn(u32, u64) -> Duration + Send + Sync + 'static> RetryPolicy for F {
    fn pause(&self, attempt: u32, random: u64) -> Duration {
        self(attempt, random)
    }
}

impl Rng for SystemRng<'_> {
    fn token(&mut self) -> Token {
        Token::new(random::<TOKEN_LEN>())
    }

    fn hint(&mut self) -> u64 {
        wall_micros()
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        let Some(policy) = self.0 else { return PAUSE_AFTER_PANIC };
        let random = number();
        // The policy may run on the task that serves a master, which a panic would end.
        IN_POLICY.set(true);
        let pause = catch_unwind(AssertUnwindSafe(|| policy.pause(attempt, random)));
        IN_POLICY.set(false);
        // A pause of zero would spin.
        pause.unwrap_or(PAUSE_AFTER_PANIC).max(Duration::from_millis(1))
    }

    fn random(&mut self) -> u64 {
        number()
    }
}

pub(crate) fn number() -> u64 {
    u64::from_ne_bytes(random())
}

/// Random bytes straight from the operating system. A generator inside the process would repeat the
/// same numbers in each process that is forked from it, and in each copy of a virtual machine. Then
/// two holders would have the same token, and the clean-up of one would free the lease of the
/// other.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "memory")]
    if crate::repeatable::fill(&mut bytes) {
        return bytes;
    }
    SysRng.try_fill_bytes(&mut bytes).expect("the operating system has random numbers");
    bytes
}
