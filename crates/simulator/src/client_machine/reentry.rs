//! The handles of a lease: the replies to its owner, which acquires it again and releases it once
//! for each handle. The client decides whether the owner gets one.

use redquorum_protocol::{ClaimId, Hold, Input, OwnerId, RequestState};

use super::lease::{LeaseKey, reentered};
use super::{Conduct, InputContext, Process};
use redquorum_scenario::client_protocol::FailureReason;

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
    pub(super) fn take_handle(&mut self, id: ClaimId, around: &mut InputContext<'_>) {
        let Some(of) = self.client(around, |client, cx| client.take_handle(id, cx)) else { return };
        let asked = self.lease(id).and_then(|lease| lease.acquiring.take());
        self.leases.retain(|lease| lease.id != id);
        let conduct = self.conduct;
        if let (Some(asked), Some(claim)) = (asked, self.client.claim(of)) {
            reentered(conduct, claim, asked, around);
        }
    }

    /// Cancels a request. If a lease is extended for it, the round goes on, and no reply reports
    /// the deadline.
    pub(super) fn cancel(&mut self, request: u64, id: ClaimId, around: &mut InputContext<'_>) {
        if let Some(RequestState::Extending(of)) = self.client.standing(id) {
            let deadline = self.client.hold(of).map(Hold::deadline);
            if let Some(lease) = self.lease(of) {
                lease.watch(deadline);
            }
        }
        self.end(id, around);
        around.refuse(request, FailureReason::Cancelled);
    }

    /// Releases one handle of several. Returns `false` if there is no other handle.
    pub(super) fn count_down(
        &mut self,
        request: u64,
        id: ClaimId,
        around: &mut InputContext<'_>,
    ) -> bool {
        if self.handles(id) < 2 {
            return false;
        }
        let from = around.stamp();
        self.advance(id, Input::Release, around);
        let left = self.handles(id);
        let result = if self.is_held(id, around) { Ok(()) } else { Err(FailureReason::Lost) };
        around.reply((request, from), result, |reply| reply.handles = Some(left.into()));
        self.attend(id, around);
        true
    }
}
