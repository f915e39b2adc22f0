//! Any program under a keeper: a tiny shell, which outlives this process just long enough to clean
//! up after it. `keeper.sh` is its program; this file is our end of its pipes.
//!
//! A shell is necessary, because a kill in `Drop` is not enough: no code of ours runs after `kill
//! -9`, `exit` or `abort`. The kernel then closes our end of the keeper's input, and the keeper
//! detects that. (Linux's parent-death signal does not help. It fires when the *thread* that
//! started the child ends, which in a test is at once, and it removes no directory.)
//!
//! A killed parent leaves nothing behind at any moment: the pipe exists before the keeper, and the
//! keeper before the directory and the program, both of which it creates itself. This process
//! writes its files into that directory.

use std::{
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Mutex,
};

use crate::{Clock, disk, lock};

/// A program with its own temporary directory, both of which end with this process.
///
/// A drop returns when the program is killed and the directory is removed. After any other end of
/// this process, `kill -9` included, a small shell does the same within milliseconds. The program
/// does not receive the terminal's Ctrl-C. Its output goes to the file `log` in the directory.
///
/// Its methods fail if that shell is gone.
#[derive(Debug)]
#[must_use = "a drop ends the program and removes the directory"]
pub struct Process {
    dir: PathBuf,
    keeper: Mutex<Keeper>,
}

/// Our end of the pipes of a keeper.
#[derive(Debug)]
struct Keeper {
    child: Child,
    /// The keeper waits as long as this is open. `None` only during a drop.
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The id of the program, if it was launched and not killed.
    pid: Option<u32>,
}

impl Process {
    /// Makes the directory, which must not exist. The program starts at [`launch`](Self::launch).
    ///
    /// # Errors
    ///
    /// The directory exists or cannot be made, or no shell can be started.
    pub fn new<A: AsRef<OsStr>>(dir: &Path, program: &Path, args: &[A]) -> io::Result<Self> {
        Self::start(dir, program, args, false, false)
    }

    /// With `clock` the program runs under the [`Clock`] in its directory, with `syncs` its syncs
    /// are recorded.
    pub(crate) fn start<A: AsRef<OsStr>>(
        dir: &Path,
        program: &Path,
        args: &[A],
        clock: bool,
        syncs: bool,
    ) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(include_str!("keeper.sh")).arg("redquorum-keeper");
        command.arg(dir).arg(program).args(args);
        // Under another name until the program is launched; see there.
        const PRELOAD: &str = "REDQUORUM_PRELOAD";
        command.env_remove(PRELOAD).env_remove(disk::NOTES_VARIABLE);
        if syncs {
            command.env(disk::NOTES_VARIABLE, dir.join(disk::NOTES_FILE));
        }
        if clock {
            let [(_, preload), page] = Clock::env_in(dir);
            command.envs([(PRELOAD, preload), page]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Outside the terminal's foreground group: Ctrl-C is for the process that uses the program.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);

        // Pipes are closed on exec, but not every system can create them so in one step. Another
        // keeper that started in between would hold this one's input open for good.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let turn = lock(&ONE_AT_A_TIME);
        let mut child = command.spawn()?;
        drop(turn);
        let (Some(words), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        let answers = BufReader::new(answers);
        let mut keeper = Keeper { child, words: Some(words), answers, pid: None };
        if keeper.answer()? != "ready" {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, dir.display().to_string()));
        }
        Ok(Self { dir: dir.to_owned(), keeper: Mutex::new(keeper) })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the program and returns its process id. A program that runs is killed first.
    pub fn launch(&self) -> io::Result<u32> {
        let mut keeper = lock(&self.keeper);
        let answer = keeper.ask("launch")?;
        keeper.pid = answer.strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        keeper.pid.ok_or_else(|| io::Error::other(format!("the keeper replied {answer:?}")))
    }

    /// Stops the program with SIGSTOP. False: it does not run.
    pub fn pause(&self) -> io::Result<bool> {
        self.order("pause")
    }

    /// Resumes the program with SIGCONT. False: it does not run.
    pub fn resume(&self) -> io::Result<bool> {
        self.order("resume")
    }

    /// Whether the program runs.
    pub fn runs(&self) -> io::Result<bool> {
        self.order("look")
    }

    /// The last lines of the program's output. Empty if it cannot be read.
    pub fn log(&self) -> String {
        const LINES: usize = 8;
        let bytes = fs::read(self.dir.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Sends one of the commands of `keeper.sh`. False: there is no program for it.
    pub(crate) fn order(&self, word: &str) -> io::Result<bool> {
        let mut keeper = lock(&self.keeper);
        let runs = keeper.ask(word)? == "done";
        if !runs || word == "kill" {
            keeper.pid = None;
        }
        Ok(runs)
    }

    /// The id of the program, if it was launched and not killed.
    pub(crate) fn pid(&self) -> Option<u32> {
        lock(&self.keeper).pid
    }
}

impl Keeper {
    /// Sends one of the commands of `keeper.sh`, and returns the reply.
    fn ask(&mut self, word: &str) -> io::Result<String> {
        let Some(words) = &mut self.words else {
            unreachable!("only a drop ends a keeper, and nothing is asked after it")
        };
        words.write_all(format!("{word}\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut complaints = String::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!("it is gone ({})", complaints.trim_end())));
            }
            match line.strip_prefix('@') {
                Some(answer) => return Ok(answer.trim_end().to_owned()),
                None => complaints.push_str(&line),
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.words = None;
        // An error would mean that the child was already waited for: then it has ended too.
        let _gone = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_its_directory_end_with_the_drop() {
        let dir = std::env::temp_dir().join(format!("redquorum-process-{}", std::process::id()));
        let process = Process::new(&dir, Path::new("/bin/sleep"), &["60"]).unwrap();
        let pid = process.launch().unwrap();
        assert!(process.pause().unwrap() && process.resume().unwrap() && process.runs().unwrap());
        let again = Process::new(&dir, Path::new("/bin/sleep"), &["60"]).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        drop(process);
        assert!(!dir.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
