//! What the tests share: the program beside masters, and processes.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redquorum_rig::Masters;
use redquorum_rig::trials::eventually;

pub(crate) use crate::program::{bare, ended};

/// How often to repeat what must hold each time.
pub(crate) fn rounds() -> usize {
    std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

/// The program, with these masters and no other options.
pub(crate) fn redquorum(masters: &Masters) -> Command {
    let mut command = bare();
    command.env("REDQUORUM_MASTERS", masters.urls().join(","));
    command
}

/// Runs `redquorum exec` with these words to its end. The exit code, standard output and standard
/// error.
pub(crate) fn exec(masters: &Masters, words: &[&str]) -> (i32, String, String) {
    ended(redquorum(masters).arg("exec").args(words).output().unwrap())
}

/// A process that does not outlive its test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// The exit code of the process, which ends by itself.
    pub(crate) fn code(&mut self) -> i32 {
        self.0.wait().unwrap().code().expect("it ends by itself")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `exec` passes it on to its command, which would run on behind a SIGKILL, and keep the
        // output of the tests open.
        let until = Instant::now() + Duration::from_secs(2);
        while self.0.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            self.signal(Signal::SIGTERM);
            self.signal(Signal::SIGCONT);
            thread::sleep(Duration::from_millis(5));
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A folder of its own, removed in the end. It is not under cargo's: the path of a socket is short.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("redquorum-exec-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The number in a file, once it is there.
pub(crate) fn number(file: &Path) -> i32 {
    let read = || fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    eventually("a process wrote its id", || read().is_some());
    read().unwrap()
}

/// Whether a process runs. One that has ended and was not waited for does not.
pub(crate) fn runs(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) if Path::new("/proc/self").exists() => false,
        Err(_) => kill(Pid::from_raw(pid), None).is_ok(),
    }
}

/// Who holds the resource.
pub(crate) fn holder(masters: &Masters, resource: &str) -> String {
    let (_, text, _) = ended(redquorum(masters).args(["holder", resource]).output().unwrap());
    text.lines().next().unwrap().to_owned()
}

/// The lock itself, as a rival uses it: `wait` for the resource, and `then` with it.
pub(crate) fn rival<R>(
    masters: &Masters,
    resource: &str,
    wait: Duration,
    then: impl FnOnce() -> R,
) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lock = redquorum::Redlock::builder().masters(masters.urls()).build().await.unwrap();
        let lease = lock.acquire(resource).wait(wait).await.unwrap();
        let result = then();
        drop(lease.release().await);
        result
    })
}
