//! Inspects processes and directories from outside, for the tests that end a whole process.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use redquorum_rig::trials::{eventually, processes_with};

/// A process that owns masters, with a temporary directory of its own.
pub(crate) struct Owner {
    pub(crate) child: Child,
    pub(crate) temp: PathBuf,
}

impl Owner {
    /// Starts the command without input, in a process group of its own, as a shell with job control
    /// does. `name` distinguishes the directories of tests.
    pub(crate) fn spawn(mut command: Command, name: &str) -> Self {
        let temp = directory(name);
        command.env("TMPDIR", &temp).stdin(Stdio::null()).stdout(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Self { child: command.spawn().unwrap(), temp }
    }

    /// Starts the binary with this number of masters.
    pub(crate) fn binary(count: &str, name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_masters"));
        command.arg(count);
        Self::spawn(command, name)
    }

    /// Reads the output until a line begins with `start`. Returns all lines up to this one.
    pub(crate) fn read_until(&mut self, start: &str) -> Vec<String> {
        // Byte by byte, so that no later line is lost in a buffer.
        let mut out = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "it ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
            if line.starts_with(start) {
                return lines;
            }
        }
    }

    /// Sends a signal to the whole process group, as Ctrl-C does.
    pub(crate) fn signal_group(&self, signal: &str) {
        send(signal, &format!("-{}", self.child.id()));
    }

    /// Waits until no process of the owner, no keeper, no server and no file is left.
    pub(crate) fn nothing_is_left(&self) {
        eventually("its processes and files are gone", || self.processes() + self.files() == 0);
    }

    /// The number of its processes, itself included.
    pub(crate) fn processes(&self) -> usize {
        processes_with(self.temp.to_str().unwrap()).len()
    }

    /// The number of masters' directories.
    pub(crate) fn files(&self) -> usize {
        fs::read_dir(&self.temp).unwrap().count()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _gone = self.child.wait();
        let _removed = fs::remove_dir_all(&self.temp);
    }
}

/// Creates an empty directory of this process. These tests may run on several servers at once.
pub(crate) fn directory(name: &str) -> PathBuf {
    let name = format!("{}-{name}", std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

pub(crate) fn exists(pid: u32) -> bool {
    send("0", &pid.to_string())
}

/// Sends a signal with the shell's `kill`: the separate program is not on every system.
pub(crate) fn send(signal: &str, to: &str) -> bool {
    let script = format!("kill -{signal} {to} 2>/dev/null");
    Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success()
}
