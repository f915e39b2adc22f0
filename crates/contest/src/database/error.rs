//! Errors of either database, as far as a strategy handles them differently.

use std::fmt;

use sqlx::mysql::MySqlDatabaseError;

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SqlError {
    /// The database rolled the transaction back to end a deadlock.
    Deadlock,
    /// A lock was not granted in time.
    LockTimeout,
    /// A unique key exists.
    Duplicate,
    /// The connection broke, so that the outcome of a commit is unknown.
    Disconnected(String),
    /// Any other error.
    Other(String),
}

impl SqlError {
    /// No connection in time.
    pub(super) fn timeout() -> Self {
        Self::Disconnected("no connection in time".to_owned())
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock => f.write_str("deadlock"),
            Self::LockTimeout => f.write_str("a lock was not granted in time"),
            Self::Duplicate => f.write_str("the row exists"),
            Self::Disconnected(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        let text = error.to_string();
        match error {
            sqlx::Error::Database(error) => {
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
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Disconnected(text),
            _ => Self::Other(text),
        }
    }
}
