//! The state that all requests of one lock share: its client, its clock, its options.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::RESERVED;
use redquorum_protocol::{BadOption, Key, LockConfig, Votes};

use super::Shared;
use crate::clock::Clock;
use crate::error::AcquireError;
use crate::report::Report;
use crate::trace::Resource;

/// The longest key, prefix included.
const MAX_KEY: usize = 1 << 20;

pub(crate) struct LockState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    pub(crate) config: LockConfig,
    pub(crate) wait: Duration,
    pub(crate) fencing_counter_ttl: Duration,
    pub(crate) prefix: Vec<u8>,
}

/// What a request asks for besides the time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    pub(crate) fenced: bool,
    pub(crate) shared: bool,
}

impl LockState {
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared.is_shut_down()
    }

    pub(crate) fn report(&self, votes: &Votes) -> Report {
        Report::new(votes, &self.shared.names, self.shared.quorum)
    }

    pub(crate) fn config(
        &self,
        key: &Key,
        ttl: Option<Duration>,
        kind: Kind,
    ) -> Result<LockConfig, AcquireError> {
        let config = ttl.map_or(Ok(self.config), |ttl| self.config.with_ttl(ttl));
        let memory = self.fencing_counter_ttl;
        let config = config
            .and_then(|it| if kind.fenced { it.with_fencing(memory) } else { Ok(it) })
            .and_then(|it| if kind.shared { it.with_sharing() } else { Ok(it) });
        config
            .map_err(|error| AcquireError::Options { resource: self.resource(key).to_vec(), error })
    }

    pub(crate) fn key(&self, resource: &[u8]) -> Result<Key, AcquireError> {
        let length = self.prefix.len() + resource.len();
        let error = match (resource.len(), length) {
            (0, _) => BadOption::ResourceEmpty,
            (_, length) if length > MAX_KEY => {
                BadOption::ResourceTooLong { length, longest: MAX_KEY }
            }
            _ if self.is_reserved(resource) => BadOption::ResourceReserved,
            _ if self.prefix.is_empty() => return Ok(Key::from(resource)),
            _ => return Ok(Key::from([&self.prefix, resource].concat())),
        };
        Err(AcquireError::Options { resource: resource.to_vec(), error })
    }

    pub(crate) fn resource<'a>(&self, key: &'a Key) -> &'a [u8] {
        &key[self.prefix.len()..]
    }

    /// The resource of a key, for events and spans.
    pub(crate) fn shown<'a>(&self, key: &'a Key) -> Resource<'a> {
        Resource { name: self.resource(key), hashed: self.shared.hash_resources }
    }

    /// Whether a resource's key would look like one of the lock's own keys, such as its counters.
    fn is_reserved(&self, resource: &[u8]) -> bool {
        let mut key = self.prefix.iter().chain(resource);
        RESERVED.iter().all(|byte| key.next() == Some(byte))
    }
}

impl Drop for LockState {
    fn drop(&mut self) {
        // The tasks outlive the lock until no clean-up is pending.
        self.shared.close();
    }
}
