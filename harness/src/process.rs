//! A client process: the harness starts it, reads its lines, pauses it and kills it, and never
//! leaves it behind.
//!
//! The process runs in a process group of its own, and signals go to the group. So a process that a
//! driver starts is paused and killed with the driver. Its standard output arrives as
//! [`ReceivedMessage`], in bounded amounts. Its standard error goes to a file, and its end is kept
//! for messages.
//!
//! A process that leaves the group by `setsid` is out of reach: a driver must not make daemons.
//!
//! Three threads watch it: one waits for its end, one reads its standard output, and one keeps its
//! standard error. This module does not interpret the lines.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::unpoisoned;
use redquorum_scenario::client_protocol::LONGEST_LINE;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

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
    /// A line longer than [`LONGEST_LINE`]. It is discarded.
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
    /// `receive` in the order of the events. While `receive` blocks, they read nothing more. The
    /// file `errors` is created with the first byte on standard error.
    ///
    /// # Errors
    /// There is no shell, or the system is out of processes. A command that does not exist is no
    /// error here: the shell reports it, and ends.
    pub fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        command: &[OsString],
        env: impl IntoIterator<Item = (K, V)>,
        errors: Option<PathBuf>,
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
        add(process.pid())?;
        process.let_go()?;
        process.shared.watch(group, stdout, stderr, errors);
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
            drop(self.pid());
            let _ = self.child.wait();
        }
        // The file of its standard error is complete then.
        let _ = self.shared.wait_for(ENDING, |ended| ended.done_complaining.then_some(()));
        // No further events, except one that `receive` is handling now.
        self.shared.stop_reporting();
    }
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProcess").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// Cuts bytes into lines of bounded length. A line that is too long is reported once; its rest is
/// read and discarded. So neither side blocks, and memory stays bounded.
struct Lines<R> {
    from: BufReader<R>,
    /// Whether the rest of the current line is to be discarded.
    skipping: bool,
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(64 * 1024, from), skipping: false }
    }

    /// The next line. `None` at the end. The rest after the last end of a line counts as a line. A
    /// read that fails counts as the end.
    fn next(&mut self) -> Option<OutputEvent> {
        if std::mem::take(&mut self.skipping) {
            self.from.skip_until(b'\n').ok()?;
        }
        let mut line = Vec::new();
        let mut bounded = self.from.by_ref().take(LONGEST_LINE as u64 + 1);
        // What was read before a failure is a line like any other rest.
        let _read = bounded.read_until(b'\n', &mut line);
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
        } else if line.is_empty() {
            return None;
        } else if line.len() > LONGEST_LINE {
            self.skipping = true;
            return Some(OutputEvent::TooLong);
        }
        Some(String::from_utf8(line).map_or(OutputEvent::NotUtf8, OutputEvent::Line))
    }
}

/// How many bytes of standard error are kept.
const COMPLAINTS: usize = 4 * 1024;

/// The end of the names of files with the standard error of a client.
const ERRORS: &str = ".stderr.txt";

/// How many bytes of standard error a file takes.
const MOST_ERRORS: usize = 4 << 20;

/// The name of the file with the standard error of a process. A colon would be no character of a
/// file name for some who keep these files, such as the artefacts of GitHub.
pub(crate) fn errors_file(process: &str) -> String {
    format!("{}{ERRORS}", process.replace(':', "-"))
}

/// The files with the standard error of clients in a folder, each with the name of its process.
pub(crate) fn errors_files(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_suffix(ERRORS)?.to_owned(), entry.path()))
        })
        .collect();
    files.sort();
    files
}

/// How long an ended process's output may stay open, or a process may outlive its output, before
/// the end is reported in any case.
const ENDING: Duration = Duration::from_secs(1);

/// The state that the process and its watching threads share.
struct Shared {
    ended: Mutex<Ended>,
    changed: Condvar,
    complaints: Mutex<Vec<u8>>,
    receive: Mutex<Option<MessageHandler>>,
}

