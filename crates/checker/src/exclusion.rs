//! Mutual exclusion: do believed holds of one resource overlap, of which one at least is exclusive?
//! [`Overlaps`] decides: for the leases of a recorded run here, and in the soak for the critical
//! sections that clients report.
//!
//! And the causes: why was a key gone before its owner stopped counting on it? If a fault outside
//! the lock's assumptions explains it, the failure is by design, and the report names the fault.
//! Otherwise it is a bug.

use std::collections::BTreeMap;

use super::keys::{Deleted, Presence};
use super::leases::{Ending, Hold, Lease};
use super::time::{self, MS, Ms};
use super::{Case, Violation};
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Record, Window};
use redquorum_scenario::{Cause, Class, FaultKind, Messages, NetworkFault, Property, numbered};

/// A master's reply is on record within this time after the lease was granted.
const RECORDED: Ns = 1_000 * MS;

/// The overlaps among the holds of one resource.
///
/// Takes the holds in the order of their starts, and compares each with the earlier one that lasts
/// longest, a shared hold with the exclusive one that does: if any two holds overlap that must not,
/// such a pair does. Holds that only touch do not overlap, and a hold that ends where it begins
/// overlaps nothing. A lease may be handed over at the very nanosecond at which it was released.
#[derive(Clone, Debug)]
pub struct Overlaps<H> {
    /// The hold that lasts longest so far.
    longest: Option<(H, Window)>,
    /// The exclusive hold that lasts longest so far.
    exclusive: Option<(H, Window)>,
}

impl<H> Default for Overlaps<H> {
    fn default() -> Self {
        Self { longest: None, exclusive: None }
    }
}

impl<H: Copy> Overlaps<H> {
    /// Takes the next hold. Returns the earlier hold that it overlaps and must not, and their
    /// common time.
    pub fn add(&mut self, hold: H, span: Window, shared: bool) -> Option<(H, Window)> {
        if span.is_empty() {
            return None;
        }
        let before = if shared { self.exclusive } else { self.longest };
        let lasts_longer =
            |one: Option<(H, Window)>| one.is_none_or(|(_, longest)| span.to > longest.to);
        if lasts_longer(self.longest) {
            self.longest = Some((hold, span));
        }
        if !shared && lasts_longer(self.exclusive) {
            self.exclusive = Some((hold, span));
        }
        before.and_then(|(before, longest)| Some((before, longest.meet(span)?)))
    }
}

/// Two leases that were believed at the same time.
pub(crate) struct Clash {
    /// The earlier lease, and the rival's.
    pub leases: [usize; 2],
    pub both: Window,
    pub finding: Violation,
}

pub(crate) fn check(case: &Case<'_>) -> Vec<Clash> {
    let mut by_resource: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for lease in &case.leases {
        by_resource.entry(lease.resource).or_default().extend(&lease.holds);
    }
    let shared = |hold: &Hold| case.leases[hold.lease].shared;
    let mut clashes = Vec::new();
    for holds in by_resource.values_mut() {
        for (first, second, both) in overlaps(holds, |hold| hold.inner, shared) {
            if !is_upgrade(case, first.lease, second.lease) {
                clashes.push(violated(case, first.lease, second.lease, both));
            }
        }
        for (first, second, both) in overlaps(holds, |hold| hold.outer, shared) {
            let is_certain = first.inner.meet(second.inner).is_some();
            if !is_certain && !is_upgrade(case, first.lease, second.lease) {
                clashes.push(doubtful(case, first.lease, second.lease, both));
            }
        }
    }
    clashes
}

/// Whether the second lease is an exclusive one that the holder of the first, a shared one, was
/// granted for it. A client is not in its own way.
fn is_upgrade(case: &Case<'_>, first: usize, second: usize) -> bool {
    let (first, second) = (&case.leases[first], &case.leases[second]);
    first.shared
        && first.token.is_some()
        && (first.client, first.token) == (second.client, second.token)
}

