//! The masters and what can be done to them. Called by tests and by the `masters` binary.

use std::path::Path;

use crate::{
    Builder, Clock, ClockChange, Kept, Reply, RigError,
    node::{Node, PATIENCE, Plan},
    replica::{self, Asked, Replica},
};

/// Independent Redis masters, each a `redis-server` process on a port of loopback.
///
/// Masters are **counted from 1**, in all methods as in all messages: `node` goes from 1 to
/// [`len`](Self::len), and a method that is given another number panics.
///
/// All methods take `&self`, and may be called from several threads.
///
/// # What is left behind
///
/// Nothing. A drop returns when the servers and their directories are gone. For all other ends of
/// the process, `kill -9` included, each master has a keeper: a shell that waits for its input to
/// end, which happens when this process does, and then kills the server, also a paused one, and
/// removes the directory. It is out of reach of the terminal's Ctrl-C. Only a keeper that is itself
/// killed with `kill -9` leaves something.
///
/// A process that this one *forks* without exec holds the keepers' inputs open, and delays all of
/// this until it ends. Programs started with `std::process::Command` do not.
#[derive(Debug)]
#[must_use = "the masters end when this is dropped"]
pub struct Masters {
    plan: Plan,
    nodes: Vec<Node>,
    /// One for each, or none.
    replicas: Vec<Replica<Served>>,
}

/// A server with what it takes to ask it.
#[derive(Debug)]
pub(crate) struct Served {
    plan: Plan,
    node: Node,
}

impl Asked for Served {
    fn asked(&self, command: &[&[u8]]) -> Result<Reply, RigError> {
        self.node.command(&self.plan, PATIENCE, command)
    }
}

/// The same, of a master.
struct Asking<'a>(&'a Plan, &'a Node);

