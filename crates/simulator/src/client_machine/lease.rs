//! The requests of a client process that wait for one claim, and the handles of a lease: the
//! replies to its owner, which acquires it again and releases it once for each handle. The client
//! decides whether the owner gets one.

use super::{Clocks, Conduct, InputContext, Process};
use redquorum_protocol::{
    Cause, Claim, ClaimId, ClaimMachine, Extension, Failure, Hold, Input, NodeId, Outcome, OwnerId,
    Refusal, Reply as Vote, RequestState, Time, Votes,
};
use redquorum_scenario::client_protocol::{Each, FailureReason, Notice};
use redquorum_scenario::history::text_of;
use redquorum_scenario::name::Name;

/// A client and a resource.
pub(super) type LeaseKey = (Name, Name);

/// A request under way: its id, and the stamp of the call.
type RequestStamp = (u64, i64);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) id: ClaimId,
    pub(super) whose: LeaseKey,
    pub(super) owner: Option<OwnerId>,
    acquiring: Option<RequestStamp>,
    /// An extension under way, with the number of its round.
    extending: Option<(RequestStamp, u32)>,
    releasing: Option<RequestStamp>,
    /// Whether the lease is over and that was reported.
    over: bool,
    /// The deadline that was last reported, if the deadline may move by itself.
    seen: Option<Time>,
}

impl Lease {
    pub(super) const fn new(
        id: ClaimId,
        whose: LeaseKey,
        owner: Option<OwnerId>,
        acquiring: Option<RequestStamp>,
    ) -> Self {
        let (extending, releasing) = (None, None);
        let (over, seen) = (false, None);
        Self { id, whose, owner, acquiring, extending, releasing, over, seen }
    }

    pub(super) fn is_acquiring(&self, request: u64) -> bool {
        self.acquiring.is_some_and(|(id, _)| id == request)
    }

    pub(super) const fn is_extending(&self) -> bool {
        self.extending.is_some()
    }

    /// Whether the lease is over and that was reported.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// From now on, the deadline moves by itself, and each move is reported.
    pub(super) fn watch(&mut self, deadline: Option<Time>) {
        self.seen = deadline.or(self.seen);
    }

    pub(super) const fn extend(&mut self, asked: RequestStamp, round: u32) {
        self.extending = Some((asked, round));
    }

    pub(super) fn release(&mut self, id: u64, context: &mut InputContext<'_>) {
        self.releasing = Some((id, context.stamp()));
        self.part(context);
    }

    pub(super) fn fail(&mut self, failure: Failure, votes: &Votes, context: &mut InputContext<'_>) {
        let Some(asked) = self.acquiring.take() else { return };
        context.reply(asked, Err(why(failure)), |reply| reply.text = distrust(votes));
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal, context: &mut InputContext<'_>) {
        let Some(asked) = self.acquiring.take() else { return };
        context.reply(asked, Err(refused(refusal)), |_| ());
    }

    /// Reports all news about a held lease. Returns whether it was granted just now.
    pub(super) fn hold<K: Conduct>(
        &mut self,
        conduct: K,
        claim: &K::Claim,
        context: &mut InputContext<'_>,
    ) -> bool {
        let Claim::Holding(hold) = claim.claim() else { return false };
        let deadline = deadline(conduct, claim, hold, context.clocks);
        let (lost, moved) = (hold.lost().is_some(), hold.deadline());
        let ended = self
            .extending
            .and_then(|(asked, round)| hold.ended(round).map(|(result, _)| (asked, result)));
        let granted = self.acquiring.take();
        if let Some(asked) = granted {
            let fence = hold.fencing_token();
            context.reply(asked, Ok(()), |reply| {
                reply.token = value(conduct, hold);
                reply.deadline_ns = Some(deadline);
                reply.fence = fence;
            });
        }
        if let Some((asked, result)) = ended {
            self.extending = None;
            self.extended(conduct, asked, (result, deadline), context);
        }
        if lost {
            self.lose(conduct, context);
        }
        if self.seen.is_some_and(|seen| moved != seen) {
            self.seen = Some(moved);
            let (client, resource) = self.whose.clone();
            let at_ns = Some(context.stamp());
            let deadline_ns = deadline;
            context.notify(Notice::Extended { client, resource, at_ns, deadline_ns });
        }
        granted.is_some()
    }

    fn extended<K: Conduct>(
        &mut self,
        conduct: K,
        asked: RequestStamp,
        (extension, deadline): (Extension, i64),
        context: &mut InputContext<'_>,
    ) {
        let result = match extension {
            Extension::Extended => Ok(()),
            Extension::QuorumGone | Extension::Lost(_) if conduct.reports_loss() => {
                Err(FailureReason::Lost)
            }
            _ => Err(FailureReason::NoQuorum),
        };
        context.reply(asked, result, |reply| {
            reply.deadline_ns = result.is_ok().then_some(deadline);
        });
        if result == Err(FailureReason::Lost) {
            self.lose(conduct, context);
        }
    }

    fn lose<K: Conduct>(&mut self, conduct: K, context: &mut InputContext<'_>) {
        if !std::mem::replace(&mut self.over, true) && conduct.reports_loss() {
            let (client, resource) = self.whose.clone();
            let at_ns = context.stamp();
            context.notify(Notice::Lost { client, resource, at_ns });
        }
    }

    /// Refuses the extension under way, since the lease is released, alone or with others.
    pub(super) fn part(&mut self, context: &mut InputContext<'_>) {
        if let Some(((extension, _), _)) = self.extending.take() {
            context.refuse(extension, FailureReason::Cancelled);
        }
    }

