//! The client of a process: turns of its requests, timers of its leases, and its servers.
//!
//! [`Desk`] is a driver that keeps the commands that the client writes, and replies as a test
//! decides.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    AcquireRequest, Bounds, Claim, ClaimId, Client, ClientConfig, ClientEffect, Context, Drift,
    Failure, Holder, Input, Key, LockConfig, NodeId, Reply, RequestState, Rng, RunId, Time, Token,
};

const MS: Duration = Duration::from_millis(1);
const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// A counter in place of random numbers.
#[derive(Default)]
struct Counter(u64);

impl Rng for Counter {
    fn token(&mut self) -> Token {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.random().to_le_bytes());
        Token::new(bytes)
    }

    fn hint(&mut self) -> u64 {
        0
    }

    fn pause(&mut self, _: u32) -> Duration {
        MS * 100
    }

    fn random(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

struct Desk {
    client: Client,
    rng: Counter,
    now: Time,
    /// For each master, the commands that were written and have no reply yet.
    written: Vec<Vec<Command>>,
    epochs: Vec<u64>,
    changed: Vec<ClaimId>,
    replied: Vec<(u64, Reply)>,
}

impl Desk {
    fn new() -> Self {
        let config = ClientConfig {
            nodes: NODES,
            node_timeout: NODE_TIMEOUT,
            bounds: Bounds::for_node_timeout(NODE_TIMEOUT),
            wake_ups: false,
            fair: false,
            guard: None,
            inbox: 0,
        };
        let mut out = Vec::new();
        let client = Client::start(config, &mut out);
        let mut desk = Self {
            client,
            rng: Counter::default(),
            now: Time::from_millis(1_000),
            written: vec![Vec::new(); NODES],
            epochs: vec![0; NODES],
            changed: Vec::new(),
            replied: Vec::new(),
        };
        desk.carry_out(out);
        for node in NodeId::all(NODES) {
            assert_eq!(desk.connect(node, &format!("server {node}")), Ok(()));
        }
        desk
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R) -> R {
        let mut out = Vec::new();
        let mut cx = Context { clocks: self.now, rng: &mut self.rng, out: &mut out };
        let result = act(&mut self.client, &mut cx);
        self.carry_out(out);
        result
    }

    fn carry_out(&mut self, out: Vec<ClientEffect>) {
        for effect in out {
            match effect {
                ClientEffect::Write { node, epoch, command } => {
                    assert_eq!(epoch, self.epochs[node.index()]);
                    self.written[node.index()].push(command);
                }
                ClientEffect::Dial { node, epoch } => self.epochs[node.index()] = epoch,
                ClientEffect::Close { .. } | ClientEffect::Rearm { .. } => {}
                ClientEffect::Changed(id) => self.changed.push(id),
                ClientEffect::Replied { request, answer, .. } => {
                    self.replied.push((request, answer));
                }
                other => panic!("an unknown effect: {other:?}"),
            }
        }
    }

    fn connect(&mut self, node: NodeId, server: &str) -> Result<(), NodeId> {
        let epoch = self.epochs[node.index()];
        let run_id = Some(RunId(Arc::from(server)));
        let greeting = Greeting { run_id, ..Greeting::default() };
        self.act(|client, cx| client.connected(node, epoch, greeting, cx))
    }

    fn acquire(&mut self, key: &str, wait: Duration) -> ClaimId {
        let terms = LockConfig::new(NODES, TTL, Drift::default(), NODE_TIMEOUT).unwrap();
        let request = AcquireRequest { terms, wait, explain: false, fair: true, seed: () };
        let key = Key::from(key.as_bytes());
        self.act(|client, cx| client.acquire(key, request, cx))
    }

    /// Lets all masters reply, as `reply` decides, until no command is left.
    fn serve(&mut self, reply: impl Fn(&Command) -> Reply) {
        while self.written.iter().any(|written| !written.is_empty()) {
            for node in NodeId::all(NODES) {
                for command in std::mem::take(&mut self.written[node.index()]) {
                    let (epoch, answer) = (self.epochs[node.index()], reply(&command));
                    self.act(|client, cx| client.replied(node, epoch, answer, cx));
                }
            }
        }
    }

    fn collect(&mut self, id: ClaimId) {
        self.act(|client, cx| client.handle(id, Input::Collect, cx));
        assert!(self.client.hold(id).is_some());
    }

    fn granted(&mut self, key: &str) -> ClaimId {
        let id = self.acquire(key, TTL);
        self.serve(free);
        self.collect(id);
        id
    }

    fn look(&mut self, id: ClaimId) -> String {
        self.act(|client, cx| match client.look(id, cx) {
            Some(RequestState::Queued(_)) => "queued".to_owned(),
            Some(RequestState::Over(why, _)) => format!("over: {why:?}"),
            Some(RequestState::Claim(Claim::Acquiring(it))) => {
                format!("acquiring: {:?}", it.failure())
            }
            Some(RequestState::Claim(Claim::Holding(hold))) => {
                format!("holding: {:?}", hold.lost())
            }
            Some(RequestState::Claim(_)) => "released".to_owned(),
            None => "gone".to_owned(),
        })
    }

    fn is_queued(&self, id: ClaimId) -> bool {
        matches!(self.client.standing(id), Some(RequestState::Queued(_)))
    }
}

/// The replies of a master on which the resource is free.
fn free(command: &Command) -> Reply {
    match command {
        Command::Set { .. } => Reply::Created,
        Command::Keep { .. } => Reply::Kept,
        Command::Delete { .. } => Reply::Deleted,
        _ => Reply::Alive,
    }
}

/// The replies of a master on which another client holds the resource.
fn taken(command: &Command) -> Reply {
    match command {
        Command::Set { .. } => Reply::Taken(Holder::NotAsked),
        Command::Delete { .. } => {
            Reply::Taken(Holder::Lease { token: Token::new([9; 20]), left_ms: 60_000 })
        }
        other => free(other),
    }
}

#[test]
fn the_next_request_is_written_behind_the_release_of_the_one_before() {
    let mut desk = Desk::new();
    let first = desk.granted("r");
    let [second, third] = [TTL, TTL].map(|wait| desk.acquire("r", wait));
    assert!(desk.is_queued(second) && desk.is_queued(third));
    assert!(desk.written.iter().all(Vec::is_empty), "requests in the queue send nothing");
    desk.act(|client, cx| client.give_back(first, Input::Release, cx));
    for written in &desk.written {
        assert!(
            matches!(written[..], [Command::Delete { .. }, Command::Set { .. }]),
            "{written:?}"
        );
    }
    desk.serve(free);
    desk.collect(second);
    assert!(desk.is_queued(third));
    desk.act(|client, cx| client.cancel(third, cx));
    desk.act(|client, cx| client.give_back(second, Input::Abandon, cx));
    desk.serve(free);
    assert_eq!(desk.client.resources_waited_for(), 0);
    assert_eq!(desk.look(second), "gone", "its caller dropped it");
    assert_eq!(desk.look(first), "released", "until its caller has the outcome");
}

#[test]
fn a_cancelled_request_leaves_nothing_whatever_became_of_it() {
    let mut desk = Desk::new();
    let asks = desk.acquire("asks", TTL);
    let holds = desk.granted("holds");
    desk.act(|client, cx| client.handle(holds, Input::Reenter, cx));
    assert_eq!(desk.client.hold(holds).unwrap().handles(), 2);
    for id in [asks, holds] {
        desk.act(|client, cx| client.cancel(id, cx));
        for written in &mut desk.written {
            assert!(matches!(written.pop(), Some(Command::Delete { .. })), "{id:?}");
        }
        assert_eq!(desk.look(id), "gone");
    }
    assert_eq!(desk.client.resources_waited_for(), 0);
}

#[test]
fn a_request_whose_wait_is_over_reports_what_the_one_before_it_found_and_sends_nothing() {
    let mut desk = Desk::new();
    let holder = desk.granted("r");
    let waiter = desk.acquire("r", MS * 20);
    desk.now = desk.now.plus(MS * 19);
    assert_eq!(desk.look(waiter), "queued");
    desk.now = desk.now.plus(MS);
    assert_eq!(desk.look(waiter), format!("over: {:?}", Failure::Taken));
    assert!(desk.written.iter().all(Vec::is_empty));
    desk.act(|client, cx| client.cancel(waiter, cx));
    assert_eq!(desk.look(holder), "holding: None");
    // The claim of `asks` has no replies yet, so `waiter` makes an attempt of its own.
    let asks = desk.acquire("s", TTL);
    let waiter = desk.acquire("s", MS * 20);
    desk.now = desk.now.plus(MS * 20);
    assert_eq!(desk.look(waiter), "acquiring: None");
    assert_eq!(desk.written[0].len(), 2, "one attempt of each: {:?}", desk.written);
    assert_eq!(desk.look(asks), "acquiring: None");
}

#[test]
fn a_request_whose_caller_does_not_look_at_it_lets_others_pass() {
    for looks in [true, false] {
        let mut desk = Desk::new();
        let first = desk.acquire("r", TTL * 6);
        desk.serve(taken);
        let second = desk.acquire("r", TTL * 6);
        for _ in 0..20 {
            desk.now = desk.now.plus(MS * 100);
            if looks {
                desk.look(first);
            }
            desk.act(|client, cx| client.wake_leases(cx));
            desk.serve(taken);
        }
        assert_eq!(desk.is_queued(second), looks, "the first one looks: {looks}");
    }
}

#[test]
fn a_lease_that_is_not_collected_is_given_up_and_the_next_request_starts() {
    let mut desk = Desk::new();
    let first = desk.acquire("r", TTL);
    desk.serve(free);
    let second = desk.acquire("r", TTL);
    assert!(desk.changed.contains(&first) && desk.is_queued(second));
    desk.now = desk.now.plus(MS * 999);
    desk.act(|client, cx| client.wake_leases(cx));
    assert!(desk.is_queued(second));
    desk.now = desk.client.leases_wake_at();
    desk.act(|client, cx| client.wake_leases(cx));
    assert!(!desk.is_queued(second));
    desk.serve(free);
    desk.collect(second);
    assert_eq!(desk.look(first), "acquiring: None", "it goes on without a turn");
}

#[test]
fn a_lease_is_lost_at_its_deadline_without_a_look_of_its_caller() {
    let mut desk = Desk::new();
    let id = desk.granted("r");
    let deadline = desk.client.hold(id).unwrap().deadline();
    assert_eq!(desk.client.leases_wake_at(), deadline);
    desk.changed.clear();
    desk.now = deadline;
    desk.act(|client, cx| client.wake_leases(cx));
    assert!(desk.client.hold(id).unwrap().lost().is_some());
    assert_eq!(desk.changed, [id]);
}

#[test]
fn renewals_do_not_fill_the_links_and_all_leases_live_on() {
    const LEASES: usize = 2_000;
    let mut desk = Desk::new();
    let ids: Vec<_> = (0..LEASES).map(|number| desk.granted(&format!("r{number}"))).collect();
    for id in &ids {
        desk.act(|client, cx| client.handle(*id, Input::KeepAlive(TTL * 100), cx));
    }
    // All renewals are due at once, as after a suspend.
    desk.now = desk.now.plus(TTL / 2);
    for _ in 0..8 {
        desk.act(|client, cx| client.wake_leases(cx));
    }
    let sent = desk.written[0].len();
    assert!((512..=640).contains(&sent), "{sent}");
    assert_eq!(desk.client.leases_wake_at(), desk.now.plus(MS), "it looks again soon");
    for _ in 0..20 {
        desk.serve(free);
        desk.now = desk.now.plus(MS);
        desk.act(|client, cx| client.wake_leases(cx));
    }
    desk.serve(free);
    let renewed =
        |id: &&ClaimId| desk.client.hold(**id).unwrap().deadline() > desk.now.plus(TTL / 2);
    assert_eq!(ids.iter().filter(renewed).count(), LEASES);
}

#[test]
fn one_server_under_two_addresses_votes_once() {
    let mut desk = Desk::new();
    let [first, second] = [0, 1].map(NodeId::new);
    let epoch = desk.epochs[second.index()];
    desk.act(|client, cx| client.closed(second, epoch, "reset".into(), 0, cx));
    assert_eq!(desk.connect(second, "server master 1"), Err(first));
    let epoch = desk.epochs[second.index()];
    desk.act(|client, cx| client.closed(second, epoch, "the same server".into(), 0, cx));
    desk.now = desk.client.link(second).next_wake();
    desk.act(|client, cx| client.wake_link(second, cx));
    assert_eq!(desk.connect(second, "server master 2"), Ok(()));
}

#[test]
fn masters_are_probed_and_a_client_that_is_shut_down_asks_them_nothing() {
    let mut desk = Desk::new();
    let node = NodeId::new(0);
    desk.act(|client, cx| client.probe(node, 7, cx));
    desk.serve(free);
    assert_eq!(desk.replied, [(7, Reply::Alive)]);
    desk.act(|client, cx| client.initialize(node, 8, cx));
    assert!(matches!(desk.replied[..], [_, (8, Reply::Unknown(_))]), "it has no guard");
    let lease = desk.granted("r");
    desk.changed.clear();
    desk.act(|client, cx| client.shut_down(cx));
    assert!(desk.client.is_shut_down() && desk.changed == [lease]);
    let refused = desk.acquire("s", Duration::ZERO);
    assert_eq!(desk.look(refused), format!("acquiring: {:?}", Some(Failure::NoQuorum)));
    assert!(desk.written.iter().all(Vec::is_empty));
    desk.act(|client, cx| client.give_back(lease, Input::Release, cx));
    assert!(desk.written.iter().all(|written| written.len() == 1), "clean-ups go on");
}
