//! `just mutants`: puts every client that lies through every scenario, and prints which scenario
//! catches which, as a table in Markdown. In virtual time, which takes seconds; with `--real` as
//! processes against real masters, which takes a quarter of an hour. With names of mutants: only those.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use redquorum_harness::history::History;
use redquorum_harness::judge::{Outcome, judge};
use redquorum_harness::real::{Choice, Ground, Setup};
use redquorum_harness::sabotage::Lie;
use redquorum_harness::scenario::{Scenario, embedded_runs};
use redquorum_harness::sim;

fn main() -> ExitCode {
    match table() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}

/// Whether every lie was caught, and the honest client was not.
fn table() -> Result<bool, String> {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    let real = asked.iter().any(|word| word == "--real");
    asked.retain(|word| word != "--real");
    let ground = if real { Some(masters()?) } else { None };
    let can = |run: &Scenario| ground.as_ref().is_none_or(|ground| ground.can(run).is_ok());
    let runs: Vec<Scenario> = embedded_runs().filter(can).collect();
    let mut all_well = true;
    println!("| client | caught by (and the layer that shows it first) | of {} runs |", runs.len());
    println!("|---|---|---|");
    for lie in Lie::ALL.into_iter().filter(|lie| chosen(&asked, *lie)) {
        let start = Instant::now();
        let mut caught = BTreeMap::new();
        for run in &runs {
            eprint!("\r\x1b[K{lie}: {}", run.name);
            // What takes a hair's breadth to see may take another seed.
            for seed in 1..=if real { 1 } else { 3 } {
                let history = match &ground {
                    Some(ground) => played(ground, run, lie)?,
                    None => sim::run(run, seed, lie),
                };
                let verdict = judge(&history);
                // What was not seen is no catch: a lie must be seen.
                if verdict.outcome == Outcome::Differs {
                    let layer = verdict.findings.first().map(|finding| finding.layer.name());
                    caught.insert(run.name.clone(), layer.unwrap_or("-"));
                    break;
                }
            }
        }
        eprintln!("\r\x1b[K{lie}: {} caught it, {:.1?}", caught.len(), start.elapsed());
        let names: Vec<String> =
            caught.iter().take(4).map(|(name, layer)| format!("{name} ({layer})")).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let more = if caught.len() > 4 { ", …" } else { "" };
        println!("| `{lie}`: {} | {names}{more} | {} |", lie.about(), caught.len());
        all_well &= caught.is_empty() == (lie == Lie::None);
    }
    Ok(all_well)
}

fn masters() -> Result<Ground, String> {
    let setup = Setup { choice: Choice::Process, ..Setup::default() };
    Ground::prepare(&setup).map_err(|why| why.to_string())
}

/// On real masters.
fn played(ground: &Ground, run: &Scenario, lie: Lie) -> Result<History, String> {
    let words = [beside("redquorum-mutant")?.into(), "--mutant".into(), lie.name().into()];
    let liars = ground.clone().with_command(lie.name(), words.to_vec());
    liars.run(run, 1, &mut |_| {}).map_err(|why| why.to_string())
}

fn chosen(asked: &[String], lie: Lie) -> bool {
    asked.is_empty() || asked.iter().any(|name| name == lie.name())
}

/// A program in the folder above this one's, which is `target/…/examples`.
fn beside(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|why| why.to_string())?;
    let folder = own.ancestors().nth(2).ok_or("this program has no folder")?;
    let path = folder.join(name);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display())) }
}
