//! The masters and their methods. Called by tests, by the harness and by the `masters` binary.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    Builder, Clock, ClockChange, Persisted, RespValue, RigError,
    containers::Directory,
    disk,
    host::{SOCKET, Signal},
    node::Node,
    replica::Replica,
};

/// Independent Redis masters, each a `redis-server` process on a port of loopback, or in a
/// [container](Builder::containers).
///
/// Masters are **counted from 1**, in all methods as in all messages: `node` goes from 1 to
/// [`len`](Self::len), and a method with another number panics.
///
/// All methods take `&self` and block, and may be called from several threads.
///
/// # Errors
///
/// - [`RigError::NotRunning`]: a master that is dead cannot be paused, resumed or stopped.
/// - [`RigError::NotStopped`]: a master that is stopped still runs after the time that a
///   [start](Builder::within) may take.
/// - [`RigError::NotUp`]: a master that is restarted ended, or was not ready in time.
/// - [`RigError::NoReply`]: a command gets no reply within five seconds.
/// - [`RigError::NoClocks`]: the masters have no clocks of their own.
/// - [`RigError::Clock`]: a change is impossible, or `TIME` does not return the time of the clock.
/// - [`RigError::PowerLoss`]: the syncs were not recorded, or the file cannot be cut.
/// - [`RigError::Replica`]: there is no replica, it has taken over, or it does not obey.
/// - [`RigError::Keeper`], [`RigError::Engine`]: what runs the masters is gone, or fails.
///
/// # Clean-up
///
/// Nothing is left behind. A drop returns when the servers and their directories are gone. For all
/// other ends of the process, `kill -9` included, each process has a keeper: a shell that waits for
/// its input to end, which happens when this process ends. It then kills the server, also a paused
/// one, and removes the directory. The terminal's Ctrl-C does not reach it. Only a keeper that is
/// itself killed with `kill -9` leaves something behind. [Containers](crate::containers) are
/// removed by the next start.
///
/// A process that this one *forks* without exec holds the keepers' inputs open, and delays the
/// clean-up until it ends. Programs started with `std::process::Command` do not.
#[derive(Debug)]
#[must_use = "the masters end when this is dropped"]
pub struct Masters {
    pub(crate) masters: Vec<Master>,
    /// The server program and its version.
    pub(crate) server: String,
    /// The directory of containers. Dropped after them.
    pub(crate) directory: Option<Directory>,
}

/// A master and its replica.
#[derive(Debug)]
pub(crate) struct Master {
    pub(crate) first: Node,
    pub(crate) replica: Option<Replica>,
}

impl Master {
    fn replica(&self) -> Result<&Replica, RigError> {
        self.replica.as_ref().ok_or_else(|| RigError::Replica {
            node: self.first.number,
            why: "there is none: start the masters with the builder's `replicas`".to_owned(),
        })
    }
}

impl Masters {
    /// Starts `count` masters with the defaults: empty, nothing on disk, no password.
    pub fn start(count: usize) -> Result<Self, RigError> {
        Self::builder().count(count).start()
    }

