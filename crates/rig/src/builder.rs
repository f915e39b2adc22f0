//! How masters are started: the options, and the start of all of them at the same time. Called by
//! tests through `Masters::builder`.

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

/// What a master writes to disk, and when it is safe there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Persistence {
    /// Nothing: it forgets everything when it ends.
    #[default]
    None,
    /// An append-only file, synced once a second. A *kill* loses nothing that it had answered, only
    /// a power cut would.
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

/// Options of masters that are to be started; from [`Masters::builder`].
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

    /// How many masters. Default: 5. Most: [`MAX_MASTERS`](Self::MAX_MASTERS).
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Sets a directive of `redis.conf` on every master: `config("maxmemory", "1mb")`. A later one
    /// replaces an earlier one; port, directory, password and socket are not to be set with it.
    pub fn config(self, directive: &str, value: &str) -> Self {
        self.args([format!("--{directive}"), value.to_owned()])
    }

    /// Adds arguments of the server as they are, for directives with several values:
    /// `args(["--rename-command", "FLUSHALL", ""])`.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.options.extend(args.into_iter().map(Into::into));
        self
    }

    /// A password for the default user of every master. The URLs and the rig's own commands
    /// contain it, so do not set one with [`config`](Self::config). Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Every master also listens on a Unix socket in its directory, see [`Masters::socket`].
    /// Default: no.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// What every master writes to disk, so that its keys survive [`Masters::restart`] (but not the
    /// end of the masters). Default: [`Persistence::None`], a restarted master is empty.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        let all = persistence.directives();
        all.into_iter().fold(self, |builder, (name, value)| builder.config(name, value))
    }

    /// Every master runs under a [`Clock`](crate::Clock) of its own, for [`Masters::set_clock`].
    /// Only on Linux, see [`clocks_supported`]. Default: no.
    pub fn clocks(mut self) -> Self {
        self.clocks = true;
        self
    }

    /// Notes what the masters sync, so that a [power loss](Masters::power_loss) under
    /// [`Persistence::AofEverysec`] leaves that and no more. With [clocks](Self::clocks), whose shim
    /// does this, and only where those can be had. Default: no.
    pub fn syncs(mut self) -> Self {
        self.syncs = true;
        self.clocks()
    }

    /// Every master has a replica, which can [lag](Masters::lag) and [take over](Masters::fail_over).
    /// Default: no.
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self.args(replica::DIRECTIVES)
    }

    /// Ports to try first, before free ones are picked. One that turns out to be taken is passed
    /// over. Default: none.
    ///
    /// A port that a *client* may be given while its master is dead, on Linux from 32768, can keep
    /// the master from coming back.
    pub fn ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports.want(ports);
        self
    }

    /// How long a start or a restart may take until every master answers, and a stop until it is
    /// gone. Default: 10 s, where some 50 ms are usual.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Starts the masters, and returns when each answers `PING`.
    ///
    /// # Errors
    ///
    /// - [`RigError::Unsupported`]: not on Unix.
    /// - [`RigError::NoServer`]: there is no server program.
    /// - [`RigError::NoClocks`]: they were asked for, and cannot be had here.
    /// - [`RigError::Count`]: no masters, or too many.
    /// - [`RigError::NotUp`]: one ended, or was not ready in time.
    /// - [`RigError::Clock`]: one does not run under the clock that it was given.
    /// - [`RigError::Replica`]: a replica gets no copy of its master.
    /// - [`RigError::Keeper`]: one could not even be tried.
    ///
    /// After an error none is left.
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
    // They are all on their way before the first is waited for.
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
