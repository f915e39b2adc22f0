//! What every backend of real masters can do. Called by those who break masters without caring what
//! runs them; implemented by `masters.rs`' masters, in this file, and by containers.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{ClockChange, Kept, Masters, Reply, RigError, find_server};

/// N masters that can be broken, whatever runs them.
///
/// Masters are **counted from 1**; a method that is given another number panics. All methods take
/// `&self` and block, and may be called from several threads.
#[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
pub trait Cluster: Send + Sync + fmt::Debug {
    /// How many there are, dead ones included.
    fn len(&self) -> usize;

    /// For a report: `redis-server 7.0.15 (/usr/bin/redis-server), 5 processes`.
    fn describe(&self) -> String;

    /// The version of the server: `7.0.15`.
    fn version(&self) -> String;

    /// Where one listens now. With some backends it is another address after each restart, so
    /// clients go through a proxy that asks here for every connection.
    fn address(&self, node: usize) -> SocketAddr;

    /// A directory of this machine that is removed with the masters, whatever ends this process. With
    /// some backends there is one only if the masters have clocks of their own.
    fn scratch(&self) -> Option<&Path>;

    /// Ends one as SIGKILL does. One that is dead already stays so.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn kill(&self, node: usize) -> Result<(), RigError>;

    /// Ends one as a power loss of its machine does: of its append-only file is left what was synced.
    /// [`restart`](Self::restart) gives it its power back. One that is dead already loses what was
    /// not synced by then.
    ///
    /// # Errors
    ///
    /// - [`RigError::PowerLoss`]: they sync every second, and were started without a builder's
    ///   `syncs`; or the file cannot be cut.
    fn power_loss(&self, node: usize) -> Result<Kept, RigError>;

    /// Cuts one off from its replica, which has by then all that it had executed before this was called,
    /// and gets nothing more. Where it lags already this does nothing.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it does not do so.
    /// - [`RigError::NoAnswer`]: the master is paused.
    fn lag(&self, node: usize) -> Result<(), RigError>;

    /// Lets its replica follow again, and returns when it has a copy. Nothing, where it has taken over.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it does not do so.
    fn catch_up(&self, node: usize) -> Result<(), RigError>;

    /// Ends one for good, as SIGKILL does, and lets its replica take its place: it is the master of this
    /// number from now on, at another [`address`](Self::address). A replica that does not lag has all
    /// that the master had executed before this was called.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, it has taken over already, or it does not do so.
    /// - [`RigError::NoAnswer`]: the master is paused, and its replica does not lag.
    fn fail_over(&self, node: usize) -> Result<(), RigError>;

    /// Ends one as SIGTERM does, and returns when it is gone: it closes its files first. A paused
    /// one is resumed for it.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: it is dead.
    /// - [`RigError::NotStopped`]: it did not end in time, and goes on running.
    fn stop(&self, node: usize) -> Result<(), RigError>;

    /// Starts one again, and returns when it answers. One that runs or is paused is killed first.
    /// Its clock stays as it was set.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotUp`]: it ended, or was not ready in time.
    /// - [`RigError::Clock`]: it is up, but does not show what its clock was set to.
    fn restart(&self, node: usize) -> Result<(), RigError>;

    /// Freezes one: the system accepts connections and data for it, and it answers nothing. What it
    /// was sent it executes when it is resumed.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: it is dead.
    fn pause(&self, node: usize) -> Result<(), RigError>;

    /// Lets one go on; for one that is not paused this does nothing.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause), and if its clock was changed meanwhile as
    /// [`set_clock`](Self::set_clock).
    fn resume(&self, node: usize) -> Result<(), RigError>;

    /// Changes the wall clock that one sees, at once, and compares it with what its `TIME` says. One
    /// that is dead or paused is compared when it is back.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoClocks`]: clocks cannot be set here, or the masters started without.
    /// - [`RigError::Clock`]: the change is impossible, or `TIME` says something else.
    fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError>;

    /// Sends one command over a new connection, past every proxy. An error of the server is a
    /// [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// - [`RigError::NoAnswer`]: nothing came back in time.
    fn command(&self, node: usize, command: &[&[u8]]) -> Result<Reply, RigError>;
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

    fn power_loss(&self, node: usize) -> Result<Kept, RigError> {
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

    fn command(&self, node: usize, command: &[&[u8]]) -> Result<Reply, RigError> {
        self.command(node, command)
    }
}
