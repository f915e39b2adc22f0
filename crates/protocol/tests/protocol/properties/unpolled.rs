//! Callers that stop looking at their requests anywhere: the client itself ends what others wait
//! for. [`Client::acts_at`](redquorum_protocol::Client::acts_at), by which the world drives its
//! clients, asserts that each state has such an end.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{
    AcquireRequest, ClaimId, Drift, Extension, Input, Key, LockConfig, OwnerId, Progress, Reentry,
    RequestState, Time,
};

use crate::support::MS;
use crate::world::{Config, World, WorldEvent};

const NODE_TIMEOUT: Duration = Duration::from_millis(20);

/// No key expires by itself in a run.
const TTL: Duration = Duration::from_secs(3_600);

/// How long an unpolled request may keep others waiting: the end of its round and the leeway, or
/// the time until a won lease must be collected, and some messages.
const EACH: Duration = Duration::from_millis(2_500);

/// What a caller does.
#[derive(Clone, Debug)]
struct Plan {
    client: usize,
    key: usize,
    starts: Duration,
    wait: Duration,
    owner: Option<(usize, bool)>,
    fenced: bool,
    explain: bool,
    /// For how long it looks at its request; without this, always.
    looks_for: Option<Duration>,
    /// When it looks again after that, if ever.
    away: Option<Duration>,
    holds: Duration,
    /// It extends its lease, and does not look at the result.
    extends: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum CallerState {
    Idle,
    Asking(ClaimId),
    Away(ClaimId),
    Holding(ClaimId, Time),
    Done,
}

struct Caller {
    plan: Plan,
    state: CallerState,
    /// The next time at which it does something of its own.
    next: Time,
    granted: bool,
}

struct Crowd {
    world: World,
    keys: [Key; 2],
    callers: Vec<Caller>,
}

impl Crowd {
    fn new(seed: u64, config: Config, plans: Vec<Plan>, (hung, apart): (bool, bool)) -> Self {
        let mut world = World::new(seed, Config { node_timeout: NODE_TIMEOUT, ..config });
        world.run_until(Time::from_millis(1_000));
        let keys = [Arc::from(&b"one"[..]), Arc::from(&b"two"[..])];
        for (number, master) in world.masters.iter_mut().enumerate().filter(|_| apart) {
            for name in ["one", "two"] {
                let (key, counter) = (format!("redquorum:fence:{name}"), number as u64 * 1_000 + 7);
                let (key, counter) = (Key::from(key.as_bytes()), counter.to_string());
                master.server.set(world.now.as_nanos(), &key, counter.as_bytes(), None);
            }
        }
        if hung {
            world.masters[0].server.pause();
        }
        let mut crowd = Self { world, keys, callers: Vec::new() };
        plans.into_iter().for_each(|plan| crowd.add(plan));
        crowd
    }

    fn add(&mut self, plan: Plan) {
        let next = self.world.now.plus(plan.starts);
        self.callers.push(Caller { plan, state: CallerState::Idle, next, granted: false });
    }

    fn run(&mut self, length: Duration) {
        let end = self.world.now.plus(length);
        loop {
            let next = self.callers.iter().map(|it| it.next).min().unwrap_or(Time::NEVER);
            if !self.world.step(next.min(end)) {
                if next > end {
                    return;
                }
                let due = self.callers.iter().position(|it| it.next == next).expect("it is due");
                self.act(due);
            }
            self.attend();
        }
    }

