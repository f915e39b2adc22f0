//! Table-driven tests of the checks of all masters together.

use super::*;
use crate::doctor::Level;
use crate::doctor::server_info::{Requirement, Trial, Unreached, Visit};

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
    of_all(all).iter().filter(|found| found.check == check).map(|found| found.level).max()
}

#[test]
fn one_master_and_an_even_number_are_warnings() {
    assert_eq!(number(1).level, Level::Warn);
    assert!(number(4).text.contains("4 masters bear the loss of 1, as 3 do"), "{}", number(4).text);
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
    assert_eq!(level(voting("b", "a", &[])), Some(Level::Error), "the first server's other name");
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
