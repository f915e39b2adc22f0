//! Requests for several resources, with the shipped clients and random timings.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{
    AcquireRequest, ClaimId, Drift, Failure, Input, Key, LockConfig, MemberAction, MemberEvent,
    MultiLock, Progress, RequestState, Time,
};

use crate::master::Master;
use crate::support::MS;
use crate::world::{Config, World};

const NODES: usize = 3;
const NODE_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Trying,
    /// Held since the first time, with the second one as its deadline.
    Held(Time, Time),
    Refused(usize, Failure),
    Over,
}

/// A client with one request.
struct Caller {
    machine: MultiLock,
    /// The resources, in the caller's order.
    keys: Vec<usize>,
    claims: Vec<Option<ClaimId>>,
    state: State,
    config: LockConfig,
    /// When each claim started.
    tried: Vec<Time>,
}

struct Callers {
    world: World,
    all: Vec<Caller>,
    /// When each stopped master resumes.
    stopped: [Time; NODES],
}

fn key(number: usize) -> Key {
    Key::from(number.to_be_bytes())
}

impl Callers {
    fn new(seed: u64, clients: usize) -> Self {
        let (masters, node_timeout) = (NODES, NODE_TIMEOUT);
        let config = Config { masters, clients, node_timeout, ..Config::default() };
        let mut world = World::new(seed, config);
        world.run_until(Time::from_millis(100));
        Self { stopped: [world.now; NODES], world, all: Vec::new() }
    }

    /// A caller requests these resources, in this order, and waits for up to `wait`.
    fn ask(&mut self, keys: &[usize], wait: Duration) -> usize {
        self.ask_for(MS * 60_000, keys, wait)
    }

    fn ask_for(&mut self, ttl: Duration, keys: &[usize], wait: Duration) -> usize {
        let mut actions = Vec::new();
        let machine = MultiLock::start(self.world.now, keys.len(), wait, &mut actions);
        let config = LockConfig::new(NODES, ttl, Drift::default(), NODE_TIMEOUT).expect("they fit");
        let (keys, claims) = (keys.to_vec(), vec![None; keys.len()]);
        let state = State::Trying;
        self.all.push(Caller { machine, keys, claims, state, config, tried: Vec::new() });
        self.carry_out(self.all.len() - 1, actions);
        self.all.len() - 1
    }

    /// Another client holds a resource on every master for `length`, if it is free.
    fn occupy(&mut self, number: usize, length: Duration) {
        let key = key(number);
        if self.world.masters.iter().all(|it| it.keys().all(|(of, _)| *of != key)) {
            self.world.occupy(&key, length);
        }
    }

    fn stop(&mut self, node: usize, length: Duration) {
        // A master is stopped only once at a time.
        if self.world.now >= self.stopped[node] {
            self.stopped[node] = self.world.now.plus(length);
            self.world.stop_for(node, length);
        }
    }

    /// Ends the caller's request, or releases its leases.
    fn leave(&mut self, caller: usize) {
        self.handle(caller, MemberEvent::Abandon);
        if let State::Held(..) = self.all[caller].state {
            for member in 0..self.all[caller].claims.len() {
                self.undo(caller, member);
            }
        }
        self.all[caller].state = State::Over;
    }

    fn handle(&mut self, caller: usize, event: MemberEvent) {
        let mut actions = Vec::new();
        let machine = &mut self.all[caller].machine;
        machine.handle(self.world.now, event, &mut self.world.random, &mut actions);
        self.carry_out(caller, actions);
    }

    fn carry_out(&mut self, caller: usize, actions: Vec<MemberAction>) {
        for action in actions {
            match action {
                MemberAction::Try { member, wait, explain } => {
                    let Caller { config, keys, .. } = &self.all[caller];
                    let request = AcquireRequest::for_member(*config, wait, explain, ());
                    let id = self.world.acquire(caller, &key(keys[member]), request);
                    self.all[caller].claims[member] = Some(id);
                    self.all[caller].tried.push(self.world.now);
                }
                MemberAction::Collect { member } => {
                    let id = self.all[caller].claims[member].expect("it is won");
                    self.world.drive(caller, id, Input::Collect);
                    let progress = self.progress(caller, id);
                    self.handle(caller, MemberEvent::of_collect(member, progress));
                }
                MemberAction::Undo { member } => self.undo(caller, member),
                _ => {}
            }
        }
    }

