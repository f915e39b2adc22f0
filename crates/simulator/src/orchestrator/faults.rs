//! When faults strike and when they are healed. `targets.rs` finds the masters and processes that
//! they hit.

use super::Order;
use super::places::{Place, Places};
use super::targets::process_of;
use redquorum_scenario::history::Ns;
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    AccessKind, Class, EventKind, Fault, FaultTime, Messages, Moment, Nodes, Scenario, Side,
};

/// The faults of a run, by their index in the scenario.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    all: Vec<Watched>,
    places: Option<Box<Places>>,
}

#[derive(Clone, Debug)]
struct Watched {
    fault: Fault,
    state: State,
    /// How many messages of the kind that the moment names have passed.
    passed: u32,
    nodes: Vec<usize>,
    processes: Vec<Name>,
}

impl Watched {
    fn new(fault: Fault) -> Self {
        let state = match fault.when {
            FaultTime::At(at) => State::Due(nanos(at.0)),
            FaultTime::After(_) | FaultTime::Before(_) => State::Waiting,
        };
        Self { fault, state, passed: 0, nodes: Vec::new(), processes: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The moment of the fault has not come.
    Waiting,
    /// The fault strikes at this time.
    Due(Ns),
    /// The backend is applying the fault.
    Striking,
    /// The fault has struck, and lasts until this time or until the end of the run.
    Struck(Option<Ns>),
    /// The backend is healing the fault.
    Curing,
    /// The fault is over, or could not be applied.
    Over,
}

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Self {
        let all = faults.iter().map(|fault| Watched::new(fault.clone()));
        Self { all: all.collect(), places: None }
    }

    /// Starts to record places. Of each class, only the first `most` messages of a client count.
    /// `None` ends the recording.
    pub(super) fn note_places(&mut self, most: Option<u32>) {
        self.places = most.map(|most| Box::new(Places::new(most)));
    }

    pub(super) fn places(&self) -> &[Place] {
        self.places.as_ref().map_or(&[], |places| places.all())
    }

    /// Adds a fault, as if it had been there from the start. Its moment must not have come yet.
    pub(super) fn add(&mut self, fault: Fault) {
        let mut watched = Watched::new(fault);
        if let (FaultTime::After(moment), Some(places)) = (&watched.fault.when, &self.places)
            && let Some((side, _, class)) = moment.what.message()
        {
            watched.passed = places.passed(&moment.client, side, class);
        }
        self.all.push(watched);
    }

    /// The gates for faults that strike before a message.
    pub(super) fn gates(&self, scenario: &Scenario) -> Vec<Order> {
        let gate = |(fault, watched): (usize, &Watched)| {
            let FaultTime::Before(moment) = &watched.fault.when else { return None };
            let (what, number, command) = moment.what.message()?;
            let process = process_of(scenario, &moment.client)?.clone();
            let index = Some(number.into());
            let which = Messages { what, command, index, ..Messages::default() };
            Some(Order::Gate { fault, process, which })
        };
        self.all.iter().enumerate().filter_map(gate).collect()
    }

    /// Whether any fault strikes after a message.
    pub(super) fn follow_messages(faults: &[Fault]) -> bool {
        faults.iter().any(|fault| match &fault.when {
            FaultTime::After(moment) => moment.what.message().is_some(),
            FaultTime::At(_) | FaultTime::Before(_) => false,
        })
    }

    /// Whether any fault selects masters by their role.
    pub(super) fn follow_grants(faults: &[Fault]) -> bool {
        faults.iter().any(|fault| matches!(fault.nodes, Some(Nodes::Role(_))))
    }

    pub(super) fn has_gate(&self, fault: usize) -> bool {
        match &self.all[fault].fault.when {
            FaultTime::Before(moment) => moment.what.message().is_some(),
            _ => false,
        }
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        let wakes = self.all.iter().filter_map(|watched| match watched.state {
            State::Due(at) => Some(at),
            State::Struck(until) => until,
            _ => None,
        });
        wakes.min()
    }

    /// An event of a client occurred: the faults that strike after it become due.
    pub(super) fn happened(&mut self, now: Ns, client: &str, what: &EventKind) {
        if let Some(places) = &mut self.places {
            places.come(client, what, false);
        }
        for watched in &mut self.all {
            if let FaultTime::After(moment) = &watched.fault.when
                && watched.state == State::Waiting
                && moment.client == client
                && moment.what == *what
            {
                watched.state = State::Due(now.saturating_add(nanos(moment.plus.0)));
            }
        }
    }

    /// A message of a process with these clients passed. Returns whether a fault waited for it.
    pub(super) fn passed(&mut self, now: Ns, clients: &[Name], side: Side, class: Class) -> bool {
        if let Some(places) = &mut self.places {
            clients.iter().for_each(|client| places.pass(client, side, class));
        }
        let mut due = false;
        for watched in &mut self.all {
            let FaultTime::After(Moment { client, what, plus }) = &watched.fault.when else {
                continue;
            };
            if watched.state == State::Waiting
                && clients.contains(client)
                && let Some((wanted_side, number, wanted)) = what.message()
                && wanted_side == side
                && (wanted == Class::Any || wanted == class)
            {
                watched.passed += 1;
                if watched.passed >= number {
                    watched.state = State::Due(now.saturating_add(nanos(plus.0)));
                    due = true;
                }
            }
        }
        due
    }

    /// A message waits for this fault.
    pub(super) fn gated(&mut self, now: Ns, fault: usize) {
        if self.all[fault].state == State::Waiting {
            self.all[fault].state = State::Due(now);
        }
    }

    /// The first fault that must strike before this event and has not struck yet. It becomes due
    /// now.
    pub(super) fn before(&mut self, now: Ns, client: &str, what: &EventKind) -> Option<usize> {
        if let Some(places) = &mut self.places {
            places.come(client, what, true);
        }
        let waits = |watched: &Watched| {
            let FaultTime::Before(moment) = &watched.fault.when else { return false };
            let open = matches!(watched.state, State::Waiting | State::Due(_) | State::Striking);
            open && moment.client == client && moment.what == *what
        };
        let fault = self.all.iter().position(waits)?;
        self.gated(now, fault);
        Some(fault)
    }

    pub(super) fn has_struck(&self, fault: usize) -> bool {
        matches!(self.all[fault].state, State::Struck(_) | State::Curing | State::Over)
    }

    /// The delay of a request that a client sends to a register now.
    pub(super) fn delay(&self, client: &str, way: AccessKind) -> Ns {
        let there = |watched: &&Watched| matches!(watched.state, State::Struck(_) | State::Curing);
        let delays = self.all.iter().filter(there);
        let delays = delays.filter_map(|watched| watched.fault.delays_access(client, way));
        delays.fold(0, |sum: Ns, by| sum.saturating_add(nanos(by.0)))
    }

    /// The faults that strike now. Each is returned once.
    pub(super) fn due(&mut self, now: Ns) -> Vec<usize> {
        self.each(|state| match *state {
            State::Due(at) if now >= at => Some(State::Striking),
            _ => None,
        })
    }

    /// The faults whose time is over. Each is returned once.
    pub(super) fn over(&mut self, now: Ns) -> Vec<usize> {
        self.each(|state| match *state {
            State::Struck(Some(until)) if now >= until => Some(State::Curing),
            _ => None,
        })
    }

    /// The faults to heal. No fault strikes after this call.
    pub(super) fn heal_all(&mut self) -> Vec<usize> {
        for watched in &mut self.all {
            if matches!(watched.state, State::Waiting | State::Due(_)) {
                watched.state = State::Over;
            }
        }
        let mut there = self.each(|state| match *state {
            State::Struck(_) => Some(State::Curing),
            _ => None,
        });
        // Faults are healed in reverse order, since a later fault may build on an earlier one.
        there.reverse();
        there
    }

    /// All gates, whether or not a message waits.
    pub(super) fn open_all(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|fault| self.has_gate(*fault)).collect()
    }

