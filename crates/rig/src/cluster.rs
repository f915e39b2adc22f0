//! The interface of all backends of real masters. Code that breaks masters calls it, whatever runs
//! them. The masters of `masters.rs` implement it in this file, and containers implement it too.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{ClockChange, Masters, Persisted, RespValue, RigError, find_server};

/// N masters that can be broken, on any backend.
///
/// Masters are **counted from 1**; a method with another number panics. All methods take `&self`
/// and block, and may be called from several threads.
#[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
pub trait Cluster: Send + Sync + fmt::Debug {
    /// The number of masters, including dead ones.
    fn len(&self) -> usize;

    /// A description for reports: `redis-server 7.0.15 (/usr/bin/redis-server), 5 processes`.
    fn describe(&self) -> String;

    /// The version of the server: `7.0.15`.
    fn version(&self) -> String;

    /// The current address of a master. With some backends it changes at each restart, so clients
    /// go through a proxy that asks here for every connection.
    fn address(&self, node: usize) -> SocketAddr;

    /// A directory of this machine that is removed with the masters, in whatever way this process
    /// ends. With some backends there is one only if the masters have their own clocks.
    fn scratch(&self) -> Option<&Path>;

    /// Ends a master as SIGKILL does. A master that is already dead stays dead.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn kill(&self, node: usize) -> Result<(), RigError>;

    /// Ends a master as a power loss of its machine does: only the synced part of its append-only
    /// file remains. [`restart`](Self::restart) restores the power. A master that is already dead
    /// loses the data that it had not synced by then.
    ///
    /// # Errors
    ///
    /// - [`RigError::PowerLoss`]: the masters sync every second, and were started without a
    ///   builder's `syncs`; or the file cannot be cut.
    fn power_loss(&self, node: usize) -> Result<Persisted, RigError>;

    /// Cuts a master off from its replica. The replica has all that the master had executed before
    /// this call, and gets nothing more. If it lags already, this does nothing.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it fails to do so.
    /// - [`RigError::NoAnswer`]: the master is paused.
    fn lag(&self, node: usize) -> Result<(), RigError>;

    /// Lets a replica follow its master again, and returns when it has a copy. Does nothing if the
    /// replica has taken over.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it fails to do so.
    fn catch_up(&self, node: usize) -> Result<(), RigError>;

    /// Ends a master for good, as SIGKILL does, and lets its replica take its place: the replica is
    /// the master of this number from now on, at another [`address`](Self::address). A replica that
    /// does not lag has all that the master had executed before this call.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, it has taken over already, or it fails to do so.
    /// - [`RigError::NoAnswer`]: the master is paused, and its replica does not lag.
    fn fail_over(&self, node: usize) -> Result<(), RigError>;

    /// Ends a master as SIGTERM does, and returns when it has ended: it closes its files first. A
    /// paused master is resumed for it.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: the master is dead.
    /// - [`RigError::NotStopped`]: it did not end in time, and still runs.
    fn stop(&self, node: usize) -> Result<(), RigError>;

    /// Starts a master again, and returns when it answers. A running or paused master is killed
    /// first. Its clock keeps its setting.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotUp`]: the master ended, or was not ready in time.
    /// - [`RigError::Clock`]: it is up, but does not show the time of its clock.
    fn restart(&self, node: usize) -> Result<(), RigError>;

    /// Freezes a master: the system accepts connections and data for it, and it answers nothing.
    /// When it is resumed, it executes what it was sent.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: the master is dead.
    fn pause(&self, node: usize) -> Result<(), RigError>;

    /// Resumes a master; does nothing for one that is not paused.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause), and if its clock was changed meanwhile as
    /// [`set_clock`](Self::set_clock).
    fn resume(&self, node: usize) -> Result<(), RigError>;

    /// Changes the wall clock of a master at once, and compares it with the reply to `TIME`. For a
    /// dead or paused master the comparison follows when it is back.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoClocks`]: clocks cannot be set here, or the masters were started without
    ///   them.
    /// - [`RigError::Clock`]: the change is impossible, or `TIME` returns another time.
    fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError>;

    /// Sends one command over a new connection, around every proxy. An error of the server is a
    /// [`RespValue::Error`].
    ///
    /// # Errors
    ///
    /// - [`RigError::NoAnswer`]: no reply came in time.
    fn command(&self, node: usize, command: &[&[u8]]) -> Result<RespValue, RigError>;
}

impl Cluster for Masters {
    fn len(&self) -> usize {
        self.len()
    }

    fn describe(&self) -> String {
        let server = find_server().map(|server| server.to_string()).unwrap_or_default();
        format!("{server}, {} processes", self.len())
    }

    fn version(&self) -> String {
        find_server().map(|server| server.version().to_owned()).unwrap_or_default()
    }

    fn address(&self, node: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port(node)).into()
    }

    fn scratch(&self) -> Option<&Path> {
        Some(self.dir(1))
    }

    fn kill(&self, node: usize) -> Result<(), RigError> {
        self.kill(node)
    }

    fn power_loss(&self, node: usize) -> Result<Persisted, RigError> {
        self.power_loss(node)
    }

    fn lag(&self, node: usize) -> Result<(), RigError> {
        self.lag(node)
    }

    fn catch_up(&self, node: usize) -> Result<(), RigError> {
        self.catch_up(node)
    }

    fn fail_over(&self, node: usize) -> Result<(), RigError> {
        self.fail_over(node)
    }

    fn stop(&self, node: usize) -> Result<(), RigError> {
        self.stop(node)
    }

    fn restart(&self, node: usize) -> Result<(), RigError> {
        self.restart(node)
    }

    fn pause(&self, node: usize) -> Result<(), RigError> {
        self.pause(node)
    }

    fn resume(&self, node: usize) -> Result<(), RigError> {
        self.resume(node)
    }

    fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError> {
        self.set_clock(node, change)
    }

    fn command(&self, node: usize, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.command(node, command)
    }
}
