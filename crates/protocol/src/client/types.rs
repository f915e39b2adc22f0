//! The interface of a client: its options, its requests and its effects.

use core::time::Duration;

use super::ClaimMachine;
use crate::acquire::Failure;
use crate::claim::Claim;
use crate::effect::RoundId;
use crate::guard::Guard;
use crate::hold::Extension;
use crate::link::Bounds;
use crate::lock_config::LockConfig;
use crate::quorum::{NodeId, Quorum};
use crate::time::Time;
use crate::vote::{Reply, Votes};
use crate::wire::Command;

/// One request for one resource, from its first attempt to the end of its lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClaimId(pub(super) u64);

/// The options of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientConfig {
    /// The masters, and which of them are a quorum.
    pub quorum: Quorum,
    /// The longest time that a reply may take.
    pub node_timeout: Duration,
    /// The bounds of each link.
    pub bounds: Bounds,
    /// Whether requests wait in the masters' queues and are woken.
    pub wake_ups: bool,
    /// Whether waiters of all processes get the lease in the order of their requests.
    pub fair: bool,
    /// How to recognize masters that may have forgotten leases.
    pub guard: Option<Guard>,
    /// A random number, not 0, that names the channel on which masters wake this process.
    pub inbox: u64,
}

/// A request for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AcquireRequest<S = ()> {
    /// The TTL, and everything that follows from it.
    pub config: LockConfig,
    /// How long it may wait. Zero: one attempt, outside the local queue.
    pub wait: Duration,
    /// Whether a refused request waits up to one node timeout to learn which client holds the
    /// resource.
    pub explain: bool,
    /// Whether it keeps the order of the queues, if the client is fair.
    pub fair: bool,
    /// Whether the resource was just seen to be taken: if the request may wait, it then enters the
    /// masters' queues before its first attempt.
    pub seen_taken: bool,
    /// Its owner, if it has one.
    pub reentry: Option<Reentry>,
    /// The parameters of the claim besides its lock config.
    pub seed: S,
}

impl<S> AcquireRequest<S> {
    /// The request for one member of a multi-lock. A member that is waited for gets its turn as if
    /// it were the only one. Only such a member enqueues.
    pub const fn for_member(config: LockConfig, wait: Duration, explain: bool, seed: S) -> Self {
        let fair = !wait.is_zero();
        Self { config, wait, explain, fair, seen_taken: false, reentry: None, seed }
    }
}

/// An owner of requests. An owner that acquires what it holds gets another handle of its lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(pub usize);

/// The owner of a request, and what the request demands of a lease that the owner holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reentry {
    /// The owner.
    pub owner: OwnerId,
    /// Whether the lease must live at least as long as the config of the request grants from now.
    pub extend: bool,
}

/// Why the owner of a lease gets no other handle of it. The lease is unchanged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The request asks for a fencing token, and the lease has none.
    HeldUnfenced,
    /// The request asks for an exclusive lease, and the lease is a shared one.
    HeldShared,
    /// The lease was not extended: how the round ended, and its votes.
    NotExtended(Extension, Votes),
}

/// The receiver of a reply from a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplyTo {
    /// A claim.
    Claim(ClaimId, RoundId),
    /// The caller that asked about the master itself.
    Caller(u64),
}

