//! The repository follows its rules of prose, names and size: no indefinite persons, no types with
//! names that are no nouns or that were replaced, no long lines, no long files, no dead links. The
//! test checks sources, tests, examples, scenarios and documents.

use std::fs;
use std::path::{Path, PathBuf};

const WIDTH: usize = 100;
const LINES: usize = 500;

/// Files that may be longer, because their parts read and write one state, or are the one home of
/// each command.
const LONG: [&str; 7] = [
    "crates/protocol/src/acquire.rs",
    "crates/protocol/src/link.rs",
    "crates/protocol/src/wire/command.rs",
    "crates/redquorum/src/builder.rs",
    "crates/redquorum/src/shared.rs",
    "harness/src/client_machine.rs",
    "harness/src/model_check/machines/turn.rs",
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

/// Names that no type may have: they are no nouns, or the vocabulary has another word.
const RETIRED: [&str; 40] = [
    "Around",
    "Ask",
    "Asked",
    "Ballot",
    "Blunder",
    "Deed",
    "Desk",
    "Dice",
    "Director",
    "Fate",
    "Gone",
    "Happening",
    "Harm",
    "Heard",
    "Hearer",
    "Here",
    "Itself",
    "Laxity",
    "Layer",
    "Lesson",
    "Lie",
    "Patience",
    "Roster",
    "Said",
    "Seat",
    "Sentry",
    "Spot",
    "Teller",
    "Terms",
    "Then",
    "There",
    "Thing",
    "Told",
    "Vigil",
    "Voice",
    "What",
    "Where",
    "Whose",
    "Wish",
    "Wrong",
];

/// The name of the type that a line of Rust defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.by_ref().find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    words.next()
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (rust, markdown) = (path.ends_with(".rs"), path.ends_with(".md"));
    let count = text.lines().count();
    let is_test = path.contains("/tests/");
    if rust && !is_test && count > LINES && !LONG.contains(&path) {
        faults.push(format!("{path}: {count} lines, of {LINES}: divide it"));
    }
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        let at = format!("{path}:{}", number + 1);
        if line.trim_start().starts_with("```") {
            code = !code;
            continue;
        }
        let prose = prose(path, line);
        if let (true, None, Some(name)) = (rust && !is_test, prose, defined(line))
            && RETIRED.contains(&name)
        {
            faults.push(format!("{at}: \"{name}\" is no name for a type: see the vocabulary"));
        }
        let Some(prose) = prose.filter(|_| !(markdown && code)) else { continue };
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

/// The anchor of a heading, as code hosts make it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

/// The relative links of a document that lead nowhere.
fn dead_links(path: &Path, text: &str) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let links = links.map(|(link, _)| link).filter(|link| !link.contains([':', '\n', ' ', '`']));
    let dead = links.filter(|link| {
        let (file, section) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => path.to_path_buf(),
            file => path.parent().unwrap().join(file),
        };
        if section.is_empty() || target.extension().is_none_or(|it| it != "md") {
            return !target.exists();
        }
        let Ok(target) = fs::read_to_string(target) else { return true };
        !target.lines().any(|line| line.starts_with('#') && anchor(line) == section)
    });
    dead.map(|link| format!("{}: the link {link} leads nowhere", path.display())).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        // Build output, packages of other languages, and files that the search wrote.
        let skipped = ["target", "node_modules", "shim", "found"].iter().any(|it| name == *it);
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
    let documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let mut found: Vec<PathBuf> = documents.iter().map(|name| root.join(name)).collect();
    for folder in ["crates", "harness", "docs", "scenarios"] {
        files(&root.join(folder), &mut found);
    }
    assert!(found.len() > 400, "{} files", found.len());
    let all = found.iter().flat_map(|path| {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(path).unwrap();
        let dead = if name.ends_with(".md") { dead_links(path, &text) } else { Vec::new() };
        faults(&name, &text).into_iter().chain(dead)
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
        ("a.rs", "pub(crate) enum Told<'a> {".to_owned(), "\"Told\" is no name"),
        ("a.rs", "    type Seat = u8;".to_owned(), "\"Seat\" is no name"),
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
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("README.md");
    let links = "[a](docs/safety.md) [b](docs/none.md) [c](#none) [d](docs/safety.md#none) \
                 [e](https://example.org/none)";
    let dead = dead_links(&readme, links);
    assert_eq!(dead.len(), 3, "{dead:?}");
    for link in ["docs/none.md", "#none", "docs/safety.md#none"] {
        assert!(dead.iter().any(|it| it.contains(&format!("link {link} "))), "{dead:?}");
    }
}
