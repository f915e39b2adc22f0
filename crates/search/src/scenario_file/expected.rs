//! The expectation of a find for another run: what was seen, limited to what shows from other seeds
//! too.

use redquorum_checker::{Observed, Outcome, Request, Verdict, check, prepare};
use redquorum_scenario::Mutant;
use redquorum_scenario::history::History;
use redquorum_scenario::{Acquires, Expect, Property, Scenario, Wanted};

/// The number of seeds from which the result must be the same.
const SEEDS: u64 = 5;

/// The expectation of a run with honest clients, and whether it holds from other seeds too.
pub(super) fn of(scenario: &Scenario, seed: u64) -> (Expect, bool) {
    let run = |seed| redquorum_simulator::run(scenario, seed, Mutant::None);
    let mut runs: Vec<History> = (seed..seed + SEEDS).map(run).collect();
    let mut expect = properties(&check(&runs[0]));
    for client in &scenario.clients {
        let mut results = runs.iter().map(|history| granted(history, &client.id));
        let first = results.next().flatten();
        if let Some(first) = first.filter(|first| results.all(|other| other == Some(*first))) {
            let acquires = if first { Acquires::Granted } else { Acquires::Refused };
            expect.acquires.insert(client.id.to_string(), acquires);
        }
    }
    let steady = come_out(&mut runs, &expect);
    // An expectation that holds only from this seed must at least be right there.
    if !steady && !come_out(&mut runs[..1], &expect) {
        expect.acquires.clear();
    }
    (expect, steady)
}

/// Whether an acquire of a client was granted before the healing phase; none: no acquire was
/// answered.
fn granted(history: &History, client: &str) -> Option<bool> {
    prepare(history, |case| {
        let own = case.requests.iter().filter(|it| it.client == client && it.is_acquire_of_run());
        own.filter_map(Request::ok).reduce(|one, other| one || other)
    })
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

/// Whether runs come out as expected.
fn come_out(runs: &mut [History], expect: &Expect) -> bool {
    runs.iter_mut().all(|history| {
        history.header.scenario.expect = expect.clone();
        check(history).outcome == Outcome::AsExpected
    })
}
