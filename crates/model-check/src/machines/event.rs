//! The events that can happen in a state, and states and events in words.

use super::Fairness;
use super::caller::{Caller, MoveResult};
use super::connection::{Connection, Entry, Wire};
use super::master::{Held, Key, MasterReply, Request, STRANGER};
use super::scope::Fault;
use super::{Machines, Mutant, Scope, State, Withheld, is_over};
use redquorum_protocol::{Claim, WakeUp};

/// An event. Clients and masters are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event of a client: the index of one of its moves.
    Move(u8, u16),
    /// On a master the key expires, or the end of one of those who share it comes: the client in
    /// the low bit, the token in those above.
    Expire(u8, u8),
    /// The other holder releases the key on a master.
    GiveBack(u8),
    /// A position in a master's queue lapses.
    Lapse(u8, u8),
}

/// An event of a client, or between a client and a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The client acts, or its clock moves.
    Act(Act),
    /// An event between the client and this master.
    Between(u8, LinkEvent),
}

/// An action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It starts a claim.
    Acquire,
    /// It collects the lease that it won.
    Collect,
    /// It extends its lease.
    Extend,
    /// It starts the watchdog.
    Watch,
    /// It releases the lease.
    Release,
    /// It drops the future or the lease.
    Drop,
    /// A timer of its claim fires. The clock is at its due time or later.
    Wake,
    /// Its clock moves to the next instant that matters.
    Tick,
    /// Its process dies.
    Die,
}

/// An event between a client and a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The master executes the next command of this connection.
    Execute(u8),
    /// The master replies to the next command of this connection with an error.
    Refuse(u8),
    /// The master executes the next command of this connection, but has lost its scripts.
    Unload(u8),
    /// The client reads the next reply or wake-up.
    Read,
    /// A wake-up is lost.
    Miss,
    /// The handshake of a new connection succeeds.
    Connect,
    /// A timer of the link fires: it tries again to connect, or to complete a clean-up.
    Retry,
    /// The link treats the connection as stalled.
    Stall,
    /// The connection breaks.
    Cut,
    /// An attempt to connect fails.
    FailToConnect,
    /// The unread data in the socket of this connection, which its client has given up, is lost.
    Lose(u8),
}