/// The causes of the overlaps of two clients within a span. [`overlaps`] pairs each hold with the
/// one that lasts longest. Where more than two clients overlap, it may therefore not pair these
/// two.
pub(crate) fn between(case: &Case<'_>, clients: [&str; 2], within: Window) -> Vec<Cause> {
    let of = |client: &str| {
        let own = case.leases.iter().enumerate().filter(move |(_, lease)| lease.client == client);
        own.flat_map(|(index, lease)| lease.holds.iter().map(move |hold| (index, hold.inner)))
            .collect::<Vec<_>>()
    };
    let (one, other) = (of(clients[0]), of(clients[1]));
    let mut causes = Vec::new();
    for (first, span) in &one {
        for (second, rival) in &other {
            let (one, other) = (&case.leases[*first], &case.leases[*second]);
            let must_not = one.resource == other.resource && !(one.shared && other.shared);
            let both = span.meet(*rival).filter(|both| must_not && both.touches(within));
            let Some(both) = both else { continue };
            let [owner, rival] =
                if span.from <= rival.from { [*first, *second] } else { [*second, *first] };
            causes.extend(violated(case, owner, rival, both).finding.causes);
        }
    }
    causes
}

/// Pairs each hold that overlaps an earlier one, and must not, with the earlier hold that lasts
/// longest.
pub(crate) fn overlaps(
    holds: &mut [Hold],
    span: impl Fn(&Hold) -> Window,
    shared: impl Fn(&Hold) -> bool,
) -> Vec<(Hold, Hold, Window)> {
    holds.sort_by_key(|hold| (span(hold).from, span(hold).to, hold.lease));
    let mut overlaps = Overlaps::default();
    let found = holds.iter().filter_map(|hold| {
        let (before, both) = overlaps.add(*hold, span(hold), shared(hold))?;
        (before.lease != hold.lease).then_some((before, *hold, both))
    });
    found.collect()
}

fn violated(case: &Case<'_>, first: usize, second: usize, both: Window) -> Clash {
    let (owner, rival) = (&case.leases[first], &case.leases[second]);
    let mut lines = beliefs(case, owner, rival, both.from);
    let (from, to) = (Ms(both.from), Ms(both.to));
    let alone = match (owner.shared, rival.shared) {
        (true, false) => format!(", and {} that it holds it alone", rival.client),
        (false, true) => format!(", and {} that it holds it alone", owner.client),
        _ => String::new(),
    };
    let resource = owner.resource;
    lines.push(format!("both believed that they hold {resource} from {from} to {to}{alone}"));
    let reasons = why(case, owner, rival, both);
    let finding =
        Violation::explained(Property::MutualExclusion, lines, reasons, both.from, both.to);
    Clash { leases: [first, second], both, finding }
}

fn doubtful(case: &Case<'_>, first: usize, second: usize, both: Window) -> Clash {
    let mut lines = beliefs(case, &case.leases[first], &case.leases[second], both.from);
    let (from, to) = (Ms(both.from), Ms(both.to));
    lines.push(format!(
        "both may have counted on it from {from} to {to}: they do not say exactly from when to when"
    ));
    let finding = Violation::possible(Property::MutualExclusion, lines, both.from, both.to);
    Clash { leases: [first, second], both, finding }
}

/// The report text: which client believed what, from when to when, which masters granted it, and
/// which have no key of the owner at an instant.
fn beliefs(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, by: Ns) -> Vec<String> {
    let granted = |lease: &Lease<'_>| match &lease.masters(&case.keys)[..] {
        [] => format!("it is not known which masters granted {}", lease.client),
        nodes => format!("{} was granted by {}", lease.client, numbered(nodes)),
    };
    let margin = match owner.masters(&case.keys).len() {
        0 => String::new(),
        _ => format!(" (margin {})", case.margin(owner.process, &owner.masters(&case.keys))),
    };
    let mut lines = vec![believed(owner), believed(rival), granted(owner) + &margin];
    lines.extend(absent(case, owner, rival, by));
    lines.push(granted(rival));
    lines
}

/// `c1 believed that it holds L from 12.3 ms to 1978.3 ms (deadline), token 3f2a…`, or that it
/// shares L.
pub fn believed(lease: &Lease<'_>) -> String {
    let span = lease.span();
    let ending = match lease.ending {
        Ending::Lost => "notified of the loss",
        Ending::Replaced => "granted anew",
        ending => ending.name(),
    };
    format!(
        "{} believed that it {} {} from {} to {} ({ending}){}",
        lease.client,
        if lease.shared { "shares" } else { "holds" },
        lease.resource,
        Ms(span.from),
        Ms(span.to),
        token(lease)
    )
}

