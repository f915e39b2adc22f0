//! The expectation of a find for another run: what was seen, limited to what shows from other seeds
//! too.

use std::collections::BTreeMap;

use crate::checker::{Observed, Outcome, Verdict, check};
use crate::history::{Event, History, Phase};
use crate::mutants::Mutant;
use crate::scenario::{Acquires, Expect, Property, Scenario, Wanted};
use crate::sim;

/// The number of seeds from which the result must be the same.
const SEEDS: u64 = 5;

/// The expectation of a run with honest clients, and whether it holds from other seeds too.
pub(super) fn of(scenario: &Scenario, seed: u64) -> (Expect, bool) {
    let runs = runs(scenario, seed);
    let Some((history, verdict)) = runs.first() else { return (Expect::default(), false) };
    let mut expect = properties(verdict);
    let granted = |history: &History, id: &str| {
        acquires(history).get(id).is_some_and(|(granted, _)| *granted > 0)
    };
    let refused =
        |history: &History, id: &str| acquires(history).get(id).is_some_and(|of| of.0 == 0);
    for client in &history.header.scenario.clients {
        let id = client.id.as_str();
        if runs.iter().all(|(history, _)| granted(history, id)) {
            expect.acquires.insert(id.to_owned(), Acquires::Granted);
        } else if runs.iter().all(|(history, _)| refused(history, id)) {
            expect.acquires.insert(id.to_owned(), Acquires::Refused);
        }
    }
    let steady = comes_out(scenario, seed, &expect, SEEDS);
    // An expectation that holds only from this seed must at least be right there.
    if !steady && !comes_out(scenario, seed, &expect, 1) {
        expect.acquires.clear();
    }
    (expect, steady)
}

fn runs(scenario: &Scenario, seed: u64) -> Vec<(History, Verdict)> {
    let run = |seed| {
        let history = sim::run(scenario, seed, Mutant::None);
        let verdict = check(&history);
        (history, verdict)
    };
    (seed..seed + SEEDS).map(run).collect()
}

fn properties(verdict: &Verdict) -> Expect {
    let mut expect = Expect::default();
    for (property, seen) in &verdict.observed {
        if *seen != Observed::Violated {
            continue;
        }
        let wanted = match property {
            Property::MutualExclusion => &mut expect.mutual_exclusion,
            Property::UnfencedResource => &mut expect.unfenced_resource,
            Property::FencedResource => &mut expect.fenced_resource,
            Property::Validity => &mut expect.validity,
            Property::Progress => &mut expect.progress,
            Property::Liveness => &mut expect.liveness,
            Property::Hygiene => &mut expect.hygiene,
        };
        *wanted = Some(Wanted::Violated);
    }
    expect.because.clone_from(&verdict.because);
    expect
}

/// How many acquires of each client were granted, and how many were answered, before the healing
/// phase.
fn acquires(history: &History) -> BTreeMap<&str, (u32, u32)> {
    let mut open = BTreeMap::new();
    let mut all: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for record in &history.records {
        match &record.event {
            Event::Phase { phase: Phase::FinalAcquire } => break,
            Event::Requested { id, op, client, .. } if op == "acquire" => {
                open.insert(*id, client.as_str());
            }
            Event::Replied { id, ok, .. } => {
                if let Some(client) = open.get(id) {
                    let of = all.entry(client).or_default();
                    of.0 += u32::from(*ok);
                    of.1 += 1;
                }
            }
            _ => {}
        }
    }
    all
}

fn comes_out(scenario: &Scenario, seed: u64, expect: &Expect, seeds: u64) -> bool {
    let scenario = Scenario { expect: expect.clone(), ..scenario.clone() };
    (seed..seed + seeds).all(|seed| {
        let verdict = check(&sim::run(&scenario, seed, Mutant::None));
        verdict.outcome == Outcome::AsExpected
    })
}
