//! rslock, a Redlock for Rust: <https://github.com/hexcowboy/rslock>
//!
//! This is also the template of a driver in Rust: replace the calls of rslock with those of your
//! library, and check the result with `redquorum-chaos client-check target/release/rslock-driver`.
//! `examples/redquorum.rs` is a driver of a lock that also waits, keeps leases alive, reports their
//! loss, and acquires several resources at once.

use std::time::Duration;

use rslock::{Lock, LockError, LockManager};

use protocol::{Lease, Library, Refused, nodes, serve};

struct Rslock(LockManager);

impl Library for Rslock {
    type Lock = Lock;

    const NAME: &'static str = "rslock";
    const CAN: &'static [&'static str] = &["extend", "cancel"];

    fn version() -> String {
        protocol::locked_version(include_str!("../Cargo.lock"), "rslock")
    }

    async fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
        _wait: Duration,
    ) -> Result<Lease<Lock>, Refused> {
        self.0.lock(resource, ttl).await.map(lease).map_err(refused)
    }

    async fn extend(&self, lease: &Lease<Lock>, ttl: Duration) -> Result<Lease<Lock>, Refused> {
        self.0.extend(&lease.lock, ttl).await.map(self::lease).map_err(refused)
    }

    async fn release(&self, lease: &Lease<Lock>) -> Result<(), Refused> {
        self.0.unlock(&lease.lock).await;
        Ok(())
    }
}

fn lease(lock: Lock) -> Lease<Lock> {
    let token: String = lock.val.iter().map(|byte| format!("{byte:02x}")).collect();
    let valid_ms = lock.validity_time as u64;
    Lease::new(lock, Some(format!("hex:{token}")), Some(valid_ms))
}

fn refused(error: LockError) -> Refused {
    let why = match error {
        LockError::Unavailable => "taken",
        LockError::TtlExceeded => "late",
        LockError::RedisConnectionFailed | LockError::Redis(_) => "no-quorum",
        _ => "error",
    };
    Refused { why, text: Some(error.to_string()) }
}

#[tokio::main]
async fn main() {
    serve(Rslock(LockManager::new(nodes()))).await;
}
