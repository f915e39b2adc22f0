//! Mutants: clients with a deliberate bug. They show that scenarios catch broken locks.
//!
//! A mutant drives the shipped state machines, and nothing in them knows of it. An adapter between
//! a machine and its environment falsifies the time, the votes, the random numbers, the effects, or
//! the bytes on the wire. Each mutation is a mistake that some lock library has made.
//!
//! [`Mutant`] lists them all, with what needs no memory. Those that no client process has are in
//! the drivers of the model check.
//!
//! [`MutantClaim`] is the adapter around a claim. The conduct of a mutant makes a client process
//! ([`client_machine`](crate::client_machine)) drive it instead of the claim.

use std::sync::Arc;
use std::time::Duration;

use crate::client_machine::{Clocks, Conduct};
use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Claim, ClaimMachine, Drift, Effect, Hold, Input, LockConfig, NodeId, NodeSet, Position,
    QueueEvent, Quorum, Reply, Rng, RoundId, RunId, TOKEN_LEN, Time, Token, WaitPolicy, WakeUp,
};
use redquorum_redis_model::{Request, ScriptMutant};
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::Options;

/// The request that the mutant sends for a command. The reply is read like one to the command.
pub fn request(mutant: Mutant, mut command: Command) -> Request {
    match (mutant, &command) {
        (Mutant::PlainDel, Command::Delete { key, .. }) => Request::words(&[b"DEL", key]),
        (Mutant::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
            Request::words(&[b"PEXPIRE", key, ttl_ms.to_string().as_bytes()])
        }
        _ => match script_mutant(mutant).filter(|script| script.is_about(&command)) {
            Some(script_mutant) => Request::Mutant(command, script_mutant),
            None => {
                replace_token(mutant, &mut command);
                Request::Lock(command)
            }
        },
    }
}

/// What the mutant's scripts leave out, or do wrong.
#[must_use]
pub const fn script_mutant(mutant: Mutant) -> Option<ScriptMutant> {
    match mutant {
        Mutant::CertifiesAnywhere => Some(ScriptMutant::Uncompared),
        Mutant::HintUnclamped => Some(ScriptMutant::Unclamped),
        Mutant::StaysAtEnd => Some(ScriptMutant::Endless),
        Mutant::PassesWaiters => Some(ScriptMutant::PassesWaiters),
        Mutant::Evicts => Some(ScriptMutant::Evicts),
        Mutant::NewestEnd => Some(ScriptMutant::NewestEnd),
        Mutant::KeepsEnd => Some(ScriptMutant::KeepsEnd),
        Mutant::CountsPermits => Some(ScriptMutant::CountsPermits),
        Mutant::RepairsUnmarked => Some(ScriptMutant::RepairsUnmarked),
        Mutant::ExtendsUnadmitted => Some(ScriptMutant::ExtendsUnadmitted),
        _ => None,
    }
}

/// Replaces the token of a command by the value that the mutant sets for it.
fn replace_token(mutant: Mutant, command: &mut Command) {
    if let Command::Set { token, .. }
    | Command::Guarded { token, .. }
    | Command::Keep { token, .. }
    | Command::Certify { token, .. }
    | Command::Delete { token, .. } = command
    {
        *token = mutant.on_the_wire(*token);
    }
}

impl Conduct for Mutant {
    type Claim = MutantClaim;

    const CLOCKS_JUMP: bool = true;
    const REMEMBERS: bool = true;

    fn seed(self, root: &mut dyn FnMut() -> Token, former: Option<&MutantClaim>) -> Seed {
        // Drawn only for the mutant that needs it. All other mutants draw the same numbers as the
        // library.
        let root = (self == Self::OneToken).then(root);
        let numbers = former.and_then(MutantClaim::numbers).cloned().unwrap_or_default();
        Seed { mutant: self, root, numbers }
    }

    fn options(self, options: Options) -> Options {
        Options { fair: options.fair && self != Self::JumpsQueue, ..options }
    }

    fn quorum(self, quorum: Quorum) -> Quorum {
        if self == Self::CountsUnion { Quorum::of(quorum.nodes()) } else { quorum }
    }

    fn drift(self, drift: Drift) -> Drift {
        Self::drift(self, drift)
    }

    fn greeting(self, node: NodeId, mut greeting: Greeting) -> Greeting {
        if self == Self::ServerTwice {
            // The same server passes for a different one under each address.
            let twice = |RunId(id): RunId| RunId(Arc::from(format!("{id} as {node}")));
            greeting.run_id = greeting.run_id.map(twice);
        }
        greeting
    }

    fn clock(self, clocks: Clocks) -> Time {
        clock(self, clocks)
    }

