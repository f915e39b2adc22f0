//! What one input of a claim must keep, whatever the input: the rules R1 to R8 and R10 of
//! `docs/safety.md`, as far as one step shows them. Debug builds check each input, and so do all
//! tests, searches and the model check.

use super::{Claim, Input};
use crate::acquire::{Acquire, Failure};
use crate::effect::{Effect, RoundId, VoteRequest};
use crate::hold::{Extension, Hold, Loss};
use crate::quorum::{NodeId, NodeSet};
use crate::release::Outcome;
use crate::time::Time;
use crate::token::Token;
use crate::vote::Reply;

/// The state before an input, as far as it is compared with the state after it.
pub(super) struct Before {
    state: State,
    /// The effects from here on are of this input.
    start: usize,
    /// The master that replies.
    replies: Option<NodeId>,
    /// Whether a held lease is compared with the clock.
    looks: bool,
}

enum State {
    Acquiring(Attempt),
    Holding(Lease),
    Releasing(Option<Outcome>),
    Ended,
}

struct Attempt {
    number: u32,
    token: Token,
    may_have_set: NodeSet,
    deadline: Time,
    is_won: bool,
    failure: Option<Failure>,
}

struct Lease {
    token: Token,
    fencing_token: Option<u64>,
    had_gap: bool,
    lost: Option<Loss>,
    deadline: Time,
    round: u32,
    members: NodeSet,
    nodes: NodeSet,
    handles: u32,
}

impl Before {
    pub(super) fn new(claim: &Claim, input: &Input, out: &[Effect]) -> Self {
        let state = match claim {
            Claim::Acquiring(acquire) => State::Acquiring(Attempt {
                number: acquire.attempt(),
                token: acquire.token(),
                may_have_set: acquire.may_have_set(),
                deadline: acquire.deadline(),
                is_won: acquire.is_won(),
                failure: acquire.failure(),
            }),
            Claim::Holding(hold) => State::Holding(Lease {
                token: hold.token(),
                fencing_token: hold.fencing_token(),
                had_gap: hold.had_gap(),
                lost: hold.lost(),
                deadline: hold.deadline(),
                round: hold.extension().0,
                members: hold.members(),
                nodes: NodeId::all(hold.config().nodes()).collect(),
                handles: hold.handles(),
            }),
            Claim::Releasing(release) => State::Releasing(release.outcome()),
            Claim::Ended => State::Ended,
        };
        let replies = if let Input::Replied { node, .. } = input { Some(*node) } else { None };
        let looks = matches!(
            input,
            Input::Replied { .. }
                | Input::Wake
                | Input::Extend(_)
                | Input::KeepAlive(_)
                | Input::Renew
                | Input::Reenter
        );
        Self { state, start: out.len(), replies, looks }
    }

    /// Checks the step to the state after the input, and its effects.
    pub(super) fn check(&self, after: &Claim, now: Time, out: &[Effect]) {
        let out = &out[self.start..];
        match (&self.state, after) {
            (State::Acquiring(before), Claim::Acquiring(after)) => before.check(after, now, out),
            (State::Acquiring(before), Claim::Holding(_)) => {
                debug_assert!(before.is_won, "R3: it holds without a quorum");
            }
            (State::Acquiring(before), Claim::Ended) => {
                cleaned_up(before.may_have_set, before.token, out);
            }
            (State::Holding(before), Claim::Holding(after)) => {
                before.check(after, (self.replies, self.looks), now, out);
            }
            (State::Holding(before), Claim::Releasing(_) | Claim::Ended) => {
                debug_assert_eq!(before.handles, 1, "R8: the last handle gives the lease back");
                if before.lost.is_none() {
                    cleaned_up(before.nodes, before.token, out);
                }
            }
            (State::Releasing(outcome), Claim::Releasing(after)) => {
                let known = outcome.is_none() || *outcome == after.outcome();
                debug_assert!(known, "R8: an outcome is final");
                let waits = after.next_wake() != Time::NEVER;
                debug_assert_eq!(after.outcome().is_none(), waits, "R9: a release has a bound");
            }
            (State::Releasing(_) | State::Ended, Claim::Ended) => {
                debug_assert!(out.is_empty(), "R5: what is over has nothing more to do: {out:?}");
            }
            _ => debug_assert!(false, "no way leads to {after:?}"),
        }
    }
}

