//! Several resources at once, in a client process: the shipped machine that orders claims about, and what
//! is told of all of them together. Once all are granted, each lease is one like any other.

use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, ClaimMachine, Failure, Input, Order, Outcome, Patience,
    Several, Standing, Terms, Time, Told,
};

use super::lease::{distrust, each, ended, why};
use super::{Around, Clocks, Conduct, Process};
use crate::name::Name;
use crate::talk::Why;

/// A request for several resources, under way.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The request, and when the library was called.
    asked: (u64, i64),
    client: Name,
    terms: Terms,
    several: Several,
    /// In the order in which they are asked for: by their keys.
    members: Vec<Member>,
    /// Which masters were distrusted, where one was refused last.
    distrust: Option<String>,
}

#[derive(Clone, Debug)]
struct Member {
    resource: Name,
    /// Its place in the request.
    place: usize,
    /// The number of its claim.
    claim: Option<ClaimId>,
}

/// Several leases that are given back in one request.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    asked: (u64, i64),
    open: Vec<ClaimId>,
    worst: Result<(), Why>,
}

impl<K: Conduct> Process<K> {
    pub(super) fn acquire_all(
        &mut self,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        ttl_ms: u64,
        wait_ms: u64,
        around: &mut Around<'_>,
    ) {
        let Ok(terms) = self.terms(ttl_ms) else { return around.refuse(id, Why::Error) };
        let places = resources.into_iter().enumerate();
        let member = |(place, resource)| Member { resource, place, claim: None };
        let mut members: Vec<Member> = places.map(member).collect();
        members.sort_by(|one, other| one.resource.as_bytes().cmp(other.resource.as_bytes()));
        let twice = members.windows(2).any(|two| two[0].resource == two[1].resource);
        if members.is_empty() || twice {
            return around.refuse(id, Why::Error);
        }
        let mut orders = Vec::new();
        let now = self.conduct.clock(around.clocks);
        let wait = Duration::from_millis(wait_ms);
        let several = Several::start(now, members.len(), wait, &mut orders);
        let asked = (id, around.stamp());
        self.groups.push(Group { asked, client, terms, several, members, distrust: None });
        self.carry_out_orders(id, orders, around);
    }

