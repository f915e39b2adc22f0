//! The believed holds: from when to when did each client count on its lease? The stamps of a client
//! are exact. Without stamps, there is an inner span, in which the client certainly counted on the
//! lease, and an outer span, in which it may have.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redquorum_scenario::LeaseEffect;
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, Ns, Phase, Record, Window, start_of_token};

use super::case::{Lock, Reply, Request, World};
use super::faults::Faults;
use super::keys::{Keys, Presence};
use super::maps::{Map, Set, sorted};
use super::time;

/// A span of time in which a client counted on a lease.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub lease: usize,
    pub inner: Window,
    pub outer: Window,
}

/// The event that ended a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Deadline,
    Release,
    Lost,
    Death,
    /// The owner was granted the same resource again, and has only the new lease since.
    Replaced,
}

/// The lease that a granted acquire returned.
pub struct Lease<'a> {
    /// The index of the acquire among the requests.
    pub request: usize,
    pub client: &'a str,
    pub process: &'a str,
    pub resource: &'a str,
    /// Whether others may have shared leases of the resource at the same time.
    pub shared: bool,
    pub token: Option<&'a str>,
    pub phase: Phase,
    pub asked: Ns,
    pub reply: Reply<'a>,
    /// When the lease was handed out.
    pub start: Window,
    /// The last deadline.
    pub deadline: Window,
    pub extensions: Vec<Extension>,
    /// How many handles of the lease are out besides the first one.
    pub others: u64,
    /// The replies that returned handles after the first one.
    pub again: Vec<Reply<'a>>,
    /// The index, among the requests, of the first release with the last handle.
    pub release: Option<usize>,
    /// When the owner was notified of the loss.
    pub lost: Option<Ns>,
    pub ending: Ending,
    /// There is one, unless the lease was extended after its end.
    pub holds: Vec<Hold>,
}

/// A change of the deadline.
#[derive(Clone, Copy)]
pub struct Extension {
    /// When the client was notified, if it reports that.
    pub at: Option<Ns>,
    /// When the notice of its client was recorded: of the watchdog, or of a request that was given
    /// up. None: it was no notice.
    pub noticed: Option<Ns>,
    pub deadline: Window,
    /// The index of the request for it among the requests. None: the watchdog extended the lease.
    pub request: Option<usize>,
    /// The previous deadline.
    pub before: Window,
}

impl Ending {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Release => "release",
            Self::Lost => "loss",
            Self::Death => "death",
            Self::Replaced => "new grant",
        }
    }
}

impl<'a> Lease<'a> {
    /// When the client called its library, as far as it is known.
    pub fn called(&self) -> Ns {
        self.reply.from_ns.unwrap_or(self.asked)
    }

    /// The whole time of the lease, with its gaps.
    pub fn span(&self) -> Window {
        let to = self.holds.iter().map(|hold| hold.outer.to).max();
        Window::new(self.start.from, to.unwrap_or(self.start.from))
    }

    /// When the client certainly believed that it held. There is more than one window if it
    /// extended the lease after its end.
    pub fn believed(&self) -> impl Iterator<Item = Window> {
        self.holds.iter().map(|hold| hold.inner)
    }

    /// The deadline with which the lease was handed out.
    pub fn first_deadline(&self) -> Window {
        self.extensions.first().map_or(self.deadline, |first| first.before)
    }

    /// The last deadline while the records are read.
    fn latest_deadline(&self) -> Window {
        self.extensions.last().map_or(self.deadline, |last| last.deadline)
    }

    fn extend(&mut self, at: Option<Ns>, deadline: Window, request: Option<usize>) {
        let before = self.latest_deadline();
        self.extensions.push(Extension { at, noticed: None, deadline, request, before });
    }

    /// Whether a request that found the lease got one that it can count on: the holder of a shared
    /// lease that asks for an exclusive one, and is granted it, keeps others out from then on.
    const fn serves(&self, request: &Request<'_>) -> bool {
        !self.shared || request.op.is_shared()
    }

    /// The owner gets another handle, and counts on the deadline that came with it.
    fn reenter(&mut self, index: usize, request: &Request<'_>, reply: Reply<'a>) {
        self.others += 1;
        self.again.push(reply);
        let now = self.latest_deadline();
        if let Some(deadline) = promised(request, reply).filter(|deadline| deadline.to > now.to) {
            self.extend(reply.at_ns, deadline, Some(index));
        }
    }

    /// The owner releases a handle. It counts on the lease until it releases the last one.
    fn give_back(&mut self, index: usize) {
        match self.others.checked_sub(1) {
            Some(left) => self.others = left,
            None => {
                self.release.get_or_insert(index);
            }
        }
    }

