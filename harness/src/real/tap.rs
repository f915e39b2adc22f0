//! Turns the traffic on the network into events for the orchestrator and the history: which command
//! did what to which key, between which two instants. Runs on the network's thread.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use redquorum_rig::network::{self, Traffic, TrafficEvent};

use super::clock::RunClock;
use super::wire::{Scripts, outcome};
use redquorum_scenario::history::{Act, Event, Outcome};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, Side};
use redquorum_simulator::orchestrator::Input;

/// Commands whose outcome is still open. Reports nothing before the run has begun.
pub(super) struct Tap {
    scripts: Arc<Scripts>,
    clock: Arc<OnceLock<RunClock>>,
    open: HashMap<(u64, u64, bool), Pending>,
}

struct Pending {
    process: Name,
    node: usize,
    act: Act,
    sent: Instant,
    replied: Option<(Instant, Outcome)>,
}

impl Tap {
    pub(super) fn new(scripts: Arc<Scripts>, clock: Arc<OnceLock<RunClock>>) -> Self {
        Self { scripts, clock, open: HashMap::new() }
    }

    /// Takes in a message that passed, and reports what it means.
    pub(super) fn passed(&mut self, traffic: Traffic, report: &mut impl FnMut(Input)) {
        let Traffic { at, client, node, connection, event } = traffic;
        match event {
            TrafficEvent::Forwarded { number, command, duplicate } => {
                let (class, act) = self.scripts.read(&command);
                if let Some(act) = act {
                    let pending =
                        Pending { process: (*client).into(), node, act, sent: at, replied: None };
                    self.open.insert((connection, number, duplicate), pending);
                }
                if !duplicate {
                    report(passed(&client, Side::Request, class));
                }
            }
            TrafficEvent::Replied { number, command, reply, duplicate } => {
                self.scripts.learn(&command, &reply);
                let key = (connection, number, duplicate);
                let Some(pending) = self.open.get_mut(&key) else { return };
                // A command that is queued in a transaction has not been executed yet. The reply to
                // `EXEC` has its outcome, which the tap does not look for.
                let Some(result) = outcome(&pending.act, &reply) else { return };
                pending.replied = Some((at, result));
                report(Input::MasterReplied {
                    process: pending.process.clone(),
                    node: pending.node,
                    act: pending.act.clone(),
                    result,
                });
                if duplicate {
                    // The client does not wait for the second reply.
                    self.close(key, None, report);
                }
            }
            TrafficEvent::Delivered { number, command } => {
                self.close((connection, number, false), Some(at), report);
                let (class, _) = self.scripts.read(&command);
                // A push message is not a reply, so it is not counted as one.
                if class != Class::WakeUp {
                    report(passed(&client, Side::Reply, class));
                }
            }
            TrafficEvent::Lost { number, side: network::Side::Reply, .. } => {
                self.close((connection, number, false), None, report);
            }
            TrafficEvent::Closed => self.close_all(report, |key| key.0 == connection),
            _ => {}
        }
    }

    /// Ends the run: records all open commands as far as their outcome is known.
    pub(super) fn finish(&mut self, report: &mut impl FnMut(Input)) {
        self.close_all(report, |_| true);
    }

    fn close_all(
        &mut self,
        report: &mut impl FnMut(Input),
        which: impl Fn(&(u64, u64, bool)) -> bool,
    ) {
        let mut keys: Vec<_> = self.open.keys().copied().filter(which).collect();
        keys.sort_unstable();
        for key in keys {
            self.close(key, None, report);
        }
    }

    fn close(
        &mut self,
        key: (u64, u64, bool),
        delivered: Option<Instant>,
        report: &mut impl FnMut(Input),
    ) {
        let (Some(pending), Some(clock)) = (self.open.remove(&key), self.clock.get()) else {
            return;
        };
        report(Input::Recorded(Event::Command {
            process: pending.process.clone(),
            node: pending.node,
            connection: key.0,
            number: key.1,
            act: pending.act,
            sent: clock.at(pending.sent),
            replied: pending.replied.map(|(at, _)| clock.at(at)),
            delivered: delivered.map(|at| clock.at(at)),
            result: pending.replied.map_or(Outcome::Silent, |(_, result)| result),
        }));
    }
}

fn passed(process: &str, side: Side, class: Class) -> Input {
    Input::Passed { process: process.into(), side, class }
}