type MessageHandler = Box<dyn FnMut(ReceivedMessage) + Send>;

#[derive(Default)]
struct Ended {
    /// How the process ended, once it has.
    exit: Option<String>,
    /// Its output has ended, or the threads no longer wait for it.
    silent: bool,
    /// Its standard error has ended.
    done_complaining: bool,
}

impl Shared {
    fn new(receive: MessageHandler) -> Self {
        Self {
            ended: Mutex::default(),
            changed: Condvar::new(),
            complaints: Mutex::default(),
            receive: Mutex::new(Some(receive)),
        }
    }

    /// Watches a process that leads this group, in threads that end when it does.
    fn watch(
        self: &Arc<Self>,
        group: Pid,
        stdout: ChildStdout,
        stderr: ChildStderr,
        errors: Option<PathBuf>,
    ) {
        let (waiter, reader, listener) = (self.clone(), self.clone(), self.clone());
        thread::spawn(move || waiter.wait(group));
        thread::spawn(move || reader.read_stdout(stdout));
        thread::spawn(move || listener.read_stderr(stderr, errors));
    }

    /// How the process ended. `None` if it has not ended in time.
    fn exit(&self, within: Duration) -> Option<String> {
        self.wait_for(within, |ended| ended.exit.clone())
    }

    /// The end of its standard error.
    fn complaints(&self) -> String {
        String::from_utf8_lossy(&unpoisoned(&self.complaints)).trim().to_owned()
    }

    /// Reports no more events, except one that `receive` is handling now.
    fn stop_reporting(&self) {
        if let Ok(mut receive) = self.receive.try_lock() {
            *receive = None;
        }
    }

