//! Whether the boot marker was set, if that was requested.

use redquorum_protocol::Guard;

use super::marker::{self, Trust};
use super::masters;
use crate::doctor::finding::Finding;
use crate::doctor::server_info::{Info, Init, ServerInfo};

/// Why no master may be marked: what one of them shows, in words.
pub(crate) fn obstacle(all: &[ServerInfo], guard: Guard) -> Option<String> {
    if let Some((first, second)) = masters::one_server(all) {
        return Some(format!("{first} and {second} are one server"));
    }
    all.iter().find_map(|server| {
        let name = &server.name;
        let Ok(visit) = &server.visit else {
            return Some(format!("{name} could not be looked at"));
        };
        if !visit.info.as_ref().is_ok_and(Info::is_master) {
            return Some(format!("{name} is not known to be a master"));
        }
        let is_foreign = marker::check(visit, Some(guard)).1 == Trust::Never;
        is_foreign.then(|| format!("{name} has another marker, or none can be seen there"))
    })
}

/// The finding. `trust` tells whether a lock with the guard trusts the master now.
pub(super) fn check(init: &Init, guard: Guard, trust: Trust) -> Finding {
    let max_ttl = guard.max_ttl();
    match init {
        Init::Marked => Finding::ok("init", format!("it is marked now, for leases of {max_ttl:?}")),
        Init::Had if trust == Trust::Now => {
            Finding::ok("init", "it had its marker already, and keeps it")
        }
        Init::Had if trust == Trust::Never => Finding::error(
            "init",
            "it is not marked: it has another marker already, which no wait makes good",
            "see the finding about its marker, then run --init again",
        ),
        Init::Had => Finding::error(
            "init",
            "it is not marked: it has another marker already",
            format!(
                "leave it to the lock, which trusts it {:?} after it was first seen; or, if surely no \
                 lease of it is alive, DEL redquorum:boot there and run --init again",
                guard.quarantine()
            ),
        ),
        Init::Impossible(why) => Finding::error(
            "init",
            format!("it cannot be marked: {why}"),
            "see the other findings about it, then run --init again",
        ),
        Init::Withheld(why) => Finding::error(
            "init",
            format!("it is not marked, and neither is any other master: {why}"),
            "correct the list, or what the findings say about that master, then run --init again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redquorum_protocol::Drift;

    use super::*;
    use crate::doctor::Level;

    #[test]
    fn each_outcome_is_reported_and_a_refusal_is_an_error() {
        let guard = Guard::new(Duration::from_secs(30), Drift::default(), 0).unwrap();
        let level = |init, trust| check(&init, guard, trust).level;
        assert_eq!(level(Init::Marked, Trust::Now), Level::Ok);
        assert_eq!(level(Init::Had, Trust::Now), Level::Ok);
        assert_eq!(level(Init::Had, Trust::Later), Level::Error);
        assert_eq!(level(Init::Impossible("NOPERM".into()), Trust::Later), Level::Error);
        assert_eq!(level(Init::Withheld("a is down".into()), Trust::Later), Level::Error);
        // No quarantine ends this.
        let never = check(&Init::Had, guard, Trust::Never);
        assert_eq!(never.level, Level::Error);
        assert!(!never.fix.unwrap().contains("leave it to the lock"));
    }
}
