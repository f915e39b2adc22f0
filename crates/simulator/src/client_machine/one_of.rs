//! Requests for one of several resources in a client process. The shipped machine says what is
//! next, and this module makes claims and asks masters for it. The lease is an ordinary one.

use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, ClaimMachine, Input, Key, LockConfig, NodeId, NodeSet, OneOf,
    OneOfStep, Progress, Reply as Vote, Time, is_free,
};

use super::lease::{distrust, why};
use super::{Conduct, InputContext, Process, distinct};
use redquorum_scenario::client_protocol::{Call, ClientReply, FailureReason, RequestError};
use redquorum_scenario::name::Name;

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    call: Call,
    client: Name,
    resources: Vec<Name>,
    config: LockConfig,
    one_of: OneOf,
    /// When it is given up.
    end: Time,
    /// The claims under way, each with the position of its resource.
    claims: Vec<(ClaimId, usize)>,
    looks: Option<Looks>,
    /// The resource that it waits for, and when it waits for the others, too.
    waits: Option<(usize, Time)>,
    /// The latest refusal.
    refused: RequestError,
}

/// More resources than a request can name. The number of a question is that of its request times
/// this, and the position of the resource.
const PLACES: u64 = 1 << 32;

/// Questions to masters who holds resources.
#[derive(Clone, Debug)]
struct Looks {
    /// Which masters have no key of each resource.
    absent: Vec<NodeSet>,
    /// How many replies are missing.
    open: usize,
    /// When the missing replies are given up.
    end: Time,
}

impl<K: Conduct> Process<K> {
    pub(super) fn acquire_any(
        &mut self,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        (ttl_ms, wait_ms, shared): (u64, u64, bool),
        context: &mut InputContext<'_>,
    ) -> Result<(), RequestError> {
        let config = self.config(ttl_ms, shared)?;
        distinct(&resources)?;
        let keys: Vec<Key> = resources.iter().map(|name| Key::from(name.as_bytes())).collect();
        let taken = self.client.taken(context.clocks.monotonic, &keys);
        let (one_of, step) = OneOf::begin(context.rng.random(), wait_ms > 0, &taken);
        let end = context.clocks.monotonic.plus(Duration::from_millis(wait_ms));
        let refused = FailureReason::Taken.into();
        let (call, claims, looks, waits) = (context.call(id), Vec::new(), None, None);
        self.choices.push(Choice {
            call,
            client,
            resources,
            config,
            one_of,
            end,
            claims,
            looks,
            waits,
            refused,
        });
        self.choose(id, step, context);
        Ok(())
    }

    fn choice(&mut self, id: u64) -> Option<&mut Choice> {
        self.choices.iter_mut().find(|choice| choice.call.id == id)
    }

    fn choose(&mut self, id: u64, step: OneOfStep, context: &mut InputContext<'_>) {
        let now = context.clocks.monotonic;
        let Some(choice) = self.choice(id) else { return };
        let left = choice.end.since(now);
        match step {
            OneOfStep::Attempt(place) => self.attempt(id, place, Duration::ZERO, context),
            OneOfStep::Look => self.look_at_others(id, context),
            OneOfStep::Wait(first) if !left.is_zero() => {
                let node_timeout = Duration::from_millis(self.options.node_timeout_ms);
                let Some(choice) = self.choice(id) else { return };
                choice.waits = Some((first, now.plus(choice.one_of.head_start(node_timeout))));
                self.attempt(id, first, left, context);
            }
            _ => self.refuse_choice(id, context),
        }
    }

    /// Waits for the other resources, too, once the head start of the first one is over.
    fn wait_for_all(&mut self, id: u64, context: &mut InputContext<'_>) {
        let now = context.clocks.monotonic;
        let Some(choice) = self.choice(id) else { return };
        if let Some((first, _)) = choice.waits.take_if(|(_, until)| *until <= now) {
            let (all, left) = (choice.resources.len(), choice.end.since(now));
            let others = (0..all).filter(|place| *place != first);
            others.for_each(|place| self.attempt(id, place, left, context));
        }
    }

    fn attempt(&mut self, id: u64, place: usize, wait: Duration, context: &mut InputContext<'_>) {
        let Some(choice) = self.choice(id) else { return };
        let whose = (choice.client.clone(), choice.resources[place].clone());
        let config = choice.config;
        let seed = self.seed(&whose, context);
        let request = AcquireRequest {
            fair: true,
            seen_taken: true,
            ..AcquireRequest::for_member(config, wait, true, seed)
        };
        let claim = self.claim(whose, request, None, context);
        if let Some(choice) = self.choice(id) {
            choice.claims.push((claim, place));
        }
    }

    fn look_at_others(&mut self, id: u64, context: &mut InputContext<'_>) {
        let nodes = self.client.links().len();
        let end =
            context.clocks.monotonic.plus(Duration::from_millis(self.options.node_timeout_ms));
        let Some(choice) = self.choice(id) else { return };
        let absent = vec![NodeSet::EMPTY; choice.resources.len()];
        let others: Vec<usize> = choice.one_of.others().collect();
        let keys: Vec<Key> =
            others.iter().map(|place| Key::from(choice.resources[*place].as_bytes())).collect();
        choice.looks = Some(Looks { absent, open: others.len() * nodes, end });
        for (place, key) in others.into_iter().zip(keys) {
            // No key has this token.
            let token = context.rng.token();
            let question = id * PLACES + place as u64;
            for node in NodeId::all(nodes) {
                let about = (key.clone(), token);
                self.client(context, |client, cx| client.ask_holder(node, question, about, cx));
            }
        }
        self.end_looks(id, context);
    }