    /// The caller starts, stops looking, looks again or releases.
    fn act(&mut self, number: usize) {
        let (now, caller) = (self.world.now, &mut self.callers[number]);
        let plan = caller.plan.clone();
        caller.next = Time::NEVER;
        match caller.state {
            CallerState::Idle => {
                let masters = self.world.config.masters;
                let config = LockConfig::new(masters, TTL, Drift::default(), NODE_TIMEOUT);
                let mut config = config.expect("they fit");
                if plan.fenced {
                    config = config.with_fencing(TTL).expect("it fits");
                }
                if plan.owner.is_some_and(|(_, extend)| extend) {
                    config = config.with_ttl(TTL * 2).expect("it fits");
                }
                let reentry =
                    plan.owner.map(|(owner, extend)| Reentry { owner: OwnerId(owner), extend });
                let request = AcquireRequest {
                    reentry,
                    fair: true,
                    ..AcquireRequest::for_member(config, plan.wait, plan.explain, ())
                };
                let id = self.world.acquire(plan.client, &self.keys[plan.key], request);
                caller.state = CallerState::Asking(id);
                caller.next = plan.looks_for.map_or(Time::NEVER, |looks| now.plus(looks));
                self.world.attend(plan.client, id);
            }
            CallerState::Asking(id) => {
                self.world.neglect(plan.client, id);
                caller.state = CallerState::Away(id);
                caller.next = plan.away.map_or(Time::NEVER, |away| now.plus(away));
            }
            CallerState::Away(id) => {
                self.world.attend(plan.client, id);
                caller.state = CallerState::Asking(id);
            }
            CallerState::Holding(lease, _) => {
                self.world.drive(plan.client, lease, Input::Release);
                if self.world.clients[plan.client].hold(lease).is_none() {
                    self.world.cancel(plan.client, lease, false);
                }
                caller.state = CallerState::Done;
            }
            CallerState::Done => {}
        }
    }

    /// The callers that look at their requests look at all changes.
    fn attend(&mut self) {
        loop {
            for event in std::mem::take(&mut self.world.events) {
                let WorldEvent::Changed(client, id) = event else { continue };
                let asks =
                    |it: &Caller| it.plan.client == client && it.state == CallerState::Asking(id);
                if self.callers.iter().any(asks) {
                    self.world.attend(client, id);
                }
            }
            (0..self.callers.len()).for_each(|number| self.collect(number));
            if !self.world.events.iter().any(|it| matches!(it, WorldEvent::Changed(..))) {
                return;
            }
        }
    }

    fn collect(&mut self, number: usize) {
        let CallerState::Asking(id) = self.callers[number].state else { return };
        let plan = self.callers[number].plan.clone();
        let client = plan.client;
        let Some(standing) = self.world.clients[client].standing(id) else { return };
        let lease = match (standing.progress(), standing) {
            (_, RequestState::Reentered(of)) => {
                self.world.act(client, |client, cx| client.take_handle(id, cx));
                Some(of)
            }
            (Progress::Won(_), _) => {
                self.world.drive(client, id, Input::Collect);
                self.world.clients[client].hold(id).map(|_| id)
            }
            (Progress::Failed(..), _) | (_, RequestState::Refused(_)) => None,
            _ => return,
        };
        let caller = &mut self.callers[number];
        (caller.state, caller.next) = (CallerState::Done, Time::NEVER);
        self.world.neglect(client, id);
        let Some(lease) = lease else { return self.world.cancel(client, id, false) };
        caller.granted = true;
        caller.next = self.world.now.plus(plan.holds);
        caller.state = CallerState::Holding(lease, caller.next);
        if plan.extends {
            let config = self.world.clients[client].hold(lease).expect("it is held").config();
            self.world.drive(client, lease, Input::extend(config));
        }
    }

    /// Whether callers that look at their requests are done.
    fn is_done(&self) -> bool {
        let done = |it: &Caller| matches!(it.state, CallerState::Done | CallerState::Away(_));
        self.callers.iter().all(done)
    }

    fn keys(&self) -> usize {
        self.world.masters.iter().map(|master| master.keys().count()).sum()
    }

