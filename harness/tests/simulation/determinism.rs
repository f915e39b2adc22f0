//! A seed determines a run, and each part of a run has random streams of its own.

use redquorum_scenario::Mutant;
use redquorum_scenario::Scenario;

use crate::support::{of_client, runs, scenario};

#[test]
fn the_hash_of_a_trace_is_the_seeds() {
    for run in runs() {
        let hash = |seed| {
            redquorum_simulator::trace_hash(&redquorum_simulator::run(&run, seed, Mutant::None))
        };
        for seed in [0, 1, u64::MAX] {
            assert_eq!(hash(seed), hash(seed), "{} with seed {seed}", run.name);
        }
        assert_ne!(hash(1), hash(2), "{}", run.name);
    }
}

/// Two clients that share nothing.
const APART: &str = r#"
name = "apart"
about = "Two clients, each with a resource of its own."

[[client]]
id = "c1"
loop = 10
think = "7ms"
script = ["acquire A wait 2s", "read R", "work 20ms", "write R", "release A"]

[[client]]
id = "c2"
loop = 10
think = "5ms"
script = ["acquire B wait 2s", "read S", "work 30ms", "extend B", "write S", "release B"]
"#;

/// Faults that strike only the first client.
const FAULTS: [&str; 12] = [
    r#"net.cut = { client = "c1", nodes = [1, 2] }"#,
    r#"net.drop = { client = "c1", nodes = [1], what = "reply", index = 3, count = 2 }"#,
    r#"net.hold = { client = "c1", nodes = [2, 4] }"#,
    r#"net.delay = { client = "c1", by = "9ms" }"#,
    r#"net.duplicate = { client = "c1", command = "acquire" }"#,
    r#"net.trickle = { client = "c1", nodes = [5], bytes = 2000 }"#,
    r#"net.half-open = { client = "c1", nodes = [3], end = "client" }"#,
    r#"net.reset = { client = "c1", nodes = [1, 2] }"#,
    r#"client.pause = { client = "c1" }"#,
    r#"client.kill = { client = "c1" }"#,
    r#"client.clock = { client = "c1", by = "-1h" }"#,
    r#"client.rate = { client = "c1", factor = 0.5 }"#,
];

/// The events of the second client, without those after the healing.
fn undisturbed(scenario: &Scenario) -> Vec<String> {
    let history = redquorum_simulator::run(scenario, 7, Mutant::None);
    let mut lines = of_client(&history, "c2");
    let last = lines.iter().rposition(|line| line.contains("\"register\":\"S\"")).unwrap();
    lines.truncate(last + 1);
    lines
}

#[test]
fn a_fault_of_one_client_shifts_nothing_that_another_draws() {
    let calm = undisturbed(&scenario(APART));
    assert!(calm.len() > 100, "{}", calm.len());
    for effect in FAULTS {
        let fault = format!("{APART}\n[[fault]]\nat = \"100ms\"\n{effect}\n");
        let struck = undisturbed(&scenario(&fault));
        assert_eq!(calm, struck, "{effect}");
    }
}

#[test]
fn another_client_shifts_nothing_that_the_first_ones_draw() {
    let more = format!(
        "{APART}\n[[client]]\nid = \"c3\"\nloop = 20\nscript = [\"acquire C\", \"release C\"]\n"
    );
    assert_eq!(undisturbed(&scenario(APART)), undisturbed(&scenario(&more)));
}
