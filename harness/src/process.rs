//! A client process: started, heard line by line, paused, killed, and never left behind.
//!
//! It runs in a process group of its own, and everything done to it is done to the group: what a
//! driver starts is paused and killed with it. What it says on standard output arrives as [`Heard`],
//! bounded; the end of what it complains about on standard error is kept for messages.
//!
//! A process that leaves the group by `setsid` is beyond reach: a driver must not make daemons.
//!
//! What lives here is the process; `watch.rs` hears it and sees it end, `lines.rs` cuts its output
//! into lines, `reaper.rs` sees to it that it does not outlive us. What the lines mean is none of this
//! module's business.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

pub(crate) use self::lines::shown;
use self::watch::{ENDING, Shared};

mod lines;
mod reaper;
mod watch;

/// The client waits for its first line, which is written once the reaper knows it: at no moment
/// does it run without being known. A reader of one byte at a time, as `read` is, takes nothing of
/// what comes behind the line.
const GATE: &str = r#"read -r _ || exit; exec "$@""#;

/// How long a process may take to come to a stand, and how often that is tried.
const STANDS_STILL: Duration = Duration::from_millis(200);
const PAUSES: usize = 5;

/// Something that came from a client process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When it was read.
    pub at: Instant,
    /// What.
    pub what: Word,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A line, without its end.
    Line(String),
    /// A line longer than [`LONGEST_LINE`](crate::talk::LONGEST_LINE): it is thrown away.
    TooLong,
    /// A line that is no UTF-8.
    NotUtf8,
    /// Nothing more will come; how the process ended, in words. The last one.
    Closed(String),
}

/// A client process. Dropping it kills it and all that it has started, and returns when it is gone.
pub struct ClientProcess {
    child: Child,
    group: Pid,
    words: Option<ChildStdin>,
    shared: Arc<Shared>,
}

impl ClientProcess {
    /// Starts `command` with `env` added to our environment. `hear` is called in the order in which
    /// things are said, from threads of this module; while it blocks, nothing more is read.
    ///
    /// # Errors
    /// There is no shell, or the system is out of processes. A command that does not exist is no
    /// error: the shell says so, and ends.
    pub fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        command: &[OsString],
        env: impl IntoIterator<Item = (K, V)>,
        hear: impl FnMut(Heard) + Send + 'static,
    ) -> io::Result<Self> {
        if command.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(GATE).arg("redquorum-client").args(command).envs(env);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.process_group(0);
        let mut child = shell.spawn()?;
        let (Some(words), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked for as pipes")
        };
        let group = Pid::from_child(&child);
        let shared = Arc::new(Shared::new(Box::new(hear)));
        let mut process = Self { child, group, words: Some(words), shared };
        // Should this fail, the drop kills a client that has not begun.
        reaper::add(process.pid())?;
        process.let_go()?;
        process.shared.watch(group, stdout, stderr);
        Ok(process)
    }

    /// Opens the gate. From here on writing to it never blocks: a client that is paused must not
    /// bring the harness to a stand.
    fn let_go(&mut self) -> io::Result<()> {
        let Some(words) = &mut self.words else { unreachable!("it was just started") };
        words.write_all(b"go\n")?;
        rustix::io::ioctl_fionbio(&*words, true)?;
        Ok(())
    }

    /// The id of the process and of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line. It never waits.
    ///
    /// # Errors
    /// The client is gone, or so much lies in its standard input that it cannot be reading.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let Some(words) = &mut self.words else {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "its input was closed"));
        };
        words.write_all(format!("{line}\n").as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(error.kind(), "it does not read its standard input, which is full")
            }
            _ => error,
        })
    }

    /// Closes its standard input, after which it should end.
    pub fn hang_up(&mut self) {
        self.words = None;
    }

    /// Stops the group with SIGSTOP, as a long pause of a garbage collector does. Returns when the
    /// process stands still: on a busy machine a thread that runs already may run on for
    /// milliseconds after the signal was sent.
    ///
    /// # Errors
    /// It is gone, or does not come to a stand.
    pub fn pause(&self) -> io::Result<()> {
        for _ in 0..PAUSES {
            self.signal(Signal::STOP)?;
            if self.stands_still()? {
                return Ok(());
            }
            // It waits for a child that it has just begun (`vfork`), which was stopped, too: neither
            // comes to a stand until the child may go on.
            self.signal(Signal::CONT)?;
            thread::sleep(STANDS_STILL / 10);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "it was stopped, and does not stand still"))
    }

    /// Whether a process that was sent SIGSTOP comes to a stand soon.
    fn stands_still(&self) -> io::Result<bool> {
        // Only looked at: whoever waits for the end of the process still gets to see that.
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

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the group with SIGKILL. That it is gone is told by [`Word::Closed`].
    ///
    /// # Errors
    /// It is gone.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        // The process is waited for only when this is dropped, so its id is nobody else's.
        Ok(kill_process_group(self.group, signal)?)
    }

    /// The end of what it has said on standard error.
    pub fn complaints(&self) -> String {
        self.shared.complaints()
    }

    /// Waits until the process has ended, and says how; nothing if it has not in time.
    pub fn wait(&self, within: Duration) -> Option<String> {
        self.shared.exit(within)
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.kill();
        // Until then the id is in use, and nothing else can be killed under it. Whoever is still
        // there after so long is left to the reaper.
        if self.wait(5 * ENDING).is_some() {
            reaper::drop(self.pid());
            let _ = self.child.wait();
        }
        // What it said last is not told any more, unless somebody is hearing it just now.
        self.shared.hush();
    }
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProcess").field("pid", &self.pid()).finish_non_exhaustive()
    }
}
