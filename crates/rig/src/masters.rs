//! The masters and their methods. Called by tests and by the `masters` binary.

use std::path::Path;

use crate::{
    Builder, Clock, ClockChange, Persisted, RespValue, RigError,
    node::{Node, PATIENCE, Plan},
    replica::{self, Queryable, Replica},
};

/// Independent Redis masters, each a `redis-server` process on a port of loopback.
///
/// Masters are **counted from 1**, in all methods as in all messages: `node` goes from 1 to
/// [`len`](Self::len), and a method with another number panics.
///
/// All methods take `&self`, and may be called from several threads.
///
/// # Clean-up
///
/// Nothing is left behind. A drop returns when the servers and their directories are gone. For all
/// other ends of the process, `kill -9` included, each master has a keeper: a shell that waits for
/// its input to end, which happens when this process ends. It then kills the server, also a paused
/// one, and removes the directory. The terminal's Ctrl-C does not reach it. Only a keeper that is
/// itself killed with `kill -9` leaves something behind.
///
/// A process that this one *forks* without exec holds the keepers' inputs open, and delays the
/// clean-up until it ends. Programs started with `std::process::Command` do not.
#[derive(Debug)]
#[must_use = "the masters end when this is dropped"]
pub struct Masters {
    plan: Plan,
    nodes: Vec<Node>,
    /// One for each master, or none.
    replicas: Vec<Replica<Served>>,
}

/// A server with the plan that is needed to send it commands.
#[derive(Debug)]
pub(crate) struct Served {
    plan: Plan,
    node: Node,
}

impl Queryable for Served {
    fn asked(&self, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.node.command(&self.plan, PATIENCE, command)
    }
}

/// A master with the plan that is needed to send it commands.
struct NodeQuery<'a>(&'a Plan, &'a Node);

impl Queryable for NodeQuery<'_> {
    fn asked(&self, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.1.command(self.0, PATIENCE, command)
    }
}

