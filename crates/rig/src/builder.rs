//! The options of masters, and the start of all of them at the same time. Tests call it through
//! `Masters::builder`.

use std::{
    collections::VecDeque,
    ffi::OsString,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    ClockChange, Masters, Persistence, RigError, clocks_supported, containers, find_server,
    host::LocalServer,
    masters::Master,
    node::Node,
    ports,
    replica::{DIRECTIVES, Replica},
};

/// Longer than a command takes, shorter than any action that a server does by the clock.
const TRIAL: Duration = Duration::from_millis(50);

/// Options for masters to start; from [`Masters::builder`].
#[derive(Debug, Clone)]
#[must_use = "no master is started before `start`"]
pub struct Builder {
    count: usize,
    options: Vec<OsString>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) clocks: bool,
    pub(crate) syncs: bool,
    replicas: bool,
    pub(crate) persistence: Persistence,
    pub(crate) within: Duration,
    ports: VecDeque<u16>,
    /// Containers, and the name of their image.
    containers: Option<Option<String>>,
}

impl Builder {
    /// The largest number of masters: each is two processes and some ten megabytes.
    pub const MAX_MASTERS: usize = 100;

    pub(crate) fn new() -> Self {
        Self {
            count: 5,
            options: Vec::new(),
            password: None,
            unix_socket: false,
            clocks: false,
            syncs: false,
            replicas: false,
            persistence: Persistence::None,
            within: Duration::from_secs(10),
            ports: VecDeque::new(),
            containers: None,
        }
    }

    /// The number of masters. Default: 5. Maximum: [`MAX_MASTERS`](Self::MAX_MASTERS).
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Starts the masters in [containers](crate::containers) instead of processes, from this image:
    /// any image with a `redis-server` on its path, including Valkey's. It is pulled if the engine
    /// does not have it. Also raises the default of [`within`](Self::within) to 30 s. Needs the
    /// feature `containers`.
    ///
    /// Default image: the one that [`IMAGE_VARIABLE`](containers::IMAGE_VARIABLE) names; else the
    /// official image if the engine has it, else the one that `just image` builds if the engine has
    /// that; else the official one is pulled.
    pub fn containers(mut self, image: Option<&str>) -> Self {
        self.containers = Some(image.map(str::to_owned));
        self.within = Duration::from_secs(30);
        self
    }

    /// Sets a directive of `redis.conf` on every master: `config("maxmemory", "1mb")`. A later
    /// value replaces an earlier one. Do not set port, directory, password and socket with it.
    pub fn config(self, directive: &str, value: &str) -> Self {
        self.args([format!("--{directive}"), value.to_owned()])
    }

    /// Adds arguments of the server as they are, for directives with several values:
    /// `args(["--rename-command", "FLUSHALL", ""])`.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.options.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a password for the default user of every master. The URLs and the rig's own commands
    /// contain it, so do not set one with [`config`](Self::config). Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Lets every master process also listen on a Unix socket in its directory, see
    /// [`Masters::socket`]. Default: no.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// What every master writes to disk, so that its keys survive [`Masters::restart`] (but not the
    /// end of the masters). Default: [`Persistence::None`]; a restarted master is empty.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Gives every master its own [`Clock`](crate::Clock), for [`Masters::set_clock`]. Only on
    /// Linux, see [`clocks_supported`]; containers need an engine that sees the directory for
    /// temporary files. Default: no.
    pub fn clocks(mut self) -> Self {
        self.clocks = true;
        self
    }

    /// Records the syncs of the masters, so that a [power loss](Masters::power_loss) under
    /// [`Persistence::AofEverysec`] leaves exactly the synced data. The shim of
    /// [clocks](Self::clocks) records them, so this implies clocks. Default: no.
    pub fn syncs(mut self) -> Self {
        self.syncs = true;
        self.clocks()
    }

