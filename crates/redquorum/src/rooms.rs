//! Rooms: where the claims of a lock wait for one resource: in a queue of their own, so that one of them
//! asks the masters, and for the wake-ups of masters.
//!
//! The others learn from that one what they would have been told: at the end of its wait a claim whose turn has not
//! come reports why the one that is ahead waits, and sends nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use redquorum_protocol::{
    Failure, GivenBack, Key, NodeId, Patience, Queue, Terms, Time, Turn, Word,
};

use crate::acquire::tell_failed;
use crate::claim::ClaimCell;
use crate::clock::Clock;
use crate::error::AcquireError;
use crate::fleet::Fleet;
use crate::report::Report;

/// All rooms of a lock. A room is there as long as somebody is in it.
#[derive(Default)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<Key, Room>>,
    given_back: Mutex<GivenBack>,
}

#[derive(Default)]
struct Room {
    queue: Queue<u64>,
    /// Those in the queue whose turn has not come.
    seats: HashMap<u64, Arc<Seat>>,
    /// The last number that was given.
    last: u64,
    /// The claim that is ahead in the queue.
    ahead: Weak<ClaimCell>,
    /// Claims that masters wake.
    listeners: Vec<Weak<ClaimCell>>,
}

/// Why there is no lease, and what masters said.
pub(crate) type Verdict = (Failure, Report);

/// A place in the queue.
pub(crate) struct Seat {
    fleet: Arc<Fleet>,
    key: Key,
    terms: Terms,
    explain: bool,
    /// Until when its owner waits.
    pub(crate) give_up: Time,
    number: u64,
    state: Mutex<State>,
}

enum State {
    /// Its turn has not come; what is to be woken then.
    Waiting(Option<Waker>),
    /// Its claim asks the masters.
    Started(Arc<ClaimCell>),
    /// Its turn came after its time.
    Over(Verdict),
    /// Its owner is gone.
    Left,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given_back(&self) -> MutexGuard<'_, GivenBack> {
        self.given_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many resources are waited for or held by those who waited.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Has masters wake the claim.
    pub(crate) fn listen(&self, key: &Key, claim: Weak<ClaimCell>) {
        self.lock().entry(key.clone()).or_default().listeners.push(claim);
    }

    /// A link tells something of a resource. Must not be called under a lock of a link or a claim.
    pub(crate) fn heard(&self, now: Time, node: NodeId, key: &Key, word: Word) {
        let mut rooms = self.lock();
        if let Word::Others(others) = word {
            self.given_back().note(now, key, others);
            return rooms.get_mut(key).into_iter().for_each(|room| room.queue.heard(others));
        }
        let Some(room) = rooms.get_mut(key) else { return };
        let listeners: Vec<_> = room.listeners.iter().filter_map(Weak::upgrade).collect();
        drop(rooms);
        for claim in listeners {
            claim.heard(node, word);
        }
    }

    /// The claim waits no more.
    pub(crate) fn forget(&self, key: &Key, claim: &Weak<ClaimCell>) {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get_mut(key) {
            room.listeners
                .retain(|listener| !listener.ptr_eq(claim) && listener.strong_count() > 0);
        }
        Self::tidy(&mut rooms, key);
    }

    /// Leaves no empty room.
    fn tidy(rooms: &mut HashMap<Key, Room>, key: &Key) {
        let empty = |room: &Room| room.queue.is_empty() && room.listeners.is_empty();
        if rooms.get(key).is_some_and(empty) {
            rooms.remove(key);
        }
    }

    /// Wakes all whose turn has not come: the lock is shut down.
    pub(crate) fn wake_all(&self) {
        let rooms = self.lock();
        let seats: Vec<_> = rooms.values().flat_map(|room| room.seats.values().cloned()).collect();
        drop(rooms);
        seats.iter().for_each(|seat| seat.wake());
    }

