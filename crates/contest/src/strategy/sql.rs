//! The strategies that need nothing but the database, the transaction of all strategies that keep
//! others out before it, and the queue.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{Application, ApplyError, Kind, Reply, lock_error};
use crate::database::{Session, SqlError};

const INSERT: &str = "INSERT INTO applicant (recruitment_id, volunteer_id) VALUES (?, ?)";

async fn insert(session: &mut Session, application: &Application) -> Result<u64, SqlError> {
    session.execute(INSERT, &[application.recruitment, application.volunteer]).await
}

/// Reads the counter, checks the capacity, inserts the applicant, and writes the counter that it
/// has read plus one: in the transaction that has begun, without its commit. If no place is left,
/// the transaction is rolled back.
///
/// `still_held` is the last check before the writes. A process that is paused after it writes all
/// the same.
async fn write_uncommitted(
    session: &mut Session,
    application: &Application,
    read: &'static str,
    still_held: impl Fn() -> bool,
) -> Result<Reply, ApplyError> {
    const WRITE: &str = "UPDATE recruitment SET applicant_count = ? WHERE id = ?";
    let row = session.fetch(read, &[application.recruitment]).await?.unwrap_or_default();
    let Some(count) = free(&row) else {
        session.rollback().await?;
        return Ok(Reply::Refused);
    };
    if !still_held() {
        session.rollback().await?;
        return Err(ApplyError::Lock("the lease was lost".to_owned()));
    }
    application.pause_point().await;
    insert(session, application).await?;
    session.execute(WRITE, &[count + 1, application.recruitment]).await?;
    Ok(Reply::Accepted)
}

/// The counter of a row that begins with counter and capacity, if a place is left.
pub(super) fn free(row: &[i64]) -> Option<i64> {
    let [count, capacity, ..] = row else { return None };
    (count < capacity).then_some(*count)
}

const READ: &str = "SELECT applicant_count, capacity FROM recruitment WHERE id = ?";

async fn transaction(
    session: &mut Session,
    application: &Application,
    read: &'static str,
    still_held: impl Fn() -> bool,
) -> Result<Reply, ApplyError> {
    session.begin().await?;
    let reply = write_uncommitted(session, application, read, still_held).await?;
    // Does nothing after a rollback.
    session.commit().await?;
    Ok(reply)
}

pub(super) async fn sign_up(
    application: &Application,
    still_held: impl Fn() -> bool,
) -> Result<Reply, ApplyError> {
    let mut session = application.pool.session().await?;
    transaction(&mut session, application, READ, still_held).await
}

pub(super) async fn apply(kind: Kind, application: &Application) -> Result<Reply, ApplyError> {
    // The read locks the recruitment's row until the commit.
    const FOR_UPDATE: &str =
        "SELECT applicant_count, capacity FROM recruitment WHERE id = ? FOR UPDATE";
    let mut session = application.pool.session().await?;
    match kind {
        Kind::Pessimistic => transaction(&mut session, application, FOR_UPDATE, || true).await,
        Kind::Optimistic => optimistic(&mut session, application).await,
        Kind::AtomicUpdate => atomic_update(&mut session, application).await,
        Kind::NamedLock | Kind::NamedLockEarly => {
            let result = named_lock(&mut session, application, kind == Kind::NamedLockEarly).await;
            if result.is_err() {
                // The end of the connection releases the lock.
                session.close_on_drop();
            }
            result
        }
        // Without protection two transactions read the same counter, and the second overwrites the
        // first.
        _ => transaction(&mut session, application, READ, || true).await,
    }
}

/// The counter is written only if the version is still the one that was read. The caller tries
/// again, with back-off.
async fn optimistic(session: &mut Session, application: &Application) -> Result<Reply, ApplyError> {
    const READ: &str = "SELECT applicant_count, capacity, version FROM recruitment WHERE id = ?";
    const WRITE: &str = "UPDATE recruitment SET applicant_count = ?, version = version + 1
                         WHERE id = ? AND version = ?";
    let row = session.fetch(READ, &[application.recruitment]).await?.unwrap_or_default();
    let Some(count) = free(&row) else { return Ok(Reply::Refused) };
    let values = [count + 1, application.recruitment, row[2]];
    write_if_unchanged(session, application, WRITE, &values).await
}

