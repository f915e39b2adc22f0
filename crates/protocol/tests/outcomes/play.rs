//! Shared parts of the tests: products and orders, one claim and its effects, the oracle.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{
    Cause, Claim, Drift, Effect, Extension, Holder, Input, LockConfig, Loss, NodeId, Reply, Rng,
    RoundId, TOKEN_LEN, Time, Token, Turn, VoteRequest, WaitPolicy, WaiterId,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const START: Time = Time::from_millis(1_000);
pub(crate) const ONCE: WaitPolicy = WaitPolicy {
    wait: Duration::ZERO,
    explain: false,
    wake_ups: false,
    fair: false,
    turn: Turn::First,
};

/// The outcome of one command on one master.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Said {
    Granted,
    Refused,
    Error,
    Never,
    Late,
}
pub(crate) use Said::{Error, Granted, Late, Never, Refused};

/// All combinations for `masters` masters: 5^N.
pub(crate) fn product(masters: usize) -> impl Iterator<Item = Vec<Said>> {
    let all = [Granted, Refused, Error, Never, Late];
    let count = 5_usize.pow(u32::try_from(masters).unwrap());
    (0..count).map(move |number| {
        (0..masters).map(|at| all[number / 5_usize.pow(u32::try_from(at).unwrap()) % 5]).collect()
    })
}

/// All orders in which the replies that come in time can arrive.
pub(crate) fn orders(said: &[Said]) -> Vec<Vec<usize>> {
    pub(crate) fn grow(rest: &[usize], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if rest.is_empty() {
            all.push(so_far.clone());
        }
        for (at, master) in rest.iter().enumerate() {
            so_far.push(*master);
            grow(&[&rest[..at], &rest[at + 1..]].concat(), so_far, all);
            so_far.pop();
        }
    }
    let in_time: Vec<usize> =
        (0..said.len()).filter(|at| !matches!(said[*at], Never | Late)).collect();
    let mut all = Vec::new();
    grow(&in_time, &mut Vec::new(), &mut all);
    all
}

pub(crate) fn late(said: &[Said]) -> impl Iterator<Item = usize> {
    (0..said.len()).filter(|at| said[*at] == Late)
}

/// Tokens count up, and pauses are 5 ms.
#[derive(Default)]
pub(crate) struct Count(pub(crate) u8);

impl Rng for Count {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new([self.0; TOKEN_LEN])
    }

    fn hint(&mut self) -> u64 {
        1_000
    }

    fn pause(&mut self, _attempt: u32) -> Duration {
        5 * MS
    }

    fn random(&mut self) -> u64 {
        0
    }
}

/// One claim and all its effects.
pub(crate) struct Play {
    pub(crate) claim: Claim,
    pub(crate) rng: Count,
    pub(crate) said: Vec<Effect>,
    pub(crate) now: Time,
}

impl Play {
    pub(crate) fn acquire(masters: usize, policy: WaitPolicy) -> Self {
        Self::acquire_on(terms(masters), policy)
    }

    pub(crate) fn acquire_fenced(masters: usize) -> Self {
        Self::acquire_on(terms(masters).with_fencing(60_000 * MS).unwrap(), ONCE)
    }

    pub(crate) fn acquire_on(terms: LockConfig, policy: WaitPolicy) -> Self {
        let (mut rng, mut said) = (Count::default(), Vec::new());
        let claim = Claim::acquire(START, terms, policy, &mut rng, &mut said);
        Self { claim, rng, said, now: START }
    }

    /// A collected lease whose masters had these outcomes.
    pub(crate) fn hold(said: &[Said]) -> Self {
        let mut play = Self::acquire(said.len(), ONCE);
        (0..said.len()).for_each(|at| play.hear(RoundId::Attempt(1), at, vote(said[at], at)));
        play.tell(Input::Collect);
        assert!(matches!(play.claim, Claim::Holding(_)));
        play.said.clear();
        play
    }

    pub(crate) fn tell(&mut self, input: Input) {
        self.claim.handle(self.now, input, &mut self.rng, &mut self.said);
    }

