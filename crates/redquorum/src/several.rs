//! Several resources at once: the request, and its checks.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Key, LockConfig};

use crate::error::AcquireError;
use crate::redlock::Redlock;
use crate::shared::{ClaimCell, Kind, LockState};

mod acquiring;
mod leases;

pub use acquiring::AcquiringAll;
pub use leases::{Leases, ReleasedAll};

const MOST: usize = 1000;

/// A request for several resources, all granted or none, made by [`Redlock::acquire_all`]. `.await`
/// sends it; `.into_future()` makes it a future for `spawn`, `join!` and the like.
///
/// Each resource is leased as it would be alone: with a key, a token and, if
/// [fenced](AcquireAll::fenced), a fencing token of its own. So requests for one of the resources
/// and requests for several exclude each other. The order of the names does not matter.
///
/// The request asks for all resources at the same instant, so it takes one round trip if they are
/// free. If one is taken, the request gives the others back at once. It waits for the taken one
/// while it holds nothing, and then asks for all again. No two callers wait for each other.
///
/// **Nothing is reserved for a request for several resources.** Under a steady load of requests for
/// single ones, it may find one of them taken every time until its [wait](AcquireAll::wait) is
/// over. Where that matters, lock one resource that stands for all.
#[derive(Clone)]
#[must_use = "nothing is sent before the request is awaited"]
pub struct AcquireAll(Request);

#[derive(Clone)]
struct Request {
    parts: Vec<Part>,
    ttl: Option<Duration>,
    wait: Duration,
    kind: Kind,
}

/// One of the resources, unchecked.
#[derive(Clone)]
struct Part {
    lock_state: Arc<LockState>,
    /// The names of the masters, sorted: two locks over the same masters have the same set.
    set: Arc<[Arc<str>]>,
    key: Result<Key, AcquireError>,
}

struct Member {
    lock_state: Arc<LockState>,
    key: Key,
    config: LockConfig,
    /// Its position in the order in which the resources were named.
    named: usize,
    claim: Option<Arc<ClaimCell>>,
}

impl Redlock {
    /// Asks for several resources: all are granted or none. It takes one round trip if all are
    /// free. It waits while one of them is taken or has no quorum, and returns at most three node
    /// timeouts after the wait is over. With [`fair`](crate::Builder::fair) or fencing tokens it
    /// may take
    /// [longer](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#how-long-to-wait).
    ///
    /// Name at least one and at most 1000 resources, each once. Set the TTL and the wait on the
    /// returned value, and add resources on [other masters](AcquireAll::and); `.await` sends the
    /// request. A wait of zero makes one attempt.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = lock.acquire_all(["account:1", "account:2"]).await?;
    /// leases.run(async { /* the protected work */ }).await?;
    /// let _ = leases.release().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`acquire`](Redlock::acquire), about the last resource that failed: nothing is held
    /// then. And [`NoResources`](AcquireError::NoResources),
    /// [`TooManyResources`](AcquireError::TooManyResources),
    /// [`NamedTwice`](AcquireError::NamedTwice): nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up. The keys that it may have set, of any resource,
    /// are deleted in the background.
    pub fn acquire_all<I>(&self, resources: I) -> AcquireAll
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let (parts, wait) = (Vec::new(), self.lock_state.wait);
        AcquireAll(Request { parts, ttl: None, wait, kind: Kind::default() }).and(self, resources)
    }
}

impl AcquireAll {
    /// Asks for leases with a [fencing token](crate::Lease::fencing_token) each: see
    /// [`Acquire::fenced`](crate::Acquire::fenced). Tokens of different resources are not
    /// comparable.
    pub fn fenced(mut self) -> Self {
        self.0.kind.fenced = true;
        self
    }

    /// Asks for leases that others may share: see [`Acquire::shared`](crate::Acquire::shared).
    pub fn shared(mut self) -> Self {
        self.0.kind.shared = true;
        self
    }

    /// Asks for these resources too, on the masters of another lock. The options of that lock apply
    /// to them, except for the wait and the pauses, which are those of the first lock.
    ///
    /// Each resource is as safe as its lock is alone: one set of masters does not protect the
    /// resources on another.
    pub fn and<I>(mut self, lock: &Redlock, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut set = lock.lock_state.shared.names.clone();
        set.sort_unstable();
        let set: Arc<[Arc<str>]> = set.into();
        self.0.parts.extend(resources.into_iter().map(|resource| {
            let (lock_state, key) =
                (lock.lock_state.clone(), lock.lock_state.key(resource.as_ref()));
            Part { lock_state, set: set.clone(), key }
        }));
        self
    }

    /// The TTL of each lease, instead of each lock's own [TTL](crate::Builder::ttl). The same
    /// bounds apply.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = Some(ttl);
        self
    }

    /// How long to wait in total while one of the resources is taken or has no quorum, instead of
    /// the first lock's own [wait](crate::Builder::wait). Zero makes one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.wait = wait;
        self
    }
}

impl Request {
    /// Checks the request and sorts it in the order that all callers use: by the masters, then by
    /// the key.
    fn check(mut self) -> Result<Vec<Member>, AcquireError> {
        let resources = self.parts.len();
        if resources == 0 {
            return Err(AcquireError::NoResources);
        }
        if resources > MOST {
            return Err(AcquireError::TooManyResources { resources, most: MOST });
        }
        if self.parts.iter().any(|part| part.lock_state.is_shut_down()) {
            return Err(AcquireError::ShutDown);
        }
        let mut places: Vec<(usize, Part)> = self.parts.drain(..).enumerate().collect();
        let place = |part: &Part| (part.set.clone(), part.key.clone().ok());
        places.sort_by_cached_key(|(_, part)| place(part));
        let twice = places.windows(2).find(|two| place(&two[0].1) == place(&two[1].1));
        if let Some([(_, Part { lock_state, key: Ok(key), .. }), _]) = twice {
            return Err(AcquireError::NamedTwice { resource: lock_state.resource(key).to_vec() });
        }
        let members = places.into_iter().map(|(named, Part { lock_state, key, .. })| {
            let key = key?;
            let config = lock_state.config(&key, self.ttl, self.kind)?;
            Ok(Member { lock_state, key, config, named, claim: None })
        });
        members.collect()
    }
}

impl IntoFuture for AcquireAll {
    type Output = Result<Leases, AcquireError>;
    type IntoFuture = AcquiringAll;

    fn into_future(self) -> AcquiringAll {
        AcquiringAll::new(self.0)
    }
}
