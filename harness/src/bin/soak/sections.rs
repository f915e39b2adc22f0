//! The requests and critical sections that clients report: checked in the order of their times,
//! although the messages of several processes come in any order. They need little memory: an event
//! is dropped once no event that is still to come can be earlier.

use std::collections::BTreeMap;

use redquorum_checker::{FreeWaits, Overlaps, set_aside};
use redquorum_scenario::history::{Ns, Window};
use redquorum_scenario::units::nanos;

use crate::parent::{NODE_TIMEOUT, TTL};

/// A section, by its process and a number. Its request has the same.
pub(crate) type Id = (u32, u64);

/// What happens to a request.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Asks,
    /// Nobody polls it until this instant.
    Unpolled(Ns),
    Leaves,
    Begins,
    Ends,
    /// Its process is dead, or stands still until it is killed.
    Gone,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Sections {
    pub(crate) ended: u64,
    pub(crate) overlaps: u64,
    /// The longest time for which a request waited for a free resource.
    pub(crate) longest_wait: Ns,
    /// The stamp of the last message of each process that runs.
    latest: BTreeMap<u32, Ns>,
    /// The sections that have not ended: their starts.
    open: BTreeMap<Id, Ns>,
    /// The resource of each request and section.
    resource_of: BTreeMap<Id, String>,
    /// The ended sections that are not checked yet, in the order of their starts.
    waiting: BTreeMap<(Ns, Id), (String, Ns)>,
    /// The steps that are not checked yet, in their order.
    steps: BTreeMap<(Ns, u64), (Id, String, Step)>,
    count: u64,
    resources: BTreeMap<String, (Overlaps<Id>, FreeWaits<Id>)>,
    /// Until when requests that are not polled may be in the way of each resource.
    unpolled: BTreeMap<String, Ns>,
    /// The processes that stand still, and since when.
    stopped: BTreeMap<u32, Ns>,
    /// When each process last released each resource: it may not have reached a master.
    released: BTreeMap<(u32, String), Ns>,
}

impl Sections {
    /// A process starts, or sends a message. Its messages come in the order of their stamps.
    pub(crate) fn receive(&mut self, process: u32, at: Ns) {
        self.latest.insert(process, at);
        self.check();
    }

    /// A request begins.
    pub(crate) fn ask(&mut self, id: Id, resource: String, at: Ns) {
        self.resource_of.insert(id, resource);
        self.step(id, at, Step::Asks);
    }

    /// The next step of a request or a section.
    pub(crate) fn step(&mut self, id: Id, at: Ns, step: Step) {
        let Some(resource) = self.resource_of.get(&id).cloned() else { return };
        self.note(id, at, &resource, step);
        // The message of a process that stands still by now.
        if let Some(stopped) = self.stopped.get(&id.0) {
            self.note(id, *stopped, &resource, Step::Gone);
        }
        match step {
            Step::Begins => _ = self.open.insert(id, at),
            Step::Leaves => _ = self.resource_of.remove(&id),
            Step::Asks | Step::Unpolled(_) | Step::Ends | Step::Gone => {}
        }
    }

    fn note(&mut self, id: Id, at: Ns, resource: &str, step: Step) {
        self.steps.insert((at, self.count), (id, resource.to_owned(), step));
        self.count += 1;
    }

    /// A section ends now: its client held the resource until an instant, for certain.
    pub(crate) fn end(&mut self, id: Id, at: Ns, held_until: Ns) {
        self.step(id, at, Step::Ends);
        let resource = self.resource_of.remove(&id);
        if let (Some(from), Some(resource)) = (self.open.remove(&id), resource) {
            self.ended += 1;
            self.released.insert((id.0, resource.clone()), at);
            self.waiting.insert((from, id), (resource, held_until));
        }
    }

    /// A process dies, or stands still from now on: its keys expire. Those of a resource that it
    /// has just released may not be deleted.
    pub(crate) fn stop(&mut self, process: u32, at: Ns) {
        self.stopped.insert(process, at);
        let own = self.resource_of.range((process, 0)..=(process, u64::MAX));
        for (id, resource) in own.map(|(id, of)| (*id, of.clone())).collect::<Vec<_>>() {
            self.note(id, at, &resource, Step::Gone);
        }
        let all = (process, String::new())..(process + 1, String::new());
        let recent = self.released.range(all).filter(|(_, released)| **released + nanos(TTL) > at);
        for resource in recent.map(|((_, resource), _)| resource.clone()).collect::<Vec<_>>() {
            self.note((process, 0), at, &resource, Step::Gone);
        }
    }

