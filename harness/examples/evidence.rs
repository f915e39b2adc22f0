//! `just evidence`: runs the commands whose tables the documents contain, and writes each table
//! where the document has it. Arguments restrict it to the commands that contain one of them:
//! `just evidence mutants`. `--list` prints the commands.
//!
//! All of it takes about half an hour, the benchmark included.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

#[path = "../tests/support/tables.rs"]
mod tables;

use tables::{digest, tables};

fn main() -> ExitCode {
    match written() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}

fn written() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (options, parts): (Vec<_>, Vec<_>) =
        env::args().skip(1).partition(|word| word.starts_with("--"));
    let wanted = |command: &str| {
        parts.is_empty() || parts.iter().any(|part| command.contains(part.as_str()))
    };
    let mut printed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut paths = Vec::new();
    for folder in ["docs", "docs/tables"] {
        let documents = fs::read_dir(root.join(folder)).map_err(|why| why.to_string())?;
        paths.extend(documents.filter_map(|entry| Some(entry.ok()?.path())));
    }
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let named = |why| format!("{}: {why}", path.display());
        let mut text = fs::read_to_string(&path).map_err(|why| named(why.to_string()))?;
        let found = tables(&text).map_err(named)?;
        // From the end, so that earlier places stay what they are.
        for table in found.into_iter().rev().filter(|table| wanted(&table.command)) {
            if options.iter().any(|option| option == "--list") {
                println!("{}: {}, table {}", path.display(), table.command, table.number);
                continue;
            }
            if !printed.contains_key(&table.command) {
                printed.insert(table.command.clone(), run(root, &table.command)?);
            }
            let all = &printed[&table.command];
            let new = all.get(table.number - 1).ok_or_else(|| {
                format!("`{}` printed {} tables, not {}", table.command, all.len(), table.number)
            })?;
            text.replace_range(table.digest.1, &digest(new));
            text.replace_range(table.place, new);
        }
        fs::write(&path, text).map_err(|why| named(why.to_string()))?;
    }
    Ok(())
}

/// Runs a command in the root of the repository, and returns the Markdown tables that it prints.
fn run(root: &Path, command: &str) -> Result<Vec<String>, String> {
    eprintln!("$ {command}");
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| why.to_string())?;
    if !output.status.success() {
        return Err(format!("`{command}` failed: {}", output.status));
    }
    let mut tables = vec![String::new()];
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let current = tables.last_mut().expect("there is one");
        match (line.starts_with('|'), current.is_empty()) {
            (true, _) => *current += &format!("{line}\n"),
            (false, false) => tables.push(String::new()),
            (false, true) => {}
        }
    }
    tables.retain(|table| !table.is_empty());
    Ok(tables)
}
