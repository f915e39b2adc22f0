//! `just bench-sim`: measures the simulation. Runs of contended scenarios are simulated, recorded
//! and checked. The benchmark also shows how much virtual time passes.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redquorum_checker::{Outcome, check};
use redquorum_scenario::Mutant;
use redquorum_scenario::Scenario;
use redquorum_scenario::history::{Event, History};

const SCENARIOS: [&str; 2] = [include_str!("contended.toml"), include_str!("busy.toml")];

fn seconds(history: &History) -> f64 {
    history.length().unwrap_or_default().as_secs_f64()
}

fn commands(history: &History) -> usize {
    history.records.iter().filter(|record| matches!(record.event, Event::Command { .. })).count()
}

fn runs(criterion: &mut Criterion) {
    for text in SCENARIOS {
        let scenario: Scenario = toml::from_str(text).expect("a scenario that can be read");
        measure(criterion, &scenario.runs()[0]);
    }
}

fn measure(criterion: &mut Criterion, scenario: &Scenario) {
    let sample: Vec<History> =
        (0..20).map(|seed| redquorum_simulator::run(scenario, seed, Mutant::None)).collect();
    let virtual_ms = sample.iter().map(seconds).sum::<f64>() / 20.0 * 1000.0;
    let commands = sample.iter().map(commands).sum::<usize>() / sample.len();
    println!("{}: {virtual_ms:.0} ms of virtual time, {commands} commands", scenario.name);
    let mut group = criterion.benchmark_group(&scenario.name);
    // An element is a virtual millisecond, so the rate divided by 1000 is the speed relative to
    // real time.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    group.throughput(Throughput::Elements(virtual_ms as u64));
    let mut seed = 0;
    group.bench_function("simulated and checked", |bench| {
        bench.iter(|| {
            seed += 1;
            let verdict = check(&redquorum_simulator::run(scenario, seed, Mutant::None));
            assert_eq!(verdict.outcome, Outcome::AsExpected);
        });
    });
    group.bench_function("simulated", |bench| {
        bench.iter(|| {
            seed += 1;
            redquorum_simulator::run(scenario, seed, Mutant::None)
        });
    });
    let history = &sample[0];
    group.bench_function("checked", |bench| bench.iter(|| check(history)));
    group.finish();
}

criterion_group!(benches, runs);
criterion_main!(benches);
