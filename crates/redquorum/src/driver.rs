//! Driver: the task that moves bytes between one link machine and its master.
//!
//! It reads, dials, wakes the machine, and writes what callers left to it. Whatever is decided,
//! is decided in the machine.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum_protocol::wire::{Greeting, Hello, MAX_REPLY, is_unasked, parse, woken};
use redquorum_protocol::{Answer, Cause, LinkInput, LinkState, Roster, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Sleep;

use crate::clock::Clock;
use crate::dice::number;
use crate::io::Io;
use crate::link::{LinkCell, State, Told};
use crate::node::{Connection, Node};
use crate::trace;

/// How often a driver whose lock was dropped looks whether what it owes has expired meanwhile.
const LINGER: Duration = Duration::from_secs(1);

impl State {
    /// Gives the link the answers that have come.
    fn answer(&mut self, io: &mut Io, now: Time, told: &mut Told) {
        let mut used = 0;
        while let Some(epoch) = io.epoch()
            && used < io.unread()
        {
            let skipped = io.skip(used);
            if let Ok(length @ 1..) = skipped {
                used += length;
                continue;
            }
            let oldest = self.link.oldest();
            let answer = match skipped.and_then(|_| io.first(used)) {
                Ok(None) => break,
                Ok(Some((frame, length))) if is_unasked(&frame) => {
                    used += length;
                    if let Some(ticket) = woken(&frame) {
                        self.handle(now, LinkInput::Woken { epoch, ticket }, told);
                    }
                    continue;
                }
                Ok(Some((frame, length))) => {
                    used += length;
                    // An answer to no command is for the link to judge.
                    oldest.map_or(Answer::Alive, |(expect, _)| expect.read(&frame))
                }
                Err(_) => Answer::Unknown(Cause::Garbage),
            };
            if let Some((_, sent)) = oldest {
                self.tally.took(now.since(sent));
            }
            self.handle(now, LinkInput::Answered { epoch, answer }, told);
            self.close(io);
        }
        // Nothing is left of a connection that was closed on the way.
        io.consume(used.min(io.unread()));
    }

    /// Closes the current connection if the link says so. Tries are closed by the task.
    fn close(&mut self, io: &mut Io) {
        let open = io.epoch();
        if let Some(index) = self.close.iter().position(|epoch| Some(*epoch) == open) {
            self.close.swap_remove(index);
            io.close(true);
        }
    }

    /// The connection broke by itself.
    fn broken(&mut self, io: &mut Io, now: Time, why: &str, told: &mut Told) {
        if let Some(epoch) = io.close(false) {
            self.queued.clear();
            self.closed(now, epoch, why, told);
        }
    }

    fn closed(&mut self, now: Time, epoch: u64, why: &str, told: &mut Told) {
        let input = LinkInput::Closed { epoch, why: why.into(), random: number() };
        self.handle(now, input, told);
    }

    fn next_timer(&self, now: Time) -> Time {
        let linger = if self.closing { now.plus(LINGER) } else { Time::NEVER };
        self.link.next_wake().min(linger)
    }

    /// Whether nobody uses the lock any more and all that is owed is paid, or gone by itself.
    fn is_finished(&self, now: Time) -> bool {
        self.closing && self.link.owed_and_alive(now) == 0
    }
}

impl LinkCell {
    fn lock_io(&self) -> MutexGuard<'_, Io> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the driver, until nothing moves any more.
    fn turn(&self, cx: &mut Context<'_>, task: &mut Task) -> Poll<()> {
        loop {
            let mut told = Told::default();
            let mut io = self.lock_io();
            {
                // First of all, so that whatever is queued from here on wakes this task again.
                let mut state = self.lock();
                if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    state.driver = Some(cx.waker().clone());
                }
            }
            while let Poll::Ready(read) = io.read(cx) {
                let now = self.clock.now();
                let mut state = self.lock();
                match read {
                    Ok(()) => state.answer(&mut io, now, &mut told),
                    Err(why) => state.broken(&mut io, now, &why, &mut told),
                }
            }
            let now = self.clock.now();
            let mut state = self.lock();
            if now >= state.link.next_wake() {
                state.handle(now, LinkInput::Wake, &mut told);
                state.close(&mut io);
            }
            io.take(&mut state.queued);
            self.log_change(&mut state, now);
            let shutting_down = state.shutting_down;
            let finished = state.is_finished(now);
            let wanted = state.next_timer(now);
            state.armed = wanted.min(task.armed);
            task.obey(&mut state, self.guarded);
            drop(state);

            io.write(cx);
            let mut again = io.has_failed();
            drop(io);
            self.deliver(told);
            if shutting_down {
                self.changed.notify_waiters();
            }
            if finished {
                return Poll::Ready(());
            }
            if let Some((epoch, dialling)) = &mut task.dialling
                && let Poll::Ready(result) = dialling.as_mut().poll(cx)
            {
                let epoch = *epoch;
                task.dialling = None;
                self.dialled(epoch, result, &task.roster);
                again = true;
            }
            if !again && !task.arm(self.clock, wanted, cx) {
                return Poll::Pending;
            }
        }
    }

    /// Logs whether the master is up, if that has changed.
    fn log_change(&self, state: &mut State, now: Time) {
        let down = match state.link.state() {
            LinkState::Up => None,
            LinkState::Stalled => Some("it leaves commands unanswered".into()),
            // Not known yet.
            LinkState::Down(_) if state.link.is_first_dial() => return,
            LinkState::Down(why) => Some(why),
            _ => return,
        };
        if state.logged_up.replace(down.is_none()) == Some(down.is_none()) {
            return;
        }
        match down {
            Some(why) => trace::master_down(&self.throttle, now, &self.name, &why),
            None => trace::master_up(&self.throttle, now, &self.name),
        }
    }

    fn dialled(&self, epoch: u64, result: Dialled, roster: &Mutex<Roster>) {
        let mut told = Told::default();
        let now = self.clock.now();
        let mut io = self.lock_io();
        let mut state = self.lock();
        if !state.link.awaits(epoch) {
            // The link has changed its mind: this one is dropped.
            return;
        }
        let result = result.and_then(|(connection, hello, greeting)| {
            let mut roster = roster.lock().unwrap_or_else(PoisonError::into_inner);
            match greeting.run_id.as_ref().map(|id| roster.enter(self.node, id)) {
                Some(Err(twin)) => Err(format!(
                    "it is the same server as {twin}, and one server must not vote twice"
                )),
                _ => Ok((connection, hello, greeting)),
            }
        });
        match result {
            Ok((connection, hello, greeting)) => {
                state.tally.connected += 1;
                state.handle(now, LinkInput::Connected { epoch, greeting }, &mut told);
                state.close(&mut io);
                io.open(epoch, connection, hello);
            }
            Err(why) => {
                if state.link.epoch().is_none() {
                    roster.lock().unwrap_or_else(PoisonError::into_inner).leave(self.node);
                }
                state.closed(now, epoch, &why, &mut told);
            }
        }
        drop(state);
        drop(io);
        self.deliver(told);
        self.changed.notify_waiters();
    }

    /// Tells the claims. Never under a lock of the link.
    fn deliver(&self, told: Told) {
        for (tag, answer) in told.answers {
            tag.tell(self.node, answer);
        }
        for (key, word) in told.words {
            self.rooms.heard(self.clock.now(), self.node, &key, word);
        }
    }

    /// The driver is gone, with its runtime or because nothing is left to do.
    fn abandon(&self) {
        let mut told = Told::default();
        let now = self.clock.now();
        let mut io = self.lock_io();
        let mut state = self.lock();
        state.handle(now, LinkInput::ShutDown, &mut told);
        state.broken(&mut io, now, "the runtime of the lock was shut down", &mut told);
        drop(state);
        drop(io);
        self.deliver(told);
        self.changed.notify_waiters();
    }
}

