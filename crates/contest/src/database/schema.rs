//! The tables, and the counts that check a run: they read rows only, not the strategy's own counts.

use super::{Pool, Product, SqlError, Target};

const RECRUITMENT: &str = "
    CREATE TABLE recruitment (
        id INTEGER NOT NULL PRIMARY KEY,
        capacity BIGINT NOT NULL,
        applicant_count BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0,
        fence BIGINT NOT NULL DEFAULT 0
    )";

/// The foreign key is what makes the deadlock happen: an insert of an applicant locks the
/// recruitment's row in shared mode, and the update of its counter needs it exclusively.
macro_rules! applicant {
    ($id:literal) => {
        concat!(
            "CREATE TABLE applicant (id ",
            $id,
            ", recruitment_id INTEGER NOT NULL, volunteer_id BIGINT NOT NULL,
             UNIQUE (recruitment_id, volunteer_id),
             FOREIGN KEY (recruitment_id) REFERENCES recruitment (id))"
        )
    };
}

pub(super) async fn create_tables(target: &Target) -> Result<String, SqlError> {
    let (applicant, version) = match target.product {
        Product::MariaDb => {
            (applicant!("INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY"), "SELECT VERSION()")
        }
        Product::Sqlite => (applicant!("INTEGER PRIMARY KEY"), "SELECT sqlite_version()"),
    };
    let pool = Pool::connect(target, 1).await?;
    let mut session = pool.session().await?;
    session.execute(RECRUITMENT, &[]).await?;
    session.execute(applicant, &[]).await?;
    let version = session.fetch_text(version).await?;
    drop(session);
    pool.close().await;
    Ok(version)
}

pub(crate) async fn create_recruitments(
    pool: &Pool,
    first: i64,
    count: i64,
    capacity: i64,
) -> Result<(), SqlError> {
    let mut session = pool.session().await?;
    session.begin().await?;
    for id in first..first + count {
        session
            .execute("INSERT INTO recruitment (id, capacity) VALUES (?, ?)", &[id, capacity])
            .await?;
    }
    session.commit().await
}

const COUNT: &str = "
    SELECT CAST(COALESCE(SUM(per.applicants), 0) AS SIGNED),
           CAST(COALESCE(SUM(per.applicant_count), 0) AS SIGNED),
           CAST(COALESCE(SUM(CASE WHEN per.applicants > per.applicant_count
                             THEN per.applicants - per.applicant_count ELSE 0 END), 0) AS SIGNED),
           CAST(COALESCE(SUM(CASE WHEN per.applicants > per.capacity
                             THEN per.applicants - per.capacity ELSE 0 END), 0) AS SIGNED)
    FROM (SELECT r.capacity AS capacity, r.applicant_count AS applicant_count,
                 (SELECT COUNT(*) FROM applicant a WHERE a.recruitment_id = r.id) AS applicants
          FROM recruitment r WHERE r.id >= ? AND r.id < ?) per";

/// The rows of `count` recruitments from `first`, the sum of their counters, the rows without a
/// counted place, and the rows beyond the capacity.
pub(crate) async fn count(pool: &Pool, first: i64, count: i64) -> Result<[u64; 4], SqlError> {
    let mut session = pool.session().await?;
    let row = session.fetch(COUNT, &[first, first + count]).await?.unwrap_or_default();
    let at = |column: usize| {
        let value = row.get(column).copied().unwrap_or(0);
        u64::try_from(value).unwrap_or(0)
    };
    Ok([at(0), at(1), at(2), at(3)])
}
