//! A history prepared for the checkers, with the queries that several of them share: its setting
//! ([`World`]), and the requests to clients, paired with their replies. Nothing here checks
//! anything.

use std::ops::Deref;

use super::clocks::{Clocks, Paces};
use super::faults::{Faults, Strike};
use super::keys::{self, Keys, Presence};
use super::leases::{self, Hold, Lease};
use super::maps::{Map, Numbers, Set, sorted};
use super::time::{self, MS};
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Op};
use redquorum_scenario::history::{Event, History, Ns, Phase, Record, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{LeaseEffect, NodeList, Scenario};

/// How long a client may need to clean up, in addition to node timeouts.
pub(super) const CLEANS_UP: Ns = 100 * MS;

pub struct Case<'a> {
    pub world: World<'a>,
    pub faults: Faults<'a>,
    pub clocks: Clocks,
    pub paces: Paces<'a>,
    pub requests: Vec<Request<'a>>,
    pub keys: Keys<'a>,
    pub leases: Vec<Lease<'a>>,
    /// The leases of each client on each resource, in their order.
    of_client: Map<(&'a str, &'a str), Vec<usize>>,
    /// When each client checked whether it still holds its lease: a check takes from the request to
    /// the reply, and the client may be stopped within it.
    looks: Map<&'a str, Vec<Window>>,
    /// The result of [`Case::hollow`] for each lease, by the lease's index.
    hollow: Vec<Vec<Window>>,
}

impl<'a> Case<'a> {
    /// The case of a history in run time, with the rates of the clocks that it was converted by.
    pub fn of(history: &'a History, paces: Paces<'a>) -> Self {
        let world = World::of(history);
        let faults = Faults::of(&world);
        let clocks = Clocks::of(&world);
        let requests = requests_of(&world);
        let mut tokens = Numbers::default();
        let commands = keys::commands_of(&world, &faults, &mut tokens);
        let keys = Keys::of(&world, &faults, &clocks, &commands, tokens);
        let leases = leases::of(&world, &faults, &requests, &keys);
        let mut of_client: Map<(&str, &str), Vec<usize>> = Map::default();
        for (index, lease) in leases.iter().enumerate() {
            of_client.entry((lease.client, lease.resource)).or_default().push(index);
        }
        let mut looks: Map<&str, Vec<Window>> = Map::default();
        for request in &requests {
            if let Some(reply) = request.reply.filter(|reply| reply.ok) {
                let returned = reply.returned();
                let look = match request.op.effect() {
                    LeaseEffect::Acquires | LeaseEffect::Extends => Window::new(returned, returned),
                    LeaseEffect::None if request.resource.is_some() => {
                        Window::new(request.asked, returned)
                    }
                    LeaseEffect::Keeps | LeaseEffect::Releases | LeaseEffect::None => continue,
                };
                looks.entry(request.client).or_default().push(look);
            }
        }
        looks.values_mut().for_each(|looks| looks.sort_unstable_by_key(|look| look.to));
        let hollow = leases.iter().map(|lease| hollow(&world, &keys, lease)).collect();
        Self { world, faults, clocks, paces, requests, keys, leases, of_client, looks, hollow }
    }

    /// The margin m + q − N, with the masters that the lock of a process knows.
    pub fn margin(&self, process: &str, granted: &[usize]) -> i64 {
        self.world.lock_of(process).list.margin(|node| granted.contains(&node))
    }

    /// When a process died, or was found broken.
    pub fn death(&self, process: &str) -> Option<Window> {
        let broken = self.world.breakdown(process);
        self.faults.death(process).into_iter().chain(broken).min_by_key(|at| at.from)
    }

    /// Whether a process is dead at an instant, or may be.
    pub fn is_dead_by(&self, process: &str, at: Ns) -> bool {
        self.death(process).is_some_and(|death| death.from <= at)
    }

    /// When a process died, or may have; if it lives, the end of time.
    pub fn died(&self, process: &str) -> Ns {
        self.death(process).map_or(Ns::MAX, |at| at.from)
    }

    /// When the owner of a lease called its last release, or the end of time.
    pub fn released(&self, lease: &Lease<'_>) -> Ns {
        lease.release.map_or(Ns::MAX, |release| self.requests[release].asked)
    }

