//! Widens times until the find no longer depends on small differences. It must show from several
//! seeds, on masters that are slower than those of the simulation, and for longer than a
//! scheduler's delay. Only then it shows on real masters too.

use super::Trial;
use super::weight::roughness;
use crate::lengths::{self, Use, of_millis};
use redquorum_checker::prepare;
use redquorum_scenario::history::History;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Clients, Fault, FaultKind, FaultTime, Messages, NetworkFault, NodeFault, Nodes, Property,
    Scenario, makes_sense,
};

/// By how much replies are slower than usual in the simulation.
const SLOWER: [u64; 6] = [0, 0, 0, 0, 3, 8];
/// How long two clients must have believed at the same time that they hold, to be detected whatever
/// a scheduler does.
const LONG: i64 = 50_000_000;
/// The score of a run that shows it for long enough.
const WELL: u32 = 2;
/// The score if all runs do.
const BEST: u32 = WELL * 6;

pub(super) fn all(trial: &mut Trial<'_>) {
    let mut score = score_of(trial, &trial.scenario().clone());
    if score < BEST {
        score = ordered(trial, score);
    }
    if score < BEST {
        score = scaled(trial, score);
    }
    while score < BEST && !trial.is_over() {
        let better = widened(trial, score);
        if better == score {
            return;
        }
        score = better;
    }
}

/// How well a scenario shows the find.
fn score_of(trial: &mut Trial<'_>, scenario: &Scenario) -> u32 {
    let mut score = 0;
    for (index, slower) in (0..).zip(SLOWER) {
        let mut scenario = scenario.clone();
        if slower > 0 {
            // Appended after the other faults, whose numbers stay as they are.
            let slow = FaultKind::Node(NodeFault::Slow { by: of_millis(slower) });
            let when = FaultTime::At(of_millis(0));
            scenario.faults.push(Fault::of_nodes(when, None, Nodes::All, slow));
        }
        let seed = trial.best.seed + index;
        let Some(lasts) = trial.lasts(&scenario, seed) else { continue };
        let short = trial.kind.property == Some(Property::MutualExclusion) && lasts < LONG;
        score += if short { 1 } else { WELL };
    }
    score
}

/// Takes a scenario if it shows the find better. It may weigh more.
fn take(trial: &mut Trial<'_>, scenario: Scenario, score: u32) -> Option<u32> {
    if !makes_sense(&scenario) {
        return None;
    }
    let better = score_of(trial, &scenario);
    if better <= score {
        return None;
    }
    let found = trial.shows(&scenario, trial.best.seed)?;
    trial.best = found;
    Some(better)
}

/// Fixes what the seed had decided: which client comes first, and which masters it gets.
fn ordered(trial: &mut Trial<'_>, score: u32) -> u32 {
    let (start, seed, mutant) = (trial.scenario().clone(), trial.best.seed, trial.best.mutant);
    let Some(history) = trial.run(&start, seed, mutant) else { return score };
    let Some((first, masters)) = first_grant(&history) else { return score };
    let mut score = score;
    for (later, bare) in [(300, false), (0, true), (300, true)] {
        let mut other = start.clone();
        for client in other.clients.iter_mut().filter(|client| client.id != first) {
            client.start = of_millis(lengths::millis(client.start) + later);
        }
        if bare {
            let nodes = (1..=other.cluster.nodes).filter(|node| !masters.contains(node));
            let nodes: Vec<usize> = nodes.collect();
            if nodes.is_empty() {
                continue;
            }
            let links = (Clients::Some(vec![first.clone()]), Nodes::Some(nodes));
            let drop = NetworkFault::Drop(Messages::default());
            let when = FaultTime::At(of_millis(0));
            other.faults.insert(0, Fault::of_links(when, None, links, drop));
        }
        if let Some(better) = take(trial, other, score) {
            score = better;
        }
    }
    score
}

/// The client that is granted a lease first, and by which masters.
fn first_grant(history: &History) -> Option<(Name, Vec<usize>)> {
    prepare(history, |case| {
        let lease = case.leases.first()?;
        Some((lease.client.into(), lease.masters(&case.keys)))
    })
}

/// Scales all planned times up, so that unplanned delays matter less.
fn scaled(trial: &mut Trial<'_>, score: u32) -> u32 {
    let start = trial.scenario().clone();
    let mut score = score;
    for factor in [2, 4, 8] {
        let mut slower = start.clone();
        lengths::each(&mut slower, &mut |what, length| {
            if what == Use::Plan {
                *length = of_millis(lengths::millis(*length).saturating_mul(factor));
            }
        });
        if let Some(better) = take(trial, slower, score) {
            score = better;
        }
    }
    score
}

/// Makes one time longer or shorter.
fn widened(trial: &mut Trial<'_>, score: u32) -> u32 {
    let changes: [fn(u64) -> u64; 6] = [
        |ms| ms * 2,
        |ms| ms + ms / 2,
        |ms| ms / 2,
        |ms| ms + 100,
        |ms| ms + 20,
        |ms| ms.saturating_sub(20),
    ];
    for index in 0..lengths::count(&mut trial.scenario().clone()) {
        for change in changes {
            let wider = |_, ms: u64| Some(round(change(ms))).filter(|new| ms > 0 && *new > 0);
            let Some(other) = lengths::changed(trial.scenario(), index, wider) else { continue };
            if let Some(better) = take(trial, other, score) {
                return better;
            }
        }
    }
    score
}

/// The nearest number of two digits.
fn round(ms: u64) -> u64 {
    let unit = 10_u64.pow(ms.checked_ilog10().unwrap_or(0).saturating_sub(1));
    let nearest = (ms + unit / 2) / unit * unit;
    if roughness(nearest) < roughness(ms) { nearest } else { ms }
}
