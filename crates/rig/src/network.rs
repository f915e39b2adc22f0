//! A network of faults: proxies between clients and masters that understand RESP, and apply to its
//! messages the faults of a TCP network.
//!
//! ```no_run
//! use redquorum_rig::{Masters, network::{MessageFault, Network, Rule, Side}};
//!
//! let masters = Masters::start(1)?;
//! let network = Network::start(|traffic| println!("{traffic:?}"))?;
//! network.upstream(1, Some(([127, 0, 0, 1], masters.port(1)).into()));
//! let address = network.listen("c1", 1)?; // the address of master 1 for c1
//! let rule = network.strike(Rule { side: Side::Reply, ..Rule::all(MessageFault::Drop) });
//! // c1's commands are executed, but it receives no replies.
//! network.heal(rule);
//! # let _used = address; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread serves all connections. Every client has its own listener for every master. The port
//! of a listener stays the same whatever happens to the master. RESP has no message ids, so the
//! faults are those that a TCP network can cause: within a connection no message overtakes another,
//! no data is lost in the middle, and a close comes behind the data that was sent before it.
//!
//! [`listen_opaque`](Network::listen_opaque) is for servers that do not speak RESP. Each piece that
//! arrives at once is a message: a request is one word, and a reply, a [`Bulk`], answers the latest
//! request of its connection. `Duplicate` has no use there.
//!
//! [`Bulk`]: crate::RespValue::Bulk
//!
//! # Limits
//!
//! - A connection always *seems* to be accepted: the kernel accepts it on behalf of this process. A
//!   client behind a partition runs into its response timeout, not its connect timeout.
//! - The network passes a message on when it is complete. So the other side does not see half a
//!   message before its second half or its end. From a message of more than 4 MiB on, that side of
//!   the connection is passed on like data that is not RESP.
//! - The waiting data in one direction of a connection is bounded (16 MiB). Beyond that the network
//!   stops reading, and the sender is stuck.
//!
//! `rule.rs` and `traffic.rs` are the public interface. `engine.rs` is the thread, `connection.rs`
//! one connection, `lane.rs` one direction of it, `table.rs` the living rules, `timer.rs` a second
//! thread, which makes delays exact.

mod connection;
mod copies;
mod dialogue;
mod engine;
mod framing;
mod lane;
mod rule;
mod socket;
mod table;
mod timer;
mod traffic;

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::mpsc::channel,
    thread::{self, JoinHandle},
};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use engine::{Order, Shared};
use framing::Protocol;
pub use rule::{End, Matches, Message, MessageFault, MessageRule, Rule, RuleId, Side};
use timer::Timer;
pub use traffic::{Traffic, TrafficEvent};

/// The proxies between all clients and all masters. A drop closes everything and ends the thread.
///
/// Its methods return when the thread has executed them. So neither the observer nor a rule's
/// `matches` may call them: both run on that thread.
#[must_use = "a drop closes all connections"]
pub struct Network {
    /// `None` only during a drop.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the thread. It calls `observer` in order for everything that passes. `observer` must
    /// not block, because the network stands still meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the system: no thread, no more files.
    pub fn start(observer: impl FnMut(Traffic) + Send + 'static) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, mut receiver) = unbounded_channel();
        let (observer, timer) = (Box::new(observer), Timer::start()?);
        let thread = thread::Builder::new().name("network".to_owned());
        let thread = thread.spawn(move || {
            let run = engine::run(&mut receiver, observer, timer);
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run)));
            // An order that is sent meanwhile is dropped here, so its caller does not wait for
            // ever. A drop of the receiver would miss one that is half sent.
            receiver.close();
            while receiver.blocking_recv().is_some() {}
            ended.unwrap_or_else(|panic| resume_unwind(panic));
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// A new listener on loopback for this client's connections to this master, counted from 1. It
    /// stays until the network is dropped.
    ///
    /// # Errors
    ///
    /// Those of the system: no more ports, no more files.
    pub fn listen(&self, client: &str, node: usize) -> io::Result<SocketAddr> {
        self.listen_for(Protocol::Resp, client, node)
    }

    /// Like [`listen`](Self::listen), for a server whose protocol is not RESP: each piece of bytes
    /// that arrives is a message.
    ///
    /// # Errors
    ///
    /// Those of the system: no more ports, no more files.
    pub fn listen_opaque(&self, client: &str, node: usize) -> io::Result<SocketAddr> {
        self.listen_for(Protocol::Opaque, client, node)
    }

    fn listen_for(&self, protocol: Protocol, client: &str, node: usize) -> io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let client = client.into();
        self.order(move |engine| {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let accept = engine::accept(engine.clone(), listener, client, node, protocol);
            engine.borrow().start(accept);
            Ok(address)
        })
    }

    /// Sets the current address of a master. With `None`, and before the first call, there is no
    /// master: connections are reset at once, as the system of a dead server does.
    ///
    /// It applies to new connections. Open connections are left alone: a master that dies ends them
    /// itself.
    pub fn upstream(&self, node: usize, address: Option<SocketAddr>) {
        self.order(move |engine| {
            let upstreams = &mut engine.borrow_mut().world.upstreams;
            upstreams.remove(&node);
            upstreams.extend(address.map(|address| (node, address)));
        });
    }

    /// Adds a rule. It applies to everything that arrives from now on, until it is healed.
    pub fn strike(&self, rule: Rule) -> RuleId {
        self.order(move |engine| engine.borrow_mut().strike(rule))
    }

    /// Ends a rule. The messages that it held are released, in order, and connections on which it
    /// lost data are reset. Does nothing if the rule was healed before.
    pub fn heal(&self, rule: RuleId) {
        self.order(move |engine| engine.borrow_mut().heal(rule));
    }

    /// Waits until the thread has executed a task, and returns the result.
    fn order<T: Send + 'static>(&self, task: impl FnOnce(&Shared) -> T + Send + 'static) -> T {
        const ENDED: &str = "the network's thread ended: an observer or a rule panicked on it";
        let own = self.thread.as_ref().map(|thread| thread.thread().id());
        assert_ne!(own, Some(thread::current().id()), "called on the network's own thread");
        let (done, result) = channel();
        let order = move |engine: &Shared| drop(done.send(task(engine)));
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(Box::new(order)).is_ok());
        assert!(sent, "{ENDED}");
        result.recv().expect(ENDED)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // If it panicked, that was reported when it happened.
            let _ended = thread.join();
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}
