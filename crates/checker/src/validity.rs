//! Validity: is a lease handed out in time and by a quorum, is it true for as long as it promises,
//! and is its owner notified of its end? A vote that arrives after the lock reported success does
//! not count, nor does a reply that the lock mistook for a vote, even if all went well. And two
//! attempts must never use the same token.

use std::collections::HashSet;

use redquorum_scenario::client_protocol::{Capability, FailureReason};
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Phase, Window};
use redquorum_scenario::{Cause, LeaseEffect, Property};

use super::case::Request;
use super::exclusion::believed;
use super::keys::Presence;
use super::leases::{Ending, Extension, Lease};
use super::maps::{Numbers, sorted};
use super::time::{self, MS, Ms, SKEW, short};
use super::{Case, Observed, Violation, exclusion, keys};

/// A lease that is untrue for no longer than this shows the effect of clocks and schedulers, not of
/// locks.
const SHORT: Ns = MS;
/// The owner must be notified of the end within this time after the deadline.
const NOTIFIED_WITHIN: Ns = 250 * MS;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut findings: Vec<Violation> =
        case.requests.iter().filter_map(|request| late(case, request)).collect();
    findings.extend(case.requests.iter().filter_map(|request| too_long(case, request)));
    for lease in &case.leases {
        findings.extend(late_by_the_masters(case, lease));
        findings.extend(untrue(case, lease));
        findings.extend(over_a_gap(case, lease));
        findings.extend(not_notified(case, lease));
    }
    let mut unknown = HashSet::new();
    for lease in &case.leases {
        findings.extend(without_quorum(case, lease));
        // Once for each process: it acquires its other leases by the same commands.
        let asked = never_asked(case, lease);
        let is_news =
            |found: &Violation| found.seen == Observed::Violated || unknown.insert(lease.process);
        findings.extend(asked.filter(is_news));
        for extension in &lease.extensions {
            findings.extend(extended_without_quorum(case, lease, extension));
            findings.extend(revived(case, lease, extension));
        }
    }
    findings.extend(same_token(case));
    findings
}

/// A violation by a lock that believed in a lease, and the report text.
fn bug(lease: &Lease<'_>, text: String, from: Ns, to: Ns) -> Violation {
    Violation::bug(Property::Validity, vec![believed(lease), text], from, to)
}

/// A lease that was handed out or extended at its deadline or later.
fn late(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| reply.ok)?;
    if !request.is_acquire() && !request.is_extend() {
        return None;
    }
    let at = reply.returned();
    let late = match (reply.deadline_ns, reply.valid_ms) {
        // Without a stamp: when the client received the last reply that it needed.
        (Some(deadline), _) => reply.at_ns.or_else(|| case.learnt(request, reply.ns))? >= deadline,
        (None, valid) => valid == Some(0),
    };
    if !late {
        return None;
    }
    // A client that is stopped between its last reading of the clock and its stamp cannot know.
    if case.paused_before_stamp(request, at).is_some() {
        return None;
    }
    Some(nothing_left(request, at, reply.deadline_ns.unwrap_or(at)))
}

fn nothing_left(request: &Request<'_>, at: Ns, deadline: Ns) -> Violation {
    let lines = vec![format!(
        "{} was given {} at {}, until {}: nothing was left of it",
        request.client,
        request.resource.unwrap_or("its lease"),
        Ms(at),
        Ms(deadline)
    )];
    Violation::bug(Property::Validity, lines, deadline.min(at), at)
}

/// A lease without a deadline that was handed out when its keys had to be over.
fn late_by_the_masters(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    let request = &case.requests[lease.request];
    let reply = lease.reply;
    if reply.deadline_ns.is_some() || reply.valid_ms.is_some() {
        return None;
    }
    let (at, deadline) = (reply.returned(), lease.first_deadline().to);
    (at >= deadline && case.paused_before_stamp(request, at).is_none())
        .then(|| nothing_left(request, at, deadline))
}

