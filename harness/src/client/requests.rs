//! The request handler, and the tasks that own leases. Requests run concurrently. An acquire and
//! its cancel must stay in order, so this module registers them in the order in which they were
//! read.

use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::{ChooseNeglect, Neglect, Output, limited};
use crate::{stamp, unpoisoned};
use redquorum::{AcquireError, Deadline, ExtendError, Lease, Outcome, Owner, Redlock};
use redquorum_scenario::client_protocol::{ClientReply, Each, FailureReason, Notice, Op, Request};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The requests in flight, and the leases.
pub(crate) struct RequestHandler {
    pub(super) output: Output,
    pub(super) lock: Redlock,
    pub(super) fencing: bool,
    pub(super) table: Arc<Mutex<RequestTable>>,
    pub(super) neglect: Box<ChooseNeglect>,
}

#[derive(Default)]
pub(super) struct RequestTable {
    /// Acquires in flight, by the number of their request.
    acquiring: HashMap<u64, oneshot::Sender<()>>,
    /// The owner task of each client's lease of a resource. A lease stays here, held or lost, until
    /// it is released.
    owners: HashMap<(Name, Name), Entry>,
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
        output: Output,
        lock: Redlock,
        fencing: bool,
        neglect: Box<ChooseNeglect>,
    ) -> Self {
        Self { output, lock, fencing, table: Arc::default(), neglect }
    }

    /// Handles a line from the harness, and returns at once.
    pub(super) fn take(&self, line: &str) {
        match serde_json::from_str::<Request>(line) {
            Ok(request) => self.handle(request),
            Err(why) => self.output.refuse_line(line, &why),
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
                let neglect = (self.neglect)();
                self.order((client, resource), id, Order::Extend { id, ttl, neglect });
            }
            Op::KeepAlive { resource, max_ms } => {
                let max_hold = Duration::from_millis(max_ms);
                self.order((client, resource), id, Order::KeepAlive { id, max_hold });
            }
            Op::Release { resource } => {
                self.order((client, resource), id, Order::Release { id });
            }
            Op::Cancel { request } => {
                // Reply first: this only confirms that the cancel arrived. A request that has
                // ended meanwhile counts as cancelled.
                self.output.done(id);
                let mut table = self.table();
                if let Some(cancel) = table.acquiring.remove(&request) {
                    // The send fails if the acquire has ended meanwhile. The sends below fail if
                    // the owner task has ended.
                    let _ = cancel.send(());
                }
                for entry in table.owners.values() {
                    let _ = entry.orders.send(Order::Cancel { request });
                }
            }
            Op::Step { check: None, .. } => self.output.done(id),
            Op::Step { check: Some(resource), .. } => {
                self.order((client, resource), id, Order::Check { id });
            }
        }
    }

    fn order(&self, whose: (Name, Name), id: u64, order: Order) {
        let refused = match self.table().owners.get(&whose) {
            Some(entry) => entry.orders.send(order).is_err(),
            None => true,
        };
        if refused {
            let why = format!("{} has no lease of {}", whose.0, whose.1);
            self.output.refuse(id, FailureReason::Lost, why);
        }
    }

    fn acquire(&self, id: u64, whose: (Name, Name), wanted: &Wanted) {
        let table = self.table();
        let held = table.owners.get(&whose).filter(|_| wanted.again);
        // Any other acquire has a new owner, so that a second acquire of the same resource is
        // refused.
        let owner = held.map_or_else(Owner::new, |entry| entry.owner.clone());
        drop(table);
        let request = self.lock.acquire(whose.1.as_str()).owner(&owner).wait(wanted.wait);
        let request = match wanted.ttl {
            Some(ttl) => request.ttl(ttl),
            None => request,
        };
        let request = if self.fencing { request.fenced() } else { request };
        let (table, again) = (self.table.clone(), wanted.again);
        let told = told(&self.output, id, &whose.0);
        let orders = self.table().owners.get(&whose).map(|entry| entry.orders.clone());
        let attempt = self.attempt(id, request.into_future(), move |idle| {
            told(idle);
            // Its round goes on, and may extend the lease. There may be no lease any more.
            drop(orders.filter(|_| again).map(|orders| orders.send(Order::Watch)));
        });
        let output = self.output.clone();
        tokio::spawn(async move {
            let Some((result, (from_ns, at_ns))) = attempt.await else {
                if let Some(entry) = unpoisoned(&table).owners.get(&whose).filter(|_| again) {
                    // The send fails if the owner task has ended. Then there is no lease.
                    let _ = entry.orders.send(Order::Watch);
                }
                return output.refuse(id, FailureReason::Cancelled, "cancelled");
            };
            let mut table = unpoisoned(&table);
            match result {
                Ok(lease) if lease.handles() > 1 => {
                    let stamps = (from_ns, at_ns);
                    let entry = table.owners.get(&whose);
                    let reported = entry.map(|e| e.orders.send(Order::Again { id, stamps, lease }));
                    drop(table);
                    if !matches!(reported, Some(Ok(()))) {
                        output.refuse(id, FailureReason::Lost, "released meanwhile");
                    }
                }
                Ok(lease) => {
                    let reported = deadline_ns(&output, lease.deadline());
                    let fence = lease.fencing_token();
                    // Register the lease before the reply, since the next request may be about it.
                    // It replaces a lease that was lost and never released.
                    let orders = spawn(output.clone(), lease, whose.clone(), reported);
                    table.owners.insert(whose, Entry { orders, owner });
                    drop(table);
                    let reply = ClientReply::stamped(id, Some(from_ns), at_ns, Ok(()));
                    output.reply(ClientReply { deadline_ns: Some(reported), fence, ..reply });
                }
                Err(error) => {
                    drop(table);
                    let why = Err((why(&error), error.to_string()));
                    output.reply(ClientReply::stamped(id, Some(from_ns), at_ns, why));
                }
            }
        });
    }

    /// Awaits an acquire that can be cancelled. `tell` is called if it is left alone, and for how
    /// long. Returns its result, and the stamps before and after the call. `None`: it was cancelled
    /// or dropped.
    pub(super) fn attempt<F: Future, T: FnOnce(Duration)>(
        &self,
        id: u64,
        request: F,
        tell: T,
    ) -> impl Future<Output = Option<(F::Output, (i64, i64))>> + use<F, T> {
        let (cancel, cancelled) = oneshot::channel();
        self.table().acquiring.insert(id, cancel);
        let (output, table, neglect) = (self.output.clone(), self.table.clone(), (self.neglect)());
        async move {
            let from_ns = output.now();
            let result = tokio::select! {
                // `biased`: report a win even if the cancel comes at the same moment.
                biased;
                result = limited(neglect, request, tell) => result,
                _ = cancelled => None,
            };
            // The request has been dropped by now.
            let at_ns = output.now();
            unpoisoned(&table).acquiring.remove(&id);
            Some((result?, (from_ns, at_ns)))
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, RequestTable> {
        unpoisoned(&self.table)
    }
}

/// Notifies the harness that the caller of a request leaves it alone for some time.
pub(super) fn told(output: &Output, request: u64, client: &Name) -> impl FnOnce(Duration) + use<> {
    let (output, client) = (output.clone(), client.clone());
    move |idle| {
        let from_ns = output.now();
        let to_ns = from_ns.saturating_add(nanos(idle));
        output.notify(Notice::Unpolled { client, request, from_ns, to_ns });
    }
}

pub(super) fn why(error: &AcquireError) -> FailureReason {
    match error {
        AcquireError::Taken { .. } => FailureReason::Taken,
        AcquireError::NoQuorum { .. } => FailureReason::NoQuorum,
        AcquireError::TooLate { .. } => FailureReason::Late,
        AcquireError::NotExtended(
            ExtendError::NoQuorum { .. } | ExtendError::QuorumGone { .. },
        ) => FailureReason::NoQuorum,
        _ => FailureReason::Error,
    }
}

/// Requests for several resources at once. Each lease then has an owner task of its own, as if it
/// had been requested alone.
impl RequestHandler {
    fn acquire_all(
        &self,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        ttl: Duration,
        wait: Duration,
    ) {
        let request = self.lock.acquire_all(resources.iter().map(Name::as_str)).ttl(ttl).wait(wait);
        let request = if self.fencing { request.fenced() } else { request };
        let (output, table) = (self.output.clone(), self.table.clone());
        let attempt = self.attempt(id, request.into_future(), told(&self.output, id, &client));
        tokio::spawn(async move {
            let Some((result, (from_ns, at_ns))) = attempt.await else {
                return output.refuse(id, FailureReason::Cancelled, "cancelled");
            };
            let stamped = |result| ClientReply::stamped(id, Some(from_ns), at_ns, result);
            let mut table = unpoisoned(&table);
            let reply = match result {
                Ok(leases) => {
                    let mut reply = stamped(Ok(()));
                    for (lease, resource) in leases.into_iter().zip(resources) {
                        let deadline = deadline_ns(&output, lease.deadline());
                        let first = reply.deadline_ns.map_or(deadline, |first| first.min(deadline));
                        reply.deadline_ns = Some(first);
                        let (deadline_ns, fence) = (Some(deadline), lease.fencing_token());
                        reply.each.push(Each { token: None, deadline_ns, fence });
                        // Register the lease before the reply, since the next request may be about
                        // it. It replaces a lease that was lost and never released.
                        let whose = (client.clone(), resource);
                        let orders = spawn(output.clone(), lease, whose.clone(), deadline);
                        let owner = redquorum::Owner::new();
                        table.owners.insert(whose, Entry { orders, owner });
                    }
                    reply
                }
                Err(error) => stamped(Err((why(&error), error.to_string()))),
            };
            drop(table);
            output.reply(reply);
        });
    }

    fn release_all(&self, id: u64, client: Name, resources: Vec<Name>) {
        let mut handed = Vec::new();
        for resource in resources {
            let (to, lease) = oneshot::channel();
            let whose = (client.clone(), resource);
            if let Some(owner) = self.table().owners.get(&whose) {
                // The send fails if the owner task has ended. The code below then finds no lease.
                let _ = owner.orders.send(Order::HandOver { to });
            }
            handed.push((whose.1, lease));
        }
        let output = self.output.clone();
        tokio::spawn(async move {
            let (mut leases, mut missing) = (Vec::new(), Vec::new());
            for (resource, lease) in handed {
                match lease.await {
                    Ok(lease) => leases.push(lease),
                    Err(_) => missing.push(resource),
                }
            }
            let from = output.now();
            let released: Vec<_> =
                leases.into_iter().map(|lease: Lease| tokio::spawn(lease.release())).collect();
            let mut worst = None;
            for one in released {
                let Ok(released) = one.await else { continue };
                // A loss is worse than an unknown result.
                if let Some(why) = release_failure(released.outcome)
                    && (worst.is_none() || why == FailureReason::Lost)
                {
                    worst = Some((why, released.to_string()));
                }
            }
            if let Some(resource) = missing.first() {
                worst = Some((FailureReason::Lost, format!("{client} has no lease of {resource}")));
            }
            let result = worst.map_or(Ok(()), Err);
            output.reply(ClientReply::stamped(id, Some(from), output.now(), result));
        });
    }
}

/// How often the task polls the deadline of a lease. It polls while the watchdog extends the lease,
/// and after a re-entry was given up, since its round may go on. The library does not report an
/// extension that no caller awaits, so the notice of an extension may be late by this time. A loss
/// is reported at once.
const LOOK: Duration = Duration::from_millis(2);

/// A command to the owner task.
pub(super) enum Order {
    /// Extend it.
    Extend {
        id: u64,
        ttl: Duration,
        /// How its future is neglected.
        neglect: Option<Neglect>,
    },
    /// Keep it alive.
    KeepAlive { id: u64, max_hold: Duration },
    /// Check whether it is held now.
    Check { id: u64 },
    /// Poll its deadline from now on: a re-entry for a longer time was given up, but its round goes
    /// on and may extend the lease.
    Watch,
    /// Cancel this request, if this task is processing it.
    Cancel { request: u64 },
    /// Keep another handle of the lease, and report the grant.
    Again {
        id: u64,
        /// The stamps before and after the call of the library.
        stamps: (i64, i64),
        lease: Lease,
    },
    /// Release one handle. The release of the last handle ends the task.
    Release { id: u64 },
    /// Hand the lease over to a request that releases several at once. This ends the task.
    HandOver { to: oneshot::Sender<Lease> },
}

/// Starts the task that owns the lease. The task ends when it releases the lease or hands it over,
/// or when its channel closes. `reported` is the deadline that the client reported to the harness.
///
/// The task reports a loss at once, but keeps the lost lease. So a holder that does not check can
/// go on with its steps and its release as if nothing had happened. Scenarios exist to show the
/// effects of that.
pub(super) fn spawn(
    output: Output,
    lease: Lease,
    whose: (Name, Name),
    reported: i64,
) -> mpsc::UnboundedSender<Order> {
    let (orders, inbox) = mpsc::unbounded_channel();
    tokio::spawn(own(output, lease, whose, reported, inbox));
    orders
}

/// The deadline as a stamp. The clock is read before the remaining time, so that the stamp is early
/// rather than late.
pub(super) fn deadline_ns(output: &Output, deadline: Deadline) -> i64 {
    let now = output.now();
    stamp::later(now, deadline.remaining())
}

/// An extension in flight: the request, the time of the call, and its future.
type Extending<'a> = (u64, i64, Pin<Box<dyn Future<Output = Extended> + Send + 'a>>);
/// `None`: it was dropped.
type Extended = Option<Result<Deadline, ExtendError>>;

