//! Measures in virtual time the wait of a request for several resources beside requests for one of
//! them: the table in `docs/tables/several.md`. It takes some minutes.

use std::collections::BTreeMap;

use redquorum_scenario::Mutant;
use redquorum_scenario::Scenario;
use redquorum_scenario::history::{Event, Phase};

const SEEDS: u64 = 10;
const ROUNDS: usize = 10;

/// The name of a load, the number of other clients on each resource, and the pause of each between
/// two leases of 20 ms.
const LOADS: [(&str, usize, u64); 4] = [
    ("one, a quarter of the time", 1, 60),
    ("one, half of the time", 1, 20),
    ("two, all of the time", 2, 0),
    ("four, all of the time", 4, 0),
];

fn main() {
    println!("| others on each resource | 1 resource | 2 at once | 4 at once |");
    println!("|---|---|---|---|");
    for (name, others, think) in LOADS {
        let cells = [1, 2, 4].map(|resources| cell(&scenario(resources, others, think)));
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn scenario(resources: usize, others: usize, think: u64) -> Scenario {
    let names: Vec<String> = (1..=resources).map(|number| format!("L{number}")).collect();
    let all = names.join(" and ");
    let mut text = format!(
        "name = \"load\"\nabout = \"A load.\"\n[lock]\nttl = \"2s\"\n[[client]]\nid = \"c\"\nloop = {ROUNDS}\n\
         think = \"50ms\"\nscript = [\"acquire {all} wait 10s\", \"work 5ms\", \"release {all}\"]\n"
    );
    for name in &names {
        for other in 0..others {
            let think = if think > 0 { format!("think = \"{think}ms\"\n") } else { String::new() };
            text += &format!(
                "[[client]]\nid = \"{name}.{other}\"\nloop = \"100s\"\n{think}\
                 script = [\"acquire {name} wait 20s\", \"work 20ms\", \"release {name}\"]\n"
            );
        }
    }
    toml::from_str(&text).expect("it is a scenario")
}

/// The share of requests granted within ten seconds, and the median of their waits.
fn cell(scenario: &Scenario) -> String {
    let (mut took, mut refused) = (Vec::new(), 0);
    for seed in 1..=SEEDS {
        let history = redquorum_simulator::run(scenario, seed, Mutant::None);
        let mut asked = BTreeMap::new();
        for record in &history.records {
            match &record.event {
                Event::Phase { phase } if *phase != Phase::Run => break,
                Event::Requested(request) if request.client == "c" && request.op.is_acquire() => {
                    asked.insert(request.id, record.ns);
                }
                Event::Replied { reply, .. } => match asked.remove(&reply.id) {
                    Some(since) if reply.ok => took.push((record.ns - since) / 1_000_000),
                    Some(_) => refused += 1,
                    None => {}
                },
                _ => {}
            }
        }
    }
    took.sort_unstable();
    let (got, all) = (took.len(), took.len() + refused);
    let at = |percent: usize| took.get(got * percent / 100).or(took.last()).copied().unwrap_or(0);
    format!("{} %, {} ms, {} ms", got * 100 / all.max(1), at(50), at(95))
}
