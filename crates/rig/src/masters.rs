//! The masters and what can be done to them. Called by tests and by the `masters` binary.

use std::path::Path;

use crate::{
    Builder, Clock, ClockChange, Reply, RigError,
    node::{Node, PATIENCE, Plan},
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
        Self { plan, nodes }
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

    /// The port of one. It never changes.
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

    fn node(&self, node: usize) -> &Node {
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
        for node in &self.nodes {
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
            within: std::time::Duration::ZERO,
        };
        Masters::new(plan, Vec::new()).port(0);
    }
}
