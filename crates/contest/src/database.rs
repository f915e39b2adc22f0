//! The database under test: where it runs, its schema, and its clean-up.
//!
//! `pool.rs` and `session.rs` have the connections, `schema.rs` the tables and the independent
//! counts; `mariadb.rs`, `container.rs` and `sqlite.rs` start the servers; `url.rs` checks what the
//! user gave.

mod container;
mod error;
mod mariadb;
mod pool;
mod schema;
mod session;
mod sqlite;
mod target;
mod url;

use std::{net::SocketAddr, path::Path, time::Duration};

pub(crate) use error::SqlError;
pub(crate) use pool::Pool;
pub(crate) use schema::{Counts, count, create_recruitments};
pub(crate) use session::Session;
pub(crate) use target::Target;
pub(crate) use url::Choice;

use crate::results::Server;
use schema::create_tables;

/// The database product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    /// MariaDB or MySQL.
    MariaDb,
    /// SQLite.
    Sqlite,
}

/// A database that this contest created.
#[derive(Debug)]
pub(crate) struct Database {
    /// The product.
    pub(crate) product: Product,
    /// What applicants connect to.
    pub(crate) target: Target,
    /// Its description in results.
    pub(crate) server: Server,
    /// Notes for the header.
    pub(crate) notes: Vec<String>,
    /// What runs it, and what removes it.
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A server process with its data, or a container: removed by its drop.
    Private(mariadb::Private),
    /// A container.
    Container(container::Container),
    /// A database on a server of the user.
    Remote,
    /// A file, in a temporary directory that its drop removes.
    File { _file: sqlite::File },
}

impl Database {
    /// Starts or connects to the chosen database and creates the tables.
    ///
    /// # Errors
    ///
    /// A message that names the fix.
    pub(crate) async fn open(choice: &Choice, keep_in: Option<&Path>) -> Result<Self, String> {
        let (choice, mut notes) = choice.resolve();
        let mut database = match choice {
            Choice::Auto | Choice::Sqlite => sqlite::open(keep_in)?,
            Choice::MariaDb => mariadb::start_private().await?,
            Choice::Container => container::start().await?,
            Choice::Url(target) => mariadb::connect(target).await?,
        };
        notes.append(&mut database.notes);
        database.notes = notes;
        match create_tables(&database).await {
            Ok(version) => {
                if database.server.version.is_empty() {
                    database.server.version = version;
                }
                Ok(database)
            }
            Err(error) => {
                database.close().await;
                Err(format!("the tables cannot be created: {error}"))
            }
        }
    }

    /// The address of the server, where it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.target.address()
    }

    /// Whether the server still replies.
    pub(crate) async fn is_alive(&self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(2);
        // A pool tries again for longer where the connection is refused.
        let connected = tokio::time::timeout(TIMEOUT, Pool::connect(&self.target, 1)).await;
        connected.is_ok_and(|result| result.is_ok())
    }

    /// Why the server ended, from its log.
    pub(crate) fn log(&self) -> String {
        match &self.place {
            Place::Private(private) => private.log(),
            _ => String::new(),
        }
    }

    /// How to look at the database while the contest is kept.
    pub(crate) fn how_to_look(&self) -> String {
        let name = self.target.name();
        match &self.place {
            Place::Private(private) => {
                format!("mariadb --socket={} {name}", private.socket().display())
            }
            Place::Container(container) => {
                format!("docker exec -it {} mariadb {name}", container.name())
            }
            Place::Remote => format!("the database {name} was kept: drop it when you are done"),
            Place::File { .. } => format!("sqlite3 {name}"),
        }
    }

    /// Whether the database is gone as soon as this process ends.
    pub(crate) fn ends_with_process(&self) -> bool {
        matches!(self.place, Place::Private(_) | Place::Container(_))
    }

    /// Removes what this contest created, and nothing else.
    pub(crate) async fn close(self) {
        if matches!(self.place, Place::Remote)
            && let Err(error) = mariadb::drop_database(&self.target).await
        {
            eprintln!("contest: the database {} is left behind: {error}", self.target.name());
        }
    }
}
