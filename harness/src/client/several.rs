//! Several: requests for several resources at once. Each lease then has an owner task of its own,
//! as if it had been requested alone.

use std::time::Duration;

use redquorum::{AcquireAll, AcquireAllError, Released};
use tokio::sync::oneshot;

use super::limited::Limited;
use super::owner::{self, Held, Order};
use super::requests::{Entry, RequestHandler};
use crate::client_protocol::{Answer, Each, FailureReason};
use crate::mutex::unpoisoned;
use crate::name::Name;

impl RequestHandler {
    pub(super) fn acquire_all(
        &self,
        id: u64,
        (client, resources): (Name, Vec<Name>),
        ttl: Duration,
        wait: Duration,
    ) {
        let (cancel, cancelled) = oneshot::channel();
        self.books().acquiring.insert(id, cancel);
        let (lock, books, fencing) = (self.lock.clone(), self.books.clone(), self.fencing);
        let (voice, polls) = (self.voice.clone(), (self.polls)());
        tokio::spawn(async move {
            let names = resources.iter().map(Name::as_str);
            let request = lock.acquire_all(names).ttl(ttl).wait(wait);
            let from_ns = Some(voice.now());
            let result = tokio::select! {
                // `biased`: report a win even if the cancel comes at the same moment.
                biased;
                result = Limited::new(polls, held(request, fencing)) => result,
                _ = cancelled => None,
            };
            let Some(result) = result else {
                // The future has been dropped by now.
                unpoisoned(&books).acquiring.remove(&id);
                return voice.refuse(id, FailureReason::Cancelled, "cancelled");
            };
            let at_ns = Some(voice.now());
            let mut answer = Answer { id, from_ns, at_ns, ..Answer::default() };
            let mut books = unpoisoned(&books);
            books.acquiring.remove(&id);
            match result {
                Ok(leases) => {
                    answer.ok = true;
                    for (lease, resource) in leases.into_iter().zip(resources) {
                        let deadline = owner::deadline_ns(&voice, lease.deadline());
                        let deadline_ns = Some(deadline);
                        answer.deadline_ns =
                            [answer.deadline_ns, deadline_ns].into_iter().flatten().min();
                        let fence = lease.fencing_token();
                        answer.each.push(Each { token: None, deadline_ns, fence });
                        // Register the lease before the answer, since the next request may be about
                        // it. It replaces a lease that was lost and never released.
                        let whose = (client.clone(), resource);
                        let orders = owner::spawn(voice.clone(), lease, whose.clone(), deadline);
                        let owner = redquorum::Owner::new();
                        books.owners.insert(whose, Entry { orders, owner });
                    }
                }
                Err(error) => {
                    answer.why = Some(why(&error));
                    answer.text = Some(error.to_string());
                }
            }
            drop(books);
            voice.answer(&answer);
        });
    }

    pub(super) fn release_all(&self, id: u64, client: Name, resources: Vec<Name>) {
        let mut handed = Vec::new();
        for resource in resources {
            let (to, lease) = oneshot::channel();
            let whose = (client.clone(), resource);
            if let Some(owner) = self.books().owners.get(&whose) {
                // The send fails if the owner task has ended. The code below then finds no lease.
                let _ = owner.orders.send(Order::HandOver { to });
            }
            handed.push((whose.1, lease));
        }
        let voice = self.voice.clone();
        tokio::spawn(async move {
            let (mut leases, mut missing) = (Vec::new(), Vec::new());
            for (resource, lease) in handed {
                match lease.await {
                    Ok(lease) => leases.push(lease),
                    Err(_) => missing.push(resource),
                }
            }
            let from_ns = Some(voice.now());
            let released: Vec<_> =
                leases.into_iter().map(|lease: Held| tokio::spawn(lease.release())).collect();
            let mut worst = None;
            for one in released {
                let Ok(released) = one.await else { continue };
                // A loss is worse than an unknown result.
                let why =
                    owner::why(released.outcome).map(|why| (why, Released::to_string(&released)));
                if why
                    .as_ref()
                    .is_some_and(|(why, _)| worst.is_none() || *why == FailureReason::Lost)
                {
                    worst = why;
                }
            }
            if let Some(resource) = missing.first() {
                worst = Some((FailureReason::Lost, format!("{client} has no lease of {resource}")));
            }
            let (ok, at_ns) = (worst.is_none(), Some(voice.now()));
            let (why, text) = worst.unzip();
            voice.answer(&Answer { id, ok, from_ns, at_ns, why, text, ..Answer::default() });
        });
    }
}

async fn held(request: AcquireAll, fencing: bool) -> Result<Vec<Held>, AcquireAllError> {
    Ok(if fencing {
        request.fenced().await?.into_iter().map(Held::Fenced).collect()
    } else {
        request.await?.into_iter().map(Held::Plain).collect()
    })
}

const fn why(error: &AcquireAllError) -> FailureReason {
    match error {
        AcquireAllError::Taken { .. } => FailureReason::Taken,
        AcquireAllError::NoQuorum { .. } => FailureReason::NoQuorum,
        AcquireAllError::TooLate { .. } => FailureReason::Late,
        _ => FailureReason::Error,
    }
}
