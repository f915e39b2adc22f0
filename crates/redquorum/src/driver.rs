//! Driver: moves bytes between one [`Link`] and its master, and does nothing else.
//!
//! A [`LinkCell`] is a link machine with its socket behind one lock. Callers enter it to queue a
//! command: on an idle link they write it themselves, which saves a change of tasks; on a busy
//! one the task of the cell does, which writes what has gathered at once. That task also reads,
//! dials, and wakes the machine. Whatever is decided, is decided in the machine.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redquorum_protocol::wire::{Greeting, MAX_REPLY, parse};
use redquorum_protocol::{
    Answer, Bounds, Cause, Link, LinkEffect, LinkInput, NodeId, Roster, Time,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;

use crate::clock::Clock;
use crate::node::{Connection, Node};
use crate::stats::Tally;
use crate::tag::Tag;
use crate::trace;

/// How long the last clean-ups are tried after the lock and all its leases were dropped.
const LINGER: Duration = Duration::from_secs(30);

/// How much is read at once.
const CHUNK: usize = 8 * 1024;

/// One master's link, socket and counters.
pub(crate) struct LinkCell {
    pub(crate) node: NodeId,
    pub(crate) name: Arc<str>,
    clock: Clock,
    /// Told when a link was tried, and on every turn while it shuts down.
    changed: Arc<Notify>,
    state: Mutex<State>,
}

struct State {
    name: Arc<str>,
    link: Link<Tag>,
    effects: Vec<LinkEffect<Tag>>,
    connection: Option<(u64, Box<dyn Connection>)>,
    outgoing: Vec<u8>,
    written: usize,
    incoming: Vec<u8>,
    filled: usize,
    /// What the task is to do about dialling.
    dial: Option<Dial>,
    /// When the task's timer fires.
    armed: Time,
    task: Option<Waker>,
    shutting_down: bool,
    /// Since when nobody uses the lock any more.
    closing: Option<Time>,
    tally: Tally,
}

#[derive(Clone, Copy)]
enum Dial {
    Start(u64),
    Cancel,
}

type Told = Vec<(Tag, Answer)>;

impl LinkCell {
    pub(crate) fn new(
        node: NodeId,
        name: Arc<str>,
        clock: Clock,
        bounds: Bounds,
        changed: Arc<Notify>,
    ) -> Self {
        let mut effects = Vec::new();
        let link = Link::start(bounds, &mut effects);
        let mut state = State {
            name: name.clone(),
            link,
            effects,
            connection: None,
            outgoing: Vec::new(),
            written: 0,
            incoming: vec![0; CHUNK],
            filled: 0,
            dial: None,
            armed: Time::NEVER,
            task: None,
            shutting_down: false,
            closing: None,
            tally: Tally::default(),
        };
        state.carry_out(&mut Vec::new());
        Self { node, name, clock, changed, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change, so a poisoned lock is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the link one input from a caller. Nothing is written yet: see [`LinkCell::flush`].
    ///
    /// Returns what the link told the caller's own tag at once; it tells nobody else here.
    pub(crate) fn enter(&self, now: Time, input: LinkInput<Tag>) -> Option<(Tag, Answer)> {
        let mut told = Vec::new();
        self.lock().handle(now, input, &mut told);
        debug_assert!(told.len() <= 1, "a caller's input is answered to the caller alone");
        told.pop()
    }

    /// Sees to it that what was queued gets written.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        if state.link.unanswered() <= 1 && !state.outgoing.is_empty() {
            // With nobody to wake: if the socket is full or broken, the task finds out.
            let _ = state.write(&mut Context::from_waker(Waker::noop()));
        }
        // Also if the task's timer would fire too late for what was queued.
        if !state.outgoing.is_empty() || state.link.next_wake() < state.armed {
            wake(state);
        }
    }

    /// No new votes from now on; what is owed is still paid.
    pub(crate) fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        state.handle(self.clock.now(), LinkInput::ShutDown, &mut Vec::new());
    }

    /// Nobody uses the lock any more: the task ends once nothing is owed.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = Some(self.clock.now());
        wake(state);
    }

    /// A look at the machine and its counters.
    pub(crate) fn view<R>(&self, look: impl FnOnce(&Link<Tag>, &Tally) -> R) -> R {
        let state = self.lock();
        look(&state.link, &state.tally)
    }

    /// One turn of the task: reads, wakes the machine, writes and dials until nothing moves.
    fn turn(&self, cx: &mut Context<'_>, task: &mut Task) -> Poll<()> {
        loop {
            let mut told = Vec::new();
            let now = self.clock.now();
            let mut state = self.lock();
            if !state.task.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.task = Some(cx.waker().clone());
            }
            state.read(cx, now, &mut told);
            if now >= state.link.next_wake() {
                state.handle(now, LinkInput::Wake, &mut told);
            }
            if let Poll::Ready(Err(error)) = state.write(cx) {
                state.broken(now, &error.to_string(), &mut told);
            }
            let shutting_down = state.shutting_down;
            let dial = state.dial.take();
            let finished = state.is_finished(now);
            let wanted = state.next_timer();
            state.armed = wanted.min(task.armed);
            drop(state);

            self.deliver(now, told);
            if shutting_down {
                self.changed.notify_waiters();
            }
            if finished {
                return Poll::Ready(());
            }
            match dial {
                Some(Dial::Start(epoch)) => task.dial(epoch),
                Some(Dial::Cancel) => task.dialling = None,
                None => {}
            }
            let mut again = false;
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

    fn dialled(&self, epoch: u64, result: Dialled, roster: &Mutex<Roster>) {
        let result = result.and_then(|(connection, greeting)| {
            let mut roster = roster.lock().unwrap_or_else(PoisonError::into_inner);
            match greeting.run_id.as_ref().map(|id| roster.enter(self.node, id)) {
                Some(Err(twin)) => Err(format!(
                    "it is the same server as {twin}, and one server must not vote twice"
                )),
                _ => Ok((connection, greeting)),
            }
        });
        let mut told = Vec::new();
        let now = self.clock.now();
        let mut state = self.lock();
        match result {
            Ok((connection, Greeting { client_id, run_id })) => {
                trace::connected(&self.name);
                state.tally.connected += 1;
                state.handle(now, LinkInput::Connected { epoch, client_id, run_id }, &mut told);
                // The link may have changed its mind meanwhile.
                if state.link.epoch() == Some(epoch) {
                    state.connection = Some((epoch, connection));
                }
            }
            Err(why) => {
                trace::disconnected(&self.name, &why);
                state.closed(now, epoch, &why, &mut told);
            }
        }
        drop(state);
        self.deliver(now, told);
        self.changed.notify_waiters();
    }

    /// Tells the claims. Never under the link's lock: a claim locks links.
    fn deliver(&self, now: Time, told: Told) {
        for (tag, answer) in told {
            tag.tell(now, self.node, answer);
        }
    }

    /// The task is gone, with its runtime or because nothing is left to do.
    fn abandon(&self) {
        let mut told = Vec::new();
        let now = self.clock.now();
        let mut state = self.lock();
        state.handle(now, LinkInput::ShutDown, &mut told);
        state.broken(now, "the runtime of the lock was shut down", &mut told);
        drop(state);
        self.deliver(now, told);
        self.changed.notify_waiters();
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let task = state.task.take();
    drop(state);
    if let Some(task) = task {
        task.wake();
    }
}

impl State {
    fn handle(&mut self, now: Time, input: LinkInput<Tag>, told: &mut Told) {
        self.link.handle(now, input, &mut self.effects);
        self.carry_out(told);
    }

    fn carry_out(&mut self, told: &mut Told) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                LinkEffect::Write(command) => command.encode(&mut self.outgoing),
                LinkEffect::Dial(epoch) => self.dial = Some(Dial::Start(epoch)),
                LinkEffect::Close(epoch) => self.close(epoch),
                LinkEffect::Tell(tag, answer) => {
                    self.tally.count(&answer);
                    told.push((tag, answer));
                }
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
        self.effects = effects;
    }

    fn close(&mut self, epoch: u64) {
        if self.connection.as_ref().is_some_and(|(open, _)| *open == epoch) {
            if let Some((_, mut connection)) = self.connection.take() {
                connection.abort();
            }
            self.clear();
        } else {
            self.dial = Some(Dial::Cancel);
        }
    }

    fn clear(&mut self) {
        self.outgoing.clear();
        self.written = 0;
        self.filled = 0;
    }

    fn broken(&mut self, now: Time, why: &str, told: &mut Told) {
        if let Some((epoch, _)) = self.connection.take() {
            trace::disconnected(&self.name, why);
            self.clear();
            self.closed(now, epoch, why, told);
        }
    }

    fn closed(&mut self, now: Time, epoch: u64, why: &str, told: &mut Told) {
        self.handle(
            now,
            LinkInput::Closed { epoch, why: why.into(), random: rand::random() },
            told,
        );
    }

    fn read(&mut self, cx: &mut Context<'_>, now: Time, told: &mut Told) {
        while let Some((_, connection)) = &mut self.connection {
            let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
            match Pin::new(connection).poll_read(cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => self.broken(now, &error.to_string(), told),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    self.broken(now, "closed by the master", told);
                }
                Poll::Ready(Ok(())) => {
                    self.filled += buffer.filled().len();
                    self.parse(now, told);
                }
            }
        }
    }

    fn parse(&mut self, now: Time, told: &mut Told) {
        let mut used = 0;
        while let Some((epoch, _)) = self.connection {
            let oldest = self.link.oldest();
            let answer = match parse(&self.incoming[used..self.filled], MAX_REPLY) {
                Ok(None) => break,
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
        }
        // Zero if the connection was closed on the way.
        self.incoming.copy_within(used.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(used);
        if self.filled == self.incoming.len() {
            self.incoming.resize(2 * self.filled, 0);
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Some((_, connection)) = &mut self.connection else { return Poll::Ready(Ok(())) };
        let mut connection = Pin::new(connection);
        while self.written < self.outgoing.len() {
            match connection.as_mut().poll_write(cx, &self.outgoing[self.written..]) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        connection.poll_flush(cx)
    }

    fn next_timer(&self) -> Time {
        let linger = self.closing.map_or(Time::NEVER, |since| since.plus(LINGER));
        self.link.next_wake().min(linger)
    }

    fn is_finished(&self, now: Time) -> bool {
        self.closing.is_some_and(|since| self.link.owed() == 0 || now >= since.plus(LINGER))
    }
}

/// What the task of a cell owns alone.
struct Task {
    node: Arc<dyn Node>,
    connect_timeout: Duration,
    roster: Arc<Mutex<Roster>>,
    dialling: Option<(u64, Dialling)>,
    timer: Pin<Box<Sleep>>,
    armed: Time,
}

type Dialling = Pin<Box<dyn Future<Output = Dialled> + Send>>;

type Dialled = Result<(Box<dyn Connection>, Greeting), String>;

impl Task {
    fn dial(&mut self, epoch: u64) {
        let (node, limit) = (self.node.clone(), self.connect_timeout);
        self.dialling = Some((
            epoch,
            Box::pin(async move {
                match tokio::time::timeout(limit, greet(&*node)).await {
                    Ok(result) => result,
                    Err(_) => Err(format!("no connection within the connect timeout ({limit:?})")),
                }
            }),
        ));
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

/// Opens a connection and says hello.
async fn greet(node: &dyn Node) -> Dialled {
    let io = |error: std::io::Error| error.to_string();
    let hello = node.hello();
    let mut connection = node.connect().await.map_err(io)?;
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    connection.write_all(&bytes).await.map_err(io)?;
    connection.flush().await.map_err(io)?;
    let mut greeting = Greeting::default();
    let mut incoming = Vec::with_capacity(CHUNK);
    let mut answers = 0;
    while answers < hello.answers() {
        if connection.read_buf(&mut incoming).await.map_err(io)? == 0 {
            return Err("closed by the master before it answered".into());
        }
        while let Some((frame, used)) =
            parse(&incoming, MAX_REPLY).map_err(|error| error.to_string())?
        {
            hello.read(answers, &frame, &mut greeting).map_err(|unfit| unfit.0.to_string())?;
            answers += 1;
            incoming.drain(..used);
        }
    }
    if incoming.is_empty() {
        Ok((connection, greeting))
    } else {
        Err("more answers than commands".into())
    }
}

/// Runs a cell until nothing is left for it to do, or its runtime ends.
pub(crate) async fn drive(
    cell: Arc<LinkCell>,
    node: Arc<dyn Node>,
    connect_timeout: Duration,
    roster: Arc<Mutex<Roster>>,
) {
    /// Whoever waits for an answer must not wait for a task that is gone.
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
