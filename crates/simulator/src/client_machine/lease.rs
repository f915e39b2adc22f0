//! The requests of a client process that wait for one claim, and the handles of a lease: the
//! replies to its owner, which acquires it again and releases it once for each handle. The client
//! decides whether the owner gets one.

use std::time::Duration;

use super::{Clocks, Conduct, InputContext, Process};
use redquorum_protocol::{
    Cause, Claim, ClaimId, ClaimMachine, Extension, Failure, Hold, Input, NodeId, Outcome, OwnerId,
    Refusal, Reply as Vote, RequestState, Votes,
};
use redquorum_scenario::client_leases::{LeaseKey, release_result};
use redquorum_scenario::client_protocol::{Call, ClientReply, Each, FailureReason, RequestError};
use redquorum_scenario::history::text_of;
use redquorum_scenario::name::Name;

/// A claim, and the request that waits for it. A multi-lock request waits for several.
#[derive(Clone, Debug)]
pub(super) struct PendingClaim {
    pub(super) id: ClaimId,
    pub(super) whose: LeaseKey,
    pub(super) owner: Option<OwnerId>,
    pub(super) acquiring: Option<Call>,
    pub(super) releasing: Option<Call>,
}

impl PendingClaim {
    pub(super) fn is_acquiring(&self, request: u64) -> bool {
        self.acquiring.is_some_and(|call| call.id == request)
    }

    pub(super) fn fail(&mut self, failure: Failure, votes: &Votes, context: &mut InputContext<'_>) {
        let Some(call) = self.acquiring.take() else { return };
        context.reply(call, Err(RequestError { why: why(failure), text: distrust(votes) }));
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal, context: &mut InputContext<'_>) {
        let Some(call) = self.acquiring.take() else { return };
        context.reply(call, Err(refused(refusal).into()));
    }

    pub(super) fn released(&mut self, outcome: Outcome, context: &mut InputContext<'_>) {
        let Some(call) = self.releasing.take() else { return };
        context.reply(call, release_result(outcome, None));
    }
}

/// A lease that a client has.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) id: ClaimId,
    pub(super) owner: Option<OwnerId>,
    /// The number of the latest extension round that the client asked for.
    pub(super) round: u32,
}

/// The grant of a lease, as a reply describes it.
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
        Refusal::HeldUnfenced | Refusal::HeldShared => FailureReason::Error,
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

impl<K: Conduct> Process<K> {
    /// The owner of a request. Only a request that acquires `again` has the owner of the lease that
    /// its client holds.
    pub(super) fn owner(&mut self, whose: &LeaseKey, again: bool) -> OwnerId {
        let owner = self.leases.reentered(whose, again).and_then(|lease| lease.owner);
        owner.unwrap_or_else(|| {
            self.owners += 1;
            OwnerId(self.owners)
        })
    }

    /// Reports all news about a claim that is held.
    pub(super) fn hold(&mut self, id: ClaimId, context: &mut InputContext<'_>) {
        if let Some(call) = self.pending(id).and_then(|pending| pending.acquiring.take())
            && let Some(grant) = self.granted(id, context)
        {
            context.tell(call.granted(context.stamp(), grant, None));
        }
        let Self { client, leases, conduct, .. } = self;
        let Some(record) = leases.find_by(|lease| lease.id == id) else { return };
        let Some(claim) = client.claim(id) else { return };
        let Claim::Holding(hold) = claim.claim() else { return };
        let at_ns = context.stamp();
        let deadline = (hold.deadline(), deadline(*conduct, claim, hold, context.clocks));
        if let Some((extension, _)) = hold.ended(record.lease.round) {
            let result = match extension {
                Extension::Extended => Ok(deadline),
                Extension::QuorumGone | Extension::Lost(_) if conduct.reports_loss() => {
                    Err(FailureReason::Lost.into())
                }
                _ => Err(FailureReason::NoQuorum.into()),
            };
            if let Some((reply, notice)) = record.extended(at_ns, result) {
                context.tell(reply);
                notice.into_iter().for_each(|notice| context.tell(notice));
            }
        }
        if hold.lost().is_some() && conduct.reports_loss() {
            record.lose(at_ns, None).into_iter().for_each(|notice| context.tell(notice));
        }
        record.moved(at_ns, deadline).into_iter().for_each(|notice| context.tell(notice));
    }

