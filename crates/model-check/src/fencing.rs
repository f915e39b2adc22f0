//! A model of fencing tokens over independent masters: are they unique, and do they grow?
//!
//! This is the protocol of `docs/fencing.md`, not the shipped machines. The check of
//! [`machines`](super::machines) does not reach what this one shows: its claims have no fencing
//! tokens, its two clients' messages arrive in order and at most once, and keys stay while a client
//! relies on them. Here up to three clients contend, a grant may be executed twice and long after
//! its client gave up, and any key may expire at any time.
//!
//! There is no clock. So every result holds for any behaviour of clocks, pauses and TTLs. Replies
//! may be lost. A client may give up, or go on to the next step, at any time.
//!
//! The model leaves out what changes nothing here. A release is a key that expires. Re-entry keeps
//! its token and sends nothing. A reply that is late or lost is one that a client does not use when
//! it goes on. The model also hands leases over to other users, which no shipped claim does: this
//! shows what a second token of one lease would need.
//!
//! The order: the model and its states, the bounds of a run, the events and the state that follows,
//! the canonical form of states (masters are interchangeable, and so are clients; facts that can
//! never matter again are dropped).

use std::fmt;

use crate::explore::Wide;
use crate::{Broken, Explored, Fairness, Model, counted, explore};
use redquorum_scenario::Mutant;

/// The number of masters, and the size of a quorum.
const MASTERS: usize = 3;
const QUORUM: usize = 2;
/// The largest number of clients.
const CLIENTS: usize = 3;

/// The model: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    scope: Scope,
    mutant: Mutant,
}

/// A token, or the number of a counter. 0 means none: counters start there.
type Number = u8;

/// The owner of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    #[default]
    None,
    /// A client with a token.
    Client(u8),
    /// A client without tokens.
    Unfenced,
}

impl Holder {
    fn of(client: usize) -> Self {
        Self::Client(u8::try_from(client).expect("there are few"))
    }
}

/// One master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Master {
    key: Holder,
    counter: Number,
}

/// The messages between a client and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// A grant that was sent and not executed.
    grant: bool,
    /// An extension under way, which creates the key if it is gone.
    repair: bool,
    /// The number in a request for a token that was not executed.
    certify: Number,
    /// The number in the reply to the grant.
    number: Number,
    /// The number in the reply of this round.
    reply: Number,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// It collects grants.
    Asking,
    /// It collects replies for a token, in this round.
    Certifying(Number, u8),
    /// It holds a token.
    Holding(Number),
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Client {
    phase: Phase,
    /// Whether it has asked. It asks once.
    asked: bool,
    hint: Number,
    /// The largest token that was issued before it asked. Its own must be larger.
    floor: Number,
    handed_over: u8,
    extended: u8,
}

/// One state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    masters: [Master; MASTERS],
    clients: [Client; CLIENTS],
    slots: [[Slot; MASTERS]; CLIENTS],
    /// The tokens that were issued, one bit each.
    issued: u64,
    /// How often a grant was executed twice, a client without tokens had a key, a master forgot.
    copies: u8,
    unfenced: u8,
    forgotten: u8,
}

/// Explores the protocol, or a mutant of it, within bounds, up to `most` states.
pub fn model_check(scope: Scope, mutant: Mutant, most: usize) -> Explored {
    explore(&mut Fencing { scope, mutant }, most)
}

impl State {
    /// Whether a client attempts or holds.
    fn is_current(&self, client: usize) -> bool {
        self.clients[client].phase != Phase::Idle
    }

    /// The largest token that was issued.
    fn largest(&self) -> Number {
        let bits = u64::BITS - self.issued.leading_zeros();
        u8::try_from(bits.saturating_sub(1)).unwrap_or(u8::MAX)
    }
}

impl Model for Fencing {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        vec![State::default()]
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        self.list(state, &mut |event| out.push((Fairness::Free, event)));
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.happen(*state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        self.canonical(state)
    }

    fn describe_event(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        event.describe_event(state, after.unwrap_or(state))
    }

    fn describe_state(&mut self, state: &State) -> Vec<String> {
        let masters = (1..).zip(state.masters).map(|(number, Master { key, counter })| {
            format!("master {number}: counter {counter}, key of {key}")
        });
        let clients = ('A'..).zip(state.clients).take(self.scope.clients);
        let clients = clients.map(|(letter, client)| format!("{letter}: {:?}", client.phase));
        masters.chain(clients).collect()
    }
}

/// The bounds. There are always three masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The name: the bound that is wide in it.
    pub name: &'static str,
    /// The number of clients, two or three.
    pub clients: usize,
    /// The possible readings of a client's clock when it asks; 0 stands for one that is far behind.
    pub hints: &'static [Number],
    /// The largest number of rounds for one token.
    pub rounds: u8,
    /// How often a lease may be handed over.
    pub hand_overs: u8,
    /// How often a lease may be extended, and keys that are gone created again.
    pub extensions: u8,
    /// How often a grant may be executed twice.
    pub copies: u8,
    /// How often a client without tokens may have a key.
    pub unfenced: u8,
    /// How often a master may forget its counter, which is outside the assumptions.
    pub forgets: u8,
    /// The largest number.
    pub end: Number,
    /// Whether states that differ only in the order of masters and clients count as one.
    pub canonicalize: bool,
}

