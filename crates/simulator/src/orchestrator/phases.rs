//! The actions that are due in each phase, and the start of the next phase; the final acquire, and
//! the drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::faults::{clients_of, nodes_of, process_of, processes_of};
use super::{Orchestrator, Order, Player, TIMEOUT, gained, longest_key};
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Op};
use redquorum_scenario::history::{Event, LeftKey, Ns, Phase, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::{millis, nanos};
use redquorum_scenario::{Length, Scenario, Step};

impl Orchestrator {
    /// When the backend must send [`Input::Wake`](super::Input::Wake), at the latest.
    pub fn next_wake(&self) -> Option<Ns> {
        self.wake
    }

    pub(super) fn due(&self) -> Option<Ns> {
        match self.phase {
            Some(Phase::Run) => {
                // No client starts before all faults of the start have struck.
                let players = if self.faults.are_set_up() { &self.players[..] } else { &[] };
                let players = players.iter().filter_map(Player::next_wake);
                players.chain(self.faults.next_wake()).chain([self.limit]).min()
            }
            Some(Phase::Heal) => {
                let leaving = self.players.iter().filter(|player| player.is_leaving());
                leaving.filter_map(Player::next_wake).chain([self.limit]).min()
            }
            Some(Phase::FinalAcquire) => self.final_acquire.next_wake(),
            Some(Phase::Drain) => self.drain.next_wake(),
            Some(Phase::End) | None => None,
        }
    }

    /// Performs the actions that are due, until none is left.
    pub(super) fn go_on(&mut self, now: Ns, orders: &mut Vec<Order>) {
        if self.phase == Some(Phase::Heal) {
            // A fault that the backend was still applying when healing began has struck only now.
            orders.extend(self.faults.heal_all().into_iter().map(Order::Heal));
        }
        match self.phase {
            Some(Phase::Run) => self.go_on_running(now, orders),
            Some(Phase::Heal) if self.faults.all_healed() || now >= self.limit => {
                if !self.all_left(now, orders) {
                    return;
                }
                let alive = |process: &&Name| !self.gone.contains(*process);
                let processes = self.scenario.processes().into_iter().filter(alive);
                self.final_acquire = FinalAcquire::new(&self.scenario, processes);
                self.enter(now, Phase::FinalAcquire);
                self.go_on(now, orders);
            }
            Some(Phase::FinalAcquire) => {
                if let Some((process, op)) = self.final_acquire.next(now, &self.gone, &self.can) {
                    let client = clients_of(&self.scenario, &process).remove(0);
                    let recorded = Some(op.clone());
                    let id = self.ask(now, client, (op, recorded), orders);
                    self.final_acquire.asked(now, id);
                } else if self.final_acquire.is_done(&self.gone) {
                    let longest = longest_key(&self.scenario);
                    let longest = longest.saturating_add(gained(&self.scenario, now));
                    self.drain = Drain::new(now, longest);
                    self.enter(now, Phase::Drain);
                }
            }
            Some(Phase::Drain) if self.drain.is_due(now) => orders.push(Order::Look),
            _ => {}
        }
    }

    fn go_on_running(&mut self, now: Ns, orders: &mut Vec<Order>) {
        self.let_arrive(now, now);
        for index in 0..self.players.len() {
            let player = &mut self.players[index];
            let Some(step) = player.is_overdue(now) else { continue };
            if self.faults.any_struck() {
                player.is_late();
            } else {
                let why = no_answer(player, step);
                let process = player.process().clone();
                self.broken(now, process, why, orders);
            }
        }
        // All faults of the start strike before any client acts.
        if self.faults.are_set_up() {
            self.play(now, orders);
        }
        while self.strike(now, orders) {
            // A client that waited for a fault that failed continues, or waits for the next fault.
            if self.faults.are_set_up() {
                self.play(now, orders);
            }
        }
        let played = self.players.iter().all(Player::is_done);
        if (played && self.faults.nothing_due()) || now >= self.limit {
            // The run is over: requests that are still on their way to a register arrive now.
            self.let_arrive(now, Ns::MAX);
            self.enter(now, Phase::Heal);
            self.limit = now.saturating_add(nanos(TIMEOUT));
            self.players.iter_mut().for_each(Player::leave);
            orders.extend(self.faults.heal_all().into_iter().map(Order::Heal));
            orders.extend(self.faults.open_all().into_iter().map(Order::Open));
            self.go_on(now, orders);
        }
    }

    /// Lets the clients that were late give back what they hold, now that all faults are healed.
    /// Returns whether none of them is left.
    fn all_left(&mut self, now: Ns, orders: &mut Vec<Order>) -> bool {
        let answer = self.players.iter().map(Player::answer).max().unwrap_or_default();
        let until = *self.leave_until.get_or_insert(now.saturating_add(nanos(answer)));
        self.limit = self.limit.max(until);
        self.play(now, orders);
        if now < until {
            return self.players.iter().all(|player| player.leaves_with().is_none());
        }
        let late = |player: &Player| {
            let why = no_answer(player, player.leaves_with()?);
            Some((player.process().clone(), why + ", not even after the healing"))
        };
        for (process, why) in self.players.iter().filter_map(late).collect::<Vec<_>>() {
            self.broken(now, process, why, orders);
        }
        true
    }

    /// Requests to registers that have arrived by the time `by` take effect.
    fn let_arrive(&mut self, now: Ns, by: Ns) {
        for index in 0..self.players.len() {
            let player = &mut self.players[index];
            let touched = player.arrived(now, by, &mut self.faults, &mut self.registers);
            if let Some(event) = touched {
                self.record(now, event);
            }
        }
    }

    /// Each client takes the steps that it can take now. After the healing, only those that leave
    /// do.
    fn play(&mut self, now: Ns, orders: &mut Vec<Order>) {
        for index in 0..self.players.len() {
            if self.phase != Some(Phase::Run) && !self.players[index].is_leaving() {
                continue;
            }
            while let Some(op) = self.players[index].next(now, &mut self.faults, &self.can) {
                let client = self.players[index].id().clone();
                let id = self.ask(now, client, op, orders);
                self.players[index].asked(now, id);
            }
        }
    }

    /// Applies every fault whose moment has come, and heals every fault whose time is over. Returns
    /// whether a fault failed at once.
    fn strike(&mut self, now: Ns, orders: &mut Vec<Order>) -> bool {
        let mut failed = false;
        for fault in self.faults.due(now) {
            let of = &self.scenario.faults[fault];
            let nodes = match nodes_of(of, &self.scenario, |client| {
                let process = process_of(&self.scenario, client)?;
                self.granted.nodes(client, process).cloned()
            }) {
                Ok(nodes) => nodes,
                Err(why) => {
                    let at = Window { from: now, to: now };
                    self.struck(now, fault, at, Some(why), orders);
                    failed = true;
                    continue;
                }
            };
            let processes = processes_of(of, &self.scenario);
            self.faults.aims(fault, nodes.clone(), processes.clone());
            orders.push(Order::Strike { fault, nodes, processes });
        }
        orders.extend(self.faults.over(now).into_iter().map(Order::Heal));
        failed
    }

    /// The keys of a master.
    pub(super) fn looked(&mut self, now: Ns, node: usize, keys: Option<Vec<LeftKey>>) {
        if self.phase != Some(Phase::Drain) {
            return;
        }
        if let Some(seen) = self.drain.looked(now, node, keys, self.scenario.cluster.nodes) {
            for (node, keys) in seen {
                self.record(now, Event::Keys { node, keys });
            }
            self.enter(now, Phase::End);
        }
    }
}

/// The report on a client that is late with the answer to a step.
fn no_answer(player: &Player, step: &Step) -> String {
    let answer = Length(player.answer());
    format!("it does not answer to `{step}` within {answer} ({})", player.id())
}

/// How long a task may exceed the time that may be left of a TTL: reconnecting backs off to one
/// second.
const TASK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the caller of the library may not poll a request, in virtual time.
const UNPOLLED: Duration = Duration::from_secs(5);
/// How long the orchestrator waits before it asks a client again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The final acquire, after healing: each client process that lives acquires each resource once
/// more, one after the other, and releases it.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalAcquire {
    /// The tasks that are left. The last one is under way.
    tasks: Vec<Task>,
    ttl: Duration,
    policy: Duration,
    state: AcquireState,
}