    fn finally(&mut self, client: usize, key: usize, owner: Option<(usize, bool)>) {
        let (starts, wait, holds) = (Duration::ZERO, TTL, MS);
        let (looks_for, away, fenced) = (None, None, false);
        let (explain, extends) = (false, false);
        self.add(Plan {
            client,
            key,
            starts,
            wait,
            owner,
            fenced,
            explain,
            looks_for,
            away,
            holds,
            extends,
        });
    }
}

fn any_plan(clients: usize) -> impl Strategy<Value = Plan> {
    let wait = prop_oneof![Just(0_u64), Just(30), Just(300), Just(5_000), Just(60_000)];
    let looks = prop_oneof![1 => Just(None), 3 => prop_oneof![Just(0_u64), 0..5_u64, 0..60_u64, 0..2_000_u64].prop_map(Some)];
    let away = prop_oneof![2 => Just(None), 1 => (0..8_000_u64).prop_map(Some)];
    let owner = prop_oneof![3 => Just(0_usize), 1 => Just(1)];
    let owner = prop_oneof![2 => Just(None), 3 => (owner, any::<bool>()).prop_map(Some)];
    let holds = prop_oneof![0..20_u64, 0..1_000_u64];
    let times = (0..1_500_u64, wait, looks, away, holds);
    let key = prop_oneof![3 => Just(0_usize), 1 => Just(1)];
    ((0..clients, key), times, owner, any::<[bool; 3]>()).prop_map(
        |((client, key), (starts, wait, looks, away, holds), owner, [fenced, explain, extends])| {
            Plan {
                client,
                // The two clients' owners are different owners.
                owner: owner.map(|(owner, extend)| (owner + 2 * client, extend)),
                key,
                starts: Duration::from_millis(starts),
                wait: Duration::from_millis(wait),
                fenced,
                explain,
                looks_for: looks.map(Duration::from_millis),
                away: away.map(Duration::from_millis),
                holds: Duration::from_millis(holds),
                extends,
            }
        },
    )
}

fn any_run() -> impl Strategy<Value = (Config, Vec<Plan>)> {
    let bits = any::<[bool; 2]>();
    (prop_oneof![Just(3_usize), Just(4), Just(5)], 1..3_usize, bits, 1..8_000_u64).prop_flat_map(
        |(masters, clients, [wake_ups, fair], latency)| {
            let config = Config { masters, clients, wake_ups, fair, latency, ..Config::default() };
            (Just(config), vec(any_plan(clients), 1..9))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_caller_that_stops_looking_keeps_nobody_out_for_long(
        seed: u64, (config, plans) in any_run(), hung: bool, apart: bool,
    ) {
        let requests = u32::try_from(plans.len()).expect("there are few");
        let mut crowd = Crowd::new(seed, config, plans, (hung, apart));
        // All have started, and those that come back have come back.
        crowd.run(MS * 12_000);
        // Each client gets each resource, for an owner of its requests and without one.
        let polled = crowd.callers.len();
        for client in 0..config.clients {
            for key in 0..2 {
                for owner in [None, Some((2 * client, false)), Some((2 * client + 1, true))] {
                    crowd.finally(client, key, owner);
                }
            }
        }
        crowd.run(EACH * (requests + 6));
        for caller in &crowd.callers[polled..] {
            prop_assert!(caller.granted, "not granted: {:?} {:?}", caller.plan, caller.state);
        }
        crowd.run(EACH);
        prop_assert!(crowd.is_done(), "a caller waits for ever");
        if hung {
            crowd.world.resume(0);
        }
        crowd.run(EACH);
        prop_assert_eq!(crowd.keys(), 0, "keys of unpolled requests are left");
    }
}

/// An owner's request behind a round of extending that its caller does not look at.
#[test]
fn a_round_of_extending_ends_though_its_caller_does_not_look() {
    let config = Config { masters: 3, clients: 1, ..Config::default() };
    let mut crowd = Crowd::new(1, config, Vec::new(), (false, false));
    crowd.finally(0, 0, Some((0, false)));
    crowd.callers[0].plan.holds = TTL;
    crowd.run(MS * 100);
    let CallerState::Holding(lease, _) = crowd.callers[0].state else { panic!("it holds") };
    crowd.world.masters.iter_mut().for_each(|master| master.server.pause());
    let held = crowd.world.clients[0].hold(lease).expect("it is held").config();
    crowd.world.drive(0, lease, Input::extend(held));
    crowd.finally(0, 0, Some((0, true)));
    crowd.run(NODE_TIMEOUT / 2);
    (0..3).for_each(|master| crowd.world.resume(master));
    crowd.run(MS * 200);
    assert!(crowd.callers[1].granted, "{:?}", crowd.callers[1].state);
    let round = crowd.world.clients[0].hold(lease).expect("it is held").extension();
    assert_eq!(round, (2, Extension::Extended));
}
