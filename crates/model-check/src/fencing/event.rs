//! The events that can happen in a state, the state that follows, and both in words.

use std::fmt;

use super::super::Broken;
use super::{Fencing, Holder, MASTERS, Number, Phase, QUORUM, Slot, State};
use redquorum_scenario::Mutant;

/// An event. Clients and masters are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks all masters, with this hint.
    VoteRequest(usize, u8),
    /// A client's grant is executed by a master, and whether it will be executed once more.
    Grant(usize, usize, bool),
    /// A client's request for a token is executed by a master.
    Certify(usize, usize),
    /// A client's extension is executed by a master, which creates the key if it is gone.
    Repair(usize, usize),
    /// A client selects a token, from the numbers of these masters, one bit each: the masters whose
    /// replies it has read.
    Choose(usize, u8),
    /// A client takes its token.
    Take(usize),
    /// A client extends its lease.
    Extend(usize),
    /// A client hands its lease to another user.
    HandOver(usize),
    /// A client cancels or releases.
    GiveUp(usize),
    /// A key expires.
    Expire(usize),
    /// A client without tokens gets a key.
    Unfenced(usize),
    /// A master forgets its counter.
    Forget(usize),
}

impl Fencing {
    /// Lists all events that can happen.
    pub(super) fn list(&self, state: &State, out: &mut impl FnMut(Event)) {
        let scope = &self.scope;
        for (client, who) in state.clients.iter().enumerate().take(scope.clients) {
            let has = numbers(state, client, who.phase);
            match who.phase {
                Phase::Idle if !who.asked => {
                    scope.hints.iter().for_each(|hint| out(Event::VoteRequest(client, *hint)));
                }
                Phase::Idle => {}
                Phase::Asking | Phase::Certifying(..) => {
                    if self.token(who.phase, &has).is_some() {
                        out(Event::Take(client));
                    }
                    if round(who.phase) < scope.rounds && !self.asks_once() {
                        subsets(&has, &mut |received| out(Event::Choose(client, received)));
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
            for (master, slot) in state.slots[client].iter().enumerate() {
                if slot.grant {
                    out(Event::Grant(client, master, false));
                    if state.copies < scope.copies {
                        out(Event::Grant(client, master, true));
                    }
                }
                if slot.certify > 0 {
                    out(Event::Certify(client, master));
                }
                if slot.repair {
                    out(Event::Repair(client, master));
                }
            }
        }
        for (master, of) in state.masters.iter().enumerate() {
            if of.key != Holder::None {
                out(Event::Expire(master));
            } else if state.unfenced < scope.unfenced {
                out(Event::Unfenced(master));
            }
            if state.forgotten < scope.forgets && of.counter > 0 {
                out(Event::Forget(master));
            }
        }
    }

    /// Whether a quorum of grants is enough, with any numbers.
    const fn asks_once(&self) -> bool {
        matches!(self.mutant, Mutant::LargestGrant | Mutant::MedianGrant)
    }

    /// The token to ask for, from the numbers of at least a quorum.
    fn pick(&self, numbers: &mut [Number]) -> Number {
        numbers.sort_unstable();
        numbers[match self.mutant {
            Mutant::LargestGrant | Mutant::FollowsLargest => numbers.len() - 1,
            Mutant::MedianGrant => (numbers.len() - 1) / 2,
            _ => QUORUM - 1,
        }]
    }

    /// The token that a client may take, if there is one.
    fn token(&self, phase: Phase, has: &[Number; MASTERS]) -> Option<Number> {
        let seen = || has.iter().copied().filter(|number| *number > 0);
        let agree = |token: &Number| seen().filter(|number| number == token).count() >= QUORUM;
        match phase {
            Phase::Asking if self.asks_once() => {
                (seen().count() >= QUORUM).then(|| self.pick(&mut seen().collect::<Vec<_>>()))
            }
            Phase::Asking => seen().find(agree),
            Phase::Certifying(token, _) => Some(token).filter(agree),
            Phase::Idle | Phase::Holding(_) => None,
        }
    }

    /// Returns the state after an event.
    pub(super) fn happen(&self, mut next: State, event: Event) -> Result<State, Broken> {
        match event {
            Event::VoteRequest(client, hint) => {
                let floor = next.largest();
                let who = &mut next.clients[client];
                (who.asked, who.hint) = (true, hint);
                (who.phase, who.floor) = (Phase::Asking, floor);
                next.slots[client] = [Slot { grant: true, ..Slot::default() }; MASTERS];
            }
            Event::Grant(client, master, again) => {
                let hint = next.clients[client].hint;
                let current = next.is_current(client);
                let granted = self.create(&mut next, client, master, Some(hint));
                let slot = &mut next.slots[client][master];
                if let Some(number) = granted.filter(|_| current) {
                    slot.number = number;
                }
                slot.grant = again;
                next.copies += u8::from(again);
            }
            Event::Certify(client, master) => {
                let current = matches!(next.clients[client].phase, Phase::Certifying(..));
                let slot = &mut next.slots[client][master];
                let asked = std::mem::take(&mut slot.certify);
                let of = &mut next.masters[master];
                let ours = of.key == Holder::of(client);
                if ours || self.mutant == Mutant::CertifiesAnywhere {
                    of.counter = of.counter.max(asked);
                    if current {
                        slot.reply = of.counter;
                    }
                }
            }
            Event::Repair(client, master) => {
                next.slots[client][master].repair = false;
                let hint = (self.mutant != Mutant::RepairsUncounted).then_some(0);
                self.create(&mut next, client, master, hint);
            }
            Event::Choose(client, received) => {
                let phase = next.clients[client].phase;
                let has = numbers(&next, client, phase).into_iter().enumerate();
                let has = has.filter(|(master, _)| received & 1 << master != 0);
                let mut has: Vec<Number> = has.map(|(_, number)| number).collect();
                let asked = self.pick(&mut has);
                let needed = has[QUORUM - 1];
                if asked > needed {
                    let why =
                        format!("{asked} is asked for where a quorum could agree on {needed}");
                    return Err(Broken { rule: "no larger number than needed", why });
                }
                ask_for(&mut next, client, asked, round(phase) + 1);
            }
            Event::Take(client) => self.take(&mut next, client)?,
            Event::Extend(client) => {
                next.clients[client].extended += 1;
                next.slots[client].iter_mut().for_each(|slot| slot.repair = true);
            }
            Event::HandOver(client) => {
                let floor = next.largest();
                let who = &mut next.clients[client];
                let Phase::Holding(old) = who.phase else { return Ok(next) };
                who.floor = floor;
                who.handed_over += 1;
                if self.mutant == Mutant::HandsOverToken {
                    who.phase = Phase::Certifying(old, 1);
                    next.slots[client].iter_mut().for_each(|slot| slot.reply = old);
                } else {
                    ask_for(&mut next, client, old + 1, 1);
                }
            }
            Event::GiveUp(client) => {
                forget_replies(&mut next, client);
                let who = &mut next.clients[client];
                (who.phase, who.floor, who.handed_over, who.extended) = (Phase::Idle, 0, 0, 0);
            }
            Event::Expire(master) => next.masters[master].key = Holder::None,
            Event::Unfenced(master) => {
                next.masters[master].key = Holder::Unfenced;
                next.unfenced += 1;
            }
            Event::Forget(master) => {
                next.masters[master].counter = 0;
                next.forgotten += 1;
            }
        }
        Ok(next)
    }

    /// Creates a key where there is none, and increments the counter, if there is a hint. Returns
    /// the value of the counter.
    fn create(
        &self,
        next: &mut State,
        client: usize,
        master: usize,
        hint: Option<Number>,
    ) -> Option<Number> {
        let of = &mut next.masters[master];
        if of.key != Holder::None {
            return None;
        }
        if let Some(hint) = hint {
            let counted = (of.counter + 1).max(hint);
            if counted >= self.scope.end && self.mutant != Mutant::StaysAtEnd {
                // The master refuses, and sets no key.
                return None;
            }
            of.counter = counted.min(self.scope.end);
        }
        of.key = Holder::of(client);
        Some(of.counter)
    }

    /// Issues a token. No client may have had it before, and every token that was issued before
    /// this request must be smaller.
    fn take(&self, next: &mut State, client: usize) -> Result<(), Broken> {
        let who = next.clients[client];
        let has = numbers(next, client, who.phase);
        let Some(token) = self.token(who.phase, &has) else { return Ok(()) };
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
        forget_replies(next, client);
        Ok(())
    }
}

/// The numbers that count in a phase, by master; 0 where there is none.
fn numbers(state: &State, client: usize, phase: Phase) -> [Number; MASTERS] {
    state.slots[client].map(|slot| match phase {
        Phase::Certifying(..) => slot.reply,
        _ => slot.number,
    })
}

/// The sets of replies that the client may have read: a quorum or more of them.
fn subsets(has: &[Number; MASTERS], out: &mut impl FnMut(u8)) {
    let there =
        (0..MASTERS).filter(|master| has[*master] > 0).fold(0, |all, master| all | 1 << master);
    let many = |received: &u8| received.count_ones() as usize >= QUORUM;
    (1..1 << MASTERS).filter(|received| received & !there == 0).filter(many).for_each(out);
}

const fn round(phase: Phase) -> u8 {
    match phase {
        Phase::Certifying(_, round) => round,
        _ => 0,
    }
}

fn forget_replies(next: &mut State, client: usize) {
    for slot in &mut next.slots[client] {
        (slot.number, slot.reply) = (0, 0);
    }
}

/// Asks all masters for a token. A request of an earlier round that is still under way is dropped.
/// It asked for no larger number, so it changes nothing before this one, and its reply does not
/// count.
fn ask_for(next: &mut State, client: usize, token: Number, round: u8) {
    next.clients[client].phase = Phase::Certifying(token, round);
    for slot in &mut next.slots[client] {
        (slot.certify, slot.reply) = (token, 0);
    }
}

impl Event {
    /// The event and its effect. Clients are A, B and C, masters are counted from 1.
    pub(super) fn describe_event(self, state: &State, after: &State) -> String {
        let key = |master: usize| state.masters[master].key;
        let counter = |master: usize| after.masters[master].counter;
        let phase = |client: usize| after.clients[client].phase;
        // A note on a message whose client has given it up.
        let late = |c| if state.is_current(c) { "" } else { ", late" };
        match self {
            Self::VoteRequest(c, 0) => format!("{} asks all masters", letter(c)),
            Self::VoteRequest(c, hint) => {
                format!("{} asks all masters, with the hint {hint}", letter(c))
            }
            Self::Grant(c, m, again) => {
                let what = if key(m) == Holder::None && after.masters[m].key != Holder::None {
                    format!("grants {} with {}", letter(c), counter(m))
                } else {
                    format!("refuses {}: {} has the key", letter(c), key(m))
                };
                let again = if again { ", and will be asked again" } else { "" };
                format!("master {} {what}{}{again}", m + 1, late(c))
            }
            Self::Certify(c, m) => format!(
                "master {} is asked for {} by {}{}, and has {} ({} has the key)",
                m + 1,
                state.slots[c][m].certify,
                letter(c),
                late(c),
                counter(m),
                key(m)
            ),
            Self::Repair(c, m) => {
                let (c, late) = (letter(c), late(c));
                format!("master {} extends {c}'s key{late}, and has {}", m + 1, counter(m))
            }
            Self::Choose(c, received) => {
                let received = (0..MASTERS).filter(|master| received & 1 << master != 0);
                let received: Vec<String> =
                    received.map(|master| (master + 1).to_string()).collect();
                let token = match phase(c) {
                    Phase::Certifying(token, _) => token.to_string(),
                    _ => "a token".to_owned(),
                };
                format!(
                    "{} has received from {}, and goes for {token}",
                    letter(c),
                    received.join(" and ")
                )
            }
            Self::Take(c) => match phase(c) {
                Phase::Holding(token) => format!("{} has the token {token}", letter(c)),
                _ => format!("{} takes its token", letter(c)),
            },
            Self::Extend(c) => format!("{} extends its lease", letter(c)),
            Self::HandOver(c) => format!("{} hands its lease to another user", letter(c)),
            Self::GiveUp(c) => format!("{} gives up, or gives back", letter(c)),
            Self::Expire(m) => format!("the key of {} on master {} goes", key(m), m + 1),
            Self::Unfenced(m) => format!("a client without tokens gets master {}", m + 1),
            Self::Forget(m) => format!("master {} forgets its counter", m + 1),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no client"),
            Self::Client(client) => write!(f, "{}", letter((*client).into())),
            Self::Unfenced => f.write_str("another client"),
        }
    }
}

fn letter(client: usize) -> char {
    ['A', 'B', 'C'][client]
}
