//! The simulation: a scenario in virtual time, from one seed, thousands of times faster than on real
//! masters. The client processes drive the shipped machines; masters, network and clocks are models.
//!
//! Nothing here reads a clock, opens a socket or draws a random number that is not from the seed, so
//! the same seed gives the same history, to the byte. The state of a run can be cloned.
//!
//! Reading order: [`run`]; `world.rs` with `queue.rs`, what is going to happen; `client_machine.rs`, a
//! client process as a machine; [`server`], the model of Redis; `wires.rs` with `rules.rs`, messages and the
//! faults of the network; `faults.rs`, the others, with `forgets.rs`, those by which masters forget; `actors.rs`, pauses and deaths of processes.

use std::time::Duration;

use crate::history::History;
use crate::sabotage::Lie;
use crate::scenario::Scenario;
pub use course::{Course, Mark};
pub use dice::Latency;
use world::{What, World};

mod actors;
mod course;
mod dice;
mod faults;
mod forgets;
mod queue;
mod rules;
pub mod server;
mod wires;
mod world;

/// How long words between the harness and a process are under way, in nanoseconds.
const PIPE: u64 = 30_000;
/// How long it takes to carry out a fault.
const DOING: u64 = 50_000;
/// How long a master takes to start.
const RESTART: u64 = 25_000_000;
/// Within which time a master that goes on gets to all of its connections.
const TURN: u64 = 200_000;
/// How often masters look for keys that have expired.
const TICK: u64 = 100_000_000;
/// The wall clocks at the beginning of the world: far enough from zero to be set back.
const EPOCH: u64 = 1_000_000_000 * 1_000_000_000;
/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(1);
/// How many requests the handshake has on the wire.
const GREETING: u64 = 4;
/// What no run needs: one that takes longer is a fault of this program.
const LONGEST: u64 = 3_600 * 1_000_000_000;

/// Runs one of a scenario's [runs](Scenario::runs). With another [`Lie`] than none the clients lie.
pub fn run(scenario: &Scenario, seed: u64, lie: Lie) -> History {
    let mut course = Course::new(scenario, seed, Latency::Chance, lie);
    while course.step() {}
    course.finish()
}

/// A number that stands for all that happened, to the byte: two runs of the same scenario from the
/// same seed have the same.
pub fn trace_hash(history: &History) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    match history.write(&mut hash) {
        Ok(()) => hash.0,
        Err(error) => unreachable!("a hash takes everything: {error}"),
    }
}

/// FNV-1a, of all that is written to it.
struct Fnv(u64);

impl std::io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl World {
    /// All clients are ready: the run begins.
    pub(super) fn begin(&mut self) {
        self.began = true;
        self.origin = self.now;
        let can =
            self.actors.iter().map(|actor| (actor.name.clone(), crate::talk::Can::ALL.to_vec()));
        let can = can.collect();
        for order in self.director.gates() {
            self.carry_out(order);
        }
        self.direct(crate::director::Input::Begin(can));
    }

    fn let_happen(&mut self, what: What) {
        match what {
            What::AtMaster(id) => self.at_master(id),
            What::Serve(node, connection) => self.serve(node, connection),
            What::Hangup(id) => self.hang_up(id),
            What::AtClient(id) => self.at_client(id),
            What::Ended(id, why) => self.ended(id, why),
            What::Connect(id) => self.connect(id),
            What::GiveUp(id) => self.give_up(id),
            What::Ask(actor) => {
                if let Some(request) = self.actors[actor].asked.pop_front() {
                    self.happen(actor, crate::client_machine::Happening::Asked(request));
                }
            }
            What::Wake(actor) => self.wake(actor),
            What::Tell => {
                if let Some(input) = self.said.pop_front() {
                    self.direct(input);
                }
            }
            What::Gated(fault) => self.direct(crate::director::Input::Gated(fault)),
            What::Direct => {
                if self.now >= self.direct_at {
                    self.direct_at = u64::MAX;
                    self.direct(crate::director::Input::Wake);
                }
            }
            What::Strike(what) => {
                let (fault, nodes, processes) = *what;
                self.strike(fault, &nodes, &processes);
            }
            What::Cure(fault) => self.cure(fault),
            What::Up(up) => self.up(&up),
            What::Open(fault) => self.open(fault),
            What::Look => self.look(),
            What::Kill(process) => {
                if let Some(actor) = self.actor(&process) {
                    self.die(actor);
                }
            }
            What::Tick => {
                self.tick();
                self.enter(self.now + TICK, What::Tick);
            }
        }
    }
}
