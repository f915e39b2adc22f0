//! `GET_LOCK`: a lock of the database server by name. It belongs to the connection, not to the
//! transaction, so that it can be released too early: before the commit, others still read the
//! counter of before. A transactional method that locks inside does so: its transaction begins
//! before the lock is acquired, and commits after the lock is released.

use super::{
    Application, ApplyError, Boxed, Reply, Strategy,
    transaction::{READ, write_uncommitted},
};
use crate::database::Session;

const ACQUIRE: &str = "SELECT GET_LOCK(CONCAT(DATABASE(), '.', ?), 10)";
const RELEASE: &str = "SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', ?))";

/// Holds a named lock.
pub(super) struct NamedLock {
    /// Releases before the commit, which is wrong.
    pub(super) release_early: bool,
}

impl NamedLock {
    async fn sign_up(
        &self,
        session: &mut Session,
        application: &Application,
    ) -> Result<Reply, ApplyError> {
        let name = [application.recruitment];
        if self.release_early {
            session.begin().await?;
        }
        let row = session.fetch(ACQUIRE, &name).await?;
        if row.and_then(|row| row.first().copied()) != Some(1) {
            return Err(ApplyError::Lock("the named lock was not granted in time".to_owned()));
        }
        if !self.release_early {
            session.begin().await?;
        }
        let signed_up = write_uncommitted(session, application, READ, || true).await?;
        if self.release_early {
            session.fetch(RELEASE, &name).await?;
        }
        if signed_up.is_some() {
            session.commit().await?;
        }
        if !self.release_early {
            session.fetch(RELEASE, &name).await?;
        }
        Ok(if signed_up.is_some() { Reply::Accepted } else { Reply::Refused })
    }
}

impl Strategy for NamedLock {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let mut session = application.pool.session().await?;
            let result = self.sign_up(&mut session, application).await;
            if result.is_err() {
                // The end of the connection releases the lock.
                session.close_on_drop();
            }
            result
        })
    }
}
