//! The line of those who wait for a resource, as a master keeps it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Frame, RESERVED, counted, holder};
use crate::ticket::{Spot, Ticket};
use crate::vote::{Answer, Cause, Holder};

/// The key of a resource's line: a hash of tickets, each with its number, when it was last asked for, and
/// when it lapses, in milliseconds of the master's clock.
pub fn line_of(key: &[u8]) -> Vec<u8> {
    [RESERVED, b"line:", key].concat()
}

/// How long masters keep a place that is not asked for again, in milliseconds.
pub const LAPSE_MS: u64 = 3_000;

/// What a master says of a place.
pub(super) fn place(parts: &[Frame<'_>]) -> Answer {
    read(parts).unwrap_or(Answer::Unknown(Cause::Garbage))
}

/// Whether an error says that there is no line, and none to be: commands or keys are forbidden, or another value has
/// its key. Until 7.0 scripts put their own words around what they met.
pub(super) fn is_forbidden(error: &[u8]) -> bool {
    const SIGNS: [&str; 5] =
        ["NOPERM", "WRONGTYPE", "can't run this command", "can't access", "nknown"];
    let error = String::from_utf8_lossy(error);
    SIGNS.iter().any(|sign| error.contains(sign))
}

fn read(parts: &[Frame<'_>]) -> Option<Answer> {
    let [Frame::Integer(number), Frame::Integer(ahead), held @ ..] = parts else { return None };
    let holder = match held {
        [] => None,
        [Frame::Integer(_)] => Some(Holder::WrongType),
        [Frame::Integer(left), Frame::Bulk(value)] => Some(holder(*left, value)),
        _ => return None,
    };
    let ahead = u64::try_from(*ahead).ok()?;
    Some(match counted(*number) {
        Some(number) => Answer::Place { number, ahead, holder },
        // Somebody wrote into the line who had no business there.
        None => Answer::NoLine,
    })
}

/// A line as the script keeps it: for masters that are models of one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Standing {
    places: BTreeMap<Ticket, Place>,
    /// The last millisecond at which the key is there, with places that have lapsed or not.
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    number: u64,
    asked: u64,
    till: u64,
}

impl Place {
    const fn lives(&self, now: u64) -> bool {
        self.asked <= now && now < self.till
    }
}

impl Standing {
    /// Gives a ticket its place until `lapse` milliseconds after `now`, by the master's clock; says its number, and how
    /// many come first.
    pub fn stand(&mut self, now: u64, ticket: Ticket, spot: Spot, lapse: u64) -> (u64, u64) {
        self.forget(now);
        let ours = self.places.remove(&ticket).map_or(0, |place| place.number);
        let last = self.places.values().map(|place| place.number).max().unwrap_or(0);
        let number = match spot {
            Spot::Last if ours == 0 => last + 1,
            Spot::At(number) => number,
            spot => spot.number().max(ours),
        };
        let ahead =
            self.places.iter().filter(|(other, it)| (it.number, **other) < (number, ticket));
        let ahead = u64::try_from(ahead.count()).unwrap_or(u64::MAX);
        self.places.insert(ticket, Place { number, asked: now, till: now + lapse });
        self.until = now + lapse;
        (number, ahead)
    }

    /// Takes a place away. Says who is first then.
    pub fn step_out(&mut self, now: u64, ticket: Ticket) -> Option<Ticket> {
        self.forget(now);
        self.places.remove(&ticket);
        self.first(now)
    }

    /// Who comes first. That is only a look: whoever has lapsed is there again if the clock is set back.
    pub fn first(&self, now: u64) -> Option<Ticket> {
        let lives = |(_, place): &(&Ticket, &Place)| self.is_there(now) && place.lives(now);
        let living = self.places.iter().filter(lives);
        living.map(|(ticket, place)| (place.number, *ticket)).min().map(|(_, first)| first)
    }

    /// The number of a ticket that has a place.
    pub fn number(&self, ticket: Ticket) -> Option<u64> {
        self.places.get(&ticket).map(|place| place.number)
    }

    /// Whether nobody has a place, lapsed or not: then there is no key.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether the key has not expired.
    pub const fn is_there(&self, now: u64) -> bool {
        now <= self.until
    }

    /// Whether somebody's place has lapsed, which the script takes away first.
    pub fn has_lapsed(&self, now: u64) -> bool {
        self.is_there(now) && self.places.values().any(|place| !place.lives(now))
    }

    fn forget(&mut self, now: u64) {
        let is_there = self.is_there(now);
        self.places.retain(|_, place| is_there && place.lives(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAPSE: u64 = 100;

    fn ticket(number: u64) -> Ticket {
        Ticket::new(number)
    }

    #[test]
    fn places_are_in_the_order_of_their_numbers_and_of_tickets_where_those_are_equal() {
        let mut line = Standing::default();
        assert_eq!(line.stand(0, ticket(7), Spot::Last, LAPSE), (1, 0));
        assert_eq!(line.stand(0, ticket(5), Spot::Last, LAPSE), (2, 1));
        assert_eq!(line.stand(0, ticket(9), Spot::NotBefore(2), LAPSE), (2, 2));
        assert_eq!(line.stand(0, ticket(3), Spot::NotBefore(2), LAPSE), (2, 1));
        // Nobody gives up a place by asking for a better one, before a quorum keeps it there.
        assert_eq!(line.stand(0, ticket(9), Spot::NotBefore(1), LAPSE), (2, 3));
        assert_eq!(line.stand(0, ticket(9), Spot::At(1), LAPSE), (1, 1));
        assert_eq!(line.stand(0, ticket(9), Spot::At(4), LAPSE), (4, 3));
        assert_eq!(line.stand(0, ticket(9), Spot::Last, LAPSE), (4, 3));
        assert_eq!(line.step_out(0, ticket(7)), Some(ticket(3)));
    }

    #[test]
    fn a_place_lapses_unless_it_is_asked_for_again() {
        let mut line = Standing::default();
        line.stand(0, ticket(1), Spot::Last, LAPSE);
        line.stand(50, ticket(2), Spot::Last, LAPSE);
        assert_eq!(line.first(99), Some(ticket(1)));
        assert_eq!(line.first(100), Some(ticket(2)));
        // It comes back with the number that it had.
        assert_eq!(line.stand(120, ticket(1), Spot::NotBefore(1), LAPSE), (1, 0));
    }

    #[test]
    fn where_the_clock_is_set_back_places_are_asked_for_anew() {
        let mut line = Standing::default();
        line.stand(1_000, ticket(1), Spot::Last, LAPSE);
        line.stand(1_000, ticket(2), Spot::Last, LAPSE);
        assert_eq!(line.first(10), None);
        assert_eq!(line.first(1_000), Some(ticket(1)), "a look takes nobody's place");
        assert_eq!(line.stand(10, ticket(2), Spot::NotBefore(2), LAPSE), (2, 0));
        assert_eq!(line.stand(10, ticket(1), Spot::NotBefore(1), LAPSE), (1, 0));
        assert_eq!(line.first(10), Some(ticket(1)));
    }
}
