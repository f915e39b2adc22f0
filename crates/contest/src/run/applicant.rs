//! One applicant: tries until there is a reply, and adds it to the tally.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use crate::{
    database::SqlError,
    strategy::{Application, ApplyError, Kind, Reply, Strategy},
    tally::Tally,
};

/// The bound of the attempts of one application.
const ATTEMPTS: u32 = 500;
/// The longest pause between two attempts.
const MAX_PAUSE_MS: u64 = 32;

/// How an application ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// With a reply.
    Replied(Reply),
    /// With an error.
    Failed(String),
}

/// Applies, and adds the result to the tally.
pub(super) async fn apply(
    strategy: &dyn Strategy,
    kind: Kind,
    application: &Application,
    tally: &Tally,
) {
    let start = Instant::now();
    match until_replied(strategy, kind, application, tally).await {
        End::Replied(Reply::Accepted) => tally.accept(start),
        End::Replied(Reply::Refused) => tally.refuse(start),
        End::Failed(error) => tally.fail(start, error),
    }
}

/// Applies until there is a reply, with back-off between attempts.
pub(super) async fn until_replied(
    strategy: &dyn Strategy,
    kind: Kind,
    application: &Application,
    tally: &Tally,
) -> End {
    let mut commit_unknown = false;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tally.retries.fetch_add(1, Ordering::Relaxed);
        }
        if commit_unknown && has_row(application).await {
            return End::Replied(Reply::Accepted);
        }
        let error = match strategy.apply(application).await {
            Ok(reply) => return End::Replied(reply),
            Err(error) => error,
        };
        match &error {
            ApplyError::Sql(SqlError::Deadlock) => {
                tally.deadlocks.fetch_add(1, Ordering::Relaxed);
            }
            ApplyError::Sql(SqlError::Disconnected(_)) => commit_unknown = true,
            ApplyError::Sql(SqlError::Duplicate) if commit_unknown => {
                return End::Replied(Reply::Accepted);
            }
            ApplyError::Sql(SqlError::Duplicate | SqlError::Other(_)) => {
                return End::Failed(error.to_string());
            }
            _ => {}
        }
        if !kind.retries() || Instant::now() >= application.deadline {
            return End::Failed(error.to_string());
        }
        let most = (1_u64 << attempt.min(5)).min(MAX_PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
    }
    End::Failed(format!("not signed up after {ATTEMPTS} attempts"))
}

/// Whether an attempt whose commit has no known outcome signed the volunteer up.
async fn has_row(application: &Application) -> bool {
    const FIND: &str = "SELECT id FROM applicant WHERE recruitment_id = ? AND volunteer_id = ?";
    let Ok(mut session) = application.pool.session().await else { return false };
    let values = [application.recruitment, application.volunteer];
    session.fetch(FIND, &values).await.is_ok_and(|row| row.is_some())
}
