//! Clients in a fair queue, with random timings: the order of grants that `acquire/positions.rs`
//! promises.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redquorum_protocol::wire::Command;
use redquorum_protocol::{
    AcquireRequest, Claim, ClaimId, Drift, Input, Key, LockConfig, NodeId, Reply, Time, Waiter,
    quorum,
};

use crate::support::MS;
use crate::world::{Config, World, WorldEvent};

/// A process that acquires the resource again and again.
struct Process {
    id: Option<ClaimId>,
    /// The number of acquires still to make.
    left: u32,
    /// The time of the next acquire, or of the release of a held lease.
    next: Time,
    /// The time of the latest acquire.
    asked: Time,
    waiter: Option<Waiter>,
    /// The numbers that masters returned to the waiter.
    numbers: BTreeMap<usize, u64>,
    /// How many replies of each master and connection are to requests of an earlier waiter.
    stale: BTreeMap<(usize, u64), usize>,
    /// Set while the process is in the fair queue, or, without one, has waited for long enough: the
    /// leases that each other process got since then.
    overtaken: Option<Vec<u32>>,
}

struct Crowd {
    world: World,
    key: Key,
    processes: Vec<Process>,
    /// Leases, in order of time.
    granted: Vec<(Time, usize)>,
    /// The most leases that one process got before another process that was in the queue.
    most: u32,
}

impl Crowd {
    /// Each process acquires `times` times. It starts a little later than the one before.
    fn new(seed: u64, config: Config, times: u32) -> Self {
        let mut world = World::new(seed, Config { node_timeout: MS * 50, ..config });
        world.run_until(Time::from_millis(1_000));
        let process = |number| Process {
            id: None,
            left: times,
            next: world.now.plus(world.random.millis(1 + 20 * number)),
            asked: Time::NEVER,
            waiter: None,
            numbers: BTreeMap::new(),
            stale: BTreeMap::new(),
            overtaken: None,
        };
        let processes = (0..config.clients as u64).map(process).collect();
        let key = Arc::from(&b"the resource"[..]);
        Self { world, key, processes, granted: Vec::new(), most: 0 }
    }

    fn is_done(&self) -> bool {
        self.processes.iter().all(|it| it.left == 0 && it.id.is_none())
    }

    /// Lets time pass for two minutes, or until all processes are done.
    fn run(&mut self) {
        let end = self.world.now.plus(MS * 120_000);
        while !self.is_done() {
            let next = self.processes.iter().map(|it| it.next).min().unwrap_or(Time::NEVER);
            if !self.world.step(next.min(end)) {
                if next > end {
                    return;
                }
                self.act(next);
            }
            for event in std::mem::take(&mut self.world.events) {
                self.observe(event);
            }
            self.enter_queue();
        }
    }

    /// The process that is due acquires or releases.
    fn act(&mut self, due: Time) {
        let found = self.processes.iter().position(|it| it.next == due);
        let number = found.expect("it is due");
        let process = &mut self.processes[number];
        if let Some(id) = process.id.take() {
            let pause = self.world.random.millis(30);
            process.next = match process.left {
                0 => Time::NEVER,
                _ => self.world.now.plus(pause),
            };
            self.world.drive(number, id, Input::Release);
            self.world.cancel(number, id, false);
        } else {
            let Config { masters, node_timeout, .. } = self.world.config;
            let config = LockConfig::new(masters, MS * 2_000, Drift::default(), node_timeout);
            let (config, wait) = (config.expect("they fit"), Duration::from_secs(3_600));
            let request = AcquireRequest::for_member(config, wait, false, ());
            (process.left, process.next) = (process.left - 1, Time::NEVER);
            process.asked = self.world.now;
            process.id = Some(self.world.acquire(number, &self.key, request));
        }
    }