    /// Another claim comes for a resource. Its turn is now, or it waits for it.
    pub(crate) fn join(
        fleet: &Arc<Fleet>,
        key: Key,
        terms: Terms,
        patience: Patience,
    ) -> Arc<Seat> {
        let give_up = fleet.clock.now().plus(patience.wait);
        let mut rooms = fleet.rooms.lock();
        let room = rooms.entry(key.clone()).or_default();
        room.last += 1;
        let number = room.last;
        let seat = Arc::new(Seat {
            fleet: fleet.clone(),
            key,
            terms,
            explain: patience.explain,
            give_up,
            number,
            state: Mutex::new(State::Waiting(None)),
        });
        if room.queue.join(number) {
            drop(rooms);
            let turn = fleet.rooms.given_back().turn(fleet.clock.now(), &seat.key);
            seat.clone().start(turn);
        } else {
            room.seats.insert(number, seat.clone());
        }
        seat
    }
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self, turn: Turn) -> Patience {
        let wait = self.give_up.since(self.fleet.clock.now());
        let Fleet { wake_ups, fair, .. } = *self.fleet;
        Patience { wait, explain: self.explain, wake_ups, fair, turn }
    }

    /// Its turn has come: the claim starts here and now, whether or not its owner is polled. If its owner
    /// is gone, the turn is the next one's.
    fn start(self: Arc<Self>, turn: Turn) {
        let mut next = Some((self, turn));
        // One after the other, however many: thousands may fail in the same instant.
        while let Some((seat, turn)) = next {
            next = match seat.take(turn) {
                Some(claim) if claim.is_vacant() => seat.next(Queue::leave),
                Some(_) => None,
                None => seat.next(|queue, number| queue.pass(number, turn)),
            };
        }
    }

    fn take(self: &Arc<Self>, turn: Turn) -> Option<Arc<ClaimCell>> {
        let mut state = self.lock();
        let State::Waiting(waker) = &mut *state else { return None };
        let waker = waker.take();
        let over = if self.is_over() { self.verdict() } else { None };
        let claim = if let Some(over) = over {
            *state = State::Over(over);
            None
        } else {
            let (fleet, key) = (self.fleet.clone(), self.key.clone());
            let patience = self.patience(turn);
            let claim = ClaimCell::start(fleet, key, self.terms, patience, Some(self.clone()));
            self.fleet.rooms.lock().entry(self.key.clone()).or_default().ahead =
                Arc::downgrade(&claim);
            *state = State::Started(claim.clone());
            Some(claim)
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        claim
    }

    fn wake(&self) {
        let waker = match &mut *self.lock() {
            State::Waiting(waker) => waker.take(),
            _ => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether others wait behind the claim of this one, which is ahead.
    pub(crate) fn has_others(&self) -> bool {
        let rooms = self.fleet.rooms.lock();
        let room = rooms.get(&self.key);
        room.is_some_and(|it| it.queue.ahead() == Some(&self.number) && it.queue.has_waiting())
    }

    /// Why the claim that is ahead has no lease to give, if it knows that by now.
    fn verdict(&self) -> Option<Verdict> {
        let ahead = self.fleet.rooms.lock().get(&self.key).map(|room| room.ahead.clone());
        ahead?.upgrade()?.verdict()
    }

    /// Its wait is over, and it has asked no master.
    pub(crate) fn failed(&self, (why, report): Verdict) -> AcquireError {
        tell_failed(&self.fleet, &self.key, 0, why, &report);
        if why == Failure::Taken {
            AcquireError::Taken { report, attempts: 0 }
        } else {
            AcquireError::NoQuorum { report, attempts: 0 }
        }
    }

    /// Takes this one out of the queue, and says who comes next.
    fn next(
        &self,
        leave: impl FnOnce(&mut Queue<u64>, &u64) -> Option<(u64, Turn)>,
    ) -> Option<(Arc<Self>, Turn)> {
        let mut rooms = self.fleet.rooms.lock();
        let room = rooms.get_mut(&self.key)?;
        room.seats.remove(&self.number);
        let next = leave(&mut room.queue, &self.number);
        let next = next.and_then(|(number, turn)| Some((room.seats.remove(&number)?, turn)));
        Rooms::tidy(&mut rooms, &self.key);
        next
    }

    /// Its claim, once its turn has come, or why that came too late; else `waker` is woken then.
    pub(crate) fn claim(&self, waker: &Waker) -> Option<Result<Arc<ClaimCell>, Verdict>> {
        let mut state = self.lock();
        if let State::Waiting(waiting) = &mut *state {
            if !waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
                *waiting = Some(waker.clone());
            }
            return None;
        }
        // From here on the claim knows its seat, and not the other way round.
        match std::mem::replace(&mut *state, State::Left) {
            State::Started(claim) => Some(Ok(claim)),
            State::Over(error) => Some(Err(error)),
            _ => None,
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.fleet.clock
    }

    /// Whether its owner has waited for long enough.
    pub(crate) fn is_over(&self) -> bool {
        self.clock().now() >= self.give_up
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.fleet.is_shut_down()
    }

    /// Its owner waits no more. Its claim, if its turn came meanwhile.
    pub(crate) fn leave(&self) -> Option<Arc<ClaimCell>> {
        let state = std::mem::replace(&mut *self.lock(), State::Left);
        match state {
            State::Started(claim) => Some(claim),
            State::Waiting(_) => {
                self.vacate();
                None
            }
            State::Over(_) | State::Left => None,
        }
    }

    /// Its owner has waited for long enough. The claim that makes its last attempt, or why it makes none.
    pub(crate) fn end(&self) -> Result<Arc<ClaimCell>, Verdict> {
        if let Some(claim) = self.leave() {
            return Ok(claim);
        }
        self.verdict().map_or_else(|| Ok(self.last_attempt()), Err)
    }

    /// Its claim is done, or never began: whoever comes next starts.
    pub(crate) fn vacate(&self) {
        if let Some((seat, turn)) = self.next(Queue::leave) {
            seat.start(turn);
        }
    }

    /// Its claim is about to give its lease back: who comes next, and how. To be [started](Next::start)
    /// behind it.
    pub(crate) fn hand_on(&self) -> Option<Next> {
        let fair = self.fleet.fair;
        let (seat, turn) = self.next(|queue, number| queue.hand_on(number, fair))?;
        Some(Next { seat, turn })
    }

    /// One attempt without a turn: the time of its owner is over.
    fn last_attempt(&self) -> Arc<ClaimCell> {
        let patience = self.patience(Turn::First);
        ClaimCell::start(self.fleet.clone(), self.key.clone(), self.terms, patience, None)
    }
}

/// Whoever comes next.
pub(crate) struct Next {
    seat: Arc<Seat>,
    turn: Turn,
}

impl Next {
    /// Whether nobody else is to be called.
    pub(crate) fn is_heir(&self) -> bool {
        self.turn == Turn::Heir
    }

    pub(crate) fn start(self) {
        self.seat.start(self.turn);
    }
}
