//! Acquire: attempts until one is won or the wait is over.
//!
//! One attempt is a round of `SET NX PX` with a fresh token (R4), its verdict (R1–R3), and,
//! unless it is won, its clean-up (R5). Driven by [`Claim`](crate::Claim), which turns a won
//! attempt into a [`Hold`](crate::Hold).

use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Ask, Dice, Effect, Step};
use crate::quorum::{NodeId, NodeSet};
use crate::terms::Terms;
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Answer, Ballot, Cause, Holder, verdict};

/// Why an acquire ended without a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Masters answered, and somebody else holds too many of them.
    Taken,
    /// Too few masters answered at all.
    NoQuorum,
    /// A quorum granted, but the deadline had passed before the caller had the lease.
    TooLate,
}

/// How long an acquire tries, and what it does when it is refused for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Patience {
    /// How long after the first attempt the last one starts, if none was won before. Zero: one
    /// attempt.
    pub wait: Duration,
    /// Before reporting that the resource is taken, wait up to one node timeout for the
    /// clean-up to say who holds it.
    pub explain: bool,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acquire {
    terms: Terms,
    give_up: Time,
    explain: bool,
    attempt: u32,
    token: Token,
    ballot: Ballot,
    /// Masters that answered the clean-up of this attempt, whatever they said.
    cleaned: NodeSet,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The masters are asked.
    Voting,
    /// A quorum granted; the caller has not come for it yet.
    Won,
    /// The attempt failed; the next one starts then.
    Pausing { until: Time },
    /// The last attempt was refused; who holds the key is on its way.
    Explaining { until: Time },
    /// It is over.
    Failed(Failure),
}

impl Acquire {
    /// Starts the first attempt.
    pub(crate) fn start(
        now: Time,
        terms: Terms,
        patience: Patience,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) -> Self {
        let mut acquire = Self {
            terms,
            give_up: now.plus(patience.wait),
            explain: patience.explain,
            attempt: 0,
            token: dice.token(),
            ballot: Ballot::open(terms.nodes(), now),
            cleaned: NodeSet::EMPTY,
            state: State::Voting,
        };
        acquire.ask(now, out);
        acquire
    }

    /// Asks all masters, in a new round. `now` becomes t0: nothing of this attempt was sent
    /// before it (R1).
    fn ask(&mut self, now: Time, out: &mut Vec<Effect>) {
        // Around once in four thousand million attempts, of which no late answer is left by then.
        self.attempt = self.attempt.wrapping_add(1);
        self.ballot = Ballot::open(self.terms.nodes(), now);
        self.cleaned = NodeSet::EMPTY;
        self.state = State::Voting;
        let ask = Ask::Set { token: self.token, ttl_ms: self.terms.ttl_ms() };
        let step = Step::Attempt(self.attempt);
        out.extend(NodeId::all(self.terms.nodes()).map(|node| Effect::Send { node, step, ask }));
    }

    pub(crate) fn answered(
        &mut self,
        now: Time,
        step: Step,
        node: NodeId,
        answer: Answer,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        match step {
            Step::Attempt(attempt) if attempt == self.attempt => {
                if self.ballot.record(now, node, answer) && self.state == State::Voting {
                    self.judge(now, dice, out);
                }
            }
            Step::Cleanup(attempt) if attempt == self.attempt => {
                if let Answer::Taken(holder) = answer {
                    self.ballot.explain(node, holder);
                }
                self.cleaned.insert(node);
                self.check_explained(out);
            }
            // An answer to an earlier attempt: its clean-up is in the links' hands.
            _ => {}
        }
    }

    pub(crate) fn wake(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        match self.state {
            State::Voting if now >= self.round_ends() => {
                self.ballot.close(now);
                self.judge(now, dice, out);
            }
            State::Pausing { until } if now >= until => {
                self.token = dice.token();
                self.ask(now, out);
            }
            State::Explaining { until } if now >= until => {
                self.state = State::Failed(Failure::Taken);
                out.push(Effect::Decided);
            }
            _ => {}
        }
    }

