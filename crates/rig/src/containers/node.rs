//! One container: its state, and its methods. `builder.rs` calls it until the container is up, and
//! `mod.rs` for everything after that.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bollard::{
    Docker,
    errors::Error,
    models::PortBinding,
    query_parameters::{
        InspectContainerOptions, KillContainerOptionsBuilder, LogsOptionsBuilder,
        StartContainerOptions,
    },
};
use futures_util::StreamExt;
use testcontainers::{ContainerAsync, GenericImage};

use super::engine::{failed, run};
use crate::{Clock, Persisted, Persistence, RespValue, RigError, disk, resp};

/// The time between two checks of a container that starts or stops. A check takes about as long.
const POLL: Duration = Duration::from_millis(3);

/// A killed process ends within milliseconds; the rest is for an engine that is busy.
const PATIENCE_WITH_KILL: Duration = Duration::from_secs(20);

/// How long a server may take to close its files. The servers of the rig take milliseconds.
const PATIENCE_WITH_STOP: Duration = Duration::from_secs(5);

/// A server that is up answers within microseconds. The engine's own proxy accepts connections
/// before that, and gives no answer.
const PATIENCE_WITH_PING: Duration = Duration::from_millis(200);

/// The port of the server within its container.
pub(crate) const PORT: u16 = 6379;

pub(crate) struct Node {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) id: String,
    docker: Docker,
    /// On this machine's loopback. It changes at each start, and is 0 before the first.
    port: AtomicU16,
    /// One method at a time: each is several calls of the engine.
    turn: Mutex<()>,
    pub(super) clock: Option<Clock>,
    /// Whether a method has paused or killed it, so that a command would get no reply.
    pub(super) silent: AtomicBool,
    persistence: Persistence,
    /// The directory of its files on this machine, if it has one.
    disk: Option<PathBuf>,
    /// The handle that removes it at the end.
    container: Option<ContainerAsync<GenericImage>>,
}

/// The engine's data about a container.
#[derive(Debug)]
pub(super) struct State {
    pub(super) running: bool,
    pub(super) paused: bool,
    port: Option<u16>,
}

impl Node {
    pub(crate) fn new(
        number: usize,
        docker: Docker,
        container: ContainerAsync<GenericImage>,
        clock: Option<Clock>,
    ) -> Self {
        Self {
            number,
            id: container.id().to_owned(),
            docker,
            port: AtomicU16::new(0),
            turn: Mutex::default(),
            clock,
            silent: AtomicBool::new(false),
            persistence: Persistence::None,
            disk: None,
            container: Some(container),
        }
    }

    pub(crate) fn with_disk(self, persistence: Persistence, disk: Option<PathBuf>) -> Self {
        Self { persistence, disk, ..self }
    }