impl Scope {
    /// Two clients. Each asks once.
    pub const BASE: Self = Self {
        name: "two clients",
        clients: 2,
        hints: &[0, 2],
        rounds: 1,
        hand_overs: 0,
        extensions: 0,
        copies: 0,
        unfenced: 0,
        forgets: 0,
        end: 60,
        canonicalize: true,
    };

    /// All runs of `redquorum-chaos model-check fencing`. Each has another wide bound.
    pub const ALL: [Self; 5] = [
        Self { name: "leases handed over", rounds: 2, hand_overs: 1, ..Self::BASE },
        Self { name: "keys repaired", rounds: 2, extensions: 1, ..Self::BASE },
        Self { name: "grants executed twice, and strangers", copies: 1, unfenced: 1, ..Self::BASE },
        Self { name: "three clients", hints: &[0], clients: 3, ..Self::BASE },
        Self { name: "at the end of the numbers", end: 3, hand_overs: 1, ..Self::BASE },
    ];

    /// The schemes that must go wrong: each mutant of the protocol, in bounds that show its error,
    /// and the correct protocol outside its assumptions.
    pub const WRONG: [(Mutant, Self); 8] = [
        (
            Mutant::LargestGrant,
            Self {
                name: "the largest number with which a quorum granted is the token",
                ..Self::BASE
            },
        ),
        (Mutant::MedianGrant, Self { name: "the median of these is", ..Self::BASE }),
        (
            Mutant::CertifiesAnywhere,
            Self {
                name: "the token is written back to any majority, over the keys of others",
                hints: &[0],
                ..Self::BASE
            },
        ),
        (
            Mutant::RepairsUncounted,
            Self {
                name: "a key that an extension creates does not count",
                hand_overs: 1,
                extensions: 1,
                ..Self::BASE
            },
        ),
        (
            Mutant::HandsOverToken,
            Self { name: "a lease is handed over with its old token", hand_overs: 1, ..Self::BASE },
        ),
        (
            Mutant::StaysAtEnd,
            Self {
                name: "a counter at its end stays there, as doubles do at 2⁵³, instead of refusing",
                end: 3,
                ..Self::BASE
            },
        ),
        (
            Mutant::FollowsLargest,
            Self {
                name: "the largest number seen is certified, not the q-th smallest: tokens stay \
                       unique, but one master with an absurd counter is followed although no \
                       quorum needs it",
                ..Self::BASE
            },
        ),
        (
            Mutant::None,
            Self {
                name: "the shipped one, on a master that forgets its counter",
                hints: &[0],
                forgets: 1,
                ..Self::BASE
            },
        ),
    ];

    /// The bounds in which a mutant of the protocol shows its error; none for other mutants.
    pub fn against(mutant: Mutant) -> Option<Self> {
        let mut wrong = Self::WRONG.into_iter().filter(|(of, _)| *of != Mutant::None);
        wrong.find_map(|(of, scope)| (of == mutant).then_some(scope))
    }

