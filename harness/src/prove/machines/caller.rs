//! A client: its claim, its clock, and what it counts on.

use std::time::Duration;

use redquorum_protocol::{
    Answer, Claim, Dice, Drift, Loss, Patience, Step, Terms, Time, Token, verdict,
};

use super::fold::{Fold, ORDERS};
use super::scope::Scope;
use super::side::{number, token};
use super::{Blunder, is_over};

/// One step of a claim's clock.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// Where clocks start: late enough that no instant is taken for a set of masters.
const START: Time = Time::from_millis(1_000_000);

/// The terms of all leases, in ticks: six of TTL, one of drift, two for a round. So a round may end
/// well before the deadline, at it, or past it.
pub(super) fn terms(masters: usize) -> Terms {
    let drift = Drift { ppm: 0, fixed: TICK };
    Terms::new(masters, TICK * 6, drift, TICK * 2).expect("they fit each other")
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) claim: Claim,
    /// How many claims it has started.
    pub(super) claims: u8,
    /// How many tokens it has drawn: the latest has that number.
    pub(super) tokens: u8,
    /// Its latest attempt, and how many masters were asked in it.
    pub(super) asked: (u32, u8),
    /// The tokens of attempts that were refused, by their votes, one bit each.
    pub(super) refused: u8,
    /// The links know its waiter.
    pub(super) listens: bool,
    pub(super) clock: Time,
    /// Until when masters keep the latest token's key, at least: by the attempt, and by each round.
    pub(super) kept: Vec<Time>,
    /// Whether the watchdog was started.
    pub(super) watched: bool,
    /// The loss of its lease, and the deadline then, as it was declared.
    pub(super) lost: Option<(Loss, Time)>,
    /// Its process is dead.
    pub(super) dead: bool,
}

impl Caller {
    pub(super) const fn new() -> Self {
        Self {
            claim: Claim::Ended,
            claims: 0,
            tokens: 0,
            asked: (0, 0),
            refused: 0,
            listens: false,
            clock: START,
            kept: Vec::new(),
            watched: false,
            lost: None,
            dead: false,
        }
    }

    /// How a claim starts: with all masters asked.
    pub(super) fn patience(scope: &Scope) -> Patience {
        // With wake-ups long enough for one look at a master.
        let wait = match (scope.waits, scope.wakes) {
            (false, _) => Duration::ZERO,
            (true, false) => TICK * 100,
            (true, true) => TICK * 700,
        };
        Patience { wait, explain: false, wake_ups: scope.wakes, ..Patience::default() }
    }

    /// The token that it counts on, or tries for: its attempt is undecided or won, or its lease is
    /// neither given back nor lost. Told from the votes, not from what the claim has cleaned up.
    pub(super) fn live(&self) -> Option<u8> {
        match &self.claim {
            Claim::Acquiring(acquire) => {
                let ballot = acquire.ballot();
                let granted = ballot.which(|answer| *answer == Answer::Created);
                let quorum = redquorum_protocol::quorum(ballot.votes().len());
                // Whoever was asked alone, and refused, has refused for all.
                let alone = self.asked.1 == 1 && ballot.votes().len() > 1;
                let refuses = |answer: &Answer| matches!(answer, Answer::Taken(_));
                let refused = alone && !ballot.which(refuses).is_empty();
                let open = verdict(granted.len(), ballot.awaited().len(), quorum).is_none();
                let open = open && !refused;
                let live = acquire.failure().is_none() && (acquire.is_won() || open);
                live.then(|| number(acquire.token()))
            }
            Claim::Holding(hold) if hold.lost().is_none() => Some(number(hold.token())),
            _ => None,
        }
    }

    /// Whether it waits for another attempt, and until when it sleeps, unless it is woken. A pause since
    /// masters left its attempts unanswered is no such sleep: nothing but time ends it.
    pub(super) fn sleeps(&self) -> Option<Duration> {
        let Claim::Acquiring(acquire) = &self.claim else { return None };
        let waits = acquire.failure().is_none() && !acquire.is_won() && self.live().is_none();
        (waits && !acquire.backs_off()).then(|| acquire.next_wake().since(self.clock))
    }

    /// Remembers the token of an attempt that its votes refuse.
    pub(super) fn note_refused(&mut self) {
        let Claim::Acquiring(acquire) = &self.claim else { return };
        let ballot = acquire.ballot();
        let granted = ballot.which(|answer| *answer == Answer::Created).len();
        if self.live().is_none() && granted < redquorum_protocol::quorum(ballot.votes().len()) {
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

    /// Whether a key of this token, which this round made live, may expire.
    pub(super) fn may_expire(&self, of: u8, round: u8, blunder: Blunder) -> bool {
        if self.dead || self.live() != Some(of) {
            return true;
        }
        let early = if blunder == Blunder::NoDrift { TICK } else { Duration::ZERO };
        self.kept.get(usize::from(round)).is_none_or(|kept| self.clock.plus(early) >= *kept)
    }

    /// The next instant at which something changes for it by the mere passing of time. When a timer
    /// is due is no such instant: until it fires, nothing is different.
    pub(super) fn next_tick(&self, scope: &Scope) -> Option<Time> {
        self.live()?;
        let mut instants = self.kept.clone();
        if let Claim::Holding(hold) = &self.claim {
            instants.push(hold.deadline());
            if scope.rounds > 0 {
                // Late enough that a round ends past the deadline.
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

    /// It is done with its claim: all that was known of it is forgotten.
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
            *self = Self { claims, tokens, refused, dead, ..Self::new() };
        }
    }

    /// Its hashes, for each order of the masters: its clock is the origin of all instants.
    pub(super) fn hashes(&self, folded: bool) -> [u128; ORDERS] {
        use std::hash::Hash;
        let mut fold = Fold::at(self.clock);
        self.claim.hash(&mut fold);
        // None of it is a list right behind an instant, which would pass for a ballot.
        (self.claims, self.tokens, self.watched, self.dead).hash(&mut fold);
        (self.asked, self.refused, self.listens).hash(&mut fold);
        self.kept.hash(&mut fold);
        self.lost.hash(&mut fold);
        fold.hashes(folded)
    }
}

/// What a claim cannot decide by itself: here nothing is left to chance.
pub(super) struct Numbered {
    pub(super) tokens: u8,
    pub(super) blunder: Blunder,
}

impl Dice for Numbered {
    fn token(&mut self) -> Token {
        self.tokens += 1;
        token(if self.blunder == Blunder::OneToken { 1 } else { self.tokens })
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

/// The round of extending that a step is, or 0.
pub(super) fn round_of(step: Step) -> u8 {
    match step {
        Step::Extend(round) => u8::try_from(round).expect("rounds are bounded"),
        _ => 0,
    }
}
