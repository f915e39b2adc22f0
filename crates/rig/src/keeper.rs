//! The keeper: one tiny shell per master, which outlives this process just long enough to clean up
//! after it. `keeper.sh` is its program; this file is our end of its pipes. Called by `node.rs`.
//!
//! A shell is necessary, because a kill in `Drop` is not enough: no code of ours runs after `kill
//! -9`, `exit` or `abort`. The kernel then closes our end of the keeper's input, and the keeper
//! detects that. (Linux's parent-death signal does not help. It fires when the *thread* that
//! started the child ends, which in a test is at once, and it removes no directory.)
//!
//! A killed parent leaves nothing behind at any moment: the pipe exists before the keeper, and the
//! keeper before the directory and the server, both of which it creates itself. This process writes
//! its files into that directory.

use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::{Clock, disk};

/// A keeper with its server. Dropping it ends both and returns when they have ended.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    /// The keeper waits as long as this is open. `None` after it was asked to end.
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// A reply of a keeper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The directory is there, and the server can be launched.
    Ready,
    /// A server was launched, with this process id.
    Pid(u32),
    /// The directory exists, so another keeper has claimed its port.
    Taken,
    /// The command was executed; for `look`: the server runs.
    Done,
    /// There is no server for the command.
    Down,
}

impl Keeper {
    /// Starts a keeper, which creates the directory at once, and launches the server on command.
    /// Its first reply, [`Answer::Ready`] or [`Answer::Taken`], stays unread, so that several
    /// keepers can start at the same time.
    ///
    /// `clock` is the directory of the server's [`Clock`]; with it, syncs can be recorded.
    pub(crate) fn spawn<A: AsRef<OsStr>>(
        dir: &Path,
        server: &Path,
        args: &[A],
        clock: Option<&Path>,
        syncs: bool,
    ) -> io::Result<Self> {
        // Pipes are closed on exec, but not every system can create them so in one step. Another
        // keeper that started in between would hold this one's input open for good.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);

        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(include_str!("keeper.sh")).arg("redquorum-keeper");
        command.arg(dir).arg(server).args(args);
        // Under another name until the server is launched; see there.
        const PRELOAD: &str = "REDQUORUM_PRELOAD";
        command.env_remove(PRELOAD).env_remove(disk::NOTES_VARIABLE);
        if syncs {
            command.env(disk::NOTES_VARIABLE, dir.join(disk::NOTES_FILE));
        }
        if let Some(dir) = clock {
            let [(_, preload), page] = Clock::env_in(dir);
            command.envs([(PRELOAD, preload), page]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Outside the terminal's foreground group: Ctrl-C is for the process that uses the masters.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);

        let mut child = command.spawn()?;
        let (Some(words), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        Ok(Self { child, words: Some(words), answers: BufReader::new(answers) })
    }

    /// Sends one of the commands of `keeper.sh`, and waits for the reply.
    pub(crate) fn ask(&mut self, word: &str) -> io::Result<Answer> {
        self.tell(word)?;
        self.answer()
    }

    /// Sends one command, and leaves the reply unread.
    pub(crate) fn tell(&mut self, word: &str) -> io::Result<()> {
        let Some(words) = &mut self.words else {
            unreachable!("only a drop ends a keeper, and nothing is asked after it")
        };
        words.write_all(format!("{word}\n").as_bytes())
    }

    /// Waits for an outstanding reply.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut complaints = String::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!("it is gone ({})", complaints.trim_end())));
            }
            match line.trim_end() {
                "@ready" => return Ok(Answer::Ready),
                "@taken" => return Ok(Answer::Taken),
                "@done" => return Ok(Answer::Done),
                "@down" => return Ok(Answer::Down),
                other => match other.strip_prefix("@pid ").map(str::parse) {
                    Some(Ok(pid)) => return Ok(Answer::Pid(pid)),
                    _ => complaints.push_str(&line),
                },
            }
        }
    }

    /// Asks the keeper to end everything, and does not wait, so that several can be asked before
    /// the first is dropped.
    pub(crate) fn hang_up(&mut self) {
        self.words = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.hang_up();
        // An error would mean that the child was already waited for: then it has ended too.
        let _gone = self.child.wait();
    }
}
