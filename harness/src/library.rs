//! The library `redquorum` as a client process of the simulation, with its wakers, futures and
//! buffers.
//!
//! Each process has a Tokio runtime of its own, with one thread and a paused clock. The simulation
//! advances that clock to the time of each event, and runs the tasks until all of them wait. Timers
//! of Tokio fire at whole milliseconds, so the process asks to be woken at each of them.
//!
//! - `library/socket.rs`: the connections of the library, as bytes in memory

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redquorum::Redlock;
use redquorum::memory::Repeatable;
use redquorum_protocol::{Time, Waiter};
use redquorum_redis_model::ServerReply;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::socket::{Address, Sockets};
use crate::client::limited::{ChooseNeglect, Neglect};
use crate::client::output::Output;
use crate::client::requests::RequestHandler;
use crate::client::{build, ready};
use redquorum_scenario::client_protocol::{ClientLine, Notice, Options, Request};
use redquorum_scenario::history::History;
use redquorum_scenario::{Mutant, Scenario};
use redquorum_simulator::ClientProcess;
use redquorum_simulator::client_machine::{Clocks, InputContext, ProcessEffect, ProcessEvent};
use redquorum_simulator::run_with;

mod socket;

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

impl<const NEGLECTS: bool> ClientProcess for Library<NEGLECTS> {
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
    let number = socket::next(random.load(Ordering::Relaxed));
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
    let builder = Redlock::builder().tokio_clock_for_tests();
    let addresses = (0..nodes).map(|node| Address::new(sockets.clone(), node));
    let lock = build(addresses.fold(builder, redquorum::Builder::master), &options).await;
    let lock = lock.unwrap_or_else(|why| panic!("the lock cannot be built: {why}"));
    output.notify(ready());
    let handler = RequestHandler::new(output, lock, options.fencing, neglect);
    while let Some(request) = requests.recv().await {
        handler.handle(request);
    }
}
