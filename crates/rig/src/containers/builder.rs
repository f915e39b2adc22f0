//! How containers are started: the options, the sweep before, and the start of all at the same
//! time. Called by tests and the harness through `Containers::builder`.

use std::{
    collections::HashMap,
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
    Containers, Persistence,
    engine::{EngineInfo, connect, failed, run},
    image::{self, Image},
    node::{Node, PORT},
    sweep::{OWNER_LABEL, RIG_LABEL, SET_LABEL, Set, sweep_with},
};
use crate::{Builder, RigError};

/// Where the append-only file is within a container. The official image has a volume there.
const DATA: &str = "/data";

/// From outside the container all is reached through the port that is published on loopback.
const NETWORK: [&str; 6] = ["--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no"];

/// Options of containers that are to be started; from [`Containers::builder`].
#[derive(Debug, Clone)]
#[must_use = "no container is started before `start`"]
pub struct ContainersBuilder {
    count: usize,
    image: Option<String>,
    persistence: Persistence,
    options: Vec<String>,
    within: Duration,
}

/// What is the same for all containers of a set.
struct Plan {
    image: Image,
    set: Set,
    args: Vec<String>,
    within: Duration,
}

/// What was found before the first container.
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
            within: Duration::from_secs(30),
        }
    }

    /// How many masters. Default: 5. Most: [`Builder::MAX_MASTERS`].
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// The image that they are made from: anything with a `redis-server` on its path, Valkey's
    /// images too. It is pulled if the engine does not have it.
    ///
    /// Default: what [`IMAGE_VARIABLE`](super::IMAGE_VARIABLE) names; else the official image if
    /// the engine has it, else the one that `just image` builds if the engine has that; else the
    /// official one is pulled.
    pub fn image(mut self, name: &str) -> Self {
        self.image = Some(name.to_owned());
        self
    }

    /// What they write to disk. Default: nothing, a restarted master is empty.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Sets a directive of `redis.conf` on every master: `config("maxmemory", "1mb")`. A later one
    /// replaces an earlier one; network, directory and password are not to be set with it.
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.options.extend([format!("--{directive}"), value.to_owned()]);
        self
    }

    /// How long a start or a restart may take until every master answers, once the image is there.
    /// Default: 30 s, where one is usual.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Finds the image, or pulls it, and returns its name: for those who want to know beforehand
    /// whether a start can succeed.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoEngine`]: none answers.
    /// - [`RigError::NoImage`]: it is not there, and cannot be pulled.
    /// - [`RigError::Engine`]: it did not do what it was told.
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
    /// - [`RigError::NoEngine`]: none answers.
    /// - [`RigError::NoImage`]: it is not there, and cannot be pulled.
    /// - [`RigError::NotUp`]: one ended, or was not ready in time.
    /// - [`RigError::Engine`]: it did not do what it was told.
    ///
    /// After an error none is left.
    pub fn start(self) -> Result<Containers, RigError> {
        if !(1..=Builder::MAX_MASTERS).contains(&self.count) {
            return Err(RigError::Count { asked: self.count });
        }
        let named = self.image.clone();
        let found = run(async {
            let (docker, engine) = connect().await?;
            let swept = sweep_with(&docker).await?;
            let image = image::find(&docker, named).await?;
            Ok(Found { docker, engine, image, swept })
        })?;
        let until = Instant::now() + self.within;
        let within = self.within;
        let image = found.image.name.clone();
        let (plan, count) = self.plan(found.image);
        let docker = found.docker.clone();
        let nodes = run(async move { start_all(&docker, &plan, count).await })?;
        // From here on an error is a drop of these, which removes them.
        let mut containers = Containers::new(nodes, found.engine, image, found.swept, within);
        for node in containers.nodes() {
            node.wait_until_up(until.saturating_duration_since(Instant::now()))?;
        }
        containers.ask_version()?;
        Ok(containers)
    }

    fn plan(self, image: Image) -> (Plan, usize) {
        // The last of two equal options counts.
        let mut args: Vec<String> = self.persistence.args().map(str::to_owned).to_vec();
        args.extend(self.options);
        args.extend(NETWORK.map(str::to_owned));
        args.extend(["--daemonize", "no", "--dir", DATA].map(str::to_owned));
        (Plan { image, set: Set::new(), args, within: self.within }, self.count)
    }
}

async fn start_all(docker: &Docker, plan: &Plan, count: usize) -> Result<Vec<Node>, RigError> {
    let requests = (1..=count).map(|number| request(plan, number).start());
    let mut started = Vec::new();
    let mut first_error = None;
    for (number, outcome) in (1..).zip(join_all(requests).await) {
        match outcome {
            Ok(container) => started.push(Node::new(number, docker.clone(), container)),
            Err(error) => {
                let doing = format!("start master {number}");
                first_error.get_or_insert_with(|| failed(&doing, error));
            }
        }
    }
    let Some(error) = first_error else { return Ok(started) };
    remove_all(started.iter_mut().filter_map(Node::take)).await;
    // One that was created and could not be started is known to the engine alone.
    plan.set.remove(docker).await?;
    Err(error)
}

/// All at the same time. One that fails is tried once more by its own drop, after that by a sweep.
pub(crate) async fn remove_all(containers: impl Iterator<Item = ContainerAsync<GenericImage>>) {
    join_all(containers.map(ContainerAsync::rm)).await;
}

fn request(plan: &Plan, number: usize) -> ContainerRequest<GenericImage> {
    let set = &plan.set;
    plan.image
        .request()
        // Not the script of the official image: it would change the user.
        .with_entrypoint("redis-server")
        .with_exposed_port(PORT.tcp())
        .with_cmd(plan.args.clone())
        .with_container_name(format!("redquorum-{}-{number}", set.name))
        // Whatever the image says: it must be able to write where it is told to.
        .with_user("0:0")
        .with_working_dir(DATA)
        .with_startup_timeout(plan.within)
        .with_label(RIG_LABEL, env!("CARGO_PKG_VERSION"))
        .with_label(OWNER_LABEL, set.owner.to_string())
        .with_label(SET_LABEL, set.name.clone())
        .with_host_config_modifier(publish)
}

/// The port of the server, on this machine's loopback and nowhere else.
fn publish(host: &mut HostConfig) {
    let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: None };
    host.publish_all_ports = Some(false);
    host.port_bindings = Some(HashMap::from([(format!("{PORT}/tcp"), Some(vec![binding]))]));
}