    /// Its address when it was last seen running.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.load(Ordering::Relaxed)).into()
    }

    /// Takes the handle for the end: from now on the caller must remove it.
    pub(crate) fn take(&mut self) -> Option<ContainerAsync<GenericImage>> {
        self.container.take()
    }

    /// Waits until the server answers. It may still be reading its file.
    pub(crate) fn wait_until_up(&self, within: Duration) -> Result<(), RigError> {
        let until = Instant::now() + within;
        loop {
            let state = self.state()?;
            if !state.running {
                return Err(self.not_up("the server ended".to_owned()));
            }
            if let Some(port) = state.port {
                self.port.store(port, Ordering::Relaxed);
            }
            let why = match self.command(PATIENCE_WITH_PING, &[b"PING"]) {
                Ok(reply) if reply.text().is_some() => return Ok(()),
                Ok(reply) => format!("it answers, but with {reply:?}"),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= until {
                return Err(self.not_up(format!("not within {within:?}: {why}")));
            }
            thread::sleep(POLL);
        }
    }

    /// Sends SIGKILL. On return the server has ended, and its port is closed.
    pub(crate) fn kill(&self) -> Result<(), RigError> {
        let _turn = self.turn();
        self.kill_in_turn()
    }

    /// Sends SIGKILL, and cuts its file back to the synced part.
    pub(crate) fn power_loss(&self) -> Result<Persisted, RigError> {
        let _turn = self.turn();
        if self.state()?.running {
            self.kill_in_turn()?;
        }
        disk::power_loss(self.number, self.persistence, self.disk.as_deref())
    }

    fn kill_in_turn(&self) -> Result<(), RigError> {
        self.silent.store(true, Ordering::SeqCst);
        let refused = self.signal("SIGKILL")?.err();
        let Err(error) = self.wait_until_gone(PATIENCE_WITH_KILL) else { return Ok(()) };
        match refused {
            Some(refused) => Err(self.failed("kill", refused)),
            None => Err(error),
        }
    }

    /// Sends SIGTERM. It does not use the engine's own stop, which kills a server that does not end
    /// in time.
    pub(crate) fn stop(&self) -> Result<(), RigError> {
        let _turn = self.turn();
        let state = self.state()?;
        if !state.running {
            return Err(RigError::NotRunning { node: self.number });
        }
        if state.paused {
            self.unpause()?.map_err(|error| self.failed("resume", error))?;
        }
        self.signal("SIGTERM")?.map_err(|error| self.failed("stop", error))?;
        self.wait_until_gone(PATIENCE_WITH_STOP)?;
        self.silent.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Starts it again, on another port of this machine. Kills it first if it runs.
    pub(crate) fn restart(&self, within: Duration) -> Result<(), RigError> {
        let _turn = self.turn();
        if self.state()?.running {
            self.kill_in_turn()?;
        }
        let (docker, id) = self.target();
        let start = async move { docker.start_container(&id, None::<StartContainerOptions>).await };
        tried(start)?.map_err(|error| self.failed("start", error))?;
        self.wait_until_up(within)?;
        self.back()
    }

    pub(crate) fn pause(&self) -> Result<(), RigError> {
        let _turn = self.turn();
        let (docker, id) = self.target();
        if let Err(error) = tried(async move { docker.pause_container(&id).await })? {
            self.unless("pause", error, |state| state.paused)?;
        }
        self.silent.store(true, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn resume(&self) -> Result<(), RigError> {
        let _turn = self.turn();
        if let Err(error) = self.unpause()? {
            self.unless("resume", error, |state| !state.paused)?;
        }
        self.back()
    }

    /// It answers again, so a change of its clock meanwhile can be verified.
    fn back(&self) -> Result<(), RigError> {
        self.silent.store(false, Ordering::SeqCst);
        self.verify_clock()
    }

    pub(crate) fn command(
        &self,
        timeout: Duration,
        command: &[&[u8]],
    ) -> Result<RespValue, RigError> {
        let failed = |source| RigError::NoAnswer { node: self.number, source };
        let replies = resp::exchange(self.address(), None, timeout, &[command]);
        Ok(replies.map_err(failed)?.remove(0))
    }

    /// Handles a refusal of the engine: it is no error if the container is already in the requested
    /// state. The check comes after the attempt, so that no change can happen between the two.
    fn unless(
        &self,
        verb: &str,
        refused: Error,
        as_wanted: fn(&State) -> bool,
    ) -> Result<(), RigError> {
        let state = self.state()?;
        if !state.running {
            return Err(RigError::NotRunning { node: self.number });
        }
        if as_wanted(&state) { Ok(()) } else { Err(self.failed(verb, refused)) }
    }

    fn unpause(&self) -> Result<Result<(), Error>, RigError> {
        let (docker, id) = self.target();
        tried(async move { docker.unpause_container(&id).await })
    }

    fn signal(&self, signal: &'static str) -> Result<Result<(), Error>, RigError> {
        let (docker, id) = self.target();
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        tried(async move { docker.kill_container(&id, Some(options)).await })
    }

    fn wait_until_gone(&self, within: Duration) -> Result<(), RigError> {
        let until = Instant::now() + within;
        while self.state()?.running {
            if Instant::now() >= until {
                return Err(RigError::NotStopped { node: self.number, within });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Asks the engine, because testcontainers knows only the port of the first start.
    pub(super) fn state(&self) -> Result<State, RigError> {
        let (docker, id) = self.target();
        let inspect =
            async move { docker.inspect_container(&id, None::<InspectContainerOptions>).await };
        let found = tried(inspect)?.map_err(|error| self.failed("look at", error))?;
        let state = found.state.unwrap_or_default();
        let ports = found.network_settings.and_then(|network| network.ports).unwrap_or_default();
        Ok(State {
            running: state.running == Some(true),
            paused: state.paused == Some(true),
            port: published(&ports),
        })
    }

    /// The address for other containers of the engine.
    pub(crate) fn inside(&self) -> Result<SocketAddr, RigError> {
        let (docker, id) = self.target();
        let inspect =
            async move { docker.inspect_container(&id, None::<InspectContainerOptions>).await };
        let found = tried(inspect)?.map_err(|error| self.failed("look at", error))?;
        let networks = found.network_settings.and_then(|network| network.networks);
        let mut addresses = networks.into_iter().flatten().filter_map(|(_, end)| end.ip_address);
        let address = addresses.find_map(|address| address.parse::<Ipv4Addr>().ok());
        address.map(|address| (address, PORT).into()).ok_or_else(|| RigError::Replica {
            node: self.number,
            why: "its master has no address in a network of the engine".to_owned(),
        })
    }

    fn not_up(&self, why: String) -> RigError {
        RigError::NotUp { node: self.number, port: self.address().port(), why, log: self.log() }
    }

    /// The last lines of the server's output. Empty if they cannot be read: the message is about a
    /// worse problem.
    fn log(&self) -> String {
        let (docker, id) = self.target();
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("8").build();
        let read = async move {
            let lines: Vec<_> = docker.logs(&id, Some(options)).collect().await;
            Ok(lines.into_iter().flatten().map(|line| line.to_string()).collect::<String>())
        };
        run(read).unwrap_or_default().trim_end().to_owned()
    }

    fn failed(&self, verb: &str, why: impl fmt::Display) -> RigError {
        failed(&format!("{verb} master {}", self.number), why)
    }

    /// For a task, which owns everything that it uses.
    fn target(&self) -> (Docker, String) {
        (self.docker.clone(), self.id.clone())
    }

    /// A panic of a thread leaves no inconsistent state in memory, so poisoning is ignored.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, id, port, .. } = self;
        f.debug_struct("Node").field("number", number).field("id", id).field("port", port).finish()
    }
}

/// Runs a call of the engine. The caller decides about a refusal.
fn tried<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<Result<T, Error>, RigError> {
    run(async { Ok(call.await) })
}

fn published(ports: &HashMap<String, Option<Vec<PortBinding>>>) -> Option<u16> {
    let bindings = ports.get(&format!("{PORT}/tcp"))?.as_ref()?;
    bindings.iter().find_map(|binding| binding.host_port.as_ref()?.parse().ok())
}
