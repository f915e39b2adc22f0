//! The thread: waits for sockets, timers and orders, and serves each connection that has work.
//! Started by `network.rs`. Its `World` is what all connections share.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    connection::Connection,
    copies::{self, Duplicate},
    dialogue::Label,
    framing::Protocol,
    rule::{Rule, RuleId, Side},
    socket::Socket,
    table::{Link, Table},
    timer::Timer,
    traffic::{Traffic, TrafficEvent},
};

/// If no connection can be accepted (no more files are allowed), the thread tries again after this
/// time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// A task of a caller for the thread.
pub(super) type Order = Box<dyn FnOnce(&Shared) + Send>;

/// An engine, as all tasks of its thread have it.
pub(super) type Shared = Rc<RefCell<Engine>>;

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Engine {
    pub(super) world: World,
    connections: BTreeMap<u64, Connection>,
    /// The number of the newest connection.
    last: u64,
    tasks: UnboundedSender<Task>,
    scratch: Vec<u8>,
}

/// Runs until the sender of the orders is gone. A panic of a task is one of the thread.
pub(super) async fn run(
    orders: &mut UnboundedReceiver<Order>,
    observer: Box<dyn FnMut(Traffic) + Send>,
    timer: Timer,
) {
    let (tasks, mut started) = unbounded_channel();
    let (rules, upstreams, duplicates) = (Table::default(), HashMap::new(), Vec::new());
    let world = World { rules, observer, upstreams, duplicates, timer };
    let (connections, scratch) = (BTreeMap::new(), vec![0; 64 * 1024]);
    let engine = Rc::new(RefCell::new(Engine { world, connections, last: 0, tasks, scratch }));
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => order(&engine),
                None => break,
            },
            Some(task) = started.recv() => running.push(task),
            Some(()) = running.next() => {}
        }
    }
    let engine = &mut *engine.borrow_mut();
    for connection in engine.connections.values_mut() {
        connection.reset(&mut engine.world);
        engine.world.report_now(&connection.peer, TrafficEvent::Closed);
    }
}

pub(super) async fn accept(
    engine: Shared,
    listener: TcpListener,
    client: Arc<str>,
    node: usize,
    protocol: Protocol,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let this = &mut *engine.borrow_mut();
        this.last += 1;
        let peer = Peer { client: Arc::clone(&client), node, connection: this.last };
        this.world.report_now(&peer, TrafficEvent::Opened);
        let connection = Connection::new(peer, Socket::accepted(stream), protocol);
        this.connections.insert(this.last, connection);
        this.start(attend(Rc::clone(&engine), this.last));
    }
}

/// Serves a connection until it is over.
async fn attend(engine: Shared, id: u64) {
    let timer = engine.borrow().world.timer.clone();
    loop {
        let wait = {
            let Engine { world, connections, scratch, .. } = &mut *engine.borrow_mut();
            let Some(connection) = connections.get_mut(&id) else { return };
            connection.serve(scratch, world);
            connection.wait()
        };
        Engine::send_duplicates(&engine);
        match wait {
            Some(wait) => wait.until_something_changes(&timer).await,
            None => break,
        }
    }
    let this = &mut *engine.borrow_mut();
    if let Some(connection) = this.connections.remove(&id) {
        this.world.report_now(&connection.peer, TrafficEvent::Closed);
    }
}

impl Engine {
    pub(super) fn start(&self, task: impl Future<Output = ()> + 'static) {
        // The receiver is gone only when the thread ends.
        let _ending = self.tasks.send(Box::pin(task));
    }

    /// A duplicate whose master is not there is lost.
    fn send_duplicates(engine: &Shared) {
        let this = &mut *engine.borrow_mut();
        for duplicate in std::mem::take(&mut this.world.duplicates) {
            if let Some(&address) = this.world.upstreams.get(&duplicate.peer.node) {
                let copy = copies::send(duplicate, address, Rc::clone(engine));
                this.start(async { drop(copy.await) });
            }
        }
    }

    pub(super) fn strike(&mut self, rule: Rule) -> RuleId {
        let id = self.world.rules.strike(rule.clone());
        for connection in self.connections.values_mut() {
            let (client, node) = connection.peer.link();
            if rule.strikes_connections() && rule.is_about(client, node) {
                connection.struck(id, rule.fault, &mut self.world);
            }
            connection.changed.notify_one();
        }
        id
    }

    pub(super) fn heal(&mut self, rule: RuleId) {
        self.world.rules.heal(rule);
        for connection in self.connections.values_mut() {
            connection.healed(rule, &mut self.world);
            connection.changed.notify_one();
        }
    }
}

/// What all connections share.
pub(super) struct World {
    pub(super) rules: Table,
    observer: Box<dyn FnMut(Traffic) + Send>,
    pub(super) upstreams: HashMap<usize, SocketAddr>,
    /// Requests to be sent once more.
    pub(super) duplicates: Vec<Duplicate>,
    timer: Timer,
}

impl World {
    pub(super) fn report(&mut self, at: Instant, peer: &Peer, event: TrafficEvent) {
        let Peer { client, node, connection } = peer.clone();
        (self.observer)(Traffic { at, client, node, connection, event });
    }

    pub(super) fn report_now(&mut self, peer: &Peer, event: TrafficEvent) {
        self.report(Instant::now(), peer, event);
    }

    pub(super) fn lost(&mut self, peer: &Peer, side: Side, label: Label) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Lost { number, side, command });
    }

    pub(super) fn struck(&mut self, peer: &Peer, side: Side, label: Label, rule: RuleId) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Struck { number, side, command, rule });
    }
}

/// A connection and its link.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) client: Arc<str>,
    pub(super) node: usize,
    pub(super) connection: u64,
}

impl Peer {
    pub(super) fn link(&self) -> Link<'_> {
        (&self.client, self.node)
    }
}