impl Machines {
    pub(super) fn list_events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        for client in 0..self.scope.clients {
            self.work_out(state.locals[client]);
        }
        let mut withheld = std::mem::take(&mut self.withheld);
        if let Some(event) = self.only(state) {
            out.push((Fairness::Due, event));
        } else {
            for fairness in [Fairness::Due, Fairness::Free] {
                for client in 0..self.scope.clients {
                    self.list_moves(state, client, fairness, &mut withheld, out);
                }
                if fairness == Fairness::Due {
                    let held = |master: &u8| state.held[usize::from(*master)] == STRANGER;
                    let masters = (0..small(self.scope.masters)).filter(held);
                    out.extend(masters.map(|master| (fairness, Event::GiveBack(master))));
                }
            }
            self.list_expiries(state, out);
            self.list_lapses(state, &mut withheld, out);
        }
        self.withheld = withheld;
    }

    fn list_moves(
        &self,
        state: &State,
        client: usize,
        fairness: Fairness,
        withheld: &mut Withheld,
        out: &mut Vec<(Fairness, Event)>,
    ) {
        let known = self.known(state, client);
        if fairness == Fairness::Due {
            withheld.add(known.withheld);
        }
        let stands = self.scope.still && client == 0;
        for (index, of) in (0..).zip(known.moves.iter().flatten()) {
            if stands && matches!(of.client_event, ClientEvent::Act(Act::Wake | Act::Tick)) {
                continue;
            }
            let affords = |fault| self.scope.affords(state.spent, fault, withheld);
            if of.fairness == fairness && of.fault.is_none_or(affords) {
                out.push((fairness, Event::Move(small(client), index)));
            }
        }
    }

    fn list_expiries(&self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        for (master, held) in (0..).zip(state.held) {
            for Key { client, token, round } in held.keys() {
                let known = self.known(state, client.into());
                if known.may_expire[usize::from(round)] & 1 << token != 0 {
                    out.push((Fairness::Free, Event::Expire(master, client | token << 1)));
                }
            }
        }
    }

    fn list_lapses(
        &self,
        state: &State,
        withheld: &mut Withheld,
        out: &mut Vec<(Fairness, Event)>,
    ) {
        for (master, queue) in (0..).zip(&state.queues) {
            for (place, _) in (0..).zip(queue.iter()) {
                if self.scope.affords(state.spent, Fault::Lapse, withheld) {
                    out.push((Fairness::Free, Event::Lapse(master, place)));
                }
            }
        }
    }

    /// An event that can go alone, because every other event may as well come after it.
    ///
    /// It exists for a client whose claim is over, and none of whose connections can break any
    /// more. It is either the reading of a reply, or the execution of a clean-up whose key is not
    /// there and cannot come any more, and which leaves queues unchanged. Either one changes only
    /// that client, in the same way at any time, and prevents no other event. A rule that is broken
    /// before it is also broken after it.
    fn only(&self, state: &State) -> Option<Event> {
        let scope = &self.scope;
        let breaks = [Fault::Cut, Fault::Stall, Fault::Error, Fault::LostWakeUp];
        if !scope.reduce || breaks.iter().any(|of| state.spent.of(*of) < scope.bound(*of)) {
            return None;
        }
        (0..scope.clients).find_map(|client| {
            let known = self.known(state, client);
            let moves = known.moves.as_ref().filter(|_| known.over)?;
            let index = moves.iter().position(|of| match (of.client_event, &of.then) {
                (ClientEvent::Between(_, LinkEvent::Read), _) => true,
                (
                    ClientEvent::Between(master, _),
                    MoveResult::Asks(Request::Delete(token, WakeUp::None, None), _),
                ) => {
                    !state.held[usize::from(master)].has(small(client), *token)
                        && !self.side(state, client, master.into()).0.may_create(*token)
                }
                _ => false,
            })?;
            Some(Event::Move(small(client), u16::try_from(index).expect("there are few")))
        })
    }
}

pub(super) fn small(number: usize) -> u8 {
    u8::try_from(number).expect("there are few")
}

/// A possible event, whether it must happen, and the fault that it is.
type Possible = (Fairness, ClientEvent, Option<Fault>);

/// Lists all events that can happen to a client, and counts those that the bounds prevent.
pub(super) fn possible(
    caller: &Caller,
    sides: &[&Connection],
    (scope, mutant): (&Scope, Mutant),
    withheld: &mut Withheld,
) -> Vec<Possible> {
    let mut out = Vec::new();
    for (master, side) in (0..).zip(sides) {
        let mut list = |fairness, link_event, fault| {
            out.push((fairness, ClientEvent::Between(master, link_event), fault));
        };
        messages(side, mutant, &mut list);
        faults(side, &mut list);
    }
    if !caller.dead {
        acts(caller, scope, withheld, &mut |fairness, act, fault| {
            out.push((fairness, ClientEvent::Act(act), fault));
        });
    }
    // Due events come first. Within each group the order of the list stays.
    out.sort_by_key(|(fairness, ..)| *fairness == Fairness::Free);
    out
}

/// The messages that move between a client and a master.
fn messages(
    side: &Connection,
    mutant: Mutant,
    list: &mut impl FnMut(Fairness, LinkEvent, Option<Fault>),
) {
    for (number, wire) in (0..).zip(&side.wires) {
        if wire.open && !wire.replies.is_empty() {
            list(Fairness::Due, LinkEvent::Read, None);
        }
        if !wire.requests.is_empty() {
            list(Fairness::Due, LinkEvent::Execute(number), None);
            if !wire.open {
                list(Fairness::Free, LinkEvent::Lose(number), None);
            }
        }
    }
    if side.dialling.is_some() {
        list(Fairness::Due, LinkEvent::Connect, None);
    }
    if let Some((_, false)) = side.timer()
        && mutant != Mutant::NeverRetries
    {
        list(Fairness::Due, LinkEvent::Retry, None);
    }
}

