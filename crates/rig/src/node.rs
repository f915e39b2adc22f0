//! One master: its keeper, its port, and whether it is up. Called by `builder.rs` to start it and
//! by `masters.rs` for everything after that.

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
    Clock, Kept, Persistence, Reply, RigError, disk,
    keeper::{Answer, Keeper},
    ports, resp,
};

/// Between two looks at a server that is coming up.
pub(crate) const POLL: Duration = Duration::from_millis(2);

/// How long a command may take: a master that runs answers within microseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A server that is up answers within microseconds; what is silent for so long is not ours.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_millis(200);

/// How long a server may take to stand still. Some milliseconds on a busy machine.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// What all masters of a set have in common.
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
    /// The Unix socket, if there is to be one.
    pub(crate) socket: Option<PathBuf>,
    /// If there is to be one: from when its keeper has made the directory.
    clock: OnceLock<Clock>,
    running: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    keeper: Keeper,
    state: State,
    /// Between a pause and a resume.
    paused: bool,
    /// Its clock was changed while it could not be asked what it shows.
    unverified: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The keeper's first answer, that the directory is there, is still to be read.
    Spawned,
    /// It was told to launch the server; its process id is still to be read.
    Launching,
    /// A server with this process id was launched, and may have ended by itself since.
    Launched(u32),
    Dead,
}

/// How far a server has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Up,
    NotYet,
    /// It ended, because something else has its port.
    PortTaken,
}

impl Node {
    /// Starts a keeper and returns at once; [`Node::progress`] does the rest.
    pub(crate) fn spawn(plan: &Plan, number: usize, port: u16) -> Result<Self, RigError> {
        let dir = ports::directory(port);
        let socket = plan.unix_socket.then(|| dir.join("redis.sock"));
        // The last of two equal options counts: these are not for the caller to change.
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

    /// Looks once, and does what is next. An error means that it will not come up: it ended for a
    /// reason of its own.
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

    /// The error of a server that is not up when the time is over.
    pub(crate) fn late(&self, plan: &Plan) -> RigError {
        let pid = self.pid().unwrap_or_default();
        let why = match self.answers(plan, pid) {
            Ok(()) => "it answered too late".to_owned(),
            Err(why) => why.to_string(),
        };
        self.not_up(format!("not within {:?}: {why}", plan.within))
    }

    /// Whether the server with this process id, and no other behind the same port, is ready.
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
        // Also an error is an answer, but not one of a server that is ready (LOADING, NOAUTH).
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
                // Someone has it for the moment: the port must stay the same, so wait for it.
                Progress::PortTaken => true,
            };
            if Instant::now() >= until {
                return Err(self.late(plan));
            }
            thread::sleep(POLL);
        }
    }

    /// SIGKILL. The server is gone, and its port closed, on return. A dead one stays dead.
    pub(crate) fn kill(&self) -> Result<(), RigError> {
        let mut running = self.running();
        self.ask(&mut running, "kill")?;
        running.state = State::Dead;
        Ok(())
    }

    /// SIGKILL, and its file is cut back to what was synced.
    pub(crate) fn power_loss(&self, plan: &Plan) -> Result<Kept, RigError> {
        self.kill()?;
        disk::power_loss(self.number, plan.persistence, plan.syncs.then_some(&*self.dir))
    }

    /// SIGTERM. The server is gone, and its port closed, on return.
    pub(crate) fn stop(&self, plan: &Plan) -> Result<(), RigError> {
        let until = Instant::now() + plan.within;
        drop(self.signal("stop")?);
        // Other threads have their turn between two looks.
        while self.runs()? {
            if Instant::now() >= until {
                return Err(RigError::NotStopped { node: self.number, within: plan.within });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// SIGSTOP. Returns when it stands still: on a busy machine it may run on for milliseconds after
    /// the signal was sent.
    pub(crate) fn pause(&self) -> Result<(), RigError> {
        self.signal("pause")?.paused = true;
        let until = Instant::now() + STANDS_STILL;
        while self.pid().is_some_and(goes_on) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn resume(&self, plan: &Plan) -> Result<(), RigError> {
        let unverified = self.signal("resume")?.unverified;
        if unverified { self.verify_clock(plan) } else { Ok(()) }
    }

    /// Says `pause`, `resume` or `stop`. After the latter two it is not paused.
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

    /// Whether it has not ended, by itself or otherwise.
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
    ) -> Result<Reply, RigError> {
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

    /// Tells the keeper to end everything; the drop that follows waits for it.
    pub(crate) fn hang_up(&self) {
        self.running().keeper.hang_up();
    }

    /// A panic of another thread must not keep this one from cleaning up: no poison here.
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

/// What cannot be read is empty: it is for a message about something worse.
fn read_lossy(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Whether the first thread of a process, which in a server is the one that executes, is not stopped
/// yet. Where it cannot be told, it is taken to be.
fn goes_on(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name is in parentheses, and may have some in it; the state is the word behind them.
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "T" | "t"))
}
