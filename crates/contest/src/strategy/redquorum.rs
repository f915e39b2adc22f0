//! redquorum on five masters, with its default waiting, and its connections with a count of the
//! commands.

use std::{sync::Arc, sync::atomic::AtomicU64, time::Duration};

use redquorum::Redlock;

use super::{Application, ApplyError, Boxed, Context, Reply, Strategy, transaction::sign_up};
use crate::masters::counting;

/// Holds a lease of a quorum of masters.
pub(super) struct Quorum {
    lock: Redlock,
    masters: u64,
}

impl Quorum {
    pub(super) async fn new(context: &Context) -> Result<Self, String> {
        let (lock, masters) = connect(context).await?;
        Ok(Self { lock, masters })
    }
}

/// A lock on all masters.
pub(super) async fn connect(context: &Context) -> Result<(Redlock, u64), String> {
    let commands: &Arc<AtomicU64> = &context.commands;
    // The counters of recruitments that no later contest uses need not stay on the masters.
    let mut builder = Redlock::builder()
        .ttl(context.ttl)
        .fencing_counter_ttl(context.ttl * 6)
        .prefix(&context.prefix);
    for url in &context.addresses.all {
        builder = builder.master(counting::Counting::new(url, commands)?);
    }
    let lock = builder.require_quorum(true).build().await.map_err(|error| error.to_string())?;
    let masters = u64::try_from(context.addresses.all.len()).unwrap_or(0);
    Ok((lock, masters))
}

/// Ends the clean-ups of a lock.
pub(super) async fn shut_down(lock: &Redlock) {
    // A master that is down keeps its keys until they expire.
    let _unfinished = lock.shutdown(Duration::from_secs(1)).await;
}

impl Strategy for Quorum {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let resource = application.recruitment.to_string();
            let acquire = self.lock.acquire(resource).wait(application.remaining());
            let lease = acquire.await.map_err(|error| ApplyError::Lock(error.to_string()))?;
            let result = sign_up(application, || lease.is_lost().is_none()).await;
            lease.release().await;
            result
        })
    }

    fn redis_connections(&self) -> u64 {
        self.masters
    }

    fn finish(&self) -> Boxed<'_, ()> {
        Box::pin(shut_down(&self.lock))
    }
}