/// The faults between them.
fn faults(side: &Connection, list: &mut impl FnMut(Fairness, LinkEvent, Option<Fault>)) {
    if side.wires.iter().any(|wire| wire.open) {
        list(Fairness::Free, LinkEvent::Cut, Some(Fault::Cut));
    }
    if side.dialling.is_some() {
        list(Fairness::Free, LinkEvent::FailToConnect, Some(Fault::Cut));
    }
    if let Some((_, true)) = side.timer() {
        list(Fairness::Free, LinkEvent::Stall, Some(Fault::Stall));
    }
    if side.wires.iter().any(|wire| wire.replies.front() == Some(&MasterReply::Freed)) {
        list(Fairness::Free, LinkEvent::Miss, Some(Fault::LostWakeUp));
    }
    for (number, wire) in (0..).zip(&side.wires) {
        let Some(request) = wire.requests.front() else { continue };
        list(Fairness::Free, LinkEvent::Refuse(number), Some(Fault::Error));
        let is_script = matches!(
            request,
            Request::Delete(..)
                | Request::Keep { .. }
                | Request::Enqueue { .. }
                | Request::Dequeue { .. }
        );
        if is_script {
            list(Fairness::Free, LinkEvent::Unload(number), Some(Fault::Error));
        }
    }
}

/// The possible actions of a client.
fn acts(
    caller: &Caller,
    scope: &Scope,
    withheld: &mut Withheld,
    list: &mut impl FnMut(Fairness, Act, Option<Fault>),
) {
    let mut list = |fairness, act| {
        list(fairness, act, if act == Act::Die { Some(Fault::Death) } else { None });
    };
    if let Claim::Acquiring(acquire) = &caller.claim
        && acquire.is_won()
    {
        list(Fairness::Due, Act::Collect);
    }
    if scope.clocks
        && let Some(at) = caller.fires()
    {
        if !caller.would_exceed(scope, at) {
            list(Fairness::Due, Act::Wake);
        } else if matches!(caller.claim, Claim::Holding(_)) {
            withheld.rounds += 1;
        } else {
            withheld.attempts += 1;
        }
    }
    if scope.clocks && caller.next_tick(scope).is_some() {
        list(Fairness::Due, Act::Tick);
    }
    if let Claim::Holding(hold) = &caller.claim {
        list(Fairness::Due, Act::Release);
        if hold.extension().0 < scope.rounds.into() {
            list(Fairness::Free, Act::Extend);
        } else {
            withheld.rounds += 1;
        }
        if scope.watchdog && !caller.watched {
            list(Fairness::Free, Act::Watch);
        }
    }
    if !is_over(&caller.claim) {
        list(Fairness::Due, Act::Drop);
    } else if caller.claims < scope.claims && caller.tokens < scope.attempts {
        list(Fairness::Free, Act::Acquire);
    } else {
        withheld.claims += 1;
    }
    list(Fairness::Free, Act::Die);
}

impl Machines {
    pub(super) fn event_text(&self, state: &State, event: Event, after: Option<&State>) -> String {
        let what = match event {
            Event::Expire(master, of) => {
                let (client, token) = ((of & 1) + 1, of >> 1);
                format!("token {token} of c{client} expires on master {}", master + 1)
            }
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
            let of =
                |key: Key| format!("master {m} has token {} of c{}", key.token, key.client + 1);
            match state.held[master] {
                Held::No => lines.push(format!("master {m} has no key")),
                STRANGER => lines.push(format!("master {m} has the key of another holder")),
                held => lines.extend(held.keys().map(of)),
            }
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