    /// A client that asks for a shorter TTL counts on less from then on, regardless of the result.
    /// It does not report that it does so.
    fn may_shorten(&mut self, request: &Request<'_>) {
        let Some(ttl) = request.op.ttl_ms() else { return };
        let now = self.latest_deadline();
        let shorter = request.asked.saturating_add(time::of_ms(ttl));
        if shorter < now.from {
            self.extend(None, Window::new(shorter, now.to), None);
        }
    }

    /// Where the lease's token was, or may have been, during the acquire and while the lease lived.
    pub fn keys<'k>(
        &self,
        keys: &'k Keys<'a>,
    ) -> impl Iterator<Item = &'k Presence<'a>> + use<'k, 'a> {
        let within = Window::new(self.asked, self.span().to.max(self.reply.ns));
        let found = self.token.map(|token| keys.of_token(token, self.resource, within));
        found.into_iter().flatten()
    }

    /// The keys that were set for the lease. Some locks set them with the script that prolongs
    /// them.
    pub fn votes<'k>(
        &self,
        keys: &'k Keys<'a>,
    ) -> impl Iterator<Item = &'k Presence<'a>> + use<'k, 'a> {
        let replied = self.reply.ns;
        self.keys(keys).filter(move |key| key.granted || key.made.from <= replied)
    }

    /// The masters that certainly granted the lease.
    pub fn masters(&self, keys: &Keys<'a>) -> Vec<usize> {
        let granted = self.keys(keys).filter(|key| key.granted && key.sure);
        sorted(granted.map(|key| key.node))
    }

    /// The masters that granted the lease: for certain, or including masters that never replied.
    pub fn grants(&self, keys: &Keys<'a>, sure: bool) -> Vec<usize> {
        let granted = self.votes(keys).filter(|key| key.sure || !sure);
        sorted(granted.map(|key| key.node))
    }
}

/// All leases, in the order in which they were granted.
pub(crate) fn of<'a>(
    world: &World<'a>,
    faults: &Faults<'a>,
    requests: &[Request<'a>],
    keys: &Keys<'a>,
) -> Vec<Lease<'a>> {
    let mut leases = gather(world, requests, keys);
    // When the next lease of the same client on the same resource was granted. A lease gives way to
    // the next one at the answer that granted that one, so the check can still find an overlap of
    // the two.
    let mut next: Map<(&str, &str), Ns> = Map::default();
    for (index, lease) in leases.iter_mut().enumerate().rev() {
        if world.renews_silently(lease.process) {
            let until = Window::new(lease.latest_deadline().from, Ns::MAX);
            lease.extend(None, until, None);
        }
        let replaced = next.insert((lease.client, lease.resource), lease.reply.ns);
        let released = lease.release.map(|release| released(&requests[release], lease.token, keys));
        let ends = [
            (released, Ending::Release),
            (lease.lost.map(Window::at), Ending::Lost),
            (faults.death(lease.process), Ending::Death),
            (replaced.map(Window::at), Ending::Replaced),
            (world.breakdown(lease.process), Ending::Death),
        ];
        settle(index, lease, ends);
    }
    leases
}

/// Computes the ends of a lease's holds.
fn settle(index: usize, lease: &mut Lease<'_>, ends: [(Option<Window>, Ending); 5]) {
    let mut holds = Vec::new();
    let mut start = lease.start;
    for extension in &lease.extensions {
        if let Some(at) = extension.at
            && at > lease.deadline.to
        {
            // The lease had ended, and its client counted on it again: there is a gap.
            holds.push((start, lease.deadline));
            start = Window::at(at);
        }
        lease.deadline = extension.deadline;
    }
    holds.push((start, lease.deadline));

    let mut cut = Window::at(Ns::MAX);
    for (when, ending) in ends {
        let Some(when) = when else { continue };
        if when.from < cut.from && when.from < lease.deadline.from {
            lease.ending = ending;
        }
        cut = Window::new(cut.from.min(when.from), cut.to.min(when.to));
    }
    let hold = |(start, end): (Window, Window)| Hold {
        lease: index,
        inner: Window::new(start.to, end.from.min(cut.from)),
        outer: Window::new(start.from, end.to.min(cut.to)),
    };
    lease.holds = holds.into_iter().map(hold).collect();
}