    /// When the owner of a lease asked for the next one that it got, or the end of time.
    pub fn replaced(&self, lease: &Lease<'_>) -> Ns {
        self.next_of_client(lease).map_or(Ns::MAX, |next| next.asked)
    }

    /// The lease of its resource that a client had, or had had, when it sent a request.
    pub fn lease_at(&self, request: &Request<'_>) -> Option<&Lease<'a>> {
        let own = self.of_client.get(&(request.client, request.resource?))?;
        let mut own = own.iter().map(|index| &self.leases[*index]);
        own.rfind(|lease| lease.start.from <= request.asked)
    }

    /// The longest TTL that a client asked for since it acquired the lease that a request is about.
    pub fn longest_ttl(&self, request: &Request<'_>) -> Ns {
        let Some(lease) = self.lease_at(request) else { return 0 };
        let usual = time::of(self.world.scenario.lock.ttl.0);
        let before = self.requests[lease.request..].iter().filter(|other| {
            (other.client, other.resource) == (request.client, request.resource)
                && other.asked <= request.asked
        });
        before.map(|other| other.op.ttl_ms().map_or(usual, time::of_ms)).max().unwrap_or(usual)
    }

    /// The acquires of the run, of a client or of all clients with that name and a number.
    pub fn acquires_of(&self, name: &str) -> Vec<&Request<'a>> {
        let is_client = self.world.scenario.clients.iter().any(|client| client.id == name);
        let is_numbered = |client: &str| {
            let number = client.strip_prefix(name);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let own = |request: &&Request<'_>| {
            request.client == name || !is_client && is_numbered(request.client)
        };
        self.requests.iter().filter(|request| request.is_acquire_of_run()).filter(own).collect()
    }