impl Asked for Asking<'_> {
    fn asked(&self, command: &[&[u8]]) -> Result<Reply, RigError> {
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

    /// Options for masters that are other than that.
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

    /// How many there are, dead ones included.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The URLs of all, in order, with the password if there is one.
    pub fn urls(&self) -> Vec<String> {
        (1..=self.len()).map(|node| self.url(node)).collect()
    }

    /// The URL of one: `redis://127.0.0.1:PORT` or `redis://:PASSWORD@127.0.0.1:PORT`.
    pub fn url(&self, node: usize) -> String {
        let user = match &self.plan.password {
            Some(password) => format!(":{}@", percent_encoded(password)),
            None => String::new(),
        };
        format!("redis://{user}127.0.0.1:{}", self.port(node))
    }

    /// The port of one. It changes when its replica takes over, and never else.
    pub fn port(&self, node: usize) -> u16 {
        self.node(node).port
    }

    /// The process id of one, a new one after each restart; `None` when it was killed.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.node(node).pid()
    }

    /// The directory of one: its log, its append-only file, its Unix socket. It survives a
    /// restart, and is removed at the end.
    pub fn dir(&self, node: usize) -> &Path {
        &self.node(node).dir
    }

    /// The Unix socket of one, if they were [started with it](Builder::unix_socket).
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

    /// Kills one with SIGKILL. On return it is gone and connections are refused; one that was dead
    /// already stays so.
    ///
    /// # Errors
    ///
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn kill(&self, node: usize) -> Result<(), RigError> {
        self.node(node).kill()
    }

    /// Ends one as a power loss of its machine does. On return it is gone, and of its append-only file
    /// is left what was synced; [`restart`](Self::restart) gives it its power back. How much that is
    /// depends on the [persistence](Builder::persistence): nothing, all that was answered, or what the
    /// latest sync found, for which the masters must have been started [so](Builder::syncs).
    ///
    /// # Errors
    ///
    /// - [`RigError::PowerLoss`]: they were not, or the file cannot be cut.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn power_loss(&self, node: usize) -> Result<Kept, RigError> {
        self.node(node).power_loss(&self.plan)
    }

    /// Cuts one off from its [replica](Builder::replicas), which has by then all that it had executed
    /// before this was called, and gets nothing more. Where it lags already this does nothing.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it does not do so.
    /// - [`RigError::NoAnswer`]: the master is paused.
    pub fn lag(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.lag(&Asking(&self.plan, self.first(node)))
    }

    /// Lets its replica follow again, and returns when it has a copy. Nothing, where it has taken over.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, or it does not do so.
    pub fn catch_up(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.catch_up(|| Ok(self.first(node).address()))
    }

    /// Ends one for good, with SIGKILL, and lets its [replica](Builder::replicas) take its place: it is
    /// the master of this number from now on, on another port. A replica that does not lag has all that
    /// the master had executed before this was called.
    ///
    /// # Errors
    ///
    /// - [`RigError::Replica`]: there is none, it has taken over already, or it does not do so.
    /// - [`RigError::NoAnswer`]: the master is paused, and its replica does not lag.
    pub fn fail_over(&self, node: usize) -> Result<(), RigError> {
        let master = self.first(node);
        self.replica(node)?.take_over(&Asking(&self.plan, master), || master.kill())
    }

    /// Ends one with SIGTERM: it writes its files out and closes its connections. On return it is
    /// gone, after at most some 100 ms, the time between two of its ticks, unless the disk is slow.
    /// A paused one is resumed for it.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: it is dead.
    /// - [`RigError::NotStopped`]: it still runs after as long as it may take to
    ///   [start](Builder::within).
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn stop(&self, node: usize) -> Result<(), RigError> {
        self.node(node).stop(&self.plan)
    }

    /// Starts one again, on the same port and in the same directory, and returns when it answers.
    /// One that still runs or is paused is killed first. It is empty, unless it has
    /// [persistence](Builder::persistence). Its clock stays as it was set.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotUp`]: it ended, or was not ready in time.
    /// - [`RigError::Clock`]: it is up, but does not show what its clock was set to.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn restart(&self, node: usize) -> Result<(), RigError> {
        self.node(node).restart(&self.plan)
    }

    /// Stops one with SIGSTOP: the system accepts connections and data for it, and it answers
    /// nothing. What it was sent it executes when it is resumed.
    ///
    /// # Errors
    ///
    /// - [`RigError::NotRunning`]: it is dead.
    /// - [`RigError::Keeper`]: its keeper is gone.
    pub fn pause(&self, node: usize) -> Result<(), RigError> {
        self.node(node).pause()
    }

    /// Lets one go on with SIGCONT; for one that is not paused this does nothing.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause), and if its clock was changed meanwhile as
    /// [`set_clock`](Self::set_clock).
    pub fn resume(&self, node: usize) -> Result<(), RigError> {
        self.node(node).resume(&self.plan)
    }

    /// Changes the wall clock that one sees, at once, and compares it with what its `TIME` says. The
    /// masters must have been started [with clocks](Builder::clocks).
    ///
    /// A dead or paused master cannot be asked: its clock is changed all the same, and compared when
    /// it is restarted or resumed. A key that has expired by a step forward is gone, even if the
    /// clock is cured before anyone looks at it: Redis also looks by itself.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoClocks`]: the masters have no clocks of their own.
    /// - [`RigError::Clock`]: the change is impossible, or `TIME` says something else.
    /// - [`RigError::NoAnswer`]: it did not answer within a second.
    pub fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError> {
        self.node(node).set_clock(&self.plan, change)
    }

    /// The clock of one, if they were [started with clocks](Builder::clocks): to compute what it
    /// shows. To change it use [`set_clock`](Self::set_clock), which also verifies it.
    pub fn clock(&self, node: usize) -> Option<&Clock> {
        self.node(node).clock()
    }

    /// Sends one command over a new connection, after the password if there is one, and returns
    /// the reply: `command(1, &[b"SET", key, value])`. An error of the server is a
    /// [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// - [`RigError::NoAnswer`]: nothing came back within a second.
    pub fn command(&self, node: usize, command: &[&[u8]]) -> Result<Reply, RigError> {
        self.node(node).command(&self.plan, PATIENCE, command)
    }

    /// [`command`](Self::command) for words without spaces: `ask(1, "PTTL key")`.
    ///
    /// # Errors
    ///
    /// As [`command`](Self::command).
    pub fn ask(&self, node: usize, command: &str) -> Result<Reply, RigError> {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.command(node, &words)
    }

    /// What is the master of this number now.
    fn node(&self, node: usize) -> &Node {
        let first = self.first(node);
        let replica = self.replicas.get(node - 1).filter(|replica| replica.took_over());
        replica.map_or(first, |replica| &replica.node.node)
    }

    fn replica(&self, node: usize) -> Result<&Replica<Served>, RigError> {
        let _there = self.first(node);
        self.replicas.get(node - 1).ok_or_else(|| replica::none(node))
    }

    /// What was the master of this number from the start.
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
        // All are told before the first is waited for.
        for node in self.nodes.iter().chain(self.replicas.iter().map(|replica| &replica.node.node))
        {
            node.hang_up();
        }
    }
}

/// Whatever means something in a URL, and more, as `%XX`.
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
