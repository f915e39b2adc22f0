//! The events that can happen in a state.

use redquorum_protocol::{Call, Claim};

use super::super::Fate;
use super::caller::Caller;
use super::local::Then;
use super::master::{Key, Reply, Request, STRANGER};
use super::side::Side;
use super::{Blunder, Machines, Scope, Spent, State, Withheld, is_over};

/// An event. Clients and masters are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event of a client: the index of one of its moves.
    Move(u8, u16),
    /// The key of a master expires.
    Expire(u8),
    /// The other holder releases the key on a master.
    GiveBack(u8),
    /// A position in a master's queue lapses.
    Lapse(u8, u8),
}

/// An event of a client, or between a client and a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The client acts, or its clock moves.
    Act(Act),
    /// An event between the client and this master.
    Between(u8, Thing),
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
pub enum Thing {
    /// The master executes the next command of this connection.
    Execute(u8),
    /// The master replies to the next command of this connection with an error.
    Refuse(u8),
    /// The master executes the next command of this connection, but has lost its scripts.
    Unload(u8),
    /// The client reads the next reply or wake-up.
    Hear,
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
    pub(super) fn list_events(&mut self, state: &State, out: &mut Vec<(Fate, Event)>) {
        for client in 0..self.scope.clients {
            self.work_out(state.locals[client]);
        }
        let mut withheld = std::mem::take(&mut self.withheld);
        if let Some(event) = self.only(state) {
            out.push((Fate::Due, event));
        } else {
            for fate in [Fate::Due, Fate::Free] {
                for client in 0..self.scope.clients {
                    self.list_moves(state, client, fate, &mut withheld, out);
                }
                if fate == Fate::Due {
                    let held = |master: &u8| state.keys[usize::from(*master)] == Some(STRANGER);
                    let masters = (0..small(self.scope.masters)).filter(held);
                    out.extend(masters.map(|master| (fate, Event::GiveBack(master))));
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
        fate: Fate,
        withheld: &mut Withheld,
        out: &mut Vec<(Fate, Event)>,
    ) {
        let known = self.known(state, client);
        if fate == Fate::Due {
            withheld.add(known.withheld);
        }
        let stands = self.scope.still && client == 0;
        for (index, of) in (0..).zip(known.moves.iter().flatten()) {
            if stands && matches!(of.deed, Deed::Act(Act::Wake | Act::Tick)) {
                continue;
            }
            if of.fate == fate && self.scope.affords(state.spent, of.cost, withheld) {
                out.push((fate, Event::Move(small(client), index)));
            }
        }
    }

    fn list_expiries(&self, state: &State, out: &mut Vec<(Fate, Event)>) {
        for (master, key) in (0..).zip(state.keys) {
            let Some(Key { client, token, round }) = key.filter(|key| *key != STRANGER) else {
                continue;
            };
            let known = self.known(state, client.into());
            if known.may_expire[usize::from(round)] & 1 << token != 0 {
                out.push((Fate::Free, Event::Expire(master)));
            }
        }
    }

    fn list_lapses(&self, state: &State, withheld: &mut Withheld, out: &mut Vec<(Fate, Event)>) {
        for (master, queue) in (0..).zip(&state.queues) {
            for (place, _) in (0..).zip(queue.iter()) {
                if state.spent.lapses < self.scope.lapses {
                    out.push((Fate::Free, Event::Lapse(master, place)));
                } else {
                    withheld.lapses += 1;
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
        let Spent { cuts, stalls, errors, words, .. } = state.spent;
        let (scope, spent) = (&self.scope, cuts + stalls + errors + words);
        if !scope.reduce || spent < scope.cuts + scope.stalls + scope.errors + scope.words {
            return None;
        }
        (0..scope.clients).find_map(|client| {
            let known = self.known(state, client);
            let moves = known.moves.as_ref().filter(|_| known.over)?;
            let index = moves.iter().position(|of| match (of.deed, &of.then) {
                (Deed::Between(_, Thing::Hear), _) => true,
                (
                    Deed::Between(master, _),
                    Then::Asks(Request::Delete(token, Call::Nobody, None), _),
                ) => {
                    let (client, token) = (small(client), *token);
                    let ours = |key: Key| key.client == client && key.token == token;
                    !state.keys[usize::from(master)].is_some_and(ours)
                        && !self.side(state, client.into(), master.into()).0.may_create(token)
                }
                _ => false,
            })?;
            Some(Event::Move(small(client), u16::try_from(index).expect("there are few")))
        })
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("there are few")
}

/// The bound that a deed uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Nothing,
    Cut,
    Stall,
    Error,
    Death,
    Word,
}

/// A possible deed, whether it must happen, and its cost.
pub(super) type Possible = (Fate, Deed, Cost);

/// Lists all events that can happen to a client, and counts those that the bounds prevent.
pub(super) fn possible(
    caller: &Caller,
    sides: &[&Side],
    (scope, blunder): (&Scope, Blunder),
    withheld: &mut Withheld,
) -> Vec<Possible> {
    let mut out = Vec::new();
    for (master, side) in (0..).zip(sides) {
        let mut list = |fate, thing, cost| out.push((fate, Deed::Between(master, thing), cost));
        messages(side, blunder, &mut list);
        faults(side, &mut list);
    }
    if !caller.dead {
        acts(caller, scope, withheld, &mut |fate, act, cost| {
            out.push((fate, Deed::Act(act), cost));
        });
    }
    // Due events come first. Within each group the order of the list stays.
    out.sort_by_key(|(fate, ..)| *fate == Fate::Free);
    out
}

/// The messages that move between a client and a master.
fn messages(side: &Side, blunder: Blunder, list: &mut impl FnMut(Fate, Thing, Cost)) {
    for (number, wire) in (0..).zip(&side.wires) {
        if wire.open && !wire.replies.is_empty() {
            list(Fate::Due, Thing::Hear, Cost::Nothing);
        }
        if !wire.requests.is_empty() {
            list(Fate::Due, Thing::Execute(number), Cost::Nothing);
            if !wire.open {
                list(Fate::Free, Thing::Lose(number), Cost::Nothing);
            }
        }
    }
    if side.dialling.is_some() {
        list(Fate::Due, Thing::Connect, Cost::Nothing);
    }
    if let Some((_, false)) = side.timer()
        && blunder != Blunder::NeverTriesAgain
    {
        list(Fate::Due, Thing::Retry, Cost::Nothing);
    }
}

/// The faults between them.
fn faults(side: &Side, list: &mut impl FnMut(Fate, Thing, Cost)) {
    if side.wires.iter().any(|wire| wire.open) {
        list(Fate::Free, Thing::Cut, Cost::Cut);
    }
    if side.dialling.is_some() {
        list(Fate::Free, Thing::FailToConnect, Cost::Cut);
    }
    if let Some((_, true)) = side.timer() {
        list(Fate::Free, Thing::Stall, Cost::Stall);
    }
    if side.wires.iter().any(|wire| wire.replies.front() == Some(&Reply::Freed)) {
        list(Fate::Free, Thing::Miss, Cost::Word);
    }
    for (number, wire) in (0..).zip(&side.wires) {
        let Some(request) = wire.requests.front() else { continue };
        list(Fate::Free, Thing::Refuse(number), Cost::Error);
        let is_script = matches!(
            request,
            Request::Delete(..)
                | Request::Keep { .. }
                | Request::Stand { .. }
                | Request::StepOut { .. }
        );
        if is_script {
            list(Fate::Free, Thing::Unload(number), Cost::Error);
        }
    }
}

/// The possible actions of a client.
fn acts(
    caller: &Caller,
    scope: &Scope,
    withheld: &mut Withheld,
    list: &mut impl FnMut(Fate, Act, Cost),
) {
    let mut list =
        |fate, act| list(fate, act, if act == Act::Die { Cost::Death } else { Cost::Nothing });
    if let Claim::Acquiring(acquire) = &caller.claim
        && acquire.is_won()
    {
        list(Fate::Due, Act::Collect);
    }
    if scope.clocks
        && let Some(at) = caller.fires()
    {
        if !caller.would_exceed(scope, at) {
            list(Fate::Due, Act::Wake);
        } else if matches!(caller.claim, Claim::Holding(_)) {
            withheld.rounds += 1;
        } else {
            withheld.attempts += 1;
        }
    }
    if scope.clocks && caller.next_tick(scope).is_some() {
        list(Fate::Due, Act::Tick);
    }
    if let Claim::Holding(hold) = &caller.claim {
        list(Fate::Due, Act::Release);
        if hold.extension().0 < scope.rounds.into() {
            list(Fate::Free, Act::Extend);
        } else {
            withheld.rounds += 1;
        }
        if scope.watchdog && !caller.watched {
            list(Fate::Free, Act::Watch);
        }
    }
    if !is_over(&caller.claim) {
        list(Fate::Due, Act::Drop);
    } else if caller.claims < scope.claims && caller.tokens < scope.attempts {
        list(Fate::Free, Act::Acquire);
    } else {
        withheld.claims += 1;
    }
    list(Fate::Free, Act::Die);
}