    /// The first lease with a token.
    pub fn lease_of(&self, token: &str) -> Option<&Lease<'a>> {
        self.leases.iter().find(|lease| lease.token == Some(token))
    }

    /// The next lease of the same client on the same resource.
    pub fn next_of_client(&self, lease: &Lease<'_>) -> Option<&Lease<'a>> {
        let all = self.of_client.get(&(lease.client, lease.resource))?;
        let next = all.partition_point(|index| self.leases[*index].request <= lease.request);
        all.get(next).map(|index| &self.leases[*index])
    }

    /// When a client last began to check whether it still holds its lease, between one of its reads
    /// and one of its writes.
    pub fn last_look(&self, client: &str, read: Ns, write: Ns) -> Ns {
        let looks = self.looks.get(client).map_or(&[][..], Vec::as_slice);
        let before = looks.partition_point(|look| look.to <= write);
        before.checked_sub(1).map_or(read, |last| looks[last].from.max(read))
    }

    /// The pause of a client between the replies of a quorum, on which it read its clock, and its
    /// stamp. The reply may have been stale after that pause, and the client could not know.
    pub fn paused_before_stamp(&self, request: &Request<'a>, at: Ns) -> Option<&Strike<'a>> {
        let learnt = self.learnt(request, at)?;
        let mut pauses = self.faults.pauses(request.process);
        pauses.find(|pause| pause.at.to >= learnt && pause.at.from <= at)
    }

    /// When a client had all that it needs for its reply: the replies of a quorum.
    pub fn learnt(&self, request: &Request<'a>, at: Ns) -> Option<Ns> {
        let resource = request.resource?;
        let leases = self.of_client.get(&(request.client, resource))?;
        let before = leases.partition_point(|lease| self.leases[*lease].asked <= request.asked);
        let token = self.leases[leases[before.checked_sub(1)?]].token?;
        let all: Vec<(usize, Ns)> = if request.is_acquire() {
            let keys = self.keys.of_token(token, resource, Window::new(request.asked, at));
            let granted = keys.filter(|key| key.granted);
            granted.filter_map(|key| Some((key.node, key.delivered?))).collect()
        } else {
            let kept = self.keys.kept(request.process, token, request.asked);
            kept.iter().map(|kept| (kept.node, kept.delivered)).collect()
        };
        // A client that acquires its own lease again learns only the time.
        let learnt = self.world.lock_of(request.process).first_quorum(all)?;
        Some(learnt.max(request.asked))
    }

    /// When a lease was believed and certainly not true: fewer masters than a quorum can have had
    /// its key. Empty if the checker cannot interpret the lease's keys.
    pub fn hollow(&self, lease: &Lease<'_>) -> &[Window] {
        lease.holds.first().map_or(&[], |hold| &self.hollow[hold.lease])
    }

    /// When a quorum of masters may have had the key of a lease, whether its client counted on the
    /// lease or not: the complement of [`Case::hollow`].
    pub fn supported(&self, lease: &Lease<'_>) -> Vec<Window> {
        self.with_quorum(lease, &presences(&self.keys, lease, |key| key.possible))
    }

    /// Whether the owner of a key could not delete it within a span: the owner is dead, was stopped
    /// or cut off, or cannot know of the key.
    pub fn is_helpless(&self, key: &Presence<'_>, within: Window) -> bool {
        key.is_back
            || self.is_dead_by(key.process, within.to)
            || self.faults.keeps_from(key.process, key.node, within, CLEANS_UP)
            || self.faults.repeats(key.process, key.node, key.made.to)
            || self.faults.is_hindered(key.process, within)
    }

    /// When a quorum of masters certainly had the key of a lease.
    pub fn surely_supported(&self, lease: &Lease<'_>) -> Vec<Window> {
        self.with_quorum(lease, &presences(&self.keys, lease, |key| key.surely()))
    }

    /// The spans in which `there` contains a quorum of the masters of a lease.
    fn with_quorum(&self, lease: &Lease<'_>, there: &[(usize, Window)]) -> Vec<Window> {
        let lock = self.world.lock_of(lease.process);
        let all = there.iter().map(|(_, span)| *span).reduce(Window::and_what_is_between);
        all.map_or(Vec::new(), |all| parts(all, there, |nodes| lock.is_quorum(nodes)))
    }
}

/// See [`Case::hollow`].
fn hollow(world: &World<'_>, keys: &Keys<'_>, lease: &Lease<'_>) -> Vec<Window> {
    if lease.token.is_none() {
        return Vec::new();
    }
    let lock = world.lock_of(lease.process);
    let there = |key: &Presence<'_>| (key.node, key.possible);
    // Usually enough masters had the key all the time.
    let all = lease.holds.iter().map(|hold| hold.inner).reduce(Window::and_what_is_between);
    if let Some(all) = all {
        let through = |(_, span): &(usize, Window)| span.from <= all.from && all.to <= span.to;
        let nodes = lease.keys(keys).map(there).filter(through).map(|(node, _)| node);
        if lock.is_quorum(&nodes.collect::<Vec<_>>()) {
            return Vec::new();
        }
    }
    let there = presences(keys, lease, |key| key.possible);
    let gaps = |hold: &Hold| parts(hold.inner, &there, |nodes| !lock.is_quorum(nodes));
    lease.holds.iter().flat_map(gaps).collect()
}

/// Which masters had the key of a lease, and when. The spans of one master do not overlap.
fn presences(
    keys: &Keys<'_>,
    lease: &Lease<'_>,
    span: impl Fn(&Presence<'_>) -> Window,
) -> Vec<(usize, Window)> {
    let mut there: Vec<(usize, Window)> =
        lease.keys(keys).map(|key| (key.node, span(key))).collect();
    there.sort_by_key(|(node, span)| (*node, span.from));
    // A master that may have had the key twice at a time counts once.
    there.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0 && later.1.from <= earlier.1.to;
        if same {
            earlier.1.to = earlier.1.to.max(later.1.to);
        }
        same
    });
    there
}

/// The parts of a span in which the right masters are present, of those in `there`.
fn parts(
    span: Window,
    there: &[(usize, Window)],
    is_right: impl Fn(&[usize]) -> bool,
) -> Vec<Window> {
    let mut edges: Vec<Ns> = vec![span.from, span.to];
    for (_, one) in there {
        edges.extend([one.from, one.to].iter().filter(|at| span.from < **at && **at < span.to));
    }
    let mut parts: Vec<Window> = Vec::new();
    for pair in sorted(edges).windows(2) {
        let piece = Window::new(pair[0], pair[1]);
        let present = there.iter().filter(|(_, one)| one.meet(piece).is_some());
        let nodes: Vec<usize> = present.map(|(node, _)| *node).collect();
        if piece.is_empty() || !is_right(&nodes) {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.to == piece.from => last.to = piece.to,
            _ => parts.push(piece),
        }
    }
    parts
}

