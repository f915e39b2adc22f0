//! Conduct: how a client process behaves. The honest conduct is here; `mutants` has the others.
//!
//! This is the one seam between a process and its mutants. An honest process drives the shipped
//! [`Claim`] and takes every default.

use std::fmt::Debug;

use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{Claim, ClaimMachine, Drift, Hold, NodeId, Time, Token};

use super::Clocks;
use redquorum_scenario::client_protocol::Options;

/// How a client process behaves: honestly by default, and as a mutant where a method is overridden.
pub trait Conduct: Copy + Debug {
    /// The machine that the client drives for each request.
    type Claim: ClaimMachine<Clocks: From<Clocks>, Seed: Clone + Debug> + Clone + Debug;

    /// Whether claims measure by clocks that may jump, so that no timer is reliable.
    const CLOCKS_JUMP: bool = false;

    /// Whether a new claim depends on the result of an earlier one.
    const REMEMBERS: bool = false;

    /// The ingredients of a claim. `root` draws the random token that all claims of the client
    /// share. `former` is the latest claim of the client that was granted the same resource.
    fn seed(
        self,
        root: &mut dyn FnMut() -> Token,
        former: Option<&Self::Claim>,
    ) -> <Self::Claim as ClaimMachine>::Seed;

    /// The options as the process uses them.
    fn options(self, options: Options) -> Options {
        options
    }

    /// The drift allowance.
    fn drift(self, drift: Drift) -> Drift {
        drift
    }

    /// A master's greeting as the process uses it.
    fn greeting(self, _node: NodeId, greeting: Greeting) -> Greeting {
        greeting
    }

    /// The clock by which multi-lock requests are measured.
    fn clock(self, clocks: Clocks) -> Time {
        clocks.monotonic
    }

    /// The clock for multi-lock requests at the moment of the collection.
    fn clock_to_collect(self, clocks: Clocks) -> Time {
        self.clock(clocks)
    }

    /// Whether the process keeps a member of a multi-lock that it should undo.
    fn keeps(self, _claim: &Self::Claim) -> bool {
        false
    }

    /// The deadline of a lease, by the monotonic clock.
    fn deadline(self, _claim: &Self::Claim, hold: &Hold, _clocks: Clocks) -> Time {
        hold.deadline()
    }

    /// Whether the holder finds its lease held.
    fn seems_held(self, _claim: &Self::Claim, hold: &Hold, clocks: Clocks) -> bool {
        hold.lost().is_none() && clocks.monotonic < hold.deadline()
    }

    /// Whether the process reports a loss.
    fn reports_loss(self) -> bool {
        true
    }

    /// The value of a token on the masters.
    fn on_the_wire(self, token: Token) -> Token {
        token
    }
}

/// The conduct of the shipped lock.
#[derive(Clone, Copy, Debug)]
pub struct Honest;

impl Conduct for Honest {
    type Claim = Claim;

    fn seed(self, _: &mut dyn FnMut() -> Token, _: Option<&Claim>) {}
}

impl From<Clocks> for Time {
    fn from(clocks: Clocks) -> Self {
        clocks.monotonic
    }
}
