//! After healing: each client process that lives acquires each resource once more, one after the
//! other, and gives it back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::longest_key;
use crate::history::Ns;
use crate::name::Name;
use crate::scenario::Scenario;
use crate::talk::{Answer, Can, Op};
use crate::units::{millis, nanos};

/// How long it may take beyond what may be left of a TTL: reconnecting backs off to one second.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client is left alone before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    /// What is left to do; the first is under way.
    tasks: Vec<Task>,
    ttl: Duration,
    patience: Duration,
    state: State,
}

#[derive(Clone, Debug)]
struct Task {
    process: Name,
    resource: Name,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The first task is to begin.
    #[default]
    Fresh,
    /// It is asked again at this time, if not after the second.
    Again(Ns, Ns),
    /// Its acquire is under way; until when all of the task may take.
    Acquiring(u64, Ns),
    /// It was granted, and is to be released.
    Granted,
    /// Its release is under way, until then at the longest.
    Releasing(u64, Ns),
}

impl Witness {
    pub(super) fn new<'a>(scenario: &Scenario, processes: impl Iterator<Item = &'a Name>) -> Self {
        let mut resources = BTreeSet::new();
        for step in scenario.clients.iter().flat_map(|client| &client.script) {
            resources.extend(step.acquires().cloned());
        }
        let mut tasks = Vec::new();
        for process in processes {
            for resource in &resources {
                let (process, resource) = (process.clone(), resource.clone());
                tasks.push(Task { process, resource });
            }
        }
        // Its end is the first: tasks are taken from there.
        tasks.reverse();
        // A master that a fault made distrusted votes again after its quarantine, or after another one if a
        // vigil was found that expires before.
        let own = scenario.clients.iter().map(|client| client.options(&scenario.lock).quarantine());
        let quarantine = own.max().unwrap_or_default();
        let patience = longest_key(scenario).max(2 * quarantine).saturating_add(PATIENCE);
        Self { tasks, ttl: scenario.lock.ttl.0, patience, state: State::Fresh }
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        match self.state {
            State::Again(at, _) => Some(at),
            State::Acquiring(_, until) | State::Releasing(_, until) => Some(until),
            State::Fresh | State::Granted => None,
        }
    }

    /// What a process is to be told now, if anything.
    pub(super) fn next(
        &mut self,
        now: Ns,
        gone: &BTreeSet<Name>,
        can: &BTreeMap<Name, Vec<Can>>,
    ) -> Option<(Name, Op)> {
        // What does not answer is given up: the judge sees that nothing was granted.
        let late = match self.state {
            State::Acquiring(_, until) | State::Releasing(_, until) => now >= until,
            _ => false,
        };
        if late {
            self.done();
        }
        while self.tasks.last().is_some_and(|task| gone.contains(&task.process)) {
            self.done();
        }
        let Task { process, resource } = self.tasks.last()?.clone();
        let op = match self.state {
            State::Fresh => {
                let waits = can.get(&process).is_some_and(|can| can.contains(&Can::Wait));
                let wait_ms = if waits { millis(self.patience) } else { 0 };
                Op::Acquire { resource, ttl_ms: millis(self.ttl), wait_ms, again: false }
            }
            State::Again(at, _) if now >= at => {
                Op::Acquire { resource, ttl_ms: millis(self.ttl), wait_ms: 0, again: false }
            }
            State::Granted => Op::Release { resource },
            _ => return None,
        };
        Some((process, op))
    }

    pub(super) fn asked(&mut self, now: Ns, id: u64) {
        // The client itself waits for as long as it is told; a moment more for its answer.
        let until = now.saturating_add(nanos(self.patience)).saturating_add(nanos(PATIENCE));
        self.state = match self.state {
            State::Fresh => State::Acquiring(id, until),
            State::Again(_, until) => State::Acquiring(id, until),
            _ => State::Releasing(id, now.saturating_add(nanos(PATIENCE))),
        };
    }

    pub(super) fn answered(&mut self, now: Ns, answer: &Answer) {
        match self.state {
            State::Acquiring(id, _) if id == answer.id && answer.ok => self.state = State::Granted,
            State::Acquiring(id, until) if id == answer.id => {
                let again = now.saturating_add(nanos(ASK_AGAIN));
                if again < until {
                    self.state = State::Again(again, until);
                } else {
                    self.done();
                }
            }
            State::Releasing(id, _) if id == answer.id => self.done(),
            _ => {}
        }
    }

    fn done(&mut self) {
        self.tasks.pop();
        self.state = State::Fresh;
    }

    pub(super) fn is_done(&self, gone: &BTreeSet<Name>) -> bool {
        self.tasks.iter().all(|task| gone.contains(&task.process))
    }
}
