//! redquorum on five masters, with its default waiting.

use std::time::Duration;

use redquorum::{Lease, Redlock};

use super::{
    Application, ApplyError, Context, Reply, lock_error,
    sql::{free, sign_up, write_if_unchanged},
};

pub(crate) struct Quorum {
    lock: Redlock,
    /// The replies to the connection's own commands, which no applicant caused.
    connecting: u64,
    fenced: bool,
}

impl Quorum {
    pub(super) async fn new(context: &Context, fenced: bool) -> Result<Self, String> {
        // The counters of recruitments that no later contest uses need not stay on the masters.
        let builder = Redlock::builder()
            .masters(&context.masters)
            .ttl(context.ttl)
            .fencing_counter_ttl(context.ttl * 6)
            .prefix(&context.prefix);
        let lock = builder.require_quorum(true).build().await;
        let lock = lock.map_err(|error| error.to_string())?;
        Ok(Self { connecting: replies(&lock), lock, fenced })
    }

    pub(super) fn connections(&self) -> u64 {
        self.lock.stats().masters.len() as u64
    }

    /// The commands that masters replied to.
    pub(super) fn commands(&self) -> u64 {
        replies(&self.lock) - self.connecting
    }

    pub(super) async fn apply(&self, application: &Application) -> Result<Reply, ApplyError> {
        let resource = application.recruitment.to_string();
        let acquire = self.lock.acquire(resource).wait(application.remaining());
        let (lease, result);
        if self.fenced {
            lease = acquire.fenced().await.map_err(lock_error)?;
            result = sign_up_fenced(application, &lease).await;
        } else {
            lease = acquire.await.map_err(lock_error)?;
            result = sign_up(application, || !lease.is_lost()).await;
        }
        let _ = lease.release().await;
        result
    }

    pub(super) async fn finish(&self) {
        // A master that is down keeps its keys until they expire.
        let _unfinished = self.lock.shutdown(Duration::from_secs(1)).await;
    }
}

fn replies(lock: &Redlock) -> u64 {
    lock.stats().masters.iter().map(|master| master.latency.count).sum()
}

/// The token is presented to the recruitment's row, which stores it if it is not smaller than the
/// stored one; the read and the write require that it is still the stored one. A paused holder
/// finds a larger token there and writes nothing.
async fn sign_up_fenced(application: &Application, lease: &Lease) -> Result<Reply, ApplyError> {
    const PRESENT: &str = "UPDATE recruitment SET fence = ? WHERE id = ? AND fence <= ?";
    const READ: &str =
        "SELECT applicant_count, capacity FROM recruitment WHERE id = ? AND fence = ?";
    const WRITE: &str = "UPDATE recruitment SET applicant_count = ? WHERE id = ? AND fence = ?";
    let token = i64::try_from(lease.fencing_token().unwrap()).map_err(lock_error)?;
    let id = application.recruitment;
    let mut session = application.pool.session().await?;
    if session.execute(PRESENT, &[token, id, token]).await? == 0 {
        return Err(ApplyError::Conflict);
    }
    let Some(row) = session.fetch(READ, &[id, token]).await? else {
        return Err(ApplyError::Conflict);
    };
    let Some(count) = free(&row) else { return Ok(Reply::Refused) };
    write_if_unchanged(&mut session, application, WRITE, &[count + 1, id, token]).await
}