/// More masters than any scenario has. It bounds loops over masters when a header is garbled.
const MOST_NODES: usize = 255;

/// The masters of a process's lock. A master that the process knows by two names counts once.
pub struct Lock {
    list: NodeList,
    /// The masters, without duplicates.
    pub masters: Vec<usize>,
    pub n: usize,
    /// The quorum: how many masters must agree, at least.
    pub q: usize,
}

impl Lock {
    fn new(list: NodeList) -> Self {
        let (masters, q) = (list.masters(), list.quorum());
        Self { list, n: masters.len(), masters, q }
    }

    /// Whether a quorum is among these masters.
    pub fn is_quorum(&self, nodes: &[usize]) -> bool {
        self.list.has_quorum(|node| nodes.contains(&node))
    }

    /// Whether a rival that shares masters with this lock may have a quorum among these.
    pub fn may_have_rival(&self, nodes: &[usize]) -> bool {
        self.list.may_have_rival(|node| nodes.contains(&node))
    }

    /// Whether its masters are enough for a quorum at all.
    pub fn has_quorum(&self) -> bool {
        self.is_quorum(&self.masters)
    }

    /// Whether it has the same masters and quorums as another.
    pub fn is_as(&self, other: &Self) -> bool {
        self.list.masters_id() == other.list.masters_id()
    }

    /// When a quorum of masters was first complete, of these masters and times.
    pub fn first_quorum<T: Copy + Ord>(&self, mut times: Vec<(usize, T)>) -> Option<T> {
        times.sort_unstable_by_key(|(_, at)| *at);
        let mut nodes = Vec::new();
        times.into_iter().find_map(|(node, at)| {
            nodes.push(node);
            self.is_quorum(&nodes).then_some(at)
        })
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
            let is_own = client.nodes.is_some() || client.moving_to.is_some();
            let lists = [&client.nodes, &client.moving_to].into_iter().flatten();
            if is_own && lists.into_iter().all(|list| list.len() <= MOST_NODES) {
                let list = scenario.list(client);
                world.locks.entry(client.process()).or_insert_with(|| Lock::new(list));
            }
            for step in &client.script {
                // The slots of a semaphore are in its requests.
                if !step.is_permit() {
                    step.acquires().for_each(|resource| world.know(resource));
                }
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
        let is_other = |of: &Lock| !of.is_as(own);
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

pub struct Request<'a> {
    pub client: &'a str,
    pub process: &'a str,
    pub op: &'a Op,
    /// The position of the resource among those of the operation.
    pub place: usize,
    pub resource: Option<&'a str>,
    pub asked: Ns,
    /// The phase in which the harness sent the request.
    pub phase: Phase,
    /// The index of the request among the records.
    pub record: usize,
    /// When its caller last did not poll its future.
    pub unpolled: Option<Window>,
    pub reply: Option<Reply<'a>>,
}

/// A client's reply about one resource. If the request named several, the fields that can differ
/// between them are those of this one; the rest is in the message.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    pub ns: Ns,
    pub record: usize,
    pub token: Option<&'a str>,
    pub deadline_ns: Option<Ns>,
    pub fence: Option<u64>,
    message: &'a ClientReply,
}

impl Deref for Reply<'_> {
    type Target = ClientReply;

    fn deref(&self) -> &ClientReply {
        self.message
    }
}

impl<'a> Reply<'a> {
    fn new(ns: Ns, record: usize, place: usize, message: &'a ClientReply) -> Self {
        let each = message.each.get(place);
        let token = each.and_then(|each| each.token.as_ref()).or(message.token.as_ref());
        Self {
            ns,
            record,
            token: token.map(Name::as_str),
            deadline_ns: each.and_then(|each| each.deadline_ns).or(message.deadline_ns),
            fence: each.and_then(|each| each.fence).or(message.fence),
            message,
        }
    }

    /// When the client's library returned, as far as it is known.
    pub fn returned(&self) -> Ns {
        self.at_ns.unwrap_or(self.ns)
    }

    /// Why the request failed, as readable text.
    pub fn explanation(&self) -> Option<&'a str> {
        self.message.text.as_deref()
    }
}

impl<'a> Request<'a> {
    /// When the request was answered; without a reply, the end of time.
    pub fn replied(&self) -> Ns {
        self.reply.map_or(Ns::MAX, |reply| reply.ns)
    }

