//! The process of a command: in a process group of its own, which is signalled as a whole, and in
//! the foreground of the terminal, if this program is.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// The command, and its process group.
    group: Pid,
    /// Whether the command was put into the foreground of the terminal on standard input.
    terminal: bool,
    /// Whether it has ended.
    ended: Cell<bool>,
}

/// What became of a command since it was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended, with this exit code.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// It stands still, such as by Ctrl-Z.
    Stopped,
}

impl Running {
    /// Starts the command.
    ///
    /// # Errors
    /// It is not there, or cannot be executed.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        // Where the output goes elsewhere, another program of this job may need the terminal.
        let terminal = is_foreground(getpgrp()) && io::stdout().is_terminal();
        let child = command.process_group(0).spawn()?;
        // Without this the program would be stopped when it takes the terminal back. The command
        // does not inherit it.
        SigSet::from(Signal::SIGTTOU).thread_block()?;
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let running = Self { group, terminal, ended: Cell::new(false) };
        running.enter_foreground();
        Ok(running)
    }

    /// Gives the terminal to the command, unless the shell has it.
    fn enter_foreground(&self) {
        if self.terminal && is_foreground(getpgrp()) {
            // It fails if the command has ended already.
            _ = tcsetpgrp(io::stdin().as_fd(), self.group);
        }
    }

    /// Takes the terminal back, unless the shell has it.
    fn leave_foreground(&self) {
        if self.terminal && is_foreground(self.group) {
            // It fails if the terminal is gone.
            _ = tcsetpgrp(io::stdin().as_fd(), getpgrp());
        }
    }

    /// The next change, if there is one.
    pub(crate) fn change(&self) -> Option<Change> {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            // In a container this program may be the first process, which has to wait for orphans.
            return match waitpid(None, Some(flags)) {
                Ok(status) if status.pid().is_some_and(|pid| pid != self.group) => continue,
                Ok(WaitStatus::Exited(_, code)) => Some(self.ended(Change::Exited(code))),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    Some(self.ended(Change::Killed(signal as i32)))
                }
                Ok(WaitStatus::Stopped(_, Signal::SIGTTIN | Signal::SIGTTOU))
                    if self.terminal && (is_foreground(self.group) || is_foreground(getpgrp())) =>
                {
                    // It used the terminal before it was in the foreground. Behind `bg` the shell
                    // has the terminal, and the command stays stopped.
                    self.enter_foreground();
                    self.signal(Signal::SIGCONT);
                    continue;
                }
                Ok(WaitStatus::Stopped(..)) => Some(Change::Stopped),
                // The second one is that of a process that a real-time signal ended.
                Err(Errno::EINTR | Errno::EINVAL) => continue,
                // There is no command any more.
                Err(_) => Some(self.ended(Change::Killed(Signal::SIGKILL as i32))),
                Ok(_) => None,
            };
        }
    }

    fn ended(&self, change: Change) -> Change {
        self.ended.set(true);
        self.leave_foreground();
        change
    }

    /// Waits for orphans that have ended, in a container whose first process this is.
    pub(crate) fn reap(&self) {
        while self.ended.get()
            && waitpid(None, Some(WaitPidFlag::WNOHANG))
                .is_ok_and(|status| status != WaitStatus::StillAlive)
        {}
    }

    /// Sends a signal to all processes of the command that have not left its group.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails if none is left.
        _ = killpg(self.group, signal);
    }

    /// Whether any process of the group is left.
    pub(crate) fn has_processes(&self) -> bool {
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    /// Stops this program, too, if the command was stopped from the terminal, as a shell expects,
    /// until the shell continues it. Returns whether it was stopped. The command stays stopped: see
    /// [`Running::resume`].
    pub(crate) fn stop_with_it(&self) -> bool {
        if !self.terminal {
            return false;
        }
        self.leave_foreground();
        // The other processes of this job stop as well. SIGSTOP is delivered before this returns.
        killpg(getpgrp(), Signal::SIGSTOP).is_ok()
    }

    /// Continues the command after [`Running::stop_with_it`].
    pub(crate) fn resume(&self) {
        self.enter_foreground();
        self.signal(Signal::SIGCONT);
    }
}

/// After a panic the leases are given back: the command must not go on.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Whether a process group has the terminal on standard input.
fn is_foreground(group: Pid) -> bool {
    tcgetpgrp(io::stdin().as_fd()).is_ok_and(|foreground| foreground == group)
}

/// Stops this program, until it is continued.
pub(crate) fn stop() {
    _ = raise(Signal::SIGSTOP);
}