    fn undo(&mut self, caller: usize, member: usize) {
        if let Some(id) = self.all[caller].claims[member].take() {
            self.world.cancel(caller, id, true);
        }
    }

    fn progress(&self, caller: usize, id: ClaimId) -> Progress<'_> {
        let state = self.world.clients[caller].standing(id);
        state.as_ref().map_or(Progress::Other, RequestState::progress)
    }

    /// Reports the results of a caller's claims to its machine.
    fn attend(&mut self, caller: usize) {
        if self.all[caller].state != State::Trying {
            return;
        }
        for member in 0..self.all[caller].claims.len() {
            let id = self.all[caller].claims[member];
            let event = id.and_then(|id| MemberEvent::result(member, self.progress(caller, id)));
            event.into_iter().for_each(|event| self.handle(caller, event));
        }
        let Caller { machine, claims, state, .. } = &mut self.all[caller];
        if let Some((member, why)) = machine.failure() {
            *state = State::Refused(member, why);
        } else if machine.is_held() {
            let holds = claims.iter().flatten().map(|id| self.world.clients[caller].hold(*id));
            let deadlines = holds.map(|hold| hold.expect("all are collected").deadline());
            let earliest = deadlines.min().expect("there are some");
            assert_eq!(machine.deadline(), Some(earliest));
            assert!(self.world.now < earliest, "an expired lease was handed out");
            *state = State::Held(self.world.now, earliest);
        }
    }

    /// Lets time pass, and checks after each event that no two callers hold one resource.
    fn pass(&mut self, length: Duration) {
        let end = self.world.now.plus(length);
        loop {
            let due = self.all.iter().map(|caller| caller.machine.next_wake()).min();
            let due = due.unwrap_or(Time::NEVER);
            let stepped = self.world.step(due.min(end));
            self.world.events.clear();
            for caller in 0..self.all.len() {
                if self.all[caller].machine.next_wake() <= self.world.now {
                    self.handle(caller, MemberEvent::Wake);
                }
                self.attend(caller);
            }
            let mut held = BTreeSet::new();
            for caller in self.holders() {
                let twice = self.all[caller].keys.iter().find(|key| !held.insert(**key));
                assert_eq!(twice, None, "two hold one resource");
            }
            if !stepped && due > end {
                return;
            }
        }
    }

    /// The callers with valid leases now.
    fn holders(&self) -> Vec<usize> {
        let holds = |caller: &usize| match self.all[*caller].state {
            State::Held(_, deadline) => self.world.now < deadline,
            _ => false,
        };
        (0..self.all.len()).filter(holds).collect()
    }

    fn is_held(&self, caller: usize) -> bool {
        self.holders().contains(&caller)
    }

    /// When the keys that are on masters expire.
    fn left(&self) -> Vec<Time> {
        let keys = self.world.masters.iter().flat_map(Master::keys);
        keys.map(|(_, expires)| expires).filter(|expires| *expires > self.world.now).collect()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Ask(Vec<usize>, u32),
    Leave(usize),
    Occupy(usize, u32),
    Stop(usize, u32),
}

