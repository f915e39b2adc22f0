//! A client process: the harness starts it, reads its lines, pauses it and kills it, and never
//! leaves it behind.
//!
//! The process runs in a process group of its own, and signals go to the group. So a process that a
//! driver starts is paused and killed with the driver. Its standard output arrives as
//! [`ReceivedMessage`], in bounded amounts. The end of its standard error is kept for messages.
//!
//! A process that leaves the group by `setsid` is out of reach: a driver must not make daemons.
//!
//! This file has the process. `watch.rs` reads its output and waits for its end, `lines.rs` cuts
//! its output into lines, and `reaper.rs` kills it if the harness dies. This module does not
//! interpret the lines.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use self::watch::{ENDING, Shared};

mod lines;
mod reaper;
mod watch;

/// The process waits for its first line, which is written only when the reaper knows the process.
/// So it never runs unknown to the reaper. `read` reads one byte at a time, so it takes no input
/// after that line.
const GATE: &str = r#"read -r _ || exit; exec "$@""#;

/// How long a process may take to stop after SIGSTOP.
const STANDS_STILL: Duration = Duration::from_millis(200);
/// How often `pause` tries: on a busy machine, a client that starts children all the time is often
/// caught in the middle of a start.
const PAUSES: usize = 50;

/// An event from a client process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The time at which it was read.
    pub at: Instant,
    /// The event.
    pub what: OutputEvent,
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// A line, without its end.
    Line(String),
    /// A line longer than [`LONGEST_LINE`](redquorum_scenario::client_protocol::LONGEST_LINE). It
    /// is discarded.
    TooLong,
    /// A line that is not UTF-8.
    NotUtf8,
    /// The last event: why no more events follow (how the process ended), as text.
    Closed(String),
}

impl OutputEvent {
    /// The line, or why there is none.
    pub(crate) fn line(&self) -> Result<&str, String> {
        match self {
            Self::Line(line) => Ok(line),
            Self::TooLong => Err("it wrote a line that is longer than 1 MiB".to_owned()),
            Self::NotUtf8 => Err("it wrote a line that is not UTF-8".to_owned()),
            Self::Closed(how) => Err(how.clone()),
        }
    }
}

/// A client process. Dropping it kills the process and its group, and returns when the process has
/// ended.
pub struct ClientProcess {
    child: Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    shared: Arc<Shared>,
}

impl ClientProcess {
    /// Starts `command` with `env` added to the harness's environment. Threads of this module call
    /// `receive` in the order of the events. While `receive` blocks, they read nothing more.
    ///
    /// # Errors
    /// There is no shell, or the system is out of processes. A command that does not exist is no
    /// error here: the shell reports it, and ends.
    pub fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        command: &[OsString],
        env: impl IntoIterator<Item = (K, V)>,
        receive: impl FnMut(ReceivedMessage) + Send + 'static,
    ) -> io::Result<Self> {
        if command.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(GATE).arg("redquorum-client").args(command).envs(env);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.process_group(0);
        let mut child = shell.spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked for as pipes")
        };
        let group = Pid::from_child(&child);
        let shared = Arc::new(Shared::new(Box::new(receive)));
        let mut process = Self { child, group, stdin: Some(stdin), shared };
        // If this fails, the drop kills a process that has not begun.
        reaper::add(process.pid())?;
        process.let_go()?;
        process.shared.watch(group, stdout, stderr);
        Ok(process)
    }

    /// Lets the process begin. From here on, writes to it never block: a paused client must not
    /// stop the harness.
    fn let_go(&mut self) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else { unreachable!("it was just started") };
        stdin.write_all(b"go\n")?;
        rustix::io::ioctl_fionbio(&*stdin, true)?;
        Ok(())
    }

    /// The id of the process and of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line. It never blocks.
    ///
    /// # Errors
    /// The client has ended, or its standard input is so full that it cannot be reading.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "its input was closed"));
        };
        stdin.write_all(format!("{line}\n").as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(error.kind(), "it does not read its standard input, which is full")
            }
            _ => error,
        })
    }

    /// Closes its standard input, after which the process should end.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Stops the group with SIGSTOP, like a long pause of a garbage collector. Returns when the
    /// process stands still: on a busy machine, a running thread may run on for milliseconds after
    /// the signal was sent.
    ///
    /// # Errors
    /// The process has ended, or does not stop.
    pub fn pause(&self) -> io::Result<()> {
        for _ in 0..PAUSES {
            self.signal(Signal::STOP)?;
            if self.stands_still()? {
                return Ok(());
            }
            // A process that has just started a child by `vfork` waits for it. The child was
            // stopped, too, so neither stands still until the child continues.
            self.signal(Signal::CONT)?;
            thread::sleep(STANDS_STILL / 10);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "it was stopped, and does not stand still"))
    }

    /// Whether a process that got SIGSTOP stands still soon.
    fn stands_still(&self) -> io::Result<bool> {
        // This call only looks: a thread that waits for the end of the process still sees it.
        let options = WaitIdOptions::STOPPED
            | WaitIdOptions::EXITED
            | WaitIdOptions::NOWAIT
            | WaitIdOptions::NOHANG;
        let until = Instant::now() + STANDS_STILL;
        loop {
            match waitid(WaitId::Pid(self.group), options) {
                Ok(Some(status)) if status.stopped() => return Ok(true),
                Ok(Some(_)) => return Err(io::Error::other("it has ended")),
                Ok(None) if Instant::now() >= until => return Ok(false),
                Ok(None) => thread::sleep(Duration::from_micros(100)),
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Lets the group continue.
    ///
    /// # Errors
    /// The process has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the group with SIGKILL. [`OutputEvent::Closed`] reports its end.
    ///
    /// # Errors
    /// The process has ended.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        // Only the drop reaps the process, so no other process can have its id.
        Ok(kill_process_group(self.group, signal)?)
    }

    /// The end of its standard error.
    pub fn complaints(&self) -> String {
        self.shared.complaints()
    }

    /// Waits until the process has ended, and returns how it ended. `None` if it has not ended in
    /// time.
    pub fn wait(&self, within: Duration) -> Option<String> {
        self.shared.exit(within)
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // An error means that the process has ended, which is fine.
        let _ = self.kill();
        // The id stays in use until the process is reaped, so no other process can be killed under
        // it. A process that lives on after this time is left to the reaper.
        if self.wait(5 * ENDING).is_some() {
            reaper::drop(self.pid());
            let _ = self.child.wait();
        }
        // No further events, except one that `receive` is handling now.
        self.shared.stop_reporting();
    }
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProcess").field("pid", &self.pid()).finish_non_exhaustive()
    }
}
