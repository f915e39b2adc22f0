//! Shared: the protocol client of one lock behind one mutex, and its parts that need Tokio: one
//! socket for each master, and the wakers of callers and tasks.
//!
//! Every input goes through a [`Turn`]. It reads the clock once it has the mutex, and carries out
//! the client's effects: it encodes commands and collects wakers. [`Shared::finish`] does the rest
//! after the mutex is free again: it writes to sockets, wakes, logs, and drops wakers and
//! connections. All of these may run other code.
//!
//! If a master is idle, the caller writes to the socket itself, which saves a task switch. If a
//! master is busy, its driver writes, and sends all queued commands at once.
//!
//! Take the mutexes in this order: a socket's [`Io`], the state, an [`Outbox`].

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::mem::{Discriminant, discriminant};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use redquorum_protocol::{
    Cause, Claim, ClaimId, Client, ClientConfig, ClientEffect, Context, Distrust, Extension, Key,
    LinkState, Loss, NodeId, NodeSet, Quorum, Reply, Rng, Time, Votes,
};
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, NAP, Watch};
use crate::io::{Io, Outbox};
use crate::metrics::Counter;
use crate::node::Connection;
use crate::report::Report;
use crate::rng::{RetryPolicy, SystemRng, refuse_in_policy};
use crate::shield::Shield;
use crate::stats::{Counters, Latencies, MasterStats, Stats};
use crate::trace::{self, Throttle};

mod claim;
mod lock_state;

pub(crate) use claim::{ClaimCell, EndedRound, Found, Granted};
pub(crate) use lock_state::{Kind, LockState};

/// If the task for leases is this late, the process, or its runtime, stood still.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The largest buffer that is kept for encoding: names may be long, and are short in most programs.
const KEPT_BYTES: usize = 16 << 10;

/// The protocol client of one lock. Drivers keep it alive until no clean-up is pending.
pub(crate) struct Shared {
    /// The id of the process that built the lock.
    process: u32,
    pub(crate) clock: Clock,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) quorum: Quorum,
    /// Whether the restart guard is on: masters that may have forgotten are distrusted.
    pub(crate) guarded: bool,
    /// Whether events and spans show a hash in place of a resource's key.
    pub(crate) hash_resources: bool,
    pub(crate) counters: Counters,
    /// Notified when a master was tried, by a shutdown, and after every turn of a driver since.
    pub(crate) changed: Notify,
    pub(crate) sockets: Vec<Socket>,
    throttle: Throttle,
    shut_down: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct Socket {
    pub(crate) io: Mutex<Io>,
    outbox: Mutex<Outbox>,
    throttle: Throttle,
}

/// The protocol client, and the callers that wait for it.
pub(crate) struct State {
    pub(crate) client: Client,
    pub(crate) masters: Vec<Master>,
    callers: BTreeMap<ClaimId, Caller>,
    /// The callers that asked about a master itself, by request number.
    questions: HashMap<u64, oneshot::Sender<Reply>>,
    asked: u64,
    /// How to pause between attempts; `None` once the lock is dropped.
    retry: Option<Arc<dyn RetryPolicy>>,
    watch: Watch,
    /// When the timer of the task for leases fires, and the waker of that task.
    leases: (Time, Option<Waker>),
    pub(crate) closing: bool,
    /// When the latest turn began.
    latest_turn: Time,
    /// The latest time in which no turn began although one was due at least every [`NAP`].
    standstill: Option<(Time, Time)>,
    /// Always empty between turns; kept for its allocation.
    effects: Vec<ClientEffect>,
    /// An empty buffer for one encoded command, kept for its allocation.
    bytes: Vec<u8>,
}

pub(crate) struct Master {
    /// Connections, or attempts to connect, to close.
    pub(crate) close: Vec<u64>,
    pub(crate) dial: Option<u64>,
    pub(crate) armed: Time,
    /// Whether the last log event reported the master as up; `None` before the first event.
    logged_up: Option<bool>,
    /// The kind of distrust that the log reported last; `None` if the master is trusted.
    logged_distrust: Option<Discriminant<Distrust>>,
    pub(crate) connected: Counter,
    #[cfg(feature = "metrics")]
    pub(crate) gauges: crate::metrics::Gauges,
    pub(crate) latencies: Latencies,
    writes: usize,
}

/// The caller that waits for a claim, and the changes that were counted for it.
struct Caller {
    cell: Weak<ClaimCell>,
    waker: Option<Waker>,
    extension: (u32, Extension),
    endangered: bool,
    lost: bool,
}

