//! Local: the whole of one client. Its successors are computed once, for any state of the rest:
//! masters and other clients show only in the replies of a master.

use std::time::Duration;

use super::super::Broken;
use super::super::wide::Wide;
use super::caller::{Caller, TICK};
use super::canonical::ORDERS;
use super::connection::{Connection, Entries};
use super::event::{ClientEvent, LinkEvent, possible};
use super::master::{MasterReply, Request};
use super::scope::Fault;
use super::{Fairness, MASTERS, Machines, Withheld, is_over};

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
    pub(super) fn first_local(&mut self) -> u32 {
        let caller = self.callers.enter(Caller::new(), |caller| caller.hashes(true));
        let side = self.enter_side(Connection::connected(self.scope.subscribed, self.mutant));
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