/// A lease that promises more than its TTL from the grant on. No master keeps a key for longer, so
/// the promise is wrong even if its client releases the lease at once.
fn too_long(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| reply.ok)?;
    // A handle of a lease has the deadline of that lease, whatever TTL its request names.
    let promises = request.is_acquire() || request.is_extend();
    if !promises || request.op.is_again() {
        return None;
    }
    // A clock that a fault made slow shows too little, and the run is longer than it shows.
    if case.paces.is_changed(request.process) {
        return None;
    }
    // An extension to an earlier deadline than the one before may leave that one as it is.
    let usual = time::of(case.world.scenario.lock.ttl.0);
    let asked_for = request.op.ttl_ms().map(time::of_ms);
    let mut ttl = asked_for.unwrap_or(usual);
    if request.is_extend() {
        ttl = ttl.max(case.longest_ttl(request));
    }
    let promised = match (reply.deadline_ns, reply.valid_ms) {
        // The attempt that was granted began at the grant at the latest.
        (Some(deadline), _) => deadline.saturating_sub(reply.returned()),
        (None, valid) => time::of_ms(valid?),
    };
    (promised > ttl.saturating_add(SKEW)).then(|| {
        let at = reply.returned();
        let lines = vec![format!(
            "{} was promised {} for {} at {}: no master keeps its key for longer than the TTL of {}",
            request.client,
            request.resource.unwrap_or("its lease"),
            Ms(promised),
            Ms(at),
            Ms(ttl)
        )];
        Violation::bug(Property::Validity, lines, at, at)
    })
}

/// A lease that was believed when it was no longer true, though no fault outside the assumptions
/// took it away.
fn untrue(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if let Some((_, text)) = exclusion::too_few(case, lease) {
        return Some(bug(lease, text, lease.span().from, lease.span().to));
    }
    let hollow = case.hollow(lease);
    let all = hollow.iter().map(|span| span.length()).fold(0, Ns::saturating_add);
    let (first, last) = (*hollow.first()?, *hollow.last()?);
    if all <= SHORT {
        return None;
    }
    let mut lines = vec![
        believed(lease),
        format!(
            "it was not true from {} on: fewer than {} masters",
            Ms(first.from),
            case.world.lock_of(lease.process).q
        ),
    ];
    let mut found = false;
    for key in lease.keys(&case.keys).filter(|key| key.sure) {
        if key.possible.to > last.from {
            continue;
        }
        let loss = exclusion::cause_of_hollow(case, lease, key, key.possible.to);
        if let Some((Cause::Bug, text)) = loss {
            found = true;
            lines.push(format!("master {}: {text}", key.node));
        }
    }
    found.then(|| Violation::bug(Property::Validity, lines, first.from, last.to))
}

