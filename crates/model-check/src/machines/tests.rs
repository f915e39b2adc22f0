//! Tests that the model holds, and that it detects the mutants.

use std::collections::HashSet;
use std::hash::Hash;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Holder, Position, Reply, Waiter, WaiterId, WakeUp};
use redquorum_redis_model::Event::Message;
use redquorum_redis_model::{Persistence, Server, ServerReply};

use super::master::{Held, Master, MasterReply, Request, Shown};
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
    /// Counts the states in which both clients believe in a lease.
    Both(usize),
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
        let believes = |client| self.machines.known(state, client).believed.is_some();
        if let Observer::Both(count) = &mut self.eye
            && (0..CLIENTS).all(believes)
        {
            *count += 1;
        }
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

/// Readers hold together, and nobody holds beside a writer.
#[test]
fn leases_overlap_only_where_both_are_shared() {
    for (readers, together) in [(0, false), (1, false), (2, false), (3, true)] {
        let scope = Scope { masters: 2, readers, ..Scope::CALM };
        let mut machines = Machines::new(scope, Mutant::None);
        let mut observed = Observed { machines: &mut machines, eye: Observer::Both(0) };
        let found = explore(&mut observed, MOST);
        assert!(found.complete && found.broken.is_none(), "{found:?}");
        let Observer::Both(count) = observed.eye else { unreachable!("it is the one above") };
        assert_eq!(count > 0, together, "{readers}");
    }
    // A grant to a reader that does not look at the writer is seen.
    let evicts = Scope { masters: 1, readers: 1, ..Scope::CALM };
    let mut machines = Machines::new(evicts, Mutant::Evicts);
    let eye = Observer::OnlyOverlaps;
    let found = explore(&mut Observed { machines: &mut machines, eye }, MOST);
    assert_eq!(found.broken.expect("it is seen").broken.rule, MUTUAL_EXCLUSION);
}

