//! Why was a key gone before its owner stopped counting on it? If a fault outside the lock's
//! assumptions explains it, the failure is by design, and the report names the fault. Otherwise it
//! is a bug.

use redquorum_scenario::Cause;
use redquorum_scenario::history::{Ns, Window};

use super::Case;
use super::keys::{Deleted, Presence};
use super::leases::{Ending, Lease};
use super::maps::count;
use super::time::{self, MS, Ms};

/// How long before its loss notice an owner may have begun to clean up.
const CLEANS_UP: Ns = 250 * MS;

/// A cause, and its explanation in a report: half a sentence.
pub(crate) type Reason = (Cause, String);

/// Why the key of a lease was gone from a master by an instant; none: its owner did not count on it
/// by then.
pub(crate) fn of_loss(
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
    count(found.map(|key| key.node)) >= case.world.lock_of(lease.process).q
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
pub(crate) fn of_hollow(
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
    of_loss(case, lease, key, by)
}

/// Whether a client counted on a lease that too few masters ever granted, and how many did.
pub(crate) fn too_few(case: &Case<'_>, lease: &Lease<'_>) -> Option<Reason> {
    lease.token?;
    let granted = lease.grants(&case.keys, false);
    let lock = case.world.lock_of(lease.process);
    (granted < lock.q).then(|| {
        let text = format!(
            "{} believed without a quorum: {granted} of {} masters granted, and it takes {}",
            lease.client, lock.n, lock.q
        );
        (Cause::Bug, text)
    })
}

/// `token 3f2a…`.
pub(crate) fn token(lease: &Lease<'_>) -> String {
    lease.token.map(|token| format!(", token {}", time::short(token))).unwrap_or_default()
}
