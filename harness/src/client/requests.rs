//! The request handler. Requests run concurrently. An acquire and its cancel must stay in
//! order, so this module registers them in the order in which they were read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redquorum::{Acquire, AcquireError, ExtendError, Owner, Redlock};
use tokio::sync::{mpsc, oneshot};

use super::limited::{ChoosePolls, Limited};
use super::output::Output;
use super::owner::{self, Held, Order};
use crate::client_protocol::{Answer, FailureReason, Op, Request};
use crate::mutex::unpoisoned;
use crate::name::Name;

/// The requests in flight, and the leases.
pub(crate) struct RequestHandler {
    pub(super) voice: Output,
    pub(super) lock: Redlock,
    pub(super) fencing: bool,
    pub(super) books: Arc<Mutex<RequestTable>>,
    pub(super) polls: Box<ChoosePolls>,
}

#[derive(Default)]
pub(super) struct RequestTable {
    /// Acquires in flight, by the number of their request.
    pub(super) acquiring: HashMap<u64, oneshot::Sender<()>>,
    /// The owner task of each client's lease of a resource. A lease stays here, held or lost, until
    /// it is released.
    pub(super) owners: HashMap<(Name, Name), Entry>,
}

pub(super) struct Entry {
    /// The channel to the owner task.
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// The owner that acquired the lease. A re-entry acquires as the same owner.
    pub(super) owner: Owner,
}

/// The parameters of an acquire.
struct Wanted {
    /// `None`: the TTL of the options, and the deadline of a lease that is held stays.
    ttl: Option<Duration>,
    wait: Duration,
    again: bool,
}

impl RequestHandler {
    pub(crate) fn new(
        voice: Output,
        lock: Redlock,
        fencing: bool,
        polls: Box<ChoosePolls>,
    ) -> Self {
        Self { voice, lock, fencing, books: Arc::default(), polls }
    }

    /// Handles a line from the harness, and returns at once.
    pub(super) fn take(&self, line: &str) {
        match serde_json::from_str::<Request>(line) {
            Ok(request) => self.handle(request),
            Err(why) => self.voice.refuse_line(line, &why),
        }
    }

    /// Handles a request, and returns at once.
    pub(crate) fn handle(&self, Request { id, client, op }: Request) {
        match op {
            Op::Acquire { resource, ttl_ms, wait_ms, again } => {
                let ttl = Some(ttl_ms).filter(|ttl| *ttl > 0).map(Duration::from_millis);
                let wanted = Wanted { ttl, wait: Duration::from_millis(wait_ms), again };
                self.acquire(id, (client, resource), &wanted);
            }
            Op::AcquireAll { resources, ttl_ms, wait_ms } => {
                let (ttl, wait) = (Duration::from_millis(ttl_ms), Duration::from_millis(wait_ms));
                self.acquire_all(id, (client, resources), ttl, wait);
            }
            Op::ReleaseAll { resources } => self.release_all(id, client, resources),
            Op::Extend { resource, ttl_ms } => {
                let ttl = Duration::from_millis(ttl_ms);
                let polls = (self.polls)();
                self.order((client, resource), id, Order::Extend { id, ttl, polls });
            }
            Op::KeepAlive { resource, max_ms } => {
                let max_hold = Duration::from_millis(max_ms);
                self.order((client, resource), id, Order::KeepAlive { id, max_hold });
            }
            Op::Release { resource } => {
                self.order((client, resource), id, Order::Release { id });
            }
            Op::Cancel { request } => {
                // Answer first: the answer only confirms that the cancel arrived. A request that
                // has ended meanwhile counts as cancelled.
                self.voice.answer(&Answer { id, ok: true, ..Answer::default() });
                let mut books = self.books();
                if let Some(cancel) = books.acquiring.remove(&request) {
                    // The send fails if the acquire has ended meanwhile. The sends below fail if
                    // the owner task has ended.
                    let _ = cancel.send(());
                }
                for entry in books.owners.values() {
                    let _ = entry.orders.send(Order::Cancel { request });
                }
            }
            Op::Step { check: None, .. } => {
                let at_ns = Some(self.voice.now());
                self.voice.answer(&Answer { id, ok: true, at_ns, ..Answer::default() });
            }
            Op::Step { check: Some(resource), .. } => {
                self.order((client, resource), id, Order::Check { id });
            }
        }
    }

