//! The repository follows its rules of prose and size: no long lines, no file that is too long to
//! hold one idea. Modules do not import each other in circles. Documents link to what exists, name
//! files and commands that exist, and have the tables that their commands printed. The test checks
//! sources, tests, examples, scenarios and documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "support/tables.rs"]
mod tables;
#[path = "support/theorems.rs"]
mod theorems;

const WIDTH: usize = 100;
const LINES: usize = 1000;

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (rust, markdown) = (path.ends_with(".rs"), path.ends_with(".md"));
    let count = text.lines().count();
    if rust && count > LINES {
        faults.push(format!("{path}: {count} lines, of {LINES}: divide it"));
    }
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
            continue;
        }
        let Some(prose) = prose(path, line).filter(|_| !(markdown && code)) else { continue };
        // Tables and addresses cannot be wrapped.
        let fixed = prose.starts_with('|') || prose.contains("http") || prose.starts_with("![");
        if line.chars().count() > WIDTH && !fixed {
            faults.push(format!("{path}:{}: more than {WIDTH} columns", number + 1));
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

/// The files and recipes of the repository.
struct Known {
    files: BTreeSet<String>,
    recipes: BTreeSet<String>,
}

impl Known {
    fn has_file(&self, end: &str) -> bool {
        self.files.iter().any(|file| file == end || file.ends_with(&format!("/{end}")))
    }

    /// The files and commands that a document names in code and that do not exist, and the tables
    /// that are not what their command printed.
    fn stale(&self, path: &str, text: &str) -> Vec<String> {
        let mut stale = Vec::new();
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let ends = [".rs", ".toml", ".py", ".yml", ".sh"];
        for file in code.filter(|code| ends.iter().any(|end| code.ends_with(end))) {
            let is_path = file.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
            // A file of the reader's own is called `my-…`.
            let is_own = file.contains("my-");
            if is_path && !is_own && !file.starts_with('.') && !self.has_file(file) {
                stale.push(format!("{path}: there is no file `{file}`"));
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '-';
        for line in text.lines() {
            let inline = line.split('`').skip(1).step_by(2);
            let commands = std::iter::once(line).chain(inline);
            let recipes = commands.filter_map(|command| command.strip_prefix("just "));
            let recipes = recipes.filter_map(|rest| rest.split(|c| !is_word(c)).next());
            for name in recipes.filter(|name| !self.recipes.contains(*name)) {
                stale.push(format!("{path}: the justfile has no recipe {name}: {line}"));
            }
            for (flag, folder) in [("--example ", "examples"), ("--test ", "tests")] {
                let Some((_, rest)) = line.split_once(flag) else { continue };
                let name = rest.split(|c: char| !is_word(c) && c != '_').next().unwrap_or_default();
                let found = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/main.rs")];
                if !name.is_empty() && !found.iter().any(|file| self.has_file(file)) {
                    stale.push(format!("{path}: there is no {flag}{name}"));
                }
            }
        }
        match tables::tables(text) {
            Err(why) => stale.push(format!("{path}: {why}")),
            Ok(tables) => stale.extend(tables.iter().filter_map(|table| {
                let changed = tables::digest(&text[table.place.clone()]) != table.digest.0;
                changed.then(|| {
                    format!("{path}: a table is not what `{}` printed: run it again", table.command)
                })
            })),
        }
        stale
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Adds the files of a folder, without build output and packages of other languages.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true if path.ends_with("target") || path.ends_with("node_modules") => {}
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

fn known() -> Known {
    let documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let of_root = documents.into_iter().chain(["Cargo.toml", "deny.toml"]);
    let mut all: Vec<PathBuf> = of_root.map(|name| root().join(name)).collect();
    for folder in ["crates", "harness", "docs", "scenarios", "proof", ".ci", ".github"] {
        walk(&root().join(folder), &mut all);
    }
    let relative =
        |path: PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
    let justfile = fs::read_to_string(root().join("justfile")).unwrap();
    let recipes =
        justfile.lines().filter(|line| line.contains(':') && !line.starts_with([' ', '#']));
    let recipes = recipes.filter_map(|line| line.split([' ', ':']).next()).map(str::to_owned);
    Known { files: all.into_iter().map(relative).collect(), recipes: recipes.collect() }
}

/// Whether a file must follow the rules. The search wrote those in `found`.
fn is_checked(name: &str) -> bool {
    let is_text = [".rs", ".md", ".toml"].iter().any(|end| name.ends_with(end));
    is_text && !name.split('/').any(|part| part == "found" || part == "shim")
}

#[test]
fn the_repository_is_tidy() {
    let known = known();
    let checked: Vec<&String> = known.files.iter().filter(|name| is_checked(name)).collect();
    assert!(checked.len() > 400, "{} files", checked.len());
    let all = checked.into_iter().flat_map(|name| {
        let path = root().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let (dead, stale) = match name.ends_with(".md") {
            // A changelog names what is gone.
            true if name == "CHANGELOG.md" => (dead_links(&path, &text), Vec::new()),
            true => (dead_links(&path, &text), known.stale(name, &text)),
            false => Default::default(),
        };
        faults(name, &text).into_iter().chain(dead).chain(stale)
    });
    let all: Vec<String> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The links of a published file to the repository that have another reference than this one, or
/// lead nowhere in the tree.
fn wrong_links_of_package(reference: &str, name: &str, text: &str) -> Vec<String> {
    let links = text.split("https://github.com/redquorum/redquorum/blob/").skip(1);
    let links = links.filter_map(|rest| rest.split([')', '>', ' ', '\n']).next()?.split_once('/'));
    let wrong = links.filter(|(named, target)| {
        let target = format!("]({target})");
        *named != reference || !dead_links(&root().join("README.md"), &target).is_empty()
    });
    wrong.map(|(named, target)| format!("{name}: {named}/{target}, not {reference}/…")).collect()
}

/// The documentation of a package leads to the documents of its own version: to the tag of the last
/// release. `.ci/release` sets the links.
#[test]
fn links_of_packages_lead_to_their_version() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut versions =
        changelog.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(", "));
    let released = versions.find(|(_, date)| *date != "unreleased");
    let reference = released.map_or("main".to_owned(), |(version, _)| format!("v{version}"));
    let known = known();
    let published = known.files.iter().filter(|name| {
        let is_there = name.starts_with("crates/") || name.starts_with("harness/src/");
        is_there && name.ends_with(".rs") || name.ends_with("/README.md")
    });
    let wrong = published.flat_map(|name| {
        wrong_links_of_package(&reference, name, &fs::read_to_string(root().join(name)).unwrap())
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let link = "(https://github.com/redquorum/redquorum/blob/v1.2.3/docs/safety.md#the-rules)";
    assert_eq!(wrong_links_of_package("v1.2.3", "a.rs", link), [""; 0]);
    assert_eq!(wrong_links_of_package("main", "a.rs", link).len(), 1);
    let dead = link.replace("the-rules", "no-rules");
    assert_eq!(wrong_links_of_package("v1.2.3", "a.rs", &dead).len(), 1);
}

/// The site is a book of all documents: none is left out of its table of contents.
#[test]
fn the_site_has_every_document() {
    let site = root().join("docs/site");
    let summary = fs::read_to_string(site.join("SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let pages: BTreeSet<_> =
        links.map(|(link, _)| site.join(link).canonicalize().unwrap()).collect();
    let known = known();
    let documents = known.files.iter().filter(|name| {
        let is_page = name.starts_with("docs/") || !name.contains('/');
        is_page && name.ends_with(".md") && !name.ends_with("SUMMARY.md")
    });
    let missing: Vec<_> = documents
        .filter(|name| !pages.contains(&root().join(name).canonicalize().unwrap()))
        .collect();
    assert!(missing.is_empty() && pages.len() > 20, "not in docs/site/SUMMARY.md: {missing:?}");
}

/// The modules at the root of its crate that a text imports: `crate::a::b`, `crate::{a, b::c}`.
fn imported(text: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        for part in list.split_inclusive(['{', ',', '}']) {
            if depth == 0 {
                found.insert(word(part));
            }
            depth += i32::from(part.ends_with('{')) - i32::from(part.ends_with('}'));
            if depth < 0 {
                break;
            }
        }
    }
    found
}

/// The modules at the root of a crate that import each other in a circle, and those between two
/// circles. Takes the paths of the sources below `src`, and their texts.
fn circles<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources {
        let module = path.split(['/', '.']).next().unwrap_or_default();
        // The root itself has all modules, and tests may look at any.
        if !["lib", "main", "bin"].contains(&module) && !path.contains("tests") {
            let code = text.split("\nmod tests {").next().unwrap_or_default();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let code: Vec<&str> = code.collect();
            imports.entry(module).or_default().extend(imported(&code.join("\n")));
        }
    }
    loop {
        let imports_another =
            |of: &str| imports[of].iter().any(|it| it != of && imports.contains_key(it.as_str()));
        let is_imported = |of: &str| imports.iter().any(|(it, all)| *it != of && all.contains(of));
        let apart = imports.keys().find(|it| !imports_another(it) || !is_imported(it)).copied();
        let Some(apart) = apart else {
            return imports.into_keys().map(str::to_owned).collect();
        };
        imports.remove(apart);
    }
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for name in known().files.iter().filter(|name| name.ends_with(".rs")) {
        if let Some((of, path)) = name.split_once("/src/") {
            let text = fs::read_to_string(root().join(name)).unwrap();
            crates.entry(of.to_owned()).or_default().push((path.to_owned(), text));
        }
    }
    assert!(crates.len() > 6, "{:?}", crates.keys());
    for (of, sources) in &crates {
        let texts = sources.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        assert_eq!(circles(texts), [""; 0], "modules of {of} import each other");
    }
    let one = ("a.rs", "use crate::b::B;");
    let other = ("b/c.rs", "use std::x::{y, z};\nuse crate::{\n    d::{e, f},\n    a::A,\n};");
    let leaf = ("d.rs", "// use crate::a;\nfn d() {}\n#[cfg(test)]\nmod tests {\n use crate::a;");
    assert_eq!(circles([one, other, leaf]), ["a", "b"]);
    assert_eq!(circles([other, leaf, ("lib.rs", "mod a;\nuse crate::b;")]), [""; 0]);
}

#[test]
fn each_fault_is_seen() {
    let long = "x ".repeat(60);
    for (path, text, seen) in [
        ("a.rs", format!("// {long}"), "more than 100 columns"),
        ("a.md", long.clone(), "more than 100 columns"),
        ("a.toml", format!("# {long}"), "more than 100 columns"),
        ("a.rs", "x\n".repeat(1001), "1001 lines"),
    ] {
        let found = faults(path, &text);
        assert!(found.iter().any(|fault| fault.contains(seen)), "{text}: {found:?}");
    }
    for (path, text) in [
        ("a.rs", format!("let text = \"{long}\";")),
        ("a.md", format!("```\n{long}\n```")),
        ("a.md", format!("| {long} |")),
        ("a.rs", "x\n".repeat(1000)),
    ] {
        assert!(faults(path, &text).is_empty(), "{text}");
    }
    let links = "[a](docs/safety.md) [b](docs/none.md) [c](#none) [d](docs/safety.md#none) \
                 [e](https://example.org/none)";
    let dead = dead_links(&root().join("README.md"), links);
    assert_eq!(dead.len(), 3, "{dead:?}");
    for link in ["docs/none.md", "#none", "docs/safety.md#none"] {
        assert!(dead.iter().any(|it| it.contains(&format!("link {link} "))), "{dead:?}");
    }
}

#[test]
fn a_document_that_is_older_than_what_it_names_is_seen() {
    let known = known();
    let table = "| a |\n|---|\n| 1 |\n";
    let printed = |digest: &str| {
        format!("<!-- printed by: just bench -->\n{table}<!-- printed: {digest} -->\n")
    };
    for (text, seen) in [
        ("`harness/src/none.rs`".to_owned(), "no file `harness/src/none.rs`"),
        ("```sh\njust none\n```".to_owned(), "no recipe none"),
        ("cargo run -p x --example none".to_owned(), "no --example none"),
        ("cargo test --test none".to_owned(), "no --test none"),
        (printed("0123456789ab"), "not what `just bench` printed"),
        (format!("<!-- printed by: just bench -->\n{table}"), "line 1: a mark without an end"),
    ] {
        let found = known.stale("a.md", &text);
        assert!(found.iter().any(|fault| fault.contains(seen)), "{text}: {found:?}");
    }
    let right = format!(
        "`exhaustive/tally.rs` just so, `just bench`, --example mutants, --test lock\n{}",
        printed(&tables::digest(table))
    );
    assert_eq!(known.stale("a.md", &right), [""; 0]);
}

/// A clause of a theorem names the mutants that break it.
#[test]
fn theorems_name_mutants_that_exist() {
    let named = theorems::named();
    assert!(named.len() > 20, "{named:?}");
    for (name, theorem) in named {
        let known = redquorum_scenario::Mutant::ALL.iter().any(|mutant| mutant.name() == name);
        assert!(known, "proof/{theorem}.py names a mutant {name:?}");
    }
}
