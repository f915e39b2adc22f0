//! The options of containers, the sweep before a start, and the start of all at the same time.
//! Tests and the harness call it through `Containers::builder`.

use std::{
    collections::HashMap,
    mem,
    time::{Duration, Instant},
};

use bollard::{
    Docker,
    models::{HostConfig, PortBinding},
};
use futures_util::future::join_all;
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt, core::IntoContainerPort,
    runners::AsyncRunner,
};

use super::{
    Containers, clock, data,
    engine::{EngineInfo, connect, failed, run},
    image::{self, Image},
    node::{Node, PORT},
    sweep::{DIRECTORY_LABEL, Directory, OWNER_LABEL, RIG_LABEL, SET_LABEL, Set, sweep},
};
use crate::{Builder, Clock, Persistence, RigError, clocks_supported, replica};

/// The directory of the append-only file within a container. The official image has a volume there.
const DATA: &str = "/data";

/// Outside the container the server is reachable only through the port that is published on
/// loopback.
const NETWORK: [&str; 6] = ["--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no"];

/// Options for containers to start; from [`Containers::builder`].
#[derive(Debug, Clone)]
#[must_use = "no container is started before `start`"]
pub struct ContainersBuilder {
    count: usize,
    image: Option<String>,
    persistence: Persistence,
    options: Vec<String>,
    clocks: bool,
    syncs: bool,
    replicas: bool,
    within: Duration,
}

/// The settings that all containers of a set share.
struct Plan {
    image: Image,
    set: Set,
    args: Vec<String>,
    /// One for each master, if clocks are requested.
    clocks: Vec<Option<Clock>>,
    persistence: Persistence,
    /// Whether syncs are recorded.
    syncs: bool,
    directory: Option<Directory>,
    within: Duration,
}

/// The facts that are determined before the first container.
struct Found {
    docker: Docker,
    engine: EngineInfo,
    image: Image,
    swept: Vec<String>,
}

impl ContainersBuilder {
    pub(crate) fn new() -> Self {
        Self {
            count: 5,
            image: None,
            persistence: Persistence::None,
            options: Vec::new(),
            clocks: false,
            syncs: false,
            replicas: false,
            within: Duration::from_secs(30),
        }
    }

    /// The number of masters. Default: 5. Maximum: [`Builder::MAX_MASTERS`].
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// The image of the containers: any image with a `redis-server` on its path, including
    /// Valkey's. It is pulled if the engine does not have it.
    ///
    /// Default: the image that [`IMAGE_VARIABLE`](super::IMAGE_VARIABLE) names; else the official
    /// image if the engine has it, else the one that `just image` builds if the engine has that;
    /// else the official one is pulled.
    pub fn image(mut self, name: &str) -> Self {
        self.image = Some(name.to_owned());
        self
    }

    /// What the masters write to disk. Default: nothing; a restarted master is empty.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Sets a directive of `redis.conf` on every master: `config("maxmemory", "1mb")`. A later
    /// value replaces an earlier one. Do not set network, directory and password with it.
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.options.extend([format!("--{directive}"), value.to_owned()]);
        self
    }

    /// Gives every master its own [`Clock`], for [`set_clock`](crate::Cluster::set_clock). Only on
    /// Linux, see [`clocks_supported`], and with an engine that sees the directory for temporary
    /// files. Default: no.
    pub fn clocks(mut self) -> Self {
        self.clocks = true;
        self
    }

    /// Records the syncs of the masters, so that a [power loss](crate::Cluster::power_loss) under
    /// [`Persistence::AofEverysec`] leaves exactly the synced data. The shim of
    /// [clocks](Self::clocks) records them, so this implies clocks. The masters' files are then in
    /// a directory of this machine, and the masters run as its user. Default: no.
    pub fn syncs(mut self) -> Self {
        self.syncs = true;
        self.clocks()
    }

    /// Gives every master a replica in a container of its own, which can [lag](crate::Cluster::lag)
    /// and [take over](crate::Cluster::fail_over). Replicas reach their masters through the
    /// engine's own network. Default: no.
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self.options.extend(replica::DIRECTIVES.map(str::to_owned));
        self
    }

    /// How long a start or a restart may take until every master answers, once the image is there.
    /// Default: 30 s; one second is usual.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Finds the image, or pulls it, and returns its name. Use it to check beforehand whether a
    /// start can succeed.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoEngine`]: no engine answers.
    /// - [`RigError::NoImage`]: the image is not there, and cannot be pulled.
    /// - [`RigError::Engine`]: the engine failed to execute a request.
    pub fn prepare(&self) -> Result<String, RigError> {
        let named = self.image.clone();
        run(async {
            let (docker, _) = connect().await?;
            Ok(image::find(&docker, named).await?.name)
        })
    }

    /// Removes what earlier runs left behind, starts the containers, and returns when each master
    /// answers `PING`.
    ///
    /// # Errors
    ///
    /// - [`RigError::Count`]: no masters, or too many.
    /// - [`RigError::NoClocks`]: clocks were requested, but are not supported here.
    /// - [`RigError::Clock`]: a master does not obey its clock.
    /// - [`RigError::NoEngine`]: no engine answers.
    /// - [`RigError::NoImage`]: the image is not there, and cannot be pulled.
    /// - [`RigError::NotUp`]: a master ended, or was not ready in time.
    /// - [`RigError::Replica`]: a replica gets no copy of its master.
    /// - [`RigError::Engine`]: the engine failed to execute a request.
    ///
    /// After an error no container is left.
    pub fn start(self) -> Result<Containers, RigError> {
        if !(1..=Builder::MAX_MASTERS).contains(&self.count) {
            return Err(RigError::Count { asked: self.count });
        }
        if self.clocks {
            clocks_supported()?;
        }
        let named = self.image.clone();
        let found = run(async {
            let (docker, engine) = connect().await?;
            let swept = sweep(&docker).await?;
            let image = image::find(&docker, named).await?;
            Ok(Found { docker, engine, image, swept })
        })?;
        let (count, servers) = (self.count, self.servers());
        let (within, until) = (self.within, Instant::now() + self.within);
        let mut plan = self.plan(&found.image)?;
        let docker = found.docker;
        let (nodes, directory) = run(async move {
            // Returns the directory only now, so that it exists as long as a container does.
            Ok((start_all(&docker, &mut plan).await?, plan.directory))
        })?;
        // From here on an error drops the containers, which removes them.
        let image = found.image.name;
        let mut containers =
            Containers::new(nodes, found.engine, image, found.swept, within, directory);
        debug_assert_eq!(containers.nodes().len(), servers, "one for each");
        for node in containers.nodes() {
            node.wait_until_up(until.saturating_duration_since(Instant::now()))?;
            node.try_clock()?;
        }
        containers.ask_version()?;
        containers.make_replicas(count)?;
        Ok(containers)
    }

    /// Masters and replicas.
    fn servers(&self) -> usize {
        if self.replicas { 2 * self.count } else { self.count }
    }

    fn plan(self, image: &Image) -> Result<Plan, RigError> {
        // The last of two equal options counts.
        let mut args = vec!["--save".to_owned(), String::new()];
        for (name, value) in self.persistence.directives() {
            args.extend([format!("--{name}"), value.to_owned()]);
        }
        args.extend(self.options.iter().cloned());
        args.extend(NETWORK.map(str::to_owned));
        args.extend(["--daemonize", "no", "--dir", DATA].map(str::to_owned));
        let set = Set::new();
        let directory = if self.clocks { Some(set.directory()?) } else { None };
        let clock = |number| {
            let directory = directory.as_ref().map(Directory::path);
            directory.map(|directory| clock::create(directory, number)).transpose()
        };
        let clocks = (1..=self.servers()).map(clock).collect::<Result<_, _>>()?;
        let servers = self.servers();
        let Self { persistence, syncs, within, .. } = self;
        if let Some(directory) = directory.as_ref().filter(|_| syncs) {
            (1..=servers).try_for_each(|number| data::create(directory.path(), number))?;
        }
        let image = image.clone();
        Ok(Plan { image, set, args, clocks, persistence, syncs, directory, within })
    }
}