async fn own(
    output: Output,
    lease: Lease,
    (client, resource): (Name, Name),
    reported: i64,
    mut inbox: mpsc::UnboundedReceiver<Order>,
) {
    let last = {
        let mut extending: Option<Extending<'_>> = None;
        let seen = (lease.deadline(), reported);
        let mut watch =
            Watch { output: output.clone(), client, resource, over: None, seen, look: None };
        let mut lost = std::pin::pin!(lease.lost());
        let mut others: Vec<Lease> = Vec::new();
        loop {
            tokio::select! {
                biased;
                why = &mut lost, if watch.over.is_none() => watch.lose(why.to_string()),
                result = ended(&mut extending), if extending.is_some() => {
                    let at_ns = output.now();
                    match (result, extending.take()) {
                        (Some(result), Some((id, from_ns, _))) => {
                            watch.extended(id, (from_ns, at_ns), result);
                        }
                        (_, extending) => {
                            // Its round goes on, or is over and no caller has reported the result.
                            watch.look(&lease);
                            watch.start();
                            cancel(&output, extending);
                        }
                    }
                }
                order = inbox.recv() => match order {
                    Some(Order::Extend { id, .. }) if extending.is_some() => {
                        output.refuse(id, FailureReason::Error, "an extension is under way: await its reply");
                    }
                    Some(Order::Extend { id, ttl, neglect }) => {
                        let from_ns = output.now();
                        let tell = told(&output, id, &watch.client);
                        let extending_to = limited(neglect, lease.extend_to(ttl), tell);
                        extending = Some((id, from_ns, Box::pin(extending_to)));
                    }
                    Some(Order::KeepAlive { id, max_hold }) => watch.keep_alive(id, &lease, max_hold),
                    Some(Order::Check { id }) => watch.check(id, &lease),
                    Some(Order::Watch) => watch.start(),
                    Some(Order::Cancel { request }) => {
                        let which = |under_way: &mut Extending<'_>| under_way.0 == request;
                        cancel(&output, extending.take_if(which));
                    }
                    Some(Order::HandOver { to }) => {
                        cancel(&output, extending);
                        break Last::HandOver(to);
                    }
                    Some(Order::Again { id, stamps, lease }) => {
                        others.push(lease);
                        watch.again(id, stamps, &others[others.len() - 1]);
                    }
                    Some(Order::Release { id }) => match others.pop() {
                        // This returns at once: no master takes part.
                        Some(other) => release(&output, id, other, Some(others.len() as u64 + 1)).await,
                        None => {
                            cancel(&output, extending);
                            break Last::Release(id);
                        }
                    },
                    // Another lease of the same resource has replaced this one.
                    None => return,
                },
                () = due(&mut watch.look) => watch.look(&lease),
            }
        }
    };
    match last {
        Last::Release(id) => release(&output, id, lease, None).await,
        // The request waits for the lease. If the request has gone, the lease is dropped, and so
        // released.
        Last::HandOver(to) => drop(to.send(lease)),
    }
}

