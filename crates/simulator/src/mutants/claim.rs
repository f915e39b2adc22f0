//! Claim: the adapter around a claim machine. It falsifies the inputs and effects of the machine.

use std::time::Duration;

use redquorum_protocol::{
    Claim, ClaimMachine, Effect, Hold, Input, LockConfig, NodeId, NodeSet, Position, QueueEvent,
    Reply, Rng, RoundId, TOKEN_LEN, Time, Token, WaitPolicy, WakeUp,
};

use super::numbers::Numbers;
use super::votes::{Theft, VoteTheft};
use crate::client_machine::Clocks;
use redquorum_scenario::Mutant;

/// The claim of a mutant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MutantClaim {
    mutant: Mutant,
    /// The half that all tokens of the client share, under [`Mutant::OneToken`].
    root: Option<Token>,
    config: LockConfig,
    claim: Claim,
    /// How far the machine's clock is put back.
    behind: Duration,
    /// The round in which the clock was last put back.
    put_back_in: Option<RoundId>,
    votes: VoteTheft,
    numbers: Numbers,
    /// Whether an undecided attempt is under way.
    voting: bool,
    /// The attempt, and the masters that have acknowledged its SET.
    acknowledged: (u32, NodeSet),
}

/// The random numbers and hints of a claim.
struct ClaimRng<'a> {
    /// Half of every token, if all tokens share it.
    root: Option<Token>,
    mutant: Mutant,
    rng: &'a mut dyn Rng,
}

impl Rng for ClaimRng<'_> {
    fn token(&mut self) -> Token {
        let mut bytes = *self.rng.token().as_bytes();
        if let Some(root) = self.root {
            let half = TOKEN_LEN / 2;
            bytes[..half].copy_from_slice(&root.as_bytes()[..half]);
        }
        Token::new(bytes)
    }

    fn hint(&mut self) -> u64 {
        self.mutant.hint(self.rng.hint())
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        self.rng.pause(attempt)
    }

    fn random(&mut self) -> u64 {
        self.rng.random()
    }
}

/// The ingredients of a mutant's claim: the shared half of its client's tokens, if they share one,
/// and the numbers that masters reported in an earlier hold.
#[derive(Clone, Debug)]
pub struct Seed {
    pub(super) mutant: Mutant,
    pub(super) root: Option<Token>,
    pub(super) numbers: Numbers,
}

impl ClaimMachine for MutantClaim {
    type Clocks = Clocks;
    type Seed = Seed;

    const ENDS: bool = false;

    fn now(clocks: Clocks) -> Time {
        clocks.monotonic
    }

    fn acquire(
        clocks: Clocks,
        Seed { mutant, root, numbers }: Seed,
        config: LockConfig,
        policy: WaitPolicy,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    ) -> Self {
        let now = clock(mutant, clocks);
        let start = out.len();
        let mut rng = ClaimRng { root, mutant, rng };
        let claim = Claim::acquire(now, config, policy, &mut rng, out);
        let mutated = Self {
            mutant,
            root,
            config,
            claim,
            behind: Duration::ZERO,
            put_back_in: None,
            votes: VoteTheft::default(),
            numbers,
            voting: true,
            acknowledged: (0, NodeSet::EMPTY),
        };
        if mutant != Mutant::None {
            let wanted: Vec<Effect> =
                out.drain(start..).filter(|effect| mutated.wants(effect)).collect();
            out.extend(wanted);
        }
        mutated
    }

