//! Watches a client process in three threads: one waits for its end, one reads its standard output,
//! and one keeps its standard error. Called by `process.rs`.

use std::io::Read;
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::lines::{Cut, Lines};
use super::{ReceivedMessage, Word};
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
    hear: Mutex<Option<MessageHandler>>,
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
    pub(super) fn new(hear: MessageHandler) -> Self {
        Self {
            ended: Mutex::default(),
            changed: Condvar::new(),
            complaints: Mutex::default(),
            hear: Mutex::new(Some(hear)),
        }
    }

    /// Watches a process that leads this group, in threads that end when it does.
    pub(super) fn watch(self: &Arc<Self>, group: Pid, stdout: ChildStdout, stderr: ChildStderr) {
        let (waiter, reader, listener) = (self.clone(), self.clone(), self.clone());
        thread::spawn(move || waiter.wait(group));
        thread::spawn(move || reader.read(stdout));
        thread::spawn(move || listener.listen(stderr));
    }

    /// How the process ended. `None` if it has not ended in time.
    pub(super) fn exit(&self, within: Duration) -> Option<String> {
        self.wait_for(within, |ended| ended.exit.clone())
    }

    /// The end of its standard error.
    pub(super) fn complaints(&self) -> String {
        String::from_utf8_lossy(&unpoisoned(&self.complaints)).trim().to_owned()
    }

    /// Reports no more events, except one that `hear` is handling now.
    pub(super) fn hush(&self) {
        if let Ok(mut hear) = self.hear.try_lock() {
            *hear = None;
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

    fn read(&self, stdout: impl Read) {
        let mut lines = Lines::new(stdout);
        while let Some(cut) = lines.next() {
            self.tell(match cut {
                Cut::Line(line) => String::from_utf8(line).map_or(Word::NotUtf8, Word::Line),
                Cut::TooLong => Word::TooLong,
            });
        }
        self.change(|ended| ended.silent = true);
        if self.wait_for(ENDING, |ended| ended.exit.clone()).is_none() {
            self.close("it closed its standard output and goes on".to_owned());
        }
    }

    fn listen(&self, mut stderr: impl Read) {
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut chunk) {
            let mut kept = unpoisoned(&self.complaints);
            kept.extend_from_slice(&chunk[..count]);
            let surplus = kept.len().saturating_sub(COMPLAINTS);
            kept.drain(..surplus);
        }
        self.change(|ended| ended.done_complaining = true);
    }

    fn tell(&self, what: Word) {
        if let Some(hear) = &mut *unpoisoned(&self.hear) {
            hear(ReceivedMessage { at: Instant::now(), what });
        }
    }

    /// Reports the end, once.
    fn close(&self, exit: String) {
        let mut hear = unpoisoned(&self.hear);
        if let Some(mut hear) = hear.take() {
            hear(ReceivedMessage { at: Instant::now(), what: Word::Closed(exit) });
        }
    }

    fn change(&self, change: impl FnOnce(&mut Ended)) {
        change(&mut unpoisoned(&self.ended));
        self.changed.notify_all();
    }

    fn wait_for<T>(&self, within: Duration, look: impl Fn(&Ended) -> Option<T>) -> Option<T> {
        let until = Instant::now() + within;
        let mut ended = unpoisoned(&self.ended);
        loop {
            if let Some(found) = look(&ended) {
                return Some(found);
            }
            let left = until.checked_duration_since(Instant::now())?;
            ended = self
                .changed
                .wait_timeout(ended, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(ended, _)| ended);
        }
    }
}