/// How a lease ends.
enum Last {
    Release(u64),
    HandOver(oneshot::Sender<Lease>),
}

fn cancel(output: &Output, extending: Option<Extending<'_>>) {
    if let Some((id, _, future)) = extending {
        drop(future);
        output.refuse(id, FailureReason::Cancelled, "cancelled");
    }
}

async fn ended(extending: &mut Option<Extending<'_>>) -> Extended {
    match extending {
        Some((_, _, future)) => future.await,
        None => std::future::pending().await,
    }
}

async fn due(look: &mut Option<Interval>) {
    match look {
        Some(look) => drop(look.tick().await),
        None => std::future::pending().await,
    }
}

/// Releases a handle, and reports the number of handles that are left, if any.
async fn release(output: &Output, id: u64, lease: Lease, handles: Option<u64>) {
    let from = output.now();
    let released = lease.release().await;
    let result =
        release_failure(released.outcome).map_or(Ok(()), |why| Err((why, released.to_string())));
    let reply = ClientReply::stamped(id, Some(from), output.now(), result);
    output.reply(ClientReply { handles, ..reply });
}

/// The reason in the reply to a release that did not fully succeed.
pub(super) const fn release_failure(outcome: Outcome) -> Option<FailureReason> {
    match outcome {
        Outcome::Released | Outcome::StillHeld | Outcome::Left => None,
        Outcome::AlreadyGone => Some(FailureReason::Lost),
        _ => Some(FailureReason::NoQuorum),
    }
}

