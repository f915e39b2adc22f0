//! A connection, the transaction on it, and a count of its statements.

use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering};

use sqlx::{
    Executor, MySql, Row, Sqlite, mysql::MySqlRow, pool::PoolConnection, sqlite::SqliteRow,
};

use super::{SqlError, pool::InUse};

#[derive(Debug)]
pub(super) enum Connection {
    MariaDb(PoolConnection<MySql>),
    Sqlite(PoolConnection<Sqlite>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No transaction.
    Idle,
    /// A transaction was query for that begins with the first write: SQLite only.
    Requested,
    /// A transaction is open.
    Open,
}

/// A connection, and the transaction on it. Any error ends the transaction. A session that is
/// dropped within a transaction closes its connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    statements: Arc<AtomicU64>,
    in_use: Arc<InUse>,
    state: State,
    unusable: bool,
}

impl Session {
    /// A session that counts itself.
    pub(super) fn new(
        connection: Connection,
        statements: Arc<AtomicU64>,
        in_use: Arc<InUse>,
    ) -> Self {
        in_use.begin();
        Self { connection, statements, in_use, state: State::Idle, unusable: false }
    }

    /// Begins a transaction.
    ///
    /// On SQLite it begins with the first write, and what is read before is read outside of it: a
    /// transaction that has read refuses to write after another one has written, so that the
    /// strategies would be compared by their errors.
    pub(crate) async fn begin(&mut self) -> Result<(), SqlError> {
        match self.connection {
            Connection::MariaDb(_) => {
                self.raw("BEGIN").await?;
                self.state = State::Open;
            }
            Connection::Sqlite(_) => self.state = State::Requested,
        }
        Ok(())
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), SqlError> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Open {
            self.raw("COMMIT").await?;
        }
        Ok(())
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(&mut self) -> Result<(), SqlError> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        if state == State::Open {
            self.raw("ROLLBACK").await?;
        }
        Ok(())
    }

    /// The first row, its columns as integers.
    pub(crate) async fn fetch(
        &mut self,
        sql: &'static str,
        values: &[i64],
    ) -> Result<Option<Vec<i64>>, SqlError> {
        self.counted();
        let row = match &mut self.connection {
            Connection::MariaDb(connection) => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                connection
                    .fetch_optional(query)
                    .await
                    .and_then(|row| row.map(mariadb_row).transpose())
            }
            Connection::Sqlite(connection) => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                connection
                    .fetch_optional(query)
                    .await
                    .and_then(|row| row.map(sqlite_row).transpose())
            }
        };
        self.checked(row).await
    }

    /// The first column of the first row as text.
    pub(crate) async fn fetch_text(&mut self, sql: &'static str) -> Result<String, SqlError> {
        let text = match &mut self.connection {
            Connection::MariaDb(connection) => {
                connection.fetch_one(sql).await.and_then(|row| row.try_get::<String, _>(0))
            }
            Connection::Sqlite(connection) => {
                connection.fetch_one(sql).await.and_then(|row| row.try_get::<String, _>(0))
            }
        };
        self.checked(text).await
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
        let result = match &mut self.connection {
            Connection::MariaDb(connection) => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                connection.execute(query).await.map(|done| done.rows_affected())
            }
            Connection::Sqlite(connection) => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                connection.execute(query).await.map(|done| done.rows_affected())
            }
        };
        self.checked(result).await
    }

    /// Has the connection closed instead of returned to the pool.
    pub(crate) fn close_on_drop(&mut self) {
        self.unusable = true;
    }

    async fn raw(&mut self, sql: &'static str) -> Result<(), SqlError> {
        self.counted();
        let result = match &mut self.connection {
            Connection::MariaDb(connection) => connection.execute(sql).await.map(|_| ()),
            Connection::Sqlite(connection) => connection.execute(sql).await.map(|_| ()),
        };
        if result.is_err() {
            self.unusable = true;
            self.state = State::Idle;
        }
        Ok(result?)
    }

    /// Ends the transaction after an error.
    async fn checked<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                let error = SqlError::from(error);
                let broken = matches!(error, SqlError::Disconnected(_));
                self.unusable |= broken || self.rollback().await.is_err();
                Err(error)
            }
        }
    }

    fn counted(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.in_use.end();
        if self.unusable || self.state == State::Open {
            match &mut self.connection {
                Connection::MariaDb(connection) => connection.close_on_drop(),
                Connection::Sqlite(connection) => connection.close_on_drop(),
            }
        }
    }
}

fn mariadb_row(row: MySqlRow) -> Result<Vec<i64>, sqlx::Error> {
    (0..row.len()).map(|column| Ok(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0))).collect()
}

fn sqlite_row(row: SqliteRow) -> Result<Vec<i64>, sqlx::Error> {
    (0..row.len()).map(|column| Ok(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0))).collect()
}
