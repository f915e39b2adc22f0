//! Waits that end within some ten microseconds of their instant. The timers of the runtime are a
//! millisecond wide, as wide as the latency of a network. Used by `connection.rs`.

use std::{
    collections::BTreeMap,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::sleep_until};

/// The last part of a wait. The runtime's timers do the rest, so that few waits are under way here.
const FINE: Duration = Duration::from_millis(2);

type Wait = (Instant, oneshot::Sender<()>);

/// A thread that ends with the last of its timers.
#[derive(Debug, Clone)]
pub(super) struct Timer(Sender<Wait>);

impl Timer {
    pub(super) fn start() -> io::Result<Self> {
        let (waits, receiver) = channel();
        let thread = thread::Builder::new().name("network timer".to_owned());
        thread.spawn(move || wake(&receiver))?;
        Ok(Self(waits))
    }

    pub(super) async fn until(&self, at: Instant) {
        // On a busy machine the thread may get no processor in time: the runtime's timer is first.
        tokio::select! {
            () = sleep_until(at.into()) => {}
            () = self.finely(at) => {}
        }
    }

    async fn finely(&self, at: Instant) {
        if let Some(coarse) = at.checked_sub(FINE) {
            sleep_until(coarse.into()).await;
        }
        let (wake, woken) = oneshot::channel();
        // The thread lives as long as `self`.
        let _sent = self.0.send((at, wake));
        let _woken = woken.await;
    }
}

fn wake(waits: &Receiver<Wait>) {
    let mut waiting = BTreeMap::new();
    for number in 0_u64.. {
        let received = match waiting.first_key_value() {
            Some(((at, _), _)) => {
                waits.recv_timeout(Instant::saturating_duration_since(at, Instant::now()))
            }
            None => waits.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok((at, wake)) => drop(waiting.insert((at, number), wake)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some((_, wake)) = waiting.pop_first() {
                    // Nobody receives it if the wait was given up.
                    let _sent = oneshot::Sender::send(wake, ());
                }
            }
        }
    }
}
