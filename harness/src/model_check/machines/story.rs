//! Descriptions of states and events.

use redquorum_protocol::{Claim, WakeUp};

use super::connection::{Connection, Entry};
use super::event::{Act, ClientEvent, Event, LinkEvent};
use super::master::{MasterReply, Request, STRANGER, Waiter};
use super::{Machines, State};

impl Machines {
    pub(super) fn tell_event(&self, state: &State, event: Event, after: Option<&State>) -> String {
        let what = match event {
            Event::Expire(master) => format!("the key on master {} expires", master + 1),
            Event::GiveBack(master) => format!("the other holder gives back master {}", master + 1),
            Event::Lapse(master, place) => {
                format!("position {} in the queue of master {} lapses", place + 1, master + 1)
            }
            Event::Move(client, index) => {
                match self.known(state, client.into()).moves()[usize::from(index)].client_event {
                    ClientEvent::Act(act) => format!("c{} {}", client + 1, words(act)),
                    ClientEvent::Between(master, link_event) => {
                        let (side, _) = self.side(state, client.into(), master.into());
                        between(client + 1, master + 1, link_event, side)
                    }
                }
            }
        };
        let changes: Vec<String> = after
            .map(|after| {
                (0..self.scope.clients).filter_map(|c| self.change(state, after, c)).collect()
            })
            .unwrap_or_default();
        if changes.is_empty() { what } else { format!("{what}: {}", changes.join(", ")) }
    }

    /// The change of a client's claim.
    fn change(&self, before: &State, after: &State, client: usize) -> Option<String> {
        let (was, is) = (self.stands(before, client), self.stands(after, client));
        (was != is).then(|| format!("c{} {is}", client + 1))
    }

    fn stands(&self, state: &State, client: usize) -> &'static str {
        let caller = self.caller(state, client);
        match &caller.claim {
            Claim::Acquiring(acquire) if acquire.is_won() => "has won",
            Claim::Acquiring(_) if caller.live().is_some() => "tries",
            Claim::Acquiring(_) => "pauses",
            Claim::Holding(_) if caller.believed().is_some() => "holds the lease",
            Claim::Holding(hold) if hold.lost().is_some() => "has lost the lease",
            Claim::Holding(_) => "is past its deadline",
            Claim::Releasing(_) => "releases",
            Claim::Ended => "is done",
        }
    }

    pub(super) fn show_state(&self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        for master in 0..self.scope.masters {
            let m = master + 1;
            lines.push(state.keys[master].map_or_else(
                || format!("master {m} has no key"),
                |key| match key {
                    STRANGER => format!("master {m} has the key of another holder"),
                    key => format!("master {m} has token {} of c{}", key.token, key.client + 1),
                },
            ));
            let waiters: Vec<String> = state.queues[master].iter().map(name).collect();
            if !waiters.is_empty() {
                lines.push(format!("master {m} has the queue {}", waiters.join(", ")));
            }
        }
        for client in 0..self.scope.clients {
            lines.push(format!("c{} {}", client + 1, self.stands(state, client)));
            let tokens = self.caller(state, client).tokens;
            for master in 0..self.scope.masters {
                let (side, _) = self.side(state, client, master);
                lines.push(format!("    for master {}: {}", master + 1, show_side(side, tokens)));
            }
        }
        lines
    }
}

fn name(waiter: Waiter) -> String {
    let inbox = if waiter.inbox { "" } else { " (no inbox)" };
    format!("c{}{inbox}", waiter.client + 1)
}

fn words(act: Act) -> &'static str {
    match act {
        Act::Acquire => "asks all masters",
        Act::Collect => "comes for its lease",
        Act::Extend => "extends its lease",
        Act::Watch => "starts the watchdog",
        Act::Release => "releases its lease",
        Act::Drop => "drops its future or lease",
        Act::Wake => "is woken by its timer, as soon as it is due or later",
        Act::Tick => "is slow: its clock moves on",
        Act::Die => "dies",
    }
}

