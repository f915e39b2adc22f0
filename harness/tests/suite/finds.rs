//! Finds of the search in virtual time break real masters, too: a shrunk find is an ordinary
//! scenario.

use std::ops::ControlFlow;

use redquorum_harness::mutants::Mutant;
use redquorum_harness::search::chance::{Search, Through};
use redquorum_harness::search::plan::Space;
use redquorum_harness::search::{scenario_file, shrink};
use redquorum_rig::trials::{Case, thrice, with_masters};

use crate::support::{ask_text, folder};

/// Runs outside of the assumptions in which the lock breaks by a wide margin. The causes are clocks
/// that step or strobe, masters that are flushed, resources that apply writes late, and lists of
/// masters that differ.
const FINDS: [u64; 9] = [6, 49, 53, 99, 192, 312, 410, 459, 963];

pub(crate) fn cases() -> Vec<Case> {
    let search = Search {
        space: Space::OUTSIDE,
        seed: 0,
        runs: 0,
        mutant: Mutant::None,
        through: Through::Machines,
        jobs: 1,
    };
    let finds = FINDS.map(|number| {
        with_masters(&format!("find_{number}_shows_on_real_masters"), move || {
            let found = search.found(number).expect("something goes wrong in that run");
            let kind = found.kind();
            let on = &mut |_: shrink::Progress<'_>| ControlFlow::Continue(());
            let small = shrink::shrink_to(&found, &kind, shrink::EFFORT, on);
            let (name, text) =
                (scenario_file::name(&kind, Mutant::None), scenario_file::file_of(&small, &kind));
            thrice(|| {
                let ended = ask_text(&folder(&format!("find-{number}")), &name, &text, &[]);
                assert_eq!(ended.code, Some(0), "{}\n{text}", ended.output);
            });
        })
    });
    finds.into_iter().collect()
}
