//! Several: requests for several resources at once. Each lease then has an owner task of its own,
//! as if it had been requested alone.

use std::future::IntoFuture;
use std::time::Duration;

use redquorum::Lease;
use tokio::sync::oneshot;

use super::owner::{self, Order};
use super::requests::{Entry, RequestHandler, told, why};
use crate::mutex::unpoisoned;
use redquorum_scenario::client_protocol::{ClientReply, Each, FailureReason};
use redquorum_scenario::name::Name;

impl RequestHandler {
    pub(super) fn acquire_all(
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
                        let deadline = owner::deadline_ns(&output, lease.deadline());
                        let first = reply.deadline_ns.map_or(deadline, |first| first.min(deadline));
                        reply.deadline_ns = Some(first);
                        let (deadline_ns, fence) = (Some(deadline), lease.fencing_token());
                        reply.each.push(Each { token: None, deadline_ns, fence });
                        // Register the lease before the reply, since the next request may be about
                        // it. It replaces a lease that was lost and never released.
                        let whose = (client.clone(), resource);
                        let orders = owner::spawn(output.clone(), lease, whose.clone(), deadline);
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

    pub(super) fn release_all(&self, id: u64, client: Name, resources: Vec<Name>) {
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
                if let Some(why) = owner::why(released.outcome)
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
