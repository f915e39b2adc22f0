//! The goals of waiters. The history does not record the push messages of masters, so the goals are
//! derived from what follows them.

use std::collections::BTreeMap;

use super::{Goal, Request, RunView, token};
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Record};
use redquorum_scenario::name::Name;

const MS: Ns = 1_000_000;

fn ms(number: u64) -> Ns {
    Ns::try_from(number).unwrap_or(Ns::MAX).saturating_mul(MS)
}

/// An attempt of another process this soon after a deletion is due to the deletion: a wake-up, and
/// a short time for the wake-ups of other masters.
const SOON: Ns = 15 * MS;
/// A deletion and the SET of the next waiter of the same process are written at once.
const BEHIND: Ns = MS / 5;
/// After this many leases in a row, a waiter of another process is next.
const HAND_OFFS: usize = 3;

/// The SETs of one attempt.
struct Try<'a> {
    process: &'a Name,
    key: &'a Name,
    token: &'a Name,
    from: Ns,
    /// The latest time at which its keys expire, unless they are extended.
    expires: Ns,
    nodes: Vec<usize>,
    refused_by: Vec<usize>,
    /// It was written right behind the deletion of another lease of its process.
    handed_off: bool,
}

/// A deletion of a key. The script compares the value with an attempt's own token.
struct Delete<'a> {
    process: &'a Name,
    key: &'a Name,
    token: &'a Name,
    place: (u64, u64),
    sent: Ns,
    done: bool,
}

pub(super) fn reached(seen: &RunView<'_, '_>) -> Vec<Goal> {
    let records = seen.case.world.records;
    let deletes = deletes(records);
    let tries = tries(records, &deletes, |process, key, span| seen.waits(process, key, span));
    let requests = || seen.case.requests.iter();
    let granted = |of: &Name| requests().any(|one| token(one) == Some(of.as_str()));
    let mut goals = Vec::new();
    for (index, one) in tries.iter().enumerate() {
        if one.handed_off {
            goals.push(Goal::HandOff);
            let gone = requests().any(|request| {
                request.reply.is_some_and(|it| it.why == Some(FailureReason::Cancelled))
                    && one.process == request.process
                    && request.asked <= one.from
                    && (one.from..one.from + 200 * MS).contains(&request.replied())
            });
            goals.extend((gone && !granted(one.token)).then_some(Goal::HandedOffGone));
        } else {
            goals.extend(woken(seen, (&deletes, &tries[..index]), one, granted));
        }
        let alone = one.nodes.len() == 1 && one.refused_by.len() == 1;
        if alone && seen.scenario.list_of(one.process).quorum() > 1 {
            goals.push(Goal::RefusedFirst);
            let own = |other: &&Try<'_>| other.process == one.process && other.key == one.key;
            let next = tries[index + 1..].iter().find(own);
            let without =
                |next: &&Try<'_>| next.refused_by.contains(&one.nodes[0]) && granted(next.token);
            goals.extend(next.filter(without).map(|_| Goal::FirstOverruled));
        }
    }
    goals.extend(has_yielded(seen, &tries).then_some(Goal::Yielded));
    goals.sort_unstable();
    goals.dedup();
    goals
}

/// Why an attempt of a waiter was granted at that time: it was woken, or it found by itself that
/// the lease of another process had ended early.
fn woken(
    seen: &RunView<'_, '_>,
    (deletes, before): (&[Delete<'_>], &[Try<'_>]),
    one: &Try<'_>,
    granted: impl Fn(&Name) -> bool,
) -> Option<Goal> {
    let since = one.from - SOON;
    // Another waiter had its turn before.
    if !seen.waits(one.process, one.key, (since, one.from)) || !granted(one.token) {
        return None;
    }
    let released = deletes.iter().any(|delete| {
        delete.key == one.key
            && delete.process != one.process
            && delete.done
            && granted(delete.token)
            && (since..one.from).contains(&delete.sent)
    });
    if released {
        return Some(Goal::Woken);
    }
    let lease = before.iter().rfind(|other| other.key == one.key && granted(other.token))?;
    (lease.process != one.process && one.from < lease.expires).then_some(Goal::Polled)
}

/// Whether a waiter of another process came before the next one of a process that had several
/// leases in a row.
fn has_yielded(seen: &RunView<'_, '_>, tries: &[Try<'_>]) -> bool {
    let lease = |request: &Request<'_>| {
        let granted = token(request)?;
        Some((request.replied(), tries.iter().find(|one| one.token == granted)?))
    };
    let mut leases: Vec<(Ns, &Try<'_>)> = seen.case.requests.iter().filter_map(lease).collect();
    leases.sort_by_key(|(at, _)| *at);
    leases.windows(HAND_OFFS + 1).any(|some| {
        let ((at, other), before) = (some[HAND_OFFS], &some[..HAND_OFFS]);
        let (process, key) = (before[0].1.process, before[0].1.key);
        let own =
            |(_, one): &(Ns, &Try<'_>)| one.handed_off && one.process == process && one.key == key;
        before.iter().all(own)
            && other.process != process
            && other.key == key
            && seen.is_asking(process, key, at)
    })
}

fn deletes(records: &[Record]) -> Vec<Delete<'_>> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::Command {
            process,
            connection,
            number,
            act: Act::Delete { key, token: Some(token) },
            sent,
            result,
            ..
        } => Some(Delete {
            process,
            key,
            token,
            place: (*connection, *number),
            sent: *sent,
            done: *result == Outcome::Done,
        }),
        _ => None,
    });
    all.collect()
}

/// All attempts, in their order.
fn tries<'a>(
    records: &'a [Record],
    deletes: &[Delete<'a>],
    waits: impl Fn(&str, &str, (Ns, Ns)) -> bool,
) -> Vec<Try<'a>> {
    let places: BTreeMap<(u64, u64), &Delete<'a>> =
        deletes.iter().filter(|delete| delete.done).map(|delete| (delete.place, delete)).collect();
    let mut tries: BTreeMap<&Name, Try<'a>> = BTreeMap::new();
    for record in records {
        let Event::Command {
            process,
            node,
            connection,
            number,
            act: Act::Set { key, token, ttl_ms },
            sent,
            result,
            ..
        } = &record.event
        else {
            continue;
        };
        let (nodes, refused_by) = (Vec::new(), Vec::new());
        let one = tries.entry(token).or_insert_with(|| Try {
            process,
            key,
            token,
            from: *sent,
            expires: ttl_ms.map_or(Ns::MAX, |ttl| ms(ttl).saturating_add(*sent)),
            nodes,
            refused_by,
            handed_off: false,
        });
        one.from = one.from.min(*sent);
        one.nodes.push(*node);
        if *result == Outcome::Refused {
            one.refused_by.push(*node);
        }
        let before = places.get(&(*connection, number.wrapping_sub(1)));
        one.handed_off |= before.is_some_and(|delete| {
            delete.key == key
                && delete.token != token
                && sent.saturating_sub(delete.sent) <= BEHIND
                // A client that asks when the reply to its release arrives asks a moment later.
                && waits(process, key, (delete.sent - MS, *sent))
        });
    }
    let mut tries: Vec<Try<'a>> = tries.into_values().collect();
    tries.sort_by_key(|one| one.from);
    tries
}
