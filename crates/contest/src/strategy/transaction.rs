//! The transaction of every strategy that keeps others out before it: reads the counter, checks
//! the capacity, inserts the applicant, writes the counter that it has read plus one.

use super::{Application, ApplyError, Reply};
use crate::database::{Session, SqlError};

/// The statement that reads without a lock.
pub(super) const READ: &str = "SELECT applicant_count, capacity FROM recruitment WHERE id = ?";
const INSERT: &str = "INSERT INTO applicant (recruitment_id, volunteer_id) VALUES (?, ?)";
const WRITE: &str = "UPDATE recruitment SET applicant_count = ? WHERE id = ?";

/// Reads the counter and the capacity.
pub(super) async fn read(
    session: &mut Session,
    sql: &'static str,
    values: &[i64],
) -> Result<Option<(i64, i64)>, SqlError> {
    let row = session.fetch(sql, values).await?;
    Ok(row.and_then(|row| Some((*row.first()?, *row.get(1)?))))
}

/// Inserts the applicant.
pub(super) async fn insert(
    session: &mut Session,
    application: &Application,
) -> Result<u64, SqlError> {
    session.execute(INSERT, &[application.recruitment, application.volunteer]).await
}

/// Reads and writes in the transaction that has begun, without its commit. `None`: no place is
/// left, and the transaction is rolled back.
///
/// `still_held` is the last check before the writes. A process that is paused after it writes all
/// the same.
pub(super) async fn write_uncommitted(
    session: &mut Session,
    application: &Application,
    read_sql: &'static str,
    still_held: impl Fn() -> bool,
) -> Result<Option<()>, ApplyError> {
    let row = read(session, read_sql, &[application.recruitment]).await?;
    let Some((count, _)) = row.filter(|(count, capacity)| count < capacity) else {
        session.rollback().await?;
        return Ok(None);
    };
    if !still_held() {
        session.rollback().await?;
        return Err(ApplyError::Lock("the lease was lost".to_owned()));
    }
    application.pause_point().await;
    insert(session, application).await?;
    session.execute(WRITE, &[count + 1, application.recruitment]).await?;
    Ok(Some(()))
}

/// Runs the transaction on a connection of its own.
pub(super) async fn sign_up(
    application: &Application,
    still_held: impl Fn() -> bool,
) -> Result<Reply, ApplyError> {
    let mut session = application.pool.session().await?;
    session.begin().await?;
    match write_uncommitted(&mut session, application, READ, still_held).await? {
        Some(()) => {
            session.commit().await?;
            Ok(Reply::Accepted)
        }
        None => Ok(Reply::Refused),
    }
}

/// [`sign_up`] for strategies that cannot lose what they hold.
pub(super) async fn sign_up_held(application: &Application) -> Result<Reply, ApplyError> {
    sign_up(application, || true).await
}