/// The state of a lease, as known and as reported.
struct Watch {
    output: Output,
    client: Name,
    resource: Name,
    /// Why the lease is no longer held. A loss is final.
    over: Option<String>,
    /// The last deadline that was reported, and its stamp.
    seen: (Deadline, i64),
    /// Ticks while the deadline may change without a request.
    look: Option<Interval>,
}

impl Watch {
    fn lose(&mut self, why: String) {
        let (client, resource) = (self.client.clone(), self.resource.clone());
        self.output.notify(Notice::Lost { client, resource, at_ns: self.output.now() });
        self.over = Some(why);
        self.look = None;
    }

    /// Another handle was granted.
    fn again(&mut self, id: u64, (from_ns, at_ns): (i64, i64), lease: &Lease) {
        let deadline_ns = Some(self.reported(lease.deadline()));
        let (fence, handles) = (lease.fencing_token(), Some(lease.handles().into()));
        let reply = ClientReply::stamped(id, Some(from_ns), at_ns, Ok(()));
        self.output.reply(ClientReply { deadline_ns, fence, handles, ..reply });
    }

    /// The stamp of a deadline. The same deadline always has the same stamp; otherwise it would
    /// seem to move.
    fn reported(&mut self, deadline: Deadline) -> i64 {
        if deadline != self.seen.0 {
            self.seen = (deadline, deadline_ns(&self.output, deadline));
        }
        self.seen.1
    }

