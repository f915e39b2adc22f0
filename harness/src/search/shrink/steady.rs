//! Widens times until what was found does not hang on a hair: it must show from several seeds, on
//! masters that are slower than those of the simulation, and for longer than a scheduler's whim.
//! Only then it shows on real masters, too.

use super::Trial;
use super::weight::roughness;
use crate::scenario::{Fault, Harm, Layer, NodeHarm, Nodes, Scenario, When, makes_sense};
use crate::search::lengths::{self, Use, of_millis};

/// By how much replies are slower than they usually are in the simulation.
const SLOWER: [u64; 6] = [0, 0, 0, 0, 3, 8];
/// How long two must have believed at the same time, to be seen whatever a scheduler does.
const LONG: i64 = 50_000_000;
/// So much a run is worth.
const WELL: u32 = 2;
/// What all of them are worth.
const BEST: u32 = WELL * 6;

pub(super) fn all(trial: &mut Trial<'_>) {
    let mut score = score_of(trial, &trial.scenario().clone());
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

/// How well a scenario shows what was found.
fn score_of(trial: &mut Trial<'_>, scenario: &Scenario) -> u32 {
    let mut score = 0;
    for (index, slower) in (0..).zip(SLOWER) {
        let mut scenario = scenario.clone();
        if slower > 0 {
            // Behind the others, whose numbers stay as they are.
            let harm = Harm::Node(NodeHarm::Slow { nodes: Nodes::All, by: of_millis(slower) });
            let when = When::At(of_millis(0));
            scenario.faults.push(Fault { when, lasts: None, harm });
        }
        let seed = trial.best.seed + index;
        let Some(lasts) = trial.lasts(&scenario, seed) else { continue };
        let short = trial.kind.layer == Some(Layer::MutualExclusion) && lasts < LONG;
        score += if short { 1 } else { WELL };
    }
    score
}

/// Takes a scenario if it shows better. It may weigh more.
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

/// Everything that is planned takes longer, so that what is not planned matters less.
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

/// One time that is longer or shorter.
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
