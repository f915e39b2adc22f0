//! The client processes of a run. A process gets its inputs unless it is paused or dead, and its
//! effects are carried out.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::Time;

use super::process::ClientProcess;
use super::wires::WireId;
use super::world::{Actor, Instant, World, WorldEvent, signed};
use super::{PIPE, TICK};
use crate::client_machine::{Clocks, InputContext, ProcessEffect, ProcessEvent};
use crate::orchestrator::Input;
use redquorum_scenario::client_protocol::Options;
use redquorum_scenario::name::Name;
use redquorum_scenario::wall::WallClock;

impl<P: ClientProcess> World<P> {
    /// Starts the processes.
    pub(super) fn start(&mut self) {
        let names: Vec<Name> = self.scenario.processes().into_iter().cloned().collect();
        for (number, name) in names.into_iter().enumerate() {
            let mut effects = Vec::new();
            let clocks = self.clocks(&WallClock::REAL, 0, 0);
            let options = Options::of(&self.scenario, &name);
            let list = self.scenario.list_of(&name);
            let nodes: Arc<[usize]> = list.addresses().iter().map(|node| node - 1).collect();
            let mut rng = self.seed.of_process(number);
            rng.claims.wall = clocks.wall;
            let mut context = InputContext { clocks, rng: &mut rng.claims, out: &mut effects };
            let process = P::start(options, nodes.len(), self.mutant, &mut context);
            self.actors.push(Actor {
                name,
                process,
                nodes,
                wires: Vec::new(),
                rng,
                paused: false,
                dead: false,
                asked: VecDeque::new(),
                inbox: VecDeque::new(),
                wall_ahead: 0,
                lease_clock: WallClock::REAL,
                suspended_at: None,
                suspended: 0,
                wake: Instant::MAX,
            });
            self.grant(number, &mut effects);
        }
        self.enter(TICK, WorldEvent::Tick);
    }

    /// Whether every process has tried every master.
    pub(super) fn all_ready(&self) -> bool {
        self.actors.iter().all(|actor| actor.process.is_ready())
    }

    fn clocks_of(&self, number: usize) -> Clocks {
        let actor = &self.actors[number];
        self.clocks(&actor.lease_clock, actor.wall_ahead, actor.suspended)
    }

    fn clocks(&self, lease_clock: &WallClock, wall_ahead: i64, suspended: u64) -> Clocks {
        let ahead = lease_clock.ahead(signed(self.now));
        let monotonic = self.now.saturating_add_signed(ahead);
        let wall = super::EPOCH.saturating_add(self.now).saturating_add_signed(wall_ahead);
        Clocks {
            monotonic: Time::from_nanos(monotonic),
            awake: Time::from_nanos(monotonic.saturating_sub(suspended)),
            wall: Time::from_nanos(wall),
        }
    }

    /// Passes an event to a process.
    pub(super) fn happen(&mut self, number: usize, event: ProcessEvent) {
        let actor = &mut self.actors[number];
        if actor.dead {
            return;
        }
        if actor.paused {
            return actor.inbox.push_back(event);
        }
        let clocks = self.clocks_of(number);
        let mut effects = std::mem::take(&mut self.effects);
        let Actor { process, rng, .. } = &mut self.actors[number];
        rng.claims.wall = clocks.wall;
        let mut context = InputContext { clocks, rng: &mut rng.claims, out: &mut effects };
        process.handle(event, &mut context);
        self.grant(number, &mut effects);
        self.effects = effects;
    }

    /// Carries out the effects of a process, and schedules its next wake-up.
    fn grant(&mut self, number: usize, effects: &mut Vec<ProcessEffect>) {
        let mut refused = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                ProcessEffect::Tell(message) => {
                    // By the process's own lease clock.
                    let origin = signed(self.origin);
                    if let Some(input) = Input::of_client(message, |at| at.saturating_sub(origin)) {
                        self.inputs.push_back(input);
                        self.enter(self.now + PIPE, WorldEvent::Tell);
                    }
                }
                ProcessEffect::Write { node: link, epoch, command } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.write(id, command);
                    }
                }
                ProcessEffect::Dial { node: link, epoch } => self.dial(number, link, epoch),
                ProcessEffect::Close { node: link, epoch } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                }
                ProcessEffect::Refuse { node: link, epoch, why } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                    refused.push((link, epoch, why));
                }
            }
        }
        let actor = &self.actors[number];
        let wake = actor.process.next_wake(self.clocks_of(number));
        if wake != Time::NEVER {
            let at = actor.lease_clock.reaches(signed(wake.as_nanos()));
            let at = Instant::try_from(at).unwrap_or(0);
            if at < self.actors[number].wake {
                self.actors[number].wake = at;
                self.enter(at, WorldEvent::Wake(number));
            }
        }
        for (link, epoch, why) in refused {
            self.closed(number, link, epoch, why);
        }
    }

    /// Wakes a process if its wake-up is due. Ignores outdated wake-ups.
    pub(super) fn wake(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        if self.now < actor.wake {
            return;
        }
        actor.wake = Instant::MAX;
        self.happen(number, ProcessEvent::Wake);
    }

    /// Changes the rate of the clock by which a process measures leases.
    pub(super) fn pace(&mut self, number: usize, factor: f64) {
        let now = signed(self.now);
        let actor = &mut self.actors[number];
        actor.lease_clock = actor.lease_clock.paced(now, factor);
        // The wake-up moves to another time.
        actor.wake = Instant::MAX;
        self.grant(number, &mut Vec::new());
    }

    /// Resumes a process. It gets all pending events at once. Its timers fire before or after them,
    /// at random.
    pub(super) fn go_on(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        let timers_first = actor.rng.waking.below(2) == 0;
        actor.paused = false;
        if let Some(since) = actor.suspended_at.take() {
            actor.suspended += self.now - since;
        }
        let inbox = std::mem::take(&mut actor.inbox);
        if timers_first {
            self.happen(number, ProcessEvent::Wake);
        }
        for event in inbox {
            self.happen(number, event);
        }
        self.happen(number, ProcessEvent::Wake);
    }

    /// Kills a process: its kernel closes all its connections.
    pub(super) fn die(&mut self, number: usize) {
        self.actors[number].dead = true;
        let wires: Vec<WireId> = self.actors[number].wires.iter().map(|(_, _, id)| *id).collect();
        for id in wires {
            self.close(id);
        }
    }

    fn wire_of(&self, number: usize, link: usize, epoch: u64) -> Option<WireId> {
        let wires = &self.actors[number].wires;
        let found = wires.iter().find(|(l, e, _)| (*l, *e) == (link, epoch));
        found.map(|(_, _, id)| *id)
    }
}
