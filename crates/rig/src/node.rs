//! One master: its keeper, its port, and whether it is up. `builder.rs` calls it for the start, and
//! `masters.rs` for everything after that.

use std::{
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

pub(crate) mod clock;

use crate::{
    Clock, Persisted, Persistence, RespValue, RigError, disk,
    keeper::{Answer, Keeper},
    ports, resp,
};

/// The time between two checks of a server that is starting.
pub(crate) const POLL: Duration = Duration::from_millis(2);

/// How long a command may take. A running master answers within microseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A server that is up answers within microseconds. A server that is silent for this long is not
/// ours.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_millis(200);

/// How long a server may take to stop after SIGSTOP: some milliseconds on a busy machine.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// The settings that all masters of a set share.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) server: PathBuf,
    pub(crate) options: Vec<OsString>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) clocks: bool,
    pub(crate) syncs: bool,
    pub(crate) persistence: Persistence,
    pub(crate) within: Duration,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
    /// The Unix socket, if it is requested.
    pub(crate) socket: Option<PathBuf>,
    /// Its clock, if clocks are requested: set once its keeper has created the directory.
    clock: OnceLock<Clock>,
    running: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    keeper: Keeper,
    state: State,
    /// Whether it is between a pause and a resume.
    paused: bool,
    /// Whether its clock was changed while it could not be asked for the time.
    unverified: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The keeper's first reply, that the directory exists, is still to be read.
    Spawned,
    /// The keeper was asked to launch the server; the process id is still to be read.
    Launching,
    /// A server with this process id was launched, and may have ended by itself since.
    Launched(u32),
    Dead,
}

/// The progress of a starting server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Up,
    NotYet,
    /// It ended, because another process has its port.
    PortTaken,
}

impl Node {
    /// Starts a keeper and returns at once; [`Node::progress`] does the rest.
    pub(crate) fn spawn(plan: &Plan, number: usize, port: u16) -> Result<Self, RigError> {
        let dir = ports::directory(port);
        let socket = plan.unix_socket.then(|| dir.join("redis.sock"));
        // The last of two equal options applies: the caller must not change these.
        let mut args = plan.options.clone();
        args.extend(["--daemonize", "no", "--port"].map(OsString::from));
        args.extend([port.to_string().into(), "--dir".into(), dir.clone().into()]);
        if let Some(password) = &plan.password {
            args.extend(["--requirepass".into(), password.into()]);
        }
        if let Some(socket) = &socket {
            args.extend(["--unixsocket".into(), socket.into()]);
            args.extend(["--unixsocketperm", "700"].map(OsString::from));
        }
        let clock = plan.clocks.then_some(&*dir);
        let keeper = Keeper::spawn(&dir, &plan.server, &args, clock, plan.syncs)
            .map_err(|source| RigError::Keeper { node: number, source })?;
        let state = State::Spawned;
        let running = Mutex::new(Running { keeper, state, paused: false, unverified: false });
        Ok(Self { number, port, dir, socket, clock: OnceLock::new(), running })
    }

    /// Checks once, and does the next step. An error means that the server will not come up: it
    /// ended for a reason of its own.
    pub(crate) fn progress(&self, plan: &Plan) -> Result<Progress, RigError> {
        let mut running = self.running();
        let pid = match running.state {
            State::Launched(pid) => pid,
            State::Spawned => match running.keeper.answer().map_err(|e| self.keeper_failed(e))? {
                Answer::Ready => {
                    self.create_clock(plan)?;
                    running.keeper.tell("launch").map_err(|e| self.keeper_failed(e))?;
                    running.state = State::Launching;
                    return Ok(Progress::NotYet);
                }
                Answer::Taken => return Ok(Progress::PortTaken),
                other => unreachable!("a keeper begins with a directory, not with {other:?}"),
            },
            State::Launching => {
                launched(running.keeper.answer().map_err(|e| self.keeper_failed(e))?)
            }
            // Another thread killed it while this one waits for it.
            State::Dead => return Err(RigError::NotRunning { node: self.number }),
        };
        running.state = State::Launched(pid);
        if self.answers(plan, pid).is_ok() {
            return Ok(Progress::Up);
        }
        if self.ask(&mut running, "look")? == Answer::Done {
            return Ok(Progress::NotYet);
        }
        running.state = State::Dead;
        if self.log().contains("Address already in use") {
            return Ok(Progress::PortTaken);
        }
        Err(self.not_up("the server ended".to_owned()))
    }

    /// The error for a server that is not up in time.
    pub(crate) fn late(&self, plan: &Plan) -> RigError {
        let pid = self.pid().unwrap_or_default();
        let why = match self.answers(plan, pid) {
            Ok(()) => "it answered too late".to_owned(),
            Err(why) => why.to_string(),
        };
        self.not_up(format!("not within {:?}: {why}", plan.within))
    }

    /// Whether the server with this process id is ready. Another server behind the same port does
    /// not count.
    fn answers(&self, plan: &Plan, pid: u32) -> io::Result<()> {
        let replies = resp::exchange(
            self.address(),
            plan.password.as_deref(),
            PATIENCE_WITH_STRANGERS,
            &[&[b"INFO", b"server"], &[b"PING"]],
        )?;
        let info = replies[0].text().unwrap_or_default();
        let ours = format!("process_id:{pid}");
        if !info.is_empty() && !info.lines().any(|line| line == ours) {
            return Err(io::Error::other("another server answers on this port"));
        }
        // An error is a reply too, but not one of a server that is ready (LOADING, NOAUTH).
        match replies.iter().find(|reply| reply.text().is_none()) {
            Some(reply) => Err(io::Error::other(format!("it answers, but with {reply:?}"))),
            None => Ok(()),
        }
    }

