//! The library `redquorum` as a client process of the simulation, with its wakers, futures and
//! buffers.
//!
//! Each process has a Tokio runtime of its own, with one thread and a paused clock. The simulation
//! advances that clock to the time of each event, and runs the tasks until all of them wait. Timers
//! of Tokio fire at whole milliseconds, so the process asks to be woken at each of them.
//!
//! The connections of the library are bytes in memory: a connection of the simulation carries whole
//! commands and replies.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::client::requests::RequestHandler;
use crate::client::{ChooseNeglect, Neglect, Output, build, builder, ready};
use crate::unpoisoned;
use redquorum::connect::{Connecting, Connection, Hello, Node};
use redquorum::memory::Repeatable;
use redquorum_protocol::wire::Greeting;
use redquorum_protocol::{Time, Waiter};
use redquorum_redis_model::{Request as MasterRequest, ServerReply, greet};
use redquorum_scenario::client_protocol::{ClientLine, Notice, Options, Request};
use redquorum_scenario::history::History;
use redquorum_scenario::{Mutant, Scenario};
use redquorum_simulator::client_machine::{Clocks, InputContext, ProcessEffect, ProcessEvent};
use redquorum_simulator::{SimulatedProcess, run_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often the tasks get a turn at each event. A turn ends when all tasks wait. Timers that are
/// due fire at its end, and their tasks run in the next turn.
const TURNS: usize = 4;
/// The interval of Tokio's timers, in nanoseconds.
const TIMER: u64 = 1_000_000;

/// Runs one of a scenario's [runs](Scenario::runs) with the library itself: Tokio's clock is paused
/// and advances with the simulation, and the library's connections end in the models of the
/// masters.
pub fn run(scenario: &Scenario, seed: u64) -> History {
    run_with::<Library<false>>(scenario, seed, "library")
}

/// Like [`run`], but the callers of some requests neglect their futures: at random polls they drop
/// them, or do not poll them for a while. A caller cannot fork its process in virtual time.
pub fn run_with_neglect(scenario: &Scenario, seed: u64) -> History {
    run_with::<Library<true>>(scenario, seed, "library")
}

/// See the [module](self). With `NEGLECTS`, the callers of some requests neglect their futures.
struct Library<const NEGLECTS: bool> {
    runtime: Runtime,
    sockets: Arc<Sockets>,
    requests: mpsc::UnboundedSender<Request>,
    messages: mpsc::UnboundedReceiver<ClientLine>,
    is_ready: bool,
    /// What the clock of the runtime shows.
    now: Time,
    repeatable: Repeatable,
}

impl<const NEGLECTS: bool> SimulatedProcess for Library<NEGLECTS> {
    fn start(options: Options, nodes: usize, _: Mutant, context: &mut InputContext<'_>) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // A turn ends only when all tasks wait.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime without I/O needs nothing of the system");
        let sockets =
            Arc::new(Sockets::new(options.restart_guard_ms.is_some(), context.rng.random()));
        let (requests, asked) = mpsc::unbounded_channel();
        let (tell, messages) = mpsc::unbounded_channel();
        let seed: Option<u64> = NEGLECTS.then(|| context.rng.random());
        let random = seed.map(AtomicU64::new);
        // In every other process, futures are only dropped.
        let idles = seed.is_some_and(|seed| seed >> 40 & 1 == 1);
        let choose = move || random.as_ref().and_then(|random| choose_neglect(random, idles));
        runtime.spawn(serve(sockets.clone(), nodes, options, Box::new(choose), (asked, tell)));
        let repeatable = Repeatable::new(context.rng.random());
        let now = context.clocks.monotonic;
        assert_eq!(now, Time::ZERO, "stamps are counted from the start of the process");
        let mut process =
            Self { runtime, sockets, requests, messages, is_ready: false, now, repeatable };
        process.run(context);
        process
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>) {
        self.sockets.unblock();
        match event {
            ProcessEvent::Requested(request) => {
                // The send fails only if the client has panicked, which `run` reports.
                let _ = self.requests.send(request);
            }
            ProcessEvent::Connected { node, epoch, greeting } => {
                self.sockets.opened((node, epoch), greeting);
            }
            ProcessEvent::Closed { node, epoch, why, .. } => {
                self.sockets.closed((node, epoch), why);
            }
            ProcessEvent::Replied { node, epoch, value, .. } => {
                self.sockets.received((node, epoch), &ServerReply::Value(value));
            }
            ProcessEvent::Woken { node, epoch, waiter_id } => {
                // The library does not read the inbox.
                let waiter = Waiter { inbox: 0, waiter_id };
                self.sockets.received((node, epoch), &ServerReply::Woken(waiter));
            }
            ProcessEvent::Wake => {}
        }
        self.run(context);
    }

    fn next_wake(&self, _: Clocks) -> Time {
        Time::from_nanos((self.now.as_nanos() / TIMER + 1) * TIMER)
    }
}

impl<const NEGLECTS: bool> Library<NEGLECTS> {
    /// Advances the clock of the runtime to the present, runs the tasks until all of them wait, and
    /// collects their effects.
    fn run(&mut self, context: &mut InputContext<'_>) {
        let passed = context.clocks.monotonic.since(self.now);
        self.now = context.clocks.monotonic;
        let runtime = &self.runtime;
        self.repeatable.run(context.clocks.wall.as_nanos() / 1000, || {
            runtime.block_on(async {
                if !passed.is_zero() {
                    tokio::time::advance(passed).await;
                }
                // While this future yields, the clock does not advance by itself.
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
            });
        });
        context.out.append(&mut self.sockets.take_effects());
        while let Ok(message) = self.messages.try_recv() {
            self.is_ready |= matches!(message, ClientLine::Notice(Notice::Ready { .. }));
            context.out.push(ProcessEffect::Tell(message));
        }
        assert!(!self.messages.is_closed(), "the client has ended");
    }
}

/// Chooses how the future of the next request is neglected. One in four is dropped at some poll.
/// With `idles`, one more is left alone: for a moment, or for longer than the lock waits for its
/// caller. Then it is dropped, or polled to its end.
fn choose_neglect(random: &AtomicU64, idles: bool) -> Option<Neglect> {
    let number = next(random.load(Ordering::Relaxed));
    random.store(number, Ordering::Relaxed);
    let number = number >> 33;
    let (polls, rest) = (u32::try_from(number / 4 % 9).unwrap_or(0), number / 36);
    let (idle, drops) = match number % 4 {
        0 => (0, true),
        1 if idles => {
            let idle =
                if rest.is_multiple_of(2) { 1 + rest / 4 % 60 } else { 500 + rest / 4 % 3_500 };
            (idle, rest / 2 % 2 == 0)
        }
        _ => return None,
    };
    Some(Neglect { polls, idle: Duration::from_millis(idle), drops })
}

/// Builds the lock, and handles the requests of the harness.
async fn serve(
    sockets: Arc<Sockets>,
    nodes: usize,
    options: Options,
    neglect: Box<ChooseNeglect>,
    (mut requests, tell): (mpsc::UnboundedReceiver<Request>, mpsc::UnboundedSender<ClientLine>),
) {
    let output = Output::Channel(tell, Instant::now());
    let addresses: Vec<Address> =
        (0..nodes).map(|node| Address::new(sockets.clone(), node)).collect();
    let lock = build(builder(&addresses, &options).tokio_clock_for_tests(), &options).await;
    let lock = lock.unwrap_or_else(|why| panic!("the lock cannot be built: {why}"));
    output.tell(ready());
    let handler = RequestHandler::new(output, lock.into(), options.fencing, neglect);
    while let Some(request) = requests.recv().await {
        handler.handle(request);
    }
}

/// Identifies a connection: the master's index, and a number that the process never reuses.
type Id = (usize, u64);

/// A direction of a connection, from the library's side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// All connections of a process. Now and then a connection takes or gives only a part of the bytes,
/// or none until the next event, as a socket does whose buffer is full or empty.
struct Sockets {
    /// The number of commands in a handshake.
    handshake: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    open: BTreeMap<Id, Stream>,
    /// The effects that the simulation has not carried out yet.
    effects: Vec<ProcessEffect>,
    /// The directions of connections that wait for the next event.
    blocked: Vec<(Id, Direction)>,
    random: u64,
    /// Why the bytes of the library make no sense. The library would take a panic for a broken
    /// connection.
    fault: Option<String>,
}

/// The bytes of a connection.
#[derive(Default)]
struct Stream {
    greeting: Option<Greeting>,
    /// The number of commands of the handshake that were answered.
    greeted: usize,
    /// The start of a command.
    outgoing: Vec<u8>,
    /// The bytes that the library has not read.
    incoming: Vec<u8>,
    /// Why no more bytes will come.
    closed: Option<Arc<str>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Sockets {
    fn new(guarded: bool, random: u64) -> Self {
        let handshake = Hello::default().handshake(guarded).replies();
        Self { handshake, state: Mutex::new(State { random, ..State::default() }) }
    }

    /// Lets the connections continue that took or gave no bytes.
    fn unblock(&self) {
        let blocked = std::mem::take(&mut unpoisoned(&self.state).blocked);
        blocked.into_iter().for_each(|(id, _)| self.change(id, |_| ()));
    }

    /// Takes the effects since the last call.
    fn take_effects(&self) -> Vec<ProcessEffect> {
        let mut state = unpoisoned(&self.state);
        if let Some(fault) = state.fault.take() {
            panic!("{fault}");
        }
        std::mem::take(&mut state.effects)
    }

    /// A connection opened.
    fn opened(&self, id: Id, greeting: Greeting) {
        self.change(id, |stream| stream.greeting = Some(greeting));
    }

    /// A connection did not open, or broke.
    fn closed(&self, id: Id, why: Arc<str>) {
        self.change(id, |stream| stream.closed = Some(why));
    }

    /// The master replied, or woke a waiter.
    fn received(&self, id: Id, message: &ServerReply) {
        self.change(id, |stream| message.encode(&mut stream.incoming));
    }

    /// Changes a connection, and wakes the tasks that wait for it. Does nothing if the library has
    /// dropped it.
    fn change(&self, id: Id, change: impl FnOnce(&mut Stream)) {
        let mut state = unpoisoned(&self.state);
        let Some(stream) = state.open.get_mut(&id) else { return };
        change(stream);
        let wakers = [stream.reader.take(), stream.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl State {
    fn stream(&mut self, id: Id) -> &mut Stream {
        self.open.get_mut(&id).expect("it is here until it is dropped")
    }

    /// How many of these bytes pass now: all of them, some or none.
    fn part(&mut self, id: Id, direction: Direction, length: usize) -> usize {
        if self.blocked.contains(&(id, direction)) {
            return 0;
        }
        self.random = next(self.random);
        let random = usize::try_from(self.random >> 33).unwrap_or(0);
        match random % 16 {
            0 => {
                self.blocked.push((id, direction));
                0
            }
            1 => 1 + random / 16 % length,
            _ => length,
        }
    }

    /// Takes bytes that the library writes.
    fn write(&mut self, id: Id, bytes: &[u8], handshake: usize) {
        let mut outgoing = std::mem::take(&mut self.stream(id).outgoing);
        outgoing.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            match MasterRequest::parse(&outgoing[used..]) {
                Ok(Some((request, length))) => {
                    used += length;
                    if let Err(fault) = self.command(id, request, handshake) {
                        self.fault = Some(fault);
                    }
                }
                Ok(None) => break,
                Err(malformed) => {
                    self.fault = Some(malformed.to_string());
                    break;
                }
            }
        }
        outgoing.drain(..used);
        self.stream(id).outgoing = outgoing;
    }

    fn command(&mut self, id: Id, request: MasterRequest, handshake: usize) -> Result<(), String> {
        let stream = self.stream(id);
        if stream.greeted < handshake {
            stream.greeted += 1;
            let greeting = stream.greeting.as_ref().ok_or("the library writes too early")?;
            let reply = greet(&request, greeting);
            let reply = reply.ok_or_else(|| format!("no command of a handshake: {request:?}"))?;
            reply.frame().encode(&mut stream.incoming);
            return Ok(());
        }
        let MasterRequest::Lock(command) = request else {
            return Err(format!("no command of a lock: {request:?}"));
        };
        self.effects.push(ProcessEffect::Write { node: id.0, epoch: id.1, command });
        Ok(())
    }
}

/// The next state of a generator of Knuth's, whose upper bits are random enough.
const fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// The address of a master.
#[derive(Clone)]
struct Address {
    sockets: Arc<Sockets>,
    node: usize,
}

impl Address {
    fn new(sockets: Arc<Sockets>, node: usize) -> Self {
        Self { sockets, node }
    }
}

impl Node for Address {
    fn name(&self) -> String {
        format!("master-{}", self.node + 1)
    }

    fn connect(&self) -> Connecting<'_> {
        let socket = Socket::dial(self.sockets.clone(), self.node);
        Box::pin(async move {
            poll_fn(|cx| socket.poll_opened(cx)).await?;
            Ok(Box::new(socket) as Box<dyn Connection>)
        })
    }
}

/// The library's end of a connection. The drop resets it, or gives up the attempt.
struct Socket {
    sockets: Arc<Sockets>,
    id: Id,
}

impl Socket {
    fn dial(sockets: Arc<Sockets>, node: usize) -> Self {
        let mut state = unpoisoned(&sockets.state);
        state.last += 1;
        let id = (node, state.last);
        state.open.insert(id, Stream::default());
        state.effects.push(ProcessEffect::Dial { node, epoch: id.1 });
        drop(state);
        Self { sockets, id }
    }

    fn poll_opened(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = unpoisoned(&self.sockets.state);
        let stream = state.stream(self.id);
        if let Some(why) = &stream.closed {
            return Poll::Ready(Err(io::Error::other(why.to_string())));
        }
        if stream.greeting.is_some() {
            return Poll::Ready(Ok(()));
        }
        stream.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let (node, epoch) = self.id;
        let mut state = unpoisoned(&self.sockets.state);
        state.open.remove(&self.id);
        state.effects.push(ProcessEffect::Close { node, epoch });
    }
}

impl Connection for Socket {}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = unpoisoned(&self.sockets.state);
        let stream = state.stream(self.id);
        if !stream.incoming.is_empty() {
            let length = stream.incoming.len().min(buffer.remaining());
            let length = state.part(self.id, Direction::Read, length);
            if length > 0 {
                let stream = state.stream(self.id);
                buffer.put_slice(&stream.incoming[..length]);
                stream.incoming.drain(..length);
                return Poll::Ready(Ok(()));
            }
        } else if let Some(why) = &stream.closed {
            return Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionReset, why.to_string())));
        }
        state.stream(self.id).reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = unpoisoned(&self.sockets.state);
        if state.stream(self.id).closed.is_some() {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let length = state.part(self.id, Direction::Write, bytes.len());
        if length == 0 {
            state.stream(self.id).writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.write(self.id, &bytes[..length], self.sockets.handshake);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