/// A lease that was extended although a quorum of masters had lacked its key at one time, so that a
/// rival may have held the resource. The replies to its own client showed that.
fn over_a_gap(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    let keys: Vec<&Presence<'_>> = lease.keys(&case.keys).collect();
    let lock = case.world.lock_of(lease.process);
    let kept = lease.token.map(|token| case.keys.kept(lease.process, token, lease.asked));
    let kept = kept.unwrap_or_default();
    // The reply of a script that extends a key or sets it may be the same for both.
    let looks_kept = |key: &Presence<'_>| {
        let mut same = kept.iter().filter(|kept| kept.node == key.node && kept.was_there);
        same.any(|kept| key.made.contains(kept.sent))
    };
    lease.extensions.iter().find_map(|extension| {
        let at_client = extension.at?;
        let begun = extension.request.map_or(at_client, |request| case.requests[request].asked);
        // The client may not have read a reply yet that arrived just before.
        let by = begun.saturating_sub(case.world.node_timeout / 2);
        let lacked = |node: usize, at: Ns| {
            let own = || keys.iter().filter(move |key| key.node == node);
            let before = own().rfind(|key| key.possible.from <= at).map(|key| &key.life);
            let there = own().any(|key| key.possible.from <= at && at < key.possible.to);
            let known = match before {
                // A key that was created anew is known to have been gone. The new key must come
                // before the old one would have expired by itself.
                Some(life) => own().any(|key| {
                    let anew = at <= key.made.from && key.made.to < life.expires.from;
                    let told = key.delivered.is_some_and(|delivered| delivered <= by);
                    anew && told && !looks_kept(key)
                }),
                // The client does not know whether a late key of its attempt came before or after
                // another master lost its key.
                None => !own().any(|key| key.granted),
            };
            !there && known
        };
        let ends = keys.iter().map(|key| key.possible.to);
        let at = ends.filter(|at| lease.start.to < *at && *at < by).find(|at| {
            let lacking = lock.masters.iter().copied().filter(|node| lacked(*node, *at));
            lock.may_have_rival(&lacking.collect::<Vec<_>>())
        })?;
        let text = format!(
            "at {} a quorum of masters lacked its key, so that another may have held it; its \
             client had replies that show it, and extended the lease at {}",
            Ms(at),
            Ms(at_client)
        );
        Some(bug(lease, text, at, at_client))
    })
}

/// A lease that ended at its deadline without a timely notice to its owner.
fn not_notified(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if !case.world.promises(lease.process, Capability::Lost) || lease.ending == Ending::Death {
        return None;
    }
    let deadline = lease.deadline.to;
    let mut by = may_last(case, lease, deadline).saturating_add(NOTIFIED_WITHIN);
    // A paused process receives nothing.
    for pause in case.faults.pauses(lease.process) {
        let span = pause.span();
        if span.touches(Window::new(deadline, by)) {
            by = by.max(span.to.saturating_add(NOTIFIED_WITHIN));
        }
    }
    if lease.lost.is_some_and(|at| at <= by) {
        return None;
    }
    // After that, its clients may be gone.
    let over = case.world.until(Phase::Drain);
    let gone = over.min(case.released(lease)).min(case.died(lease.process));
    if by >= gone || case.replaced(lease) <= deadline {
        return None;
    }
    let text = match lease.lost.map(|at| (Ms(at), Ms(at.saturating_sub(deadline)))) {
        Some((at, late)) => {
            format!("it was notified of its loss only at {at}, {late} after the deadline")
        }
        None => format!("it was never notified of its loss, at least not by {}", Ms(over)),
    };
    Some(bug(lease, text, deadline, lease.lost.unwrap_or(by)))
}

/// Until when a lease may last that has this deadline as far as its client knows. An extension
/// under way at the deadline, or a re-entry, may have moved it, by at most a TTL from the call: its
/// caller may not look at the result.
fn may_last(case: &Case<'_>, lease: &Lease<'_>, deadline: Ns) -> Ns {
    let requests = case.requests[lease.request..].iter();
    let under_way = requests.filter(|request| {
        (request.is_extend() || request.op.is_again())
            && (request.client, request.resource) == (lease.client, Some(lease.resource))
            && request.asked <= deadline
            && deadline < request.replied()
    });
    let usual = time::of(case.world.scenario.lock.ttl.0);
    let moved = under_way.map(|request| {
        let ttl = request.op.ttl_ms().map_or(usual, time::of_ms);
        request.asked.saturating_add(ttl).min(request.replied())
    });
    moved.max().map_or(deadline, |moved| moved.max(deadline))
}

/// A lease that was handed out before a quorum had granted it.
fn without_quorum(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    lease.token?;
    // `untrue` reports this case already.
    if exclusion::too_few(case, lease).is_some() {
        return None;
    }
    let at = lease.reply.returned();
    let by = at.saturating_add(SKEW);
    let in_time = |delivered: Option<Ns>| delivered.is_some_and(|delivered| delivered <= by);
    let votes = lease.votes(&case.keys).filter(|key| in_time(key.delivered));
    let yes = sorted(votes.map(|key| key.node));
    let lock = case.world.lock_of(lease.process);
    (!lock.is_quorum(&yes)).then(|| {
        let text = format!(
            "it was handed out when {} of {} masters had granted it, and it takes {}",
            yes.len(),
            lock.n,
            lock.q
        );
        bug(lease, text, lease.asked, at)
    })
}

