//! x
use redquorum_harness::{judge::judge, sabotage::Lie, scenario::Scenario, sim, history::Event};
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap_or("harness/benches/contended.toml".into())).unwrap();
    let scenario: Scenario = toml::from_str(&text).unwrap();
    let run = scenario.runs().remove(0);
    let n: u64 = std::env::args().nth(2).map_or(500, |n| n.parse().unwrap());
    let mut sim_t = std::time::Duration::ZERO; let mut judge_t = sim_t; let mut virt = 0; let mut records = 0; let mut cmds = 0; let mut sets=0; let mut grants = 0;
    let mut refused = 0;
    for seed in 0..n {
        let s = std::time::Instant::now();
        let history = sim::run(&run, seed, Lie::None);
        sim_t += s.elapsed();
        let s = std::time::Instant::now();
        let verdict = judge(&history);
        judge_t += s.elapsed();
        assert_eq!(verdict.differences, Vec::<String>::new());
        virt += history.records.last().unwrap().ns; records += history.records.len(); grants += verdict.measures.grants;
        for r in &history.records { if let Event::Command{act, result, ..} = &r.event { cmds += 1; if let redquorum_harness::history::Act::Set{..} = act { sets += 1; if *result == redquorum_harness::history::Outcome::Refused { refused += 1 } } } }
    }
    let all = (sim_t+judge_t).as_secs_f64();
    println!("runs/s {:.0} virtual s/s {:.0} sim {:?} judge {:?} per run; records {} cmds {} sets {} refused {} grants {} virt {:.3}", n as f64/all, virt as f64/1e9/all, sim_t/n as u32, judge_t/n as u32, records as u64/n, cmds/n, sets/n, refused/n, grants as u64/n, virt as f64/1e9/n as f64);
}