/// What the driver owns alone.
struct Task {
    node: Arc<dyn Node>,
    connect_timeout: Duration,
    roster: Arc<Mutex<Roster>>,
    dialling: Option<(u64, Dialling)>,
    timer: Pin<Box<Sleep>>,
    armed: Time,
}

type Dialling = Pin<Box<dyn Future<Output = Dialled> + Send>>;

type Dialled = Result<(Box<dyn Connection>, Hello, Greeting), String>;

impl Task {
    /// Gives up tries and starts new ones, as the link says.
    fn obey(&mut self, state: &mut State, guarded: bool) {
        for epoch in state.close.drain(..) {
            state.dial = state.dial.filter(|next| *next != epoch);
            self.dialling = self.dialling.take().filter(|(under_way, _)| *under_way != epoch);
        }
        if let Some(epoch) = state.dial.take() {
            let (node, limit) = (self.node.clone(), self.connect_timeout);
            // A second connection beside a stalled one: all clients of the master see it stall at about
            // the same time, and must not dial in step.
            let pause = state.link.epoch().map_or(Duration::ZERO, |_| jitter(limit / 10));
            self.dialling = Some((epoch, Box::pin(dial(node, pause, limit, guarded))));
        }
    }

    /// Arms the timer, unless it fires early enough anyway. Returns whether it has fired.
    fn arm(&mut self, clock: Clock, wanted: Time, cx: &mut Context<'_>) -> bool {
        if wanted < self.armed {
            self.armed = wanted;
            self.timer.as_mut().reset(clock.timer(wanted));
        }
        let fired = self.armed != Time::NEVER && self.timer.as_mut().poll(cx).is_ready();
        if fired {
            self.armed = Time::NEVER;
        }
        fired
    }
}