/// A lease without a known token. If between the call and the grant no command of its process
/// reached a quorum of masters, no quorum can have granted it, whatever its commands mean. If they
/// did, the record does not show whether a quorum granted it.
fn never_asked(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if lease.token.is_some() {
        return None;
    }
    let at = lease.reply.returned();
    let within = Window::new(lease.called().saturating_sub(SKEW), at.saturating_add(SKEW));
    let lock = case.world.lock_of(lease.process);
    let asked = case.world.records.iter().filter_map(|record| match &record.event {
        Event::Command { process, node, act, sent, delivered, .. } => {
            let may_be_of = |key| case.world.resource(key).is_none_or(|it| it == lease.resource);
            let is_vote = **process == *lease.process
                && keys::may_lock(act)
                && act.key().is_none_or(may_be_of)
                && within.contains(*sent)
                && delivered.is_some_and(|delivered| delivered <= within.to);
            is_vote.then_some(*node)
        }
        _ => None,
    });
    let asked = sorted(asked);
    if lock.is_quorum(&asked) {
        let text = format!(
            "the harness does not understand the commands by which {} acquired it, and cannot tell \
             whether a quorum of masters granted it",
            lease.process
        );
        let lines = vec![believed(lease), text];
        return Some(Violation::possible(Property::Validity, lines, lease.asked, at));
    }
    let text = format!(
        "it was handed out although only {} of {} masters had replied to a command of {} \
         since its call, and it takes {}",
        asked.len(),
        lock.n,
        lease.process,
        lock.q
    );
    Some(bug(lease, text, lease.asked, at))
}

/// A lease that was extended before a quorum had replied that it still has the key.
fn extended_without_quorum(
    case: &Case<'_>,
    lease: &Lease<'_>,
    extension: &Extension,
) -> Option<Violation> {
    let (begun, at, recorded) = match (extension.request, extension.noticed) {
        (Some(request), _) => {
            let request = &case.requests[request];
            let reply = request.reply?;
            (begun(case, lease, request), reply.returned(), reply.ns)
        }
        // A deadline that moves nearer needs no vote.
        (None, Some(noticed)) if extension.deadline.to > extension.before.to => {
            let all = lease.extensions.iter().filter_map(|other| other.noticed.or(other.at));
            let earlier = all.filter(|earlier| *earlier < noticed).max();
            (earlier.unwrap_or(lease.start.to), noticed, noticed)
        }
        (None, _) => return None,
    };
    if case.keys.is_opaque(lease.process, lease.resource, Window::new(begun, recorded)) {
        return None;
    }
    let kept = case.keys.kept(lease.process, lease.token?, begun);
    let by = at.saturating_add(SKEW);
    let yes = kept.iter().filter(|kept| kept.was_there && kept.delivered <= by);
    let yes = sorted(yes.map(|kept| kept.node));
    let lock = case.world.lock_of(lease.process);
    (!lock.is_quorum(&yes)).then(|| {
        let text = format!(
            "it was extended at {} when {} of {} masters had replied that they still have the \
             key, and it takes {}",
            Ms(at),
            yes.len(),
            lock.n,
            lock.q
        );
        bug(lease, text, begun, at)
    })
}

