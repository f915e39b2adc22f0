//! Transition function: computes the state after an event. It drives the machines as the Tokio
//! shell does.
//!
//! As in the shell, the driver executes the effects of a claim in their order. A notification that
//! a link returns at once goes to the claim before the next effect, and the resulting effects come
//! last.

use redquorum_protocol::{
    Claim, Effect, Input, LinkInput, LockConfig, NodeId, QueueEvent, Reply, RoundId, Time,
    WaiterId, WakeUp, quorum,
};

use super::super::Broken;
use super::caller::{Caller, Local, Move, MoveResult, Numbered, TICK, config, round_of};
use super::connection::{Connection, Notification, Notifications, key};
use super::event::{Act, ClientEvent, Event, LinkEvent};
use super::master::{Held, Master, MasterReply, Request, left};
use super::scope::Fault;
use super::{CLIENTS, MASTERS, Machines, Mutant, Scope, State, rules};

/// All clients, one bit each.
const ALL: u8 = (1 << CLIENTS) - 1;

/// The changes that one event makes to one client.
struct Turn<'m> {
    scope: &'m Scope,
    mutant: Mutant,
    caller: Caller,
    sides: [Option<Connection>; MASTERS],
    known: [&'m Connection; MASTERS],
    /// A timer of its claim fired, and no attempt has begun: it looks at a master.
    looks: bool,
    broken: Option<Broken>,
}

impl Machines {
    /// The state after an event.
    pub(super) fn happen(&mut self, from: &State, event: Event) -> Result<State, Broken> {
        let mut state = *from;
        let (client, index) = match event {
            Event::Expire(master, of) => {
                state.held[usize::from(master)].remove(of & 1, of >> 1);
                return Ok(state);
            }
            Event::GiveBack(master) => {
                let at = usize::from(master);
                state.held[at] = Held::No;
                state.given_back |= 1 << master;
                let woken = self.master(&mut state, at).wake();
                self.wake(&mut state, at, woken);
                return Ok(state);
            }
            Event::Lapse(master, place) => {
                let queue = &mut state.queues[usize::from(master)];
                let lapsed = queue.iter().nth(place.into()).expect("it was listed");
                queue.leave(lapsed);
                state.spent.spend(Fault::Lapse);
                state.lossy = ALL;
                return Ok(state);
            }
            Event::Move(client, index) => (client, usize::from(index)),
        };
        let number = from.locals[usize::from(client)];
        let known = &self.known[number as usize];
        let Move { client_event, fault, then, .. } = &known.moves()[index];
        fault.iter().for_each(|fault| state.spent.spend(*fault));
        match client_event {
            ClientEvent::Between(_, LinkEvent::Miss) => state.lossy = ALL,
            ClientEvent::Between(..) | ClientEvent::Act(Act::Die) if fault.is_some() => {
                // It may have had its turn, and it may have been about to wake another waiter.
                if known.has_wake_up || known.goes_on() {
                    state.lossy |= ALL ^ 1 << client;
                }
                if let ClientEvent::Between(master, LinkEvent::Cut) = client_event {
                    // With the reply to its look.
                    state.looked[usize::from(client)] &= !(1 << *master);
                }
            }
            _ => {}
        }
        match (then, client_event) {
            (MoveResult::Asks(request, _), ClientEvent::Between(master, link_event)) => {
                let (master, request, link_event) = (usize::from(*master), *request, *link_event);
                let (reply, woken) = self.master(&mut state, master).execute(client, request);
                if self.scope.wakes {
                    self.note_leftover(&mut state, client, (master, request, link_event));
                    self.note(&mut state, client, (master, request, reply));
                    self.note_look(&mut state, client, (master, request, link_event));
                }
                state.locals[usize::from(client)] = self.after(number, index, reply)?;
                self.wake(&mut state, master, woken);
            }
            (MoveResult::Becomes(local), _) => state.locals[usize::from(client)] = local.clone()?,
            (MoveResult::Asks(..), ClientEvent::Act(_)) => {
                unreachable!("masters are asked by commands")
            }
        }
        Ok(state)
    }

