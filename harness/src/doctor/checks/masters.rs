//! The checks that need all masters together.

use std::time::Duration;

use redquorum_protocol::{Fingerprint, RunId, masters_id_of, quorum};

use super::super::{Finding, checks};
use crate::doctor::server_info::{Look, ServerInfo, Visit};

/// The findings that concern all masters.
pub(crate) fn of_all(all: &[ServerInfo]) -> Vec<Finding> {
    let mut found = vec![number(all.len())];
    found.extend(duplicates(all));
    found.push(reachable(all));
    found.extend(apart(all));
    found.extend(markers(all));
    found.extend(clock_guards(all));
    found
}

fn number(masters: usize) -> Finding {
    let needed = quorum(masters);
    match masters {
        1 => Finding::warn(
            "number",
            "one master: its end is the end of the lock, and no other master knows what it forgets",
            "use three or five that do not fail together",
        ),
        even if even % 2 == 0 => Finding::warn(
            "number",
            format!(
                "{even} masters bear the loss of {}, as {} do, and each lease needs {needed} of them",
                even - needed,
                even - 1
            ),
            "use an odd number: three, five or seven",
        ),
        odd => Finding::ok("number", format!("{odd} masters, of which {} may fail", odd - needed)),
    }
}

/// The names of each server that has several, by which it would have several votes.
fn known_twice(all: &[ServerInfo]) -> Vec<Vec<&str>> {
    let mut known: Vec<(&RunId, Vec<&str>)> = Vec::new();
    for server in all {
        let Some(id) = server.info().and_then(|info| info.run_id.as_ref()) else { continue };
        match known.iter_mut().find(|(other, _)| *other == id) {
            Some((_, names)) => names.push(&server.name),
            None => known.push((id, vec![&server.name])),
        }
    }
    known.into_iter().map(|(_, names)| names).filter(|names| names.len() > 1).collect()
}

/// Two names of one server.
pub(super) fn one_server(all: &[ServerInfo]) -> Option<(&str, &str)> {
    known_twice(all).first().map(|names| (names[0], names[1]))
}

fn duplicates(all: &[ServerInfo]) -> Vec<Finding> {
    let found = known_twice(all).into_iter().map(|names| {
        let text = format!("{} are one and the same server", names.join(" and "));
        Finding::error("duplicates", text, "give each master once: one server has one vote")
    });
    found.collect()
}

/// Whether the masters that can vote are a quorum.
fn reachable(all: &[ServerInfo]) -> Finding {
    let votes = |server: &&ServerInfo| server.visit.as_ref().is_ok_and(Visit::can_vote);
    let mut useful = 0;
    let mut counted: Vec<&RunId> = Vec::new();
    for server in all.iter().filter(votes) {
        // One server has one vote, however many names it has.
        match server.info().and_then(|info| info.run_id.as_ref()) {
            Some(id) if counted.contains(&id) => continue,
            Some(id) => counted.push(id),
            None => {}
        }
        useful += 1;
    }
    let needed = quorum(all.len());
    let text = format!("{useful} of {} masters can vote, {needed} are needed", all.len());
    if useful < needed {
        let fix = "fix the masters that cannot vote: until then nothing can be acquired";
        Finding::error("quorum", text, fix)
    } else {
        Finding::ok("quorum", text)
    }
}

/// The two clocks that are farthest apart.
fn apart(all: &[ServerInfo]) -> Option<Finding> {
    let look =
        |server: &ServerInfo| server.visit.as_ref().ok()?.clock.as_ref().ok().map(|looks| looks[1]);
    let looks: Vec<(&str, Look)> =
        all.iter().filter_map(|server| Some((&*server.name, look(server)?))).collect();
    let (slow, first) = looks.iter().min_by_key(|(_, look)| look.ahead)?;
    let (fast, last) = looks.iter().max_by_key(|(_, look)| look.ahead)?;
    if looks.len() < 2 {
        return None;
    }
    let apart = Duration::from_micros(last.ahead.abs_diff(first.ahead));
    let sure = apart.saturating_sub(first.slack).saturating_sub(last.slack);
    let text = format!("the clock of {fast} is {} ahead of {slow}'s", checks::seconds(apart));
    Some(checks::finding_of("clock-spread", sure, text))
}

/// The name of a master, and what its marker says.
type Named<'a, T> = (&'a str, T);

/// What the first marker says, and a marker that says something else.
fn compare<'a, T: PartialEq>(
    all: &'a [ServerInfo],
    of: impl Fn(&str) -> Option<T>,
) -> Option<(Named<'a, T>, Option<Named<'a, T>>)> {
    let mut marked = all.iter().filter_map(|server| Some((&*server.name, of(server.marker()?)?)));
    let first = marked.next()?;
    let other = marked.find(|(_, other)| *other != first.1);
    Some((first, other))
}

/// Whether the masters have boot markers, and all for the same set of masters.
fn markers(all: &[ServerInfo]) -> Option<Finding> {
    if all.iter().all(|server| server.visit.is_err()) {
        return None;
    }
    let Some(((name, length), other)) = compare(all, checks::max_ttl) else {
        let none = all.iter().all(|server| server.marker().is_none());
        let text = "no master has a marker: a lock without a guard needs none";
        return none.then(|| Finding::ok("markers", text));
    };
    if let Some((else_name, other)) = other {
        return Some(Finding::error(
            "markers",
            format!("{name} has the marker of a guard of {length:?}, {else_name} of {other:?}"),
            "give all clients the same guard, then delete `redquorum:boot` where it is wrong",
        ));
    }
    let named = |id: Option<Fingerprint>| match id {
        Some(id) => format!("the set {id}"),
        None => "a set that it does not name".to_owned(),
    };
    Some(match compare(all, |marker| Some(masters_id_of(marker))) {
        Some(((name, id), Some((else_name, other)))) => Finding::error(
            "markers",
            format!(
                "{name} has the marker of locks over {}, {else_name} over {}: both can be granted",
                named(id),
                named(other)
            ),
            "give all clients the same list of masters, or one `masters_id`; stop those that have another, \
             then delete `redquorum:boot` where it is wrong",
        ),
        _ => Finding::ok("markers", format!("all markers are of a guard of {length:?}")),
    })
}

/// Whether all markers belong to locks with the same clock guard.
fn clock_guards(all: &[ServerInfo]) -> Option<Finding> {
    let ((name, bound), other) = compare(all, |marker| Some(checks::clock_bound(marker)))?;
    let (else_name, other) = other?;
    let words = |bound: Option<Duration>| match bound {
        Some(bound) => format!("a clock guard of {bound:?}"),
        None => "no clock guard".to_owned(),
    };
    Some(Finding::error(
        "clock-guards",
        format!("the marker of {name} says {}, {else_name}'s {}", words(bound), words(other)),
        "give all clients the same clock guard, then delete `redquorum:boot` where it is wrong",
    ))
}

#[cfg(test)]
mod tests;
