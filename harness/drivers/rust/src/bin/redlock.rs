//! redlock, a Redlock for Rust: <https://crates.io/crates/redlock>

use std::time::Duration;

use protocol::{Lease, Library, Refused, nodes, serve};
use redlock::{Lock, RedLock};

struct Redlock(&'static RedLock);

impl Library for Redlock {
    type Lock = Lock<'static>;

    const NAME: &'static str = "redlock";
    const CAN: &'static [&'static str] = &[];

    fn version() -> String {
        protocol::locked_version(include_str!("../../Cargo.lock"), "redlock")
    }

    async fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
        _wait: Duration,
    ) -> Result<Lease<Lock<'static>>, Refused> {
        let (manager, resource, ttl) = (self.0, resource.to_owned(), ttl.as_millis() as usize);
        let granted = blocking(move || manager.lock(resource.as_bytes(), ttl)).await?;
        match granted {
            Ok(Some(lock)) => {
                let token: String = lock.val.iter().map(|byte| format!("{byte:02x}")).collect();
                let valid_ms = lock.validity_time as u64;
                Ok(Lease::new(lock, Some(format!("hex:{token}")), Some(valid_ms)))
            }
            Ok(None) => Err(Refused { why: "refused", text: None }),
            Err(error) => Err(Refused { why: "no-quorum", text: Some(error.to_string()) }),
        }
    }

    async fn release(&self, lease: &Lease<Lock<'static>>) -> Result<(), Refused> {
        let manager = self.0;
        let (resource, val) = (lease.lock.resource.clone(), lease.lock.val.clone());
        let lock = Lock { resource, val, validity_time: 0, lock_manager: manager };
        blocking(move || manager.unlock(&lock)).await
    }
}

/// A call that blocks, on a thread of its own.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    let ended = tokio::task::spawn_blocking(call).await;
    ended.map_err(|panic| Refused { why: "error", text: Some(panic.to_string()) })
}

#[tokio::main]
async fn main() {
    serve(Redlock(Box::leak(Box::new(RedLock::new(nodes()))))).await;
}
