//! Server identities: the run ids of the servers behind the masters, so that no server counts
//! twice.
//!
//! Two addresses can lead to one server (`localhost` and `127.0.0.1`, two names, a proxy). A server
//! that counts twice makes a quorum of fewer masters than it seems.

use alloc::vec::Vec;

use crate::link::RunId;
use crate::quorum::NodeId;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ServerIdentities(Vec<Option<RunId>>);

impl ServerIdentities {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(alloc::vec![None; nodes])
    }

    /// Enters the run id that a new connection of `node` reported.
    ///
    /// # Errors
    /// The other master that is the same server process: the connection must not vote.
    pub(crate) fn enter(&mut self, node: NodeId, run_id: &RunId) -> Result<(), NodeId> {
        let same =
            |other: &NodeId| *other != node && self.0[other.index()].as_ref() == Some(run_id);
        if let Some(other) = NodeId::all(self.0.len()).find(same) {
            return Err(other);
        }
        self.0[node.index()] = Some(run_id.clone());
        Ok(())
    }

    /// Removes `node`, which has no connection. Otherwise two masters that swapped their addresses
    /// would exclude each other for ever.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.0[node.index()] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn two_masters_may_swap_their_addresses() {
        let id = |text: &str| RunId(Arc::from(text));
        let (first, second) = (NodeId::new(0), NodeId::new(1));
        let mut roster = ServerIdentities::new(2);
        roster.enter(first, &id("a")).unwrap();
        roster.enter(second, &id("b")).unwrap();
        assert_eq!(roster.enter(first, &id("b")), Err(second));
        roster.leave(first);
        assert_eq!(roster.enter(second, &id("a")), Ok(()));
        assert_eq!(roster.enter(first, &id("b")), Ok(()));
    }
}