    /// Kills the server if it runs, launches it again, and waits until it is up.
    pub(crate) fn restart(&self, plan: &Plan) -> Result<(), RigError> {
        let until = Instant::now() + plan.within;
        let mut launch = true;
        loop {
            if launch {
                let mut running = self.running();
                running.state = State::Launched(launched(self.ask(&mut running, "launch")?));
                running.paused = false;
            }
            launch = match self.progress(plan)? {
                Progress::Up => return self.verify_clock(plan),
                Progress::NotYet => false,
                // Another process has it for the moment. The port must stay the same, so wait for
                // it.
                Progress::PortTaken => true,
            };
            if Instant::now() >= until {
                return Err(self.late(plan));
            }
            thread::sleep(POLL);
        }
    }

    /// Sends SIGKILL. On return the server has ended, and its port is closed. A dead one stays
    /// dead.
    pub(crate) fn kill(&self) -> Result<(), RigError> {
        let mut running = self.running();
        self.ask(&mut running, "kill")?;
        running.state = State::Dead;
        Ok(())
    }

    /// Sends SIGKILL, and cuts its file back to the synced part.
    pub(crate) fn power_loss(&self, plan: &Plan) -> Result<Persisted, RigError> {
        self.kill()?;
        disk::power_loss(self.number, plan.persistence, plan.syncs.then_some(&*self.dir))
    }

    /// Sends SIGTERM. On return the server has ended, and its port is closed.
    pub(crate) fn stop(&self, plan: &Plan) -> Result<(), RigError> {
        let until = Instant::now() + plan.within;
        drop(self.signal("stop")?);
        // Other threads get their turn between two checks.
        while self.runs()? {
            if Instant::now() >= until {
                return Err(RigError::NotStopped { node: self.number, within: plan.within });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Sends SIGSTOP. Returns when the process has stopped: on a busy machine it may run on for
    /// milliseconds after the signal.
    pub(crate) fn pause(&self) -> Result<(), RigError> {
        self.signal("pause")?.paused = true;
        let until = Instant::now() + STANDS_STILL;
        while self.pid().is_some_and(goes_on) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self, plan: &Plan) -> Result<(), RigError> {
        let unverified = self.signal("resume")?.unverified;
        if unverified { self.verify_clock(plan) } else { Ok(()) }
    }

    /// Sends `pause`, `resume` or `stop` to the keeper. After the latter two the server is not
    /// paused.
    fn signal(&self, word: &str) -> Result<MutexGuard<'_, Running>, RigError> {
        let mut running = self.running();
        match self.ask(&mut running, word)? {
            Answer::Done => {
                running.paused = false;
                Ok(running)
            }
            _ => {
                running.state = State::Dead;
                Err(RigError::NotRunning { node: self.number })
            }
        }
    }

    /// Whether it still runs.
    fn runs(&self) -> Result<bool, RigError> {
        let mut running = self.running();
        let runs = self.ask(&mut running, "look")? == Answer::Done;
        if !runs {
            running.state = State::Dead;
        }
        Ok(runs)
    }

    pub(crate) fn command(
        &self,
        plan: &Plan,
        timeout: Duration,
        command: &[&[u8]],
    ) -> Result<RespValue, RigError> {
        let failed = |source| RigError::NoAnswer { node: self.number, source };
        let replies = resp::exchange(self.address(), plan.password.as_deref(), timeout, &[command]);
        Ok(replies.map_err(failed)?.remove(0))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match self.running().state {
            State::Launched(pid) => Some(pid),
            State::Spawned | State::Launching | State::Dead => None,
        }
    }

    /// Asks the keeper to end everything; the drop that follows waits for it.
    pub(crate) fn hang_up(&self) {
        self.running().keeper.hang_up();
    }

    /// A panic of another thread must not prevent the clean-up, so poisoning is ignored.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, running: &mut Running, word: &str) -> Result<Answer, RigError> {
        running.keeper.ask(word).map_err(|source| self.keeper_failed(source))
    }

    fn keeper_failed(&self, source: io::Error) -> RigError {
        RigError::Keeper { node: self.number, source }
    }

    fn not_up(&self, why: String) -> RigError {
        RigError::NotUp { node: self.number, port: self.port, why, log: self.log() }
    }

    /// The last lines of the server's log.
    fn log(&self) -> String {
        const LINES: usize = 8;
        let text = read_lossy(&self.dir.join("log"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

fn launched(answer: Answer) -> u32 {
    match answer {
        Answer::Pid(pid) => pid,
        other => unreachable!("a launch is answered with a pid, not with {other:?}"),
    }
}

/// A file that cannot be read is empty: the message is about a worse problem.
fn read_lossy(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Whether the first thread of a process, which executes the commands in a server, is not stopped
/// yet. If that is unknown, it counts as stopped.
fn goes_on(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name is in parentheses, and may contain parentheses. The state is the word behind them.
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "T" | "t"))
}
