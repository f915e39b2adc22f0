//! The errors of the rig. Every public function that can fail returns this type.

use std::{io, time::Duration};

use crate::{Builder, server::SERVER_VARIABLE};

/// Why the rig failed. In all variants, `node` is the number of the master, counted from 1, and
/// `why` what is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are explained above, or by their names")]
pub enum RigError {
    /// No `redis-server` (or `valkey-server`) was found: a test without one is skipped.
    #[error(
        "no redis-server: {why}; install redis-server (Debian: apt-get install redis-server, \
         macOS: brew install redis) or set {SERVER_VARIABLE} to its path"
    )]
    NoServer { why: String },
    /// This is not a Unix system: there are no signals to pause and kill masters.
    #[error("masters run on Unix systems only: use Linux, macOS or WSL")]
    Unsupported,
    /// The caller asked for zero masters, or for more than
    /// [`MAX_MASTERS`](crate::Builder::MAX_MASTERS).
    #[error("{asked} masters were asked for: use 1 to {}", Builder::MAX_MASTERS)]
    Count { asked: usize },
    /// A server did not come up: it ended, or did not answer in time.
    #[error("master {node} did not come up on port {port}: {why}; {}", end_of(log))]
    NotUp {
        node: usize,
        port: u16,
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// The master that a signal was meant for was killed, or ended by itself.
    #[error("master {node} is not running: restart it first")]
    NotRunning { node: usize },
    /// A master that should end cleanly still runs.
    #[error("master {node} still runs {within:?} after the request to end: kill it")]
    NotStopped { node: usize, within: Duration },
    /// Clocks cannot be set: this system or this build does not support them, or the masters were
    /// started without them. A test that needs them is skipped, and reports the reason.
    #[error("clocks cannot be set: {why}")]
    NoClocks { why: String },
    /// The clock of a master was not set as requested, or shows another time than its setting.
    #[error("the clock of master {node}: {why}")]
    Clock { node: usize, why: String },
    /// A master lost its power, and the synced part of its file is unknown, or the file could not
    /// be cut.
    #[error("the power loss of master {node}: {why}")]
    PowerLoss { node: usize, why: String },
    /// A master has no replica, or the replica does not follow an instruction.
    #[error("the replica of master {node}: {why}")]
    Replica { node: usize, why: String },
    /// A command got no reply: the master is dead, paused or slow. A reply of a master, also an
    /// error, is a [`RespValue`](crate::RespValue).
    #[error("no reply from master {node}: {source}")]
    NoReply { node: usize, source: io::Error },
    /// This build has no containers: masters can only be processes.
    #[error(
        "masters in containers are not built in: build redquorum-rig with its feature `containers`"
    )]
    NoContainers,
    /// No container engine answers: masters can only be processes here.
    #[error(
        "no container engine answers at {tried}: {why}; start one or set DOCKER_HOST to its address"
    )]
    NoEngine { tried: String, why: String },
    /// The image of the masters is not present, and could not be pulled.
    #[error(
        "the image {image} is not present and could not be pulled: {why}; `just image` builds one \
         from the installed redis-server, --image NAME or REDQUORUM_REDIS_IMAGE=NAME names another"
    )]
    NoImage { image: String, why: String },
    /// The container engine answers, but failed to execute a request.
    #[error("the container engine could not {doing}: {why}")]
    Engine { doing: String, why: String },
    /// The shell that watches over a master could not be started, or is gone.
    #[error("the shell that watches over master {node} failed: {source}")]
    Keeper { node: usize, source: io::Error },
}

fn end_of(log: &str) -> String {
    if log.is_empty() {
        return "its log is empty".to_owned();
    }
    format!("the end of its log:\n{log}")
}
