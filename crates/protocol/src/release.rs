//! Release: compare-and-delete on all masters, and its outcome (R8).

use alloc::vec::Vec;
use core::fmt;

use crate::effect::Effect;
use crate::hold::Hold;
use crate::lock_config::LockConfig;
use crate::quorum::NodeId;
use crate::time::Time;
use crate::vote::{Reply, Votes};

/// The outcome of a release. Every outcome is a result; none is an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// A quorum held the key until now, before the deadline, and has deleted it: the lease was ours
    /// to the end.
    Released,
    /// The lease had ended before. Either it was lost already, whatever masters reply, or so many
    /// masters had no key of ours that no quorum can have held it.
    AlreadyGone,
    /// Too few masters replied to tell. The clean-up goes on in the background, if the runtime that
    /// the lock was built in lives; otherwise the keys expire.
    Unknown,
    /// The lease was ours until now, and other handles still hold it. No master was asked.
    StillHeld,
    /// The lease was ours to the end, and its keys stay for a time: its holder asked for that, or
    /// an earlier handle was dropped, not released, and has a lock delay. No master was asked.
    Left,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released",
            Self::AlreadyGone => "already gone: the lease had ended before",
            Self::Unknown => "unknown: too few masters answered",
            Self::StillHeld => "still held by another handle",
            Self::Left => "released, and the keys stay for as long as was asked for",
        })
    }
}

/// The machine of one release.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Release {
    config: LockConfig,
    votes: Votes,
    /// The lease was lost before, or its rounds have shown a gap: no reply to this release makes it
    /// a lease.
    lost: bool,
    outcome: Option<Outcome>,
}

impl Release {
    /// Asks all masters, unless the keys stay: for the lock delay of a lost lease or of a dropped
    /// handle, or because the holder asked for it.
    pub(crate) fn start(now: Time, hold: &Hold, out: &mut Vec<Effect>) -> Self {
        let config = hold.config();
        let ended = hold.lost().is_some() || now >= hold.deadline();
        let lost = ended || hold.had_gap();
        let left = hold.left_until(now);
        let outcome = if ended && (left.is_some() || !config.lock_delay().is_zero()) {
            // What was under way at the loss has the lock delay that began then, so no master is
            // asked.
            if hold.lost().is_none() {
                hold.leave(now, out);
            }
            Some(Outcome::AlreadyGone)
        } else if let Some(until) = left {
            hold.leave_until(until, out);
            Some(if lost { Outcome::AlreadyGone } else { Outcome::Left })
        } else {
            hold.clean_up(out);
            None
        };
        out.extend(outcome.map(|_| Effect::Decided));
        Self { config, votes: Votes::open(config.nodes(), now), lost, outcome }
    }

    pub(crate) fn replied(&mut self, now: Time, node: NodeId, reply: Reply, out: &mut Vec<Effect>) {
        if self.votes.record(now, node, reply) {
            self.decide(out);
        }
    }

    pub(crate) fn wake(&mut self, now: Time, out: &mut Vec<Effect>) {
        if now >= self.next_wake() {
            self.votes.close(now);
            self.decide(out);
        }
    }

    pub(crate) fn next_wake(&self) -> Time {
        if self.outcome.is_some() {
            Time::NEVER
        } else {
            self.votes.opened().plus(self.config.node_timeout())
        }
    }

    fn decide(&mut self, out: &mut Vec<Effect>) {
        if self.outcome.is_some() {
            return;
        }
        let quorum = self.config.quorum();
        let awaited = self.votes.awaited();
        let deleted = self.votes.which(|reply| *reply == Reply::Deleted);
        let gone = self.votes.which(|reply| matches!(reply, Reply::Absent | Reply::Taken(_)));
        // The two cannot both be true: where so many keys are gone, too few are left for a quorum.
        let released = quorum.verdict(deleted, awaited);
        let already_gone = match quorum.is_blocked_by(gone) {
            true => Some(true),
            false if quorum.is_blocked_by(gone.or(awaited)) => None,
            false => Some(false),
        };
        self.outcome = match (released, already_gone) {
            (Some(true), _) if !self.lost => Some(Outcome::Released),
            (Some(true), _) | (_, Some(true)) => Some(Outcome::AlreadyGone),
            (Some(false), Some(false)) if self.lost => Some(Outcome::AlreadyGone),
            (Some(false), Some(false)) => Some(Outcome::Unknown),
            _ => None,
        };
        debug_assert!(
            deleted.and(gone).is_empty() && (released != Some(true) || already_gone != Some(true)),
            "R8: the keys were there, and were not"
        );
        debug_assert!(
            !self.lost || matches!(self.outcome, None | Some(Outcome::AlreadyGone)),
            "a lost lease was given back as {:?}",
            self.outcome
        );
        if self.outcome.is_some() {
            out.push(Effect::Decided);
        }
    }

    /// The outcome, once it is known.
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The reply of each master.
    pub const fn votes(&self) -> &Votes {
        &self.votes
    }
}
