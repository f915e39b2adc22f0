//! Tries the simulation.
use redquorum_harness::{
    judge::judge,
    sabotage::Lie,
    scenario::{Scenario, embedded},
    sim,
};
fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let seed: u64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    let lie: Lie = std::env::args().nth(3).map_or(Lie::None, |l| l.parse().unwrap());
    let all = std::time::Instant::now();
    for (_, text) in embedded() {
        let scenario: Scenario = toml::from_str(text).unwrap();
        for run in scenario.runs() {
            if !run.name.contains(&filter) {
                continue;
            }
            let start = std::time::Instant::now();
            let history = sim::run(&run, seed, lie);
            let ran = start.elapsed();
            let verdict = judge(&history);
            println!(
                "{:?} {} {:?} {:?} ({} records)",
                verdict.outcome,
                run.name,
                ran,
                start.elapsed(),
                history.records.len()
            );
            for d in &verdict.differences {
                println!("    {d}");
            }
            if !verdict.differences.is_empty() {
                for f in &verdict.findings {
                    for l in &f.story {
                        println!("       {l}");
                    }
                }
            }
            if !filter.is_empty() {
                history.write(&mut std::fs::File::create("/tmp/sim.jsonl").unwrap()).unwrap();
            }
        }
    }
    eprintln!("{:?}", all.elapsed());
}
