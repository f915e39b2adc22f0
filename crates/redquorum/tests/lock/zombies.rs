//! Connections that die with commands in them: a master that executes these commands late must not
//! create a key without an owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use redquorum::{Builder, Outcome, Redlock};
use redquorum_rig::network::{
    End, Message, MessageFault, Network, Rule, RuleId, Side, TrafficEvent,
};
use redquorum_rig::trials::Case;
use tokio::time::{Instant, sleep};

use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        real:
            a_client_that_does_not_care_leaves_zombies,
            a_set_in_the_socket_of_a_stopped_master_makes_no_zombie,
            a_set_that_arrives_after_the_reconnect_makes_no_zombie,
            where_killing_is_forbidden_a_zombie_lives_for_one_ttl_at_most,
    ]
}

/// A network before some masters. Its faults affect the connections that are open; later ones are
/// healthy. The master's side of an affected connection stays open, so only the library can make
/// the master close it.
struct Faulty {
    network: Network,
    opened: Arc<AtomicU64>,
    forwarded: Arc<AtomicU64>,
    ports: Vec<u16>,
}

impl Faulty {
    fn before(masters: &Real, nodes: impl IntoIterator<Item = usize>) -> Self {
        let (opened, forwarded) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let seen = (opened.clone(), forwarded.clone());
        let network = Network::start(move |traffic| match traffic.event {
            TrafficEvent::Opened => drop(seen.0.fetch_add(1, SeqCst)),
            TrafficEvent::Forwarded { .. } => drop(seen.1.fetch_add(1, SeqCst)),
            _ => {}
        })
        .unwrap();
        let listen = |node| {
            network.upstream(node, Some(([127, 0, 0, 1], masters.port(node)).into()));
            network.listen("client", node).unwrap().port()
        };
        let ports = nodes.into_iter().map(listen).collect();
        Self { network, opened, forwarded, ports }
    }

    fn urls(&self) -> impl Iterator<Item = String> {
        self.ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))
    }

    fn opened(&self) -> u64 {
        self.opened.load(SeqCst)
    }

    fn forwarded(&self) -> u64 {
        self.forwarded.load(SeqCst)
    }

    /// Strikes these messages of the open connections.
    fn strike(
        &self,
        fault: MessageFault,
        side: Side,
        matches: impl Fn(&Message<'_>) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        let open = self.opened();
        let matches =
            Arc::new(move |message: &Message<'_>| message.connection <= open && matches(message));
        self.network.strike(Rule { side, matches: Some(matches), ..Rule::all(fault) })
    }

    /// Holds requests back until the rule is healed.
    fn hold(&self) -> RuleId {
        self.strike(MessageFault::Hold, Side::Requests, |_| true)
    }

    /// Resets the client's side of the open connections.
    fn cut(&self) {
        self.network.strike(Rule::all(MessageFault::HalfOpen(End::Client)));
    }
}

/// Three masters, of which the first is behind a network.
fn behind(masters: &Real, network: &Faulty) -> Builder {
    over(network.urls().chain([2, 3].map(|node| masters.url(node)))).node_timeout(100 * MS)
}

/// How many connections master 1 killed for `lock`, its only client.
fn kills(masters: &Real, lock: &Redlock) -> u64 {
    // Before Redis 7.0 all subcommands count as one command; a connection sends `CLIENT ID` once.
    let connected = lock.stats().masters[0].connected;
    masters.calls(1, "client|kill") + masters.calls(1, "client").saturating_sub(connected)
}

/// Control for all other tests: a raw client does the same without killing its old connections.
async fn a_client_that_does_not_care_leaves_zombies() {
    let masters = Real::start(1);
    // A SET that lies in the socket of a stopped master.
    masters.stop([1]);
    let mut client = Raw::connect(masters.port(1));
    client.send("SET stopped zombie NX PX 5000");
    drop(client);
    masters.resume([1]);
    eventually("a zombie", || masters.holders("stopped") == [1]).await;
    // A SET that the network holds back until after the clean-up.
    let network = Faulty::before(&masters, [1]);
    let mut client = Raw::connect(network.ports[0]);
    assert_eq!(client.ask("PING"), "+PONG");
    let hold = network.hold();
    client.send("SET held zombie NX PX 5000");
    sleep(10 * MS).await;
    network.cut();
    assert!(client.is_cut_off());
    masters.delete([1], "held");
    network.network.heal(hold);
    eventually("a zombie", || masters.holders("held") == [1]).await;
}

async fn a_set_in_the_socket_of_a_stopped_master_makes_no_zombie() {
    let masters = Real::start(3);
    let network = Faulty::before(&masters, [1]);
    let lock = built(behind(&masters, &network)).await;
    masters.stop([1]);
    let before = network.forwarded();
    let lease = lock.acquire("r").await.unwrap();
    eventually("the SET is in its socket", || network.forwarded() > before).await;
    // The client's side breaks, the master does not notice it, and the client reconnects.
    network.cut();
    eventually("it reconnects", || network.opened() >= 2).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(owed(&lock), 1);
    masters.resume([1]);
    recovered(&lock).await;
    assert!(masters.holders("r").is_empty());
    sleep(100 * MS).await;
    assert!(masters.holders("r").is_empty(), "a zombie");
    assert_eq!(kills(&masters, &lock), 1);
}

async fn a_set_that_arrives_after_the_reconnect_makes_no_zombie() {
    let masters = Real::start(3);
    let network = Faulty::before(&masters, [1]);
    let lock = built(behind(&masters, &network)).await;
    let hold = network.hold();
    let before = network.forwarded();
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(network.forwarded(), before, "it is held back");
    network.cut();
    recovered(&lock).await;
    assert!(masters.holders("r").is_empty());
    network.network.heal(hold);
    sleep(100 * MS).await;
    assert!(masters.holders("r").is_empty(), "a zombie");
    assert_eq!((kills(&masters, &lock), masters.calls(1, "set")), (1, 0));
}

async fn where_killing_is_forbidden_a_zombie_lives_for_one_ttl_at_most() {
    let masters = Real::start(3);
    masters.done(1, "ACL SETUSER default -client +client|id");
    let network = Faulty::before(&masters, [1]);
    let lock = built(behind(&masters, &network).ttl(S)).await;
    let hold = network.hold();
    let lease = lock.acquire("r").await.unwrap();
    sleep(10 * MS).await;
    // The cut comes between the SET and its clean-up, which would otherwise arrive late with the
    // SET.
    network.cut();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    recovered(&lock).await;
    let late = Instant::now();
    network.network.heal(hold);
    // This is the documented price, and the control of these tests: they see a zombie.
    eventually("a zombie", || masters.holders("r") == [1]).await;
    assert!((1..=1000).contains(&masters.pttl(1, "r")));
    // The zombie blocks no client on the other two masters, and does not count as a vote.
    let lease = lock.try_acquire("r").await.unwrap().expect("two masters are free");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    eventually("it expires", || masters.holders("r").is_empty()).await;
    assert!(late.elapsed() < S + AT_ONCE);
    assert_eq!(owed(&lock), 0);
}
