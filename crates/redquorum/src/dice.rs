//! Dice: what the protocol leaves to chance.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redquorum_protocol::{Backoff, Dice, Token};

/// Random tokens from the operating system's source, and the lock's policy for pauses.
pub(crate) struct ShellDice<'a>(pub(crate) &'a RetryPolicy);

/// The pause where the caller's own policy panicked.
const PAUSE_AFTER_PANIC: Duration = Duration::from_millis(250);

/// How long to pause between attempts.
pub(crate) enum RetryPolicy {
    Backoff(Backoff),
    Own(Box<dyn Fn(u32, u64) -> Duration + Send + Sync>),
}

impl Dice for ShellDice<'_> {
    fn token(&mut self) -> Token {
        Token::new(rand::random())
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        let random = rand::random();
        match self.0 {
            RetryPolicy::Backoff(backoff) => backoff.pause(attempt, random),
            RetryPolicy::Own(policy) => {
                // It may be called on the task that serves a master, for whom all others would
                // have to suffer if it panicked there.
                let pause = catch_unwind(AssertUnwindSafe(|| policy(attempt, random)));
                // A pause of nothing would spin.
                pause.unwrap_or(PAUSE_AFTER_PANIC).max(Duration::from_millis(1))
            }
        }
    }
}
