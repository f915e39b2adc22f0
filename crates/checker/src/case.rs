//! A history prepared for the checkers, with the queries that several of them share.

use redquorum_scenario::client_protocol::Op;
use redquorum_scenario::history::{History, Ns, Window};

use super::clocks::Clocks;
use super::commands;
use super::faults::{Faults, Strike};
use super::keys::{Keys, Presence};
use super::leases::{self, Hold, Lease};
use super::maps::{Map, Numbers, count, sorted};
use super::pace::Paces;
use super::requests::{self, Request};
use super::time::{self, MS};
use super::world::World;

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
    /// When each client checked whether it still holds its lease.
    looks: Map<&'a str, Vec<Ns>>,
    /// The result of [`Case::hollow`] for each lease, by the lease's index.
    hollow: Vec<Vec<Window>>,
}

impl<'a> Case<'a> {
    /// The case of a history in run time, with the rates of the clocks that it was converted by.
    pub fn of(history: &'a History, paces: Paces<'a>) -> Self {
        let world = World::of(history);
        let faults = Faults::of(&world);
        let clocks = Clocks::of(&world);
        let requests = requests::of(&world);
        let mut tokens = Numbers::default();
        let commands = commands::of(&world, &faults, &mut tokens);
        let keys = Keys::of(&world, &faults, &clocks, &commands, tokens);
        let leases = leases::of(&world, &faults, &requests, &keys);
        let mut of_client: Map<(&str, &str), Vec<usize>> = Map::default();
        for (index, lease) in leases.iter().enumerate() {
            of_client.entry((lease.client, lease.resource)).or_default().push(index);
        }
        let mut looks: Map<&str, Vec<Ns>> = Map::default();
        for request in &requests {
            if let Some(reply) = request.reply.filter(|reply| reply.ok) {
                let looked = match request.op {
                    Op::Step { check: Some(_), .. } => reply.at_ns.unwrap_or(request.asked),
                    Op::Acquire { .. } | Op::AcquireAll { .. } | Op::Extend { .. } => {
                        reply.returned()
                    }
                    _ => continue,
                };
                looks.entry(request.client).or_default().push(looked);
            }
        }
        looks.values_mut().for_each(|looks| looks.sort_unstable());
        let hollow = leases.iter().map(|lease| hollow(&world, &keys, lease)).collect();
        Self { world, faults, clocks, paces, requests, keys, leases, of_client, looks, hollow }
    }

    /// The margin m + q − N, with the masters that the lock of a process knows.
    pub fn margin(&self, process: &str, granted: usize) -> i64 {
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let lock = self.world.lock_of(process);
        of(granted).saturating_add(of(lock.q)).saturating_sub(of(lock.n))
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

    /// When a client last checked whether it still holds its lease, between one of its reads and
    /// one of its writes.
    pub fn last_look(&self, client: &str, read: Ns, write: Ns) -> Ns {
        let looks = self.looks.get(client).map_or(&[][..], Vec::as_slice);
        let before = looks.partition_point(|look| *look <= write);
        before.checked_sub(1).map_or(read, |last| looks[last].max(read))
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
        let mut all: Vec<Ns> = if request.is_acquire() {
            let keys = self.keys.of_token(token, resource, Window::new(request.asked, at));
            keys.filter(|key| key.granted).filter_map(|key| key.delivered).collect()
        } else {
            let kept = self.keys.kept(request.process, token, request.asked);
            kept.iter().map(|kept| kept.delivered).collect()
        };
        all.sort_unstable();
        // A client that acquires its own lease again learns only the time.
        let learnt = all.get(self.world.lock_of(request.process).q - 1).copied()?;
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
    /// or cut off, or cannot know of the key. `slack`: how long a stopped owner may need
    /// afterwards.
    pub fn is_helpless(&self, key: &Presence<'_>, within: Window, slack: Ns) -> bool {
        key.is_back
            || self.is_dead_by(key.process, within.to)
            || self.faults.keeps_from(key.process, key.node, within, CLEANS_UP)
            || self.faults.repeats(key.process, key.node, key.made.to)
            || self.faults.is_hindered(key.process, within, slack)
    }

    /// When a quorum of masters certainly had the key of a lease.
    pub fn surely_supported(&self, lease: &Lease<'_>) -> Vec<Window> {
        self.with_quorum(lease, &presences(&self.keys, lease, |key| key.surely()))
    }

    /// The spans in which `there` contains a quorum of the masters of a lease.
    fn with_quorum(&self, lease: &Lease<'_>, there: &[(usize, Window)]) -> Vec<Window> {
        let enough = self.world.lock_of(lease.process).q;
        let all = there.iter().map(|(_, span)| *span).reduce(Window::and_what_is_between);
        all.map_or(Vec::new(), |all| parts(all, there, |count| count >= enough))
    }
}

/// See [`Case::hollow`].
fn hollow(world: &World<'_>, keys: &Keys<'_>, lease: &Lease<'_>) -> Vec<Window> {
    if lease.token.is_none() {
        return Vec::new();
    }
    let enough = world.lock_of(lease.process).q;
    let there = |key: &Presence<'_>| (key.node, key.possible);
    // Usually enough masters had the key all the time.
    let all = lease.holds.iter().map(|hold| hold.inner).reduce(Window::and_what_is_between);
    if let Some(all) = all {
        let through = |(_, span): &(usize, Window)| span.from <= all.from && all.to <= span.to;
        let nodes = lease.keys(keys).map(there).filter(through).map(|(node, _)| node);
        if count(nodes) >= enough {
            return Vec::new();
        }
    }
    let there = presences(keys, lease, |key| key.possible);
    let gaps = |hold: &Hold| parts(hold.inner, &there, |count| count < enough);
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

/// The parts of a span in which a right number of the spans in `there` are present.
fn parts(span: Window, there: &[(usize, Window)], is_right: impl Fn(usize) -> bool) -> Vec<Window> {
    let mut edges: Vec<Ns> = vec![span.from, span.to];
    for (_, one) in there {
        edges.extend([one.from, one.to].iter().filter(|at| span.from < **at && **at < span.to));
    }
    let mut parts: Vec<Window> = Vec::new();
    for pair in sorted(edges).windows(2) {
        let piece = Window::new(pair[0], pair[1]);
        let count = there.iter().filter(|(_, one)| one.meet(piece).is_some()).count();
        if piece.is_empty() || !is_right(count) {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.to == piece.from => last.to = piece.to,
            _ => parts.push(piece),
        }
    }
    parts
}
