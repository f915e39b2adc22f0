//! What one input of a claim must keep, whatever the input: the rules R1 to R8 and R10 of
//! `docs/safety.md`, as far as one step shows them. Debug builds check each input, and so do all
//! tests, searches and the model check.

use super::{Claim, Input};
use crate::acquire::{Acquire, Failure};
use crate::effect::{Effect, RoundId, VoteRequest};
use crate::hold::{Extension, Hold};
use crate::quorum::{NodeId, NodeSet};
use crate::release::{Outcome, Release};
use crate::time::Time;
use crate::token::Token;
use crate::vote::Reply;

/// Checks the step from one state to the next, with the effects that it added.
pub(super) fn check(before: &Claim, after: &Claim, input: &Input, now: Time, out: &[Effect]) {
    match (before, after) {
        (Claim::Acquiring(before), Claim::Acquiring(after)) => acquiring(before, after, now, out),
        (Claim::Acquiring(before), Claim::Holding(after)) => granted(before, after, now),
        (Claim::Acquiring(before), Claim::Ended) => {
            cleaned_up(before.may_have_set(), before.token(), out);
        }
        (Claim::Holding(before), Claim::Holding(after)) => held(before, after, input, now, out),
        (Claim::Holding(before), Claim::Releasing(after)) => given_back(before, after, now, out),
        (Claim::Holding(before), Claim::Ended) => {
            debug_assert_eq!(before.handles(), 1, "other handles are out");
            if before.lost().is_none() {
                cleaned_up(NodeId::all(before.config().nodes()).collect(), before.token(), out);
            }
        }
        (Claim::Releasing(before), Claim::Releasing(after)) => releasing(before, after),
        (Claim::Releasing(_) | Claim::Ended, Claim::Ended) => {
            debug_assert!(out.is_empty(), "R5: what is over has nothing more to do: {out:?}");
        }
        _ => debug_assert!(false, "no way leads from {before:?} to {after:?}"),
    }
}

