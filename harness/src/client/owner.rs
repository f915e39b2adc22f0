//! Owner: the task that owns a lease, from its grant to its release. It reports a loss at once, but
//! keeps the lost lease. So a holder that does not check can go on with its steps and its release
//! as if nothing had happened. Scenarios exist to show the effects of that.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redquorum::{Deadline, ExtendError, Lease, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::requests::told;
use super::{Neglect, Output, limited};
use crate::stamp;
use redquorum_scenario::client_protocol::{ClientReply, FailureReason, Notice};
use redquorum_scenario::name::Name;

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
    let result = why(released.outcome).map_or(Ok(()), |why| Err((why, released.to_string())));
    let reply = ClientReply::stamped(id, Some(from), output.now(), result);
    output.reply(ClientReply { handles, ..reply });
}

/// The reason in the reply to a release that did not fully succeed.
pub(super) const fn why(outcome: Outcome) -> Option<FailureReason> {
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