    fn clock_to_collect(self, clocks: Clocks) -> Time {
        // The mutant does not look at the clock here, either.
        if self == Self::NoDeadlineCheck { Time::ZERO } else { clock(self, clocks) }
    }

    fn keeps(self, claim: &MutantClaim) -> bool {
        let won = |it: &Claim| matches!(it, Claim::Acquiring(acquire) if acquire.is_won());
        self == Self::KeepsSome && won(claim.claim())
    }

    fn deadline(self, claim: &MutantClaim, hold: &Hold, clocks: Clocks) -> Time {
        claim.by_now(clocks, hold.deadline())
    }

    fn seems_held(self, claim: &MutantClaim, hold: &Hold, clocks: Clocks) -> bool {
        claim.seems_held(clocks, hold)
    }

    fn reports_loss(self) -> bool {
        self != Self::SilentLoss
    }

    fn on_the_wire(self, token: Token) -> Token {
        Self::on_the_wire(self, token)
    }
}

/// The claim of a mutant: the adapter falsifies the inputs and effects of the machine.
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
        let token = self.rng.token();
        let Some(root) = self.root else { return token };
        let half = TOKEN_LEN / 2;
        token.with(|bytes| bytes[..half].copy_from_slice(&root.as_bytes()[..half]))
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
    mutant: Mutant,
    root: Option<Token>,
    numbers: Numbers,
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
                    let (mutant, quorum) = (self.mutant, self.config.quorum().size());
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
                let of = (self.config.nodes(), self.config.quorum().size());
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
    fn numbers(&self) -> Option<&Numbers> {
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
        let theft = Theft { nodes, enough, quorum: self.config.quorum().size(), voters };
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
                node.index() < self.config.quorum().size()
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
    fn seems_held(&self, clocks: Clocks, hold: &Hold) -> bool {
        self.mutant == Mutant::SilentLoss
            || (hold.lost().is_none() && self.now(clocks) < hold.deadline())
    }
}

/// The clock by which the mutant measures.
fn clock(mutant: Mutant, clocks: Clocks) -> Time {
    match mutant {
        Mutant::WallClock => clocks.wall,
        Mutant::ForgetsSuspend => clocks.awake,
        _ => clocks.monotonic,
    }
}

fn inputs_of(step: RoundId, replies: Vec<(NodeId, Reply)>) -> Vec<Input> {
    replies.into_iter().map(|(node, reply)| Input::Replied { node, step, reply }).collect()
}

/// The parameters for stealing a round.
#[derive(Clone, Copy)]
struct Theft {
    /// The number of masters.
    nodes: usize,
    /// How many real votes are enough for the mutant.
    enough: usize,
    /// How many votes the machine requires.
    quorum: usize,
    /// The masters whose votes the machine counts.
    voters: NodeSet,
}

/// The votes of one round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct VoteTheft {
    step: Option<RoundId>,
    /// Masters that are really in favour.
    favour: NodeSet,
    /// Those of them whose reply equals the latest one: with fencing tokens, the same number.
    alike: Vec<(NodeId, Reply)>,
    /// Masters with a made-up vote. Their real replies are not passed on.
    made_up: NodeSet,
    /// The other replies. They are held back, or the round would be lost before it is stolen.
    held_back: Vec<(NodeId, Reply)>,
}

impl VoteTheft {
    /// Takes a reply in a round and returns the replies that the machine gets.
    fn pass(
        &mut self,
        step: RoundId,
        (node, reply): (NodeId, Reply),
        theft: Theft,
    ) -> Vec<(NodeId, Reply)> {
        if self.step != Some(step) {
            *self = Self { step: Some(step), ..Self::default() };
        }
        if self.made_up.contains(node) {
            return Vec::new();
        }
        let grants = matches!(step, RoundId::Attempt(_));
        if if grants { reply.creates() } else { reply == Reply::Kept } {
            self.favour.insert(node);
            self.alike.retain(|(_, known)| *known == reply);
            self.alike.push((node, reply.clone()));
            let mut replies = vec![(node, reply.clone())];
            if self.favour.len() == theft.enough {
                replies.extend(self.make_up(theft).map(|node| (node, reply.clone())));
            }
            return replies;
        }
        if reply == Reply::Created {
            // A repair: neither for nor against.
            return vec![(node, reply)];
        }
        self.held_back.push((node, reply));
        let stolen = self.favour.len() >= theft.enough;
        if !stolen && self.favour.len() + self.held_back.len() >= theft.nodes {
            self.let_go()
        } else {
            Vec::new()
        }
    }

