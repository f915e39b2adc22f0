//! Tokens: a value that proves the ownership of one attempt must not come again in another, or a late
//! clean-up of the first takes away the key of the second.

use crate::judge::maps::{Map, Set};

use crate::history::{Act, Event, Ns};
use crate::scenario::{Cause, Layer};

use super::time::{Ms, short};
use super::{Case, Finding, Seen};

/// A command's connection and its place there.
type Place = (u64, u64);

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    // When and by which command it was set first, on each master.
    let mut first: Map<(usize, &str, &str), (Ns, Place)> = Map::default();
    first.reserve(case.world.records.len() / 4);
    let mut told = Set::default();
    let mut findings = Vec::new();
    for record in case.world.records {
        let Event::Command { process, node, connection, number, act, sent, .. } = &record.event
        else {
            continue;
        };
        let Act::Set { key, token, .. } = act else { continue };
        // The second of a command that the network duplicated has the place of the first.
        let place = (*connection, *number);
        let (at, before) = *first.entry((*node, key, token)).or_insert((*sent, place));
        if before != place && told.insert((key, token)) {
            let story = vec![format!(
                "{process} set {} for {key} on master {node} at {}, and in another attempt at {}: a \
                 late clean-up of one takes away the key of the other",
                short(token),
                Ms(at.min(*sent)),
                Ms(at.max(*sent)),
            )];
            let (layer, seen, causes) = (Layer::Validity, Seen::Violated, vec![Cause::Bug]);
            findings.push(Finding { layer, seen, story, causes, from: at, to: *sent });
        }
    }
    findings
}
