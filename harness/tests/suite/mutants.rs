//! Every mutant is caught by the scenario that exists for it. The honest client, which has the same
//! shell, is not. `just mutants` prints the whole table.

use redquorum_rig::trials::{Case, thrice, with_masters};
use redquorum_scenario::Mutant;

use crate::support::{Ended, ask, folder};

pub(crate) fn cases() -> Vec<Case> {
    let known = Mutant::clients().filter_map(|mutant| Some((mutant, mutant.scenario()?)));
    let caught = known.clone().map(|(mutant, scenario)| {
        with_masters(&format!("{mutant}_is_caught_by_{scenario}"), move || {
            thrice(|| {
                let ended = run(mutant, scenario);
                assert_eq!(ended.code, Some(1), "{}", ended.output);
            });
        })
    });
    let mut scenarios: Vec<&str> = known.map(|(_, scenario)| scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    let honest = scenarios.into_iter().map(|scenario| {
        with_masters(&format!("the_honest_mutant_passes_{scenario}"), move || {
            thrice(|| {
                let ended = run(Mutant::None, scenario);
                assert_eq!(ended.code, Some(0), "{}", ended.output);
            });
        })
    });
    caught.chain(honest).collect()
}

fn run(mutant: Mutant, scenario: &str) -> Ended {
    let client = format!("{} --mutant {mutant}", env!("CARGO_BIN_EXE_redquorum-mutant"));
    ask(&folder(&format!("mutant-{mutant}-{scenario}")), &[scenario, "--client", &client])
}
