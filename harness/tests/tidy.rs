//! The repository follows its rules of prose and size: no indefinite persons, no long lines, no
//! long files. The test checks sources, examples, scenarios and documents.

use std::fs;
use std::path::{Path, PathBuf};

const WIDTH: usize = 100;
const LINES: usize = 500;

/// Files that may be longer, because their parts read and write one state.
const LONG: [&str; 11] = [
    "crates/protocol/src/acquire.rs",
    "crates/protocol/src/client.rs",
    "crates/protocol/src/link.rs",
    "crates/protocol/src/terms.rs",
    "crates/protocol/src/wire.rs",
    "crates/redquorum/src/builder.rs",
    "crates/redquorum/src/shared.rs",
    "harness/src/client_machine.rs",
    "harness/src/prove/machines/side.rs",
    "harness/src/prove/machines/turn.rs",
    "harness/src/sim/server/keys.rs",
];

/// A sentence names its actor: a client, a master, a command.
const PERSONS: [&str; 9] = [
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "nobody",
    "no one",
    "somebody",
    "someone",
    "whoever",
];

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (rust, markdown) = (path.ends_with(".rs"), path.ends_with(".md"));
    let count = text.lines().count();
    if rust && count > LINES && !LONG.contains(&path) {
        faults.push(format!("{path}: {count} lines, of {LINES}: divide it"));
    }
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        let at = format!("{path}:{}", number + 1);
        if line.trim_start().starts_with("```") {
            code = !code;
            continue;
        }
        let Some(prose) = prose(path, line).filter(|_| !(markdown && code)) else { continue };
        // Tables and addresses cannot be wrapped.
        let fixed = prose.starts_with('|') || prose.contains("http") || prose.starts_with("![");
        if line.chars().count() > WIDTH && !fixed {
            faults.push(format!("{at}: more than {WIDTH} columns"));
        }
        let words =
            format!(" {} ", prose.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
        for person in PERSONS.iter().filter(|person| words.contains(&format!(" {person} "))) {
            faults.push(format!("{at}: \"{person}\": name the client, the master or the command"));
        }
    }
    faults
}

fn prose<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    if path.ends_with(".md") {
        return Some(line);
    }
    let marks: &[&str] = if path.ends_with(".toml") { &["#"] } else { &["///", "//!", "//"] };
    marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        // Build output, files that tests find, and the tests themselves.
        let skipped = ["target", "tests", "node_modules", "shim"].iter().any(|it| name == *it);
        if path.is_dir() && !skipped {
            files(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs" || it == "md" || it == "toml") {
            found.push(path);
        }
    }
}

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for folder in ["crates", "harness", "docs", "scenarios"] {
        files(&root.join(folder), &mut found);
    }
    assert!(found.len() > 400, "{} files", found.len());
    let all = found.iter().flat_map(|path| {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        faults(&name, &fs::read_to_string(path).unwrap())
    });
    let all: Vec<String> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn each_fault_is_seen() {
    let long = "x ".repeat(60);
    for (path, text, seen) in [
        ("a.rs", "/// Whoever waits is woken.".to_owned(), "a.rs:1: \"whoever\""),
        ("a.rs", "\n    // Nobody counts it.".to_owned(), "a.rs:2: \"nobody\""),
        ("a.rs", "//! Somebody's key.".to_owned(), "\"somebody\""),
        ("a.md", "No one, and everyone.".to_owned(), "\"no one\""),
        ("a.md", "| a table | for anyone |".to_owned(), "\"anyone\""),
        ("a.toml", "# someone".to_owned(), "\"someone\""),
        ("a.rs", format!("// {long}"), "more than 100 columns"),
        ("a.md", long.clone(), "more than 100 columns"),
        ("a.toml", format!("# {long}"), "more than 100 columns"),
        ("a.rs", "x\n".repeat(501), "501 lines"),
    ] {
        let found = faults(path, &text);
        assert!(found.iter().any(|fault| fault.contains(seen)), "{text}: {found:?}");
    }
    for (path, text) in [
        ("a.rs", format!("let nobody = \"{long}\";")),
        ("a.md", format!("```\n{long} nobody\n```")),
        ("a.md", format!("| {long} |")),
        ("crates/protocol/src/link.rs", "x\n".repeat(501)),
    ] {
        assert!(faults(path, &text).is_empty(), "{text}");
    }
}