#[test]
fn canonical_states_stand_for_the_same_states_in_each_order() {
    let whole = Scope { reduce: false, ..Scope::CALM };
    let scopes = [
        Scope { masters: 2, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, ..whole },
        Scope { clients: 1, clocks: true, masters: 2, rounds: 1, ..whole },
        Scope { start: Start::Nothing, clocks: false, cuts: 1, reduce: false, ..Scope::WAITER },
        Scope { masters: 2, clocks: true, readers: 3, ..whole },
        Scope { masters: 2, clocks: true, readers: 1, ..whole },
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
    held: Held,
    queue: Queue,
    readers: u8,
    server: Server,
    connections: [redquorum_redis_model::Connection; CLIENTS],
}

impl BothMasters {
    fn new(readers: u8) -> Self {
        let mut server = Server::new(1, Persistence::None);
        let connections = [0, 1].map(|client: u64| {
            let connection = server.connect().expect("it is up");
            server.deliver(connection, redquorum_redis_model::Request::Hello);
            let subscribe = Command::Subscribe { inbox: client + 1 };
            server.deliver(connection, redquorum_redis_model::Request::Lock(subscribe));
            server.serve(0, connection, &mut Vec::new());
            connection
        });
        Self { held: Held::No, queue: Queue::default(), readers, server, connections }
    }

    /// The reply of this model, and the clients that it wakes.
    fn execute(&mut self, client: u8, request: Request) -> (MasterReply, u8) {
        let (held, queue, mutant) = (&mut self.held, &mut self.queue, Mutant::None);
        let (readers, waits, keeps) = (self.readers, true, false);
        let reaches = |_| true;
        Master { held, queue, readers, waits, reaches, keeps, mutant }.execute(client, request)
    }

    /// The reply of the model of Redis, and the clients that it wakes.
    fn redis(&mut self, client: u8, request: Request) -> (MasterReply, u8) {
        let key = redquorum_protocol::Key::from(&b"r"[..]);
        let shared = self.readers >> client & 1 == 1;
        let token = |number: u8| connection::token(number | client << 7, shared);
        let waiter = |inbox: bool| {
            let inbox = if inbox { u64::from(client) + 1 } else { 0 };
            let waiter_id = WaiterId::new(client.into());
            Waiter { inbox, waiter_id: if shared { waiter_id.shared() } else { waiter_id } }
        };
        let (ttl_ms, fence) = (60_000, None);
        let command = match request {
            Request::Set { token: of, behind } => {
                Command::Set { key, token: token(of), ttl_ms, fair: behind, fence }
            }
            Request::Keep { token: of, repair, .. } => {
                Command::Keep { key, token: token(of), ttl_ms, repair, marker: None, fence }
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
        let before = self.held;
        let holder = |holder: Holder| match holder {
            Holder::Lease { token, .. } => {
                let number = connection::number(token);
                let (owner, token) = (number >> 7, number & 0x7f);
                assert!(before.has(owner, token), "{before:?} has no {owner} {token}");
                // It may name any one of those who share the resource.
                let other = before.keys().find(|key| holder.is_shared() && key.client != client);
                let of = other.map_or((owner, token), |key| (key.client, key.token));
                let most = before.keys().filter(|key| key.client == of.0).map(|key| key.token);
                let token = most.filter(|_| holder.is_shared()).max().unwrap_or(of.1);
                Shown { foreign: of.0 != client, shared: holder.is_shared(), token }
            }
            other => panic!("{other:?}"),
        };
        let reply = match value.read(expect) {
            Reply::Created => MasterReply::Created,
            Reply::Kept => MasterReply::Kept,
            Reply::Deleted | Reply::Freed { .. } => MasterReply::Deleted,
            Reply::Taken(Holder::NotAsked | Holder::Waiter) => MasterReply::Taken,
            // The reply to a `Keep` names a holder, which decides nothing.
            Reply::Taken(_) if matches!(request, Request::Keep { .. }) => MasterReply::Absent,
            Reply::Taken(of) => MasterReply::Held(holder(of)),
            Reply::Place { ahead, holder: of, .. } => {
                let ahead = u8::try_from(ahead).expect("there are few");
                MasterReply::Place { ahead, held: of.map(holder) }
            }
            Reply::Absent => MasterReply::Absent,
            Reply::Alive => MasterReply::Alive,
            other => panic!("{other:?}"),
        };
        let woken = out.iter().filter_map(|event| match event {
            Message(_, ServerReply::Woken(waiter)) => Some(1 << (waiter.inbox - 1)),
            _ => None,
        });
        (reply, woken.sum())
    }
}

/// The model of a master here has no time and no bytes. Otherwise it does what the model of Redis
/// does, which the differential test compares with a server.
#[test]
fn masters_reply_as_the_model_of_redis_does() {
    let set = |token, behind| Request::Set { token, behind };
    let requests = [
        set(1, false),
        set(2, false),
        Request::Delete(1, WakeUp::None, None),
        Request::Delete(1, WakeUp::First, Some(true)),
        Request::Enqueue { inbox: true, again: false },
        Request::Enqueue { inbox: false, again: false },
        Request::Dequeue { inbox: true, wake: true },
    ];
    let alone = [
        Request::Keep { token: 1, round: 1, repair: true },
        Request::Keep { token: 2, round: 1, repair: false },
    ];
    let shared = [set(1, true), Request::Delete(2, WakeUp::First, None)];
    for readers in 0..1 << CLIENTS {
        let of = |client: u8| {
            let own = if readers >> client & 1 == 1 { shared } else { alone };
            requests.into_iter().chain(own).map(move |request| (client, request))
        };
        let mut states = vec![BothMasters::new(readers)];
        let mut at = 0;
        while at < states.len() {
            for (client, request) in of(0).chain(of(1)) {
                let (held, queue) = (states[at].held, states[at].queue);
                let mut next = states[at].clone();
                let redis = next.redis(client, request);
                let ours = next.execute(client, request);
                assert_eq!(ours, redis, "{readers} {client} {request:?}, {held:?} {queue:?}");
                if states.iter().all(|it| (it.held, it.queue) != (next.held, next.queue)) {
                    states.push(next);
                }
            }
            at += 1;
        }
        assert!(states.len() > 100, "{}", states.len());
    }
}
