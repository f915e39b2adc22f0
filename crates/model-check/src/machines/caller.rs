//! A client: its claim, its clock, and the keys that it relies on ([`Caller`]); and the whole of
//! one client with its connections ([`Local`]), whose successors are computed once, for any state
//! of the rest: masters and other clients show only in the replies of a master.

use std::time::Duration;

use super::canonical::{Canonical, ORDERS};
use super::connection::{Connection, Entries, number, token};
use super::event::{ClientEvent, LinkEvent, possible};
use super::master::{MasterReply, Request};
use super::scope::{Fault, Scope};
use super::{Fairness, MASTERS, Machines, Mutant, Withheld, is_over};
use crate::Broken;
use crate::explore::{StateSet, Wide};
use redquorum_protocol::{
    Claim, Drift, LockConfig, Loss, Quorum, Reply, Rng, RoundId, Time, Token, WaitPolicy,
};

/// One step of a claim's clock.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// The initial time of clocks: so late that no instant can be mistaken for a set of masters.
const START: Time = Time::from_millis(1_000_000);

/// The options of all leases, in ticks: a TTL of six, a drift of one, two for a round. So a round
/// may end well before the deadline, at it, or past it.
pub(super) fn config(masters: usize, shared: bool) -> LockConfig {
    let drift = Drift { ppm: 0, fixed: TICK };
    let config = LockConfig::new(masters, TICK * 6, drift, TICK * 2);
    let config = config.and_then(|it| if shared { it.with_sharing() } else { Ok(it) });
    config.expect("they fit each other")
}

/// A client's claim, its clock, and the keys that it relies on.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Whether it asks for shared leases.
    pub(super) shared: bool,
    pub(super) claim: Claim,
    /// The number of claims that it has started.
    pub(super) claims: u8,
    /// The number of tokens that it has drawn, which is the number of the latest.
    pub(super) tokens: u8,
    /// Its latest attempt, and the number of masters that it asked.
    pub(super) asked: (u32, u8),
    /// The tokens of attempts that the votes refused, one bit each.
    pub(super) refused: u8,
    /// Whether the links have registered its waiter.
    pub(super) subscribed: bool,
    pub(super) clock: Time,
    /// The earliest time at which masters may drop the latest token's key: by the attempt, and by
    /// each round.
    pub(super) kept: Vec<Time>,
    /// Whether the watchdog was started.
    pub(super) watched: bool,
    /// The loss of its lease as it was declared, with the deadline at that time.
    pub(super) lost: Option<(Loss, Time)>,
    /// Whether its process is dead.
    pub(super) dead: bool,
}

impl Caller {
    pub(super) const fn new(shared: bool) -> Self {
        Self {
            shared,
            claim: Claim::Ended,
            claims: 0,
            tokens: 0,
            asked: (0, 0),
            refused: 0,
            subscribed: false,
            clock: START,
            kept: Vec::new(),
            watched: false,
            lost: None,
            dead: false,
        }
    }

    /// How a claim starts: it asks all masters.
    pub(super) fn policy(scope: &Scope) -> WaitPolicy {
        // With wake-ups, the sleep is long enough for one look at a master.
        let wait = match (scope.waits, scope.wakes) {
            (false, _) => Duration::ZERO,
            (true, false) => TICK * 100,
            (true, true) => TICK * 700,
        };
        WaitPolicy { wait, explain: false, wake_ups: scope.wakes, ..WaitPolicy::default() }
    }

    /// The token that it relies on, or tries for: its attempt is undecided or won, or its lease is
    /// neither released nor lost. Derived from the votes, not from the clean-ups of the claim.
    pub(super) fn live(&self) -> Option<u8> {
        match &self.claim {
            Claim::Acquiring(acquire) => {
                let votes = acquire.votes();
                let granted = votes.which(|reply| *reply == Reply::Created);
                let quorum = Quorum::of(votes.votes().len());
                // If only one master was asked, its refusal counts for all.
                let alone = self.asked.1 == 1 && votes.votes().len() > 1;
                let refuses = |reply: &Reply| matches!(reply, Reply::Taken(_));
                let refused = alone && !votes.which(refuses).is_empty();
                let open = quorum.verdict(granted, votes.awaited()).is_none();
                let open = open && !refused;
                let live = acquire.failure().is_none() && (acquire.is_won() || open);
                live.then(|| number(acquire.token()))
            }
            Claim::Holding(hold) if hold.lost().is_none() => Some(number(hold.token())),
            _ => None,
        }
    }

