//! Driver: the task that moves bytes between the client and one master.
//!
//! It reads, connects, wakes the link, and writes the bytes that callers left to it. The client
//! makes every decision.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum_protocol::wire::{Greeting, Hello, is_out_of_band, woken};
use redquorum_protocol::{Cause, NodeId, Reply, Time};
use tokio::time::Sleep;

use crate::clock::Clock;
use crate::io::{Io, exchange};
use crate::node::{Connection, Node};
use crate::rng::number;
use crate::shared::{After, Shared, State, Turn, Writer};
use crate::shield::{Shield, shielded};

/// How often the driver of a dropped lock checks whether the keys to delete have expired.
const LINGER: Duration = Duration::from_secs(1);

impl Turn<'_> {
    fn read(&mut self, node: NodeId, io: &mut Io) {
        let mut used = 0;
        while let Some(epoch) = io.epoch()
            && used < io.unread()
        {
            let skipped = io.skip(used);
            if let Ok(length @ 1..) = skipped {
                used += length;
                continue;
            }
            let oldest = self.state.client.link(node).oldest();
            let reply = match skipped.and_then(|_| io.first(used)) {
                Ok(None) => break,
                Ok(Some((frame, length))) if is_out_of_band(&frame) => {
                    used += length;
                    if let Some(waiter_id) = woken(&frame) {
                        self.input(|client, cx| client.woken(node, epoch, waiter_id, cx));
                    }
                    continue;
                }
                Ok(Some((frame, length))) => {
                    used += length;
                    // The link handles a reply without a command.
                    oldest.map_or(Reply::Alive, |(expect, _)| expect.read(&frame))
                }
                Err(_) => Reply::Unknown(Cause::Garbage),
            };
            if let Some((_, sent)) = oldest {
                let took = self.now.since(sent);
                self.state.masters[node.index()].latencies.add(took);
            }
            self.input(|client, cx| client.replied(node, epoch, reply, cx));
            self.close(node, io);
        }
        // Nothing is left if the connection was closed on the way.
        io.consume(used.min(io.unread()));
    }

    /// Closes the current connection if the client has ordered that. The task closes attempts to
    /// connect.
    fn close(&mut self, node: NodeId, io: &mut Io) {
        let close = &mut self.state.masters[node.index()].close;
        if let Some(index) = close.iter().position(|epoch| Some(*epoch) == io.epoch()) {
            close.swap_remove(index);
            if let Some((_, connection)) = io.close() {
                self.discard(connection, true);
            }
        }
    }

    fn broken(&mut self, node: NodeId, io: &mut Io, why: &str) {
        if let Some((epoch, connection)) = io.close() {
            self.discard(connection, false);
            self.input(|client, cx| client.closed(node, epoch, why.into(), number(), cx));
        }
    }

    fn next_timer(&self, node: NodeId) -> Time {
        let linger = if self.state.closing { self.now.plus(LINGER) } else { Time::NEVER };
        self.state.client.link(node).next_wake().min(linger)
    }

    /// Whether the lock was dropped, and all its keys are deleted or have expired.
    fn is_finished(&self, node: NodeId) -> bool {
        self.state.closing && !self.state.client.link(node).is_cleaning_up(self.now)
    }

    #[cfg(feature = "metrics")]
    fn show_gauges(&mut self, node: NodeId) {
        let link = self.state.client.link(node);
        let (up, distrusted) =
            (link.state() == redquorum_protocol::LinkState::Up, link.distrust(self.now).is_some());
        let cleanups = link.pending_cleanups();
        self.state.masters[node.index()].gauges.show(up, distrusted, cleanups);
    }
}