    fn order(&self, whose: (Name, Name), id: u64, order: Order) {
        let refused = match self.books().owners.get(&whose) {
            Some(entry) => entry.orders.send(order).is_err(),
            None => true,
        };
        if refused {
            self.voice.refuse(
                id,
                FailureReason::Lost,
                format!("{} has no lease of {}", whose.0, whose.1),
            );
        }
    }

    fn acquire(&self, id: u64, whose: (Name, Name), wanted: &Wanted) {
        let (cancel, cancelled) = oneshot::channel();
        let mut books = self.books();
        books.acquiring.insert(id, cancel);
        let held = books.owners.get(&whose).filter(|_| wanted.again);
        // Any other acquire has a new owner, so that a second acquire of the same resource is
        // refused.
        let owner = held.map_or_else(Owner::new, |entry| entry.owner.clone());
        drop(books);
        let request = self.lock.acquire(whose.1.as_str()).owner(&owner).wait(wanted.wait);
        let request = match wanted.ttl {
            Some(ttl) => request.ttl(ttl),
            None => request,
        };
        let (books, fencing, again) = (self.books.clone(), self.fencing, wanted.again);
        let (voice, polls) = (self.voice.clone(), (self.polls)());
        tokio::spawn(async move {
            let from_ns = voice.now();
            let result = tokio::select! {
                // `biased`: report a win even if the cancel comes at the same moment.
                biased;
                result = Limited::new(polls, granted(request, fencing)) => result,
                _ = cancelled => None,
            };
            let Some(result) = result else {
                // The future has been dropped by now.
                let mut books = unpoisoned(&books);
                books.acquiring.remove(&id);
                if let Some(entry) = books.owners.get(&whose).filter(|_| again) {
                    // The send fails if the owner task has ended. Then there is no lease.
                    let _ = entry.orders.send(Order::Watch);
                }
                drop(books);
                return voice.refuse(id, FailureReason::Cancelled, "cancelled");
            };
            let at_ns = voice.now();
            let mut books = unpoisoned(&books);
            books.acquiring.remove(&id);
            match result {
                Ok(lease) if lease.handles() > 1 => {
                    let stamps = (from_ns, at_ns);
                    let entry = books.owners.get(&whose);
                    let told = entry.map(|e| e.orders.send(Order::Again { id, stamps, lease }));
                    drop(books);
                    if !matches!(told, Some(Ok(()))) {
                        voice.refuse(id, FailureReason::Lost, "released meanwhile");
                    }
                }
                Ok(lease) => {
                    let told = owner::deadline_ns(&voice, lease.deadline());
                    let fence = lease.fencing_token();
                    // Register the lease before the answer, since the next request may be about it.
                    // It replaces a lease that was lost and never released.
                    let orders = owner::spawn(voice.clone(), lease, whose.clone(), told);
                    books.owners.insert(whose, Entry { orders, owner });
                    drop(books);
                    voice.answer(&Answer {
                        id,
                        ok: true,
                        from_ns: Some(from_ns),
                        at_ns: Some(at_ns),
                        deadline_ns: Some(told),
                        fence,
                        ..Answer::default()
                    });
                }
                Err(error) => {
                    drop(books);
                    let (from_ns, at_ns) = (Some(from_ns), Some(at_ns));
                    let (why, text) = (Some(why(&error)), Some(error.to_string()));
                    voice.answer(&Answer { id, from_ns, at_ns, why, text, ..Answer::default() });
                }
            }
        });
    }

    pub(super) fn books(&self) -> MutexGuard<'_, RequestTable> {
        unpoisoned(&self.books)
    }
}

async fn granted(request: Acquire, fencing: bool) -> Result<Held, AcquireError> {
    if fencing { request.fenced().await.map(Held::Fenced) } else { request.await.map(Held::Plain) }
}

fn why(error: &AcquireError) -> FailureReason {
    match error {
        AcquireError::Taken { .. } => FailureReason::Taken,
        AcquireError::NoQuorum { .. } => FailureReason::NoQuorum,
        AcquireError::TooLate { .. } => FailureReason::Late,
        AcquireError::NotExtended(ExtendError::NoQuorum(_) | ExtendError::QuorumGone(_)) => {
            FailureReason::NoQuorum
        }
        _ => FailureReason::Error,
    }
}
