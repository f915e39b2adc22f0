//! redquorum with fencing tokens. The token is presented to the recruitment's row, which stores it
//! if it is not smaller than the stored one; the read and the write require that it is still the
//! stored one. A paused holder finds a larger token there and writes nothing.

use redquorum::{FencedLease, Redlock};

use super::{
    Application, ApplyError, Boxed, Context, Reply, Strategy,
    redquorum::{connect, shut_down},
    transaction::{insert, read},
};

const PRESENT: &str = "UPDATE recruitment SET fence = ? WHERE id = ? AND fence <= ?";
const READ: &str = "SELECT applicant_count, capacity FROM recruitment WHERE id = ? AND fence = ?";
const WRITE: &str = "UPDATE recruitment SET applicant_count = ? WHERE id = ? AND fence = ?";

/// Holds a lease, and proves it to the database.
pub(super) struct Fenced {
    lock: Redlock,
    masters: u64,
}

impl Fenced {
    pub(super) async fn new(context: &Context) -> Result<Self, String> {
        let (lock, masters) = connect(context).await?;
        Ok(Self { lock, masters })
    }
}

async fn sign_up(application: &Application, lease: &FencedLease) -> Result<Reply, ApplyError> {
    let token = i64::try_from(lease.fencing_token())
        .map_err(|_| ApplyError::Lock("the fencing token is too large".to_owned()))?;
    let id = application.recruitment;
    let mut session = application.pool.session().await?;
    if session.execute(PRESENT, &[token, id, token]).await? == 0 {
        return Err(ApplyError::Conflict);
    }
    let Some((count, capacity)) = read(&mut session, READ, &[id, token]).await? else {
        return Err(ApplyError::Conflict);
    };
    if count >= capacity {
        return Ok(Reply::Refused);
    }
    application.pause_point().await;
    session.begin().await?;
    if session.execute(WRITE, &[count + 1, id, token]).await? == 0 {
        session.rollback().await?;
        return Err(ApplyError::Conflict);
    }
    insert(&mut session, application).await?;
    session.commit().await?;
    Ok(Reply::Accepted)
}

impl Strategy for Fenced {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let resource = application.recruitment.to_string();
            let acquire = self.lock.acquire(resource).wait(application.remaining()).fenced();
            let lease = acquire.await.map_err(|error| ApplyError::Lock(error.to_string()))?;
            let result = sign_up(application, &lease).await;
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
