//! Tests that the model holds, and that it detects the mutants.

use std::collections::HashSet;
use std::hash::Hash;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Holder, Position, Reply, Waiter, WaiterId, WakeUp};
use redquorum_redis_model::Event::Message;
use redquorum_redis_model::{Persistence, Server, ServerReply};

use super::master::{Master, MasterReply, Request};
use super::rules::*;
use super::*;

/// More states than any run in these tests has.
const MOST: usize = 1_000_000;

fn holds(scope: Scope) -> Explored {
    let Report { explored, .. } = model_check(scope, Mutant::None, MOST);
    assert!(explored.broken.is_none(), "{}: {:#?}", scope.name, explored.broken);
    assert!(explored.complete, "{}: {} states are not all", scope.name, explored.states);
    explored
}

#[test]
fn all_rules_hold_in_small_bounds() {
    for scope in Scope::SMALL {
        let explored = holds(scope);
        assert!(explored.ends > 0 && explored.states > 1_000, "{}: {explored:?}", scope.name);
    }
}

/// A variant of the model for a test.
struct Observed<'m> {
    machines: &'m mut Machines,
    eye: Observer,
}

enum Observer {
    /// Explores every state, and records the canonical ones.
    AllStates(HashSet<u128>),
    /// Checks only for overlaps. An overlap implies a hollow hold, which would otherwise be found
    /// first.
    OnlyOverlaps,
}

impl Model for Observed<'_> {
    type State = State;
    type Event = Event;

    fn starts(&mut self) -> Vec<State> {
        self.machines.starts()
    }

    fn events(&mut self, state: &State, out: &mut Vec<(Fairness, Event)>) {
        self.machines.events(state, out);
    }

    fn step(&mut self, state: &State, event: Event) -> Result<State, Broken> {
        self.machines.step(state, event)
    }

    fn key(&mut self, state: &State) -> u128 {
        if let Observer::AllStates(canonical) = &mut self.eye {
            self.machines.scope.canonicalize = true;
            canonical.insert(self.machines.key(state));
            self.machines.scope.canonicalize = false;
        }
        self.machines.key(state)
    }

    fn check(&mut self, state: &State) -> Result<(), Broken> {
        match (self.machines.check(state), &self.eye) {
            (Err(broken), Observer::OnlyOverlaps) if broken.rule != MUTUAL_EXCLUSION => Ok(()),
            (checked, _) => checked,
        }
    }

    fn check_end(&mut self, state: &State) -> Result<(), Broken> {
        self.machines.check_end(state)
    }

    fn describe_event(&mut self, state: &State, event: Event, after: Option<&State>) -> String {
        self.machines.describe_event(state, event, after)
    }

    fn describe_state(&mut self, state: &State) -> Vec<String> {
        self.machines.describe_state(state)
    }
}

#[test]
fn an_overlap_of_believed_holds_is_seen() {
    let scope = Scope { masters: 1, cuts: 1, ..Scope::CALM };
    let mut machines = Machines::new(scope, Mutant::ErrorIsYes);
    let found =
        explore(&mut Observed { machines: &mut machines, eye: Observer::OnlyOverlaps }, MOST);
    let found = found.broken.expect("it is seen");
    assert_eq!(found.broken.rule, MUTUAL_EXCLUSION, "{found:#?}");
    let contains = |text: &str| found.steps.iter().any(|line| line.contains(text));
    assert!(contains("c1 holds the lease") && contains("c2 holds the lease"), "{found:#?}");
}

