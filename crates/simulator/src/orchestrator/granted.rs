//! The masters that granted each lease, for faults that hit the holders' masters.

use std::collections::{BTreeMap, BTreeSet};

use redquorum_scenario::name::Name;

/// The masters that granted each token.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    nodes: BTreeMap<Name, BTreeSet<usize>>,
    /// The tokens of each process, in the order of their first grants.
    of_process: BTreeMap<Name, Vec<Name>>,
    /// The token of each client's latest lease.
    of_client: BTreeMap<Name, Name>,
}

impl Granted {
    /// A master granted a token.
    pub(super) fn set(&mut self, process: Name, token: &Name, node: usize) {
        let tokens = self.of_process.entry(process).or_default();
        if !tokens.iter().any(|known| known == token) {
            tokens.push(token.clone());
        }
        self.nodes.entry(token.clone()).or_default().insert(node);
    }

    /// A client got a lease. If the client does not report the token, this is the latest of the
    /// process's tokens that `quorum` masters granted. Later tokens may belong to other clients of
    /// the process, which are still trying.
    pub(super) fn won(
        &mut self,
        client: &Name,
        process: &str,
        reported: Option<&Name>,
        quorum: usize,
    ) {
        let reported = reported.filter(|token| self.nodes.contains_key(*token));
        let count = |token: &Name| self.nodes.get(token).map_or(0, BTreeSet::len).min(quorum);
        let of_process = || {
            let tokens = self.of_process.get(process)?;
            tokens.iter().max_by_key(|token| count(token)).cloned()
        };
        if let Some(token) = reported.cloned().or_else(of_process) {
            self.of_client.insert(client.clone(), token);
        }
    }

    /// The masters that granted the latest lease of a client. If it has no lease, the masters that
    /// granted the latest token of its process.
    pub(super) fn nodes(&self, client: &str, process: &str) -> Option<&BTreeSet<usize>> {
        let tried = || self.of_process.get(process)?.last();
        self.nodes.get(self.of_client.get(client).or_else(tried)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_process_have_leases_of_their_own() {
        let mut granted = Granted::default();
        for node in [1, 2, 4] {
            granted.set("p".into(), &"t1".into(), node);
        }
        for node in [3, 5] {
            granted.set("p".into(), &"t2".into(), node);
        }
        granted.won(&"c1".into(), "p", None, 3);
        granted.set("p".into(), &"t2".into(), 1);
        granted.set("p".into(), &"t3".into(), 5);
        granted.won(&"c2".into(), "p", Some(&"t2".into()), 3);
        assert_eq!(granted.nodes("c1", "p"), Some(&BTreeSet::from([1, 2, 4])));
        assert_eq!(granted.nodes("c2", "p"), Some(&BTreeSet::from([1, 3, 5])));
        assert_eq!(granted.nodes("c3", "p"), Some(&BTreeSet::from([5])));
        assert_eq!(granted.nodes("c4", "q"), None);
        // Of several tokens with a quorum, the latest.
        granted.won(&"c1".into(), "p", Some(&"unknown".into()), 3);
        assert_eq!(granted.nodes("c1", "p"), Some(&BTreeSet::from([1, 3, 5])));
    }
}
