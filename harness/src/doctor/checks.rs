//! Checks: from the replies of masters to findings. Pure.

use super::finding::Finding;
use super::server_info::{ServerInfo, Unreached};
use super::{ExamineOptions, permissions};

mod clocks;
mod identity;
mod init;
mod keeping;
mod latency;
mod marker;
mod masters;

pub(super) use init::obstacle as obstacle_to_init;
pub(super) use masters::of_all;

/// The findings about one master by itself.
pub(super) fn of_master(server: &ServerInfo, options: &ExamineOptions) -> Vec<Finding> {
    let visit = match &server.visit {
        Ok(visit) => visit,
        Err(why) => return vec![unreached(why)],
    };
    let mut found = vec![Finding::ok("reachable", "it answers")];
    if let Ok(info) = &visit.info {
        found.extend(identity::check(info));
        found.extend(keeping::eviction(info));
    }
    found.push(keeping::persistence(visit.info.as_ref().ok(), &visit.settings));
    if let Ok(pings) = &visit.pings {
        found.extend(latency::check(pings, options.node_timeout));
    }
    found.extend(clocks::check(&visit.clock));
    let (marked, trusted) = marker::check(visit, options.guard);
    found.extend(marked);
    if let (Some(done), Some(guard)) = (&visit.init, options.guard) {
        found.push(init::check(done, guard, trusted));
    }
    found.extend(permissions::check(&visit.trials, options.guard.is_some()));
    found
}

fn unreached(why: &Unreached) -> Finding {
    match why {
        Unreached::Down(text) => Finding::error(
            "reachable",
            format!("it cannot be reached: {text}"),
            "start it, or correct its host and port; look for a firewall on the way",
        ),
        Unreached::Silent(text) => Finding::error(
            "reachable",
            text.clone(),
            "look whether it is stopped, overloaded or swapping, and whether it is Redis at all",
        ),
        Unreached::Refused(text) => {
            let fix = match text.split(' ').next() {
                Some("WRONGPASS") => "correct the user and the password in the URL",
                Some("NOAUTH") => {
                    "it wants a password: redis://:password@host or redis://user:password@host"
                }
                Some("NOPERM") => "allow the user this command: docs/wire.md has the whole line",
                Some("DENIED") => "it is in protected mode: set `bind` and a password there",
                _ if text.contains("AUTH") => "it has no password set: leave it out of the URL",
                _ if text.contains("max number of clients") => {
                    "raise `maxclients`, or find who leaks"
                }
                _ => "fix what the master says, then look again",
            };
            Finding::error("access", format!("it does not let us in: {text}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_masters_and_refusals_are_distinguished() {
        let table = [
            (Unreached::Down("refused".into()), "reachable", "start it"),
            (Unreached::Silent("silent".into()), "reachable", "stopped"),
            (Unreached::Refused("WRONGPASS invalid".into()), "access", "password in the URL"),
            (Unreached::Refused("NOAUTH required".into()), "access", "wants a password"),
            (Unreached::Refused("ERR AUTH <password> called".into()), "access", "leave it out"),
            (Unreached::Refused("ERR max number of clients".into()), "access", "maxclients"),
            (Unreached::Refused("NOPERM select".into()), "access", "docs/wire.md"),
        ];
        for (why, check, part) in table {
            let found = unreached(&why);
            assert_eq!(found.check, check, "{why:?}");
            assert!(found.fix.unwrap().contains(part), "{why:?}");
        }
    }
}
