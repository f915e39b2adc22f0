//! Owner: a value whose holder may acquire a resource again.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use redquorum_protocol::OwnerId;

/// The owner of a request. An owner that acquires a resource it holds gets another handle of the
/// same lease at once: no master is asked, and it never waits for itself.
///
/// An owner is a value that you keep and clone, not a thread and not a task. Every clone is the
/// same owner, in any task or thread, and every [`new`](Owner::new) is another. An owner is known
/// to one [`Redlock`](crate::Redlock) and its clones, in one process.
///
/// ```no_run
/// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// let owner = redquorum::Owner::new();
/// let lease = lock.acquire("invoice:42").owner(&owner).await?;
/// let again = lock.acquire("invoice:42").owner(&owner).await?; // another handle of the same lease
/// let _ = again.release().await; // still held
/// let _ = lease.release().await; // given back
/// # Ok(()) }
/// ```
///
/// * All handles are one lease: one deadline, one token, one watchdog. **A loss is final for
///   all handles.** A request of the owner after that, or after the deadline, asks the masters.
/// * The resource is given back with the last handle, whether the handles are released or dropped,
///   and in any order. With a [lock delay](crate::Builder::lock_delay) it is free at once only if
///   all handles are released.
/// * An owner excludes other owners, not what one owner does at the same time. Give each task its
///   own owner, and pass it down, as you would the lease.
/// * The owner of a fenced lease can acquire a plain handle of it. The owner of a plain lease
///   cannot acquire a fenced handle ([`BadOption::HeldUnfenced`](crate::BadOption::HeldUnfenced)).
/// * The owner of an exclusive lease that asks for a [shared](crate::Acquire::shared) one gets
///   another handle of the lease that it has. The owner of a shared lease cannot acquire an
///   exclusive one ([`BadOption::HeldShared`](crate::BadOption::HeldShared)): it would wait for
///   itself.
/// * If one owner makes two requests at the same time, one goes to the masters. The other waits for
///   the result of the first: for its own wait, or for one node timeout if the wait is shorter. So
///   await or drop what you have begun.
#[derive(Clone)]
pub struct Owner(Arc<Identity>);

/// A value with an address of its own, as long as any clone of the owner lives.
struct Identity(#[expect(dead_code, reason = "only its place matters")] u8);

impl Owner {
    /// A new owner, different from every other.
    pub fn new() -> Self {
        Self(Arc::new(Identity(0)))
    }

    /// The owner, as the protocol client knows it. No other owner has this id while a clone lives.
    pub(crate) fn id(&self) -> OwnerId {
        OwnerId(Arc::as_ptr(&self.0).addr())
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
    /// Like [`Owner::new`]: no two are the same.
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Owner;

    #[test]
    fn every_new_owner_is_another_and_every_clone_the_same() {
        let owner = Owner::new();
        assert_eq!(owner, owner.clone());
        assert!(owner != Owner::new() && Owner::default() != Owner::default());
    }
}
