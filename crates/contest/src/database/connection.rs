//! Connections to either database, the transactions on them, and a count of their statements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sqlx::{
    Any, ConnectOptions, Executor, Row,
    any::{AnyConnectOptions, AnyPoolOptions, AnyRow, install_default_drivers},
    mysql::MySqlDatabaseError,
    pool::PoolConnection,
};

use super::{Product, Target};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout is beyond the longest fault, and short enough that a deadlocked run ends.
const MARIADB: [&str; 3] = [
    "SET SESSION default_storage_engine = InnoDB",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION innodb_lock_wait_timeout = 20",
];
/// The timeout is how long SQLite waits for its write lock.
const SQLITE: [&str; 2] = ["PRAGMA busy_timeout = 30000", "PRAGMA journal_mode = WAL"];

/// Why a statement failed, as far as a strategy handles it differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SqlError {
    /// The database rolled the transaction back to end it.
    #[error("deadlock")]
    Deadlock,
    #[error("a lock was not granted in time")]
    LockTimeout,
    #[error("the row exists")]
    Duplicate,
    /// The connection broke, so that the outcome of a commit is unknown.
    #[error("{0}")]
    Disconnected(String),
    #[error("{0}")]
    Other(String),
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
        let text = error.to_string();
        match error {
            Database(error) => {
                if let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() {
                    return match error.number() {
                        1213 => Self::Deadlock,
                        1205 => Self::LockTimeout,
                        1062 => Self::Duplicate,
                        // Shutdown, killed connection or query.
                        1053 | 1317 | 1927 => Self::Disconnected(text),
                        _ => Self::Other(text),
                    };
                }
                match error.code().as_deref() {
                    Some("1555" | "2067") => Self::Duplicate,
                    Some("5" | "261" | "517") => Self::LockTimeout,
                    _ => Self::Other(text),
                }
            }
            Io(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed => {
                Self::Disconnected(text)
            }
            _ => Self::Other(text),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Pool {
    inner: sqlx::Pool<Any>,
    product: Product,
    usage: Arc<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    statements: AtomicU64,
    sessions: AtomicU64,
    most_sessions: AtomicU64,
}

impl Pool {
    /// Opens the first connection; others follow as they are needed, up to `most`.
    pub(crate) async fn connect(target: &Target, most: u32) -> Result<Self, SqlError> {
        install_default_drivers();
        let product = target.product;
        let mut settings = match product {
            Product::MariaDb => MARIADB.to_vec(),
            Product::Sqlite => SQLITE.to_vec(),
        };
        if target.relax_snapshots {
            settings.push("SET SESSION innodb_snapshot_isolation = OFF");
        }
        let settings = Arc::new(settings);
        let pool = AnyPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(CONNECT_TIMEOUT * 3)
            .test_before_acquire(false)
            .idle_timeout(None)
            .after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move {
                    for statement in settings.iter().copied() {
                        connection.execute(statement).await?;
                    }
                    Ok(())
                })
            });
        let options: AnyConnectOptions = target.url.parse()?;
        // Boxed: the futures of sqlx are large, and so would be all that hold them.
        let connecting = Box::pin(pool.connect_with(options.disable_statement_logging()));
        let inner = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| SqlError::Disconnected("no connection in time".to_owned()))??;
        Ok(Self { inner, product, usage: Arc::default() })
    }

    /// Opens connections until there are so many, so that applicants do not wait for them.
    pub(crate) async fn warm_up(&self, connections: u32) -> Result<(), SqlError> {
        let mut sessions = Vec::new();
        for _ in 0..connections {
            sessions.push(self.session().await?);
        }
        drop(sessions);
        self.usage.most_sessions.store(0, Relaxed);
        Ok(())
    }

    pub(crate) async fn session(&self) -> Result<Session, SqlError> {
        let connection = Box::pin(self.inner.acquire()).await?;
        let usage = self.usage.clone();
        usage.most_sessions.fetch_max(usage.sessions.fetch_add(1, Relaxed) + 1, Relaxed);
        let (product, state) = (self.product, State::Idle);
        Ok(Session { connection, product, usage, state, unusable: false })
    }

    pub(crate) async fn ping(&self) -> Result<(), SqlError> {
        self.session().await?.fetch("SELECT 1", &[]).await.map(|_| ())
    }

    pub(crate) fn most_in_use(&self) -> u64 {
        self.usage.most_sessions.load(Relaxed)
    }

    /// The statements that were sent, `BEGIN` and `COMMIT` included.
    pub(crate) fn statements(&self) -> u64 {
        self.usage.statements.load(Relaxed)
    }

    pub(crate) async fn close(&self) {
        self.inner.close().await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// A transaction begins with the first write: SQLite only.
    Requested,
    Open,
}