    /// The time until which it sleeps without a wake-up, if it waits for another attempt. A pause
    /// after masters left its attempts unanswered is no such sleep: only time ends it.
    pub(super) fn sleeps(&self) -> Option<Duration> {
        let Claim::Acquiring(acquire) = &self.claim else { return None };
        let waits = acquire.failure().is_none() && !acquire.is_won() && self.live().is_none();
        (waits && !acquire.backs_off()).then(|| acquire.next_wake().since(self.clock))
    }

    /// Records the token of an attempt that the votes refuse.
    pub(super) fn note_refused(&mut self) {
        let Claim::Acquiring(acquire) = &self.claim else { return };
        let votes = acquire.votes();
        let granted = votes.which(|reply| *reply == Reply::Created).len();
        if self.live().is_none() && granted < redquorum_protocol::quorum(votes.votes().len()) {
            self.refused |= 1 << number(acquire.token());
        }
    }

    /// The token of the lease that it believes in.
    pub(super) fn believed(&self) -> Option<u8> {
        match &self.claim {
            Claim::Holding(hold) if hold.lost().is_none() && self.clock < hold.deadline() => {
                Some(number(hold.token()))
            }
            _ => None,
        }
    }

    /// Whether a key with this token, which this round created or extended, may expire.
    pub(super) fn may_expire(&self, of: u8, round: u8, mutant: Mutant) -> bool {
        if self.dead || self.live() != Some(of) {
            return true;
        }
        let early = if mutant == Mutant::DriftIgnored { TICK } else { Duration::ZERO };
        self.kept.get(usize::from(round)).is_none_or(|kept| self.clock.plus(early) >= *kept)
    }

    /// The next instant at which time alone changes something for it. The due time of a timer is no
    /// such instant: nothing changes until the timer fires.
    pub(super) fn next_tick(&self, scope: &Scope) -> Option<Time> {
        self.live()?;
        let mut instants = self.kept.clone();
        if let Claim::Holding(hold) = &self.claim {
            instants.push(hold.deadline());
            if scope.rounds > 0 {
                // Late enough for a round to end past the deadline.
                let late = hold.deadline().since(Time::ZERO).saturating_sub(TICK);
                instants.push(Time::ZERO.plus(late));
            }
        }
        instants.into_iter().filter(|at| *at > self.clock).min()
    }

    /// The instant at which its next timer fires, at the earliest.
    pub(super) fn fires(&self) -> Option<Time> {
        let next = self.claim.next_wake();
        (next != Time::NEVER).then(|| next.max(self.clock))
    }

    /// Drops a finished claim, with all data about it.
    pub(super) fn tidy(&mut self) {
        let over = match &self.claim {
            Claim::Acquiring(acquire) => acquire.failure().is_some(),
            Claim::Releasing(release) => release.outcome().is_some(),
            _ => false,
        };
        if over {
            self.claim = Claim::Ended;
        }
        if is_over(&self.claim) {
            let Self { claims, tokens, refused, dead, .. } = *self;
            *self = Self { claims, tokens, refused, dead, ..Self::new(self.shared) };
        }
    }

    /// Its hashes, for each order of the masters. Its clock is the origin of all instants.
    pub(super) fn hashes(&self, canonical: bool) -> [u128; ORDERS] {
        use std::hash::Hash;
        let mut fold = Canonical::at(self.clock);
        self.claim.hash(&mut fold);
        // None of these values is a list directly after an instant, which would look like votes.
        (self.claims, self.tokens, self.watched, self.dead, self.shared).hash(&mut fold);
        (self.asked, self.refused, self.subscribed).hash(&mut fold);
        self.kept.hash(&mut fold);
        self.lost.hash(&mut fold);
        fold.hashes(canonical)
    }
}

/// The external decisions of a claim. Here none of them is random.
pub(super) struct Numbered {
    pub(super) tokens: u8,
    pub(super) mutant: Mutant,
}

impl Rng for Numbered {
    fn token(&mut self) -> Token {
        self.tokens += 1;
        token(if self.mutant == Mutant::OneToken { 1 } else { self.tokens }, false)
    }

    fn hint(&mut self) -> u64 {
        0
    }

    fn pause(&mut self, _attempt: u32) -> Duration {
        TICK
    }

    fn random(&mut self) -> u64 {
        0
    }
}