async fn start_all(docker: &Docker, plan: &mut Plan) -> Result<Vec<Node>, RigError> {
    let clocks = mem::take(&mut plan.clocks);
    let requests = (1..).zip(&clocks).map(|(number, clock)| request(plan, number, clock.as_ref()));
    let outcomes = join_all(requests.map(AsyncRunner::start)).await;
    let mut started = Vec::new();
    let mut first_error = None;
    for ((number, clock), outcome) in (1..).zip(clocks).zip(outcomes) {
        match outcome {
            Ok(container) => {
                let directory = plan.directory.as_ref().filter(|_| plan.syncs);
                let disk = directory.map(|directory| data::of(directory.path(), number));
                let node = Node::new(number, docker.clone(), container, clock);
                started.push(node.with_disk(plan.persistence, disk));
            }
            Err(error) => {
                let doing = format!("start master {number}");
                first_error.get_or_insert_with(|| failed(&doing, error));
            }
        }
    }
    let Some(error) = first_error else { return Ok(started) };
    remove_all(started.iter_mut().filter_map(Node::take)).await;
    // Only the engine knows a container that was created and could not be started.
    plan.set.remove(docker).await?;
    Err(error)
}

/// Removes all at the same time. If one fails, its own drop tries once more, and after that a
/// sweep.
pub(crate) async fn remove_all(containers: impl Iterator<Item = ContainerAsync<GenericImage>>) {
    join_all(containers.map(ContainerAsync::rm)).await;
}

fn request(plan: &Plan, number: usize, clock: Option<&Clock>) -> ContainerRequest<GenericImage> {
    let set = &plan.set;
    let request = plan
        .image
        .request()
        // Not the script of the official image, which would change the user.
        .with_entrypoint("redis-server")
        .with_exposed_port(PORT.tcp())
        .with_cmd(plan.args.clone())
        .with_container_name(format!("redquorum-{}-{number}", set.name))
        // Overrides the image: the server must be able to write to its directory.
        .with_user("0:0")
        .with_working_dir(DATA)
        .with_startup_timeout(plan.within)
        .with_label(RIG_LABEL, env!("CARGO_PKG_VERSION"))
        .with_label(OWNER_LABEL, set.owner.to_string())
        .with_label(SET_LABEL, set.name.clone())
        .with_host_config_modifier(publish);
    let request = match &plan.directory {
        Some(directory) => {
            request.with_label(DIRECTORY_LABEL, directory.path().display().to_string())
        }
        None => request,
    };
    let request = match clock {
        Some(clock) => clock::mounted(request, clock),
        None => request,
    };
    match plan.directory.as_ref().filter(|_| plan.syncs) {
        Some(directory) => data::mounted(request, &data::of(directory.path(), number), DATA),
        None => request,
    }
}

/// Publishes the server's port on this machine's loopback and nowhere else.
fn publish(host: &mut HostConfig) {
    let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: None };
    host.publish_all_ports = Some(false);
    host.port_bindings = Some(HashMap::from([(format!("{PORT}/tcp"), Some(vec![binding]))]));
}