    fn handle(&mut self, clocks: Clocks, input: Input, rng: &mut dyn Rng, out: &mut Vec<Effect>) {
        let mut rng = ClaimRng { root: self.root, mutant: self.mutant, rng };
        if self.mutant == Mutant::None {
            return self.claim.handle(clocks.monotonic, input, &mut rng, out);
        }
        for input in self.falsify(clocks, input) {
            let now = self.moment(clocks, &input);
            let mut effects = Vec::new();
            self.claim.handle(now, input, &mut rng, &mut effects);
            for effect in &effects {
                match effect {
                    Effect::Send { step: RoundId::Attempt(_), .. } => self.voting = true,
                    Effect::Decided => self.voting = false,
                    _ => {}
                }
            }
            let wanted = effects.into_iter().filter(|effect| self.wants(effect));
            wanted.for_each(|effect| self.make_of(effect, out));
        }
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn reentered(&self, before: u32) -> bool {
        let Claim::Holding(hold) = &self.claim else { return false };
        match self.mutant {
            Mutant::ReentersDead => true,
            Mutant::FirstReleaseFrees => hold.lost().is_none(),
            _ => hold.handles() > before,
        }
    }

    fn next_wake(&self, clocks: Clocks) -> Time {
        match self.claim.next_wake() {
            Time::NEVER => Time::NEVER,
            _ if self.waits_for_ever() => Time::NEVER,
            wake => clocks.monotonic.plus(wake.since(self.now(clocks))),
        }
    }

    fn by_now(&self, clocks: Clocks, time: Time) -> Time {
        let now = self.now(clocks);
        let ahead = clocks.monotonic.plus(time.since(now));
        Time::ZERO.plus(ahead.since(Time::ZERO.plus(now.since(time))))
    }
}

impl MutantClaim {
    /// The inputs that the machine gets instead.
    fn falsify(&mut self, clocks: Clocks, input: Input) -> Vec<Input> {
        match input {
            // The mutations leave readings of clocks alone, and each stays with its reply.
            Input::Replied { node, step, reply: Reply::Timed { reading, reply } } => {
                let inputs = self.replied(clocks, step, (node, *reply));
                let again = |input| match input {
                    Input::Replied { node: of, step, reply } if of == node => {
                        let reply = Reply::Timed { reading, reply: Box::new(reply) };
                        Input::Replied { node: of, step, reply }
                    }
                    other => other,
                };
                inputs.into_iter().map(again).collect()
            }
            Input::Replied { node, step, reply } => self.replied(clocks, step, (node, reply)),
            Input::Wake => {
                let mut inputs = Vec::new();
                if let Some((step, theft)) = self.theft(None)
                    && self.votes.holds_back(step, theft.enough)
                    && self.claim.next_wake() <= self.now(clocks)
                {
                    inputs = inputs_of(step, self.votes.let_go());
                }
                if let Some(attempt) = self.attempt_for_numbers()
                    && self.claim.next_wake() <= self.now(clocks)
                {
                    let (mutant, quorum) = (self.mutant, self.config.quorum());
                    inputs.extend(inputs_of(
                        RoundId::Attempt(attempt),
                        self.numbers.let_go(mutant, quorum),
                    ));
                }
                inputs.push(Input::Wake);
                inputs
            }
            Input::KeepAlive(_) if self.mutant == Mutant::NoWatchdog => Vec::new(),
            Input::Abandon if self.mutant == Mutant::LeaksCancelled => Vec::new(),
            // The machine counts no handle, although the caller learns that there is one more.
            Input::Reenter if self.mutant == Mutant::FirstReleaseFrees => Vec::new(),
            Input::QueueEvent { event: QueueEvent::Free(_), .. }
                if self.mutant == Mutant::NeverWoken =>
            {
                Vec::new()
            }
            other => vec![other],
        }
    }

    fn replied(
        &mut self,
        clocks: Clocks,
        step: RoundId,
        (node, reply): (NodeId, Reply),
    ) -> Vec<Input> {
        if let RoundId::Attempt(attempt) = step
            && reply.creates()
        {
            if self.acknowledged.0 != attempt {
                self.acknowledged = (attempt, NodeSet::EMPTY);
            }
            self.acknowledged.1.insert(node);
        }
        if let (Mutant::NeverWoken, RoundId::Enqueue(_), Reply::Place { holder: None, .. }) =
            (self.mutant, step, &reply)
        {
            return Vec::new();
        }
        match self.mutant {
            Mutant::T0AfterFirstReply | Mutant::ExtendsFromReply => {
                self.put_back(clocks, step, &reply);
                vec![Input::Replied { node, step, reply }]
            }
            Mutant::ErrorIsYes
                if matches!((step, &reply), (RoundId::Attempt(_), Reply::Unknown(_))) =>
            {
                inputs_of(step, vec![(node, self.granted_as_others())])
            }
            Mutant::ServerTwice if node.index() == 0 && self.config.nodes() > 1 => {
                let twice = [NodeId::new(0), NodeId::new(1)].map(|node| (node, reply.clone()));
                inputs_of(step, twice.into())
            }
            mutant if self.attempt_for_numbers().is_some_and(|at| step == RoundId::Attempt(at)) => {
                let of = (self.config.nodes(), self.config.quorum());
                let attempt = self.attempt_for_numbers().unwrap_or_default();
                inputs_of(step, self.numbers.pass(mutant, attempt, (node, reply), of))
            }
            _ => match self.theft(Some(step)) {
                Some((step, theft)) => inputs_of(step, self.votes.pass(step, (node, reply), theft)),
                None => vec![Input::Replied { node, step, reply }],
            },
        }
    }

    /// What the client's next claim restores.
    pub(super) fn numbers(&self) -> Option<&Numbers> {
        (self.mutant == Mutant::EarlierNumber).then_some(&self.numbers)
    }

    /// The attempt under way, if this mutation affects the numbers of its grants.
    fn attempt_for_numbers(&self) -> Option<u32> {
        match &self.claim {
            Claim::Acquiring(acquire) if Numbers::are_for(self.mutant) => Some(acquire.attempt()),
            _ => None,
        }
    }

    /// The reply of a master that grants as others did.
    fn granted_as_others(&self) -> Reply {
        let grants = match &self.claim {
            Claim::Acquiring(acquire) => acquire.votes().votes(),
            _ => &[],
        };
        let granted = |vote: &redquorum_protocol::Vote| vote.reply.clone().filter(Reply::creates);
        let made_up =
            if self.config.is_fenced() { Reply::Granted { number: 1 } } else { Reply::Created };
        grants.iter().find_map(granted).unwrap_or(made_up)
    }

