//! A client: its claim, its clock, and the keys that it relies on.

use std::time::Duration;

use redquorum_protocol::{
    Claim, Drift, LockConfig, Loss, Reply, Rng, RoundId, Time, Token, WaitPolicy, verdict,
};

use super::canonical::{Canonical, ORDERS};
use super::connection::{number, token};
use super::scope::Scope;
use super::{Mutant, is_over};

/// One step of a claim's clock.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// The initial time of clocks: so late that no instant can be mistaken for a set of masters.
const START: Time = Time::from_millis(1_000_000);

/// The options of all leases, in ticks: a TTL of six, a drift of one, two for a round. So a round
/// may end well before the deadline, at it, or past it.
pub(super) fn config(masters: usize) -> LockConfig {
    let drift = Drift { ppm: 0, fixed: TICK };
    LockConfig::new(masters, TICK * 6, drift, TICK * 2).expect("they fit each other")
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Caller {
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
    pub(super) const fn new() -> Self {
        Self {
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
                let quorum = redquorum_protocol::quorum(votes.votes().len());
                // If only one master was asked, its refusal counts for all.
                let alone = self.asked.1 == 1 && votes.votes().len() > 1;
                let refuses = |reply: &Reply| matches!(reply, Reply::Taken(_));
                let refused = alone && !votes.which(refuses).is_empty();
                let open = verdict(granted.len(), votes.awaited().len(), quorum).is_none();
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
            *self = Self { claims, tokens, refused, dead, ..Self::new() };
        }
    }

    /// Its hashes, for each order of the masters. Its clock is the origin of all instants.
    pub(super) fn hashes(&self, canonical: bool) -> [u128; ORDERS] {
        use std::hash::Hash;
        let mut fold = Canonical::at(self.clock);
        self.claim.hash(&mut fold);
        // None of these values is a list directly after an instant, which would look like votes.
        (self.claims, self.tokens, self.watched, self.dead).hash(&mut fold);
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
        token(if self.mutant == Mutant::OneToken { 1 } else { self.tokens })
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