/// Why both believed: the cause and a line for each master that let one of them in although the key
/// of the other should have been there.
fn why(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, both: Window) -> Vec<Reason> {
    let both_of = [owner, rival].into_iter();
    let mut found: Vec<Reason> = both_of.filter_map(|lease| too_few(case, lease)).collect();
    if owner.token == rival.token && owner.token.is_some() {
        let text = format!("{} and {} have the same token", owner.client, rival.client);
        found.push((Cause::Bug, text));
    }
    let (reasons, free) = let_in(case, owner, rival, both);
    found.extend(reasons);
    found.extend(apart(case, owner, rival, free));
    if found.is_empty() {
        // The rival may have set its keys first, and have learnt of its grant last.
        found.extend(let_in(case, rival, owner, both).0);
    }
    if found.is_empty() {
        found.push((Cause::Unknown, "no master is known to have let both in".to_owned()));
    }
    found
}

/// Why masters that granted the rival no longer had the owner's key, and how many masters granted
/// the rival without breaking a promise to the owner.
fn let_in(
    case: &Case<'_>,
    owner: &Lease<'_>,
    rival: &Lease<'_>,
    both: Window,
) -> (Vec<Reason>, usize) {
    let mut found: Vec<Reason> = Vec::new();
    // For each master, the key that let the rival in last: keys come in the order in which they
    // were set. A key that was set later did not let it in.
    let own = rival.keys(&case.keys).filter(|key| key.sure && key.made.to <= both.to);
    let let_in: BTreeMap<usize, &Presence<'_>> = own.map(|key| (key.node, key)).collect();
    let mut free: usize = 0;
    for let_in in let_in.into_values().filter(|key| owner.token != Some(key.token)) {
        // The owner's key that was there before. Only a key that was certainly set counts.
        let before = owner
            .keys(&case.keys)
            .filter(|key| key.sure && key.node == let_in.node)
            .filter(|key| key.made.from < let_in.made.from)
            .max_by_key(|key| key.made.from);
        let loss = before.and_then(|key| cause_of_loss(case, owner, key, let_in.made.to));
        let Some((cause, text)) = loss else {
            free += 1;
            continue;
        };
        let (node, at) = (let_in.node, Ms(let_in.made.from));
        found.push((cause, format!("master {node} let {} in at {at}: {text}", rival.client)));
    }
    (found, free)
}

/// Whether both clients had quorums because they know different masters. Then no master had to
/// forget for the rival to get in.
fn apart(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, free: usize) -> Option<Reason> {
    let (own, others) = (case.world.lock_of(owner.process), case.world.lock_of(rival.process));
    if free < others.q || !own.can_part_from(others) {
        return None;
    }
    let line = format!(
        "{} knows {} and {} knows {}: their quorums of {} and {} need not meet",
        owner.client,
        numbered(&own.masters),
        rival.client,
        numbered(&others.masters),
        own.q,
        others.q
    );
    Some((Cause::NodeLists, line))
}

/// The report text: which of its masters have no key of a lease at an instant, and why, and how
/// many of the others a rival needs. Empty where the keys cannot be interpreted. A rival does not
/// need a fault on the masters without a key, so a report that names only the last fault is
/// incomplete.
fn absent(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, by: Ns) -> Vec<String> {
    if owner.token.is_none() || owner.token == rival.token {
        return Vec::new();
    }
    let lock = case.world.lock_of(owner.process);
    let keys = || owner.keys(&case.keys).filter(|key| key.made.from <= by);
    let has = |node: &usize| keys().any(|key| key.node == *node);
    let (there, absent): (Vec<usize>, Vec<usize>) = lock.masters.iter().partition(|node| has(node));
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for node in absent {
        let reason = reason_of_absence(case, owner, node);
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((reason, vec![node])),
        }
    }
    let line = |(reason, nodes): (String, Vec<usize>)| {
        let have = if nodes.len() == 1 { "has" } else { "have" };
        format!("{} {have} no key of {}: {reason}", numbered(&nodes), owner.client)
    };
    let all_certain = keys().all(|key| key.sure);
    let enough = all_certain.then(|| enough(case, owner, rival, &there)).flatten();
    groups.into_iter().map(line).chain(enough).collect()
}

