//! The actions that are due in each phase, and the start of the next phase.

use super::drain::Drain;
use super::final_acquire::FinalAcquire;
use super::targets::{clients_of, nodes_of, process_of, processes_of};
use super::{Orchestrator, Order, Player, TIMEOUT, gained, longest_key};
use redquorum_scenario::history::{Event, LeftKey, Ns, Phase, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;

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
            Some(Phase::Heal) => Some(self.limit),
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
                let alive = |process: &&Name| !self.gone.contains(*process);
                let processes = self.scenario.processes().into_iter().filter(alive);
                self.final_acquire = FinalAcquire::new(&self.scenario, processes);
                self.enter(now, Phase::FinalAcquire);
                self.go_on(now, orders);
            }
            Some(Phase::FinalAcquire) => {
                if let Some((process, op)) = self.final_acquire.next(now, &self.gone, &self.can) {
                    let client = clients_of(&self.scenario, &process).remove(0);
                    let id = self.ask(now, client, op, orders);
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
        let late = |player: &Player| {
            let step = player.is_overdue(now)?;
            let why = format!("it does not answer to `{step}` ({})", player.id());
            Some((player.process().clone(), why))
        };
        for (process, why) in self.players.iter().filter_map(late).collect::<Vec<_>>() {
            self.broken(now, process, why, orders);
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
            orders.extend(self.faults.heal_all().into_iter().map(Order::Heal));
            orders.extend(self.faults.open_all().into_iter().map(Order::Open));
            self.go_on(now, orders);
        }
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

    /// Each client takes the steps that it can take now.
    fn play(&mut self, now: Ns, orders: &mut Vec<Order>) {
        for index in 0..self.players.len() {
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