    pub fn span(&self) -> Window {
        Window::new(self.asked, self.replied())
    }

    /// Whether it failed for a reason.
    pub fn failed_as(&self, reason: FailureReason) -> bool {
        self.reply.is_some_and(|reply| !reply.ok && reply.why == Some(reason))
    }

    /// Whether the client does not support the request, or was asked to give it up.
    pub fn is_given_up(&self) -> bool {
        self.failed_as(FailureReason::Unsupported) || self.failed_as(FailureReason::Cancelled)
    }

    /// Whether it succeeded; none: no reply came.
    pub fn ok(&self) -> Option<bool> {
        self.reply.map(|reply| reply.ok)
    }

    /// The other resources of the same request.
    pub fn with(&self) -> impl Iterator<Item = &'a str> {
        let all = self.op.resources().iter().enumerate();
        let place = self.place;
        all.filter(move |(other, _)| *other != place).map(|(_, name)| name.as_str())
    }

    /// Whether the operation is about more resources than this one.
    pub fn is_of_several(&self) -> bool {
        self.op.resources().len() > 1 && !self.op.is_any()
    }

    /// What the client is asked to do with the resource.
    pub const fn verb(&self) -> &'static str {
        match self.op.effect() {
            LeaseEffect::Acquires => "acquire",
            LeaseEffect::Releases => "release",
            LeaseEffect::Extends | LeaseEffect::Keeps | LeaseEffect::None => self.op.name(),
        }
    }

    /// What the client is asked to do, and with what: `acquire L shared`.
    pub fn text(&self) -> String {
        let resource = self.resource.map(|of| format!(" {of}")).unwrap_or_default();
        let shared = if self.op.is_shared() { " shared" } else { "" };
        format!("{}{resource}{shared}", self.verb())
    }

    pub const fn is_acquire(&self) -> bool {
        self.op.is_acquire()
    }

    pub const fn is_extend(&self) -> bool {
        matches!(self.op.effect(), LeaseEffect::Extends)
    }

    /// Whether it is an acquire of a client's script, not a final acquire.
    pub fn is_acquire_of_run(&self) -> bool {
        self.is_acquire() && self.phase == Phase::Run
    }

    pub fn granted(&self) -> bool {
        self.is_acquire() && self.reply.is_some_and(|reply| reply.ok)
    }
}

/// All requests, in the order in which they were sent. Those of one record are consecutive, in the
/// order of their resources.
pub(crate) fn requests_of<'a>(world: &World<'a>) -> Vec<Request<'a>> {
    let mut all: Vec<Request<'a>> = Vec::new();
    // Where the requests of each record without a reply are.
    let mut open: Map<u64, std::ops::Range<usize>> = Map::default();
    let mut now = Phase::Run;
    for (record, Record { ns, event }) in world.records.iter().enumerate() {
        match event {
            Event::Phase { phase } => now = *phase,
            Event::Requested(request) => {
                let resources = request.op.resources();
                let first = all.len();
                let parts = if request.op.is_any() { 1 } else { resources.len().max(1) };
                all.extend((0..parts).map(|place| Request {
                    client: &request.client,
                    process: world.process(&request.client),
                    op: &request.op,
                    place,
                    resource: resources.get(place).map(Name::as_str),
                    asked: *ns,
                    phase: now,
                    record,
                    unpolled: None,
                    reply: None,
                }));
                open.insert(request.id, first..all.len());
            }
            Event::Unpolled { id, from, to, .. } => {
                for request in
                    open.get(id).cloned().and_then(|asked| all.get_mut(asked)).into_iter().flatten()
                {
                    request.unpolled = Some(Window::new(*from, *to));
                }
            }
            Event::Replied { reply, .. } => {
                let Some(asked) = open.remove(&reply.id) else { continue };
                for (place, request) in all[asked].iter_mut().enumerate() {
                    request.reply = Some(Reply::new(*ns, record, place, reply));
                    if request.op.is_any() {
                        // Until the reply it stands for the first of the resources.
                        request.place = request.op.chosen(reply);
                        let resource = request.op.resources().get(request.place);
                        request.resource = resource.map(Name::as_str);
                    }
                }
            }
            _ => {}
        }
    }
    all
}
