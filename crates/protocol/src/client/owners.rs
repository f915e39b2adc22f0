//! Owners: an owner that acquires a resource it holds gets another handle of its lease.
//!
//! - One request of an owner asks the masters for a resource at a time. The owner's other requests
//!   wait for its result, at least one node timeout. Then each gets a handle of that lease, or is
//!   the next to ask.
//! - A request with a TTL of its own extends the lease first, if that moves the deadline to a later
//!   time. It does not replace a round that another caller waits for. If its own round is replaced,
//!   it tries again.
//! - An owner of an exclusive lease that asks for a shared one gets another handle of it. The owner
//!   of a shared lease that asks for an exclusive one is refused: it would wait for itself.
//! - If the extension fails, the request fails, and the lease stays as it is. If the lease is lost
//!   meanwhile, the request asks the masters like any other.
//!
//! A request acts only when its caller looks at it. So a caller that hangs blocks no other request
//! of its owner, except while it asks the masters, until it is [set aside](super::unpolled). A
//! handle that it has not taken is given back.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{ClaimId, ClaimMachine, Client, Context, OwnerId, Refusal, State};
use crate::acquire::Failure;
use crate::claim::Input;
use crate::effect::Key;
use crate::hold::{Extension, Hold};
use crate::vote::Votes;

/// The requests of each owner for each resource. Nothing is kept of requests that are over.
pub(super) type Owners = BTreeMap<(OwnerId, Key), OwnerRequests>;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct OwnerRequests {
    /// The latest request that asked the masters.
    latest: Option<ClaimId>,
    /// Requests to inform once the latest one has a result.
    waiting: Vec<ClaimId>,
    /// Requests that have a handle, and wait until its lease is extended.
    extending: Vec<ClaimId>,
}

/// The round of extending that a request with a handle waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Round {
    /// None of its own: another caller's round is under way.
    Other,
    /// The round with this number.
    Own(u32),
    /// It ended with these votes.
    Ended(Extension, Votes),
}

impl<C: ClaimMachine> Client<C> {
    /// Continues a request of an owner that waits for another request, or for an extension.
    pub(super) fn continue_reentry(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        // A request that waited gets nothing after a shutdown. Its caller reports that.
        if self.shut_down {
            return;
        }
        if let Some(State::Extending(lease, _)) = self.claims.get(&id).map(|entry| &entry.state) {
            self.continue_extending(id, *lease, cx);
        }
        // Either it has just started, or the lease was lost meanwhile.
        if let Some(State::Waiting) = self.claims.get(&id).map(|entry| &entry.state) {
            self.enter_or_ask(id, cx);
        }
    }

    /// Waits for another request of the owner, shares its lease, or asks the masters.
    fn enter_or_ask(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(owner_key) = self.owner_key(id) else { return };
        let over = self.claims.get(&id).is_some_and(|entry| cx.now() >= entry.waits_until);
        let latest = self.owners.get(&owner_key).and_then(|requests| requests.latest);
        match latest {
            Some(lease) if self.is_asking(lease) && !over => {
                let waiting = &mut self.owners.entry(owner_key).or_default().waiting;
                if !waiting.contains(&id) {
                    waiting.push(id);
                }
            }
            Some(lease) if self.is_asking(lease) => {
                let no_votes = Votes::open(self.links.len(), cx.now());
                self.refuse(id, Failure::Taken, no_votes, cx);
            }
            Some(lease) if self.reenter(lease, cx) => self.share(id, lease, cx),
            _ => {
                self.owners.entry(owner_key).or_default().latest = Some(id);
                if !self.resume(id, cx) {
                    self.enqueue(id, cx);
                }
            }
        }
    }

    /// Whether a request has no result yet.
    fn is_asking(&self, id: ClaimId) -> bool {
        match self.claims.get(&id).map(|entry| &entry.state) {
            Some(State::Queued) => true,
            Some(State::Claim(claim)) => claim.claim().is_trying(),
            _ => false,
        }
    }

    /// Counts another handle of a lease, unless it is over.
    fn reenter(&mut self, lease: ClaimId, cx: &mut Context<'_, C>) -> bool {
        let Some(before) = self.hold(lease).map(Hold::handles) else { return false };
        self.drive(lease, Input::Reenter, cx);
        self.claim(lease).is_some_and(|claim| claim.reentered(before))
    }

    fn share(&mut self, id: ClaimId, lease: ClaimId, cx: &mut Context<'_, C>) {
        let Some(owner_key) = self.owner_key(id) else { return };
        let Some(entry) = self.claims.get(&id) else { return };
        let extend = entry.request.reentry.is_some_and(|reentry| reentry.extend);
        let config = entry.request.config;
        let refusal = self.hold(lease).and_then(|hold| {
            if hold.is_shared() && !config.is_shared() {
                // It would wait for itself.
                Some(Refusal::HeldShared)
            } else if config.is_fenced() && hold.fencing_token().is_none() {
                Some(Refusal::HeldUnfenced)
            } else {
                None
            }
        });
        if let Some(refusal) = refusal {
            self.return_handle(id, lease, State::Refused(refusal), cx);
        } else if extend {
            self.owners.entry(owner_key).or_default().extending.push(id);
            self.set_state(id, State::Extending(lease, Round::Other), cx);
            self.continue_extending(id, lease, cx);
        } else {
            self.set_state(id, State::Reentered(lease), cx);
        }
    }

