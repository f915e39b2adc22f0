//! The connections of the library, as bytes in memory: a connection of the simulation carries whole
//! commands and replies.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use redquorum::connect::{Connecting, Connection, Hello, Node};
use redquorum_protocol::wire::Greeting;
use redquorum_redis_model::{Request, ServerReply, greet};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::mutex::unpoisoned;
use redquorum_simulator::client_machine::ProcessEffect;

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
pub(super) struct Sockets {
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
    pub(super) fn new(guarded: bool, random: u64) -> Self {
        let handshake = Hello::default().handshake(guarded).replies();
        Self { handshake, state: Mutex::new(State { random, ..State::default() }) }
    }

    /// Lets the connections continue that took or gave no bytes.
    pub(super) fn unblock(&self) {
        let blocked = std::mem::take(&mut unpoisoned(&self.state).blocked);
        blocked.into_iter().for_each(|(id, _)| self.change(id, |_| ()));
    }

    /// Takes the effects since the last call.
    pub(super) fn take_effects(&self) -> Vec<ProcessEffect> {
        let mut state = unpoisoned(&self.state);
        if let Some(fault) = state.fault.take() {
            panic!("{fault}");
        }
        std::mem::take(&mut state.effects)
    }

    /// A connection opened.
    pub(super) fn opened(&self, id: Id, greeting: Greeting) {
        self.change(id, |stream| stream.greeting = Some(greeting));
    }

    /// A connection did not open, or broke.
    pub(super) fn closed(&self, id: Id, why: Arc<str>) {
        self.change(id, |stream| stream.closed = Some(why));
    }

    /// The master replied, or woke a waiter.
    pub(super) fn received(&self, id: Id, message: &ServerReply) {
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
            match Request::parse(&outgoing[used..]) {
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

    fn command(&mut self, id: Id, request: Request, handshake: usize) -> Result<(), String> {
        let stream = self.stream(id);
        if stream.greeted < handshake {
            stream.greeted += 1;
            let greeting = stream.greeting.as_ref().ok_or("the library writes too early")?;
            let reply = greet(&request, greeting);
            let reply = reply.ok_or_else(|| format!("no command of a handshake: {request:?}"))?;
            reply.frame().encode(&mut stream.incoming);
            return Ok(());
        }
        let Request::Lock(command) = request else {
            return Err(format!("no command of a lock: {request:?}"));
        };
        self.effects.push(ProcessEffect::Write { node: id.0, epoch: id.1, command });
        Ok(())
    }
}

/// The next state of a generator of Knuth's, whose upper bits are random enough.
pub(super) const fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// The address of a master.
pub(super) struct Address {
    sockets: Arc<Sockets>,
    node: usize,
}

impl Address {
    pub(super) fn new(sockets: Arc<Sockets>, node: usize) -> Self {
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
