//! The conduct of a mutant: it overrides decisions of a client process.

use std::sync::Arc;

use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{
    Claim, ClaimMachine, Drift, Effect, Hold, Input, LockConfig, NodeId, Rng, RunId, Time, Token,
    WaitPolicy,
};

use super::claim::{MutantClaim, clock};
use super::mutant::Mutant;
use super::numbers::Numbers;
use crate::client_machine::{Clocks, Conduct};
use crate::client_protocol::Options;

/// The ingredients of a mutant's claim: the shared half of its client's tokens, if they share one,
/// and the numbers that masters reported in an earlier hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seed {
    pub(super) mutant: Mutant,
    pub(super) root: Token,
    pub(super) numbers: Numbers,
}

impl ClaimMachine for MutantClaim {
    type Clocks = Clocks;
    type Seed = Seed;

    fn now(clocks: Clocks) -> Time {
        clocks.monotonic
    }

    fn acquire(
        clocks: Clocks,
        Seed { mutant, root, numbers }: Seed,
        terms: LockConfig,
        policy: WaitPolicy,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    ) -> Self {
        let mut claim = Self::acquire((mutant, root), clocks, terms, policy, rng, out);
        claim.remember(numbers);
        claim
    }

    fn handle(&mut self, clocks: Clocks, input: Input, rng: &mut dyn Rng, out: &mut Vec<Effect>) {
        Self::handle(self, clocks, input, rng, out);
    }

    fn claim(&self) -> &Claim {
        Self::claim(self)
    }

    fn next_wake(&self, clocks: Clocks) -> Time {
        self.sleeps(clocks).map_or(Time::NEVER, |sleep| clocks.monotonic.plus(sleep))
    }

    fn by_now(&self, clocks: Clocks, time: Time) -> Time {
        Self::by_now(self, clocks, time)
    }
}

impl Conduct for Mutant {
    type Claim = MutantClaim;

    const CLOCKS_JUMP: bool = true;
    const REMEMBERS: bool = true;

    fn seed(self, root: &mut dyn FnMut() -> Token, former: Option<&MutantClaim>) -> Seed {
        let none = Token::new([0; redquorum_protocol::TOKEN_LEN]);
        // Drawn only for the mutant that needs it. All other mutants draw the same numbers as the
        // library.
        let root = if self == Self::OneToken { root() } else { none };
        let numbers = former.and_then(MutantClaim::numbers).cloned().unwrap_or_default();
        Seed { mutant: self, root, numbers }
    }

    fn options(self, options: Options) -> Options {
        Options { fair: options.fair && self != Self::JumpsQueue, ..options }
    }

    fn drift(self, drift: Drift) -> Drift {
        Self::drift(self, drift)
    }

    fn greeting(self, node: NodeId, mut greeting: Greeting) -> Greeting {
        if self == Self::ServerTwice {
            // The same server passes for a different one under each address.
            let twice = |RunId(id): RunId| RunId(Arc::from(format!("{id} as {node}")));
            greeting.run_id = greeting.run_id.map(twice);
        }
        greeting
    }

    fn clock(self, clocks: Clocks) -> Time {
        clock(self, clocks)
    }

    fn clock_to_collect(self, clocks: Clocks) -> Time {
        // The mutant does not look at the clock here, either.
        if self == Self::NoDeadlineCheck { Time::ZERO } else { clock(self, clocks) }
    }

    fn keeps(self, claim: &MutantClaim) -> bool {
        let won = |it: &Claim| matches!(it, Claim::Acquiring(acquire) if acquire.is_won());
        self == Self::KeepsSome && won(claim.claim())
    }

    fn lets_in(self, claim: &MutantClaim, before: u32) -> bool {
        claim.lets_in(before)
    }

    fn deadline(self, claim: &MutantClaim, hold: &Hold, clocks: Clocks) -> Time {
        claim.deadline(clocks, hold)
    }

    fn seems_held(self, claim: &MutantClaim, hold: &Hold, clocks: Clocks) -> bool {
        claim.seems_held(clocks, hold)
    }

    fn reports_loss(self) -> bool {
        self != Self::SilentLoss
    }

    fn on_the_wire(self, token: Token) -> Token {
        Self::on_the_wire(self, token)
    }
}
