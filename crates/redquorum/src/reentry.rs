//! Re-entry: a request of an owner, which may hold the resource already.

use std::pin::pin;
use std::sync::Weak;

use redquorum_protocol::{AcquireRequest, BadOption, Hold, Time, Votes};
use tokio::sync::MutexGuard;

use crate::acquire::{Granted, Request};
use crate::claim::ClaimCell;
use crate::clock::NAP;
use crate::error::{AcquireError, ExtendError};
use crate::fleet::Fleet;
use crate::lease::Lease;
use crate::owner::{Owner, Owners, Place};

/// Returns another handle of the owner's lease, or acquires a new lease.
pub(crate) async fn acquire<L: Granted>(request: Request, owner: Owner) -> Result<L, AcquireError> {
    let (key, asked) = request.check::<L>()?;
    let AcquireRequest { terms, wait: policy, .. } = asked;
    let fleet = request.fleet.clone();
    let start = fleet.clock.now();
    loop {
        let place = Owners::place(&fleet, &owner, &key);
        let patient = policy.max(terms.node_timeout());
        let Some(mut latest) = wait(&fleet, &place, start.plus(patient)).await else {
            let nobody = Votes::open(terms.nodes(), start);
            let report = fleet.report(&nobody);
            return Err(AcquireError::Taken { report, attempts: 0 });
        };
        // The lock may have been shut down while this request waited.
        request.check::<L>()?;
        let held = latest.upgrade().and_then(|claim| Lease::again(claim, place.clone()));
        let Some(lease) = held else {
            let left = policy.saturating_sub(fleet.clock.now().since(start));
            let mut granted: L = request.without_owner(left).into_future().await?;
            *latest = granted.lease_mut().claim();
            drop(latest);
            granted.lease_mut().place = Some(place);
            return Ok(granted);
        };
        // Other requests of this owner can proceed while the lease is extended.
        drop(latest);
        let unused = Unused(Some(lease));
        if terms.is_fenced() && unused.lease().look(Hold::fencing_token).is_none() {
            return Err(AcquireError::Options(BadOption::HeldUnfenced));
        }
        let extended = match request.ttl {
            Some(_) => unused.lease().prolong(terms).await.map(drop),
            None => Ok(()),
        };
        match extended {
            Ok(()) => return Ok(of_kind(unused.into_lease())),
            // The caller has no handle yet: continue as if the lease had been lost before.
            Err(ExtendError::Lost(_)) => {}
            Err(ExtendError::ShutDown) => return Err(AcquireError::ShutDown),
            Err(error) => return Err(AcquireError::NotExtended(error)),
        }
    }
}

/// A handle that was not handed out. No work is in progress under it, so it is given back without a
/// grace period, also if the request is dropped.
struct Unused(Option<Lease>);

impl Unused {
    const HELD: &str = "it is taken out at the end";

    fn lease(&self) -> &Lease {
        self.0.as_ref().expect(Self::HELD)
    }

    fn into_lease(mut self) -> Lease {
        self.0.take().expect(Self::HELD)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.give_back();
        }
    }
}

pub(crate) fn of_kind<L: Granted>(lease: Lease) -> L {
    L::of(lease).expect("a fenced kind is made of nothing but a fenced lease")
}

/// Waits until no other request of this owner asks the masters; `None` when it is `due`.
async fn wait<'a>(
    fleet: &Fleet,
    place: &'a Place,
    due: Time,
) -> Option<MutexGuard<'a, Weak<ClaimCell>>> {
    let mut gate = pin!(place.gate.lock());
    loop {
        // At most a nap: the timer does not count suspended time, the clock does.
        let nap = due.min(fleet.clock.now().plus(NAP));
        if let Ok(gate) = tokio::time::timeout_at(fleet.clock.timer(nap), gate.as_mut()).await {
            return Some(gate);
        }
        if fleet.clock.now() >= due {
            return None;
        }
    }
}