    /// The parameters for stealing the round under way. `None` if this mutation does not steal it
    /// or `step` is of another round.
    fn theft(&self, step: Option<RoundId>) -> Option<(RoundId, Theft)> {
        let nodes = self.config.nodes();
        let (current, voters) = match &self.claim {
            Claim::Acquiring(acquire) => {
                (RoundId::Attempt(acquire.attempt()), NodeId::all(nodes).collect())
            }
            Claim::Holding(hold) if hold.extension().0 == 0 => (self.votes.step()?, NodeSet::EMPTY),
            Claim::Holding(hold) => (RoundId::Extend(hold.extension().0), hold.members()),
            _ => return None,
        };
        let enough = match (self.mutant, current) {
            (Mutant::SmallQuorum, _) => (nodes / 2).max(1),
            (Mutant::ExtendCountsMinority, RoundId::Extend(_)) => 1,
            _ => return None,
        };
        let theft = Theft { nodes, enough, quorum: self.config.quorum(), voters };
        step.is_none_or(|step| step == current).then_some((current, theft))
    }

    /// Puts the machine's clock back to the start of its round, once the first master replies.
    fn put_back(&mut self, clocks: Clocks, step: RoundId, reply: &Reply) {
        let opened = match (&self.claim, step) {
            (Claim::Acquiring(acquire), RoundId::Attempt(attempt))
                if attempt == acquire.attempt() && self.mutant != Mutant::ExtendsFromReply =>
            {
                acquire.votes().opened()
            }
            (Claim::Holding(hold), RoundId::Extend(round)) if round == hold.extension().0 => {
                hold.votes().opened()
            }
            _ => return,
        };
        if self.put_back_in != Some(step) && !matches!(reply, Reply::Unknown(_)) {
            self.put_back_in = Some(step);
            self.behind += self.now(clocks).since(opened);
        }
    }

    /// The time that the machine gets with an input.
    fn moment(&self, clocks: Clocks, input: &Input) -> Time {
        match (&self.claim, input) {
            (Claim::Acquiring(acquire), Input::Replied { .. } | Input::Collect)
                if self.mutant == Mutant::NoDeadlineCheck =>
            {
                acquire.votes().opened()
            }
            // Nor does the mutant limit the time for which it waits for replies.
            (Claim::Acquiring(acquire), Input::Wake) if self.waits_for_ever() => {
                acquire.votes().opened()
            }
            _ => self.now(clocks),
        }
    }

    fn waits_for_ever(&self) -> bool {
        self.mutant == Mutant::NoDeadlineCheck && self.voting
    }

    /// Whether the mutant carries out an effect of the machine.
    fn wants(&self, effect: &Effect) -> bool {
        match (self.mutant, effect) {
            (Mutant::ReleaseAcknowledgedOnly, Effect::CleanUp { node, .. }) => {
                self.acknowledged.1.contains(*node)
            }
            (Mutant::ReleasesMajority, Effect::CleanUp { node, .. }) => {
                node.index() < self.config.quorum()
            }
            (Mutant::ServerTwice, Effect::Send { node, .. } | Effect::CleanUp { node, .. }) => {
                node.index() != 1
            }
            _ => true,
        }
    }

    /// Turns an effect of the machine into the mutant's effects.
    fn make_of(&self, effect: Effect, out: &mut Vec<Effect>) {
        match (self.mutant, effect) {
            (
                Mutant::CallsAlways,
                Effect::CleanUp { node, step: step @ RoundId::Cleanup(_), token, leave, .. },
            ) => out.push(Effect::CleanUp { node, step, token, wake_up: WakeUp::First, leave }),
            (Mutant::KeepsPlace, Effect::CleanUp { node, step, token, wake_up, .. }) => {
                out.push(Effect::CleanUp { node, step, token, wake_up, leave: None });
            }
            (Mutant::KeepsPlace, Effect::Dequeue { .. }) => {}
            (Mutant::LosesPlace, Effect::Enqueue { node, step, waiter_id, .. }) => {
                out.push(Effect::Dequeue { node, waiter_id, wake: false });
                out.push(Effect::Enqueue { node, step, waiter_id, position: Position::Last });
            }
            (_, effect) => out.push(effect),
        }
    }

    fn now(&self, clocks: Clocks) -> Time {
        let real = clock(self.mutant, clocks);
        Time::ZERO.plus(real.since(Time::ZERO.plus(self.behind)))
    }

    /// Whether the holder finds its lease held.
    pub(super) fn seems_held(&self, clocks: Clocks, hold: &Hold) -> bool {
        self.mutant == Mutant::SilentLoss
            || (hold.lost().is_none() && self.now(clocks) < hold.deadline())
    }
}

/// The clock by which the mutant measures.
pub(super) fn clock(mutant: Mutant, clocks: Clocks) -> Time {
    match mutant {
        Mutant::WallClock => clocks.wall,
        Mutant::ForgetsSuspend => clocks.awake,
        _ => clocks.monotonic,
    }
}

fn inputs_of(step: RoundId, replies: Vec<(NodeId, Reply)>) -> Vec<Input> {
    replies.into_iter().map(|(node, reply)| Input::Replied { node, step, reply }).collect()
}
