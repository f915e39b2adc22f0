//! Fleet: the state that all requests of one lock share: its client, its clock, its options.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::RESERVED;
use redquorum_protocol::{BadOption, Key, LockConfig, Votes};

use crate::clock::Clock;
use crate::owner::Owners;
use crate::report::Report;
use crate::shared::Shared;

/// The longest key, prefix included.
const MAX_KEY: usize = 1 << 20;

pub(crate) struct Fleet {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    pub(crate) terms: LockConfig,
    pub(crate) wait: Duration,
    pub(crate) fencing_memory: Duration,
    pub(crate) prefix: Vec<u8>,
    pub(crate) owners: Owners,
}

impl Fleet {
    /// Whether the lock refuses new requests.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared.is_shut_down()
    }

    pub(crate) fn report(&self, votes: &Votes) -> Report {
        Report::new(votes, &self.shared.names)
    }

    /// The key of a resource.
    pub(crate) fn key(&self, resource: &[u8]) -> Result<Key, BadOption> {
        let length = self.prefix.len() + resource.len();
        match (resource.len(), length) {
            (0, _) => Err(BadOption::ResourceEmpty),
            (_, length) if length > MAX_KEY => {
                Err(BadOption::ResourceTooLong { length, longest: MAX_KEY })
            }
            _ if self.is_reserved(resource) => Err(BadOption::ResourceReserved),
            _ if self.prefix.is_empty() => Ok(Key::from(resource)),
            _ => Ok(Key::from([&self.prefix, resource].concat())),
        }
    }

    /// Whether a resource's key would look like one of the lock's own keys, such as its counters.
    fn is_reserved(&self, resource: &[u8]) -> bool {
        let mut key = self.prefix.iter().chain(resource);
        RESERVED.iter().all(|byte| key.next() == Some(byte))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks outlive the lock until no clean-up is pending.
        self.shared.close();
    }
}
