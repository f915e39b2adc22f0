//! One of several: what a request does next for which a lease on any of several resources will do.
//!
//! Most likely the first resource is free: one round trip. If not, the client asks who holds the
//! others, all at once, which keeps nobody out. It then tries those that are free. If none is, it
//! waits, and holds none meanwhile: first for one of them, drawn at random, and a moment later for
//! all. If all waiters entered all queues at once, these would have the same order, so each release
//! would wake the same waiter, and a waiter that gets one resource would leave all other queues.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::quorum::{NodeSet, Quorum};

/// The next step of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OneOfStep {
    /// Attempt to acquire this resource once, without a wait.
    Attempt(usize),
    /// Ask who holds the resources that were not tried.
    Look,
    /// Wait for this resource, and after [a head start](OneOf::head_start) for the others, too. The
    /// first that is granted ends the requests for the others.
    Wait(usize),
}

/// The course of a request, over the positions of its resources.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OneOf {
    /// The resources that it tries, or asks about: the first one is tried first.
    candidates: Vec<usize>,
    /// The resources to try, once the masters were asked.
    free: Option<VecDeque<usize>>,
    /// The resource for which it waits first.
    waits_for: usize,
    random: u64,
}

impl OneOf {
    /// Begins a request for one of several resources, and returns its first step. Requests that
    /// begin at the same time try different resources first, as the random number says. A request
    /// that may wait only waits for those that are `taken`, as far as the client knows.
    pub fn begin(random: u64, waits: bool, taken: &[bool]) -> (Self, OneOfStep) {
        debug_assert!(!taken.is_empty(), "one of none");
        let resources = taken.len().max(1);
        let one = |random: u64| usize::try_from(random % resources as u64).unwrap_or(0);
        let (first, waits_for) = (one(random), one(random >> 32));
        let all = (0..taken.len()).map(|next| (first + next) % resources);
        let candidates = all.filter(|resource| !waits || !taken[*resource]).collect();
        let mut one_of = Self { candidates, free: None, waits_for, random };
        let step = match one_of.candidates.first() {
            Some(first) => OneOfStep::Attempt(*first),
            None => one_of.looked([]),
        };
        (one_of, step)
    }

    /// The resources to ask about, in the order in which they are tried.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        self.candidates.iter().skip(1).copied()
    }

    /// How long it waits for one resource before it waits for all: a quarter to a half of a node
    /// timeout.
    pub fn head_start(&self, node_timeout: Duration) -> Duration {
        let quarter = node_timeout / 4;
        let part = u32::try_from(self.random >> 16 & 0xff).unwrap_or(0);
        quarter + quarter * part / 256
    }

    /// An attempt did not get its resource.
    pub fn refused(&mut self) -> OneOfStep {
        match &mut self.free {
            None => OneOfStep::Look,
            Some(free) => {
                free.pop_front().map_or(OneOfStep::Wait(self.waits_for), OneOfStep::Attempt)
            }
        }
    }

    /// The masters were asked. These of the [others](Self::others) are free.
    pub fn looked(&mut self, free: impl IntoIterator<Item = usize>) -> OneOfStep {
        debug_assert!(self.free.is_none(), "it asks once");
        let free: VecDeque<usize> = free.into_iter().collect();
        debug_assert!(
            self.candidates.first().is_none_or(|first| !free.contains(first)),
            "the first one was refused"
        );
        self.free = Some(free);
        self.refused()
    }
}

/// The name of a slot of a semaphore. Slots are counted from 1, and all clients of the semaphore
/// use these names.
pub fn slot_of(semaphore: &[u8], slot: usize) -> Vec<u8> {
    [semaphore, format!(":permit:{slot}").as_bytes()].concat()
}

/// Whether a resource is free, if these masters reply that they have no key for it: the others are
/// too few for a quorum.
pub fn is_free(absent: NodeSet, quorum: Quorum) -> bool {
    !quorum.may_be_a_rivals(quorum.all().without(absent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::NodeId;

    #[test]
    fn each_resource_is_tried_at_most_once_before_it_waits() {
        for (resources, random) in [(1, 7), (2, 3), (5, 9), (5, u64::MAX)] {
            for free in 0..resources {
                let (mut one_of, step) = OneOf::begin(random, true, &[false; 5][..resources]);
                let mut tried = Vec::from([step]);
                assert_eq!(one_of.refused(), OneOfStep::Look);
                let others: Vec<usize> = one_of.others().take(free).collect();
                let mut step = one_of.looked(others.iter().copied());
                while !matches!(step, OneOfStep::Wait(_)) {
                    tried.push(step);
                    step = one_of.refused();
                }
                assert_eq!(tried.len(), 1 + others.len());
                let again = |step| tried.iter().filter(|it| **it == step).count();
                assert!(tried.iter().all(|step| again(*step) == 1), "{tried:?}");
                assert_eq!(one_of.others().count(), resources - 1);
            }
        }
    }

    #[test]
    fn what_the_process_has_is_only_waited_for() {
        let (one_of, step) = OneOf::begin(1, true, &[true, true, true, false]);
        assert_eq!((step, one_of.others().count()), (OneOfStep::Attempt(3), 0));
        let (mut one_of, step) = OneOf::begin(3 << 32, true, &[true; 4]);
        assert_eq!(step, OneOfStep::Wait(3));
        assert_eq!(one_of.refused(), OneOfStep::Wait(3), "again, if it fails");
        // What it knows may be out of date, so a request that may not wait asks.
        let (one_of, step) = OneOf::begin(1, false, &[true; 4]);
        assert_eq!((step, one_of.others().count()), (OneOfStep::Attempt(1), 3));
    }

    #[test]
    fn it_waits_for_one_resource_for_a_quarter_to_a_half_of_a_node_timeout() {
        let head_start =
            |random| OneOf::begin(random, true, &[true]).0.head_start(Duration::from_millis(100));
        for random in [0, 1 << 16, u64::MAX, 0x1234_5678_9abc_def0] {
            let range = Duration::from_millis(25)..Duration::from_millis(50);
            assert!(range.contains(&head_start(random)), "{:?}", head_start(random));
        }
        assert_ne!(head_start(0), head_start(u64::MAX));
    }

    #[test]
    fn it_is_free_if_no_quorum_can_have_it() {
        for (nodes, needed) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            for absent in 0..=nodes {
                let set = NodeId::all(absent).collect();
                let is_free = is_free(set, Quorum::of(nodes));
                assert_eq!(is_free, absent >= needed, "{absent} of {nodes}");
            }
        }
    }
}
