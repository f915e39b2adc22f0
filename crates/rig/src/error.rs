//! The errors of the rig. Every public function that can fail returns this type.

use std::{error::Error, fmt, io, time::Duration};

use crate::server::SERVER_VARIABLE;

/// Why the rig failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RigError {
    /// No `redis-server` (or `valkey-server`) was found: a test without one is skipped.
    NoServer {
        /// Where the rig looked, and what was there instead.
        why: String,
    },
    /// This is not a Unix system: there are no signals to pause and kill masters.
    Unsupported,
    /// The caller asked for zero masters, or for more than
    /// [`MAX_MASTERS`](crate::Builder::MAX_MASTERS).
    Count {
        /// The requested number.
        asked: usize,
    },
    /// A server did not come up: it ended, or did not answer in time.
    NotUp {
        /// Which master, counted from 1.
        node: usize,
        /// Its port.
        port: u16,
        /// The observations from outside.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// The master that a signal was meant for was killed, or ended by itself.
    NotRunning {
        /// Which master, counted from 1.
        node: usize,
    },
    /// A master that should end cleanly still runs.
    NotStopped {
        /// Which master, counted from 1.
        node: usize,
        /// How long the rig waited.
        within: Duration,
    },
    /// Clocks cannot be set: this system or this build does not support them, or the masters were
    /// started without them. A test that needs them is skipped, and reports the reason.
    NoClocks {
        /// What is missing.
        why: String,
    },
    /// The clock of a master was not set as requested, or shows another time than its setting.
    Clock {
        /// Which master, counted from 1.
        node: usize,
        /// The expected and the shown time.
        why: String,
    },
    /// A master lost its power, and the synced part of its file is unknown, or the file could not
    /// be cut.
    PowerLoss {
        /// Which master, counted from 1.
        node: usize,
        /// What is missing.
        why: String,
    },
    /// A master has no replica, or the replica does not follow an instruction.
    Replica {
        /// Which master, counted from 1.
        node: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A command got no reply: the master is dead, paused or slow. A reply of a master, also an
    /// error, is a [`RespValue`](crate::RespValue).
    NoAnswer {
        /// Which master, counted from 1.
        node: usize,
        /// The socket's error.
        source: io::Error,
    },
    /// No container engine answers: masters can only be processes here.
    NoEngine {
        /// Where the rig looked.
        tried: String,
        /// What was there instead.
        why: String,
    },
    /// The image of the masters is not present, and could not be pulled.
    NoImage {
        /// Its name.
        image: String,
        /// Why it could not be pulled.
        why: String,
    },
    /// The container engine answers, but failed to execute a request.
    Engine {
        /// The request.
        doing: String,
        /// Its error.
        why: String,
    },
    /// The shell that watches over a master could not be started, or is gone.
    Keeper {
        /// Which master, counted from 1.
        node: usize,
        /// The error of the system or the shell.
        source: io::Error,
    },
}

impl fmt::Display for RigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer { why } => write!(
                f,
                "no redis-server: {why}; install redis-server (Debian: apt-get install \
                 redis-server, macOS: brew install redis) or set {SERVER_VARIABLE} to its path"
            ),
            Self::Unsupported => {
                write!(f, "masters run on Unix systems only: use Linux, macOS or WSL")
            }
            Self::Count { asked } => {
                let most = crate::Builder::MAX_MASTERS;
                write!(f, "{asked} masters were asked for: use 1 to {most}")
            }
            Self::NotUp { node, port, why, log } => {
                write!(f, "master {node} did not come up on port {port}: {why}")?;
                if log.is_empty() {
                    write!(f, "; its log is empty")
                } else {
                    write!(f, "; the end of its log:\n{log}")
                }
            }
            Self::NotRunning { node } => {
                write!(f, "master {node} is not running: restart it first")
            }
            Self::NotStopped { node, within } => {
                write!(f, "master {node} still runs {within:?} after it was told to end: kill it")
            }
            Self::NoClocks { why } => write!(f, "clocks cannot be set: {why}"),
            Self::Clock { node, why } => write!(f, "the clock of master {node}: {why}"),
            Self::Replica { node, why } => write!(f, "the replica of master {node}: {why}"),
            Self::PowerLoss { node, why } => {
                write!(f, "the power loss of master {node}: {why}")
            }
            Self::NoAnswer { node, source } => write!(f, "no answer from master {node}: {source}"),
            Self::NoEngine { tried, why } => write!(
                f,
                "no container engine answers at {tried}: {why}; start one or set DOCKER_HOST to \
                 its address"
            ),
            Self::NoImage { image, why } => write!(
                f,
                "the image {image} is not present and could not be pulled: {why}; `just image` \
                 builds one from the installed redis-server, --image NAME or \
                 REDQUORUM_REDIS_IMAGE=NAME names another"
            ),
            Self::Engine { doing, why } => {
                write!(f, "the container engine could not {doing}: {why}")
            }
            Self::Keeper { node, source } => {
                write!(f, "the shell that watches over master {node} failed: {source}")
            }
        }
    }
}

impl Error for RigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoAnswer { source, .. } | Self::Keeper { source, .. } => Some(source),
            _ => None,
        }
    }
}