    fn group(&mut self, id: u64) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.asked.0 == id)
    }

    fn tell(&mut self, id: u64, told: Told, around: &mut Around<'_>) {
        let mut orders = Vec::new();
        let now = match told {
            Told::Collect => self.conduct.clock_to_collect(around.clocks),
            _ => self.conduct.clock(around.clocks),
        };
        let Some(group) = self.group(id) else { return };
        group.several.handle(now, told, around.dice, &mut orders);
        self.carry_out_orders(id, orders, around);
    }

    fn carry_out_orders(&mut self, id: u64, orders: Vec<Order>, around: &mut Around<'_>) {
        for order in orders {
            match order {
                Order::Try { member, .. } if self.keeps(id, member) => {}
                Order::Try { member, patience } => self.try_one(id, member, patience, around),
                Order::Undo { member } if self.keeps(id, member) => {}
                Order::Undo { member } => self.undo(id, member, around),
                _ => {}
            }
        }
    }

    fn try_one(&mut self, id: u64, member: usize, patience: Patience, around: &mut Around<'_>) {
        let Some(group) = self.group(id) else { return };
        let whose = (group.client.clone(), group.members[member].resource.clone());
        let terms = group.terms;
        let seed = self.seed(&whose, around);
        let Patience { wait, explain, .. } = patience;
        // A request that waits for one of several has its turn as if it wanted that alone.
        let fair = patience.fair || !wait.is_zero();
        let request = AcquireRequest { terms, wait, explain, fair, seed };
        let claim = self.claim(whose, request, None, around);
        if let Some(group) = self.group(id) {
            group.members[member].claim = Some(claim);
        }
    }

    /// Whether it keeps what it has of a member, against the order.
    fn keeps(&mut self, id: u64, member: usize) -> bool {
        let claim = self.group(id).and_then(|group| group.members[member].claim);
        let conduct = self.conduct;
        claim.and_then(|claim| self.client.claim(claim)).is_some_and(|claim| conduct.keeps(claim))
    }

    /// Gives up what a member asked for, or gives back what it has: no work was done under it.
    fn undo(&mut self, id: u64, member: usize, around: &mut Around<'_>) {
        let claim = self.group(id).and_then(|group| group.members[member].claim.take());
        let Some(claim) = claim else { return };
        if self.client.hold(claim).is_some() {
            self.advance(claim, Input::Release, around);
        }
        self.end(claim, around);
    }

    fn undo_all(&mut self, id: u64, around: &mut Around<'_>) {
        let members = self.group(id).map_or(0, |group| group.members.len());
        (0..members).for_each(|member| self.undo(id, member, around));
    }

    /// Tells a group what became of one of its claims. Returns whether the claim is one of a group.
    pub(super) fn attend_group(&mut self, claim: ClaimId, around: &mut Around<'_>) -> bool {
        let of = |group: &Group| {
            let member = group.members.iter().position(|member| member.claim == Some(claim))?;
            Some((group.asked.0, member))
        };
        let Some((id, member)) = self.groups.iter().find_map(of) else { return false };
        let (told, distrust) = match self.client.standing(claim) {
            Some(Standing::Over(why, ballot)) => (Told::Failed { member, why }, distrust(ballot)),
            Some(Standing::Claim(claim)) => match claim.claim() {
                Claim::Acquiring(acquire) if acquire.is_won() => {
                    (Told::Won { member, deadline: acquire.deadline() }, None)
                }
                Claim::Acquiring(acquire) => match acquire.failure() {
                    Some(why) => (Told::Failed { member, why }, distrust(acquire.ballot())),
                    None => return true,
                },
                _ => return true,
            },
            _ => return true,
        };
        self.inform(id, claim, (told, distrust), around);
        self.remind(id, around);
        self.conclude(id, around);
        true
    }

    /// What was kept against the order is won still, when it is asked for again.
    fn remind(&mut self, id: u64, around: &mut Around<'_>) {
        let members = self.group(id).map_or(0, |group| group.members.len());
        for member in 0..members {
            if !self.keeps(id, member) {
                continue;
            }
            let claim = self.group(id).and_then(|group| group.members[member].claim);
            let Some(claim) = claim.and_then(|claim| self.client.claim(claim)) else { continue };
            if let Claim::Acquiring(acquire) = claim.claim() {
                let deadline = acquire.deadline();
                self.tell(id, Told::Won { member, deadline }, around);
            }
        }
    }

    fn inform(
        &mut self,
        id: u64,
        claim: ClaimId,
        (told, distrust): (Told, Option<String>),
        around: &mut Around<'_>,
    ) {
        if let Told::Failed { member, .. } = told {
            if let Some(group) = self.group(id) {
                group.distrust = distrust;
            }
            self.tell(id, told, around);
            // One that failed by itself is not undone by order.
            let failed =
                self.group(id).is_some_and(|group| group.members[member].claim == Some(claim));
            if failed {
                self.undo(id, member, around);
            }
        } else {
            self.tell(id, told, around);
        }
    }

    /// Collects all that is won, and answers what is decided.
    fn conclude(&mut self, id: u64, around: &mut Around<'_>) {
        let Some(group) = self.group(id) else { return };
        if group.several.is_won() {
            let members = group.members.iter().enumerate();
            let claims: Vec<(usize, ClaimId)> =
                members.filter_map(|(at, member)| Some((at, member.claim?))).collect();
            for (member, claim) in claims {
                self.advance(claim, Input::Collect, around);
                let (why, distrust) = match self.client.claim(claim).map(ClaimMachine::claim) {
                    Some(Claim::Holding(_)) => continue,
                    Some(Claim::Acquiring(acquire)) => {
                        (acquire.failure(), distrust(acquire.ballot()))
                    }
                    _ => (None, None),
                };
                let why = why.unwrap_or(Failure::TooLate);
                self.inform(id, claim, (Told::Failed { member, why }, distrust), around);
                break;
            }
            self.tell(id, Told::Collect, around);
        }
        let Some(place) = self.groups.iter().position(|group| group.asked.0 == id) else { return };
        if self.groups[place].several.is_held() {
            let group = self.groups.remove(place);
            self.hand_out(group, around);
        } else if let Some((_, failure)) = self.groups[place].several.failure() {
            self.undo_all(id, around);
            let group = self.groups.remove(place);
            around.answer(group.asked, Err(why(failure)), |answer| answer.text = group.distrust);
        }
    }

    fn hand_out(&mut self, mut group: Group, around: &mut Around<'_>) {
        // As they were named.
        group.members.sort_by_key(|member| member.place);
        let claims: Vec<ClaimId> = group.members.iter().filter_map(|it| it.claim).collect();
        let mut all = Vec::new();
        for claim in &claims {
            self.granted(*claim, around);
            let (conduct, claim) = (self.conduct, self.client.claim(*claim));
            all.extend(claim.and_then(|claim| each(conduct, claim, around.clocks)));
        }
        around.answer(group.asked, Ok(()), |answer| {
            answer.deadline_ns = all.iter().filter_map(|each| each.deadline_ns).min();
            answer.each = all;
        });
        // A loss may have come meanwhile.
        claims.into_iter().for_each(|claim| self.attend(claim, around));
    }

    /// When to wake the groups, by the monotonic clock.
    pub(super) fn groups_wake(&self, clocks: Clocks) -> Time {
        let wake = self.groups.iter().map(|group| group.several.next_wake()).min();
        let wake = wake.filter(|wake| *wake != Time::NEVER);
        wake.map_or(Time::NEVER, |wake| {
            clocks.monotonic.plus(wake.since(self.conduct.clock(clocks)))
        })
    }

    pub(super) fn wake_groups(&mut self, around: &mut Around<'_>) {
        let now = self.conduct.clock(around.clocks);
        let due = self.groups.iter().filter(|group| group.several.next_wake() <= now);
        let due: Vec<u64> = due.map(|group| group.asked.0).collect();
        due.into_iter().for_each(|id| self.tell(id, Told::Wake, around));
    }

    /// Gives a request up, if it is one for several resources.
    pub(super) fn cancel_group(&mut self, request: u64, around: &mut Around<'_>) {
        if self.group(request).is_some() {
            self.tell(request, Told::Abandon, around);
            self.undo_all(request, around);
            self.groups.retain(|group| group.asked.0 != request);
            around.refuse(request, Why::Cancelled);
        }
    }

    pub(super) fn release_all(
        &mut self,
        id: u64,
        client: &Name,
        resources: Vec<Name>,
        around: &mut Around<'_>,
    ) {
        let asked = (id, around.stamp());
        let mut parting = Parting { asked, open: Vec::new(), worst: Ok(()) };
        for resource in resources {
            let whose = (client.clone(), resource);
            match self.held.iter().position(|(held, _)| *held == whose) {
                Some(place) => parting.open.push(self.held.remove(place).1),
                None => parting.worst = Err(Why::Lost),
            }
        }
        let claims = parting.open.clone();
        if claims.is_empty() {
            return around.answer(asked, parting.worst, |_| ());
        }
        self.partings.push(parting);
        for claim in claims {
            if let Some(lease) = self.lease(claim) {
                lease.part(around);
            }
            self.give_back(claim, Input::Release, around);
            self.attend(claim, around);
        }
    }

    /// One of several leases was given back.
    pub(super) fn parted(&mut self, claim: ClaimId, outcome: Outcome, around: &mut Around<'_>) {
        let found = self.partings.iter().position(|parting| parting.open.contains(&claim));
        let Some(place) = found else { return };
        let parting = &mut self.partings[place];
        parting.open.retain(|open| *open != claim);
        // Lost is worse than unknown.
        parting.worst = match (parting.worst, ended(outcome)) {
            (Err(Why::Lost), _) | (_, Err(Why::Lost)) => Err(Why::Lost),
            (Err(why), _) | (_, Err(why)) => Err(why),
            _ => Ok(()),
        };
        if parting.open.is_empty() {
            let parting = self.partings.remove(place);
            around.answer(parting.asked, parting.worst, |_| ());
        }
    }
}
