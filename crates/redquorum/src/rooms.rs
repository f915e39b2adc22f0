//! Rooms: where the claims of a lock wait for one resource: in a queue of their own, so that one of them
//! asks the masters, and for what masters say of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use redquorum_protocol::{Input, Key, LinkInput, NodeId, Patience, Queue, Terms, Time, Turn, Word};

use crate::claim::ClaimCell;
use crate::clock::Clock;
use crate::fleet::Fleet;

/// All rooms of a lock. A room is there as long as somebody is in it.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<HashMap<Key, Room>>);

#[derive(Default)]
struct Room {
    queue: Queue<u64>,
    /// Those in the queue whose turn has not come.
    seats: HashMap<u64, Arc<Seat>>,
    /// The last number that was given.
    last: u64,
    /// Claims that want to hear what masters say.
    listeners: Vec<Weak<ClaimCell>>,
    /// The links were told to listen.
    listens: bool,
}

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
    /// Its turn has not come; who is to be woken then.
    Waiting(Option<Waker>),
    /// Its claim asks the masters.
    Started(Arc<ClaimCell>),
    /// Its owner is gone.
    Left,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Room>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many resources are waited for or held by those who waited.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Has the claim hear what masters say of its resource.
    pub(crate) fn listen(&self, key: &Key, claim: Weak<ClaimCell>) {
        let mut rooms = self.lock();
        let room = rooms.entry(key.clone()).or_default();
        room.listeners.push(claim);
        room.listens = true;
    }

    /// A link heard something of a resource. Must not be called under a lock of a link or a claim.
    pub(crate) fn heard(&self, node: NodeId, key: &Key, word: Word) {
        let mut rooms = self.lock();
        let Some(room) = rooms.get_mut(key) else { return };
        if let Word::Others(others) = word {
            return room.queue.heard(others);
        }
        let listeners: Vec<_> = room.listeners.iter().filter_map(Weak::upgrade).collect();
        drop(rooms);
        for claim in listeners {
            claim.apply(Input::Heard { node, word });
        }
    }

    /// Stops listening, for a guest to listen anew: many masters tell those first who have listened for
    /// longest, and who was served just now shall not be one of them.
    fn listen_anew(&self, fleet: &Fleet, key: &Key) {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get_mut(key)
            && room.listeners.is_empty()
            && std::mem::take(&mut room.listens)
        {
            fleet.tell_links(|| LinkInput::Unlisten(key.clone()));
        }
    }

    /// The claim waits no more.
    pub(crate) fn forget(&self, fleet: &Fleet, key: &Key, claim: &Weak<ClaimCell>) {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get_mut(key) {
            room.listeners
                .retain(|listener| !listener.ptr_eq(claim) && listener.strong_count() > 0);
        }
        Self::tidy(fleet, rooms, key);
    }

    /// Leaves no empty room, and no link that listens for nobody.
    fn tidy(fleet: &Fleet, mut rooms: MutexGuard<'_, HashMap<Key, Room>>, key: &Key) {
        let empty = |room: &Room| room.queue.is_empty() && room.listeners.is_empty();
        if rooms.get(key).is_some_and(empty) {
            let listens = rooms.remove(key).is_some_and(|room| room.listens);
            if listens {
                // Under the lock of the rooms: whoever comes next listens anew behind it.
                fleet.tell_links(|| LinkInput::Unlisten(key.clone()));
            }
        }
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
            seat.clone().start(Turn::First);
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
        let (fleet, key) = (self.fleet.clone(), self.key.clone());
        let patience = self.patience(turn);
        let claim = ClaimCell::start(fleet, key, self.terms, patience, Some(self.clone()));
        *state = State::Started(claim.clone());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(claim)
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
        Rooms::tidy(&self.fleet, rooms, &self.key);
        next
    }

    /// Its claim, once its turn has come; else `waker` is woken then.
    pub(crate) fn claim(&self, waker: &Waker) -> Option<Arc<ClaimCell>> {
        let mut state = self.lock();
        if let State::Waiting(waiting) = &mut *state {
            if !waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
                *waiting = Some(waker.clone());
            }
            return None;
        }
        // From here on the claim knows its seat, and not the other way round.
        match std::mem::replace(&mut *state, State::Left) {
            State::Started(claim) => Some(claim),
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
            State::Left => None,
        }
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
        if turn == Turn::Guest && !fair {
            self.fleet.rooms.listen_anew(&self.fleet, &self.key);
        }
        Some(Next { seat, turn })
    }

    /// One attempt without a turn: the time of its owner is over.
    pub(crate) fn last_attempt(&self) -> Arc<ClaimCell> {
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
