//! A network of faults: proxies between clients and masters that understand RESP, and do to its
//! messages what a TCP network can do.
//!
//! ```no_run
//! use redquorum_rig::{Masters, network::{Harm, Network, Rule, Side}};
//!
//! let masters = Masters::start(1)?;
//! let network = Network::start(|traffic| println!("{traffic:?}"))?;
//! network.upstream(1, Some(([127, 0, 0, 1], masters.port(1)).into()));
//! let address = network.listen("c1", 1)?; // c1 is told that this is master 1
//! let rule = network.strike(Rule { side: Side::Replies, ..Rule::all(Harm::Drop) });
//! // c1's commands are executed, and it does not hear of it.
//! network.heal(rule);
//! # let _used = address; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread serves all connections; every client has a listener of its own for every master, whose
//! port stays the same whatever happens to the master. RESP has no message ids, so the faults are
//! those that a TCP network can make: within a connection nothing overtakes, nothing is lost in the
//! middle, and a close comes behind what was sent before it.
//!
//! # What it does not
//!
//! - A connection always *seems* to be accepted: the kernel does it, on behalf of this process. A
//!   client behind a partition runs into its response timeout, not its connect timeout.
//! - Messages are passed on when they are there in full (those of more than 4 MiB in parts), so that
//!   half a message is not seen by the other side before its second half or its end.
//! - What waits in one direction of a connection is bounded (16 MiB); beyond that it is read no more,
//!   and the sender is stuck.
//! - A message that was struck by a `Delay` waits up to about a millisecond longer.
//!
//! # Reading order
//!
//! `rule.rs` and `traffic.rs` are what callers see. `engine.rs` is the thread, `connection.rs` what
//! happens to one connection, `lane.rs` one direction of it, `table.rs` the living rules,
//! `dialogue.rs` which reply answers which request, `framing.rs` cuts bytes into messages,
//! `copies.rs` sends duplicates.

mod connection;
mod copies;
mod dialogue;
mod engine;
mod framing;
mod lane;
mod rule;
mod socket;
mod table;
mod tokens;
mod traffic;
mod world;

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
};

use mio::{Poll, Waker};

use engine::{Engine, Order};
pub use rule::{End, Harm, Matches, Message, Rule, RuleId, Side};
use tokens::ORDERS;
pub use traffic::{ClosedBy, Traffic};

/// The proxies between all clients and all masters. A drop closes everything and ends the thread.
///
/// Its methods return when the thread has done what they say, so none may be called by the observer
/// or by a rule's `matches`, which run on it.
#[must_use = "a drop closes all connections"]
pub struct Network {
    orders: Sender<Order>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the thread. `observer` is called on it, in order, for everything that passes, and must
    /// not block; the network stands still meanwhile.
    ///
    /// # Errors
    ///
    /// What the system says: no thread, no more files.
    pub fn start(observer: impl FnMut(Traffic) + Send + 'static) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), ORDERS)?;
        let (orders, receiver) = channel();
        let engine = Engine::new(poll, receiver, Box::new(observer))?;
        let thread = thread::Builder::new().name("network".to_owned());
        let thread = Some(thread.spawn(move || engine.run())?);
        Ok(Self { orders, waker, thread })
    }

    /// A new listener on loopback for this client's connections to this master, counted from 1.
    /// It stays until the network is dropped.
    ///
    /// # Errors
    ///
    /// What the system says: no more ports, no more files.
    pub fn listen(&self, client: &str, node: usize) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        self.order(|done| Order::Listen(listener, client.into(), node, done))?;
        Ok(address)
    }

    /// Where a master is now. `None`, and before the first call: nowhere, connections are reset at
    /// once, as the system of a dead server does.
    ///
    /// It counts for new connections. Those that are open are left alone: a master that dies ends
    /// them itself.
    pub fn upstream(&self, node: usize, address: Option<SocketAddr>) {
        self.order(|done| Order::Upstream(node, address, done));
    }

    /// The rule is about everything that arrives from now on, until it is healed.
    pub fn strike(&self, rule: Rule) -> RuleId {
        self.order(|done| Order::Strike(rule, done))
    }

    /// Ends a rule: what it held is let go, in order, and connections on which it made a gap are
    /// reset. Does nothing if it was healed before.
    pub fn heal(&self, rule: RuleId) {
        self.order(|done| Order::Heal(rule, done));
    }

    /// Waits until the thread has done it.
    fn order<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> T {
        const ENDED: &str = "the network's thread ended: an observer or a rule panicked on it";
        let own = self.thread.as_ref().map(|thread| thread.thread().id());
        assert_ne!(own, Some(thread::current().id()), "called on the network's own thread");
        let (done, answer) = channel();
        self.orders.send(order(done)).expect(ENDED);
        self.waker.wake().expect("the network's thread can be woken");
        answer.recv().expect(ENDED)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let stopped = self.orders.send(Order::Stop).is_ok() && self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // If it panicked, that was reported when it happened.
            let _ended = (stopped || thread.is_finished()).then(|| thread.join());
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}
