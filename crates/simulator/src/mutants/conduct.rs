//! The conduct of a mutant: it overrides decisions of a client process.

use std::sync::Arc;

use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{Claim, ClaimMachine, Drift, Hold, NodeId, RunId, Time, Token};

use super::claim::{MutantClaim, Seed, clock};
use crate::client_machine::{Clocks, Conduct};
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::Options;

impl Conduct for Mutant {
    type Claim = MutantClaim;

    const CLOCKS_JUMP: bool = true;
    const REMEMBERS: bool = true;

    fn seed(self, root: &mut dyn FnMut() -> Token, former: Option<&MutantClaim>) -> Seed {
        // Drawn only for the mutant that needs it. All other mutants draw the same numbers as the
        // library.
        let root = (self == Self::OneToken).then(root);
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

    fn deadline(self, claim: &MutantClaim, hold: &Hold, clocks: Clocks) -> Time {
        claim.by_now(clocks, hold.deadline())
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
