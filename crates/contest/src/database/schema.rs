//! The tables, and the counts that judge a run: they read rows only, not the strategy's own counts.

use super::{Database, Pool, Product, SqlError};

/// The foreign key is what makes the deadlock happen: an insert of an applicant locks the
/// recruitment's row in shared mode, and the update of its counter needs it exclusively.
const MARIADB: [&str; 3] = [
    "CREATE TABLE recruitment (
         id BIGINT NOT NULL PRIMARY KEY,
         capacity BIGINT NOT NULL,
         applicant_count BIGINT NOT NULL DEFAULT 0,
         version BIGINT NOT NULL DEFAULT 0,
         fence BIGINT NOT NULL DEFAULT 0
     ) ENGINE=InnoDB",
    "CREATE TABLE volunteer (
         id BIGINT NOT NULL PRIMARY KEY,
         name VARCHAR(64) NOT NULL
     ) ENGINE=InnoDB",
    "CREATE TABLE applicant (
         id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
         recruitment_id BIGINT NOT NULL,
         volunteer_id BIGINT NOT NULL,
         UNIQUE KEY one_application (recruitment_id, volunteer_id),
         FOREIGN KEY (recruitment_id) REFERENCES recruitment (id)
     ) ENGINE=InnoDB",
];

const SQLITE: [&str; 3] = [
    "CREATE TABLE recruitment (
         id INTEGER PRIMARY KEY,
         capacity BIGINT NOT NULL,
         applicant_count BIGINT NOT NULL DEFAULT 0,
         version BIGINT NOT NULL DEFAULT 0,
         fence BIGINT NOT NULL DEFAULT 0
     )",
    "CREATE TABLE volunteer (
         id INTEGER PRIMARY KEY,
         name TEXT NOT NULL
     )",
    "CREATE TABLE applicant (
         id INTEGER PRIMARY KEY,
         recruitment_id BIGINT NOT NULL REFERENCES recruitment (id),
         volunteer_id BIGINT NOT NULL,
         UNIQUE (recruitment_id, volunteer_id)
     )",
];

/// The volunteers that have a row.
const VOLUNTEERS: i64 = 100;

/// Creates the tables and the volunteers; returns the server's version.
pub(crate) async fn create_tables(database: &Database) -> Result<String, SqlError> {
    let pool = Pool::connect(&database.target, 1).await?;
    let mut session = pool.session().await?;
    let tables = match database.product {
        Product::MariaDb => MARIADB,
        Product::Sqlite => SQLITE,
    };
    for table in tables {
        session.execute(table, &[]).await?;
    }
    session.begin().await?;
    for volunteer in 1..=VOLUNTEERS {
        session
            .execute("INSERT INTO volunteer (id, name) VALUES (?, 'volunteer')", &[volunteer])
            .await?;
    }
    session.commit().await?;
    let version = session.fetch_text(match database.product {
        Product::MariaDb => "SELECT VERSION()",
        Product::Sqlite => "SELECT sqlite_version()",
    });
    let version = version.await?;
    drop(session);
    pool.close().await;
    Ok(version)
}

/// Creates recruitments with consecutive ids from `first`.
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

/// What the database holds after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The rows of applicants.
    pub(crate) rows: u64,
    /// The sum of the counters.
    pub(crate) counter: u64,
    /// The rows without a counted place.
    pub(crate) lost_updates: u64,
    /// The rows beyond the capacity.
    pub(crate) oversold: u64,
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

/// Counts the rows of `count` recruitments from `first`.
pub(crate) async fn count(pool: &Pool, first: i64, count: i64) -> Result<Counts, SqlError> {
    let mut session = pool.session().await?;
    let row = session.fetch(COUNT, &[first, first + count]).await?.unwrap_or_default();
    let at = |column: usize| {
        let value = row.get(column).copied().unwrap_or(0);
        u64::try_from(value).unwrap_or(0)
    };
    Ok(Counts { rows: at(0), counter: at(1), lost_updates: at(2), oversold: at(3) })
}
