//! Multi-lock requests in a client process. The shipped machine returns actions on the claims, and
//! this module reports the results of all claims to it. Once all are granted, each lease is an
//! ordinary lease.

use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, ClaimMachine, Input, LockConfig, MemberAction, MemberEvent,
    MultiLock, Outcome, Progress, Time,
};

use super::lease::{distrust, why};
use super::{Clocks, Conduct, InputContext, Process, distinct};
use redquorum_scenario::client_leases::{release_result, worse};
use redquorum_scenario::client_protocol::{Call, FailureReason, RequestError};
use redquorum_scenario::name::Name;

/// A multi-lock request under way.
#[derive(Clone, Debug)]
pub(super) struct Group {
    call: Call,
    client: Name,
    config: LockConfig,
    several: MultiLock,
    /// In the order in which the process acquires them: by their keys.
    members: Vec<Member>,
    /// Which masters were distrusted at the last refusal of a member.
    distrust: Option<String>,
}

#[derive(Clone, Debug)]
struct Member {
    resource: Name,
    /// Its position in the request.
    place: usize,
    /// The id of its claim.
    claim: Option<ClaimId>,
}

/// Several leases that one request releases.
#[derive(Clone, Debug)]
pub(super) struct MultiRelease {
    call: Call,
    open: Vec<ClaimId>,
    worst: Result<(), RequestError>,
}

impl<K: Conduct> Process<K> {
    pub(super) fn acquire_all(
        &mut self,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        (ttl_ms, wait_ms, shared): (u64, u64, bool),
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let config = self.config(ttl_ms, shared)?;
        distinct(&resources)?;
        let places = resources.into_iter().enumerate();
        let member = |(place, resource)| Member { resource, place, claim: None };
        let mut members: Vec<Member> = places.map(member).collect();
        members.sort_by(|one, other| one.resource.as_bytes().cmp(other.resource.as_bytes()));
        let mut orders = Vec::new();
        let now = self.conduct.clock(context.clocks);
        let wait = Duration::from_millis(wait_ms);
        let several = MultiLock::start(now, members.len(), wait, &mut orders);
        let call = context.call(id);
        self.groups.push(Group { call, client, config, several, members, distrust: None });
        self.carry_out_orders(id, orders, context);
        Ok(())
    }

