//! Places: the points of a run at which a fault can strike. They are recorded, in order, only for a
//! search that needs them; other runs have no cost.

use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, EventKind, Side};

/// A moment that comes in a run, or the instant before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub client: Name,
    pub what: EventKind,
    /// Whether the place is before the event.
    pub before: bool,
}

/// The places that have come so far.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Messages of a class beyond this number are no places.
    most: u32,
    passed: Counts<(Name, Side, Class)>,
    all: Vec<Place>,
}

impl Places {
    pub(super) fn new(most: u32) -> Self {
        Self { most, passed: Counts::default(), all: Vec::new() }
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
        let number = self.passed.add((client.clone(), side, class));
        if number <= self.most && class != Class::Any {
            self.come(client, &EventKind::of_message(side, number, class), false);
        }
    }

    /// How many messages of a client have passed, of one class as a place names it.
    pub(super) fn passed(&self, client: &Name, side: Side, class: Class) -> u32 {
        self.passed.of(&(client.clone(), side, class))
    }
}

/// How often each of a few values came.
#[derive(Clone, Debug)]
pub struct Counts<T>(Vec<(T, u32)>);

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Counts<T> {
    /// Counts a value, and returns how often it has come now.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == value) {
            *count += 1;
            return *count;
        }
        self.0.push((value, 1));
        1
    }

    pub fn of(&self, value: &T) -> u32 {
        self.0.iter().find(|(known, _)| known == value).map_or(0, |(_, count)| *count)
    }
}
