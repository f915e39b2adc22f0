//! `just mutants`: puts every client that lies through every scenario, and prints which scenario
//! catches which, as a table in Markdown. With names of mutants: only those.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use redquorum_harness::judge::{Outcome, judge};
use redquorum_harness::real::{Choice, Ground, Setup};
use redquorum_harness::sabotage::Lie;
use redquorum_harness::scenario::{Scenario, embedded};

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
    let setup = Setup { choice: Choice::Process, ..Setup::default() };
    let ground = Ground::prepare(&setup).map_err(|why| why.to_string())?;
    let mutant = beside("redquorum-mutant")?;
    let mut runs = Vec::new();
    for (_, text) in embedded() {
        let scenario: Scenario = toml::from_str(text).map_err(|why| why.to_string())?;
        runs.extend(scenario.runs());
    }
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let mut all_well = true;
    println!("| client | caught by | of {} runs |", runs.len());
    println!("|---|---|---|");
    for lie in Lie::ALL.into_iter().filter(|lie| chosen(&asked, *lie)) {
        let start = Instant::now();
        let words = [mutant.clone().into(), "--mutant".into(), lie.name().into()];
        let liars = ground.clone().with_command(lie.name(), words.to_vec());
        let mut caught = BTreeMap::new();
        for run in &runs {
            eprint!("\r\x1b[K{lie}: {}", run.name);
            let history = liars.run(run, 1, &mut |_| {}).map_err(|why| why.to_string())?;
            let verdict = judge(&history);
            // What was not seen is no catch: a lie must be seen.
            if verdict.outcome == Outcome::Differs {
                let layers: Vec<&str> =
                    verdict.findings.iter().map(|finding| finding.layer.name()).collect();
                caught.insert(run.name.clone(), layers.first().copied().unwrap_or("-"));
            }
        }
        eprintln!("\r\x1b[K{lie}: {} caught it, {:.0?}", caught.len(), start.elapsed());
        let names: Vec<String> =
            caught.iter().take(6).map(|(name, layer)| format!("{name} ({layer})")).collect();
        let more = if caught.len() > names.len() { ", …" } else { "" };
        println!("| {lie}: {} | {}{more} | {} |", lie.about(), names.join(", "), caught.len());
        all_well &= caught.is_empty() == (lie == Lie::None);
    }
    Ok(all_well)
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
