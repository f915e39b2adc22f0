//! The machine behind a claim, as the client drives it: [`Claim`], or a mutant of it in tests of
//! the harness.

use alloc::vec::Vec;

use crate::acquire::WaitPolicy;
use crate::claim::{Claim, Input};
use crate::effect::{Effect, Rng};
use crate::lock_config::LockConfig;
use crate::time::Time;

/// The machine that a [`Client`](super::Client) drives for each request.
pub trait ClaimMachine {
    /// The readings of the process's clocks at one instant.
    type Clocks: Copy;

    /// The parameters of a claim besides its lock config.
    type Seed: Clone;

    /// Whether every state of it that is not final has a [`next_wake`](Self::next_wake). Only
    /// mutants wait for ever.
    const ENDS: bool = true;

    /// The monotonic clock.
    fn now(clocks: Self::Clocks) -> Time;

    /// Starts to acquire: see [`Claim::acquire`].
    fn acquire(
        clocks: Self::Clocks,
        seed: Self::Seed,
        config: LockConfig,
        policy: WaitPolicy,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    ) -> Self;

    /// Takes one input: see [`Claim::handle`].
    fn handle(
        &mut self,
        clocks: Self::Clocks,
        input: Input,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    );

    /// The state of the claim.
    fn claim(&self) -> &Claim;

    /// Whether the latest [`Input::Reenter`] gave the owner another handle besides the `before`
    /// ones.
    fn reentered(&self, before: u32) -> bool {
        self.claim().hold().is_some_and(|hold| hold.handles() > before)
    }

    /// When to send [`Input::Wake`] next, on the clock of [`now`](Self::now).
    fn next_wake(&self, clocks: Self::Clocks) -> Time;

    /// Converts an instant of the claim's own clock to the clock of [`now`](Self::now). The two
    /// differ only for mutants.
    fn by_now(&self, _clocks: Self::Clocks, time: Time) -> Time {
        time
    }
}

impl ClaimMachine for Claim {
    type Clocks = Time;
    type Seed = ();

    fn now(clocks: Time) -> Time {
        clocks
    }

    fn acquire(
        clocks: Time,
        (): (),
        config: LockConfig,
        policy: WaitPolicy,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    ) -> Self {
        Self::acquire(clocks, config, policy, rng, out)
    }

    fn handle(&mut self, clocks: Time, input: Input, rng: &mut dyn Rng, out: &mut Vec<Effect>) {
        Self::handle(self, clocks, input, rng, out);
    }

    fn claim(&self) -> &Claim {
        self
    }

    fn next_wake(&self, _: Time) -> Time {
        Self::next_wake(self)
    }
}
