//! The Redlock protocol of redquorum, as pure state machines.
//!
//! Nothing here reads a clock, opens a socket, draws a random number or blocks. A driver passes a
//! machine the time, the masters' replies and random numbers. The machine returns what to send,
//! when to wake it, and what is decided. The Tokio shell of the `redquorum` crate drives the
//! machines against real masters; a simulation drives them against model masters. Both drive
//! *these* machines, so the results of a simulation hold for the shipped code.
//!
//! **Guarantee.** Two claims on one resource are never both granted and before their deadlines.
//! This requires N independent masters, clocks whose rates stay within the drift allowance, and
//! masters that do not forget (or a [`Guard`]).
//!
//! **Not guaranteed:** anything about a holder that acts after its deadline, a master that forgets
//! a key, or a clock that steps. `docs/safety.md` has the whole list.
//!
//! Reading order:
//!
//! 1. [`lock_config`](LockConfig) and [`Time`].
//! 2. [`vote`](Votes): the meaning of a reply.
//! 3. [`acquire`](Acquire), [`hold`](Hold) and [`release`](Release), which [`claim`](Claim)
//!    combines.
//! 4. [`link`](Link), the most difficult machine.
//! 5. [`client`](Client), which combines all machines into one process.
//! 6. [`wire`].
//!
//! Three modules are apart from this order. [`fence`](Fence) defines fencing tokens.
//! [`guard`](Guard) handles masters that forget. [`multi_lock`](MultiLock) claims several resources
//! at once. [`home`] tells which of several locks a resource belongs to.
//!
//! Comments cite the rules R1–R10, which `docs/safety.md` lists.

#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod acquire;
mod backoff;
mod bad_option;
mod claim;
mod client;
mod effect;
mod fence;
mod fingerprint;
mod guard;
mod hold;
mod link;
mod lock_config;
mod multi_lock;
mod one_of;
mod queue;
mod quorum;
mod reading;
mod release;
mod shards;
mod time;
mod token;
mod vote;
mod waiter;
pub mod wire;

pub use acquire::{Acquire, Failure, Turn, WaitPolicy};
pub use backoff::{Backoff, splitmix64};
pub use bad_option::{
    BadOption, MAX_FENCING_COUNTER_TTL, MAX_HOLDER_NAME, MAX_TTL, check_shard_name,
};
pub use claim::{Claim, Input};
pub use client::{
    AcquireRequest, ClaimId, ClaimMachine, Client, ClientConfig, ClientEffect, Context, OwnerId,
    Progress, Reentry, Refusal, ReplyTo, RequestState, VoteCounts,
};
pub use effect::{Effect, Fence, Key, MAX_NUMBER, QueueEvent, Rng, RoundId, VoteRequest, WakeUp};
pub use fingerprint::{Admitted, Fingerprint, MastersId};
pub use guard::{Distrust, Guard, RunId, admitted_by, with_admitted};
pub use hold::{Extension, Hold, Loss, Renewal};
pub use link::{Bounds, Link, LinkEffect, LinkInput, LinkState};
pub use lock_config::{Drift, LockConfig};
pub use multi_lock::{MemberAction, MemberEvent, MultiLock};
pub use one_of::{OneOf, OneOfStep, is_free, slot_of};
pub use quorum::{MAX_NODES, NodeId, NodeSet, Quorum, quorum};
pub use reading::Reading;
pub use release::{Outcome, Release};
pub use shards::home;
pub use time::Time;
pub use token::{HolderName, TOKEN_LEN, Token};
pub use vote::{Cause, Holder, Reply, Vote, Votes};
pub use waiter::{Position, Waiter, WaiterId};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
