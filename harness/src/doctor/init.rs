//! Init: sets the boot marker of a master that has none, like the library's `initialize_masters`.

use redis::Value;
use redquorum_protocol::Guard;
use redquorum_protocol::wire::Command;

use super::checks::Trust;
use super::finding::Finding;
use super::server_info::{Info, Unreached, Visit, reply};
use super::visit::Line;

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Init {
    /// The marker was set.
    Marked,
    /// The master already had a marker, which stays as it is.
    Had,
    /// The marker cannot be set, for this reason.
    Impossible(String),
}

/// Sets the boot marker of a master. Writes nothing if the marker's key holds anything.
pub(super) fn mark(line: &mut Line<'_>, guard: Guard, visit: &Visit) -> Result<Init, Unreached> {
    let impossible = |why: &str| Ok(Init::Impossible(why.to_owned()));
    match (&visit.info, &visit.marker) {
        (Err(text), _) | (_, Err(text)) => return impossible(text),
        (Ok(info), _) if !Info::is_master(info) => return impossible("it is not a master"),
        (_, Ok(Some(_))) => return Ok(Init::Had),
        (Ok(_), Ok(None)) => {}
    }
    let Some(run_id) = visit.run_id() else { return impossible("its INFO has no run_id") };
    let command = Command::Initialize { marker: guard.marker(&run_id, visit.durable()) };
    Ok(match reply(line.run(&command))? {
        Ok(Value::Okay) => Init::Marked,
        Ok(_) => Init::Had,
        Err(text) => Init::Impossible(text),
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
        // No quarantine ends this.
        let never = check(&Init::Had, guard, Trust::Never);
        assert_eq!(never.level, Level::Error);
        assert!(!never.fix.unwrap().contains("leave it to the lock"));
    }
}