impl Masters {
    /// Starts `count` masters with the defaults: empty, nothing on disk, no password.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    pub fn start(count: usize) -> Result<Self, RigError> {
        Self::builder().count(count).start()
    }

    /// Options for other masters than the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(plan: Plan, nodes: Vec<Node>) -> Self {
        Self { plan, nodes, replicas: Vec::new() }
    }

    /// Makes these the replicas of the masters, one of each.
    pub(crate) fn with_replicas(mut self, nodes: Vec<Node>) -> Result<Self, RigError> {
        for (node, master) in nodes.into_iter().zip(&self.nodes) {
            let served = Served { plan: self.plan.clone(), node };
            if let Some(password) = &self.plan.password {
                served.asked(&[b"CONFIG", b"SET", b"masterauth", password.as_bytes()])?;
            }
            let replica = Replica::new(master.number, served);
            replica.follow(master.address())?;
            self.replicas.push(replica);
        }
        Ok(self)
    }

    /// The number of masters, including dead ones.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The URLs of all, in order, with the password if there is one.
    pub fn urls(&self) -> Vec<String> {
        (1..=self.len()).map(|node| self.url(node)).collect()
    }

    /// The URL of a master: `redis://127.0.0.1:PORT` or `redis://:PASSWORD@127.0.0.1:PORT`.
    pub fn url(&self, node: usize) -> String {
        let user = match &self.plan.password {
            Some(password) => format!(":{}@", percent_encoded(password)),
            None => String::new(),
        };
        format!("redis://{user}127.0.0.1:{}", self.port(node))
    }

    /// The port of a master. It changes only when its replica takes over.
    pub fn port(&self, node: usize) -> u16 {
        self.node(node).port
    }

    /// The process id of a master, a new one after each restart; `None` when it was killed.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.node(node).pid()
    }

    /// The directory of a master: its log, its append-only file, its Unix socket. It survives a
    /// restart, and is removed at the end.
    pub fn dir(&self, node: usize) -> &Path {
        &self.node(node).dir
    }

    /// The Unix socket of a master, if they were [started with it](Builder::unix_socket).
    pub fn socket(&self, node: usize) -> Option<&Path> {
        self.node(node).socket.as_deref()
    }

    /// The URL of that socket: `unix://PATH` or `unix://PATH?pass=PASSWORD`.
    pub fn socket_url(&self, node: usize) -> Option<String> {
        let path = self.socket(node)?.display();
        Some(match &self.plan.password {
            Some(password) => format!("unix://{path}?pass={}", percent_encoded(password)),
            None => format!("unix://{path}"),
        })
    }

    /// Kills a master with SIGKILL. On return it has ended and connections are refused. A master
    /// that is already dead stays dead.
    ///
    /// # Errors
    ///
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn kill(&self, node: usize) -> Result<(), RigError> {
        self.node(node).kill()
    }

    /// Ends a master as a power loss of its machine does. On return it has ended, and only the
    /// synced part of its append-only file remains; [`restart`](Self::restart) restores the power.
    /// The [persistence](Builder::persistence) determines what remains: nothing, everything that
    /// was answered, or the data of the latest sync, which requires [recorded
    /// syncs](Builder::syncs).
    ///
    /// # Errors
    ///
    /// - [`RigError::PowerLoss`]: the syncs were not recorded, or the file cannot be cut.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn power_loss(&self, node: usize) -> Result<Persisted, RigError> {
        self.node(node).power_loss(&self.plan)
    }

    /// Cuts a master off from its [replica](Builder::replicas). The replica has all that the master
    /// had executed before this call, and gets nothing more. If it lags already, this does nothing.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it fails to do so.
    /// - [`RigError::NoAnswer`]: the master is paused.
    pub fn lag(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.lag(&NodeQuery(&self.plan, self.first(node)))
    }

    /// Lets a replica follow its master again, and returns when it has a copy. Does nothing if the
    /// replica has taken over.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it fails to do so.
    pub fn catch_up(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.catch_up(|| Ok(self.first(node).address()))
    }

    /// Ends a master for good, with SIGKILL, and lets its [replica](Builder::replicas) take its
    /// place: the replica is the master of this number from now on, on another port. A replica that
    /// does not lag has all that the master had executed before this call.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, it has taken over already, or it fails to do so.
    /// - [`RigError::NoAnswer`]: the master is paused, and its replica does not lag.
    pub fn fail_over(&self, node: usize) -> Result<(), RigError> {
        let master = self.first(node);
        self.replica(node)?.take_over(&NodeQuery(&self.plan, master), || master.kill())
    }

    /// Ends a master with SIGTERM: it writes its files and closes its connections. On return it has
    /// ended. That takes at most some 100 ms, the time between two of its ticks, unless the disk is
    /// slow. A paused master is resumed for it.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: the master is dead.
    /// - [`RigError::NotStopped`]: it still runs after the time that a [start](Builder::within) may
    ///   take.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn stop(&self, node: usize) -> Result<(), RigError> {
        self.node(node).stop(&self.plan)
    }

    /// Starts a master again, on the same port and in the same directory, and returns when it
    /// answers. A running or paused master is killed first. It is empty, unless it has
    /// [persistence](Builder::persistence). Its clock keeps its setting.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotUp`]: the master ended, or was not ready in time.
    /// - [`RigError::Clock`]: it is up, but does not show the time of its clock.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn restart(&self, node: usize) -> Result<(), RigError> {
        self.node(node).restart(&self.plan)
    }

    /// Stops a master with SIGSTOP: the system accepts connections and data for it, and it answers
    /// nothing. When it is resumed, it executes what it was sent.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: the master is dead.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn pause(&self, node: usize) -> Result<(), RigError> {
        self.node(node).pause()
    }

    /// Resumes a master with SIGCONT; does nothing for one that is not paused.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause), and if its clock was changed meanwhile as
    /// [`set_clock`](Self::set_clock).
    pub fn resume(&self, node: usize) -> Result<(), RigError> {
        self.node(node).resume(&self.plan)
    }

    /// Changes the wall clock of a master at once, and compares it with the reply to `TIME`. The
    /// masters must have been started [with clocks](Builder::clocks).
    ///
    /// For a dead or paused master the clock changes all the same, and the comparison follows when
    /// it is restarted or resumed. A key that expires by a step forward is gone, even if the clock
    /// is cured before any client reads the key: Redis also expires keys by itself.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoClocks`]: the masters have no clocks of their own.
    /// - [`RigError::Clock`]: the change is impossible, or `TIME` returns another time.
    /// - [`RigError::NoAnswer`]: it did not answer within a second.
    pub fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError> {
        self.node(node).set_clock(&self.plan, change)
    }

    /// The clock of a master, if they were [started with clocks](Builder::clocks), to compute the
    /// shown time. Change it with [`set_clock`](Self::set_clock), which also verifies it.
    pub fn clock(&self, node: usize) -> Option<&Clock> {
        self.node(node).clock()
    }

    /// Sends one command over a new connection, after the password if there is one, and returns the
    /// reply: `command(1, &[b"SET", key, value])`. An error of the server is a
    /// [`RespValue::Error`].
    ///
    /// # Errors
    ///
    /// - [`RigError::NoAnswer`]: no reply came within a second.
    pub fn command(&self, node: usize, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.node(node).command(&self.plan, PATIENCE, command)
    }

    /// [`command`](Self::command) for words without spaces: `ask(1, "PTTL key")`.
    ///
    /// # Errors
    ///
    /// As [`command`](Self::command).
    pub fn ask(&self, node: usize, command: &str) -> Result<RespValue, RigError> {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.command(node, &words)
    }

    /// The current master of this number.
    fn node(&self, node: usize) -> &Node {
        let first = self.first(node);
        let replica = self.replicas.get(node - 1).filter(|replica| replica.took_over());
        replica.map_or(first, |replica| &replica.node.node)
    }

    fn replica(&self, node: usize) -> Result<&Replica<Served>, RigError> {
        let _there = self.first(node);
        self.replicas.get(node - 1).ok_or_else(|| replica::none(node))
    }

    /// The first master of this number.
    fn first(&self, node: usize) -> &Node {
        let count = self.len();
        assert!(
            (1..=count).contains(&node),
            "no master {node}: they are counted from 1 to {count}"
        );
        &self.nodes[node - 1]
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        // All keepers are asked to end before the first is waited for.
        for node in self.nodes.iter().chain(self.replicas.iter().map(|replica| &replica.node.node))
        {
            node.hang_up();
        }
    }
}

/// Encodes at least every character with a meaning in a URL as `%XX`.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no master 0: they are counted from 1")]
    fn master_0_is_a_mistake_of_the_caller() {
        let plan = Plan {
            server: "unused".into(),
            options: Vec::new(),
            password: None,
            unix_socket: false,
            clocks: false,
            syncs: false,
            persistence: crate::Persistence::None,
            within: std::time::Duration::ZERO,
        };
        Masters::new(plan, Vec::new()).port(0);
    }
}
