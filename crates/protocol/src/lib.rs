//! The Redlock protocol of redquorum, as pure state machines.
//!
//! Nothing here reads a clock, opens a socket, draws a random number or waits. A machine is
//! told the time, the masters' answers and random numbers; it says what to send, when to wake
//! it, and what is decided. A driver does the rest: the Tokio shell of the `redquorum` crate
//! against real masters, a simulation against model ones. Both drive *these* machines, so what
//! a simulation shows holds for what is shipped.
//!
//! **What it promises**, given N independent masters, clocks whose rates stay within the drift
//! allowance, and masters that do not forget (or a [`Guard`]): two claims on one resource are never both granted
//! and before their deadlines. **What it does not promise:** anything about a holder that acts
//! after its deadline, a master that forgets a key, or a clock that steps. `docs/safety.md` has
//! the whole list.
//!
//! Reading order: [`terms`](Terms) and [`Time`]; [`vote`](Ballot), what an answer means;
//! [`acquire`](Acquire), [`hold`](Hold), [`release`](Release), strung together by
//! [`claim`](Claim); then [`link`](Link), the one hard machine, and [`client`](Client), which binds all of
//! them into one process; [`wire`] last. What a fencing token
//! is made of stands in [`fence`](Fence), what becomes of masters that forget in [`guard`](Guard), and how several
//! resources are claimed at once in [`several`](Several).
//!
//! The rules R1–R10 that comments cite are listed in `docs/safety.md`.

#![no_std]

extern crate alloc;

mod acquire;
mod backoff;
mod claim;
mod client;
mod effect;
mod fence;
mod fingerprint;
mod guard;
mod hold;
mod link;
mod queue;
mod quorum;
mod reading;
mod release;
mod roster;
mod several;
mod terms;
mod ticket;
mod time;
mod token;
mod vote;
pub mod wire;

pub use acquire::{Acquire, Failure, Patience, Turn};
pub use backoff::Backoff;
pub use claim::{Claim, Input};
pub use client::{
    AcquireRequest, ClaimId, ClaimMachine, Client, ClientConfig, ClientEffect, Context, ReplyTo,
    Standing, VoteCounts,
};
pub use effect::{Ask, Call, Dice, Effect, Key, Step, Word};
pub use fence::{Fence, MAX_NUMBER};
pub use fingerprint::Fingerprint;
pub use guard::{Distrust, Guard, fleet_of};
pub use hold::{Extension, Hold, Loss, Renewal};
pub use link::{Bounds, Link, LinkEffect, LinkInput, LinkState, RunId};
pub use quorum::{MAX_NODES, NodeId, NodeSet, quorum};
pub use reading::Reading;
pub use release::{Outcome, Release};
pub use several::{Order, Several, Told};
pub use terms::{BadOption, Drift, MAX_FENCING_MEMORY, MAX_TTL, Terms};
pub use ticket::{Spot, Ticket, Waiter};
pub use time::Time;
pub use token::{TOKEN_LEN, Token};
pub use vote::{Answer, Ballot, Cause, Holder, Vote, verdict};
