//! One applicant: tries until there is a reply, and adds it to the tally.

use std::time::{Duration, Instant};

use crate::{
    database::SqlError,
    strategy::{Application, ApplyError, Kind, Reply, Strategy},
    tally::Tally,
};

const ATTEMPTS: u32 = 500;
const MAX_PAUSE_MS: u64 = 32;

pub(super) async fn apply(
    strategy: &Strategy,
    kind: Kind,
    application: &Application,
    tally: &Tally,
) -> Result<Reply, String> {
    let mut commit_unknown = false;
    for attempt in 0..ATTEMPTS {
        tally.counts().retries += u64::from(attempt > 0);
        if commit_unknown && has_row(application).await {
            return Ok(Reply::Accepted);
        }
        let error = match strategy.apply(application).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        match &error {
            ApplyError::Sql(SqlError::Deadlock) => tally.counts().deadlocks += 1,
            ApplyError::Sql(SqlError::Disconnected(_)) => commit_unknown = true,
            ApplyError::Sql(SqlError::Duplicate) if commit_unknown => return Ok(Reply::Accepted),
            ApplyError::Sql(SqlError::Duplicate | SqlError::Other(_)) => {
                return Err(error.to_string());
            }
            _ => {}
        }
        // Without a lock the applicant gets the error, as in the program that the contest is about.
        if !kind.correct() || Instant::now() >= application.deadline {
            return Err(error.to_string());
        }
        let most = (1_u64 << attempt.min(5)).min(MAX_PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
    }
    Err(format!("not signed up after {ATTEMPTS} attempts"))
}

/// Whether an attempt whose commit has no known outcome signed the volunteer up.
async fn has_row(application: &Application) -> bool {
    const FIND: &str = "SELECT id FROM applicant WHERE recruitment_id = ? AND volunteer_id = ?";
    let Ok(mut session) = application.pool.session().await else { return false };
    let values = [application.recruitment, application.volunteer];
    session.fetch(FIND, &values).await.is_ok_and(|row| row.is_some())
}
