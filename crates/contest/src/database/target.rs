//! What to connect to: a MariaDB database or an SQLite file, maybe through a network.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use sqlx::{ConnectOptions, mysql::MySqlConnectOptions};

use super::mariadb;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Product {
    MariaDb,
    Sqlite,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) product: Product,
    pub(super) url: String,
    pub(crate) name: String,
    /// From 11.6 the server refuses stale snapshots itself; the contest compares strategies.
    pub(super) relax_snapshots: bool,
}

impl Target {
    pub(super) fn options(&self) -> Option<MySqlConnectOptions> {
        self.url.parse().ok().filter(|_| self.product == Product::MariaDb)
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let options = self.options()?;
        (options.get_host(), options.get_port()).to_socket_addrs().ok()?.next()
    }

    pub(crate) fn through(&self, address: SocketAddr) -> Self {
        let moved = |options: MySqlConnectOptions| {
            options.host(&address.ip().to_string()).port(address.port()).to_url_lossy().into()
        };
        let url = self.options().map_or_else(|| self.url.clone(), moved);
        Self { url, ..self.clone() }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// The first of: an installed MariaDB, a container whose image is present, SQLite.
    Auto,
    Sqlite,
    MariaDb,
    Container,
    Url(Box<MySqlConnectOptions>),
}

const FORMS: &str = "use auto, sqlite, mariadb, container or mysql://USER:PASSWORD@HOST:PORT";

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once("://")) {
            ("auto", _) => Ok(Self::Auto),
            ("sqlite", _) => Ok(Self::Sqlite),
            ("mariadb", _) => Ok(Self::MariaDb),
            ("container", _) => Ok(Self::Container),
            (_, Some(("mysql" | "mariadb", rest))) => match format!("mysql://{rest}").parse() {
                Ok(options) => Ok(Self::Url(Box::new(options))),
                Err(error) => Err(format!("the database URL is wrong: {error}: {FORMS}")),
            },
            (_, Some(("postgres" | "postgresql", _))) => {
                Err(format!("PostgreSQL is not supported: {FORMS}"))
            }
            (_, Some(("sqlite", _))) => {
                let why =
                    "the contest makes its own SQLite file: use sqlite, with --keep to keep it";
                Err(why.to_owned())
            }
            (_, Some((other, _))) => {
                Err(format!("{other}:// is not a supported database: {FORMS}"))
            }
            (_, None) => Err(format!("{text:?} is not a database: {FORMS}")),
        }
    }
}

impl Choice {
    /// What `auto` means on this machine, with a note that says why.
    pub(super) fn resolve(&self) -> (Self, Option<&'static str>) {
        if !matches!(self, Self::Auto) {
            return (self.clone(), None);
        }
        if mariadb::find_program("mariadbd").is_some() {
            return (Self::MariaDb, None);
        }
        if mariadb::image_is_present() {
            return (Self::Container, Some("MariaDB is not installed: it runs in a container"));
        }
        let note = "MariaDB is not installed (Debian: apt-get install mariadb-server): SQLite \
                    serves, which has no row locks, no named locks and no deadlocks";
        (Self::Sqlite, Some(note))
    }
}