    /// Gives every master a replica, which can [lag](Masters::lag) and [take
    /// over](Masters::fail_over). Default: no.
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self.args(DIRECTIVES)
    }

    /// Ports of master processes to try first, before free ones are picked. A port that is already
    /// in use is skipped. Default: none.
    ///
    /// Avoid ports that a *client* may get while its master is dead, on Linux from 32768: they can
    /// keep the master from coming back.
    pub fn ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports.extend(ports);
        self
    }

    /// How long a start or a restart may take until every master answers, and how long a stop may
    /// take. Default: 10 s; about 50 ms are usual.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// The arguments of a server. The last of two equal options applies.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let (append, sync) = match self.persistence {
            Persistence::None => ("no", "everysec"),
            Persistence::AofEverysec => ("yes", "everysec"),
            Persistence::AofAlways => ("yes", "always"),
        };
        // Only this machine can reach it.
        let defaults = ["--save", "", "--bind", "127.0.0.1", "--protected-mode", "yes"];
        let persistence = ["--appendonly", append, "--appendfsync", sync];
        let mut all: Vec<OsString> = defaults.iter().chain(&persistence).map(Into::into).collect();
        all.extend(self.options.iter().cloned());
        all.extend(["--daemonize", "no"].map(OsString::from));
        for directive in ["--requirepass", "--masterauth"] {
            all.extend(self.password.iter().flat_map(|word| [directive.into(), word.into()]));
        }
        all
    }

    /// Starts the masters, and returns when each answers `PING`. With containers, it first removes
    /// what earlier runs left behind.
    ///
    /// # Errors
    ///
    /// - [`RigError::Unsupported`]: the system is not Unix.
    /// - [`RigError::NoServer`]: there is no server program.
    /// - [`RigError::NoContainers`]: containers were requested, and the feature is off.
    /// - [`RigError::NoEngine`], [`RigError::NoImage`]: no container engine answers, or the image
    ///   is not there and cannot be pulled.
    /// - [`RigError::NoClocks`]: clocks were requested, but are not supported here.
    /// - [`RigError::Count`]: no masters, or too many.
    /// - [`RigError::NotUp`]: a master ended, or was not ready in time.
    /// - [`RigError::Clock`]: a master does not run under its clock.
    /// - [`RigError::Replica`]: a replica gets no copy of its master.
    /// - [`RigError::Keeper`], [`RigError::Engine`]: a keeper or a container could not be started.
    ///
    /// After an error no master is left.
    pub fn start(mut self) -> Result<Masters, RigError> {
        if !cfg!(unix) {
            return Err(RigError::Unsupported);
        }
        if !(1..=Self::MAX_MASTERS).contains(&self.count) {
            return Err(RigError::Count { asked: self.count });
        }
        if self.clocks {
            clocks_supported()?;
        }
        let (count, replicas) = (self.count, self.replicas);
        let image = self.containers.take();
        let mut ports = std::mem::take(&mut self.ports);
        let plan = Arc::new(self);
        let numbers = (1..=count).chain((1..=count).filter(|_| replicas));
        // The directory is dropped after the nodes.
        let (directory, mut nodes, image) = match image {
            Some(image) => containers::start(&plan, numbers, image)?,
            None => {
                let nodes = numbers.map(|number| launch(&plan, number, &mut ports));
                (None, nodes.collect::<Result<_, _>>()?, None)
            }
        };
        let until = Instant::now() + plan.within;
        for node in &mut nodes {
            while !node.wait_until_up(until)? {
                *node = launch(&plan, node.number, &mut ports)?;
            }
            if plan.clocks {
                // There is no other way to see whether the shim was loaded.
                node.set_clock(ClockChange::forward(TRIAL))?;
                node.set_clock(ClockChange::Heal)?;
            }
        }
        let mut copies = nodes.split_off(count).into_iter();
        let server = match image {
            Some(image) => format!("{} in image {image}", containers::server(&nodes[0])?),
            None => find_server()?.to_string(),
        };
        let masters = nodes.into_iter().map(|first| {
            let replica = copies.next().map(|node| Replica::new(node, &first)).transpose()?;
            Ok(Master { first, replica })
        });
        Ok(Masters { masters: masters.collect::<Result<_, _>>()?, server, directory })
    }
}

/// Launches a server as a process, on the next port that no other rig has claimed.
fn launch(plan: &Arc<Builder>, number: usize, ports: &mut VecDeque<u16>) -> Result<Node, RigError> {
    loop {
        if let Some(server) = LocalServer::new(plan, number, ports::next(ports))? {
            let node = Node::new(plan, number, server.process.dir().to_owned(), server)?;
            node.host.launch()?;
            return Ok(node);
        }
    }
}
