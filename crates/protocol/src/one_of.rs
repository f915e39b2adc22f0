//! One of several: what a request does next for which a lease on any of several resources will do.
//!
//! Most likely the first resource is free: one round trip. If not, the client asks who holds the
//! others, all at once, which keeps nobody out. It then tries those that are free. If none is, it
//! waits for all of them, and holds none meanwhile.

use alloc::collections::VecDeque;

use crate::quorum::quorum;

/// The next step of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OneOfStep {
    /// Attempt to acquire this resource once, without a wait.
    Attempt(usize),
    /// Ask who holds the resources that were not tried.
    Look,
    /// Wait for every resource. The first that is granted ends the requests for the others.
    Wait,
}

/// The course of a request, over the positions of its resources.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OneOf {
    first: usize,
    resources: usize,
    /// The resources to try, once the masters were asked.
    free: Option<VecDeque<usize>>,
}

impl OneOf {
    /// Begins a request for one of so many resources, and returns its first step. Requests that
    /// begin at the same time try different resources first, as the random number says.
    pub fn begin(resources: usize, random: u64) -> (Self, OneOfStep) {
        debug_assert!(resources > 0, "one of none");
        let first = usize::try_from(random % (resources as u64).max(1)).unwrap_or(0);
        (Self { first, resources, free: None }, OneOfStep::Attempt(first))
    }

    /// The resources to ask about, in the order in which they are tried.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { first, resources, .. } = *self;
        (1..resources).map(move |next| (first + next) % resources)
    }

    /// An attempt did not get its resource.
    pub fn refused(&mut self) -> OneOfStep {
        match &mut self.free {
            None => OneOfStep::Look,
            Some(free) => free.pop_front().map_or(OneOfStep::Wait, OneOfStep::Attempt),
        }
    }

    /// The masters were asked. These of the [others](Self::others) are free.
    pub fn looked(&mut self, free: impl IntoIterator<Item = usize>) -> OneOfStep {
        debug_assert!(self.free.is_none(), "it asks once");
        let free: VecDeque<usize> = free.into_iter().collect();
        debug_assert!(!free.contains(&self.first), "the first was refused");
        self.free = Some(free);
        self.refused()
    }
}

/// Whether a resource is free, if so many of the masters reply that they have no key for it: the
/// others are too few for a quorum.
pub const fn is_free(absent: usize, nodes: usize) -> bool {
    absent + quorum(nodes) > nodes
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn each_resource_is_tried_at_most_once_before_it_waits() {
        for (resources, random) in [(1, 7), (2, 3), (5, 9), (5, u64::MAX)] {
            for free in 0..resources {
                let (mut one_of, step) = OneOf::begin(resources, random);
                let mut tried = Vec::from([step]);
                assert_eq!(one_of.refused(), OneOfStep::Look);
                let others: Vec<usize> = one_of.others().take(free).collect();
                let mut step = one_of.looked(others.iter().copied());
                while step != OneOfStep::Wait {
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
    fn it_is_free_if_no_quorum_can_have_it() {
        for (nodes, needed) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            for absent in 0..=nodes {
                assert_eq!(is_free(absent, nodes), absent >= needed, "{absent} of {nodes}");
            }
        }
    }
}