    /// A master in its state.
    fn master<'s>(&self, state: &'s mut State, at: usize) -> Master<'s, impl Fn(u8) -> bool> {
        let sides = state.locals.map(|local| self.locals.get(local).sides[at]);
        let subscribed = sides.map(|side| self.sides.get(side).0.is_called());
        let mutant = self.mutant;
        Master {
            held: &mut state.held[at],
            queue: &mut state.queues[at],
            readers: self.scope.readers,
            waits: self.scope.wakes,
            // The mutant wakes a client that is gone.
            reaches: move |client: u8| {
                subscribed[usize::from(client)] || mutant == Mutant::WakesGone
            },
            keeps: self.scope.fresh,
            mutant,
        }
    }

    /// A master wakes the waiters of these clients.
    fn wake(&mut self, state: &mut State, master: usize, woken: u8) {
        for client in (0..CLIENTS).filter(|client| woken >> client & 1 == 1) {
            if !self.side(state, client, master).0.is_called() {
                continue;
            }
            let number = state.locals[client];
            let woken_local = &self.known[number as usize].woken;
            state.locals[client] = match woken_local[master] {
                u32::MAX => {
                    let after = self.woken(number, master);
                    self.known[number as usize].woken[master] = after;
                    after
                }
                after => after,
            };
        }
    }

    /// A command that an old connection has left may remove a waiter from a queue that it has
    /// entered again since.
    fn note_leftover(
        &self,
        state: &mut State,
        client: u8,
        (master, request, link_event): (usize, Request, LinkEvent),
    ) {
        let wires = &self.side(state, usize::from(client), master).0.wires;
        let is_old =
            matches!(link_event, LinkEvent::Execute(wire) if !wires[usize::from(wire)].open);
        if is_old && request.leaves() {
            state.lossy |= 1 << client;
            state.looked[usize::from(client)] &= !(1 << master);
        }
    }

    /// Records that a waiting client looks at a master, after a quorum was released.
    fn note_look(
        &self,
        state: &mut State,
        client: u8,
        (master, request, link_event): (usize, Request, LinkEvent),
    ) {
        let client = usize::from(client);
        let wires = &self.side(state, client, master).0.wires;
        let is_read =
            matches!(link_event, LinkEvent::Execute(wire) if wires[usize::from(wire)].open);
        let back = state.given_back.count_ones() as usize >= quorum(self.scope.masters);
        if matches!(request, Request::Enqueue { again: true, .. }) && is_read && back {
            state.looked[client] |= state.given_back & 1 << master;
        }
    }

    /// Records the keys that a command released, where claims wait.
    fn note(
        &self,
        state: &mut State,
        client: u8,
        (master, request, reply): (usize, Request, MasterReply),
    ) {
        let (bit, owner) = (1 << master, usize::from(client));
        match (request, reply) {
            (_, MasterReply::Created) => {
                state.given_back &= !bit;
                state.looked.iter_mut().for_each(|looked| *looked &= !bit);
                let token = request.creates().expect("it has made a key");
                let held = state.held.iter().filter(|held| held.has(client, token)).count();
                if held >= quorum(self.scope.masters) {
                    state.quorate[owner] |= 1 << token;
                }
            }
            (Request::Delete(token, ..), MasterReply::Deleted) => {
                let leases = state.quorate[owner] & !self.known(state, owner).refused;
                if leases & 1 << token != 0 && state.held[master] == Held::No {
                    state.given_back |= bit;
                }
            }
            _ => {}
        }
    }

    /// The local after this master wakes its waiter.
    fn woken(&mut self, number: u32, master: usize) -> u32 {
        let mut local = *self.locals.get(number);
        let mut side = self.sides.get(local.sides[master]).0.clone();
        side.freed();
        local.sides[master] = self.enter_side(side);
        self.enter_local(local)
    }

    /// The local after an event, with the reply of a master if the event executes a command.
    pub(super) fn turn(
        &mut self,
        mut local: Local,
        client_event: ClientEvent,
        reply: Option<MasterReply>,
    ) -> Result<u32, Broken> {
        let known = local.sides.map(|side| &self.sides.get(side).0);
        let caller = self.callers.get(local.caller).clone();
        let (sides, scope) = ([const { None }; MASTERS], &self.scope);
        let looks = client_event == ClientEvent::Act(Act::Wake) && scope.loses_wake_ups();
        let mutant = self.mutant;
        let mut turn = Turn { scope, mutant, caller, sides, known, looks, broken: None };
        match client_event {
            ClientEvent::Act(act) => turn.act(act),
            ClientEvent::Between(master, link_event) => {
                turn.between(master.into(), link_event, reply);
            }
        }
        turn.unsubscribe();
        turn.caller.tidy();
        let Turn { caller, sides, broken, .. } = turn;
        if let Some(broken) = broken {
            return Err(broken);
        }
        let canonical = !self.scope.wakes;
        local.caller = self.callers.enter(caller, |caller| caller.hashes(canonical));
        for (number, side) in local.sides.iter_mut().zip(sides) {
            if let Some(side) = side {
                *number = self.enter_side(side);
            }
        }
        Ok(self.enter_local(local))
    }
}