    /// A process has ended. It held its open sections until its last message, for certain.
    pub(crate) fn gone(&mut self, process: u32, at: Ns) {
        // The keys of a process that stood still have expired since.
        if !self.stopped.contains_key(&process) {
            self.stop(process, at);
        }
        let last = self.latest.remove(&process).unwrap_or(Ns::MIN);
        let own = self.resource_of.range((process, 0)..=(process, u64::MAX));
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            match self.open.contains_key(&id) {
                true => self.end(id, at, last),
                false => _ = self.resource_of.remove(&id),
            }
        }
        self.stopped.remove(&process);
        self.released.retain(|(of, _), _| *of != process);
        self.check();
    }

    /// Checks the sections and the steps that began before any that is open or still to come.
    fn check(&mut self) {
        let next = self.latest.values().copied().min().unwrap_or(Ns::MAX);
        let first = self.open.values().copied().min().unwrap_or(Ns::MAX).min(next);
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 < first
        {
            let ((from, id), (resource, to)) = entry.remove_entry();
            let (overlaps, _) = self.resources.entry(resource).or_default();
            self.overlaps += u64::from(overlaps.add(id, Window { from, to }).is_some());
        }
        while let Some(entry) = self.steps.first_entry()
            && entry.key().0 < next
        {
            let ((at, _), (id, resource, step)) = entry.remove_entry();
            let (_, waits) = self.resources.entry(resource.clone()).or_default();
            let waited = match step {
                Step::Asks => {
                    waits.asks(id, at);
                    0
                }
                Step::Unpolled(until) => {
                    let waited = waits.leaves(id, at);
                    // Each of several tasks of a process may have its turn in vain.
                    let longest = set_aside(nanos(NODE_TIMEOUT), nanos(TTL));
                    let blocked = self.unpolled.entry(resource).or_insert(at);
                    *blocked = at.max(*blocked) + longest.min(until - at);
                    waits.blocked_until(*blocked);
                    waits.asks(id, until);
                    waited
                }
                Step::Leaves => waits.leaves(id, at),
                Step::Begins => waits.granted(id, at),
                Step::Ends => {
                    waits.ends(id, at);
                    0
                }
                Step::Gone => {
                    let waited = waits.leaves(id, at);
                    waits.ends(id, at);
                    waits.blocked_until(at.saturating_add(nanos(TTL + TTL / 10)));
                    waited
                }
            };
            self.longest_wait = self.longest_wait.max(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sections of one resource overlap. Each is from and until these times, in a process
    /// of its own. They report their ends in this order. A process without an end is killed.
    fn overlaps(sections: &[(Ns, Option<Ns>)]) -> u64 {
        let mut all = Sections::default();
        let ids = || (0..).zip(sections);
        ids().for_each(|(process, _)| all.receive(process, 0));
        for (process, (from, _)) in ids() {
            all.ask((process, 1), "r".to_owned(), 0);
            all.step((process, 1), *from, Step::Begins);
        }
        for (process, (from, to)) in ids() {
            all.receive(process, to.unwrap_or(*from + 5));
            match to {
                Some(to) => all.end((process, 1), *to, *to),
                None => all.gone(process, *from + 6),
            }
        }
        ids().for_each(|(process, _)| all.gone(process, 60));
        assert!(all.open.is_empty() && all.waiting.is_empty() && all.steps.is_empty());
        assert!(all.resource_of.is_empty());
        assert_eq!(all.ended, sections.len() as u64);
        all.overlaps
    }

    #[test]
    fn sections_overlap_whatever_the_order_in_which_they_are_reported() {
        for (sections, expected) in [
            (&[(10, Some(20)), (20, Some(30))][..], 0),
            (&[(20, Some(30)), (10, Some(20))], 0),
            (&[(10, Some(21)), (20, Some(30))], 1),
            (&[(20, Some(30)), (10, Some(21))], 1),
            (&[(30, Some(40)), (10, Some(50)), (20, Some(25))], 2),
            // A killed process held until its last message.
            (&[(10, None), (14, Some(20))], 1),
            (&[(10, None), (15, Some(20))], 0),
        ] {
            assert_eq!(overlaps(sections), expected, "{sections:?}");
        }
    }

    const S: Ns = 1_000_000_000;

    /// The longest wait for a free resource, in seconds. Process 1 asks at 10 s and has it from
    /// 30 s on. Process 2 holds it before, until 12 s, and then does this.
    fn waits(then: impl Fn(&mut Sections)) -> Ns {
        let mut all = Sections::default();
        (1..=2).for_each(|process| all.receive(process, 0));
        all.ask((1, 1), "r".to_owned(), 10 * S);
        all.step((1, 1), 30 * S, Step::Begins);
        all.receive(1, 31 * S);
        all.ask((2, 1), "r".to_owned(), 0);
        all.step((2, 1), S, Step::Begins);
        all.end((2, 1), 12 * S, 12 * S);
        then(&mut all);
        all.receive(2, 40 * S);
        all.receive(1, 41 * S);
        all.longest_wait / S
    }

    #[test]
    fn a_request_waits_only_while_nothing_is_in_the_way() {
        assert_eq!(waits(|_| ()), 18);
        // Its release may not have reached the masters: its keys expire.
        assert_eq!(waits(|all| all.gone(2, 13 * S)), 13);
        assert_eq!(waits(|all| all.stop(2, 16 * S)), 18);
        // It asks again, and does not poll its request.
        let unpolled = |until: Ns| {
            waits(move |all| {
                all.ask((2, 2), "r".to_owned(), 13 * S);
                all.step((2, 2), 14 * S, Step::Unpolled(until * S));
                all.step((2, 2), until * S, Step::Leaves);
            })
        };
        assert_eq!((unpolled(15), unpolled(29)), (15, 12));
    }
}