    /// The bounds in words, beside the three masters.
    pub fn bounds(&self) -> String {
        let hints: Vec<String> = self.hints.iter().map(Number::to_string).collect();
        let hints = if self.hints == [0] {
            "no hints".into()
        } else {
            format!("hints {}", hints.join(" and "))
        };
        let parts = [
            Some(format!("{} clients", self.clients)),
            Some(hints),
            counted(self.rounds, "round").map(|text| text + " a token"),
            counted(self.hand_overs, "hand-over").map(|text| text + " of each"),
            counted(self.extensions, "extension").map(|text| text + " of each"),
            counted(self.copies, "copy"),
            counted(self.unfenced, "client").map(|text| text + " without tokens"),
            counted(self.forgets, "forgotten counter"),
            Some(format!("numbers below {}", self.end)).filter(|_| self.end < Self::BASE.end),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

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
    fn list(&self, state: &State, out: &mut impl FnMut(Event)) {
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
    fn happen(&self, mut next: State, event: Event) -> Result<State, Broken> {
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
    fn describe_event(self, state: &State, after: &State) -> String {
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

/// A master, with all messages between it and the clients, in an order of the clients: one word for
/// the master and one for each client.
type MasterWords = [u64; 1 + CLIENTS];

impl Fencing {
    /// Identifies a state.
    fn canonical(&self, state: &State) -> u128 {
        if !self.scope.canonicalize {
            return in_order(state, [0, 1, 2], false);
        }
        let state = &self.needed(*state);
        let orders: &[[usize; CLIENTS]] = match self.scope.clients {
            2 => &[[0, 1, 2], [1, 0, 2]],
            _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        };
        orders.iter().map(|order| in_order(state, *order, true)).min().unwrap_or_default()
    }

    /// A state without facts that can never matter again.
    fn needed(&self, mut state: State) -> State {
        for client in 0..self.scope.clients {
            let current = state.is_current(client);
            for (master, slot) in state.masters.iter_mut().zip(&mut state.slots[client]) {
                let ours = master.key == Holder::of(client);
                // The request comes where the key is gone and cannot come back.
                let gone = !ours && !slot.grant && !slot.repair;
                if gone && self.mutant != Mutant::CertifiesAnywhere {
                    slot.certify = 0;
                }
                // A key that its owner never mentions again may belong to any client.
                if ours && !current && slot.certify == 0 {
                    master.key = Holder::Unfenced;
                }
            }
            if state.slots[client].iter().all(|slot| !slot.grant) {
                state.clients[client].hint = 0;
            }
        }
        state
    }
}

fn in_order(state: &State, order: [usize; CLIENTS], sort: bool) -> u128 {
    let mut rows: [MasterWords; MASTERS] = std::array::from_fn(|master| {
        let of = state.masters[master];
        let mut row = [key(of.key, order) << 8 | u64::from(of.counter); 1 + CLIENTS];
        for (word, client) in row[1..].iter_mut().zip(order) {
            *word = packed(state.slots[client][master]);
        }
        row
    });
    if sort {
        rows.sort_unstable();
    }
    let mut wide = Wide::new();
    rows.iter().flatten().for_each(|word| wide.word(*word));
    for client in order {
        let Client { phase, asked, hint, floor, handed_over, extended } = state.clients[client];
        let [a, b, c] = match phase {
            Phase::Idle => [0, 0, 0],
            Phase::Asking => [1, 0, 0],
            Phase::Certifying(token, round) => [2, token, round],
            Phase::Holding(token) => [3, token, 0],
        };
        let counts = handed_over << 4 | extended;
        wide.word(u64::from_le_bytes([a, b, c, asked.into(), hint, floor, counts, 0]));
    }
    wide.word(state.issued);
    let State { copies, unfenced, forgotten, .. } = *state;
    wide.word(u64::from_le_bytes([copies, unfenced, forgotten, 0, 0, 0, 0, 0]));
    wide.end()
}

fn packed(Slot { grant, repair, certify, number, reply }: Slot) -> u64 {
    let [certify, number, reply] = [certify, number, reply].map(u64::from);
    certify << 18 | number << 12 | reply << 6 | u64::from(grant) << 1 | u64::from(repair)
}

/// The owner of a key, with clients in another order.
fn key(key: Holder, order: [usize; CLIENTS]) -> u64 {
    match key {
        Holder::None => 0,
        Holder::Client(client) => {
            let place = order.iter().position(|of| *of == usize::from(client)).unwrap_or(CLIENTS);
            place as u64 + 1
        }
        Holder::Unfenced => u8::MAX.into(),
    }
}

/// Tests that the protocol holds within small bounds.
#[cfg(test)]
mod tests {
    use super::*;

    /// More states than any scope in these tests has.
    const MOST: usize = 1_000_000;

    #[test]
    fn tokens_are_unique_and_grow() {
        let base = Scope { hints: &[0], ..Scope::BASE };
        for scope in [base, Scope { end: 3, ..base }] {
            let explored = model_check(scope, Mutant::None, MOST);
            assert!(explored.complete, "{scope:?}: more than {MOST} states");
            assert!(explored.broken.is_none(), "{:#?}", explored.broken);
            assert!(explored.states > 10_000, "{} states show nothing", explored.states);
        }
    }

    /// The canonical form merges states that differ in more than an order. So the exploration must
    /// find the same errors, in as few steps, without it.
    #[test]
    fn canonical_forms_change_no_result() {
        let all_states = |scope| Scope { canonicalize: false, ..scope };
        let tiny = Scope { hints: &[0], rounds: 0, ..Scope::BASE };
        let canonical = model_check(tiny, Mutant::None, MOST);
        let all = model_check(all_states(tiny), Mutant::None, MOST);
        assert!(
            canonical.complete
                && all.complete
                && canonical.broken.is_none()
                && all.broken.is_none()
        );
        assert_eq!(canonical.depth, all.depth);
        assert!(
            all.states > 6 * canonical.states,
            "{} states, {} canonical",
            all.states,
            canonical.states
        );
        use Mutant::{CertifiesAnywhere, RepairsUncounted, StaysAtEnd};
        let is_large = |it| matches!(it, CertifiesAnywhere | RepairsUncounted | StaysAtEnd);
        for (mutant, scope) in Scope::WRONG.into_iter().filter(|(mutant, _)| !is_large(*mutant)) {
            let steps = |scope| {
                let broken = model_check(scope, mutant, MOST).broken;
                broken.map(|found| (found.broken.rule, found.steps.len()))
            };
            assert!(steps(scope).is_some(), "{mutant:?}");
            assert_eq!(steps(scope), steps(all_states(scope)), "{mutant:?}");
        }
    }
}
