//! `just mutants`: runs every mutant in every scenario and in the model check, and prints a
//! Markdown table of what catches each of them: scenarios, those in which the tests catch it on
//! real masters, the random search, a rule of the model check, and the theorem that fails without
//! the rule that the mutant breaks.
//!
//! It runs in virtual time, which takes seconds. With `--real` it runs processes against real
//! masters, which takes a quarter of an hour. With `--search`, the random search looks for the
//! mutants instead. Then the table has the number of runs until each find, and the faults in the
//! shrunk scenario. With `--histories` it prints no table: it writes the history of every run in
//! virtual time, and behind each the verdict on it, as `redquorum-chaos search --histories -` does.
//! Names of mutants restrict the run to these mutants.

use std::collections::BTreeMap;
use std::io::{BufWriter, IsTerminal, Write as _, stderr, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use redquorum_checker::{Outcome, check};
use redquorum_harness::real::{Backend, BackendKind, ScenarioRunner, Setup};
use redquorum_harness::report::write_judged;
use redquorum_model_check::broken_by;
use redquorum_scenario::Mutant;
use redquorum_scenario::history::History;
use redquorum_scenario::{Scenario, embedded_runs};
use redquorum_search::chance::{Play, Search};
use redquorum_search::plan::Space;
use redquorum_search::shrink;

#[path = "../tests/support/theorems.rs"]
mod theorems;

/// The first seed of the search, and the largest number of runs.
const SEED: u64 = 0;
const RUNS: u64 = 200_000;

const USAGE: &str = "\
usage: mutants [--real | --search | --histories] [NAME]...

Runs clients with deliberate bugs (all, or those that are named) in every scenario, in virtual time,
and in the model check, and prints a Markdown table of what catches each of them.

  --real       on real masters: a quarter of an hour
  --search     look for them by random scenarios, and print the number of runs until each find
  --histories  print no table: write the history of every run and the verdict on it";

fn main() -> ExitCode {
    let has = |option: &str| std::env::args().any(|word| word == option);
    if has("--help") || has("-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let all_well = if has("--histories") {
        histories().map(|()| true)
    } else if has("--search") {
        searched()
    } else {
        table()
    };
    match all_well {
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

/// Whether the scenarios or the model check caught every mutant, and neither the honest client.
fn table() -> Result<bool, String> {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    let real = asked.iter().any(|word| word == "--real");
    asked.retain(|word| word != "--real");
    let backend = if real { Some(masters()?) } else { None };
    let can = |run: &Scenario| backend.as_ref().is_none_or(|backend| backend.can(run).is_ok());
    let runs: Vec<Scenario> = embedded_runs().filter(can).collect();
    let mut all_well = true;
    let named: BTreeMap<String, String> = theorems::named().into_iter().rev().collect();
    println!(
        "| mutant | caught by (and the property that shows it first) | of {} runs | on real masters \
         | in the search | model check | proof |",
        runs.len()
    );
    println!("|---|---|---|---|---|---|---|");
    for mutant in Mutant::ALL.iter().copied().filter(|mutant| chosen(&asked, *mutant)) {
        let start = Instant::now();
        let is_client = Mutant::clients().any(|client| client == mutant);
        let mut caught = BTreeMap::new();
        for run in runs.iter().filter(|_| is_client) {
            progress(&format!("{mutant}: {}", run.name));
            // A mutation that shows only under rare timing may need another seed.
            for seed in 1..=if real { 1 } else { 3 } {
                let history = match &backend {
                    Some(backend) => played(backend, run, mutant)?,
                    None => redquorum_simulator::run(run, seed, mutant),
                };
                let verdict = check(&history);
                // "Not seen" and "inconclusive" do not count: the checkers must see a violation.
                if verdict.outcome == Outcome::Differs {
                    let property = verdict.findings.first().map(|finding| finding.property.name());
                    caught.insert(run.name.clone(), property.unwrap_or("-"));
                    break;
                }
            }
        }
        progress(&format!("{mutant}: model check"));
        let rule = broken_by(mutant);
        progress("");
        eprintln!("{mutant}: {} caught it, {:.1?}", caught.len(), start.elapsed());
        let names: Vec<String> =
            caught.iter().take(4).map(|(name, property)| format!("{name} ({property})")).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let more = if caught.len() > 4 { ", …" } else { "" };
        let searched = is_client && mutant.shows_inside() && mutant != Mutant::None;
        println!(
            "| `{mutant}`: {} | {names}{more} | {} | {} | {} | {} | {} |",
            mutant.about(),
            caught.len(),
            mutant.scenario().unwrap_or("–"),
            if searched { "yes" } else { "–" },
            rule.unwrap_or("–"),
            named.get(mutant.name()).map_or("–", String::as_str),
        );
        all_well &= (is_client && caught.is_empty() || !is_client && rule.is_none())
            == (mutant == Mutant::None);
    }
    Ok(all_well)
}

/// Writes the history of each mutant in each scenario, and the verdict on it.
fn histories() -> Result<(), String> {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--histories").collect();
    let runs: Vec<Scenario> = embedded_runs().collect();
    let mut out = BufWriter::new(stdout());
    for mutant in Mutant::clients().filter(|mutant| chosen(&asked, *mutant)) {
        for run in &runs {
            let mut history = redquorum_simulator::run(run, 1, mutant);
            history.header.client = Some(format!("redquorum-mutant --mutant {mutant}"));
            let verdict = check(&history);
            write_judged(&mut out, &history, &verdict).map_err(|why| why.to_string())?;
        }
    }
    out.flush().map_err(|why| why.to_string())
}

/// Whether the search caught every mutant, and found nothing about the honest client.
fn searched() -> Result<bool, String> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| word != "--search").collect();
    println!("| client | noticed after | by | faults left |");
    println!("|---|---|---|---|");
    let (mut all_well, mut longest, mut sizes) = (true, 0, Vec::new());
    let search = |mutant, runs, jobs| {
        let (space, play): (_, Play) = (Space::INSIDE, redquorum_simulator::run);
        Search { space, seed: SEED, runs, mutant, play, jobs }
    };
    // Mutations without effect inside the assumptions belong in the table of scenarios.
    let mutants = Mutant::clients().filter(|mutant| mutant.shows_inside());
    let mutants = mutants.filter(|mutant| *mutant != Mutant::None && chosen(&asked, *mutant));
    for mutant in mutants {
        progress(mutant.name());
        let start = Instant::now();
        let Some((runs, found, kind)) = search(mutant, RUNS, 1).first() else {
            println!("| `{mutant}` | never | – | – |");
            all_well = false;
            continue;
        };
        let on = &mut |_: shrink::Progress<'_>| ControlFlow::Continue(());
        let small = shrink::shrink_to(Some(Space::INSIDE), &found, &kind, shrink::EFFORT, on);
        let faults = small.scenario.faults.iter().map(|fault| fault.kind.name());
        let faults: Vec<&str> = faults.collect();
        let count = faults.len();
        let left =
            if count == 0 { "0".to_owned() } else { format!("{count}: {}", faults.join(", ")) };
        let s = if runs == 1 { "" } else { "s" };
        progress("");
        eprintln!("{mutant}: {:.1?}", start.elapsed());
        println!("| `{mutant}` | {runs} run{s} | {kind} | {left} |");
        sizes.push(count);
        longest = longest.max(runs);
    }
    progress("");
    sizes.sort_unstable();
    if let Some(median) = sizes.get(sizes.len() / 2) {
        println!("\n{} noticed, {longest} runs at most; median of faults {median}", sizes.len());
    }
    // The honest client must pass as many runs as the longest search took.
    let honest = search(Mutant::None, longest, 2).run(&|_| true);
    println!("the honest client: {} kinds of finds in {longest} runs", honest.kinds.len());
    Ok(all_well && honest.kinds.is_empty())
}

fn masters() -> Result<Backend, String> {
    let setup = Setup { backend: BackendKind::Process, ..Setup::default() };
    Backend::prepare(&setup).map_err(|why| why.to_string())
}

fn played(backend: &Backend, run: &Scenario, mutant: Mutant) -> Result<History, String> {
    let words = [beside("redquorum-mutant")?.into(), "--mutant".into(), mutant.name().into()];
    let liars = backend.clone().with_command(mutant.name(), words.to_vec());
    liars.run(run, 1, None, &mut |_| {}).map_err(|why| why.to_string())
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