/// How many of the masters with a key of the owner must lose it before the rival can get a quorum.
/// None if the clients know different masters, or if the owner has no quorum.
fn enough(
    case: &Case<'_>,
    owner: &Lease<'_>,
    rival: &Lease<'_>,
    there: &[usize],
) -> Option<String> {
    let (own, other) = (case.world.lock_of(owner.process), case.world.lock_of(rival.process));
    if !own.is_as(other) {
        return None;
    }
    let margin = usize::try_from(case.margin(owner.process, there)).ok()?;
    if margin == 0 || !own.is_quorum(there) {
        return None;
    }
    let (owner, rival, there_are) = (owner.client, rival.client, numbered(there));
    let free = match own.n.saturating_sub(there.len()) {
        0 => "all have a".to_owned(),
        1 => "1 has no".to_owned(),
        free => format!("{free} have no"),
    };
    let lose = if margin == 1 { "loses its key" } else { "lose their keys" };
    Some(format!(
        "{rival} needs {} of {} masters, and {free} key of {owner}: if {margin} of {there_are} \
         {lose}, {rival} can get a quorum",
        own.q, own.n
    ))
}

/// Why a master has no key of a lease.
fn reason_of_absence(case: &Case<'_>, lease: &Lease<'_>, node: usize) -> String {
    let owner = lease.client;
    // The attempt that won sent nothing before its first key was set.
    let first = lease.votes(&case.keys).map(|key| key.made.from).min();
    let during = Window::new(first.unwrap_or(lease.asked), lease.reply.ns);
    match reply(case, lease, node) {
        Some(Outcome::Refused) if lease.shared => {
            return "another key was there, or a waiter for one".to_owned();
        }
        Some(Outcome::Refused) => return "another key was there".to_owned(),
        Some(Outcome::Error) => return "the reply was an error".to_owned(),
        _ => {}
    }
    let Some(fault) = case.faults.that_keep_from(lease.process, node, during).next() else {
        return format!("no request of {owner} arrived before the grant");
    };
    // A fault may hit other messages than acquires.
    let all = |which: &Messages| {
        let acquires = matches!(which.command, Class::Any | Class::Acquire);
        acquires && which.index.is_none() && which.count.is_none()
    };
    let what = match &fault.fault.kind {
        FaultKind::Net(NetworkFault::Drop(which)) if all(which) => {
            format!("the network dropped {owner}'s requests")
        }
        FaultKind::Net(NetworkFault::Hold(which)) if all(which) => {
            format!("the network held {owner}'s requests back")
        }
        FaultKind::Net(NetworkFault::Cut(_)) => format!("{owner} was cut off"),
        _ => format!("no request of {owner} arrived"),
    };
    format!("{what} ({})", fault.name())
}

/// The reply of a master to the command that would have set the key of a lease.
fn reply(case: &Case<'_>, lease: &Lease<'_>, node: usize) -> Option<Outcome> {
    let records = case.world.records;
    let begin = records.partition_point(|record| record.ns < lease.asked);
    let by = lease.reply.ns.saturating_add(RECORDED);
    let soon = records[begin..].iter().take_while(|record| record.ns <= by);
    let result = |record: &Record| match &record.event {
        Event::Command { node: at, act, result, .. } => {
            let sets = matches!(act, Act::Set { .. } | Act::Keep { .. });
            (sets && *at == node && act.token() == lease.token).then_some(*result)
        }
        _ => None,
    };
    soon.filter_map(result).next()
}

/// How long before its loss notice an owner may have begun to clean up.
const CLEANS_UP: Ns = 250 * MS;

/// A cause, and its explanation in a report: half a sentence.
pub(crate) type Reason = (Cause, String);

