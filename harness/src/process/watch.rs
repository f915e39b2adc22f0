//! Watches a client process in three threads: one waits for its end, one reads its standard output,
//! and one keeps its standard error. Called by `process.rs`.

use std::io::Read;
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::lines::Lines;
use super::{OutputEvent, ReceivedMessage};
use crate::mutex::unpoisoned;

/// How many bytes of standard error are kept.
const COMPLAINTS: usize = 4 * 1024;

/// How long an ended process's output may stay open, or a process may outlive its output, before
/// the end is reported in any case.
pub(super) const ENDING: Duration = Duration::from_secs(1);

/// The state that the process and its watching threads share.
pub(super) struct Shared {
    ended: Mutex<Ended>,
    changed: Condvar,
    complaints: Mutex<Vec<u8>>,
    receive: Mutex<Option<MessageHandler>>,
}

pub(super) type MessageHandler = Box<dyn FnMut(ReceivedMessage) + Send>;

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
    pub(super) fn new(receive: MessageHandler) -> Self {
        Self {
            ended: Mutex::default(),
            changed: Condvar::new(),
            complaints: Mutex::default(),
            receive: Mutex::new(Some(receive)),
        }
    }

    /// Watches a process that leads this group, in threads that end when it does.
    pub(super) fn watch(self: &Arc<Self>, group: Pid, stdout: ChildStdout, stderr: ChildStderr) {
        let (waiter, reader, listener) = (self.clone(), self.clone(), self.clone());
        thread::spawn(move || waiter.wait(group));
        thread::spawn(move || reader.read_stdout(stdout));
        thread::spawn(move || listener.read_stderr(stderr));
    }

    /// How the process ended. `None` if it has not ended in time.
    pub(super) fn exit(&self, within: Duration) -> Option<String> {
        self.wait_for(within, |ended| ended.exit.clone())
    }

    /// The end of its standard error.
    pub(super) fn complaints(&self) -> String {
        String::from_utf8_lossy(&unpoisoned(&self.complaints)).trim().to_owned()
    }

    /// Reports no more events, except one that `receive` is handling now.
    pub(super) fn stop_reporting(&self) {
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

    fn read_stderr(&self, mut stderr: impl Read) {
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut chunk) {
            let mut kept = unpoisoned(&self.complaints);
            kept.extend_from_slice(&chunk[..count]);
            let surplus = kept.len().saturating_sub(COMPLAINTS);
            kept.drain(..surplus);
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