    fn group(&mut self, id: u64) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.call.id == id)
    }

    fn report(&mut self, id: u64, event: MemberEvent, context: &mut InputContext<'_>) {
        let mut orders = Vec::new();
        let now = match event {
            MemberEvent::Collected { .. } => self.conduct.clock_to_collect(context.clocks),
            _ => self.conduct.clock(context.clocks),
        };
        let Some(group) = self.group(id) else { return };
        group.several.handle(now, event, context.rng, &mut orders);
        self.carry_out_orders(id, orders, context);
    }

    fn carry_out_orders(
        &mut self,
        id: u64,
        orders: Vec<MemberAction>,
        context: &mut InputContext<'_>,
    ) {
        for order in orders {
            match order {
                MemberAction::Try { member, .. } if self.keeps(id, member) => {}
                MemberAction::Try { member, wait, explain } => {
                    self.try_one(id, member, (wait, explain), context);
                }
                MemberAction::Collect { member } => self.collect(id, member, context),
                MemberAction::Undo { member } if self.keeps(id, member) => {}
                MemberAction::Undo { member } => self.undo(id, member, context),
                _ => {}
            }
        }
    }

    fn try_one(
        &mut self,
        id: u64,
        member: usize,
        (wait, explain): (Duration, bool),
        context: &mut InputContext<'_>,
    ) {
        let Some(group) = self.group(id) else { return };
        let whose = (group.client.clone(), group.members[member].resource.clone());
        let config = group.config;
        let seed = self.seed(&whose, context);
        let request = AcquireRequest::for_member(config, wait, explain, seed);
        let claim = self.claim(whose, request, None, context);
        if let Some(group) = self.group(id) {
            group.members[member].claim = Some(claim);
        }
    }

    /// Whether the process keeps a member, against the action that undoes it.
    fn keeps(&mut self, id: u64, member: usize) -> bool {
        let claim = self.group(id).and_then(|group| group.members[member].claim);
        let conduct = self.conduct;
        claim.and_then(|claim| self.client.claim(claim)).is_some_and(|claim| conduct.keeps(claim))
    }

    fn undo(&mut self, id: u64, member: usize, context: &mut InputContext<'_>) {
        let claim = self.group(id).and_then(|group| group.members[member].claim.take());
        let Some(claim) = claim else { return };
        self.claims.retain(|pending| pending.id != claim);
        self.client(context, |client, cx| client.undo(claim, cx));
    }

    fn undo_all(&mut self, id: u64, context: &mut InputContext<'_>) {
        let members = self.group(id).map_or(0, |group| group.members.len());
        (0..members).for_each(|member| self.undo(id, member, context));
    }

    /// Reports the result of a claim to its multi-lock. Returns whether the claim belongs to one.
    pub(super) fn attend_group(&mut self, claim: ClaimId, context: &mut InputContext<'_>) -> bool {
        let of = |group: &Group| {
            let member = group.members.iter().position(|member| member.claim == Some(claim))?;
            Some((group.call.id, member))
        };
        let Some((id, member)) = self.groups.iter().find_map(of) else { return false };
        let Some(standing) = self.client.standing(claim) else { return true };
        if let Some(event) = MemberEvent::result(member, standing.progress()) {
            self.inform(id, claim, event, context);
            self.remind(id, context);
            self.conclude(id, context);
        }
        true
    }

    /// Reports members that were kept against the action as won, since the machine asks for them
    /// again.
    fn remind(&mut self, id: u64, context: &mut InputContext<'_>) {
        let members = self.group(id).map_or(0, |group| group.members.len());
        for member in 0..members {
            if !self.keeps(id, member) {
                continue;
            }
            let claim = self.group(id).and_then(|group| group.members[member].claim);
            let Some(claim) = claim.and_then(|claim| self.client.claim(claim)) else { continue };
            if let Claim::Acquiring(acquire) = claim.claim() {
                let deadline = acquire.deadline();
                self.report(id, MemberEvent::Won { member, deadline }, context);
            }
        }
    }

    /// Reports the result of a claim to its multi-lock.
    fn inform(
        &mut self,
        id: u64,
        claim: ClaimId,
        event: MemberEvent,
        context: &mut InputContext<'_>,
    ) {
        let progress = self.client.standing(claim).map(|standing| standing.progress());
        let refused = progress.and_then(Progress::refused_by).map(distrust);
        if let (Some(distrust), Some(group)) = (refused, self.group(id)) {
            group.distrust = distrust;
        }
        self.report(id, event, context);
    }

    fn collect(&mut self, id: u64, member: usize, context: &mut InputContext<'_>) {
        let claim = self.group(id).and_then(|group| group.members[member].claim);
        let Some(claim) = claim else { return };
        self.advance(claim, Input::Collect, context);
        let Some(standing) = self.client.standing(claim) else { return };
        let event = MemberEvent::of_collect(member, standing.progress());
        self.inform(id, claim, event, context);
    }

    /// Answers a request that is decided.
    fn conclude(&mut self, id: u64, context: &mut InputContext<'_>) {
        let Some(place) = self.groups.iter().position(|group| group.call.id == id) else { return };
        if self.groups[place].several.is_held() {
            let group = self.groups.remove(place);
            self.hand_out(group, context);
        } else if let Some((_, failure)) = self.groups[place].several.failure() {
            self.undo_all(id, context);
            let group = self.groups.remove(place);
            let error = RequestError { why: why(failure), text: group.distrust };
            context.reply(group.call, Err(error));
        }
    }

    fn hand_out(&mut self, mut group: Group, context: &mut InputContext<'_>) {
        // In the order of the request.
        group.members.sort_by_key(|member| member.place);
        let claims: Vec<ClaimId> = group.members.iter().filter_map(|it| it.claim).collect();
        let grants = claims.iter().filter_map(|claim| self.granted(*claim, context)).collect();
        context.tell(group.call.granted_all(context.stamp(), grants));
        // A loss may have happened meanwhile.
        claims.into_iter().for_each(|claim| self.attend(claim, context));
    }

    /// When to wake the multi-locks, by the monotonic clock.
    pub(super) fn groups_wake(&self, clocks: Clocks) -> Time {
        let wake = self.groups.iter().map(|group| group.several.next_wake()).min();
        let wake = wake.filter(|wake| *wake != Time::NEVER);
        wake.map_or(Time::NEVER, |wake| {
            clocks.monotonic.plus(wake.since(self.conduct.clock(clocks)))
        })
    }

    pub(super) fn wake_groups(&mut self, context: &mut InputContext<'_>) {
        let now = self.conduct.clock(context.clocks);
        let due = self.groups.iter().filter(|group| group.several.next_wake() <= now);
        let due: Vec<u64> = due.map(|group| group.call.id).collect();
        due.into_iter().for_each(|id| self.report(id, MemberEvent::Wake, context));
    }

    /// Cancels a request, if it is a multi-lock request.
    pub(super) fn cancel_group(&mut self, request: u64, context: &mut InputContext<'_>) {
        if self.group(request).is_some() {
            self.report(request, MemberEvent::Abandon, context);
            self.undo_all(request, context);
            self.groups.retain(|group| group.call.id != request);
            context.done(request, Err(FailureReason::Cancelled.into()));
        }
    }

    pub(super) fn release_all(
        &mut self,
        id: u64,
        client: &Name,
        resources: Vec<Name>,
        context: &mut InputContext<'_>,
    ) {
        let call = context.call(id);
        let (mut open, mut worst) = (Vec::new(), Ok(()));
        for resource in resources {
            match self.remove(&(client.clone(), resource), context) {
                Ok(claim) => open.push(claim),
                Err(error) => worst = worse(worst, Err(error)),
            }
        }
        if open.is_empty() {
            return context.reply(call, worst);
        }
        self.multi_releases.push(MultiRelease { call, open: open.clone(), worst });
        for claim in open {
            self.give_back(claim, Input::Release, context);
            self.attend(claim, context);
        }
    }

    /// Records that one of several leases was released.
    pub(super) fn parted(
        &mut self,
        claim: ClaimId,
        outcome: Outcome,
        context: &mut InputContext<'_>,
    ) {
        let found = self
            .multi_releases
            .iter()
            .position(|multi_release| multi_release.open.contains(&claim));
        let Some(place) = found else { return };
        let multi_release = &mut self.multi_releases[place];
        multi_release.open.retain(|open| *open != claim);
        let worst = std::mem::replace(&mut multi_release.worst, Ok(()));
        multi_release.worst = worse(worst, release_result(outcome, None));
        if multi_release.open.is_empty() {
            let multi_release = self.multi_releases.remove(place);
            context.reply(multi_release.call, multi_release.worst);
        }
    }
}
