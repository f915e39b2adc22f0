//! Leases: what a successful acquire of several resources returns.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use redquorum_protocol::Outcome;

use crate::clock::Deadline;
use crate::error::{ExtendError, Lost};
use crate::lease::{Lease, Released, run_while};
use crate::together;

/// Several resources, held together until the [deadline](Leases::deadline), the earliest of theirs,
/// or until they are given back. Made by [`Redlock::acquire_all`](crate::Redlock::acquire_all).
///
/// Each resource has its own [lease](Leases::iter), and **is held exactly as it would be alone**.
/// Together they promise two things: all were granted before any deadline had passed, and each
/// keeps its promise until the earliest deadline. If one is lost, the others are still held until
/// they are given back.
///
/// Dropping it gives all back in the background, as [dropping a lease](Lease) does. To give them
/// back one by one, iterate over it by value.
#[must_use = "the resources are given back as soon as the leases are dropped"]
pub struct Leases {
    /// In the order in which they were named; at least one.
    leases: Vec<Lease>,
}

impl Leases {
    pub(super) const fn new(leases: Vec<Lease>) -> Self {
        Self { leases }
    }

    /// The leases, in the order in which the resources were named.
    pub fn iter(&self) -> std::slice::Iter<'_, Lease> {
        self.leases.iter()
    }

    /// The lease of one resource. If several sets of masters have a resource of this name, the
    /// first one.
    pub fn get(&self, resource: impl AsRef<[u8]>) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.resource() == resource.as_ref())
    }

    /// The instant after which the leases must be taken for lost: the earliest of their deadlines.
    pub fn deadline(&self) -> Deadline {
        self.iter().map(Lease::deadline).min().expect("there is at least one")
    }

    /// The time that is left until the deadline; zero once one of the leases is lost: see
    /// [`Lease::validity`].
    pub fn validity(&self) -> Duration {
        self.iter().map(Lease::validity).min().unwrap_or_default()
    }

    /// Whether one of the leases is lost. A loss is final.
    pub fn is_lost(&self) -> bool {
        self.iter().any(Lease::is_lost)
    }

    /// Which lease is lost, and why, if one is.
    pub fn loss(&self) -> Option<Lost> {
        self.iter().find_map(Lease::loss)
    }

    /// Waits until one of the leases is lost, and returns which and why: see [`Lease::lost`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> Lost {
        together::first(self.iter().map(Lease::lost)).await
    }

    /// Whether one of the leases is [endangered](Lease::is_endangered), and none is lost.
    pub fn is_endangered(&self) -> bool {
        !self.is_lost() && self.iter().any(Lease::is_endangered)
    }

    /// Waits until an extension of one of the leases fails while there is time left, and returns
    /// the deadline of that lease. `None` if one of them is lost first. See
    /// [`Lease::endangered`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn endangered(&self) -> Option<Deadline> {
        together::first(self.iter().map(Lease::endangered)).await
    }

    /// Extends all leases by their TTLs from now, in one round trip: see [`Lease::extend`]. Returns
    /// the new deadline, the earliest of theirs.
    ///
    /// # Errors
    /// [`ExtendError`], the worst, if not all were extended.
    ///
    /// # Cancel safety
    /// See [`Lease::extend`].
    pub async fn extend(&self) -> Result<Deadline, ExtendError> {
        let results = together::all(self.iter().map(Lease::extend)).await;
        self.extended(results)
    }

    /// Extends all leases by another TTL from now: see [`Lease::extend_to`].
    ///
    /// # Errors
    /// The errors of [`extend`](Leases::extend). If the TTL is out of the
    /// [bounds](crate::Builder::ttl) of one of the locks, nothing was sent to its masters.
    ///
    /// # Cancel safety
    /// See [`Lease::extend`].
    pub async fn extend_to(&self, ttl: Duration) -> Result<Deadline, ExtendError> {
        let results = together::all(self.iter().map(|lease| lease.extend_to(ttl))).await;
        self.extended(results)
    }

    fn extended(
        &self,
        results: Vec<Result<Deadline, ExtendError>>,
    ) -> Result<Deadline, ExtendError> {
        let errors = results.into_iter().filter_map(Result::err);
        // The first of the worst errors. A lease may have been lost while the last extensions were
        // in progress.
        let worst = errors.min_by_key(|error| std::cmp::Reverse(badness(error)));
        match worst.or_else(|| self.loss().map(ExtendError::Lost)) {
            Some(error) => Err(error),
            None => Ok(self.deadline()),
        }
    }

    /// Starts the watchdog for each of the leases: see [`Lease::keep_alive`]. It extends none of
    /// them beyond `max_hold` from now.
    pub fn keep_alive(&self, max_hold: Duration) {
        self.iter().for_each(|lease| lease.keep_alive(max_hold));
    }

    /// Runs `work` while all leases last: see [`Lease::run`]. When it is done,
    /// [release](Leases::release) them.
    ///
    /// # Errors
    /// [`Lost`] if one of the leases ended before `work` was done.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and leaves the leases as they are.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while(work, self.lost(), || self.loss()).await
    }

    /// Gives all resources back, at once: see [`Lease::release`].
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, gives all of them back all the same; only the outcome is
    /// lost.
    pub async fn release(self) -> ReleasedAll {
        ReleasedAll { each: together::all(self.leases.into_iter().map(Lease::release)).await }
    }
}

/// How bad an error is: from those that may pass to those that stay.
const fn badness(error: &ExtendError) -> u8 {
    match error {
        ExtendError::NoQuorum { .. } => 0,
        ExtendError::Options { .. } | ExtendError::ShutDown => 1,
        ExtendError::QuorumGone { .. } => 2,
        ExtendError::Lost(_) => 3,
    }
}

impl IntoIterator for Leases {
    type Item = Lease;
    type IntoIter = std::vec::IntoIter<Lease>;

    fn into_iter(self) -> Self::IntoIter {
        self.leases.into_iter()
    }
}

impl<'a> IntoIterator for &'a Leases {
    type Item = &'a Lease;
    type IntoIter = std::slice::Iter<'a, Lease>;

    fn into_iter(self) -> Self::IntoIter {
        self.leases.iter()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.leases).finish()
    }
}

/// The results of several released leases.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it says whether a lease was lost before; `let _ =` if that does not matter"]
pub struct ReleasedAll {
    each: Vec<Released>,
}

impl ReleasedAll {
    /// Whether all leases were ours to the end: [`Released`](Outcome::Released) if each was,
    /// [`AlreadyGone`](Outcome::AlreadyGone) if one had ended before, else
    /// [`Unknown`](Outcome::Unknown).
    pub fn outcome(&self) -> Outcome {
        let any = |outcome| self.each.iter().any(|released| released.outcome == outcome);
        if any(Outcome::AlreadyGone) {
            Outcome::AlreadyGone
        } else if any(Outcome::Unknown) {
            Outcome::Unknown
        } else {
            Outcome::Released
        }
    }

    /// Whether one of the leases had ended before: see [`Released::was_lost`].
    pub fn was_lost(&self) -> bool {
        self.each.iter().any(Released::was_lost)
    }

    /// The result of each lease, in the order in which the resources were named.
    pub fn iter(&self) -> std::slice::Iter<'_, Released> {
        self.each.iter()
    }
}

impl fmt::Display for ReleasedAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, released) in self.each.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{released}")?;
        }
        Ok(())
    }
}