    /// Starts the round of a request that has a handle, or acts on its end.
    fn continue_extending(&mut self, id: ClaimId, lease: ClaimId, cx: &mut Context<'_, C>) {
        // The deadline decides, not the timer.
        self.drive(lease, Input::Wake, cx);
        if self.round(id) == Some(&Round::Other) {
            self.prolong(id, lease, cx);
        }
        if self.hold(lease).is_none_or(|hold| hold.lost().is_some()) {
            // The caller has no handle yet: go on as if the lease had been lost before.
            self.return_handle(id, lease, State::Waiting, cx);
            // A lost lease gets no more handles.
            let owner_key = self.owner_key(id);
            if let Some(requests) = owner_key.and_then(|it| self.owners.get_mut(&it)) {
                requests.latest = requests.latest.filter(|latest| *latest != lease);
            }
            return;
        }
        match self.round(id) {
            Some(Round::Ended(Extension::Extended, _)) => {
                self.leave_owner(id, cx);
                self.set_state(id, State::Reentered(lease), cx);
            }
            Some(Round::Ended(why, votes)) => {
                let refusal = Refusal::NotExtended(*why, votes.clone());
                self.return_handle(id, lease, State::Refused(refusal), cx);
            }
            _ => {}
        }
    }

    /// Extends the lease for a request that has a handle.
    fn prolong(&mut self, id: ClaimId, lease: ClaimId, cx: &mut Context<'_, C>) {
        let Some(config) = self.claims.get(&id).map(|entry| entry.request.config) else { return };
        let Some(hold) = self.hold(lease).filter(|hold| !hold.is_extended_by_a_caller()) else {
            return;
        };
        let before = hold.extension().0;
        self.drive(lease, Input::prolong(config), cx);
        let Some(hold) = self.hold(lease) else { return };
        let round = match hold.extension() {
            (number, _) if number == before => {
                // It lives long enough.
                Round::Ended(Extension::Extended, hold.votes().clone())
            }
            (number, Extension::Pending) => Round::Own(number),
            (_, ended) => Round::Ended(ended, hold.votes().clone()),
        };
        self.set_round(id, round);
    }

    /// Whether other requests of its owner wait for the result of a request.
    pub(super) fn owner_waits_for(&self, id: ClaimId) -> bool {
        let requests = self.owner_key(id).and_then(|owner_key| self.owners.get(&owner_key));
        requests.is_some_and(|it| it.latest == Some(id) && !it.waiting.is_empty())
    }

    /// Returns the unused handle of a request. No work has begun under it.
    pub(super) fn return_handle(
        &mut self,
        id: ClaimId,
        lease: ClaimId,
        state: State<C>,
        cx: &mut Context<'_, C>,
    ) {
        self.leave_owner(id, cx);
        self.set_state(id, state, cx);
        self.give_back(lease, Input::Release, cx);
    }

    /// Informs the other requests of the owner of a claim, once the claim has a result or a round
    /// of extending has ended.
    pub(super) fn inform_owner(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(owner_key) = self.owner_key(id) else { return };
        let asking = self.is_asking(id);
        let Some(requests) = self.owners.get_mut(&owner_key) else { return };
        let has_result = requests.latest == Some(id) && !asking;
        let waiting = if has_result { core::mem::take(&mut requests.waiting) } else { Vec::new() };
        let extending = requests.extending.clone();
        waiting.into_iter().for_each(|waiting| self.changed(waiting, cx));
        extending.into_iter().for_each(|extending| self.inform_extending(extending, id, cx));
    }

    fn inform_extending(&mut self, id: ClaimId, lease: ClaimId, cx: &mut Context<'_, C>) {
        let Some(State::Extending(its, round)) = self.claims.get(&id).map(|it| &it.state) else {
            return;
        };
        if *its != lease || matches!(round, Round::Ended(..)) {
            return;
        }
        let Some(hold) = self.hold(lease) else { return self.changed(id, cx) };
        match (round, hold.extension()) {
            (Round::Own(own), (number, Extension::Pending)) if *own == number => return,
            (Round::Own(own), (number, ended)) if *own == number => {
                let ended = Round::Ended(ended, hold.votes().clone());
                self.set_round(id, ended);
            }
            // A round that was replaced says nothing about the lease.
            _ => self.set_round(id, Round::Other),
        }
        if !self.hold(lease).is_some_and(Hold::is_extended_by_a_caller) {
            self.changed(id, cx);
        }
    }

    /// Removes a request from those of its owner, if it has one.
    pub(super) fn leave_owner(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(owner_key) = self.owner_key(id) else { return };
        let Some(requests) = self.owners.get_mut(&owner_key) else { return };
        let asked = requests.latest == Some(id);
        let waiting = if asked { core::mem::take(&mut requests.waiting) } else { Vec::new() };
        requests.latest = requests.latest.filter(|_| !asked);
        requests.waiting.retain(|waiting| *waiting != id);
        requests.extending.retain(|extending| *extending != id);
        if *requests == OwnerRequests::default() {
            self.owners.remove(&owner_key);
        }
        waiting.into_iter().for_each(|waiting| self.changed(waiting, cx));
    }

    fn owner_key(&self, id: ClaimId) -> Option<(OwnerId, Key)> {
        let entry = self.claims.get(&id)?;
        Some((entry.request.reentry?.owner, entry.key.clone()))
    }

    fn round(&self, id: ClaimId) -> Option<&Round> {
        match &self.claims.get(&id)?.state {
            State::Extending(_, round) => Some(round),
            _ => None,
        }
    }

    fn set_round(&mut self, id: ClaimId, round: Round) {
        if let Some(entry) = self.claims.get_mut(&id)
            && let State::Extending(_, current) = &mut entry.state
        {
            *current = round;
        }
    }

    fn set_state(&mut self, id: ClaimId, state: State<C>, cx: &mut Context<'_, C>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.state = state;
            self.changed(id, cx);
            self.set_timers(id, cx);
        }
    }
}
