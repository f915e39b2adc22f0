//! Descriptions of states and events.

use redquorum_protocol::Claim;

use super::connection::{Connection, Entry, Wire};
use super::event::{Act, ClientEvent, Event, LinkEvent};
use super::master::STRANGER;
use super::{Machines, State};

impl Machines {
    pub(super) fn event_text(&self, state: &State, event: Event, after: Option<&State>) -> String {
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

    pub(super) fn state_text(&self, state: &State) -> Vec<String> {
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
            let waiters: Vec<_> = state.queues[master].iter().collect();
            if !waiters.is_empty() {
                lines.push(format!("master {m} has the queue {waiters:?}"));
            }
        }
        for client in 0..self.scope.clients {
            lines.push(format!("c{} {}", client + 1, self.stands(state, client)));
            let tokens = self.caller(state, client).tokens;
            for master in 0..self.scope.masters {
                let (side, _) = self.side(state, client, master);
                lines.push(format!(
                    "    for master {}: {}",
                    master + 1,
                    describe_connection(side, tokens)
                ));
            }
        }
        lines
    }
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
        wire.requests.front().map_or_else(String::new, |request| format!("{request:?}{old}"))
    };
    match link_event {
        LinkEvent::Execute(wire) => format!("master {m} executes {} of c{c}", command(wire)),
        LinkEvent::Refuse(wire) => {
            format!("master {m} answers {} of c{c} with an error", command(wire))
        }
        LinkEvent::Unload(wire) => {
            format!("master {m} has lost its scripts, and says so to {} of c{c}", command(wire))
        }
        LinkEvent::Read => {
            let open = side.wires.iter().find(|wire| wire.open);
            format!("c{c} reads from master {m}: {:?}", open.and_then(|wire| wire.replies.front()))
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

fn describe_connection(side: &Connection, tokens: u8) -> String {
    let ledger = (1..=tokens).map(|token| (token, side.entry(token)));
    let ledger = ledger.filter(|(_, entry)| *entry != Entry::None);
    let mut parts: Vec<String> =
        ledger.map(|(token, entry)| format!("token {token}: {entry:?}")).collect();
    let busy = |wire: &&Wire| !wire.requests.is_empty() || !wire.replies.is_empty();
    parts.extend(side.wires.iter().filter(busy).map(|wire| {
        let Wire { epoch, open, requests, replies, .. } = wire;
        let of = if *open { "connection" } else { "old connection" };
        format!("{of} {epoch} holds {requests:?}, unread {replies:?}")
    }));
    if side.link.is_none() {
        parts.push("its process is dead".into());
    }
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}