fn any_keys() -> impl Strategy<Value = Vec<usize>> {
    Just((0..5).collect::<Vec<usize>>())
        .prop_shuffle()
        .prop_flat_map(|keys| (1..=4_usize).prop_map(move |count| keys[..count].to_vec()))
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any_keys(), prop_oneof![Just(0), 1..400_u32])
            .prop_map(|(keys, wait)| Act::Ask(keys, wait)),
        3 => (0..20_usize).prop_map(Act::Leave),
        1 => (0..5_usize, 1..300_u32).prop_map(|(key, ms)| Act::Occupy(key, ms)),
        1 => (0..NODES, 1..200_u32).prop_map(|(node, ms)| Act::Stop(node, ms)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn all_are_held_or_none_and_whatever_ends_leaves_no_key(
        seed: u64,
        acts in vec((0..60_u32, any_act()), 1..25),
    ) {
        let mut callers = Callers::new(seed, acts.len());
        for (after, act) in &acts {
            callers.pass(MS * *after);
            match act {
                Act::Ask(keys, wait) => _ = callers.ask(keys, MS * *wait),
                Act::Leave(caller) if *caller < callers.all.len() => callers.leave(*caller),
                Act::Leave(_) => {}
                Act::Occupy(key, ms) => callers.occupy(*key, MS * *ms),
                Act::Stop(node, ms) => callers.stop(*node, MS * *ms),
            }
        }
        // After this, no caller waits any more.
        callers.pass(MS * 2_000);
        prop_assert!(callers.all.iter().all(|caller| caller.state != State::Trying));
        let held: usize =
            callers.holders().into_iter().map(|caller| callers.all[caller].keys.len()).sum();
        // On a stopped master, a key may come too late to count. It is cleaned up with the rest.
        let left = callers.left().len();
        prop_assert!(left >= held * (NODES / 2 + 1) && left <= held * NODES);
        (0..callers.all.len()).for_each(|caller| callers.leave(caller));
        callers.pass(MS * 1_000);
        prop_assert_eq!(callers.left(), []);
    }

    #[test]
    fn two_that_name_them_in_opposite_orders_both_get_through(seed: u64, apart in 0..5_u32) {
        let mut callers = Callers::new(seed, 2);
        let end = callers.world.now.plus(MS * 5_000);
        callers.ask(&[0, 1, 2], MS * 5_000);
        callers.pass(MS * apart);
        callers.ask(&[2, 1, 0], MS * 5_000);
        let mut done = BTreeSet::new();
        while done.len() < 2 {
            callers.pass(MS * 10);
            prop_assert!(callers.world.now < end, "{done:?}");
            for caller in callers.holders() {
                done.insert(caller);
                callers.leave(caller);
            }
        }
        callers.pass(MS * 100);
        prop_assert_eq!(callers.left(), []);
    }

    #[test]
    fn it_ends_three_node_timeouts_after_the_wait_at_the_latest(
        seed: u64,
        wait in 0..300_u32,
        stop in vec((0..NODES, 1..200_u32), 0..3),
    ) {
        let mut callers = Callers::new(seed, 1);
        for (node, ms) in stop {
            callers.stop(node, MS * ms);
        }
        callers.occupy(1, MS * wait / 2);
        callers.ask(&[0, 1, 2], MS * wait);
        callers.pass(MS * wait + NODE_TIMEOUT * 3);
        prop_assert_ne!(callers.all[0].state, State::Trying);
    }
}

#[test]
fn the_ttl_of_a_later_round_is_that_of_the_first() {
    let mut callers = Callers::new(7, 1);
    let free = callers.world.now.plus(MS * 1_000);
    callers.occupy(1, MS * 1_000);
    callers.ask_for(MS * 400, &[0, 1], MS * 3_000);
    while callers.all[0].state == State::Trying {
        callers.pass(MS);
    }
    let Caller { state: State::Held(at, deadline), config, machine, .. } = &callers.all[0] else {
        panic!("it was free")
    };
    assert!(*at >= free && machine.rounds() > 1 && *deadline <= at.plus(config.validity()));
    assert!(*callers.left().iter().max().unwrap() <= at.plus(MS * 407));
}

#[test]
fn keys_that_were_left_and_two_holders_would_be_seen() {
    let mut callers = Callers::new(7, 2);
    callers.ask(&[0, 1], Duration::ZERO);
    callers.pass(MS * 10);
    assert!(callers.is_held(0));
    assert_eq!(callers.left().len(), 2 * NODES);
    // Masters that forget let a second caller in.
    callers.world.masters.iter_mut().for_each(|it| it.server.flush_all());
    callers.ask(&[1, 0], Duration::ZERO);
    let pass = std::panic::AssertUnwindSafe(|| callers.pass(MS * 10));
    assert!(std::panic::catch_unwind(pass).is_err());
}
