//! Owner: who may acquire again what it holds, and where it finds it.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redquorum_protocol::Key;
use tokio::sync::Mutex as Gate;

use crate::claim::ClaimCell;
use crate::fleet::Fleet;

/// Who asks for a resource. An owner that acquires what it holds gets another handle of the same
/// lease at once: no master is asked, and it never waits for itself.
///
/// It is a value that you keep and clone, not a thread and not a task: every clone is the same owner,
/// wherever it goes, and every [`new`](Owner::new) is another. Owners mean something to one
/// [`Redlock`](crate::Redlock) and its clones, in one process.
///
/// ```no_run
/// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// let owner = redquorum::Owner::new();
/// let lease = lock.acquire("invoice:42").owner(&owner).await?;
/// let again = lock.acquire("invoice:42").owner(&owner).await?; // another handle of the same lease
/// again.release().await; // still held
/// lease.release().await; // given back
/// # Ok(()) }
/// ```
///
/// * All handles are one lease: one deadline, one loss, one fencing token, one watchdog. What one extends
///   or shortens ([`extend_to`](crate::Lease::extend_to)), it does for all. **Lost is final for all of them**; whoever asks after that, or after the
///   deadline, asks the masters, as anybody.
/// * The resource is given back with the last handle, whether they are released or dropped, and in
///   whatever order. With a [grace](crate::Builder::grace) it is free at once only if all are released.
/// * It excludes other owners, not what one owner does at the same time: two tasks that share an owner
///   both hold. Give each its own, and hand it down, as you would the lease.
/// * Who has a fenced lease can ask for a plain handle of it, not the other way round
///   ([`BadOption::HeldUnfenced`](crate::BadOption::HeldUnfenced)).
/// * Two requests of one owner at the same time: one goes to the masters, the other waits for what
///   comes of it, as long as it may wait, at least one node timeout. So await or drop what you have begun.
#[derive(Clone)]
pub struct Owner(Arc<Identity>);

/// Something that has a place of its own in memory, for as long as any clone of the owner lives.
struct Identity(#[expect(dead_code, reason = "only its place matters")] u8);

impl Owner {
    /// One that nobody else is.
    pub fn new() -> Self {
        Self(Arc::new(Identity(0)))
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&Arc::as_ptr(&self.0)).finish()
    }
}

impl Default for Owner {
    /// As [`Owner::new`]: no two are the same.
    fn default() -> Self {
        Self::new()
    }
}

/// What the owners hold or ask for at this moment; nothing else is kept.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashMap<(Owner, Key), Weak<Place>>>);

/// One owner's place at one resource, for as long as a handle or a request of it is alive.
pub(crate) struct Place {
    fleet: Arc<Fleet>,
    whose: (Owner, Key),
    /// The latest claim. Whoever asks the masters for another keeps the gate closed meanwhile.
    pub(crate) gate: Gate<Weak<ClaimCell>>,
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Owner, Key), Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of an owner at a resource.
    pub(crate) fn place(fleet: &Arc<Fleet>, owner: &Owner, key: &Key) -> Arc<Place> {
        let whose = (owner.clone(), key.clone());
        let mut places = fleet.owners.lock();
        if let Some(place) = places.get(&whose).and_then(Weak::upgrade) {
            return place;
        }
        let (fleet, gate) = (fleet.clone(), Gate::new(Weak::new()));
        let place = Arc::new(Place { fleet, whose: whose.clone(), gate });
        places.insert(whose, Arc::downgrade(&place));
        place
    }

    /// How many places are kept.
    #[cfg(all(test, feature = "memory"))]
    pub(crate) fn kept(&self) -> usize {
        self.lock().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.fleet.owners.lock();
        // Unless somebody has taken a new one meanwhile.
        if places.get(&self.whose).is_some_and(|place| place.strong_count() == 0) {
            places.remove(&self.whose);
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::Masters;

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_forgotten() {
        let masters = Masters::new(3);
        let lock = masters.builder().build().await.unwrap();
        let (owner, other) = (Owner::new(), Owner::new());
        let kept = || lock.fleet.owners.kept();
        let mut leases = Vec::new();
        for number in 0..10_000 {
            let resource = format!("r{number}");
            let lease = lock.acquire(&resource).owner(&owner).await.unwrap();
            let again = lock.acquire(&resource).owner(&owner).await.unwrap();
            assert!(lock.try_acquire(&resource).owner(&other).await.unwrap().is_none());
            match number % 4 {
                0 => drop((lease.release().await, again.release().await)),
                1 => drop((lease, again)),
                2 => leases.push((lease, again)),
                _ => drop((again, lease.release().await)),
            }
            // A refused request of the other one left nothing.
            assert_eq!(kept(), leases.len());
        }
        assert_eq!(kept(), 2_500, "those that are out can be found");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(
            leases.iter().all(|(lease, again)| (lease.is_lost().or(again.is_lost())).is_some())
        );
        drop(leases);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn every_new_owner_is_another_and_every_clone_the_same() {
        let owner = Owner::new();
        assert_eq!(owner, owner.clone());
        assert!(owner != Owner::new() && Owner::default() != Owner::default());
    }
}