/// When a client gave its lease up.
fn released(release: &Request<'_>, token: Option<&str>, keys: &Keys<'_>) -> Window {
    let reply = release.reply;
    // A client that does not support release goes on with its lease.
    if release.failed_as(FailureReason::Unsupported) {
        return Window::at(Ns::MAX);
    }
    if let Some(from) = reply.and_then(|reply| reply.from_ns) {
        return Window::at(from);
    }
    let deleted = token.and_then(|token| keys.first_delete(release.process, token, release.asked));
    let to = release.replied().min(deleted.unwrap_or(Ns::MAX));
    Window::new(release.asked, to.max(release.asked))
}

/// The leases as they were handed out, extended, released and lost: from the records, in their
/// order. [`settle`] computes where their holds end.
fn gather<'a>(world: &World<'a>, requests: &[Request<'a>], keys: &Keys<'a>) -> Vec<Lease<'a>> {
    // The records at which requests change leases.
    let changes = requests.iter().enumerate().filter_map(|(index, request)| {
        match (request.op.effect(), request.reply.filter(|reply| reply.ok)) {
            (LeaseEffect::Acquires | LeaseEffect::Extends, Some(reply)) => {
                Some((reply.record, index))
            }
            (LeaseEffect::Releases | LeaseEffect::Extends, _) => Some((request.record, index)),
            (LeaseEffect::Acquires, None) | (LeaseEffect::Keeps | LeaseEffect::None, _) => None,
        }
    });
    let mut changes: Vec<(usize, usize)> = changes.collect();
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut leases: Vec<Lease<'a>> = Vec::new();
    let mut of_client: Map<(&str, &str), Vec<usize>> = Map::default();
    // The tokens of shared leases so far.
    let mut taken: Set<&str> = Set::default();
    for (record, Record { ns, event }) in world.records.iter().enumerate() {
        match event {
            Event::Requested(_) | Event::Replied { .. } => {
                while let Some((_, index)) = changes.next_if(|(at, _)| *at == record) {
                    let request = &requests[index];
                    let Some(resource) = request.resource else { continue };
                    let known = of_client.entry((request.client, resource)).or_default();
                    let latest = known.last().map(|latest| &mut leases[*latest]);
                    let reply = request.reply.filter(|reply| reply.ok);
                    match (request.op.effect(), reply, latest) {
                        (LeaseEffect::Releases, _, Some(lease)) => lease.give_back(index),
                        (LeaseEffect::Acquires, Some(reply), Some(lease))
                            if reply.handles > Some(1) && lease.serves(request) =>
                        {
                            lease.reenter(index, request, reply);
                        }
                        (LeaseEffect::Acquires, Some(reply), _) => {
                            known.push(leases.len());
                            let lease =
                                granted(index, request, (resource, reply), world, keys, &taken);
                            taken.extend(lease.token.filter(|_| lease.shared));
                            leases.push(lease);
                        }
                        (LeaseEffect::Extends, Some(reply), Some(lease)) => {
                            let promised = promised(request, reply);
                            let lock = world.lock_of(request.process);
                            let sent = || attempt(kept(keys, lease.token?, request, reply), lock);
                            let on_masters = || Some(of_algorithm(sent()?, request, world));
                            if let Some(deadline) = promised.or_else(on_masters) {
                                lease.extend(reply.at_ns, deadline, Some(index));
                            }
                        }
                        // The result is unknown.
                        (LeaseEffect::Extends, None, Some(lease)) => lease.may_shorten(request),
                        (LeaseEffect::Acquires, None, _)
                        | (LeaseEffect::Extends | LeaseEffect::Releases, _, None)
                        | (LeaseEffect::Keeps | LeaseEffect::None, ..) => {}
                    }
                }
            }
            Event::Extended { client, resource, deadline } => {
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                if let Some(lease) = known.and_then(|known| known.last()) {
                    let lease = &mut leases[*lease];
                    let (deadline, before) = (Window::at(*deadline), lease.latest_deadline());
                    let (at, noticed, request) = (None, Some(*ns), None);
                    lease.extensions.push(Extension { at, noticed, deadline, request, before });
                }
            }
            Event::Lost { client, resource, at } => {
                // The notice may be about the lease before the last one.
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                let mut known = known.into_iter().flatten();
                if let Some(lease) = known.rfind(|lease| leases[**lease].start.from <= *at) {
                    leases[*lease].lost.get_or_insert(*at);
                }
            }
            _ => {}
        }
    }
    leases
}

/// The deadline that a reply promises, if it promises one.
fn promised(request: &Request<'_>, reply: Reply<'_>) -> Option<Window> {
    if let Some(deadline) = reply.deadline_ns {
        return Some(Window::at(deadline));
    }
    let valid = time::of_ms(reply.valid_ms?);
    // The remaining validity counts from the return of the library, if that time is known.
    let from = reply.at_ns.unwrap_or(request.asked).saturating_add(valid);
    let to = reply.returned().saturating_add(valid);
    Some(Window::new(from, to))
}

