//! The events that can happen in a state, and the state that follows.

use super::super::Broken;
use super::{MASTERS, Number, Phase, QUORUM, Scheme, Scope, Slot, State, UNFENCED, holder};

/// An event. Clients, attempts and masters are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client asks all masters, with this hint.
    VoteRequest(u8, u8),
    /// A master executes a grant of an attempt.
    Grant {
        /// The client of the attempt.
        client: u8,
        /// The attempt.
        attempt: u8,
        /// The master.
        master: u8,
        /// Whether it will be executed once more.
        again: bool,
    },
    /// A master executes a client's request for a token.
    Certify(u8, u8, u8),
    /// A master executes an extension, which creates the key if it is gone.
    Repair(u8, u8, u8),
    /// A client selects a token, from the numbers of these masters, one bit each: the masters whose
    /// replies it has read.
    Choose(u8, u8),
    /// A client takes its token.
    Take(u8),
    /// A client extends its lease.
    Extend(u8),
    /// A client hands its lease to another user.
    HandOver(u8),
    /// A client cancels or releases.
    GiveUp(u8),
    /// A key expires.
    Expire(u8),
    /// A client without tokens gets a key.
    Unfenced(u8),
    /// A master forgets its counter.
    Forget(u8),
}

/// Lists all events that can happen.
pub(super) fn list(scope: &Scope, scheme: Scheme, state: &State, out: &mut impl FnMut(Event)) {
    for (client, who) in (0..).zip(state.clients).take(scope.clients) {
        let has = numbers(state, usize::from(client), who.phase);
        match who.phase {
            Phase::Idle if usize::from(who.attempt) < scope.attempts => {
                scope.hints.iter().for_each(|hint| out(Event::VoteRequest(client, *hint)));
            }
            Phase::Idle => {}
            Phase::Asking | Phase::Certifying(..) => {
                if token(scheme, who.phase, &has).is_some() {
                    out(Event::Take(client));
                }
                if round(who.phase) < scope.rounds && !scheme.asks_once() {
                    subsets(&has, &mut |heard| out(Event::Choose(client, heard)));
                }
                out(Event::GiveUp(client));
            }
            Phase::Holding(_) => {
                if who.extended < scope.extensions {
                    out(Event::Extend(client));
                }
                if who.handed_over < scope.hand_overs {
                    out(Event::HandOver(client));
                }
                out(Event::GiveUp(client));
            }
        }
        for (attempt, slots) in (0..).zip(state.slots[usize::from(client)]) {
            for (master, slot) in (0..).zip(slots) {
                under_way(scope, state, (client, attempt, master), slot, out);
            }
        }
    }
    for (master, of) in (0..).zip(state.masters) {
        if of.key != super::NOBODY {
            out(Event::Expire(master));
        } else if state.unfenced < scope.unfenced {
            out(Event::Unfenced(master));
        }
        if state.forgotten < scope.forgets && of.counter > 0 {
            out(Event::Forget(master));
        }
    }
}

/// The messages of an attempt to a master.
fn under_way(
    scope: &Scope,
    state: &State,
    (client, attempt, master): (u8, u8, u8),
    slot: Slot,
    out: &mut impl FnMut(Event),
) {
    if slot.grant {
        out(Event::Grant { client, attempt, master, again: false });
        if state.copies < scope.copies {
            out(Event::Grant { client, attempt, master, again: true });
        }
    }
    if slot.certify > 0 {
        out(Event::Certify(client, attempt, master));
    }
    if slot.repair {
        out(Event::Repair(client, attempt, master));
    }
}

/// The numbers that count in a phase, by master; 0 where there is none.
fn numbers(state: &State, client: usize, phase: Phase) -> [Number; MASTERS] {
    state.now(client).map(|slot| match phase {
        Phase::Certifying(..) => slot.answer,
        _ => slot.number,
    })
}

/// The sets of replies that the client may have read: a quorum or more of them.
fn subsets(has: &[Number; MASTERS], out: &mut impl FnMut(u8)) {
    let there =
        (0..MASTERS).filter(|master| has[*master] > 0).fold(0, |all, master| all | 1 << master);
    let many = |heard: &u8| heard.count_ones() as usize >= QUORUM;
    (1..1 << MASTERS).filter(|heard| heard & !there == 0).filter(many).for_each(out);
}

const fn round(phase: Phase) -> u8 {
    match phase {
        Phase::Certifying(_, round) => round,
        _ => 0,
    }
}

/// The token that a client may take, if there is one.
fn token(scheme: Scheme, phase: Phase, has: &[Number; MASTERS]) -> Option<Number> {
    let seen = || has.iter().copied().filter(|number| *number > 0);
    let agree = |token: Number| seen().filter(|number| *number == token).count() >= QUORUM;
    match phase {
        Phase::Asking if scheme.asks_once() => {
            (seen().count() >= QUORUM).then(|| scheme.pick(&mut seen().collect::<Vec<_>>()))
        }
        Phase::Asking => seen().find(|token| agree(*token)),
        Phase::Certifying(token, _) => Some(token).filter(|token| agree(*token)),
        Phase::Idle | Phase::Holding(_) => None,
    }
}

