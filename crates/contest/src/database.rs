//! The database under test: where it runs, its schema, and its clean-up.
//!
//! `connection.rs` has the connections, `mariadb.rs` starts servers, `target.rs` checks what the
//! user gave. The counts at the end check a run: they read rows, not the strategy's own counts.

mod connection;
mod mariadb;
mod target;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use redquorum_rig::Process;
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

pub(crate) use connection::{Pool, Session, SqlError};
pub(crate) use target::{Choice, Product, Target};

use crate::results::Server;

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) target: Target,
    pub(crate) server: Server,
    pub(crate) notes: Vec<String>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A server process with its data, which its drop removes.
    Private(Process),
    /// A container, which its drop removes.
    Container(mariadb::Container),
    Remote,
    /// A file, in a temporary directory that the drop of the process removes. `None`: it is kept.
    File {
        _directory: Option<Process>,
    },
}

impl Database {
    /// Starts or connects to the chosen database and creates the tables.
    ///
    /// # Errors
    ///
    /// A message that names the fix.
    pub(crate) async fn open(choice: &Choice, keep_in: Option<&Path>) -> Result<Self, String> {
        let (choice, note) = choice.resolve();
        let mut database = match choice {
            Choice::Auto | Choice::Sqlite => open_sqlite(keep_in)?,
            Choice::MariaDb => mariadb::start_private().await?,
            Choice::Container => mariadb::start_container().await?,
            Choice::Url(options) => {
                mariadb::create_database(*options, "a server of the user").await?
            }
        };
        database.notes.splice(..0, note.map(str::to_owned));
        match create_tables(&database.target).await {
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

    pub(crate) async fn is_alive(&self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(2);
        // A pool tries again for longer where the connection is refused.
        let connected = tokio::time::timeout(TIMEOUT, Pool::connect(&self.target, 1)).await;
        connected.is_ok_and(|result| result.is_ok())
    }

    pub(crate) fn log(&self) -> String {
        match &self.place {
            Place::Private(process) => process.log(),
            _ => String::new(),
        }
    }

    pub(crate) fn how_to_look(&self) -> String {
        let name = &self.target.name;
        match &self.place {
            Place::Private(process) => {
                format!("mariadb --socket={} {name}", process.dir().join("socket").display())
            }
            Place::Container(container) => {
                format!("docker exec -it {} mariadb {name}", container.name)
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
            eprintln!("contest: the database {} is left behind: {error}", self.target.name);
        }
    }
}

/// Makes an SQLite file: in `keep_in` if it is to be kept, else in a temporary directory.
fn open_sqlite(keep_in: Option<&Path>) -> Result<Database, String> {
    let place = |why: io::Error| format!("there is no place for the SQLite file: {why}");
    let (parent, directory) = match keep_in {
        Some(out) => (out.to_owned(), None),
        None => {
            let directory = Process::new(&temporary_path(), Path::new("/bin/true"), &[""; 0]);
            let directory = directory.map_err(place)?;
            (directory.dir().to_owned(), Some(directory))
        }
    };
    let file = parent.join("contest.sqlite");
    if file.exists() {
        return Err(format!("{} exists: remove it, or name another --out", file.display()));
    }
    fs::create_dir_all(&parent).and_then(|()| fs::File::create_new(&file)).map_err(place)?;
    Ok(Database {
        target: Target {
            product: Product::Sqlite,
            url: SqliteConnectOptions::new().filename(&file).to_url_lossy().into(),
            name: file.display().to_string(),
            relax_snapshots: false,
        },
        server: Server {
            product: "SQLite".to_owned(),
            version: String::new(),
            place: "embedded, a temporary file".to_owned(),
        },
        notes: Vec::new(),
        place: Place::File { _directory: directory },
    })
}

/// A path for a new directory, which a [`Process`] makes and removes, also after `kill -9`.
pub(crate) fn temporary_path() -> PathBuf {
    let temp = env::temp_dir();
    let temp = std::path::absolute(&temp).unwrap_or(temp);
    temp.join(format!("redquorum-contest-{:012x}", rand::random::<u64>() >> 16))
}

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

async fn create_tables(target: &Target) -> Result<String, SqlError> {
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
