//! Puts the scenarios into the binary, so that an installed one needs no files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let home = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // In the repository they stand beside this crate; in a package, in it.
    let outside = home.join("../../scenarios");
    let scenarios = if outside.is_dir() { outside } else { home.join("scenarios") };
    // The folder itself, too: a file may come or go.
    println!("cargo::rerun-if-changed={}", scenarios.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&scenarios)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let mut code = String::from("static EMBEDDED: &[(&str, &str)] = &[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
        writeln!(code, "    ({name:?}, include_str!({:?})),", file.display().to_string())
            .expect("a string takes everything");
    }
    code.push_str("];\n");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("embedded.rs"), code).expect("the folder is there");
}