    fn observe(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Wrote(process, _, Command::Enqueue { waiter, .. }) => {
                self.processes[process].waiter = Some(waiter);
            }
            WorldEvent::Wrote(
                number,
                at,
                Command::Dequeue { .. } | Command::Delete { leave: Some(_), .. },
            ) => {
                let link = self.world.clients[number].link(NodeId::new(at));
                let (epoch, unanswered) = (link.epoch().unwrap_or_default(), link.unanswered());
                let process = &mut self.processes[number];
                (process.waiter, process.overtaken) = (None, None);
                process.numbers.clear();
                process.stale.insert((at, epoch), unanswered);
            }
            WorldEvent::Received((process, at, epoch), reply) => {
                let process = &mut self.processes[process];
                let stale = process.stale.entry((at, epoch)).or_default();
                if let (0, Reply::Place { number, .. }) = (*stale, reply) {
                    process.numbers.insert(at, number);
                }
                *stale = stale.saturating_sub(1);
            }
            WorldEvent::Changed(process, id) => {
                let claim = self.world.clients[process].claim(id);
                if matches!(claim, Some(Claim::Acquiring(it)) if it.is_won()) {
                    self.won(process, id);
                }
            }
            WorldEvent::Wrote(..) => {}
        }
    }

    fn won(&mut self, number: usize, id: ClaimId) {
        self.world.drive(number, id, Input::Collect);
        assert!(self.world.believes(number, id));
        self.granted.push((self.world.now, number));
        let process = &mut self.processes[number];
        process.next = self.world.now.plus(MS + self.world.random.millis(20));
        (process.waiter, process.overtaken) = (None, None);
        for other in &mut self.processes {
            if let Some(overtaken) = &mut other.overtaken {
                overtaken[number] += 1;
                self.most = self.most.max(overtaken[number]);
            }
        }
    }

    /// Marks the processes that are in the queue by now: those for which a quorum of masters
    /// returned the largest number. Without a fair queue, marks those that have waited for a while.
    fn enter_queue(&mut self) {
        let (count, now, config) = (self.processes.len(), self.world.now, self.world.config);
        for (number, process) in self.processes.iter_mut().enumerate() {
            let Some(id) = process.id.filter(|_| process.overtaken.is_none()) else { continue };
            let waits = !self.world.believes(number, id);
            let largest = process.numbers.values().max();
            let agreed = process.numbers.values().filter(|it| Some(*it) == largest).count();
            let is_in = if config.fair {
                process.waiter.is_some() && agreed >= quorum(config.masters)
            } else {
                now >= process.asked.plus(20 * MS)
            };
            if waits && is_in {
                process.overtaken = Some(vec![0; count]);
            }
        }
    }
}

fn any_config(clients: impl Strategy<Value = usize>) -> impl Strategy<Value = Config> {
    let latency = prop_oneof![Just(1), Just(500), Just(5_000), Just(30_000)];
    let lost = prop_oneof![3 => Just(0_u64), 1 => Just(30), 1 => Just(100)];
    let slow = prop_oneof![2 => Just(0_u64), 1 => Just(20_000), 1 => Just(300_000)];
    let all = (1..=5_usize, clients, any::<bool>(), latency, slow, lost);
    all.prop_map(|(masters, clients, wake_ups, latency, slow, lost)| {
        // With two masters a quorum is both of them, so neither may be slow.
        let slow = if masters > 2 { slow } else { 0 };
        Config { masters, clients, fair: true, wake_ups, latency, slow, lost, ..Config::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn once_in_the_queue_each_other_process_comes_before_it_once_at_most(
        seed: u64, config in any_config(2..7_usize), times in 1..6_u32,
    ) {
        let mut crowd = Crowd::new(seed, config, times);
        crowd.run();
        prop_assert!(crowd.is_done(), "a process waits for ever: {:?}", crowd.granted);
        prop_assert!(crowd.most <= 1, "{:?}", crowd.granted);
    }
}

/// Without a fair queue, a process is overtaken more often: this is what a failure looks like.
#[test]
fn without_a_fair_queue_others_come_before_it_again_and_again() {
    let most = |fair: bool| {
        let overtaken = (0..20).map(|seed| {
            let (clients, wake_ups, latency) = (5, true, 500);
            let config = Config { clients, fair, wake_ups, latency, ..Config::default() };
            let mut crowd = Crowd::new(seed, config, 8);
            crowd.run();
            assert!(crowd.is_done());
            crowd.most
        });
        overtaken.max().unwrap()
    };
    let (with, without) = (most(true), most(false));
    assert!(with == 1 && without > 1, "{with} and {without}");
}
