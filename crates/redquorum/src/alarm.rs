//! Alarm: one timer for all held leases of a lock.
//!
//! It wakes each when something ends that must not end late: its deadline, whether or not any master
//! answered (R7), or a round of extending. And it renews those that have a watchdog, many at a time:
//! each queues its commands on the links, and then each link is written once.
//!
//! However many are to be renewed at once, as after a suspend, no more go out than masters can answer
//! soon, so that others' commands are not held up behind them, nor refused by a full link.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redquorum_protocol::{LinkState, NodeSet, Time, quorum};

use crate::clock::{Clock, NAP};
use crate::link::{self, LinkCell};
use crate::tag::{Claimant, Ring};

/// How many leases are woken before other tasks have their turn.
const TURN: usize = 256;

/// No more renewals than these are unanswered at a time, together with what others have sent: an
/// eighth of what a link takes.
const UNANSWERED: usize = 512;

/// So many are sent in any case, whatever else is under way: leases do not wait behind acquires.
const LEAST: usize = 16;

/// When to look again whether masters have answered.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Alarm {
    queue: Mutex<Queue>,
    /// How many leases have had a watchdog.
    watched: AtomicU64,
}

/// When it rings for a claim.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Set {
    /// At the latest.
    pub(crate) end: Option<Time>,
    /// To renew it.
    pub(crate) renewal: Option<Time>,
}

#[derive(Default)]
struct Queue {
    ends: Leases,
    renewals: Leases,
    /// When the timer fires.
    armed: Option<Time>,
    task: Option<Waker>,
    closed: bool,
}

/// By time, then by the claim's address, so that two claims can share an instant.
type Leases = BTreeMap<(Time, usize), Weak<dyn Claimant>>;

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a lease that gets a watchdog.
    pub(crate) fn number(&self) -> u64 {
        self.watched.fetch_add(1, Ordering::Relaxed)
    }

    /// Rings for `claim` at `wanted` instead of `set`.
    pub(crate) fn replace(&self, set: Set, wanted: Set, claim: &Weak<dyn Claimant>) {
        let address = claim.as_ptr().addr();
        let mut queue = self.lock();
        let Queue { ends, renewals, .. } = &mut *queue;
        let mut earliest = None;
        for (leases, set, wanted) in
            [(ends, set.end, wanted.end), (renewals, set.renewal, wanted.renewal)]
        {
            if set == wanted {
                continue;
            }
            if let Some(set) = set {
                leases.remove(&(set, address));
            }
            if let Some(wanted) = wanted {
                leases.insert((wanted, address), claim.clone());
                earliest = Some(earliest.map_or(wanted, |time: Time| time.min(wanted)));
            }
        }
        let Some(wanted) = earliest else { return };
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
    pub(crate) async fn run(self: Arc<Self>, clock: Clock, links: Vec<Arc<LinkCell>>) {
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            loop {
                let now = clock.now();
                let room = self.ring(now, &links);
                let Some(armed) = self.arm(now, room, cx) else {
                    // Closed, or empty, or not done with what is due.
                    return if self.lock().closed { Poll::Ready(()) } else { Poll::Pending };
                };
                timer.as_mut().reset(clock.timer(armed));
                if Pin::new(&mut timer).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Rings for those that are due, a turn of them at most, and says how many more may be renewed.
    fn ring(&self, now: Time, links: &[Arc<LinkCell>]) -> usize {
        let (mut rung, mut written) = (0, NodeSet::EMPTY);
        while rung < TURN
            && let Some(claim) = self.next(now, Ring::End)
        {
            rung += 1;
            written = written.or(claim.upgrade().map_or(NodeSet::EMPTY, |it| it.ring(Ring::End)));
        }
        let mut room = room(links);
        while rung < TURN
            && room > 0
            && let Some(claim) = self.next(now, Ring::Renewal)
        {
            rung += 1;
            room -= 1;
            let queued = claim.upgrade().map_or(NodeSet::EMPTY, |it| it.ring(Ring::Renewal));
            written = written.or(queued);
        }
        link::flush(links, written);
        room
    }

    /// The next one that is due. It is rung for when the queue is not locked any more: it will set
    /// itself anew.
    fn next(&self, now: Time, what: Ring) -> Option<Weak<dyn Claimant>> {
        let mut queue = self.lock();
        // Whatever is set from here on is seen at the end of the turn.
        queue.task = None;
        let leases = if what == Ring::End { &mut queue.ends } else { &mut queue.renewals };
        Some(leases.first_entry().filter(|first| first.key().0 <= now)?.remove())
    }

    /// When the timer is to fire, if it has to; else the task is woken by others, or at once.
    fn arm(&self, now: Time, room: usize, cx: &Context<'_>) -> Option<Time> {
        let mut queue = self.lock();
        queue.task = Some(cx.waker().clone());
        queue.armed = None;
        if queue.closed {
            return None;
        }
        let first = |leases: &Leases| leases.first_key_value().map(|((time, _), _)| *time);
        let (end, renewal) = (first(&queue.ends), first(&queue.renewals));
        let is_due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        if is_due(end) || is_due(renewal) && room > 0 {
            // The others first: some of them read what the masters have answered.
            cx.waker().wake_by_ref();
            return None;
        }
        let renewal = if is_due(renewal) { Some(now.plus(PAUSE)) } else { renewal };
        let next = end.into_iter().chain(renewal).min()?;
        // A nap at most: the timer does not count suspended time, the clock does.
        queue.armed = Some(next.min(now.plus(NAP)));
        queue.armed
    }
}

/// How many renewals may be sent, so that no more than enough are unanswered by a quorum of those
/// masters that answer at all. The others refuse at once, and the slowest are not waited for.
fn room(links: &[Arc<LinkCell>]) -> usize {
    let unanswered = |link: &Arc<LinkCell>| {
        link.view(|link, _| (link.state() == LinkState::Up).then(|| link.unanswered()))
    };
    let mut unanswered: Vec<usize> = links.iter().filter_map(unanswered).collect();
    unanswered.sort_unstable();
    let slowest = unanswered.get(quorum(links.len()) - 1).copied().unwrap_or(0);
    UNANSWERED.saturating_sub(slowest).max(LEAST)
}
