//! Leases: what a successful acquire of several resources returns.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use redquorum_protocol::Outcome;

use super::error::{LostOne, NotExtended};
use super::together;
use crate::acquire::Granted;
use crate::clock::Deadline;
use crate::error::{ExtendError, Lost};
use crate::lease::{Lease, Released, run_while};

/// Several resources, held together until the [deadline](Leases::deadline), or until they are given
/// back. The deadline is the earliest of theirs. Made by
/// [`Redlock::acquire_all`](crate::Redlock::acquire_all).
///
/// Each resource has its own [lease](Leases::iter), and **is held exactly as it would be alone**.
/// Together they promise two things: all were granted before any deadline had passed, and each
/// keeps its promise until the earliest deadline. If one is lost, the others are still held until
/// they are given back.
///
/// Dropping it gives all back in the background, as [dropping a lease](Lease) does. To give them
/// back one by one, iterate over it by value.
#[must_use = "the resources are given back as soon as the leases are dropped"]
pub struct Leases<L = Lease> {
    /// In the order in which they were named; at least one.
    leases: Vec<L>,
}

impl<L: Granted> Leases<L> {
    pub(super) const fn new(leases: Vec<L>) -> Self {
        Self { leases }
    }

    fn each(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().map(L::lease)
    }

    /// The leases, in the order in which the resources were named.
    pub fn iter(&self) -> std::slice::Iter<'_, L> {
        self.leases.iter()
    }

    /// The lease of one resource. If several sets of masters have a resource of this name, the
    /// first one.
    pub fn get(&self, resource: impl AsRef<[u8]>) -> Option<&L> {
        self.leases.iter().find(|lease| lease.lease().resource() == resource.as_ref())
    }

    /// The instant after which the leases must be taken for lost: the earliest of their deadlines.
    pub fn deadline(&self) -> Deadline {
        self.each().map(Lease::deadline).min().expect("there is at least one")
    }

    /// The time that is left until the deadline; zero once one of the leases is lost. The value is
    /// out of date as soon as you have it. To stop in time, use [`run`](Leases::run) or
    /// [`lost`](Leases::lost).
    pub fn validity(&self) -> Duration {
        self.each().map(Lease::validity).min().unwrap_or_default()
    }

    /// The lost lease, if one is lost. A loss is final.
    pub fn is_lost(&self) -> Option<LostOne> {
        self.each().find_map(|lease| lease.is_lost().map(|lost| lost_one(lease, lost)))
    }

    /// Waits until one of the leases is lost, and returns which and why: see [`Lease::lost`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LostOne {
        together::first(self.each().map(|lease| async { lost_one(lease, lease.lost().await) }))
            .await
    }

    /// Extends all leases by their TTLs from now, in one round trip: see [`Lease::extend`]. Returns
    /// the new deadline, the earliest of theirs.
    ///
    /// # Errors
    /// [`NotExtended`] if not all were extended, with the worst error.
    ///
    /// # Cancel safety
    /// See [`Lease::extend`].
    pub async fn extend(&self) -> Result<Deadline, NotExtended> {
        let results = together::all(self.each().map(Lease::extend)).await;
        self.extended(results)
    }

    /// Extends all leases by another TTL from now, which further extensions use too: see
    /// [`Lease::extend_to`].
    ///
    /// # Errors
    /// The errors of [`extend`](Leases::extend). If the TTL is out of the
    /// [bounds](crate::Builder::ttl) of one of the locks, nothing was sent to the masters of that
    /// lock.
    ///
    /// # Cancel safety
    /// See [`Lease::extend`].
    pub async fn extend_to(&self, ttl: Duration) -> Result<Deadline, NotExtended> {
        let results = together::all(self.each().map(|lease| lease.extend_to(ttl))).await;
        self.extended(results)
    }

    fn extended(
        &self,
        results: Vec<Result<Deadline, ExtendError>>,
    ) -> Result<Deadline, NotExtended> {
        let failed = self.each().zip(results).filter_map(|(lease, result)| {
            let resource = lease.resource().to_vec();
            result.err().map(|error| NotExtended { resource, error })
        });
        // The first of the worst errors.
        match failed.min_by_key(|failed| std::cmp::Reverse(badness(&failed.error))) {
            Some(failed) => Err(failed),
            // A lease may have been lost while the last extensions were in progress.
            None => match self.is_lost() {
                Some(LostOne { resource, lost }) => {
                    Err(NotExtended { resource, error: ExtendError::Lost(lost) })
                }
                None => Ok(self.deadline()),
            },
        }
    }

    /// Starts the watchdog for each of the leases: see [`Lease::keep_alive`]. It extends none of
    /// them beyond `max_hold` from now.
    pub fn keep_alive(&self, max_hold: Duration) {
        self.each().for_each(|lease| lease.keep_alive(max_hold));
    }

    /// Runs `work` while all leases last: see [`Lease::run`]. When it is done,
    /// [release](Leases::release) them.
    ///
    /// # Errors
    /// [`LostOne`] if one of the leases ended first.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and leaves the leases as they are.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostOne> {
        run_while(work, self.lost(), || self.is_lost()).await
    }

    /// Gives all resources back, at once: see [`Lease::release`].
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, gives all of them back all the same; only the outcome is
    /// lost.
    pub async fn release(self) -> ReleasedAll {
        let each = self.leases.into_iter().map(|lease| async {
            let lease = lease.into_lease();
            let resource = lease.resource().to_vec();
            (resource, lease.release().await)
        });
        ReleasedAll { each: together::all(each).await }
    }
}

fn lost_one(lease: &Lease, lost: Lost) -> LostOne {
    LostOne { resource: lease.resource().to_vec(), lost }
}

/// How bad an error is: from those that may pass to those that stay.
const fn badness(error: &ExtendError) -> u8 {
    match error {
        ExtendError::NoQuorum(_) => 0,
        ExtendError::Options(_) | ExtendError::ShutDown => 1,
        ExtendError::QuorumGone(_) => 2,
        ExtendError::Lost(_) => 3,
    }
}

impl<L> IntoIterator for Leases<L> {
    type Item = L;
    type IntoIter = std::vec::IntoIter<L>;

    fn into_iter(self) -> Self::IntoIter {
        self.leases.into_iter()
    }
}

impl<'a, L> IntoIterator for &'a Leases<L> {
    type Item = &'a L;
    type IntoIter = std::slice::Iter<'a, L>;

    fn into_iter(self) -> Self::IntoIter {
        self.leases.iter()
    }
}

impl<L: fmt::Debug> fmt::Debug for Leases<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.leases).finish()
    }
}

/// The results of several released leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedAll {
    each: Vec<(Vec<u8>, Released)>,
}

impl ReleasedAll {
    /// Whether all leases were ours to the end: [`Released`](Outcome::Released) if each was,
    /// [`AlreadyGone`](Outcome::AlreadyGone) if one had ended before, else
    /// [`Unknown`](Outcome::Unknown).
    pub fn outcome(&self) -> Outcome {
        let any = |outcome| self.each.iter().any(|(_, released)| released.outcome == outcome);
        if any(Outcome::AlreadyGone) {
            Outcome::AlreadyGone
        } else if any(Outcome::Unknown) {
            Outcome::Unknown
        } else {
            Outcome::Released
        }
    }

    /// Each resource and the result of its lease, in the order in which the resources were named.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Released)> {
        self.each.iter().map(|(resource, released)| (&resource[..], released))
    }
}

impl fmt::Display for ReleasedAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (resource, released)) in self.each.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {released}", resource.escape_ascii())?;
        }
        Ok(())
    }
}
