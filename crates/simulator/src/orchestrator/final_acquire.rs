//! The final acquire, after healing: each client process that lives acquires each resource once
//! more, one after the other, and releases it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::longest_key;
use redquorum_scenario::Scenario;
use redquorum_scenario::client_protocol::{Capability, ClientReply, Op};
use redquorum_scenario::history::Ns;
use redquorum_scenario::name::Name;
use redquorum_scenario::units::{millis, nanos};

/// How long a task may exceed the time that may be left of a TTL: reconnecting backs off to one
/// second.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long the caller of the library may not poll a request, in virtual time.
const UNPOLLED: Duration = Duration::from_secs(5);
/// How long the orchestrator waits before it asks a client again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct FinalAcquire {
    /// The tasks that are left. The last one is under way.
    tasks: Vec<Task>,
    ttl: Duration,
    policy: Duration,
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
    /// The client is asked again at the first time, unless the second has passed.
    Again(Ns, Ns),
    /// The acquire is in flight. The task must be over by this time.
    Acquiring(u64, Ns),
    /// The acquire was granted; the release comes next.
    Granted,
    /// The release is in flight, until this time at the longest.
    Releasing(u64, Ns),
}

impl FinalAcquire {
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
        // Reverse the order, since tasks are taken from the end.
        tasks.reverse();
        // A master that clients distrust because of a fault votes again after its quarantine, or
        // after a second one if its probation key was found to expire before.
        let own = scenario.clients.iter().map(|client| client.options(&scenario.lock).quarantine());
        let quarantine = own.max().unwrap_or_default();
        let policy = longest_key(scenario).max(2 * quarantine).saturating_add(TIMEOUT);
        Self { tasks, ttl: scenario.lock.ttl.0, policy, state: State::Fresh }
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        match self.state {
            State::Again(at, _) => Some(at),
            State::Acquiring(_, until) | State::Releasing(_, until) => Some(until),
            State::Fresh | State::Granted => None,
        }
    }

    /// The next request to a process, if it is due now.
    pub(super) fn next(
        &mut self,
        now: Ns,
        gone: &BTreeSet<Name>,
        can: &BTreeMap<Name, Vec<Capability>>,
    ) -> Option<(Name, Op)> {
        // A task without a reply is given up: the checker finds that nothing was granted.
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
                let waits = can.get(&process).is_some_and(|can| can.contains(&Capability::Wait));
                let wait_ms = if waits { millis(self.policy) } else { 0 };
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
        // The client itself waits for `policy`; the reply gets `TIMEOUT` more, and the time for
        // which the caller may not poll the request.
        let longest = self.policy.saturating_add(TIMEOUT).saturating_add(UNPOLLED);
        let until = now.saturating_add(nanos(longest));
        self.state = match self.state {
            State::Fresh => State::Acquiring(id, until),
            State::Again(_, until) => State::Acquiring(id, until),
            _ => State::Releasing(id, now.saturating_add(nanos(TIMEOUT))),
        };
    }

    pub(super) fn replied(&mut self, now: Ns, reply: &ClientReply) {
        match self.state {
            State::Acquiring(id, _) if id == reply.id && reply.ok => self.state = State::Granted,
            State::Acquiring(id, until) if id == reply.id => {
                let again = now.saturating_add(nanos(ASK_AGAIN));
                if again < until.saturating_sub(nanos(UNPOLLED)) {
                    self.state = State::Again(again, until);
                } else {
                    self.done();
                }
            }
            State::Releasing(id, _) if id == reply.id => self.done(),
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