/// Signs up after a read without a lock. `write` changes no row if another applicant was faster.
pub(super) async fn write_if_unchanged(
    session: &mut Session,
    application: &Application,
    write: &'static str,
    values: &[i64],
) -> Result<Reply, ApplyError> {
    application.pause_point().await;
    session.begin().await?;
    // The update first: after an insert, whose foreign key locks the same row in shared mode, two
    // of these would deadlock.
    if session.execute(write, values).await? == 0 {
        session.rollback().await?;
        return Err(ApplyError::Conflict);
    }
    insert(session, application).await?;
    session.commit().await?;
    Ok(Reply::Accepted)
}

async fn atomic_update(
    session: &mut Session,
    application: &Application,
) -> Result<Reply, ApplyError> {
    const UPDATE: &str = "UPDATE recruitment SET applicant_count = applicant_count + 1
                          WHERE id = ? AND applicant_count < capacity";
    session.begin().await?;
    // Before the insert, whose foreign key would lock the row in shared mode first.
    if session.execute(UPDATE, &[application.recruitment]).await? == 0 {
        session.rollback().await?;
        return Ok(Reply::Refused);
    }
    application.pause_point().await;
    insert(session, application).await?;
    session.commit().await?;
    Ok(Reply::Accepted)
}

/// `GET_LOCK`: a lock of the database server by name. It belongs to the connection, not to the
/// transaction, so that it can be released too early: before the commit, others still read the
/// counter of before. A transactional method that locks inside does so: its transaction begins
/// before the lock is acquired, and commits after the lock is released.
async fn named_lock(
    session: &mut Session,
    application: &Application,
    release_early: bool,
) -> Result<Reply, ApplyError> {
    const ACQUIRE: &str = "SELECT GET_LOCK(CONCAT(DATABASE(), '.', ?), 10)";
    const RELEASE: &str = "SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', ?))";
    let name = [application.recruitment];
    if release_early {
        session.begin().await?;
    }
    let row = session.fetch(ACQUIRE, &name).await?;
    if row.and_then(|row| row.first().copied()) != Some(1) {
        return Err(ApplyError::Lock("the named lock was not granted in time".to_owned()));
    }
    if !release_early {
        session.begin().await?;
    }
    let reply = write_uncommitted(session, application, READ, || true).await?;
    if release_early {
        session.fetch(RELEASE, &name).await?;
    }
    session.commit().await?;
    if !release_early {
        session.fetch(RELEASE, &name).await?;
    }
    Ok(reply)
}

/// The most jobs that wait for a worker.
const LENGTH: usize = 1024;

type Job = (Application, oneshot::Sender<Result<Reply, ApplyError>>);

/// No lock at all: one worker per recruitment applies requests one after another.
#[derive(Default)]
pub(crate) struct Queue {
    workers: Mutex<HashMap<i64, mpsc::Sender<Job>>>,
}

impl Queue {
    fn worker(&self, recruitment: i64) -> mpsc::Sender<Job> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let (sender, jobs) = mpsc::channel(LENGTH);
            tokio::spawn(work(jobs));
            sender
        };
        workers.entry(recruitment).or_insert_with(start).clone()
    }

    pub(super) async fn apply(&self, application: &Application) -> Result<Reply, ApplyError> {
        let ended = || lock_error("the worker ended");
        let (sender, reply) = oneshot::channel();
        let job = (application.clone(), sender);
        self.worker(application.recruitment).send(job).await.map_err(|_| ended())?;
        reply.await.map_err(|_| ended())?
    }
}

async fn work(mut jobs: mpsc::Receiver<Job>) {
    while let Some((application, reply)) = jobs.recv().await {
        let result = sign_up(&application, || true).await;
        // An applicant that gave up does not wait for it.
        let _sent = reply.send(result);
    }
}
