//! The checks that need all masters together.

use std::time::Duration;

use redquorum_protocol::{
    Admitted, MastersId, NodeId, NodeSet, Quorum, RunId, admitted_by, quorum,
};

use super::super::server_info::{ServerInfo, Visit};
use super::super::{Finding, checks};
use crate::look::Look;

/// The findings that concern all masters.
pub(crate) fn of_all(all: &[ServerInfo], quorum: Quorum) -> Vec<Finding> {
    let mut found = Vec::new();
    // Beside the two sets of a move, the number of all says nothing.
    found.extend(quorum.moves().is_none().then(|| number(all.len())));
    found.extend(duplicates(all));
    found.push(reachable(all, quorum));
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
fn reachable(all: &[ServerInfo], quorum: Quorum) -> Finding {
    let votes = |server: &ServerInfo| server.visit.as_ref().is_ok_and(Visit::can_vote);
    let mut useful = NodeSet::EMPTY;
    let mut counted: Vec<&RunId> = Vec::new();
    for (node, server) in NodeId::all(all.len()).zip(all).filter(|(_, server)| votes(server)) {
        // One server has one vote, however many names it has.
        match server.info().and_then(|info| info.run_id.as_ref()) {
            Some(id) if counted.contains(&id) => continue,
            Some(id) => counted.push(id),
            None => {}
        }
        useful.insert(node);
    }
    let (useful_ones, needed) = (useful.len(), quorum.size());
    let of_each = if quorum.moves().is_some() { ", a majority of each set" } else { "" };
    let text =
        format!("{useful_ones} of {} masters can vote, {needed} are needed{of_each}", all.len());
    if quorum.is_in(useful) {
        Finding::ok("quorum", text)
    } else {
        let fix = "fix the masters that cannot vote: until then nothing can be acquired";
        Finding::error("quorum", text, fix)
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
    let named = |id: Option<Admitted>| match id {
        Some(id) => format!("the set {id}"),
        None => "a set that it does not name".to_owned(),
    };
    if let Some(text) = steps(all) {
        let fix = "redquorum masters plan shows which command is next";
        return Some(Finding::warn("markers", text, fix));
    }
    Some(match compare(all, |marker| Some(admitted_by(marker))) {
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

/// The steps at which the masters are, if they are moved to another set.
fn steps(all: &[ServerInfo]) -> Option<String> {
    let admitted = || all.iter().filter_map(|server| admitted_by(server.marker()?));
    let (from, to) = admitted().flat_map(Admitted::each).find_map(|id| match id {
        MastersId::Moving { from, to } => Some((from, to)),
        _ => None,
    })?;
    let steps: Option<Vec<usize>> = admitted().map(|it| it.step(from, to)).collect();
    let steps = steps?;
    let (first, last) = (steps.iter().min()?, steps.iter().max()?);
    Some(match first == last {
        true => format!("the masters are at step {first} of a move to another set"),
        false => format!("the masters are at steps {first} to {last} of a move to another set"),
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

/// Table-driven tests of the checks of all masters together.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::server_info::{Requirement, Trial, Visit};
    use crate::line::Unreached;

    fn master(name: &str, info: &str, ahead_ms: i64, marker: Option<&str>) -> ServerInfo {
        let look =
            Look { at: Duration::ZERO, slack: Duration::ZERO, micros: 0, ahead: ahead_ms * 1000 };
        let visit = Visit { clock: Ok([look; 2]), ..Visit::with(info, marker) };
        ServerInfo { name: name.to_owned(), visit: Ok(visit) }
    }

    fn dead(name: &str) -> ServerInfo {
        ServerInfo { name: name.to_owned(), visit: Err(Unreached::Down("refused".into())) }
    }

    fn level(all: &[ServerInfo], check: &str) -> Option<Level> {
        of_all(all, Quorum::of(all.len()))
            .iter()
            .filter(|found| found.check == check)
            .map(|found| found.level)
            .max()
    }

    #[test]
    fn one_master_and_an_even_number_are_warnings() {
        assert_eq!(number(1).level, Level::Warn);
        assert!(
            number(4).text.contains("4 masters bear the loss of 1, as 3 do"),
            "{}",
            number(4).text
        );
        assert_eq!(
            (number(2).level, number(3).level, number(5).level),
            (Level::Warn, Level::Ok, Level::Ok)
        );
    }

    #[test]
    fn one_server_under_two_names_is_an_error_that_has_both() {
        let all = [
            master("a", "run_id:1\r\n", 0, None),
            master("b", "run_id:2\r\n", 0, None),
            master("c", "run_id:1\r\n", 0, None),
        ];
        let found = duplicates(&all);
        assert_eq!((found.len(), found[0].level), (1, Level::Error));
        assert!(found[0].text.starts_with("a and c are"), "{}", found[0].text);
        // Two masters that do not report their identities are not taken for the same server.
        assert_eq!(duplicates(&[master("a", "", 0, None), master("b", "", 0, None)]), []);
    }

    #[test]
    fn a_quorum_is_of_different_servers_that_can_vote() {
        let voting = |name: &str, run_id: &str, refused: &[Requirement]| {
            let mut server = master(name, &format!("role:master\r\nrun_id:{run_id}\r\n"), 0, None);
            server.visit.as_mut().unwrap().trials = [Requirement::Acquire, Requirement::Scripts]
                .map(|what| {
                    let is_refused = refused.contains(&what);
                    Trial { what, result: if is_refused { Err("NOPERM".into()) } else { Ok(()) } }
                })
                .into();
            server
        };
        let [a, b] = ["a", "b"].map(|name| voting(name, name, &[]));
        let level = |third| level(&[a.clone(), third, dead("c")], "quorum");
        assert_eq!(level(b), Some(Level::Ok));
        // A replica gets no trials.
        assert_eq!(level(master("b", "role:slave\r\nrun_id:b\r\n", 0, None)), Some(Level::Error));
        assert_eq!(
            level(voting("b", "a", &[])),
            Some(Level::Error),
            "the first server's other name"
        );
        for refused in [Requirement::Acquire, Requirement::Scripts] {
            assert_eq!(level(voting("b", "b", &[refused])), Some(Level::Error), "{refused:?}");
        }
    }

    #[test]
    fn clocks_are_compared_with_each_other() {
        let pair = |ahead| [master("a", "", -50, None), master("b", "", ahead, None)];
        assert_eq!(level(&pair(50), "clock-spread"), Some(Level::Ok));
        assert_eq!(level(&pair(51), "clock-spread"), Some(Level::Warn));
        assert_eq!(level(&pair(951), "clock-spread"), Some(Level::Error));
        assert_eq!(level(&[master("a", "", 0, None), dead("b")], "clock-spread"), None);
    }

    #[test]
    fn markers_of_different_locks_are_an_error() {
        let pair = |one, two| [master("a", "", 0, one), master("b", "", 0, two)];
        let (plain, clock) = (Some("1 30000"), Some("1 30000 clock=500"));
        for (one, two, markers, clock_guards) in [
            (plain, Some("2 30000 always"), Some(Level::Ok), None),
            (plain, Some("2 10000"), Some(Level::Error), None),
            (plain, None, Some(Level::Ok), None),
            (None, None, Some(Level::Ok), None),
            (clock, Some("2 30000 always clock=500"), Some(Level::Ok), None),
            (clock, None, Some(Level::Ok), None),
            (clock, Some("2 30000"), Some(Level::Ok), Some(Level::Error)),
            (clock, Some("2 30000 clock=1000"), Some(Level::Ok), Some(Level::Error)),
        ] {
            let all = pair(one, two);
            let levels = (level(&all, "markers"), level(&all, "clock-guards"));
            assert_eq!(levels, (markers, clock_guards), "{one:?} {two:?}");
        }
        assert_eq!(level(&[dead("a")], "markers"), None);
    }
}
