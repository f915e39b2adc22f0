//! What to connect to: a MariaDB database or an SQLite file, maybe through a proxy.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use sqlx::{ConnectOptions, mysql::MySqlConnectOptions};

/// What to connect to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A MariaDB database.
    MariaDb {
        /// Host, port or socket, user, password, database.
        options: Box<MySqlConnectOptions>,
        /// A proxy that replaces host and port.
        through: Option<SocketAddr>,
        /// From 11.6 the server refuses stale snapshots itself; the contest compares strategies.
        relax_snapshots: bool,
    },
    /// An SQLite file.
    Sqlite(PathBuf),
}

impl Target {
    /// The name of the database, or its file.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::MariaDb { options, .. } => options.get_database().unwrap_or_default().to_owned(),
            Self::Sqlite(file) => file.display().to_string(),
        }
    }

    /// The server's address, for a proxy in front of it.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::MariaDb { options, .. } => {
                (options.get_host(), options.get_port()).to_socket_addrs().ok()?.next()
            }
            Self::Sqlite(_) => None,
        }
    }

    /// The same database behind a proxy.
    pub(crate) fn through(&self, proxy: SocketAddr) -> Self {
        match self.clone() {
            Self::MariaDb { options, relax_snapshots, .. } => {
                Self::MariaDb { options, through: Some(proxy), relax_snapshots }
            }
            other => other,
        }
    }

    /// As a child process reads it again with [`parse`](Self::parse).
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::MariaDb { options, through, relax_snapshots } => {
                let mut options = options.as_ref().clone();
                if let Some(proxy) = through {
                    options = options.host(&proxy.ip().to_string()).port(proxy.port());
                }
                let relax = if *relax_snapshots { "relaxed " } else { "" };
                format!("{relax}{}", options.to_url_lossy())
            }
            Self::Sqlite(file) => file.display().to_string(),
        }
    }

    /// Reads [`to_text`](Self::to_text).
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (relax_snapshots, url) = match text.strip_prefix("relaxed ") {
            Some(url) => (true, url),
            None => (false, text),
        };
        if !url.starts_with("mysql:") {
            return Ok(Self::Sqlite(PathBuf::from(url)));
        }
        let options: MySqlConnectOptions = url.parse().map_err(|error| format!("{error}"))?;
        Ok(Self::MariaDb { options: Box::new(options), through: None, relax_snapshots })
    }
}
