//! Any program under a keeper: it ends, and its directory is removed, when this process ends in
//! whatever way. Tools use it to start servers other than Redis.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::keeper::{Answer, Keeper};

/// A program with its own temporary directory, both of which end with this process.
///
/// A drop returns when the program is killed and the directory is removed. After any other end of
/// this process, `kill -9` included, a small shell does the same within milliseconds. The program
/// does not receive the terminal's Ctrl-C. Its output goes to the file `log` in the directory.
#[derive(Debug)]
#[must_use = "a drop ends the program and removes the directory"]
pub struct Process {
    dir: PathBuf,
    keeper: Mutex<Keeper>,
}

impl Process {
    /// Makes the directory, which must not exist. The program starts at [`launch`](Self::launch).
    ///
    /// # Errors
    ///
    /// The directory exists or cannot be made, or no shell can be started.
    pub fn new<A: AsRef<OsStr>>(dir: &Path, program: &Path, args: &[A]) -> io::Result<Self> {
        let mut keeper = Keeper::spawn(dir, program, args, None, false)?;
        match keeper.answer()? {
            Answer::Ready => Ok(Self { dir: dir.to_owned(), keeper: Mutex::new(keeper) }),
            _ => Err(io::Error::new(io::ErrorKind::AlreadyExists, dir.display().to_string())),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the program and returns its process id. A program that runs is killed first.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn launch(&self) -> io::Result<u32> {
        match self.keeper().ask("launch")? {
            Answer::Pid(pid) => Ok(pid),
            other => Err(io::Error::other(format!("the keeper replied {other:?}"))),
        }
    }

    /// Stops the program with SIGSTOP. False: it does not run.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn pause(&self) -> io::Result<bool> {
        self.order("pause")
    }

    /// Resumes the program with SIGCONT. False: it does not run.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn resume(&self) -> io::Result<bool> {
        self.order("resume")
    }

    /// Kills the program with SIGKILL and returns when it is gone.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn kill(&self) -> io::Result<()> {
        self.order("kill").map(|_| ())
    }

    /// Whether the program runs.
    ///
    /// # Errors
    ///
    /// The keeper is gone.
    pub fn runs(&self) -> io::Result<bool> {
        self.order("look")
    }

    /// The last lines of the program's output.
    pub fn log(&self) -> String {
        const LINES: usize = 8;
        let bytes = std::fs::read(self.dir.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn order(&self, word: &str) -> io::Result<bool> {
        Ok(self.keeper().ask(word)? == Answer::Done)
    }

    /// A panic of another thread does not keep this one from cleaning up.
    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
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
