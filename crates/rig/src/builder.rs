//! The options of masters, and the start of all of them at the same time. Tests call it through
//! `Masters::builder`.

use std::{
    ffi::OsString,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Masters, RigError, clocks_supported, find_server,
    node::{Node, POLL, Plan, Progress},
    ports::Ports,
    replica,
};

/// Nothing is written to disk, and only this machine can reach it.
const DEFAULTS: [&str; 8] =
    ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--protected-mode", "yes"];

/// What a master writes to disk, and when the data is safe there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Persistence {
    /// Nothing: the master loses all data when it ends.
    #[default]
    None,
    /// An append-only file, synced once a second. A *kill* loses no command that the master had
    /// answered; only a power loss would.
    AofEverysec,
    /// An append-only file, synced before each answer.
    AofAlways,
}

impl Persistence {
    /// As directives of `redis.conf`.
    pub(crate) fn directives(self) -> [(&'static str, &'static str); 2] {
        let (append, sync) = match self {
            Self::None => ("no", "everysec"),
            Self::AofEverysec => ("yes", "everysec"),
            Self::AofAlways => ("yes", "always"),
        };
        [("appendonly", append), ("appendfsync", sync)]
    }
}

/// Options for masters to start; from [`Masters::builder`].
#[derive(Debug, Clone)]
#[must_use = "no master is started before `start`"]
pub struct Builder {
    count: usize,
    options: Vec<OsString>,
    password: Option<String>,
    unix_socket: bool,
    clocks: bool,
    syncs: bool,
    replicas: bool,
    persistence: Persistence,
    within: Duration,
    ports: Ports,
}

impl Builder {
    /// The largest number of masters: each is two processes and some ten megabytes.
    pub const MAX_MASTERS: usize = 100;

    pub(crate) fn new() -> Self {
        Self {
            count: 5,
            options: DEFAULTS.map(OsString::from).to_vec(),
            password: None,
            unix_socket: false,
            clocks: false,
            syncs: false,
            replicas: false,
            persistence: Persistence::None,
            within: Duration::from_secs(10),
            ports: Ports::default(),
        }
    }

    /// The number of masters. Default: 5. Maximum: [`MAX_MASTERS`](Self::MAX_MASTERS).
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
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

    /// Lets every master also listen on a Unix socket in its directory, see [`Masters::socket`].
    /// Default: no.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// What every master writes to disk, so that its keys survive [`Masters::restart`] (but not the
    /// end of the masters). Default: [`Persistence::None`]; a restarted master is empty.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        let all = persistence.directives();
        all.into_iter().fold(self, |builder, (name, value)| builder.config(name, value))
    }

    /// Gives every master its own [`Clock`](crate::Clock), for [`Masters::set_clock`]. Only on
    /// Linux, see [`clocks_supported`]. Default: no.
    pub fn clocks(mut self) -> Self {
        self.clocks = true;
        self
    }

    /// Records the syncs of the masters, so that a [power loss](Masters::power_loss) under
    /// [`Persistence::AofEverysec`] leaves exactly the synced data. The shim of
    /// [clocks](Self::clocks) records them, so this implies clocks, and works only where they are
    /// supported. Default: no.
    pub fn syncs(mut self) -> Self {
        self.syncs = true;
        self.clocks()
    }

    /// Gives every master a replica, which can [lag](Masters::lag) and [take
    /// over](Masters::fail_over). Default: no.
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self.args(replica::DIRECTIVES)
    }

    /// Ports to try first, before free ones are picked. A port that is already in use is skipped.
    /// Default: none.
    ///
    /// Avoid ports that a *client* may get while its master is dead, on Linux from 32768: they can
    /// keep the master from coming back.
    pub fn ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports.want(ports);
        self
    }

    /// How long a start or a restart may take until every master answers, and how long a stop may
    /// take. Default: 10 s; about 50 ms are usual.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Starts the masters, and returns when each answers `PING`.
    ///
    /// # Errors
    ///
    /// - [`RigError::Unsupported`]: the system is not Unix.
    /// - [`RigError::NoServer`]: there is no server program.
    /// - [`RigError::NoClocks`]: clocks were requested, but are not supported here.
    /// - [`RigError::Count`]: no masters, or too many.
    /// - [`RigError::NotUp`]: a master ended, or was not ready in time.
    /// - [`RigError::Clock`]: a master does not run under its clock.
    /// - [`RigError::Replica`]: a replica gets no copy of its master.
    /// - [`RigError::Keeper`]: a keeper could not be started.
    ///
    /// After an error no master is left.
    pub fn start(self) -> Result<Masters, RigError> {
        if !cfg!(unix) {
            return Err(RigError::Unsupported);
        }
        if !(1..=Self::MAX_MASTERS).contains(&self.count) {
            return Err(RigError::Count { asked: self.count });
        }
        if self.clocks {
            clocks_supported()?;
        }
        let plan = Plan {
            server: find_server()?.path().to_owned(),
            options: self.options,
            password: self.password,
            unix_socket: self.unix_socket,
            clocks: self.clocks,
            syncs: self.syncs,
            persistence: self.persistence,
            within: self.within,
        };
        let servers = if self.replicas { 2 * self.count } else { self.count };
        let number = |index| index % self.count + 1;
        let mut nodes = start_all(&plan, servers, number, self.ports)?;
        nodes.iter().try_for_each(|node| node.verify_clock(&plan))?;
        let replicas = nodes.split_off(self.count);
        Masters::new(plan, nodes).with_replicas(replicas)
    }
}

fn start_all(
    plan: &Plan,
    count: usize,
    number: impl Fn(usize) -> usize,
    mut ports: Ports,
) -> Result<Vec<Node>, RigError> {
    let until = Instant::now() + plan.within;
    // Starts all of them before it waits for the first.
    let mut nodes = (0..count)
        .map(|index| Node::spawn(plan, number(index), ports.next()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut waiting: Vec<usize> = (0..count).collect();
    loop {
        let mut late = Vec::new();
        for index in waiting {
            match nodes[index].progress(plan)? {
                Progress::Up => continue,
                Progress::NotYet => {}
                Progress::PortTaken => {
                    nodes[index] = Node::spawn(plan, number(index), ports.next())?;
                }
            }
            late.push(index);
        }
        waiting = late;
        let Some(&first) = waiting.first() else { return Ok(nodes) };
        if Instant::now() >= until {
            return Err(nodes[first].late(plan));
        }
        thread::sleep(POLL);
    }
}