impl Shared {
    /// Runs one turn of the driver, until there is nothing left to do.
    fn drive(&self, node: NodeId, cx: &mut Context<'_>, task: &mut Task) -> Poll<()> {
        let socket = &self.sockets[node.index()];
        if self.is_forked() {
            return Poll::Ready(());
        }
        loop {
            let mut after = After::default();
            let mut io = socket.lock();
            // Register the waker first: bytes that are queued from here on wake this task again.
            let former = {
                let mut outbox = socket.outbox();
                task.looks |= std::mem::take(&mut outbox.orders);
                match &outbox.driver {
                    Some(waker) if waker.will_wake(cx.waker()) => None,
                    _ => outbox.driver.replace(cx.waker().clone()),
                }
            };
            let mut given_up = Vec::new();
            let mut finished = false;
            // A turn that only writes needs no look at the client.
            loop {
                let read = match io.read(cx) {
                    Poll::Ready(read) => Some(read),
                    Poll::Pending if task.looks => None,
                    Poll::Pending => break,
                };
                let mut turn = self.turn();
                match read {
                    Some(Ok(())) => turn.read(node, &mut io),
                    Some(Err(why)) => turn.broken(node, &mut io, &why),
                    None => {}
                }
                turn.input(|client, cx| client.wake_link(node, cx));
                turn.close(node, &mut io);
                turn.log_change(node);
                #[cfg(feature = "metrics")]
                turn.show_gauges(node);
                finished = turn.is_finished(node);
                task.wanted = turn.next_timer(node);
                turn.state.masters[node.index()].armed = task.wanted.min(task.armed);
                given_up.extend(task.obey(node, &mut turn.state, self.guarded));
                after.merge(turn.end(Writer::Driver(node)));
                task.looks = false;
            }
            io.take(&mut socket.outbox());

            io.write(cx);
            let mut again = io.has_failed();
            drop(io);
            drop((former, given_up));
            self.finish(after);
            if self.is_shut_down() {
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
                if self.dialled(node, epoch, result) {
                    failed(&*task.node);
                }
                again = true;
            }
            if !again && !task.arm(self.clock, cx) {
                return Poll::Pending;
            }
            task.looks = true;
        }
    }

    /// A dial has ended. Returns whether it led to the server of another master.
    fn dialled(&self, node: NodeId, epoch: u64, result: Dialled) -> bool {
        let mut io = self.sockets[node.index()].lock();
        let mut turn = self.turn();
        if !turn.state.client.link(node).awaits(epoch) {
            // The link no longer waits for this connection: drop it.
            self.tried(node, turn, io);
            return false;
        }
        let mut is_duplicate = false;
        let greeted = result.and_then(|(connection, hello, greeting)| {
            match turn.input(|client, cx| client.connected(node, epoch, greeting, cx)) {
                Ok(()) => Ok((connection, hello)),
                Err(duplicate) => {
                    turn.discard(connection, false);
                    is_duplicate = true;
                    Err(format!(
                        "it is the same server as {duplicate}, and one server must not vote twice"
                    ))
                }
            }
        });
        match greeted {
            Ok((connection, hello)) => {
                turn.close(node, &mut io);
                if turn.state.client.link(node).epoch() == Some(epoch) {
                    turn.state.masters[node.index()].connected.add();
                    io.open(epoch, connection, hello);
                } else {
                    // The link keeps the connection that it has.
                    turn.discard(connection, false);
                }
            }
            Err(why) => {
                turn.input(|client, cx| client.closed(node, epoch, why.into(), number(), cx));
            }
        }
        self.tried(node, turn, io);
        is_duplicate
    }

    /// Ends a turn in which a connection came up, did not, or went down.
    fn tried(&self, node: NodeId, turn: Turn<'_>, io: MutexGuard<'_, Io>) {
        let after = turn.end(Writer::Driver(node));
        drop(io);
        self.finish(after);
        self.changed.notify_waiters();
    }

    /// The driver has ended, with its runtime or because no clean-up is pending.
    fn abandon(&self, node: NodeId) {
        if self.is_forked() {
            return;
        }
        let mut io = self.sockets[node.index()].lock();
        let mut turn = self.turn();
        turn.input(|client, cx| client.abandon_link(node, cx));
        turn.broken(node, &mut io, "the runtime that the lock was built in has ended");
        self.tried(node, turn, io);
    }
}

struct Task {
    shared: Arc<Shared>,
    node: Arc<dyn Node>,
    connect_timeout: Duration,
    /// The name of the connections in `CLIENT LIST`.
    client_name: Arc<str>,
    dialling: Option<(u64, Dialling)>,
    timer: Pin<Box<Sleep>>,
    armed: Time,
    /// When the link was to be woken, at the last look.
    wanted: Time,
    /// The next turn looks at the client, whether or not bytes arrive.
    looks: bool,
}

type Dialling = Pin<Box<dyn Future<Output = Dialled> + Send>>;

type Dialled = Result<(Shield<Box<dyn Connection>>, Hello, Greeting), String>;