/// The number of the extension round of a step, or 0.
pub(super) fn round_of(step: RoundId) -> u8 {
    match step {
        RoundId::Extend(round) => u8::try_from(round).expect("rounds are bounded"),
        _ => 0,
    }
}

/// A client: the numbers of its claim and of its connections in their pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) caller: u32,
    pub(super) sides: [u32; MASTERS],
}

/// The derived facts of a local.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The token that it believes in.
    pub(super) believed: Option<u8>,
    /// The tokens that may be on each master, one bit each: their clean-up is pending, or will be.
    pub(super) covered: [u8; MASTERS],
    /// Tokens whose keys may expire, by the round that created or extended them.
    pub(super) may_expire: [u8; 8],
    /// Tokens of attempts that it knows to have failed, one bit each.
    pub(super) refused: u8,
    /// How long it sleeps, if it waits and no wake-up comes.
    pub(super) sleeps: Option<Duration>,
    /// Masters with no message under way, one bit each.
    pub(super) quiet: u8,
    /// Whether a message is under way between it and a master.
    pub(super) pending: bool,
    /// Whether a wake-up was sent to it that it has not read.
    pub(super) has_wake_up: bool,
    /// The local after a master wakes its waiter, once computed.
    pub(super) woken: [u32; MASTERS],
    /// Whether its process is dead.
    pub(super) dead: bool,
    /// Whether its claim is over.
    pub(super) over: bool,
    /// Whether no clean-up is pending for any master.
    pub(super) has_nothing_pending: bool,
    /// A rule that it breaks on its own.
    pub(super) broken: Option<Broken>,
    /// Its possible moves, once computed: due moves first.
    pub(super) moves: Option<Box<[Move]>>,
    /// How often the bounds prevent an event.
    pub(super) withheld: Withheld,
}

/// A possible event of a local, and its result.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) fairness: Fairness,
    pub(super) client_event: ClientEvent,
    pub(super) fault: Option<Fault>,
    pub(super) then: MoveResult,
}

/// The result of a move.
#[derive(Clone, Debug)]
pub(super) enum MoveResult {
    /// Another local.
    Becomes(Result<u32, Broken>),
    /// It depends on the reply of the master. The list has the results for the replies seen so far.
    Asks(Request, Vec<(MasterReply, Result<u32, Broken>)>),
}

impl Known {
    /// Whether it attempts, holds a lease, or acts soon.
    pub(super) fn goes_on(&self) -> bool {
        let sleeps = self.sleeps.is_some_and(|sleeps| sleeps > TICK);
        self.pending || !self.over && !sleeps
    }

    pub(super) fn moves(&self) -> &[Move] {
        self.moves.as_ref().expect("it was worked out")
    }
}

impl Machines {
    pub(super) fn first_local(&mut self, client: usize) -> u32 {
        let (shared, Scope { subscribed, .. }) = (self.scope.reads(client), self.scope);
        let caller = self.callers.enter(Caller::new(shared), |caller| caller.hashes(true));
        let side = self.enter_side(Connection::connected(subscribed, shared, self.mutant));
        self.enter_local(Local { caller, sides: [side; MASTERS] })
    }

    pub(super) fn enter_side(&mut self, side: Connection) -> u32 {
        let hash = Wide::of(&side);
        let tokens = self.scope.attempts;
        self.sides.enter_with([hash; ORDERS], || {
            let entries = side.entries(tokens);
            (side, entries)
        })
    }

    pub(super) fn enter_local(&mut self, local: Local) -> u32 {
        let hashes = self.hashes_of(local);
        let number = self.locals.enter_with(hashes, || local);
        if number as usize == self.known.len() {
            let known = self.learn(local);
            self.known.push(known);
        }
        number
    }

    fn learn(&self, local: Local) -> Known {
        let caller = self.callers.get(local.caller);
        let sides = local.sides.map(|side| self.sides.get(side));
        let live = caller.live();
        let covered = sides.map(|(_, Entries { claimed, pending, .. })| {
            pending | live.map_or(0, |token| claimed & 1 << token)
        });
        let mut may_expire = [0; 8];
        for (round, tokens) in (0..).zip(&mut may_expire) {
            let free = |token: &u8| caller.may_expire(*token, round, self.mutant);
            *tokens = (0..8).filter(free).map(|token| 1 << token).sum();
        }
        Known {
            believed: caller.believed(),
            covered: if caller.dead { [u8::MAX; MASTERS] } else { covered },
            may_expire,
            refused: caller.refused,
            sleeps: caller.sleeps(),
            quiet: (0..)
                .zip(&sides)
                .map(|(master, (side, _))| u8::from(side.is_quiet()) << master)
                .sum(),
            pending: sides.iter().any(|(side, _)| side.is_pending()),
            has_wake_up: sides.iter().any(|(side, _)| side.has_wake_up()),
            woken: [u32::MAX; MASTERS],
            dead: caller.dead,
            over: is_over(&caller.claim),
            has_nothing_pending: sides.iter().all(|(_, entries)| entries.count == 0),
            broken: self.check_local(caller, &sides, &covered).err(),
            moves: None,
            withheld: Withheld::default(),
        }
    }

