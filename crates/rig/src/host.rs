//! What a server runs in: a process of this machine, in this file, or a container. `node.rs` calls
//! it.

use std::{
    ffi::OsString,
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{Builder, Process, RigError, find_server, ports};

/// How long a server may take to stop after SIGSTOP: some milliseconds on a busy machine.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// A server that can be signalled. A drop ends it, and returns when it is gone with its files.
pub(crate) trait Host: fmt::Debug + Send + Sync {
    /// The address of the server, for this machine.
    fn address(&self) -> SocketAddr;

    /// The address of the server, for the other servers of its set.
    fn inside(&self) -> Result<SocketAddr, RigError> {
        Ok(self.address())
    }

    /// The id of the server's process, if it is one of this machine and was not killed.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Launches the server. One that runs is killed first.
    fn launch(&self) -> Result<(), RigError>;

    /// Sends a signal. Returns whether there was a server for it.
    fn signal(&self, signal: Signal) -> Result<bool, RigError>;

    /// The last lines of the server's output.
    fn log(&self) -> String;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGKILL. The server is gone when the call returns.
    Kill,
    /// SIGTERM, and SIGCONT for a server that is paused.
    Stop,
    /// SIGSTOP. The server has stopped when the call returns.
    Pause,
    /// SIGCONT.
    Resume,
    /// No signal: only whether the server runs.
    Look,
}

/// A server process under a keeper.
#[derive(Debug)]
pub(crate) struct LocalServer {
    number: usize,
    port: u16,
    pub(crate) process: Process,
}

impl LocalServer {
    /// A server for this port. `None`: another rig has claimed the port.
    pub(crate) fn new(plan: &Builder, number: usize, port: u16) -> Result<Option<Self>, RigError> {
        let dir = ports::directory(port);
        // The last of two equal options applies: the caller must not change these.
        let mut args = plan.arguments();
        args.extend(["--port".into(), port.to_string().into(), "--dir".into(), dir.clone().into()]);
        if plan.unix_socket {
            args.extend(["--unixsocket".into(), dir.join(SOCKET).into()]);
            args.extend(["--unixsocketperm", "700"].map(OsString::from));
        }
        match Process::start(&dir, find_server()?.path(), &args, plan.clocks, plan.syncs) {
            Ok(process) => Ok(Some(Self { number, port, process })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(source) => Err(RigError::Keeper { node: number, source }),
        }
    }

    fn keeper_failed(&self, source: io::Error) -> RigError {
        RigError::Keeper { node: self.number, source }
    }
}

/// The name of the Unix socket in the directory of a master.
pub(crate) const SOCKET: &str = "redis.sock";

impl Host for LocalServer {
    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    fn launch(&self) -> Result<(), RigError> {
        self.process.launch().map(drop).map_err(|source| self.keeper_failed(source))
    }

    fn signal(&self, signal: Signal) -> Result<bool, RigError> {
        let word = match signal {
            Signal::Kill => "kill",
            Signal::Stop => "stop",
            Signal::Pause => "pause",
            Signal::Resume => "resume",
            Signal::Look => "look",
        };
        let runs = self.process.order(word).map_err(|source| self.keeper_failed(source))?;
        if signal == Signal::Pause {
            // On a busy machine it may run on for milliseconds after the signal.
            let until = Instant::now() + STANDS_STILL;
            while self.pid().is_some_and(goes_on) && Instant::now() < until {
                sleep(Duration::from_micros(100));
            }
        }
        Ok(runs)
    }

    fn log(&self) -> String {
        self.process.log()
    }
}

/// Whether the first thread of a process, which executes the commands in a server, is not stopped
/// yet. If that is unknown, it counts as stopped.
fn goes_on(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // "12 (a name (with) spaces) S 1 …"
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| !matches!(state, 'T' | 't'))
}
