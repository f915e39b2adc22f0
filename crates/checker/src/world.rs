//! The setting of a history: the process of each client, the resources, and when each phase began.
//! Every check reads it. It checks nothing itself.

use crate::maps::{Map, Set};
use redquorum_scenario::name::Name;

use redquorum_scenario::client_protocol::Capability;
use redquorum_scenario::history::{Event, History, Ns, Phase, Record, Window};
use redquorum_scenario::{NodeList, Scenario};

use super::time;

/// More masters than any scenario has. It bounds loops over masters when a header is garbled.
const MOST_NODES: usize = 255;

/// The masters of a process's lock. A master that the process knows by two names counts once.
pub struct Lock {
    list: NodeList,
    /// The masters, without duplicates.
    pub masters: Vec<usize>,
    pub n: usize,
    /// The quorum: how many masters must agree.
    pub q: usize,
}

impl Lock {
    fn new(list: NodeList) -> Self {
        let (masters, q) = (list.masters(), list.quorum());
        Self { list, n: masters.len(), masters, q }
    }

    /// Whether both locks can have a quorum with no master in common.
    pub fn can_part_from(&self, other: &Self) -> bool {
        self.list.can_part_from(&other.list)
    }
}

pub struct World<'a> {
    pub scenario: &'a Scenario,
    pub records: &'a [Record],
    /// The number of masters of the run. How many a client knows is in [`World::lock_of`].
    pub n: usize,
    pub node_timeout: Ns,
    pub end: Ns,
    /// The client processes that failed, when, and why.
    pub broken: Vec<(&'a str, Ns, &'a str)>,
    processes: Map<&'a str, &'a str>,
    /// The locks of processes that have a master list of their own.
    locks: Map<&'a str, Lock>,
    usual: Lock,
    resources: Vec<&'a str>,
    phases: Vec<(Phase, Ns)>,
    /// What each process supports.
    can: Set<(&'a str, Capability)>,
    /// The processes that report extensions of their watchdogs.
    extending: Set<&'a str>,
    /// When each process last sent a message.
    signs: Map<&'a str, Ns>,
}

impl<'a> World<'a> {
    pub fn of(history: &'a History) -> Self {
        let scenario = &history.header.scenario;
        let n = scenario.cluster.nodes.min(MOST_NODES);
        let mut world = Self {
            scenario,
            records: &history.records,
            n,
            node_timeout: time::of(scenario.lock.node_timeout.0),
            end: history.records.iter().map(|record| record.ns).max().unwrap_or(0),
            broken: Vec::new(),
            processes: Map::default(),
            locks: Map::default(),
            usual: Lock::new(NodeList::all(n)),
            resources: Vec::new(),
            phases: Vec::new(),
            can: Set::default(),
            extending: Set::default(),
            signs: Map::default(),
        };
        for client in &scenario.clients {
            world.processes.insert(&client.id, client.process());
            if let Some(own) = client.nodes.as_ref().filter(|own| own.len() <= MOST_NODES) {
                let list = NodeList::named(own);
                world.locks.entry(client.process()).or_insert_with(|| Lock::new(list));
            }
            for step in &client.script {
                step.acquires().for_each(|resource| world.know(resource));
            }
        }
        for Record { ns, event } in world.records {
            match event {
                Event::Phase { phase } => world.phases.push((*phase, *ns)),
                Event::Ready { process, can } => {
                    world.can.extend(can.iter().map(|can| (process.as_str(), *can)));
                }
                Event::Requested(request) if request.op.is_acquire() => {
                    request.op.resources().iter().for_each(|resource| world.know(resource));
                }
                Event::Broken { process, why } => world.broken.push((process, *ns, why)),
                Event::Extended { client, .. } => {
                    let process = world.process(client);
                    world.extending.insert(process);
                    world.signs.insert(process, *ns);
                }
                Event::Replied { client, .. } | Event::Lost { client, .. } => {
                    let process = world.process(client);
                    world.signs.insert(process, *ns);
                }
                _ => {}
            }
        }
        world
    }

    fn know(&mut self, resource: &'a str) {
        if !self.resources.contains(&resource) {
            self.resources.push(resource);
        }
    }

    /// The masters that a process knows, and its quorum.
    pub fn lock_of(&self, process: &str) -> &Lock {
        self.locks.get(process).unwrap_or(&self.usual)
    }

    /// Whether a guard may rightly refuse every request of a process, because one of its masters
    /// also belongs to another set of masters. When the run begins, each master has the marker of
    /// the first process that knows it. If some of those markers are `lost`, or masters start
    /// without markers, it may have the marker of any process that knows it and has a guard.
    pub fn is_of_two_sets(&self, process: &str, lost: bool) -> bool {
        let guarded = |process: &str| self.scenario.options_of(process).guard.is_some();
        if !guarded(process) {
            return false;
        }
        let own = self.lock_of(process);
        let is_other = |of: &Lock| of.list.name() != own.list.name();
        own.masters.iter().any(|node| {
            let all = self.scenario.processes().into_iter();
            let mut knowing = all.filter(|of| self.lock_of(of).masters.contains(node));
            let is_other = |process: &Name| is_other(self.lock_of(process));
            let is_marked = self.scenario.lock.initialized;
            (is_marked && knowing.clone().next().is_some_and(is_other))
                || ((lost || !is_marked)
                    && knowing.any(|process| guarded(process) && is_other(process)))
        })
    }

    pub fn process(&self, client: &'a str) -> &'a str {
        self.processes.get(client).copied().unwrap_or(client)
    }

    /// The resource that a key stands for. Drivers may put a prefix before the name.
    pub fn resource(&self, key: &str) -> Option<&'a str> {
        if let [only] = self.resources[..] {
            return Some(only);
        }
        let fits = self.resources.iter().copied().filter(|name| key.ends_with(name));
        fits.max_by_key(|name| name.len())
    }

    pub fn began(&self, phase: Phase) -> Option<Ns> {
        self.phases.iter().find(|(which, _)| *which == phase).map(|(_, ns)| *ns)
    }

    /// When a phase began; if it never did, when the run ended.
    pub fn until(&self, phase: Phase) -> Ns {
        self.began(phase).unwrap_or(self.end)
    }

    /// Whether a process has announced a capability, and so has to keep what it promises.
    pub fn promises(&self, process: &str, what: Capability) -> bool {
        self.can.contains(&(process, what))
    }

    /// Whether a process extends all its leases and does not report it, so that the record does not
    /// show when they end.
    pub fn renews_silently(&self, process: &str) -> bool {
        self.promises(process, Capability::Renews) && !self.extending.contains(process)
    }

    /// Whether the leases of a process must have fencing tokens.
    pub fn is_fenced(&self, process: &str) -> bool {
        self.promises(process, Capability::Fence) && self.scenario.options_of(process).fencing
    }

    /// When a process that broke last sent a message, and when it was found broken.
    pub fn breakdown(&self, process: &str) -> Option<Window> {
        let (_, ns, _) = self.broken.iter().find(|(which, ..)| *which == process)?;
        Some(Window::new(self.signs.get(process).copied().unwrap_or(*ns).min(*ns), *ns))
    }

    /// How much a clock may gain within one TTL, by the assumptions.
    pub fn deducted_from(&self, ttl: Ns) -> Ns {
        let ttl = std::time::Duration::from_nanos(u64::try_from(ttl).unwrap_or(0));
        time::of(self.scenario.lock.deducted_from(ttl))
    }
}
