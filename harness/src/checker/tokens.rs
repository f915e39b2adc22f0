//! Tokens: two attempts must never use the same token. The token proves the ownership of one
//! attempt. A late clean-up of the first attempt would otherwise delete the key of the second.

use std::collections::HashSet;

use crate::history::{Act, Event, Ns};
use crate::scenario::Property;

use super::maps::Numbers;
use super::time::{Ms, short};
use super::{Case, Violation};

struct Set<'a> {
    node: usize,
    key: &'a str,
    at: Ns,
    /// The command's connection, and its position there.
    place: (u64, u64),
}

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut numbers = Numbers::default();
    // For each token: when and by which command it was first set, on each master.
    let mut first: Vec<Vec<Set<'_>>> = Vec::new();
    let mut reported = HashSet::new();
    let mut findings = Vec::new();
    for record in case.world.records {
        let Event::Command { process, node, connection, number, act, sent, .. } = &record.event
        else {
            continue;
        };
        let Act::Set { key, token, .. } = act else { continue };
        // If the network duplicates a command, both copies have the same position.
        let set = Set { node: *node, key, at: *sent, place: (*connection, *number) };
        let number = numbers.of(token);
        first.resize_with(numbers.count(), Vec::new);
        let same = |other: &&Set<'_>| other.node == set.node && other.key == set.key;
        let Some(before) = first[number].iter().find(same) else {
            first[number].push(set);
            continue;
        };
        if before.place != set.place && reported.insert((key, token)) {
            let lines = vec![format!(
                "{process} set {} for {key} on master {node} at {}, and in another attempt at {}: \
                 a late clean-up of one takes away the key of the other",
                short(token),
                Ms(before.at.min(*sent)),
                Ms(before.at.max(*sent)),
            )];
            findings.push(Violation::bug(Property::Validity, lines, before.at, *sent));
        }
    }
    findings
}
