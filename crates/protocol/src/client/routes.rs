//! Routes the effects of claims to links, and the replies of links to claims.
//!
//! A claim never receives a reply while the client routes the claim's own effects. Otherwise an
//! attempt could fail before its last `SET` is queued, and its clean-up would be queued first.

use alloc::vec::Vec;

use super::{ClaimId, ClaimMachine, Client, ClientEffect, Context, ReplyTo, State};
use crate::claim::{Claim, Input};
use crate::effect::{Effect, Key, QueueEvent, RoundId};
use crate::link::{LinkEffect, LinkInput};
use crate::quorum::NodeId;
use crate::time::Time;
use crate::waiter::WaiterId;

impl<C: ClaimMachine> Client<C> {
    /// Passes a claim one input.
    pub(super) fn drive(&mut self, id: ClaimId, input: Input, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let Some(claim) = entry.machine() else { return };
        let mut effects = core::mem::take(&mut self.effects);
        claim.handle(cx.clocks, input, cx.rng, &mut effects);
        let key = entry.key.clone();
        self.route(id, &key, effects, cx);
    }

    /// Routes the effects of a claim to the links, and updates what depends on the claim.
    pub(super) fn route(
        &mut self,
        id: ClaimId,
        key: &Key,
        mut effects: Vec<Effect>,
        cx: &mut Context<'_, C>,
    ) {
        for effect in effects.drain(..) {
            let (key, tag) = (key.clone(), |step| ReplyTo::Claim(id, step));
            let (node, input) = match effect {
                Effect::Send { node, step, request } => {
                    (node, LinkInput::Send { key, request, tag: tag(step) })
                }
                Effect::CleanUp { node, step, token, wake_up, leave } => {
                    (node, LinkInput::CleanUp { key, token, wake_up, leave, tag: tag(step) })
                }
                Effect::Leave { node, token, until } => {
                    cx.out.push(ClientEffect::Rearm { node });
                    (node, LinkInput::Leave { token, until })
                }
                Effect::Enqueue { node, step, waiter_id, position } => {
                    (node, LinkInput::Enqueue { key, waiter_id, position, tag: tag(step) })
                }
                Effect::Dequeue { node, waiter_id, wake } => {
                    (node, LinkInput::Dequeue { key, waiter_id, wake })
                }
                Effect::Subscribe { waiter_id } => {
                    self.subscribe(id, waiter_id, cx);
                    continue;
                }
                Effect::Decided => {
                    self.changed(id, cx);
                    continue;
                }
            };
            self.enter(node, input, None, cx);
        }
        self.effects = effects;
        self.follow_up(id, cx);
    }

    pub(super) fn changed(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            if core::mem::take(&mut entry.waits) {
                entry.changed = cx.now();
            }
            cx.out.push(ClientEffect::Changed(id));
        }
    }

    fn subscribe(&mut self, id: ClaimId, waiter_id: WaiterId, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        entry.waiter_id = Some(waiter_id);
        let key = entry.key.clone();
        self.queues.subscribe(&key, id);
        for node in NodeId::all(self.links.len()) {
            self.enter(node, LinkInput::Subscribe { key: key.clone(), waiter_id }, Some(id), cx);
        }
    }

    pub(super) fn unsubscribe(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let Some(waiter_id) = entry.waiter_id.take() else { return };
        self.queues.unsubscribe(&entry.key, id);
        for node in NodeId::all(self.links.len()) {
            self.enter(node, LinkInput::Unsubscribe(waiter_id), None, cx);
        }
    }

    /// Passes a link one input, and keeps what claims are to receive for
    /// [`deliver`](Self::deliver). Events of a resource go to one subscriber, or to all.
    pub(super) fn enter(
        &mut self,
        node: NodeId,
        input: LinkInput<ReplyTo>,
        subscriber: Option<ClaimId>,
        cx: &mut Context<'_, C>,
    ) {
        let mut effects = core::mem::take(&mut self.link_effects);
        let now = cx.now();
        self.links[node.index()].handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            self.report(node, effect, subscriber, now, cx.out);
        }
        self.link_effects = effects;
    }

    pub(super) fn report(
        &mut self,
        node: NodeId,
        effect: LinkEffect<ReplyTo>,
        subscriber: Option<ClaimId>,
        now: Time,
        out: &mut Vec<ClientEffect>,
    ) {
        match effect {
            LinkEffect::Write(command) => {
                if let Some(epoch) = self.links[node.index()].epoch() {
                    out.push(ClientEffect::Write { node, epoch, command });
                }
            }
            LinkEffect::Dial(epoch) => out.push(ClientEffect::Dial { node, epoch }),
            LinkEffect::Close(epoch) => out.push(ClientEffect::Close { node, epoch }),
            LinkEffect::Reply(ReplyTo::Claim(id, step), reply) => {
                if matches!(
                    step,
                    RoundId::Attempt(_) | RoundId::Certify { .. } | RoundId::Extend(_)
                ) {
                    self.votes[node.index()].count(&reply);
                }
                self.inputs.push_back((id, Input::Replied { node, step, reply }));
            }
            LinkEffect::Reply(ReplyTo::Caller(request), reply) => {
                out.push(ClientEffect::Replied { request, node, reply });
            }
            LinkEffect::QueueEvent(key, QueueEvent::Waiters(others)) => {
                self.queues.others(now, &key, others);
            }
            LinkEffect::QueueEvent(key, event) => {
                let subscribers =
                    subscriber.map_or_else(|| self.queues.subscribers(&key), |id| alloc::vec![id]);
                let inputs =
                    subscribers.into_iter().map(|id| (id, Input::QueueEvent { node, event }));
                self.inputs.extend(inputs);
            }
        }
    }

    pub(super) fn deliver(&mut self, cx: &mut Context<'_, C>) {
        while let Some((id, input)) = self.inputs.pop_front() {
            if matches!(input, Input::QueueEvent { event: QueueEvent::Free(_), .. })
                && self.is_unresponsive(id, cx)
            {
                self.set_aside(id, cx);
            } else {
                self.drive(id, input, cx);
            }
        }
    }

    /// Whether the caller of a waiting request has not looked at it for a long time.
    fn is_unresponsive(&self, id: ClaimId, cx: &Context<'_, C>) -> bool {
        let Some(entry) = self.claims.get(&id) else { return false };
        !entry.waits && cx.now() >= self.leeway.after(entry.changed)
    }

    /// Updates the turns, the subscriptions and the timers after an input.
    fn follow_up(&mut self, id: ClaimId, cx: &mut Context<'_, C>) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        self.timers.set(id, entry, self.leeway, cx);
        let State::Claim(claim) = &entry.state else { return };
        let claim = claim.claim();
        let holds = claim.hold().is_some_and(|hold| hold.lost().is_none());
        let (waits, ended) = (claim.is_trying(), matches!(claim, Claim::Ended));
        let owned = entry.request.reentry.is_some();
        if !waits {
            self.unsubscribe(id, cx);
        }
        if owned {
            self.inform_owner(id, cx);
        }
        if ended {
            self.forget(id, cx);
        } else if !waits && !holds {
            self.vacate(id, cx);
        }
        debug_assert!(self.ends_by_itself(id), "the client never acts on {id:?}");
    }
}