fn between(c: u8, m: u8, link_event: LinkEvent, side: &Connection) -> String {
    let command = |wire: u8| {
        let wire = &side.wires[usize::from(wire)];
        let old = if wire.open { "" } else { ", left in an old connection" };
        wire.requests.front().map_or_else(String::new, |request| format!("{}{old}", say(*request)))
    };
    match link_event {
        LinkEvent::Execute(wire) => format!("master {m} executes {} of c{c}", command(wire)),
        LinkEvent::Refuse(wire) => {
            format!("master {m} answers {} of c{c} with an error", command(wire))
        }
        LinkEvent::Unload(wire) => {
            format!("master {m} has lost its scripts, and says so to {} of c{c}", command(wire))
        }
        LinkEvent::Hear => {
            let reply =
                side.wires.iter().find(|wire| wire.open).and_then(|wire| wire.replies.front());
            format!("c{c} hears from master {m}: {}", reply.map_or("", |reply| said(*reply)))
        }
        LinkEvent::Connect => format!("c{c} has a new connection to master {m}"),
        LinkEvent::Miss => format!("the wake-up of c{c} by master {m} is lost"),
        LinkEvent::Retry => format!("c{c} tries master {m} again"),
        LinkEvent::Stall => format!("c{c} takes master {m} for stalled"),
        LinkEvent::Cut => format!("the connection of c{c} to master {m} breaks"),
        LinkEvent::FailToConnect => format!("c{c} cannot connect to master {m}"),
        LinkEvent::Lose(_) => format!("what an old connection of c{c} to master {m} held is lost"),
    }
}

fn say(request: Request) -> String {
    match request {
        Request::Set(token) => format!("SET {token}"),
        Request::Again(token) => format!("the second SET {token}"),
        Request::Keep { token, round, repair } => {
            let repair = if repair { ", or repair" } else { "" };
            format!("extend {token} (round {round}{repair})")
        }
        Request::Delete(token, call, leave) => {
            let leave = if leave.is_some() { ", leave" } else { "" };
            let wake = if call == WakeUp::First { ", wake the next" } else { "" };
            format!("delete {token}{leave}{wake}")
        }
        Request::Enqueue { inbox, again } => {
            let name = if inbox { "" } else { " without an inbox" };
            format!("{}{name}", if again { "look again" } else { "enqueue, or look" })
        }
        Request::Dequeue { inbox, wake } => {
            let name = if inbox { "" } else { " without an inbox" };
            format!("leave the queue{name}{}", if wake { ", wake the next" } else { "" })
        }
        Request::Kill(id) => format!("kill connection {id}"),
        Request::Load(_) => "load a script".into(),
        Request::Ping => "ping".into(),
        Request::Hello => "hello".into(),
        Request::Subscribe => "subscribe".into(),
    }
}

const fn said(reply: MasterReply) -> &'static str {
    match reply {
        MasterReply::Created => "granted",
        MasterReply::Kept => "still yours",
        MasterReply::Deleted => "deleted",
        MasterReply::Absent => "no such key",
        MasterReply::Taken | MasterReply::Held { .. } => "held by another",
        MasterReply::Place { ahead: 0, held: None } => "first in the queue, free",
        MasterReply::Place { ahead: 0, .. } => "first in the queue, held",
        MasterReply::Place { held: None, .. } => "behind others in the queue, free",
        MasterReply::Place { .. } => "behind others in the queue, held",
        MasterReply::Alive => "done",
        MasterReply::Error | MasterReply::NotKilled => "an error",
        MasterReply::NoScript => "no such script",
        MasterReply::Freed => "your waiter is woken",
    }
}

fn show_side(side: &Connection, tokens: u8) -> String {
    let mut parts = Vec::new();
    for token in 1..=tokens {
        match side.entry(token) {
            Entry::None => {}
            Entry::Claimed => parts.push(format!("token {token} is in the ledger")),
            Entry::Owed => parts.push(format!("token {token} is owed")),
        }
    }
    for wire in &side.wires {
        let of = if wire.open { "connection" } else { "old connection" };
        let requests: Vec<String> = wire.requests.iter().map(|request| say(*request)).collect();
        if !requests.is_empty() {
            parts.push(format!("{of} {} holds {}", wire.epoch, requests.join(", ")));
        }
        let replies: Vec<&str> = wire.replies.iter().map(|reply| said(*reply)).collect();
        if !replies.is_empty() {
            parts.push(format!("unread: {}", replies.join(", ")));
        }
    }
    if side.link.is_none() {
        parts.push("its process is dead".into());
    }
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}