/// A random pause, up to this.
fn jitter(most: Duration) -> Duration {
    Duration::from_nanos(number() % u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1))
}

async fn dial(node: Arc<dyn Node>, pause: Duration, limit: Duration, guarded: bool) -> Dialled {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let mut greeted = std::pin::pin!(tokio::time::timeout(limit, greet(&*node, guarded)));
    // Also a socket panics, in a runtime without I/O.
    match std::future::poll_fn(|cx| crate::io::guarded(|| greeted.as_mut().poll(cx).map(Ok))).await
    {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("no connection within the connect timeout ({limit:?})")),
        Err(panic) => Err(panic.to_string()),
    }
}

/// Opens a connection and says hello.
async fn greet(node: &dyn Node, guarded: bool) -> Dialled {
    let io = |error: std::io::Error| error.to_string();
    let hello = node.hello();
    let mut connection = node.connect().await.map_err(io)?;
    let mut bytes = Vec::new();
    let handshake = hello.handshake(guarded);
    handshake.encode(&mut bytes);
    connection.write_all(&bytes).await.map_err(io)?;
    connection.flush().await.map_err(io)?;
    let mut greeting = Greeting::default();
    let mut incoming = Vec::new();
    let mut answers = 0;
    while answers < handshake.answers() {
        if connection.read_buf(&mut incoming).await.map_err(io)? == 0 {
            return Err("closed by the master before it answered".into());
        }
        while let Some((frame, used)) =
            parse(&incoming, MAX_REPLY).map_err(|error| error.to_string())?
        {
            let read = handshake.read(answers, &frame, &mut greeting);
            read.map_err(|unfit| unfit.0.to_string())?;
            answers += 1;
            incoming.drain(..used);
        }
    }
    drop(handshake);
    if incoming.is_empty() {
        Ok((connection, hello, greeting))
    } else {
        Err("more answers than commands".into())
    }
}

/// Drives a link until nothing is left to do for it, or its runtime ends.
pub(crate) async fn drive(
    cell: Arc<LinkCell>,
    node: Arc<dyn Node>,
    connect_timeout: Duration,
    roster: Arc<Mutex<Roster>>,
) {
    /// Whoever waits for an answer must not wait for a driver that is gone.
    struct OnExit(Arc<LinkCell>);
    impl Drop for OnExit {
        fn drop(&mut self) {
            self.0.abandon();
        }
    }
    let exit = OnExit(cell);
    let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
    let mut task =
        Task { node, connect_timeout, roster, dialling: None, timer, armed: Time::NEVER };
    std::future::poll_fn(|cx| exit.0.turn(cx, &mut task)).await;
}
