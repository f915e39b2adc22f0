//! Requests and their replies: they are numbered, recorded, and passed to the client or phase that
//! awaits them.

use std::borrow::Cow;

use super::targets::process_of;
use super::{Orchestrator, Order};
use redquorum_scenario::client_protocol::{ClientReply, Each, Op, Request};
use redquorum_scenario::history::{Event, Ns};
use redquorum_scenario::name::Name;

impl Orchestrator {
    pub(super) fn ask(&mut self, now: Ns, client: Name, op: Op, orders: &mut Vec<Order>) -> u64 {
        let id = self.next_id;
        let one = |resource: &Name| vec![resource.clone()];
        let (resources, ttl_ms, wait_ms) = match &op {
            Op::Acquire { resource, ttl_ms, wait_ms, .. } => {
                (one(resource), Some(*ttl_ms).filter(|ttl| *ttl > 0), Some(*wait_ms))
            }
            Op::AcquireAll { resources, ttl_ms, wait_ms } => {
                (resources.clone(), Some(*ttl_ms), Some(*wait_ms))
            }
            Op::Extend { resource, ttl_ms } => (one(resource), Some(*ttl_ms), None),
            Op::KeepAlive { resource, .. } | Op::Release { resource } => {
                (one(resource), None, None)
            }
            Op::ReleaseAll { resources } => (resources.clone(), None, None),
            Op::Step { check, .. } => (check.iter().cloned().collect(), None, None),
            Op::Cancel { .. } => (Vec::new(), None, None),
        };
        let again = matches!(op, Op::Acquire { again: true, .. });
        let name = match &op {
            Op::AcquireAll { .. } => "acquire",
            Op::ReleaseAll { .. } => "release",
            other => other.name(),
        };
        // A request for several resources is recorded as one request for each: it has the same
        // effect.
        let count = resources.len().max(1);
        for place in 0..count {
            let mut with = resources.clone();
            let resource = (place < with.len()).then(|| with.remove(place));
            let (id, op) = (self.next_id, Cow::Borrowed(name));
            self.next_id += 1;
            let client = client.clone();
            let asked = Event::Requested { client, id, op, resource, with, again, ttl_ms, wait_ms };
            self.record(now, asked);
        }
        self.asked.push((id, client.clone(), count));
        let process = process_of(&self.scenario, &client).unwrap_or(&client).clone();
        orders.push(Order::Request { process, request: Request { id, client, op } });
        id
    }

    pub(super) fn replied(&mut self, now: Ns, reply: ClientReply) {
        // The backend ensures that each request is answered once.
        let Some(place) = self.asked.iter().position(|(id, ..)| *id == reply.id) else { return };
        let (_, client, count) = self.asked.swap_remove(place);
        let player = self.players.iter().position(|player| player.awaits(reply.id));
        for (place, id) in (0..count).zip(reply.id..) {
            let Each { token, deadline_ns, fence } = reply.of(place);
            self.record(
                now,
                Event::Replied {
                    client: client.clone(),
                    id,
                    ok: reply.ok,
                    token,
                    from: reply.from_ns,
                    at: reply.at_ns,
                    deadline: deadline_ns,
                    valid_ms: reply.valid_ms,
                    fence,
                    handles: reply.handles,
                    why: reply.why,
                    text: reply.text.clone(),
                },
            );
        }
        if let Some(index) = player {
            if reply.ok && self.players[index].is_acquiring() {
                let player = &self.players[index];
                let quorum = self.scenario.list_of(player.process()).quorum();
                let reported = reply.of(0).token;
                self.granted.won(player.id(), player.process(), reported.as_ref(), quorum);
            }
            let touched =
                self.players[index].replied(now, &reply, &mut self.faults, &mut self.registers);
            if let Some(event) = touched {
                self.record(now, event);
            }
        } else {
            self.final_acquire.replied(now, &reply);
        }
    }
}