/// The deadline of a lease whose library reveals none, as the algorithm has it: its TTL from the
/// commands that gave it a quorum, less the drift.
fn of_algorithm(sent: Ns, request: &Request<'_>, world: &World<'_>) -> Window {
    let ttl = request.op.ttl_ms().map_or(time::of(world.scenario.lock.ttl.0), time::of_ms);
    Window::at(sent.saturating_add(ttl).saturating_sub(world.deducted_from(ttl)))
}

/// When the commands were sent by which masters extended a lease for a request, by master.
fn kept<'a>(
    keys: &Keys<'_>,
    token: &str,
    request: &Request<'a>,
    reply: Reply<'_>,
) -> impl Iterator<Item = (usize, Ns)> + use<'a> {
    let (kept, until) = (keys.kept(request.process, token, request.asked), reply.ns);
    kept.into_iter().map(|kept| (kept.node, kept.sent)).filter(move |(_, sent)| *sent <= until)
}

/// When the attempt began to which a request owes its quorum, by the latest command to each master.
/// A library that makes several attempts with one token counts from the last one.
fn attempt(commands: impl Iterator<Item = (usize, Ns)>, lock: &Lock) -> Option<Ns> {
    let mut latest: BTreeMap<usize, Ns> = BTreeMap::new();
    for (node, sent) in commands {
        let known = latest.entry(node).or_insert(sent);
        *known = sent.max(*known);
    }
    let latest: Vec<_> = latest.into_iter().map(|(node, sent)| (node, Reverse(sent))).collect();
    let earliest = latest.iter().map(|(_, sent)| *sent).max();
    lock.first_quorum(latest).or(earliest).map(|sent| sent.0)
}

fn granted<'a>(
    index: usize,
    request: &Request<'a>,
    (resource, reply): (&'a str, Reply<'a>),
    world: &World<'a>,
    keys: &Keys<'a>,
    taken: &Set<&'a str>,
) -> Lease<'a> {
    let during = Window::new(request.asked, reply.ns);
    let reported = reply.token.and_then(|token| keys.reported(token));
    let whole = reply.token.filter(|token| start_of_token(token).is_none());
    let lock = world.lock_of(request.process);
    let enough = lock.q;
    let shared = request.op.is_shared();
    // Another lock may know no shared tokens.
    let alone = || keys.last_set(request.process, resource, during, enough);
    let found = || match shared {
        true => keys.first_shared(request.process, resource, during, enough, taken).or_else(alone),
        false => alone(),
    };
    let token = reported.or_else(found);
    // No interpretable command set a key: then nothing can be concluded about its keys.
    let opaque = token.is_none() && keys.is_opaque(request.process, resource, during);
    let token = if opaque { None } else { token.or(whole) };
    // Without a stamp, a client may first have counted on its lease when it received the grants of
    // a quorum.
    let quorum = || {
        let granted = keys.of_token(token?, resource, during);
        let own = granted.filter(|key| key.granted && key.made.from >= request.asked);
        lock.first_quorum(own.filter_map(|key| Some((key.node, key.delivered?))).collect())
    };
    let start = reply.at_ns.map_or_else(
        || Window::new(quorum().unwrap_or(request.asked).min(reply.ns), reply.ns),
        Window::at,
    );
    let sent = || {
        let granted = keys.of_token(token?, resource, during).filter(|key| key.granted);
        let set = granted.map(|key| (key.node, key.made.from));
        attempt(set.chain(kept(keys, token?, request, reply)), lock)
    };
    let on_masters = || Some(of_algorithm(sent()?, request, world));
    let deadline = promised(request, reply).or_else(on_masters).unwrap_or_else(|| {
        // Nothing is known of its keys: the lease is good for one TTL at most.
        let ttl = request.op.ttl_ms().map_or(time::of(world.scenario.lock.ttl.0), time::of_ms);
        Window::new(request.asked.saturating_add(ttl), reply.ns.saturating_add(ttl))
    });
    Lease {
        request: index,
        client: request.client,
        process: request.process,
        resource,
        shared,
        token,
        phase: request.phase,
        asked: request.asked,
        reply,
        start: start.tidy(),
        deadline,
        extensions: Vec::new(),
        others: 0,
        again: Vec::new(),
        release: None,
        lost: None,
        ending: Ending::Deadline,
        holds: Vec::new(),
    }
}