/// Why the key of a lease was gone from a master by an instant; none: its owner did not count on it
/// by then.
pub(crate) fn cause_of_loss(
    case: &Case<'_>,
    lease: &Lease<'_>,
    key: &Presence<'_>,
    by: Ns,
) -> Option<Reason> {
    let owner = lease.client;
    let deleted = key.deleted.filter(|deleted| deleted.when.from <= by);
    let deletion = |deleted: Deleted<'_>, did| {
        let at = Ms(deleted.when.from);
        (Cause::Bug, format!("{} {did} the key of {owner} there at {at}", deleted.process))
    };
    if let Some(deleted) = deleted.filter(|deleted| deleted.sure) {
        return Some(deletion(deleted, "deleted"));
    }
    if let Some(loss) = key.life.lost.filter(|loss| loss.at.from <= by) {
        let name = case.faults.name(loss.fault);
        let text = format!("it lost its keys at {} ({name})", Ms(loss.at.from));
        return Some((loss.cause, text));
    }
    let Some(ttl) = key.life.ttl else { return Some(unclear(owner)) };
    // In true time, counted from the latest moment at which a client can have read its clock.
    let natural = key.life.set.from.saturating_add(ttl);
    if natural <= by {
        // An extension needs only a quorum: on the other masters the key may expire in its time.
        if supported(case, lease) {
            return None;
        }
        if let Some(why) = stale(case, lease).or_else(|| by_own_clock(case, lease, key, ttl, by)) {
            return Some(why);
        }
        // On the masters that did extend, the owner's slow clock is the reason.
        let slow = |key: &Presence<'_>| {
            let own = |ttl| by_own_clock(case, lease, key, ttl, by);
            key.life.ttl.and_then(own).is_some()
        };
        if has_quorum(case, lease, slow) {
            return None;
        }
        let latest = key.life.set.to.saturating_add(ttl);
        let excess = Ms(lease.span().to.saturating_sub(latest).max(0));
        let text = format!(
            "{owner} counts on its lease for longer than the master keeps the key: {excess} after \
             the key's latest end at {}",
            Ms(latest)
        );
        return Some((Cause::Bug, text));
    }
    if key.life.expires.from <= by {
        let own = by_own_clock(case, lease, key, ttl, by);
        let why = own.unwrap_or_else(|| by_clock(case, lease, key, ttl, by));
        // A key that no extension reached ends in its time if the clock is only as fast as the
        // allowance permits.
        let in_time = why.0 == Cause::Bug && natural < lease.span().to && supported(case, lease);
        return (!in_time).then_some(why);
    }
    let tried = deleted.map(|deleted| deletion(deleted, "tried to delete"));
    Some(tried.unwrap_or_else(|| unclear(owner)))
}

/// Whether the owner's clock was slow, and by that clock its lease ended before the key could.
fn by_own_clock(
    case: &Case<'_>,
    lease: &Lease<'_>,
    key: &Presence<'_>,
    ttl: Ns,
    by: Ns,
) -> Option<Reason> {
    let (from, until) = (key.life.set.from, lease.span().to);
    let lost = case.paces.lost(lease.process, from, until);
    let allowed = case.world.deducted_from(ttl);
    let believed = until.saturating_sub(from).saturating_sub(lost);
    // A millisecond is the masters' resolution.
    let in_time = believed.saturating_add(allowed) <= ttl.saturating_add(MS);
    // If the master's clock gained more, that is the cause instead, unless the key's whole TTL had
    // passed anyway.
    let gain = case.clocks.gain(key.node, from, by).filter(|_| by < from.saturating_add(ttl));
    let gained = gain.map_or(0, |gain| gain.all);
    if lost <= gained.max(0) || !in_time || lost.saturating_add(gained).saturating_add(MS) < allowed
    {
        return None;
    }
    let owner = lease.client;
    let (strike, rate) = case.faults.lease_clock(lease.process, until)?;
    let (since, name, lost) = (Ms(strike.at.from), strike.name(), Ms(lost));
    let text = format!(
        "{owner}'s clock runs at {rate} times the rate since {since} ({name}), and so {owner} \
         counts on its lease for {lost} longer"
    );
    Some((Cause::ClientRate, text))
}

/// Whether a client received a length instead of a deadline, and was paused before it received it.
fn stale(case: &Case<'_>, lease: &Lease<'_>) -> Option<Reason> {
    if lease.reply.deadline_ns.is_some() {
        return None;
    }
    let at = lease.reply.returned();
    let pause = case.paused_before_stamp(&case.requests[lease.request], at)?;
    let text = format!(
        "{} got the length of its lease, not its deadline, and was paused before it read the \
         answer ({})",
        lease.client,
        pause.name()
    );
    Some((Cause::ClientPause, text))
}