    /// When it wants to be woken next.
    pub fn next_wake(&self) -> Time {
        match self.state {
            State::Voting => self.round_ends(),
            State::Pausing { until } | State::Explaining { until } => until,
            State::Won | State::Failed(_) => Time::NEVER,
        }
    }

    /// The caller comes for the lease: the last look at the clock (R1). Whoever sleeps between
    /// the last vote and this line gets no expired lease.
    pub(crate) fn collect(
        &mut self,
        now: Time,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) -> bool {
        match self.state {
            State::Won if now < self.deadline() => true,
            State::Won => {
                self.fail(now, Failure::TooLate, dice, out);
                false
            }
            _ => false,
        }
    }

    /// The caller is gone: whatever the attempt may have set is owed its clean-up.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Voting | State::Won) {
            self.clean_up(out);
        }
    }

    fn judge(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        let granted = self.ballot.which(|answer| *answer == Answer::Created).len();
        match verdict(granted, self.ballot.awaited().len(), self.terms.quorum()) {
            Some(true) if now < self.deadline() => {
                self.state = State::Won;
                out.push(Effect::Decided);
            }
            Some(true) => self.fail(now, Failure::TooLate, dice, out),
            Some(false) => {
                let unknown =
                    self.ballot.which(|answer| matches!(answer, Answer::Unknown(_))).len();
                let reachable = self.terms.nodes() - unknown >= self.terms.quorum();
                let why = if reachable { Failure::Taken } else { Failure::NoQuorum };
                self.fail(now, why, dice, out);
            }
            None => {}
        }
    }

    fn fail(&mut self, now: Time, why: Failure, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.clean_up(out);
        if now < self.give_up && !self.is_shut_down() {
            // The pause is cut at the end of the wait, where one last attempt is made.
            let until = now.plus(dice.pause(self.attempt)).min(self.give_up);
            self.state = State::Pausing { until };
            // Its next wake lies before the end of the round, for which its driver waits.
            out.push(Effect::Decided);
        } else if why == Failure::Taken && self.explain {
            self.state = State::Explaining { until: now.plus(self.terms.node_timeout()) };
            self.check_explained(out);
        } else {
            self.state = State::Failed(why);
            out.push(Effect::Decided);
        }
    }

    fn clean_up(&self, out: &mut Vec<Effect>) {
        let step = Step::Cleanup(self.attempt);
        out.extend(Effect::settle_all(self.terms.nodes(), step, self.token));
    }

    fn check_explained(&mut self, out: &mut Vec<Effect>) {
        let open = self.ballot.which(|answer| *answer == Answer::Taken(Holder::NotAsked));
        // A clean-up that names nobody is an answer too: the other one has let go meanwhile.
        if open.and(self.cleaned) == open && matches!(self.state, State::Explaining { .. }) {
            self.state = State::Failed(Failure::Taken);
            out.push(Effect::Decided);
        }
    }

    /// Whether there will never be a quorum again.
    fn is_shut_down(&self) -> bool {
        let gone = self.ballot.which(|answer| *answer == Answer::Unknown(Cause::ShutDown)).len();
        gone > self.terms.nodes() - self.terms.quorum()
    }

    fn round_ends(&self) -> Time {
        self.ballot.opened().plus(self.terms.node_timeout())
    }

    /// t0 + TTL − drift (R1): it does not depend on when the answers came.
    pub(crate) fn deadline(&self) -> Time {
        self.ballot.opened().plus(self.terms.validity())
    }

    /// Whether a quorum granted and the lease waits to be collected.
    pub fn is_won(&self) -> bool {
        self.state == State::Won
    }

    /// Why it ended without a lease, once it did.
    pub fn failure(&self) -> Option<Failure> {
        match self.state {
            State::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// The attempt under way, or the last one; counted from 1.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Its token.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Its votes.
    pub const fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    pub(crate) const fn terms(&self) -> Terms {
        self.terms
    }
}