    /// Computes the possible events of a local.
    pub(super) fn work_out(&mut self, number: u32) {
        if self.known[number as usize].moves.is_some() {
            return;
        }
        let local = *self.locals.get(number);
        let caller = self.callers.get(local.caller);
        let mut withheld = Withheld::default();
        let possible = {
            let sides = local.sides.map(|side| &self.sides.get(side).0);
            let sides = &sides[..self.scope.masters];
            possible(caller, sides, (&self.scope, self.mutant), &mut withheld)
        };
        let moves = possible.into_iter().map(|(fairness, client_event, fault)| {
            let then = self.then(local, client_event);
            Move { fairness, client_event, fault, then }
        });
        let mut moves: Vec<Move> = moves.collect();
        let possible = moves.len();
        moves.retain(|of| !self.exceeds(&of.then));
        withheld.attempts += (possible - moves.len()) as u64;
        let known = &mut self.known[number as usize];
        (known.moves, known.withheld) = (Some(moves.into()), withheld);
    }

    /// Whether the result is an attempt beyond the bounds, caused by a message.
    fn exceeds(&self, then: &MoveResult) -> bool {
        let MoveResult::Becomes(Ok(after)) = then else { return false };
        let caller = self.callers.get(self.locals.get(*after).caller);
        caller.tokens > self.scope.attempts
    }

    fn then(&mut self, local: Local, client_event: ClientEvent) -> MoveResult {
        let ClientEvent::Between(master, LinkEvent::Execute(wire)) = client_event else {
            return MoveResult::Becomes(self.turn(local, client_event, None));
        };
        let side = &self.sides.get(local.sides[usize::from(master)]).0;
        MoveResult::Asks(side.wires[usize::from(wire)].requests[0], Vec::new())
    }

    /// The result of a move of a local with this reply of a master.
    pub(super) fn after(
        &mut self,
        number: u32,
        index: usize,
        reply: MasterReply,
    ) -> Result<u32, Broken> {
        let Move { client_event, then, .. } = &self.known[number as usize].moves()[index];
        let (client_event, MoveResult::Asks(_, after)) = (*client_event, then) else {
            unreachable!("a master is asked")
        };
        if let Some((_, after)) = after.iter().find(|(of, _)| *of == reply) {
            return after.clone();
        }
        let new = self.turn(*self.locals.get(number), client_event, Some(reply));
        let moves = self.known[number as usize].moves.as_mut();
        let then = moves.map(|moves| &mut moves[index].then);
        if let Some(MoveResult::Asks(_, after)) = then {
            after.push((reply, new.clone()));
        }
        new
    }
}

/// A pool of the parts of states. Each part is kept once and has a number, so that a state is a few
/// numbers. Each part has its hashes beside it: one for each order of the masters.
#[derive(Debug)]
pub(super) struct Pool<T> {
    parts: Vec<(T, [u128; ORDERS])>,
    numbers: StateSet,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Self { parts: Vec::new(), numbers: StateSet::new() }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().map(|(part, _)| part)
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.parts[number as usize].0
    }

    pub(super) fn hashes(&self, number: u32) -> &[u128; ORDERS] {
        &self.parts[number as usize].1
    }

    /// The number of this part. Parts with the same first hash are equal.
    pub(super) fn enter(&mut self, part: T, hashes: impl Fn(&T) -> [u128; ORDERS]) -> u32 {
        let of = hashes(&part);
        self.enter_with(of, || part)
    }

    /// The number of a part whose hashes are known before the part is built.
    fn enter_with(&mut self, of: [u128; ORDERS], part: impl FnOnce() -> T) -> u32 {
        let (number, is_new) = self.numbers.enter(of[0]);
        if is_new {
            self.parts.push((part(), of));
        }
        number
    }
}
