//! The theorems of `proof`, and the mutants that their rules name.

use std::path::Path;

/// Each name that the text of a clause gives after `mutant` or `mutants`, with its theorem.
pub(crate) fn named() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proof");
    let mut all = Vec::new();
    for file in std::fs::read_dir(folder).expect("the folder of proofs").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(theorem) = name.strip_suffix(".py") else { continue };
        let text = std::fs::read_to_string(file.path()).expect("a readable proof");
        for list in text.split("(mutant").skip(1).filter_map(|rest| rest.split(')').next()) {
            let list = list.strip_prefix('s').unwrap_or(list).replace('"', " ");
            all.extend(list.split(',').map(|name| (name.trim().to_owned(), theorem.to_owned())));
        }
    }
    all.sort();
    all
}
