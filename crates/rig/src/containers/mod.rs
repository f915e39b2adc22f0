//! Masters in containers, for machines with a container engine and without `redis-server`, or for
//! the same version everywhere. They have the same methods as processes, through [`Cluster`].
//!
//! `builder.rs` starts them, `node.rs` has the methods of one, `clock.rs` its clock, `data.rs` its
//! files, `sweep.rs` with `owner.rs` the clean-up after processes that were killed, `image.rs`
//! chooses the image, `engine.rs` gives access to the engine.

mod builder;
mod clock;
mod data;
mod engine;
mod image;
mod node;
mod owner;
mod sweep;

use std::{net::SocketAddr, path::Path, time::Duration};

pub use builder::ContainersBuilder;
pub use engine::{EngineInfo, engine};
pub use image::IMAGE_VARIABLE;

use self::{node::Node, sweep::Directory};
use crate::{
    Clock, ClockChange, Cluster, Persisted, RespValue, RigError,
    replica::{self, Queryable, Replica},
};

/// The environment variable that, set to `1`, turns "no containers: skipped" into a failure.
pub const REQUIRE_CONTAINERS_VARIABLE: &str = "REDQUORUM_REQUIRE_CONTAINERS";

/// Whether missing containers are a failure and not a reason to skip:
/// [`REQUIRE_CONTAINERS_VARIABLE`] is set, and not to `0`.
pub fn containers_required() -> bool {
    crate::server::is_set(REQUIRE_CONTAINERS_VARIABLE)
}

/// How long [`Containers::command`] waits. A running master answers within microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Independent Redis masters, each in a container of its own, published on this machine's loopback.
///
/// Masters are **counted from 1**; a method with another number panics. All methods take `&self`
/// and block, and may be called from several threads, also within a runtime.
///
/// # Differences from processes
///
/// - **The port changes at every restart**: ask [`Cluster::address`] for each connection.
/// - The engine's own proxy stands before each master: it may accept a connection, and close it
///   again, before the server is up.
/// - A method takes tens to hundreds of milliseconds.
///
/// # Clean-up
///
/// A drop leaves nothing behind: it returns when the containers and their volumes are gone. After
/// any other end of the process (`kill -9`, `exit`, `abort`, Ctrl-C) the engine keeps them until
/// the next [`start`](ContainersBuilder::start) or [`sweep`](Self::sweep) of any process. The
/// labels of each container name its owner, and containers of dead processes are removed.
/// [`swept`](Self::swept) returns what a start removed.
#[derive(Debug)]
#[must_use = "the containers end when this is dropped"]
pub struct Containers {
    nodes: Vec<Node>,
    /// One for each master, or none.
    replicas: Vec<Replica<Node>>,
    engine: EngineInfo,
    image: String,
    /// The program and its version, as the first master reports them.
    server: (&'static str, String),
    swept: Vec<String>,
    within: Duration,
    /// The directory of the clocks. Removed after the containers.
    directory: Option<Directory>,
}

impl Containers {
    /// Starts `count` masters with the defaults.
    ///
    /// # Errors
    ///
    /// As [`ContainersBuilder::start`].
    pub fn start(count: usize) -> Result<Self, RigError> {
        Self::builder().count(count).start()
    }

    /// Options for other containers than the defaults.
    pub fn builder() -> ContainersBuilder {
        ContainersBuilder::new()
    }

    /// Removes the rig's containers whose owner is dead, and the directories that they had mounted.
    /// Returns the names of the containers. Every [`start`](ContainersBuilder::start) does this
    /// too.
    ///
    /// Containers stay if their process lives, or cannot be seen from here (in another container,
    /// or of another user).
    ///
    /// # Errors
    ///
    /// - [`RigError::NoEngine`]: no engine answers.
    /// - [`RigError::Engine`]: the engine failed to execute a request.
    pub fn sweep() -> Result<Vec<String>, RigError> {
        engine::run(async {
            let (docker, _) = engine::connect().await?;
            sweep::sweep(&docker).await
        })
    }

    pub(crate) fn new(
        nodes: Vec<Node>,
        engine: EngineInfo,
        image: String,
        swept: Vec<String>,
        within: Duration,
        directory: Option<Directory>,
    ) -> Self {
        let server = ("redis-server", "unknown".to_owned());
        Self { nodes, replicas: Vec::new(), engine, image, server, swept, within, directory }
    }

    /// The engine that they run on.
    pub fn engine(&self) -> &EngineInfo {
        &self.engine
    }

    /// The image that they were made from.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The id of a container, which stays the same over restarts: for `docker logs` and the like.
    pub fn id(&self, node: usize) -> &str {
        &self.node(node).id
    }

    /// The names of the containers that an earlier run had left behind, and that this start removed
    /// first.
    pub fn swept(&self) -> &[String] {
        &self.swept
    }