    /// Makes up the votes that are missing to a quorum, for masters that are not in favour.
    fn make_up(&mut self, theft: Theft) -> impl Iterator<Item = NodeId> {
        let alike: NodeSet = self.alike.iter().map(|(node, _)| *node).collect();
        let real = alike.and(theft.voters).len();
        let missing = theft.quorum.saturating_sub(real);
        let others = |node: &NodeId| theft.voters.contains(*node) && !self.favour.contains(*node);
        let chosen: Vec<_> = NodeId::all(theft.nodes).filter(others).take(missing).collect();
        chosen.iter().for_each(|node| self.made_up.insert(*node));
        chosen.into_iter()
    }

    /// Whether replies of this round are held back and the round is not stolen yet.
    fn holds_back(&self, step: RoundId, enough: usize) -> bool {
        self.step == Some(step) && !self.held_back.is_empty() && self.favour.len() < enough
    }

    /// The round of these votes.
    const fn step(&self) -> Option<RoundId> {
        self.step
    }

    /// Ends a round that was not stolen: returns the replies that were held back.
    fn let_go(&mut self) -> Vec<(NodeId, Reply)> {
        std::mem::take(&mut self.held_back)
    }
}

/// The grants of one attempt, and the numbers of an earlier one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Numbers {
    attempt: u32,
    /// Grants that the machine has not received, and how many masters have replied in all.
    held_back: Vec<(NodeId, u64)>,
    replied: usize,
    /// The numbers of the masters in the first hold in which they granted.
    first: Vec<(NodeId, u64)>,
}

impl Numbers {
    /// Whether a mutation affects the numbers of grants.
    const fn are_for(mutant: Mutant) -> bool {
        matches!(
            mutant,
            Mutant::LargestGrant
                | Mutant::MedianGrant
                | Mutant::FollowsLargest
                | Mutant::EarlierNumber
        )
    }

    /// Takes a reply to an attempt and returns the replies that the machine gets. There are `nodes`
    /// masters, of which a quorum is needed.
    fn pass(
        &mut self,
        mutant: Mutant,
        attempt: u32,
        (node, reply): (NodeId, Reply),
        (nodes, quorum): (usize, usize),
    ) -> Vec<(NodeId, Reply)> {
        if self.attempt != attempt {
            let first = std::mem::take(&mut self.first);
            *self = Self { attempt, first, ..Self::default() };
        }
        self.replied += 1;
        let Reply::Granted { number } = reply else {
            let mut replies = vec![(node, reply)];
            if mutant == Mutant::FollowsLargest && self.replied == nodes {
                replies.extend(self.let_go(mutant, quorum));
            }
            return replies;
        };
        if mutant == Mutant::EarlierNumber {
            let number = match self.first.iter().find(|(known, _)| *known == node) {
                Some((_, number)) => *number,
                None => {
                    self.first.push((node, number));
                    number
                }
            };
            return vec![(node, Reply::Granted { number })];
        }
        self.held_back.push((node, number));
        // To find the largest number of all, the mutant waits for all replies.
        let enough = if mutant == Mutant::FollowsLargest {
            self.replied == nodes
        } else {
            self.held_back.len() >= quorum
        };
        if enough { self.let_go(mutant, quorum) } else { Vec::new() }
    }

    /// Ends a round that is over or has enough grants: returns the grants as the mutant wants them.
    fn let_go(&mut self, mutant: Mutant, quorum: usize) -> Vec<(NodeId, Reply)> {
        let grants = std::mem::take(&mut self.held_back);
        let mut sorted: Vec<u64> = grants.iter().map(|(_, number)| *number).collect();
        sorted.sort_unstable();
        let agree = sorted.windows(quorum).any(|some| some.first() == some.last());
        let Some(largest) = sorted.last().copied().filter(|_| grants.len() >= quorum) else {
            return grants.into_iter().map(granted).collect();
        };
        match mutant {
            Mutant::LargestGrant => {
                grants.into_iter().map(|(node, _)| granted((node, largest))).collect()
            }
            Mutant::MedianGrant => {
                let median = sorted[(sorted.len() - 1) / 2];
                grants.into_iter().map(|(node, _)| granted((node, median))).collect()
            }
            // Of exactly a quorum of numbers, the machine certifies the largest. The adapter hides
            // the smaller numbers of the other masters.
            _ if !agree => {
                let mut spare = grants.len() - quorum;
                let mut numbers: Vec<(NodeId, u64)> = grants;
                numbers.sort_unstable_by_key(|(_, number)| *number);
                let hide = |grant: (NodeId, u64)| {
                    if spare > 0 {
                        spare -= 1;
                        return (grant.0, Reply::Created);
                    }
                    granted(grant)
                };
                numbers.into_iter().map(hide).collect()
            }
            _ => grants.into_iter().map(granted).collect(),
        }
    }
}

const fn granted((node, number): (NodeId, u64)) -> (NodeId, Reply) {
    (node, Reply::Granted { number })
}