#[test]
fn canonical_states_stand_for_the_same_states_in_each_order() {
    let whole = Scope { reduce: false, ..Scope::CALM };
    let scopes = [
        Scope { masters: 2, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, masters: 2, rounds: 1, ..whole },
        Scope { start: Start::Nothing, clocks: false, cuts: 1, reduce: false, ..Scope::WAITER },
    ];
    for scope in scopes {
        let canonical = holds(scope);
        let all_states = Scope { canonicalize: false, ..scope };
        let mut machines = Machines::new(all_states, Mutant::None);
        let eye = Observer::AllStates(HashSet::new());
        let mut all = Observed { machines: &mut machines, eye };
        let found = explore(&mut all, MOST);
        let Observer::AllStates(all) = all.eye else { unreachable!("it is the one above") };
        assert!(found.complete && found.broken.is_none(), "{found:?}");
        assert!(found.states > canonical.states, "{scope:?}");
        assert_eq!(all.len(), canonical.states, "{scope:?}");
    }
}

#[test]
fn an_event_that_is_taken_alone_leaves_out_no_end() {
    for scope in [
        Scope { masters: 2, cuts: 1, ..Scope::CALM },
        Scope { clients: 1, cuts: 1, errors: 1, masters: 2, ..Scope::CALM },
        Scope { lost_wake_ups: 1, ..Scope::WAITER },
    ] {
        let (reduced, whole) = (holds(scope), holds(Scope { reduce: false, ..scope }));
        assert!(reduced.states < whole.states);
        assert_eq!(reduced.ends, whole.ends, "{scope:?}");
    }
}

/// The hasher recognizes the form of a claim's hash: it finds each vote list of a claim.
#[test]
fn a_hash_has_as_many_vote_lists_as_its_claim() {
    let lease =
        Scope { masters: 2, rounds: 2, release: true, clients: 1, clocks: true, ..Scope::CALM };
    let waiter = Scope { release: true, lost_wake_ups: 1, ..Scope::WAITER };
    let mut seen = [0; 3];
    for scope in [lease, waiter] {
        let mut machines = Machines::new(scope, Mutant::None);
        assert!(explore(&mut machines, MOST).complete);
        for caller in machines.callers.all() {
            let mut fold = canonical::Canonical::at(caller.clock);
            caller.claim.hash(&mut fold);
            let (kind, least, most) = match &caller.claim {
                Claim::Acquiring(_) => (0, 1, 1),
                // With the round before, if the holder asked for it.
                Claim::Holding(_) => (1, 1, 2),
                Claim::Releasing(_) => (2, 1, 1),
                Claim::Ended => continue,
            };
            seen[kind] += 1;
            assert!((least..=most).contains(&fold.vote_lists()), "{caller:?}");
        }
    }
    assert!(seen.iter().all(|of| *of > 0), "{seen:?}");
}

/// Both models of a master, with two clients that are subscribed.
#[derive(Clone)]
struct BothMasters {
    key: Option<Key>,
    queue: Queue,
    server: Server,
    connections: [redquorum_redis_model::Connection; CLIENTS],
}

impl BothMasters {
    fn new() -> Self {
        let mut server = Server::new(1, Persistence::None);
        let connections = [0, 1].map(|client: u64| {
            let connection = server.connect().expect("it is up");
            server.deliver(connection, redquorum_redis_model::Request::Hello);
            let subscribe = Command::Subscribe { inbox: client + 1 };
            server.deliver(connection, redquorum_redis_model::Request::Lock(subscribe));
            server.serve(0, connection, &mut Vec::new());
            connection
        });
        Self { key: None, queue: Queue::default(), server, connections }
    }

    /// The reply of this model, and the client that it wakes.
    fn execute(&mut self, client: u8, request: Request) -> (MasterReply, Option<u8>) {
        let (key, queue) = (&mut self.key, &mut self.queue);
        Master { key, queue, waits: true, reaches: |_| true, passes: true }.execute(client, request)
    }