    fn each(&mut self, next: impl Fn(&State) -> Option<State>) -> Vec<usize> {
        let mut changed = Vec::new();
        for (index, watched) in self.all.iter_mut().enumerate() {
            if let Some(state) = next(&watched.state) {
                watched.state = state;
                changed.push(index);
            }
        }
        changed
    }

    /// Notes the masters and processes that a fault hits. They are known when it strikes.
    pub(super) fn aims(&mut self, fault: usize, nodes: Vec<usize>, processes: Vec<Name>) {
        self.all[fault].nodes = nodes;
        self.all[fault].processes = processes;
    }

    /// The fault struck, or failed to. Returns the masters and processes that it hit.
    pub(super) fn struck(
        &mut self,
        now: Ns,
        fault: usize,
        failed: bool,
    ) -> (Vec<usize>, Vec<Name>) {
        let watched = &mut self.all[fault];
        watched.state = match watched.fault.lasts {
            _ if !watched.fault.kind.can_heal() => State::Over,
            // A fault that failed half-way is healed at the end of the run.
            _ if failed && watched.nodes.is_empty() && watched.processes.is_empty() => State::Over,
            _ if failed => State::Struck(None),
            Some(lasts) => State::Struck(Some(now.saturating_add(nanos(lasts.0)))),
            None => State::Struck(None),
        };
        (watched.nodes.clone(), watched.processes.clone())
    }

    /// The fault is over. Returns the processes that it hit.
    pub(super) fn healed(&mut self, fault: usize) -> Vec<Name> {
        self.all[fault].state = State::Over;
        self.all[fault].processes.clone()
    }

    /// Whether no fault is due, being applied or being healed. A fault that has struck does not
    /// count, even if it ends at a given time.
    pub(super) fn nothing_due(&self) -> bool {
        self.all.iter().all(|watched| match watched.state {
            State::Waiting | State::Over | State::Struck(_) => true,
            State::Due(_) | State::Striking | State::Curing => false,
        })
    }

    /// Whether all faults that strike at the very start have struck.
    pub(super) fn are_set_up(&self) -> bool {
        self.all.iter().all(|watched| match watched.fault.when {
            FaultTime::At(at) if at.is_zero() => {
                !matches!(watched.state, State::Due(_) | State::Striking)
            }
            _ => true,
        })
    }

    pub(super) fn all_healed(&self) -> bool {
        self.all.iter().all(|watched| watched.state == State::Over)
    }
}