/// Returns the state after an event.
pub(super) fn happen(
    scope: &Scope,
    scheme: Scheme,
    state: &State,
    event: Event,
) -> Result<State, Broken> {
    let mut next = *state;
    match event {
        Event::VoteRequest(client, hint) => {
            let floor = next.largest();
            let who = &mut next.clients[usize::from(client)];
            who.hints[usize::from(who.attempt)] = hint;
            who.attempt += 1;
            (who.phase, who.floor) = (Phase::Asking, floor);
            *next.now_mut(client.into()) = [Slot { grant: true, ..Slot::default() }; MASTERS];
        }
        Event::Grant { client, attempt, master, again } => {
            let (who, which) = (usize::from(client), usize::from(attempt));
            let hint = next.clients[who].hints[which];
            let current = next.is_current(who, which);
            let granted = create(scope, scheme, &mut next, (who, which, master.into()), Some(hint));
            let slot = &mut next.slots[who][which][usize::from(master)];
            if let Some(number) = granted.filter(|_| current) {
                slot.number = number;
            }
            slot.grant = again;
            next.copies += u8::from(again);
        }
        Event::Certify(client, attempt, master) => {
            let (who, which) = (usize::from(client), usize::from(attempt));
            let current = next.is_current(who, which)
                && matches!(next.clients[who].phase, Phase::Certifying(..));
            let slot = &mut next.slots[who][which][usize::from(master)];
            let asked = std::mem::take(&mut slot.certify);
            let of = &mut next.masters[usize::from(master)];
            if of.key == holder(who, which + 1) || scheme == Scheme::AnyMajority {
                of.counter = of.counter.max(asked);
                if current {
                    slot.answer = of.counter;
                }
            }
        }
        Event::Repair(client, attempt, master) => {
            let (who, which) = (usize::from(client), usize::from(attempt));
            next.slots[who][which][usize::from(master)].repair = false;
            let hint = (scheme != Scheme::RepairWithoutBump).then_some(0);
            create(scope, scheme, &mut next, (who, which, master.into()), hint);
        }
        Event::Choose(client, heard) => {
            let who = usize::from(client);
            let phase = next.clients[who].phase;
            let has = (0..).zip(numbers(&next, who, phase));
            let has = has.filter(|(master, _)| heard & 1 << master != 0);
            let mut has: Vec<Number> = has.map(|(_, number)| number).collect();
            let asked = scheme.pick(&mut has);
            let needed = has[QUORUM - 1];
            if asked > needed {
                let why = format!("{asked} is asked for where a quorum could agree on {needed}");
                return Err(Broken { rule: "no larger number than needed", why });
            }
            ask_for(&mut next, who, asked, round(phase) + 1);
        }
        Event::Take(client) => take(scheme, &mut next, client.into())?,
        Event::Extend(client) => {
            next.clients[usize::from(client)].extended += 1;
            next.now_mut(client.into()).iter_mut().for_each(|slot| slot.repair = true);
        }
        Event::HandOver(client) => {
            let floor = next.largest();
            let who = &mut next.clients[usize::from(client)];
            let Phase::Holding(old) = who.phase else { return Ok(next) };
            who.floor = floor;
            who.handed_over += 1;
            if scheme == Scheme::OldTokenHandedOver {
                who.phase = Phase::Certifying(old, 1);
                for slot in next.now_mut(client.into()) {
                    slot.answer = old;
                }
            } else {
                ask_for(&mut next, client.into(), old + 1, 1);
            }
        }
        Event::GiveUp(client) => {
            for slot in next.now_mut(client.into()) {
                (slot.number, slot.answer) = (0, 0);
            }
            let who = &mut next.clients[usize::from(client)];
            (who.phase, who.floor, who.handed_over, who.extended) = (Phase::Idle, 0, 0, 0);
        }
        Event::Expire(master) => next.masters[usize::from(master)].key = super::NOBODY,
        Event::Unfenced(master) => {
            next.masters[usize::from(master)].key = UNFENCED;
            next.unfenced += 1;
        }
        Event::Forget(master) => {
            next.masters[usize::from(master)].counter = 0;
            next.forgotten += 1;
        }
    }
    Ok(next)
}

/// Creates a key where there is none, and increments the counter, unless the scheme does not count
/// this creation. Returns the value of the counter.
fn create(
    scope: &Scope,
    scheme: Scheme,
    next: &mut State,
    (client, attempt, master): (usize, usize, usize),
    hint: Option<Number>,
) -> Option<Number> {
    let of = &mut next.masters[master];
    if of.key != super::NOBODY {
        return None;
    }
    if let Some(hint) = hint {
        let counted = (of.counter + 1).max(hint);
        if counted >= scope.end {
            if scheme != Scheme::StaysAtTheEnd {
                // The master refuses, and sets no key.
                return None;
            }
            of.counter = scope.end;
        } else {
            of.counter = counted;
        }
    }
    of.key = holder(client, attempt + 1);
    Some(of.counter)
}

/// Asks all masters for a token. A request of an earlier round that is still under way is dropped.
/// It asked for no larger number, so it changes nothing before this one, and its reply does not
/// count.
fn ask_for(next: &mut State, client: usize, token: Number, round: u8) {
    next.clients[client].phase = Phase::Certifying(token, round);
    for slot in next.now_mut(client) {
        (slot.certify, slot.answer) = (token, 0);
    }
}

/// Issues a token. No client may have had it before, and every token that was issued before this
/// request must be smaller.
fn take(scheme: Scheme, next: &mut State, client: usize) -> Result<(), Broken> {
    let who = next.clients[client];
    let has = numbers(next, client, who.phase);
    let Some(token) = token(scheme, who.phase, &has) else { return Ok(()) };
    if next.issued & (1 << token) != 0 {
        let why = format!("{token} is handed out a second time");
        return Err(Broken { rule: "tokens are unique", why });
    }
    if token <= who.floor {
        let floor = who.floor;
        let why = format!("{token} is handed out, and {floor} was before it was asked for");
        return Err(Broken { rule: "tokens grow", why });
    }
    next.issued |= 1 << token;
    next.clients[client].phase = Phase::Holding(token);
    for slot in next.now_mut(client) {
        (slot.number, slot.answer) = (0, 0);
    }
    Ok(())
}