    /// The clock of a master, if they were [started with clocks](ContainersBuilder::clocks), to
    /// compute the shown time. Change it with [`set_clock`](Cluster::set_clock), which also
    /// verifies it.
    pub fn clock(&self, node: usize) -> Option<&Clock> {
        self.node(node).clock()
    }

    /// [`command`](Cluster::command) for words without spaces: `ask(1, "PTTL key")`.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoAnswer`]: no reply came within a second.
    pub fn ask(&self, node: usize, command: &str) -> Result<RespValue, RigError> {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.command(node, &words)
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Valkey reports the version of Redis that it is compatible with, and then its own.
    pub(crate) fn ask_version(&mut self) -> Result<(), RigError> {
        let reply = self.ask(1, "INFO server")?;
        let info = reply.text().unwrap_or_default();
        let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let found = match (value("valkey_version:"), value("redis_version:")) {
            (Some(version), _) => Some(("valkey-server", version.to_owned())),
            (None, Some(version)) => Some(("redis-server", version.to_owned())),
            (None, None) => None,
        };
        if let Some(server) = found {
            self.server = server;
        }
        Ok(())
    }

    /// The containers after the first `masters` become replicas, one of each master.
    pub(crate) fn make_replicas(&mut self, masters: usize) -> Result<(), RigError> {
        // Done first, so that a drop of this removes them after any error.
        let nodes = self.nodes.split_off(masters);
        self.replicas.extend((1..).zip(nodes).map(|(number, node)| Replica::new(number, node)));
        self.replicas
            .iter()
            .zip(&self.nodes)
            .try_for_each(|(replica, master)| replica.follow(master.inside()?))
    }

    /// The current master of this number.
    fn node(&self, node: usize) -> &Node {
        let first = self.first(node);
        let replica = self.replicas.get(node - 1).filter(|replica| replica.took_over());
        replica.map_or(first, |replica| &replica.node)
    }

    fn replica(&self, node: usize) -> Result<&Replica<Node>, RigError> {
        let _there = self.first(node);
        self.replicas.get(node - 1).ok_or_else(|| replica::none(node))
    }

    /// The first master of this number.
    fn first(&self, node: usize) -> &Node {
        let count = self.nodes.len();
        assert!(
            (1..=count).contains(&node),
            "no master {node}: they are counted from 1 to {count}"
        );
        &self.nodes[node - 1]
    }
}

impl Cluster for Containers {
    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn describe(&self) -> String {
        let (program, version) = &self.server;
        let count = self.len();
        let noun = if count == 1 { "container" } else { "containers" };
        format!("{program} {version} in image {}, {count} {noun}", self.image)
    }

    fn version(&self) -> String {
        self.server.1.clone()
    }

    fn address(&self, node: usize) -> SocketAddr {
        self.node(node).address()
    }

    fn scratch(&self) -> Option<&Path> {
        self.directory.as_ref().map(Directory::path)
    }

    fn kill(&self, node: usize) -> Result<(), RigError> {
        self.node(node).kill()
    }

    fn power_loss(&self, node: usize) -> Result<Persisted, RigError> {
        self.node(node).power_loss()
    }

    fn lag(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.lag(self.first(node))
    }

    fn catch_up(&self, node: usize) -> Result<(), RigError> {
        self.replica(node)?.catch_up(|| self.first(node).inside())
    }

    fn fail_over(&self, node: usize) -> Result<(), RigError> {
        let master = self.first(node);
        self.replica(node)?.take_over(master, || master.kill())
    }

    fn stop(&self, node: usize) -> Result<(), RigError> {
        self.node(node).stop()
    }

    fn restart(&self, node: usize) -> Result<(), RigError> {
        self.node(node).restart(self.within)
    }

    fn pause(&self, node: usize) -> Result<(), RigError> {
        self.node(node).pause()
    }

    fn resume(&self, node: usize) -> Result<(), RigError> {
        self.node(node).resume()
    }

    fn set_clock(&self, node: usize, change: ClockChange) -> Result<(), RigError> {
        self.node(node).set_clock(change)
    }

    fn command(&self, node: usize, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.node(node).command(PATIENCE, command)
    }
}

impl Queryable for Node {
    fn asked(&self, command: &[&[u8]]) -> Result<RespValue, RigError> {
        self.command(PATIENCE, command)
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        let containers: Vec<_> = self
            .nodes
            .iter_mut()
            .chain(self.replicas.iter_mut().map(|replica| &mut replica.node))
            .filter_map(Node::take)
            .collect();
        // They must be dropped within the runtime. A sweep removes what cannot be removed now.
        let _removed = engine::run(async {
            builder::remove_all(containers.into_iter()).await;
            Ok(())
        });
    }
}
