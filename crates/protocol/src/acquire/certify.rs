//! Certify: the rounds that bring a quorum of counters to one number, if the grants did not show
//! one. [`fence`](crate::fence) explains why that makes the number a fencing token.

use super::{Acquire, Context, Failure, State};
use crate::effect::{Effect, RoundId, VoteRequest};
use crate::fence;
use crate::quorum::{NodeId, NodeSet};
use crate::vote::{Reply, Votes};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Certification {
    /// Counted from 1 in every attempt.
    pub(super) round: u32,
    /// The number to which the masters raise their counters.
    pub(super) number: u64,
    pub(super) votes: Votes,
    /// Masters that reported in an earlier round that the key is gone.
    gone: NodeSet,
}

impl Acquire {
    /// Masters that reported the key gone since they granted it.
    pub(crate) fn lost(&self) -> NodeSet {
        let gone = |reply: &Reply| matches!(reply, Reply::Absent | Reply::Taken(_));
        let last = self.certification.as_ref();
        last.map_or(NodeSet::EMPTY, |last| last.votes.which(gone).or(last.gone))
    }

    /// Masters that confirmed the key in the latest round, including one whose grant came too late
    /// to count.
    pub(crate) fn certified(&self) -> NodeSet {
        let ours = |reply: &Reply| matches!(reply, Reply::Certified { .. });
        let last = self.certification.as_ref();
        last.map_or(NodeSet::EMPTY, |last| last.votes.which(ours))
    }

    /// Asks all masters to raise their counters to one number, if the key there is still ours. That
    /// includes masters that have not granted: a grant may be on its way, and each master compares
    /// the key itself.
    pub(super) fn certify(&mut self, number: Option<u64>, cx: &mut Context<'_>) {
        let (Some(number), Some(fence)) = (number, number.and_then(|it| self.config.fence(it)))
        else {
            // Masters granted without a number, although they were asked for one.
            return self.fail(Failure::NoQuorum, cx);
        };
        debug_assert!(self.first.is_none(), "one master is no quorum");
        debug_assert!(
            self.certification.as_ref().is_none_or(|last| last.number < number),
            "R9: a round of certifying raises the number, so it ends"
        );
        let round = self.certification.as_ref().map_or(0, |last| last.round) + 1;
        let gone = self.lost();
        let votes = Votes::open(self.config.nodes(), cx.now);
        self.certification = Some(Certification { round, number, votes, gone });
        self.state = State::Certifying;
        let step = RoundId::Certify { attempt: self.attempt, round };
        let request = VoteRequest::Certify { token: self.token, fence };
        cx.out.extend(NodeId::all(self.config.nodes()).map(|node| Effect::Send {
            node,
            step,
            request,
        }));
    }

    pub(super) fn decide_number(&mut self, cx: &mut Context<'_>) {
        let Some(Certification { number, votes, .. }) = &self.certification else { return };
        let (number, quorum) = (*number, self.config.quorum());
        let exactly = votes.which(|reply| *reply == Reply::Certified { number });
        let ours = votes.which(|reply| matches!(reply, Reply::Certified { .. }));
        let awaited = votes.awaited();
        match quorum.verdict(exactly, awaited) {
            Some(true) if cx.now < self.deadline() => {
                self.fencing_token = Some(number);
                self.win(cx.now, cx.out);
            }
            _ if cx.now >= self.deadline() => self.fail(Failure::TooLate, cx),
            // A quorum holds the key, with counters at other numbers. Those are higher, and a
            // quorum can reach the least that a quorum does not exceed.
            Some(false) if quorum.is_in(ours) && awaited.is_empty() => {
                let number = fence::candidate(votes, quorum);
                self.certify(number, cx);
            }
            Some(false) if !quorum.is_in(ours.or(awaited)) => self.refused(cx),
            _ => {}
        }
    }
}