/// An action that a driver carries out for a client, in order.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ClientEffect {
    /// Write this to the current connection of a master, behind everything written before.
    Write { node: NodeId, epoch: u64, command: Command },
    /// Open a connection with this number. A newer number replaces an older try.
    Dial { node: NodeId, epoch: u64 },
    /// Reset the connection with this number, or give up the try.
    Close { node: NodeId, epoch: u64 },
    /// The [next wake](crate::Link::next_wake) of this link may be earlier than before. The same
    /// holds for a link to which a [`ClientEffect::Write`] goes.
    Rearm { node: NodeId },
    /// The state of this claim changed: its caller looks at it again, by
    /// [`Client::look`](super::Client::look).
    Changed(ClaimId),
    /// A master replied to [`Client::probe`](super::Client::probe) or
    /// [`Client::initialize`](super::Client::initialize) with this number.
    Replied { request: u64, node: NodeId, reply: Reply },
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestState<'a, C> {
    /// It waits for its turn among the requests of this process, or for another request of its
    /// owner, until this time.
    Queued(Time),
    /// Its claim asks the masters, holds the lease or releases it.
    Claim(&'a C),
    /// It has a handle of this lease of its owner, which is extended for it first.
    Extending(ClaimId),
    /// It has a handle of this lease of its owner. The caller [takes](super::Client::take_handle)
    /// the handle.
    Reentered(ClaimId),
    /// Its owner holds the resource, but it gets no handle.
    Refused(&'a Refusal),
    /// Its wait was over before its turn came. The fields are the reason why there is no lease, and
    /// the masters' votes on the request before it.
    Over(Failure, &'a Votes),
}

/// What a request has come to, if it has no owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress<'a> {
    /// It has no result yet.
    Pending,
    /// A quorum has granted. The lease can be collected until this time.
    Won(Time),
    /// It has the lease, which may be lost.
    Held,
    /// The reason why there is no lease, the latest votes, and the number of attempts.
    Failed(Failure, &'a Votes, u32),
    /// The lease was given back, or the request does not acquire.
    Other,
}

impl<'a> Progress<'a> {
    /// The votes on a request that failed.
    pub const fn refused_by(self) -> Option<&'a Votes> {
        match self {
            Self::Failed(_, votes, _) => Some(votes),
            _ => None,
        }
    }
}

impl<'a, C: ClaimMachine> RequestState<'a, C> {
    /// What the request has come to.
    pub fn progress(&self) -> Progress<'a> {
        let claim = match self {
            Self::Queued(_) => return Progress::Pending,
            Self::Over(why, votes) => return Progress::Failed(*why, votes, 0),
            Self::Claim(claim) => claim.claim(),
            _ => return Progress::Other,
        };
        match claim {
            Claim::Acquiring(acquire) => match acquire.failure() {
                Some(why) => Progress::Failed(why, acquire.votes(), acquire.attempt()),
                None if acquire.is_won() => Progress::Won(acquire.deadline()),
                None => Progress::Pending,
            },
            Claim::Holding(_) => Progress::Held,
            _ => Progress::Other,
        }
    }
}

/// How often a master has granted and refused keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct VoteCounts {
    /// Keys that it created, at a grant or to repair one.
    pub granted: u64,
    /// Attempts and extensions that it refused because of another holder's key.
    pub refused: u64,
    /// Attempts and extensions of unknown outcome: never sent, never answered, or answered by an
    /// error.
    pub unknown: u64,
}

impl VoteCounts {
    pub(super) fn count(&mut self, reply: &Reply) {
        match reply {
            Reply::Created | Reply::Granted { .. } => self.granted += 1,
            Reply::Taken(_) => self.refused += 1,
            Reply::Unknown(_) => self.unknown += 1,
            Reply::Timed { reply, .. } => self.count(reply),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::reading::Reading;
    use crate::vote::{Cause, Holder};

    #[test]
    fn a_vote_counts_whether_or_not_it_comes_with_the_clock_of_its_master() {
        for timed in [false, true] {
            let mut votes = VoteCounts::default();
            for reply in [
                Reply::Created,
                Reply::Granted { number: 1 },
                Reply::Kept,
                Reply::Taken(Holder::NotAsked),
                Reply::Unknown(Cause::Silent),
                Reply::Unknown(Cause::Stalled),
                Reply::Unknown(Cause::Garbage),
            ] {
                let reading = Reading::new(Time::ZERO, Time::ZERO, 1);
                let reply = Box::new(reply);
                votes.count(&if timed { Reply::Timed { reading, reply } } else { *reply });
            }
            assert_eq!((votes.granted, votes.refused, votes.unknown), (2, 1, 3));
        }
    }
}
