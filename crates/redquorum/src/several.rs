//! Several resources at once: the request, and what is checked of it.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{BadOption, Key, Terms};

use crate::acquire::Granted;
use crate::fence::FencedLease;
use crate::fleet::Fleet;
use crate::lease::Lease;
use crate::redlock::Redlock;

mod acquiring;
mod error;
mod leases;
mod together;

pub use acquiring::AcquiringAll;
pub use error::{AcquireAllError, LostOne, NotExtended};
pub use leases::{Leases, ReleasedAll};

/// The most resources that can be asked for at once.
const MOST: usize = 1000;

/// A request for several resources, of which all are granted or none. Made by
/// [`Redlock::acquire_all`]; `.await` sends it, and `.into_future()` makes it a future for `spawn`, `join!`
/// and the like.
///
/// Each is leased as it would be alone: with a key, a token and, if [fenced](AcquireAll::fenced), a fencing
/// token of its own. So those who ask for one of them and those who ask for several keep each other out, and
/// the order in which they are named is of no account.
///
/// All are asked for in the same instant, so that it takes one round trip if they are free. If one is not,
/// the others are given back at once; the one that was in the way is waited for, with nothing held, and then
/// all are asked for again. No two callers wait for each other. **Nor is anybody held up for who wants
/// several**: under a steady load of others, each on one of the resources, a caller may find one of them taken
/// every time until its [wait](AcquireAll::wait) is over. Where that matters, lock one resource that stands
/// for all.
#[must_use = "nothing is sent before the request is awaited"]
pub struct AcquireAll<L = Lease> {
    request: Request,
    kind: PhantomData<fn() -> L>,
}

// Not derived: a request can be cloned whatever it asks for.
impl<L> Clone for AcquireAll<L> {
    fn clone(&self) -> Self {
        Self { request: self.request.clone(), kind: PhantomData }
    }
}

#[derive(Clone)]
struct Request {
    /// In the order in which they were named.
    parts: Vec<Part>,
    ttl: Option<Duration>,
    wait: Duration,
}

/// One of the resources.
#[derive(Clone)]
struct Part {
    fleet: Arc<Fleet>,
    /// The names of the masters, sorted: two locks over the same ones are the same set.
    set: Arc<[Arc<str>]>,
    resource: Arc<[u8]>,
    key: Result<Key, BadOption>,
}

/// One of the resources, checked.
struct Wanted {
    fleet: Arc<Fleet>,
    key: Key,
    terms: Terms,
    /// Its place in the order in which they were named.
    named: usize,
}

impl Redlock {
    /// Asks for several resources, of which all are granted or none, in one round trip if they are free; waits
    /// while one is taken or has no quorum. It returns at the latest three node timeouts after the wait is
    /// over.
    ///
    /// They are at least one and at most 1000, each named once. Set the TTL and the wait on what is returned,
    /// and add resources on [other masters](AcquireAll::and); `.await` sends it. A wait of zero makes one
    /// attempt.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = lock.acquire_all(["account:1", "account:2"]).await?;
    /// leases.run(async { /* what nobody else may do meanwhile */ }).await?;
    /// leases.release().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// * [`Taken`](AcquireAllError::Taken), [`NoQuorum`](AcquireAllError::NoQuorum),
    ///   [`TooLate`](AcquireAllError::TooLate): as [`acquire`](Redlock::acquire), with the resource that was in
    ///   the way at last. Nothing is held then.
    /// * [`NoResources`](AcquireAllError::NoResources), [`TooMany`](AcquireAllError::TooMany),
    ///   [`NamedTwice`](AcquireAllError::NamedTwice), [`Options`](AcquireAllError::Options): nothing was sent.
    /// * [`ShutDown`](AcquireAllError::ShutDown): after [`shutdown`](Redlock::shutdown) of one of the locks.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up: what it may have set, on whichever resource, is deleted in the
    /// background.
    pub fn acquire_all<I>(&self, resources: I) -> AcquireAll
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let request = Request { parts: Vec::new(), ttl: None, wait: self.fleet.wait };
        AcquireAll { request, kind: PhantomData }.and(self, resources)
    }
}

impl AcquireAll {
    /// Asks for leases with a [fencing token](FencedLease) each. Tokens of different resources are not
    /// comparable.
    ///
    /// Otherwise as [`Acquire::fenced`](crate::Acquire::fenced).
    pub fn fenced(self) -> AcquireAll<FencedLease> {
        AcquireAll { request: self.request, kind: PhantomData }
    }
}

impl<L> AcquireAll<L> {
    /// Asks for these resources too, on the masters of another lock. Its own options hold for them, but for
    /// the wait and the pauses, which are those of the lock that was asked first.
    ///
    /// All is as safe as each of the locks is alone: a resource on one set of masters is not guarded by the
    /// other.
    pub fn and<I>(mut self, lock: &Redlock, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut set = lock.fleet.shared.names.clone();
        set.sort_unstable();
        let set: Arc<[Arc<str>]> = set.into();
        self.request.parts.extend(resources.into_iter().map(|resource| {
            let resource: Arc<[u8]> = resource.as_ref().into();
            let (fleet, key) = (lock.fleet.clone(), lock.fleet.key(&resource));
            Part { fleet, set: set.clone(), resource, key }
        }));
        self
    }

    /// How long the masters keep the keys, instead of each lock's own [TTL](crate::Builder::ttl). Same bounds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(ttl);
        self
    }

    /// How long to wait, all in all, while one of them is taken or has no quorum, instead of the first lock's
    /// own [wait](crate::Builder::wait). Zero makes one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }
}

impl Request {
    /// What is asked for, in the order in which all callers ask: by the masters, then by the key.
    fn check<L: Granted>(mut self) -> Result<Vec<Wanted>, AcquireAllError> {
        let resources = self.parts.len();
        if resources == 0 {
            return Err(AcquireAllError::NoResources);
        }
        if resources > MOST {
            return Err(AcquireAllError::TooMany { resources, most: MOST });
        }
        if self.parts.iter().any(|part| part.fleet.is_shut_down()) {
            return Err(AcquireAllError::ShutDown);
        }
        let mut places: Vec<(usize, Part)> = self.parts.drain(..).enumerate().collect();
        let place = |part: &Part| (part.set.clone(), part.key.clone().ok());
        places.sort_by_cached_key(|(_, part)| place(part));
        let twice = places.windows(2).find(|two| place(&two[0].1) == place(&two[1].1));
        if let Some(two) = twice
            && two[0].1.key.is_ok()
        {
            let resource = two[0].1.resource.to_vec();
            return Err(AcquireAllError::NamedTwice { resource });
        }
        let wanted = places.into_iter().map(|(named, Part { fleet, resource, key, .. })| {
            let terms = || {
                let terms = self.ttl.map_or(Ok(fleet.terms), |ttl| fleet.terms.with_ttl(ttl))?;
                L::terms(terms, fleet.fencing_memory)
            };
            match key.and_then(|key| Ok((key, terms()?))) {
                Ok((key, terms)) => Ok(Wanted { fleet, key, terms, named }),
                Err(bad) => Err(AcquireAllError::Options { resource: resource.to_vec(), bad }),
            }
        });
        wanted.collect()
    }
}

impl<L: Granted> IntoFuture for AcquireAll<L> {
    type Output = Result<Leases<L>, AcquireAllError>;
    type IntoFuture = AcquiringAll<L>;

    fn into_future(self) -> AcquiringAll<L> {
        AcquiringAll::new(self.request)
    }
}
