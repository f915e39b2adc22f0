//! Places: the points of a run at which a fault can strike. They are recorded, in order, only for a
//! search that needs them; other runs have no cost.

use crate::name::Name;
use crate::scenario::{Class, EventKind, Side};

/// A moment that comes in a run, or the instant before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) client: Name,
    pub(crate) what: EventKind,
    /// Whether the place is before the event.
    pub(crate) before: bool,
}

/// The places that have come so far.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Messages of a class beyond this number are no places.
    most: u32,
    passed: Vec<((Name, Side, Class), u32)>,
    all: Vec<Place>,
}

impl Places {
    pub(super) const fn new(most: u32) -> Self {
        Self { most, passed: Vec::new(), all: Vec::new() }
    }

    pub(super) fn all(&self) -> &[Place] {
        &self.all
    }

    /// An event of a client occurs, or is about to.
    pub(super) fn come(&mut self, client: &str, what: &EventKind, before: bool) {
        let known =
            |place: &Place| place.before == before && place.what == *what && place.client == client;
        if !self.all.iter().any(known) {
            self.all.push(Place { client: client.into(), what: what.clone(), before });
        }
    }

    /// A message of a client passes.
    pub(super) fn pass(&mut self, client: &Name, side: Side, class: Class) {
        let is = |(key, _): &&mut ((Name, Side, Class), u32)| {
            (key.1, key.2) == (side, class) && key.0 == *client
        };
        let number = match self.passed.iter_mut().find(is) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.passed.push(((client.clone(), side, class), 1));
                1
            }
        };
        if number <= self.most && class != Class::Any {
            let what = match side {
                Side::Reply => EventKind::Reply(number, class),
                Side::Request | Side::Both => EventKind::Request(number, class),
            };
            self.come(client, &what, false);
        }
    }

    /// How many messages of a client have passed, of one class as a place names it.
    pub(super) fn passed(&self, client: &str, side: Side, class: Class) -> u32 {
        let is = |(key, _): &&((Name, Side, Class), u32)| {
            (key.1, key.2) == (side, class) && key.0 == *client
        };
        self.passed.iter().find(is).map_or(0, |(_, count)| *count)
    }
}