#[derive(Clone, Debug)]
struct Task {
    process: Name,
    resource: Name,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AcquireState {
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
            resources.extend(step.slots());
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
        let policy = longest_key(scenario).max(2 * quarantine).saturating_add(TASK_TIMEOUT);
        Self { tasks, ttl: scenario.lock.ttl.0, policy, state: AcquireState::Fresh }
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        match self.state {
            AcquireState::Again(at, _) => Some(at),
            AcquireState::Acquiring(_, until) | AcquireState::Releasing(_, until) => Some(until),
            AcquireState::Fresh | AcquireState::Granted => None,
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
            AcquireState::Acquiring(_, until) | AcquireState::Releasing(_, until) => now >= until,
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
            AcquireState::Fresh => {
                let waits = can.get(&process).is_some_and(|can| can.contains(&Capability::Wait));
                let wait_ms = if waits { millis(self.policy) } else { 0 };
                Op::Acquire {
                    resource,
                    ttl_ms: millis(self.ttl),
                    wait_ms,
                    again: false,
                    shared: false,
                }
            }
            AcquireState::Again(at, _) if now >= at => Op::Acquire {
                resource,
                ttl_ms: millis(self.ttl),
                wait_ms: 0,
                again: false,
                shared: false,
            },
            AcquireState::Granted => Op::Release { resource },
            _ => return None,
        };
        Some((process, op))
    }

