//! How fast the simulation is: runs of a contended scenario, simulated, recorded and judged, and how
//! much virtual time passes meanwhile. `cargo bench -p redquorum-harness`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redquorum_harness::history::History;
use redquorum_harness::judge::{Outcome, judge};
use redquorum_harness::sabotage::Lie;
use redquorum_harness::scenario::Scenario;
use redquorum_harness::sim;

fn contended() -> Scenario {
    let scenario: Scenario =
        toml::from_str(include_str!("contended.toml")).expect("a scenario that can be read");
    scenario.runs().remove(0)
}

fn seconds(history: &History) -> f64 {
    history.length().unwrap_or_default().as_secs_f64()
}

/// One run after the other, each with a seed of its own.
fn runs(criterion: &mut Criterion) {
    let scenario = contended();
    let sample: Vec<History> = (0..20).map(|seed| sim::run(&scenario, seed, Lie::None)).collect();
    let virtual_ms = sample.iter().map(seconds).sum::<f64>() / 20.0 * 1000.0;
    let mut group = criterion.benchmark_group("contended");
    // Elements are virtual milliseconds: the rate is how much faster than real time it is, by 1000.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    group.throughput(Throughput::Elements(virtual_ms as u64));
    let mut seed = 0;
    group.bench_function("simulated and judged", |bench| {
        bench.iter(|| {
            seed += 1;
            let verdict = judge(&sim::run(&scenario, seed, Lie::None));
            assert_eq!(verdict.outcome, Outcome::AsExpected);
        });
    });
    group.bench_function("simulated", |bench| {
        bench.iter(|| {
            seed += 1;
            sim::run(&scenario, seed, Lie::None)
        });
    });
    let history = &sample[0];
    group.bench_function("judged", |bench| bench.iter(|| judge(history)));
    group.finish();
}

criterion_group!(benches, runs);
criterion_main!(benches);