    pub(super) fn extend(
        &mut self,
        id: u64,
        whose: &LeaseKey,
        ttl_ms: u64,
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let config = self.config(ttl_ms, false);
        let record = self.leases.find(whose)?;
        let (claim, config) = (record.lease.id, config?);
        record.extend(context.call(id))?;
        self.advance(claim, Input::extend(config), context);
        let round = self.client.hold(claim).map_or(0, |hold| hold.extension().0);
        self.leases.find(whose)?.lease.round = round;
        self.attend(claim, context);
        Ok(())
    }

    pub(super) fn keep_alive(
        &mut self,
        id: u64,
        whose: &LeaseKey,
        max_ms: u64,
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let record = self.leases.find(whose)?;
        record.held()?;
        record.watch();
        let claim = record.lease.id;
        self.advance(claim, Input::KeepAlive(Duration::from_millis(max_ms)), context);
        context.done(id, Ok(()));
        self.attend(claim, context);
        Ok(())
    }

    /// Releases one handle. Only the last one gives the resource back.
    pub(super) fn release(
        &mut self,
        id: u64,
        whose: &LeaseKey,
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let (call, claim) = (context.call(id), self.leases.find(whose)?.lease.id);
        if self.handles(claim) > 1 {
            self.advance(claim, Input::Release, context);
            let (handles, held) = (self.handles(claim), self.held(claim, context));
            let reply = call.reply(context.stamp(), held);
            context.tell(ClientReply { handles: Some(handles.into()), ..reply });
        } else {
            self.remove(whose, context)?;
            if let Some(pending) = self.pending(claim) {
                pending.releasing = Some(call);
            }
            self.give_back(claim, Input::Release, context);
        }
        self.attend(claim, context);
        Ok(())
    }

    /// Removes a lease that is to be released.
    pub(super) fn remove(
        &mut self,
        whose: &LeaseKey,
        context: &mut InputContext<'_>,
    ) -> Result<ClaimId, RequestError> {
        let (lease, cancelled) = self.leases.remove(whose, context.stamp())?;
        cancelled.into_iter().for_each(|reply| context.tell(reply));
        Ok(lease.id)
    }

    /// Takes the handle that a request has got, and answers the request.
    pub(super) fn take_handle(&mut self, id: ClaimId, context: &mut InputContext<'_>) {
        let Some(of) = self.client(context, |client, cx| client.take_handle(id, cx)) else {
            return;
        };
        let call = self.pending(id).and_then(|pending| pending.acquiring.take());
        self.claims.retain(|claim| claim.id != id);
        let (Some(call), Some(claim)) = (call, self.client.claim(of)) else { return };
        let Claim::Holding(hold) = claim.claim() else { return };
        let Some(grant) = each(self.conduct, claim, context.clocks) else { return };
        if let (Some(record), Some(deadline_ns)) =
            (self.leases.find_by(|lease| lease.id == of), grant.deadline_ns)
        {
            record.report((hold.deadline(), deadline_ns));
        }
        // At least the earlier handle and this one, whatever a mutant counts.
        let handles = hold.handles().max(2);
        context.tell(call.granted(context.stamp(), grant, Some(handles.into())));
    }

    /// Cancels a request. If a lease is extended for it, the round goes on, and no reply reports
    /// the deadline.
    pub(super) fn cancel(&mut self, request: u64, id: ClaimId, context: &mut InputContext<'_>) {
        if let Some(RequestState::Extending(of)) = self.client.standing(id)
            && let Some(record) = self.leases.find_by(|lease| lease.id == of)
        {
            record.watch();
        }
        self.end(id, context);
        context.done(request, Err(FailureReason::Cancelled.into()));
    }
}
