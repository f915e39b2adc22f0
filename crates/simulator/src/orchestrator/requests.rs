//! Requests and their replies: they are numbered, recorded, and passed to the client or phase that
//! awaits them.

use super::targets::process_of;
use super::{Orchestrator, Order};
use redquorum_scenario::client_protocol::{ClientReply, Op, Request};
use redquorum_scenario::history::{Event, Ns};
use redquorum_scenario::name::Name;

impl Orchestrator {
    pub(super) fn ask(&mut self, now: Ns, client: Name, op: Op, orders: &mut Vec<Order>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.push((id, client.clone()));
        let process = process_of(&self.scenario, &client).unwrap_or(&client).clone();
        let request = Request { id, client, op };
        self.record(now, Event::Requested(request.clone()));
        orders.push(Order::Request { process, request });
        id
    }

    pub(super) fn replied(&mut self, now: Ns, reply: ClientReply) {
        // The backend ensures that each request is answered once.
        let Some(place) = self.asked.iter().position(|(id, _)| *id == reply.id) else { return };
        let (_, client) = self.asked.swap_remove(place);
        let player = self.players.iter().position(|player| player.awaits(reply.id));
        self.record(now, Event::Replied { client, reply: reply.clone() });
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