/// When the round began that extended a lease for a request. A re-entry may return the deadline of
/// a round that another request began and that was not reported before: the watchdog's, or that of
/// a request that its client gave up.
fn begun(case: &Case<'_>, lease: &Lease<'_>, request: &Request<'_>) -> Ns {
    let reported = lease.extensions.iter().filter_map(|extension| extension.at);
    let reported = reported.filter(|at| *at < request.asked).max().unwrap_or(lease.start.to);
    let before = case.requests.iter().filter(|other| {
        request.op.is_again()
            && (other.client, other.resource) == (request.client, request.resource)
            && (lease.start.to..request.asked).contains(&other.asked)
    });
    let rounds = before.filter_map(|other| match other.reply.and_then(|reply| reply.why) {
        _ if other.op.effect() == LeaseEffect::Keeps => Some(reported),
        Some(FailureReason::Cancelled) => Some(other.asked).filter(|asked| *asked >= reported),
        _ => None,
    });
    rounds.min().unwrap_or(request.asked)
}

/// A lease that was extended after its end. A lost lease stays lost.
fn revived(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Violation> {
    let request = &case.requests[extension.request?];
    let reply = request.reply?;
    let called = reply.from_ns.unwrap_or(request.asked).saturating_sub(SKEW);
    let lost = lease.lost.unwrap_or(Ns::MAX);
    let over = extension.before.to.min(lost);
    (called > over).then(|| {
        let gap = Window::new(over, reply.returned());
        let is_whole = |there: &Window| there.from <= gap.from && gap.to <= there.to;
        let why = if case.surely_supported(lease).iter().any(is_whole) {
            "its keys were still there, but a lease that is over stays over"
        } else {
            "another client may have held it meanwhile"
        };
        let text = format!(
            "{} asked at {} to extend it, when it was over since {}, and the extension succeeded: \
             {why}",
            lease.client,
            Ms(called),
            Ms(over)
        );
        bug(lease, text, over, reply.returned())
    })
}

/// The first command that set a token on a key of a master: the master, the key, when it was sent,
/// its connection and its position there.
type FirstSet<'a> = (usize, &'a str, Ns, (u64, u64));

/// Two attempts with the same token. The token proves the ownership of one attempt: a late clean-up
/// of the first attempt deletes the key of the second. Many locks keep one token for their life, so
/// this is a bug only where such a clean-up is on its way, or where a lock promises that its tokens
/// are fresh.
fn same_token(case: &Case<'_>) -> Vec<Violation> {
    let mut numbers = Numbers::default();
    let mut first: Vec<Vec<FirstSet<'_>>> = Vec::new();
    let mut reported = HashSet::new();
    let mut findings = Vec::new();
    for record in case.world.records {
        let Event::Command { process, node, connection, number, act, sent, result, .. } =
            &record.event
        else {
            continue;
        };
        let Act::Set { key, token, .. } = act else { continue };
        // A master that answers with an error has set nothing: `NOSCRIPT`, for example, after which
        // the client sends the text of the script.
        if *result == Outcome::Error {
            continue;
        }
        // If the network duplicates a command, both copies have the same position.
        let place = (*connection, *number);
        let number = numbers.of(token);
        first.resize_with(numbers.count(), Vec::new);
        let mut sets = first[number].iter();
        let Some((.., at, earlier)) = sets.find(|(on, of, ..)| on == node && *of == &**key) else {
            first[number].push((*node, key, *sent, place));
            continue;
        };
        if *earlier == place || reported.contains(&(key, token)) {
            continue;
        }
        let (one, other) = (*at.min(sent), *at.max(sent));
        let between = Window::new(one, other);
        let why = match case.keys.late_delete(token, (*node, key), *connection, between) {
            Some(delete) => format!(
                "the clean-up of the first one, sent at {}, may take away the key of the other",
                Ms(delete)
            ),
            None if case.world.promises(process, Capability::FreshTokens) => {
                "a late clean-up of one takes away the key of the other".to_owned()
            }
            None => continue,
        };
        reported.insert((key, token));
        let lines = vec![format!(
            "{process} set {} for {key} on master {node} at {}, and in another attempt at {}: {why}",
            short(token),
            Ms(one),
            Ms(other),
        )];
        findings.push(Violation::bug(Property::Validity, lines, one, other));
    }
    findings
}
