//! Fence: leases that carry a fencing token.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use redquorum_protocol::{BadOption, Hold, LockConfig};

use crate::acquire::sealed::Granted;
use crate::lease::{Lease, Released};

/// A [`Lease`] with a fencing token. Made by [`Acquire::fenced`](crate::Acquire::fenced).
///
/// A lease alone cannot stop a client that was paused past its deadline from writing. The resource
/// can, if it remembers the largest token that it was shown and refuses smaller ones:
///
/// 1. **present** the token before anything else: the resource stores it if it is larger than the
///    stored one, and refuses if it is smaller;
/// 2. then **read**, under equality: the resource answers only if the caller's token equals the
///    stored one;
/// 3. then **write**, under equality too.
///
/// Without the first step an update can be lost although each write carries a larger token than the
/// one before. A holder reads and is paused. Its successor reads. The holder writes. The successor
/// writes a value that it computed from the old one.
///
/// Tokens of one resource are unique and grow with each grant, **whatever the clocks do**, as long
/// as no master loses its counter. A master loses it by a restart without persistence, a
/// `FLUSHALL`, a failover to a replica, or when the
/// [counter expires](crate::Builder::fencing_counter_ttl). Then the wall clocks of the clients
/// replace it. Tokens still grow unless these clocks differ by more than the time between the
/// grants.
#[must_use = "the resource is given back as soon as the lease is dropped"]
pub struct FencedLease {
    lease: Lease,
    token: u64,
}

impl FencedLease {
    /// The fencing token: at least 1, at most 2⁵³ − 2, so that every language and database can
    /// store it exactly. It stays the same through all extensions, and for all handles of its
    /// [owner](crate::Owner).
    pub const fn fencing_token(&self) -> u64 {
        self.token
    }

    /// Drops the token: the lease stays the same.
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Gives the resource back: see [`Lease::release`].
    ///
    /// # Cancel safety
    /// See [`Lease::release`].
    pub async fn release(self) -> Released {
        self.lease.release().await
    }
}

impl Deref for FencedLease {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for FencedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedLease")
            .field("lease", &self.lease)
            .field("fencing_token", &self.token)
            .finish()
    }
}

impl Granted for FencedLease {
    fn terms(terms: LockConfig, fencing_memory: Duration) -> Result<LockConfig, BadOption> {
        terms.with_fencing(fencing_memory)
    }

    fn of(lease: Lease) -> Option<Self> {
        let token = lease.look(Hold::fencing_token)?;
        Some(Self { lease, token })
    }

    fn lease(&self) -> &Lease {
        &self.lease
    }

    fn into_lease(self) -> Lease {
        self.lease
    }
}

impl Granted for Lease {
    fn terms(terms: LockConfig, _fencing_memory: Duration) -> Result<LockConfig, BadOption> {
        Ok(terms)
    }

    fn of(lease: Lease) -> Option<Self> {
        Some(lease)
    }

    fn lease(&self) -> &Lease {
        self
    }

    fn into_lease(self) -> Lease {
        self
    }
}