impl Turn<'_> {
    fn config(&self) -> LockConfig {
        config(self.scope.masters, self.caller.shared)
    }

    fn side(&mut self, master: usize) -> &mut Connection {
        self.sides[master].get_or_insert_with(|| self.known[master].clone())
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Acquire => self.acquire(),
            Act::Collect => self.collect(),
            Act::Extend => {
                let config = self.config();
                let less = config.with_ttl(config.ttl() - TICK).expect("they fit each other");
                let by_less = self.mutant == Mutant::ExtendsByLess;
                self.claim(Input::extend(if by_less { less } else { config }));
            }
            Act::Watch => {
                self.caller.watched = true;
                self.claim(Input::KeepAlive(TICK * 100));
            }
            Act::Release => {
                self.claim(Input::Release);
                if !self.scope.release {
                    self.claim(Input::Abandon);
                }
            }
            Act::Drop => self.claim(Input::Abandon),
            Act::Wake => {
                self.caller.clock = self.caller.fires().expect("it was listed");
                self.claim(Input::Wake);
            }
            Act::Tick => {
                let next = self.caller.next_tick(self.scope);
                self.caller.clock = next.expect("it was listed");
            }
            Act::Die => {
                self.caller.claim = Claim::Ended;
                self.caller.dead = true;
                (0..self.scope.masters).for_each(|master| self.side(master).die());
            }
        }
    }

    fn acquire(&mut self) {
        self.caller.claims += 1;
        let mut rng = Numbered { tokens: self.caller.tokens, mutant: self.mutant };
        let mut effects = Vec::new();
        self.caller.claim = Claim::acquire(
            self.caller.clock,
            self.config(),
            Caller::policy(self.scope),
            &mut rng,
            &mut effects,
        );
        self.caller.tokens = rng.tokens;
        self.carry_out(effects);
    }

    fn collect(&mut self) {
        let clock = self.caller.clock;
        if self.mutant == Mutant::NoDeadlineCheck
            && let Claim::Acquiring(acquire) = &self.caller.claim
        {
            self.caller.clock = acquire.votes().opened();
        }
        self.claim(Input::Collect);
        self.caller.clock = clock;
        if let Claim::Holding(hold) = &self.caller.claim
            && clock >= hold.deadline()
        {
            self.broken = Some(rules::handed_out_late());
        }
    }

    /// Passes one input to the claim and executes its effects.
    fn claim(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.handle_claim(input, &mut effects);
        self.carry_out(effects);
    }

    fn handle_claim(&mut self, input: Input, effects: &mut Vec<Effect>) {
        let before = self.caller.claim.clone();
        let mut rng = Numbered { tokens: self.caller.tokens, mutant: self.mutant };
        let Caller { claim, clock, .. } = &mut self.caller;
        claim.handle(*clock, input, &mut rng, effects);
        self.caller.tokens = rng.tokens;
        if self.scope.wakes {
            self.caller.note_refused();
        }
        let broken = rules::check_hold(&before, &self.caller);
        self.broken = self.broken.take().or(broken);
        if let (Claim::Holding(_), Claim::Holding(now)) = (&before, &self.caller.claim)
            && let Some(loss) = now.lost()
        {
            self.caller.lost.get_or_insert((loss, now.deadline()));
            if self.mutant == Mutant::RevivesLost {
                self.caller.claim = before;
            }
            if self.mutant == Mutant::LeavesLost {
                effects.retain(|effect| !matches!(effect, Effect::CleanUp { .. }));
            }
        }
    }

    fn carry_out(&mut self, mut effects: Vec<Effect>) {
        let mut next = 0;
        while let Some(effect) = effects.get(next).cloned() {
            next += 1;
            let (claim, key) = (self.caller.claims, key());
            let (node, input, round) = match effect {
                Effect::Send { node, step, request } => {
                    let round = round_of(step);
                    self.looks = false;
                    self.note_kept(round);
                    self.note_asked(step);
                    (node, LinkInput::Send { key, request, tag: (claim, step) }, round)
                }
                Effect::CleanUp { node, .. } if self.is_left_alone(node) => continue,
                Effect::CleanUp { node, step, token, wake_up, leave } => {
                    let leave = leave.filter(|_| self.mutant != Mutant::KeepsPlace);
                    let (wake_up, tag) = (self.calls(wake_up), (claim, step));
                    (node, LinkInput::CleanUp { key, token, wake_up, leave, tag }, 0)
                }
                Effect::Enqueue { node, step, waiter_id, position } => {
                    let tag = (claim, step);
                    let looks = self.looks.into();
                    (node, LinkInput::Enqueue { key, waiter_id, position, tag }, looks)
                }
                Effect::Dequeue { .. } if self.mutant == Mutant::KeepsPlace => continue,
                Effect::Dequeue { node, waiter_id, wake } => {
                    let wake = wake && self.mutant != Mutant::LeavesInSilence;
                    (node, LinkInput::Dequeue { key, waiter_id, wake }, 0)
                }
                Effect::Subscribe { waiter_id } => {
                    self.subscribe(waiter_id, &mut effects);
                    continue;
                }
                _ => continue,
            };
            let notifications = self.side(node.index()).input(input, round);
            self.notify_all(node, notifications, &mut effects);
        }
    }

    fn notify_all(
        &mut self,
        node: NodeId,
        notifications: Notifications,
        effects: &mut Vec<Effect>,
    ) {
        for notification in notifications {
            if let Some(input) = self.input_of(node, notification) {
                self.handle_claim(input, effects);
            }
        }
    }

    fn subscribe(&mut self, waiter_id: WaiterId, effects: &mut Vec<Effect>) {
        self.caller.subscribed = true;
        for master in 0..self.scope.masters {
            let notifications = self.side(master).subscribe(waiter_id);
            self.notify_all(NodeId::new(master), notifications, effects);
        }
    }

    /// The links drop the waiter of a claim that does not wait. A claim that has won leaves the
    /// queues later, with its release.
    fn unsubscribe(&mut self) {
        let waits =
            matches!(&self.caller.claim, Claim::Acquiring(acquire) if acquire.failure().is_none());
        if waits || !std::mem::take(&mut self.caller.subscribed) || self.caller.dead {
            return;
        }
        (0..self.scope.masters).for_each(|master| self.side(master).unsubscribe());
    }

    /// The waiter that a clean-up wakes.
    fn calls(&self, wake_up: WakeUp) -> WakeUp {
        match self.mutant {
            // Without queues it makes no difference, and states that differ only in it are equal.
            _ if !self.scope.wakes => WakeUp::None,
            Mutant::WakesNone => WakeUp::None,
            Mutant::CallsAlways => WakeUp::First,
            _ => wake_up,
        }
    }

    /// Records until when masters keep the key for this round, at least.
    fn note_kept(&mut self, round: u8) {
        let until = match &self.caller.claim {
            // Also for the masters that are asked after the first.
            Claim::Acquiring(acquire) => acquire.deadline(),
            _ => self.caller.clock.plus(self.config().validity()),
        };
        self.caller.kept.truncate(round.into());
        self.caller.kept.resize(usize::from(round) + 1, until);
    }

    fn note_asked(&mut self, step: RoundId) {
        if let (RoundId::Attempt(_), Claim::Acquiring(acquire)) = (step, &self.caller.claim) {
            let (before, asked) = self.caller.asked;
            let now = acquire.attempt();
            self.caller.asked = (now, if before == now { asked + 1 } else { 1 });
        }
    }

    fn is_left_alone(&self, node: NodeId) -> bool {
        let silent = match &self.caller.claim {
            Claim::Acquiring(acquire) => acquire.votes().votes()[node.index()].reply.is_none(),
            Claim::Holding(hold) => !hold.members().contains(node),
            _ => false,
        };
        silent && self.mutant == Mutant::ReleaseAcknowledgedOnly
    }

    /// The input for a claim from a reply or push message, if it belongs to this claim.
    fn input_of(&self, node: NodeId, notification: Notification) -> Option<Input> {
        let ((claim, step), reply) = match notification {
            Notification::Reply(tag, reply) => (tag, reply),
            Notification::QueueEvent(QueueEvent::Free(_)) if self.mutant == Mutant::NeverWoken => {
                return None;
            }
            Notification::QueueEvent(event) => {
                return self.caller.subscribed.then_some(Input::QueueEvent { node, event });
            }
        };
        let is_free = matches!(reply, Reply::Place { holder: None, .. });
        if is_free && matches!(self.mutant, Mutant::DropsLooks | Mutant::NeverWoken) {
            return None;
        }
        let reply = match reply {
            Reply::Unknown(_)
                if self.mutant == Mutant::ErrorIsYes && matches!(step, RoundId::Attempt(_)) =>
            {
                Reply::Created
            }
            reply => reply,
        };
        let step = match (step, &self.caller.claim) {
            (RoundId::Extend(_), Claim::Holding(hold)) if self.mutant == Mutant::MixesRounds => {
                RoundId::Extend(hold.extension().0)
            }
            (step, _) => step,
        };
        (claim == self.caller.claims).then_some(Input::Replied { node, step, reply })
    }

    fn between(&mut self, master: usize, link_event: LinkEvent, reply: Option<MasterReply>) {
        let left = left(self.scope);
        let side = self.side(master);
        let mut notifications = Notifications::new();
        match link_event {
            LinkEvent::Execute(wire) => side.reply(wire.into(), reply.expect("the master answers")),
            LinkEvent::Refuse(wire) => side.reply(wire.into(), MasterReply::Error),
            LinkEvent::Unload(wire) => side.reply(wire.into(), MasterReply::NoScript),
            LinkEvent::Read => notifications = side.read_reply(left),
            LinkEvent::Miss => side.miss(),
            LinkEvent::Connect => notifications = side.connect(),
            LinkEvent::Retry | LinkEvent::Stall => notifications = side.wake(),
            LinkEvent::Cut => notifications = side.cut(),
            LinkEvent::FailToConnect => notifications = side.fail_to_connect(),
            LinkEvent::Lose(wire) => side.lose(wire.into()),
        }
        for notification in notifications {
            if let Some(input) = self.input_of(NodeId::new(master), notification) {
                self.claim(input);
            }
        }
    }
}

impl Caller {
    /// Whether its next timer would start an attempt, or a round, beyond the bounds.
    pub(super) fn would_exceed(&self, scope: &Scope, now: Time) -> bool {
        let mut copy = self.claim.clone();
        let mut rng = Numbered { tokens: self.tokens, mutant: Mutant::None };
        copy.handle(now, Input::Wake, &mut rng, &mut Vec::new());
        let rounds = match &copy {
            Claim::Holding(hold) => hold.extension().0,
            _ => 0,
        };
        rng.tokens > scope.attempts || rounds > scope.rounds.into()
    }
}
