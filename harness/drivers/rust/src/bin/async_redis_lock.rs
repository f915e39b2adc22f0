//! async-redis-lock, on the first master only: <https://crates.io/crates/async-redis-lock>

use std::sync::Mutex;
use std::time::Duration;

use async_redis_lock::{Error, Lock, Locker, Options};
use protocol::{Lease, Library, Refused, nodes, serve};

struct AsyncRedisLock(Locker);

impl Library for AsyncRedisLock {
    type Lock = Mutex<Option<Lock>>;

    const NAME: &'static str = "async-redis-lock";
    const CAN: &'static [&'static str] = &["wait", "cancel", "renews"];

    fn version() -> String {
        protocol::locked_version(include_str!("../../Cargo.lock"), "async-redis-lock")
    }

    async fn acquire(
        &self,
        resource: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease<Mutex<Option<Lock>>>, Refused> {
        // Its documentation recommends a third of the TTL.
        let options = Options::new().ttl(ttl).extend(ttl / 3).timeout(Some(wait));
        let lock = self.0.acquire_with_options(&options, resource).await.map_err(refused)?;
        // The library does not say how long the lease is valid, so the driver says nothing either.
        Ok(Lease::new(Mutex::new(Some(lock)), None, None))
    }

    fn is_held(&self, lease: &Lease<Mutex<Option<Lock>>>) -> bool {
        let lock = lease.lock.lock().expect("no panic under it");
        lock.as_ref().is_some_and(|lock| !lock.is_lost())
    }

    async fn release(&self, lease: &Lease<Mutex<Option<Lock>>>) -> Result<(), Refused> {
        let lock = lease.lock.lock().expect("no panic under it").take();
        match lock {
            Some(lock) => lock.release().await.map_err(refused),
            None => Err(Refused { why: "lost", text: None }),
        }
    }
}

fn refused(error: Error) -> Refused {
    let why = match error {
        Error::IdNotFound => "lost",
        Error::Timeout => "refused",
        Error::OperationTimeout | Error::Redis(_) => "no-quorum",
        _ => "error",
    };
    Refused { why, text: Some(error.to_string()) }
}

#[tokio::main]
async fn main() {
    let first = nodes().swap_remove(0);
    let locker = Locker::from_redis_url(&first).await.expect("the master can be reached");
    serve(AsyncRedisLock(locker)).await;
}