    pub(super) fn released(&mut self, outcome: Outcome, context: &mut InputContext<'_>) {
        let Some(asked) = self.releasing.take() else { return };
        context.reply(asked, ended(outcome), |_| ());
    }
}

/// Answers the owner of a lease, which now has another handle of it.
pub(super) fn reentered<K: Conduct>(
    conduct: K,
    claim: &K::Claim,
    asked: RequestStamp,
    context: &mut InputContext<'_>,
) {
    let Claim::Holding(hold) = claim.claim() else { return };
    let deadline = deadline(conduct, claim, hold, context.clocks);
    // At least the earlier handle and this one, whatever a mutant counts.
    let handles = hold.handles().max(2);
    context.reply(asked, Ok(()), |reply| {
        reply.token = value(conduct, hold);
        reply.deadline_ns = Some(deadline);
        reply.fence = hold.fencing_token();
        reply.handles = Some(handles.into());
    });
}

/// The report of a lease that was granted together with others.
pub(super) fn each<K: Conduct>(conduct: K, claim: &K::Claim, clocks: Clocks) -> Option<Each> {
    let Claim::Holding(hold) = claim.claim() else { return None };
    let token = value(conduct, hold);
    let deadline_ns = Some(deadline(conduct, claim, hold, clocks));
    Some(Each { token, deadline_ns, fence: hold.fencing_token() })
}

/// The value of a lease's keys, as text.
fn value<K: Conduct>(conduct: K, hold: &Hold) -> Option<Name> {
    Some(text_of(conduct.on_the_wire(hold.token()).as_bytes()))
}

fn deadline<K: Conduct>(conduct: K, claim: &K::Claim, hold: &Hold, clocks: Clocks) -> i64 {
    i64::try_from(conduct.deadline(claim, hold, clocks).as_nanos()).unwrap_or(i64::MAX)
}

/// Which masters were distrusted at the last attempt, if any.
pub(super) fn distrust(votes: &Votes) -> Option<String> {
    let votes = NodeId::all(votes.votes().len()).zip(votes.votes());
    let named = votes.filter_map(|(node, vote)| match &vote.reply {
        Some(Vote::Unknown(cause @ Cause::Distrusted { .. })) => Some(format!("{node}: {cause}")),
        _ => None,
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// Why an owner gets no other handle.
const fn refused(refusal: &Refusal) -> FailureReason {
    match refusal {
        Refusal::HeldUnfenced => FailureReason::Error,
        Refusal::NotExtended(..) => FailureReason::NoQuorum,
    }
}

/// Why an acquire failed.
pub(super) const fn why(failure: Failure) -> FailureReason {
    match failure {
        Failure::Taken => FailureReason::Taken,
        Failure::NoQuorum => FailureReason::NoQuorum,
        Failure::TooLate => FailureReason::Late,
        _ => FailureReason::Error,
    }
}

/// The result of a release.
pub(super) const fn ended(outcome: Outcome) -> Result<(), FailureReason> {
    match outcome {
        Outcome::Released | Outcome::Left => Ok(()),
        Outcome::AlreadyGone => Err(FailureReason::Lost),
        _ => Err(FailureReason::NoQuorum),
    }
}

impl<K: Conduct> Process<K> {
    /// The owner of a request. Only a request that acquires `again` has the owner of the lease that
    /// its client holds.
    pub(super) fn owner(&mut self, whose: &LeaseKey, again: bool) -> OwnerId {
        let held = self.held.iter().find(|(held, _)| again && held == whose).map(|(_, id)| *id);
        let owner = held.and_then(|id| self.lease(id)?.owner);
        owner.unwrap_or_else(|| {
            self.owners += 1;
            OwnerId(self.owners)
        })
    }

    /// Takes the handle that a request has got, and answers the request.
    pub(super) fn take_handle(&mut self, id: ClaimId, context: &mut InputContext<'_>) {
        let Some(of) = self.client(context, |client, cx| client.take_handle(id, cx)) else {
            return;
        };
        let asked = self.lease(id).and_then(|lease| lease.acquiring.take());
        self.leases.retain(|lease| lease.id != id);
        let conduct = self.conduct;
        if let (Some(asked), Some(claim)) = (asked, self.client.claim(of)) {
            reentered(conduct, claim, asked, context);
        }
    }

    /// Cancels a request. If a lease is extended for it, the round goes on, and no reply reports
    /// the deadline.
    pub(super) fn cancel(&mut self, request: u64, id: ClaimId, context: &mut InputContext<'_>) {
        if let Some(RequestState::Extending(of)) = self.client.standing(id) {
            let deadline = self.client.hold(of).map(Hold::deadline);
            if let Some(lease) = self.lease(of) {
                lease.watch(deadline);
            }
        }
        self.end(id, context);
        context.refuse(request, FailureReason::Cancelled);
    }

    /// Releases one handle of several. Returns `false` if there is no other handle.
    pub(super) fn count_down(
        &mut self,
        request: u64,
        id: ClaimId,
        context: &mut InputContext<'_>,
    ) -> bool {
        if self.handles(id) < 2 {
            return false;
        }
        let from = context.stamp();
        self.advance(id, Input::Release, context);
        let left = self.handles(id);
        let result = if self.is_held(id, context) { Ok(()) } else { Err(FailureReason::Lost) };
        context.reply((request, from), result, |reply| reply.handles = Some(left.into()));
        self.attend(id, context);
        true
    }
}
