//! Alarm: one timer for all held leases of a lock.
//!
//! It wakes each at its deadline, whether or not any master answered (R7), and before that when
//! its watchdog wants to renew or a round of extending has had its time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use redquorum_protocol::Time;

use crate::clock::{Clock, NAP};
use crate::tag::Claimant;

#[derive(Default)]
pub(crate) struct Alarm(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// By time, then by the claim's address, so that two claims can share an instant.
    leases: BTreeMap<(Time, usize), Weak<dyn Claimant>>,
    /// When the timer fires.
    armed: Option<Time>,
    task: Option<Waker>,
    closed: bool,
}

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `claim` at `wanted` instead of `set`.
    pub(crate) fn replace(
        &self,
        set: Option<Time>,
        wanted: Option<Time>,
        claim: Weak<dyn Claimant>,
    ) {
        let address = claim.as_ptr().addr();
        let mut queue = self.lock();
        if let Some(set) = set {
            queue.leases.remove(&(set, address));
        }
        let Some(wanted) = wanted else { return };
        queue.leases.insert((wanted, address), claim);
        // The task naps no longer than NAP, so only an earlier time has to wake it.
        if queue.armed.is_none_or(|armed| wanted < armed) {
            let task = queue.task.take();
            drop(queue);
            if let Some(task) = task {
                task.wake();
            }
        }
    }

    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        if let Some(task) = queue.task.take() {
            task.wake();
        }
    }

    /// Wakes leases until the lock is gone.
    pub(crate) async fn run(self: Arc<Self>, clock: Clock) {
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            loop {
                let now = clock.now();
                let mut queue = self.lock();
                if queue.closed {
                    return Poll::Ready(());
                }
                let due = queue.leases.first_entry().filter(|first| first.key().0 <= now);
                if let Some(due) = due {
                    let claim = due.remove();
                    drop(queue);
                    if let Some(claim) = claim.upgrade() {
                        claim.ring();
                    }
                    continue;
                }
                queue.task = Some(cx.waker().clone());
                let next = queue.leases.first_key_value().map(|((time, _), _)| *time);
                // A nap at most: the timer does not count suspended time, the clock does.
                queue.armed = next.map(|next| next.min(now.plus(NAP)));
                let Some(armed) = queue.armed else { return Poll::Pending };
                drop(queue);
                timer.as_mut().reset(clock.timer(armed));
                if Pin::new(&mut timer).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}
