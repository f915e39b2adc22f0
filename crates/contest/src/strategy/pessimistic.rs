//! `SELECT … FOR UPDATE`: the read locks the recruitment's row until the commit.

use super::{Application, ApplyError, Boxed, Reply, Strategy, transaction::write_uncommitted};

const READ: &str = "SELECT applicant_count, capacity FROM recruitment WHERE id = ? FOR UPDATE";

/// Locks the row.
pub(super) struct Pessimistic;

impl Strategy for Pessimistic {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let mut session = application.pool.session().await?;
            session.begin().await?;
            match write_uncommitted(&mut session, application, READ, || true).await? {
                Some(()) => {
                    session.commit().await?;
                    Ok(Reply::Accepted)
                }
                None => Ok(Reply::Refused),
            }
        })
    }
}
