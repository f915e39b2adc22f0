//! The database that the user chose, checked before anything is started.

use std::{env, fmt, path::PathBuf, str::FromStr};

use super::{Target, container, mariadb};

/// The value of `--database`.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// The first of: an installed MariaDB, a container whose image is present, SQLite.
    Auto,
    /// SQLite.
    Sqlite,
    /// An installed MariaDB, as a private server.
    MariaDb,
    /// MariaDB in a container.
    Container,
    /// A server of the user.
    Url(Target),
}

/// Why a value of `--database` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChoiceError(String);

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ChoiceError {}

const FORMS: &str = "use auto, sqlite, mariadb, container or mysql://USER:PASSWORD@HOST:PORT";

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "auto" => return Ok(Self::Auto),
            "sqlite" => return Ok(Self::Sqlite),
            "mariadb" => return Ok(Self::MariaDb),
            "container" => return Ok(Self::Container),
            _ => {}
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(ChoiceError(format!("{text:?} is not a database: {FORMS}")));
        };
        match scheme {
            "mysql" | "mariadb" => {}
            "postgres" | "postgresql" => {
                return Err(ChoiceError(format!("PostgreSQL is not supported: {FORMS}")));
            }
            "sqlite" => {
                return Err(ChoiceError(
                    "the contest makes its own SQLite file: use sqlite, with --keep to keep it"
                        .to_owned(),
                ));
            }
            other => {
                return Err(ChoiceError(format!(
                    "{other}:// is not a supported database: {FORMS}"
                )));
            }
        }
        let options = format!("mysql://{rest}")
            .parse()
            .map_err(|error| ChoiceError(format!("the database URL is wrong: {error}: {FORMS}")))?;
        Ok(Self::Url(Target::MariaDb {
            options: Box::new(options),
            through: None,
            relax_snapshots: false,
        }))
    }
}

impl Choice {
    /// What `auto` means on this machine, with a note that says why.
    pub(super) fn resolve(&self) -> (Self, Vec<String>) {
        if !matches!(self, Self::Auto) {
            return (self.clone(), Vec::new());
        }
        if mariadb::find_program("mariadbd").is_some() {
            return (Self::MariaDb, Vec::new());
        }
        if container::image_is_present() {
            return (
                Self::Container,
                vec!["MariaDB is not installed: it runs in a container".into()],
            );
        }
        let note = "MariaDB is not installed (Debian: apt-get install mariadb-server): SQLite \
                    serves, which has no row locks, no named locks and no deadlocks";
        (Self::Sqlite, vec![note.to_owned()])
    }
}

/// The directories in which programs are looked for. Servers are in `sbin`, which is not on the
/// `PATH` of most users.
pub(super) fn program_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    dirs.extend(["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from));
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Choice>().unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_database_error_names_the_forms_that_are_accepted() {
        for text in ["", "maria", "postgres://u@h/d", "oracle://h", "mysql://u@h:port"] {
            assert!(error(text).contains("mysql://USER:PASSWORD@HOST:PORT"), "{}", error(text));
        }
        assert!(error("postgresql://h").contains("PostgreSQL is not supported"));
        assert!(error("sqlite:///etc/passwd").contains("makes its own SQLite file"));
    }

    #[test]
    fn a_url_without_a_database_name_is_accepted() {
        assert!(matches!("mysql://root@127.0.0.1:3306".parse(), Ok(Choice::Url(_))));
        assert!(matches!("mariadb://root:a%40b@db/name".parse(), Ok(Choice::Url(_))));
    }
}