impl Attempt {
    fn check(&self, after: &Acquire, now: Time, out: &[Effect]) {
        let (had, has) = (self.may_have_set, after.may_have_set());
        let is_new = self.number != after.attempt();
        if is_new {
            debug_assert!(
                has.is_empty() || after.grants().opened() == now,
                "R1: the clock is read before the first command of an attempt"
            );
        } else if !had.is_empty() && !has.is_empty() {
            debug_assert_eq!(self.deadline, after.deadline(), "R1: no reply moves the deadline");
            debug_assert_eq!(self.token, after.token(), "R4: an attempt has one token");
            debug_assert!(had.without(has).is_empty(), "R5: a key that may be set is forgotten");
        }
        if is_new || has.is_empty() {
            cleaned_up(had, self.token, out);
        }
        let mut sent = NodeSet::EMPTY;
        for effect in out {
            if let Effect::Send { node, step: RoundId::Attempt(attempt), request } = effect {
                debug_assert_eq!(*attempt, after.attempt(), "a command of an older attempt");
                debug_assert_eq!(request.token(), after.token(), "R4: a token of another attempt");
                sent.insert(*node);
            }
        }
        if has.is_empty() {
            cleaned_up(sent, after.token(), out);
        } else {
            debug_assert!(sent.without(has).is_empty(), "R5: keys on {sent:?} are forgotten");
        }
        if after.is_won() && !self.is_won {
            let grants = after.grants().which(Reply::creates);
            let is_quorum = after.config().quorum().is_in(grants);
            debug_assert!(is_quorum, "R3: {grants:?} are no quorum");
            debug_assert!(now < after.deadline(), "R1: it is won after its deadline");
            debug_assert_eq!(
                after.config().is_fenced(),
                after.fencing_token().is_some(),
                "a lease has a fencing token if one was asked for"
            );
        }
        if let Some(why) = self.failure {
            debug_assert_eq!(after.failure(), Some(why), "an error is final");
            let rests = out.iter().all(|effect| *effect == Effect::Decided);
            debug_assert!(rests, "R9: it failed, and goes on: {out:?}");
        } else if after.failure() == Some(Failure::Taken) && !after.enqueues() {
            let taken = after.votes().which(|reply| matches!(reply, Reply::Taken(_)));
            debug_assert!(!taken.is_empty(), "R10: it is taken by no other holder");
        }
        // Only at the end of all time.
        let time_ends = now.plus(after.config().ttl()).max(after.deadline()) == Time::NEVER;
        debug_assert!(
            after.failure().is_some() || after.next_wake() != Time::NEVER || time_ends,
            "R9: it waits for ever"
        );
    }
}

/// Checks a lease that is handed out.
pub(super) fn granted(won: &Acquire, hold: &Hold, now: Time) {
    let config = won.config();
    let grants = won.grants().which(Reply::creates);
    debug_assert!(config.quorum().is_in(grants), "R3: it holds without a quorum");
    debug_assert!(now < hold.deadline(), "R1: it is handed out after its deadline");
    debug_assert_eq!(hold.deadline(), won.deadline(), "R1: one deadline");
    debug_assert!(
        hold.deadline() <= won.grants().opened().plus(config.ttl()),
        "R1: it outlives its keys"
    );
    debug_assert_eq!(hold.token(), won.token(), "R4: the lease has the token of its attempt");
    debug_assert!(hold.members().and(won.lost()).is_empty(), "R6: a lost key counts");
    debug_assert_eq!(hold.fencing_token().is_some(), config.is_fenced());
    debug_assert!(hold.lost().is_none() && !hold.had_gap());
}

impl Lease {
    fn check(
        &self,
        after: &Hold,
        (replies, looks): (Option<NodeId>, bool),
        now: Time,
        out: &[Effect],
    ) {
        debug_assert_eq!(self.token, after.token(), "R4: a lease has one token");
        debug_assert_eq!(self.fencing_token, after.fencing_token(), "a token changes");
        debug_assert!(!self.had_gap || after.had_gap(), "R6: a repair hides a gap");
        debug_assert!(after.handles() > 0, "R8: the last handle ends the lease");
        let sends = out.iter().any(|effect| matches!(effect, Effect::Send { .. }));
        if let Some(loss) = self.lost {
            debug_assert_eq!(after.lost(), Some(loss), "R7: a loss is final");
            debug_assert!(!sends, "R7: a lost lease is extended");
            debug_assert_eq!(self.deadline, after.deadline(), "R7: a lost lease has a new end");
        } else if after.lost().is_some() {
            cleaned_up(self.nodes, after.token(), out);
            debug_assert!(out.contains(&Effect::Decided), "R7: nobody learns of the loss");
        } else if looks {
            debug_assert!(now < after.deadline(), "R7: its deadline passed, and it is not lost");
        }
        debug_assert!(!self.had_gap || !sends, "R6: extended beyond a gap");

        let (round, extension) = after.extension();
        if after.deadline() > self.deadline {
            debug_assert_eq!(extension, Extension::Extended, "R6: the deadline moves by a quorum");
            debug_assert!(replies.is_some(), "R6: no reply extends the lease");
            debug_assert!(!after.had_gap() && after.lost().is_none(), "R6: extended beyond a gap");
        } else if after.deadline() < self.deadline {
            // Whatever the round brings, the holder is bound before the first command is sent.
            debug_assert_ne!(round, self.round, "R6: a failed round takes something away");
        }
        let joined = after.members().without(self.members);
        let by_reply = joined.without(replies.into_iter().collect()).is_empty();
        debug_assert!(by_reply, "R6: {joined:?} count without a reply");
        for effect in out {
            if let Effect::Send { node, step, request } = effect {
                debug_assert_eq!(*step, RoundId::Extend(round), "R6: a command of an older round");
                debug_assert_eq!(request.token(), after.token(), "R4: a token of another lease");
                let repairs = matches!(request, VoteRequest::Keep { repair: true, .. });
                let votes = after.members().contains(*node);
                debug_assert_ne!(repairs, votes, "R6: a repair of {node} hides a gap");
            }
        }
    }
}

/// R5: each of these masters gets a clean-up of the key, now or after the lock delay.
fn cleaned_up(nodes: NodeSet, token: Token, out: &[Effect]) {
    let cleaned: NodeSet = out
        .iter()
        .filter_map(|effect| match effect {
            Effect::CleanUp { node, token: of, .. } | Effect::Leave { node, token: of, .. } => {
                (*of == token).then_some(*node)
            }
            _ => None,
        })
        .collect();
    let left = nodes.without(cleaned);
    debug_assert!(left.is_empty(), "R5: the keys on {left:?} are left behind");
}
