//! Connections to either database under one interface.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    ConnectOptions, Executor, MySql, Sqlite,
    mysql::MySqlPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

use super::{Session, SqlError, Target, session::Connection};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long SQLite waits for its write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Beyond the longest fault, and short enough that a deadlocked run ends.
const SESSION: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION innodb_lock_wait_timeout = 20",
];

/// Connections to the database.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    inner: Inner,
    statements: Arc<AtomicU64>,
    in_use: Arc<InUse>,
}

/// How many connections are in use, and how many were at most.
#[derive(Debug, Default)]
pub(super) struct InUse {
    now: AtomicU64,
    most: AtomicU64,
}

impl InUse {
    pub(super) fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
enum Inner {
    MariaDb(sqlx::Pool<MySql>),
    Sqlite(sqlx::Pool<Sqlite>),
}

impl Pool {
    /// Opens the first connection; others follow as they are needed, up to `most`.
    pub(crate) async fn connect(target: &Target, most: u32) -> Result<Self, SqlError> {
        let inner = match target {
            Target::MariaDb { options, through, relax_snapshots } => {
                let mut options = options.as_ref().clone();
                if let Some(proxy) = through {
                    options = options.host(&proxy.ip().to_string()).port(proxy.port());
                }
                let relax = *relax_snapshots;
                let pool = MySqlPoolOptions::new()
                    .max_connections(most)
                    .acquire_timeout(CONNECT_TIMEOUT * 3)
                    .test_before_acquire(false)
                    .idle_timeout(None)
                    .after_connect(move |connection, _| {
                        Box::pin(async move {
                            for statement in SESSION {
                                connection.execute(statement).await?;
                            }
                            if relax {
                                connection
                                    .execute("SET SESSION innodb_snapshot_isolation = OFF")
                                    .await?;
                            }
                            Ok(())
                        })
                    });
                // Boxed: the futures of sqlx are large, and so would be all that hold them.
                let connecting = Box::pin(pool.connect_with(options.disable_statement_logging()));
                let pool = tokio::time::timeout(CONNECT_TIMEOUT, connecting);
                Inner::MariaDb(pool.await.map_err(|_| SqlError::timeout())??)
            }
            Target::Sqlite(file) => {
                let options = SqliteConnectOptions::new()
                    .filename(file)
                    .journal_mode(SqliteJournalMode::Wal)
                    .foreign_keys(true)
                    .busy_timeout(BUSY_TIMEOUT);
                let pool = SqlitePoolOptions::new()
                    .max_connections(most)
                    .acquire_timeout(CONNECT_TIMEOUT * 3)
                    .test_before_acquire(false)
                    .idle_timeout(None);
                Inner::Sqlite(
                    Box::pin(pool.connect_with(options.disable_statement_logging())).await?,
                )
            }
        };
        Ok(Self { inner, statements: Arc::default(), in_use: Arc::default() })
    }

    /// Opens connections until there are so many, so that applicants do not wait for them.
    pub(crate) async fn warm_up(&self, connections: u32) -> Result<(), SqlError> {
        let mut sessions = Vec::new();
        for _ in 0..connections {
            sessions.push(self.session().await?);
        }
        drop(sessions);
        self.in_use.most.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// A connection, out of a transaction.
    pub(crate) async fn session(&self) -> Result<Session, SqlError> {
        let connection = match &self.inner {
            Inner::MariaDb(pool) => Connection::MariaDb(Box::pin(pool.acquire()).await?),
            Inner::Sqlite(pool) => Connection::Sqlite(Box::pin(pool.acquire()).await?),
        };
        Ok(Session::new(connection, self.statements.clone(), self.in_use.clone()))
    }

    /// Fails if the server does not reply.
    pub(crate) async fn ping(&self) -> Result<(), SqlError> {
        self.session().await?.fetch("SELECT 1", &[]).await.map(|_| ())
    }

    /// The connections that were in use at once.
    pub(crate) fn most_in_use(&self) -> u64 {
        self.in_use.most.load(Ordering::Relaxed)
    }

    /// The statements that were sent, `BEGIN` and `COMMIT` included.
    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        match &self.inner {
            Inner::MariaDb(pool) => pool.close().await,
            Inner::Sqlite(pool) => pool.close().await,
        }
    }
}