    /// The reply of the model of Redis, and the client that it wakes.
    fn redis(&mut self, client: u8, request: Request) -> (MasterReply, Option<u8>) {
        let key = redquorum_protocol::Key::from(&b"r"[..]);
        let token = |number: u8| connection::token(number | client << 7);
        let waiter = |inbox: bool| {
            let inbox = if inbox { u64::from(client) + 1 } else { 0 };
            Waiter { inbox, waiter_id: WaiterId::new(client.into()) }
        };
        let (ttl_ms, fence) = (60_000, None);
        let command = match request {
            Request::Set(of) => Command::Set { key, token: token(of), ttl_ms, fair: false, fence },
            Request::Keep { token: of, repair, .. } => {
                Command::Keep { key, token: token(of), ttl_ms, repair, fence }
            }
            Request::Delete(of, wake_up, leave) => {
                Command::Delete { key, token: token(of), wake_up, leave: leave.map(waiter) }
            }
            Request::Enqueue { inbox, .. } => {
                Command::Enqueue { key, waiter: waiter(inbox), position: Position::Any }
            }
            Request::Dequeue { inbox, wake } => {
                Command::Dequeue { key, waiter: waiter(inbox), wake }
            }
            other => unreachable!("{other:?} is no command on the key or its queue"),
        };
        let (expect, mut out) = (command.expect(), Vec::new());
        let connection = self.connections[usize::from(client)];
        self.server.deliver(connection, redquorum_redis_model::Request::Lock(command));
        self.server.serve(0, connection, &mut out);
        let Some(Message(_, ServerReply::Value(value))) = out.pop() else { panic!("{out:?}") };
        let holder = |holder| match holder {
            Holder::Lease { token, .. } => {
                let number = connection::number(token);
                (number >> 7 != client, number & 0x7f)
            }
            other => panic!("{other:?}"),
        };
        let reply = match value.read(expect) {
            Reply::Created => MasterReply::Created,
            Reply::Kept => MasterReply::Kept,
            Reply::Deleted | Reply::Freed { .. } => MasterReply::Deleted,
            Reply::Taken(Holder::NotAsked) => MasterReply::Taken,
            // The reply to a `Keep` names a holder, which decides nothing.
            Reply::Taken(_) if matches!(request, Request::Keep { .. }) => MasterReply::Absent,
            Reply::Taken(of) => {
                let (foreign, token) = holder(of);
                MasterReply::Held { foreign, token }
            }
            Reply::Place { ahead, holder: of, .. } => {
                let ahead = u8::try_from(ahead).expect("there are few");
                MasterReply::Place { ahead, held: of.map(holder) }
            }
            Reply::Absent => MasterReply::Absent,
            Reply::Alive => MasterReply::Alive,
            other => panic!("{other:?}"),
        };
        let woken = out.iter().find_map(|event| match event {
            Message(_, ServerReply::Woken(waiter)) => u8::try_from(waiter.inbox - 1).ok(),
            _ => None,
        });
        (reply, woken)
    }
}

/// The model of a master here has no time and no bytes. Otherwise it does what the model of Redis
/// does, which the differential test compares with a server.
#[test]
fn masters_reply_as_the_model_of_redis_does() {
    let requests = [
        Request::Set(1),
        Request::Set(2),
        Request::Keep { token: 1, round: 1, repair: true },
        Request::Keep { token: 2, round: 1, repair: false },
        Request::Delete(1, WakeUp::None, None),
        Request::Delete(1, WakeUp::First, Some(true)),
        Request::Enqueue { inbox: true, again: false },
        Request::Enqueue { inbox: false, again: false },
        Request::Dequeue { inbox: true, wake: true },
    ];
    let mut states = vec![BothMasters::new()];
    let mut at = 0;
    while at < states.len() {
        for (client, request) in [0, 1].iter().flat_map(|of| requests.map(|request| (*of, request)))
        {
            let mut next = states[at].clone();
            let [ours, redis] = [next.execute(client, request), next.redis(client, request)];
            let (key, queue) = (states[at].key, states[at].queue);
            assert_eq!(ours, redis, "{client} {request:?}, {key:?} {queue:?}");
            if states.iter().all(|state| (state.key, state.queue) != (next.key, next.queue)) {
                states.push(next);
            }
        }
        at += 1;
    }
    assert!(states.len() > 100, "{}", states.len());
}