impl Task {
    /// Gives up attempts to connect and starts new ones, as the link has ordered. Returns an
    /// attempt that was given up: it is a caller's code, so drop it without the mutex.
    fn obey(&mut self, index: NodeId, state: &mut State, guarded: bool) -> Option<(u64, Dialling)> {
        let State { client, masters, .. } = state;
        let master = &mut masters[index.index()];
        let mut given_up = None;
        for epoch in master.close.drain(..) {
            master.dial = master.dial.filter(|next| *next != epoch);
            given_up = given_up.or(self.dialling.take_if(|(under_way, _)| *under_way == epoch));
        }
        if let Some(epoch) = master.dial.take() {
            let (node, limit) = (self.node.clone(), self.connect_timeout);
            let master = self.shared.names[index.index()].clone();
            let name = self.client_name.clone();
            // This is a second connection beside a stalled one. All clients of the master see it
            // stall at about the same time, and must not connect at the same moment.
            let beside = client.link(index).epoch().map(|_| jitter(limit / 10));
            let dialling: Dialling = Box::pin(dial(node, master, name, beside, limit, guarded));
            given_up = self.dialling.replace((epoch, dialling)).or(given_up);
        }
        given_up
    }

    /// Arms the timer, unless it already fires early enough. Returns whether it has fired.
    fn arm(&mut self, clock: Clock, cx: &mut Context<'_>) -> bool {
        if self.wanted < self.armed {
            self.armed = self.wanted;
            self.timer.as_mut().reset(clock.timer(self.armed));
        }
        let fired = self.armed != Time::NEVER && self.timer.as_mut().poll(cx).is_ready();
        if fired {
            self.armed = Time::NEVER;
        }
        fired
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // It may have a socket: see the drop of `Shared`.
            std::mem::forget(self.dialling.take());
        }
    }
}

fn jitter(most: Duration) -> Duration {
    Duration::from_nanos(number() % u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1))
}

/// Opens a connection; with `beside` after this pause, beside one that is open and does not work.
async fn dial(
    node: Arc<dyn Node>,
    master: Arc<str>,
    name: Arc<str>,
    beside: Option<Duration>,
    limit: Duration,
    guarded: bool,
) -> Dialled {
    if let Some(pause) = beside {
        tokio::time::sleep(pause).await;
        failed(&*node);
    }
    let greeting = greet(&*node, master, &name, guarded);
    let mut greeted = std::pin::pin!(tokio::time::timeout(limit, greeting));
    // Opening a socket, too, panics in a runtime without I/O.
    let polled = std::future::poll_fn(|cx| {
        let polled = shielded(|| greeted.as_mut().poll(cx));
        polled.map_or_else(|why| Poll::Ready(Err(why)), |polled| polled.map(Ok))
    });
    let dialled = match polled.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("no connection within the connect timeout ({limit:?})")),
        Err(panic) => Err(panic),
    };
    if dialled.is_err() {
        failed(&*node);
    }
    dialled
}

/// Tells a node that its latest connection led to nothing. A panic there changes nothing.
fn failed(node: &dyn Node) {
    _ = shielded(|| node.failed());
}

async fn greet(node: &dyn Node, master: Arc<str>, name: &str, guarded: bool) -> Dialled {
    let hello = node.hello();
    let connecting = Shield::new(master.clone(), node.connect());
    let connection = connecting.await.map_err(|error| error.to_string())?;
    let mut connection = Shield::new(master, connection);
    let mut bytes = Vec::new();
    let handshake = hello.handshake(guarded).named(name);
    handshake.encode(&mut bytes);
    let mut greeting = Greeting::default();
    exchange(&mut connection, &bytes, handshake.replies(), |index, frame| {
        let read = handshake.read(index, frame, &mut greeting);
        read.map_err(|unfit| unfit.0.to_string())
    })
    .await?;
    drop(handshake);
    Ok((connection, hello, greeting))
}

/// Drives a link until no clean-up is pending for it, or its runtime ends.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    node: NodeId,
    connector: Arc<dyn Node>,
    connect_timeout: Duration,
    client_name: Arc<str>,
) {
    /// Reports the end of the driver, so that no caller waits for a reply that cannot come.
    struct OnExit(Arc<Shared>, NodeId);
    impl Drop for OnExit {
        fn drop(&mut self) {
            self.0.abandon(self.1);
        }
    }
    let exit = OnExit(shared.clone(), node);
    let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
    let mut task = Task {
        shared,
        node: connector,
        connect_timeout,
        client_name,
        dialling: None,
        timer,
        armed: Time::NEVER,
        wanted: Time::NEVER,
        looks: true,
    };
    std::future::poll_fn(|cx| exit.0.drive(node, cx, &mut task)).await;
}
