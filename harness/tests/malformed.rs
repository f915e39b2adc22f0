//! Faulty scenario files and the exact error text for each: `malformed/X.toml` and
//! `malformed/X.txt`.
//!
//! `REDQUORUM_UPDATE=1 cargo test -p redquorum-harness --test malformed` writes the texts anew;
//! read them before you commit them.

use std::path::{Path, PathBuf};
use std::{env, fs};

use redquorum_harness::scenario::read;

fn files() -> Vec<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed");
    let entries = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    files
}

#[test]
fn problems_have_a_place_and_a_fix() {
    let update = env::var_os("REDQUORUM_UPDATE").is_some();
    let files = files();
    assert!(files.len() >= 30);
    let mut others = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let problems = read(name, &text).expect_err(name);
        for problem in problems.list() {
            assert!(!problem.message.is_empty() && !problem.fix.is_empty(), "{name}: {problem:?}");
        }
        let printed = format!("{problems}\n");
        let expected = path.with_extension("txt");
        if update {
            fs::write(&expected, printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            others.push(format!("{name} now has:\n{printed}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}
