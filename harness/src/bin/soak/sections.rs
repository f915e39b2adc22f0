//! The critical sections that clients report, checked as they end. They need little memory: a
//! section is dropped once no section that is still to come can have begun before it.

use std::collections::BTreeMap;

use redquorum_checker::Overlaps;
use redquorum_scenario::history::{Ns, Window};

/// A section, by its process and a number.
type Id = (u32, u64);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Sections {
    pub(crate) ended: u64,
    pub(crate) overlaps: u64,
    /// The stamp of the last message of each process that runs.
    latest: BTreeMap<u32, Ns>,
    /// The sections that have not ended: their resources and their starts.
    open: BTreeMap<Id, (String, Ns)>,
    /// The ended sections that are not checked yet, in the order of their starts.
    waiting: BTreeMap<(Ns, Id), (String, Ns)>,
    resources: BTreeMap<String, Overlaps<Id>>,
}

impl Sections {
    /// A process starts, or sends a message. Its messages come in the order of their stamps.
    pub(crate) fn receive(&mut self, process: u32, at: Ns) {
        self.latest.insert(process, at);
        self.check();
    }

    /// A section begins.
    pub(crate) fn begin(&mut self, id: Id, resource: String, from: Ns) {
        self.open.insert(id, (resource, from));
    }

    /// A section ends: its client held the resource until an instant, for certain.
    pub(crate) fn end(&mut self, id: Id, to: Ns) {
        if let Some((resource, from)) = self.open.remove(&id) {
            self.ended += 1;
            self.waiting.insert((from, id), (resource, to));
        }
    }

    /// A process has ended. It held its open sections until its last message, for certain.
    pub(crate) fn gone(&mut self, process: u32) {
        let last = self.latest.remove(&process).unwrap_or(Ns::MIN);
        let open = self.open.range((process, 0)..=(process, u64::MAX));
        let open: Vec<Id> = open.map(|(id, _)| *id).collect();
        open.into_iter().for_each(|id| self.end(id, last));
        self.check();
    }

    /// Checks the sections that began before any section that is open or still to come.
    fn check(&mut self) {
        let open = self.open.values().map(|(_, from)| *from);
        let next = open.chain(self.latest.values().copied()).min().unwrap_or(Ns::MAX);
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 < next
        {
            let ((from, id), (resource, to)) = first.remove_entry();
            let overlaps = self.resources.entry(resource).or_default();
            self.overlaps += u64::from(overlaps.add(id, Window { from, to }).is_some());
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
        ids().for_each(|(process, (from, _))| all.begin((process, 1), "r".to_owned(), *from));
        for (process, (from, to)) in ids() {
            all.receive(process, to.unwrap_or(*from + 5));
            match to {
                Some(to) => all.end((process, 1), *to),
                None => all.gone(process),
            }
        }
        ids().for_each(|(process, _)| all.gone(process));
        assert!(all.open.is_empty() && all.waiting.is_empty());
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
}
