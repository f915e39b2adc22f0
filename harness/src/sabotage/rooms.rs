//! Rooms: where the claims of a process wait for one resource, as in the library: in a queue of their own,
//! so that one of them asks the masters, and for what masters say of it. Called by `process.rs`.

use redquorum_protocol::{Key, Queue, Terms, Time, Turn};

use super::lease::Whose;

/// All rooms of a process; a few.
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms(Vec<(Key, Room)>);

#[derive(Clone, Debug, Default)]
struct Room {
    queue: Queue<u64>,
    /// Requests in the queue whose turn has not come.
    seats: Vec<Seat>,
    /// The links were told to listen.
    listens: bool,
}

/// A request that waits for its turn.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Its number, which becomes that of its claim.
    pub(super) number: u64,
    pub(super) whose: Whose,
    pub(super) terms: Terms,
    /// Until when it waits.
    pub(super) give_up: Time,
    /// The stamp of the call.
    pub(super) from: i64,
}

impl Rooms {
    fn room(&mut self, key: &Key) -> Option<&mut Room> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, room)| room)
    }

    fn enter(&mut self, key: &Key) -> &mut Room {
        let place = self.0.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.0.push((key.clone(), Room::default()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Another request comes. It is given back if its turn is now.
    pub(super) fn join(&mut self, key: &Key, seat: Seat) -> Option<Seat> {
        let room = self.enter(key);
        if room.queue.join(seat.number) {
            return Some(seat);
        }
        room.seats.push(seat);
        None
    }

    /// Takes a claim, or a request, out of its queue. Who comes next, and how.
    pub(super) fn next(
        &mut self,
        key: &Key,
        number: u64,
        leave: impl FnOnce(&mut Queue<u64>, &u64) -> Option<(u64, Turn)>,
    ) -> Option<(Seat, Turn)> {
        let room = self.room(key)?;
        let (next, turn) = leave(&mut room.queue, &number)?;
        let place = room.seats.iter().position(|seat| seat.number == next)?;
        Some((room.seats.remove(place), turn))
    }

    /// Takes a request out, whose time is over or which is cancelled.
    pub(super) fn take(&mut self, which: impl Fn(&Seat) -> bool) -> Option<(Key, Seat)> {
        for (key, room) in &mut self.0 {
            if let Some(place) = room.seats.iter().position(&which) {
                let seat = room.seats.remove(place);
                // Nobody comes after one that waits.
                room.queue.leave(&seat.number);
                return Some((key.clone(), seat));
            }
        }
        None
    }

    /// When the first request in a queue has waited for long enough.
    pub(super) fn next_wake(&self) -> Time {
        let seats = self.0.iter().flat_map(|(_, room)| &room.seats);
        seats.map(|seat| seat.give_up).min().unwrap_or(Time::NEVER)
    }

    pub(super) fn listen(&mut self, key: &Key) {
        self.enter(key).listens = true;
    }

    /// Stops listening, for a guest to listen anew, behind all others. Whether the links are to be told.
    pub(super) fn listen_anew(&mut self, key: &Key) -> bool {
        self.room(key).is_some_and(|room| std::mem::take(&mut room.listens))
    }

    pub(super) fn others(&mut self, key: &Key, others: u32) {
        if let Some(room) = self.room(key) {
            room.queue.heard(others);
        }
    }

    /// Closes the room if nobody is in it. Whether the links listen in vain from now on.
    pub(super) fn tidy(&mut self, key: &Key) -> bool {
        let empty = |(known, room): &(Key, Room)| known == key && room.queue.is_empty();
        let place = self.0.iter().position(empty);
        place.is_some_and(|place| self.0.remove(place).1.listens)
    }
}
