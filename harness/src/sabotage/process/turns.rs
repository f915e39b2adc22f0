//! Turns: claims of a process begin when those before them are done. As the library does it.

use redquorum_protocol::{Input, Key, LinkInput, Patience, Queue, Turn};

use super::super::LyingClaim;
use super::super::lease::Lease;
use super::super::rooms::Seat;
use super::super::several::GROUPED;
use super::{Around, Process};
use crate::talk::Options;

impl Process {
    /// A request begins to ask the masters.
    pub(in super::super) fn begin(
        &mut self,
        key: &Key,
        seat: Seat,
        turn: Turn,
        around: &mut Around<'_>,
    ) {
        let wait = seat.give_up.since(around.clocks.monotonic);
        let Options { wake_ups, fair, .. } = self.options;
        let patience = Patience { wait, explain: true, wake_ups, fair, turn };
        self.claim(key, seat, patience, around);
    }

    /// The same with a patience of its own.
    pub(in super::super) fn claim(
        &mut self,
        key: &Key,
        seat: Seat,
        patience: Patience,
        around: &mut Around<'_>,
    ) {
        let Seat { number, whose, terms, from, .. } = seat;
        let lie = (self.lie, self.root(&whose.0, around));
        let mut effects = std::mem::take(&mut self.effects);
        let mut claim =
            LyingClaim::acquire(lie, around.clocks, terms, patience, around.dice, &mut effects);
        if let Some((_, numbers)) = self.numbers.iter().find(|(known, _)| *known == whose) {
            claim.remember(numbers.clone());
        }
        // Of several resources, all are answered together.
        let asked = (number < GROUPED).then_some((number, from));
        let lease = Lease::new(claim, key.clone(), whose, asked);
        self.leases.push((number, lease));
        self.send(number, key, &mut effects, around);
        self.effects = effects;
    }

    /// A claim gives its lease back, and the next one of this process has its turn behind it.
    pub(in super::super) fn give_back(
        &mut self,
        number: u64,
        input: Input,
        around: &mut Around<'_>,
    ) {
        let Some(lease) = self.lease(number) else { return };
        let (key, last) = (lease.key.clone(), lease.handles() <= 1);
        let fair = self.options.fair;
        let hand_on = |queue: &mut Queue<u64>, number: &u64| queue.hand_on(number, fair);
        let next = if last { self.rooms.next(&key, number, hand_on) } else { None };
        if next.as_ref().is_some_and(|(_, turn)| *turn == Turn::Heir) {
            self.advance(number, Input::HandOn, around);
        } else if next.is_some() && !fair && self.rooms.listen_anew(&key) {
            self.unlisten(&key, around);
        }
        self.advance(number, input, around);
        if let Some((seat, turn)) = next {
            self.begin(&key, seat, turn, around);
        }
        self.tidy(&key, around);
    }

    /// A claim neither holds a lease nor tries to get one: whoever comes next begins.
    pub(super) fn vacate(&mut self, key: &Key, number: u64, around: &mut Around<'_>) {
        if let Some((seat, turn)) = self.rooms.next(key, number, Queue::leave) {
            self.begin(key, seat, turn, around);
        }
        self.tidy(key, around);
    }

    fn tidy(&mut self, key: &Key, around: &mut Around<'_>) {
        if self.rooms.tidy(key) {
            self.unlisten(key, around);
        }
    }

    fn unlisten(&mut self, key: &Key, around: &mut Around<'_>) {
        for node in 0..self.links.len() {
            self.link(node, LinkInput::Unlisten(key.clone()), around);
        }
    }
}