    /// Options for other masters than the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The number of masters, including dead ones.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.masters.len()
    }

    /// The URLs of all, in order, with the password if there is one.
    pub fn urls(&self) -> Vec<String> {
        (1..=self.len()).map(|node| self.url(node)).collect()
    }

    /// The URL of a master: `redis://127.0.0.1:PORT` or `redis://:PASSWORD@127.0.0.1:PORT`.
    pub fn url(&self, node: usize) -> String {
        let user = self.password(node).map_or_else(String::new, |word| format!(":{word}@"));
        format!("redis://{user}{}", self.address(node))
    }

    /// The current address of a master. The address of a process changes only when its replica
    /// takes over, that of a container at each restart.
    pub fn address(&self, node: usize) -> SocketAddr {
        self.node(node).host.address()
    }

    /// The port of a master, see [`address`](Self::address).
    pub fn port(&self, node: usize) -> u16 {
        self.address(node).port()
    }

    /// The process id of a master, a new one after each restart; `None` when it was killed, and for
    /// containers.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.node(node).host.pid()
    }

    /// A description for reports: `redis-server 7.0.15 (/usr/bin/redis-server), 5 processes`.
    pub fn describe(&self) -> String {
        let count = self.len();
        let noun = match (&self.directory, count) {
            (None, _) => "processes",
            (Some(_), 1) => "container",
            (Some(_), _) => "containers",
        };
        format!("{}, {count} {noun}", self.server)
    }

    /// The directory of a master: of a process with its log, its append-only file, its Unix socket.
    /// It survives a restart, and is removed at the end.
    pub fn dir(&self, node: usize) -> &Path {
        &self.node(node).dir
    }

    /// The Unix socket of a master, if they were [started with it](Builder::unix_socket).
    pub fn socket(&self, node: usize) -> Option<PathBuf> {
        Some(self.dir(node).join(SOCKET)).filter(|_| self.node(node).plan.unix_socket)
    }

    /// The URL of that socket: `unix://PATH` or `unix://PATH?pass=PASSWORD`.
    pub fn socket_url(&self, node: usize) -> Option<String> {
        let pass = self.password(node).map_or_else(String::new, |word| format!("?pass={word}"));
        Some(format!("unix://{}{pass}", self.socket(node)?.display()))
    }

    /// The password in a URL.
    fn password(&self, node: usize) -> Option<String> {
        let password = self.node(node).plan.password.as_deref();
        password.map(|word| utf8_percent_encode(word, NON_ALPHANUMERIC).to_string())
    }

    /// Kills a master with SIGKILL. On return it has ended and connections are refused. A master
    /// that is already dead stays dead.
    pub fn kill(&self, node: usize) -> Result<(), RigError> {
        self.node(node).kill()
    }

    /// Ends a master as a power loss of its machine does. On return it has ended, and only the
    /// synced part of its append-only file remains; [`restart`](Self::restart) restores the power.
    /// The [persistence](Builder::persistence) determines what remains: nothing, everything that
    /// was answered, or the data of the latest sync, which requires [recorded
    /// syncs](Builder::syncs).
    pub fn power_loss(&self, node: usize) -> Result<Persisted, RigError> {
        let node = self.node(node);
        node.kill()?;
        disk::power_loss(node)
    }

    /// Cuts a master off from its [replica](Builder::replicas). The replica has all that the master
    /// had executed before this call, and gets nothing more. If it lags already, this does nothing.
    pub fn lag(&self, node: usize) -> Result<(), RigError> {
        let master = self.master(node);
        master.replica()?.lag(&master.first)
    }

    /// Lets a replica follow its master again, and returns when it has all that the master had
    /// executed before this call. Does nothing if the replica has taken over.
    pub fn catch_up(&self, node: usize) -> Result<(), RigError> {
        let master = self.master(node);
        master.replica()?.catch_up(&master.first)
    }

    /// Ends a master for good, with SIGKILL, and lets its [replica](Builder::replicas) take its
    /// place: the replica is the master of this number from now on, on another port. A replica that
    /// does not lag has all that the master had executed before this call.
    pub fn fail_over(&self, node: usize) -> Result<(), RigError> {
        let master = self.master(node);
        master.replica()?.take_over(&master.first)
    }

    /// Ends a master with SIGTERM: it writes its files and closes its connections. On return it has
    /// ended. That takes at most some 100 ms, the time between two of its ticks, unless the disk is
    /// slow. A paused master is resumed for it.
    pub fn stop(&self, node: usize) -> Result<(), RigError> {
        self.node(node).stop()
    }

    /// Starts a master again, on the same port and in the same directory, and returns when it
    /// answers. A running or paused master is killed first. It is empty, unless it has
    /// [persistence](Builder::persistence). Its clock keeps its setting.
    pub fn restart(&self, node: usize) -> Result<(), RigError> {
        self.node(node).restart()
    }

    /// Stops a master with SIGSTOP: the system accepts connections and data for it, and it answers
    /// nothing. When it is resumed, it executes what it was sent.
    pub fn pause(&self, node: usize) -> Result<(), RigError> {
        self.node(node).signal(Signal::Pause, true)
    }

    /// Resumes a master with SIGCONT; does nothing for one that is not paused.
    pub fn resume(&self, node: usize) -> Result<(), RigError> {
        self.node(node).signal(Signal::Resume, false)
    }

    /// Changes the wall clock of a master at once, and compares it with the reply to `TIME`. The
    /// masters must have been started [with clocks](Builder::clocks).
    ///
    /// For a dead or paused master the clock changes all the same, and the comparison follows when
    /// it is restarted or resumed. A key that expires by a step forward is gone, even if the clock
    /// is healed before any client reads the key: Redis also expires keys by itself.
    pub fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError> {
        self.node(node).set_clock(change)
    }

    /// The clock of a master, if they were [started with clocks](Builder::clocks), to compute the
    /// shown time. Change it with [`set_clock`](Self::set_clock), which also verifies it.
    pub fn clock(&self, node: usize) -> Option<&Clock> {
        self.node(node).clock.as_ref()
    }

    /// Sends one command over a new connection, after the password if there is one, and returns the
    /// reply: `command(1, &[b"SET", key, value])`. An error of the server is a
    /// [`RespValue::Error`].
    pub fn command(&self, node: usize, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.node(node).command(command)
    }

    /// [`command`](Self::command) for words without spaces: `ask(1, "PTTL key")`.
    pub fn ask(&self, node: usize, command: &str) -> Result<RespValue, RigError> {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.command(node, &words)
    }

    /// A section of the master's `INFO`.
    pub fn info(&self, node: usize, section: &str) -> Result<String, RigError> {
        self.node(node).info(section)
    }

    /// The current master of this number.
    fn node(&self, node: usize) -> &Node {
        let Master { first, replica } = self.master(node);
        let replica = replica.as_ref().filter(|replica| replica.took_over());
        replica.map_or(first, |replica| &replica.node)
    }

    fn master(&self, node: usize) -> &Master {
        let count = self.len();
        assert!(
            (1..=count).contains(&node),
            "no master {node}: they are counted from 1 to {count}"
        );
        &self.masters[node - 1]
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        // All at the same time: each takes until its server and its files are gone.
        let masters = std::mem::take(&mut self.masters);
        thread::scope(|scope| {
            for Master { first, replica } in masters {
                scope.spawn(move || drop(replica));
                scope.spawn(move || drop(first));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no master 0: they are counted from 1")]
    fn master_0_is_a_mistake_of_the_caller() {
        let (masters, server) = (Vec::new(), String::new());
        Masters { masters, server, directory: None }.port(0);
    }
}