    /// A master said who holds a resource.
    pub(super) fn told_holder(
        &mut self,
        (question, node): (u64, NodeId),
        reply: &Vote,
        context: &mut InputContext<'_>,
    ) {
        let (id, place) = (question / PLACES, (question % PLACES) as usize);
        if let Some(looks) = self.choice(id).and_then(|choice| choice.looks.as_mut()) {
            looks.open -= 1;
            if matches!(reply, Vote::Absent) {
                looks.absent[place].insert(node);
            }
            self.end_looks(id, context);
        }
    }

    /// Goes on once all masters have replied, or had the time to.
    fn end_looks(&mut self, id: u64, context: &mut InputContext<'_>) {
        let quorum = self.client.quorum();
        let now = context.clocks.monotonic;
        let Some(choice) = self.choice(id) else { return };
        let Some(looks) = choice.looks.take_if(|looks| looks.open == 0 || looks.end <= now) else {
            return;
        };
        let others = choice.one_of.others().filter(|place| is_free(looks.absent[*place], quorum));
        let step = choice.one_of.looked(others.collect::<Vec<_>>());
        self.choose(id, step, context);
    }

    /// When a request goes on by itself: a look is over, or the wait for one resource alone.
    pub(super) fn choices_wake(&self) -> Time {
        let looks = self.choices.iter().filter_map(|choice| Some(choice.looks.as_ref()?.end));
        let waits = self.choices.iter().filter_map(|choice| Some(choice.waits?.1));
        looks.chain(waits).min().unwrap_or(Time::NEVER)
    }

    pub(super) fn wake_choices(&mut self, context: &mut InputContext<'_>) {
        let all: Vec<u64> = self.choices.iter().map(|choice| choice.call.id).collect();
        for id in all {
            self.end_looks(id, context);
            self.wait_for_all(id, context);
        }
    }

    /// Looks at a claim. Returns whether it is one of a request for one of several.
    pub(super) fn attend_choice(&mut self, claim: ClaimId, context: &mut InputContext<'_>) -> bool {
        let has = |choice: &&mut Choice| choice.claims.iter().any(|(id, _)| *id == claim);
        let Some(choice) = self.choices.iter_mut().find(has) else { return false };
        let id = choice.call.id;
        if let Some(Progress::Won(_)) = self.client.standing(claim).map(|it| it.progress()) {
            self.advance(claim, Input::Collect, context);
        }
        let holds = |claim: &K::Claim| matches!(claim.claim(), Claim::Holding(_));
        let held = self.client.claim(claim).is_some_and(holds);
        match self.client.standing(claim).map(|standing| standing.progress()) {
            _ if held => self.hand_out_choice(id, claim, context),
            Some(Progress::Failed(failure, votes, _)) => {
                let refused = RequestError { why: why(failure), text: distrust(votes) };
                self.drop_claim(id, claim, Some(refused), context);
            }
            Some(Progress::Pending | Progress::Won(_)) => {}
            _ => self.drop_claim(id, claim, None, context),
        }
        true
    }

    /// An attempt is over, or one of those that wait.
    fn drop_claim(
        &mut self,
        id: u64,
        claim: ClaimId,
        refused: Option<RequestError>,
        context: &mut InputContext<'_>,
    ) {
        self.end(claim, context);
        let Some(choice) = self.choice(id) else { return };
        choice.claims.retain(|(of, _)| *of != claim);
        choice.refused = refused.unwrap_or(choice.refused.clone());
        if !choice.claims.is_empty() {
            return;
        }
        choice.waits = None;
        let step = choice.one_of.refused();
        self.choose(id, step, context);
    }

    fn take_choice(&mut self, id: u64) -> Option<Choice> {
        let place = self.choices.iter().position(|choice| choice.call.id == id)?;
        Some(self.choices.remove(place))
    }

    fn refuse_choice(&mut self, id: u64, context: &mut InputContext<'_>) {
        if let Some(choice) = self.take_choice(id) {
            context.reply(choice.call, Err(choice.refused));
        }
    }

    fn hand_out_choice(&mut self, id: u64, claim: ClaimId, context: &mut InputContext<'_>) {
        let Some(choice) = self.take_choice(id) else { return };
        for (other, place) in choice.claims {
            if other != claim {
                self.end(other, context);
            } else if let Some(grant) = self.granted(claim, context) {
                let resource = Some(choice.resources[place].clone());
                let granted = choice.call.granted(context.stamp(), grant, None);
                context.tell(ClientReply { resource, ..granted });
            }
        }
        // A loss may have happened meanwhile.
        self.attend(claim, context);
    }

    /// Cancels a request, if it is one for one of several.
    pub(super) fn cancel_choice(&mut self, request: u64, context: &mut InputContext<'_>) {
        let Some(choice) = self.take_choice(request) else { return };
        choice.claims.into_iter().for_each(|(claim, _)| self.end(claim, context));
        context.done(request, Err(FailureReason::Cancelled.into()));
    }
}