/// A connection, and the transaction on it. Any error ends the transaction. A session that is
/// dropped within a transaction closes its connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: PoolConnection<Any>,
    product: Product,
    usage: Arc<Usage>,
    state: State,
    unusable: bool,
}

impl Session {
    /// Begins a transaction.
    ///
    /// On SQLite it begins with the first write, and what is read before is read outside of it: a
    /// transaction that has read refuses to write after another one has written, so that the
    /// strategies would be compared by their errors.
    pub(crate) async fn begin(&mut self) -> Result<(), SqlError> {
        self.state = match self.product {
            Product::MariaDb => {
                self.raw("BEGIN").await?;
                State::Open
            }
            Product::Sqlite => State::Requested,
        };
        Ok(())
    }

    pub(crate) async fn commit(&mut self) -> Result<(), SqlError> {
        self.end("COMMIT").await
    }

    pub(crate) async fn rollback(&mut self) -> Result<(), SqlError> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, sql: &'static str) -> Result<(), SqlError> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Open { self.raw(sql).await } else { Ok(()) }
    }

    pub(crate) async fn fetch(
        &mut self,
        sql: &'static str,
        values: &[i64],
    ) -> Result<Option<Vec<i64>>, SqlError> {
        self.counted();
        let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
        let row = self.connection.fetch_optional(query).await;
        let row = row.and_then(|row| row.map(integers).transpose());
        self.checked(row).await
    }

    pub(crate) async fn fetch_text(&mut self, sql: &'static str) -> Result<String, SqlError> {
        let row = self.connection.fetch_one(sql).await;
        self.checked(row.and_then(|row| row.try_get(0))).await
    }

    /// The rows that a statement matched.
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        values: &[i64],
    ) -> Result<u64, SqlError> {
        if self.state == State::Requested {
            self.raw("BEGIN IMMEDIATE").await?;
            self.state = State::Open;
        }
        self.counted();
        let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
        let result = self.connection.execute(query).await;
        self.checked(result.map(|done| done.rows_affected())).await
    }

    pub(crate) fn close_on_drop(&mut self) {
        self.unusable = true;
    }

    async fn raw(&mut self, sql: &'static str) -> Result<(), SqlError> {
        self.counted();
        if let Err(error) = self.connection.execute(sql).await {
            self.unusable = true;
            self.state = State::Idle;
            return Err(error.into());
        }
        Ok(())
    }

    async fn checked<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => SqlError::from(error),
        };
        let broken = matches!(error, SqlError::Disconnected(_));
        self.unusable |= broken || self.rollback().await.is_err();
        Err(error)
    }

    fn counted(&self) {
        self.usage.statements.fetch_add(1, Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.usage.sessions.fetch_sub(1, Relaxed);
        if self.unusable || self.state == State::Open {
            self.connection.close_on_drop();
        }
    }
}

fn integers(row: AnyRow) -> Result<Vec<i64>, sqlx::Error> {
    (0..row.len()).map(|column| Ok(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0))).collect()
}