    fn check(&mut self, id: u64, lease: &Lease) {
        // Ask the library, too: the deadline decides, not whether its timer has fired.
        let over = self.over.clone().or_else(|| lease.loss().map(|lost| lost.to_string()));
        match over {
            Some(why) => self.output.refuse(id, FailureReason::Lost, why),
            None => self.output.done(id),
        }
    }

    fn extended(
        &mut self,
        id: u64,
        (from_ns, at_ns): (i64, i64),
        result: Result<Deadline, ExtendError>,
    ) {
        let stamped = |result| ClientReply::stamped(id, Some(from_ns), at_ns, result);
        let reply = match result {
            Ok(deadline) => {
                ClientReply { deadline_ns: Some(self.reported(deadline)), ..stamped(Ok(())) }
            }
            Err(error) => {
                let why = match error {
                    ExtendError::NoQuorum { .. } => FailureReason::NoQuorum,
                    ExtendError::QuorumGone { .. } | ExtendError::Lost(_) => FailureReason::Lost,
                    _ => FailureReason::Error,
                };
                if matches!(error, ExtendError::QuorumGone { .. }) && self.over.is_none() {
                    // The library leaves it to its caller to stop at this point. A correct caller
                    // stops.
                    self.lose(error.to_string());
                }
                stamped(Err((why, error.to_string())))
            }
        };
        self.output.reply(reply);
    }

    fn keep_alive(&mut self, id: u64, lease: &Lease, max_hold: Duration) {
        if let Some(why) = &self.over {
            return self.output.refuse(id, FailureReason::Lost, why.clone());
        }
        lease.keep_alive(max_hold);
        self.start();
        self.output.done(id);
    }

    /// From now on, polls the deadline until the lease is lost.
    fn start(&mut self) {
        if self.over.is_none() {
            let mut look = interval(LOOK);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            self.look = Some(look);
        }
    }

    /// Reports the deadline if it moved. A lost lease has no deadline: the loss was reported, or is
    /// about to be.
    fn look(&mut self, lease: &Lease) {
        let deadline = lease.deadline();
        if deadline == self.seen.0 || lease.is_lost() {
            return;
        }
        let deadline_ns = self.reported(deadline);
        self.output.notify(Notice::Extended {
            client: self.client.clone(),
            resource: self.resource.clone(),
            at_ns: Some(self.output.now()),
            deadline_ns,
        });
    }
}
