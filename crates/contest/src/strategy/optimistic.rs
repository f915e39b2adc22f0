//! Optimistic concurrency: the counter is written only if the version is still the one that was
//! read. The caller tries again, with back-off.

use super::{Application, ApplyError, Boxed, Reply, Strategy, transaction::insert};

const READ: &str = "SELECT applicant_count, capacity, version FROM recruitment WHERE id = ?";
const WRITE: &str = "UPDATE recruitment SET applicant_count = ?, version = version + 1
                     WHERE id = ? AND version = ?";

/// Compares versions.
pub(super) struct Optimistic;

impl Strategy for Optimistic {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let mut session = application.pool.session().await?;
            let row = session.fetch(READ, &[application.recruitment]).await?.unwrap_or_default();
            let [count, capacity, version] = row[..] else {
                return Ok(Reply::Refused);
            };
            if count >= capacity {
                return Ok(Reply::Refused);
            }
            application.pause_point().await;
            session.begin().await?;
            // The update first: after an insert, whose foreign key locks the same row in shared
            // mode, two of these would deadlock.
            let values = [count + 1, application.recruitment, version];
            if session.execute(WRITE, &values).await? == 0 {
                session.rollback().await?;
                return Err(ApplyError::Conflict);
            }
            insert(&mut session, application).await?;
            session.commit().await?;
            Ok(Reply::Accepted)
        })
    }
}