    pub(super) fn asked(&mut self, now: Ns, id: u64) {
        // The client itself waits for `policy`; the reply gets `TASK_TIMEOUT` more, and the time
        // for which the caller may not poll the request.
        let longest = self.policy.saturating_add(TASK_TIMEOUT).saturating_add(UNPOLLED);
        let until = now.saturating_add(nanos(longest));
        self.state = match self.state {
            AcquireState::Fresh => AcquireState::Acquiring(id, until),
            AcquireState::Again(_, until) => AcquireState::Acquiring(id, until),
            _ => AcquireState::Releasing(id, now.saturating_add(nanos(TASK_TIMEOUT))),
        };
    }

    pub(super) fn replied(&mut self, now: Ns, reply: &ClientReply) {
        match self.state {
            AcquireState::Acquiring(id, _) if id == reply.id && reply.ok => {
                self.state = AcquireState::Granted;
            }
            AcquireState::Acquiring(id, _)
                if id == reply.id && reply.why == Some(FailureReason::Unsupported) =>
            {
                self.done();
            }
            AcquireState::Acquiring(id, until) if id == reply.id => {
                let again = now.saturating_add(nanos(ASK_AGAIN));
                if again < until.saturating_sub(nanos(UNPOLLED)) {
                    self.state = AcquireState::Again(again, until);
                } else {
                    self.done();
                }
            }
            AcquireState::Releasing(id, _) if id == reply.id => self.done(),
            _ => {}
        }
    }

    fn done(&mut self) {
        self.tasks.pop();
        self.state = AcquireState::Fresh;
    }

    pub(super) fn is_done(&self, gone: &BTreeSet<Name>) -> bool {
        self.tasks.iter().all(|task| gone.contains(&task.process))
    }
}

/// The pause between two looks at the masters' keys.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The allowance on top of one TTL before a key counts as left for good.
const SLACK: Duration = Duration::from_millis(100);

/// The keys of each master. `None`: the master did not reply.
type KeysByMaster = BTreeMap<usize, Option<Vec<LeftKey>>>;

/// The drain, the last phase: the keys that are left on the masters must disappear within one TTL.
#[derive(Clone, Debug, Default)]
pub(super) struct Drain {
    until: Ns,
    /// When the masters are looked at next. `None`: they are being looked at.
    look_at: Option<Ns>,
    seen: KeysByMaster,
}

impl Drain {
    /// Begins the drain. `ttl` is the longest TTL of the run.
    pub(super) fn new(now: Ns, ttl: Duration) -> Self {
        Self {
            until: now.saturating_add(nanos(ttl.saturating_add(SLACK))),
            look_at: Some(now.saturating_add(nanos(LOOK_AGAIN))),
            seen: KeysByMaster::new(),
        }
    }

    pub(super) const fn next_wake(&self) -> Option<Ns> {
        self.look_at
    }

    /// Whether to look at the masters now. True once per look.
    fn is_due(&mut self, now: Ns) -> bool {
        let due = self.look_at.is_some_and(|at| now >= at);
        if due {
            self.look_at = None;
        }
        due
    }

    /// The keys of one of `masters` masters have arrived. Returns the result at the end: no keys,
    /// or keys that should have expired.
    pub(super) fn looked(
        &mut self,
        now: Ns,
        node: usize,
        keys: Option<Vec<LeftKey>>,
        masters: usize,
    ) -> Option<KeysByMaster> {
        self.seen.insert(node, keys);
        if self.seen.len() < masters {
            return None;
        }
        let seen = std::mem::take(&mut self.seen);
        let clean = seen.values().all(|keys| keys.as_ref().is_some_and(Vec::is_empty));
        if clean || now >= self.until {
            return Some(seen);
        }
        self.look_at = Some(now.saturating_add(nanos(LOOK_AGAIN)));
        None
    }
}
