//! The lock of this repository as a driver: an example of a lock that waits, keeps leases alive,
//! reports their loss, and acquires several resources at once.
//!
//! `cargo build --release --example redquorum`, and then
//! `redquorum-chaos client-check target/release/examples/redquorum`.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Holder, Lease, Library, Refused, nodes, serve};
use redquorum::{AcquireError, ExtendError, Redlock};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// A lease until its release. The watchdog's task looks at it, too.
type Held = Arc<Mutex<Option<redquorum::Lease>>>;

struct Redquorum(Redlock);

impl Library for Redquorum {
    type Lock = Held;

    const NAME: &'static str = "redquorum";
    const CAN: &'static [&'static str] =
        &["extend", "wait", "cancel", "keep_alive", "lost", "several", "fresh_tokens"];

    fn version() -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    async fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease<Held>, Refused> {
        self.0.acquire(resource).ttl(ttl).wait(wait).await.map(granted).map_err(refused)
    }

    async fn acquire_all(
        &self,
        resources: &[String],
        ttl: Duration,
        wait: Duration,
    ) -> Result<Vec<Lease<Held>>, Refused> {
        let leases = self.0.acquire_all(resources).ttl(ttl).wait(wait).await.map_err(refused)?;
        Ok(leases.into_iter().map(granted).collect())
    }

    async fn extend(&self, lease: &Lease<Held>, ttl: Duration) -> Result<Lease<Held>, Refused> {
        let held = lease.lock.lock().await;
        let Some(inner) = &*held else { return Err(lost()) };
        match inner.extend_to(ttl).await {
            Ok(_) => Ok(Lease::new(Arc::clone(&lease.lock), None, Some(millis(inner.validity())))),
            Err(ExtendError::Lost { .. }) => Err(lost()),
            Err(error) => Err(Refused { why: "no-quorum", text: Some(error.to_string()) }),
        }
    }

    async fn keep_alive(
        &self,
        lease: &Lease<Held>,
        most: Duration,
        holder: Holder,
    ) -> Result<(), Refused> {
        let held = lease.lock.lock().await;
        let mut deadline = match &*held {
            Some(inner) => {
                inner.keep_alive(most);
                inner.deadline()
            }
            None => return Err(lost()),
        };
        drop(held);
        let held = Arc::clone(&lease.lock);
        tokio::spawn(async move {
            // The library reports no extension. So the driver looks at the deadline.
            loop {
                sleep(Duration::from_millis(5)).await;
                match &*held.lock().await {
                    Some(inner) if !inner.is_lost() => {
                        if inner.deadline() != deadline {
                            deadline = inner.deadline();
                            holder.extended(inner.validity());
                        }
                    }
                    _ => return,
                }
            }
        });
        Ok(())
    }

    fn watch(&self, lease: &Lease<Held>, holder: Holder) {
        let held = Arc::clone(&lease.lock);
        tokio::spawn(async move {
            let signal = held.lock().await.as_ref().map(redquorum::Lease::loss_signal);
            if let Some(signal) = signal
                && signal.ended().await.is_some()
            {
                holder.lost();
            }
        });
    }

    async fn release(&self, lease: &Lease<Held>) -> Result<(), Refused> {
        let inner = lease.lock.lock().await.take().ok_or_else(lost)?;
        if inner.release().await.was_lost() { Err(lost()) } else { Ok(()) }
    }
}

fn granted(lease: redquorum::Lease) -> Lease<Held> {
    let valid_ms = millis(lease.validity());
    Lease::new(Arc::new(Mutex::new(Some(lease))), None, Some(valid_ms))
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn lost() -> Refused {
    Refused { why: "lost", text: None }
}

fn refused(error: AcquireError) -> Refused {
    let why = match error {
        AcquireError::Taken { .. } => "taken",
        AcquireError::NoQuorum { .. } => "no-quorum",
        AcquireError::TooLate { .. } => "late",
        _ => "error",
    };
    Refused { why, text: Some(error.to_string()) }
}

#[tokio::main]
async fn main() {
    let lock = Redlock::builder().masters(nodes()).build().await.expect("the options are valid");
    serve(Redquorum(lock)).await;
}
