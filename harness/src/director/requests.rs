//! Requests and their answers: numbered, recorded, and given to whoever awaits them.

use std::borrow::Cow;

use super::whom::process_of;
use super::{Director, Order};
use crate::history::{Event, Ns};
use crate::name::Name;
use crate::talk::{Answer, Op, Request};

impl Director {
    pub(super) fn ask(&mut self, now: Ns, client: Name, op: Op, orders: &mut Vec<Order>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let (resource, ttl_ms, wait_ms) = match &op {
            Op::Acquire { resource, ttl_ms, wait_ms, .. } => {
                (Some(resource.clone()), Some(*ttl_ms).filter(|ttl| *ttl > 0), Some(*wait_ms))
            }
            Op::Extend { resource, ttl_ms } => (Some(resource.clone()), Some(*ttl_ms), None),
            Op::KeepAlive { resource, .. } | Op::Release { resource } => {
                (Some(resource.clone()), None, None)
            }
            Op::Step { check, .. } => (check.clone(), None, None),
            Op::Cancel { .. } => (None, None, None),
        };
        let name = Cow::Borrowed(op.name());
        let asked =
            Event::Asked { client: client.clone(), id, op: name, resource, ttl_ms, wait_ms };
        self.record(now, asked);
        self.asked.push((id, client.clone()));
        let process = process_of(&self.scenario, &client).unwrap_or(&client).clone();
        orders.push(Order::Ask { process, request: Request { id, client, op } });
        id
    }

    pub(super) fn answered(&mut self, now: Ns, answer: Answer) {
        // The backend saw to it that each request is answered once.
        let Some(place) = self.asked.iter().position(|(id, _)| *id == answer.id) else { return };
        let (_, client) = self.asked.swap_remove(place);
        let player = self.players.iter().position(|player| player.awaits(answer.id));
        self.record(
            now,
            Event::Answered {
                client,
                id: answer.id,
                ok: answer.ok,
                token: answer.token.clone(),
                from: answer.from_ns,
                at: answer.at_ns,
                deadline: answer.deadline_ns,
                valid_ms: answer.valid_ms,
                fence: answer.fence,
                handles: answer.handles,
                why: answer.why,
                text: answer.text.clone(),
            },
        );
        if let Some(index) = player {
            if answer.ok && self.players[index].is_acquiring() {
                let player = &self.players[index];
                let quorum = self.scenario.list_of(player.process()).quorum();
                let told = answer.token.as_ref();
                self.granted.won(player.id(), player.process(), told, quorum);
            }
            let touched =
                self.players[index].answered(now, &answer, &mut self.faults, &mut self.registers);
            if let Some(event) = touched {
                self.record(now, event);
            }
        } else {
            self.witness.answered(now, &answer);
        }
    }
}