/// How the client ends a claim: [`Client::cancel`] or [`Client::undo`].
pub(crate) type EndClaim = fn(&mut Client, ClaimId, &mut Context<'_, Claim>);

/// Which task writes the commands that a turn has queued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The caller, where the master is idle.
    Idle,
    /// The caller, everywhere: many commands were queued.
    All,
    /// The driver of this master; for other masters the same as `Idle`.
    Driver(NodeId),
}

/// The work that is left to do when the mutex is free again.
#[derive(Default)]
#[must_use = "nothing is written and no task is woken before `finish`"]
pub(crate) struct After {
    flush: NodeSet,
    wake: Vec<Waker>,
    /// Wakers to drop. A drop may run other code.
    discarded: Vec<Waker>,
    /// Connections to drop, and whether to reset them.
    closed: Vec<(Shield<Box<dyn Connection>>, bool)>,
    changed: Vec<Arc<ClaimCell>>,
    replies: Vec<(oneshot::Sender<Reply>, Reply)>,
    logs: Vec<Log>,
}

enum Log {
    Endangered(Arc<ClaimCell>, Duration, Votes),
    StillEndangered(Arc<ClaimCell>, Duration),
    Recovered(Arc<ClaimCell>),
    Lost(Arc<ClaimCell>, String),
    Up(NodeId),
    Down(NodeId, Arc<str>),
    Distrusted(NodeId, Cause),
    Trusted(NodeId),
}

pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) now: Time,
    after: After,
    /// Masters that were written to, or whose links may need an earlier timer.
    touched: NodeSet,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics halfway through a change, so the state in a poisoned mutex is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        config: ClientConfig,
        names: Vec<Arc<str>>,
        clock: Clock,
        retry: Arc<dyn RetryPolicy>,
        hash_resources: bool,
    ) -> Self {
        let mut effects = Vec::new();
        let client = Client::start(config, &mut effects);
        #[cfg(feature = "metrics")]
        crate::metrics::describe();
        let master = |name: &Arc<str>| Master {
            close: Vec::new(),
            dial: None,
            armed: Time::NEVER,
            logged_up: None,
            logged_distrust: None,
            connected: Counter::new("redquorum_connects_total", Some(("master", name))),
            #[cfg(feature = "metrics")]
            gauges: crate::metrics::Gauges::of(name),
            latencies: Latencies::of(name),
            writes: 0,
        };
        let state = State {
            client,
            masters: names.iter().map(master).collect(),
            callers: BTreeMap::new(),
            questions: HashMap::new(),
            asked: 0,
            watch: Watch::new(clock),
            retry: Some(retry),
            leases: (Time::NEVER, None),
            closing: false,
            latest_turn: clock.now(),
            standstill: None,
            effects,
            bytes: Vec::new(),
        };
        let shared = Self {
            process: std::process::id(),
            clock,
            names,
            quorum: config.quorum,
            guarded: config.guard.is_some(),
            hash_resources,
            counters: Counters::default(),
            changed: Notify::new(),
            sockets: NodeId::all(config.quorum.nodes()).map(|_| Socket::default()).collect(),
            throttle: Throttle::default(),
            shut_down: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        // Opens the first connections. There is no task yet to wake.
        let mut turn = shared.turn();
        turn.carry_out();
        drop(turn.end(Writer::Idle));
        shared
    }

    /// Whether this process is a fork of the one that built the lock. Every method of a public type
    /// asks this before it touches anything else: the sockets are those of the other process, and a
    /// thread that is not here may have locked any of the mutexes for ever. A future asks at each
    /// poll ([`unless_forked`](Self::unless_forked)). It costs a system call.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_not_of(std::process::id())
    }

    /// Whether another process than this one has built the lock.
    pub(crate) fn is_not_of(&self, process: u32) -> bool {
        self.process != process
    }

    /// Waits for `work`; `None` as soon as it is polled in a forked process. The caller has asked
    /// [`is_forked`](Self::is_forked) just before the first poll.
    pub(crate) async fn unless_forked<F: Future>(&self, work: F) -> Option<F::Output> {
        let (mut work, mut asked) = (pin!(work), true);
        poll_fn(|cx| {
            if !std::mem::take(&mut asked) && self.is_forked() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        debug_assert!(!self.is_forked(), "a forked process touches the lock of its parent");
        refuse_in_policy();
        lock(&self.state)
    }

    /// Locks the state, then reads the clock. So the time spent before counts, and time never runs
    /// backwards for the client.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let mut state = self.state();
        let (now, ran_back) = state.watch.read();
        let latest = std::mem::replace(&mut state.latest_turn, now);
        // While a lease is held, the task for leases naps no longer than this.
        if now.since(latest) >= STANDSTILL && state.leases.0 != Time::NEVER {
            state.standstill = Some((latest, now));
        }
        let (after, touched) = (After::default(), NodeSet::EMPTY);
        let mut turn = Turn { shared: self, state, now, after, touched };
        if ran_back {
            turn.input(|client, cx| client.clock_ran_back(cx));
        }
        turn
    }

    pub(crate) fn act<R>(
        &self,
        input: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R,
    ) -> R {
        let mut turn = self.turn();
        let result = turn.input(input);
        turn.finish(Writer::Idle);
        result
    }

    /// Lends the lock's random source and its policy for pauses.
    pub(crate) fn with_rng<R>(&self, act: impl FnOnce(&mut dyn Rng) -> R) -> R {
        act(&mut SystemRng(self.state().retry.as_deref()))
    }

    pub(crate) fn view<R>(&self, look: impl FnOnce(&Client) -> R) -> R {
        look(&self.state().client)
    }

    pub(crate) fn finish(&self, after: After) {
        let After { flush, wake, discarded, closed, changed, replies, logs } = after;
        for (mut connection, reset) in closed {
            if reset {
                connection.abort();
            }
        }
        for node in NodeId::all(self.sockets.len()).filter(|node| flush.contains(*node)) {
            self.flush(node);
        }
        wake.into_iter().for_each(Waker::wake);
        drop(discarded);
        for (asker, reply) in replies {
            // The caller may have given up.
            drop(asker.send(reply));
        }
        changed.iter().for_each(|cell| cell.changed.notify_waiters());
        logs.into_iter().for_each(|log| self.log(log));
    }

    /// Writes the queued bytes for an idle master.
    fn flush(&self, node: NodeId) {
        let socket = &self.sockets[node.index()];
        if let Ok(mut io) = socket.io.try_lock() {
            io.take(&mut socket.outbox());
            // No waker: if the socket is full or broken, the driver notices.
            io.write(&mut task::Context::from_waker(Waker::noop()));
            if !io.is_written() {
                drop(io);
                return socket.wake();
            }
        }
        // If the driver has the socket, it may have taken the bytes before these were queued.
        if !socket.outbox().bytes.is_empty() {
            socket.wake();
        }
    }

    pub(crate) fn forget(&self, id: ClaimId, end: EndClaim) {
        let mut turn = self.turn();
        let caller = turn.state.callers.remove(&id);
        if turn.state.client.standing(id).is_some() {
            turn.input(|client, cx| end(client, id, cx));
        }
        turn.finish(Writer::Idle);
        drop(caller);
    }

    /// Sends each master a question about itself or a resource. The replies come in the order of
    /// the masters.
    pub(crate) fn ask(
        &self,
        question: impl Fn(&mut Client, NodeId, u64, &mut Context<'_, Claim>),
    ) -> Vec<oneshot::Receiver<Reply>> {
        let mut turn = self.turn();
        let replies = NodeId::all(self.sockets.len()).map(|node| {
            let (asker, reply) = oneshot::channel();
            turn.state.asked += 1;
            let number = turn.state.asked;
            turn.state.questions.insert(number, asker);
            turn.input(|client, cx| question(client, node, number, cx));
            reply
        });
        let replies = replies.collect();
        turn.finish(Writer::Idle);
        replies
    }

    /// Stops new votes from now on; clean-ups go on.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::Release);
        self.act(|client, cx| client.shut_down(cx));
        self.changed.notify_waiters();
    }

    /// Returns once `done` is true. Looks when [`changed`](Self::changed) is notified.
    pub(crate) async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so no later change is missed.
            changed.as_mut().enable();
            if done() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Called when the lock was dropped: the tasks end once no clean-up is pending.
    pub(crate) fn close(&self) {
        if self.is_forked() {
            return;
        }
        let mut turn = self.turn();
        turn.state.closing = true;
        let retry = turn.state.retry.take();
        let leases = turn.state.leases.1.take();
        turn.after.wake.extend(leases);
        turn.finish(Writer::Idle);
        // A caller's own policy may own anything, so drop it without the mutex.
        drop(retry);
        for socket in &self.sockets {
            socket.outbox().orders = true;
            socket.wake();
        }
    }

    /// The numbers of keys to clean up, and of keys of living claims, over all masters.
    pub(crate) fn ledger(&self) -> (usize, usize) {
        let now = self.clock.now();
        self.view(|client| {
            let each = client.links().iter().map(|link| (link.pending_still(now), link.claimed()));
            each.fold((0, 0), |sum, link| (sum.0 + link.0, sum.1 + link.1))
        })
    }

    /// Which of these resources are taken, as far as this process knows.
    pub(crate) fn taken(&self, keys: &[Key]) -> Vec<bool> {
        self.state().client.taken(self.clock.now(), keys)
    }

    pub(crate) fn stats(&self) -> Stats {
        if self.is_forked() {
            let masters = self.names.iter().map(|name| MasterStats::of_forked(name.clone()));
            return self.counters.snapshot(0, masters.collect());
        }
        let state = self.state();
        let now = self.clock.now();
        let masters = NodeId::all(self.names.len()).map(|node| {
            let (link, votes) = (state.client.link(node), state.client.votes(node));
            let master = &state.masters[node.index()];
            MasterStats {
                name: self.names[node.index()].clone(),
                state: link.state(),
                distrusted: link.distrust(now),
                granted: votes.granted,
                refused: votes.refused,
                unknown: votes.unknown,
                connected: master.connected.count(),
                pending_cleanups: link.pending_cleanups(),
                subscriptions: link.subscriptions(),
                unanswered: link.unanswered(),
                latency: master.latencies.summary(),
            }
        });
        self.counters.snapshot(state.client.resources_waited_for(), masters.collect())
    }

    /// Wakes leases until the lock is dropped, with one timer for all of them.
    pub(crate) async fn wake_leases(self: Arc<Self>) {
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            loop {
                if self.is_forked() {
                    return Poll::Ready(());
                }
                let mut turn = self.turn();
                if turn.state.closing {
                    turn.finish(Writer::Idle);
                    return Poll::Ready(());
                }
                turn.input(|client, cx| client.wake_leases(cx));
                let next = turn.state.client.leases_wake_at();
                // At most a nap: the timer does not count suspended time, the clock does.
                let nap = turn.now.plus(NAP);
                let armed = if next == Time::NEVER { next } else { next.min(nap) };
                let due = next <= turn.now;
                let leases = (armed, Some(cx.waker().clone()));
                let (_, former) = std::mem::replace(&mut turn.state.leases, leases);
                turn.after.discarded.extend(former);
                // Renewals leave in one write for each master.
                turn.finish(Writer::All);
                if due {
                    // Let other tasks run first: some of them read the replies of masters.
                    cx.waker().wake_by_ref();
                }
                if due || armed == Time::NEVER {
                    return Poll::Pending;
                }
                timer.as_mut().reset(self.clock.timer(armed));
                if Pin::new(&mut timer).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    fn log(&self, log: Log) {
        let now = self.clock.now();
        if let Log::Lost(cell, why) = &log {
            cell.count_hold(now);
            if let Some(span) = cell.span.get() {
                span.record("lost", why);
            }
        }
        let throttle = match &log {
            Log::Up(node) | Log::Down(node, _) | Log::Distrusted(node, _) | Log::Trusted(node) => {
                &self.sockets[node.index()].throttle
            }
            Log::StillEndangered(cell, left) => {
                return trace::still_endangered(cell.shown(), *left);
            }
            _ => &self.throttle,
        };
        let Some(suppressed) = throttle.admit(now) else { return };
        match log {
            Log::Endangered(cell, left, votes) => {
                let report = Report::new(&votes, &self.names, self.quorum);
                trace::endangered(suppressed, cell.shown(), left, &report);
            }
            Log::StillEndangered(..) => {}
            Log::Recovered(cell) => trace::recovered(suppressed, cell.shown()),
            Log::Lost(cell, why) => trace::lost(suppressed, cell.shown(), &why),
            Log::Up(node) => trace::master_up(suppressed, &self.names[node.index()]),
            Log::Down(node, why) => trace::master_down(suppressed, &self.names[node.index()], &why),
            Log::Distrusted(node, why) => {
                trace::master_distrusted(suppressed, &self.names[node.index()], &why);
            }
            Log::Trusted(node) => trace::master_trusted(suppressed, &self.names[node.index()]),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_forked() {
            // The connections are not even closed. A runtime watches them by a file that both
            // processes share: closed here, they would be deaf in the other process.
            for socket in &mut self.sockets {
                let io = socket.io.get_mut().unwrap_or_else(PoisonError::into_inner);
                std::mem::forget(io.close());
            }
        }
    }
}

impl Socket {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Io> {
        lock(&self.io)
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    fn wake(&self) {
        let driver = self.outbox().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl Turn<'_> {
    pub(crate) fn input<R>(
        &mut self,
        input: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R,
    ) -> R {
        let State { client, retry, effects, .. } = &mut *self.state;
        let mut rng = SystemRng(retry.as_deref());
        let mut cx = Context { clocks: self.now, rng: &mut rng, out: effects };
        let result = input(client, &mut cx);
        self.carry_out();
        result
    }

    pub(crate) fn enlist(&mut self, id: ClaimId, cell: Weak<ClaimCell>) {
        let extension = (0, Extension::Extended);
        let caller = Caller { cell, waker: None, extension, endangered: false, lost: false };
        self.state.callers.insert(id, caller);
    }

    /// The cell of a claim that holds a lease. A handle of the lease keeps it alive.
    pub(crate) fn cell(&self, id: ClaimId) -> Arc<ClaimCell> {
        let cell = self.state.callers.get(&id).and_then(|caller| caller.cell.upgrade());
        cell.expect("a lease has at least one handle")
    }

    /// Registers the waker of a task for changes of the claim.
    pub(crate) fn wake_by(&mut self, id: ClaimId, waker: &Waker) {
        if let Some(caller) = self.state.callers.get_mut(&id)
            && !caller.waker.as_ref().is_some_and(|it| it.will_wake(waker))
        {
            self.after.discarded.extend(caller.waker.replace(waker.clone()));
        }
    }

    /// Drops a connection once the mutex is free again, since it may be a caller's own. With
    /// `reset`, it is reset before.
    pub(crate) fn discard(&mut self, connection: Shield<Box<dyn Connection>>, reset: bool) {
        self.after.closed.push((connection, reset));
    }

    /// Logs whether the master is up, and whether it is trusted, if that has changed.
    pub(crate) fn log_change(&mut self, node: NodeId) {
        let link = self.state.client.link(node);
        let down = match link.state() {
            LinkState::Up => None,
            LinkState::Stalled => Some("it leaves commands unanswered".into()),
            LinkState::Refusing(why) => Some(format!("it refuses all votes: {why}").into()),
            // Its state is not known yet.
            LinkState::Down(_) if link.is_first_dial() => return,
            LinkState::Down(why) => Some(why),
            _ => return,
        };
        let up = down.is_none();
        if self.state.masters[node.index()].logged_up.replace(up) != Some(up) {
            self.after.logs.push(down.map_or(Log::Up(node), |why| Log::Down(node, why)));
        }
        if up && self.shared.guarded {
            self.log_trust(node);
        }
    }

    fn log_trust(&mut self, node: NodeId) {
        let distrusted = self.state.client.link(node).distrust(self.now);
        let kind = match &distrusted {
            Some(Cause::Distrusted { why, .. }) => Some(discriminant(why)),
            _ => None,
        };
        let logged = &mut self.state.masters[node.index()].logged_distrust;
        if std::mem::replace(logged, kind) != kind {
            let log = distrusted.map_or(Log::Trusted(node), |why| Log::Distrusted(node, why));
            self.after.logs.push(log);
        }
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.state.effects);
        // Most commands go to all masters, one after the other: they are encoded once.
        let (mut latest, mut bytes) = (None, std::mem::take(&mut self.state.bytes));
        for effect in effects.drain(..) {
            match effect {
                ClientEffect::Write { node, epoch, command } => {
                    if latest.as_ref() != Some(&command) {
                        bytes.clear();
                        latest.insert(command).encode(&mut bytes);
                    }
                    let mut outbox = self.shared.sockets[node.index()].outbox();
                    outbox.bytes(Some(epoch)).extend_from_slice(&bytes);
                    outbox.epoch = epoch;
                    self.state.masters[node.index()].writes += 1;
                    self.touched.insert(node);
                }
                ClientEffect::Rearm { node } => self.touched.insert(node),
                ClientEffect::Dial { node, epoch } => {
                    self.state.masters[node.index()].dial = Some(epoch);
                    self.touched.insert(node);
                }
                ClientEffect::Close { node, epoch } => {
                    self.state.masters[node.index()].close.push(epoch);
                    self.touched.insert(node);
                }
                ClientEffect::Changed(id) => self.changed(id),
                ClientEffect::Replied { request, reply, .. } => {
                    let asker = self.state.questions.remove(&request);
                    self.after.replies.extend(asker.map(|asker| (asker, reply)));
                }
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
        self.state.effects = effects;
        if bytes.capacity() <= KEPT_BYTES {
            self.state.bytes = bytes;
        }
    }

    /// Wakes the caller of a claim. Counts and logs the changes of a held lease.
    fn changed(&mut self, id: ClaimId) {
        let State { client, callers, standstill, .. } = &mut *self.state;
        let Some(caller) = callers.get_mut(&id) else { return };
        self.after.wake.extend(caller.waker.take());
        let Some(cell) = caller.cell.upgrade() else { return };
        let (counters, logs) = (&self.shared.counters, &mut self.after.logs);
        if let Some(hold) = client.hold(id) {
            if hold.extension() != caller.extension {
                caller.extension = hold.extension();
                let left = hold.deadline().since(self.now);
                match caller.extension.1 {
                    Extension::Pending => {}
                    Extension::Extended => {
                        counters.extended.add();
                        if hold.is_bare() {
                            counters.extended_bare.add();
                        }
                        cell.endangered.store(false, Ordering::Relaxed);
                        if std::mem::take(&mut caller.endangered) {
                            logs.push(Log::Recovered(cell.clone()));
                        }
                    }
                    Extension::Lost(_) => counters.not_extended.add(),
                    Extension::NoQuorum | Extension::QuorumGone => {
                        counters.not_extended.add();
                        cell.endangered.store(true, Ordering::Relaxed);
                        logs.push(if std::mem::replace(&mut caller.endangered, true) {
                            Log::StillEndangered(cell.clone(), left)
                        } else {
                            Log::Endangered(cell.clone(), left, hold.votes().clone())
                        });
                    }
                }
            }
            if let (Some(loss), false) = (hold.lost(), caller.lost) {
                caller.lost = true;
                cell.endangered.store(false, Ordering::Relaxed);
                cell.keep_loss(loss);
                counters.lost.add();
                let deadline = hold.deadline();
                let stood = standstill.filter(|(from, to)| {
                    loss == Loss::Expired && (*from..=*to).contains(&deadline)
                });
                let why = match stood {
                    Some((from, to)) => format!(
                        "{loss} while the process, or its runtime, stood still for {:.1}s",
                        to.since(from).as_secs_f64()
                    ),
                    None => loss.to_string(),
                };
                logs.push(Log::Lost(cell.clone(), why));
            }
        }
        self.after.changed.push(cell);
    }

    pub(crate) fn finish(self, writer: Writer) {
        let shared = self.shared;
        let after = self.end(writer);
        shared.finish(after);
    }

    /// Frees the mutex. Returns the work that is left, for [`Shared::finish`].
    pub(crate) fn end(mut self, writer: Writer) -> After {
        let State { client, masters, leases, .. } = &mut *self.state;
        let touched = self.touched;
        for node in NodeId::all(masters.len()).filter(|node| touched.contains(*node)) {
            let (link, master) = (client.link(node), &mut masters[node.index()]);
            let writes = std::mem::take(&mut master.writes);
            if writer == Writer::Driver(node) {
                continue;
            }
            // Idle: only the commands of this turn are unanswered.
            let idle = writer == Writer::All || link.unanswered() <= writes;
            if writes > 0 && idle {
                self.after.flush.insert(node);
            }
            let orders = link.next_wake() < master.armed
                || master.dial.is_some()
                || !master.close.is_empty();
            if writes > 0 && !idle || orders {
                let mut outbox = self.shared.sockets[node.index()].outbox();
                outbox.orders |= orders;
                self.after.wake.extend(outbox.driver.take());
            }
        }
        if client.leases_wake_at() < leases.0 {
            self.after.wake.extend(leases.1.take());
        }
        self.after
    }
}

impl After {
    pub(crate) fn merge(&mut self, other: Self) {
        // In most turns a list is empty, and takes over the memory of the other one.
        fn append<T>(all: &mut Vec<T>, mut more: Vec<T>) {
            if all.is_empty() {
                *all = more;
            } else {
                all.append(&mut more);
            }
        }
        self.flush = self.flush.or(other.flush);
        append(&mut self.wake, other.wake);
        append(&mut self.discarded, other.discarded);
        append(&mut self.closed, other.closed);
        append(&mut self.changed, other.changed);
        append(&mut self.replies, other.replies);
        append(&mut self.logs, other.logs);
    }
}