    /// Waits until the process ends, and then kills the rest of its group. A child that lives on
    /// may hold the pipes open.
    fn wait(&self, group: Pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let exit = loop {
            match waitid(WaitId::Pid(group), options) {
                Ok(Some(status)) => {
                    break match (status.exit_status(), status.terminating_signal()) {
                        (Some(0), _) => "it ended with exit code 0".to_owned(),
                        (Some(code), _) => format!("it ended with exit code {code}"),
                        (_, Some(signal)) => format!("it was ended by signal {signal}"),
                        _ => "it ended".to_owned(),
                    };
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => break format!("it cannot be waited for: {why}"),
            }
        };
        // An error means that no process is left, which is fine.
        let _ = kill_process_group(group, Signal::KILL);
        self.change(|ended| ended.exit = Some(exit.clone()));
        // Its output comes before its end.
        let _ =
            self.wait_for(ENDING, |ended| (ended.silent && ended.done_complaining).then_some(()));
        self.close(exit);
    }

    fn read_stdout(&self, stdout: impl Read) {
        let mut lines = Lines::new(stdout);
        while let Some(event) = lines.next() {
            self.report(event);
        }
        self.change(|ended| ended.silent = true);
        if self.wait_for(ENDING, |ended| ended.exit.clone()).is_none() {
            self.close("it closed its standard output and goes on".to_owned());
        }
    }

    /// Keeps the end of standard error, and writes its beginning to the file, and the end, too, if
    /// there is more than the file takes. A file that cannot be written ends no run.
    fn read_stderr(&self, mut stderr: impl Read, errors: Option<PathBuf>) {
        let (mut chunk, mut file, mut room) = ([0; 1024], None, MOST_ERRORS);
        while let Ok(count @ 1..) = stderr.read(&mut chunk) {
            let chunk = &chunk[..count];
            if file.is_none() {
                file = errors.as_ref().and_then(|path| File::create(path).ok());
            }
            if let Some(file) = &mut file {
                let part = &chunk[..count.min(room)];
                room -= part.len();
                let _ = file.write_all(part);
            }
            let mut kept = unpoisoned(&self.complaints);
            kept.extend_from_slice(chunk);
            let surplus = kept.len().saturating_sub(COMPLAINTS);
            kept.drain(..surplus);
        }
        if let Some(file) = file.as_mut().filter(|_| room == 0) {
            let _ = write!(file, "\n… more is left out. It ends with:\n{}\n", self.complaints());
        }
        self.change(|ended| ended.done_complaining = true);
    }

    fn report(&self, what: OutputEvent) {
        if let Some(receive) = &mut *unpoisoned(&self.receive) {
            receive(ReceivedMessage { at: Instant::now(), what });
        }
    }

    /// Reports the end, once.
    fn close(&self, exit: String) {
        let mut receive = unpoisoned(&self.receive);
        if let Some(mut receive) = receive.take() {
            receive(ReceivedMessage { at: Instant::now(), what: OutputEvent::Closed(exit) });
        }
    }

    fn change(&self, change: impl FnOnce(&mut Ended)) {
        change(&mut unpoisoned(&self.ended));
        self.changed.notify_all();
    }

    fn wait_for<T>(&self, within: Duration, look: impl Fn(&Ended) -> Option<T>) -> Option<T> {
        let ended = unpoisoned(&self.ended);
        let waited = self.changed.wait_timeout_while(ended, within, |ended| look(ended).is_none());
        let (ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        look(&ended)
    }
}

/// One small shell for all client processes of the harness. It outlives the harness just long
/// enough to kill them. `reaper.sh` has its code; here is the harness's end of its pipes.
///
/// A shell is needed, since `Drop` is not enough: no code of the harness runs after `kill -9`,
/// `exit` or `abort`. The kernel then closes the harness's end of the reaper's input, and the
/// reaper notices. Clients see the end of their own input, too, but a client that is stopped, hangs
/// or ignores its input cannot react.
struct Reaper {
    stdin: ChildStdin,
    replies: BufReader<ChildStdout>,
}

/// The reaper lives as long as this process, and no thread waits for it.
static REAPER: Mutex<Option<Reaper>> = Mutex::new(None);

/// From now on, the reaper kills this group when the harness ends.
fn add(group: u32) -> io::Result<()> {
    send("add", group)
}

/// The group has ended, and its number can soon be reused.
fn drop(group: u32) {
    // If the reaper has ended, it kills no group.
    let _ = send("drop", group);
}

fn send(word: &str, group: u32) -> io::Result<()> {
    let mut reaper = unpoisoned(&REAPER);
    let reaper = match &mut *reaper {
        Some(reaper) => reaper,
        none => none.insert(Reaper::start()?),
    };
    reaper.stdin.write_all(format!("{word} {group}\n").as_bytes())?;
    let mut reply = String::new();
    if reaper.replies.read_line(&mut reply)? == 0 {
        return Err(io::Error::other("the shell that watches over the clients is gone"));
    }
    Ok(())
}

impl Reaper {
    fn start() -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(include_str!("process/reaper.sh")).arg("redquorum-reaper");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Not in the terminal's foreground group: Ctrl-C is for the harness, not for the reaper.
        shell.process_group(0);
        let mut child = shell.spawn()?;
        let (Some(stdin), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        Ok(Self { stdin, replies: BufReader::new(replies) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> Vec<OutputEvent> {
        let mut lines = Lines::new(bytes);
        std::iter::from_fn(|| lines.next()).collect()
    }

    fn line(text: &str) -> OutputEvent {
        OutputEvent::Line(text.to_owned())
    }

    #[test]
    fn lines_end_with_a_line_feed_or_with_the_input() {
        assert_eq!(cut(b"a\n\nb\r\nc"), [line("a"), line(""), line("b"), line("c")]);
        assert_eq!(cut(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_reported_once_and_the_next_line_is_read() {
        let mut bytes = vec![b'x'; 5 * LONGEST_LINE];
        bytes.extend_from_slice(b"\nnext\n");
        assert_eq!(cut(&bytes), [OutputEvent::TooLong, line("next")]);
        bytes.truncate(2 * LONGEST_LINE);
        assert_eq!(cut(&bytes), [OutputEvent::TooLong]);
    }
}