/// Whether a quorum received the request to keep a lease's key until its owner stopped counting on
/// it.
fn supported(case: &Case<'_>, lease: &Lease<'_>) -> bool {
    let until = lease.span().to;
    has_quorum(case, lease, |key| {
        key.life.ttl.is_none_or(|ttl| key.life.set.from.saturating_add(ttl) >= until)
    })
}

/// Whether a quorum of masters certainly had a key of a lease with some property.
fn has_quorum(case: &Case<'_>, lease: &Lease<'_>, has: impl Fn(&Presence<'_>) -> bool) -> bool {
    let found = lease.keys(&case.keys).filter(|key| key.sure && has(key));
    let nodes: Vec<usize> = found.map(|key| key.node).collect();
    case.world.lock_of(lease.process).is_quorum(&nodes)
}

fn unclear(owner: &str) -> Reason {
    let text = format!("nothing on record says why {owner}'s key was gone");
    (Cause::Unknown, text)
}

/// The explanation by the master's clock: it was ahead of true time, as seen from when the key got
/// its TTL.
fn by_clock(case: &Case<'_>, lease: &Lease<'_>, key: &Presence<'_>, ttl: Ns, by: Ns) -> Reason {
    let owner = lease.client;
    let set = key.life.set;
    let Some(gain) = case.clocks.gain(key.node, set.from, by) else { return unclear(owner) };
    let allowed = case.world.deducted_from(ttl);
    // The owner's clock may have lost as much as the master's clock gained.
    let lost = case.paces.lost(lease.process, set.from, lease.span().to).max(0);
    // A millisecond is the masters' resolution.
    if gain.all.saturating_add(lost).saturating_add(MS) < allowed {
        let (gained, allowed) = (Ms(gain.all), Ms(allowed));
        let text = format!(
            "its clock gained no more than {gained}, which the allowance of {allowed} covers"
        );
        return (Cause::Bug, text);
    }
    let early = set.to.saturating_add(ttl).saturating_sub(by);
    let mut faults = case.faults.clock(key.node);
    let struck = |at: Window| at.from <= gain.since.to && gain.since.from <= at.to;
    let name = faults
        .find(|fault| struck(fault.at) || fault.healed.is_some_and(struck))
        .map_or_else(|| gain.cause.to_string(), |fault| fault.name());
    let since = Ms(gain.since.from);
    let what = match gain.cause {
        Cause::ClockStep => format!("its clock was set {} forward at {since}", Ms(gain.by)),
        Cause::ClockRate => format!("its clock runs at {} times the rate since {since}", gain.rate),
        Cause::ClockStrobe => format!("its clock jumps by {} since {since}", Ms(gain.by)),
        _ => return unclear(owner),
    };
    let early = Ms(early.max(0));
    let text = format!("{what} ({name}), and {owner}'s key was gone {early} before its time");
    (gain.cause, text)
}

/// Why a lease without a rival was no longer true. Unlike [`of_loss`], it ignores a key that the
/// owner itself deleted while it gave the lease up, even if its loss notice came a little later.
pub(crate) fn cause_of_hollow(
    case: &Case<'_>,
    lease: &Lease<'_>,
    key: &Presence<'_>,
    by: Ns,
) -> Option<Reason> {
    if let (Ending::Lost, Some(lost), Some(deleted)) = (lease.ending, lease.lost, key.deleted) {
        let about_then = deleted.when.from >= lost.saturating_sub(CLEANS_UP);
        if about_then && deleted.process == lease.process {
            return None;
        }
    }
    cause_of_loss(case, lease, key, by)
}

/// Whether a client counted on a lease that too few masters ever granted, and how many did.
pub(crate) fn too_few(case: &Case<'_>, lease: &Lease<'_>) -> Option<Reason> {
    lease.token?;
    let granted = lease.grants(&case.keys, false);
    let lock = case.world.lock_of(lease.process);
    (!lock.is_quorum(&granted)).then(|| {
        let text = format!(
            "{} believed without a quorum: {} of {} masters granted, and it takes {}",
            lease.client,
            granted.len(),
            lock.n,
            lock.q
        );
        (Cause::Bug, text)
    })
}

/// `token 3f2a…`.
pub(crate) fn token(lease: &Lease<'_>) -> String {
    lease.token.map(|token| format!(", token {}", time::short(token))).unwrap_or_default()
}
