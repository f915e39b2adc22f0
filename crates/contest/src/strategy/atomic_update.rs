//! One conditional `UPDATE`: the database reads, checks and writes the counter in one statement.

use super::{Application, ApplyError, Boxed, Reply, Strategy, transaction::insert};

const UPDATE: &str = "UPDATE recruitment SET applicant_count = applicant_count + 1
                      WHERE id = ? AND applicant_count < capacity";

/// Lets the database do it.
pub(super) struct AtomicUpdate;

impl Strategy for AtomicUpdate {
    fn apply<'a>(&'a self, application: &'a Application) -> Boxed<'a, Result<Reply, ApplyError>> {
        Box::pin(async move {
            let mut session = application.pool.session().await?;
            session.begin().await?;
            // Before the insert, whose foreign key would lock the row in shared mode first.
            if session.execute(UPDATE, &[application.recruitment]).await? == 0 {
                session.rollback().await?;
                return Ok(Reply::Refused);
            }
            application.pause_point().await;
            insert(&mut session, application).await?;
            session.commit().await?;
            Ok(Reply::Accepted)
        })
    }
}