fn acquiring(before: &Acquire, after: &Acquire, now: Time, out: &[Effect]) {
    let (had, has) = (before.may_have_set(), after.may_have_set());
    let is_new = before.attempt() != after.attempt();
    if is_new {
        debug_assert!(
            has.is_empty() || after.grants().opened() == now,
            "R1: the clock is read before the first command of an attempt"
        );
    } else if !had.is_empty() && !has.is_empty() {
        debug_assert_eq!(before.deadline(), after.deadline(), "R1: no reply moves the deadline");
        debug_assert_eq!(before.token(), after.token(), "R4: an attempt has one token");
        debug_assert!(had.without(has).is_empty(), "R5: a key that may be set is forgotten");
    }
    if is_new || has.is_empty() {
        cleaned_up(had, before.token(), out);
    }
    let mut sent = NodeSet::EMPTY;
    for effect in out {
        if let Effect::Send { node, step: RoundId::Attempt(attempt), request } = effect {
            debug_assert_eq!(*attempt, after.attempt(), "a command of an older attempt");
            debug_assert_eq!(request.token(), after.token(), "R4: a token of an older attempt");
            sent.insert(*node);
        }
    }
    if has.is_empty() {
        cleaned_up(sent, after.token(), out);
    } else {
        debug_assert!(sent.without(has).is_empty(), "R5: keys on {sent:?} are forgotten");
    }
    if after.is_won() && !before.is_won() {
        let grants = after.grants().which(Reply::creates).len();
        debug_assert!(grants >= after.config().quorum(), "R3: {grants} grants are no quorum");
        debug_assert!(now < after.deadline(), "R1: it is won after its deadline");
        debug_assert_eq!(
            after.config().is_fenced(),
            after.fencing_token().is_some(),
            "a lease has a fencing token if one was asked for"
        );
    }
    if let Some(why) = before.failure() {
        debug_assert_eq!(after.failure(), Some(why), "an error is final");
        let rests = out.iter().all(|effect| *effect == Effect::Decided);
        debug_assert!(rests, "R9: it failed, and goes on: {out:?}");
    }
    if after.failure() == Some(Failure::Taken) && before.failure().is_none() && !after.enqueues() {
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

fn granted(won: &Acquire, hold: &Hold, now: Time) {
    let config = won.config();
    let grants = won.grants().which(Reply::creates).len();
    debug_assert!(won.is_won() && grants >= config.quorum(), "R3: it holds without a quorum");
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

fn held(before: &Hold, after: &Hold, input: &Input, now: Time, out: &[Effect]) {
    debug_assert_eq!(before.token(), after.token(), "R4: a lease has one token");
    debug_assert_eq!(before.fencing_token(), after.fencing_token(), "a token changes");
    debug_assert!(!before.had_gap() || after.had_gap(), "R6: a repair hides a gap");
    debug_assert!(after.handles() > 0, "R8: the last handle ends the lease");
    let sends = |effect: &Effect| matches!(effect, Effect::Send { .. });
    if let Some(loss) = before.lost() {
        debug_assert_eq!(after.lost(), Some(loss), "R7: a loss is final");
        debug_assert!(!out.iter().any(sends), "R7: a lost lease is extended");
        debug_assert_eq!(before.deadline(), after.deadline(), "R7: a lost lease has a new end");
    } else if after.lost().is_some() {
        cleaned_up(NodeId::all(after.config().nodes()).collect(), after.token(), out);
        debug_assert!(out.contains(&Effect::Decided), "R7: nobody learns of the loss");
    } else if matches!(
        input,
        Input::Replied { .. }
            | Input::Wake
            | Input::Extend(_)
            | Input::KeepAlive(_)
            | Input::Renew
            | Input::Reenter
    ) {
        debug_assert!(now < after.deadline(), "R7: its deadline passed, and it is not lost");
    }
    debug_assert!(!before.had_gap() || !out.iter().any(sends), "R6: extended beyond a gap");

    let (number, extension) = after.extension();
    if after.deadline() > before.deadline() {
        debug_assert_eq!(extension, Extension::Extended, "R6: the deadline moves by a quorum");
        debug_assert!(matches!(input, Input::Replied { .. }), "R6: {input:?} extends the lease");
        debug_assert!(!after.had_gap() && after.lost().is_none(), "R6: extended beyond a gap");
    } else if after.deadline() < before.deadline() {
        // Whatever the round brings, the holder is bound before the first command is sent.
        debug_assert_ne!(number, before.extension().0, "R6: a failed round takes something away");
    }
    let joined = after.members().without(before.members());
    if !joined.is_empty() {
        let by =
            matches!(input, Input::Replied { node, .. } if joined.without(one(*node)).is_empty());
        debug_assert!(by, "R6: {joined:?} hold the key by {input:?}");
    }
    for effect in out {
        if let Effect::Send { node, step, request } = effect {
            debug_assert_eq!(*step, RoundId::Extend(number), "R6: a command of an older round");
            debug_assert_eq!(request.token(), after.token(), "R4: a token of another lease");
            let repairs = matches!(request, VoteRequest::Keep { repair: true, .. });
            let votes = after.members().contains(*node);
            debug_assert_ne!(repairs, votes, "R6: a repair of {node} hides a gap");
        }
    }
}

fn given_back(hold: &Hold, release: &Release, now: Time, out: &[Effect]) {
    debug_assert_eq!(hold.handles(), 1, "R8: the last handle gives the lease back");
    if hold.lost().is_none() {
        cleaned_up(NodeId::all(hold.config().nodes()).collect(), hold.token(), out);
    }
    let is_over = hold.lost().is_some() || hold.had_gap() || now >= hold.deadline();
    debug_assert!(
        !is_over || matches!(release.outcome(), None | Some(Outcome::AlreadyGone)),
        "R8: a lost lease was given back as {:?}",
        release.outcome()
    );
}

fn releasing(before: &Release, after: &Release) {
    debug_assert!(
        before.outcome().is_none() || before.outcome() == after.outcome(),
        "R8: an outcome is final"
    );
    debug_assert_eq!(after.outcome().is_none(), after.next_wake() != Time::NEVER, "R9: a bound");
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

fn one(node: NodeId) -> NodeSet {
    NodeSet::from_iter([node])
}
