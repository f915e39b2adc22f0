//! Fleet: what all claims of one lock share: its links, its clock, its options, its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redquorum_protocol::wire::RESERVED;
use redquorum_protocol::{BadOption, Key, LinkInput, NodeSet, Terms};
use tokio::sync::Notify;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::dice::{RetryPolicy, ShellDice};
use crate::link::{self, LinkCell};
use crate::owner::Owners;
use crate::rooms::Rooms;
use crate::stats::Counters;
use crate::tag::Tag;
use crate::trace::Throttle;

/// Longest key, prefix included.
const MAX_KEY: usize = 1 << 20;

pub(crate) struct Fleet {
    pub(crate) links: Vec<Arc<LinkCell>>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) clock: Clock,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) terms: Terms,
    pub(crate) wait: Duration,
    pub(crate) wake_ups: bool,
    pub(crate) fair: bool,
    pub(crate) fencing_memory: Duration,
    pub(crate) prefix: Vec<u8>,
    pub(crate) retry: RetryPolicy,
    pub(crate) counters: Counters,
    /// Of what is logged of leases.
    pub(crate) throttle: Throttle,
    pub(crate) owners: Owners,
    pub(crate) shut_down: AtomicBool,
    /// Told whenever a link came up, went down, or was paid.
    pub(crate) changed: Arc<Notify>,
}

impl Fleet {
    /// Whether no new request is taken.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    pub(crate) fn dice(&self) -> ShellDice<'_> {
        ShellDice(&self.retry)
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

    /// Whether a lock's key would look like one of the lock's own, as its counters are.
    fn is_reserved(&self, resource: &[u8]) -> bool {
        let mut key = self.prefix.iter().chain(resource);
        RESERVED.iter().all(|byte| key.next() == Some(byte))
    }

    /// Writes what was queued on these links, which were idle.
    pub(crate) fn flush(&self, idle: NodeSet) {
        link::flush(&self.links, idle);
    }

    /// Tells all links the same, and nobody what they say to it.
    pub(crate) fn tell_links(&self, input: impl Fn() -> LinkInput<Tag>) {
        for link in &self.links {
            if link.enter(input(), false).flush {
                link.flush();
            }
        }
    }

    /// Keys that are owed to go, and keys of living claims, over all masters.
    pub(crate) fn ledger(&self) -> (usize, usize) {
        let now = self.clock.now();
        let ledger =
            |link: &Arc<LinkCell>| link.view(|link, _| (link.owed_still(now), link.claimed()));
        let each = self.links.iter().map(ledger);
        each.fold((0, 0), |sum, link| (sum.0 + link.0, sum.1 + link.1))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks outlive the lock until nothing is owed.
        self.links.iter().for_each(|link| link.close());
        self.alarm.close();
    }
}
