//! Lateness: whether this machine ran everything in time during a run.
//!
//! Clients and masters of a run are processes of this machine. The machine may stall for longer
//! than a reply may take, because of other virtual machines or of a build beside the run. Then
//! acquires fail although no fault of the scenario touches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the watching thread sleeps each time.
const STEP: Duration = Duration::from_millis(5);

/// A thread that sleeps again and again, and notes how late it wakes up.
pub(super) struct Lateness {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    done: AtomicBool,
    worst_ns: AtomicU64,
}

impl Lateness {
    /// Starts the watching thread.
    pub(super) fn watch() -> Self {
        let state = Arc::new(State::default());
        let watched = Arc::clone(&state);
        let thread = thread::spawn(move || {
            while !watched.done.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(STEP);
                let late = before.elapsed().saturating_sub(STEP).as_nanos();
                watched
                    .worst_ns
                    .fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// The largest delay so far.
    pub(super) fn worst(&self) -> Duration {
        Duration::from_nanos(self.state.worst_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.state.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread ends within one step.
            drop(thread.join());
        }
    }
}
