//! Acquires by a client that holds the resource already, and the handles of its lease.

use redquorum_protocol::{ClaimId, Input};

use super::lease::{Asked, LeaseKey};
use super::{Conduct, InputContext, Process};
use crate::client_protocol::FailureReason;

/// The options of an acquire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// 0: use the configured TTL. The deadline of a lease that is held stays the same.
    pub(super) ttl_ms: u64,
    pub(super) wait_ms: u64,
}

impl<K: Conduct> Process<K> {
    /// Gives the owner of a lease another handle, or starts to. Returns `false` if the owner gets
    /// none, and acquires like any other client.
    pub(super) fn reenter(
        &mut self,
        request: u64,
        whose: &LeaseKey,
        wanted: Wanted,
        around: &mut InputContext<'_>,
    ) -> bool {
        let held = self.held.iter().find(|(held, _)| held == whose);
        let Some(id) = held.map(|(_, id)| *id) else { return false };
        let asked = (request, around.stamp());
        let before = self.handles(id);
        if self.client.hold(id).is_none() {
            return false;
        }
        self.advance(id, Input::Reenter, around);
        let conduct = self.conduct;
        if !self.client.claim(id).is_some_and(|claim| conduct.lets_in(claim, before)) {
            // The re-entry may have shown that the lease is over.
            self.attend(id, around);
            return false;
        }
        if wanted.ttl_ms == 0 {
            self.reentered(id, asked, around);
            return true;
        }
        let terms = self.terms(wanted.ttl_ms).ok();
        let busy = self.lease(id).is_some_and(|lease| lease.is_extending());
        let Some(terms) = terms.filter(|_| !busy) else {
            self.advance(id, Input::Release, around);
            around.refuse(request, FailureReason::Error);
            return true;
        };
        let before = self.rounds(id);
        self.advance(id, Input::Prolong(terms), around);
        let rounds = self.rounds(id);
        if before == rounds {
            self.reentered(id, asked, around);
        } else if let Some(lease) = self.lease(id) {
            lease.prolong(asked, rounds, wanted);
        }
        self.attend(id, around);
        true
    }

    fn reentered(&mut self, id: ClaimId, asked: Asked, around: &mut InputContext<'_>) {
        let conduct = self.conduct;
        if let Some(claim) = self.client.claim(id) {
            super::lease::reentered(conduct, claim, asked, around);
        }
    }

    /// Releases a handle that could not get the requested TTL. If the lease is over, its owner
    /// acquires like any other client.
    pub(super) fn not_prolonged(
        &mut self,
        id: ClaimId,
        (asked, wanted, why): (Asked, Wanted, FailureReason),
        around: &mut InputContext<'_>,
    ) {
        let whose = self.lease(id).map(|lease| lease.whose.clone());
        self.advance(id, Input::Release, around);
        match whose {
            Some(whose) if why == FailureReason::Lost => {
                self.acquire(asked.0, whose, wanted, around)
            }
            _ => around.answer(asked, Err(why), |_| ()),
        }
    }

    /// Cancels a request for another handle.
    pub(super) fn cancel_prolonging(&mut self, request: u64, around: &mut InputContext<'_>) {
        let client = &self.client;
        let found = self.leases.iter_mut().find_map(|lease| {
            let deadline = client.hold(lease.id).map(redquorum_protocol::Hold::deadline);
            lease.cancel_prolonging(request, deadline).then_some(lease.id)
        });
        if let Some(id) = found {
            self.advance(id, Input::Release, around);
            around.refuse(request, FailureReason::Cancelled);
        }
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
        around.answer((request, from), result, |answer| answer.handles = Some(left.into()));
        self.attend(id, around);
        true
    }
}
