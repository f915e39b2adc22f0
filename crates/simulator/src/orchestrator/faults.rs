//! When faults strike and when they are healed; the masters and processes that they hit; the places
//! of a run at which they can strike.

use std::collections::{BTreeMap, BTreeSet};

use super::Order;
use redquorum_scenario::history::Ns;
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{
    AccessKind, Class, Client, Clients, EventKind, Fault, FaultTime, Messages, Moment, Nodes,
    Scenario, Side,
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

    /// Whether any fault has begun to strike.
    pub(super) fn any_struck(&self) -> bool {
        self.all.iter().any(|it| !matches!(it.state, State::Waiting | State::Due(_)))
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

/// The masters that a fault hits now. A role covers only masters that its client knows.
pub(super) fn nodes_of(
    fault: &Fault,
    scenario: &Scenario,
    granted: impl Fn(&str) -> Option<BTreeSet<usize>>,
) -> Result<Vec<usize>, String> {
    let role = match &fault.nodes {
        None => return Ok(Vec::new()),
        Some(Nodes::All) => return Ok((1..=scenario.cluster.nodes).collect()),
        Some(Nodes::Some(numbers)) => return Ok(numbers.clone()),
        Some(Nodes::Role(role)) => role,
    };
    let granted = granted(&role.client).unwrap_or_default();
    let wanted = role.first.unwrap_or(usize::MAX);
    let known = scenario.list_of(process_of(scenario, &role.client).unwrap_or(&role.client));
    let plays = |node: &usize| granted.contains(node) == role.granted;
    let found: Vec<usize> = known.masters().into_iter().filter(plays).take(wanted).collect();
    match role.first {
        Some(first) if found.len() < first => {
            Err(format!("{role}: there are only {} such masters", found.len()))
        }
        None if found.is_empty() => Err(format!("{role}: there is no such master")),
        _ => Ok(found),
    }
}

/// The processes that a fault hits.
pub fn processes_of(fault: &Fault, scenario: &Scenario) -> Vec<Name> {
    let Some(clients) = &fault.clients else { return Vec::new() };
    let hit = |process: &&Name| match clients {
        Clients::All => true,
        some => clients_of(scenario, process).iter().any(|client| some.has(client)),
    };
    scenario.processes().into_iter().filter(hit).cloned().collect()
}

/// The process of a client.
pub(super) fn process_of<'a>(scenario: &'a Scenario, client: &str) -> Option<&'a Name> {
    scenario.clients.iter().find(|known| known.id == client).map(Client::process)
}

/// The clients of a process.
pub(super) fn clients_of(scenario: &Scenario, process: &str) -> Vec<Name> {
    let all = scenario.clients.iter().filter(|client| client.process() == process);
    all.map(|client| client.id.clone()).collect()
}

/// The masters that granted each token, for faults that hit the holders' masters.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    nodes: BTreeMap<Name, BTreeSet<usize>>,
    /// The tokens of each process, in the order of their first grants.
    of_process: BTreeMap<Name, Vec<Name>>,
    /// The token of each client's latest lease.
    of_client: BTreeMap<Name, Name>,
}

impl Granted {
    /// A master granted a token.
    pub(super) fn set(&mut self, process: Name, token: &Name, node: usize) {
        let tokens = self.of_process.entry(process).or_default();
        if !tokens.iter().any(|known| known == token) {
            tokens.push(token.clone());
        }
        self.nodes.entry(token.clone()).or_default().insert(node);
    }

    /// A client got a lease. If the client does not report the token, this is the latest of the
    /// process's tokens that `quorum` masters granted. Later tokens may belong to other clients of
    /// the process, which are still trying.
    pub(super) fn won(
        &mut self,
        client: &Name,
        process: &str,
        reported: Option<&Name>,
        quorum: usize,
    ) {
        let reported = reported.filter(|token| self.nodes.contains_key(*token));
        let count = |token: &Name| self.nodes.get(token).map_or(0, BTreeSet::len).min(quorum);
        let of_process = || {
            let tokens = self.of_process.get(process)?;
            tokens.iter().max_by_key(|token| count(token)).cloned()
        };
        if let Some(token) = reported.cloned().or_else(of_process) {
            self.of_client.insert(client.clone(), token);
        }
    }

    /// The masters that granted the latest lease of a client. If it has no lease, the masters that
    /// granted the latest token of its process.
    pub(super) fn nodes(&self, client: &str, process: &str) -> Option<&BTreeSet<usize>> {
        let tried = || self.of_process.get(process)?.last();
        self.nodes.get(self.of_client.get(client).or_else(tried)?)
    }
}

/// A moment that comes in a run, or the instant before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub client: Name,
    pub what: EventKind,
    /// Whether the place is before the event.
    pub before: bool,
}

/// The places that have come so far, in order. They are recorded only for a search that needs them;
/// other runs have no cost.
#[derive(Clone, Debug)]
struct Places {
    /// Messages of a class beyond this number are no places.
    most: u32,
    passed: Counts<(Name, Side, Class)>,
    all: Vec<Place>,
}

impl Places {
    pub(super) fn new(most: u32) -> Self {
        Self { most, passed: Counts::default(), all: Vec::new() }
    }

    pub(super) fn all(&self) -> &[Place] {
        &self.all
    }

    /// An event of a client occurs, or is about to.
    fn come(&mut self, client: &str, what: &EventKind, before: bool) {
        let known =
            |place: &Place| place.before == before && place.what == *what && place.client == client;
        if !self.all.iter().any(known) {
            self.all.push(Place { client: client.into(), what: what.clone(), before });
        }
    }

    /// A message of a client passes.
    pub(super) fn pass(&mut self, client: &Name, side: Side, class: Class) {
        let number = self.passed.add((client.clone(), side, class));
        if number <= self.most && class != Class::Any {
            self.come(client, &EventKind::of_message(side, number, class), false);
        }
    }

    /// How many messages of a client have passed, of one class as a place names it.
    pub(super) fn passed(&self, client: &Name, side: Side, class: Class) -> u32 {
        self.passed.of(&(client.clone(), side, class))
    }
}

/// How often each of a few values came.
#[derive(Clone, Debug)]
pub struct Counts<T>(Vec<(T, u32)>);

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Counts<T> {
    /// Counts a value, and returns how often it has come now.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == value) {
            *count += 1;
            return *count;
        }
        self.0.push((value, 1));
        1
    }

    pub fn of(&self, value: &T) -> u32 {
        self.0.iter().find(|(known, _)| known == value).map_or(0, |(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_process_have_leases_of_their_own() {
        let mut granted = Granted::default();
        for node in [1, 2, 4] {
            granted.set("p".into(), &"t1".into(), node);
        }
        for node in [3, 5] {
            granted.set("p".into(), &"t2".into(), node);
        }
        granted.won(&"c1".into(), "p", None, 3);
        granted.set("p".into(), &"t2".into(), 1);
        granted.set("p".into(), &"t3".into(), 5);
        granted.won(&"c2".into(), "p", Some(&"t2".into()), 3);
        assert_eq!(granted.nodes("c1", "p"), Some(&BTreeSet::from([1, 2, 4])));
        assert_eq!(granted.nodes("c2", "p"), Some(&BTreeSet::from([1, 3, 5])));
        assert_eq!(granted.nodes("c3", "p"), Some(&BTreeSet::from([5])));
        assert_eq!(granted.nodes("c4", "q"), None);
        // Of several tokens with a quorum, the latest.
        granted.won(&"c1".into(), "p", Some(&"unknown".into()), 3);
        assert_eq!(granted.nodes("c1", "p"), Some(&BTreeSet::from([1, 3, 5])));
    }
}