    pub(crate) fn hear(&mut self, step: RoundId, at: usize, answer: Option<Reply>) {
        if let Some(answer) = answer {
            self.tell(Input::Answered { node: NodeId::new(at), step, answer });
        }
    }

    pub(crate) fn wake_at(&mut self, time: Time) {
        self.now = time;
        self.tell(Input::Wake);
    }

    /// How often each master received the clean-up of `token`.
    pub(crate) fn settled(&self, masters: usize, token: u8) -> Vec<usize> {
        let token = Token::new([token; TOKEN_LEN]);
        let of = |at| {
            let told = |effect: &&Effect| {
                matches!(effect, Effect::CleanUp { node, token: of, .. }
                if *node == NodeId::new(at) && *of == token)
            };
            self.said.iter().filter(told).count()
        };
        (0..masters).map(of).collect()
    }

    /// The waiter that leaves the queue of each master with the clean-up there.
    pub(crate) fn left_with(&self) -> Vec<Option<WaiterId>> {
        let leave = |effect: &Effect| match effect {
            Effect::CleanUp { leave, .. } => Some(*leave),
            _ => None,
        };
        self.said.iter().filter_map(leave).collect()
    }

    pub(crate) fn asked(&self) -> Vec<(usize, VoteRequest)> {
        let ask = |effect: &Effect| match effect {
            Effect::Send { node, ask, .. } => Some((node.index(), *ask)),
            _ => None,
        };
        self.said.iter().filter_map(ask).collect()
    }

    /// `Some(won)` once the acquire is decided.
    pub(crate) fn verdict(&self) -> Option<bool> {
        let Claim::Acquiring(acquire) = &self.claim else { panic!("{:?}", self.claim) };
        if acquire.is_won() { Some(true) } else { acquire.failure().map(|_| false) }
    }

    pub(crate) fn extension(&self) -> Extension {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.extension().1
    }

    pub(crate) fn deadline(&self) -> Time {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.deadline()
    }

    pub(crate) fn handles(&self) -> u32 {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.handles()
    }

    pub(crate) fn lost(&self) -> Option<Loss> {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold.lost()
    }
}

pub(crate) fn terms(masters: usize) -> LockConfig {
    LockConfig::new(masters, 1_000 * MS, Drift::default(), 50 * MS).unwrap()
}

pub(crate) fn unknown(at: usize) -> Reply {
    let causes = [Cause::Error(Arc::from("ERR")), Cause::Disconnected, Cause::Stalled];
    Reply::Unknown(causes[at % 3].clone())
}

pub(crate) fn refusal(at: usize) -> Reply {
    if at.is_multiple_of(2) { Reply::Absent } else { Reply::Taken(Holder::NoExpiry) }
}

pub(crate) fn vote(said: Said, at: usize) -> Option<Reply> {
    match said {
        Granted | Late => Some(Reply::Created),
        Refused => Some(Reply::Taken(Holder::NotAsked)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

/// The reply to a `Keep`: a master with the key keeps it, another one may have repaired it.
pub(crate) fn kept(said: Said, at: usize, member: bool) -> Option<Reply> {
    match said {
        Granted | Late if member || at.is_multiple_of(2) => Some(Reply::Kept),
        Granted | Late => Some(Reply::Created),
        Refused => Some(refusal(at)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

pub(crate) fn deleted(said: Said, at: usize) -> Option<Reply> {
    match said {
        Granted | Late => Some(Reply::Deleted),
        Refused => Some(refusal(at)),
        Error => Some(unknown(at)),
        Never => None,
    }
}

pub(crate) fn count(said: &[Said], heard: &[usize], what: &[Said]) -> usize {
    heard.iter().filter(|at| what.contains(&said[**at])).count()
}

/// The verdict, if all possible replies of `awaited` masters agree on it.
pub(crate) fn stands(yes: usize, awaited: usize, masters: usize) -> Option<bool> {
    let majority = |yes: usize| 2 * yes > masters;
    let ways: Vec<bool> = (0..=awaited).map(|more| majority(yes + more)).collect();
    ways.iter().all(|way| *way == ways[0]).then_some(ways[0])
}
