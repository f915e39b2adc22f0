//! `just mutants`: runs every mutant in every scenario, and prints a Markdown table of the
//! scenarios that catch each mutant.
//!
//! It runs in virtual time, which takes seconds. With `--real` it runs processes against real
//! masters, which takes a quarter of an hour. With `--search`, the random search looks for the
//! mutants instead. Then the table has the number of runs and the time until each find, and the
//! number of faults in the shrunk scenario. Names of mutants restrict the run to these mutants.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use redquorum_harness::checker::{Outcome, judge};
use redquorum_harness::history::History;
use redquorum_harness::mutants::Mutant;
use redquorum_harness::real::{Choice, RealBackend, Setup};
use redquorum_harness::scenario::{Scenario, embedded_runs};
use redquorum_harness::search::chance::{Search, Through};
use redquorum_harness::search::mutants::{self, Caught};
use redquorum_harness::search::plan::Space;
use redquorum_harness::sim;

/// The first seed of the search, and the largest number of runs.
const SEED: u64 = 0;
const RUNS: u64 = 200_000;

fn main() -> ExitCode {
    let search = std::env::args().any(|word| word == "--search");
    match if search { searched() } else { table() } {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}

/// Prints the progress, if standard error is a terminal.
fn progress(text: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

/// Whether the scenarios caught every mutant, and no scenario caught the honest client.
fn table() -> Result<bool, String> {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    let real = asked.iter().any(|word| word == "--real");
    asked.retain(|word| word != "--real");
    let ground = if real { Some(masters()?) } else { None };
    let can = |run: &Scenario| ground.as_ref().is_none_or(|ground| ground.can(run).is_ok());
    let runs: Vec<Scenario> = embedded_runs().filter(can).collect();
    let mut all_well = true;
    println!(
        "| client | caught by (and the property that shows it first) | of {} runs |",
        runs.len()
    );
    println!("|---|---|---|");
    for mutant in Mutant::ALL.into_iter().filter(|mutant| chosen(&asked, *mutant)) {
        let start = Instant::now();
        let mut caught = BTreeMap::new();
        for run in &runs {
            progress(&format!("{mutant}: {}", run.name));
            // A mutation that shows only under rare timing may need another seed.
            for seed in 1..=if real { 1 } else { 3 } {
                let history = match &ground {
                    Some(ground) => played(ground, run, mutant)?,
                    None => sim::run(run, seed, mutant),
                };
                let verdict = judge(&history);
                // "Not seen" and "inconclusive" do not count: the checkers must see a violation.
                if verdict.outcome == Outcome::Differs {
                    let layer = verdict.findings.first().map(|finding| finding.layer.name());
                    caught.insert(run.name.clone(), layer.unwrap_or("-"));
                    break;
                }
            }
        }
        progress("");
        eprintln!("{mutant}: {} caught it, {:.1?}", caught.len(), start.elapsed());
        let names: Vec<String> =
            caught.iter().take(4).map(|(name, layer)| format!("{name} ({layer})")).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let more = if caught.len() > 4 { ", …" } else { "" };
        println!("| `{mutant}`: {} | {names}{more} | {} |", mutant.about(), caught.len());
        all_well &= caught.is_empty() == (mutant == Mutant::None);
    }
    Ok(all_well)
}

/// Whether the search caught every mutant, and found nothing about the honest client.
fn searched() -> Result<bool, String> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| word != "--search").collect();
    println!("| client | noticed after | in | by | faults left | what they are |");
    println!("|---|---|---|---|---|---|");
    let (mut all_well, mut longest, mut sizes) = (true, 0, Vec::new());
    // Mutations without effect inside the assumptions belong in the table of scenarios.
    let liars =
        Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::None && mutant.shows_inside());
    for mutant in liars.filter(|mutant| chosen(&asked, *mutant)) {
        progress(mutant.name());
        let start = Instant::now();
        let Some(caught) = mutants::catch(mutant, SEED, RUNS) else {
            println!(
                "| `{mutant}`: {} | never | {:.1?} | - | - | - |",
                mutant.about(),
                start.elapsed()
            );
            all_well = false;
            continue;
        };
        let Caught { runs, kind, small } = &caught;
        let faults: Vec<&str> =
            small.scenario.faults.iter().map(|fault| fault.fault_kind.name()).collect();
        let (about, took, count) = (mutant.about(), start.elapsed(), caught.faults());
        let faults = if faults.is_empty() { "-".to_owned() } else { faults.join(", ") };
        println!(
            "| `{mutant}`: {about} | {runs} runs | {took:.1?} | {kind} | {count} | {faults} |"
        );
        sizes.push(count);
        longest = longest.max(*runs);
    }
    progress("");
    sizes.sort_unstable();
    if let Some(median) = sizes.get(sizes.len() / 2) {
        println!("\n{} noticed, {longest} runs at most; median of faults {median}", sizes.len());
    }
    // The honest client must pass as many runs as the longest search took.
    let honest = Search {
        space: Space::INSIDE,
        seed: SEED,
        runs: longest,
        mutant: Mutant::None,
        through: Through::Machines,
        jobs: 2,
    };
    let honest = honest.run(&|_| true);
    println!("the honest client: {} kinds of finds in {longest} runs", honest.kinds.len());
    Ok(all_well && honest.kinds.is_empty())
}

fn masters() -> Result<RealBackend, String> {
    let setup = Setup { choice: Choice::Process, ..Setup::default() };
    RealBackend::prepare(&setup).map_err(|why| why.to_string())
}

fn played(ground: &RealBackend, run: &Scenario, mutant: Mutant) -> Result<History, String> {
    let words = [beside("redquorum-mutant")?.into(), "--mutant".into(), mutant.name().into()];
    let liars = ground.clone().with_command(mutant.name(), words.to_vec());
    liars.run(run, 1, &mut |_| {}).map_err(|why| why.to_string())
}

fn chosen(asked: &[String], mutant: Mutant) -> bool {
    asked.is_empty() || asked.iter().any(|name| name == mutant.name())
}

/// The path of a program in the parent folder, as this program is in `target/…/examples`.
fn beside(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|why| why.to_string())?;
    let folder = own.ancestors().nth(2).ok_or("this program has no folder")?;
    let path = folder.join(name);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display())) }
}
