//! The client processes of a run: they are told what happens, unless they are paused or dead, and what
//! they want is done.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::Time;

use super::PIPE;
use super::wires::WireId;
use super::world::{Actor, Instant, What, World};
use crate::director::Input;
use crate::name::Name;
use crate::sabotage::Clocks;
use crate::sabotage::process::{Around, Happening, Process, Wish};
use crate::talk::{Notice, Options};

impl World {
    /// Starts the processes.
    pub(super) fn start(&mut self) {
        let names: Vec<Name> = self.scenario.processes().into_iter().cloned().collect();
        for (number, name) in names.into_iter().enumerate() {
            let mut wishes = Vec::new();
            let clocks = self.clocks(0, 0);
            let options = Options::of(&self.scenario, &name);
            let list = self.scenario.list_of(&name);
            let nodes: Arc<[usize]> = list.addresses().iter().map(|node| node - 1).collect();
            let mut dice = self.seed.of_process(number);
            let mut around = Around { clocks, dice: &mut dice.claims, out: &mut wishes };
            let process = Process::start(options, nodes.len(), self.lie, &mut around);
            self.actors.push(Actor {
                name,
                process,
                nodes,
                wires: Vec::new(),
                dice,
                paused: false,
                dead: false,
                asked: VecDeque::new(),
                inbox: VecDeque::new(),
                wall_ahead: 0,
                suspended_at: None,
                suspended: 0,
                wake: Instant::MAX,
            });
            self.grant(number, &mut wishes);
        }
    }

    /// Whether all have tried all masters.
    pub(super) fn all_ready(&self) -> bool {
        self.actors.iter().all(|actor| actor.process.is_ready())
    }

    fn clocks_of(&self, number: usize) -> Clocks {
        let actor = &self.actors[number];
        self.clocks(actor.wall_ahead, actor.suspended)
    }

    fn clocks(&self, wall_ahead: i64, suspended: u64) -> Clocks {
        let wall = super::EPOCH.saturating_add(self.now).saturating_add_signed(wall_ahead);
        Clocks {
            monotonic: Time::from_nanos(self.now),
            awake: Time::from_nanos(self.now - suspended),
            wall: Time::from_nanos(wall),
        }
    }

    /// Something happens to a process.
    pub(super) fn happen(&mut self, number: usize, happening: Happening) {
        let actor = &mut self.actors[number];
        if actor.dead {
            return;
        }
        if actor.paused {
            return actor.inbox.push_back(happening);
        }
        let clocks = self.clocks_of(number);
        let mut wishes = std::mem::take(&mut self.wishes);
        let Actor { process, dice, .. } = &mut self.actors[number];
        let mut around = Around { clocks, dice: &mut dice.claims, out: &mut wishes };
        process.handle(happening, &mut around);
        self.grant(number, &mut wishes);
        self.wishes = wishes;
    }

    /// Does what a process wants, and sees to it that it is woken.
    fn grant(&mut self, number: usize, wishes: &mut Vec<Wish>) {
        let mut refused = Vec::new();
        for wish in wishes.drain(..) {
            match wish {
                Wish::Answer(mut answer) => {
                    for stamp in answer.stamps() {
                        *stamp = stamp.map(|stamp| self.stamp(stamp));
                    }
                    self.tell(Input::Answered(answer));
                }
                Wish::Notice(Notice::Lost { client, resource, at_ns }) => {
                    let at = self.stamp(at_ns);
                    self.tell(Input::Lost { client, resource, at });
                }
                Wish::Notice(Notice::Extended { client, resource, deadline_ns, .. }) => {
                    let deadline = self.stamp(deadline_ns);
                    self.tell(Input::Extended { client, resource, deadline });
                }
                Wish::Notice(_) => {}
                Wish::Write { node: link, epoch, command } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.write(id, command);
                    }
                }
                Wish::Dial { node: link, epoch } => self.dial(number, link, epoch),
                Wish::Close { node: link, epoch } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                }
                Wish::Refuse { node: link, epoch, why } => {
                    if let Some(id) = self.wire_of(number, link, epoch) {
                        self.close(id);
                    }
                    refused.push((link, epoch, why));
                }
            }
        }
        let actor = &self.actors[number];
        let wake = actor.process.next_wake(self.clocks_of(number));
        if wake != Time::NEVER && wake.as_nanos() < self.actors[number].wake {
            self.actors[number].wake = wake.as_nanos();
            self.enter(wake.as_nanos(), What::Wake(number));
        }
        for (link, epoch, why) in refused {
            self.closed(number, link, epoch, why);
        }
    }

    /// The harness hears of it a little later.
    fn tell(&mut self, input: Input) {
        self.said.push_back(input);
        self.enter(self.now + PIPE, What::Tell);
    }

    /// The time for which a process asked has come, or an older one.
    pub(super) fn wake(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        if self.now < actor.wake {
            return;
        }
        actor.wake = Instant::MAX;
        self.happen(number, Happening::Wake);
    }

    /// A process goes on, and finds at once all that came meanwhile; its timers before or after.
    pub(super) fn go_on(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        let timers_first = actor.dice.waking.below(2) == 0;
        actor.paused = false;
        if let Some(since) = actor.suspended_at.take() {
            actor.suspended += self.now - since;
        }
        let inbox = std::mem::take(&mut actor.inbox);
        if timers_first {
            self.happen(number, Happening::Wake);
        }
        for happening in inbox {
            self.happen(number, happening);
        }
        self.happen(number, Happening::Wake);
    }

    /// A process dies: its kernel closes all that it had.
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

    /// A stamp of a process, in nanoseconds of the run.
    fn stamp(&self, stamp: i64) -> i64 {
        stamp.saturating_sub(i64::try_from(self.origin).unwrap_or(i64::MAX))
    }
}
