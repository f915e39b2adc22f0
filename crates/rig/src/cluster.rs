//! What every backend of real masters can do, and what can be done to a clock. Called by those who
//! break masters without caring what runs them; `masters.rs` implements it.

use std::{fmt, net::SocketAddr, time::Duration};

use crate::{Reply, RigError};

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

    /// Ends one as SIGKILL does. One that is dead already stays so.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn kill(&self, node: usize) -> Result<(), RigError>;

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
    /// As [`pause`](Self::pause).
    fn resume(&self, node: usize) -> Result<(), RigError>;

    /// Changes the wall clock that one sees, at once, and compares it with what its `TIME` says.
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

/// What can be done to a wall clock. Nothing of this touches a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ClockChange {
    /// It jumps once, on top of what it shows: forward, or back if negative. See
    /// [`forward`](Self::forward) and [`back`](Self::back).
    Step {
        /// By how many nanoseconds.
        nanos: i64,
    },
    /// It goes on from what it shows at this many seconds a second: 1 is right, 0 stands still.
    /// Replaces an earlier rate.
    Rate(f64),
    /// It jumps to and fro: forward by `by` after `every`, back by as much after another `every`,
    /// and so on. Replaces an earlier strobe; `by` of zero ends it.
    Strobe {
        /// How far.
        by: Duration,
        /// How long between two jumps.
        every: Duration,
    },
    /// It shows the real time at the real rate. For a clock that was stepped this is a step, too.
    Cure,
}

impl ClockChange {
    /// A step forward, of at most 292 years.
    pub fn forward(by: Duration) -> Self {
        Self::Step { nanos: i64::try_from(by.as_nanos()).unwrap_or(i64::MAX) }
    }

    /// A step back, of at most 292 years.
    pub fn back(by: Duration) -> Self {
        Self::Step { nanos: i64::try_from(by.as_nanos()).map_or(-i64::MAX, |nanos| -nanos) }
    }
}

/// As for a report: `step +3s`, `rate 2`, `strobe 500ms every 1s`, `cure`.
impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { nanos } => {
                let sign = if *nanos < 0 { '-' } else { '+' };
                write!(f, "step {sign}{:?}", Duration::from_nanos(nanos.unsigned_abs()))
            }
            Self::Rate(rate) => write!(f, "rate {rate}"),
            Self::Strobe { by, every } => write!(f, "strobe {by:?} every {every:?}"),
            Self::Cure => write!(f, "cure"),
        }
    }
}
